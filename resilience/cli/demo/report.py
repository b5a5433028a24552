"""What is left of a run: its phases, its transitions, its figures and its balance, ready to be shown or written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from resilience.cli.demo.balance import Facts, Line, balance, broken

if TYPE_CHECKING:
    from resilience.cli.demo.journal import Transition
    from resilience.cli.demo.script import Pace, Phase
    from resilience.cli.demo.tally import Tally


@dataclass(frozen=True)
class Played:
    """A phase as it went, in seconds since the start.

    `moved` is how long the circuit took, from the phase's beginning, to do what the
    phase was for: to open in a fault, to be closed in a recovery. None if it did not.
    """

    phase: Phase
    began: float
    ended: float
    moved: float | None


@dataclass(frozen=True)
class Report:
    """A whole run."""

    seconds: float
    pace: Pace
    phases: tuple[Played, ...]
    transitions: tuple[Transition, ...]
    sites: dict[str, Tally]
    answers: dict[str, int]
    refusals: list[int]
    facts: Facts
    lines: tuple[Line, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", balance(self.facts))

    @property
    def ok(self) -> bool:
        """Whether the balance holds."""
        return not broken(self.lines)

    def refusal_us(self) -> tuple[float, float] | None:
        """Median and 95th percentile of a refusal in µs, as its caller sees it; None if there was none."""
        if not self.refusals:
            return None
        slowest = quantiles(self.refusals, n=20, method="inclusive")[-1] if len(self.refusals) > 1 else self.refusals[0]
        return median(self.refusals) / 1000, slowest / 1000

    def recoveries(self) -> dict[str, float | None]:
        """Seconds from each recovery of the provider to a closed circuit; the first phase had nothing to recover from."""
        return {played.phase.name: played.moved for played in self.phases[1:] if not played.phase.is_fault}

    def as_json(self) -> dict[str, Any]:
        """The report as a document of plain values."""
        typical, slow = self.refusal_us() or (None, None)
        return {
            "ok": self.ok,
            "seconds": self.seconds,
            "settings": {name: _rounded(value) for name, value in asdict(self.pace).items()},
            "phases": [
                {
                    "name": played.phase.name,
                    "behaviour": played.phase.behaviour.value,
                    "from": _rounded(played.began),
                    "to": _rounded(played.ended),
                    "opened_after" if played.phase.is_fault else "closed_after": _rounded(played.moved),
                }
                for played in self.phases
            ],
            "transitions": [
                {
                    "at": _rounded(move.at),
                    "before": move.before.value,
                    "after": move.after.value,
                    "cause": move.cause,
                    "open_for": _rounded(move.open_for),
                    "fault": move.fault,
                }
                for move in self.transitions
            ],
            "sites": {name: _without_times(tally) for name, tally in self.sites.items()},
            "answers": self.answers,
            "figures": asdict(self.facts),
            "refusal_us": {"median": _rounded(typical), "p95": _rounded(slow)},
            "closed_after_recovery": {name: _rounded(seconds) for name, seconds in self.recoveries().items()},
            "balance": [
                {
                    "name": line.name,
                    "says": f"{line.left} {line.relation} {line.right}",
                    "left": line.values[0],
                    "relation": line.relation,
                    "right": line.values[1],
                    "holds": line.holds,
                    "why": line.why,
                }
                for line in self.lines
            ],
            "broken": [str(line) for line in broken(self.lines)],
        }


def _without_times(tally: Tally) -> dict[str, int]:
    return {name: value for name, value in vars(tally).items() if name != "refusals"}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
