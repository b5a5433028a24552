"""The one place that interrupts asyncio tasks: expiry by cancelling, with exact bookkeeping.

The rules are those of `asyncio.timeout`, and the outcomes equal its own. On entry the
task's pending cancels are noted. An expiry cancels the task, and owes one `uncancel`
on every way out. The way out becomes a timeout only if the pending cancels are back to
the noted number and it is a CancelledError: whoever else cancelled wins.

A deadline counts as fired (evidence for a breaker, P17) only if nobody had cancelled
the task since its scope was entered.

`asyncio.wait_for` is never used: on Python 3.11 it can lose a cancel.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE

if TYPE_CHECKING:
    from contextvars import Token

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


def fire(deadline: Deadline, task: asyncio.Task[Any]) -> None:
    """Interrupt the task because its deadline has run out."""
    deadline.fired = task.cancelling() == deadline.noted
    task.cancel()


def is_ours(deadline: Deadline, task: asyncio.Task[Any]) -> bool:
    """Take back the cancel that an expiry gave; True if nobody else's is pending, so a CancelledError is our timeout."""
    return task.uncancel() <= deadline.noted


class Expiry:
    """One scope with a timer of its own, for deadlines that differ from call to call."""

    __slots__ = ("_deadline", "_handle", "_task", "_token", "fired")

    def __init__(self, deadline: Deadline, clock: Clock) -> None:
        task = this_task()
        self.fired = False
        self._deadline = deadline
        self._task = task
        deadline.noted = task.cancelling()
        self._handle: Handle | None = clock.call_at(task.get_loop(), deadline.expires, self._expire)
        self._token: Token[Deadline | None] = DEADLINE.set(deadline)

    def _expire(self) -> None:
        if self._handle is not None:
            self.fired = True
            fire(self._deadline, self._task)

    def leave(self) -> bool:
        """Leave the scope, on every way out; True if a CancelledError on this way is our timeout."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()
        self._deadline.active = False
        DEADLINE.reset(self._token)
        return self.fired and is_ours(self._deadline, self._task)


class Bucket:
    """One timer for all calls of one function in one event loop.

    The limit is the same for every call, so the order of entry is the order of expiry
    and no heap is needed. Entering is one store, leaving one pop; the timer is armed
    for the oldest, and armed again for the first that is left when it fires.

    Attributes:
        entries: task → its deadline, oldest first.
        loop: a weak reference to the loop: a bucket never keeps one alive.
        armed: whether the timer runs.
    """

    __slots__ = ("armed", "entries", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.entries: dict[asyncio.Task[Any], Deadline] = {}
        self.loop: Any = _no_loop if loop is None else weakref.ref(loop)
        self.armed = False

    def arm(self, deadline: Deadline) -> None:
        """Make sure that the timer runs; called by every entry that finds it idle."""
        loop = self.loop()
        if loop is not None and not self.armed:
            self.armed = True
            loop.call_at(loop.time() + (deadline.expires - time.monotonic()), self._due)

    def _due(self) -> None:
        self.armed = False
        entries = self.entries
        now = time.monotonic()
        while entries:
            task, deadline = next(iter(entries.items()))
            # A loop's clock is coarse: what is due within its resolution is due.
            if deadline.expires > now + _RESOLUTION:
                self.arm(deadline)
                return
            # Gone from the table means: it fired, and an uncancel is owed.
            del entries[task]
            fire(deadline, task)


class Buckets:
    """The buckets of one function: the one of the loop used last in a slot, the others by loop.

    Under a test clock the slot holds a bucket of no loop, so that every call goes to the plan.
    """

    __slots__ = ("__weakref__", "_by_loop", "_real", "bucket")

    def __init__(self) -> None:
        self.bucket = Bucket()
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bucket] = weakref.WeakKeyDictionary()
        self._real = True

    def switch(self, loop: asyncio.AbstractEventLoop) -> Bucket | None:
        """The bucket of this loop, now in the slot; None under a test clock."""
        if not self._real:
            return None
        bucket = self._by_loop.get(loop)
        if bucket is None:
            bucket = self._by_loop[loop] = Bucket(loop)
        self.bucket = bucket
        return bucket

    def publish_slots(self, published: bool) -> None:
        """Whether calls may use the loop's own timer; off under a test clock."""
        self._real = published
        self.bucket = Bucket()


_RESOLUTION = 1e-9


def _no_loop() -> None:
    return None
