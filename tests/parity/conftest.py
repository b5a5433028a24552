"""One scenario, every way of running it, one trace.

A scenario is a coroutine function of a `Stage`. It is run six ways: by threads and by
asyncio, each

- `straight`: over the compiled straight path, by the system's clock;
- `plan`: every call through the plan, by the system's clock. The `shape` of each assembly
  is set to None, which is what it is for policies that the straight path does not know.
  That changes neither clock nor policy, and it reaches functions without a breaker too.
  (`unless=` or `account=` exist on a breaker only, and are one more thing that runs; a
  manual clock does not move by itself.)
- `clock`: wrappers compiled as for `straight`, sent to the plan by `testing.use_clock` with
  a clock equal in behaviour that is no `SystemClock`: the switch that tests of users turn.

Time is virtual: `time.monotonic`, `time.time_ns` and `time.sleep` read and move a number,
and the event loop moves it on where it would have slept. So nothing waits, and even
timers of the straight path fire at an exact moment. A worker thread that outlives its
deadline stands still until the scenario is over.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import selectors
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from resilience import (
    BulkheadFamily,
    Registry,
    ResilienceError,
    Timeout,
    _compose,
    idempotent,
    interruptible,
    use_registry,
)
from resilience._assembly import Assembly
from resilience._clock import SystemClock
from resilience._context import DEADLINE, PROBING, RETRYING
from resilience._engine import workers, world_sync
from resilience._site import Call
from resilience.testing import use_clock

REAL_SLEEP = time.sleep
START = 1000.0


# ---------------------------------------------------------------------------------------------- time
class VirtualTime:
    """A number of seconds, and what threads want to be told when it has grown."""

    def __init__(self):
        self.now = START
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._due = []
        self._order = itertools.count()

    def call_at(self, when, callback):
        handle = Handle(callback)
        with self._lock:
            heapq.heappush(self._due, (when, next(self._order), handle))
            self._news.notify_all()
        return handle

    def wait_for_timer(self):
        """On a worker: until the caller has begun to wait for its deadline."""
        with self._lock:
            return self._news.wait_for(lambda: any(handle.callback for _, _, handle in self._due), 10)

    def advance(self, seconds, *, stop_at_timer=False):
        """Move on; with `stop_at_timer` only up to the first timer that fires. Whether one fired."""
        with self._lock:
            target = self.now + max(0.0, seconds)
            fired = False
            while self._due and self._due[0][0] <= target and not (fired and stop_at_timer):
                when, _, handle = heapq.heappop(self._due)
                if handle.callback is not None:
                    self.now = max(self.now, when)
                    handle.callback()
                    fired = True
            if not (fired and stop_at_timer):
                self.now = max(self.now, target)
            return fired

    @contextmanager
    def installed(self):
        before = time.monotonic, time.time_ns, time.sleep
        time.monotonic = lambda: self.now
        time.time_ns = lambda: round(self.now * 1e9)
        time.sleep = self.advance
        try:
            yield
        finally:
            time.monotonic, time.time_ns, time.sleep = before


class Handle:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None


class VirtualSelector(selectors.SelectSelector):
    """Where the loop would sleep, time passes; where it would sleep for ever, the test fails."""

    def __init__(self, virtual):
        super().__init__()
        self._virtual = virtual

    def select(self, timeout=None):
        if timeout is None:
            raise AssertionError("nobody will ever wake this event loop")
        self._virtual.advance(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, virtual):
        self._virtual = virtual
        super().__init__(VirtualSelector(virtual))

    def time(self):
        return self._virtual.now


class Waits:
    """What both clocks do alike: remember each wait, and oversleep if told to."""

    def __init__(self):
        self.waits = []
        self.oversleep = 0.0

    def sleep(self, seconds):
        self.waits.append(seconds)
        time.sleep(seconds + self.oversleep)

    async def asleep(self, seconds):
        self.waits.append(seconds)
        await asyncio.sleep(seconds + self.oversleep)


class RecordingSystemClock(Waits, SystemClock):
    """The system's clock, in virtual time: wrappers may pass by their own reading of it."""


class Standin(Waits):
    """Equal in behaviour, but no `SystemClock`: every wrapper has to ask."""

    def __init__(self, virtual):
        super().__init__()
        self._virtual = virtual

    def monotonic(self):
        return time.monotonic()

    def time_ns(self):
        return time.time_ns()

    def call_at(self, loop, when, callback):
        if loop is None:
            return self._virtual.call_at(when, callback)
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


# ---------------------------------------------------------------------------------------------- the way
class Way(NamedTuple):
    is_async: bool
    path: str

    def __str__(self):
        return f"{'async' if self.is_async else 'sync'}-{self.path}"


