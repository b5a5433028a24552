"""The demo as a whole, in a process of its own."""

from __future__ import annotations

import json
import signal
import sys

import pytest

pytest.importorskip("rich_click")

COMMAND = ("-W", "error", "-c", "from resilience.cli import main; main()", "demo", "--seconds", "3")


@pytest.fixture(scope="module")
def shared():
    """What the one complete run of this file left."""
    return {}


@pytest.fixture
def document(run, shared):
    """The document of one run of three seconds."""
    if not shared:
        code, out, err = run(*COMMAND, "--json")
        shared.update(code=code, err=err, **json.loads(out))
    return shared


@pytest.mark.slow
def test_the_balance_holds(document):
    """A real run balances, exits with 0 and says nothing on standard error."""
    assert (True, 0, []) == (document["ok"], document["code"], document["broken"])
    assert "" == document["err"]


@pytest.mark.slow
def test_every_fault_opens_and_every_recovery_closes(document):
    """The script is played to its end, and the circuit follows it in every phase."""
    phases = document["phases"]
    moves = [phase.get("opened_after", phase.get("closed_after")) for phase in phases]

    assert 11 == len(phases)
    assert None not in moves
    assert ["limited", "down", "hanging", "down", "down"] == [
        phase["behaviour"] for phase in phases if "opened_after" in phase
    ]


@pytest.mark.slow
def test_all_sorts_of_outcomes_occur(document):
    """The run is worth its balance: nothing in it is zero by default."""
    figures = document["figures"]
    wanted = ("succeeded", "bad_answers", "timed_out", "refused", "bypassed", "retried", "unanswered", "probes_failed")

    assert [] == [name for name in wanted if not figures[name]]


@pytest.mark.slow
def test_a_rate_limit_keeps_the_circuit_open_for_its_retry_after(document):
    """The first opening lasts longer than the cooldown: the provider asked for it."""
    first = next(move for move in document["transitions"] if move["after"] == "open")

    assert first["open_for"] > document["settings"]["cooldown"]


@pytest.mark.slow
def test_the_circuit_moves_along_its_table(document):
    """Each transition begins where the last one ended, and the last one ends closed."""
    moves = document["transitions"]

    assert [move["after"] for move in moves[:-1]] == [move["before"] for move in moves[1:]]
    assert "closed" == moves[-1]["after"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_an_interrupt_ends_it_cleanly(start):
    """Ctrl-C in the middle: plain lines so far, no traceback, nothing left running, exit code 130."""
    process = start(*COMMAND)
    lines = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)

    assert 130 == process.returncode
    assert "interrupted\n" == err
    assert "provider  healthy" in lines[0]
    assert not any("\x1b" in line for line in lines)
