"""Contract section 8: functions that open a stream and return it (`stream=True`): admitted at the call, held to the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import io
import threading

import pytest

from resilience import (
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    FaultKind,
    OnOpen,
    OnReject,
    breaker,
    bulkhead,
    compose,
    retry,
    timeout,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


class Response:
    """What a client hands out: a status, and several ways to read the body, of which some may break."""

    def __init__(self, lines=("a", "b", "c"), error=None, status=200):
        self.status_code = status
        self.headers = {"content-type": "text/plain"}
        self.closed = 0
        self._lines = list(lines)
        self._error = error

    def iter_lines(self, skip=0):
        yield from self._lines[skip:]
        if self._error is not None:
            raise self._error

    def iter_bytes(self):
        for line in self.iter_lines():
            yield line.encode()

    def read(self):
        return "".join(self.iter_lines())

    def close(self):
        self.closed += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def greeting(self):
        return "hello"


class AsyncResponse:
    """The same for tasks."""

    def __init__(self, lines=("a", "b", "c"), error=None, status=200):
        self.status_code = status
        self.closed = 0
        self._lines = list(lines)
        self._error = error

    async def aiter_lines(self, skip=0):
        for line in self._lines[skip:]:
            await asyncio.sleep(0)
            yield line
        if self._error is not None:
            raise self._error

    async def aread(self):
        return "".join([line async for line in self.aiter_lines()])

    async def aclose(self):
        await asyncio.sleep(0)
        self.closed += 1

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.aclose()


# ---------------------------------------------------------------------------------------------- every kind of function
def numbers(stop, error=None):
    yield from range(stop)
    if error is not None:
        raise error


async def numbers_async(stop, error=None):
    for number in range(stop):
        yield number
    if error is not None:
        raise error


def open_generator(stop=3, error=None):
    return numbers(stop, error)


def open_iterator(stop=3, error=None):
    return map(int, numbers(stop, error))


def open_response(stop=3, error=None):
    return Response(range(stop), error)


async def open_async(stop=3, error=None):
    await asyncio.sleep(0)
    return numbers_async(stop, error)


async def open_async_response(stop=3, error=None):
    return AsyncResponse(range(stop), error)


def open_plainly(stop=3, error=None):
    return numbers_async(stop, error)


def open_awaitable(stop=3, error=None):
    return open_async(stop, error)


class Opened:
    """A stream that a function has opened, to be consumed by hand in either world."""

    def __init__(self, fn):
        self.fn = fn
        self.runner = asyncio.Runner()
        self.is_async = fn not in (open_generator, open_iterator, open_response)
        self.stream = self.iterator = None

    def open(self, *args):
        opened = self.fn_under_policies(*args)
        if inspect.isawaitable(opened):
            opened = self.run(opened)
        self.stream = opened
        if self.fn in (open_response, open_async_response):
            self.iterator = opened.aiter_lines() if self.is_async else opened.iter_lines()
        else:
            self.iterator = aiter(opened) if self.is_async else iter(opened)
        return self

    def next(self):
        try:
            return self.run(self.iterator.__anext__()) if self.is_async else next(self.iterator)
        except (StopIteration, StopAsyncIteration):
            return "the end"

    def rest(self):
        found = []
        while (item := self.next()) != "the end":
            found.append(item)
        return found

    def close(self):
        if self.is_async:
            self.run(self.stream.aclose())
        else:
            self.stream.close()

    def drop(self):
        self.stream = self.iterator = None
        if self.is_async:
            self.run(asyncio.sleep(0))
            self.run(asyncio.sleep(0))

    def run(self, awaitable):
        async def main():
            return await awaitable

        return self.runner.run(main())


KINDS = [
    open_generator,
    open_iterator,
    open_response,
    open_async,
    open_async_response,
    open_plainly,
    open_awaitable,
]


@pytest.fixture(params=KINDS, ids=lambda fn: fn.__name__)
def opened(request, registry, ticking, pool, api):
    opened = Opened(request.param)
    opened.fn_under_policies = compose(bulkhead("pool"), breaker("api", stream=True))(request.param)
    yield opened
    opened.runner.close()


def test_items_arrive_and_the_end_is_a_success(opened, pool, api):
    """Section 8: held from the opening to the end, and one success for all of it."""
    opened.open()
    held = []
    items = []
    while (item := opened.next()) != "the end":
        items.append(item)
        held.append(pool.in_flight)

    assert ([0, 1, 2], [1, 1, 1]) == (items, held)
    assert 0 == pool.in_flight
    assert (1, 0) == counted(api)


def test_the_call_opens_it_under_the_policies(opened, pool, api):
    """Section 8: admission at the call; of a plain function that opens an async stream, at its first item."""
    opened.open()
    begun = opened.fn is not open_plainly

    assert int(begun) == pool.in_flight
    assert (0, 0) == counted(api)
    opened.rest()
    assert 0 == pool.in_flight


def test_an_empty_stream_is_a_success(opened, pool, api):
    """Its end comes with the first step."""
    assert [] == opened.open(0).rest()
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_error_mid_stream_counts_once(opened, pool, api):
    """Section 8: and leaves as the very same object."""
    error = ConnectionError("down")
    opened.open(1, error)
    opened.next()
    with pytest.raises(ConnectionError) as caught:
        opened.next()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_our_own_bug_mid_stream_is_neutral(opened, pool, api):
    """Section 2: INTERNAL counts neither way."""
    opened.open(1, TypeError("bug"))
    opened.next()
    with pytest.raises(TypeError):
        opened.next()

    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("items", [0, 1])
def test_a_consumer_that_stops_early_is_neutral(opened, pool, api, items):
    """I4: closed before the first item, or after some: nothing counts, the slot is back."""
    if opened.fn is open_iterator:
        # Python's own iterators have nothing to be closed by.
        opened.close = opened.drop
    opened.open()
    for _ in range(items):
        opened.next()
    opened.close()

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


@pytest.mark.parametrize("items", [0, 1])
def test_a_dropped_stream_is_neutral(opened, pool, api, items):
    """I4: forgotten without a close."""
    opened.open()
    for _ in range(items):
        opened.next()
    opened.drop()

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_a_second_one_has_to_wait(opened, pool, api):
    """Section 7: the slot is taken while the first is open."""
    opened.open().next()
    with pytest.raises(BulkheadFullError):
        opened.run(ask(opened)) if opened.is_async else opened.fn_under_policies()
    opened.rest()

    assert [0, 1, 2] == opened.open().rest()


async def ask(opened):
    stream = opened.fn_under_policies()
    if inspect.isawaitable(stream):
        stream = await stream
    return await anext(aiter(stream))


def test_an_open_circuit_refuses_the_call(opened, pool, api):
    """Section 8: nothing is opened."""
    api.force_open("drill")
    with pytest.raises(CircuitOpenError):
        opened.run(ask(opened)) if opened.is_async else opened.fn_under_policies()

    assert 0 == pool.in_flight


def out(api):
    """I15: what of the probes is still out."""
    status = api.status()
    return status.probes_started - status.probes_succeeded - status.probes_failed - status.probes_released


def test_the_probe_is_held_to_the_end(opened, pool, api, ticking):
    """I1, I15: taken when it is opened, judged at its end, others are refused meanwhile."""
    api.force_open("drill", seconds=5)
    ticking.advance(5)
    opened.open().next()
    assert HALF_OPEN is api.state
    assert api.is_open()
    opened.rest()

    assert CLOSED is api.state
    assert (0, 1) == (out(api), api.status().probes_succeeded)


def test_a_probe_that_is_dropped_is_released(opened, pool, api, ticking):
    """I15: neither failed nor succeeded."""
    api.force_open("drill", seconds=5)
    ticking.advance(5)
    opened.open().next()
    opened.drop()

    assert HALF_OPEN is api.state
    assert not api.is_open()
    assert (0, 0) == (out(api), api.status().probes_failed)


def test_an_ended_stream_stays_ended(opened, pool, api):
    """And is settled once."""
    opened.open().rest()

    assert "the end" == opened.next()
    if opened.fn is not open_iterator:
        opened.close()
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- opening fails
@pytest.mark.parametrize("is_async", [False, True])
def test_an_opening_that_fails_counts(registry, ticking, pool, api, is_async):
    """As any call that fails."""
    error = ConnectionError("refused")

    def fails():
        raise error

    async def fails_async():
        raise error

    fn = compose(bulkhead("pool"), breaker("api", stream=True))(fails_async if is_async else fails)
    with pytest.raises(ConnectionError) as caught:
        asyncio.run(awaited(fn)) if is_async else fn()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


async def awaited(fn, *args):
    return await fn(*args)


def test_an_opening_is_retried(registry, ticking, pool, api):
    """Before its first item: a failed opening is repeated."""
    script = [ConnectionError("refused"), None]

    def fails_once():
        if (error := script.pop(0)) is not None:
            raise error
        return numbers(2)

    fn = compose(bulkhead("pool"), retry(2, wait=0, idempotent=True, stream=True), breaker("api"))(fails_once)

    assert [0, 1] == list(fn())
    assert (1, 1) == counted(api)


def test_an_iterator_that_fails_before_its_first_item_is_opened_again(registry, ticking, pool, api):
    """Section 8: retry before the first item: the consumer goes on with the new one."""
    script = [ConnectionError("broken"), None]
    opened = []

    def fails_once():
        opened.append(1)
        return numbers(0 if script[0] else 2, script.pop(0))

    fn = compose(bulkhead("pool"), retry(2, wait=0, idempotent=True, stream=True), breaker("api"))(fails_once)

    assert [0, 1] == list(fn())
    assert 2 == len(opened)
    assert (1, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_response_counts_as_a_first_item(registry, ticking, pool, api):
    """Its status has been seen: what breaks afterwards is not repeated."""
    opened = []

    def broken():
        opened.append(1)
        return Response((), ConnectionError("broken"))

    fn = compose(retry(3, wait=0, idempotent=True, stream=True), breaker("api"))(broken)
    with pytest.raises(ConnectionError):
        list(fn().iter_lines())

    assert 1 == len(opened)
    assert (0, 1) == counted(api)


# ---------------------------------------------------------------------------------------------- it is still what it was
def opened_response(**options):
    response = Response(**options)
    return response, compose(bulkhead("pool"), breaker("api", stream=True))(lambda: response)()


def test_a_response_is_still_one(registry, ticking, pool, api):
    """Everything but its ways to the items is its own."""
    bare, response = opened_response()

    assert isinstance(response, Response)
    assert (200, {"content-type": "text/plain"}, "hello") == (
        response.status_code,
        response.headers,
        response.greeting(),
    )
    response.note = "kept"
    assert "kept" == bare.note
    response.close()


def test_any_of_its_iterators_ends_it(registry, ticking, pool, api):
    """Arguments reach them."""
    _, response = opened_response()

    assert [b"a", b"b", b"c"] == list(response.iter_bytes())
    assert (1, 0) == counted(api)
    _, response = opened_response()
    assert ["b", "c"] == list(response.iter_lines(skip=1))
    assert (2, 0) == counted(api)
    assert 0 == pool.in_flight


def test_reading_it_all_ends_it(registry, ticking, pool, api):
    """`read()` is the rest at once."""
    _, response = opened_response()

    assert "abc" == response.read()
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_reading_that_breaks_counts(registry, ticking, pool, api):
    """And its error leaves."""
    error = ConnectionError("broken")
    _, response = opened_response(error=error)
    with pytest.raises(ConnectionError) as caught:
        response.read()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_with_block_closes_it(registry, ticking, pool, api):
    """What is left early in a `with` block is neutral, and really closed."""
    bare, response = opened_response()
    with response as entered:
        for _ in entered.iter_lines():
            break
        assert 1 == pool.in_flight

    assert 1 <= bare.closed
    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_a_with_block_around_a_whole_body(registry, ticking, pool, api):
    """Read to its end inside: a success."""
    _, response = opened_response()
    with response as entered:
        assert ["a", "b", "c"] == list(entered.iter_lines())

    assert (1, 0) == counted(api)


def test_closing_closes_the_response(registry, ticking, pool, api):
    """The connection goes back, not only the slot."""
    bare, response = opened_response()
    response.close()

    assert 1 <= bare.closed


def test_dropping_closes_the_response(registry, ticking, pool, api):
    """Forgotten, it is closed as well: its slot is free, so its connection must be."""
    bare, response = opened_response()
    del response

    assert 1 <= bare.closed
    assert 0 == pool.in_flight


def test_an_async_response(registry, ticking, pool, api):
    """The same with `async with`, `aread` and `aclose`."""
    responses = []

    @compose(bulkhead("pool"), breaker("api", stream=True))
    async def open_it():
        responses.append(AsyncResponse())
        return responses[-1]

    async def main():
        async with await open_it() as response:
            assert isinstance(response, AsyncResponse)
            assert 200 == response.status_code
            assert "abc" == await response.aread()
        assert (1, 0) == counted(api)
        async with await open_it() as response:
            async for _ in response.aiter_lines(skip=1):
                break
            assert 1 == pool.in_flight
        assert 0 == pool.in_flight
        response = await open_it()
        await response.aclose()

    asyncio.run(main())
    assert [1, 1, 1] == [min(1, response.closed) for response in responses]
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_file_like_object(registry, ticking, pool, api):
    """Its `read(size)` is a part of it, an iterator its lines."""
    fn = compose(bulkhead("pool"), breaker("api", stream=True))(lambda: io.StringIO("one\ntwo\nthree\n"))
    file = fn()

    assert "one" == file.read(3)
    assert 1 == pool.in_flight
    assert ["\n", "two\n", "three\n"] == list(file)
    assert 0 == pool.in_flight
    assert (1, 0) == counted(api)


def test_send_reaches_a_returned_generator(registry, ticking, pool, api):
    """What can be sent to the bare one can be sent to it."""

    def echo():
        item = "first"
        while True:
            item = yield item

    opened = compose(bulkhead("pool"), breaker("api", stream=True))(lambda: echo())()

    assert ["first", "a"] == [next(opened), opened.send("a")]
    opened.close()
    assert 0 == pool.in_flight


def test_throw_reaches_a_returned_generator(registry, ticking, pool, api):
    """And what is thrown in and leaves is judged and ends it."""
    opened = compose(bulkhead("pool"), breaker("api", stream=True))(open_generator)()
    next(opened)
    error = ConnectionError("thrown in")
    with pytest.raises(ConnectionError) as caught:
        opened.throw(error)

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_asend_and_athrow_reach_a_returned_async_generator(registry, ticking, pool, api):
    """The same in a task."""

    async def echo():
        item = "first"
        while True:
            item = yield item

    async def main():
        opened = await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()
        assert ["first", "a"] == [await anext(opened), await opened.asend("a")]
        with pytest.raises(ConnectionError):
            await opened.athrow(ConnectionError("thrown in"))

    async def opens():
        return echo()

    asyncio.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- what is no stream
@pytest.mark.parametrize("value", [None, 7, "text", [1, 2], {"a": 1}])
def test_a_value_that_is_no_stream(registry, ticking, pool, api, value):
    """It is the result of a call like any other: the call has ended."""
    fn = compose(bulkhead("pool"), breaker("api", stream=True))(lambda: value)

    assert value is fn()
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_judged_response(registry, ticking, pool, api):
    """`classify_result` is asked about the response: a fault ends the call there and then."""
    judge = {503: FaultKind.TRANSIENT}
    fn = compose(
        bulkhead("pool"), breaker("api", stream=True, classify_result=lambda response: judge.get(response.status_code))
    )(lambda: Response(status=503))
    response = fn()

    assert 503 == response.status_code
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_judged_response_that_is_fine(registry, ticking, pool, api):
    """Else it goes on to its end."""
    fn = compose(bulkhead("pool"), breaker("api", stream=True, classify_result=lambda response: None))(open_response)

    assert [0, 1, 2] == list(fn().iter_lines())
    assert (1, 0) == counted(api)


# ---------------------------------------------------------------------------------------------- reactions
def test_bypass_returns_the_fallback(registry, ticking, pool, api):
    """Section 4: of an opened stream the fallback is what the call returns."""
    api.force_open("drill")
    fallback = ["cached"]
    fn = breaker("api", stream=True, on_open=OnOpen.BYPASS, fallback=fallback)(open_generator)

    assert fallback is fn()


def test_bypass_of_a_coroutine_function(registry, ticking, pool, api):
    """Section 4: of an async one, what awaiting the call gives."""
    api.force_open("drill")

    async def other():
        return "cached"

    fn = breaker("api", stream=True, on_open=OnOpen.BYPASS, fallback=lambda stop=3, error=None: other())(open_async)

    assert "cached" == asyncio.run(awaited(fn))


def test_an_adopted_stream_asks_at_its_first_item(registry, ticking, pool, api):
    """A plain function's async stream is admitted when a task asks for its items; a fallback then gives its own."""

    async def main():
        refused = compose(bulkhead("pool"), breaker("api", stream=True))(open_plainly)()
        bypassed = compose(
            bulkhead("pool"), breaker("api", stream=True, on_open=OnOpen.BYPASS, fallback=["cached", "twice"])
        )(open_plainly)()
        api.force_open("drill")
        with pytest.raises(CircuitOpenError):
            await anext(refused)
        return [item async for item in bypassed]

    assert ["cached", "twice"] == asyncio.run(main())
    assert 0 == pool.in_flight


