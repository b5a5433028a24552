"""When failures open a circuit: two modes behind one interface.

A mode is a frozen setting (`Consecutive`, `FailureRate`) that makes the machine
keeping its figures. Successes are counted outside, without a lock; a machine is told
the running total and keeps differences of it. While `clean` holds and `edge` has not
been reached, one more success can change no decision and need not be reported.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from resilience._core.checks import Faults

NEVER = math.inf


class Figures(NamedTuple):
    """What counts at one moment: failures held, calls held, and their ratio (None without a window)."""

    failures: int
    calls: int
    rate: float | None

    def figures(self, now: float, successes: int) -> Figures:
        """Themselves: figures that stay as they are, like those of an open circuit."""
        return self


class TripMachine(Protocol):
    """What a circuit asks of a mode."""

    clean: bool
    """One more success would change nothing but the running total."""
    edge: float
    """The moment from which a success must be reported although `clean`."""

    def fail(self, now: float, successes: int) -> bool:
        """Record a failure; True if it opens the circuit."""

    def succeed(self, now: float, successes: int) -> bool:
        """Record a success that `successes` includes; True if it opens the circuit (a rate can)."""

    def answered(self) -> None:
        """Record that the remote is alive and said no."""

    def clear(self, successes: int) -> None:
        """Start over."""

    def freeze(self) -> Frozen:
        """The figures as an immutable value that can be read later, at any moment."""


class Frozen(Protocol):
    """Figures taken at a change, readable without a lock."""

    def figures(self, now: float, successes: int) -> Figures:
        """What counts at `now`."""


class Trip(Protocol):
    """A trip mode: a frozen setting that makes machines."""

    @property
    def windowed(self) -> bool:
        """Whether successes are part of the figures."""

    def machine(self) -> TripMachine:
        """A fresh machine of this mode."""


# ---------------------------------------------------------------------------------------------- a streak of failures
@dataclass(frozen=True, slots=True)
class Consecutive:
    """Open after a streak of failures; a success ends the streak.

    Args:
        failures: how many in a row (≥ 1, default 5).
        within: seconds in which all of them must lie (> 0); None (default) for no limit. A true sliding
            window over the last `failures` failure times: one aged exactly `within` still counts.

    Raises:
        ConfigurationError: a value out of its range.

    Example:
        >>> Consecutive(5, within=60)
        Consecutive(failures=5, within=60.0)
    """

    failures: int = 5
    within: float | None = None

    def __post_init__(self) -> None:
        faults = Faults()
        object.__setattr__(self, "failures", faults.count("failures", self.failures))
        if self.within is not None:
            object.__setattr__(self, "within", faults.seconds("within", self.within))
        faults.raise_any()

    @property
    def windowed(self) -> bool:
        """Successes are no part of a streak."""
        return False

    def machine(self) -> Streak | TimedStreak:
        """A fresh streak."""
        return Streak(self.failures) if self.within is None else TimedStreak(self.failures, self.within)


class Streak:
    """The length of the current streak."""

    __slots__ = ("_limit", "clean", "edge", "length")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.edge = NEVER
        self.length = 0
        self.clean = True

    def fail(self, now: float, successes: int) -> bool:
        self.length += 1
        self.clean = False
        return self.length >= self._limit

    def succeed(self, now: float, successes: int) -> bool:
        self.answered()
        return False

    def answered(self) -> None:
        self.length = 0
        self.clean = True

    def clear(self, successes: int) -> None:
        self.answered()

    def freeze(self) -> FrozenStreak:
        return FrozenStreak(self.length)


class FrozenStreak(int):
    """A streak's length as figures."""

    __slots__ = ()

    def figures(self, now: float, successes: int) -> Figures:
        return Figures(int(self), int(self), None)


class TimedStreak:
    """The times of the last failures of the current streak, as many as would open the circuit."""

    __slots__ = ("_within", "clean", "edge", "times")

    def __init__(self, limit: int, within: float) -> None:
        self._within = within
        self.edge = NEVER
        self.times: deque[float] = deque(maxlen=limit)
        self.clean = True

    def fail(self, now: float, successes: int) -> bool:
        times = self.times
        times.append(now)
        self.clean = False
        return len(times) == times.maxlen and now - times[0] <= self._within

    def succeed(self, now: float, successes: int) -> bool:
        self.answered()
        return False

    def answered(self) -> None:
        # A new deque, not clear(): a frozen reader may still hold the old one.
        self.times = deque(maxlen=self.times.maxlen)
        self.clean = True

    def clear(self, successes: int) -> None:
        self.answered()

    def freeze(self) -> FrozenTimedStreak:
        times = self.times
        return FrozenTimedStreak(times, len(times), times[-1] if times else 0.0, self._within)


class FrozenTimedStreak(NamedTuple):
    """A timed streak as it was when `last` was its newest entry.

    The deque is shared, so that freezing costs the same whatever the limit; entries
    that came later are left out by their time.
    """

    times: deque[float]
    length: int
    last: float
    within: float

    def figures(self, now: float, successes: int) -> Figures:
        held = sum(1 for at in tuple(self.times) if at <= self.last and now - at <= self.within)
        held = min(held, self.length)
        return Figures(held, held, None)


