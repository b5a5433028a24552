"""Reports to tenacity, each retold: the same fault does not exist here."""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest

from resilience import (
    BreakerConfig,
    ConfigurationError,
    FaultKind,
    Registry,
    breaker,
    bulkhead,
    compose,
    count_everything,
    retry,
    use_registry,
)

MINE = Registry()
thrice = retry(3, wait=0, idempotent=True)

forks = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
forking_is_meant = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


class World:
    """Plain functions, or coroutine functions each run in a loop of its own."""

    def __init__(self, is_async):
        self.is_async = is_async

    def function(self, body):
        async def coroutine_function(*args):
            return body(*args)

        def plain_function(*args):
            return body(*args)

        return coroutine_function if self.is_async else plain_function

    def call(self, fn, *args):
        async def main():
            return await fn(*args)

        return asyncio.run(main()) if self.is_async else fn(*args)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request):
    return World(request.param)


class Flaky:
    """Fails a few times, then answers; keeps the arguments of each attempt."""

    def __init__(self, failures, error=ConnectionError):
        self.failures = failures
        self.error = error
        self.seen = []

    def __call__(self, *args):
        self.seen.append(args)
        if len(self.seen) <= self.failures:
            raise self.error
        return "ok"


# ------------------------------------------------------------------------------------------ generators
def two_items_then_a_break():
    yield 1
    yield 2
    raise ConnectionError


async def two_items_then_a_break_async():
    yield 1
    yield 2
    raise ConnectionError


async def collected(stream, items):
    if hasattr(stream, "__anext__"):
        async for item in stream:
            items.append(item)  # a comprehension would lose what came before the break
    else:
        items.extend(stream)


@pytest.mark.parametrize("stream", [two_items_then_a_break, two_items_then_a_break_async])
@pytest.mark.parametrize("policy", [thrice, compose(thrice, breaker("stream"))], ids=["retry", "set"])
def test_a_broken_stream_is_never_begun_again(stream, policy):
    """tenacity#58: a retried generator began anew, so its consumer got the first items twice."""
    items = []
    with pytest.raises(ConnectionError):
        asyncio.run(collected(policy(stream)(), items))
    assert [1, 2] == items


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_method_is_retried(is_async):
    """tenacity#138: calling a generator method never fails, so its retry never saw an error."""
    calls = []

    def fails_first():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        yield "item"

    async def fails_first_async():
        for item in fails_first():
            yield item

    class Extractor:
        children = thrice(staticmethod(fails_first_async if is_async else fails_first))

    items = []
    asyncio.run(collected(Extractor.children(), items))
    assert (["item"], 3) == (items, len(calls))


def test_a_failure_between_two_items_counts(registry):
    """tenacity#138: a block around the loop sees what happens as well while a generator is consumed."""
    shared = registry.breaker("stream", BreakerConfig())
    items = []

    def consume():
        with shared.guard():
            items.extend(two_items_then_a_break())

    async def consume_async():
        async with shared.guard():
            async for item in two_items_then_a_break_async():
                items.append(item)  # noqa: PERF401  # a comprehension would lose what came before the break

    with pytest.raises(ConnectionError):
        consume()
    with pytest.raises(ConnectionError):
        asyncio.run(consume_async())
    assert 2 == shared.status().failure_count
    assert [1, 2, 1, 2] == items


# ------------------------------------------------------------------------------------------ many calls at one time
def test_concurrent_tasks_count_their_own_attempts():
    """tenacity#93: tasks in one decorated function used up each other's attempts."""
    attempts = dict.fromkeys(range(5), 0)
    numbers = {caller: [] for caller in attempts}

    def wait(state):
        numbers[state.args[0]].append(state.attempt_number)
        return 0

    @retry(3, wait=wait, idempotent=True)
    async def ask(caller):
        attempts[caller] += 1
        for _ in range(caller):  # so that the attempts of different callers interleave
            await asyncio.sleep(0)
        raise ConnectionError

    async def main():
        return await asyncio.gather(*(ask(caller) for caller in attempts), return_exceptions=True)

    assert all(isinstance(answer, ConnectionError) for answer in asyncio.run(main()))
    assert {3} == set(attempts.values())
    assert [[1, 2]] * 5 == list(numbers.values())


def test_one_policy_set_counts_for_each_single_call():
    """tenacity#93: nor does one reusable object mix the attempts of the calls that are made through it."""
    attempts = dict.fromkeys("abc", 0)
    careful = compose(thrice)

    async def ask(caller):
        attempts[caller] += 1
        await asyncio.sleep(0)
        raise ConnectionError

    async def main():
        await asyncio.gather(*(careful.acall(ask, caller) for caller in attempts), return_exceptions=True)

    asyncio.run(main())
    assert {"a": 3, "b": 3, "c": 3} == attempts