def test_an_adopted_stream_that_is_never_asked(registry, ticking, pool, api):
    """It has taken nothing, and is closed like the bare one."""

    async def main():
        stream = compose(bulkhead("pool"), breaker("api", stream=True))(open_plainly)()
        await stream.aclose()
        assert "the end" == await anext(stream, "the end")

    asyncio.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_adopted_response_closed_in_a_block(registry, ticking, pool, api):
    """`async with` on what a plain function has returned: the stream's own, guarded by its first item."""

    async def main():
        async with compose(bulkhead("pool"), breaker("api", stream=True))(lambda: AsyncResponse())() as response:
            assert ["a", "b", "c"] == [line async for line in response.aiter_lines()]

    asyncio.run(main())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


class Request:
    """What clients give for `async with client.get(...) as response`: it can be awaited, or entered."""

    def __init__(self, error=None):
        self.response = AsyncResponse(error=error)

    async def __aenter__(self):
        return self.response

    async def __aexit__(self, *error):
        await self.response.aclose()

    def __await__(self):
        return self.__aenter__().__await__()


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_a_request_that_is_entered(registry, ticking, pool, api, lines):
    """Left early it is neutral, read to its end a success; the slot is free when the block has been left."""
    request = Request()

    async def main():
        async with compose(bulkhead("pool"), breaker("api", stream=True))(lambda: request)() as response:
            assert 1 == pool.in_flight
            reading = response.aiter_lines()
            for _ in range(lines):
                await anext(reading)
            if lines == 3:
                assert "the end" == await anext(reading, "the end")
        assert 0 == pool.in_flight
        assert 200 == response.status_code

    asyncio.run(main())
    assert (int(lines == 3), 0) == counted(api)
    assert 1 == request.response.closed


