"""What the contract's tests stand on: a world (threads or asyncio), a clock that obeys, and a registry of the test's own.

`env` runs each test four times: sync and async, over the plan (a manual clock) and over
the straight path (the system clock, frozen).
"""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from streaming import AsyncConsumer, Consumer, asynchronous

from resilience import BreakerConfig, Consecutive, Registry, use_registry
from resilience.testing import ManualClock, use_clock

REAL_MONOTONIC = time.monotonic


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


class RealTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that a frozen `time.monotonic` does not stop."""

    def time(self):
        return REAL_MONOTONIC()


class Env:
    """One way of calling: sync or async, with a clock that moves when told."""

    def __init__(self, is_async, path, clock, advance, registry):
        self.is_async = is_async
        self.path = path
        self.clock = clock
        self.advance = advance
        self.registry = registry
        self._runner = None

    def function(self, body):
        """`body(arg, key=...)` as a plain or an async function with a signature of its own."""
        if self.is_async:

            async def call(arg=None, *, key=None):
                return body(arg) if key is None else body(arg, key=key)

        else:

            def call(arg=None, *, key=None):
                return body(arg) if key is None else body(arg, key=key)

        return call

    def stream(self, body):
        """A generator function as one of this world."""
        return asynchronous(body) if self.is_async else body

    def open(self, fn, *args, **kwargs):
        """A consumer of the stream that a decorated function gives."""
        stream = fn(*args, **kwargs)
        return AsyncConsumer(stream, self.loop_runner.run) if self.is_async else Consumer(stream)

    def run(self, awaitable_or_value):
        """The value of what a decorated function returned."""
        if self.is_async:
            return self.loop_runner.run(_await(awaitable_or_value))
        return awaitable_or_value

    def call(self, fn, *args, **kwargs):
        """Call a decorated function of this world to its end."""
        if self.is_async:

            async def main():
                return await fn(*args, **kwargs)

            return self.loop_runner.run(main())
        return fn(*args, **kwargs)

    def fails(self, fn, *args, **kwargs):
        """Call and swallow the exception, which is returned."""
        try:
            self.call(fn, *args, **kwargs)
        except Exception as exc:
            return exc
        return None

    @property
    def loop_runner(self):
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=RealTimeLoop)
        return self._runner

    def close(self):
        if self._runner is not None:
            self._runner.close()


async def _await(thing):
    return await thing


class FrozenTime:
    """`time.monotonic` and `time.time_ns` stand still until advanced."""

    def __init__(self, start=1000.0):
        self.now = start

    def advance(self, seconds):
        self.now += seconds

    def monotonic(self):
        return self.now

    def time_ns(self):
        return round(self.now * 1e9)

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def clock(registry):
    """A manual clock that also makes async sleeps pass by themselves."""
    clock = AutoClock(100.0)
    with use_clock(clock, registry):
        yield clock


@pytest.fixture
def manual(registry):
    """A manual clock whose async sleeps wait for `advance`."""
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        yield clock


def _make_env(is_async, path, registry, monkeypatch):
    if path == "plan":
        clock = AutoClock(1000.0)
        with use_clock(clock, registry):
            env = Env(is_async, path, clock, clock.advance, registry)
            yield env
            env.close()
    else:
        frozen = FrozenTime()
        monkeypatch.setattr(time, "monotonic", frozen.monotonic)
        monkeypatch.setattr(time, "time_ns", frozen.time_ns)
        env = Env(is_async, path, None, frozen.advance, registry)
        yield env
        monkeypatch.undo()
        env.close()


@pytest.fixture(
    params=[(False, "plan"), (False, "straight"), (True, "plan"), (True, "straight")],
    ids=["sync-plan", "sync-straight", "async-plan", "async-straight"],
)
def env(request, registry, monkeypatch):
    """Each of the four ways a call can go."""
    is_async, path = request.param
    yield from _make_env(is_async, path, registry, monkeypatch)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request, registry, monkeypatch):
    """Both worlds over a manual clock that passes by itself."""
    yield from _make_env(request.param, "plan", registry, monkeypatch)


class Remote:
    """A provider that counts what reaches it and answers by script: an exception is raised, anything else returned."""

    def __init__(self, *script, then="ok"):
        self.script = list(script)
        self.then = then
        self.calls = 0
        self.seen = []

    def __call__(self, arg=None, **kwargs):
        self.calls += 1
        self.seen.append(arg)
        answer = self.script.pop(0) if self.script else self.then
        if isinstance(answer, type) and issubclass(answer, BaseException):
            raise answer("scripted")
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer()
        return answer


@pytest.fixture
def remote():
    """Make a scripted provider: `remote(ConnectionError, "ok")`."""
    return Remote


@pytest.fixture
def trips_at():
    """`trips_at(n, **settings)`: a config that opens after n failures in a row."""

    def make(failures=1, **settings):
        settings.setdefault("cooldown", 30)
        return BreakerConfig(Consecutive(failures), **settings)

    return make


class HttpError(Exception):
    """An exception with an HTTP status, as client libraries have it."""

    def __init__(self, status, **headers):
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def http_error():
    return HttpError


@pytest.fixture
def least_chance(monkeypatch):
    """Every draw is the least: a wait that a server has set is exactly as long as it asked for."""
    monkeypatch.setattr("resilience._policies.retry._chance", lambda: 0.0)


@pytest.fixture
def events(registry):
    """Every event of the registry, as it was delivered."""
    from resilience._core import events as kinds

    seen = []
    every = [kind for kind in vars(kinds).values() if isinstance(kind, type) and issubclass(kind, kinds.Event)]
    registry.subscribe(seen.append, *every)
    return seen


@pytest.fixture
def no_gc():
    """The garbage collector is off: only reference counts free anything."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture(params=["plan", "straight"])
def ticking(request, registry, monkeypatch):
    """A clock with `advance` for both paths: the manual clock, and the system's clock frozen."""
    if request.param == "plan":
        clock = AutoClock(1000.0)
        with use_clock(clock, registry):
            yield clock
    else:
        frozen = FrozenTime()
        monkeypatch.setattr(time, "monotonic", frozen.monotonic)
        monkeypatch.setattr(time, "time_ns", frozen.time_ns)
        yield frozen
        monkeypatch.undo()
