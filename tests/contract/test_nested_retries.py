"""Contract section 6 and I13: nested retries add, they never multiply, wherever the inner one runs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from contextvars import copy_context

import pytest

from resilience import RetryBudget, detached, interruptible, retry, timeout
from resilience._core.events import RetryExhausted

again = retry(3, wait=0, idempotent=True)


def around(env, inner, policy=again):
    """An outer call of the same world, retried."""
    if env.is_async:

        async def outer():
            return await inner()

    else:

        def outer():
            return inner()

    return policy(outer)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 6])
def test_each_level_adds_its_own(env, remote, depth):
    """Three attempts, and two more for each level around them: not 3 to the power of the depth."""
    provider = remote(then=ConnectionError)
    fn = again(env.function(provider))
    for _ in range(depth - 1):
        fn = around(env, fn)
    env.fails(fn)

    assert 3 + 2 * (depth - 1) == provider.calls


@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (1, 5), (5, 1), (2, 4), (4, 2)])
def test_attempts_of_any_number(env, remote, inner, outer):
    """The inner attempts and the outer ones, less the one that is both."""
    provider = remote(then=ConnectionError)
    fn = around(
        env, retry(inner, wait=0, idempotent=True)(env.function(provider)), retry(outer, wait=0, idempotent=True)
    )
    env.fails(fn)

    assert inner + outer - 1 == provider.calls


def test_every_inner_call_of_a_later_attempt(env, remote):
    """All that an outer call does again is done once."""
    first, second = remote(then=ConnectionError), remote(then=ConnectionError)
    one, other = again(env.function(first)), again(env.function(second))
    if env.is_async:

        async def outer():
            for fn in (one, other):
                try:
                    await fn()
                except ConnectionError as error:
                    failed = error
            raise failed

    else:

        def outer():
            for fn in (one, other):
                try:
                    fn()
                except ConnectionError as error:
                    failed = error
            raise failed

    env.fails(again(outer))

    assert (5, 5) == (first.calls, second.calls)


def test_the_note_and_the_event(env, remote, events):
    """The error tells that repeating was left to the outer call; so does the event."""
    fn = around(env, again(env.function(remote(then=ConnectionError))))
    failed = env.fails(fn)
    reasons = [event.reason for event in events if isinstance(event, RetryExhausted)]

    assert ["retry left to the outer call", "retry gave up after 3 attempts"] == failed.__notes__
    assert ["attempts", "nested", "nested", "attempts"] == reasons


def test_a_later_attempt_that_succeeds(env, remote):
    """The inner call has its one attempt, and the next outer call starts from the beginning."""
    provider = remote(*[ConnectionError] * 3, "ok", ConnectionError, ConnectionError, "ok")
    fn = around(env, again(env.function(provider)))

    assert ["ok", "ok"] == [env.call(fn), env.call(fn)]
    assert 7 == provider.calls


def test_each_inner_site_says_so_once(env, remote, caplog):
    """By its own name, however often it happens."""
    caplog.set_level(logging.WARNING, "resilience")
    inner = again(env.function(remote(then=ConnectionError)))
    middle = around(env, inner)
    for _ in range(3):
        env.fails(around(env, middle))

    told = [record.getMessage() for record in caplog.records if "already" in record.getMessage()]
    assert 2 == len(told) == len(set(told))


# ---------------------------------------------------------------------------------------------- tasks and threads
def test_tasks_started_in_a_later_attempt(registry, remote):
    """They inherit the mark, at any depth; those of the first attempt do not."""
    provider = remote(then=ConnectionError)

    @again
    async def inner():
        provider()

    async def between():
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    @again
    async def outer():
        try:
            await asyncio.create_task(between())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    with pytest.raises(ConnectionError):
        asyncio.run(outer())
    assert 5 == provider.calls


def test_a_task_of_somebody_else(registry, remote):
    """A call that runs at the same time in a task of its own retries in full."""
    provider = remote(then=ConnectionError)
    repeating, done = asyncio.Event(), asyncio.Event()
    attempts = itertools.count(1)

    @again
    async def outer():
        if next(attempts) == 2:
            repeating.set()
            await done.wait()
        raise ConnectionError

    @again
    async def other():
        provider()

    async def main():
        task = asyncio.create_task(outer())
        await repeating.wait()
        with pytest.raises(ConnectionError):
            await other()
        done.set()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert 3 == provider.calls


def test_a_thread_that_is_given_the_context(registry, remote):
    """`asyncio.to_thread` and `copy_context().run` bring the mark along."""
    provider = remote(then=ConnectionError)
    inner = again(provider.__call__)

    @again
    async def by_to_thread():
        await asyncio.to_thread(inner)

    @again
    def by_context():
        failed = []

        def work():
            try:
                inner()
            except ConnectionError as error:
                failed.append(error)

        thread = threading.Thread(target=copy_context().run, args=(work,))
        thread.start()
        thread.join()
        raise failed.pop()

    with pytest.raises(ConnectionError):
        asyncio.run(by_to_thread())
    assert 5 == provider.calls
    with pytest.raises(ConnectionError):
        by_context()
    assert 10 == provider.calls


def test_a_worker_of_ours(registry, remote):
    """An attempt on a worker has its caller's marks."""
    provider = remote(then=ConnectionError)
    inner = again(provider.__call__)

    @timeout(30)
    @retry(3, wait=0, idempotent=True)
    @interruptible
    def outer():
        inner()

    with pytest.raises(ConnectionError):
        outer()
    assert 5 == provider.calls