def test_a_request_that_breaks_in_its_block(registry, ticking, pool, api):
    """Counted once."""

    async def main():
        async with compose(bulkhead("pool"), breaker("api", stream=True))(
            lambda: Request(ConnectionError("broken"))
        )() as response:
            async for _ in response.aiter_lines():
                pass

    with pytest.raises(ConnectionError):
        asyncio.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_request_that_is_awaited(registry, ticking, pool, api):
    """The other way of using it."""

    async def main():
        response = await compose(bulkhead("pool"), breaker("api", stream=True))(lambda: Request())()
        return [line async for line in response.aiter_lines()]

    asyncio.run(main())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_stream_that_breaks_on_closing(registry, ticking, pool, api):
    """As a generator of the caller's own: the error leaves `close`, and is judged."""
    error = ConnectionError("broke on closing")

    def breaks():
        try:
            yield 1
            yield 2
        finally:
            raise error

    stream = compose(bulkhead("pool"), retry(3, wait=0, idempotent=True), breaker("api", stream=True))(
        lambda: breaks()
    )()
    next(stream)
    with pytest.raises(ConnectionError) as caught:
        stream.close()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_a_response_that_breaks_on_closing(registry, ticking, pool, api):
    """Before anything was asked of it; nobody opens it anew."""
    opened = []

    class Stuck(Response):
        def close(self):
            raise ConnectionError("broke on closing")

    def opens():
        opened.append(1)
        return Stuck()

    response = compose(bulkhead("pool"), retry(3, wait=0, idempotent=True), breaker("api", stream=True))(opens)()
    with pytest.raises(ConnectionError):
        response.close()

    assert 1 == len(opened)
    assert 0 == pool.in_flight


