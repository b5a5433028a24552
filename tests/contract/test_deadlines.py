"""Contract section 5: budgets, remaining(), nesting, pass_as, workers, @uninterruptible."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest

from resilience import (
    BulkheadConfig,
    BulkheadFullError,
    CircuitState,
    ConfigurationError,
    FaultKind,
    TimeoutExceeded,
    breaker,
    bulkhead,
    classify,
    compose,
    detached,
    idempotent,
    interruptible,
    remaining,
    retry,
    timeout,
    uninterruptible,
)

SOON = 0.02


@pytest.fixture
def stuck():
    """A function that stands still until the test lets go; `stuck.started` counts entries."""

    class Stuck:
        def __init__(self):
            self.release = threading.Event()
            self.started = []
            self.ended = threading.Semaphore(0)

        def __call__(self, *args):
            self.started.append(args)
            self.release.wait(5)
            self.ended.release()
            return "late"

    stuck = Stuck()
    yield stuck
    stuck.release.set()


def until(condition, seconds=2.0):
    """Wait for a condition without asking for much sleep."""
    gate = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if condition():
            return True
        gate.wait(0.005)
    return condition()


async def turns(count=8):
    for _ in range(count):
        await asyncio.sleep(0)


async def hang():
    await asyncio.Event().wait()


# ------------------------------------------------------------------------------------------ the arguments of remaining
def test_remaining_without_a_deadline():
    """Section 5: None without one."""
    assert remaining() is None


def test_remaining_is_what_is_left(registry, clock):
    """Section 5: public, on the registry's clock."""

    @timeout(10)
    async def fn():
        clock.advance(3)
        return remaining()

    assert 7.0 == asyncio.run(fn())


def test_remaining_is_clipped_to_the_outer(registry, clock):
    """Section 5: clipped to the outer ones."""

    @timeout(60)
    async def inner():
        return remaining()

    @timeout(5)
    async def outer():
        clock.advance(1)
        return await inner()

    assert 4.0 == asyncio.run(outer())


def test_remaining_of_the_shorter_inner(registry, clock):
    """Section 5: the inner where that is shorter; the outer again afterwards."""

    @timeout(2)
    async def inner():
        return remaining()

    @timeout(5)
    async def outer():
        return remaining(), await inner(), remaining()

    assert (5.0, 2.0, 5.0) == asyncio.run(outer())


def test_remaining_with_per_attempt(registry, clock):
    """Section 5: the attempt's own limit counts inside it."""

    @timeout(10, per_attempt=4)
    async def fn():
        return remaining()

    assert 4.0 == asyncio.run(fn())


def test_per_attempt_starts_fresh(registry, clock, remote):
    """Section 3: per_attempt starts fresh for each attempt, clipped to the budget."""
    seen = []

    @timeout(10, per_attempt=4)
    @retry(3, wait=0, idempotent=True)
    async def fn():
        seen.append(remaining())
        clock._now += 3.5  # time passes without firing
        if len(seen) < 3:
            raise ConnectionError
        return "ok"

    asyncio.run(fn())
    assert [4.0, 4.0, 3.0] == seen


def test_remaining_is_none_again_afterwards(env, registry):
    """I10: left as it was."""
    limit = timeout(10) if env.is_async else timeout(10, pass_as="key")
    env.call(limit(env.function(lambda arg, key=None: None)))
    assert remaining() is None


def test_remaining_in_child_tasks(registry, clock):
    """Section 5: child tasks inherit it."""

    async def child():
        return remaining()

    @timeout(10)
    async def fn():
        return await asyncio.create_task(child())

    assert 10.0 == asyncio.run(fn())


def test_remaining_in_a_worker(registry):
    """Section 5: our workers inherit it."""

    @timeout(10)
    @interruptible
    def fn():
        return remaining()

    assert 9 < fn() <= 10


def test_remaining_in_a_worker_is_clipped_to_outer_deadlines(registry):
    """Section 5: also to those of the caller."""

    @timeout(10)
    @interruptible
    def inner():
        return remaining()

    @timeout(3, pass_as="limit")
    def outer(limit=None):
        return inner()

    assert 2 < outer() <= 3


