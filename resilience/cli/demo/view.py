"""What people see: lines as it happens, then a timeline, what became of the calls, and the balance."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from resilience import CircuitState
from resilience.cli.demo.balance import broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from resilience import CircuitBreaker
    from resilience.cli.demo.callers import Crowd
    from resilience.cli.demo.journal import Note
    from resilience.cli.demo.report import Report
    from resilience.cli.demo.script import Phase

STYLES = {"good": "green", "bad": "red", "odd": "yellow", "": ""}
MARKS = {CircuitState.CLOSED: ("-", "green"), CircuitState.OPEN: ("#", "red"), CircuitState.HALF_OPEN: ("?", "yellow")}
CALLS = {
    "made": "made",
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "  by a timeout",
    "refused": "refused: open",
    "full": "refused: no slot",
    "bypassed": "bypassed",
    "attempts": "requests sent",
    "retried": "  to try again",
}
STRIP = 66


class Silence:
    """An audience that leaves standard output to the document."""

    def note(self, note: Note, /) -> None:
        """Not shown."""

    def tick(self, phase: Phase, breaker: CircuitBreaker, crowd: Crowd, /) -> None:
        """Not shown."""


class Screen:
    """A console: coloured, with a line that moves, where it is a terminal; plain lines where it is none."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._seen: tuple[Phase, CircuitBreaker, Crowd] | None = None

    @contextmanager
    def watching(self) -> Iterator[Screen]:
        """Keep a line of figures below the others, as long as the block lasts."""
        if not self.console.is_terminal:
            yield self
            return
        with Live(get_renderable=self._figure_line, console=self.console, transient=True, refresh_per_second=10):
            yield self

    def note(self, note: Note, /) -> None:
        """Print one line."""
        self._line(Text.assemble((f"{note.at:7.2f} s  ", "dim"), f"{note.about:<10}", (note.text, STYLES[note.mood])))

    def tick(self, phase: Phase, breaker: CircuitBreaker, crowd: Crowd, /) -> None:
        """Remember what the line of figures is read from."""
        self._seen = phase, breaker, crowd

    def _figure_line(self) -> Text:
        if self._seen is None:
            return Text("")
        phase, breaker, crowd = self._seen
        made = sum(tally.made for tally in crowd.sites().values())
        mark, style = MARKS[breaker.state]
        return Text.assemble(f"{made:6} calls  ", (f"{mark * 3} {breaker.state}", style), f"  provider: {phase.name}")

    # ------------------------------------------------------------------------------------------------ at the end
    def show(self, report: Report) -> None:
        """Print the whole report."""
        self._timeline(report)
        self._calls(report)
        self._figures(report)
        self._balance(report)

    def _timeline(self, report: Report) -> None:
        table = _table("Timeline", "provider", "from", "to", "circuit")
        for played in report.phases:
            word = "opened" if played.phase.is_fault else "closed"
            if played.moved is None:
                told = Text(f"not {word}", "red")
            else:
                told = Text(f"{word} after {played.moved:.3f} s" if played.moved else "closed all along")
            name = Text(played.phase.name, STYLES["bad" if played.phase.is_fault else "good"])
            table.add_row(name, f"{played.began:.2f} s", f"{played.ended:.2f} s", told)
        self.console.print()
        self.console.print(table)
        self._line(strip(report))

    def _calls(self, report: Report) -> None:
        table = _table("Calls", "")
        parties: dict[str, object] = {**report.sites, "together": report.facts}
        for party in parties:
            table.add_column(party, justify="right", no_wrap=True)
        for field, label in CALLS.items():
            table.add_row(label, *(str(getattr(party, field)) for party in parties.values()))
        self.console.print()
        self.console.print(table)

    def _figures(self, report: Report) -> None:
        facts = report.facts
        self.console.print()
        answers = ", ".join(f"{count} x {status}" for status, count in report.answers.items())
        self._line(Text(f"The provider saw {facts.seen} requests, and answered: {answers}."))
        if (times := report.refusal_us()) is not None:
            self._line(Text(f"A refusal took {times[0]:.0f} µs (median), {times[1]:.0f} µs (95th percentile)."))
        self._line(
            Text(
                f"{facts.probes_started} probes: {facts.probes_succeeded} succeeded, {facts.probes_failed} failed, "
                f"{facts.probes_released} given back; never more than {facts.probe_overlap} at the provider."
            )
        )
        for name, seconds in report.recoveries().items():
            told = "never" if seconds is None else f"after {seconds:.3f} s"
            self._line(Text(f"From the provider's recovery ({name}) to a closed circuit: {told}."))

    def _balance(self, report: Report) -> None:
        self.console.print()
        self._line(Text("Balance", "italic"))
        for line in report.lines:
            mark, style = ("holds ", "green") if line.holds else ("BROKEN", "bold red")
            self._line(Text.assemble((mark, style), f"  {line}"))
            if line.why:
                self._line(Text(f"        ({line.why})", "dim"))
        for line in broken(report.lines):
            self._line(Text(f"The balance does not hold: {line}", "bold red"))
        if report.ok:
            self._line(Text("The balance holds.", "bold green"))

    def _line(self, text: Text) -> None:
        # Lines are never folded: whoever reads them from a file or a pipe gets them whole.
        self.console.print(text, soft_wrap=True)


def _table(title: str, *heads: str) -> Table:
    """Narrow enough for 80 columns, and readable where lines can't be drawn."""
    return Table(*(Column(head, no_wrap=True) for head in heads), title=title, title_justify="left", box=SIMPLE_HEAD)


def strip(report: Report) -> Text:
    """The circuit's states on a line of time; a slice shows the rarest state in it: half-open, open, closed."""
    end = report.phases[-1].ended
    edges = [0.0, *(move.at for move in report.transitions), end]
    states = [CircuitState.CLOSED, *(move.after for move in report.transitions)]
    text = Text("  ")
    for cell in range(STRIP):
        start, stop = end * cell / STRIP, end * (cell + 1) / STRIP
        inside = {state for i, state in enumerate(states) if edges[i] < stop and edges[i + 1] > start}
        shown = next(
            state for state in (CircuitState.HALF_OPEN, CircuitState.OPEN, CircuitState.CLOSED) if state in inside
        )
        text.append(*MARKS[shown])
    return text.append(f"  {' '.join(f'{mark} {state}' for state, (mark, _) in MARKS.items())}", "dim")
