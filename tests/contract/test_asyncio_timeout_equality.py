"""performance.md, "The shared async timer": each scenario beside asyncio.timeout, outcome and `task.cancelling()` alike."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from resilience import Registry, TimeoutExceeded, timeout, use_registry

try:
    import uvloop
except ImportError:
    uvloop = None

LOOPS = {"asyncio": asyncio.new_event_loop}
if uvloop is not None:
    LOOPS["uvloop"] = uvloop.new_event_loop

SHORT = 0.01


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    """Run a coroutine function on a loop of each kind; what it left behind is an error."""

    def run(main, *args):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            errors = []
            runner.get_loop().set_exception_handler(lambda loop, context: errors.append(context))
            result = runner.run(main(*args))
            assert [] == errors
            return result

    return run


def ours_budget(seconds):
    """`run_in(body)` under our budget."""

    def run_in(body):
        return timeout(seconds)(body)()

    return run_in


def ours_attempt(seconds):
    def run_in(body):
        return timeout(per_attempt=seconds)(body)()

    return run_in


def ours_block(seconds):
    async def run_in(body):
        async with timeout(seconds).guard():
            return await body()

    return run_in


def theirs(seconds):
    """`run_in(body)` under asyncio.timeout."""

    async def run_in(body):
        async with asyncio.timeout(seconds):
            return await body()

    return run_in


def shown(exc):
    return "TimeoutError" if isinstance(exc, TimeoutError) else type(exc).__name__


async def outcome_of(make, driver=None):
    """How the task ended, and its cancelling() as the caller inside the task saw it."""
    seen = {}

    async def in_task():
        task = asyncio.current_task()
        before = task.cancelling()
        try:
            seen["result"] = await make()
        except BaseException as exc:
            seen["raised"] = shown(exc)
            seen["cancelling"] = task.cancelling() - before
            raise
        seen["cancelling"] = task.cancelling() - before
        # Where no cancel is owed, an await afterwards is undisturbed.
        try:
            await asyncio.sleep(0)
            seen["after"] = "fine"
        except asyncio.CancelledError:
            seen["after"] = "cancelled"
            raise
        return seen["result"]

    task = asyncio.create_task(in_task())
    if driver is not None:
        await asyncio.wait_for(driver(task), 5)
    done, _ = await asyncio.wait([task], timeout=5)
    assert done, "the task did not end"
    seen["task cancelled"] = task.cancelled()
    if not task.cancelled():
        seen["task raised"] = shown(task.exception()) if task.exception() else None
    return seen


def same(run, scenario):
    """The scenario under asyncio.timeout and under each of our scopes: one outcome."""
    with use_registry(Registry()):
        expected = run(scenario, theirs)
        assert expected == run(scenario, ours_budget), "budget"
        assert expected == run(scenario, ours_attempt), "per_attempt"
        assert expected == run(scenario, ours_block), "guard()"
    return expected


async def hang():
    await asyncio.get_running_loop().create_future()


# ------------------------------------------------------------------------------------------ the list
def test_quick_success(run):
    """Quick success."""

    async def scenario(limit):
        async def body():
            await asyncio.sleep(0)
            return 7

        return await outcome_of(lambda: limit(5)(body))

    assert 7 == same(run, scenario)["result"]


def test_expiry(run):
    """Expiry."""

    async def scenario(limit):
        return await outcome_of(lambda: limit(SHORT)(hang))

    assert {"raised": "TimeoutError", "cancelling": 0, "task cancelled": False, "task raised": "TimeoutError"} == same(
        run, scenario
    )


def test_caught_expiry_leaves_the_task_usable(run):
    """Expiry that the caller catches: the task goes on undisturbed."""

    async def scenario(limit):
        async def make():
            with contextlib.suppress(TimeoutError):
                await limit(SHORT)(hang)
            return "went on"

        return await outcome_of(make)

    assert "fine" == same(run, scenario)["after"]


def test_outer_cancel(run):
    """Outer cancel."""

    async def scenario(limit):
        async def driver(task):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()

        return await outcome_of(lambda: limit(5)(hang), driver)

    assert same(run, scenario)["task cancelled"]


def test_outer_cancel_before_the_body_began(run):
    """Outer cancel before the first step."""

    async def scenario(limit):
        async def driver(task):
            task.cancel()

        return await outcome_of(lambda: limit(5)(hang), driver)

    assert same(run, scenario)["task cancelled"]


def test_outer_cancel_and_expiry_in_one_tick(run):
    """Outer cancel and expiry in one tick: cancel wins."""

    async def scenario(limit):
        import time

        async def driver(task):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # Busy past the deadline in this very tick, then cancel: the timer is due when the loop comes round.
            end = time.monotonic() + SHORT * 1.5
            while time.monotonic() < end:
                pass
            task.cancel()

        return await outcome_of(lambda: limit(SHORT)(hang), driver)

    assert same(run, scenario)["task cancelled"]


def test_body_swallows_the_cancel(run):
    """Body swallows the cancel and answers."""

    async def scenario(limit):
        async def body():
            try:
                await hang()
            except asyncio.CancelledError:
                return "swallowed"

        return await outcome_of(lambda: limit(SHORT)(body))

    same(run, scenario)


def test_body_converts_the_cancel(run):
    """Body converts it to an exception of its own."""

    async def scenario(limit):
        async def body():
            try:
                await hang()
            except asyncio.CancelledError:
                raise LookupError from None

        return await outcome_of(lambda: limit(SHORT)(body))

    assert "LookupError" == same(run, scenario)["raised"]


def test_body_raises_a_new_cancelled_error(run):
    """Body raises a CancelledError of its own after the expiry."""

    async def scenario(limit):
        async def body():
            try:
                await hang()
            except asyncio.CancelledError:
                raise asyncio.CancelledError("mine") from None

        return await outcome_of(lambda: limit(SHORT)(body))

    same(run, scenario)


def test_body_raises_a_cancelled_error_out_of_nowhere(run):
    """Body raises a CancelledError without an expiry."""

    async def scenario(limit):
        async def body():
            raise asyncio.CancelledError

        return await outcome_of(lambda: limit(5)(body))

    same(run, scenario)


def test_body_cancels_its_own_task(run):
    """Body cancels the task it runs in."""

    async def scenario(limit):
        async def body():
            asyncio.current_task().cancel()
            await hang()

        return await outcome_of(lambda: limit(5)(body))

    assert same(run, scenario)["task cancelled"]


def test_body_uncancels_itself(run):
    """Body cancels its own task and takes it back."""

    async def scenario(limit):
        async def body():
            task = asyncio.current_task()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            task.uncancel()
            return "fine"

        return await outcome_of(lambda: limit(5)(body))

    same(run, scenario)


def test_nested_inner_shorter(run):
    """Nested, inner shorter."""

    async def scenario(limit):
        async def outer():
            return await limit(SHORT)(hang)

        return await outcome_of(lambda: limit(5)(outer))

    assert "TimeoutError" == same(run, scenario)["raised"]


def test_nested_inner_shorter_and_caught(run):
    """Nested, inner shorter and caught inside the outer."""

    async def scenario(limit):
        async def outer():
            with contextlib.suppress(TimeoutError):
                await limit(SHORT)(hang)
            await asyncio.sleep(0)
            return "outer went on"

        return await outcome_of(lambda: limit(5)(outer))

    assert "outer went on" == same(run, scenario)["result"]


def test_nested_outer_shorter(run):
    """Nested, outer shorter: the inner one must not swallow or rename it."""

    async def scenario(limit):
        inner_saw = []

        async def outer():
            try:
                return await limit(5)(hang)
            except BaseException as exc:
                inner_saw.append(shown(exc))
                raise

        ended = await outcome_of(lambda: limit(SHORT)(outer))
        return ended, inner_saw

    assert ["CancelledError"] == same(run, scenario)[1]


def test_nested_equal(run):
    """Nested, both due in one tick."""

    async def scenario(limit):
        async def outer():
            return await limit(SHORT)(hang)

        return await outcome_of(lambda: limit(SHORT)(outer))

    assert "TimeoutError" == same(run, scenario)["raised"]


def test_recursion(run):
    """One function inside itself."""

    async def scenario(limit):
        run_in = None

        async def body(depth=[0]):  # noqa: B006
            depth[0] += 1
            if depth[0] < 5:
                return await run_in(body)
            return depth[0]

        run_in = limit(5)
        return await outcome_of(lambda: run_in(body))

    assert 5 == same(run, scenario)["result"]


def test_recursion_with_expiry():
    """One decorated function inside itself: the outermost deadline comes first."""

    async def main():
        depth = []

        @timeout(SHORT)
        async def fn(levels):
            depth.append(levels)
            if levels:
                return await fn(levels - 1)
            return await hang()

        task = asyncio.current_task()
        with pytest.raises(TimeoutExceeded):
            await fn(5)
        assert 0 == task.cancelling()
        await asyncio.sleep(0)
        return len(depth)

    assert 6 == asyncio.run(main())


def test_task_group_in_the_body(run):
    """TaskGroup in the body: its children are cancelled, the expiry leaves."""

    async def scenario(limit):
        cancelled = []

        async def child():
            try:
                await hang()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        async def body():
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(child())

        ended = await outcome_of(lambda: limit(SHORT)(body))
        return ended, cancelled

    assert ("TimeoutError", [1, 1]) == (lambda ended: (ended[0]["raised"], ended[1]))(same(run, scenario))


def test_task_group_child_fails_in_the_body(run):
    """A failing child: the group's error leaves."""

    async def scenario(limit):
        async def child():
            raise LookupError

        async def body():
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(hang())

        return await outcome_of(lambda: limit(5)(body))

    assert "ExceptionGroup" == same(run, scenario)["raised"]


