"""The one place that interrupts asyncio tasks: expiry by cancelling, with exact bookkeeping.

The rules are those of `asyncio.timeout`, and the outcomes equal its own but in one case.
On entry the task's pending cancels are noted. An expiry cancels the task, and owes one
`uncancel` on every way out. The way out becomes a timeout only if the pending cancels are
back to the noted number and it is a CancelledError: whoever else cancelled wins.

The one case (cpython#134471): the task was cancelled before the scope was entered, has
not come to an await since, and now the deadline expires. It gets one CancelledError for
both, and that one is the other's, or his cancel would be swallowed.

A deadline counts as fired (evidence for a breaker, P17) only if nobody had cancelled
the task since its scope was entered; other deadlines of ours are nobody.

`asyncio.wait_for` is never used: on Python 3.11 it can lose a cancel.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE, leave_deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._clock import Clock, Handle
    from resilience._core.deadline import Deadline


def this_task() -> asyncio.Task[Any]:
    """The running task.

    Raises:
        RuntimeError: the coroutine does not run in an asyncio task.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise RuntimeError(
            "a timeout or wait of this library needs a running asyncio task (uvloop's too): other event loops are not supported"
        )
    return task


def note(deadline: Deadline, task: asyncio.Task[Any]) -> None:
    """On entry: remember the cancels that are pending, and whether one is still to be delivered."""
    deadline.noted = task.cancelling()
    deadline.owed = _owed.get(task, 0)
    deadline.undelivered = _is_undelivered(task)


def _is_undelivered(task: asyncio.Task[Any]) -> bool:
    """Whether a cancel of the task has not been raised in it yet: it is still to be passed on to
    what the task waits for, or has been and the task has not run since.
    """
    # asyncio's own tasks tell; for one of another make that does not, asyncio.timeout's rule holds.
    waiter = getattr(task, "_fut_waiter", None)
    return getattr(task, "_must_cancel", False) or (waiter is not None and waiter.cancelled())


_owed: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
"""Cancels of a task that are ours, and that the way out of a scope has not taken back yet."""

NOBODYS = -1
"""Noted where no number of pending cancels makes a CancelledError our timeout."""


def fire(deadline: Deadline, task: asyncio.Task[Any]) -> None:
    """Interrupt the task because its deadline has run out."""
    owed = _owed.get(task, 0)
    # Nobody else's: what is pending beyond the noted is of deadlines inside, that have fired and are not left yet.
    deadline.fired = task.cancelling() - deadline.noted == owed - deadline.owed
    if deadline.undelivered and _is_undelivered(task):
        deadline.noted, deadline.fired = NOBODYS, False
    _owed[task] = owed + 1
    task.cancel()


def is_ours(deadline: Deadline, task: asyncio.Task[Any]) -> bool:
    """Take back the cancel that an expiry gave; True if nobody else's is pending, so a CancelledError is our timeout."""
    _owed[task] = _owed.get(task, 1) - 1
    return task.uncancel() <= deadline.noted


