"""The journal: listens to the registry, counts what it hears, and tells it on as lines for people."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from resilience import CircuitState

if TYPE_CHECKING:
    from resilience import CircuitBreaker
    from resilience.cli.demo.script import Phase


@dataclass(frozen=True)
class Note:
    """One line: when (seconds since the start), what it is about, and what happened; `mood` is how to show it."""

    at: float
    about: str
    text: str
    mood: str = ""


@dataclass(frozen=True)
class Transition:
    """The circuit moved: for which reason, and when it opened, for how long and on account of which fault."""

    at: float
    before: CircuitState
    after: CircuitState
    cause: str
    open_for: float | None = None
    fault: str | None = None


SURELY_EARLY = 0.8
"""Of the time: an event is stamped a moment after its decision, and a busy machine makes this a long one."""
_MOODS = {CircuitState.CLOSED: "good", CircuitState.OPEN: "bad", CircuitState.HALF_OPEN: "odd"}


class Journal:
    """A listener of one registry. Events come one at a time and in order, so there is nothing to lock.

    Attributes:
        counts: events heard, by type.
        transitions: what moved the circuit, in order.
        probe_peak: how many probes were out at one time, at most.
        news: the lines that nobody has read yet.
    """

    def __init__(self, breaker: CircuitBreaker) -> None:
        self.counts: Counter[str] = Counter()
        self.transitions: list[Transition] = []
        self.probe_peak = 0
        self.news: SimpleQueue[Note] = SimpleQueue()
        self._breaker = breaker
        self._began = time.monotonic()

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def enter(self, phase: Phase) -> float:
        """Note that the provider changes its ways now; returns the moment."""
        now = self.now()
        self.news.put(Note(now, "provider", phase.name, "bad" if phase.is_fault else "good"))
        return now

    def __call__(self, event: Any) -> None:
        """Take one event of the registry's."""
        kind, at = type(event).__name__, event.at - self._began
        self.counts[kind] += 1
        match kind:
            case "StateChanged":
                self._moved(event, at)
            case "ProbeStarted":
                self.probe_peak = max(self.probe_peak, self.probes_out)
                self.news.put(Note(at, "probe", "one request may go and look", "odd"))
            case "ProbeSucceeded":
                self.news.put(Note(at, "probe", "answered", "good"))
            case "ProbeFailed":
                self.news.put(Note(at, "probe", "failed", "bad"))
            case "ProbeReleased":
                self.news.put(Note(at, "probe", f"given back: {event.reason}", "odd"))
            case _:
                # Refusals, bypasses, retries and timeouts are too many for lines of their own.
                pass

    @property
    def probes_out(self) -> int:
        """Probes that have started and not ended."""
        return self.counts["ProbeStarted"] - sum(
            self.counts[end] for end in ("ProbeSucceeded", "ProbeFailed", "ProbeReleased")
        )

    def first(self, state: CircuitState, since: float) -> float | None:
        """When the circuit first came to this state since then, None if it has not."""
        return next((move.at for move in self.transitions if move.after is state and move.at >= since), None)

    def cut_short(self) -> int:
        """How many openings ended before their time."""
        return sum(
            opening.open_for is not None and ending.at - opening.at < SURELY_EARLY * opening.open_for
            for opening, ending in pairwise(self.transitions)
            if opening.after is CircuitState.OPEN
        )

    def _moved(self, event: Any, at: float) -> None:
        failure = self._breaker.status().last_failure if event.after is CircuitState.OPEN else None
        fault = None if failure is None else f"{failure.type_name.rpartition('.')[2]}, {failure.kind}"
        self.transitions.append(Transition(at, event.before, event.after, event.cause, event.retry_after, fault))
        text = f"{event.before} -> {event.after} ({event.cause})"
        if event.retry_after is not None:
            text += f" for {event.retry_after:.2f} s"
        self.news.put(Note(at, "circuit", text if fault is None else f"{text}: {fault}", _MOODS[event.after]))
