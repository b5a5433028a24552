"""Every shape of callable is really protected: it answers, counts, opens, retries and takes a slot."""

from __future__ import annotations

import asyncio
import functools
import sys
import types
from unittest import mock

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    Consecutive,
    breaker,
    compose,
    timeout,
)

# Each takes a decorator and a provider, and returns a decorated callable of one text.


def plain(policy, provider):
    @policy
    def ask(text):
        return provider.answer(text)

    return ask


def a_lambda(policy, provider):
    return policy(lambda text: provider.answer(text))


def closure_over_its_parameter(policy, provider):
    @policy
    def ask(text):
        return (lambda: provider.answer(text))()

    return ask


def keyword_only(policy, provider):
    @policy
    def ask(*, text):
        return provider.answer(text)

    return lambda text: ask(text=text)


def variadic(policy, provider):
    @policy
    def ask(*args, **kwargs):
        return provider.answer(*args, **kwargs)

    return ask


def no_ascii(policy, provider):
    @policy
    def ask(größe, /, *, ñ=None):
        return provider.answer(größe)

    return ask


def named_like_ours(policy, provider):
    @policy
    def ask(_r_fn, _r_circuit=None):
        return provider.answer(_r_fn)

    return ask


def method(policy, provider):
    class Client:
        @policy
        def ask(self, text):
            return provider.answer(text)

    return Client().ask


def bound_method(policy, provider):
    class Client:
        def ask(self, text):
            return provider.answer(text)

    return policy(Client().ask)


def class_method_inside(policy, provider):
    class Client:
        @classmethod
        @policy
        def ask(cls, text):
            assert cls is Client
            return provider.answer(text)

    return Client.ask


def class_method_outside(policy, provider):
    class Client:
        @policy
        @classmethod
        def ask(cls, text):
            assert cls is Client
            return provider.answer(text)

    return Client.ask


def static_method_inside(policy, provider):
    class Client:
        @staticmethod
        @policy
        def ask(text):
            return provider.answer(text)

    return Client().ask


def static_method_outside(policy, provider):
    class Client:
        @policy
        @staticmethod
        def ask(text):
            return provider.answer(text)

    return Client().ask


def a_partial(policy, provider):
    return policy(functools.partial(lambda found, text: found.answer(text), provider))


def nested_partial(policy, provider):
    inner = functools.partial(lambda found, prefix, text: found.answer(prefix + text), provider)
    inner.note = "keeps partial from flattening the two"
    return policy(functools.partial(inner, ""))


def keyword_partial(policy, provider):
    return policy(functools.partial(lambda text, *, found: found.answer(text), found=provider))


def partial_of_a_method(policy, provider):
    class Client:
        def ask(self, found, text):
            return found.answer(text)

    return policy(functools.partial(Client().ask, provider))


def instance(policy, provider):
    class Client:
        def __call__(self, text):
            return provider.answer(text)

    return policy(Client())


def call_method(policy, provider):
    class Client:
        @policy
        def __call__(self, text):
            return provider.answer(text)

    return Client()


def cached(policy, provider):
    return policy(functools.lru_cache(maxsize=0)(lambda text: provider.answer(text)))


def cached_method(policy, provider):
    class Client:
        @policy
        @functools.lru_cache(maxsize=0)
        def ask(self, text):
            return provider.answer(text)

    return Client().ask


def dispatched(policy, provider):
    @policy
    @functools.singledispatch
    def ask(text):
        raise AssertionError("not this one")

    ask.register(str, lambda text: provider.answer(text))
    return ask


def builtin(policy, provider):
    class Text(str):
        def __format__(self, spec):
            return provider.answer(str(self))

    decorated = policy(format)
    return lambda text: decorated(Text(text))


def a_mock(policy, provider):
    return policy(mock.Mock(side_effect=provider.answer))


def foreign_wrapper(policy, provider):
    def foreign(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args)

        return inner

    @policy
    @foreign
    def ask(text):
        return provider.answer(text)

    return ask


