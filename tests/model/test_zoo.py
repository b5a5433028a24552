"""The zoo: every wrong breaker in it is caught, by the model or by a test that is named beside it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from lockstep import disagreement
from protocol import Rate, Setting, Streak, TimedStreak
from search import search
from zoo import MODEL, ZOO

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.proof

# Small, and between them everything that a circuit can be told to do.
PENS = [
    Setting(Streak(2)),
    Setting(Streak(2), probes=2, successes=2, answered="ignore"),
    Setting(Streak(1), shadow=True),
    Setting(Streak(1), cooldown=1, ramp=2),
    Setting(TimedStreak(2, within=1)),
    Setting(TimedStreak(3, within=2), cooldown=1, lease=1),
    Setting(Rate(50, min_calls=2, buckets=3, most=3), cooldown=1, lease=1),
]
CALLERS = 2

seen = functools.cache(lambda setting: search(setting, CALLERS))


def caught_by_the_model():
    return any(disagreement(pen, seen(pen), CALLERS, free=free) for pen in PENS for free in (False, True))


@pytest.fixture
def caught_by(tmp_path):
    """Run a test in this process, in which the wrong function is in place; whether it fails."""
    # A configuration of its own: nothing of the outer run's, its time limit least of all.
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\naddopts = --import-mode=importlib\nmarkers =\n slow\n slow_sleep\n proof\n")
    options = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "-c",
        str(settings),
        "--rootdir",
        str(ROOT),
    ]

    def caught_by(test):
        outcome = pytest.main([*options, str(ROOT / test)])
        assert outcome in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), f"{test} can't be run: {outcome!r}"
        return outcome is pytest.ExitCode.TESTS_FAILED

    return caught_by


def test_the_right_breaker_is_not_caught():
    """Or being caught would mean nothing."""
    assert not caught_by_the_model()


def test_the_zoo_is_not_small():
    """No two alike, and enough of them."""
    assert len(ZOO) == len({mutant.what for mutant in ZOO}) >= 40


@pytest.mark.parametrize("mutant", [mutant for mutant in ZOO if mutant.caught == MODEL], ids=lambda mutant: mutant.what)
def test_the_model_catches(mutant, monkeypatch):
    """A circuit with this fault does at some step what the model does not."""
    mutant.put(monkeypatch)

    assert caught_by_the_model()


@pytest.mark.parametrize("mutant", [mutant for mutant in ZOO if mutant.caught != MODEL], ids=lambda mutant: mutant.what)
def test_a_named_test_catches(mutant, caught_by, monkeypatch):
    """The test that is named beside it fails, and passes without the fault."""
    assert not caught_by(mutant.caught)
    mutant.put(monkeypatch)

    assert caught_by(mutant.caught)
