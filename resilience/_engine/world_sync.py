"""The world of threads: it never suspends, so one `send(None)` runs a plan from end to end."""

from __future__ import annotations

import threading
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from resilience._context import DEADLINE
from resilience._core import deadline as deadlines
from resilience._core.outcome import Outcome
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.workers import WorkerPool, signal, wait_for_lock
from resilience.errors import BulkheadFullError, TimeoutExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from resilience._core.deadline import Deadline
    from resilience._core.slots import Ticket
    from resilience._site import Call, Inner, Site

T = TypeVar("T")


def run(steps: Coroutine[Any, Any, T]) -> T:
    """Drive a plan, or a part of one, in a world that never suspends."""
    try:
        steps.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the coroutine returns
    steps.close()
    raise RuntimeError("a plan for threads tried to suspend: a policy awaits something that is no part of its world")


class SyncWorld:
    """Runs the function on the calling thread."""

    adopted = False

    def __init__(self, site: Site) -> None:
        self._site = site

    async def attempt(self, call: Call) -> Outcome:
        site = self._site
        args, kwargs = (call.args, call.kwargs) if site.pass_as is None else arguments(site, call)
        try:
            outcome = Outcome(site.fn(*args, **kwargs))
        except Exception as error:
            return Outcome(None, error)
        outcome.pending = AWAITABLE[type(outcome.value)]
        return outcome

    async def sleep(self, seconds: float) -> None:
        self._site.services.clock.sleep(seconds)

    async def wait(self, ticket: Ticket, seconds: float, ready: Callable[[], object]) -> None:
        granted = threading.Lock()
        granted.acquire()
        ticket.wake = lambda: signal(granted)
        # Granted before it could be woken? Whoever grants sets the slot first and wakes afterwards.
        ready()
        if ticket.slot is None:
            wait_for_lock(granted, seconds, self._site.services.clock)

    async def bounded(self, deadline: Deadline, call: Call, inner: Inner) -> Outcome:
        expired = past(deadline, self._site.services.now())
        if expired is not None:
            return expired
        DEADLINE.set(deadline)
        try:
            return await inner(call)
        finally:
            deadline.left = True
            DEADLINE.set(deadline.outer)

    async def invoke(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        try:
            return Outcome(function(*args, **kwargs))
        except Exception as error:
            return Outcome(None, error)


class WorkerWorld(SyncWorld):
    """Runs each attempt on a worker thread, and gives up waiting for it at the deadline.

    Attributes:
        pool: the workers.
    """

    def __init__(self, site: Site, pool: WorkerPool) -> None:
        super().__init__(site)
        self.pool = pool

    async def attempt(self, call: Call) -> Outcome:
        outcome = self.perform(call, self._site.fn, call.args, call.kwargs, _nothing)
        outcome.pending = outcome.error is None and AWAITABLE[type(outcome.value)]
        return outcome

    def perform(
        self,
        call: Call,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_end: Callable[[], object],
    ) -> Outcome:
        """Run a function on a worker; where it is left behind, `on_end()` follows when it has ended."""
        clock = self._site.services.clock
        deadline = deadlines.nearest(DEADLINE.get())
        if deadline is not None and deadline.expires <= clock.monotonic():
            return exceeded(deadline)
        if call.slot is None and call.bulkhead is not None:
            # An abandoned attempt of this call keeps its slot; this one needs its own.
            call.slot = call.bulkhead.take()
            if call.slot is None:
                return Outcome.refusal(BulkheadFullError(call.bulkhead.name), self)
        worker = self.pool.take()
        if worker is None:
            return Outcome.refusal(BulkheadFullError(self.pool.name), self)
        task = copy_context(), fn, args, kwargs
        seconds = None if deadline is None else deadline.expires - clock.monotonic()
        answer = worker.perform(task, seconds, clock, partial(_leave_slot, call, on_end))
        if answer is None:
            assert deadline is not None, "without a deadline a worker is waited for"
            return exceeded(deadline)
        value, error = answer
        # Or it would be in a ring with the frames of an exception that is raised from here on.
        del answer
        if error is not None and not isinstance(error, Exception):
            try:
                raise error
            finally:
                del error
        return Outcome(value, error)


def _leave_slot(call: Call, on_end: Callable[[], object]) -> Callable[[], None]:
    """The slot of an attempt that is left to itself stays with it: what gives it back when the attempt has ended."""
    bulkhead, slot = call.bulkhead, call.slot
    call.slot = None

    def clean_up() -> None:
        try:
            on_end()
        finally:
            if bulkhead is not None and slot is not None:
                bulkhead.give(slot)

    return clean_up


def _nothing() -> None:
    return None


def arguments(site: Site, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an attempt, with the seconds left where the function asks for them.

    A number that the caller gave in that place stays where it is the shorter one.
    """
    name, place, args = site.pass_as, site.pass_at, call.args
    assert name is not None, "asked only where there is such a parameter"
    by_place = place is not None and place < len(args)
    given = args[place] if by_place and place is not None else call.kwargs.get(name)
    left = site.left(call)
    if left is None:
        return args, call.kwargs
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        left = min(left, given)
    # Never 0, which to a socket means "don't wait" and to some clients "wait for ever".
    left = max(_LEAST_SECONDS, left)
    if by_place and place is not None:
        return (*args[:place], left, *args[place + 1 :]), call.kwargs
    return args, {**call.kwargs, name: left}


_LEAST_SECONDS = 0.001


def past(deadline: Deadline, now: float) -> Outcome | None:
    """The outcome of a call whose nearest deadline has run out before it began, else None."""
    first = deadlines.nearest(deadline)
    return None if first is None or first.expires > now else exceeded(first)


def exceeded(deadline: Deadline, cause: BaseException | None = None) -> Outcome:
    """The outcome of an expired deadline."""
    error = TimeoutExceeded(deadline.scope, deadline.seconds)
    error.__cause__ = cause
    outcome = Outcome(None, error)
    outcome.expired = deadline
    return outcome