SYNC = [
    plain,
    a_lambda,
    closure_over_its_parameter,
    keyword_only,
    variadic,
    no_ascii,
    named_like_ours,
    method,
    bound_method,
    class_method_inside,
    class_method_outside,
    static_method_inside,
    static_method_outside,
    a_partial,
    nested_partial,
    keyword_partial,
    partial_of_a_method,
    instance,
    call_method,
    cached,
    cached_method,
    dispatched,
    builtin,
    a_mock,
    foreign_wrapper,
]


def async_plain(policy, provider):
    @policy
    async def ask(text):
        return provider.answer(text)

    return ask


def async_method(policy, provider):
    class Client:
        @policy
        async def ask(self, text):
            return provider.answer(text)

    return Client().ask


def async_bound_method(policy, provider):
    class Client:
        async def ask(self, text):
            return provider.answer(text)

    return policy(Client().ask)


def async_class_method_inside(policy, provider):
    class Client:
        @classmethod
        @policy
        async def ask(cls, text):
            return provider.answer(text)

    return Client.ask


def async_class_method_outside(policy, provider):
    class Client:
        @policy
        @classmethod
        async def ask(cls, text):
            return provider.answer(text)

    return Client.ask


def async_static_method_inside(policy, provider):
    class Client:
        @staticmethod
        @policy
        async def ask(text):
            return provider.answer(text)

    return Client.ask


def async_static_method_outside(policy, provider):
    class Client:
        @policy
        @staticmethod
        async def ask(text):
            return provider.answer(text)

    return Client.ask


def async_partial(policy, provider):
    async def ask(found, text):
        return found.answer(text)

    return policy(functools.partial(ask, provider))


def async_keyword_partial(policy, provider):
    async def ask(text, *, found):
        return found.answer(text)

    return policy(functools.partial(ask, found=provider))


def async_instance(policy, provider):
    class Client:
        async def __call__(self, text):
            return provider.answer(text)

    return policy(Client())


def async_call_method(policy, provider):
    class Client:
        @policy
        async def __call__(self, text):
            return provider.answer(text)

    return Client()


def async_mock(policy, provider):
    return policy(mock.AsyncMock(side_effect=provider.answer))


def async_no_ascii(policy, provider):
    @policy
    async def ask(größe, *, ñ=None):
        return provider.answer(größe)

    return ask


def generator_based(policy, provider):
    @policy
    @types.coroutine
    def ask(text):
        yield
        return provider.answer(text)

    return ask


def marked(policy, provider):
    """A plain function that declares its result a coroutine."""
    import inspect

    async def answer(text):
        return provider.answer(text)

    return policy(inspect.markcoroutinefunction(lambda text: answer(text)))