def test_remaining_below_zero(registry, clock):
    """remaining(): below 0 where it has run out already."""

    @timeout(10, pass_as="limit")
    def fn(limit=None):
        clock.advance(12)
        return remaining()

    assert -2.0 == fn()


def test_detached_sheds_the_deadline(registry, clock):
    """Section 5: `with detached():` sheds the deadline, and gives it back."""

    @timeout(10)
    async def fn():
        with detached():
            inside = remaining()
        return inside, remaining()

    assert (None, 10.0) == asyncio.run(fn())


def test_timeout_inside_detached_is_on_its_own(registry, clock):
    """Section 5: a new deadline inside is not clipped to the outer one."""

    @timeout(60)
    async def inner():
        return remaining()

    @timeout(5)
    async def outer():
        with detached():
            return await inner()

    assert 60.0 == asyncio.run(outer())


def test_detached_left_in_another_context(registry, clock):
    """Section 5: a block that is left in another context gives nothing back there: the deadline is not that one's."""
    block = detached()

    async def main():
        entered, go = asyncio.Event(), asyncio.Event()

        @timeout(30)
        async def enter():
            block.__enter__()
            entered.set()
            await go.wait()

        task = asyncio.create_task(enter())
        await entered.wait()
        block.__exit__(None, None, None)
        left = remaining()
        go.set()
        await task
        return left

    assert asyncio.run(main()) is None


def test_detached_sheds_retry_marks(registry, clock, remote):
    """Section 5: it sheds retry marks: an inner retry works in full."""
    provider = remote(then=ConnectionError)

    @retry(3, wait=0, idempotent=True)
    def inner():
        provider()

    @retry(2, wait=0, idempotent=True)
    def outer():
        with detached():
            inner()

    with pytest.raises(ConnectionError):
        outer()
    assert 6 == provider.calls


# ------------------------------------------------------------------------------------------ deadlines already past
def test_deadline_already_past_fails_before_the_function_starts(registry, clock):
    """Section 5: a deadline already past fails before the function starts."""
    started = []

    @timeout(60)
    async def inner():
        started.append(1)

    @timeout(5)
    async def outer():
        clock._now += 6  # past, and nobody has fired yet
        await inner()

    with pytest.raises(TimeoutExceeded):
        asyncio.run(outer())
    assert [] == started


def test_deadline_already_past_is_no_evidence(registry, clock, trips_at):
    """P17: nothing was in flight: the breaker counts nothing."""
    api = registry.breaker("api", trips_at(9))

    @timeout(60)
    @breaker("api")
    async def inner():
        return "never"

    @timeout(5)
    async def outer():
        clock._now += 6
        await inner()

    with pytest.raises(TimeoutExceeded):
        asyncio.run(outer())
    assert 0 == api.status().failures_total


def test_deadline_already_past_for_pass_as(registry, clock, trips_at):
    """Section 5: the same for a plain function with pass_as."""
    started = []

    @timeout(60, pass_as="limit")
    def inner(limit=None):
        started.append(limit)

    @timeout(5, pass_as="limit")
    def outer(limit=None):
        clock.advance(6)
        inner()

    with pytest.raises(TimeoutExceeded):
        outer()
    assert [] == started


def test_deadline_already_past_for_a_worker(registry, clock):
    """Section 5: and on workers."""
    started = []

    @timeout(60)
    @interruptible
    def inner():
        started.append(1)

    @timeout(5, pass_as="limit")
    def outer(limit=None):
        clock.advance(6)
        inner()

    with pytest.raises(TimeoutExceeded):
        outer()
    assert [] == started


def test_deadline_already_past_takes_no_probe(registry, clock, trips_at):
    """I15, I8: a probe that never went out is released, or never taken."""
    api = registry.breaker("api", trips_at(1, cooldown=30))
    api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)

    @timeout(60, pass_as="limit")
    @breaker("api")
    def inner(limit=None):
        return "never"

    @timeout(5, pass_as="limit")
    def outer(limit=None):
        clock.advance(6)
        inner()

    with pytest.raises(TimeoutExceeded):
        outer()
    assert not api.is_open()


