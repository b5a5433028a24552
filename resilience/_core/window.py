"""A failure rate in a rolling window of buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from resilience._core.checks import Faults
from resilience._core.trip import NEVER, Figures

MOST_SLICES = 100_000
SHORTEST_BUCKET = 1e-6


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Open when the share of failures in a rolling window is too high.

    Args:
        rate: the share that opens (0 < rate ≤ 1, default 0.5).
        window: seconds looked back (> 0, default 30), a multiple of `bucket`, fewer than 100,000 of them.
        bucket: seconds of one slice of the window (≥ 1e-6, default 3). A call counts in the slice of its end.
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
    slow_call: None = field(default=None, repr=False)
    slow_rate: None = field(default=None, repr=False)

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
        "streak",
    )

    def __init__(self, setting: FailureRate) -> None:
        self.streak = None
        self._rate = setting.rate
        self._min_calls = setting.min_calls
        self._bucket = setting.bucket
        self._slices = round(setting.window / setting.bucket)
        self._slice = 0
        self.renewed(0)

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

    def renewed(self, successes: int) -> RollingWindow:
        self._hold(())
        self._base = successes
        self._failures = 0
        self.clean = True
        # Asked at the first result, whatever the clock has done meanwhile.
        self.edge = -NEVER
        return self

    @property
    def held(self) -> FrozenWindow:
        """The slices so far, readable at any later moment."""
        return FrozenWindow(self._closed, Slice(self._slice, self._base, self._failures), self._bucket, self._slices)

    def tripped(self, now: float, successes: int) -> Figures:
        """The figures at the moment of the trip."""
        return self.held.figures(now, successes)

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
