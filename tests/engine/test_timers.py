"""The one place that interrupts tasks: as exact as `asyncio.timeout`, with one timer for many calls."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from resilience import BreakerConfig, Consecutive, TimeoutExceeded, breaker, remaining, retry, timeout
from resilience._context import DEADLINE
from resilience._core.deadline import Deadline
from resilience._engine.timers import Bucket, Buckets, Expiry, fire, is_ours, note, this_task
from resilience.testing import ManualClock, use_clock


class FakeTask:
    """A task as a timer sees it: pending cancels."""

    def __init__(self, pending=0):
        self.pending = pending

    def cancelling(self):
        return self.pending

    def cancel(self):
        self.pending += 1

    def uncancel(self):
        self.pending -= 1
        return self.pending


class FakeLoop:
    """A loop as a bucket sees it: a time and what is due when."""

    def __init__(self, now=0.0):
        self.now = now
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        self.timers.append(when)
        self.due = callback


@pytest.fixture
def loop(monkeypatch):
    loop = FakeLoop()
    monkeypatch.setattr(time, "monotonic", lambda: loop.now + 50)
    return loop


def enter(bucket, task, seconds):
    """What the straight path does on entry."""
    deadline = Deadline(seconds, time.monotonic())
    bucket.entries[task] = deadline
    if not bucket.armed:
        bucket.arm(deadline)
    return deadline


# ---------------------------------------------------------------------------------------------- bookkeeping
def test_a_deadline_that_nobody_disturbed_has_fired():
    """It cancels the task, and is evidence."""
    deadline, task = Deadline(5, 0), FakeTask()
    fire(deadline, task)

    assert (True, 1) == (deadline.fired, task.pending)


def test_a_deadline_after_somebody_elses_cancel_has_not():
    """It cancels all the same, and proves nothing."""
    deadline, task = Deadline(5, 0), FakeTask(pending=1)
    fire(deadline, task)

    assert (False, 2) == (deadline.fired, task.pending)


@pytest.mark.parametrize(("noted", "pending", "ours"), [(0, 1, True), (0, 2, False), (1, 2, True), (1, 1, True)])
def test_a_cancel_is_taken_back(noted, pending, ours):
    """It is our timeout if no more cancels are pending than when the scope was entered."""
    deadline, task = Deadline(5, 0, None, noted), FakeTask(pending)

    assert ours is is_ours(deadline, task)
    assert pending - 1 == task.pending


@pytest.mark.parametrize("where", ["task", "waiter", "delivered"])
def test_one_error_for_two_cancels_is_the_others(where):
    """cpython#134471: a cancel that the task has not seen yet when the deadline expires is not swallowed."""
    deadline, task = Deadline(5, 0), FakeTask(pending=1)
    task._must_cancel = True
    note(deadline, task)
    task._must_cancel = where == "task"
    task._fut_waiter = SimpleNamespace(cancelled=lambda: where == "waiter")
    fire(deadline, task)

    assert (where == "delivered", where == "delivered") == (deadline.fired, is_ours(deadline, task))
    assert 1 == task.pending


def test_no_loop_is_running():
    """The error says what is needed."""
    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        this_task()


def test_a_loop_without_a_task():
    """A callback of a loop is no task."""
    loop = asyncio.new_event_loop()
    seen = []

    def callback():
        try:
            this_task()
        except RuntimeError as error:
            seen.append(str(error))
        loop.stop()

    loop.call_soon(callback)
    loop.run_forever()
    loop.close()

    assert "needs a running asyncio task" in seen[0]


# ---------------------------------------------------------------------------------------------- a bucket
def test_a_bucket_is_armed_by_the_first_call(loop):
    """In the loop's own time: only the distance carries over."""
    bucket = Bucket(loop)
    enter(bucket, FakeTask(), 5)
    enter(bucket, FakeTask(), 5)

    assert [5] == loop.timers
    assert bucket.armed is True


def test_a_bucket_cancels_what_is_due_and_arms_again(loop):
    """The oldest is cut, the timer goes on for the next."""
    bucket, first, second = Bucket(loop), FakeTask(), FakeTask()
    enter(bucket, first, 5)
    loop.now = 2
    enter(bucket, second, 5)
    loop.now = 5
    loop.due()

    assert (1, 0) == (first.pending, second.pending)
    assert [second] == list(bucket.entries)
    assert [5, 7] == loop.timers


