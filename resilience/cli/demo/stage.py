"""One run of the script: starts everything, waits for the circuit to follow, and adds up at the end."""

from __future__ import annotations

import time
from queue import Empty
from typing import TYPE_CHECKING, Protocol

from resilience import CircuitState, Registry
from resilience.cli.demo.balance import Facts
from resilience.cli.demo.callers import Crowd, Setup
from resilience.cli.demo.journal import Journal
from resilience.cli.demo.report import Played, Report
from resilience.cli.demo.script import Pace, Phase, script
from resilience.cli.demo.server import Provider
from resilience.cli.demo.tally import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resilience import CircuitBreaker
    from resilience.cli.demo.journal import Note

TICK = 0.05


class Audience(Protocol):
    """Whoever watches while it happens."""

    def note(self, note: Note, /) -> None:
        """Something happened."""

    def tick(self, phase: Phase, breaker: CircuitBreaker, crowd: Crowd, /) -> None:
        """A moment has passed."""


def play(seconds: float, audience: Audience) -> Report:
    """Play the whole script in about `seconds`; whatever ends it, nothing is left running."""
    setup = Setup(Registry(), Provider(), Pace.of(seconds))
    journal = Journal(setup.shared)
    unsubscribe = setup.registry.subscribe(journal)
    crowd = Crowd(setup)
    try:
        with setup.provider.running():
            with crowd.calling():
                phases = [_phase(phase, setup, journal, crowd, audience) for phase in script(seconds)]
            setup.provider.count_up()
    finally:
        unsubscribe()
    _tell(journal, audience, 0.0)
    sites = crowd.sites()
    return Report(
        seconds=seconds,
        pace=setup.pace,
        phases=tuple(phases),
        transitions=tuple(journal.transitions),
        sites=sites,
        answers={**+setup.provider.answered, "none": setup.provider.unanswered},
        refusals=total(sites.values()).refusals,
        facts=_facts(setup, journal, crowd, phases),
    )


def _phase(phase: Phase, setup: Setup, journal: Journal, crowd: Crowd, audience: Audience) -> Played:
    """Let one phase last for its time, and longer if the circuit needs longer to do what the phase is for."""
    began = journal.enter(phase)
    setup.provider.enter(phase)
    moved = None
    while True:
        now = journal.now()
        if moved is None:
            moved = _moved(phase, setup.shared, journal, began)
        left = began + phase.seconds - now
        if left <= 0 and (moved is not None or -left > setup.pace.patience):
            return Played(phase, began, now, moved)
        _tell(journal, audience, min(TICK, left) if left > 0 else TICK / 10)
        audience.tick(phase, setup.shared, crowd)


def _moved(phase: Phase, breaker: CircuitBreaker, journal: Journal, began: float) -> float | None:
    """Seconds the circuit took to open in a fault, or to close in a recovery; None as long as it has not."""
    wanted = CircuitState.OPEN if phase.is_fault else CircuitState.CLOSED
    moved = journal.first(wanted, began)
    if moved is not None:
        return moved - began
    # It may have been closed all the time; an opening must be this phase's own.
    return 0.0 if not phase.is_fault and breaker.state is wanted else None


def _tell(journal: Journal, audience: Audience, seconds: float) -> None:
    """Pass the news on for so long."""
    until = time.monotonic() + seconds
    while True:
        try:
            note = journal.news.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return
        audience.note(note)


def _facts(setup: Setup, journal: Journal, crowd: Crowd, phases: Sequence[Played]) -> Facts:
    sites, events, provider = crowd.sites(), journal.counts, setup.provider
    calls = total(sites.values())
    status = setup.shared.status()
    moved = [played.phase.is_fault for played in phases if played.moved is not None]
    faults = sum(played.phase.is_fault for played in phases)
    return Facts(
        made=calls.made,
        succeeded=calls.succeeded,
        failed=calls.failed,
        bad_answers=calls.bad_answers,
        timed_out=calls.timed_out,
        refused=calls.refused,
        full=calls.full,
        bypassed=calls.bypassed,
        fallbacks=calls.fallbacks,
        unsent=calls.unsent,
        attempts=calls.attempts,
        retried=calls.retried,
        stray=calls.stray,
        sites=len(sites),
        sites_served=sum(tally.succeeded > 0 for tally in sites.values()),
        seen=provider.seen,
        answered=provider.answered.total(),
        unanswered=provider.unanswered,
        probes_seen=provider.probes,
        probe_overlap=provider.probe_overlap,
        rejected_events=events["Rejected"],
        bypassed_events=events["Bypassed"],
        retries_scheduled=events["RetryScheduled"],
        probes_started=events["ProbeStarted"],
        probes_succeeded=events["ProbeSucceeded"],
        probes_failed=events["ProbeFailed"],
        probes_released=events["ProbeReleased"],
        probe_peak=journal.probe_peak,
        cut_short=journal.cut_short(),
        rejected_total=status.rejected_total,
        bypassed_total=status.bypassed_total,
        verdicts=status.successes_total
        + status.failures_total
        + status.answered_total
        + status.late_results
        - status.late_accepted,
        total_probes_started=status.probes_started,
        total_probes_ended=status.probes_succeeded + status.probes_failed + status.probes_released,
        faults=faults,
        openings=sum(moved),
        recoveries=len(phases) - faults,
        closings=len(moved) - sum(moved),
        threads_left=sum(thread.is_alive() for thread in crowd.threads) + provider.alive,
    )
