"""What a function that opens a stream returns: the stream itself, watched where it is read and closed."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections import deque

import pytest

from resilience import BreakerConfig, Consecutive, Fault, FaultKind, breaker, bulkhead, compose, retry, timeout
from resilience._engine.opened import OF_TASKS, OF_THREADS, StreamTypes, aclose

THREE = [b"one", b"two", b"three"]


class Parts:
    """What a response is read from."""

    status_code = 200

    def __init__(self, parts=THREE, fails_at=None):
        self.parts = deque(parts)
        self.fails_at = fails_at
        self.closed = False

    def _next(self):
        if self.fails_at == len(THREE) - len(self.parts):
            raise ConnectionError("half way")
        return self.parts.popleft() if self.parts else b""


class Response(Parts):
    """A response as clients have them."""

    def iter_bytes(self):
        while part := self._next():
            yield part

    def read(self, size=None):
        if size is not None:
            return self._next()
        return b"".join(self.iter_bytes())

    def readline(self):
        return self._next()

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Body(Response):
    """One that is iterated itself, but is no iterator."""

    def __iter__(self):
        return self.iter_bytes()


class AsyncResponse(Parts):
    """The same for asyncio."""

    async def aiter_bytes(self):
        while part := self._next():
            yield part

    async def aread(self, size=None):
        if size is not None:
            return self._next()
        return b"".join([part async for part in self.aiter_bytes()])

    async def aclose(self):
        self.closed = True

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.aclose()


class AsyncBody(AsyncResponse):
    """One that is iterated itself, but is no iterator, and is closed by a plain call."""

    aclose = None

    def close(self):
        self.closed = True

    def __aiter__(self):
        return self.aiter_bytes()


def giving(make):
    def fetch():
        return make()

    return fetch


@pytest.fixture
def policies(registry):
    return compose(breaker("api", BreakerConfig(Consecutive(10)), stream=True), bulkhead("api", max_in_flight=1))


@pytest.fixture
def figures(registry):
    """Successes, failures, slots in use."""

    def read():
        status = registry.get("api").status()
        return status.successes_total, status.failures_total, registry.get_bulkhead("api").in_flight

    return read


# ---------------------------------------------------------------------------------------------- plain streams
def test_it_is_the_stream(policies, figures):
    """Type, attributes and methods are the stream's own."""
    made = Response()
    opened = policies(lambda: made)()
    assert isinstance(opened, Response)
    assert (200, (0, 0, 1)) == (opened.status_code, figures())
    opened.status_code = 204
    assert 204 == made.status_code


@pytest.mark.parametrize("make", [Response, Body])
def test_an_iterator_of_its_own(policies, figures, make):
    """The end of the iteration is the end of the call."""
    opened = policies(giving(make))()
    assert (THREE, (1, 0, 0)) == (list(opened.iter_bytes()), figures())


def test_a_body_that_is_iterated(policies, figures):
    """`for part in response` as well."""
    assert (THREE, (1, 0, 0)) == (list(policies(giving(Body))()), figures())


def test_a_stream_that_is_its_own_iterator(policies, figures):
    """A generator that is returned is a stream too."""
    opened = policies(lambda: (number for number in range(3)))()
    assert iter(opened) is opened
    assert ([0, 1, 2], (1, 0, 0)) == (list(opened), figures())


def test_reading_it_whole(policies, figures):
    """`read()` reads to the end; what comes after is the stream's own business."""
    opened = policies(giving(Response))()
    assert (b"onetwothree", (1, 0, 0)) == (opened.read(), figures())
    assert (b"", b"", (1, 0, 0)) == (opened.read(), opened.readline(), figures())


@pytest.mark.parametrize("read", [lambda r: r.read(10), lambda r: r.readline()])
def test_reading_it_in_parts(policies, figures, read):
    """A part that is empty is the end."""
    opened = policies(giving(Response))()
    assert THREE == [read(opened) for _ in range(3)]
    assert (0, 0, 1) == figures()
    assert (b"", (1, 0, 0)) == (read(opened), figures())


