"""Contract section 8: a consumer that stops early: closed, left or forgotten, at whatever moment (I4, I8, I10)."""

from __future__ import annotations

import asyncio

import pytest
from streaming import END

from resilience import BulkheadConfig, breaker, bulkhead, compose, retry


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2, cooldown=30))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


def numbers(stop=3):
    yield from range(stop)


def protected(env, body, **options):
    return bulkhead("pool")(breaker("api", **options)(env.stream(body)))


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("items", [1, 2])
def test_a_consumer_that_stops_early_is_neutral(env, pool, api, how, items):
    """I4: closed or forgotten after some items: the slot is back at once, nothing counts."""
    stream = env.open(protected(env, numbers))
    for _ in range(items):
        stream.next()
    getattr(stream, how)()

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_a_break_out_of_the_loop_is_neutral(env, pool, api):
    """I4: of a plain generator at once, of an async one by the event loop's hook."""
    fn = protected(env, numbers)

    async def consume():
        async for _ in fn():
            break
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    if env.is_async:
        env.run(consume())
    else:
        for _ in fn():
            break

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_closing_lets_the_stream_tidy_up(env, pool, api):
    """I10: its `finally` runs with the slot still held, as the remote is still in use."""
    seen = []

    def body():
        try:
            yield 1
        finally:
            seen.append(pool.in_flight)

    stream = env.open(protected(env, body))
    stream.next()
    stream.close()

    assert [1] == seen
    assert 0 == pool.in_flight


def test_closing_lets_an_async_stream_await_its_tidying_up(registry, ticking, pool, api):
    """I10: a `finally` with awaits runs to its end before `aclose` returns."""
    seen = []

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            seen.append(pool.in_flight)

    async def main():
        stream = astream()
        await stream.__anext__()
        await stream.aclose()
        seen.append(pool.in_flight)

    asyncio.run(main())

    assert [1, 0] == seen
    assert (0, 0) == counted(api)


def test_a_break_lets_an_async_stream_await_its_tidying_up(registry, ticking, pool, api):
    """I10: the loop's hook closes what a consumer has left, awaits and all."""
    seen = []

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            seen.append("tidy")

    async def main():
        async for _ in astream():
            break
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(pool.in_flight)

    asyncio.run(main())

    assert ["tidy", 0] == seen
    assert (0, 0) == counted(api)


def test_closing_twice_is_harmless(env, pool, api):
    """I8: settled once."""
    stream = env.open(protected(env, numbers))
    stream.next()
    stream.close()
    stream.close()

    assert END == stream.next()
    assert 0 == pool.in_flight


def test_an_error_on_closing_counts_and_leaves(env, pool, api):
    """A stream that breaks as it is closed has broken: the error is judged like any that leaves it."""
    error = ConnectionError("broke on closing")

    def body():
        try:
            yield 1
        finally:
            raise error

    stream = env.open(protected(env, body))
    stream.next()
    with pytest.raises(ConnectionError) as caught:
        stream.close()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_stream_that_does_not_let_itself_be_closed(env, pool, api):
    """A generator that yields again when closed: Python's own RuntimeError, and nothing stays held."""

    def body():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    fn = bulkhead("pool")(breaker("api")(body))

    async def astream():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    if env.is_async:
        fn = bulkhead("pool")(breaker("api")(astream))
    stream = env.open(fn)
    stream.next()
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        stream.close()
    stream.drop()

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
@pytest.mark.parametrize("retried", [False, True], ids=["breaker", "retry"])
def test_dropped_with_its_loop_closed(registry, ticking, pool, api, retried, probing):
    """Section 8: the loop that would have closed it is gone: slot and probe are back at once."""
    if probing:
        api.force_open("drill", seconds=5)
        ticking.advance(5)

    @compose(bulkhead("pool"), breaker("api"), *[retry(2, wait=0, idempotent=True)] * retried)
    async def astream():
        yield 1
        yield 2

    async def begun():
        stream = astream()
        await stream.__anext__()
        return stream

    loop = asyncio.new_event_loop()
    stream = loop.run_until_complete(begun())
    loop.close()
    assert 1 == pool.in_flight
    del stream

    status = api.status()
    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)
    assert status.probes_started == status.probes_released == int(probing)


def test_dropped_without_any_loop(registry, pool, api):
    """Section 8: an async generator that was stepped by hand gives its slot back at once."""

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        yield 1
        yield 2

    stream = astream()
    loop = asyncio.new_event_loop()
    # Without the loop's own hooks, which `run_until_complete` would install.
    step = stream.__anext__()
    with pytest.raises(StopIteration):
        step.send(None)
    loop.close()
    assert 1 == pool.in_flight
    del stream, step

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_shutting_a_loop_down_closes_its_streams(registry, pool, api):
    """Section 8: `asyncio.run` closes what is still open, by its own hook."""

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        yield 1
        yield 2

    kept = []

    async def main():
        kept.append(astream())
        await kept[0].__anext__()
        assert 1 == pool.in_flight

    asyncio.run(main())

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
@pytest.mark.parametrize("retried", [False, True], ids=["breaker", "retry"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_closed_stream_sees_nothing_of_ours(registry, ticking, pool, api, retried, probing, is_async):
    """I10: what its clean-up raises hangs on the GeneratorExit that Python closes it with, and on nothing else."""
    if probing:
        api.force_open("drill", seconds=5)
        ticking.advance(5)
    policies = [bulkhead("pool"), breaker("api"), *[retry(2, wait=0, idempotent=True)] * retried]

    @compose(*policies)
    async def astream():
        try:
            yield 1
        finally:
            raise ConnectionError

    @compose(*policies)
    def stream():
        try:
            yield 1
        finally:
            raise ConnectionError

    async def main():
        running = astream()
        await anext(running)
        with pytest.raises(ConnectionError) as caught:
            await running.aclose()
        return caught.value

    context = (asyncio.run(main()) if is_async else closed(stream())).__context__

    assert (GeneratorExit, None) == (type(context), context.__context__)


def closed(running):
    next(running)
    with pytest.raises(ConnectionError) as caught:
        running.close()
    return caught.value
