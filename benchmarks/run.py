"""The whole benchmark: measure beside the peers, judge the bars, compare with the baseline.

    python benchmarks/run.py                 # exits 1 where a must-hold is missed or a ratio became 20 % worse
    python benchmarks/run.py --quick         # fewer and shorter rounds: to see that it works
    python benchmarks/run.py --json FILE     # keep the result
    python benchmarks/run.py --update        # store the result, make it the baseline, write the page
    python benchmarks/run.py --page          # measure nothing: write the page from the stored result

Runs on one core, where the system lets a process choose. A scenario during which the machine was more than 1.5 times
slower than at its best is measured once more.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import bars
import compare
import extras
import page
import peers
from harness import quiet

TOO_SLOW = 1.5


def pin() -> None:
    """Stay on one core: the last of those we may use, the first is the system's favourite."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure(repeats: int, ms: float) -> dict[str, Any]:
    """One result of everything, the slowed scenarios measured twice."""
    result = peers.run("ours", repeats=repeats, ms=ms)
    more = extras.run(repeats=repeats, ms=ms)
    result["scenarios"] |= more["scenarios"]
    result["figures"] = more["figures"]
    slowed = slowed_in(result)
    if slowed:
        print(f"\nthe machine was slowed in {len(slowed)} scenarios, these once more:")
        again = peers.run("ours", scenarios=slowed, repeats=repeats, ms=ms)["scenarios"]
        again |= extras.run(scenarios=slowed, repeats=repeats, ms=ms)["scenarios"]
        take_calmer(result, again)
    return result


def slowed_in(result: dict[str, Any]) -> set[str]:
    """The scenarios during which the machine was too slow."""
    return {name for name, found in result["scenarios"].items() if found["slowdown"] > TOO_SLOW}


def take_calmer(result: dict[str, Any], again: dict[str, Any]) -> None:
    """Put the second measurement of a scenario in the place of the first, where the machine was calmer."""
    for name, found in again.items():
        if found["slowdown"] < result["scenarios"][name]["slowdown"]:
            result["scenarios"][name] = found


def save(result: dict[str, Any], path: Path) -> None:
    """Write a result."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def update(result: dict[str, Any]) -> None:
    """Store the ratios; from the version that is judged also the result, on the page."""
    compare.update(result)
    if compare.minor_of(result) == bars.JUDGED_ON:
        save(result, page.RESULTS)
        page.write()


def main(argv: list[str] | None = None) -> int:
    """The command line; see the top of the file."""
    parser = argparse.ArgumentParser(description="Measure, judge and compare what a call costs.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--update", action="store_true", help="store the result: baseline, page")
    parser.add_argument("--page", action="store_true", help="only write the page from the stored result")
    arguments = parser.parse_args(argv)
    if arguments.page:
        page.write()
        return 0
    if arguments.quick and arguments.update:
        parser.error("--update wants a full run")
    pin()
    quiet()
    result = measure(*((3, 2.0) if arguments.quick else (15, 4.0)))
    peers.POOL.shutdown(wait=False)
    if arguments.json:
        save(result, arguments.json)
    judged = bars.judge(result)
    print("\n### bars")
    bars.show(judged)
    print("\n### baseline")
    unchanged = compare.compare(result, compare.read())
    if arguments.update:
        update(result)
        return int(bars.fails(judged))
    return int(bars.fails(judged) or not unchanged)


if __name__ == "__main__":
    raise SystemExit(main())
