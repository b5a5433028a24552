"""A call in a task of its own, disturbed at exactly one of its await points, or at several.

Every suspension counts
    The task runs a `Counted` coroutine, which tells each `send` and `throw` that has suspended. An undisturbed run
    shows how many there are; then there is one run for each of them, with acts (a cancel, an expiry, a result, a
    grant) at that very suspension: `next`, before anything else happens; `late`, when what it waits for is done and
    the wake-up is under way, in the same tick; `step`, while the task is still in the step that suspends.

Time stands still
    `time.monotonic` and the event loop's own time are one number, which moves by hand: an expiry happens between two
    callbacks, as when the loop finds a timer due. So both the straight path and the plan run on timers that are
    exact, on asyncio's loop and on uvloop alike.

After each run
    No task, no timer (but the shared one of a function, which is armed lazily), no slot, no permit is left; the books
    agree with what the provider did; `task.cancelling()` has grown by the accepted cancels and nothing else; our
    context variables are what they were; the task ended cancelled if a cancel was accepted, and only then.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import itertools
import time
from collections.abc import Coroutine

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitState,
    Consecutive,
    FaultKind,
    Registry,
    breaker,
    bulkhead,
    compose,
    retry,
    timeout,
    use_registry,
)
from resilience._context import DEADLINE, PROBING, RETRYING
from resilience._policies.guard import _KEPT
from resilience.testing import use_clock

try:
    import uvloop
except ImportError:
    uvloop = None

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
START = 1000.0
VARIABLES = (DEADLINE, PROBING, RETRYING, _KEPT)
BUDGET, PER_ATTEMPT, WAIT, FAR = 20.0, 10.0, 7.0, 1000.0


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


# ---------------------------------------------------------------------------------------------- time and loops
class HandTime:
    """An event loop whose time moves only by `advance`; what is due is run there and then, as in one tick."""

    now = START

    def __init__(self, *args):
        super().__init__(*args)
        self.timers = []
        self._order = itertools.count()

    def time(self):
        return self.now

    def call_at(self, when, callback, *args, context=None):
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self.timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle):
        """A cancelled one is skipped when its time comes."""

    def advance(self, seconds):
        target = self.now + seconds
        while self.timers and self.timers[0][0] <= target:
            when, _, handle = heapq.heappop(self.timers)
            if not handle.cancelled():
                self.now = max(self.now, when)
                handle._run()
        self.now = target

    def pending(self):
        self.timers = [entry for entry in self.timers if not entry[2].cancelled()]
        heapq.heapify(self.timers)
        return len(self.timers)

    def until_next(self):
        """Seconds until the next timer, None if there is none."""
        return self.timers[0][0] - self.now if self.pending() else None


class AsyncioLoop(HandTime, asyncio.SelectorEventLoop):
    """asyncio's own."""


LOOPS = {"asyncio": AsyncioLoop}
if uvloop is not None:

    class UvLoop(HandTime, uvloop.Loop):
        """uvloop's."""

    LOOPS["uvloop"] = UvLoop
EAGER = getattr(asyncio, "eager_task_factory", None)


def eager(loop, coroutine, *, eager_start=True, **options):
    """asyncio.eager_task_factory, which uvloop 0.23 gives an argument that Python 3.13 does not take."""
    return asyncio.Task(coroutine, loop=loop, eager_start=True, **options)


class HandClock:
    """The loop's time as a clock that is not the system's: every wrapper takes the plan."""

    def __init__(self, loop):
        self.loop = loop

    def monotonic(self):
        return self.loop.now

    def time_ns(self):
        return round(self.loop.now * 1e9)

    def sleep(self, seconds):
        raise AssertionError("nobody blocks an event loop")

    async def asleep(self, seconds):
        await asyncio.sleep(seconds)

    def call_at(self, loop, when, callback):
        return loop.call_at(when, callback)


