"""A fork in the middle of a stream: the child's slots are all there, and the parent's probe is the parent's."""

from __future__ import annotations

import asyncio

import pytest
from forking import in_child, needs_fork

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitState,
    Consecutive,
    breaker,
    bulkhead,
    compose,
    retry,
)
from resilience.testing import ManualClock, use_clock


@pytest.fixture(params=["straight", "plan"])
def clock(request, registry):
    """The plan runs under a clock of the test's own."""
    if request.param == "straight":
        yield None
    else:
        clock = ManualClock(100.0)
        with use_clock(clock, registry):
            yield clock


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(2, 0))


def guarded(body):
    return compose(bulkhead("pool"), retry(2, wait=0, idempotent=True), breaker("api", BreakerConfig(Consecutive(2))))(
        body
    )


def numbers():
    yield from range(3)


def has_two_slots(pool, fn):
    """Two streams at one time, and not three."""
    streams = [fn(), fn()]
    for stream in streams:
        next(stream)
    with pytest.raises(BulkheadFullError):
        next(fn())
    for stream in streams:
        stream.close()
    assert 0 == pool.in_flight


@needs_fork
@pytest.mark.parametrize("end", ["whole", "closed", "dropped", "kept"])
def test_a_stream_goes_on_in_both(registry, pool, clock, end):
    """I19: ended in the child, it gives nothing back that is not the child's; in the parent all is as it was."""
    fn = guarded(numbers)
    streams = [fn()]
    next(streams[0])

    def child():
        assert 0 == pool.in_flight, "a child starts full"
        if end == "whole":
            assert [1, 2] == list(streams[0])
        elif end == "closed":
            streams[0].close()
        elif end == "dropped":
            streams.clear()
        has_two_slots(pool, fn)

    assert "ok" == in_child(child)
    assert 1 == pool.in_flight
    assert [1, 2] == list(streams[0])
    has_two_slots(pool, fn)


@needs_fork
@pytest.mark.parametrize("end", ["whole", "closed"])
def test_an_async_stream_goes_on_in_both(registry, pool, clock, end):
    """I19: the same in asyncio; the child takes it on with a loop of its own."""

    @guarded
    async def stream():
        for number in range(3):
            yield number

    plain = guarded(numbers)
    running = stream()
    loop = asyncio.new_event_loop()

    async def rest():
        if end == "closed":
            await running.aclose()
        else:
            assert [1, 2] == [item async for item in running]

    async def begin():
        return await running.__anext__()

    assert 0 == loop.run_until_complete(begin())

    def child():
        asyncio.run(rest())
        has_two_slots(pool, plain)

    try:
        assert "ok" == in_child(child)
        assert 1 == pool.in_flight
        loop.run_until_complete(rest())
    finally:
        loop.close()
    has_two_slots(pool, plain)


@needs_fork
@pytest.mark.parametrize("end", ["whole", "closed"])
def test_the_parents_probe_is_not_the_childs(registry, pool, end):
    """I15, I19: the child may probe for itself; the books of both are whole."""
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        fn = guarded(numbers)
        api = registry.get("api")
        api.force_open("drill", seconds=1)
        clock.advance(1)
        probe = fn()
        next(probe)

        def child():
            assert not api.is_open()
            if end == "whole":
                list(probe)
            else:
                probe.close()
            status = api.status()
            assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released
            assert [0, 1, 2] == list(fn())

        assert "ok" == in_child(child)
        assert CircuitState.HALF_OPEN is api.state
        assert [1, 2] == list(probe)
        assert CircuitState.CLOSED is api.state
        assert 1 == api.status().probes_succeeded
