"""`timeout(...).guard()`: what it interrupts, what it only tells, and who may leave it."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
import weakref
from contextlib import asynccontextmanager

import pytest

from resilience import (
    BreakerConfig,
    ConfigurationError,
    Consecutive,
    TimeoutExceeded,
    breaker,
    detached,
    remaining,
    retry,
    timeout,
)
from resilience._context import DEADLINE
from resilience._core.events import TimedOut
from resilience._engine import timers


def hang():
    return asyncio.get_running_loop().create_future()


async def turns(count=4):
    for _ in range(count):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------------------------------- what is inside
def test_everything_inside_sees_the_limit(inside, clock):
    """As long as the block lasts, and clipped by the one around it."""

    def body(block):
        seen = [remaining(), block.seconds]
        clock.advance(2)
        with timeout(30).guard():
            seen.append(remaining())
        return [*seen, remaining()]

    assert [5.0, 5.0, 3.0, 3.0] == inside(timeout(5).guard(), body)
    assert DEADLINE.get() is None


def test_what_leaves_the_block_leaves_as_it_is(inside):
    """Any exception, the very object."""
    error = LookupError("mine")

    def body(block):
        raise error

    with pytest.raises(LookupError) as caught:
        inside(timeout(5).guard(), body)
    assert error is caught.value
    assert (None, None) == (error.__cause__, error.__context__)


def test_functions_inside_are_bounded(registry, clock):
    """`pass_as` hands on what is left."""

    @timeout(60, pass_as="timeout")
    def fetch(timeout=None):
        return timeout

    with timeout(5).guard():
        clock.advance(1)
        assert 4.0 == fetch()


def test_waits_inside_are_bounded(registry, clock):
    """A retry does not wait beyond it."""

    @retry(2, wait=6, idempotent=True)
    def fetch():
        raise ConnectionError("down")

    with pytest.raises(ConnectionError) as caught, timeout(5).guard():
        fetch()
    assert ["retry stopped: a wait of 6 s does not fit the deadline"] == caught.value.__notes__


def test_a_limit_that_is_past_before_the_block(inside, clock):
    """The block does not begin; the one around it is told of; the same guard can be entered later."""
    block = timeout(5).guard()
    with timeout(1).guard() as outer:
        clock.advance(1)
        around = DEADLINE.get()
        context = contextvars.copy_context()
        with pytest.raises(TimeoutExceeded) as caught:
            context.run(inside, block, lambda block: pytest.fail("it is too late"))
        assert around is DEADLINE.get()
    assert (1.0, True, False) == (caught.value.seconds, outer.expired, block.expired)
    assert "fine" == inside(block, lambda block: "fine")


def test_detached_work_inside(registry):
    """Sheds it."""
    with timeout(5).guard(), detached():
        assert remaining() is None


# ---------------------------------------------------------------------------------------------- plain code
def test_a_plain_block_interrupts_nothing(registry, clock, told):
    """What a late block has worked out is not thrown away; the block tells."""
    with timeout(5).guard() as block:
        clock.advance(4)
        early = block.expired
        clock.advance(1)
        late = block.expired
        answer = "worked out"

    assert ("worked out", False, True, True) == (answer, early, late, block.expired)
    assert [] == told


def test_a_block_that_ended_in_time_stays_so(inside, clock):
    """However long ago that was."""
    block = timeout(5).guard()
    before = block.expired
    inside(block, lambda block: clock.advance(4))
    clock.advance(60)

    assert (False, False) == (before, block.expired)


def test_a_guard_that_is_used_again(inside, clock):
    """Tells of its last use."""
    block = timeout(5).guard()
    inside(block, lambda block: None)

    with block:
        early = block.expired
        clock.advance(5)
        assert (False, True) == (early, block.expired)


def test_a_plain_block_in_async_code(registry, clock):
    """It is the plain kind: nobody is cancelled."""

    async def main():
        with timeout(5).guard():
            clock.advance(6)
            await turns()
            return asyncio.current_task().cancelling(), clock.pending

    assert (0, 0) == asyncio.run(main())


# ---------------------------------------------------------------------------------------------- what is interrupted
def test_an_async_block_is_interrupted(registry, clock, told):
    """A TimeoutExceeded leaves it, an event tells, and the task is as it was."""

    async def main():
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(clock.advance, 5)
        with pytest.raises(TimeoutExceeded) as caught:
            async with timeout(5).guard() as block:
                await hang()
        await asyncio.sleep(0)
        return caught.value, block.expired, task.cancelling()

    error, expired, cancelling = asyncio.run(main())

    assert ("budget", 5.0) == (error.scope.value, error.seconds)
    assert isinstance(error.__cause__, asyncio.CancelledError)
    assert (True, 0) == (expired, cancelling)
    name = f"{__name__}:test_an_async_block_is_interrupted.<locals>.main"
    assert [(TimedOut, name, 5.0)] == [(type(event), event.name, event.seconds) for event in told]


def test_a_cancel_of_somebody_else_wins(registry, clock):
    """Also where both come in one turn."""

    async def limited():
        async with timeout(5).guard():
            await hang()

    async def main():
        task = asyncio.create_task(limited())
        await turns()
        task.cancel()
        clock.advance(5)
        await asyncio.wait([task])
        return task.cancelled(), clock.pending

    assert (True, 0) == asyncio.run(main())


def test_a_block_that_swallows_its_interruption(registry, clock):
    """Has come to its end; no cancel is owed any more."""

    async def main():
        asyncio.get_running_loop().call_soon(clock.advance, 5)
        async with timeout(5).guard() as block:
            try:
                await hang()
            except asyncio.CancelledError:
                pass
        await asyncio.sleep(0)
        return block.expired, asyncio.current_task().cancelling()

    assert (True, 0) == asyncio.run(main())


def test_nested_blocks(registry, clock):
    """The shorter one ends first, and only that one."""

    async def main():
        asyncio.get_running_loop().call_soon(clock.advance, 1)
        async with timeout(5).guard() as outer:
            with pytest.raises(TimeoutExceeded) as caught:
                async with timeout(1).guard():
                    await hang()
            return caught.value.seconds, outer.expired, remaining()

    assert (1.0, False, 4.0) == asyncio.run(main())


@pytest.mark.parametrize("form", ["guard", "decorated"])
@pytest.mark.parametrize(("counts", "failures"), [(True, 1), (False, 0)])
def test_what_is_cut_short_is_evidence(registry, clock, form, counts, failures):
    """P17: a breaker inside counts the attempt that our limit has cut short, unless the limit is a client's."""
    ref = breaker("provider", BreakerConfig(Consecutive(3)))

    @ref
    async def decorated():
        await hang()

    async def guarded():
        async with ref.guard():
            await hang()

    async def main():
        asyncio.get_running_loop().call_soon(clock.advance, 5)
        async with timeout(5, counts=counts).guard():
            await (decorated() if form == "decorated" else guarded())

    with pytest.raises(TimeoutExceeded):
        asyncio.run(main())
    assert failures == ref.status().failures_total


