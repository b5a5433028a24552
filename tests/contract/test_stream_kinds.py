"""Contract section 8: everything that a generator function can be, and what its wrapper looks like."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    breaker,
    bulkhead,
    compose,
    default_registry,
    describe,
    idempotent,
    retry,
)


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2))


def policies():
    return compose(bulkhead("pool"), retry(2, wait=0, idempotent=True), breaker("api", BreakerConfig()))


def generate(stop: int = 3, *, start: int = 0):
    """Count."""
    yield from range(start, stop)


async def generate_async(stop: int = 3, *, start: int = 0):
    """Count."""
    for number in range(start, stop):
        yield number


def items(stream):
    """All items of a stream of either world."""

    async def collect():
        return [item async for item in stream]

    return asyncio.run(collect()) if hasattr(stream, "__anext__") else list(stream)


BOTH = pytest.mark.parametrize("function", [generate, generate_async])


# ---------------------------------------------------------------------------------------------- looks
def test_a_wrapper_is_a_generator_function(registry, ticking):
    """`inspect` says so, as frameworks ask it."""
    assert inspect.isgeneratorfunction(policies()(generate))
    assert not inspect.isasyncgenfunction(policies()(generate))
    assert inspect.isasyncgenfunction(policies()(generate_async))
    assert not inspect.isgeneratorfunction(policies()(generate_async))
    assert not inspect.iscoroutinefunction(policies()(generate_async))


def test_what_it_returns_is_a_generator(registry, ticking):
    """So that everything that takes generators takes it."""
    stream, astream = policies()(generate)(), policies()(generate_async)()

    assert inspect.isgenerator(stream)
    assert inspect.isasyncgen(astream)
    stream.close()
    asyncio.run(astream.aclose())


@BOTH
def test_it_looks_like_the_function(registry, ticking, function):
    """Name, text, signature and annotations are the function's."""
    wrapper = policies()(function)

    assert (function.__name__, function.__qualname__, function.__doc__, function.__module__) == (
        wrapper.__name__,
        wrapper.__qualname__,
        wrapper.__doc__,
        wrapper.__module__,
    )
    assert inspect.signature(function) == inspect.signature(wrapper)
    assert function.__annotations__ == wrapper.__annotations__
    assert function is wrapper.__wrapped__


@BOTH
def test_arguments_reach_it(registry, ticking, pool, function):
    """Defaults, positions and keywords."""
    wrapper = policies()(function)

    assert [[0, 1, 2], [0], [1, 2], [4]] == [
        items(stream) for stream in (wrapper(), wrapper(1), wrapper(start=1), wrapper(stop=5, start=4))
    ]


@BOTH
def test_it_is_described(registry, function):
    """`describe` shows the applied order of a stream like that of any function."""
    text = str(describe(policies()(function)))

    assert function.__name__ in text
    assert "api" in text


@BOTH
def test_stacked_decorators_are_one_wrapper(registry, ticking, pool, api, function):
    """Section 3: two of our decorators on a generator function give one generator."""
    wrapper = bulkhead("pool")(retry(2, wait=0, idempotent=True)(breaker("api")(function)))

    assert function is wrapper.__wrapped__
    assert [0, 1, 2] == items(wrapper())
    assert (1, 0) == (api.status().successes_total, pool.in_flight)


@BOTH
def test_stream_true_on_a_generator_function_changes_nothing(registry, ticking, pool, api, function):
    """It is known to be one anyway."""
    wrapper = bulkhead("pool", stream=True)(function)
    stream = wrapper()

    assert 0 == pool.in_flight
    assert [0, 1, 2] == items(stream)


# ---------------------------------------------------------------------------------------------- methods
class Client:
    """Streams of all kinds of methods."""

    def __init__(self, start=0):
        self.start = start

    @breaker("stream-methods")
    @bulkhead("stream-methods")
    def method(self, stop):
        yield from range(self.start, stop)

    @breaker("stream-methods")
    @bulkhead("stream-methods")
    async def method_async(self, stop):
        for number in range(self.start, stop):
            yield number

    @bulkhead("stream-methods")
    @breaker("stream-methods")
    @classmethod
    def of_class(cls, stop):
        yield cls.__name__, stop

    @classmethod
    @bulkhead("stream-methods")
    @breaker("stream-methods")
    def of_class_outside(cls, stop):
        yield cls.__name__, stop

    @bulkhead("stream-methods")
    @breaker("stream-methods")
    @staticmethod
    def static(stop):
        yield from range(stop)

    @bulkhead("stream-methods")
    @breaker("stream-methods")
    @staticmethod
    async def static_async(stop):
        for number in range(stop):
            yield number


