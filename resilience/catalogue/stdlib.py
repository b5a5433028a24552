"""The standard library's own errors."""

from __future__ import annotations

import errno
from typing import Any

from resilience._core.reading import read
from resilience.catalogue.conditions import MESSAGE, Condition, Field, attribute
from resilience.catalogue.evidence import PERMANENT, is_unknown_name, resolver_code, was_cut_off
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    SATURATION,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)


# ------------------------------------------------------------------------------------------------ facts
def _put_errno(exc: Any, value: str) -> None:
    exc.errno = int(value) if value.isdecimal() else getattr(errno, value, None)


_ERRNO = Field("errno", lambda exc: errno.errorcode[exc.errno], _put_errno)
_NO_ERRNO = Condition("there is no errno", lambda exc: exc.errno is None)


def _put_resolver_code(exc: Any, value: str) -> None:
    import socket

    number = value.removeprefix("-").isdecimal()
    exc.args = (int(value) if number else getattr(socket, value, None), *exc.args)


_RESOLVER_CODE = Field("resolver's code", lambda exc: None, _put_resolver_code)


def _resolver(*names: str) -> Condition:
    """Whether a resolver's code is one of these constants, whose numbers differ by platform."""
    return Condition(
        f"the code is one of {', '.join(names)}", lambda exc: resolver_code(exc, *names), (_RESOLVER_CODE,)
    )


def _sqlite(*codes: int, texts: tuple[str, ...]) -> Condition:
    """Whether SQLite's primary result code is one of these, or its text says so where there is no code."""

    def holds(exc: Any) -> bool:
        code = read(exc, "sqlite_errorcode")
        return (type(code) is int and code & 0xFF in codes) or any(text in str(exc) for text in texts)

    shown = "".join(f', or the text has "{text}"' for text in texts)
    return Condition(f"SQLite's code is {', '.join(map(str, codes))}{shown}", holds, (_SQLITE_CODE, MESSAGE))


_SQLITE_CODE = attribute("sqlite_errorcode", number=True, shown="SQLite's code")
_EXIT, _REPLY = (
    attribute("returncode", number=True, shown="exit code"),
    attribute("smtp_code", number=True, shown="reply code"),
)
_CUT_OFF = Condition("the text tells of a connection that was cut", was_cut_off, (MESSAGE,))
_UNKNOWN_NAME = Condition("the name does not exist (EAI_NONAME, EAI_NODATA, EAI_ADDRFAMILY)", is_unknown_name)
_UNKNOWN_SCHEME = Condition(
    "the reason is an unknown URL type", lambda exc: type(exc.reason) is str and "unknown url type" in exc.reason
)
_INTERRUPTED_TEXT = Condition('the text is "interrupted"', lambda exc: str(exc) == "interrupted", (MESSAGE,))
_QUEUE_FULL = Condition('the text has "queue full"', lambda exc: "queue full" in str(exc).lower(), (MESSAGE,))