def test_an_iterator_that_breaks_on_closing_before_its_first_item(registry, ticking, pool, api):
    """Nobody opens it anew either."""
    opened = []

    class Stuck:
        def __init__(self):
            opened.append(1)

        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def close(self):
            raise ConnectionError("broke on closing")

    stream = compose(bulkhead("pool"), retry(3, wait=0, idempotent=True), breaker("api", stream=True))(
        lambda: Stuck()
    )()
    with pytest.raises(ConnectionError):
        stream.close()

    assert 1 == len(opened)
    assert 0 == pool.in_flight


def test_the_slot_is_held_while_an_async_stream_is_closed(registry, ticking, pool, api):
    """The slot is free when the connection is."""
    seen = []

    class Slow(AsyncResponse):
        async def aclose(self):
            await asyncio.sleep(0)
            seen.append(pool.in_flight)

    async def opens():
        return Slow()

    async def main():
        await (await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()).aclose()

    asyncio.run(main())
    assert [1] == seen
    assert 0 == pool.in_flight


def test_bypass_of_a_full_bulkhead(registry, ticking, pool, api):
    """Section 7: alike."""
    with contextlib.closing(bulkhead("pool", stream=True)(open_generator)()):
        fn = bulkhead("pool", stream=True, on_reject=OnReject.BYPASS, fallback="busy")(open_generator)
        assert "busy" == fn()


