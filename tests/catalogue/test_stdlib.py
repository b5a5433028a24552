"""Every rule of the standard library's catalogue, each on a real instance."""

from __future__ import annotations

import asyncio
import binascii
import concurrent.futures
import concurrent.futures.process
import concurrent.futures.thread
import csv
import email
import errno
import ftplib
import gzip
import http.client
import imaplib
import json
import lzma
import multiprocessing
import os
import pickle
import queue
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import urllib.error
import xml.etree.ElementTree as ET
import xml.parsers.expat
import zipfile
import zlib

import pytest

from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience.catalogue import HOMES, _rules_of, classify
from resilience.catalogue.stdlib import RULES

VALIDATION, CONTRACT, CONTROL = FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.CONTROL
INTERRUPTED, TRANSIENT = FaultKind.INTERRUPTED, FaultKind.TRANSIENT
DOWNSTREAM, INTERNAL = FaultKind.DOWNSTREAM, FaultKind.INTERNAL
CLIENT_FAULT, CONTENTION, SATURATION = FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION, FaultFlag.SATURATION
LOCAL, UNSENT, AMBIGUOUS, CONFIG = FaultFlag.LOCAL, FaultFlag.UNSENT, FaultFlag.AMBIGUOUS, FaultFlag.CONFIG


def catch(function):
    """The exception that `function` raises."""
    try:
        function()
    except BaseException as caught:
        return caught
    raise AssertionError("nothing was raised")


def chained(exc, cause):
    exc.__cause__ = cause
    return exc


def cert_error():
    return ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")


def os_error(name):
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


def http_error(status):
    headers = email.message_from_string("Retry-After: 7\n\n")
    return urllib.error.HTTPError("http://shop.test", status, "message", headers, None)


def sqlite_error(sql, setup=()):
    connection = sqlite3.connect(":memory:")
    try:
        for statement in setup:
            connection.execute(statement)
        return catch(lambda: connection.execute(sql))
    finally:
        connection.close()


def sqlite_locked():
    name = "file:locked?mode=memory&cache=shared"
    first, second = (sqlite3.connect(name, uri=True, timeout=0) for _ in range(2))
    try:
        first.execute("create table t(a)")
        first.commit()
        first.execute("begin exclusive")
        return catch(lambda: second.execute("insert into t values(1)"))
    finally:
        first.close()
        second.close()


def sqlite_interrupted():
    connection = sqlite3.connect(":memory:")
    try:
        connection.set_progress_handler(lambda: 1, 1)
        return catch(lambda: connection.execute("select 1").fetchall())
    finally:
        connection.close()


def sqlite_full():
    setup = ["pragma max_page_count=2", "create table t(a)"]
    return sqlite_error("insert into t values(zeroblob(100000))", setup)


