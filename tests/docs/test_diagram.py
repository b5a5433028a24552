"""The breaker's diagram in the manual is the transition table."""

from __future__ import annotations

import runpy
from enum import Enum
from pathlib import Path

import pytest

from resilience._core.transitions import TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]
diagram = runpy.run_path(str(ROOT / "docs" / "diagram.py"))


def test_the_page_shows_the_table():
    """After a change of the table, `python docs/diagram.py` draws the page anew."""
    part = diagram["PART"]
    page = part.page.read_text(encoding="utf-8")

    assert part.placed(page, diagram["draw"](TRANSITIONS)) == page


def test_every_row_is_drawn():
    """One arrow for each pair of states, with all causes on it."""

    class Light(Enum):
        RED = "red"
        GREEN = "green"

    class Cause(Enum):
        TIME = "time_passed"
        BUTTON = "button"

    drawn = diagram["draw"](
        {
            (Light.RED, Cause.TIME): Light.GREEN,
            (Light.GREEN, Cause.TIME): Light.RED,
            (Light.RED, Cause.BUTTON): Light.GREEN,
        },
        start="red",
    )

    assert [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> red",
        "    red --> green: time passed, button",
        "    green --> red: time passed",
        "```",
    ] == drawn.splitlines()


def test_a_page_without_markers_is_refused():
    """A diagram that has no place is an error, not a silent omission."""
    with pytest.raises(ValueError, match="markers"):
        diagram["PART"].placed("# Breaker\n", "")
