"""The retry budget: how many retries a window of time allows for the calls made in it.

Calls are counted by many threads without a lock, with one iterator for each slice of
time, made by the first call in it. Retries are few and must be exact: what has been
spent is a frozen record, and whoever spends hangs the next record on it, in one step that
only one can win. Nothing here waits, so a finaliser or a signal handler may come in
anywhere.

What it promises: looking back from any retry, the retries of the last `window` seconds
are at most `ratio` of the calls of that time plus the floor. So the calls of a slice go
out of the window with its first call, and the retries of a slice with its last.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING

from resilience._core.checks import Faults
from resilience._core.counter import reading
from resilience._core.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

SLICES = 10
MOST_RETRIES = 1e15
SHORTEST_WINDOW = 0.001


class RetryBudget(Record):
    """How much retrying is too much: a share of the calls, and a floor for quiet times. Frozen, equal by value.

    Looking back from any retry, the retries of the last `window` seconds are at most
    `ratio` of the calls made in that time plus `min_per_second * window`. Ratio and window
    are those of Finagle, Linkerd and tower. Their floor is 10 a second for a whole proxy or
    server; a budget here is that of one process out of several, so it is 1.

    Args:
        name: shared by all call sites that give this name; None (default) for a budget of the call site's own.
        ratio: retries for each call (0 < ratio ≤ 1, default 0.2).
        min_per_second: retries a second that are allowed whatever the number of calls (≥ 0, default 1); 0 for none.
        window: seconds looked back (≥ 0.001, default 10).

    Raises:
        ConfigurationError: listing every value that can't be right.

    Example:
        >>> RetryBudget("openai", ratio=0.1).allowed(calls=200)
        30
    """

    name: str | None
    ratio: float
    min_per_second: float
    window: float

    def __init__(
        self,
        name: str | None = None,
        *,
        ratio: float = 0.2,
        min_per_second: float = 1.0,
        window: float | timedelta = 10.0,
    ) -> None:
        faults = Faults()
        if name is not None:
            name = faults.name("name", name)
        ratio = faults.share("ratio", ratio)
        min_per_second = faults.rate("min_per_second", min_per_second)
        seconds = faults.seconds("window", window)
        if not faults and seconds < SHORTEST_WINDOW:
            faults.add("window", window, f">= {SHORTEST_WINDOW:g} s")
        if not faults and min_per_second * seconds >= MOST_RETRIES:
            faults.add("min_per_second", min_per_second, f"less than {MOST_RETRIES:g} in a window")
        faults.raise_any()
        super().__init__(name=name, ratio=ratio, min_per_second=min_per_second, window=seconds)

    def allowed(self, calls: int) -> int:
        """How many retries a window with so many calls allows."""
        # Floats: 0.29 * 100 is a little less than 29.
        return math.floor(self.ratio * calls + self.min_per_second * self.window + 1e-9)

    def named(self, name: str) -> RetryBudget:
        """The same under a name."""
        return RetryBudget(name, ratio=self.ratio, min_per_second=self.min_per_second, window=self.window)

    def differences(self, other: RetryBudget) -> tuple[str, ...]:
        """Field by field what `other` would change; the name is what both are known by."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in ("ratio", "min_per_second", "window"))
        return tuple(f"{name}: {ours!r}, not {theirs!r}" for name, ours, theirs in pairs if ours != theirs)


class RetryBudgetStatus(Record):
    """A retry budget at one moment.

    Attributes:
        name: the shared name; for a call site's own budget `module:qualname` of its function.
        calls: the calls whose first attempt began in the window.
        retries: the retries scheduled in it.
        left: how many more could be scheduled now.
        refused_total: retries that were not made for want of budget, since the budget was made.
    """

    name: str
    calls: int
    retries: int
    left: int
    refused_total: int


