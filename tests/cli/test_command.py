"""The commands: options, usage errors and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("rich_click")

from click.testing import CliRunner

import resilience
from resilience.cli import demo as package
from resilience.cli.app import app


@pytest.fixture
def invoke():
    """Run the command line in this process."""
    return lambda *args: CliRunner().invoke(app, args, env={"COLUMNS": "100"})


@pytest.fixture
def played(monkeypatch):
    """Let the demo take no time and come out as given."""

    def come_out(report):
        monkeypatch.setattr(package, "play", lambda seconds, audience: report)

    return come_out


@pytest.mark.parametrize("value", ["2.9", "600.1", "0", "-5", "nan", "inf", "-inf", "1e400"])
def test_a_length_out_of_range_is_a_usage_error(invoke, value):
    """Lengths that make no sense are refused with the range, before anything starts."""
    result = invoke("demo", f"--seconds={value}")

    assert 2 == result.exit_code
    assert "must be a number from 3 to 600" in result.output


@pytest.mark.parametrize("value", ["abc", "", "3s", "1_0_", "\x00", "0x10"])
def test_a_length_that_is_no_number_is_a_usage_error(invoke, value):
    """Text is refused with the text."""
    result = invoke("demo", f"--seconds={value}")

    assert 2 == result.exit_code
    assert "is not a valid float" in result.output


def test_a_sound_run_exits_with_0(invoke, played, sound, report_of):
    """The balance holds, and the last line says so."""
    played(report_of(sound))

    result = invoke("demo")

    assert 0 == result.exit_code
    assert "The balance holds." == result.output.splitlines()[-1]


def test_a_broken_balance_exits_with_1(invoke, played, sound, report_of):
    """The exit code tells, and the last line names what does not hold."""
    played(report_of(replace(sound, made=101)))

    result = invoke("demo")

    assert 1 == result.exit_code
    assert (
        "The balance does not hold: calls: made (101) = succeeded + failed + refused + bypassed (100)"
        == result.output.splitlines()[-1]
    )


@pytest.mark.parametrize(("made", "code", "ok"), [(100, 0, True), (99, 1, False)])
def test_json_is_one_document(invoke, played, sound, report_of, made, code, ok):
    """`--json` prints nothing but the document, which says the same as the exit code."""
    played(report_of(replace(sound, made=made)))

    result = invoke("demo", "--json")

    assert code == result.exit_code
    assert ok is json.loads(result.output)["ok"]


def test_an_interrupt_exits_with_130(invoke, monkeypatch):
    """Ctrl-C ends with the code that shells know."""

    def interrupted(seconds, audience):
        raise KeyboardInterrupt

    monkeypatch.setattr(package, "play", interrupted)

    assert 130 == invoke("demo").exit_code


def test_the_version_is_told(invoke):
    """`--version` is the package's."""
    assert f"resilience, version {resilience.__version__}\n" == invoke("--version").output


def test_without_a_command_the_help_is_shown(invoke):
    """Who types only the name sees what there is."""
    assert "demo" in invoke().output
