"""What a call inherits from the calls around it, and how to shed it.

Three context variables: the innermost deadline, the breakers whose probe is running (with its permit),
and the outer retry that is on its second or a later attempt. Tasks and workers
started inside inherit them. Each of them can be switched off by whoever set it, since
a block may be left in another context than it was entered in, where what it set
can't be taken away.

They are put back with `set`, never with `reset`: on Python 3.11 a reset to "no value"
lets a finaliser that reads the variable at that moment see freed memory.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from resilience._core import deadline as deadlines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import Context

    from resilience._core.deadline import Deadline
    from resilience._core.permit import Permit

DEADLINE: ContextVar[Deadline | None] = ContextVar("resilience_deadline", default=None)
PROBING: ContextVar[tuple[tuple[object, Permit], ...]] = ContextVar("resilience_probing", default=())
RETRYING: ContextVar[Repeat | None] = ContextVar("resilience_retrying", default=None)


def leave_deadline(deadline: Deadline) -> None:
    """Leave a block's scope, from wherever: the deadline ends for all who hold it, and is taken away where it is innermost."""
    deadline.left = True
    if DEADLINE.get() is deadline:
        DEADLINE.set(deadlines.in_force(deadline.outer))


class Repeat:
    """The second or a later attempt of a retry: a retry inside of it makes one attempt.

    Attributes:
        active: whether that attempt is still being made.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = True

    def end(self) -> None:
        """The attempt is over, for whoever still holds the mark; where it is the mark in force, it is taken away."""
        self.active = False
        if RETRYING.get() is self:
            RETRYING.set(None)


def is_repeating() -> bool:
    """Whether the caller is inside a second or later attempt of a retry."""
    repeat = RETRYING.get()
    return repeat is not None and repeat.active


def mark_probe(breaker: object, permit: Permit) -> None:
    """Let calls made from here share this probe; marks that were left behind are dropped on the way."""
    PROBING.set((*(mark for mark in PROBING.get() if not mark[1].settled), (breaker, permit)))


def unmark_probe(permit: Permit) -> None:
    """Take a probe's mark away, where it is: a block may be left in another context than it was entered in."""
    marks = PROBING.get()
    if any(mark[1] is permit for mark in marks):
        PROBING.set(tuple(mark for mark in marks if mark[1] is not permit))


def is_probing(breaker: object, episode: int) -> bool:
    """Whether the caller is inside a probe of this breaker that is still out; `episode` is the breaker's.

    The permit is asked, not only the mark: a block may be left in another context than
    it was entered in, and then its mark stays behind. And a probe ends with its episode,
    by a reset or another probe's result, whether or not its caller has noticed.
    """
    return any(owner is breaker and not permit.settled and permit.episode == episode for owner, permit in PROBING.get())


Marks = tuple["Deadline | None", tuple[tuple[object, "Permit"], ...], "Repeat | None"]


class OwnMarks:
    """The marks of what runs in turns with its caller, such as a stream: in force during its steps only.

    Each step may be asked for by somebody else, whose marks are those around it: the
    outermost deadline of its own lies within the deadline of whoever asks.
    """

    __slots__ = ("_innermost", "_outermost", "_probing", "_repeat")

    def __init__(self) -> None:
        self._innermost: Deadline | None = None
        self._outermost: Deadline | None = None
        self._probing: tuple[tuple[object, Permit], ...] = ()
        self._repeat: Repeat | None = None

    def put_on(self) -> Marks:
        """Before a step; gives the marks of whoever asks for it."""
        deadline, probing, _ = theirs = DEADLINE.get(), PROBING.get(), RETRYING.get()
        if self._outermost is not None:
            if all(link is not self._outermost for link in deadlines.links(deadline)):
                self._outermost.outer = deadline
            DEADLINE.set(self._innermost)
        if self._probing:
            PROBING.set((*probing, *self._probing))
        if self._repeat is not None and self._repeat.active:
            RETRYING.set(self._repeat)
        return theirs

    def take_off(self, theirs: Marks) -> None:
        """After it; puts back what `put_on` has given."""
        deadline, probing, repeat = theirs
        self._innermost = self._outermost = None
        if DEADLINE.get() is not deadline:
            self._innermost = DEADLINE.get()
            for link in deadlines.links(self._innermost):
                if link is deadline:
                    break
                self._outermost = link
            DEADLINE.set(deadline)
        if PROBING.get() is not probing:
            self._probing = tuple(mark for mark in PROBING.get() if mark not in probing)
            PROBING.set(probing)
        elif self._probing:
            self._probing = ()
        self._repeat = None
        if RETRYING.get() is not repeat:
            self._repeat = RETRYING.get()
            RETRYING.set(repeat)


def take_over(context: Context) -> None:
    """Set here what has been set in a copy of this context, as if what ran there had run here."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


def remaining_at(now: float) -> float | None:
    """Seconds left of the nearest deadline around the caller, None without one."""
    return deadlines.remaining(DEADLINE.get(), now)


@contextmanager
def detached() -> Iterator[None]:
    """Shed deadline, retry and probe marks for a block: what runs inside is on its own.

    For work that outlives the call it was started in. A deadline that interrupts the
    surrounding task still does so. Left in another task than it was entered in, it changes nothing there.

    Example:
        >>> with detached():
        ...     remaining() is None
        True
    """
    deadline, probing, retrying, outer = DEADLINE.get(), PROBING.get(), RETRYING.get(), _DETACHED.get()
    here = object()
    _DETACHED.set(here)
    DEADLINE.set(None)
    PROBING.set(())
    RETRYING.set(None)
    try:
        yield
    finally:
        if _DETACHED.get() is here:
            RETRYING.set(retrying)
            PROBING.set(probing)
            DEADLINE.set(deadline)
            _DETACHED.set(outer)


_DETACHED: ContextVar[object] = ContextVar("resilience_detached", default=None)