# ---------------------------------------------------------------------------------------------- one use at a time
@pytest.mark.parametrize("form", ["with", "async with"])
def test_a_block_in_use_is_not_entered(registry, clock, form):
    """Neither within itself nor beside; afterwards it is."""
    block = timeout(5).guard()

    async def main():
        if form == "with":
            with block, pytest.raises(RuntimeError, match=r"entered already: call guard\(\) for each use"):
                block.__enter__()
            with block:
                return remaining()
        async with block:
            with pytest.raises(RuntimeError, match=r"entered already: call guard\(\) for each use"):
                await block.__aenter__()
        async with block:
            return remaining()

    assert 5.0 == asyncio.run(main())
    assert "<TimeoutBlock 5 s>" == repr(block)
    with block:
        assert "<TimeoutBlock 5 s, entered>" == repr(block)


def test_an_async_block_needs_asyncio(registry):
    """Under another loop it says so, and nothing is left behind."""
    block = timeout(5).guard()

    async def scenario():
        async with block:
            pytest.fail("it can't be interrupted here")

    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        scenario().send(None)
    assert DEADLINE.get() is None
    with block:
        assert remaining() is not None


def test_a_block_is_not_pickled(registry):
    """It belongs to what is under way; the policy travels."""
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(timeout(5).guard())
    with pickle.loads(pickle.dumps(timeout(5))).guard():
        assert 5.0 == remaining()


# ---------------------------------------------------------------------------------------------- left elsewhere
def in_own_task(step):
    """Run one step of a block in a task of its own, which has ended when it is done."""
    return asyncio.create_task(step)


def test_a_block_that_is_left_in_another_task(registry, clock):
    """As fixtures do: nobody is cancelled when the time is up, nor told of a timeout, and no timer is left."""

    async def main():
        block = timeout(5).guard()
        await in_own_task(block.__aenter__())
        before = DEADLINE.get()
        clock.advance(6)
        await turns()
        await in_own_task(block.__aexit__(None, None, None))
        return before, block.expired, DEADLINE.get(), clock.pending

    assert (None, True, None, 0) == asyncio.run(main())


