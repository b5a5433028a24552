"""Writes the tables of docs/benchmarks.md from a stored result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bars import COLUMNS, JUDGED_ON, judge
from compare import ratios_of
from labels import OURS, peers_of
from peers import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Result = dict[str, Any]

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
RESULTS = HERE / f"results-{JUDGED_ON}.json"


def begin(part: str) -> str:
    """The marker before a generated part of the page."""
    return f"<!-- {part}: begin (written by benchmarks/run.py --page) -->"


def end(part: str) -> str:
    """The marker after it."""
    return f"<!-- {part}: end -->"


def table(head: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; `align` has l or r for each column."""
    rule = ["---" if side == "l" else "---:" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def draw_about(result: Result) -> str:
    """Where the figures come from."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    slowest = max(measured["slowdown"] for measured in result["scenarios"].values())
    return "\n".join(
        [
            f"CPython {result['python']}, {result['repeats']} rounds, on one core.",
            f"The machine was at most {slowest:.2f} times slower than at its best while a scenario ran.",
            f"Compared were {versions}.",
        ]
    )


def draw_bars(result: Result) -> str:
    """Every bar with its figure and the verdict."""
    return table(COLUMNS, "llrrrl", (row.cells for row in judge(result)))


def draw_peers(result: Result) -> str:
    """Ours in every scenario, beside the empty wrapper and the fastest peer."""
    ratios = ratios_of(result)

    def row(scenario: str) -> tuple[str, ...]:
        found = ratios[scenario]
        peers = peers_of(result["scenarios"][scenario]["ns"])
        best = min(peers, key=lambda name: peers[name])
        wrapt = f"{found['wrapt']:.2f}" if "wrapt" in found else ""
        ours = found["fastest peer"]
        return scenario, SCENARIOS[scenario]["text"], wrapt, f"{ours:.2f}", best if ours <= 1 else f"**{best}**"

    head = ("scenario", "what happens", "× empty wrapt.decorator", "× fastest peer", "fastest peer")
    return table(head, "llrrl", (row(name) for name in SCENARIOS if "fastest peer" in ratios.get(name, {})))


def draw_shown(result: Result) -> str:
    """What has no bar."""
    figures = result["figures"]
    calls = figures["single_calls_ns"]
    names = {
        "closed": "closed, succeeds",
        "failing": "closed, fails and is counted",
        "refused": "open, refused",
        "half_open": "half-open, the probe that closes",
        "cycle": "a whole cycle: trip, refusal, probe that closes",
    }
    tails = table(
        ("one call of a function under a breaker", "p50", "p95", "p99"),
        "lrrr",
        (
            (text, *(f"{calls[name][cut] / 1000:.2f} µs" for cut in ("p50", "p95", "p99")))
            for name, text in names.items()
        ),
    )
    rest = [
        ("10 threads on an empty function, a call beside one thread's", f"{figures['ten_threads']['ratio']:.2f} ×"),
        ("memory of one breaker among 10,000", f"{figures['bytes_per_breaker']:.0f} B"),
    ]
    if found := result["scenarios"].get("uvloop/timeout/bare"):
        bare = next(ns for name, ns in found["ns"].items() if name != OURS)
        rest.insert(0, ("async stack on uvloop, beside one bare asyncio.timeout", f"{found['ns'][OURS] / bare:.2f} ×"))
    return f"{tails}\n\n{table(('figure', ''), 'lr', rest)}"


PARTS = {"about": draw_about, "bars": draw_bars, "peers": draw_peers, "shown": draw_shown}


def placed(page: str, result: Result) -> str:
    """The page with all parts of this result between their markers."""
    for part, draw in PARTS.items():
        pattern = re.compile(f"{re.escape(begin(part))}\n.*?{re.escape(end(part))}", re.DOTALL)
        text = f"{begin(part)}\n{draw(result)}\n{end(part)}"
        page, places = pattern.subn(lambda _, text=text: text, page)
        if places != 1:
            raise ValueError(f"the page must have the markers of {part!r} once, found {places}")
    return page


def write() -> None:
    """Write the page from the stored result."""
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
