"""Rates in a rolling window of buckets: of failures, and of calls that took too long."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from resilience._core.checks import Faults
from resilience._core.tripping import NEVER, Figures

if TYPE_CHECKING:
    from resilience._core.tripping import Trip

MOST_SLICES = 100_000
SHORTEST_BUCKET = 1e-6


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Open when the share of failures, or of slow calls, in a rolling window is too high.

    Args:
        rate: the share that opens (0 < rate ≤ 1, default 0.5).
        window: seconds looked back (> 0, default 30), a multiple of `bucket`, fewer than 100,000 of them.
        bucket: seconds of one slice of the window (≥ 1e-6, default 3). A call counts in the slice of its end.
        min_calls: calls the window must hold before its rate means anything (≥ 1, default 10).
        slow_call: seconds from which on a success counts as slow (> 0); None (default): nobody looks at how long calls take.
        slow_rate: the share of slow calls that opens as well (0 < slow_rate ≤ 1); left out it is the same as `rate`.

    A failure counts as a failure, never as slow. A probe that succeeds slowly counts as
    failed: a circuit that opened for slowness must not close on a slow answer.

    Raises:
        ConfigurationError: a value out of its range, a window that is no multiple of its bucket,
            `slow_rate` without `slow_call`.

    Example:
        >>> FailureRate(0.5, window=30, bucket=3, min_calls=10).windowed
        True
        >>> FailureRate(slow_call=2.5).slow_rate
        0.5
    """

    rate: float = 0.5
    window: float = 30.0
    bucket: float = 3.0
    min_calls: int = 10
    slow_call: float | None = None
    slow_rate: float | None = None

    def __post_init__(self) -> None:
        faults = Faults()
        object.__setattr__(self, "rate", faults.share("rate", self.rate))
        object.__setattr__(self, "window", faults.seconds("window", self.window))
        object.__setattr__(self, "bucket", faults.seconds("bucket", self.bucket))
        object.__setattr__(self, "min_calls", faults.count("min_calls", self.min_calls))
        if self.slow_call is not None:
            object.__setattr__(self, "slow_call", faults.seconds("slow_call", self.slow_call))
            given = self.rate if self.slow_rate is None else faults.share("slow_rate", self.slow_rate)
            object.__setattr__(self, "slow_rate", given)
        elif self.slow_rate is not None:
            faults.add("slow_rate", self.slow_rate, "left out without slow_call, which says what is slow")
        if not faults:
            slices = self.window / self.bucket
            if not slices < MOST_SLICES:
                faults.add("window", self.window, f"less than {MOST_SLICES:,} buckets ({self.bucket:g})")
            elif round(slices) < 1 or abs(slices - round(slices)) > 1e-9 * slices:
                faults.add("window", self.window, f"a multiple of bucket ({self.bucket:g})")
            elif self.bucket < SHORTEST_BUCKET:
                faults.add("bucket", self.bucket, f">= {SHORTEST_BUCKET:g} s")
        faults.raise_any()

    @property
    def windowed(self) -> bool:
        """Successes are half of a rate."""
        return True

    @property
    def slow_from(self) -> float:
        """The seconds from which on a success is slow; `NEVER` without `slow_call`."""
        return NEVER if self.slow_call is None else self.slow_call

    def __repr__(self) -> str:
        given = [(item.name, getattr(self, item.name)) for item in fields(self)]
        return f"FailureRate({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"

    def machine(self) -> RollingWindow:
        """A fresh window."""
        return RollingWindow(self)