WAYS = tuple(Way(is_async, path) for is_async in (False, True) for path in ("straight", "plan", "clock"))


class Slow:
    """A step that takes some seconds first."""

    def __init__(self, seconds, then="slow answer"):
        self.seconds = seconds
        self.then = then


class Trace(NamedTuple):
    """What one run showed. All of it is compared."""

    calls: list
    outcomes: list
    statuses: dict
    events: list
    bulkheads: dict
    waits: list
    left_behind: tuple
    notes: list

    def event_names(self):
        return [event[0] for event in self.events]

    def status(self, name="provider"):
        return self.statuses[name]


class PlanOnly(Assembly):
    """What comes of policies that the straight path does not know."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shape = None


# ---------------------------------------------------------------------------------------------- the stage
class Stage:
    """Where a scenario plays: remote functions, calls of them, and everything that can be seen of it."""

    def __init__(self, way):
        self.way = way
        self.virtual = VirtualTime()
        self.clock = RecordingSystemClock() if way.path != "clock" else Standin(self.virtual)
        self.registry = Registry()
        self.calls = []
        self.outcomes = []
        self.notes = []
        self.events = []
        self.plans = 0
        self.loop_errors = []
        self._over = threading.Event()
        self._loop = None

    # ------------------------------------------------------------------------------------------------ for scenarios
    def remote(self, script, *policies, name="remote", awaitable=None, remember=True):
        """A function under policies whose attempts do what the script says, step by step.

        `awaitable`: a plain function returns a coroutine in the attempts whose numbers are in there.
        `remember`: whether the arguments are kept for the trace.
        """
        steps = deque(script)
        del script

        async def play(*given):
            if remember:
                self.calls.append((name, *given))
            del given
            return await self._perform(steps.popleft() if steps else AssertionError(f"{name} was called too often"))

        async def remote_async(first=None, second="two", *rest, key="key", **more):
            return answered(await play(first, second, rest, key, more))

        attempts = itertools.count(1)

        def remote_plain(first=None, second="two", *rest, key="key", **more):
            if next(attempts) in (awaitable or ()):
                return remote_async(first, second, *rest, key=key, **more)
            return answered(drive(play(first, second, rest, key, more)))

        return self._decorated(remote_async if self.way.is_async else remote_plain, name, policies)

    def stream(self, attempts, *policies, name="stream", opens=False):
        """A stream under policies, whose attempts yield what the scripts say; `opens`: a function that returns it."""
        scripts = deque(attempts)

        def begin(*given):
            self.calls.append((name, *given))
            return list(scripts.popleft()) if scripts else [AssertionError(f"{name} was begun too often")]

        def take(sent):
            if sent is not None:
                self.calls.append((name, "was sent", sent))

        def stream_plain(first=None, *rest, key="key"):
            for step in begin(first, rest, key):
                take((yield answered(drive(self._perform(step)))))

        async def stream_async(first=None, *rest, key="key"):
            for step in begin(first, rest, key):
                take((yield answered(await self._perform(step))))

        def open_plain(first=None, *rest, key="key"):
            return stream_plain(first, *rest, key=key)

        async def open_async(first=None, *rest, key="key"):
            return stream_async(first, *rest, key=key)

        functions = (open_plain, open_async) if opens else (stream_plain, stream_async)
        return self._decorated(functions[self.way.is_async], name, policies)

    def _decorated(self, fn, name, policies):
        fn.__name__ = fn.__qualname__ = name
        idempotent(fn)
        if not self.way.is_async and any(isinstance(policy, Timeout) for policy in policies):
            interruptible(max_workers=40)(fn)
            if self.way.path != "straight":
                self.clock = self._threads_clock()
        for policy in policies:
            fn = policy(fn)
        return fn

    async def consume(self, fn, *acts, args=(), stream=None):
        """Take a stream step by step, and write down what came of each: `next`, `close` and `drop`; a number of
        seconds for which the consumer is busy; `elsewhere`: the next item, in another context; ("send", value),
        ("throw", error), ("do", function of the stage). Gives the stream, to be gone on with.
        """
        for act in ("open", *acts) if stream is None else acts:
            kind, *given = act if isinstance(act, tuple) else (act,)
            if isinstance(kind, (int, float)):
                await self.pass_time(kind)
                continue
            if kind == "do":
                await given[0](self)
                continue
            if kind == "drop":
                stream = step = None
                await self.turns()
                continue
            try:
                if kind == "open":
                    stream = fn(*args)
                    if hasattr(stream, "__await__"):
                        stream = await stream
                    continue
                fresh = contextvars.Context()
                made = kind if kind in ("close", "send", "throw") else "__next__"
                if self.way.is_async:
                    step = getattr(stream, {"__next__": "__anext__"}.get(made, f"a{made}"))
                    item = await (self._elsewhere(step, fresh) if kind == "elsewhere" else step(*given))
                elif kind == "elsewhere":
                    item = fresh.run(next, stream)
                else:
                    # Not in a coroutine of its own: that would make something else of a StopIteration.
                    item = getattr(stream, made)(*given)
                self.outcomes.append(("closed",) if kind == "close" else ("item", item))
            except (StopIteration, StopAsyncIteration):
                self.outcomes.append(("end",))
            except BaseException as error:
                self.outcomes.append(("raised", *seen(error)))
                self.notes.append(tuple(getattr(error, "__notes__", ())))
                if kind == "open":
                    return None
        return stream

    async def _elsewhere(self, step, context):
        async def make():
            return await step()

        return await self.loop.create_task(make(), context=context)

    async def turns(self):
        """Who has been woken, or has to tidy up, does so."""
        if self.way.is_async:
            for _ in range(4):
                await asyncio.sleep(0)

    async def call(self, fn, *args, **kwargs):
        """Call, and write down what came of it."""
        try:
            # Not by `invoke`: a coroutine would make something else of a StopIteration.
            result = fn(*args, **kwargs)
            outcome = ("returned", await result if self.way.is_async else self._awaited(result))
        except BaseException as error:
            outcome = ("raised", *seen(error))
            self.notes.append(tuple(getattr(error, "__notes__", ())))
        self.outcomes.append(outcome)

    async def invoke(self, fn, *args, **kwargs):
        """Call in either world; what it raises is raised."""
        result = fn(*args, **kwargs)
        return await result if self.way.is_async else self._awaited(result)

    def _awaited(self, result):
        return self.loop.run_until_complete(result) if hasattr(result, "__await__") else result

    async def aside(self, fn, *args, **kwargs):
        """Call as somebody else would, who has nothing to do with the call in progress."""
        fresh = contextvars.Context()
        if self.way.is_async:
            await self.loop.create_task(self.call(fn, *args, **kwargs), context=fresh)
        else:
            fresh.run(drive, self.call(fn, *args, **kwargs))

    async def pass_time(self, seconds):
        """Nothing happens for some seconds."""
        if self.way.is_async:
            await asyncio.sleep(seconds)
        else:
            self.virtual.advance(seconds)

    def breaker(self, name="provider"):
        family = self.registry.get_family(name)
        return self.registry.get(name) if family is None else family["two", "key"]

    @property
    def loop(self):
        if self._loop is None:
            self._loop = VirtualLoop(self.virtual)
            self._loop.set_exception_handler(lambda _, context: self.loop_errors.append(context))
        return self._loop

    # ------------------------------------------------------------------------------------------------ running
    def run(self, scenario):
        with self.virtual.installed(), use_registry(self.registry), self._path():
            self.registry.subscribe(self._note_event)
            try:
                left_behind = self._play(scenario)
            finally:
                self._end_orphans()
                if self._loop is not None:
                    self._loop.close()
        # A coroutine or a task that nobody waits for tells so when it goes.
        gc.collect(0)
        assert [] == self.loop_errors
        return self._trace(left_behind)

    def _play(self, scenario):
        self.registry.clock = self.clock
        if not self.way.is_async:
            return contextvars.copy_context().run(drive, self._whole(scenario))
        return self.loop.run_until_complete(self._whole(scenario))

    async def _whole(self, scenario):
        await scenario(self)
        await self.turns()
        pending = asyncio.current_task().cancelling() if self.way.is_async else 0
        return (DEADLINE.get(), PROBING.get(), RETRYING.get(), pending)

    @contextmanager
    def _path(self):
        patch = pytest.MonkeyPatch()
        stage = self

        begin = Call.__init__

        def counted(call, *args, **kwargs):
            stage.plans += 1
            begin(call, *args, **kwargs)

        patch.setattr(Call, "__init__", counted)
        patch.setattr(workers, "IDLE_SECONDS", 0.01)
        if self.way.path == "plan":
            patch.setattr(_compose, "Assembly", PlanOnly)
        elif self.way.path == "straight":
            self._let_workers_go_straight(patch)
        try:
            if self.way.path == "clock":
                with use_clock(self.clock, self.registry):
                    yield
            else:
                yield
        finally:
            patch.undo()

    def _let_workers_go_straight(self, patch):
        """Only a worker that is idle is taken without a plan, and a lock's own timeout knows no virtual time."""
        wait, clock, begin = workers.wait_for_lock, Standin(self.virtual), workers.WorkerPool.__init__

        def begin_with_idle_ones(pool, *args):
            begin(pool, *args)
            pool.idle.extend(workers.Worker(pool) for _ in range(4))
            pool.workers += 4

        for module in (workers, world_sync):
            patch.setattr(module, "wait_for_lock", lambda lock, seconds, _: wait(lock, seconds, clock))
        patch.setattr(workers.WorkerPool, "__init__", begin_with_idle_ones)

    def _threads_clock(self):
        """For workers, whose deadlines are waited for with a lock's real timeout by the system's clock."""
        if isinstance(self.clock, Standin):
            return self.clock
        standin = Standin(self.virtual)
        standin.waits, standin.oversleep = self.clock.waits, self.clock.oversleep
        self.registry.clock = standin
        return standin

    # ------------------------------------------------------------------------------------------------ a step
    async def _perform(self, step):
        if isinstance(step, Slow):
            await self._take_time(step.seconds)
            return await self._perform(step.then)
        if isinstance(step, BaseException):
            return None, step
        if callable(step):
            return await step(self), None
        return step, None

    async def _take_time(self, seconds):
        if asyncio._get_running_loop() is not None:
            await asyncio.sleep(seconds)
        elif not threading.current_thread().name.startswith("resilience"):
            self.virtual.advance(seconds)
        elif self.virtual.wait_for_timer() and self.virtual.advance(seconds, stop_at_timer=True):
            # Given up on: an orphan must not move the time behind everybody's back.
            assert self._over.wait(10), "the scenario did not end"

    def _end_orphans(self):
        self._over.set()
        for _ in range(2000):
            if not any(bulkhead.in_flight for bulkhead in self._bulkheads()):
                return
            REAL_SLEEP(0.00001)

    def _bulkheads(self):
        found = self.registry._bulkheads.values()
        return tuple(room for one in found for room in (one.everybody if isinstance(one, BulkheadFamily) else (one,)))

    # ------------------------------------------------------------------------------------------------ the trace
    def _note_event(self, event):
        fields = {name: value for name, value in event.as_dict().items() if name not in ("at", "time_ns")}
        fields["site" if "site" in fields else "name"] = fields.get("site", fields["name"]).rpartition(":")[2]
        self.events.append((type(event).__name__, {name: plain(value) for name, value in fields.items()}))

    def _trace(self, left_behind):
        return Trace(
            self.calls,
            self.outcomes,
            {breaker.name: figures(breaker.status()) for breaker in self.registry},
            self.events,
            {
                bulkhead.name: (bulkhead.in_flight, bulkhead.waiting, bulkhead.rejected.value)
                for bulkhead in self._bulkheads()
            },
            [plain(wait) for wait in self.clock.waits],
            left_behind,
            self.notes,
        )


