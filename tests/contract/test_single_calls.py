"""Design 1: `compose(...)` as one reusable set: `.call` and `.acall` beside the decorator."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    ConfigurationError,
    Consecutive,
    OnOpen,
    OnReject,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    idempotent,
    interruptible,
    retry,
    timeout,
    use_registry,
)


class Form:
    """`call` of a plain function, or `acall` of an async one."""

    def __init__(self, is_async):
        self.is_async = is_async

    def __call__(self, policies, body, /, *args, **kwargs):
        if not self.is_async:
            return policies.call(body, *args, **kwargs)

        async def later(*args, **kwargs):
            return body(*args, **kwargs)

        return asyncio.run(policies.acall(later, *args, **kwargs))


@pytest.fixture(params=[False, True], ids=["call", "acall"])
def once(request, registry):
    return Form(request.param)


# ---------------------------------------------------------------------------------------------- each policy
def test_a_retry(once, remote):
    """As around a decorated function."""
    assert "ok" == once(compose(retry(3, wait=0, idempotent=True)), remote(ConnectionError, ConnectionError, "ok"))


def test_a_breaker(once, remote, trips_at):
    """Its failures count, and it refuses."""
    careful = compose(breaker("api", trips_at(1)))
    with pytest.raises(ConnectionError):
        once(careful, remote(ConnectionError))
    with pytest.raises(CircuitOpenError):
        once(careful, remote())


def test_a_fallback_is_given_the_arguments(once, registry):
    """Those of the call, without the function in front."""
    careful = compose(
        breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=lambda *args, **kwargs: (args, kwargs))
    )
    registry.get("api").force_open("drill")

    assert ((1, 2), {"key": 3}) == once(careful, lambda *args, **kwargs: "asked", 1, 2, key=3)


def test_a_condition_is_given_the_arguments(once, registry):
    """The same for `unless`."""
    careful = compose(breaker("api", BreakerConfig(), unless=lambda amount: amount > 1))
    registry.get("api").force_open("drill")

    assert 2 == once(careful, lambda amount: amount, 2)
    with pytest.raises(CircuitOpenError):
        once(careful, lambda amount: amount, 1)


def test_a_bulkhead(once, registry):
    """It holds a slot while the function runs."""
    pool = compose(bulkhead("pool", max_in_flight=1))

    assert 1 == once(pool, lambda: registry.get_bulkhead("pool").in_flight)
    assert 0 == registry.get_bulkhead("pool").in_flight


def test_a_timeout_of_an_async_function(registry, manual):
    """It is cancelled."""

    async def hang():
        await asyncio.get_running_loop().create_future()

    async def main():
        task = asyncio.create_task(compose(timeout(5)).acall(hang))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        manual.advance(5)
        with pytest.raises(TimeoutExceeded):
            await task

    asyncio.run(main())


def test_a_timeout_of_a_function_on_a_worker(registry):
    """It is left behind."""
    go = threading.Event()

    @interruptible(max_workers=1)
    def stuck():
        go.wait(10)

    try:
        with pytest.raises(TimeoutExceeded):
            compose(timeout(0.01)).call(stuck)
    finally:
        go.set()


def named(text, timeout=None):
    return text, timeout


def leading(timeout, text):
    return text, timeout


def by_name(text, *, timeout=None):
    return text, timeout


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (named, ("a",), {}),
        (named, ("a", 60), {}),
        (named, ("a",), {"timeout": 60}),
        (leading, (60, "a"), {}),
        (by_name, ("a",), {}),
        (functools.partial(named, "a"), (), {}),
        (functools.partial(named, timeout=60), ("a",), {}),
    ],
)
def test_a_timeout_that_is_handed_on(clock, fn, args, kwargs):
    """`pass_as` finds the parameter of each function, in its place, in whatever order they come."""
    careful = compose(timeout(5, pass_as="timeout"))
    careful.call(leading, 1, "b")
    text, seconds = careful.call(fn, *args, **kwargs)

    assert ("a", 5.0) == (text, seconds)


@pytest.mark.parametrize("fn", [lambda: "a", functools.partial(named, "a", 60)], ids=["none", "partial"])
def test_a_timeout_for_a_function_that_takes_none(registry, fn):
    """Is refused, as when it is decorated."""
    with pytest.raises(ConfigurationError, match="pass_as must be a parameter"):
        compose(timeout(5, pass_as="timeout")).call(fn)


# ---------------------------------------------------------------------------------------------- what can be called
class Client:
    def __init__(self):
        self.asked = 0

    def get(self, text):
        self.asked += 1
        return text.upper()

    async def get_later(self, text):
        return text.upper()

    @classmethod
    def made(cls, text):
        return cls().get(text)

    def __call__(self, text):
        return text.upper()


class AsyncClient:
    async def __call__(self, text):
        return text.upper()


class Later:
    """Anything that can be awaited."""

    def __init__(self, value):
        self.value = value

    def __await__(self):
        yield
        return self.value


@pytest.fixture
def careful(registry):
    return compose(bulkhead(max_in_flight=1), retry(2, wait=0, idempotent=True), breaker("api", BreakerConfig()))


@pytest.mark.parametrize(
    "fn",
    [str.upper, "a".upper, Client().get, Client.made, Client(), functools.partial(Client().get), lambda text="": "A"],
    ids=["function of C", "method of C", "method", "classmethod", "object", "partial", "lambda"],
)
def test_whatever_can_be_called(careful, fn):
    """Methods, partials, objects, builtins: once, under all policies."""
    args = () if fn == "a".upper else ("a",)

    assert "A" == careful.call(fn, *args)
    assert 1 == breaker("api").status().successes_total


@pytest.mark.parametrize(
    "fn",
    [
        Client().get_later,
        AsyncClient(),
        functools.partial(Client().get_later),
        lambda text: Client().get_later(text),
        lambda text: Later(text.upper()),
    ],
    ids=["method", "object", "partial", "plain function", "awaitable"],
)
@pytest.mark.parametrize("way", ["acall", "call"])
def test_whatever_can_be_awaited(careful, fn, way):
    """Coroutine functions of every sort, and plain functions that return awaitables; `call` gives what is awaited."""

    async def main():
        return await (careful.acall(fn, "a") if way == "acall" else careful.call(fn, "a"))

    assert "A" == asyncio.run(main())
    assert (1, 0) == (breaker("api").status().successes_total, breaker("api").status().failures_total)


def test_a_function_that_is_decorated_already(careful):
    """Its own policies apply inside."""

    @retry(2, wait=0, idempotent=True)
    @breaker("inner", BreakerConfig(Consecutive(9)))
    def fetch():
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        careful.call(fetch)
    assert 3 == breaker("inner").status().failures_total


def test_marks_are_seen(registry, remote):
    """A function that is not known to be repeatable is refused, one that is is repeated."""
    careful = compose(retry(2, wait=0))
    provider = remote(ConnectionError, "ok")

    @idempotent
    def fetch():
        return provider()

    with pytest.raises(ConfigurationError, match="idempotent"):
        careful.call(provider)
    assert "ok" == careful.call(fetch)


@pytest.mark.parametrize("name", ["fn", "self", "callee", "args"])
def test_parameters_of_any_name(once, name):
    """The function's own names don't clash with those of `call`."""
    assert {name: 1} == once(compose(retry(2, idempotent=True)), lambda **kwargs: kwargs, **{name: 1})


@pytest.mark.parametrize("thing", [None, 5, Client, property(len)], ids=["None", "number", "class", "property"])
def test_what_can_not_be_called(careful, thing):
    """Is refused, as when it is decorated."""
    with pytest.raises(ConfigurationError, match="fn must be a function"):
        careful.call(thing)


# ---------------------------------------------------------------------------------------------- what the calls share
def test_a_bulkhead_without_a_name_is_the_sets_own(registry):
    """All its calls share it, sync and async, of functions of any sort."""
    careful = compose(bulkhead(max_in_flight=1, on_reject=OnReject.BYPASS, fallback="full"), retry(2, idempotent=True))

    @idempotent
    def another():
        return "got in"

    async def later():
        return "got in"

    def inside():
        return careful.call(lambda: "got in"), careful.call(another), asyncio.run(careful.acall(later))

    assert ("full", "full", "full") == careful.call(inside)
    assert "got in" == careful.call(another)


def test_each_set_has_its_own(registry):
    """Two sets of equal policies, and one that came out of a pickle."""
    one = compose(bulkhead(max_in_flight=1))
    others = [compose(bulkhead(max_in_flight=1)), pickle.loads(pickle.dumps(one)), copy.deepcopy(one)]

    assert ["got in"] * 3 == one.call(lambda: [other.call(lambda: "got in") for other in others])
    assert [one] * 3 == others


def test_the_name_of_the_sets_own(registry):
    """It is told in the refusal."""
    careful = compose(bulkhead(max_in_flight=1))
    with pytest.raises(BulkheadFullError, match="'resilience:compose' is full"):
        careful.call(careful.call, len, "abc")


def test_first_calls_at_once(registry, together):
    """Of threads that come first together all stand before one bulkhead."""
    careful = compose(bulkhead(max_in_flight=3, registry=registry))
    start = threading.Barrier(8)

    def visit():
        start.wait(10)
        return "got in"

    def one(index):
        try:
            return careful.call(visit)
        except BulkheadFullError:
            start.wait(10)
            return "refused"

    assert ["got in"] * 3 + ["refused"] * 5 == sorted(together(8, one))


def test_names_are_looked_up_in_the_current_registry(registry, remote, trips_at):
    """As a block's are: a set that was used before is used in a test with a registry of its own."""
    careful = compose(breaker("api", trips_at(1)))
    with pytest.raises(ConnectionError):
        careful.call(remote(ConnectionError))
    with use_registry(Registry()) as other:
        assert "ok" == careful.call(remote())
        assert 1 == other.get("api").status().successes_total
    with pytest.raises(CircuitOpenError):
        careful.call(remote())