def test_a_bucket_cancels_all_that_are_due_at_once(loop):
    """And is idle afterwards."""
    bucket, tasks = Bucket(loop), [FakeTask() for _ in range(3)]
    for task in tasks:
        enter(bucket, task, 5)
    loop.now = 5
    loop.due()

    assert [1, 1, 1] == [task.pending for task in tasks]
    assert (False, {}) == (bucket.armed, bucket.entries)


def test_a_bucket_whose_oldest_call_has_left(loop):
    """The timer that was armed for it finds the next one."""
    bucket, first, second = Bucket(loop), FakeTask(), FakeTask()
    enter(bucket, first, 5)
    loop.now = 2
    enter(bucket, second, 5)
    del bucket.entries[first]
    loop.now = 5
    loop.due()

    assert (0, 0) == (first.pending, second.pending)
    assert [5, 7] == loop.timers


def test_a_bucket_that_everybody_has_left(loop):
    """The timer finds nobody and is not armed again, until somebody comes."""
    bucket, task = Bucket(loop), FakeTask()
    enter(bucket, task, 5)
    bucket.entries.clear()
    loop.now = 5
    loop.due()

    assert bucket.armed is False
    enter(bucket, task, 5)
    assert [5, 10] == loop.timers


# ---------------------------------------------------------------------------------------------- buckets
@pytest.fixture
def running():
    """Makes any object the running loop of this thread."""

    def run(loop, function):
        asyncio._set_running_loop(loop)
        try:
            return function()
        finally:
            asyncio._set_running_loop(None)

    return run


def test_one_bucket_for_each_loop(running):
    """Going back and forth between loops finds the same ones, as long as somebody holds them."""
    buckets, first, second = Buckets(), FakeLoop(), FakeLoop()
    one, two = running(first, buckets.here), running(second, buckets.here)

    assert (first, second) == (one.loop, two.loop)
    assert one is running(first, buckets.here)
    assert two is running(second, buckets.here)


def test_the_bucket_used_last_is_at_hand(running):
    """Where the loop tells which thread runs it; another is looked up for each call."""
    buckets, silent, telling = Buckets(), FakeLoop(), FakeLoop()
    telling._thread_id = 1
    kept = running(silent, buckets.here)
    assert buckets.last() is None
    kept = running(telling, buckets.here), kept

    assert kept[0] is buckets.last()


def test_no_bucket_under_a_test_clock(running):
    """Every call goes to the plan, which asks the registry's clock; and back again."""
    buckets, loop = Buckets(), FakeLoop()
    loop._thread_id = 1
    bucket = running(loop, buckets.here)
    buckets.publish_slots(False)

    assert (None, None) == (buckets.last(), running(loop, buckets.here))
    buckets.publish_slots(True)
    assert bucket is running(loop, buckets.here)


def test_no_bucket_without_a_loop():
    """The plan says what is missing."""
    assert Buckets().here() is None


def test_a_loop_is_not_kept_alive_by_its_bucket(running):
    """Neither the function nor its buckets hold a loop."""
    buckets, loop = Buckets(), FakeLoop()
    loop._thread_id = 1
    bucket = running(loop, buckets.here)
    bucket.entries[FakeTask()] = Deadline(5, 0)
    reference = weakref.ref(loop)
    del loop, bucket
    gc.collect()

    assert (None, None) == (reference(), buckets.last())


