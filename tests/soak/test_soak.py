"""The soak, shortly with every run of the tests and for a minute in the long search; and that it would notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from forking import in_child, needs_fork

from resilience import BreakerConfig, Consecutive, FaultKind, Registry
from resilience._core.faults import Fault

HERE = Path(__file__).parent


def soaked(*arguments):
    """Run the program in an interpreter of its own, warnings being errors; its exit code, summary and complaints."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "soak.py"), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_two_seconds():
    """I1, I5, I7, I8, I12, I15, I19: after two seconds of everything at once, every sum is right."""
    code, summary, complaints = soaked("--seconds", "2", "--seed", "7")

    assert (0, "") == (code, complaints)
    assert summary["calls"] > 500
    assert min(summary[word] for word in ("ok", "failed", "cut", "refused", "trips", "probes", "events")) > 0


@pytest.mark.proof
@pytest.mark.parametrize("seed", ["1"])
def test_a_minute(seed):
    """The same for a minute."""
    code, _, complaints = soaked("--seconds", "60", "--seed", seed)

    assert (0, "") == (code, complaints)


@pytest.mark.slow
def test_it_would_notice():
    """A slot kept, a count lost, a probe forgotten, an event skipped, exceptions hoarded, a task left: exit code 1."""
    code, summary, complaints = soaked("--seconds", "0.3", "--sabotage")

    assert 1 == code
    assert complaints.startswith("VIOLATION ")
    for expected in (
        "1 in flight, 0 waiting",
        "successes kept",
        "probes do not add up",
        "probes told",
        "registry 0: event",
        "exceptions grew",
        "tasks left",
    ):
        assert any(expected in violation for violation in summary["violations"]), expected


def test_failure_beaten_to_the_limit():
    """I5, I6: two threads reach the limit at once, one of them opens: each of their failures stands in one figure."""
    shared = Registry().breaker("api", BreakerConfig(Consecutive(1)))
    episode, fault = shared.circuit.closed, Fault(FaultKind.TRANSIENT)
    # What `CircuitBreaker.count_error` does in each thread, with a switch after the strike.
    opens = [shared.circuit.strike(episode, fault, 0) for _ in range(2)]
    for opened in opens:
        shared.count_strike(episode, fault, opened)

    status = shared.status()
    assert 2 == status.failures_total + status.late_results


@needs_fork
def test_fork_in_the_middle_of_a_change():
    """I15, I19: a thread is between taking a probe off the list and counting its end when another one forks."""
    shared = Registry().breaker("api", BreakerConfig(Consecutive(1), cooldown=1))
    shared.force_open("drill", seconds=1e-6)
    threading.Event().wait(0.001)
    permit = shared.try_acquire()
    inside, forked = threading.Event(), threading.Event()

    def stop_between(frame, event, argument):
        if frame.f_code.co_name not in ("_section", "_change", "_perform", "settle", "on_success", "_settle_probe"):
            return None
        taken_off = frame.f_code.co_name == "_settle_probe" and not shared.circuit._probes
        if taken_off and not shared.circuit.totals.probes_succeeded and not inside.is_set():
            inside.set()
            forked.wait(0.2)  # the fork waits for us
        return stop_between

    def report():
        sys.settrace(stop_between)
        try:
            shared.on_success(permit)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    assert inside.wait(10)

    def check():
        status = shared.status()
        assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released

    report = in_child(check)
    forked.set()
    thread.join(10)

    assert "ok" == report