# ---------------------------------------------------------------------------------------------- the remote
class Provider:
    """What the remote does, and what it has done, so that the books can be compared.

    A script is one step for each attempt, the last one for all that follow: `ok`, `fail`, `hang`, `gate` (until the
    harness lets it answer), `tidy` (a hang whose clean-up takes two more awaits), `swallow` and `convert` (what
    becomes of a cancel), `group` (two children in a task group).
    """

    def __init__(self, script):
        self.script = list(script)
        self.began = self.failed = self.succeeded = self.live = self.steps = 0
        self.swallowed = set()
        self.cut = {}
        self.gate = None

    async def __call__(self):
        self.began += 1
        self.live += 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            await self.pause()
            await getattr(self, "do_" + step, self.pause)()
            await self.pause()
            if step == "fail":
                self.failed += 1
                raise ConnectionError
            self.succeeded += 1
            return "ok"
        except asyncio.CancelledError:
            self.cut[self.began] = loop.time() - started
            raise
        finally:
            self.live -= 1
            self.steps += 1

    async def pause(self):
        await asyncio.sleep(0)
        self.steps += 1

    async def do_hang(self):
        await asyncio.get_running_loop().create_future()

    async def do_gate(self):
        self.gate = asyncio.get_running_loop().create_future()
        await self.gate

    async def do_tidy(self):
        try:
            await self.do_hang()
        finally:
            # What a cancel that comes meanwhile must not be lost by.
            await self.pause()
            await self.pause()

    async def do_swallow(self):
        try:
            await self.do_hang()
        except asyncio.CancelledError:
            self.swallowed.add(self.began)

    async def do_convert(self):
        try:
            await self.do_hang()
        except asyncio.CancelledError:
            self.swallowed.add(self.began)
            raise LookupError("converted") from None

    async def do_group(self):
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pause())
            group.create_task(self.do_hang())


# ---------------------------------------------------------------------------------------------- one run
class Counted(Coroutine):
    """A coroutine that tells each of its suspensions, with what it waits for."""

    def __init__(self, coroutine, suspended):
        self._coroutine = coroutine
        self._suspended = suspended

    def send(self, value):
        waited = self._coroutine.send(value)
        self._suspended(waited)
        return waited

    def throw(self, *error):
        waited = self._coroutine.throw(*error)
        self._suspended(waited)
        return waited

    def close(self):
        self._coroutine.close()

    def __await__(self):
        raise NotImplementedError("a task's own")