def test_inside_a_task_group(run):
    """Our deadline inside a TaskGroup's child: only that child ends."""

    async def scenario(limit):
        async def make():
            async def child():
                with contextlib.suppress(TimeoutError):
                    await limit(SHORT)(hang)
                return "child fine"

            async with asyncio.TaskGroup() as group:
                child_task = group.create_task(child())
            return child_task.result()

        return await outcome_of(make)

    assert "child fine" == same(run, scenario)["result"]


def test_inside_the_clean_up_of_a_cancelled_task(run):
    """Use inside the clean-up of a cancelled task: quick success."""

    async def scenario(limit):
        notes = []

        async def quick():
            await asyncio.sleep(0)
            return "cleaned"

        async def make():
            try:
                await hang()
            finally:
                notes.append(await limit(5)(quick))
                notes.append(asyncio.current_task().cancelling())

        async def driver(task):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()

        ended = await outcome_of(make, driver)
        return ended, notes

    assert ["cleaned", 1] == same(run, scenario)[1]


def test_expiry_inside_the_clean_up_of_a_cancelled_task(run):
    """Use inside the clean-up of a cancelled task: expiry is a TimeoutError there."""

    async def scenario(limit):
        notes = []

        async def make():
            try:
                await hang()
            finally:
                try:
                    await limit(SHORT)(hang)
                except TimeoutError:
                    notes.append("timed out")
                except asyncio.CancelledError:
                    notes.append("cancelled")
                notes.append(asyncio.current_task().cancelling())

        async def driver(task):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()

        ended = await outcome_of(make, driver)
        return ended, notes

    assert ["timed out", 1] == same(run, scenario)[1]


