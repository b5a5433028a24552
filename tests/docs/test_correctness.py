"""The page of promises: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8").partition("## How the circuit is proved")[0]
PROMISES = re.findall(r"^\| (?P<promise>[^|]+) \| (?P<tests>`tests/[^|]+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_promises():
    """Each row of its tables is one, and names its tests."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| Promise", "| ---"))]

    assert len(rows) == len(PROMISES) >= 20


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[promise[:40] for promise, _ in PROMISES])
def test_the_tests_of_a_promise_exist(promise, tests):
    """A test that is renamed or deleted takes the promise with it, or finds a successor."""
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for name in named:
        file, _, function = name.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\(", source, re.MULTILINE), f"{name} is gone: {promise}"