class Run:
    """One call in one task; `plan` is a tuple of (suspension, mode, acts). Suspension 0 is before the first step."""

    def __init__(self, world, plan=(), pending=0):
        self.world = world
        self.plan = plan
        self.pending = pending
        self.points = -pending
        self.futures = set()
        self.cancels = 0
        self.stuck = False
        self.ended = self.before = self.after = self.cancelling = self.raised = self.result = self.error = None
        self.hung = set()
        self.disputed = set()
        self.acted = 0
        self.turns = self.to_come = 0

    # ------------------------------------------------------------------------------------------------ inside the task
    async def watched(self):
        task = self.task = asyncio.current_task()
        for _ in range(self.pending):
            # As in the clean-up of a task that has been cancelled before.
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        self.before = [variable.get() for variable in VARIABLES]
        error = None
        if self.world.owing:
            self.do_cancel()
        try:
            self.result = await self.world.call()
        except BaseException as exc:
            error = exc
            self.raised = type(exc)
        self.cancelling = task.cancelling() - self.pending
        self.after = [variable.get() for variable in VARIABLES]
        self.ended = True
        try:
            if self.cancels == 0:
                # A cancel of ours that was left behind would come out here.
                await asyncio.sleep(0)
            if error is not None:
                raise error
            return self.result
        finally:
            del error

    def suspended(self, waited):
        self.points += 1
        if waited is not None:
            self.futures.add(self.points)
        for number, mode, acts in self.plan:
            if number == self.points and number > 0:
                if mode == "step":
                    self.perform(acts)
                elif mode == "late":
                    waited.add_done_callback(lambda _, acts=acts: self.perform(acts))
                else:
                    self.to_come += 1
                    self.world.loop.call_soon(self.go_on, acts)

    # ------------------------------------------------------------------------------------------------ acts
    def perform(self, acts):
        for place, act in enumerate(acts):
            if act == "turn":
                self.to_come += 1
                self.world.loop.call_soon(self.go_on, acts[place + 1 :])
                return
            self.acted += 1
            getattr(self, "do_" + act)()

    def go_on(self, acts):
        self.to_come -= 1
        self.perform(acts)

    def do_cancel(self):
        if self.task.cancel():
            self.cancels += 1
            provider = self.world.provider
            if self.cancels == 1:
                self.began, self.live = provider.began, provider.live
            if self.world.per_attempt and provider.live and provider.began in self.hung:
                self.disputed.add(provider.began)

    def do_expire(self):
        self.expired = self.turns
        self.advance(self.world.expiry)

    def do_lapse(self):
        self.advance(PER_ATTEMPT)

    def do_wake(self):
        self.advance(WAIT)

    def do_result(self):
        gate = self.world.provider.gate
        if gate is not None and not gate.done():
            gate.set_result(None)

    def do_grant(self):
        self.world.grant()

    def advance(self, seconds):
        """Move the time, and note which attempt a deadline of ours has cut short.

        One whose own limit has cut it short, and that somebody cancels before it has ended, is `disputed`: the limit's
        scope is left with the other's cancel, so the breaker looks in vain for one that has fired.
        """
        world, provider = self.world, self.world.provider
        before = self.task.cancelling()
        world.loop.advance(seconds)
        fired = self.task.cancelling() - before
        if not fired or self.cancels or not provider.live:
            return
        self.hung.add(provider.began)

    # ------------------------------------------------------------------------------------------------ from outside
    async def drive(self):
        world = self.world
        # Its own context: what is left in there is looked at from inside.
        if world.in_line:
            world.held = world.pool.take()
        self.task = world.loop.create_task(Counted(self.watched(), self.suspended))
        for number, _, acts in self.plan:
            if number == 0:
                self.perform(acts)
        if world.in_line:
            world.behind = world.loop.create_task(world.patient())
        still = 0
        patience = 60
        while not self.task.done():
            seen = self.points, world.provider.steps
            await asyncio.sleep(0)
            self.turns += 1
            still = 0 if seen != (self.points, world.provider.steps) else still + 1
            if still < 6 or self.task.done():
                continue
            still = 0
            patience -= 1
            assert patience, "the task never ends"
            assert not self.cancels or world.provider.swallowed or world.uncut, "a cancel was not acted upon at once"
            ahead = world.loop.until_next()
            if world.held is not None:
                world.grant()
            elif world.provider.gate is not None and not world.provider.gate.done():
                self.do_result()
            elif ahead is None or ahead > FAR:
                # It waits for ever: all points have been seen.
                self.stuck = True
                self.reached = self.points
                self.task.cancel()
                break
            else:
                self.advance(ahead)
        for _ in range(40):
            if self.task.done() and not self.to_come:
                break
            await asyncio.sleep(0)
        assert self.task.done(), "the task hangs"
        if not self.stuck:
            self.reached = self.points
        assert self.acted or not self.plan, "the point was never reached"
        if world.held is not None and world.behind is not None:
            assert 1 == world.pool.waiting, "who has gone still stands in line"
        await self.world.finish()
        self.check()

    # ------------------------------------------------------------------------------------------------ afterwards
    def check(self):
        world, task, provider = self.world, self.task, self.world.provider
        status = world.shared.status()
        self.cancelled = task.cancelled()
        if not self.cancelled:
            self.error = type(task.exception()) if task.exception() is not None else None
        if not self.stuck:
            if not self.cancels:
                assert not task.cancelled(), "a cancel was invented"
            elif not provider.swallowed:
                assert task.cancelled(), ("the cancel was swallowed", self.raised, self.result)
                # One that is not to be cut may have been about to begin; and a call begins before its first await.
                about = int(world.owing or (world.uncut and not self.live))
                assert provider.began <= self.began + about, "another attempt after the cancel"
            if self.ended:
                # A cancel that came after the call had ended is seen by nobody in here.
                late = self.cancelling < self.cancels and self.raised is not asyncio.CancelledError and task.cancelled()
                assert late or self.cancelling == self.cancels, "task.cancelling() is not as it was"
                assert all(was is now for was, now in zip(self.before, self.after, strict=True)), self.after
        assert not (world.uncut and provider.cut), "an uninterruptible attempt was cut short"
        assert {asyncio.current_task()} == asyncio.all_tasks(), "a task was left"
        world.check_books(self, status)
        world.check_whole(status)
        # The exceptions' frames hold the world and the loop.
        self.task = None


