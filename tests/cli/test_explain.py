"""`resilience explain`: one exception, or the catalogue, as text or as JSON."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("rich_click")

from click.testing import CliRunner

from resilience.catalogue.listing import listing
from resilience.cli.app import app


@pytest.fixture
def explain():
    """Run the command in this process; give its exit code and its lines."""

    def run(*args):
        result = CliRunner().invoke(app, ["explain", *args], env={"COLUMNS": "200"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    return run


def test_the_example_of_the_manual(explain):
    """Kind, why, retried, trips and where the wait would be."""
    code, output = explain("openai.RateLimitError", "--status", "429", "--code", "insufficient_quota")
    lines = output.splitlines()

    assert 0 == code
    assert "openai.RateLimitError" == lines[0]
    assert "kind          downstream (quota)" == lines[1]
    assert lines[2].startswith(
        "why           the rule for openai.RateLimitError, when type is insufficient_quota or code"
    )
    assert lines[2].endswith("[llm]")
    assert "retried       no: no wait cures it" == lines[3]
    assert "trips         yes: it counts as a failure" == lines[4]
    assert lines[5].startswith("retry after   the response headers")


def test_headers_and_the_wait(explain):
    """A header may be given more than once, in any case; what it asks for is printed."""
    code, output = explain("httpx.HTTPStatusError", "--status=503", "--header", "Retry-After=7", "--header", "x=y")

    assert 0 == code
    assert "              here: 7 s" == output.splitlines()[-1]


def test_a_cause_and_a_message(explain):
    """What lies below decides, and what only the text tells."""
    assert "downstream (config)" in explain("httpx.ConnectError", "--cause", "ssl.SSLCertVerificationError")[1]
    assert "transient" in explain("redis.exceptions.ResponseError", "--message", "BUSY running")[1]


def test_notes(explain):
    """What is not known, and what would decide."""
    assert "note          the status decides about this class: give --status" in explain("httpx.HTTPStatusError")[1]
    assert "note          no rule about this class asks for a code" in explain("httpx.ReadTimeout", "--code", "7")[1]
    assert "note" not in explain("httpx.ReadTimeout")[1]


def test_json(explain):
    """One document."""
    code, output = explain("asyncpg.exceptions.DeadlockDetectedError", "--json")

    assert 0 == code
    assert ("transient", ["contention"], True, False) == tuple(
        json.loads(output)[name] for name in ("kind", "flags", "retried", "trips")
    )


def test_the_unknown_is_said_to_be_unknown(explain):
    """INTERNAL, and why; and how its bases would be looked at."""
    code, output = explain("shop.Odd")

    assert 0 == code
    assert "kind          internal (unclassified)" in output
    assert "no rule knows it" in output
    assert "--import looks at them" in output.splitlines()[-1]
    assert (
        "--import"
        not in explain("shop.Odd", "--status", "503", "--cause", "TimeoutError", "--import")[1].splitlines()[-1]
    )


def test_import(explain, tmp_path, monkeypatch):
    """A class in the working directory is found, and its bases decide."""
    (tmp_path / "cli_shop.py").write_text("class Gone(ConnectionRefusedError):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    code, output = explain("cli_shop.Gone", "--import")

    assert 0 == code
    assert "kind          transient (unsent)" in output


def test_list(explain):
    """Everything, or one package."""
    code, everything = explain("--list")
    assert 0 == code
    assert all(f"{', '.join(library.packages)} [{library.family}]" in everything for library in listing())

    code, one = explain("--list", "httpx2")
    assert 0 == code
    assert one.startswith(
        "httpx, httpx2 [http]\n  ConnectError\n      downstream config, when a certificate was refused"
    )
    assert "      by the status" in one
    assert "botocore" not in one


def test_list_says_where_waits_are(explain):
    """A rule that looks for its wait in an odd place says so, and a rule with a fallback both."""
    output = explain("--list", "google.genai")[1]

    assert "      by the status, else downstream client_fault" in output
    assert "      the wait is in retryDelay of the RetryInfo in details" in output


def test_list_as_json(explain):
    """Every library and every rule."""
    code, output = explain("--list", "--json")

    assert 0 == code
    told = json.loads(output)
    assert [list(library.packages) for library in listing()] == [library["packages"] for library in told]
    assert sum(len(library.entries) for library in listing()) == sum(len(library["rules"]) for library in told)
    assert {"exceptions", "when", "kind", "flags", "first", "retry_after"} == set(told[0]["rules"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "EXCEPTION must be the dotted name of a class, or give --list"),
        (("a b",), "exception must be the dotted name of an exception class, got 'a b'"),
        (("os.path",), "exception must be the name of an exception class, and 'os.path' is none"),
        (("--list", "nosuch"), "must be a package of the catalogue, got 'nosuch'"),
        (("OSError", "--header", "novalue"), "must be NAME=VALUE, got 'novalue'"),
        (("OSError", "--header", "=x"), "must be NAME=VALUE, got '=x'"),
        (("OSError", "--status", "99"), "99 is not in the range 100<=x<=599"),
        (("OSError", "--status", "abc"), "'abc' is not a valid integer"),
        (("acme_x.y.Odd", "--import"), "no module is called acme_x"),
        (("OSError", "--cause", "int"), "cause must be the name of an exception class, and 'int' is none"),
    ],
)
def test_usage_errors(explain, arguments, message):
    """Each names the option, the value and what would be right, and exits with 2."""
    code, output = explain(*arguments)

    assert 2 == code
    assert message in output
