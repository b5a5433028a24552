"""Failures in a row that open a circuit: the setting, and the machines that count them."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from resilience._core.checks import Faults
from resilience._core.counter import reading
from resilience._core.tripping import NEVER, Figures

if TYPE_CHECKING:
    from resilience._core.tripping import Trip


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
        ticks: `next(ticks)` counts one more and tells how many there are.
        clean: the episode while there is no strike, and so nothing that a success could end; else 0.
        carried: how many were taken over from a streak with another limit.
        sealed: how many another streak has taken over from this one; None while nobody has.
    """

    __slots__ = ("carried", "clean", "sealed", "ticks")

    def __init__(self, clean: int, carried: int = 0) -> None:
        self.ticks = count(carried + 1)
        self.clean = clean
        self.carried = carried
        self.sealed: int | None = None

    @property
    def value(self) -> int:
        """Strikes so far."""
        return reading(self.ticks) - 1


class Struck(NamedTuple):
    """A strike that is to be reported under the lock: the streak, its strikes at that moment, and its number."""

    streak: object
    strikes: Strikes
    number: int


class Streak:
    """The streaks of one closed episode, as long as the settings stay.

    Attributes:
        limit: the strike that opens the circuit.
        strikes: the failures of the current streak.
        episode: the episode while successes may pass without the lock, else 0.
    """

    __slots__ = ("edge", "episode", "limit", "strikes")

    def __init__(self, limit: int, carried: int = 0) -> None:
        self.limit = limit
        self.edge = NEVER
        self.episode = 0
        self.strikes = Strikes(0, carried)

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
        strikes = self.strikes
        held = min(strikes.value, max(self.limit - 1, strikes.carried))
        return Figures(held, held, None)

    def fail(self, now: float, successes: int) -> bool:
        strikes = self.strikes
        opens = next(strikes.ticks) >= self.limit
        strikes.clean = 0
        return opens

    def succeed(self, now: float, successes: int, slow: bool = False) -> bool:
        self.answered()
        return False

    def answered(self) -> None:
        self.strikes = Strikes(self.episode)

    def renewed(self, successes: int) -> Streak:
        """Another machine: what is still on its way to this one must not reach a later episode."""
        return Streak(self.limit)

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment of the trip."""
        # Of those that came at once the last one may be the first to get here.
        strikes = max(self.limit, self.strikes.carried + 1)
        return Figures(strikes, strikes, None)

    def adjusted(self, trip: Trip, now: float, successes: int) -> Streak | None:
        strikes = self.strikes
        # Said before the strikes are read, and how many there are after it: whoever strikes and finds nothing said
        # has been read; whoever finds it comes to the lock with the number of its strike, which tells.
        strikes.sealed = 0
        strikes.sealed = held = self.figures(now, successes).failures
        if not isinstance(trip, Consecutive) or trip.within is not None:
            return None
        return Streak(trip.failures, held)


class Unstruck:
    """Stands in the place of a streak where there is none to count on; `strikes.clean` is set under the lock."""

    __slots__ = ("limit", "strikes")

    def __init__(self) -> None:
        self.limit = 0
        self.strikes = Strikes(0)


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

    def adjusted(self, trip: Trip, now: float, successes: int) -> TimedStreak | None:
        if not isinstance(trip, Consecutive) or trip.within is None:
            return None
        other = TimedStreak(trip.failures, trip.within)
        # Of more than fit the last ones stay.
        other.times.extend(self.times)
        other.clean = self.clean
        return other

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
