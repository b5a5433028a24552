"""Draws the breaker's state diagram from its transition table into docs/policies/breaker.md.

`python docs/diagram.py` writes the page; with `--check` it exits 1 if the page does not
show the table as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

PAGE = Path(__file__).resolve().parent / "policies" / "breaker.md"
BEGIN = "<!-- diagram: begin (drawn by docs/diagram.py from the transition table) -->"
END = "<!-- diagram: end -->"


def draw(table: Mapping[tuple[Enum, Enum], Enum], start: str = "closed") -> str:
    """The table as a mermaid state diagram: one arrow per pair of states, in the order of the table."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, cause), after in table.items():
        arrows.setdefault((state.value, after.value), []).append(cause.value.replace("_", " "))
    lines = [f"    {before} --> {after}: {', '.join(causes)}" for (before, after), causes in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start}", *lines, "```"])


def placed(page: str, diagram: str) -> str:
    """The page with this diagram between its markers."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    replaced, places = pattern.subn(lambda _: f"{BEGIN}\n{diagram}\n{END}", page)
    if places != 1:
        raise ValueError(f"the page must have the diagram's markers once, found {places}")
    return replaced


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare."""
    from resilience._core.transitions import TRANSITIONS

    old = PAGE.read_text(encoding="utf-8")
    new = placed(old, draw(TRANSITIONS))
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