def answered(result):
    """What a step of a script gives, or raises."""
    value, error = result
    if error is None:
        return value
    try:
        raise error
    finally:
        del error, result


def drive(coroutine):
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a scenario without asyncio tried to suspend")


def seen(error):
    """An exception as it is compared: type, text, and what it hangs on unless it is ours."""
    if isinstance(error, ResilienceError):
        return type(error).__name__, str(error)
    chain, link = [], error
    while link is not None:
        link = link.__cause__ if link.__suppress_context__ else link.__context__
        chain.append(type(link).__name__)
    return (type(error).__name__, str(error), *chain[:-1])


def figures(status):
    """A status without its times."""
    values = status.as_dict()
    for name in ("opened_at", "last_state_change", "next_half_open_at", "labels"):
        del values[name]
    last = values.pop("last_failure")
    values["last_failure"] = None if last is None else (last.type_name, str(last.kind))
    return {name: plain(value) for name, value in values.items()}


def plain(value):
    if isinstance(value, float):
        return round(value, 6)
    return value if value is None or isinstance(value, (int, str, tuple)) else str(value)


# ---------------------------------------------------------------------------------------------- the comparison
class Parity:
    """Runs a scenario in every way and gives the one trace; the ways that must not exist are left out."""

    slow = Slow
    ways = WAYS

    def __call__(self, scenario, *, only=lambda way: True):
        traces = self.traces(scenario, only=only)
        (first, expected), *others = traces.items()
        for way, trace in others:
            for field in Trace._fields:
                assert (field, getattr(expected, field)) == (field, getattr(trace, field)), f"{first} and {way} differ"
        return expected

    def traces(self, scenario, *, only=lambda way: True):
        found = {}
        for way in WAYS:
            if only(way):
                found[str(way)] = Stage(way).run(scenario)
        return found

    def plans(self, scenario):
        """How many plans each way has begun."""
        found = {}
        for way in WAYS:
            stage = Stage(way)
            stage.run(scenario)
            found[str(way)] = stage.plans
        return found


@pytest.fixture(autouse=True, scope="package")
def least_chance():
    """Every way draws the same: what a server's word is exceeded by is nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("resilience._policies.retry._chance", lambda: 0.0)
        yield


@pytest.fixture(scope="session")
def parity():
    return Parity()