def test_unless(registry, ticking, pool, api):
    """Section 4: neither asks nor feeds."""
    api.force_open("drill")
    fn = breaker("api", stream=True, unless=lambda *args: True)(open_generator)
    with pytest.raises(ConnectionError):
        list(fn(1, ConnectionError("down")))

    assert 0 == api.status().failures_total


@pytest.mark.parametrize(
    "policy",
    [
        lambda: bulkhead("pool", stream=True),
        lambda: breaker("api", stream=True),
        lambda: retry(2, idempotent=True, stream=True),
        lambda: timeout(60, pass_as="error", stream=True),
    ],
    ids=["bulkhead", "breaker", "retry", "timeout"],
)
def test_any_policy_may_say_so(registry, ticking, pool, api, policy):
    """`stream=True` on any policy is enough."""

    def opens(stop=3, error=None):
        return numbers(stop)

    stream = compose(policy())(opens)()
    assert [0, 1, 2] == list(stream)
    assert 0 == pool.in_flight


def test_one_policy_says_so_for_all(registry, ticking, pool, api):
    """The others need not repeat it."""
    fn = bulkhead("pool")(retry(2, wait=0, idempotent=True)(breaker("api", stream=True)(open_generator)))
    stream = fn()

    assert 1 == pool.in_flight
    assert [0, 1, 2] == list(stream)
    assert (1, 0) == counted(api)


