"""A circuit's running totals: figures that only grow."""

from __future__ import annotations

from resilience._core.counter import Counter


class Totals:
    """What a circuit has counted since it was made.

    Attributes:
        successes, failures: counted by many threads without a lock.
        answered: refusals by a remote that is alive.
        slow: successes that took too long, which the successes include.
        late: results that came after their episode or lease; late_accepted: those of the latter that still counted.
        would_refuse: refusals of a circuit in shadow mode.
        probes_started: always the sum of the three below and of those still out.
        probes_succeeded, probes_failed, probes_released: how probes ended.
    """

    __slots__ = (
        "answered",
        "failures",
        "late",
        "late_accepted",
        "probes_failed",
        "probes_released",
        "probes_started",
        "probes_succeeded",
        "slow",
        "successes",
        "would_refuse",
    )

    def __init__(self) -> None:
        self.successes = Counter()
        self.failures = Counter()
        self.zero()

    def zero(self) -> None:
        """Start over, in place: compiled wrappers hold the counters."""
        self.successes.zero()
        self.failures.zero()
        self.answered = self.slow = self.late = self.late_accepted = self.would_refuse = 0
        self.probes_started = self.probes_succeeded = self.probes_failed = self.probes_released = 0