CASES = [
    ("asyncio.CancelledError()", lambda: asyncio.CancelledError(), INTERRUPTED, LOCAL),
    ("KeyboardInterrupt()", lambda: KeyboardInterrupt(), INTERRUPTED, LOCAL),
    ("SystemExit(1)", lambda: SystemExit(1), INTERRUPTED, LOCAL),
    ("GeneratorExit()", lambda: GeneratorExit(), INTERRUPTED, LOCAL),
    ("concurrent.futures.CancelledError()", lambda: concurrent.futures.CancelledError(), INTERRUPTED, LOCAL),
    ("StopIteration()", lambda: StopIteration(), CONTROL),
    ("StopAsyncIteration()", lambda: StopAsyncIteration(), CONTROL),
    (
        "chained(TimeoutError(), asyncio.CancelledError())",
        lambda: chained(TimeoutError(), asyncio.CancelledError()),
        TRANSIENT,
    ),
    (
        "ConnectionRefusedError(111, 'Connection refused')",
        lambda: ConnectionRefusedError(111, "Connection refused"),
        TRANSIENT,
        UNSENT,
    ),
    (
        "ConnectionResetError(104, 'Connection reset by peer')",
        lambda: ConnectionResetError(104, "Connection reset by peer"),
        TRANSIENT,
        AMBIGUOUS,
    ),
    ("ConnectionAbortedError(103, 'x')", lambda: ConnectionAbortedError(103, "x"), TRANSIENT, AMBIGUOUS),
    ("BrokenPipeError(32, 'Broken pipe')", lambda: BrokenPipeError(32, "Broken pipe"), TRANSIENT, AMBIGUOUS),
    ("chained(ConnectionError(), cert_error())", lambda: chained(ConnectionError(), cert_error()), DOWNSTREAM),
    ("ConnectionError('x')", lambda: ConnectionError("x"), TRANSIENT),
    ("FileNotFoundError(2, 'No such file')", lambda: FileNotFoundError(2, "No such file"), CONTRACT, CONFIG),
    ("FileExistsError(17, 'x')", lambda: FileExistsError(17, "x"), CONTRACT),
    ("PermissionError(13, 'x')", lambda: PermissionError(13, "x"), CONTRACT, CONFIG),
    ("IsADirectoryError(21, 'x')", lambda: IsADirectoryError(21, "x"), CONTRACT),
    ("NotADirectoryError(20, 'x')", lambda: NotADirectoryError(20, "x"), CONTRACT),
    ("ProcessLookupError(3, 'x')", lambda: ProcessLookupError(3, "x"), CONTRACT),
    ("ChildProcessError(10, 'x')", lambda: ChildProcessError(10, "x"), INTERNAL),
    ("BlockingIOError(11, 'x')", lambda: BlockingIOError(11, "x"), TRANSIENT),
    ("InterruptedError(4, 'x')", lambda: InterruptedError(4, "x"), TRANSIENT),
    ("os_error('EHOSTUNREACH')", lambda: os_error("EHOSTUNREACH"), TRANSIENT),
    ("os_error('EMFILE')", lambda: os_error("EMFILE"), TRANSIENT, SATURATION),
    ("os_error('EROFS')", lambda: os_error("EROFS"), CONTRACT, CONFIG),
    ("os_error('ENOSPC')", lambda: os_error("ENOSPC"), DOWNSTREAM),
    ("OSError('x')", lambda: OSError("x"), TRANSIENT),
    ("os_error('EBADMSG')", lambda: os_error("EBADMSG"), DOWNSTREAM),
    (
        "socket.gaierror(socket.EAI_NONAME, 'Name or service not known')",
        lambda: socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        DOWNSTREAM,
        CONFIG,
    ),
    (
        "socket.gaierror(socket.EAI_AGAIN, 'Temporary failure in name resolution')",
        lambda: socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        TRANSIENT,
        UNSENT,
    ),
    ("socket.gaierror(socket.EAI_SERVICE, 'x')", lambda: socket.gaierror(socket.EAI_SERVICE, "x"), INTERNAL),
    ("socket.gaierror(-99, 'x')", lambda: socket.gaierror(-99, "x"), TRANSIENT),
    ("socket.herror(2, 'x')", lambda: socket.herror(2, "x"), TRANSIENT),
    ("cert_error()", lambda: cert_error(), DOWNSTREAM, CONFIG),
    (
        "ssl.SSLEOFError(8, 'EOF occurred in violation of protocol')",
        lambda: ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        TRANSIENT,
        AMBIGUOUS,
    ),
    ("ssl.SSLZeroReturnError(6, 'x')", lambda: ssl.SSLZeroReturnError(6, "x"), TRANSIENT),
    ("ssl.SSLSyscallError(5, 'x')", lambda: ssl.SSLSyscallError(5, "x"), TRANSIENT),
    ("ssl.SSLWantReadError(2, 'x')", lambda: ssl.SSLWantReadError(2, "x"), CONTROL),
    ("ssl.SSLWantWriteError(3, 'x')", lambda: ssl.SSLWantWriteError(3, "x"), CONTROL),
    (
        "ssl.SSLError(1, '[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred')",
        lambda: ssl.SSLError(1, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred"),
        TRANSIENT,
        AMBIGUOUS,
    ),
    (
        "ssl.SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number')",
        lambda: ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
        DOWNSTREAM,
        CONFIG,
    ),
    ("http.client.RemoteDisconnected('x')", lambda: http.client.RemoteDisconnected("x"), TRANSIENT, AMBIGUOUS),
    ("http.client.IncompleteRead(b'x', 10)", lambda: http.client.IncompleteRead(b"x", 10), TRANSIENT, AMBIGUOUS),
    ("http.client.BadStatusLine('x')", lambda: http.client.BadStatusLine("x"), DOWNSTREAM),
    ("http.client.LineTooLong('header line')", lambda: http.client.LineTooLong("header line"), DOWNSTREAM),
    ("http.client.UnknownProtocol('HTTP/9')", lambda: http.client.UnknownProtocol("HTTP/9"), DOWNSTREAM),
    ("http.client.InvalidURL('x')", lambda: http.client.InvalidURL("x"), VALIDATION),
    ("http.client.NotConnected()", lambda: http.client.NotConnected(), INTERNAL),
    ("http.client.CannotSendRequest()", lambda: http.client.CannotSendRequest(), INTERNAL),
    ("http.client.ResponseNotReady()", lambda: http.client.ResponseNotReady(), INTERNAL),
    ("http.client.HTTPException()", lambda: http.client.HTTPException(), DOWNSTREAM),
    ("http_error(429)", lambda: http_error(429), TRANSIENT),
    ("http_error(408)", lambda: http_error(408), TRANSIENT),
    ("http_error(501)", lambda: http_error(501), DOWNSTREAM),
    ("http_error(503)", lambda: http_error(503), TRANSIENT),
    ("http_error(400)", lambda: http_error(400), DOWNSTREAM, CLIENT_FAULT),
    ("urllib.error.URLError(cert_error())", lambda: urllib.error.URLError(cert_error()), DOWNSTREAM, CONFIG),
    (
        "urllib.error.URLError(socket.gaierror(socket.EAI_NONAME, 'x'))",
        lambda: urllib.error.URLError(socket.gaierror(socket.EAI_NONAME, "x")),
        DOWNSTREAM,
        CONFIG,
    ),
    (
        "urllib.error.URLError('unknown url type: foo')",
        lambda: urllib.error.URLError("unknown url type: foo"),
        VALIDATION,
    ),
    (
        "urllib.error.URLError(ConnectionRefusedError(111, 'x'))",
        lambda: urllib.error.URLError(ConnectionRefusedError(111, "x")),
        TRANSIENT,
        UNSENT,
    ),
    (
        "urllib.error.ContentTooShortError('x', b'')",
        lambda: urllib.error.ContentTooShortError("x", b""),
        TRANSIENT,
        AMBIGUOUS,
    ),
    ("catch(lambda: json.loads('{'))", lambda: catch(lambda: json.loads("{")), DOWNSTREAM),
    (
        "catch(lambda: ET.fromstring('<a'))",
        lambda: catch(lambda: ET.fromstring("<a")),
        DOWNSTREAM,
    ),
    (
        "catch(lambda: xml.parsers.expat.ParserCreate().Parse('<a', True))",
        lambda: catch(lambda: xml.parsers.expat.ParserCreate().Parse("<a", True)),
        DOWNSTREAM,
    ),
    ("catch(lambda: b'\\xff'.decode('ascii'))", lambda: catch(lambda: b"\xff".decode("ascii")), DOWNSTREAM),
    ("catch(lambda: '\\xff'.encode('ascii'))", lambda: catch(lambda: "\xff".encode("ascii")), VALIDATION),
    ("catch(lambda: zlib.decompress(b'x'))", lambda: catch(lambda: zlib.decompress(b"x")), DOWNSTREAM),
    ("gzip.BadGzipFile('x')", lambda: gzip.BadGzipFile("x"), DOWNSTREAM),
    ("lzma.LZMAError('x')", lambda: lzma.LZMAError("x"), DOWNSTREAM),
    ("zipfile.BadZipFile('x')", lambda: zipfile.BadZipFile("x"), DOWNSTREAM),
    ("tarfile.ReadError('x')", lambda: tarfile.ReadError("x"), DOWNSTREAM),
    ("catch(lambda: pickle.loads(b'x'))", lambda: catch(lambda: pickle.loads(b"x")), DOWNSTREAM),
    ("catch(lambda: binascii.a2b_base64(b'a'))", lambda: catch(lambda: binascii.a2b_base64(b"a")), DOWNSTREAM),
    ("csv.Error('x')", lambda: csv.Error("x"), DOWNSTREAM),
    ("subprocess.TimeoutExpired('x', 1)", lambda: subprocess.TimeoutExpired("x", 1), TRANSIENT, AMBIGUOUS),
    ("subprocess.CalledProcessError(75, 'x')", lambda: subprocess.CalledProcessError(75, "x"), TRANSIENT),
    ("subprocess.CalledProcessError(-2, 'x')", lambda: subprocess.CalledProcessError(-2, "x"), INTERRUPTED, LOCAL),
    ("subprocess.CalledProcessError(1, 'x')", lambda: subprocess.CalledProcessError(1, "x"), DOWNSTREAM),
    ("asyncio.IncompleteReadError(b'', 5)", lambda: asyncio.IncompleteReadError(b"", 5), TRANSIENT, AMBIGUOUS),
    ("asyncio.LimitOverrunError('x', 5)", lambda: asyncio.LimitOverrunError("x", 5), DOWNSTREAM),
    ("asyncio.InvalidStateError()", lambda: asyncio.InvalidStateError(), INTERNAL),
    ("asyncio.QueueFull()", lambda: asyncio.QueueFull(), TRANSIENT, SATURATION),
    ("asyncio.QueueEmpty()", lambda: asyncio.QueueEmpty(), CONTROL),
    ("queue.Full()", lambda: queue.Full(), TRANSIENT, SATURATION),
    ("queue.Empty()", lambda: queue.Empty(), CONTROL),
    (
        "concurrent.futures.process.BrokenProcessPool()",
        lambda: concurrent.futures.process.BrokenProcessPool(),
        INTERNAL,
        SATURATION,
    ),
    ("concurrent.futures.thread.BrokenThreadPool()", lambda: concurrent.futures.thread.BrokenThreadPool(), INTERNAL),
    ("concurrent.futures.InvalidStateError()", lambda: concurrent.futures.InvalidStateError(), INTERNAL),
    ("multiprocessing.TimeoutError()", lambda: multiprocessing.TimeoutError(), TRANSIENT),
    ("EOFError()", lambda: EOFError(), TRANSIENT),
    ("BufferError('Local: Queue full')", lambda: BufferError("Local: Queue full"), TRANSIENT, SATURATION),
    ("MemoryError()", lambda: MemoryError(), INTERNAL, SATURATION),
    ("TypeError('x')", lambda: TypeError("x"), INTERNAL),
    ("AttributeError('x')", lambda: AttributeError("x"), INTERNAL),
    ("AssertionError('x')", lambda: AssertionError("x"), INTERNAL),
    ("NameError('x')", lambda: NameError("x"), INTERNAL),
    ("UnboundLocalError('x')", lambda: UnboundLocalError("x"), INTERNAL),
    ("IndexError('x')", lambda: IndexError("x"), INTERNAL),
    ("KeyError('x')", lambda: KeyError("x"), INTERNAL),
    ("LookupError('x')", lambda: LookupError("x"), INTERNAL),
    ("NotImplementedError('x')", lambda: NotImplementedError("x"), INTERNAL),
    ("RecursionError('x')", lambda: RecursionError("x"), INTERNAL),
    ("ZeroDivisionError('x')", lambda: ZeroDivisionError("x"), INTERNAL),
    ("OverflowError('x')", lambda: OverflowError("x"), INTERNAL),
    ("ArithmeticError('x')", lambda: ArithmeticError("x"), INTERNAL),
    ("SyntaxError('x')", lambda: SyntaxError("x"), INTERNAL),
    ("RuntimeError('x')", lambda: RuntimeError("x"), INTERNAL),
    ("BufferError('x')", lambda: BufferError("x"), INTERNAL),
    ("ReferenceError('x')", lambda: ReferenceError("x"), INTERNAL),
    ("SystemError('x')", lambda: SystemError("x"), INTERNAL),
    ("ImportError('x')", lambda: ImportError("x"), INTERNAL, CONFIG),
    ("ModuleNotFoundError('x')", lambda: ModuleNotFoundError("x"), INTERNAL, CONFIG),
    ("ValueError('x')", lambda: ValueError("x"), VALIDATION),
    (
        "ExceptionGroup('g', [TimeoutError(), Exception('x')])",
        lambda: ExceptionGroup("g", [TimeoutError(), Exception("x")]),
        INTERNAL,
    ),
    (
        "BaseExceptionGroup('g', [KeyboardInterrupt()])",
        lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]),
        INTERRUPTED,
        LOCAL,
    ),
    ("Exception('x')", lambda: Exception("x"), INTERNAL),
    ("BaseException()", lambda: BaseException(), INTERRUPTED),
    ("smtplib.SMTPServerDisconnected('x')", lambda: smtplib.SMTPServerDisconnected("x"), TRANSIENT, AMBIGUOUS),
    (
        "smtplib.SMTPAuthenticationError(535, b'x')",
        lambda: smtplib.SMTPAuthenticationError(535, b"x"),
        DOWNSTREAM,
        CLIENT_FAULT,
        CONFIG,
    ),
    ("smtplib.SMTPResponseException(421, b'x')", lambda: smtplib.SMTPResponseException(421, b"x"), TRANSIENT),
    (
        "smtplib.SMTPResponseException(550, b'x')",
        lambda: smtplib.SMTPResponseException(550, b"x"),
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    (
        "smtplib.SMTPRecipientsRefused({'a@b': (550, b'x')})",
        lambda: smtplib.SMTPRecipientsRefused({"a@b": (550, b"x")}),
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    ("smtplib.SMTPConnectError(421, b'x')", lambda: smtplib.SMTPConnectError(421, b"x"), TRANSIENT, UNSENT),
    ("ftplib.error_temp('421 x')", lambda: ftplib.error_temp("421 x"), TRANSIENT),
    ("ftplib.error_perm('550 x')", lambda: ftplib.error_perm("550 x"), DOWNSTREAM, CLIENT_FAULT),
    ("imaplib.IMAP4.abort('x')", lambda: imaplib.IMAP4.abort("x"), TRANSIENT),
    ("imaplib.IMAP4.error('x')", lambda: imaplib.IMAP4.error("x"), DOWNSTREAM),
    ("sqlite_locked()", lambda: sqlite_locked(), TRANSIENT, CONTENTION),
    ("sqlite_interrupted()", lambda: sqlite_interrupted(), INTERRUPTED, LOCAL),
    ("sqlite_full()", lambda: sqlite_full(), DOWNSTREAM),
    (
        "catch(lambda: sqlite3.connect('/nonexistent/x.db'))",
        lambda: catch(lambda: sqlite3.connect("/nonexistent/x.db")),
        CONTRACT,
        CONFIG,
    ),
    ("sqlite_error('select * from nope')", lambda: sqlite_error("select * from nope"), INTERNAL),
    (
        "sqlite_error('insert into t values(1)', ['create table t(a primary key)', 'insert into t values(1)'])",
        lambda: sqlite_error("insert into t values(1)", ["create table t(a primary key)", "insert into t values(1)"]),
        CONTRACT,
    ),
    ("sqlite3.DatabaseError('x')", lambda: sqlite3.DatabaseError("x"), DOWNSTREAM),
    ("sqlite3.ProgrammingError('x')", lambda: sqlite3.ProgrammingError("x"), INTERNAL),
    ("sqlite3.DataError('x')", lambda: sqlite3.DataError("x"), VALIDATION),
    ("sqlite3.InterfaceError('x')", lambda: sqlite3.InterfaceError("x"), INTERNAL),
    (
        "smtplib.SMTPConnectError, refused for good",
        lambda: smtplib.SMTPConnectError(554, b"x"),
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    ("OSError, network", lambda: os_error("ETIMEDOUT"), TRANSIENT),
    ("sqlite read-only", lambda: sqlite3.OperationalError("attempt to write a readonly database"), CONTRACT, CONFIG),
    ("sqlite without a code", lambda: sqlite3.OperationalError("database is locked"), TRANSIENT, CONTENTION),
]


@pytest.mark.parametrize(
    ("make", "kind", "flags"), [(make, kind, flags) for _, make, kind, *flags in CASES], ids=[case[0] for case in CASES]
)
def test_kind_and_flags(make, kind, flags):
    """The error means what the catalogue says."""
    fault = classify(make())

    assert (kind, frozenset(flags)) == (fault.kind, fault.flags - {FaultFlag.UNCLASSIFIED})


def test_every_rule_has_a_case():
    """No class of the catalogue is left out of the table above."""
    seen = set()
    for _, make, *_ in CASES:
        for base in type(make()).__mro__:
            seen.add(f"{base.__module__.partition('.')[0]}:{base.__qualname__}")

    assert [] == sorted({rule.match for rule in RULES if not rule.match.startswith("tenacity:")} - seen)


def test_every_rule_has_a_home():
    """Each rule is found by the first segment of its class's module."""
    assert list(RULES) == sorted((rule for segment in HOMES for rule in _rules_of(segment)), key=list(RULES).index)


def test_matched_modules_are_not_imported():
    """Classifying loads the catalogue and nothing that the catalogue speaks of."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from resilience.catalogue import classify\n"
        "before = set(sys.modules)\n"
        "classify(OSError('x')); classify(ConnectionError('x')); classify(ValueError('x'))\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {"errno", "importlib", "resilience.catalogue.evidence", "resilience.catalogue.stdlib"} >= {
        *done.stdout.split()
    }


@pytest.mark.parametrize(("status", "wait"), [(429, 7.0), (503, 7.0), (408, 7.0)])
def test_http_error_carries_status_and_wait(status, wait):
    """urllib's HTTPError hands on its status and its Retry-After."""
    fault = classify(http_error(status))

    assert (status, wait) == (fault.status, fault.retry_after)


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


def retry_error(function):
    tenacity = pytest.importorskip("tenacity")
    retrying = tenacity.Retrying(stop=tenacity.stop_after_attempt(1), retry=tenacity.retry_always)
    return catch(lambda: retrying(function))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TimeoutError(), TRANSIENT), (TypeError(), INTERNAL), (concurrent.futures.CancelledError(), INTERRUPTED)],
)
def test_tenacity_is_read_by_its_last_attempt(error, kind):
    """A RetryError is what the last attempt ended with."""

    def fail():
        raise error

    assert kind is classify(retry_error(fail)).kind


def test_tenacity_may_hold_a_value():
    """A RetryError over a value that nobody wanted counts against the remote."""
    assert DOWNSTREAM is classify(retry_error(lambda: None)).kind


def test_tenacity_over_an_unknown_error():
    """A RetryError over an error that nobody knows is transient."""

    def fail():
        raise Exception("x")

    assert TRANSIENT is classify(retry_error(fail)).kind


def test_tenacity_try_again():
    """TryAgain is an explicit wish to retry."""
    assert TRANSIENT is classify(pytest.importorskip("tenacity").TryAgain()).kind