def test_without_it_a_returned_stream_is_a_result(registry, ticking, pool, api):
    """The call ends with the return: that is why it has to be said."""
    stream = compose(bulkhead("pool"), breaker("api"))(open_generator)()

    assert 0 == pool.in_flight
    assert (1, 0) == counted(api)
    assert [0, 1, 2] == list(stream)


def test_account_call_of_an_opened_stream(registry, ticking, pool, api):
    """Section 3: one verdict for opening, retries and all the items."""
    script = [ConnectionError("refused"), None]

    def opens():
        if (error := script.pop(0)) is not None:
            raise error
        return numbers(1, ConnectionError("broken"))

    fn = compose(retry(2, wait=0, idempotent=True), breaker("api", stream=True, account="call"))(opens)
    stream = fn()
    next(stream)
    assert (0, 0) == counted(api)
    with pytest.raises(ConnectionError):
        next(stream)

    assert (0, 1) == counted(api)


# ---------------------------------------------------------------------------------------------- several at once
class Waiting(Response):
    """A response whose second line comes when somebody lets it go, or closes it."""

    def __init__(self):
        super().__init__()
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        if self.closed:
            raise ConnectionError("closed")
        self.reached.set()
        self.let_go.wait(10)
        if self.closed:
            raise ConnectionError("closed")
        return "a line"

    def close(self):
        super().close()
        self.let_go.set()


