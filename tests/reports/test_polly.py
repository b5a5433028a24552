"""Public reports of App-vNext/Polly: what went wrong there does not go wrong here."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import BreakerConfig, CircuitOpenError, CircuitState, Consecutive, FailureRate, FaultKind, breaker
from resilience.events import StateChanged

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
MODES = pytest.mark.parametrize("trip", [Consecutive(1), FailureRate(min_calls=1)], ids=["streak", "rate"])


def trip_now(circuit):
    """One failure of a call of its own."""
    circuit.on_failure(circuit.try_acquire(), FaultKind.TRANSIENT)


@MODES
def test_threads_are_refused_while_the_first_call_after_the_cooldown_is_out(registry, clock, together, trip):
    """Polly#216: until the first call after the break came back, all others were let through as well."""
    circuit = registry.breaker("api", BreakerConfig(trip, cooldown=30))
    trip_now(circuit)
    clock.advance(30)
    refused = threading.Semaphore(0)
    reached = []

    @breaker("api")
    def call():
        reached.append(1)
        for _ in range(5):
            assert refused.acquire(timeout=5)
        return "probed"

    def one(index):
        try:
            return call()
        except CircuitOpenError as exc:
            refused.release()
            return exc

    results = together(6, one)
    assert (1, 1) == (len(reached), results.count("probed"))
    assert 5 == sum(isinstance(result, CircuitOpenError) for result in results)
    assert CLOSED is circuit.state


@MODES
def test_tasks_are_refused_while_the_first_call_after_the_cooldown_is_out(registry, clock, spin, trip):
    """Polly#216: the same for tasks, where the first call fails late."""
    circuit = registry.breaker("api", BreakerConfig(trip, cooldown=30))
    trip_now(circuit)
    clock.advance(30)
    reached = []

    async def main():
        end = asyncio.Event()

        @breaker("api")
        async def call():
            reached.append(1)
            await end.wait()
            raise ConnectionError

        tasks = [asyncio.ensure_future(call()) for _ in range(6)]
        await spin()
        clock.advance(20)
        end.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert 1 == len(reached)
    assert [ConnectionError] + [CircuitOpenError] * 5 == [type(result) for result in results]
    assert (OPEN, 30.0) == (circuit.state, circuit.status().retry_after)


@MODES
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_call_from_before_the_trip_does_not_decide_half_open(registry, clock, spin, trip, ends):
    """Polly#217: a slow call begun while the circuit was closed came back in half-open and was taken for the trial."""
    circuit = registry.breaker("api", BreakerConfig(trip, cooldown=30))

    async def main():
        end = asyncio.Event()

        @breaker("api")
        async def slow():
            await end.wait()
            if ends == "badly":
                raise ConnectionError

        overhanging = asyncio.ensure_future(slow())
        await spin()
        trip_now(circuit)
        clock.advance(30)
        probe = circuit.try_acquire()
        end.set()
        await asyncio.gather(overhanging, return_exceptions=True)

        assert HALF_OPEN is circuit.state
        with pytest.raises(CircuitOpenError):
            await slow()
        circuit.on_success(probe)

    asyncio.run(main())
    assert CLOSED is circuit.state
    assert (0, 1) == (circuit.status().failure_count, circuit.status().late_results)


@MODES
def test_failures_that_arrive_in_the_open_state_open_nothing_again(registry, clock, together, trip):
    """Polly#223: each overhanging failure announced the break again; and a trial that hangs must not be the last."""
    announced = []
    registry.subscribe(announced.append, StateChanged)
    circuit = registry.breaker("api", BreakerConfig(trip, cooldown=30, probe_lease=30))
    inside = threading.Barrier(5)

    @breaker("api")
    def call():
        inside.wait(5)
        raise ConnectionError

    assert [ConnectionError] * 5 == [type(result) for result in together(5, lambda index: call())]
    assert [OPEN] == [event.after for event in announced]

    overhanging = circuit.status()
    clock.advance(10)
    assert (20.0, overhanging.opened_at) == (circuit.status().retry_after, circuit.status().opened_at)

    clock.advance(20)
    circuit.try_acquire()  # hangs
    clock.advance(29)
    with pytest.raises(CircuitOpenError):
        circuit.try_acquire()
    clock.advance(1)
    circuit.on_success(circuit.try_acquire())
    assert [OPEN, HALF_OPEN, CLOSED] == [event.after for event in announced]


@MODES
def test_a_late_failure_does_not_prolong_the_open_state(registry, clock, trip):
    """Polly#223: nor does a failure that arrives in the middle of the break begin it anew."""
    circuit = registry.breaker("api", BreakerConfig(trip, cooldown=30))
    slow = circuit.try_acquire()
    trip_now(circuit)
    clock.advance(25)
    circuit.on_failure(slow, FaultKind.TRANSIENT)

    assert (OPEN, 5.0) == (circuit.state, circuit.status().retry_after)
    clock.advance(5)
    assert not circuit.is_open()