def test_second_cancel_after_the_expiry(run):
    """The caller cancels while the body still cleans up after the expiry."""

    async def scenario(limit):
        cleaning = asyncio.Event()

        async def body():
            try:
                await hang()
            except asyncio.CancelledError:
                cleaning.set()
                await hang()

        async def driver(task):
            await cleaning.wait()
            task.cancel()

        return await outcome_of(lambda: limit(SHORT)(body), driver)

    same(run, scenario)


def test_cancel_caught_and_then_expiry(run):
    """The body swallows the caller's cancel and hangs on until the deadline."""

    async def scenario(limit):
        async def body():
            with contextlib.suppress(asyncio.CancelledError):
                await hang()
            await hang()

        async def driver(task):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()

        return await outcome_of(lambda: limit(SHORT)(body), driver)

    same(run, scenario)


def test_two_hundred_staggered_calls(run):
    """200 staggered calls: each ends in its own time, nobody else's."""

    async def scenario(limit):
        async def one(number):
            for _ in range(number % 7):
                await asyncio.sleep(0)

            async def body():
                if number % 3 == 0:
                    await hang()
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                return number

            seconds = SHORT if number % 3 == 0 else 5
            try:
                return await limit(seconds)(body)
            except TimeoutError:
                return -number

        return await asyncio.gather(*(one(number) for number in range(200)))

    assert [-n if n % 3 == 0 else n for n in range(200)] == same(run, scenario)


