"""An event loop in virtual time: where it would sleep, a number grows instead."""

from __future__ import annotations

import asyncio
import selectors
import time

import pytest

from resilience import Registry, use_registry


class VirtualSelector(selectors.SelectSelector):
    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        assert timeout is not None, "nobody will ever wake this event loop"
        self._loop.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` is its time, and what `time.monotonic` reads while a test uses one."""

    now = 100.0

    def __init__(self):
        super().__init__(VirtualSelector(self))

    def time(self):
        return self.now


@pytest.fixture
def virtual(monkeypatch):
    """Runs a coroutine in a new loop of virtual time; `virtual.loop` is the latest."""

    class Runner:
        loop = None

        def __call__(self, coroutine, *, close=True):
            loop = self.loop = VirtualLoop()
            monkeypatch.setattr(time, "monotonic", loop.time)
            try:
                return loop.run_until_complete(coroutine)
            finally:
                if close:
                    loop.close()

    return Runner()


@pytest.fixture(autouse=True)
def registry():
    with use_registry(Registry()) as registry:
        yield registry