@pytest.fixture
def waiting(registry, ticking, pool, api):
    """A guarded response, and a thread that waits for its item; its answer is in the list."""
    bare = Waiting()
    stream = compose(bulkhead("pool"), breaker("api", stream=True))(lambda: bare)()
    answers = []

    def ask():
        try:
            answers.append(next(stream))
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert bare.reached.wait(10)
    yield stream, bare, thread, answers
    bare.let_go.set()
    thread.join(10)


def test_two_threads_ask_an_opened_stream_at_once(waiting, pool, api):
    """As with a bare generator: a ValueError for the second, and the first gets its item, under the policies."""
    stream, bare, thread, answers = waiting
    with pytest.raises(ValueError, match="already executing"):
        next(stream)
    bare.let_go.set()
    thread.join(10)

    assert ["a line"] == answers
    assert 1 == pool.in_flight
    stream.close()
    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_another_thread_closes_an_opened_stream(waiting, pool, api):
    """It ends the wait of the first, whose error is what it is; the slot is back."""
    stream, _, thread, answers = waiting
    stream.close()
    thread.join(10)

    assert ["ConnectionError"] == [type(answer).__name__ for answer in answers]
    assert 0 == pool.in_flight


def test_two_tasks_ask_an_opened_stream_at_once(registry, ticking, pool, api):
    """As with a bare async generator: a RuntimeError for the second, and the first gets its item."""
    gate = asyncio.Event()

    async def slow():
        await gate.wait()
        yield 1

    async def opens():
        return slow()

    async def main():
        stream = await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()
        first = asyncio.ensure_future(asked(stream))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already"):
            await anext(stream)
        gate.set()
        assert 1 == await first
        assert "the end" == await anext(stream, "the end")

    async def asked(stream):
        return await anext(stream)

    asyncio.run(main())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_another_task_closes_an_opened_stream(registry, ticking, pool, api):
    """A response that is closed while somebody waits for its next line: the wait ends, and the slot is free."""

    class Closable(AsyncResponse):
        def __init__(self):
            super().__init__()
            self.gone = asyncio.Event()

        async def aiter_lines(self):
            yield "a"
            await self.gone.wait()
            raise ConnectionError("closed")

        async def aclose(self):
            self.gone.set()

    async def opens():
        return Closable()

    async def main():
        response = await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()
        lines = response.aiter_lines()
        assert "a" == await anext(lines)
        waiting = asyncio.ensure_future(asked(lines))
        await asyncio.sleep(0)
        await response.aclose()
        with pytest.raises(ConnectionError):
            await waiting

    async def asked(lines):
        return await anext(lines)

    asyncio.run(main())
    assert 0 == pool.in_flight
    assert 0 == counted(api)[0]


