"""What is no task's cancel: coroutines closed or thrown into by hand, many callers at once, and what an expiry proves."""

from __future__ import annotations

import asyncio
import random

import pytest

from resilience import BreakerConfig, BulkheadConfig, Consecutive, TimeoutExceeded, breaker, bulkhead, retry, timeout


def sent(coroutine, times):
    """Step a coroutine some times; whether it came to its end meanwhile."""
    for _ in range(times):
        try:
            coroutine.send(None)
        except (StopIteration, ConnectionError):
            return True
    return False


@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "B", "T", "Q", "J"])
def test_closed_at_each_point(any_place, subset):
    """I4: GeneratorExit (a coroutine closed by hand) at each suspension: everything is given back, nothing is counted."""
    with any_place(lambda world: world.function(subset), subset) as world:

        async def main(point):
            world.renew(["fail", "ok"])
            coroutine = world.call()
            ended = sent(coroutine, point)
            coroutine.close()
            world.check_whole()
            if world.counts:
                status = world.shared.status()
                assert (world.provider.failed, world.provider.succeeded) == (
                    status.failures_total,
                    status.successes_total,
                )
            return ended

        ended = [world.loop.run_until_complete(main(point)) for point in range(12)]
        assert ended[-1], "the end was never reached"


@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "BRJ"])
@pytest.mark.parametrize(
    "exception", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, ConnectionError]
)
def test_thrown_at_each_point(any_place, subset, exception):
    """I4, I10: whatever is thrown in leaves everything whole; what is no Exception leaves as the very same object."""
    with any_place(lambda world: world.function(subset), subset) as world:

        async def main(point):
            world.renew(["fail", "ok"])
            coroutine = world.call()
            if sent(coroutine, point):
                return True
            thrown = exception()
            try:
                coroutine.throw(thrown)
                while True:
                    coroutine.send(None)
            except BaseException as exc:
                if not issubclass(exception, Exception):
                    assert thrown is exc  # noqa: PT017
            world.check_whole()
            return False

        ended = [world.loop.run_until_complete(main(point)) for point in range(1, 12)]
        assert ended[-1], "the end was never reached"


@pytest.mark.parametrize("subset", ["T", "P", "BTRC", "BPRC"])
def test_one_timer_for_all_calls_of_a_function(any_place, subset):
    """Performance: one shared timer per (loop, function), armed lazily: ten cancelled calls at once leave one at most."""
    with any_place(lambda world: world.function(subset), subset) as world:

        async def main():
            world.renew(["hang"])
            world.pool.slots.limit = 10
            tasks = [asyncio.create_task(world.call()) for _ in range(10)]
            for task in tasks:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert world.loop.pending() <= world.lazily

        world.loop.run_until_complete(main())


@pytest.mark.parametrize("line", [1, 2, 3])
def test_line_of_four(any_place, line):
    """Section 7, I8: one of three in line is cancelled in each turn around the hand-over: the others are served in order."""
    with any_place(lambda world: None) as world:

        async def main(opened, cancelled):
            gate = asyncio.Event()
            entered = []

            @bulkhead("pool", wait=50)
            async def fn(number):
                entered.append(number)
                await gate.wait()
                return number

            tasks = [asyncio.create_task(fn(number)) for number in range(4)]
            for _ in range(4):
                await asyncio.sleep(0)
            accepted = False
            for turn in range(max(opened, cancelled) + 1):
                if turn == opened:
                    gate.set()
                if turn == cancelled:
                    accepted = tasks[line].cancel()
                await asyncio.sleep(0)
            await asyncio.wait(tasks)
            assert accepted == tasks[line].cancelled()
            assert [task.result() for task in tasks if not task.cancelled()] == [
                number for number in range(4) if number != line or not accepted
            ]
            assert sorted(entered) == entered, "first in, first out"
            assert (0, 0) == (world.pool.in_flight, world.pool.waiting)

        for opened in range(10):
            for cancelled in range(12):
                world.loop.run_until_complete(main(opened, cancelled))


def test_storm_over_one_stack(any_place):
    """I8: 300 calls cancelled at random moments: the books are whole."""
    with any_place(lambda world: None, lazily=1) as world:
        rng = random.Random(11)
        registry = world.registry
        pool = registry.bulkhead("wide", BulkheadConfig(3, 1000))
        registry.breaker("busy", BreakerConfig(Consecutive(10**6)))
        raised = 0

        @bulkhead("wide", wait=50)
        @timeout(50, per_attempt=20)
        @retry(3, wait=0, idempotent=True)
        @breaker("busy")
        async def fn(plan):
            nonlocal raised
            for _ in range(plan % 4):
                await asyncio.sleep(0)
            if plan % 3 == 0:
                raised += 1
                raise ConnectionError
            return plan

        async def main():
            before = asyncio.all_tasks()
            tasks = [asyncio.create_task(fn(rng.randrange(100))) for _ in range(300)]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
                for task in rng.sample(tasks, 5):
                    task.cancel()
            assert {True, False} == {task.cancelled() for task in tasks}
            await asyncio.gather(*tasks, return_exceptions=True)
            assert before == asyncio.all_tasks()

        world.loop.run_until_complete(main())
        assert (0, 0) == (pool.in_flight, pool.waiting)
        assert 0 < raised == registry.get("busy").status().failures_total


# ---------------------------------------------------------------------------------------------- P17
@pytest.mark.parametrize("subset", ["TC", "BTRC"])
@pytest.mark.parametrize(("acts", "failures"), [(("expire", "cancel"), 1), (("cancel", "expire"), 0)], ids=str)
def test_what_came_first_decides_what_is_counted(any_place, subset, acts, failures):
    """P17: in one tick, a budget that ran out before the cancel is a hung provider, one that ran out after it is not."""
    with any_place(lambda world: world.function(subset), subset) as world:
        run = world.once(["hang"], (2, "next", acts))
        assert run.cancelled
        assert failures == world.shared.status().failures_total


@pytest.mark.parametrize("script", ["hang", "tidy"])
def test_hung_past_both_limits(any_place, script):
    """P17: a provider that hung past its attempt's limit and the budget, in one tick or while it cleaned up, has hung."""
    with any_place(lambda world: world.function("PC"), "PC") as world:
        if script == "hang":
            run = world.once(["hang"], (2, "next", ("expire",)))
        else:
            run = world.once(["tidy"], (2, "next", ("lapse",)), (3, "next", ("lapse",)))
        assert run.error is TimeoutExceeded
        assert 1 == world.shared.status().failures_total