def test_two_hundred_calls_of_one_function(run):
    """200 calls through one shared timer: those that hang expire, the others are never touched."""

    async def main():
        @timeout(2)  # a machine that stops for a moment must not make the short ones late
        async def fn(number):
            for _ in range(number % 11):
                await asyncio.sleep(0)
            if number % 2:
                await hang()
            return number

        async def one(number):
            await asyncio.sleep(0)
            try:
                return await fn(number)
            except TimeoutExceeded:
                return -number

        return await asyncio.gather(*(one(number) for number in range(200)))

    assert [-n if n % 2 else n for n in range(200)] == run(main)


def test_wait_for_outside(run):
    """asyncio.wait_for outside, shorter."""

    async def scenario(limit):
        return await outcome_of(lambda: asyncio.wait_for(limit(5)(hang), SHORT))

    assert "TimeoutError" == same(run, scenario)["raised"]


def test_asyncio_timeout_outside(run):
    """asyncio.timeout outside, shorter."""

    async def scenario(limit):
        return await outcome_of(lambda: theirs(SHORT)(lambda: limit(5)(hang)))

    assert "TimeoutError" == same(run, scenario)["raised"]


def test_asyncio_timeout_inside(run):
    """asyncio.timeout inside, shorter."""

    async def scenario(limit):
        return await outcome_of(lambda: limit(5)(lambda: theirs(SHORT)(hang)))

    with use_registry(Registry()):

        async def both(limit):
            async def body():
                return await theirs(SHORT)(hang)

            return await outcome_of(lambda: limit(5)(body))

        assert "TimeoutError" == same(run, both)["raised"]


def test_body_raises_timeout_error_itself(run):
    """A TimeoutError of the body's own passes as it is."""

    async def scenario(limit):
        async def body():
            raise TimeoutError

        return await outcome_of(lambda: limit(5)(body))

    assert 0 == same(run, scenario)["cancelling"]


def test_own_timeout_error_is_the_same_object():
    """I10: and it is the very object, no TimeoutExceeded."""
    error = TimeoutError("mine")

    @timeout(5)
    async def fn():
        raise error

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(fn())
    assert error is caught.value


def test_shield_in_the_body(run):
    """A shielded inner task survives the expiry."""

    async def scenario(limit):
        inner = asyncio.ensure_future(asyncio.sleep(SHORT * 2, "survived"))

        async def body():
            return await asyncio.shield(inner)

        ended = await outcome_of(lambda: limit(SHORT / 2)(body))
        return ended, await inner

    assert "survived" == same(run, scenario)[1]


def test_expiry_exactly_when_the_result_is_there(run):
    """The body's future is done in the tick in which the deadline is due: never both, never neither."""

    async def scenario(limit):
        results = []
        for offset in (-0.002, -0.001, 0, 0.001, 0.002):

            async def body(pause=SHORT + offset):
                await asyncio.sleep(pause)
                return "result"

            task = asyncio.current_task()
            try:
                results.append(await limit(SHORT)(body))
            except TimeoutError:
                results.append("timeout")
            assert 0 == task.cancelling()
            await asyncio.sleep(0)
        assert set(results) <= {"result", "timeout"}
        return

    same(run, scenario)


def test_expired_object_says_what_and_how_long(run):
    """Section 5: TimeoutExceeded(scope, seconds)."""

    async def main():
        found = []
        for limit in (timeout(SHORT), timeout(5, per_attempt=SHORT)):
            try:
                await limit(hang)()
            except TimeoutExceeded as exc:
                found.append((exc.scope.value, exc.seconds))
        return found

    assert [("budget", SHORT), ("attempt", SHORT)] == run(main)