def test_deadline_already_past_takes_no_slot(registry, clock):
    """Section 5, 7: no slot is left behind."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    @bulkhead("pool")
    @timeout(60, pass_as="limit")
    def inner(limit=None):
        return "never"

    @timeout(5, pass_as="limit")
    def outer(limit=None):
        clock.advance(6)
        inner()

    with pytest.raises((TimeoutExceeded, BulkheadFullError)):
        outer()
    assert 0 == pool.in_flight


def test_retry_stops_when_the_budget_is_gone(registry, clock, remote):
    """Section 6: the expired budget is not retried; the last real exception leaves, or the timeout."""
    provider = remote(then=ConnectionError)

    @timeout(10, pass_as="limit")
    @retry(100, wait=4, idempotent=True)
    def fn(limit=None):
        provider(limit)

    with pytest.raises(ConnectionError):
        fn()
    assert [10.0, 6.0, 2.0] == provider.seen


# ------------------------------------------------------------------------------------------ per_attempt and retry
def test_per_attempt_timeout_is_retried(registry, manual, remote):
    """Section 6: a per_attempt timeout is TRANSIENT and is retried."""
    attempts = []

    @timeout(10, per_attempt=2)
    @retry(3, wait=0, idempotent=True)
    async def fn():
        attempts.append(1)
        if len(attempts) < 3:
            await hang()
        return "third"

    async def main():
        task = asyncio.create_task(fn())
        for _ in range(2):
            await turns()
            manual.advance(2)
        return await task

    assert "third" == asyncio.run(main())


def test_budget_is_not_retried(registry, manual):
    """Section 6: the expired budget is not retried by the same call."""
    attempts = []

    @timeout(3)
    @retry(3, wait=0, idempotent=True)
    async def fn():
        attempts.append(1)
        await hang()

    async def main():
        task = asyncio.create_task(fn())
        await turns()
        manual.advance(3)
        with pytest.raises(TimeoutExceeded) as caught:
            await task
        return caught.value.scope.value

    assert "budget" == asyncio.run(main())
    assert [1] == attempts


def test_budget_covers_the_waits(registry, manual):
    """Section 3: budget bounds everything incl. waits: one that begins within it is never overrun."""

    @timeout(3)
    @retry(9, wait=2, idempotent=True)
    async def fn():
        raise ConnectionError

    async def main():
        task = asyncio.create_task(fn())
        await turns()
        manual.advance(2)
        await turns()
        assert task.done()  # a second wait of 2 s does not fit the 1 s left
        with pytest.raises(ConnectionError):
            await task

    asyncio.run(main())


def test_timeout_is_transient_and_ambiguous():
    """Section 5: TimeoutExceeded is also a TimeoutError, of kind TRANSIENT."""
    error = TimeoutExceeded("budget", 3)
    assert isinstance(error, TimeoutError)
    assert FaultKind.TRANSIENT is classify(error).kind


def test_a_safe_only_retry_does_not_repeat_a_timeout(registry, manual):
    """Sections 2 and 6: a cut-off attempt may have been processed."""
    attempts = []

    @timeout(per_attempt=2)
    @retry(3, wait=0, safe_only=True)
    async def fn():
        attempts.append(1)
        await hang()

    async def main():
        task = asyncio.create_task(fn())
        await turns()
        manual.advance(2)
        await turns()
        with pytest.raises(TimeoutExceeded):
            await task

    asyncio.run(main())
    assert [1] == attempts


# ------------------------------------------------------------------------------------------ pass_as
def test_pass_as_hands_over_what_is_left(registry, clock):
    """Section 5: pass_as hands the remaining seconds to the function."""

    @timeout(10, pass_as="limit")
    def fn(limit=None):
        return limit

    assert 10.0 == fn()


def test_pass_as_each_attempt_gets_what_is_left(registry, clock, remote):
    """Section 5: min of per_attempt and what is left of the budget."""
    seen = []

    @timeout(10, per_attempt=4, pass_as="limit")
    @retry(3, wait=0, idempotent=True)
    def fn(limit=None):
        seen.append(limit)
        clock.advance(3.5)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        fn()
    assert [4.0, 4.0, 3.0] == seen


def test_pass_as_is_clipped_to_outer_deadlines(registry, clock):
    """Section 5: deadlines nest."""

    @timeout(60, pass_as="limit")
    def inner(limit=None):
        return limit

    @timeout(5, pass_as="limit")
    def outer(limit=None):
        clock.advance(2)
        return inner()

    assert 3.0 == outer()


def test_pass_as_late_result_is_returned(registry, clock):
    """Section 5: with pass_as a result that comes late is returned, never thrown away."""

    @timeout(10, pass_as="limit")
    def fn(limit=None):
        clock.advance(50)
        return "late"

    assert "late" == fn()


def test_pass_as_late_failure_is_not_retried(registry, clock):
    """Section 5: and no further attempt is made."""
    calls = []

    @timeout(10, pass_as="limit")
    @retry(5, wait=0, idempotent=True)
    def fn(limit=None):
        calls.append(1)
        clock.advance(11)
        raise ConnectionError

    with pytest.raises((ConnectionError, TimeoutExceeded)) as caught:
        fn()
    assert [1] == calls
    assert isinstance(caught.value, ConnectionError)


def test_pass_as_a_timeout_of_the_functions_own_counts(registry, clock, trips_at):
    """Section 2: the socket's TimeoutError is TRANSIENT and counts."""
    api = registry.breaker("api", trips_at(9))

    @timeout(10, pass_as="limit")
    @breaker("api")
    def fn(limit=None):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        fn()
    assert 1 == api.status().failures_total


