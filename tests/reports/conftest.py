"""What the tests of public reports stand on: its own registry and clock, a scripted remote, both worlds."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import Registry, use_registry
from resilience.testing import ManualClock, use_clock


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def clock(registry):
    """A manual clock, standing at 100."""
    with use_clock(ManualClock(100.0), registry) as clock:
        yield clock


class Remote:
    """A provider that counts what reaches it and answers by script: an exception is raised, anything else returned."""

    def __init__(self, *script, then="ok"):
        self.script = list(script)
        self.then = then
        self.calls = 0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            self.calls += 1
            answer = self.script.pop(0) if self.script else self.then
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        return answer


@pytest.fixture
def remote():
    """Make a scripted provider: `remote(ConnectionError, "ok")`."""
    return Remote


class World:
    """One way of calling: plain functions, or coroutine functions that fail after they have been suspended."""

    def __init__(self, is_async):
        self.is_async = is_async

    def function(self, body):
        """`body` as a function of this world."""
        if self.is_async:

            async def call():
                await asyncio.sleep(0)
                return body()

        else:

            def call():
                return body()

        return call

    def calling(self, fn):
        """A function of this world that calls a decorated one."""
        if self.is_async:

            async def call():
                return await fn()

        else:

            def call():
                return fn()

        return call

    def trying(self, fn, times):
        """A function of this world that calls a decorated one `times` times; it returns the types of the results."""
        if self.is_async:

            async def call():
                return [type(result) for result in [await _outcome(fn) for _ in range(times)]]

            async def _outcome(fn):
                try:
                    return await fn()
                except Exception as exc:
                    return exc

        else:

            def call():
                return [type(result) for result in [_outcome(fn) for _ in range(times)]]

            def _outcome(fn):
                try:
                    return fn()
                except Exception as exc:
                    return exc

        return call

    def call(self, fn):
        """Call a decorated function to its end."""
        if not self.is_async:
            return fn()

        async def main():
            return await fn()

        return asyncio.run(main())

    def fails(self, fn):
        """Call, and return the exception that came."""
        try:
            self.call(fn)
        except BaseException as exc:
            return exc
        raise AssertionError("the call did not fail")


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request):
    """Both worlds."""
    return World(request.param)


@pytest.fixture
def spin():
    """`await spin()`: let every task of the loop run as far as it can."""

    async def turns():
        for _ in range(20):
            await asyncio.sleep(0)

    return turns
