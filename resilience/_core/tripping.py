"""What a circuit asks of a trip mode.

A mode is a frozen setting (`Consecutive` in `trip`, `FailureRate` in `window`) that makes
the machine keeping its figures. Successes are counted outside, without a lock; a machine is told
the running total and keeps differences of it. While `clean` holds and `edge` has not
been reached, one more success can change no decision and need not be reported.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Protocol

    from resilience._core.trip import Streak

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


# For type checkers only: a protocol takes its time to make, which everybody would pay for at import.
if TYPE_CHECKING:

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

        def adjusted(self, trip: Trip, now: float, successes: int) -> TripMachine | None:
            """A machine that goes on by other settings with what is held here; None where they count in another way.

            What is held opens nothing by itself: the next result is judged by the new numbers.
            """

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