def test_pass_as_given_by_the_caller_too(registry, clock):
    """Section 5: a caller who gives a shorter limit of his own is not overruled with a longer one; either way one value arrives."""

    @timeout(10, pass_as="limit")
    def fn(url, limit=None):
        return limit

    assert fn("u", limit=3) in (3, 10.0)
    assert fn("u", 3) in (3, 10.0)


def test_pass_as_positional_only(registry, clock):
    """Section 5, issue 2 Build 6: a positional-only parameter can't be passed by name: refused or right."""
    try:

        @timeout(10, pass_as="limit")
        def fn(limit=None, /):
            return limit

    except ConfigurationError:
        return
    assert 10.0 == fn()


def test_pass_as_on_async(registry, clock):
    """Section 5: async functions are interrupted; pass_as tells them besides, or is refused."""
    try:

        @timeout(10, pass_as="limit")
        async def fn(limit=None):
            return limit

    except ConfigurationError:
        return
    assert 10.0 == asyncio.run(fn())


def test_pass_as_without_default(registry, clock):
    """Section 5: the parameter needs no default; callers leave it out."""

    @timeout(10, pass_as="limit")
    def fn(url, limit):
        return url, limit

    assert ("u", 10.0) == fn("u")


# ------------------------------------------------------------------------------------------ @interruptible
def test_interruptible_gives_up_at_the_deadline(registry, stuck):
    """Section 5: gives up waiting at the deadline."""

    @timeout(SOON)
    @interruptible
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded) as caught:
        fn()
    assert ("budget", SOON) == (caught.value.scope.value, caught.value.seconds)


def test_interruptible_returns_the_result(registry):
    """I10: the very same result and exception."""
    result, error = object(), ConnectionError()

    @timeout(5)
    @interruptible
    def fn(fails):
        if fails:
            raise error
        return result

    assert result is fn(False)
    with pytest.raises(ConnectionError) as caught:
        fn(True)
    assert error is caught.value


def test_interruptible_runs_on_a_daemon_worker(registry):
    """Section 5: a daemon worker."""

    @timeout(5)
    @interruptible
    def fn():
        return threading.current_thread()

    worker = fn()
    assert worker.daemon
    assert worker is not threading.current_thread()


