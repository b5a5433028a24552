"""Contract sections 4 and 5, P17: our own deadline counts, the caller's cancel never does."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from resilience import (
    BreakerConfig,
    CircuitState,
    Consecutive,
    FailureRate,
    TimeoutExceeded,
    breaker,
    detached,
    interruptible,
    retry,
    timeout,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


async def turns(count=8):
    for _ in range(count):
        await asyncio.sleep(0)


async def hang():
    await asyncio.Event().wait()


def drive(manual, coroutine_function, *script):
    """Run a call as a task; each step of the script is seconds to advance or a function of the task; return its end."""

    async def main():
        task = asyncio.create_task(coroutine_function())
        await turns()
        for step in script:
            if callable(step):
                step(task)
            else:
                manual.advance(step)
            await turns()
        assert task.done(), "the call did not end"
        if task.cancelled():
            return "cancelled"
        return task.exception() or task.result()

    return asyncio.run(main())


@pytest.fixture(params=["streak", "rate"])
def api(request, registry, manual):
    trip = Consecutive(9) if request.param == "streak" else FailureRate(1.0, window=3000, bucket=300, min_calls=9)
    return registry.breaker("api", BreakerConfig(trip, cooldown=30, probe_lease=10))


def failures(api):
    return api.status().failures_total


def test_hung_provider_under_a_budget_counts(api, manual):
    """P17: a provider that hangs under @timeout counts one TRANSIENT failure."""
    fn = timeout(10)(breaker("api")(hang))

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_hung_provider_under_per_attempt_counts(api, manual):
    """P17: and under per_attempt."""
    fn = timeout(per_attempt=10)(breaker("api")(hang))
    ended = drive(manual, fn, 10)

    assert isinstance(ended, TimeoutExceeded)
    assert "attempt" == ended.scope.value
    assert 1 == failures(api)


def test_hung_provider_opens_its_breaker(registry, manual, trips_at):
    """P17: so a hung provider does trip its breaker."""
    api = registry.breaker("hung", trips_at(3))
    fn = timeout(10)(breaker("hung")(hang))
    for _ in range(3):
        drive(manual, fn, 10)

    assert OPEN is api.state


def test_callers_cancel_never_counts(api, manual):
    """P17: everything else is the caller's cancel: NEUTRAL."""
    fn = timeout(10)(breaker("api")(hang))

    assert "cancelled" == drive(manual, fn, 9.9, lambda task: task.cancel())
    assert 0 == failures(api)


def test_cancel_without_any_deadline_never_counts(api, manual):
    """P17: a site without a timeout."""
    fn = breaker("api")(hang)

    assert "cancelled" == drive(manual, fn, 1000, lambda task: task.cancel())
    assert 0 == failures(api)


def test_cancel_and_expiry_in_one_tick_cancel_first(api, manual):
    """P17: the timer marks a deadline as fired only if nobody has cancelled the task since its scope was entered."""

    def both(task):
        task.cancel()
        manual.advance(10)

    fn = timeout(10)(breaker("api")(hang))
    assert "cancelled" == drive(manual, fn, both)
    assert 0 == failures(api)


def test_asyncio_timeout_around_us_never_counts(api, registry):
    """P17: asyncio.timeout around us is the caller's cancel."""
    fn = breaker("api")(hang)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await fn()

    asyncio.run(main())
    assert 0 == failures(api)


def test_asyncio_timeout_inside_the_function_counts(api, registry):
    """Section 2: a TimeoutError of the function's own is TRANSIENT like any."""

    @breaker("api")
    async def fn():
        async with asyncio.timeout(0.01):
            await hang()

    with pytest.raises(TimeoutError):
        asyncio.run(fn())
    assert 1 == failures(api)