METHODS = {
    "method": (lambda: Client(1).method(3), [1, 2]),
    "method of the class": (lambda: Client.method(Client(1), 3), [1, 2]),
    "async method": (lambda: Client(1).method_async(3), [1, 2]),
    "classmethod": (lambda: Client.of_class(3), [("Client", 3)]),
    "classmethod of an object": (lambda: Client().of_class(3), [("Client", 3)]),
    "classmethod above": (lambda: Client.of_class_outside(3), [("Client", 3)]),
    "staticmethod": (lambda: Client.static(2), [0, 1]),
    "staticmethod of an object": (lambda: Client().static(2), [0, 1]),
    "async staticmethod": (lambda: Client.static_async(2), [0, 1]),
}


@pytest.fixture
def everywhere():
    """The class above was decorated at import, so its names are looked up in the registry of that time."""
    shared = default_registry()
    return (
        shared.bulkhead("stream-methods", BulkheadConfig(1, 0)),
        shared.breaker("stream-methods", BreakerConfig()),
    )


@pytest.mark.parametrize("name", METHODS)
def test_methods(everywhere, name):
    """Methods of all kinds are streams: slot and verdict as of a function."""
    make, expected = METHODS[name]
    pool, api = everywhere
    before = api.status().successes_total
    stream = make()

    assert 0 == pool.in_flight
    assert expected == items(stream)
    assert (before + 1, 0) == (api.status().successes_total, pool.in_flight)


@pytest.mark.parametrize("name", METHODS)
def test_methods_closed_early(everywhere, name):
    """And their slot comes back when they are closed."""
    make, _ = METHODS[name]
    pool, api = everywhere
    before = api.status().successes_total

    async def step():
        stream = make()
        await stream.__anext__()
        held = pool.in_flight
        await stream.aclose()
        return held

    if "async" in name:
        held = asyncio.run(step())
    else:
        stream = make()
        next(stream)
        held = pool.in_flight
        stream.close()

    assert (1, 0) == (held, pool.in_flight)
    assert before == api.status().successes_total


# ---------------------------------------------------------------------------------------------- other callables
class Counting:
    def __call__(self, stop=3):
        yield from range(stop)


class CountingAsync:
    async def __call__(self, stop=3):
        for number in range(stop):
            yield number


CALLABLES = {
    "partial": lambda: functools.partial(generate, 3),
    "async partial": lambda: functools.partial(generate_async, 3),
    "partial of a partial": lambda: functools.partial(functools.partial(generate, start=0), 3),
    "object": Counting,
    "async object": CountingAsync,
    "bound method": lambda: Counting().__call__,
    "async bound method": lambda: CountingAsync().__call__,
    "lambda": lambda: lambda: (yield from range(3)),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_other_callables(registry, ticking, pool, api, name):
    """Partials, callable objects and bound methods of generator functions are streams as well."""
    wrapper = compose(bulkhead("pool"), breaker("api"))(CALLABLES[name]())
    stream = wrapper()

    assert 0 == pool.in_flight
    assert [0, 1, 2] == items(stream)
    assert (1, 0) == (api.status().successes_total, pool.in_flight)


@pytest.mark.parametrize("name", CALLABLES)
def test_composed_call(registry, ticking, pool, api, name):
    """`compose(...).call(fn)` gives the protected stream; nothing happens before its first item."""
    stream = compose(bulkhead("pool"), breaker("api")).call(CALLABLES[name]())

    assert 0 == pool.in_flight
    assert [0, 1, 2] == items(stream)
    assert (1, 0) == (api.status().successes_total, pool.in_flight)


@BOTH
def test_composed_call_with_arguments(registry, ticking, pool, function):
    """They are the function's."""
    assert [1, 2] == items(compose(bulkhead("pool")).call(function, 3, start=1))


def test_a_generator_function_marked_idempotent(registry, ticking):
    """The mark stands next to the function, as for calls."""
    attempts = []

    @retry(2, wait=0)
    @idempotent
    def stream():
        attempts.append(1)
        if len(attempts) < 2:
            raise ConnectionError
        yield "item"

    assert ["item"] == list(stream())


def test_a_stream_of_a_closure(registry, ticking, pool):
    """Free variables, defaults and starred parameters are the function's own."""
    base = 10

    @bulkhead("pool")
    def stream(a, /, b=2, *rest, c, d=4, **more):
        yield from (base, a, b, rest, c, d, more)

    assert [10, 1, 2, (), 3, 4, {}] == list(stream(1, c=3))
    assert [10, 1, 5, (6,), 3, 7, {"e": 8}] == list(stream(1, 5, 6, c=3, d=7, e=8))