def test_concurrent_threads_have_figures_of_their_own():
    """tenacity#701: a second thread entering a decorated function wiped the figures of the first one's call."""
    each_attempt = threading.Barrier(4)
    figures = {caller: [] for caller in range(4)}

    def wait(state):
        figures[state.args[0]].append((state.attempt_number, state.outcome.exception().args))
        return 0

    @retry(3, wait=wait, idempotent=True)
    def ask(caller):
        each_attempt.wait(5)
        raise ConnectionError(caller)

    def call(caller):
        with pytest.raises(ConnectionError, match=str(caller)):
            ask(caller)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in figures]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert {caller: [(1, (caller,)), (2, (caller,))] for caller in range(4)} == figures


def test_a_function_that_calls_itself_has_figures_for_each_call(world):
    """tenacity#701: a call made inside the same decorated function began the outer call's figures anew."""
    figures = []

    def wait(state):
        figures.append((state.args[0], state.attempt_number))
        return 0

    policy = retry(3, wait=wait, idempotent=True)

    @policy
    def sync_ask(depth):
        if depth == "outer" and not figures:
            with pytest.raises(ConnectionError):
                sync_ask("inner")
        raise ConnectionError

    @policy
    async def async_ask(depth):
        if depth == "outer" and not figures:
            with pytest.raises(ConnectionError):
                await async_ask("inner")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        world.call(async_ask if world.is_async else sync_ask, "outer")
    assert [("inner", 1), ("inner", 2), ("outer", 1), ("outer", 2)] == figures


# ------------------------------------------------------------------------------------------ async in disguise
@pytest.mark.parametrize("disguise", ["partial", "lambda", "def"])
def test_a_plain_function_that_returns_a_coroutine_is_retried(disguise):
    """tenacity#132: the coroutine was taken for the answer, so no failure of it was ever retried."""
    provider = Flaky(2)

    async def fetch(method, url):
        return provider(method, url)

    def get(url):
        return fetch("get", url)

    functions = {"partial": functools.partial(fetch, "get"), "lambda": lambda url: fetch("get", url), "def": get}

    async def main():
        return await thrice(functions[disguise])("/books")

    assert "ok" == asyncio.run(main())
    assert [("get", "/books")] * 3 == provider.seen


def test_an_async_singledispatch_function_is_retried():
    """tenacity#430: an async function behind `singledispatch` does not look like one, and was not retried."""
    provider = Flaky(2)

    @thrice
    @functools.singledispatch
    async def ask(question):
        return provider("any", question)

    @ask.register
    async def _(question: int):
        return provider("int", question)

    assert "ok" == asyncio.run(ask("why"))
    provider.seen.clear()
    assert "ok" == asyncio.run(ask(42))
    assert [("int", 42)] * 3 == provider.seen


def test_an_async_singledispatch_method_is_retried_or_refused():
    """tenacity#430: below `singledispatchmethod` it is retried; above, where it could not be, it is refused."""
    provider = Flaky(2)

    class Client:
        @functools.singledispatchmethod
        @thrice
        async def ask(self, question):
            return provider(question)

    assert "ok" == asyncio.run(Client().ask("why"))
    assert 3 == len(provider.seen)
    with pytest.raises(ConfigurationError, match="singledispatchmethod"):
        thrice(functools.singledispatchmethod(lambda self, question: provider(question)))


# ------------------------------------------------------------------------------------------ other processes
@compose(thrice, breaker("remote", BreakerConfig(), registry=MINE), bulkhead("remote", max_in_flight=9, registry=MINE))
def fails_remotely(entry):
    raise ConnectionError(entry)


@thrice
async def fails_remotely_async(entry):
    raise ConnectionError(entry)


def run_remotely(entry):
    return asyncio.run(fails_remotely_async(entry))


@dataclass
class Job:
    """A callable object whose call is decorated."""

    suffix: str

    @compose(thrice, bulkhead(max_in_flight=2))
    def __call__(self, entry):
        raise ConnectionError(entry + self.suffix)


@pytest.mark.parametrize("fn", [fails_remotely, fails_remotely_async])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_decorated_function_can_be_sent_to_another_process(fn, protocol):
    """tenacity#147: it goes by name, with nothing in it that could not be pickled."""
    assert fn is pickle.loads(pickle.dumps(fn, protocol))


@forks
@forking_is_meant
@pytest.mark.parametrize("fn", [fails_remotely, run_remotely])
def test_a_pool_gets_the_real_error_back(fn):
    """tenacity#147: what an exhausted retry raised in a worker held a lock, so the pool reported that instead."""
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(ConnectionError) as caught:
        pool.map(fn, ["entry"])
    assert ("entry",) == caught.value.args