def test_outer_deadline_of_another_site_counts_for_the_inner_breaker(api, manual):
    """P17: a breaker looks along the chain of deadlines for a fired one."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 1 == failures(api)


@pytest.mark.parametrize(("late", "counted"), [(0, 1), (4.9, 1), (5, 1), (5.1, 0), (9.9, 0)])
def test_half_of_the_deadline_decides(api, manual, late, counted):
    """P17: in flight for at least half the length of that deadline; a shorter stay is NEUTRAL."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        if late:
            await asyncio.sleep(0)
            waiting = asyncio.get_running_loop().create_future()
            manual.call_at(asyncio.get_running_loop(), manual.monotonic() + late, lambda: waiting.set_result(None))
            await waiting
        await inner()

    script = [late, 10 - late] if late else [10]
    assert isinstance(drive(manual, outer, *script), TimeoutExceeded)
    assert counted == failures(api)


def test_second_attempt_cut_short_by_the_budget_is_neutral(api, manual):
    """P17: an outer deadline with little left is no evidence."""
    calls = []

    @timeout(10)
    @retry(3, wait=0, idempotent=True)
    @breaker("api")
    async def fn():
        calls.append(1)
        if len(calls) == 1:
            gate = asyncio.get_running_loop().create_future()
            manual.call_at(asyncio.get_running_loop(), manual.monotonic() + 8, lambda: gate.set_result(None))
            await gate
            raise ConnectionError
        await hang()

    assert isinstance(drive(manual, fn, 8, 2), TimeoutExceeded)
    assert 2 == len(calls)
    assert 1 == failures(api)


def test_second_attempt_cut_after_half_of_per_attempt_counts(api, manual):
    """P17: half of `per_attempt`, when that is shorter."""
    calls = []

    @timeout(10, per_attempt=4)
    @retry(3, wait=0, idempotent=True)
    @breaker("api")
    async def fn():
        calls.append(1)
        if len(calls) == 1:
            gate = asyncio.get_running_loop().create_future()
            manual.call_at(asyncio.get_running_loop(), manual.monotonic() + 3.5, lambda: gate.set_result(None))
            await gate
            raise ConnectionError
        await hang()

    # attempt 2 from 3.5 to 7.5 (per_attempt), attempt 3 from 7.5 to 10: 2.5 of 4
    assert isinstance(drive(manual, fn, 3.5, 4, 2.5), TimeoutExceeded)
    assert 3 == len(calls)
    assert 3 == failures(api)


def test_counts_false_never_counts_budget(api, manual):
    """P17: timeout(..., counts=False) never counts: for deadlines that come from a client."""
    fn = timeout(10, counts=False)(breaker("api")(hang))

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 0 == failures(api)


def test_counts_false_never_counts_per_attempt(api, manual):
    """P17: neither for its attempts."""
    fn = timeout(per_attempt=10, counts=False)(breaker("api")(hang))

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 0 == failures(api)


def test_counts_false_outside_a_counting_one(api, manual):
    """P17: the one that fired decides: the outer, which does not count."""
    inner = timeout(20)(breaker("api")(hang))

    @timeout(10, counts=False)
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 0 == failures(api)


def test_counting_one_outside_counts_false(api, manual):
    """P17: the one that fired decides: the outer, which counts."""
    inner = timeout(20, counts=False)(breaker("api")(hang))

    @timeout(10)
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_inner_deadline_fires_first(api, manual):
    """P17: inner shorter: its own expiry counts once."""
    inner = timeout(5)(breaker("api")(hang))

    @timeout(10)
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 5), TimeoutExceeded)
    assert 1 == failures(api)


def test_asyncio_timeout_between_is_the_callers(api, manual):
    """P17: asyncio.timeout inside our deadline cancels: nothing of ours has fired."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        async with asyncio.timeout(0.01):
            await inner()

    async def main():
        with pytest.raises(TimeoutError):
            await outer()

    asyncio.run(main())
    assert 0 == failures(api)


def test_child_task_inherits_the_deadline_for_p17(api, manual):
    """Section 5: child tasks inherit it for P17: a TaskGroup's child cancelled because our deadline fired counts."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_gathered_children_count_each(api, manual):
    """Section 5: gather cancels its children when our deadline cancels it."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        await asyncio.gather(inner(), inner())

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 2 == failures(api)


def test_child_cancelled_by_hand_is_neutral(api, manual):
    """P17: nothing has fired when a sibling is cancelled."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        child = asyncio.create_task(inner())
        await turns(3)
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)
        return "fine"

    assert "fine" == drive(manual, outer)
    assert 0 == failures(api)