def test_interruptible_without_a_timeout_runs_here(registry):
    """Section 5: only a timeout needs a worker; without one the mark changes nothing the caller sees."""

    @breaker("api")
    @interruptible
    def fn():
        return "fine"

    assert "fine" == fn()


def test_interruptible_copies_the_context(registry):
    """Section 5: with a copy of the context: values are seen, sets stay inside."""
    var = contextvars.ContextVar("var", default="default")

    @timeout(5)
    @interruptible
    def fn():
        before = var.get()
        var.set("worker")
        return before

    var.set("caller")
    assert "caller" == fn()
    assert "caller" == var.get()


def test_interruptible_base_exception_passes(registry):
    """Section 2: BaseException passes through untouched, the worker survives."""
    stop = SystemExit(3)

    @timeout(5)
    @interruptible(max_workers=1)
    def fn(fails):
        if fails:
            raise stop
        return "fine"

    with pytest.raises(SystemExit) as caught:
        fn(True)
    assert stop is caught.value
    assert "fine" == fn(False)


def test_interruptible_stop_iteration_passes(registry):
    """Design 2: a user's StopIteration stays one."""

    @timeout(5)
    @interruptible
    def fn():
        raise StopIteration(7)

    with pytest.raises(StopIteration) as caught:
        fn()
    assert 7 == caught.value.value


def test_all_workers_busy_is_bulkhead_full(registry, stuck):
    """Section 5: all workers busy: BulkheadFullError."""

    @timeout(SOON)
    @interruptible(max_workers=1)
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded):
        fn()
    with pytest.raises(BulkheadFullError):
        fn()
    assert 1 == len(stuck.started)


def test_workers_come_back(registry, stuck):
    """Section 5: an orphan that has ended frees its worker."""

    @timeout(SOON)
    @interruptible(max_workers=1)
    def fn(waits):
        return stuck() if waits else "fine"

    with pytest.raises(TimeoutExceeded):
        fn(True)
    stuck.release.set()
    assert stuck.ended.acquire(timeout=2)

    def works():
        try:
            return "fine" == fn(False)
        except BulkheadFullError:
            return False

    assert until(works)


def test_busy_workers_never_count_against_the_breaker(registry, stuck, trips_at):
    """Section 7: BulkheadFullError never counts against a breaker."""
    api = registry.breaker("api", trips_at(9))

    @timeout(SOON)
    @breaker("api")
    @interruptible(max_workers=1)
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded):
        fn()
    for _ in range(3):
        with pytest.raises(BulkheadFullError):
            fn()
    assert 1 == api.status().failures_total


def test_busy_workers_are_not_retried(registry, stuck):
    """Section 6: rejections are not retried by the same call."""

    @timeout(SOON)
    @retry(5, wait=0, idempotent=True)
    @interruptible(max_workers=1)
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded):
        fn()
    with pytest.raises(BulkheadFullError):
        fn()


def test_default_workers_are_the_bulkheads(registry, stuck):
    """Section 5: default max_workers: the function's max_in_flight."""

    @bulkhead(max_in_flight=2)
    @timeout(SOON)
    @interruptible
    def fn():
        return stuck()

    for _ in range(2):
        with pytest.raises(TimeoutExceeded):
            fn()
    with pytest.raises(BulkheadFullError):
        fn()
    assert 2 == len(stuck.started)


def test_default_workers_are_eight(registry, stuck):
    """Section 5: else 8."""

    @timeout(SOON / 4)
    @interruptible
    def fn():
        return stuck()

    for _ in range(8):
        with pytest.raises(TimeoutExceeded):
            fn()
    with pytest.raises(BulkheadFullError):
        fn()


