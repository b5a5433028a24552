"""What a plain function's awaitable becomes: the same to await, to enter, to send to, under the policies."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    Consecutive,
    breaker,
    bulkhead,
    retry,
    timeout,
)


class Session:
    """What clients return from a plain `get(...)`: to be awaited or to be entered."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.made = 0
        self.left = []

    def get(self, url):
        self.made += 1
        return Request(self, url, self.failures.pop(0) if self.failures else None)


class Request:
    def __init__(self, session, url, failure):
        self.session, self.url, self.failure = session, url, failure
        self.closed = False

    def __await__(self):
        return self._answer().__await__()

    async def _answer(self):
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return f"re: {self.url}"

    async def __aenter__(self):
        return await self._answer()

    async def __aexit__(self, kind, error, trace):
        self.session.left.append((self.url, kind))

    def close(self):
        self.closed = True


def guarded(session, registry):
    @bulkhead("room", max_in_flight=1)
    @retry(3, wait=0, idempotent=True)
    @breaker("provider", BreakerConfig(Consecutive(2)))
    def get(url):
        return session.get(url)

    return get


def figures(registry):
    status = registry.get("provider").status()
    return status.successes_total, status.failures_total


def test_it_is_awaited_under_the_policies(registry):
    """A failure is counted and repeated."""
    session = Session(ConnectionError("down"))
    get = guarded(session, registry)

    async def scenario():
        return await get("u")

    assert "re: u" == asyncio.run(scenario())
    assert ((1, 1), 2) == (figures(registry), session.made)


def test_it_is_entered_under_the_policies(registry):
    """Entering is what can fail; what is entered in the end is what is left."""
    session = Session(ConnectionError("down"))
    get = guarded(session, registry)

    async def scenario():
        async with get("u") as response:
            return response

    assert "re: u" == asyncio.run(scenario())
    assert ((1, 1), [("u", None)]) == (figures(registry), session.left)


def test_an_entered_block_that_fails(registry):
    """Its exception is the block's own business: the object is told, the breaker is not."""
    session = Session()
    get = guarded(session, registry)

    async def scenario():
        async with get("u"):
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(scenario())
    assert ((1, 0), [("u", LookupError)]) == (figures(registry), session.left)


def test_everything_else_is_the_awaitables_own(registry):
    """Attributes are looked up on it."""
    assert "u" == guarded(Session(), registry)("u").url


def test_one_that_is_never_awaited_has_taken_nothing(registry):
    """No slot, no permit; closing it closes what it stands for."""
    session = Session()
    request = guarded(session, registry)("u")
    request.close()

    assert (True, 0) == (request.closed, registry.get_bulkhead("room").in_flight)
    assert (0, 0) == figures(registry)


def test_one_that_can_not_be_closed(registry):
    """Is left as it is."""

    class Bare:
        def __await__(self):
            yield

    @bulkhead(max_in_flight=1)
    def get():
        return Bare()

    assert get().close() is None


def test_it_is_a_coroutine_to_whoever_asks(registry):
    """So a task can be made of it."""
    get = guarded(Session(), registry)

    async def scenario():
        made = get("u")
        assert asyncio.iscoroutine(made)
        return await asyncio.create_task(made)

    assert "re: u" == asyncio.run(scenario())


def test_it_is_driven_by_hand(registry):
    """`send`, `throw` and `close` are those of the guarded run."""

    class Steps:
        def __await__(self):
            while True:
                try:
                    yield "step"
                except LookupError:
                    yield "caught"

    @bulkhead("room", max_in_flight=1)
    def get():
        return Steps()

    made = get()
    assert ["step", "caught", "step"] == [made.send(None), made.throw(LookupError()), made.send(None)]
    assert 1 == registry.get_bulkhead("room").in_flight
    made.close()
    assert 0 == registry.get_bulkhead("room").in_flight


def test_an_open_circuit_refuses_before_the_function_is_called(registry):
    """The door is asked first."""
    session = Session()
    get = guarded(session, registry)
    registry.get("provider").force_open("maintenance")

    with pytest.raises(CircuitOpenError):
        get("u")
    assert 0 == session.made


def test_a_circuit_that_opened_between_call_and_await(registry):
    """The refusal comes where it is awaited; what never began is closed."""
    session, made = Session(), []
    get = guarded(session, registry)

    async def scenario():
        made.append(get("u"))
        registry.get("provider").force_open("maintenance")
        await made[0]

    with pytest.raises(CircuitOpenError):
        asyncio.run(scenario())
    assert made[0].closed is True


def test_a_coroutine_that_never_began_gives_no_warning(registry):
    """It is closed as well."""

    async def answer(): ...

    @breaker("provider", BreakerConfig())
    def get():
        return answer()

    coroutine = get()
    coroutine.close()

    assert inspect.CORO_CLOSED == inspect.getcoroutinestate(coroutine._awaitable)


def test_a_future(registry):
    """A future that a plain function returns is guarded like any awaitable."""

    async def scenario():
        future = asyncio.get_running_loop().create_future()

        @retry(2, wait=0, idempotent=True)
        def get():
            return future

        asyncio.get_running_loop().call_soon(future.set_result, "fine")
        return await get()

    assert "fine" == asyncio.run(scenario())


def test_under_a_budget(registry, virtual):
    """What is awaited is cut at the deadline that the function was handed."""

    @timeout(5, pass_as="seconds")
    def get(*, seconds=None):
        return asyncio.sleep(9)

    async def scenario():
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await get()
        return asyncio.get_running_loop().time() - began

    assert 5 == virtual(scenario())
