"""`import resilience` is cheap, and loads nothing that a user may never need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import resilience

ROUNDS = 7
HEAVY = ("asyncio", "wrapt", "tenacity", "prometheus_client")
# Where this run takes the package from: the installed one or the tree.
WHERE = str(Path(resilience.__file__).resolve().parent.parent)


def fresh_python(code: str) -> str:
    """The output of `code` in an interpreter that has loaded no site, no plugin and no coverage."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "COV_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({WHERE!r})\n{code}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def import_seconds(module: str) -> float:
    return float(
        fresh_python(f"from time import perf_counter as now; t = now()\nimport {module}\nprint(now() - t, flush=True)")
    )


@pytest.mark.slow
def test_import_costs_less_than_asyncio():
    """The whole package loads faster than asyncio alone, measured side by side in fresh interpreters."""
    import_seconds("resilience"), import_seconds("asyncio")  # byte code is written once
    rounds = [(import_seconds("resilience"), import_seconds("asyncio")) for _ in range(ROUNDS)]
    ours, asyncio = (min(column) for column in zip(*rounds, strict=True))

    assert ours < asyncio, f"import resilience: {ours * 1e3:.1f} ms, import asyncio: {asyncio * 1e3:.1f} ms"


@pytest.mark.parametrize("module", HEAVY)
def test_import_loads_nothing_heavy(module):
    """What only some users need is loaded when they need it."""
    assert "False" == fresh_python(f"import resilience\nprint({module!r} in sys.modules)")


def test_families_are_loaded_when_they_are_needed():
    """Few programs have keys, and every one imports the package."""
    code = """
import sys
import resilience
before = [name for name in sys.modules if "keyed_" in name or "families" in name and "catalogue" not in name]
resilience.Registry().family("llm", labels="provider")["a"]
print(before, resilience.BreakerFamily.__name__, resilience.BulkheadFamily.__name__)
"""

    assert "['resilience._families'] BreakerFamily BulkheadFamily" == fresh_python(code)


def test_a_name_that_nobody_has():
    """A misspelt name is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'BreakerFamilies'"):
        _ = resilience.BreakerFamilies