def test_orphan_keeps_its_slot(registry, stuck):
    """Section 5: the call's slot is given back when its last orphan has ended."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    @bulkhead("pool")
    @timeout(SOON)
    @interruptible(max_workers=5)
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded):
        fn()
    assert 1 == pool.in_flight
    with pytest.raises(BulkheadFullError):
        fn()
    stuck.release.set()
    assert until(lambda: pool.in_flight == 0)


def test_attempt_after_an_orphan_needs_one_more_slot(registry, stuck):
    """Section 5: an attempt after an orphaned one needs one more slot, taken without waiting."""
    pool = registry.bulkhead("pool", BulkheadConfig(2))
    seen = []

    @bulkhead("pool")
    @timeout(5, per_attempt=SOON)
    @retry(2, wait=0, idempotent=True)
    @interruptible(max_workers=5)
    def fn():
        seen.append(pool.in_flight)
        if len(seen) == 1:
            return stuck()
        return "second"

    assert "second" == fn()
    assert [1, 2] == seen
    assert until(lambda: pool.in_flight == 1)
    stuck.release.set()
    assert until(lambda: pool.in_flight == 0)


def test_no_free_slot_for_the_second_attempt_ends_the_retry(registry, stuck):
    """Section 5: none free ends the retry with its last exception."""
    registry.bulkhead("pool", BulkheadConfig(1))

    @bulkhead("pool")
    @timeout(5, per_attempt=SOON)
    @retry(5, wait=0, idempotent=True)
    @interruptible(max_workers=5)
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded) as caught:
        fn()
    assert "attempt" == caught.value.scope.value
    assert 1 == len(stuck.started)


def test_orphans_late_result_changes_nothing(registry, stuck, trips_at):
    """Section 5: the attempt is settled TRANSIENT at the deadline, once."""
    api = registry.breaker("api", trips_at(9))

    @timeout(SOON)
    @breaker("api")
    @interruptible
    def fn():
        return stuck()

    with pytest.raises(TimeoutExceeded):
        fn()
    stuck.release.set()
    assert stuck.ended.acquire(timeout=2)
    threading.Event().wait(0.02)
    status = api.status()
    assert (1, 0, 0) == (status.failures_total, status.successes_total, status.late_results)


def test_orphans_exception_is_not_printed(registry, stuck, capfd):
    """Section 5: what an orphan raises is nobody's any more: no traceback on stderr."""

    @timeout(SOON)
    @interruptible
    def fn():
        stuck()
        raise LookupError

    with pytest.raises(TimeoutExceeded):
        fn()
    stuck.release.set()
    assert stuck.ended.acquire(timeout=2)
    threading.Event().wait(0.02)
    assert "LookupError" not in capfd.readouterr().err


def test_probe_on_a_worker(registry, clock, trips_at):
    """Section 4: a probe runs on a worker like any attempt."""
    api = registry.breaker("api", trips_at(1, cooldown=30))
    api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)

    @timeout(5)
    @breaker("api")
    @interruptible
    def fn():
        return "fine"

    assert "fine" == fn()
    assert CircuitState.CLOSED is api.state


def test_nested_worker_call_shares_the_probe(registry, clock, trips_at):
    """Section 4: the mark goes along with the context copied to the worker."""
    api = registry.breaker("api", trips_at(1, cooldown=30))
    api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    inner = breaker("api")(lambda: "fine")

    @timeout(5)
    @breaker("api")
    @interruptible
    def fn():
        return inner()

    assert "fine" == fn()
    assert 1 == api.status().probes_started


def test_worker_call_inside_a_loop(registry):
    """Section 5: a sync timed call also works from inside a running loop."""

    @timeout(5)
    @interruptible
    def fn():
        return "fine"

    async def main():
        return fn()

    assert "fine" == asyncio.run(main())


def test_idempotent_and_interruptible_together(registry, remote):
    """Section 3: marks stand next to the function, in any order."""
    for first, second in ((idempotent, interruptible), (interruptible, idempotent)):
        provider = remote(ConnectionError, "ok")

        @timeout(5)
        @retry(2, wait=0)
        @first
        @second
        def fn():
            return provider()

        assert "ok" == fn()


def test_wrong_arguments_on_a_worker(registry):
    """I10: a TypeError as for a plain call."""

    @timeout(5)
    @interruptible
    def fn(a):
        return a

    with pytest.raises(TypeError):
        fn()