@pytest.mark.parametrize("ended", [True, False])
def test_a_cancel_where_a_block_is_left_is_not_its_timeout(registry, clock, ended):
    """Whoever leaves it was not interrupted by it, whatever became of the one that entered."""

    async def main():
        block, stay = timeout(5).guard(), asyncio.Event()
        if ended:
            stay.set()
        task = asyncio.create_task(enter_and_stay(block, stay, []))
        await turns()
        clock.advance(6)
        left = await block.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        stay.set()
        await task
        return left

    assert asyncio.run(main()) is None


def test_a_limit_whose_task_has_ended_is_no_evidence(registry, clock):
    """P17: it interrupts nobody any more, so what somebody else cancels inside is the caller's doing."""
    ref = breaker("provider", BreakerConfig(Consecutive(3)))

    async def guarded():
        async with ref.guard():
            await hang()

    async def main():
        tasks, block = [], timeout(5).guard()

        async def enter():
            await block.__aenter__()
            tasks.append(asyncio.create_task(guarded()))
            await turns()

        await in_own_task(enter())
        clock.advance(5)
        await turns()
        tasks[0].cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())
    assert 0 == ref.status().failures_total


async def enter_and_stay(block, stay, log):
    await block.__aenter__()
    log.append("entered")
    try:
        await stay.wait()
    except asyncio.CancelledError:
        log.append(("cancelled", asyncio.current_task().cancelling()))
        await asyncio.sleep(0)
    log.append(("stayed", asyncio.current_task().cancelling(), DEADLINE.get()))


def test_who_entered_is_left_alone_once_the_block_is_left(registry, clock):
    """The timer goes with the block, wherever that is left; the deadline that stays in the context is no more."""

    async def main():
        block, stay, log = timeout(5).guard(), asyncio.Event(), []
        task = asyncio.create_task(enter_and_stay(block, stay, log))
        await turns()
        await block.__aexit__(None, None, None)
        clock.advance(6)
        await turns()
        stay.set()
        await task
        return log, clock.pending

    (entered, stayed), pending = asyncio.run(main())

    assert ("entered", "stayed", 0, 0) == (entered, *stayed[:2], pending)
    assert stayed[2].left is True


@pytest.mark.parametrize("delivered", [True, False])
def test_what_is_owed_to_who_entered_is_taken_back(registry, clock, delivered):
    """It was interrupted, being inside; who leaves the block afterwards takes the cancel back, and has no timeout."""

    async def main():
        block, stay, log = timeout(5).guard(), asyncio.Event(), []
        task = asyncio.create_task(enter_and_stay(block, stay, log))
        await turns()
        clock.advance(5)
        if delivered:
            await asyncio.sleep(0)
        cancelling = task.cancelling()
        await block.__aexit__(None, None, None)
        left = cancelling, task.cancelling()
        stay.set()
        await task
        return left, log[1][0], log[-1][:2], timers._owed.get(task)

    assert ((1, 0), "cancelled", ("stayed", 0), 0) == asyncio.run(main())


def test_a_block_that_is_left_in_another_thread(registry, clock):
    """The loop is told, which alone may touch its timers."""

    async def main():
        block = timeout(5).guard()
        await block.__aenter__()
        seen = []

        def leave():
            try:
                asyncio.run(block.__aexit__(None, None, None))
            finally:
                seen.append(DEADLINE.get())

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join(5)
        await turns()
        timers_left = clock.pending
        clock.advance(6)
        await turns()
        return seen, asyncio.current_task().cancelling(), timers_left, remaining()

    assert ([None], 0, 0, None) == asyncio.run(main())


def test_a_block_whose_loop_is_gone(registry):
    """Left from outside, or by the interpreter: there is nothing left to be told."""
    block = timeout(5).guard()

    async def enter():
        await block.__aenter__()

    asyncio.run(enter())
    with pytest.raises(StopIteration):
        block.__aexit__(None, None, None).send(None)
    with block:
        assert remaining() is not None


def test_a_context_does_not_collect_what_is_left_elsewhere(registry, clock):
    """A server may enter many in one context that others leave."""

    async def main():
        for _ in range(3):
            block = timeout(5).guard()
            await block.__aenter__()
            await in_own_task(block.__aexit__(None, None, None))
        with timeout(5).guard():
            return DEADLINE.get().outer

    assert asyncio.run(main()) is None