def test_an_inner_worker(registry, remote):
    """The same the other way round."""
    provider = remote(then=ConnectionError)

    @timeout(30)
    @retry(3, wait=0, idempotent=True)
    @interruptible
    def inner():
        provider()

    with pytest.raises(ConnectionError):
        again(lambda: inner())()
    assert 5 == provider.calls


# ---------------------------------------------------------------------------------------------- detached
def test_detached_work_is_on_its_own(env, remote):
    """Whatever outlives its caller retries in full, in a later attempt too; afterwards the mark is back."""
    shed, kept = remote(then=ConnectionError), remote(then=ConnectionError)
    on_its_own, inner = again(env.function(shed)), again(env.function(kept))
    if env.is_async:

        async def outer():
            with detached():
                try:
                    await on_its_own()
                except ConnectionError:
                    pass
            return await inner()

    else:

        def outer():
            with detached():
                try:
                    on_its_own()
                except ConnectionError:
                    pass
            return inner()

    env.fails(again(outer))

    assert (9, 5) == (shed.calls, kept.calls)


def test_detached_tasks(registry, remote):
    """A task that is started there keeps nothing."""
    provider = remote(then=ConnectionError)

    @again
    async def inner():
        provider()

    @again
    async def outer():
        with detached():
            task = asyncio.create_task(inner())
        await asyncio.gather(task, return_exceptions=True)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(outer())
    assert 9 == provider.calls


# ---------------------------------------------------------------------------------------------- awaited later, streams
def test_an_inner_call_that_is_awaited(registry, remote):
    """A plain function that returns what is awaited."""
    provider = remote(then=ConnectionError)

    @again
    def inner():
        async def answer():
            return provider()

        return answer()

    @again
    async def outer():
        return await inner()

    with pytest.raises(ConnectionError):
        asyncio.run(outer())
    assert 5 == provider.calls


def test_an_outer_call_that_is_awaited(registry, remote):
    """The other way round."""
    provider = remote(then=ConnectionError)

    @again
    async def inner():
        return provider()

    @again
    def outer():
        return asyncio.ensure_future(inner())

    async def main():
        return await outer()

    with pytest.raises(ConnectionError):
        asyncio.run(main())
    assert 5 == provider.calls


def test_an_inner_stream(registry, remote):
    """Its first item is asked for once in a later attempt."""
    provider = remote(then=ConnectionError)

    @again
    def inner():
        yield provider()

    with pytest.raises(ConnectionError):
        again(lambda: next(inner()))()
    assert 5 == provider.calls


def test_the_consumer_of_a_stream_is_not_inside_of_it(registry, remote):
    """Between the items of a stream that was begun anew, a call of the consumer retries in full."""
    provider = remote(then=ConnectionError)
    begun = itertools.count(1)

    @again
    def stream():
        if next(begun) == 1:
            raise ConnectionError
        yield 1
        yield 2

    for _ in stream():
        with pytest.raises(ConnectionError):
            again(provider.__call__)()
    assert 6 == provider.calls


# ---------------------------------------------------------------------------------------------- one budget
@pytest.mark.parametrize(("floor", "calls"), [(0.1, 2), (0.2, 3), (0.3, 4), (0.4, 5), (0.9, 5)])
def test_a_budget_for_all_levels(env, remote, floor, calls):
    """Inner and outer retries come out of one budget; a call of each site counts as its own."""
    provider = remote(then=ConnectionError)
    budget = RetryBudget("api", ratio=0.01, min_per_second=floor)
    policy = retry(3, wait=0, idempotent=True, retry_budget=budget)
    env.fails(around(env, policy(env.function(provider)), policy))
    status = env.registry.retry_budget("api").status()

    assert calls == provider.calls
    assert (calls - 1, min(4, round(floor * 10))) == (status.retries, status.retries)


def test_the_mark_is_asked_before_the_budget(env, remote):
    """An inner retry that is left to the outer call takes nothing."""
    provider = remote(then=ConnectionError)
    inner = retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("inner"))(env.function(provider))
    env.fails(around(env, inner))
    status = env.registry.retry_budget("inner").status()

    assert (3, 2) == (status.calls, status.retries)
