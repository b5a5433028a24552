"""The balance: what the callers, the provider and the library each counted must fit together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """The figures of a run, each counted by one party only: the callers, the provider, or the library."""

    # What became of the calls, and how often they were sent: the callers' count.
    made: int
    succeeded: int
    failed: int
    bad_answers: int
    timed_out: int
    refused: int
    full: int
    bypassed: int
    fallbacks: int
    unsent: int
    attempts: int
    retried: int
    stray: int
    sites: int
    sites_served: int
    # The provider's.
    seen: int
    answered: int
    unanswered: int
    probes_seen: int
    probe_overlap: int
    # The library's events.
    rejected_events: int
    bypassed_events: int
    retries_scheduled: int
    probes_started: int
    probes_succeeded: int
    probes_failed: int
    probes_released: int
    probe_peak: int
    cut_short: int
    # The breaker's status.
    rejected_total: int
    bypassed_total: int
    verdicts: int
    total_probes_started: int
    total_probes_ended: int
    # The script's.
    faults: int
    openings: int
    recoveries: int
    closings: int
    # What was left behind.
    threads_left: int


@dataclass(frozen=True)
class Line:
    """One thing that must hold between two counts. Where `=` would ask too much, `why` says what the rest is."""

    name: str
    left: str
    relation: str
    right: str
    values: tuple[int, int]
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether it does."""
        left, right = self.values
        return left == right if self.relation == "=" else left <= right

    def __str__(self) -> str:
        left, right = self.values
        return f"{self.name}: {self.left} ({left}) {self.relation} {self.right} ({right})"


def balance(facts: Facts) -> tuple[Line, ...]:
    """All that must hold of a run."""
    f = facts
    return (
        Line(
            "calls",
            "made",
            "=",
            "succeeded + failed + refused + bypassed",
            (f.made, f.succeeded + f.failed + f.refused + f.full + f.bypassed),
        ),
        Line("failures", "failed", "=", "answered with an error + timed out", (f.failed, f.bad_answers + f.timed_out)),
        Line("call sites", "of the demo", "=", "that got an answer", (f.sites, f.sites_served)),
        Line("requests", "sent by the callers", "=", "seen by the provider", (f.attempts, f.seen)),
        Line("answers", "seen by the provider", "=", "answered + left hanging", (f.seen, f.answered + f.unanswered)),
        Line(
            "attempts",
            "sent by the callers",
            "=",
            "one per call that went out + retried",
            (f.attempts, f.succeeded + f.failed - f.unsent + f.retried),
        ),
        Line("nothing sent", "requests of refused and bypassed calls", "=", "none", (f.stray, 0)),
        Line(
            "retries",
            "retried",
            "<=",
            "retries scheduled",
            (f.retried, f.retries_scheduled),
            "the rest met an open circuit, or their deadline, when their wait was over",
        ),
        Line(
            "refusals",
            "calls refused by the circuit",
            "<=",
            "refusals counted by the breaker",
            (f.refused, f.rejected_total),
            "the rest ended a retry, whose call failed with its last error",
        ),
        Line("refusal events", "refusals counted by the breaker", "=", "events", (f.rejected_total, f.rejected_events)),
        Line("bypasses", "calls bypassed", "=", "counted by the breaker", (f.bypassed, f.bypassed_total)),
        Line("bypass events", "calls bypassed", "=", "events", (f.bypassed, f.bypassed_events)),
        Line("fallbacks", "calls bypassed", "=", "fallbacks run", (f.bypassed, f.fallbacks)),
        Line(
            "verdicts",
            "results judged by the breaker",
            "<=",
            "sent by the callers",
            (f.verdicts, f.attempts),
            "the rest was cut short by a deadline too soon to say anything",
        ),
        Line(
            "probes",
            "started",
            "=",
            "succeeded + failed + released",
            (f.probes_started, f.probes_succeeded + f.probes_failed + f.probes_released),
        ),
        Line("probe events", "counted by the breaker", "=", "events", (f.total_probes_started, f.probes_started)),
        Line("probe ends", "started", "=", "ended, by the breaker", (f.total_probes_started, f.total_probes_ended)),
        Line("one probe", "at one time at the provider", "<=", "1", (f.probe_overlap, 1)),
        Line("one permit", "probes out at one time", "<=", "1", (f.probe_peak, 1)),
        Line("no early probe", "openings cut short", "=", "none", (f.cut_short, 0)),
        Line("openings", "faults of the provider", "=", "that opened the circuit", (f.faults, f.openings)),
        Line("closings", "recoveries of the provider", "=", "that closed it", (f.recoveries, f.closings)),
        Line("clean end", "threads left behind", "=", "none", (f.threads_left, 0)),
    )


def broken(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines that do not hold."""
    return tuple(line for line in lines if not line.holds)
