"""Contract I12: arguments, items and exceptions die with the stream, without any help of the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

import pytest

from resilience import (
    BulkheadConfig,
    OnOpen,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
)


class Payload:
    """An argument or an item that can be watched."""


class WeakError(ConnectionError):
    """A class of Python's own takes weak references."""


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(9))


def stack(**options):
    return compose(bulkhead("pool"), retry(2, wait=0, idempotent=True), breaker("api", **options))


def whole(payload):
    yield payload
    yield payload


def broken(payload):
    yield payload
    raise WeakError("down")


def broken_early(payload):
    raise WeakError("down")
    yield


def buggy(payload):
    raise TypeError("bug")
    yield


def interrupted(payload):
    yield payload
    raise asyncio.CancelledError


def consume(env, fn, items, *, close):
    """Take some items of a stream of one payload; whether everything is dead when all names for it are gone."""
    if env.is_async:
        # In one task: one that has failed keeps its exception.
        return env.run(consume_in_task(fn, items, close))
    payload = Payload()
    watched = [weakref.ref(payload)]
    stream = fn(payload)
    try:
        for _ in range(items):
            next(stream, None)
    except (Exception, asyncio.CancelledError) as error:
        watch(watched, error)
    if close == "close":
        stream.close()
    elif close == "drop":
        del stream
    # A stream that has ended may well be kept: it keeps nothing. One that never began is Python's own affair.
    if not items and close == "close":
        del stream
    del payload
    return all(reference() is None for reference in watched)


async def consume_in_task(fn, items, close):
    payload = Payload()
    watched = [weakref.ref(payload)]
    stream = fn(payload)
    try:
        for _ in range(items):
            await anext(stream, None)
    except (Exception, asyncio.CancelledError) as error:
        watch(watched, error)
    if close == "close":
        await stream.aclose()
    elif close == "drop":
        del stream
        for _ in range(3):
            await asyncio.sleep(0)
    if not items and close == "close":
        del stream
    del payload
    return all(reference() is None for reference in watched)


def watch(watched, error):
    if type(error) is WeakError:
        watched.append(weakref.ref(error))


ENDS = {
    "exhausted": (whole, 3, None),
    "broken": (broken, 2, None),
    "broken early": (broken_early, 1, None),
    "a bug": (buggy, 1, None),
    "interrupted": (interrupted, 2, None),
    "closed": (whole, 1, "close"),
    "dropped": (whole, 1, "drop"),
    "never started, closed": (whole, 0, "close"),
    "never started, dropped": (whole, 0, "drop"),
}


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
@pytest.mark.parametrize("name", ENDS)
def test_everything_dies_with_the_stream(env, pool, api, no_gc, name, probing):
    """I12: however it has ended."""
    body, items, close = ENDS[name]
    fn = stack()(env.stream(body))
    if probing:
        api.force_open("drill", seconds=5)
        env.advance(5)

    assert consume(env, env.stream(body), items, close=close), "the test itself keeps it"
    assert consume(env, fn, items, close=close)
    assert 0 == pool.in_flight


def test_a_refused_stream(env, pool, api, no_gc):
    """I12: by an open circuit."""
    api.force_open("drill")

    assert consume(env, stack()(env.stream(whole)), 1, close=None)


def test_a_bypassed_stream(env, pool, api, no_gc):
    """I12: whose items were the fallback's."""
    api.force_open("drill")

    assert consume(env, stack(on_open=OnOpen.BYPASS, fallback=[1])(env.stream(whole)), 2, close=None)


def test_a_stream_refused_by_a_full_bulkhead(env, pool, api, no_gc):
    """I12: too."""
    holder = env.open(bulkhead("pool")(env.stream(iter_of)), 1)
    holder.next()

    assert consume(env, stack()(env.stream(whole)), 1, close=None)
    holder.close()


def iter_of(*items):
    yield from items


@pytest.mark.parametrize("close", ["close", "drop"])
@pytest.mark.parametrize("items", [1, 3])
def test_a_retried_stream(env, pool, api, no_gc, items, close):
    """I12: the exceptions of its attempts too."""
    errors = []

    def body(payload):
        if len(errors) % 3 < 2:
            error = WeakError("down")
            errors.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error
        errors.append(lambda: None)
        yield payload
        yield payload

    fn = compose(bulkhead("pool"), retry(3, wait=0, idempotent=True), breaker("api"))(env.stream(body))

    assert consume(env, fn, items, close=close)
    assert 3 == len(errors)
    assert all(error() is None for error in errors)


def test_items_are_not_kept_in_between(env, pool, api, no_gc):
    """I12: an item that the consumer has dropped is gone while the stream goes on."""

    def body():
        while True:
            yield Payload()

    for probing in (False, True):
        if probing:
            api.force_open("drill", seconds=5)
            env.advance(5)
        stream = env.open(stack()(env.stream(body)))
        for _ in range(2):
            watched = weakref.ref(stream.next())
            stream.next()
            assert watched() is None
        stream.close()