def test_deadline_stops_counting_when_its_scope_is_left(api, manual):
    """Section 5: it stops counting when its scope is left."""
    inner = breaker("api")(hang)
    children = []

    @timeout(10)
    async def outer():
        children.append(asyncio.create_task(inner()))
        await turns(3)
        return "left"

    async def main():
        await outer()
        manual.advance(100)
        await turns()
        children[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await children[0]

    asyncio.run(main())
    assert 0 == failures(api)


def test_child_of_a_fired_and_left_deadline_is_neutral_later(api, manual):
    """Section 5: a child that outlives the expired scope and is cancelled later is the caller's cancel."""
    inner = breaker("api")(hang)
    children = []

    @timeout(10)
    async def outer():
        children.append(asyncio.create_task(inner()))
        await hang()

    async def main():
        task = asyncio.create_task(outer())
        await turns()
        manual.advance(10)
        with pytest.raises(TimeoutExceeded):
            await task
        manual.advance(100)
        await turns()
        children[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await children[0]

    asyncio.run(main())
    assert 0 == failures(api)


def test_detached_sheds_the_deadline_for_p17(api, manual):
    """Section 5: detached() sheds the deadline mark; what is cut inside it is nobody's evidence."""
    inner = breaker("api")(hang)

    @timeout(10)
    async def outer():
        with detached():
            await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 0 == failures(api)


def test_probe_cut_by_our_deadline_fails(registry, manual, trips_at):
    """P17: a hung probe opens again."""
    api = registry.breaker("probed", trips_at(1, cooldown=30))
    fn = timeout(10)(breaker("probed")(hang))
    drive(manual, fn, 10)
    assert OPEN is api.state
    manual.advance(30)
    drive(manual, fn, 10)
    assert OPEN is api.state
    assert (1, 1) == (api.status().probes_started, api.status().probes_failed)


def test_probe_cancelled_by_the_caller_is_released(registry, manual, trips_at):
    """I4: a caller who gives up leaves HALF_OPEN with its slot free."""
    api = registry.breaker("probed", trips_at(1, cooldown=30))
    fn = timeout(10)(breaker("probed")(hang))
    drive(manual, fn, 10)
    manual.advance(30)
    assert "cancelled" == drive(manual, fn, 9, lambda task: task.cancel())

    assert HALF_OPEN is api.state
    assert not api.is_open()
    assert (1, 1) == (api.status().probes_started, api.status().probes_released)


def test_guard_under_our_deadline_counts(api, manual):
    """P17: the same in guard() blocks."""

    @timeout(10)
    async def fn():
        async with breaker("api").guard():
            await hang()

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_sync_guard_in_async_code_under_our_deadline_counts(api, manual):
    """P17: `with` in async code too."""

    @timeout(10)
    async def fn():
        with breaker("api").guard():
            await hang()

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 1 == failures(api)


@pytest.mark.parametrize(("late", "counted"), [(4.9, 1), (5.1, 0)])
def test_guard_short_stay_is_neutral(api, manual, late, counted):
    """P17: half of the deadline, also for blocks."""

    @timeout(10)
    async def fn():
        gate = asyncio.get_running_loop().create_future()
        manual.call_at(asyncio.get_running_loop(), manual.monotonic() + late, lambda: gate.set_result(None))
        await gate
        async with breaker("api").guard():
            await hang()

    assert isinstance(drive(manual, fn, late, 10 - late), TimeoutExceeded)
    assert counted == failures(api)


def test_call_and_acall_under_our_deadline(api, manual):
    """P17: breaker.acall too."""

    @timeout(10)
    async def fn():
        await api.acall(hang)

    assert isinstance(drive(manual, fn, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_body_that_converts_our_cancel(api, manual):
    """P17: a function that turns the CancelledError into an exception of its own: that exception is judged."""

    @timeout(10)
    @breaker("api")
    async def fn():
        try:
            await hang()
        except asyncio.CancelledError:
            raise LookupError("gave up") from None

    assert isinstance(drive(manual, fn, 10), LookupError)
    assert 0 == failures(api)


def test_body_that_swallows_our_cancel(api, manual):
    """P17: a function that swallows the cancel and answers: a success."""

    @timeout(10)
    @breaker("api")
    async def fn():
        try:
            await hang()
        except asyncio.CancelledError:
            return "late answer"

    assert "late answer" == drive(manual, fn, 10)
    assert (0, 1) == (failures(api), api.status().successes_total)


def test_body_that_raises_a_cancelled_error_itself(api, manual):
    """P17: a CancelledError out of nowhere is INTERRUPTED: NEUTRAL."""

    @timeout(10)
    @breaker("api")
    async def fn():
        raise asyncio.CancelledError

    assert "cancelled" == drive(manual, fn)
    assert 0 == failures(api)


def test_second_cancel_after_expiry(api, manual):
    """P17: expiry, then the caller cancels before the body has ended: both hold: counted, and cancelled."""
    cleaned = []

    @timeout(10)
    @breaker("api")
    async def fn():
        try:
            await hang()
        except asyncio.CancelledError:
            try:
                await hang()
            finally:
                cleaned.append(1)
            raise

    assert "cancelled" == drive(manual, fn, 10, lambda task: task.cancel())
    assert [1] == cleaned


def test_context_of_the_deadline_is_restored(api, manual):
    """I10: no ContextVar of ours stays changed after a timed call."""
    fn = timeout(10)(breaker("api")(hang))

    async def main():
        before = dict(contextvars.copy_context())

        async def advance_later():
            await turns(3)
            manual.advance(10)

        helper = asyncio.create_task(advance_later())
        with pytest.raises(TimeoutExceeded):
            await fn()
        await helper
        assert before == dict(contextvars.copy_context())

    asyncio.run(main())


def test_sync_worker_deadline_counts(registry, trips_at):
    """Section 5: an attempt given up at the deadline is settled TRANSIENT."""
    import threading

    release = threading.Event()
    api = registry.breaker("sync", trips_at(9))

    @timeout(0.02)
    @breaker("sync")
    @interruptible
    def fn():
        release.wait(5)

    try:
        with pytest.raises(TimeoutExceeded):
            fn()
        assert 1 == api.status().failures_total
    finally:
        release.set()


def test_sync_worker_counts_false(registry, trips_at):
    """P17: counts=False on a worker."""
    import threading

    release = threading.Event()
    api = registry.breaker("sync", trips_at(9))

    @timeout(0.02, counts=False)
    @breaker("sync")
    @interruptible
    def fn():
        release.wait(5)

    try:
        with pytest.raises(TimeoutExceeded):
            fn()
        assert 0 == api.status().failures_total
    finally:
        release.set()


def test_two_sites_of_one_breaker_cut_by_one_deadline_count_once(api, manual):
    """Section 4: one expiry seen at an inner and an outer site of one breaker is one CancelledError object... counted at most once."""
    inner = breaker("api")(hang)

    @timeout(10)
    @breaker("api")
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert 1 == failures(api)


def test_attempt_timeout_seen_by_an_inner_and_outer_breaker(api, registry, manual, trips_at):
    """Section 4: a breaker of its own around the outer call counts the TimeoutExceeded as well."""
    other = registry.breaker("other", trips_at(9))
    inner = timeout(10)(breaker("api")(hang))

    @breaker("other")
    async def outer():
        await inner()

    assert isinstance(drive(manual, outer, 10), TimeoutExceeded)
    assert (1, 1) == (failures(api), other.status().failures_total)