# ---------------------------------------------------------------------------------------------- one world
class World:
    """One event loop, one registry, one operation that is called again and again.

    `make(world)` gives the operation: a function without arguments whose result is awaited. `counts`: whether the
    breaker sees each attempt. `lazily`: shared timers that may stay armed. `in_line`: the only slot is held by the
    harness, and somebody else stands behind the call. `per_attempt`: there is a limit of one attempt. `uncut`: the
    function is uninterruptible. `owing`: the task has cancelled itself just before the call.
    """

    expiry = BUDGET + 5

    def __init__(
        self,
        loop,
        registry,
        make,
        *,
        counts=False,
        lazily=0,
        state=CLOSED,
        in_line=False,
        per_attempt=False,
        uncut=False,
        owing=False,
    ):
        self.loop = loop
        self.registry = registry
        self.counts = counts
        self.lazily = lazily
        self.state = state
        self.per_attempt = per_attempt
        self.uncut = uncut
        self.owing = owing
        self.evidence = (PER_ATTEMPT if per_attempt else BUDGET) / 2
        self.pool = registry.bulkhead("pool", BulkheadConfig(1))
        self.shared = registry.breaker("api", BreakerConfig(Consecutive(50), cooldown=30))
        self.in_line = in_line
        self.held = None
        self.behind = None
        self.provider = None
        self.runs = 0
        self.call = make(self)

        @bulkhead("pool", wait=2 * FAR)
        async def patient():
            return "behind"

        self.patient = patient

    def function(self, letters):
        """The provider as a decorated async function."""

        async def fn():
            return await self.provider()

        return self.decorated(fn, letters)

    def decorated(self, fn, letters, *, stream=False):
        policies = [POLICIES[letter]() for letter in letters]
        if stream:
            # One of them says it for all.
            policies[0] = type(policies[0])(**{**policies[0].as_dict(), "stream": True})
        return compose(*policies)(fn) if letters else fn

    def renew(self, script):
        self.provider = Provider(script)
        self.registry.clear_state()
        if self.state is not CLOSED:
            self.shared.force_open("drill", seconds=1 if self.state is HALF_OPEN else 10_000)
            self.loop.now += 2

    def grant(self):
        """Give back the slot that the harness holds, to whoever stands in line."""
        held, self.held = self.held, None
        if held is not None:
            self.pool.give(held)

    async def finish(self):
        """Everybody else comes to an end."""
        self.grant()
        if self.behind is not None:
            for _ in range(20):
                if self.behind.done():
                    break
                await asyncio.sleep(0)
            assert self.behind.done(), "a waiter was forgotten"
            assert self.behind.result() == "behind"
            self.behind = None

    def check_whole(self, status=None):
        """No attempt, slot, place in line, probe or timer is left, and nobody is in the way of the next."""
        status = status or self.shared.status()
        assert 0 == self.provider.live
        assert (0, 0) == (self.pool.in_flight, self.pool.waiting)
        assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released
        assert self.loop.pending() <= self.lazily, "a timer was left"
        for _, _, handle in self.loop.timers:
            # The shared timer of a function knows of nobody any more.
            assert not handle._callback.__self__.entries, "a deadline was left"
        if status.state is not OPEN:
            self.shared.release(self.shared.try_acquire())

    def check_books(self, run, status):
        provider = self.provider
        if self.counts and not run.stuck:
            # One that was in flight for less than half of its limit proves nothing.
            hung = {attempt for attempt in run.hung if provider.cut.get(attempt, 0.0) >= self.evidence}
            sure = provider.failed + len(hung - run.disputed)
            assert sure <= status.failures_total <= sure + len(hung & run.disputed), "failures"
            assert provider.succeeded == status.successes_total, "successes"
            assert 0 == status.late_results

    # ------------------------------------------------------------------------------------------------ sweeping
    def once(self, script, *plan, pending=0):
        """One run with the acts of `plan`."""

        async def main():
            self.renew(script)
            run = Run(self, plan, pending)
            await run.drive()
            return run

        World.runs += 1
        try:
            return self.loop.run_until_complete(main())
        except AssertionError as error:
            error.add_note(f"run: {script}, {plan}, pending {pending}")
            raise

    def points(self, quiet, acts=("cancel",), modes=("next", "late", "step")):
        """The acts before the first step and at each suspension of an undisturbed run."""
        if not quiet.pending:
            yield 0, "next", acts
        for number in range(1, quiet.reached + 1):
            for mode in modes:
                if mode != "late" or number in quiet.futures:
                    yield number, mode, acts

    def sweep(self, script, acts=("cancel",), modes=("next", "late", "step"), *, pending=0):
        """An undisturbed run, then one for each of its points; returns the undisturbed one."""
        quiet = self.once(script, pending=pending)
        for point in self.points(quiet, acts, modes):
            self.once(script, point, pending=pending)
        return quiet

    def sweep_twice(self, script, first=("cancel",), second=("cancel",)):
        """Disturbed at each point, and then again at each later suspension of what came of it. How many came."""
        quiet = self.once(script)
        pairs = 0
        for point in self.points(quiet, first, ("next", "late")):
            disturbed = self.once(script, point)
            for number in range(point[0] + 1, disturbed.reached + 1):
                for mode in ("next", "step"):
                    self.once(script, point, (number, mode, second))
                    pairs += 1
        return pairs

    runs = 0


