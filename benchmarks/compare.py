"""Has a ratio become worse? Compares a result with the stored baseline.

    python compare.py RESULT.json            # exits 1 if a ratio is more than 20 % worse than baseline.json
    python compare.py RESULT.json --update   # makes the result the baseline of its version of Python

A ratio is ours against something else in the same scenario of the same run: the empty wrapt wrapper, the fastest peer,
or the reference of the standard library.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labels import OURS, PLAIN, WRAPS, WRAPT, is_reference, peers_of

if TYPE_CHECKING:
    Result = dict[str, Any]
    Ratios = dict[str, dict[str, float]]

BASELINE = Path(__file__).resolve().parent / "baseline.json"
TOLERANCE = 1.20
NOT_COMPARED = (PLAIN, WRAPS)


def minor_of(result: Result) -> str:
    """The version of Python, as 3.11."""
    return ".".join(result["python"].split(".")[:2])


def ratios_of(result: Result) -> Ratios:
    """Ours in each scenario, as a multiple of what it is compared with."""
    found: Ratios = {}
    for scenario, measured in result["scenarios"].items():
        times = measured["ns"]
        if OURS not in times:
            continue
        against = {
            "wrapt" if name == WRAPT else name.removeprefix("(reference) "): ns
            for name, ns in times.items()
            if is_reference(name) and name not in NOT_COMPARED
        }
        if peers := peers_of(times):
            against["fastest peer"] = min(peers.values())
        found[scenario] = {name: round(times[OURS] / ns, 4) for name, ns in against.items()}
    return found


def compared_of(result: Result) -> Ratios:
    """The ratios that repeat: those of the wall clock tell too much of the neighbours."""
    return {name: found for name, found in ratios_of(result).items() if not result["scenarios"][name].get("wall")}


def regressions(now: Ratios, before: Ratios, tolerance: float = TOLERANCE) -> list[tuple[str, str, float, float]]:
    """Ratios that are worse than the tolerance allows: scenario, against what, before, now. New ones pass."""
    return [
        (scenario, name, before[scenario][name], ratio)
        for scenario, ratios in now.items()
        for name, ratio in ratios.items()
        if name in before.get(scenario, {}) and ratio > before[scenario][name] * tolerance
    ]


def missing(now: Ratios, before: Ratios) -> list[str]:
    """What the baseline has and the result has not."""
    return [
        f"{scenario}: {name}"
        for scenario, ratios in before.items()
        for name in ratios
        if name not in now.get(scenario, {})
    ]


def read(path: Path = BASELINE) -> dict[str, Ratios]:
    """The stored ratios by version of Python; none without a file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def update(result: Result, path: Path = BASELINE) -> None:
    """Store the ratios of a result as those of its version of Python."""
    stored = read(path) | {minor_of(result): compared_of(result)}
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def compare(result: Result, stored: dict[str, Ratios]) -> bool:
    """Print what became worse; whether nothing did."""
    version = minor_of(result)
    if version not in stored:
        print(f"no baseline for Python {version}: nothing to compare with")
        return True
    now, before = compared_of(result), stored[version]
    worse = regressions(now, before)
    for scenario, name, old, new in worse:
        print(f"WORSE  {scenario} / {name}: {old:.3g} before, {new:.3g} now ({new / old - 1:+.0%})")
    for line in missing(now, before):
        print(f"not measured this time: {line}")
    if not worse:
        print(f"no ratio is more than {TOLERANCE - 1:.0%} worse than the baseline for Python {version}")
    return not worse


def main(argv: list[str] | None = None) -> int:
    """The command line; see the top of the file."""
    parser = argparse.ArgumentParser(description="Has a ratio become worse?")
    parser.add_argument("result", type=Path, help="JSON written by run.py")
    parser.add_argument("--update", action="store_true", help="make it the baseline")
    arguments = parser.parse_args(argv)
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    if arguments.update:
        update(result)
        return 0
    return int(not compare(result, read()))


if __name__ == "__main__":
    raise SystemExit(main())
