"""The bars: what a call may cost, as ratios within one run.

    python bars.py RESULT.json

prints each figure with its bar, its goal and the verdict, and exits 1 where a must-hold is missed. The bars are judged
on CPython 3.11; other versions may miss them by a quarter.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from labels import (
    ASYNCIO_TIMEOUT,
    EMPTY_METHOD,
    EXECUTOR,
    KEYED,
    MONOTONIC,
    OURS,
    STREAK,
    TUPLE_LOOK_UP,
    WINDOW,
    WRAPS,
    WRAPT,
    peers_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = dict[str, Any]

JUDGED_ON = "3.11"
ELSEWHERE = 1.25
# Its guard and its counters take no lock.
NOT_THREAD_SAFE = ("circuitbreaker",)


class Verdict(Enum):
    """What a figure says about a bar."""

    GOAL = "goal reached"
    HOLDS = "holds"
    MISSED = "MISSED"
    UNKNOWN = "NOT MEASURED"


# ---------------------------------------------------------------------------------------------- figures of a result
def fastest(result: Result, scenario: str, without: tuple[str, ...] = ()) -> float:
    """Nanoseconds of the fastest peer in a scenario."""
    times = [ns for name, ns in peers_of(result["scenarios"][scenario]["ns"]).items() if name not in without]
    if not times:
        raise KeyError(scenario)
    return min(times)


def ours_per(scenario: str, name: str) -> Callable[[Result], float]:
    """Ours, as a multiple of another entry of the scenario."""

    def figure(result: Result) -> float:
        times = result["scenarios"][scenario]["ns"]
        return times[OURS] / times[name]

    return figure


def entry_per_ours(scenario: str, name: str) -> Callable[[Result], float]:
    """How many times faster ours is than another entry of the scenario."""
    return lambda result: 1 / ours_per(scenario, name)(result)


def fastest_per_ours(scenario: str, without: tuple[str, ...] = ()) -> Callable[[Result], float]:
    """How many times faster ours is than the fastest peer of the scenario."""
    return lambda result: fastest(result, scenario, without) / result["scenarios"][scenario]["ns"][OURS]


def added(scenario: str, by: str = WINDOW, reference: str = MONOTONIC) -> Callable[[Result], float]:
    """What a window (or something else) adds to a call, as a multiple of `time.monotonic()` (or something else)."""

    def figure(result: Result) -> float:
        times = result["scenarios"][scenario]["ns"]
        return (times[by] - times[STREAK]) / times[reference]

    return figure


def figure_named(name: str) -> Callable[[Result], float]:
    """A figure of `figures.py`."""
    return lambda result: result["figures"][name]


# ---------------------------------------------------------------------------------------------- bars
@dataclass(frozen=True)
class Bar:
    """One figure, what it must be, and what we would like it to be.

    Attributes:
        what: what is measured, for readers; bars of one scenario stand together.
        against: what it is compared with; empty for a plain figure.
        figure: reads it from a result; KeyError where it was not measured.
        must: the bar, at most this, or at least this where `more` is set.
        goal: the same for the goal, None without one.
        more: whether more is better.
        unit: what the figure counts (default: times as long, or as fast where more is better).
        exact: whether the bar is the same on every version.
    """

    what: str
    against: str
    figure: Callable[[Result], float]
    must: float
    goal: float | None = None
    more: bool = False
    unit: str | None = None
    exact: bool = False

    def bound(self, python: str) -> float:
        """The bar on this version of Python."""
        if self.exact or python.startswith(f"{JUDGED_ON}."):
            return self.must
        return self.must / ELSEWHERE if self.more else self.must * ELSEWHERE

    def meets(self, value: float, bound: float) -> bool:
        """Whether the value is on the right side of a bound."""
        return value >= bound if self.more else value <= bound

    def judge(self, result: Result) -> Judged:
        """The figure of a result, and the verdict."""
        bound = self.bound(result["python"])
        try:
            value = self.figure(result)
        except KeyError:
            return Judged(self, None, bound, Verdict.UNKNOWN)
        if not self.meets(value, bound):
            return Judged(self, value, bound, Verdict.MISSED)
        reached = self.goal is not None and self.meets(value, self.goal)
        return Judged(self, value, bound, Verdict.GOAL if reached else Verdict.HOLDS)

    def spell(self, value: float, digits: int = 4) -> str:
        """A figure for readers."""
        unit = self.unit if self.unit is not None else "× as fast" if self.more else "×"
        return f"{value:.{digits}g} {unit}".rstrip()

    def spell_bound(self, bound: float) -> str:
        """A bound for readers."""
        if not bound:
            return self.spell(bound)
        return f"{'≥' if self.more else '≤'} {self.spell(bound)}"


@dataclass(frozen=True)
class Judged:
    """A bar with its figure, the bound on that version of Python, and the verdict."""

    bar: Bar
    value: float | None
    bound: float
    verdict: Verdict

    @property
    def cells(self) -> tuple[str, ...]:
        """For a table, under `COLUMNS`."""
        bar = self.bar
        return (
            bar.what,
            bar.against,
            "-" if self.value is None else bar.spell(self.value, 3),
            bar.spell_bound(self.bound),
            "" if bar.goal is None else bar.spell_bound(bar.goal),
            self.verdict.value,
        )


COLUMNS = ("measured", "beside", "figure", "must hold", "goal", "verdict")
STACK, ASTACK = "sync/stack3/success", "async/stack4/success"
STACK_SAYS, ASTACK_SAYS = "sync stack, success", "async stack with timeout, success"
TENACITY = "tenacity + circuitbreaker + semaphore"
PEER = "fastest peer"


def beside_peers(what: str, scenario: str, must: float, goal: float | None) -> Bar:
    """A bar on how fast ours is beside the fastest peer."""
    return Bar(what, PEER, fastest_per_ours(scenario), must, goal, more=True)


BARS = (
    Bar(STACK_SAYS, "empty wrapt.decorator", ours_per(STACK, WRAPT), 0.35, 0.25),
    Bar(STACK_SAYS, "empty functools.wraps", ours_per(STACK, WRAPS), 2.0, 1.5),
    beside_peers(STACK_SAYS, STACK, 4, 6),
    Bar(STACK_SAYS, TENACITY, entry_per_ours(STACK, TENACITY), 60, more=True),
    Bar("sync breaker, success", "empty wrapt.decorator", ours_per("sync/breaker/success", WRAPT), 0.22, 0.16),
    beside_peers("sync breaker, success", "sync/breaker/success", 2, 2.5),
    Bar(ASTACK_SAYS, "one bare asyncio.timeout", ours_per("async/timeout/bare", ASYNCIO_TIMEOUT), 0.4, 0.3),
    beside_peers(ASTACK_SAYS, ASTACK, 4, 7),
    Bar(ASTACK_SAYS, "empty wrapt.decorator", ours_per(ASTACK, WRAPT), 1.7),
    beside_peers("sync stack, refused", "sync/stack3/reject", 1.8, 3),
    beside_peers("async stack, refused", "async/stack4/reject", 1.8, 3),
    beside_peers("sync breaker, refused", "sync/breaker/reject", 1.15, 1.5),
    beside_peers("async breaker, refused", "async/breaker/reject", 1.15, 1.5),
    beside_peers("sync breaker, counted failure", "sync/breaker/failure", 0.85, 1.1),
    beside_peers("async breaker, counted failure", "async/breaker/failure", 0.85, 1.1),
    beside_peers("sync stack, fails once", "sync/stack3/retry1", 0.75, 1.1),
    beside_peers("async stack, fails once", "async/stack4/retry1", 2.3, 3),
    Bar("sync timeout on a worker", "ThreadPoolExecutor", ours_per("sync/timeout/worker", EXECUTOR), 0.8, 0.65),
    Bar("guard() block", "circuitbreaker", ours_per("sync/guard/success", "circuitbreaker"), 1.5),
    Bar(
        "guard() block",
        "fastest thread-safe peer",
        fastest_per_ours("sync/guard/success", without=NOT_THREAD_SAFE),
        2,
        more=True,
    ),
    Bar("is_open(), closed", "empty method call", ours_per("is_open/closed", EMPTY_METHOD), 1.8),
    Bar("is_open(), open", "time.monotonic()", ours_per("is_open/open", MONOTONIC), 3),
    Bar("is_open(), closed, a million calls", "", figure_named("is_open_million_ms"), 100, unit="ms"),
    Bar("fault of an exception type seen before", "", figure_named("known_fault_ns"), 30, unit="ns"),
    Bar("sync rolling window adds", "time.monotonic()", added("sync/window/added"), 2),
    Bar("async rolling window adds", "time.monotonic()", added("async/window/added"), 2),
    Bar("sync stream, each item adds", "", figure_named("stream_item_sync_us"), 0.3, unit="µs"),
    Bar("async stream, each item adds", "", figure_named("stream_item_async_us"), 0.6, unit="µs"),
    Bar("async stream with limits, each item adds", "", figure_named("stream_item_async_budget_us"), 0.6, unit="µs"),
    Bar(
        "sync breaker by two keys adds",
        "dict look-up, fresh tuple",
        added("sync/keyed/added", KEYED, TUPLE_LOOK_UP),
        3,
        2,
    ),
    Bar(
        "async breaker by two keys adds",
        "dict look-up, fresh tuple",
        added("async/keyed/added", KEYED, TUPLE_LOOK_UP),
        3,
        2,
    ),
    Bar("a keyed breaker among 10,000", "", figure_named("bytes_per_keyed_breaker"), 1000, 400, unit="B", exact=True),
    Bar("8 threads, one 10 ms call each", "one call", figure_named("eight_threads"), 1.5),
    Bar("8 threads, results miscounted", "", figure_named("miscounted"), 0, unit="", exact=True),
    Bar("8 threads, calls above the slots", "", figure_named("above_slots"), 0, unit="", exact=True),
)


def judge(result: Result, bars: tuple[Bar, ...] = BARS) -> list[Judged]:
    """Every bar with its figure and verdict."""
    return [bar.judge(result) for bar in bars]


def fails(judged: list[Judged]) -> bool:
    """Whether a must-hold is missed, or could not be judged."""
    return any(row.verdict in (Verdict.MISSED, Verdict.UNKNOWN) for row in judged)


def show(judged: list[Judged]) -> None:
    """Print the table."""
    rows = [COLUMNS, *(row.cells for row in judged)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main(argv: list[str]) -> int:
    """The command line; see the top of the file."""
    if len(argv) != 1:
        print("usage: python bars.py RESULT.json", file=sys.stderr)
        return 2
    with open(argv[0], encoding="utf-8") as file:
        judged = judge(json.load(file))
    show(judged)
    return int(fails(judged))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
