"""The ways to use a real breaker: by permits, by functions and guards, by coroutines; on the straight path and not."""

from __future__ import annotations

import asyncio
import time
import types
from contextlib import contextmanager
from contextvars import Context

from resilience import CircuitOpenError, OnOpen, Registry, breaker
from resilience._words import ProbeEnd
from resilience.testing import ManualClock

START = 1000.0


class Difference(BaseException):
    """Outside of `Exception`, for it is raised inside guarded functions too."""


class Scripted(Exception):
    """A failed attempt, with what it means."""

    def __init__(self, fault):
        self.fault = fault


class Stopped(BaseException):
    """The caller's own stop signal."""


class Answer:
    """A returned value, with what it means."""

    def __init__(self, fault=None):
        self.fault = fault

    def __repr__(self):
        return f"Answer({self.fault})"


def fault_of(thing):
    return getattr(thing, "fault", None)


SKIPPED = Answer()
"""What a bypassed call returns."""
FAIL, BYPASS, JUDGED, PER_CALL = range(4)


class Permits:
    """By permits of the public class, on a clock moved by hand: nothing here knows of calls inside of calls."""

    nests, steps = False, 0

    def __init__(self, config):
        self.clock = ManualClock(START)
        self.registry = Registry(clock=self.clock)
        self.now, self.advance = self.clock.monotonic, self.clock.advance
        self.breaker = self.registry.breaker("remote", config)

    @contextmanager
    def installed(self):
        yield

    def begin(self, site):
        permit = self.breaker.try_acquire(OnOpen.BYPASS if site == BYPASS else OnOpen.FAIL)
        return None if permit.bypassed else permit

    def finish(self, permit, result):
        fault = fault_of(result)
        if isinstance(result, Stopped):
            self.breaker.release(permit, ProbeEnd.ABANDONED)
        elif isinstance(result, CircuitOpenError):
            self.breaker.on_failure(permit, result)
        elif fault is None:
            self.breaker.on_success(permit)
        else:
            self.breaker.on_failure(permit, fault.kind if fault.plain else fault)

    again = finish

    def call(self, site, attempt, fresh):
        permit = self.begin(site)
        if permit is None:
            return SKIPPED
        result = attempt()
        self.finish(permit, result)
        return result


class Functions:
    """By decorated functions and, for what is in flight beside other calls, by guards."""

    nests, straight, steps = True, False, 0

    def __init__(self, config):
        self.begin_time(config)
        make = {"config": config, "registry": self.registry, "classify": fault_of}
        self.refs = (
            breaker("remote", **make),
            breaker("remote", on_open=OnOpen.BYPASS, fallback=SKIPPED, **make),
            breaker("remote", classify_result=fault_of, **make),
            breaker("remote", account="call", **make),
        )
        self.functions = [ref(self.remote()) for ref in self.refs]
        self.breaker = self.registry.get("remote")

    def begin_time(self, config):
        self.clock = ManualClock(START)
        self.registry = Registry(clock=self.clock)
        self.now, self.advance = self.clock.monotonic, self.clock.advance

    @contextmanager
    def installed(self):
        yield

    def remote(self):
        def remote(attempt):
            result = attempt()
            if isinstance(result, BaseException):
                raise result
            return result

        return remote

    def call(self, site, attempt, fresh):
        return Context().run(self.functions[site], attempt) if fresh else self.functions[site](attempt)

    def begin(self, site):
        block, context = self.refs[site].guard(), Context()
        if context.run(block.__enter__):
            return context, block
        context.run(block.__exit__, None, None, None)
        return None

    def finish(self, flight, result):
        context, block = flight
        error = result if isinstance(result, BaseException) else None
        context.run(block.__exit__, type(error) if error else None, error, None)

    def again(self, flight, result):
        """A block that has been left has nothing to report."""


class Coroutines(Functions):
    """By decorated coroutine functions, many in flight at one time; each caller has its own context."""

    def remote(self):
        async def remote(attempt):
            result = attempt()
            if result is None:
                result = await pause()
            if isinstance(result, BaseException):
                raise result
            return result

        return remote

    def call(self, site, attempt, fresh):
        coroutine = self.functions[site](attempt)
        try:
            Context().run(coroutine.send, None) if fresh else coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("nothing suspends here")

    def begin(self, site):
        coroutine, context = self.functions[site](nothing), Context()
        try:
            context.run(coroutine.send, None)
        except StopIteration:
            return None
        return context, coroutine

    def finish(self, flight, result):
        context, coroutine = flight
        try:
            if not isinstance(result, Stopped):
                context.run(coroutine.send, result)
            elif self.now() % 1:
                context.run(coroutine.close)
            else:
                context.run(coroutine.throw, asyncio.CancelledError())
        except (StopIteration, Scripted, asyncio.CancelledError) as end:
            if (end.value if isinstance(end, StopIteration) else end) is not result and not isinstance(result, Stopped):
                raise Difference(f"gave {end!r}, not {result!r}") from None


@types.coroutine
def pause():
    return (yield)


def nothing():
    return None


class OnSystemTime:
    """On the straight path: by the system's clock, with a number behind it."""

    straight = True

    def begin_time(self, config):
        self.seconds = START
        with self.installed():
            self.registry = Registry()
            self.registry.breaker("remote", config)

    def now(self):
        return self.seconds

    def advance(self, seconds):
        self.seconds += seconds

    @contextmanager
    def installed(self):
        before = time.monotonic, time.time_ns
        time.monotonic, time.time_ns = self.now, lambda: round(self.seconds * 1e9)
        try:
            yield
        finally:
            time.monotonic, time.time_ns = before


class StraightFunctions(OnSystemTime, Functions):
    pass


class StraightCoroutines(OnSystemTime, Coroutines):
    pass


WAYS = {
    "permits": Permits,
    "sync-straight": StraightFunctions,
    "sync-plan": Functions,
    "async-straight": StraightCoroutines,
    "async-plan": Coroutines,
}