def test_blocks_that_are_not_left_in_turn(registry, clock):
    """As generators may do: each takes away its own."""

    async def main():
        first, second = timeout(9).guard(), timeout(5).guard()
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        between = remaining()
        await second.__aexit__(None, None, None)
        return between, DEADLINE.get()

    assert (5.0, None) == asyncio.run(main())


def test_an_inherited_limit_ends_with_its_block(registry, clock):
    """A task that was started inside and outlives it is bounded no more, and never cancelled by it."""

    async def main():
        go = asyncio.Event()

        async def child():
            inside = remaining()
            await go.wait()
            return inside, remaining()

        async with timeout(5).guard():
            task = asyncio.create_task(child())
            await turns()
        clock.advance(6)
        go.set()
        return await task

    assert (5.0, None) == asyncio.run(main())


def test_fixtures_made_of_generators(registry, clock):
    """Set up in one task, used in another, torn down in a third."""

    async def fixture():
        async with timeout(5).guard() as block:
            yield block

    async def main():
        generator = fixture()
        block = await in_own_task(anext(generator))
        clock.advance(6)
        await turns()
        with pytest.raises(StopAsyncIteration):
            await in_own_task(anext(generator))
        return block.expired, clock.pending

    assert (True, 0) == asyncio.run(main())


def test_a_limit_in_a_context_manager_of_the_users(registry, clock):
    """In one task a generator's block interrupts what stands in the `with` statement."""

    @asynccontextmanager
    async def limited():
        async with timeout(5).guard():
            yield

    async def main():
        asyncio.get_running_loop().call_soon(clock.advance, 5)
        async with limited():
            await hang()

    with pytest.raises(TimeoutExceeded):
        asyncio.run(main())


def test_a_coroutine_that_is_closed_inside(registry, clock):
    """No loop runs then, and no timer is left to it."""

    async def limited():
        async with timeout(5).guard():
            await hang()

    async def main():
        task = asyncio.create_task(limited())
        await turns()
        coroutine = task.get_coro()
        task.cancel()
        await asyncio.wait([task])
        coroutine.close()
        return clock.pending

    assert 0 == asyncio.run(main())


@pytest.mark.parametrize("form", ["with", "async with"])
def test_a_block_that_is_never_left(registry, clock, no_gc, form):
    """Is over when nobody can leave it any more: nobody is cancelled by it, and nothing inside is bounded."""

    async def main():
        block = timeout(5).guard()
        if form == "with":
            block.__enter__()
        else:
            await block.__aenter__()
        before = remaining()
        del block
        after = remaining()
        clock.advance(6)
        await turns()
        return before, after, asyncio.current_task().cancelling()

    assert (5.0, None, 0) == asyncio.run(main())


# ---------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        (timeout(5, per_attempt=1), ["per_attempt must be left out for guard(): a block in a retry's loop", "got 1.0"]),
        (
            timeout(5, pass_as="t"),
            ["pass_as must be left out for guard(): what is inside the block asks remaining(), got 't'"],
        ),
        (timeout(per_attempt=1), ["budget must be given for guard()", "per_attempt must be left out"]),
    ],
)
def test_limits_that_a_block_can_not_have(registry, policy, lines):
    """One error names them all, with the cure."""
    with pytest.raises(ConfigurationError) as caught:
        policy.guard()

    for line in lines:
        assert line in str(caught.value)


# ---------------------------------------------------------------------------------------------- what is kept
class Payload:
    pass


@pytest.mark.parametrize("form", ["with", "async with"])
@pytest.mark.parametrize("ending", ["fine", "error", "past"])
def test_nothing_outlives_the_block(registry, clock, no_gc, form, ending):
    """What it held dies with its exception. (On an interruption asyncio keeps its CancelledError, as for its own timeout.)"""

    async def limited(payload):
        block = timeout(5).guard()
        if form == "with":
            with block:
                if ending == "error":
                    raise LookupError
        else:
            async with block:
                if ending == "error":
                    raise LookupError

    async def call():
        payload = Payload()
        reference = weakref.ref(payload)
        try:
            with timeout(1).guard():
                if ending == "past":
                    clock.advance(1)
                await limited(payload)
        except (LookupError, TimeoutExceeded) as error:
            ended = type(error)
        else:
            ended = None
        del payload
        return ended, reference()

    expected = {"fine": None, "error": LookupError, "past": TimeoutExceeded}[ending]
    assert (expected, None) == asyncio.run(call())
