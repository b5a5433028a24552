"""The second model of the permit protocol, written apart from the first, checked by spin: invariants, and I7 as a claim."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("permits.pml")
HAVE_SPIN = shutil.which("spin") is not None and shutil.which("gcc") is not None

pytestmark = [
    pytest.mark.proof,
    # Where the tools were asked for, their absence is no reason to be silent.
    pytest.mark.skipif(not HAVE_SPIN and "RESILIENCE_SPIN" not in os.environ, reason="needs spin and gcc"),
]


def run(*command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(folder, **defines):
    """Search the model with weak fairness; how many states it has, and what spin says is wrong."""
    shutil.copy(MODEL, folder)
    options = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in defines.items()]
    run("spin", "-a", *options, MODEL.name, folder=folder)
    run("gcc", "-O0", "-w", "-DNFAIR=8", "-o", "pan", "pan.c", folder=folder)
    said = run("./pan", "-a", "-f", "-m1000000", folder=folder)
    assert "search depth too small" not in said
    wrong = re.search(r"pan:1: (.*) \(at depth", said)
    assert (wrong is None) == ("errors: 0" in said), said
    return int(re.search(r"(\d+) states, stored", said)[1]), wrong and wrong[1]


@pytest.mark.parametrize(
    ("callers", "probes", "successes", "at_least"),
    [(3, 1, 1, 500), (3, 2, 2, 4_000), (4, 2, 2, 15_000), (5, 2, 1, 30_000)],
)
def test_spin_finds_nothing(tmp_path, callers, probes, successes, at_least):
    """Every assertion holds in every state, and from each of them a healthy remote closes the circuit."""
    states, wrong = check(tmp_path, CALLERS=callers, PROBES=probes, SUCCESSES=successes)

    assert wrong is None
    assert states >= at_least


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("WRONG_NO_CAP", r"n<="),
        ("WRONG_TOO_EARLY", r"wait==0"),
        ("WRONG_LOSES_THE_LAST", r"failures<="),
        ("WRONG_LATE_CLOSES", r"wait==0"),
        ("WRONG_NEUTRAL_KEEPS", r"acceptance cycle"),
        ("WRONG_NO_LEASE", r"acceptance cycle"),
    ],
)
def test_spin_finds_a_fault(tmp_path, fault, found):
    """Each fault that the model can be given is found, by the assertion or claim that is about it."""
    _, wrong = check(tmp_path, **{fault: None})

    assert wrong is not None
    assert re.search(found, wrong)
