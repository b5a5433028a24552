"""Public reports of resilience4j/resilience4j: what went wrong there does not go wrong here."""

from __future__ import annotations

import asyncio

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    TimeoutExceeded,
    breaker,
    timeout,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def open_and_cool(registry, clock, config):
    """A breaker "api" whose cooldown is over."""
    circuit = registry.breaker("api", config)
    while circuit.state is CLOSED:
        circuit.on_failure(circuit.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    return circuit


@pytest.mark.parametrize("probes", [1, 2])
def test_a_hung_backend_is_probed_by_as_many_calls_as_set_and_not_by_all(registry, clock, spin, probes):
    """resilience4j#343: in half-open every call went to the backend that hung, and waited for its time limit."""
    reached = []

    @timeout(5)
    @breaker("api", BreakerConfig(Consecutive(1), cooldown=30, half_open_probes=probes))
    async def call():
        reached.append(1)
        await asyncio.Event().wait()

    async def main():
        first = asyncio.ensure_future(call())
        await spin()
        clock.advance(5)
        with pytest.raises(TimeoutExceeded):
            await first
        assert OPEN is registry.get("api").state

        clock.advance(30)
        tasks = [asyncio.ensure_future(call()) for _ in range(10)]
        await spin()
        refused = [task.exception() for task in tasks if task.done()]
        assert 1 + probes == len(reached)
        assert [CircuitOpenError] * (10 - probes) == [type(exc) for exc in refused]

        clock.advance(5)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert probes == sum(isinstance(result, TimeoutExceeded) for result in results)

    asyncio.run(main())
    assert (OPEN, 1 + probes) == (registry.get("api").state, len(reached))


def test_an_exception_that_does_not_count_gives_the_probe_back(registry, clock, world, remote):
    """resilience4j#544: a probe that raised an ignored exception never gave its place back: half-open never ended."""
    circuit = open_and_cool(
        registry, clock, BreakerConfig(Consecutive(1), cooldown=30, half_open_probes=2, half_open_successes=2)
    )
    call = breaker("api")(world.function(remote("ok", ValueError, ValueError, ValueError, "ok")))

    world.call(call)
    for _ in range(3):
        assert isinstance(world.fails(call), ValueError)
        assert HALF_OPEN is circuit.state
    world.call(call)
    assert CLOSED is circuit.state


@pytest.mark.parametrize("giving_up", ["cancel", "timeout"])
@pytest.mark.parametrize("trip", [Consecutive(1), FailureRate(1.0, min_calls=1)], ids=["streak", "rate"])
@pytest.mark.parametrize("path", ["plan", "straight"])
def test_a_call_its_caller_cancels_is_no_failure(request, registry, spin, giving_up, trip, path):
    """resilience4j#682: a caller that cancelled its own request was counted as a failure of the remote."""
    if path == "plan":
        request.getfixturevalue("clock")

    @breaker("api", BreakerConfig(trip))
    async def call():
        await asyncio.Event().wait()

    async def give_up():
        if giving_up == "timeout":
            async with asyncio.timeout(0):
                await call()
        task = asyncio.ensure_future(call())
        await spin()
        task.cancel()
        await task

    async def main():
        for _ in range(3):
            with pytest.raises((asyncio.CancelledError, TimeoutError)):
                await give_up()

    asyncio.run(main())
    status = registry.get("api").status()
    assert (CLOSED, 0, 0) == (status.state, status.failure_count, status.window_calls)


def test_few_probes_close_a_window_that_wants_many_calls(registry, clock, world, remote):
    """resilience4j#903: half-open waited for the window's minimum of calls, which its few probes never made up."""
    circuit = open_and_cool(registry, clock, BreakerConfig(FailureRate(0.25, min_calls=10), cooldown=30))
    call = breaker("api")(world.function(remote()))

    assert "ok" == world.call(call)
    assert CLOSED is circuit.state
    for _ in range(20):
        world.call(call)


def test_a_probe_that_is_never_reported_does_not_block_for_ever(registry, clock, world, remote):
    """resilience4j#935: permitted calls that never reported used up half-open, and no call came through any more."""
    circuit = open_and_cool(
        registry,
        clock,
        BreakerConfig(Consecutive(1), cooldown=30, half_open_probes=2, half_open_successes=2, probe_lease=10),
    )
    call = breaker("api")(world.function(remote()))
    forgotten = [circuit.try_acquire(), circuit.try_acquire()]

    assert 10.0 == world.fails(call).retry_after
    clock.advance(10)
    assert ["ok", "ok"] == [world.call(call), world.call(call)]
    assert CLOSED is circuit.state
    assert 2 == circuit.status().probes_released
    for permit in forgotten:
        circuit.on_failure(permit, FaultKind.TRANSIENT)
    assert (CLOSED, 0) == (circuit.state, circuit.status().failure_count)


@pytest.mark.parametrize("window", [3, 30])
def test_the_minimum_of_calls_is_kept_whatever_the_window(registry, clock, world, remote, window):
    """resilience4j#1349: the minimum of calls was silently cut to the size of the window: the circuit opened early."""
    call = breaker("api", BreakerConfig(FailureRate(0.5, window=window, bucket=3, min_calls=10)))(
        world.function(remote(then=ConnectionError))
    )
    for _ in range(9):
        assert isinstance(world.fails(call), ConnectionError)
    assert CLOSED is registry.get("api").state
    assert isinstance(world.fails(call), ConnectionError)
    assert OPEN is registry.get("api").state