@pytest.mark.parametrize("read", [lambda r: r.read(), lambda r: list(r.iter_bytes())])
def test_a_failure_half_way(policies, figures, read):
    """Counts once, and gives the slot back."""
    opened = policies(lambda: Response(fails_at=1))()
    with pytest.raises(ConnectionError):
        read(opened)
    assert (0, 1, 0) == figures()


def test_closing_it(policies, figures):
    """The stream's own `close` is called as well."""
    made = Response()
    opened = policies(lambda: made)()
    assert b"one" == next(opened.iter_bytes())
    opened.close()
    assert (True, (0, 0, 0)) == (made.closed, figures())
    opened.close()
    assert (0, 0, 0) == figures()


def test_leaving_its_block(policies, figures):
    """A response is often entered: leaving it ends the call."""
    made = Response()
    with policies(lambda: made)() as opened:
        assert b"one" == opened.readline()
    assert (True, (0, 0, 0)) == (made.closed, figures())


def test_leaving_its_block_at_the_end(policies, figures):
    """It had ended already."""
    with policies(giving(Response))() as opened:
        opened.read()
    assert (1, 0, 0) == figures()


def test_entering_something_else(policies, figures):
    """A stream that gives another object when it is entered gives that."""

    class Wrapped(Response):
        def __enter__(self):
            return "inner"

    with policies(giving(Wrapped))() as entered:
        assert "inner" == entered


def test_dropping_it(policies, figures):
    """Nobody is left who could read it."""
    gc.disable()
    try:
        opened = policies(giving(Response))()
        assert (0, 0, 1) == figures()
        del opened
        assert (0, 0, 0) == figures()
    finally:
        gc.enable()


def test_a_stream_that_fails_to_close(policies, figures):
    """Its own exception leaves, and the slot is back."""

    class Stubborn(Response):
        def close(self):
            raise ValueError("not now")

    opened = policies(giving(Stubborn))()
    with pytest.raises(ValueError, match="not now"):
        opened.close()
    assert 0 == figures()[2]


def test_no_stream_at_all(policies, figures):
    """A value that is none ends the call, as without `stream=True`."""
    assert ([1, 2], (1, 0, 0)) == (policies(lambda: [1, 2])(), figures())


def test_a_call_that_opens_nothing(policies, figures):
    """An exception is the call's, even one that iterators end with."""

    def ended():
        raise StopIteration("odd")

    with pytest.raises(StopIteration, match="odd"):
        policies(ended)()
    assert 0 == figures()[2]


def test_a_response_that_is_a_fault(registry):
    """Judged when it is returned: the call has failed, and the response is handed over as it is."""

    def judge(response):
        return Fault(FaultKind.TRANSIENT) if response.status_code == 503 else None

    made = Response()
    made.status_code = 503
    fetch = breaker("api", BreakerConfig(), stream=True, classify_result=judge)(lambda: made)
    assert fetch() is made
    assert 1 == registry.get("api").status().failures_total