def test_expiry_is_caused_by_the_cancel(run):
    """Like asyncio.timeout: the CancelledError is the cause, so a traceback shows where it hung."""

    async def main():
        try:
            await timeout(SHORT)(hang)()
        except TimeoutExceeded as exc:
            return type(exc.__cause__ or exc.__context__).__name__

    assert "CancelledError" == run(main)


def test_loop_closed_with_calls_in_flight():
    """Performance: never keep loops alive; a loop that was torn down with an armed timer harms no later loop."""
    fn = timeout(5)(hang)

    async def abandon():
        task = asyncio.create_task(fn())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(abandon())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()

    @timeout(5)
    async def quick():
        return "fine"

    assert "fine" == asyncio.run(quick())


def test_one_function_on_many_loops_one_after_another():
    """Performance: compare bucket.loop is loop: a new loop at an old address gets a timer of its own."""

    @timeout(SHORT)
    async def fn(hangs):
        if hangs:
            await hang()
        return "quick"

    for number in range(20):
        if number % 4 == 0:
            with pytest.raises(TimeoutExceeded):
                asyncio.run(fn(True))
        else:
            assert "quick" == asyncio.run(fn(False))


def test_loops_are_not_kept_alive():
    """Performance: never keep loops alive."""
    import gc
    import weakref

    @timeout(5)
    async def fn():
        await asyncio.sleep(0)

    class Loop(asyncio.SelectorEventLoop):
        pass

    loop = Loop()
    loop.run_until_complete(fn())
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None


def test_tasks_are_not_kept_alive(run):
    """I12: a finished call leaves no task behind in the timer."""

    async def main():
        import gc
        import weakref

        @timeout(5)
        async def fn():
            await asyncio.sleep(0)

        task = asyncio.create_task(fn())
        gone = weakref.ref(task)
        await task
        del task
        await asyncio.sleep(0)
        gc.collect()
        return gone() is None

    assert run(main)


def test_no_timer_left_after_success():
    """I14: no timer is left behind for long: the loop's own schedule is empty or holds one lazily armed timer that does nothing."""

    async def main():
        loop = asyncio.get_running_loop()

        @timeout(30)
        async def fn():
            await asyncio.sleep(0)

        for _ in range(100):
            await fn()
        return len([handle for handle in loop._scheduled if not handle.cancelled()])

    assert asyncio.run(main()) <= 1


def test_timedout_call_returns_by_its_deadline():
    """I14: an async call returns by its deadline plus one loop turn."""

    async def main():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with contextlib.suppress(TimeoutExceeded):
            await timeout(0.03)(hang)()
        return loop.time() - begun

    assert 0.03 <= asyncio.run(main()) + 0.001 < 0.2


def test_calls_entered_at_different_times_expire_in_their_own_time():
    """Performance: insertion order is deadline order; a later call gets its full time."""

    async def main():
        loop = asyncio.get_running_loop()

        @timeout(0.03)
        async def fn():
            await hang()

        async def one(pause):
            await asyncio.sleep(pause)
            begun = loop.time()
            with contextlib.suppress(TimeoutExceeded):
                await fn()
            return loop.time() - begun

        return await asyncio.gather(one(0), one(0.01), one(0.02))

    for took in asyncio.run(main()):
        assert 0.028 <= took < 0.2


def test_generator_based_reentry_same_task_twice():
    """Performance: recursion with success after an inner expiry: the outer entry survives the inner one's pop."""

    async def main():
        @timeout(0.02)
        async def fn(level):
            if level == 0:
                return "done"
            with contextlib.suppress(TimeoutExceeded):
                await fn(0)
            await hang()
            return None

        begun = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutExceeded):
            await fn(1)
        assert 0 == asyncio.current_task().cancelling()
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(main()) < 0.2


def test_eager_tasks():
    """3.12's eager tasks: a call that starts inside create_task has the right task."""
    import sys

    if sys.version_info < (3, 12):
        pytest.skip("eager tasks came with 3.12")

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        fn = timeout(SHORT)(hang)
        with pytest.raises(TimeoutExceeded):
            await asyncio.create_task(fn())
        return asyncio.current_task().cancelling()

    assert 0 == asyncio.run(main())
