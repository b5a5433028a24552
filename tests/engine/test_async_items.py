"""What an async generator with a plan is to its wrapper, driven without one."""

from __future__ import annotations

import asyncio

import pytest

from resilience._core.outcome import Outcome
from resilience._engine.hand_out import Box, Closed, hand_out
from resilience._engine.streams import AsyncItems


class Call:
    """As much of a call as the items need."""

    bypassed = False

    def __init__(self):
        self.box = Box()

    def begin_step(self):
        return None

    def end_step(self):
        """Nothing."""


def items_of(plan):
    """The items of a plan, a coroutine function of its call."""

    def begin():
        call = Call()
        return call, plan(call)

    return AsyncItems(begin)


async def two(call):
    await hand_out(call.box, "first")
    await hand_out(call.box, "second")
    return Outcome()


def run(main):
    return asyncio.run(main())


def test_items_and_their_end():
    """Handed out one by one; then it has ended, and stays so."""

    async def main():
        items = items_of(two)
        assert ["first", "second"] == [await items.__anext__(), await items.asend(None)]
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await items.__anext__()

    run(main)


@pytest.mark.parametrize("how", ["athrow", "aclose"])
def test_never_begun(how):
    """Thrown into or closed before its first item, the plan is not even made."""

    async def main():
        items = AsyncItems(pytest.fail)
        if how == "athrow":
            with pytest.raises(KeyError):
                await items.athrow(KeyError())
        else:
            await items.aclose()
        with pytest.raises(StopAsyncIteration):
            await items.__anext__()

    run(main)


def test_thrown_in():
    """The plan may answer with an item, or end."""

    async def survive(call):
        try:
            await hand_out(call.box, "first")
        except KeyError:
            await hand_out(call.box, "after all")
        return Outcome()

    async def main():
        items = items_of(survive)
        await items.__anext__()
        assert "after all" == await items.athrow(KeyError())
        with pytest.raises(StopAsyncIteration):
            await items.__anext__()

    run(main)


def test_closed():
    """The plan is thrown an end of our own, which goes no further."""
    seen = []

    async def watch(call):
        try:
            await hand_out(call.box, "first")
        except Closed:
            # It may still await.
            await asyncio.sleep(0)
            seen.append("closed")
            raise

    async def main():
        items = items_of(watch)
        await items.__anext__()
        await items.aclose()
        await items.aclose()

    run(main)
    assert ["closed"] == seen


def test_a_plan_that_fails_as_it_is_closed():
    """Its error leaves."""

    async def fail(call):
        try:
            await hand_out(call.box, "first")
        except Closed:
            return Outcome(None, ConnectionError("in the clean-up"))

    async def main():
        items = items_of(fail)
        await items.__anext__()
        with pytest.raises(ConnectionError, match="in the clean-up"):
            await items.aclose()

    run(main)


def test_a_plan_that_does_not_let_itself_be_closed():
    """As Python says it of a generator."""

    async def stay(call):
        while True:
            try:
                await hand_out(call.box, "item")
            except Closed:
                continue

    async def main():
        items = items_of(stay)
        await items.__anext__()
        with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
            await items.aclose()

    run(main)