class RollingWindow:
    """Calls, failures and slow calls per slice of time; the window is the current slice and the n-1 before it.

    Only the number of the slice, the running total at its start, its failures and slow
    calls are kept for the current slice; what came before is a tuple of closed slices.
    """

    __slots__ = (
        "_base",
        "_bucket",
        "_closed",
        "_failures",
        "_held_calls",
        "_held_failures",
        "_held_slow",
        "_min_calls",
        "_rate",
        "_slice",
        "_slices",
        "_slow",
        "_slow_rate",
        "clean",
        "edge",
        "streak",
    )

    def __init__(self, setting: FailureRate) -> None:
        self.streak = None
        self._rate = setting.rate
        self._slow_rate = setting.slow_rate
        self._min_calls = setting.min_calls
        self._bucket = setting.bucket
        self._slices = round(setting.window / setting.bucket)
        self._slice = 0
        self.renewed(0)

    def fail(self, now: float, successes: int) -> bool:
        self._roll(now, successes)
        self._failures += 1
        return self._judge(successes)

    def succeed(self, now: float, successes: int, slow: bool = False) -> bool:
        # The total includes this success already; the slices before it do not.
        self._roll(now, successes - 1)
        self._slow += slow
        return self._judge(successes)

    def answered(self) -> None:
        """Windows record nothing of it."""

    def renewed(self, successes: int) -> RollingWindow:
        self._hold(())
        self._base = successes
        self._failures = self._slow = 0
        self.clean = True
        # Asked at the first result, whatever the clock has done meanwhile.
        self.edge = -NEVER
        return self

    def adjusted(self, trip: Trip, now: float, successes: int) -> RollingWindow | None:
        if not isinstance(trip, FailureRate) or trip.bucket != self._bucket:
            return None
        # What counts at this moment goes on counting, as far as the new window reaches.
        self._roll(now, successes)
        self._rate, self._slow_rate, self._min_calls = trip.rate, trip.slow_rate, trip.min_calls
        self._slices = round(trip.window / trip.bucket)
        oldest = self._slice - self._slices + 1
        self._hold(tuple(part for part in self._closed if part.number >= oldest))
        # By the new numbers also a success may open.
        self.clean = False
        return self

    @property
    def held(self) -> FrozenWindow:
        """The slices so far, readable at any later moment."""
        current = Slice(self._slice, self._base, self._failures, self._slow)
        return FrozenWindow(self._closed, current, self._bucket, self._slices, self._slow_rate is not None)

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment of the trip."""
        return self.held.figures(now, successes)

    def _judge(self, successes: int) -> bool:
        """Whether a rate opens; a quick success can only lower both, unless it is the one that reaches the minimum."""
        failures = self._held_failures + self._failures
        calls = self._held_calls + successes - self._base + self._failures
        slow = self._held_slow + self._slow
        enough = calls >= self._min_calls
        self.clean = enough or not (failures or slow)
        if not enough:
            return False
        return failures / calls >= self._rate or (self._slow_rate is not None and slow / calls >= self._slow_rate)

    def _roll(self, now: float, successes: int) -> None:
        number = math.floor(now / self._bucket)
        if number == self._slice and self.edge > now:
            return
        if number < self._slice:
            # The clock jumped back: what is held can't be placed any more.
            self._hold(())
        else:
            oldest = number - self._slices + 1
            closing = Slice(self._slice, successes - self._base, self._failures, self._slow)
            kept = [part for part in self._closed if part.number >= oldest]
            if closing.number >= oldest and (closing.successes or closing.failures):
                kept.append(closing)
            self._hold(tuple(kept))
        self._slice = number
        self._base = successes
        self._failures = self._slow = 0
        self.edge = first_moment_of(number + 1, self._bucket)

    def _hold(self, closed: tuple[Slice, ...]) -> None:
        self._closed = closed
        self._held_failures = sum(part.failures for part in closed)
        self._held_calls = self._held_failures + sum(part.successes for part in closed)
        self._held_slow = sum(part.slow for part in closed)


class Slice(NamedTuple):
    """One slice of a window: its number, its successes (of the current slice: the total at its start), its failures.

    `slow` of its successes took too long.
    """

    number: int
    successes: int
    failures: int
    slow: int = 0


class FrozenWindow(NamedTuple):
    """A window's slices, to be summed at any later moment."""

    closed: tuple[Slice, ...]
    current: Slice
    bucket: float
    slices: int
    timed: bool = False

    def figures(self, now: float, successes: int) -> Figures:
        oldest = math.floor(now / self.bucket) - self.slices + 1
        number, base, failures, slow = self.current
        parts = [*self.closed, Slice(number, max(0, successes - base), failures, slow)]
        held = [part for part in parts if part.number >= oldest]
        failed = sum(part.failures for part in held)
        calls = failed + sum(part.successes for part in held)
        rate = failed / calls if calls else 0.0
        if not self.timed:
            return Figures(failed, calls, rate)
        slow = sum(part.slow for part in held)
        return Figures(failed, calls, rate, slow, slow / calls if calls else 0.0)


def first_moment_of(number: int, bucket: float) -> float:
    """The smallest float `t` with floor(t / bucket) = number: the product alone may be one step off."""
    moment = number * bucket
    while math.floor(moment / bucket) < number:
        moment = math.nextafter(moment, math.inf)
    while math.floor((before := math.nextafter(moment, -math.inf)) / bucket) >= number:
        moment = before
    return moment
