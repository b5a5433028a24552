"""The balance of the demo: it holds for a sound run, and each of its lines can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("rich_click")

from resilience.cli.demo.balance import balance, broken

# For each line, figures off by one that only a fault of the library or the demo can explain.
BREAKS = [
    ("calls", {"made": 101}),
    ("calls", {"full": 4}),
    ("failures", {"bad_answers": 8}),
    ("failures", {"timed_out": 2}),
    ("call sites", {"sites_served": 2}),
    ("requests", {"seen": 64}),
    ("requests", {"attempts": 66}),
    ("answers", {"answered": 61}),
    ("answers", {"unanswered": 4}),
    ("attempts", {"retried": 7}),
    ("attempts", {"unsent": 0}),
    ("nothing sent", {"stray": 1}),
    ("retries", {"retries_scheduled": 5}),
    ("refusals", {"rejected_total": 24}),
    ("refusal events", {"rejected_events": 26}),
    ("bypasses", {"bypassed_total": 9}),
    ("bypass events", {"bypassed_events": 11}),
    ("fallbacks", {"fallbacks": 11}),
    ("verdicts", {"verdicts": 66}),
    ("probes", {"probes_released": 0}),
    ("probe events", {"total_probes_started": 7}),
    ("probe ends", {"total_probes_ended": 5}),
    ("no early probe", {"cut_short": 1}),
    ("one probe", {"probe_overlap": 2}),
    ("one permit", {"probe_peak": 2}),
    ("openings", {"openings": 1}),
    ("closings", {"closings": 1}),
    ("clean end", {"threads_left": 1}),
]


def test_a_sound_run_balances(sound):
    """Figures that fit together break no line."""
    assert () == broken(balance(sound))


@pytest.mark.parametrize(("name", "changes"), BREAKS)
def test_each_line_can_fail(sound, name, changes):
    """A figure that is off by one breaks the line that it belongs to."""
    assert name in [line.name for line in broken(balance(replace(sound, **changes)))]


def test_no_line_is_left_out(sound):
    """Every line of the balance is among those shown to fail."""
    assert {line.name for line in balance(sound)} == {name for name, _ in BREAKS}


def test_a_line_tells_both_sides(sound):
    """Who reads a broken line sees what was compared, and with what."""
    line = broken(balance(replace(sound, seen=66, answered=63)))[0]

    assert "requests: sent by the callers (65) = seen by the provider (66)" == str(line)


def test_a_tolerance_is_explained(sound):
    """Where a line asks for less than equality, it says what the rest is."""
    one_at_most = {"one probe", "one permit"}

    assert [] == [
        line.name for line in balance(sound) if line.relation == "<=" and not line.why and line.name not in one_at_most
    ]
