"""Deadline arithmetic: nested limits, and what an expiry proves about the remote.

A deadline is a node in a chain from the innermost scope outwards. It is measured on
the monotonic clock, never on an event loop's. A scope that has been left no longer
counts, even where a child task still holds its node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._words import TimeoutScope

if TYPE_CHECKING:
    from collections.abc import Iterator


class Deadline:
    """One limit, from the moment its scope was entered.

    Attributes:
        seconds: its length.
        started: monotonic seconds at which the scope was entered.
        outer: the enclosing deadline, or None.
        scope: whose limit it is: the whole call's budget or one attempt.
        counts: whether its expiry may count against a breaker.
        fired: its own expiry, and nobody's cancel, interrupted the task.
        noted: the task's pending cancels when the scope was entered (asyncio only); owed: those of them that
            were of our own deadlines; undelivered: one of them had not been raised in the task yet.
        left: whether the scope has been left.
    """

    # Made on every timed call: what every one sets is a slot, the rest has its default on the
    # class and, where it is set all the same, a place in a dict that most never get.
    __slots__ = ("__dict__", "left", "started")

    left: bool
    started: float
    seconds: float
    outer: Deadline | None = None
    scope = TimeoutScope.BUDGET
    counts = True
    fired = False
    noted = 0
    undelivered = False
    owed = 0

    def __init__(self, seconds: float, started: float, outer: Deadline | None = None, noted: int = 0) -> None:
        self.seconds = seconds
        self.started = started
        self.left = False
        self.outer = outer
        self.noted = noted

    @property
    def expires(self) -> float:
        """Monotonic seconds at which it runs out."""
        return self.started + self.seconds

    @property
    def active(self) -> bool:
        """Whether its scope is still being executed."""
        return not self.left


class AttemptDeadline(Deadline):
    """The limit of one attempt."""

    scope = TimeoutScope.ATTEMPT


class FirstItemDeadline(Deadline):
    """The limit of one attempt up to the first item of its stream."""

    scope = TimeoutScope.FIRST_ITEM


class IdleDeadline(Deadline):
    """The limit of the wait for one further item of a stream."""

    scope = TimeoutScope.IDLE


class Passed(BaseException):
    """Ends a stream whose deadline ran out while the consumer had it: nobody was waiting for the remote.

    Attributes:
        deadline: which one.
    """

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self.deadline = deadline


def fixed_deadline(seconds: float, counts: bool) -> type[Deadline]:
    """A class of deadlines that all have one length, for the straight path: it sets `started`, `left` and what is not usual.

    Where every call makes a deadline, each store counts, and a constructor costs most of all.
    """

    class FixedDeadline(Deadline):
        __slots__ = ()
        __init__ = object.__init__  # pyright: ignore[reportAssignmentType]  # nothing to be told

    FixedDeadline.seconds = seconds
    FixedDeadline.counts = counts
    made: type[Deadline] = FixedDeadline
    return made


def links(deadline: Deadline | None) -> Iterator[Deadline]:
    """All deadlines of the chain, innermost first, also those whose scope has been left."""
    while deadline is not None:
        yield deadline
        deadline = deadline.outer


def chain(deadline: Deadline | None) -> Iterator[Deadline]:
    """The deadlines still in force, innermost first."""
    return (link for link in links(deadline) if link.active)


def in_force(deadline: Deadline | None) -> Deadline | None:
    """The innermost deadline whose scope is still being executed, or None."""
    while deadline is not None and deadline.left:
        deadline = deadline.outer
    return deadline


def nearest(deadline: Deadline | None) -> Deadline | None:
    """The deadline in force that runs out first; of two at one moment the outer one."""
    found: Deadline | None = None
    while deadline is not None:
        if not deadline.left and (found is None or deadline.expires <= found.expires):
            found = deadline
        deadline = deadline.outer
    return found


def remaining(deadline: Deadline | None, now: float) -> float | None:
    """Seconds until the first of the chain runs out (below 0: past), None without a deadline."""
    first = nearest(deadline)
    return None if first is None else first.expires - now


def is_past(deadline: Deadline, now: float) -> bool:
    """Whether any of the chain has run out."""
    first = nearest(deadline)
    return first is not None and first.expires <= now


def fired(deadline: Deadline | None) -> Deadline | None:
    """The innermost deadline in force that has interrupted its task, or None."""
    for candidate in chain(deadline):
        if candidate.fired:
            return candidate
    return None


def is_evidence(deadline: Deadline, in_flight: float, per_attempt: float | None) -> bool:
    """Whether an attempt that this deadline cut short says the remote hung.

    Only if it was in flight for at least half of the limit: an attempt that began
    with 5 ms left proves nothing. Where the site's own limit for one attempt is
    shorter, half of that is enough.
    """
    length = deadline.seconds if per_attempt is None else min(per_attempt, deadline.seconds)
    return deadline.counts and in_flight >= length / 2