def test_two_threads_at_one_time(policies, figures):
    """The second is told so, and the stream goes on."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Response):
        def _next(self):
            inside.set()
            assert go_on.wait(10)
            return super()._next()

    opened = policies(giving(Slow))()
    first = threading.Thread(target=opened.readline)
    first.start()
    assert inside.wait(10)
    with pytest.raises(ValueError, match="already executing"):
        opened.readline()
    go_on.set()
    first.join()
    assert (b"twothree", (1, 0, 0)) == (opened.read(), figures())


# ---------------------------------------------------------------------------------------------- begun anew
def test_an_iterator_is_opened_again_before_its_first_item(policies, figures):
    """Nothing of it had been delivered."""
    made = []

    class Items:
        def __init__(self):
            made.append(self)
            self.left = 2

        def __iter__(self):
            return self

        def __next__(self):
            if len(made) < 3:
                raise ConnectionError("not yet")
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    opened = retry(3, wait=0, idempotent=True)(policies(giving(Items)))()
    assert ([1, 0], 3, (1, 2, 0)) == (list(opened), len(made), figures())
    assert opened.__wrapped__ is made[-1]


def test_a_response_is_not_opened_again(policies, figures):
    """Its status and headers had been delivered."""
    made = []

    def fetch():
        made.append(1)
        return Response(fails_at=0)

    opened = retry(3, wait=0, idempotent=True)(policies(fetch))()
    with pytest.raises(ConnectionError):
        opened.read()
    assert (1, (0, 1, 0)) == (len(made), figures())


def test_a_call_that_fails_is_repeated(policies, figures):
    """Before there is a stream, it is a call like any other."""
    answers = [ConnectionError("no"), ConnectionError("no"), Response()]

    def fetch():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    opened = retry(3, wait=0, idempotent=True)(policies(fetch))()
    assert (b"onetwothree", (1, 2, 0)) == (opened.read(), figures())


# ---------------------------------------------------------------------------------------------- streams of tasks
def opening(make):
    async def fetch():
        await asyncio.sleep(0)
        return make()

    return fetch


async def collected(items):
    return [item async for item in items]


@pytest.mark.parametrize("make", [AsyncResponse, AsyncBody])
def test_an_async_iterator_of_its_own(policies, figures, make):
    """The end of the iteration is the end of the call."""

    async def main():
        opened = await policies(opening(make))()
        assert isinstance(opened, make)
        assert (0, 0, 1) == figures()
        return await collected(opened.aiter_bytes())

    assert (THREE, (1, 0, 0)) == (asyncio.run(main()), figures())


def test_an_async_body_that_is_iterated(policies, figures):
    """`async for part in response` as well."""

    async def main():
        return await collected(await policies(opening(AsyncBody))())

    assert (THREE, (1, 0, 0)) == (asyncio.run(main()), figures())


def test_an_async_generator_that_is_returned(policies, figures):
    """It is its own iterator."""

    async def numbers():
        for number in range(3):
            yield number

    async def main():
        opened = await policies(opening(numbers))()
        assert aiter(opened) is opened
        return await collected(opened)

    assert ([0, 1, 2], (1, 0, 0)) == (asyncio.run(main()), figures())


def test_reading_an_async_stream(policies, figures):
    """Whole, in parts, and after its end."""

    async def main():
        opened = await policies(opening(AsyncResponse))()
        assert b"one" == await opened.aread(10)
        assert (0, 0, 1) == figures()
        assert b"twothree" == await opened.aread()
        assert b"" == await opened.aread()
        other = await policies(opening(AsyncResponse))()
        assert THREE == [await other.aread(10) for _ in range(3)]
        assert b"" == await other.aread(10)

    asyncio.run(main())
    assert (2, 0, 0) == figures()


def test_an_async_failure_half_way(policies, figures):
    """Counts once."""

    async def main():
        opened = await policies(opening(lambda: AsyncResponse(fails_at=1)))()
        with pytest.raises(ConnectionError):
            await opened.aread()
        # What is left of it is its own.
        with pytest.raises(ConnectionError):
            await collected(opened.aiter_bytes())

    asyncio.run(main())
    assert (0, 1, 0) == figures()


@pytest.mark.parametrize("make", [AsyncResponse, AsyncBody])
def test_closing_an_async_stream(policies, figures, make):
    """By its own way of closing, awaited or not."""

    async def main():
        made = make()
        opened = await policies(opening(lambda: made))()
        items = opened.aiter_bytes()
        assert b"one" == await anext(items)
        await (opened.close() if make is AsyncBody else opened.aclose())
        assert made.closed
        await items.aclose()

    asyncio.run(main())
    assert (0, 0, 0) == figures()


def test_leaving_an_async_block(policies, figures):
    """A response is often entered."""

    async def main():
        made = AsyncResponse()
        async with await policies(opening(lambda: made))() as opened:
            assert b"one" == await opened.aread(10)
        assert made.closed
        async with await policies(opening(AsyncResponse))() as opened:
            await opened.aread()

    asyncio.run(main())
    assert (1, 0, 0) == figures()


def test_entering_something_else_in_a_task(policies, figures):
    """A stream that gives another object when it is entered gives that."""

    class Wrapped(AsyncResponse):
        async def __aenter__(self):
            return "inner"

    async def main():
        async with await policies(opening(Wrapped))() as entered:
            return entered

    assert "inner" == asyncio.run(main())


def test_dropping_an_async_stream(policies, figures):
    """The slot is back at once, whatever the loop does later."""

    async def main():
        opened = await policies(opening(AsyncResponse))()
        assert (0, 0, 1) == figures()
        del opened
        assert (0, 0, 0) == figures()

    asyncio.run(main())


def test_an_async_iterator_is_opened_again_before_its_first_item(policies, figures):
    """Nothing of it had been delivered."""
    made = []

    async def numbers():
        made.append(1)
        if len(made) < 3:
            raise ConnectionError("not yet")
        yield "item"

    async def main():
        return await collected(await retry(3, wait=0, idempotent=True)(policies(opening(numbers)))())

    assert (["item"], 3, (1, 2, 0)) == (asyncio.run(main()), len(made), figures())


def test_an_async_call_that_fails(policies, figures):
    """There is no stream."""

    async def fetch():
        raise ConnectionError("no")

    async def main():
        with pytest.raises(ConnectionError):
            await policies(fetch)()

    asyncio.run(main())
    assert (0, 1, 0) == figures()


def test_no_async_stream_at_all(policies, figures):
    """A value that is none ends the call."""

    async def main():
        return await policies(opening(lambda: 5))()

    assert (5, (1, 0, 0)) == (asyncio.run(main()), figures())


def test_an_async_response_that_is_a_fault(registry):
    """Judged when it is returned."""
    made = AsyncResponse()
    judged = breaker("api", BreakerConfig(), stream=True, classify_result=lambda response: FaultKind.TRANSIENT)

    async def main():
        assert await judged(opening(lambda: made))() is made

    asyncio.run(main())
    assert 1 == registry.get("api").status().failures_total


def test_two_tasks_at_one_time(policies, figures):
    """The second is told so, and the stream goes on."""

    class Slow(AsyncResponse):
        async def aread(self, size=None):
            await asyncio.sleep(0)
            return await super().aread(size)

    async def main():
        opened = await policies(opening(Slow))()
        first = asyncio.create_task(opened.aread(10))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="asked for an item already"):
            await opened.aread(10)
        assert b"one" == await first
        assert b"twothree" == await opened.aread()

    asyncio.run(main())
    assert (1, 0, 0) == figures()


def test_limits_of_an_async_stream(registry):
    """Opening has the limit of the first item, reading on that of an idle stream."""

    class Slow(AsyncResponse):
        async def aiter_bytes(self):
            yield b"one"
            await asyncio.sleep(60)

    async def main():
        limited = timeout(30, first_item=0.01, idle=0.01, stream=True)
        with pytest.raises(TimeoutError, match="first_item"):
            await limited(opening_slowly)()
        opened = await limited(opening(Slow))()
        items = opened.aiter_bytes()
        assert b"one" == await anext(items)
        with pytest.raises(TimeoutError, match="idle"):
            await anext(items)

    async def opening_slowly():
        await asyncio.sleep(60)

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------- plain functions of tasks
def test_a_plain_function_that_returns_an_async_stream(policies, figures):
    """Nothing is held until it is asked for its first item."""

    async def numbers():
        yield 1
        yield 2

    async def main():
        opened = policies(lambda: numbers())()
        assert (0, 0, 0) == figures()
        assert 1 == await anext(opened)
        assert (0, 0, 1) == figures()
        return await collected(opened)

    assert ([2], (1, 0, 0)) == (asyncio.run(main()), figures())


def test_a_plain_function_that_returns_a_coroutine_of_a_stream(policies, figures):
    """The call begins when it is awaited, and ends with the stream."""
    guarded = policies(lambda: opening(AsyncResponse)())

    async def main():
        pending = guarded()
        assert (0, 0, 0) == figures()
        opened = await pending
        assert (0, 0, 1) == figures()
        assert b"onetwothree" == await opened.aread()
        guarded().close()

    asyncio.run(main())
    assert (1, 0, 0) == figures()


class Opener:
    """What `aiohttp.ClientSession.get` returns: it can be awaited, or entered."""

    def __init__(self):
        self.response = AsyncResponse()

    def __await__(self):
        return opening(lambda: self.response)().__await__()

    async def __aenter__(self):
        return await self

    async def __aexit__(self, *error):
        await self.response.aclose()


def test_a_plain_function_that_returns_what_is_entered(policies, figures):
    """`async with client.stream(...)`: entering opens the stream."""

    async def main():
        async with policies(giving(Opener))() as opened:
            assert (0, 0, 1) == figures()
            assert b"onetwothree" == await opened.aread()
        async with policies(giving(Opener))() as opened:
            assert b"one" == await opened.aread(10)
        assert (True, (1, 0, 0)) == (opened.closed, figures())

    asyncio.run(main())


def test_a_coroutine_of_a_stream_is_made_again_for_a_retry(policies, figures):
    """The function is called anew, and may fail at once."""
    calls = []

    async def numbers():
        yield "item"

    async def failing():
        raise ConnectionError("no")

    def fetch():
        calls.append(1)
        if len(calls) == 1:
            return failing()
        if len(calls) == 2:
            raise ConnectionError("not even a coroutine")
        return numbers()

    async def main():
        return await collected(await retry(3, wait=0, idempotent=True)(policies(fetch))())

    assert (["item"], 3, (1, 2, 0)) == (asyncio.run(main()), len(calls), figures())


def test_a_coroutine_that_is_refused_is_closed(policies, registry):
    """It will never be awaited."""
    made = []

    def fetch():
        made.append(opening(AsyncResponse)())
        return made[-1]

    guarded = policies(fetch)
    pending = guarded()
    registry.get("api").force_open("for the test")

    async def main():
        with pytest.raises(Exception, match="is open"):
            await pending

    asyncio.run(main())
    assert made[0].cr_frame is None


# ---------------------------------------------------------------------------------------------- closing, and failing to begin
def test_whatever_can_be_closed_is():
    """By `aclose` or by `close`, awaited or not; a stream that has no way to be closed is left alone."""
    asyncio.run(aclose(object()))
    for made in (AsyncResponse(), AsyncBody(), Response()):
        asyncio.run(aclose(made))
        assert made.closed


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_function_that_does_not_take_the_arguments(registry, is_async):
    """What calls it finds out only then: no fault of the remote, and the slot is back."""

    def stream(only):
        yield only

    async def astream(only):
        yield only

    policies = compose(breaker("api", BreakerConfig(), unless=lambda *_: True), bulkhead("api", max_in_flight=1))
    guarded = policies(functools.partial(astream if is_async else stream))
    with pytest.raises(TypeError):
        asyncio.run(collected(guarded(1, 2))) if is_async else list(guarded(1, 2))
    assert 0 == registry.get_bulkhead("api").in_flight


# ---------------------------------------------------------------------------------------------- what is a stream
def test_types_are_told_once_and_forgotten_in_bulk(monkeypatch):
    """The table is bounded."""
    table = StreamTypes(("__next__",), "iter_")
    for number in range(600):
        assert table[type(f"T{number}", (), {"iter_x": 1})]
    assert len(table) <= 512
    assert (True, False, True, False) == (OF_THREADS[Response], OF_THREADS[str], OF_TASKS[AsyncBody], OF_TASKS[dict])
