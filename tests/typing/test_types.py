"""The type checkers agree with `api.py`: types are kept, and mistakes are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
API = Path(__file__).with_name("api.py")


def run(module: str, *options: str) -> str:
    """Run a checker in the environment of these tests, as it is configured for the project."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def about_the_api(output: str) -> list[str]:
    """The complaints about this file; those about the package are for the linter's step to find."""
    return [line for line in output.splitlines() if re.search(r"api\.py:\d+.*error", line)]


@pytest.mark.slow
def test_mypy(tmp_path: Path) -> None:
    """mypy --strict finds what is marked, and nothing else."""
    output = run("mypy", "--strict", "--cache-dir", str(tmp_path), str(API))
    assert [] == about_the_api(output)
    assert re.search(r"Success|Found \d+ error", output), output


@pytest.mark.slow
def test_pyright() -> None:
    """So does pyright, which is strict in that file."""
    output = run("pyright", "--pythonpath", sys.executable, str(API))
    if "error" not in output:
        pytest.skip(f"pyright does not run here: {output}")
    assert [] == about_the_api(output)


def test_every_mistake_names_its_code() -> None:
    """A bare ignore would hide another error than the one that is meant."""
    ignores = re.findall(r"type: ignore(\[[a-z, -]+\])?$", API.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(ignores) > 20
    assert "" not in ignores
