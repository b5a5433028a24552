"""The examples are programs that work: each runs by itself, quickly, and ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAST_LINES = {
    "async_failover.py": "east is back:",
    "last_known_rates.py": "the breaker:",
    "shared_retry_budget.py": "the budget:",
    "urllib_client.py": "recovered:",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs(run, name):
    """It exits with 0, warns of nothing, and comes to its last line."""
    code, out, err = run("-W", "error", str(EXAMPLES / name))

    assert 0 == code, err
    assert out.splitlines()[-1].startswith(LAST_LINES[name])
    # Openings are logged as warnings, which a program without a log configuration shows.
    assert [] == [line for line in err.splitlines() if not line.startswith("circuit ")]


def test_no_example_is_left_out():
    """A new example is run as well."""
    assert set(LAST_LINES) == {path.name for path in EXAMPLES.glob("*.py")}
