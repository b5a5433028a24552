"""Public reports of gobreaker, Sentinel, opossum, Envoy and Hystrix: what went wrong there does not go wrong here."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    RetryBudget,
    breaker,
    bulkhead,
    retry,
)
from resilience.events import StateChanged

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def trip_now(circuit):
    """One failure of a call of its own."""
    circuit.on_failure(circuit.try_acquire(), FaultKind.TRANSIENT)


# ------------------------------------------------------------------------------------------ sony/gobreaker
def test_listener_may_ask_and_call_the_breaker_it_is_told_of(registry, world, remote, together):
    """gobreaker#37: a listener was called under the lock: asking the breaker for its counts, it waited for ever."""
    seen = []

    def ask(event):
        circuit = registry.get("api")
        seen.append((event.after, circuit.state, circuit.status().failure_count, circuit.is_open()))
        with pytest.raises(CircuitOpenError):
            circuit.try_acquire()
        # And so may a thread that the listener waits for.
        helper = threading.Thread(target=circuit.try_acquire, args=[OnOpen.BYPASS], daemon=True)
        helper.start()
        helper.join(5)
        assert not helper.is_alive()
        seen.append("asked")

    registry.subscribe(ask, StateChanged)
    call = breaker("api", BreakerConfig(Consecutive(1)))(world.function(remote(then=ConnectionError)))

    assert isinstance(together(1, lambda index: world.fails(call))[0], ConnectionError)
    assert [(OPEN, OPEN, 1, True), "asked"] == seen


# ------------------------------------------------------------------------------------------ alibaba/Sentinel
def test_probe_that_the_next_breaker_refuses_is_given_back(registry, clock, world, remote):
    """Sentinel#1638: a breaker went half-open, the next rule refused the call, and half-open never ended."""
    backend = remote("back")
    inner = breaker("inner", BreakerConfig(Consecutive(1), cooldown=20))(world.function(backend))
    outer = breaker("outer", BreakerConfig(Consecutive(1), cooldown=10))(world.calling(inner))

    trip_now(registry.get("inner"))
    trip_now(registry.get("outer"))
    clock.advance(10)
    for _ in range(3):
        assert "inner" in str(world.fails(outer))
    assert (HALF_OPEN, 3) == (registry.get("outer").state, registry.get("outer").status().probes_released)

    clock.advance(10)
    assert "back" == world.call(outer)
    assert (CLOSED, CLOSED, 1) == (registry.get("outer").state, registry.get("inner").state, backend.calls)


@pytest.mark.parametrize(("room", "probes"), [("around", 0), ("behind", 3)])
def test_call_that_a_full_bulkhead_refuses_keeps_no_probe(registry, clock, world, remote, room, probes):
    """Sentinel#1638: the same for a rule that refuses for want of room, whichever of the two is asked first."""
    cap = bulkhead("room", max_in_flight=1)
    circuit = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=10))
    backend = world.function(remote("back"))
    call = breaker("api")(cap(backend) if room == "around" else world.calling(cap(backend)))
    trip_now(circuit)
    clock.advance(10)

    assert [BulkheadFullError] * 3 == world.call(cap(world.trying(call, 3)))
    assert (probes, probes) == (circuit.status().probes_started, circuit.status().probes_released)
    assert "back" == world.call(call)
    assert CLOSED is circuit.state


# ------------------------------------------------------------------------------------------ nodeshift/opossum
def test_failed_probe_opens_again_whatever_the_rate(registry, clock, world, remote):
    """opossum#119: a failed trial at a low failure rate left the circuit half-open: all was refused from then on."""
    backend = remote(*["ok"] * 9, ConnectionError, ConnectionError, "back")
    call = breaker("api", BreakerConfig(FailureRate(0.1, window=300, bucket=300, min_calls=10), cooldown=30))(
        world.function(backend)
    )
    circuit = registry.get("api")
    for _ in range(9):
        world.call(call)
    world.fails(call)
    assert OPEN is circuit.state

    clock.advance(30)
    assert isinstance(world.fails(call), ConnectionError)
    assert (OPEN, 30.0) == (circuit.state, circuit.status().retry_after)
    assert isinstance(world.fails(call), CircuitOpenError)
    clock.advance(30)
    assert "back" == world.call(call)
    assert (CLOSED, 12) == (circuit.state, backend.calls)


