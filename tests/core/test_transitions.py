"""The transition table itself."""

from __future__ import annotations

from resilience._core.transitions import MANUAL, TRANSITIONS, Input
from resilience._words import CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState


def test_the_machine_has_four_rows():
    """What no operator does: trip, cool down, and the two ways a probe decides."""
    own = {(before, cause.value, after) for (before, cause), after in TRANSITIONS.items() if cause not in MANUAL}

    assert {
        (CLOSED, "tripped", OPEN),
        (OPEN, "cooled", HALF_OPEN),
        (HALF_OPEN, "probes_succeeded", CLOSED),
        (HALF_OPEN, "probe_failed", OPEN),
    } == own


def test_only_time_and_operators_leave_open():
    """I2: no result has a row that leaves open."""
    leaving = {cause for (before, cause), after in TRANSITIONS.items() if before is OPEN}

    assert {Input.COOLED} | MANUAL == leaving


def test_each_operator_act_has_one_goal():
    """Forcing opens, the other acts close."""
    goals = {(cause, after) for (_, cause), after in TRANSITIONS.items() if cause in MANUAL}

    assert {
        (Input.FORCED, OPEN),
        (Input.RESET, CLOSED),
        (Input.DISABLED, CLOSED),
        (Input.ENABLED, CLOSED),
    } == goals


def test_every_input_is_used():
    """An input without a row would be a word without a meaning."""
    assert set(Input) == {cause for _, cause in TRANSITIONS}