def test_one_function_in_the_loops_of_many_threads():
    """Each call is cut by the timer of its own loop, however the threads take turns."""

    @timeout(0.01)
    async def fetch(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def scenario():
        found = await asyncio.gather(*(fetch(0 if n % 2 else 30) for n in range(20)), return_exceptions=True)
        return [outcome if isinstance(outcome, int) else type(outcome).__name__ for outcome in found]

    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(asyncio.run(scenario()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [["TimeoutExceeded", 0] * 10] * 4 == outcomes


def test_a_closed_loop_is_freed():
    """A real loop that has served timed calls goes when its owner drops it."""

    @timeout(5)
    async def fetch():
        return "fine"

    loop = asyncio.new_event_loop()
    loop.run_until_complete(fetch())
    loop.close()
    reference = weakref.ref(loop)
    del loop
    gc.collect()

    assert reference() is None
    assert "fine" == asyncio.run(fetch())


@pytest.mark.filterwarnings("ignore:Exception ignored in")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_closed_in_the_middle_of_a_call_is_freed():
    """The task inside dies with it."""

    @timeout(5)
    async def fetch():
        await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    task = loop.create_task(fetch())
    task._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    reference = weakref.ref(loop)
    del loop, task
    gc.collect()

    assert reference() is None


def test_one_function_in_two_loops(virtual):
    """Each loop has its own timer; a call in one is not cut by the other's."""

    @timeout(5)
    async def fetch(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def cut():
        with pytest.raises(TimeoutExceeded):
            await fetch(9)

    virtual(cut())
    assert 4 == virtual(fetch(4))
    virtual(cut())


# ---------------------------------------------------------------------------------------------- a scope of its own
def test_an_expiry_is_forgotten_when_its_scope_is_left(virtual):
    """The timer is cancelled, the context is as before, the deadline counts no more."""

    async def scenario():
        with use_clock(ManualClock()) as clock:
            deadline = Deadline(5, 0)
            expiry = Expiry(deadline, clock)
            assert deadline is DEADLINE.get()
            left = expiry.leave()
            return left, DEADLINE.get(), deadline.active, clock.pending

    assert (False, None, False, 0) == virtual(scenario())


def test_an_expiry_that_comes_after_its_scope_does_nothing(virtual):
    """A callback on its way when the scope is left cancels nobody."""

    async def scenario():
        with use_clock(ManualClock()) as clock:
            expiry = Expiry(Deadline(5, 0), clock)
            expire = expiry._expire
            expiry.leave()
            expire()
            return expiry.fired, asyncio.current_task().cancelling()

    assert (False, 0) == virtual(scenario())


def test_a_clock_that_gives_nothing_to_cancel(virtual):
    """A user's clock may forget the handle; leaving works all the same."""

    class Careless(ManualClock):
        def call_at(self, loop, when, callback):
            super().call_at(loop, when, callback)

    async def scenario():
        return Expiry(Deadline(5, 0), Careless()).leave(), DEADLINE.get()

    assert (False, None) == virtual(scenario())


def test_an_expiry_cancels_and_takes_it_back(virtual):
    """The way out is a timeout, and the task is as it was."""

    async def scenario():
        clock = ManualClock()
        expiry = Expiry(Deadline(5, 0), clock)
        clock.advance(5)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            ours = expiry.leave()
        return ours, asyncio.current_task().cancelling()

    assert (True, 0) == virtual(scenario())


# ---------------------------------------------------------------------------------------------- equal to asyncio.timeout
async def quick():
    return "quick"


async def slow():
    await asyncio.sleep(9)


async def swallows():
    try:
        await asyncio.sleep(9)
    except asyncio.CancelledError:
        return "swallowed"


async def converts():
    try:
        await asyncio.sleep(9)
    except asyncio.CancelledError:
        raise LookupError("converted") from None


async def cancelled_from_outside():
    asyncio.get_running_loop().call_later(2, asyncio.current_task().cancel)
    await asyncio.sleep(9)


async def cancelled_at_the_same_moment():
    asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + 5, asyncio.current_task().cancel)
    await asyncio.sleep(9)


async def cancels_itself_and_goes_on():
    asyncio.current_task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        await asyncio.sleep(9)


async def a_task_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(9))
        group.create_task(asyncio.sleep(1))


async def a_task_group_that_fails():
    async with asyncio.TaskGroup() as group:
        group.create_task(converts_at_once())
        group.create_task(asyncio.sleep(9))


async def converts_at_once():
    raise LookupError("failed")


async def raises_cancelled():
    raise asyncio.CancelledError("its own")


async def inner_shorter():
    async with asyncio.timeout(2):
        await asyncio.sleep(9)


async def inner_longer():
    async with asyncio.timeout(8):
        await asyncio.sleep(9)


async def cleans_up_for_long():
    try:
        await asyncio.sleep(9)
    finally:
        await asyncio.sleep(9)


BODIES = [
    quick,
    slow,
    swallows,
    converts,
    cancelled_from_outside,
    cancelled_at_the_same_moment,
    cancels_itself_and_goes_on,
    a_task_group,
    a_task_group_that_fails,
    raises_cancelled,
    inner_shorter,
    inner_longer,
    cleans_up_for_long,
]


async def ended(call):
    """How a call ended, the task's pending cancels then, and the time it took."""
    began = asyncio.get_running_loop().time()
    try:
        how = ("returned", await call())
    except BaseException as error:
        name = type(error).__name__
        how = ("raised", "TimeoutError" if isinstance(error, TimeoutError) else name)
    return how, asyncio.current_task().cancelling(), round(asyncio.get_running_loop().time() - began, 6)


def by_asyncio(body):
    async def call():
        async with asyncio.timeout(5):
            return await body()

    return call


def straight(body):
    return timeout(5)(body)


def plan(body):
    return timeout(60, per_attempt=5)(body)


def straight_with_everything(body):
    policies = breaker("provider", BreakerConfig(Consecutive(1))), retry(1, idempotent=True)
    return timeout(5)(policies[0](policies[1](body)))


@pytest.mark.parametrize("ours", [straight, plan, straight_with_everything])
@pytest.mark.parametrize("body", BODIES)
def test_the_outcome_is_that_of_asyncio(virtual, ours, body):
    """Same outcome, same pending cancels, same moment as `async with asyncio.timeout(5)`."""
    assert virtual(ended(by_asyncio(body))) == virtual(ended(ours(body)))


@pytest.mark.parametrize("ours", [straight, plan])
def test_inside_the_clean_up_of_a_cancelled_task(virtual, ours):
    """A pending cancel from before is no part of the scope: the timeout is ours, the cancel stays pending."""

    async def cleaning_up(call):
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return await ended(call)

    expected = virtual(cleaning_up(by_asyncio(slow)))

    assert (("raised", "TimeoutError"), 1, 5) == expected
    assert expected == virtual(cleaning_up(ours(slow)))


@pytest.mark.parametrize("ours", [straight, plan])
def test_a_wait_for_outside(virtual, ours):
    """`asyncio.wait_for` around a call of ours ends it as any outer cancel does."""

    def outside(call):
        return lambda: asyncio.wait_for(call(), 2)

    assert virtual(ended(outside(by_asyncio(slow)))) == virtual(ended(outside(ours(slow))))


@pytest.mark.parametrize("ours", [straight, plan])
@pytest.mark.parametrize("outer", [straight, plan])
def test_nested_scopes_of_ours(virtual, ours, outer):
    """A longer scope inside a shorter one ends with the outer one's timeout."""

    async def nested():
        return await ours(slow)()

    limited = timeout(2)(nested) if outer is straight else timeout(60, per_attempt=2)(nested)

    assert (("raised", "TimeoutError"), 0, 2) == virtual(ended(limited))


@pytest.mark.parametrize("ours", [straight, plan])
def test_nothing_is_left_in_the_context(virtual, ours):
    """After success, failure, timeout: no deadline around the caller."""

    async def scenario():
        left = []
        for body in (quick, slow, swallows, converts):
            await ended(ours(body))
            left.append(remaining())
        return left

    assert [None] * 4 == virtual(scenario())


def test_recursion(virtual):
    """A timed function that calls itself has a limit of its own at each depth; the outermost ends first."""

    @timeout(5)
    async def down(depth):
        if depth == 0:
            await asyncio.sleep(9)
        await asyncio.sleep(1)
        return await down(depth - 1)

    assert (("raised", "TimeoutError"), 0, 5) == virtual(ended(lambda: down(3)))


def test_two_hundred_staggered_calls(virtual):
    """Each is cut at its own moment, whatever those before and after it do."""

    @timeout(5)
    async def fetch(number):
        await asyncio.sleep(1 if number % 3 == 0 else 9)
        return number

    async def staggered(number):
        await asyncio.sleep(number * 0.01)
        return await ended(lambda: fetch(number))

    async def scenario():
        return await asyncio.gather(*(staggered(number) for number in range(200)))

    expected = [
        (("returned", number), 0, 1) if number % 3 == 0 else (("raised", "TimeoutError"), 0, 5) for number in range(200)
    ]

    assert expected == virtual(scenario())


def test_a_real_loop_in_real_time():
    """The real thing once: 20 calls of 10 ms limits, some of which are quick."""

    @timeout(0.01)
    async def fetch(number):
        await asyncio.sleep(0 if number % 2 else 30)
        return number

    async def scenario():
        found = await asyncio.gather(*(fetch(number) for number in range(20)), return_exceptions=True)
        return [outcome if isinstance(outcome, int) else type(outcome).__name__ for outcome in found]

    assert [number if number % 2 else "TimeoutExceeded" for number in range(20)] == asyncio.run(scenario())


def test_on_uvloop():
    """uvloop's tasks and timers serve as well."""
    uvloop = pytest.importorskip("uvloop")

    @timeout(0.01)
    async def fetch(seconds):
        await asyncio.sleep(seconds)

    async def scenario():
        await fetch(0)
        with pytest.raises(TimeoutExceeded):
            await fetch(30)
        return asyncio.current_task().cancelling()

    loop = uvloop.new_event_loop()
    try:
        assert 0 == loop.run_until_complete(scenario())
    finally:
        loop.close()
