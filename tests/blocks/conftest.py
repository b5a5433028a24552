"""What the blocks' tests stand on: a registry and clock of the test's own, and each way of writing a block."""

from __future__ import annotations

import asyncio
import gc

import pytest

from resilience import Registry, use_registry
from resilience.testing import ManualClock


class AutoClock(ManualClock):
    """A manual clock whose async sleep passes by itself too; it remembers what was slept."""

    def __init__(self, start=0.0):
        super().__init__(start)
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds):
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return AutoClock(1000.0)


@pytest.fixture
def registry(clock):
    with use_registry(Registry(clock)) as registry:
        yield registry


@pytest.fixture
def told(registry):
    """Every event of the registry, in order."""
    seen = []
    registry.subscribe(seen.append)
    return seen


@pytest.fixture
def no_gc():
    """The garbage collector is off: only reference counts free anything."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def drive(coroutine):
    """Run a coroutine that never has to wait."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


class Loop:
    """A loop of attempts in one of its forms; `repeat(policy, body)` gives what the last body returned."""

    def __init__(self, form):
        self.form = form

    def __call__(self, policy, body):
        if self.form == "for":
            return self.plain(policy, body)
        return asyncio.run(self.suspending(policy, body))

    def driven(self, policy, body):
        """The same without an event loop, which has rings of its own; nothing may have to wait."""
        if self.form == "for":
            return self.plain(policy, body)
        return drive(self.suspending(policy, body))

    def plain(self, policy, body):
        answer = "no attempt"
        for attempt in policy:
            with attempt:
                answer = body(attempt)
        return answer

    async def suspending(self, policy, body):
        answer = "no attempt"
        async for attempt in policy:
            if self.form == "async for":
                with attempt:
                    answer = body(attempt)
            else:
                async with attempt as inside:
                    await asyncio.sleep(0)
                    answer = body(inside)
        return answer


@pytest.fixture(params=["for", "async for", "async with"])
def repeat(request, registry):
    """A loop of attempts, in each form."""
    return Loop(request.param)


@pytest.fixture
def plainly(registry):
    """A loop of attempts, as plain code has it."""
    return Loop("for")


@pytest.fixture(params=["with", "async with"])
def inside(request, registry):
    """Run `body(block)` inside a block of either form; the exception leaves."""

    def plain(block, body):
        with block as entered:
            return body(entered)

    async def suspending(block, body):
        async with block as entered:
            await asyncio.sleep(0)
            return body(entered)

    def run(block, body):
        return plain(block, body) if request.param == "with" else asyncio.run(suspending(block, body))

    def driven(block, body):
        return plain(block, body) if request.param == "with" else drive(suspending(block, body))

    run.driven = driven
    return run


@pytest.fixture
def failing():
    """`failing(error, ..., "fine")`: a body that raises or returns by script, and remembers its attempts."""

    class Script:
        def __init__(self, *steps):
            self.steps = list(steps)
            self.numbers = []

        def __call__(self, attempt):
            self.numbers.append(attempt.number)
            step = self.steps.pop(0)
            if isinstance(step, BaseException):
                raise step
            return step

    return Script


def down():
    return ConnectionError("down")


@pytest.fixture(name="down")
def down_fixture():
    return down