def test_half_open_does_not_open_the_flood_gates(registry, clock):
    """opossum#119: half-open did not count as open, so every call went through and not only the next."""
    circuit = registry.breaker("api", BreakerConfig(FailureRate(0.5, min_calls=1), cooldown=30))
    trip_now(circuit)
    clock.advance(30)
    probe = circuit.try_acquire()

    for _ in range(3):
        with pytest.raises(CircuitOpenError):
            circuit.try_acquire()
    assert circuit.is_open()
    circuit.on_success(probe)
    assert not circuit.is_open()


# ------------------------------------------------------------------------------------------ envoyproxy/envoy
@pytest.mark.parametrize("trip", [Consecutive(1), FailureRate(1.0, min_calls=1)], ids=["streak", "rate"])
def test_a_full_bulkhead_says_nothing_about_the_remote(registry, world, remote, trip):
    """envoy#25487: refusals for want of room of our own were held against hosts that had done nothing."""
    cap = bulkhead("room", max_in_flight=1)
    inner = breaker("inner", BreakerConfig(trip))(cap(world.function(remote())))
    outer = breaker("outer", BreakerConfig(trip))(world.calling(inner))

    assert [BulkheadFullError] * 3 == world.call(cap(world.trying(outer, 3)))
    for name in ("outer", "inner"):
        status = registry.get(name).status()
        assert (CLOSED, 0, 0) == (status.state, status.failure_count, status.window_calls)
    assert "ok" == world.call(outer)


def test_a_call_that_waits_to_be_repeated_counts_against_the_cap(registry, clock, spin, remote):
    """envoy#30205: repeats standing in their backoff were not counted: more were under way than allowed."""
    backend = remote(ConnectionError, "second time")

    @bulkhead("room", max_in_flight=1)
    @retry(2, wait=10, idempotent=True)
    async def call():
        return backend()

    async def main():
        first = asyncio.ensure_future(call())
        await spin()
        assert 1 == backend.calls
        assert not first.done()
        with pytest.raises(BulkheadFullError):
            await call()
        clock.advance(10)
        assert "second time" == await first
        assert "ok" == await call()

    asyncio.run(main())


def test_a_retry_that_waits_is_in_the_budget_already(registry, clock, spin, remote):
    """envoy#30205: the budget is asked when a repeat is scheduled, not when its backoff is over."""
    backend = remote(*[ConnectionError] * 2, then="ok")

    @retry(2, wait=10, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.1))
    async def call():
        return backend()

    async def main():
        first = asyncio.ensure_future(call())
        await spin()
        assert 1 == registry.retry_budget("api").status().retries
        with pytest.raises(ConnectionError):
            await call()
        clock.advance(10)
        assert "ok" == await first

    asyncio.run(main())
    assert 3 == backend.calls


# ------------------------------------------------------------------------------------------ Netflix/Hystrix
def test_probe_whose_caller_leaves_is_given_back_at_once(registry, clock, spin):
    """Hystrix#1621: when the one trial call was given up by its caller the circuit stayed open for good."""
    circuit = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30, probe_lease=3600))
    trip_now(circuit)
    clock.advance(30)

    async def main():
        end = asyncio.Event()

        @breaker("api")
        async def call():
            await end.wait()
            return "back"

        for _ in range(3):
            probe = asyncio.ensure_future(call())
            await spin()
            assert circuit.is_open()
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
            assert not circuit.is_open()
        end.set()
        return await call()

    assert "back" == asyncio.run(main())
    status = circuit.status()
    assert (CLOSED, 4, 1, 0, 3) == (
        status.state,
        status.probes_started,
        status.probes_succeeded,
        status.probes_failed,
        status.probes_released,
    )


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_probe_of_a_thread_that_is_interrupted_is_given_back(registry, clock, remote, leaving):
    """Hystrix#1621: the same for a plain call that an interruption ends."""
    circuit = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30, probe_lease=3600))
    trip_now(circuit)
    clock.advance(30)
    backend = remote(leaving, "back")
    call = breaker("api")(lambda: backend())

    with pytest.raises(leaving):
        call()
    assert HALF_OPEN is circuit.state
    assert "back" == call()
    assert CLOSED is circuit.state
