"""The transition table: every way a circuit can move, and nothing else moves it."""

from __future__ import annotations

from resilience._words import CircuitState, Word

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class Input(Word):
    """What can move a circuit."""

    TRIPPED = "tripped"
    COOLED = "cooled"
    PROBES_SUCCEEDED = "probes_succeeded"
    PROBE_FAILED = "probe_failed"
    RESET = "reset"
    FORCED = "forced_open"
    DISABLED = "disabled"
    ENABLED = "enabled"


TRANSITIONS: dict[tuple[CircuitState, Input], CircuitState] = {
    (CLOSED, Input.TRIPPED): OPEN,
    (OPEN, Input.COOLED): HALF_OPEN,
    (HALF_OPEN, Input.PROBES_SUCCEEDED): CLOSED,
    (HALF_OPEN, Input.PROBE_FAILED): OPEN,
    # --- an operator's rows
    (OPEN, Input.RESET): CLOSED,
    (HALF_OPEN, Input.RESET): CLOSED,
    (CLOSED, Input.FORCED): OPEN,
    (OPEN, Input.FORCED): OPEN,
    (HALF_OPEN, Input.FORCED): OPEN,
    (CLOSED, Input.DISABLED): CLOSED,
    (OPEN, Input.DISABLED): CLOSED,
    (HALF_OPEN, Input.DISABLED): CLOSED,
    (CLOSED, Input.ENABLED): CLOSED,
    (OPEN, Input.ENABLED): CLOSED,
}

MANUAL = frozenset({Input.RESET, Input.FORCED, Input.DISABLED, Input.ENABLED})
"""The inputs that come from an operator."""