class Expiry:
    """One scope with a timer of its own, for deadlines that differ from call to call.

    Attributes:
        deadline: its limit.
        fired: whether it has interrupted its task.
    """

    __slots__ = ("_handle", "_task", "deadline", "fired")

    def __init__(self, deadline: Deadline, clock: Clock) -> None:
        task = this_task()
        self.fired = False
        self.deadline = deadline
        self._task: asyncio.Task[Any] | None = task
        note(deadline, task)
        self._handle: Handle | None = clock.call_at(task.get_loop(), deadline.expires, self._expire)
        DEADLINE.set(deadline)

    def _expire(self) -> None:
        if self._handle is not None and self._task is not None:
            self.fired = True
            fire(self.deadline, self._task)

    def leave(self) -> bool:
        """Leave the scope, on every way out; True if a CancelledError on this way is our timeout."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()
        self.deadline.left = True
        DEADLINE.set(self.deadline.outer)
        return self.fired and self._task is not None and is_ours(self.deadline, self._task)


class BlockExpiry(Expiry):
    """The scope of a block, which may be left in another task, context or thread than it was entered in.

    Only the task that entered is ever interrupted, and only that one can be told of a timeout.
    """

    __slots__ = ()

    def _expire(self) -> None:
        # That task may have ended long ago; and another thread that has left the block tells the loop only later.
        if not self.deadline.left and self._task is not None and not self._task.done():
            super()._expire()

    def leave(self) -> bool:
        task = self._task
        assert task is not None, "a block has been entered by a task"
        leave_deadline(self.deadline)
        loop = task.get_loop()
        if _running_loop() is not loop:
            # Only its own thread may touch a loop's timers and tasks; one that is closed has neither.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settle, task)
            return False
        # What is owed to the one that entered is taken back, whoever leaves.
        return self._settle(task) and asyncio.current_task() is task

    def _settle(self, task: asyncio.Task[Any]) -> bool:
        handle, self._handle = self._handle, None
        assert handle is not None, "a block is left once"
        handle.cancel()
        return self.fired and is_ours(self.deadline, task)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class SteppedExpiry(Expiry):
    """The scope of a stream, which goes on from step to step, in whatever task each is made.

    Between two steps nobody may be interrupted: the next one is told.
    """

    __slots__ = ()

    def leave(self) -> bool:
        if self._task is not None:
            return super().leave()
        # Dropped between two steps, whose marks are in force: whoever drops it has none of this scope's.
        handle, self._handle = self._handle, None
        assert handle is not None, "a scope is left once"
        handle.cancel()
        self.deadline.left = True
        return False

    def begin_step(self) -> None:
        """From now on the running task is the one to be interrupted."""
        self._task = this_task()
        note(self.deadline, self._task)

    def end_step(self) -> None:
        """The task has its item and goes on with it; a cancel of ours that the stream has swallowed is taken back."""
        task, self._task = self._task, None
        if self.fired and task is not None:
            self.fired = self.deadline.fired = False
            is_ours(self.deadline, task)


class StreamLimit:
    """The same for a budget by the system's clock, on the straight path, which does the stepping by itself.

    Attributes:
        deadline: the limit.
        task: the task that waits for an item, None between two steps.
        fired: whether it has interrupted that task, and the cancel has not been taken back yet.
        passed: whether it ran out between two steps.
    """

    __slots__ = ("_handle", "deadline", "fired", "passed", "task")

    def __init__(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        self.deadline = deadline
        self.task: asyncio.Task[Any] | None = None
        self.fired = self.passed = False
        self._handle = loop.call_at(loop.time() + (deadline.expires - time.monotonic()), self._expire)

    def _expire(self) -> None:
        if self.task is None:
            self.passed = True
        else:
            self.fired = True
            fire(self.deadline, self.task)

    def is_ours(self) -> bool:
        """Take back the cancel that the expiry gave; whether a CancelledError is our timeout."""
        task = self.task
        if not self.fired or task is None:
            return False
        self.fired, self.passed = False, True
        ours = is_ours(self.deadline, task)
        self.deadline.fired = False
        return ours

    def leave(self) -> None:
        """The stream has ended."""
        self._handle.cancel()
        self.is_ours()
        self.task = None
        self.deadline.left = True


class Bucket:
    """One timer for all calls of one function in one event loop.

    The limit is the same for every call, so the order of entry is the order of expiry
    and no heap is needed. Entering is one store, leaving one pop; the timer is armed
    for the oldest, and armed again for the first that is left when it fires.

    Attributes:
        loop: the event loop.
        entries: task → its deadline, oldest first.
        armed: whether the timer runs.
    """

    __slots__ = ("__weakref__", "armed", "entries", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.entries: dict[asyncio.Task[Any], Deadline] = {}
        self.armed = False

    def arm(self, deadline: Deadline) -> None:
        """Start the timer for a deadline."""
        self.armed = True
        # An event loop has a clock of its own: only the distance carries over.
        self.loop.call_at(self.loop.time() + (deadline.expires - time.monotonic()), self._due)

    def _due(self) -> None:
        self.armed = False
        entries = self.entries
        now = time.monotonic()
        while entries:
            task, deadline = next(iter(entries.items()))
            if deadline.expires > now:
                self.arm(deadline)
                return
            # Gone from the table means: it fired, and an uncancel is owed.
            del entries[task]
            fire(deadline, task)


class Buckets:
    """The buckets of one function, one for each event loop.

    They are held by the calls inside and by the loop's own timer, never from here: a
    loop that is closed in the middle of a call can be freed with all that it holds.

    Asking asyncio for the running loop asks the system for the process id, every time on
    some versions of Python, which takes as long as all the rest. So a wrapper looks at
    the bucket used last, and at `_thread_id`, by which asyncio's own loops tell the
    thread that runs them: if it is this one, no other loop can be running here. A loop
    that does not tell is looked up anew for each call.

    Attributes:
        last: gives the bucket of the loop that was used last, None when it is gone.
    """

    __slots__ = ("__weakref__", "_by_loop", "_real", "last")

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Bucket]]
        self._by_loop = weakref.WeakKeyDictionary()
        self._real = True
        self.last: Callable[[], Bucket | None] = _gone

    def here(self) -> Bucket | None:
        """The bucket of the running loop, from now on the one used last; None without a loop, and under a test clock."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        if not self._real:
            return None
        known = self._by_loop.get(loop, _gone)
        bucket = known()
        if bucket is None:
            bucket = Bucket(loop)
            known = self._by_loop[loop] = weakref.ref(bucket)
        self.last = known if hasattr(loop, "_thread_id") else _gone
        return bucket

    def publish_slots(self, published: bool) -> None:
        """Whether calls may use the loop's own timer; off under a test clock, which the plan asks."""
        self._real = published
        self.last = _gone


def _gone() -> None:
    return None
