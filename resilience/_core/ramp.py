"""The ramp: how much a circuit lets through after it has closed by its probes.

The share grows with time from none to all. Who is let through is no matter of chance:
each ask adds the share of its moment to a credit, and the ask that makes it whole
spends it. So over any stretch as many pass as the shares add up to, give or take one,
and the same asks at the same times have the same answers.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_CREDIT = 1.0
"""The first ask passes: a probe has just found the remote well, and where few ask nobody should wait for long."""


class Ramp(NamedTuple):
    """One ramp: when it began, how many seconds it lasts, and when it ends on the wall clock."""

    began: float
    seconds: float
    ends_ns: int

    def left(self, now: float) -> float:
        """Seconds until everything passes; 0 where it is over, or began in the future: the clock has jumped back."""
        gone = now - self.began
        return self.seconds - gone if 0 <= gone < self.seconds else 0.0

    def share(self, now: float) -> float:
        """The share that passes at this moment of it."""
        return (now - self.began) / self.seconds