# ------------------------------------------------------------------------------------------ @uninterruptible
def test_uninterruptible_ends_its_work_when_cancelled(registry, trips_at):
    """Section 5: the caller waits for its end whatever is cancelled; then the cancel is raised."""
    api = registry.breaker("api", trips_at(9))
    done = []

    async def main():
        go = asyncio.Event()

        @breaker("api")
        @uninterruptible
        async def fn():
            await go.wait()
            done.append(1)
            return "result"

        task = asyncio.create_task(fn())
        await turns()
        task.cancel()
        await turns()
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [1] == done
    assert 1 == api.status().successes_total


def test_uninterruptible_failure_is_judged_then_the_cancel_raised(registry, trips_at):
    """Section 5: the breaker has judged the real outcome."""
    api = registry.breaker("api", trips_at(9))

    async def main():
        go = asyncio.Event()

        @breaker("api")
        @uninterruptible
        async def fn():
            await go.wait()
            raise ConnectionError

        task = asyncio.create_task(fn())
        await turns()
        task.cancel()
        await turns()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert 1 == api.status().failures_total


def test_uninterruptible_returns_its_result(registry, trips_at):
    """Section 5: else its result is returned; the exception too."""
    result, error = object(), ConnectionError()

    @breaker("api", trips_at(9))
    @uninterruptible
    async def fn(fails):
        await asyncio.sleep(0)
        if fails:
            raise error
        return result

    assert result is asyncio.run(fn(False))
    with pytest.raises(ConnectionError) as caught:
        asyncio.run(fn(True))
    assert error is caught.value


def test_uninterruptible_under_an_outer_deadline(registry, manual, trips_at):
    """Section 5: an outer deadline only decides whether it starts."""
    done = []

    async def main():
        go = asyncio.Event()

        @breaker("api", trips_at(9))
        @uninterruptible
        async def fn():
            await go.wait()
            done.append(1)
            return "result"

        @timeout(5)
        async def outer():
            return await fn()

        task = asyncio.create_task(outer())
        await turns()
        manual.advance(6)
        await turns()
        assert not task.done()
        go.set()
        with contextlib.suppress(TimeoutExceeded):
            await task
        assert 0 == task.cancelling()

    asyncio.run(main())
    assert [1] == done
    assert 0 == registry.get("api").status().failures_total
    assert 1 == registry.get("api").status().successes_total


def test_uninterruptible_does_not_start_after_its_deadline(registry, manual, trips_at):
    """Section 5: an outer deadline decides whether it starts."""
    started = []

    @breaker("api", trips_at(9))
    @uninterruptible
    async def fn():
        started.append(1)

    @timeout(5)
    async def outer():
        manual._now += 6
        await fn()

    with pytest.raises(TimeoutExceeded):
        asyncio.run(outer())
    assert [] == started


def test_uninterruptible_runs_in_the_callers_context(registry, trips_at):
    """Section 5: in a task of its own with the caller's context: what it sets is seen by the caller, as for a plain call."""
    var = contextvars.ContextVar("var", default="default")

    @breaker("api", trips_at(9))
    @uninterruptible
    async def fn():
        seen = var.get()
        var.set("inner")
        return seen

    async def main():
        var.set("caller")
        return await fn(), var.get()

    assert ("caller", "inner") == asyncio.run(main())


def test_uninterruptible_cancelled_many_times(registry, trips_at):
    """Section 5: whatever is cancelled meanwhile, also many times; cancelling() as for a plain call."""

    async def main():
        go = asyncio.Event()

        @breaker("api", trips_at(9))
        @uninterruptible
        async def fn():
            await go.wait()

        task = asyncio.create_task(fn())
        await turns()
        for _ in range(5):
            task.cancel()
            await turns()
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert 1 == len(asyncio.all_tasks())

    asyncio.run(main())


