"""Draws the breaker's state diagram from its transition table into docs/policies/breaker.md.

`python docs/diagram.py` writes the page; with `--check` it exits 1 if the page does not
show the table as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from generated import Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

PART = Part(
    Path(__file__).resolve().parent / "policies" / "breaker.md",
    "<!-- diagram: begin (drawn by docs/diagram.py from the transition table) -->",
    "<!-- diagram: end -->",
)


def draw(table: Mapping[tuple[Enum, Enum], Enum], start: str = "closed") -> str:
    """The table as a mermaid state diagram: one arrow per pair of states, in the order of the table."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, cause), after in table.items():
        arrows.setdefault((state.value, after.value), []).append(cause.value.replace("_", " "))
    lines = [f"    {before} --> {after}: {', '.join(causes)}" for (before, after), causes in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start}", *lines, "```"])


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare."""
    from resilience._core.transitions import TRANSITIONS

    return PART.write(draw(TRANSITIONS), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