# ------------------------------------------------------------------------------------------------ rules
_BUILTINS = library(
    "builtins",
    Case("KeyboardInterrupt SystemExit GeneratorExit", INTERRUPTED, LOCAL),
    Case("StopIteration StopAsyncIteration", CONTROL),
    Case("TimeoutError", TRANSIENT),
    Case("ConnectionRefusedError", TRANSIENT, UNSENT),
    Case("ConnectionResetError ConnectionAbortedError BrokenPipeError", TRANSIENT, AMBIGUOUS),
    # Ollama raises this one "from None" for a certificate that does not verify.
    Case("ConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("ConnectionError", TRANSIENT),
    # The operating system.
    Case("FileNotFoundError PermissionError", CONTRACT, CONFIG),
    Case("FileExistsError IsADirectoryError NotADirectoryError ProcessLookupError", CONTRACT),
    Case("ChildProcessError", INTERNAL),
    # InterruptedError is EINTR, which the interpreter repeats by itself; nobody has cancelled anything.
    Case("BlockingIOError InterruptedError EOFError", TRANSIENT),
    Case(
        "OSError",
        TRANSIENT,
        when=_ERRNO.among(
            *("ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EHOSTDOWN"),
            *("ENOTCONN", "EAGAIN", "ECONNRESET", "EPIPE", "ESTALE"),
        ),
    ),
    Case(
        "OSError",
        TRANSIENT,
        SATURATION,
        when=_ERRNO.among("EMFILE", "ENFILE", "ENOBUFS", "EADDRNOTAVAIL", "ENOMEM"),
    ),
    Case(
        "OSError",
        CONTRACT,
        CONFIG,
        when=_ERRNO.among("EADDRINUSE", "EROFS", "ENAMETOOLONG", "ELOOP", "ENOTEMPTY", "EXDEV"),
    ),
    Case("OSError", DOWNSTREAM, when=_ERRNO.among("ENOSPC", "EIO", "EDQUOT")),
    # Our own misuse of a file or a socket.
    Case("OSError", INTERNAL, when=_ERRNO.among("EBADF", "EINVAL", "ENOTSOCK", "EISCONN", "EMSGSIZE", "EFAULT")),
    # Libraries that only borrow OSError set no number.
    Case("OSError", TRANSIENT, when=_NO_ERRNO, chain=True),
    Case("OSError UnicodeDecodeError", DOWNSTREAM),
    # Kafka's producer raises this builtin when its own queue is full.
    Case("BufferError", TRANSIENT, SATURATION, when=_QUEUE_FULL),
    Case("MemoryError", INTERNAL, SATURATION),
    # Our own bugs.
    Case(
        "TypeError AttributeError AssertionError NameError UnboundLocalError NotImplementedError IndexError KeyError "
        "LookupError ZeroDivisionError OverflowError ArithmeticError SyntaxError RuntimeError RecursionError "
        "ReferenceError SystemError BufferError",
        INTERNAL,
    ),
    Case("ImportError ModuleNotFoundError", INTERNAL, CONFIG),
    # Our own input.
    Case("UnicodeEncodeError UnicodeTranslateError ValueError", VALIDATION),
    generic=True,
)

_NETWORK = (
    *library(
        "socket",
        Case("gaierror", DOWNSTREAM, CONFIG, when=_UNKNOWN_NAME),
        Case("gaierror", TRANSIENT, UNSENT, when=_resolver("EAI_AGAIN", "EAI_SYSTEM", "EAI_FAIL", "EAI_MEMORY")),
        Case("gaierror", INTERNAL, when=_resolver("EAI_BADFLAGS", "EAI_FAMILY", "EAI_SERVICE", "EAI_SOCKTYPE")),
        Case("gaierror herror", TRANSIENT),
        generic=True,
    ),
    *library(
        "ssl",
        # A ValueError as well.
        Case("SSLCertVerificationError", DOWNSTREAM, CONFIG),
        Case("SSLEOFError", TRANSIENT, AMBIGUOUS),
        Case("SSLZeroReturnError SSLSyscallError", TRANSIENT),
        Case("SSLWantReadError SSLWantWriteError", CONTROL),
        Case("SSLError", TRANSIENT, AMBIGUOUS, when=_CUT_OFF),
        # TLS spoken to a plain port, a handshake alert, no shared cipher.
        Case("SSLError", DOWNSTREAM, CONFIG),
        generic=True,
    ),
    *library(
        "http",
        Case("RemoteDisconnected IncompleteRead", TRANSIENT, AMBIGUOUS),
        Case("InvalidURL", VALIDATION),
        Case("NotConnected ImproperConnectionState CannotSendRequest CannotSendHeader ResponseNotReady", INTERNAL),
        Case("BadStatusLine LineTooLong UnknownProtocol HTTPException", DOWNSTREAM),
        generic=True,
    ),
    *library(
        "urllib",
        Case("HTTPError", DOWNSTREAM, by_status=True),
        Case("ContentTooShortError", TRANSIENT, AMBIGUOUS),
        Case("URLError", DOWNSTREAM, CONFIG, below=PERMANENT, unwrap="reason"),
        Case("URLError", VALIDATION, when=_UNKNOWN_SCHEME),
        Case("URLError", TRANSIENT, unwrap="reason"),
        generic=True,
    ),
    # Here a 4xx is temporary and a 5xx is for good, the reverse of HTTP.
    *library(
        "smtplib",
        Case("SMTPServerDisconnected", TRANSIENT, AMBIGUOUS),
        Case("SMTPAuthenticationError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
        Case("SMTPConnectError", TRANSIENT, UNSENT, when=_REPLY.within(0, 499)),
        Case("SMTPResponseException", TRANSIENT, when=_REPLY.within(400, 499)),
        Case("SMTPResponseException SMTPRecipientsRefused", DOWNSTREAM, CLIENT_FAULT),
        Case("SMTPNotSupportedError SMTPException", DOWNSTREAM),
        generic=True,
    ),
    *library(
        "ftplib",
        Case("error_temp", TRANSIENT),
        Case("error_perm", DOWNSTREAM, CLIENT_FAULT),
        Case("Error", DOWNSTREAM),
        generic=True,
    ),
    *library("poplib", Case("error_proto", DOWNSTREAM), generic=True),
    *library("imaplib", Case("IMAP4.abort", TRANSIENT), Case("IMAP4.error", DOWNSTREAM), generic=True),
)

# What came could not be read.
_FORMATS = (
    *library("json", Case("JSONDecodeError", DOWNSTREAM), generic=True),
    *library("xml", Case("ParseError ExpatError SAXParseException", DOWNSTREAM), generic=True),
    *library("tomllib", Case("TOMLDecodeError", DOWNSTREAM), generic=True),
    *library("zlib", Case("error", DOWNSTREAM), generic=True),
    *library("binascii", Case("Error", DOWNSTREAM), generic=True),
    *library("gzip", Case("BadGzipFile", DOWNSTREAM), generic=True),
    *library("_lzma", Case("LZMAError", DOWNSTREAM), generic=True),
    *library("zipfile", Case("BadZipFile", DOWNSTREAM), generic=True),
    *library("tarfile", Case("ReadError TarError", DOWNSTREAM), generic=True),
    *library("_pickle", Case("UnpicklingError", DOWNSTREAM), Case("PicklingError", VALIDATION), generic=True),
    *library("_csv", Case("Error", DOWNSTREAM), generic=True),
)

_CONCURRENCY = (
    *library(
        "asyncio",
        Case("CancelledError", INTERRUPTED, LOCAL),
        Case("IncompleteReadError", TRANSIENT, AMBIGUOUS),
        Case("LimitOverrunError", DOWNSTREAM),
        Case("InvalidStateError", INTERNAL),
        Case("QueueFull", TRANSIENT, SATURATION),
        Case("QueueEmpty QueueShutDown", CONTROL),
        generic=True,
    ),
    *library(
        "concurrent",
        # An Exception, unlike asyncio's.
        Case("CancelledError", INTERRUPTED, LOCAL),
        # A worker died, often out of memory, and the pool stays broken.
        Case("BrokenProcessPool", INTERNAL, SATURATION),
        Case("BrokenThreadPool InvalidStateError", INTERNAL),
        generic=True,
    ),
    # On Python 3.10 these two had classes of their own.
    *library("asyncio concurrent multiprocessing", Case("TimeoutError", TRANSIENT), generic=True),
    *library("queue", Case("Full", TRANSIENT, SATURATION), Case("ShutDown", CONTROL), generic=True),
    *library("_queue", Case("Empty", CONTROL), generic=True),
    *library(
        "subprocess",
        Case("TimeoutExpired", TRANSIENT, AMBIGUOUS),
        # EX_TEMPFAIL of sysexits.h.
        Case("CalledProcessError", TRANSIENT, when=_EXIT.among(75)),
        # Ctrl-C reaches the whole group.
        Case("CalledProcessError", INTERRUPTED, LOCAL, when=_EXIT.among(-2, 130)),
        Case("CalledProcessError", DOWNSTREAM),
        generic=True,
    ),
)

_SQLITE = library(
    "sqlite3",
    # BUSY, LOCKED, PROTOCOL, SCHEMA.
    Case("OperationalError", TRANSIENT, CONTENTION, when=_sqlite(5, 6, 15, 17, texts=("is locked",))),
    # INTERRUPT: we asked for it.
    Case("OperationalError", INTERRUPTED, LOCAL, when=_sqlite(9, texts=()) | _INTERRUPTED_TEXT),
    # IOERR, CORRUPT, FULL, NOTADB.
    Case("OperationalError", DOWNSTREAM, when=_sqlite(10, 11, 13, 26, texts=("disk is full", "disk I/O"))),
    # READONLY, CANTOPEN, AUTH.
    Case("OperationalError", CONTRACT, CONFIG, when=_sqlite(8, 14, 23, texts=("readonly", "unable to open"))),
    # Bad SQL and a missing table are OperationalErrors too.
    Case("OperationalError ProgrammingError InterfaceError NotSupportedError", INTERNAL),
    Case("IntegrityError", CONTRACT),
    Case("DatabaseError Error", DOWNSTREAM),
    Case("DataError", VALIDATION),
    generic=True,
)

RULES = (*_BUILTINS, *_NETWORK, *_FORMATS, *_CONCURRENCY, *_SQLITE)
