"""What the standard library's rules see below and inside an error; the rows themselves are in `rows.tsv`."""

from __future__ import annotations

import socket
import sqlite3
import ssl

import pytest
from instances import chained

from resilience import Fault, FaultFlag, FaultKind, classify

TRANSIENT, DOWNSTREAM = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
CONTENTION, UNSENT = FaultFlag.CONTENTION, FaultFlag.UNSENT


def test_an_unknown_name_below_a_connection_error_stays():
    """A host that does not exist is no passing trouble, however deep it is hidden."""
    hidden = chained(OSError("pool"), socket.gaierror(socket.EAI_NONAME, "x"))

    assert DOWNSTREAM is classify(chained(ConnectionError("down"), hidden)).kind


@pytest.mark.parametrize(
    "inner",
    [
        ssl.SSLEOFError(8, "EOF occurred"),
        ssl.SSLError(1, "EOF occurred"),
        socket.gaierror(socket.EAI_AGAIN, "x"),
        KeyError("x"),
    ],
)
def test_a_passing_trouble_below_a_connection_error_passes(inner):
    """A cut TLS connection or a busy resolver below it leaves a ConnectionError transient."""
    assert TRANSIENT is classify(chained(ConnectionError("down"), inner)).kind


def test_a_tls_refusal_below_a_connection_error_stays():
    """TLS spoken to a plain port stays wrong."""
    assert DOWNSTREAM is classify(chained(ConnectionError("down"), ssl.SSLError(1, "WRONG_VERSION_NUMBER"))).kind


def test_an_oserror_without_number_asks_its_cause():
    """A library that only borrows OSError is read by what lies below."""
    assert Fault(TRANSIENT, {UNSENT}, origin="builtins.ConnectionRefusedError") == classify(
        chained(OSError("x"), ConnectionRefusedError(111, "x"))
    )


def test_an_errno_that_is_no_number_is_not_looked_up():
    """Whatever a library puts in the place of errno is left alone."""

    class Unhashable:
        __hash__ = None

    assert DOWNSTREAM is classify(OSError(Unhashable(), "x")).kind


def test_sqlite_busy_with_an_extended_code():
    """SQLite's extended result codes are read by their lowest byte."""
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = 517

    assert {CONTENTION} == classify(error).flags
