"""A run of the demo that went well, as figures, and a way to start programs that see the package under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import resilience

WHERE = str(Path(resilience.__file__).resolve().parents[1])


@pytest.fixture
def start(tmp_path):
    """Start Python with some arguments, in an empty folder; whatever still runs at the end is killed."""
    started = []

    def begin(*args):
        env = {**os.environ, "PYTHONPATH": WHERE, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, *args],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """Run Python to its end: exit code, standard output, standard error."""

    def to_the_end(*args):
        process = start(*args)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    return to_the_end


@pytest.fixture
def sound():
    """Figures that fit together."""
    pytest.importorskip("rich_click")
    from resilience.cli.demo.balance import Facts

    return Facts(
        made=100,
        succeeded=50,
        failed=10,
        bad_answers=7,
        timed_out=3,
        refused=25,
        full=5,
        bypassed=10,
        fallbacks=10,
        unsent=1,
        attempts=65,
        retried=6,
        stray=0,
        sites=3,
        sites_served=3,
        seen=65,
        answered=62,
        unanswered=3,
        probes_seen=4,
        probe_overlap=1,
        rejected_events=27,
        bypassed_events=10,
        retries_scheduled=8,
        probes_started=6,
        probes_succeeded=3,
        probes_failed=2,
        probes_released=1,
        probe_peak=1,
        cut_short=0,
        rejected_total=27,
        bypassed_total=10,
        verdicts=64,
        total_probes_started=6,
        total_probes_ended=6,
        faults=2,
        openings=2,
        recoveries=2,
        closings=2,
        threads_left=0,
    )


@pytest.fixture
def report_of():
    """A whole report around some figures."""
    pytest.importorskip("rich_click")
    from resilience import CircuitState
    from resilience.cli.demo.journal import Transition
    from resilience.cli.demo.report import Played, Report
    from resilience.cli.demo.script import Behaviour, Pace, Phase
    from resilience.cli.demo.tally import Tally

    def build(facts, *, moved=0.25, refusals=(1000, 2000, 3000)):
        well, down = Phase("well", Behaviour.HEALTHY, 1.0), Phase("down", Behaviour.DOWN, 2.0)
        return Report(
            seconds=4.0,
            pace=Pace.of(4.0),
            phases=(Played(well, 0.0, 1.0, 0.0), Played(down, 1.0, 3.0, 0.5), Played(well, 3.0, 4.0, moved)),
            transitions=(
                Transition(1.5, CircuitState.CLOSED, CircuitState.OPEN, "tripped", 1.5, "HTTPError, transient"),
                Transition(3.0, CircuitState.OPEN, CircuitState.HALF_OPEN, "cooled"),
                Transition(3.25, CircuitState.HALF_OPEN, CircuitState.CLOSED, "probes_succeeded"),
            ),
            sites={"threads": Tally(made=100, refusals=list(refusals))},
            answers={"200 OK": 50, "none": 3},
            refusals=list(refusals),
            facts=facts,
        )

    return build