# ----------------------------------------------------------------------------------------------- a rate in a window
@dataclass(frozen=True, slots=True)
class FailureRate:
    """Open when the share of failures in a rolling window is too high.

    Args:
        rate: the share that opens (0 < rate ≤ 1, default 0.5).
        window: seconds looked back (> 0, default 30), a multiple of `bucket`.
        bucket: seconds of one slice of the window (> 0, default 3). A call counts in the slice of its end.
        min_calls: calls the window must hold before its rate means anything (≥ 1, default 10).
        slow_call: not available in this version.
        slow_rate: not available in this version.

    Raises:
        ConfigurationError: a value out of its range, or a window that is no multiple of its bucket.

    Example:
        >>> FailureRate(0.5, window=30, bucket=3, min_calls=10).windowed
        True
    """

    rate: float = 0.5
    window: float = 30.0
    bucket: float = 3.0
    min_calls: int = 10
    slow_call: None = None
    slow_rate: None = None

    def __post_init__(self) -> None:
        faults = Faults()
        object.__setattr__(self, "rate", faults.share("rate", self.rate))
        object.__setattr__(self, "window", faults.seconds("window", self.window))
        object.__setattr__(self, "bucket", faults.seconds("bucket", self.bucket))
        object.__setattr__(self, "min_calls", faults.count("min_calls", self.min_calls))
        faults.unavailable("slow_call", self.slow_call)
        faults.unavailable("slow_rate", self.slow_rate)
        if not faults:
            slices = self.window / self.bucket
            if round(slices) < 1 or abs(slices - round(slices)) > 1e-9 * slices:
                faults.add("window", self.window, f"a multiple of bucket ({self.bucket:g})")
        faults.raise_any()

    @property
    def windowed(self) -> bool:
        """Successes are half of a rate."""
        return True

    def machine(self) -> RollingWindow:
        """A fresh window."""
        return RollingWindow(self)


class RollingWindow:
    """Calls and failures per slice of time; the window is the current slice and the n-1 before it.

    Only the number of the slice, the running total at its start and its failures are
    kept for the current slice; what came before is a tuple of closed slices.
    """

    __slots__ = (
        "_base",
        "_bucket",
        "_closed",
        "_failures",
        "_held_calls",
        "_held_failures",
        "_min_calls",
        "_rate",
        "_slice",
        "_slices",
        "clean",
        "edge",
    )

    def __init__(self, setting: FailureRate) -> None:
        self._rate = setting.rate
        self._min_calls = setting.min_calls
        self._bucket = setting.bucket
        self._slices = round(setting.window / setting.bucket)
        self._closed: tuple[Slice, ...] = ()
        self._held_calls = 0
        self._held_failures = 0
        self._slice = 0
        self._base = 0
        self._failures = 0
        self.clean = True
        self.edge = -NEVER

    def fail(self, now: float, successes: int) -> bool:
        self._roll(now, successes)
        self._failures += 1
        return self._judge(successes)

    def succeed(self, now: float, successes: int) -> bool:
        # The total includes this success already; the slices before it do not.
        self._roll(now, successes - 1)
        return self._judge(successes)

    def answered(self) -> None:
        """Windows record nothing of it."""

    def clear(self, successes: int) -> None:
        self._hold(())
        self._base = successes
        self._failures = 0
        self.clean = True

    def freeze(self) -> FrozenWindow:
        return FrozenWindow(self._closed, Slice(self._slice, self._base, self._failures), self._bucket, self._slices)

    def _judge(self, successes: int) -> bool:
        """Whether the rate opens; a success can only lower it, unless it is the one that reaches the minimum."""
        failures = self._held_failures + self._failures
        calls = self._held_calls + successes - self._base + self._failures
        enough = calls >= self._min_calls
        self.clean = enough or not failures
        return enough and failures / calls >= self._rate

    def _roll(self, now: float, successes: int) -> None:
        number = math.floor(now / self._bucket)
        if number == self._slice and self.edge > now:
            return
        if number < self._slice:
            # The clock jumped back: what is held can't be placed any more.
            self._hold(())
        else:
            oldest = number - self._slices + 1
            closing = Slice(self._slice, successes - self._base, self._failures)
            kept = [part for part in self._closed if part.number >= oldest]
            if closing.number >= oldest and (closing.successes or closing.failures):
                kept.append(closing)
            self._hold(tuple(kept))
        self._slice = number
        self._base = successes
        self._failures = 0
        self.edge = first_moment_of(number + 1, self._bucket)

    def _hold(self, closed: tuple[Slice, ...]) -> None:
        self._closed = closed
        self._held_failures = sum(part.failures for part in closed)
        self._held_calls = self._held_failures + sum(part.successes for part in closed)


class Slice(NamedTuple):
    """One slice of a window: its number, its successes (of the current slice: the total at its start), its failures."""

    number: int
    successes: int
    failures: int


class FrozenWindow(NamedTuple):
    """A window's slices, to be summed at any later moment."""

    closed: tuple[Slice, ...]
    current: Slice
    bucket: float
    slices: int

    def figures(self, now: float, successes: int) -> Figures:
        oldest = math.floor(now / self.bucket) - self.slices + 1
        number, base, failures = self.current
        parts = [*self.closed, Slice(number, max(0, successes - base), failures)]
        held = [part for part in parts if part.number >= oldest]
        failed = sum(part.failures for part in held)
        calls = failed + sum(part.successes for part in held)
        return Figures(failed, calls, failed / calls if calls else 0.0)


def first_moment_of(number: int, bucket: float) -> float:
    """The smallest float `t` with floor(t / bucket) = number: the product alone may be one step off."""
    moment = number * bucket
    while math.floor(moment / bucket) < number:
        moment = math.nextafter(moment, math.inf)
    while math.floor((before := math.nextafter(moment, -math.inf)) / bucket) >= number:
        moment = before
    return moment
