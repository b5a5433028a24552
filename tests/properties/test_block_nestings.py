"""Random nestings of blocks in one task: what was in the context and what was pending is as it was before."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from resilience import (
    BreakerConfig,
    Consecutive,
    Registry,
    RejectedError,
    TimeoutExceeded,
    breaker,
    bulkhead,
    remaining,
    retry,
    timeout,
    use_registry,
)
from resilience._context import DEADLINE, PROBING, RETRYING
from resilience._policies.guard import _KEPT
from resilience.testing import ManualClock

VARIABLES = (DEADLINE, PROBING, RETRYING, _KEPT)
SECONDS = (1.0, 2.0, 5.0)

blocks = st.sampled_from(["limit", "deadline", "slot", "guard", "attempts", "waits"])
# What the innermost body does in each of its runs, the last for all that follow.
acts = st.lists(st.sampled_from(["fine", "fail", "bug", "pass", "hang", "refuse"]), min_size=1, max_size=4)


def here():
    return [variable.get() for variable in VARIABLES]


class Nesting:
    """A chain of blocks, and a script for what is inside."""

    def __init__(self, clock, kinds, script):
        self.clock = clock
        self.kinds = kinds
        self.script = list(script)
        self.pool = bulkhead(max_in_flight=9)

    async def enter(self, depth=0):
        if depth == len(self.kinds):
            await self.body()
            return
        kind, seconds = self.kinds[depth]
        before = here()
        try:
            await getattr(self, kind)(seconds, depth + 1)
        finally:
            assert before == here(), kind

    async def limit(self, seconds, depth):
        async with timeout(seconds).guard():
            await self.enter(depth)

    async def deadline(self, seconds, depth):
        with timeout(seconds).guard():
            assert remaining() <= seconds
            await self.enter(depth)

    async def slot(self, seconds, depth):
        async with self.pool.guard():
            await self.enter(depth)

    async def guard(self, seconds, depth):
        async with breaker("provider", BreakerConfig(Consecutive(3), cooldown=2)).guard():
            await self.enter(depth)

    async def attempts(self, seconds, depth):
        async for attempt in retry(3, wait=0):
            with attempt:
                await self.enter(depth)

    async def waits(self, seconds, depth):
        async for attempt in retry(2, wait=seconds):
            async with attempt:
                await self.enter(depth)

    async def body(self):
        act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if act == "fail":
            raise ConnectionError
        if act == "bug":
            raise LookupError
        if act == "pass":
            await asyncio.sleep(0)
            self.clock.advance(0.75)
            await asyncio.sleep(0)
        elif act == "hang":
            await self.clock.asleep(20)
        elif act == "refuse":
            async with AsyncExitStack() as stack:
                for _ in range(10):
                    await stack.enter_async_context(self.pool.guard())


async def driven(clock, nesting, cancel_at):
    """The nesting in a task of its own, while the time passes; cancelled at a turn, if at all."""
    seen = {}

    async def whole():
        task, before = asyncio.current_task(), here()
        try:
            await nesting.enter()
        except (ConnectionError, LookupError, TimeoutExceeded, RejectedError):
            pass
        finally:
            seen["same"] = before == here()
            seen["pending"] = task.cancelling()

    task = asyncio.create_task(whole())
    cancelled = 0
    for turn in range(1000):
        if task.done():
            break
        if turn == cancel_at:
            cancelled = int(task.cancel())
        await asyncio.sleep(0)
        if turn % 4 == 3:
            clock.advance(0.5)
    assert task.done()
    return seen, cancelled, task


@given(
    kinds=st.lists(st.tuples(blocks, st.sampled_from(SECONDS)), min_size=1, max_size=6),
    script=acts,
    cancel_at=st.one_of(st.none(), st.integers(0, 30)),
)
def test_all_is_as_it_was(kinds, script, cancel_at):
    """I10, I8, I14: context variables, pending cancels, slots, timers; and a cancel is neither lost nor invented."""
    clock = ManualClock(1000.0)
    with use_registry(Registry(clock)):

        async def main():
            nesting = Nesting(clock, kinds, script)
            seen, cancelled, task = await driven(clock, nesting, cancel_at)
            # Cancelled before its first step, it has not even begun.
            if seen:
                assert (True, cancelled) == (seen["same"], seen["pending"])
            assert bool(cancelled) == task.cancelled()
            own = nesting.pool.__dict__.get("_own_bulkhead")
            assert own is None or (0, 0) == (own.in_flight, own.waiting)
            assert 0 == clock.pending

        asyncio.run(main())