@forks
@forking_is_meant
def test_an_executor_gets_the_real_error_of_a_callable_object_back():
    """tenacity#429: the same for an object with a decorated `__call__`, sent to a ProcessPoolExecutor."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
        error = executor.submit(Job("!"), "entry").exception(10)
    assert (ConnectionError, ("entry!",)) == (type(error), error.args)
    assert ["retry gave up after 3 attempts"] == error.__notes__


# ------------------------------------------------------------------------------------------ what is retried
@pytest.mark.parametrize(
    ("group", "attempts"),
    [
        (ExceptionGroup("all may pass", [ConnectionError(), TimeoutError()]), 3),
        (ExceptionGroup("deep", [ConnectionError(), ExceptionGroup("deeper", [ConnectionResetError()])]), 3),
        (ExceptionGroup("one is our bug", [ConnectionError(), ExceptionGroup("deeper", [TypeError()])]), 1),
    ],
    ids=lambda value: getattr(value, "message", value),
)
def test_a_group_is_retried_as_its_members_would_be(world, group, attempts):
    """tenacity#501: an error was retried, the same error inside an ExceptionGroup was not."""
    provider = Flaky(9, group)
    with pytest.raises(ExceptionGroup) as caught:
        world.call(thrice(world.function(provider)))
    assert group is caught.value
    assert attempts == len(provider.seen)


def test_a_task_group_is_retried():
    """tenacity#501: nor where the group comes from a TaskGroup, as it does in most async code."""
    provider = Flaky(2)

    @thrice
    async def ask_two():
        async def healthy():
            await asyncio.sleep(0)

        async def ask():
            return provider()

        async with asyncio.TaskGroup() as group:
            group.create_task(healthy())
            answer = group.create_task(ask())
        return answer.result()

    assert "ok" == asyncio.run(ask_two())
    assert 3 == len(provider.seen)


@pytest.mark.parametrize("classify", [None, count_everything, lambda error: FaultKind.TRANSIENT])
def test_a_cancelled_call_is_not_tried_again(registry, classify):
    """tenacity#529: a rule that names only what is not retried took a cancel for a failure, and the call went on."""
    entered = []

    @compose(thrice, breaker("api", BreakerConfig(), classify=classify))
    async def ask(under_way):
        entered.append(1)
        under_way.set()
        await asyncio.Event().wait()

    async def main():
        under_way = asyncio.Event()
        task = asyncio.create_task(ask(under_way))
        await under_way.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())
    assert [1] == entered
    assert 0 == registry.get("api").status().failures_total


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_an_interrupted_call_is_not_tried_again(registry, stop):
    """tenacity#529: the same for whatever else ends a program or a task, in plain functions."""
    provider = Flaky(9, stop)
    policies = compose(thrice, breaker("api", BreakerConfig(), classify=lambda error: FaultKind.TRANSIENT))
    with pytest.raises(stop):
        policies(lambda: provider())()
    assert 1 == len(provider.seen)


# ------------------------------------------------------------------------------------------ chains that end nowhere
class Unheard(Exception):
    """An exception that no rule knows: its chain is searched for one that a rule does."""


def its_own_cause():
    error = Unheard()
    error.__cause__ = error
    return error


def its_own_context():
    error = Unheard()
    error.__context__ = error
    return error


def ring(second):
    error = Unheard()
    error.__cause__, second.__cause__ = second, error
    return error


def group_inside_its_member():
    member = Unheard()
    member.__cause__ = ExceptionGroup("ring", [member])
    return member.__cause__


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (its_own_cause(), 1),
        (its_own_context(), 1),
        (ring(Unheard()), 1),
        (ring(ConnectionError()), 3),
        (group_inside_its_member(), 1),
    ],
    ids=["its own cause", "its own context", "ring", "ring with a known fault", "group inside its member"],
)
def test_a_cyclic_chain_of_causes_ends(world, registry, caplog, error, attempts):
    """tenacity#658: the search along the causes went round for ever, and no stop condition was asked."""
    caplog.set_level(logging.CRITICAL, "resilience")
    provider = Flaky(9, error)
    policies = compose(thrice, breaker("api", BreakerConfig()))
    with pytest.raises((Unheard, ExceptionGroup)) as caught:
        world.call(policies(world.function(provider)))
    assert error is caught.value
    assert attempts == len(provider.seen)


def test_an_error_raised_from_itself_ends(world):
    """tenacity#658: the smallest such chain, as a program really writes it."""
    attempts = []

    def body():
        attempts.append(1)
        try:
            raise ConnectionError
        except ConnectionError as error:
            raise error from error

    with pytest.raises(ConnectionError):
        world.call(thrice(world.function(body)))
    assert 3 == len(attempts)