ASYNC = [
    async_plain,
    async_method,
    async_bound_method,
    async_class_method_inside,
    async_class_method_outside,
    async_static_method_inside,
    async_static_method_outside,
    async_partial,
    async_keyword_partial,
    async_instance,
    async_call_method,
    async_mock,
    async_no_ascii,
    generator_based,
    pytest.param(marked, marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")),
]

sync_shapes = pytest.mark.parametrize("shape", SYNC)
async_shapes = pytest.mark.parametrize("shape", ASYNC)


class TestSync:
    @sync_shapes
    def test_a_healthy_call_answers(self, shape, policies, provider):
        """The result is the function's own."""
        ask = shape(compose(policies.breaker, policies.retry, policies.bulkhead), provider)
        assert "re: hello" == ask("hello")

    @sync_shapes
    def test_every_call_counts(self, shape, policies, provider, registry):
        """Successes and failures arrive at the shared breaker."""
        ask = shape(policies.breaker, provider)
        ask("hello")
        provider.failures_left = 1
        with pytest.raises(ConnectionError):
            ask("hello")

        status = registry.get("provider").status()
        assert (1, 1) == (status.successes_total, status.failures_total)

    @sync_shapes
    def test_an_open_circuit_refuses(self, shape, policies, provider):
        """After two failures nothing is sent any more."""
        ask = shape(policies.breaker, provider)
        provider.failures_left = 2
        for _ in range(2):
            with pytest.raises(ConnectionError):
                ask("hello")
        with pytest.raises(CircuitOpenError):
            ask("hello")

        assert 2 == provider.calls

    @sync_shapes
    def test_a_failure_is_retried(self, shape, policies, provider):
        """The second attempt has the same arguments, and its answer is the answer."""
        ask = shape(policies.retry, provider)
        provider.failures_left = 1
        assert "re: hello" == ask("hello")

        assert 2 == provider.calls

    @sync_shapes
    def test_a_full_bulkhead_refuses(self, shape, policies, provider):
        """A call that needs the slot of the one around it is refused, and the slot comes back."""
        ask = shape(policies.bulkhead, provider)

        def call_again():
            with pytest.raises(BulkheadFullError):
                ask("again")

        provider.while_busy = call_again
        ask("hello")
        provider.while_busy = None

        assert "re: hello" == ask("hello")

    @sync_shapes
    def test_a_call_without_decorating(self, shape, policies, provider, registry):
        """`compose(...).call` protects every shape too."""
        ask = shape(lambda fn: fn, provider)
        policy = compose(policies.breaker, policies.retry)
        provider.failures_left = 1
        assert "re: hello" == policy.call(ask, "hello")

        assert 1 == registry.get("provider").status().failures_total


class TestAsync:
    @async_shapes
    def test_a_healthy_call_answers(self, shape, policies, provider):
        """The result is the function's own."""
        ask = shape(compose(policies.breaker, policies.retry, policies.bulkhead, timeout(30)), provider)
        assert "re: hello" == asyncio.run(ask("hello"))

    @async_shapes
    def test_every_call_counts(self, shape, policies, provider, registry):
        """Successes and failures arrive at the shared breaker."""
        ask = shape(policies.breaker, provider)
        asyncio.run(ask("hello"))
        provider.failures_left = 1
        with pytest.raises(ConnectionError):
            asyncio.run(ask("hello"))

        status = registry.get("provider").status()
        assert (1, 1) == (status.successes_total, status.failures_total)

    @async_shapes
    def test_an_open_circuit_refuses(self, shape, policies, provider):
        """After two failures nothing is sent any more."""
        ask = shape(policies.breaker, provider)
        provider.failures_left = 2
        for _ in range(2):
            with pytest.raises(ConnectionError):
                asyncio.run(ask("hello"))
        with pytest.raises(CircuitOpenError):
            asyncio.run(ask("hello"))

        assert 2 == provider.calls

    @async_shapes
    def test_a_failure_is_retried(self, shape, policies, provider):
        """The second attempt has the same arguments, and its answer is the answer."""
        ask = shape(policies.retry, provider)
        provider.failures_left = 1
        assert "re: hello" == asyncio.run(ask("hello"))

        assert 2 == provider.calls

    @async_shapes
    def test_a_full_bulkhead_refuses(self, shape, policies, provider):
        """A call that needs the slot of the one around it is refused, and the slot comes back."""
        ask = shape(policies.bulkhead, provider)

        def call_again():
            with pytest.raises(BulkheadFullError):
                ask("again").send(None)

        provider.while_busy = call_again
        asyncio.run(ask("hello"))
        provider.while_busy = None

        assert "re: hello" == asyncio.run(ask("hello"))

    @async_shapes
    def test_a_call_without_decorating(self, shape, policies, provider, registry):
        """`compose(...).acall` protects every shape too."""
        ask = shape(lambda fn: fn, provider)
        policy = compose(policies.breaker, policies.retry)
        provider.failures_left = 1
        assert "re: hello" == asyncio.run(policy.acall(ask, "hello"))

        assert 1 == registry.get("provider").status().failures_total


@sync_shapes
def test_a_reference_finds_its_name_at_the_first_call(shape, provider, registry):
    """A breaker that is registered after the function was decorated protects it all the same."""
    ask = shape(breaker("late"), provider)
    registry.breaker("late", BreakerConfig(Consecutive(1)))
    provider.failures_left = 1
    with pytest.raises(ConnectionError):
        ask("hello")
    with pytest.raises(CircuitOpenError):
        ask("hello")