def test_what_is_sent_is_not_kept(env, pool, api, no_gc):
    """I12: what the stream has dropped is gone."""

    def body():
        while True:
            yield

    for probing in (False, True):
        if probing:
            api.force_open("drill", seconds=5)
            env.advance(5)
        stream = env.open(stack()(env.stream(body)))
        stream.next()
        sent = Payload()
        watched = weakref.ref(sent)
        stream.send(sent)
        del sent
        stream.next()
        assert watched() is None
        stream.close()


def test_what_is_thrown_in_is_not_kept(env, pool, api, no_gc):
    """I12: an error that the stream has survived."""

    def body():
        while True:
            with contextlib.suppress(WeakError):
                yield

    for probing in (False, True):
        if probing:
            api.force_open("drill", seconds=5)
            env.advance(5)
        stream = env.open(stack()(env.stream(body)))
        stream.next()
        thrown = WeakError("thrown in")
        watched = weakref.ref(thrown)
        stream.throw(thrown)
        del thrown
        stream.next()
        assert watched() is None
        stream.close()


@pytest.mark.parametrize("limits", [{"budget": 10}, {"per_attempt": 10}, {"budget": 20, "idle": 10}])
@pytest.mark.parametrize("late", [False, True], ids=["while waiting", "in the consumer's hands"])
def test_a_timed_out_stream(registry, clock, pool, api, no_gc, limits, late):
    """I12: whichever limit has ended it."""

    @compose(timeout(**limits), bulkhead("pool"), breaker("api"))
    async def stream(payload):
        yield payload
        await asyncio.Event().wait()

    async def main():
        payload = Payload()
        watched = weakref.ref(payload)
        running = stream(payload)
        await anext(running)
        if late:
            clock.advance(30)
        asking = asyncio.ensure_future(asked(running))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # An idle limit begins with the wait for an item, whatever has gone before.
        clock.advance(10)
        assert await asking
        del payload, asking
        await asyncio.sleep(0)
        return watched() is None

    async def asked(running):
        try:
            await anext(running)
        except TimeoutExceeded:
            return True

    assert asyncio.run(main())
    assert 0 == pool.in_flight


def test_a_stream_on_workers(registry, pool, api, no_gc):
    """I12: a worker that has made a step keeps nothing of it."""

    @compose(timeout(30), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=1)
    def stream(payload):
        yield payload
        yield payload

    for items in (1, 2, 3):
        payload = Payload()
        watched = weakref.ref(payload)
        running = stream(payload)
        for _ in range(items):
            next(running, None)
        running.close()
        del payload, running
        assert watched() is None


def open_whole(payload):
    return whole(payload)


def open_broken(payload):
    return broken(payload)


@pytest.mark.parametrize("end", ["exhausted", "broken", "closed", "dropped"])
def test_an_opened_stream(registry, ticking, pool, api, no_gc, end):
    """I12: of the kind that a function returns."""
    fn = compose(bulkhead("pool"), breaker("api", stream=True))(open_broken if end == "broken" else open_whole)
    payload = Payload()
    watched = weakref.ref(payload)
    stream = fn(payload)
    next(stream)
    if end == "exhausted":
        list(stream)
    elif end == "broken":
        with contextlib.suppress(WeakError):
            next(stream)
    elif end == "closed":
        stream.close()
    else:
        del stream
    del payload

    assert watched() is None
    assert 0 == pool.in_flight


@pytest.mark.parametrize("end", ["exhausted", "closed", "dropped"])
def test_an_opened_async_stream(registry, ticking, pool, api, no_gc, end):
    """I12: and of the async kind."""

    async def items(payload):
        yield payload
        yield payload

    @compose(bulkhead("pool"), breaker("api", stream=True))
    async def opens(payload):
        return items(payload)

    async def main():
        payload = Payload()
        watched = weakref.ref(payload)
        stream = await opens(payload)
        await anext(stream)
        if end == "exhausted":
            assert await anext(stream)
            assert await anext(stream, None) is None
        elif end == "closed":
            await stream.aclose()
        else:
            del stream
        del payload
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return watched() is None

    assert asyncio.run(main())
    assert 0 == pool.in_flight


@pytest.mark.parametrize("entered", [False, True])
def test_a_request(registry, ticking, pool, api, no_gc, entered):
    """I12: what a plain function returns to be awaited, or entered."""

    async def items(payload):
        yield payload
        yield payload

    class Request:
        def __init__(self, payload):
            self._payload = payload

        async def __aenter__(self):
            return items(self._payload)

        async def __aexit__(self, *error):
            """Leave."""

        def __await__(self):
            return self.__aenter__().__await__()

    fn = compose(bulkhead("pool"), breaker("api", stream=True))(lambda payload: Request(payload))

    async def main():
        payload = Payload()
        watched = weakref.ref(payload)
        if entered:
            async with fn(payload) as stream:
                await anext(stream)
        else:
            stream = await fn(payload)
            await anext(stream)
        del payload, stream
        for _ in range(3):
            await asyncio.sleep(0)
        return watched() is None

    assert asyncio.run(main())
    assert 0 == pool.in_flight
