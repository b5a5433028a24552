"""A plain function that returns something to await: the await is what is guarded."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    Consecutive,
    breaker,
    bulkhead,
    compose,
    retry,
)


class Custom:
    """An awaitable that is neither coroutine nor future."""

    def __init__(self, coroutine):
        self._coroutine = coroutine

    def __await__(self):
        return self._coroutine.__await__()

    def close(self):
        self._coroutine.close()


def future_of(coroutine):
    """A bare Future that holds what the coroutine returns or raises."""
    future = asyncio.get_running_loop().create_future()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        future.set_result(stop.value)
    except Exception as error:
        future.set_exception(error)
    return future


KINDS = {
    "coroutine": lambda coroutine: coroutine,
    "task": lambda coroutine: asyncio.get_running_loop().create_task(coroutine),
    "future": future_of,
    "custom": Custom,
}

kinds = pytest.mark.parametrize("kind", KINDS)


def asking(provider, kind):
    """A plain function that starts, or prepares, an answer of the provider."""

    async def answer(text):
        return provider.answer(text)

    def ask(text):
        return KINDS[kind](answer(text))

    return ask


@kinds
def test_the_result_is_what_was_awaited(kind, policies, provider):
    """A healthy call, through all policies."""
    ask = compose(policies.breaker, policies.retry, policies.bulkhead)(asking(provider, kind))

    async def main():
        return await ask("hello")

    assert "re: hello" == asyncio.run(main())


@kinds
def test_awaits_count(kind, policies, provider, registry):
    """Success and failure are those of the await; the call that prepared it is none."""
    ask = policies.breaker(asking(provider, kind))

    async def main():
        await ask("hello")
        provider.failures_left = 1
        with pytest.raises(ConnectionError):
            await ask("hello")

    asyncio.run(main())
    status = registry.get("provider").status()
    assert (1, 1) == (status.successes_total, status.failures_total)


@kinds
def test_failed_awaits_open_the_circuit(kind, policies, provider):
    """After two of them the function is not even called."""
    called = []
    prepare = asking(provider, kind)

    @policies.breaker
    def ask(text):
        called.append(text)
        return prepare(text)

    async def main():
        provider.failures_left = 2
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await ask("hello")
        with pytest.raises(CircuitOpenError):
            await ask("hello")

    asyncio.run(main())
    assert 2 == len(called)


@kinds
def test_a_failed_await_is_retried(kind, policies, provider):
    """The second attempt calls the function anew: an awaitable can be awaited once."""
    ask = compose(policies.retry, policies.breaker)(asking(provider, kind))

    async def main():
        provider.failures_left = 1
        return await ask("hello")

    assert ("re: hello", 2) == (asyncio.run(main()), provider.calls)


@pytest.mark.parametrize("kind", ["coroutine", "task", "custom"])
def test_the_slot_is_held_while_awaiting(kind):
    """A second await finds the only slot taken."""

    async def main():
        release = asyncio.Event()

        @bulkhead(max_in_flight=1)
        def ask():
            return KINDS[kind](release.wait())

        first = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        with pytest.raises(BulkheadFullError):
            await ask()
        release.set()
        return await first

    assert asyncio.run(main()) is True


def opened_before_the_await(ask, ref):
    """Prepare a call while all is well, and await it when the circuit has been opened."""

    async def main():
        prepared = ask("hello")
        ref.force_open("test")
        with pytest.raises(CircuitOpenError):
            await prepared

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


def test_a_refused_coroutine_is_closed(policies, provider):
    """One that may not begin any more is closed: nothing complains that it was never awaited."""
    prepared = []
    prepare = asking(provider, "coroutine")

    @policies.breaker
    def ask(text):
        prepared.append(prepare(text))
        return prepared[0]

    opened_before_the_await(ask, policies.breaker)
    assert (0, None) == (provider.calls, prepared[0].cr_frame)


def test_a_refused_awaitable_is_closed(policies, provider):
    """So is anything else that has `close`."""
    ask = policies.breaker(asking(provider, "custom"))
    opened_before_the_await(ask, policies.breaker)
    assert 0 == provider.calls


def test_a_call_that_is_never_awaited_loses_no_slot(provider, registry):
    """The slot is taken for the await, so a forgotten coroutine takes none."""
    ask = bulkhead("slots", max_in_flight=1)(asking(provider, "coroutine"))
    forgotten = ask("hello")
    in_flight = registry.get_bulkhead("slots").in_flight
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forgotten.close()
        del forgotten
        gc.collect()
    assert (0, 0) == (in_flight, registry.get_bulkhead("slots").in_flight)


def test_a_call_that_is_never_awaited_takes_no_probe(provider, registry):
    """Of a half-open circuit a forgotten coroutine takes nothing that would not come back."""
    ask = breaker("probed", BreakerConfig(Consecutive(1), cooldown=1e-9))(asking(provider, "coroutine"))
    provider.failures_left = 1
    with pytest.raises(ConnectionError):
        asyncio.run(ask("hello"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask("hello").close()
        gc.collect()
    assert "re: hello" == asyncio.run(ask("hello"))


def test_a_cancelled_await_gives_the_slot_back(registry):
    """The caller's own cancel passes through and counts nothing."""

    async def forever():
        await asyncio.Event().wait()

    ask = compose(bulkhead("slots", max_in_flight=1), breaker("cancelled", BreakerConfig()))(lambda: forever())

    async def main():
        task = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (0, 0) == (
        registry.get_bulkhead("slots").in_flight,
        registry.get("cancelled").status().failures_total,
    )


def test_a_function_that_answers_either_way():
    """A result that is ready is returned as it is; one to await is awaited."""

    async def later():
        return "later"

    @breaker("either", BreakerConfig())
    def ask(now):
        return "now" if now else later()

    assert ("now", "later") == (ask(True), asyncio.run(ask(False)))


def test_the_failure_of_the_call_itself_counts(registry):
    """A function that raises before it returns anything has failed like any other."""

    @compose(breaker("early", BreakerConfig()), retry(2, wait=0, idempotent=True))
    def ask():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        ask()
    assert 2 == registry.get("early").status().failures_total


def test_a_class_of_awaitables_is_asked_of_its_type():
    """An attribute `__await__` on an instance makes nothing awaitable, as in Python itself."""

    class Result:
        def __init__(self):
            self.__await__ = None

    assert isinstance(breaker("typed", BreakerConfig())(lambda: Result())(), Result)