# ---------------------------------------------------------------------------------------------- calls
class CallSlice:
    """The calls of one slice of time.

    Attributes:
        began: when its first call came.
        edge: the moment from which calls belong to a later slice.
        ticks: `next(ticks)` counts a call; exact under threads.
        refused: counts those that turned out to be refused before anything was sent.
    """

    __slots__ = ("began", "edge", "refused", "ticks")

    def __init__(self, began: float, edge: float) -> None:
        self.began = began
        self.edge = edge
        self.ticks = count()
        self.refused = count()

    @property
    def calls(self) -> int:
        """Calls so far."""
        return reading(self.ticks) - reading(self.refused)


class CallWindow:
    """Calls per slice of time, as far back as a window looks."""

    __slots__ = ("_length", "_slices")

    def __init__(self, window: float) -> None:
        self._length = window / SLICES
        self._slices: dict[int, CallSlice] = {}

    @property
    def slices(self) -> tuple[CallSlice, ...]:
        """What is held at this moment."""
        return tuple(self._slices.copy().values())

    def slice_at(self, now: float) -> CallSlice:
        """The slice that a call at `now` belongs to; what no window will hold again is dropped on the way."""
        number = math.floor(now / self._length)
        # No lock: of those who begin a slice at once one is first, and the others find its slice.
        found = self._slices.get(number) or self._slices.setdefault(number, CallSlice(now, (number + 1) * self._length))
        # A copy is made in one step; walking through the dict itself a finaliser could come in between.
        for other in self._slices.copy():
            # One that lies far ahead is of before the clock jumped back. The very next one may be that of a thread
            # which was faster, and stays.
            if not number - SLICES <= other <= number + 1:
                self._slices.pop(other, None)
        return found


# ---------------------------------------------------------------------------------------------- retries
class Spent:
    """The retries of a window: frozen, but for the place of the one record that follows.

    Attributes:
        parts: for each slice of time with retries the moment of the last one, and how many there were.
    """

    __slots__ = ("_next", "parts")

    def __init__(self, parts: tuple[tuple[float, int], ...] = ()) -> None:
        self.parts = parts
        self._next: dict[None, Spent] = {}

    @property
    def latest(self) -> Spent:
        """The last record of the chain that begins here."""
        record = self
        while (following := record._next.get(None)) is not None:
            record = following
        return record

    def follow(self, after: Spent) -> bool:
        """Make `after` the record that follows; False if another has been faster."""
        return self._next.setdefault(None, after) is after


class Balance:
    """What a budget comes to at one moment: what was read of it, and `now`, which was read after that.

    In this order nothing lies ahead of `now`, unless the clock has jumped back. Then the
    calls that lie ahead don't count any more, and the retries count as made now: nobody
    spends twice, and nobody waits for longer than a window.

    Attributes:
        now: the moment.
        calls, retries: in the window.
        jumped: the retries that are held were made on a clock that was ahead: `after_jump` is to follow on them.
    """

    __slots__ = ("_budget", "_parts", "calls", "jumped", "now", "retries")

    def __init__(self, budget: RetryBudget, spent: Spent, slices: Iterable[CallSlice], now: float) -> None:
        self._budget = budget
        self.now = now
        self.calls = self.retries = 0
        for part in slices:
            if 0 <= now - part.began < budget.window:
                self.calls += part.calls
        self.jumped = False
        self._parts: tuple[tuple[float, int], ...] = ()
        for last, number in spent.parts:
            if last > now:
                self.jumped, last = True, now
            if now - last < budget.window:
                self._parts += ((last, number),)
                self.retries += number

    @property
    def left(self) -> int:
        """How many more it allows."""
        return max(0, self._budget.allowed(self.calls) - self.retries)

    def after_jump(self) -> Spent:
        """The record with the same retries, as made now."""
        return Spent(self._parts)

    def after_one(self) -> Spent:
        """The record with one retry more. Those of one slice of time are one part: there are few, whatever happens."""
        parts, now, length, one = self._parts, self.now, self._budget.window / SLICES, 1
        while parts and math.floor(parts[-1][0] / length) == math.floor(now / length):
            one += parts[-1][1]
            parts = parts[:-1]
        return Spent((*parts, (now, one)))