POLICIES = {
    "B": lambda: bulkhead("pool", wait=5),
    "T": lambda: timeout(BUDGET),
    "P": lambda: timeout(BUDGET, per_attempt=PER_ATTEMPT),
    "Q": lambda: timeout(per_attempt=PER_ATTEMPT),
    "R": lambda: retry(3, wait=0, idempotent=True),
    "W": lambda: retry(3, wait=WAIT, idempotent=True),
    "C": lambda: breaker("api"),
    "A": lambda: breaker("api", account="call"),
    "J": lambda: breaker("api", classify_result=lambda value: FaultKind.TRANSIENT if value == "bad" else None),
}


class Place:
    """One kind of event loop, and one way through the library; makes worlds and looks at what is left behind them."""

    def __init__(self, registry, loop, path):
        self._registry = registry
        self._kind, _, self._eager = loop.partition("-")
        self._clocked = path == "plan"

    @contextlib.contextmanager
    def __call__(self, make, letters="", **options):
        """A world; at its end no timer, no task and no complaint of the loop is left."""
        loop = LOOPS[self._kind]()
        loop.now = START
        if self._eager:
            loop.set_task_factory(eager)
        complaints = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        options.setdefault("counts", bool(set(letters) & set("CJ")))
        options["lazily"] = 0 if self._clocked else options.get("lazily", int("T" in letters))
        options.setdefault("per_attempt", bool(set(letters) & set("PQ")))
        real = time.monotonic
        time.monotonic = lambda: loop.now
        try:
            with use_clock(HandClock(loop), self._registry) if self._clocked else contextlib.nullcontext():
                yield World(loop, self._registry, make, **options)
            loop.advance(10_000)
            assert 0 == loop.pending(), "a timer that was left sets off another"
            loop.run_until_complete(asyncio.sleep(0))
            gc.collect(0)
            assert [] == complaints
        finally:
            time.monotonic = real
            loop.close()


KINDS = [
    kind + eager for kind in LOOPS for eager in (("", "-eager") if hasattr(asyncio, "eager_task_factory") else ("",))
]
PLACES = [(kind, path) for kind in KINDS for path in ("straight", "plan")]


# What a loop of another kind can do to the plan it has done to the straight path: that is for the long search.
ORDINARY = {("asyncio", "straight"), ("asyncio", "plan"), ("uvloop", "straight"), ("asyncio-eager", "straight")}


def places(ordinary):
    return [
        pytest.param(place, id="-".join(place), marks=() if place in ordinary else pytest.mark.proof)
        for place in PLACES
    ]


@pytest.fixture(params=places({("asyncio", "straight"), ("asyncio", "plan")}))
def place(request, registry):
    """Both paths on asyncio's own loop; in the long search on every kind of loop, with eager tasks too."""
    return Place(registry, *request.param)


@pytest.fixture(params=places(ORDINARY))
def any_place(request, registry):
    """Every kind of loop and eager tasks; in the long search with both paths on each."""
    return Place(registry, *request.param)