def test_uninterruptible_holds_its_slot_to_its_end(registry):
    """Section 5: the slot is held until the work has ended."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        go = asyncio.Event()

        @bulkhead("pool")
        @uninterruptible
        async def fn():
            await go.wait()

        task = asyncio.create_task(fn())
        await turns()
        task.cancel()
        await turns()
        assert 1 == pool.in_flight
        go.set()
        await asyncio.gather(task, return_exceptions=True)
        assert 0 == pool.in_flight

    asyncio.run(main())


def test_uninterruptible_cancelled_in_line_never_starts(registry):
    """Section 7: a cancel while it stands in line is an ordinary cancel."""
    registry.bulkhead("pool", BulkheadConfig(1))
    started = []

    async def main():
        go = asyncio.Event()

        @bulkhead("pool", wait=50)
        @uninterruptible
        async def fn():
            started.append(1)
            await go.wait()

        first = asyncio.create_task(fn())
        second = asyncio.create_task(fn())
        await turns()
        second.cancel()
        await turns()
        assert second.cancelled()
        go.set()
        await first

    asyncio.run(main())
    assert [1] == started


def test_timeout_in_a_composition_with_uninterruptible(registry):
    """Section 5: refused in any form."""

    @uninterruptible
    async def fn():
        return None

    with pytest.raises(ConfigurationError):
        compose(timeout(5), breaker("api"))(fn)
    with pytest.raises(ConfigurationError):
        asyncio.run(compose(timeout(5)).acall(fn))


# ------------------------------------------------------------------------------------------ standing in line
def test_wait_is_bounded_by_the_budget(registry, manual):
    """Section 5: standing in line lasts at most min(wait, what is left of the budget): BulkheadFullError."""
    registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        @bulkhead("pool", wait=50)
        @timeout(5)
        async def fn():
            await hang()

        first = asyncio.create_task(fn())
        await turns()
        manual.advance(1)
        second = asyncio.create_task(bulkhead("pool", wait=50)(timeout(2)(hang))())
        await turns()
        manual.advance(1.9)
        await turns()
        assert not second.done()
        manual.advance(0.1)
        await turns()
        with pytest.raises(BulkheadFullError):
            await second
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())


def test_wait_is_bounded_by_outer_deadlines(registry, manual):
    """Section 5: and of outer deadlines; running out there is BulkheadFullError (nothing was sent), or the outer expiry."""
    registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        first = asyncio.create_task(bulkhead("pool")(hang)())
        await turns()

        saw = []

        @timeout(2)
        async def outer():
            try:
                await bulkhead("pool", wait=50)(hang)()
            except BaseException as exc:
                saw.append(type(exc))
                raise

        second = asyncio.create_task(outer())
        await turns()
        manual.advance(2)
        await turns()
        assert second.done()
        assert saw[0] in (BulkheadFullError, asyncio.CancelledError)
        assert isinstance(second.exception(), (TimeoutExceeded, BulkheadFullError))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())
    assert 0 == registry.get_bulkhead("pool").in_flight


def test_budget_clock_starts_when_the_call_enters(registry, manual):
    """Section 5: the budget's clock starts when the call enters: time in line is part of it."""
    registry.bulkhead("pool", BulkheadConfig(1))
    left = []

    async def main():
        go = asyncio.Event()

        @bulkhead("pool")
        async def hold():
            await go.wait()

        @bulkhead("pool", wait=50)
        @timeout(10)
        async def fn():
            left.append(remaining())

        first = asyncio.create_task(hold())
        await turns()
        second = asyncio.create_task(fn())
        await turns()
        manual.advance(4)
        go.set()
        await asyncio.gather(first, second)

    asyncio.run(main())
    assert [6.0] == left


def test_sync_wait_is_bounded_by_the_budget(registry, stuck):
    """Section 5: the same for threads."""
    registry.bulkhead("pool", BulkheadConfig(1))
    holder = threading.Thread(target=bulkhead("pool")(lambda: stuck()))
    holder.start()
    assert until(lambda: stuck.started)

    @bulkhead("pool", wait=4)
    @timeout(SOON, pass_as="limit")
    def fn(limit=None):
        return "never"

    try:
        with pytest.raises(BulkheadFullError):
            fn()
    finally:
        stuck.release.set()
        holder.join(5)
    assert 0 == registry.get_bulkhead("pool").waiting