def test_a_cancelled_step_of_an_opened_stream(registry, ticking, pool, api):
    """I4: neutral, and the slot is back."""

    async def slow():
        yield 1
        await asyncio.Event().wait()

    async def opens():
        return slow()

    async def main():
        stream = await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()
        await anext(stream)
        waiting = asyncio.ensure_future(asked(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert 0 == pool.in_flight

    async def asked(stream):
        return await anext(stream)

    asyncio.run(main())
    assert (0, 0) == counted(api)


def test_closed_at_the_very_moment_of_a_step(registry, ticking, pool, api):
    """Another thread's close comes between the look at the stream and the step: it has ended."""
    stream = compose(bulkhead("pool"), breaker("api", stream=True))(open_generator)()
    stream._self_steps.close()

    assert [] == list(stream)
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- other shapes
class Client:
    """A client whose methods open streams."""

    def plain(self, stop):
        return numbers(stop)

    async def in_a_task(self, stop):
        return numbers_async(stop)

    @classmethod
    def of_class(cls, stop):
        return numbers(stop)

    @staticmethod
    def static(stop):
        return numbers(stop)

    def __call__(self, stop):
        return numbers(stop)


OPENERS = {
    "bound method": lambda: Client().plain,
    "bound coroutine method": lambda: Client().in_a_task,
    "classmethod": lambda: Client().of_class,
    "staticmethod": lambda: Client.static,
    "object": Client,
    "partial": lambda: functools.partial(open_generator, error=None),
    "coroutine partial": lambda: functools.partial(open_async, error=None),
}


async def collected(opening):
    return [item async for item in await opening]


@pytest.mark.parametrize("call", [False, True], ids=["decorated", "call"])
@pytest.mark.parametrize("name", OPENERS)
def test_other_shapes(registry, ticking, pool, api, name, call):
    """Methods, callable objects and partials that open streams; `compose(...).call` and `.acall` too."""
    opener = OPENERS[name]()
    policies = compose(bulkhead("pool"), breaker("api", stream=True))

    if "coroutine" in name:
        opening = policies.acall(opener, 3) if call else policies(opener)(3)
        assert [0, 1, 2] == asyncio.run(collected(opening))
    else:
        stream = policies.call(opener, 3) if call else policies(opener)(3)
        assert 1 == pool.in_flight
        assert [0, 1, 2] == list(stream)
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_methods_of_a_decorated_class(registry, ticking, pool, api):
    """Decorated in the class: bound when they are looked up, and streams all the same."""
    policies = compose(bulkhead("pool"), breaker("api", stream=True))

    class Guarded:
        plain = policies(Client.plain)
        in_a_task = policies(Client.in_a_task)
        of_class = policies(Client.__dict__["of_class"])
        static = policies(Client.__dict__["static"])

    guarded = Guarded()

    assert [[0, 1]] * 3 == [list(opens(2)) for opens in (guarded.plain, guarded.of_class, guarded.static)]
    assert [0, 1] == asyncio.run(collected(guarded.in_a_task(2)))
    assert (4, 0) == counted(api)
    assert 0 == pool.in_flight


def test_something_that_only_gives_its_iterator(registry, ticking, pool, api):
    """An object with nothing but `__aiter__`: its iterator is the stream's."""

    class Messages:
        def __aiter__(self):
            return numbers_async(3)

    async def opens():
        return Messages()

    async def main():
        stream = await compose(bulkhead("pool"), breaker("api", stream=True))(opens)()
        return [item async for item in stream]

    assert [0, 1, 2] == asyncio.run(main())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight
