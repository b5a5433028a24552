"""When failures open a circuit: the interface of the modes, and the streak.

A mode is a frozen setting (`Consecutive` here, `FailureRate` in `window`) that makes
the machine keeping its figures. Successes are counted outside, without a lock; a machine is told
the running total and keeps differences of it. While `clean` holds and `edge` has not
been reached, one more success can change no decision and need not be reported.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from resilience._core.checks import Faults
from resilience._core.counter import reading

NEVER = math.inf


class Figures(NamedTuple):
    """What counts at one moment: failures held, calls held, their ratio, and the same of slow calls.

    The ratios are None where nobody looks at them: without a window, or at how long calls take.
    """

    failures: int
    calls: int
    rate: float | None
    slow: int = 0
    slow_rate: float | None = None

    def figures(self, now: float, successes: int) -> Figures:
        """Themselves: figures that stay as they are, like those of an open circuit."""
        return self


class TripMachine(Protocol):
    """What a circuit asks of a mode."""

    @property
    def clean(self) -> bool:
        """One more success would change nothing but the running total."""

    @property
    def edge(self) -> float:
        """The moment from which a success must be reported although `clean`."""

    @property
    def streak(self) -> Streak | None:
        """The streak whose failures may be counted without the lock; None where each has to be reported."""

    @property
    def held(self) -> Held:
        """The figures as a value that can be read later, at any moment, without the lock."""

    def fail(self, now: float, successes: int) -> bool:
        """Record a failure; True if it opens the circuit."""

    def succeed(self, now: float, successes: int, slow: bool = False) -> bool:
        """Record a success that `successes` includes, and whether it took too long; True if it opens the circuit."""

    def answered(self) -> None:
        """Record that the remote is alive and said no."""

    def renewed(self, successes: int) -> TripMachine:
        """A machine for the next closed episode: this one, started over, or another."""

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment at which they open the circuit."""


class Held(Protocol):
    """Figures that can be read without a lock."""

    def figures(self, now: float, successes: int) -> Figures:
        """What counts at `now` in a circuit that is still closed."""


class Trip(Protocol):
    """A trip mode: a frozen setting that makes machines."""

    @property
    def windowed(self) -> bool:
        """Whether successes are part of the figures."""

    @property
    def slow_from(self) -> float:
        """The seconds from which on a success is slow; `NEVER` where nobody looks at how long calls take."""

    def machine(self) -> TripMachine:
        """A fresh machine of this mode."""


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

    @property
    def slow_from(self) -> float:
        """A streak does not look at how long calls take."""
        return NEVER

    def machine(self) -> Streak | TimedStreak:
        """A fresh streak."""
        return Streak(self.failures) if self.within is None else TimedStreak(self.failures, self.within)


class Strikes:
    """The failures of one streak, counted without a lock; a streak that ends is followed by a new object.

    One object holds both the count and the word that there is nothing to end, so that
    one store publishes both: whoever sees the one sees the other.

    Attributes:
        limit: the strike that opens the circuit; 0 where failures are not counted this way.
        ticks: `next(ticks)` counts one more and tells how many there are.
        clean: the episode while there is no strike, and so nothing that a success could end; else 0.
    """

    __slots__ = ("clean", "limit", "ticks")

    def __init__(self, limit: int, clean: int) -> None:
        self.limit = limit
        self.ticks = count(1)
        self.clean = clean

    @property
    def value(self) -> int:
        """Strikes so far."""
        return reading(self.ticks) - 1


class Streak:
    """The streaks of one closed episode.

    Attributes:
        strikes: the failures of the current streak.
        episode: the episode while successes may pass without the lock, else 0.
    """

    __slots__ = ("_limit", "edge", "episode", "strikes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.edge = NEVER
        self.episode = 0
        self.strikes = Strikes(limit, 0)

    @property
    def clean(self) -> bool:
        """Whether there is nothing that a success could end."""
        return bool(self.strikes.clean)

    @property
    def streak(self) -> Streak:
        """The machine itself, which may be used without the lock."""
        return self

    @property
    def held(self) -> Streak:
        """The machine itself: its figure is one read of the strikes."""
        return self

    def figures(self, now: float, successes: int) -> Figures:
        # The strike that opens is not yet seen by a circuit that still reads closed.
        held = min(self.strikes.value, self._limit - 1)
        return Figures(held, held, None)

    def fail(self, now: float, successes: int) -> bool:
        strikes = self.strikes
        opens = next(strikes.ticks) >= self._limit
        strikes.clean = 0
        return opens

    def succeed(self, now: float, successes: int, slow: bool = False) -> bool:
        self.answered()
        return False

    def answered(self) -> None:
        self.strikes = Strikes(self._limit, self.episode)

    def renewed(self, successes: int) -> Streak:
        """Another machine: what is still on its way to this one must not reach a later episode."""
        return Streak(self._limit)

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment of the trip."""
        return Figures(self._limit, self._limit, None)


class Unstruck:
    """Stands in the place of a streak where there is none to count on; `strikes.clean` is set under the lock."""

    __slots__ = ("strikes",)

    def __init__(self) -> None:
        self.strikes = Strikes(0, 0)


class TimedStreak:
    """The times of the last failures of the current streak, as many as would open the circuit."""

    __slots__ = ("_limit", "_within", "clean", "edge", "streak", "times")

    def __init__(self, limit: int, within: float) -> None:
        self.streak = None
        self._within = within
        self.edge = NEVER
        self._limit = limit
        # No deque can be longer than that, and none will ever be.
        self.times: deque[float] = deque(maxlen=min(limit, sys.maxsize))
        self.clean = True

    def fail(self, now: float, successes: int) -> bool:
        times = self.times
        times.append(now)
        self.clean = False
        return len(times) == self._limit and now - times[0] <= self._within

    def succeed(self, now: float, successes: int, slow: bool = False) -> bool:
        self.answered()
        return False

    def answered(self) -> None:
        # A new deque, not clear(): a frozen reader may still hold the old one.
        self.times = deque(maxlen=self.times.maxlen)
        self.clean = True

    def renewed(self, successes: int) -> TimedStreak:
        self.answered()
        return self

    @property
    def held(self) -> FrozenTimedStreak:
        """The times so far, readable at any later moment."""
        times = self.times
        return FrozenTimedStreak(times, len(times), times[-1] if times else 0.0, self._within)

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment of the trip."""
        return self.held.figures(now, successes)


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
