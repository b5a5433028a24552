"""The standard library's own errors, and those of tenacity, which comes with us."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from resilience._core.rule import Rule
from resilience._words import FaultFlag, FaultKind
from resilience.catalogue.evidence import is_unknown_name, permanent, resolver_code, was_cut_off

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VALIDATION, CONTRACT, CONTROL, INTERRUPTED = (
    FaultKind.VALIDATION,
    FaultKind.CONTRACT,
    FaultKind.CONTROL,
    FaultKind.INTERRUPTED,
)
TRANSIENT, DOWNSTREAM, INTERNAL = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERNAL
CLIENT_FAULT, CONTENTION, SATURATION = FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION, FaultFlag.SATURATION
LOCAL, UNSENT, AMBIGUOUS, CONFIG = FaultFlag.LOCAL, FaultFlag.UNSENT, FaultFlag.AMBIGUOUS, FaultFlag.CONFIG


def _errno(*names: str) -> Callable[[Any], bool]:
    """Condition: the error's number is one of these. Not every platform has them all."""
    numbers = frozenset(number for name in names if (number := getattr(errno, name, None)) is not None)
    return lambda exc: type(exc.errno) is int and exc.errno in numbers


def _sqlite(*codes: int, texts: tuple[str, ...] = ()) -> Callable[[Any], bool]:
    """Condition: SQLite's primary result code is one of these, or its text says so."""

    def holds(exc: Any) -> bool:
        code = getattr(exc, "sqlite_errorcode", None) or 0
        return code & 0xFF in codes or any(text in str(exc) for text in texts)

    return holds


def _resolver(*names: str) -> Callable[[Any], bool]:
    return lambda exc: resolver_code(exc, *names)


def _rule(match: str, kind: FaultKind | None = None, *flags: FaultFlag, **how: Any) -> Rule:
    return Rule(match, kind, *flags, generic=True, **how)


_OUR_BUGS = (
    *("TypeError", "AttributeError", "AssertionError", "NameError", "UnboundLocalError", "NotImplementedError"),
    *("IndexError", "KeyError", "LookupError", "ZeroDivisionError", "OverflowError", "ArithmeticError"),
    *("SyntaxError", "RuntimeError", "RecursionError", "ReferenceError", "SystemError"),
)

RULES = (
    # Interrupted: the caller gave up. A child process that died of Ctrl-C is among them: it reaches the whole group.
    _rule("asyncio:CancelledError", INTERRUPTED, LOCAL),
    _rule("builtins:KeyboardInterrupt", INTERRUPTED, LOCAL),
    _rule("builtins:SystemExit", INTERRUPTED, LOCAL),
    _rule("builtins:GeneratorExit", INTERRUPTED, LOCAL),
    # An Exception, unlike asyncio's.
    _rule("concurrent:CancelledError", INTERRUPTED, LOCAL),
    # Flow control.
    _rule("builtins:StopIteration", CONTROL),
    _rule("builtins:StopAsyncIteration", CONTROL),
    # Timeouts.
    _rule("builtins:TimeoutError", TRANSIENT),
    _rule("multiprocessing:TimeoutError", TRANSIENT),
    # Connections.
    _rule("builtins:ConnectionRefusedError", TRANSIENT, UNSENT),
    _rule("builtins:ConnectionResetError", TRANSIENT, AMBIGUOUS),
    _rule("builtins:ConnectionAbortedError", TRANSIENT, AMBIGUOUS),
    _rule("builtins:BrokenPipeError", TRANSIENT, AMBIGUOUS),
    # Ollama raises this one "from None" for a certificate that does not verify.
    _rule("builtins:ConnectionError", DOWNSTREAM, below=permanent),
    _rule("builtins:ConnectionError", TRANSIENT),
    # The operating system.
    _rule("builtins:FileNotFoundError", CONTRACT, CONFIG),
    _rule("builtins:FileExistsError", CONTRACT),
    _rule("builtins:PermissionError", CONTRACT, CONFIG),
    _rule("builtins:IsADirectoryError", CONTRACT),
    _rule("builtins:NotADirectoryError", CONTRACT),
    _rule("builtins:ProcessLookupError", CONTRACT),
    _rule("builtins:ChildProcessError", INTERNAL),
    _rule("builtins:BlockingIOError", TRANSIENT),
    # EINTR, which the interpreter repeats by itself; nobody has cancelled anything.
    _rule("builtins:InterruptedError", TRANSIENT),
    _rule(
        "builtins:OSError",
        TRANSIENT,
        when=_errno(
            *("ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EHOSTDOWN"),
            *("ENOTCONN", "EAGAIN", "ECONNRESET", "EPIPE", "ESTALE"),
        ),
    ),
    _rule(
        "builtins:OSError",
        TRANSIENT,
        SATURATION,
        when=_errno("EMFILE", "ENFILE", "ENOBUFS", "EADDRNOTAVAIL", "ENOMEM"),
    ),
    _rule(
        "builtins:OSError",
        CONTRACT,
        CONFIG,
        when=_errno("EADDRINUSE", "EROFS", "ENAMETOOLONG", "ELOOP", "ENOTEMPTY", "EXDEV"),
    ),
    _rule("builtins:OSError", DOWNSTREAM, when=_errno("ENOSPC", "EIO", "EDQUOT")),
    # Libraries that only borrow OSError set no number.
    _rule("builtins:OSError", TRANSIENT, when=lambda exc: exc.errno is None, chain=True),
    _rule("builtins:OSError", DOWNSTREAM),
    # Names.
    _rule("socket:gaierror", DOWNSTREAM, CONFIG, when=is_unknown_name),
    _rule("socket:gaierror", TRANSIENT, UNSENT, when=_resolver("EAI_AGAIN", "EAI_SYSTEM", "EAI_FAIL", "EAI_MEMORY")),
    _rule("socket:gaierror", INTERNAL, when=_resolver("EAI_BADFLAGS", "EAI_FAMILY", "EAI_SERVICE", "EAI_SOCKTYPE")),
    _rule("socket:gaierror", TRANSIENT),
    _rule("socket:herror", TRANSIENT),
    # TLS.
    _rule("ssl:SSLCertVerificationError", DOWNSTREAM, CONFIG),
    _rule("ssl:SSLEOFError", TRANSIENT, AMBIGUOUS),
    _rule("ssl:SSLZeroReturnError", TRANSIENT),
    _rule("ssl:SSLSyscallError", TRANSIENT),
    _rule("ssl:SSLWantReadError", CONTROL),
    _rule("ssl:SSLWantWriteError", CONTROL),
    _rule("ssl:SSLError", TRANSIENT, AMBIGUOUS, when=was_cut_off),
    _rule("ssl:SSLError", DOWNSTREAM, CONFIG),
    # HTTP.
    _rule("http:RemoteDisconnected", TRANSIENT, AMBIGUOUS),
    _rule("http:IncompleteRead", TRANSIENT, AMBIGUOUS),
    _rule("http:BadStatusLine", DOWNSTREAM),
    _rule("http:LineTooLong", DOWNSTREAM),
    _rule("http:UnknownProtocol", DOWNSTREAM),
    _rule("http:InvalidURL", VALIDATION),
    _rule("http:NotConnected", INTERNAL),
    _rule("http:CannotSendRequest", INTERNAL),
    _rule("http:ResponseNotReady", INTERNAL),
    _rule("http:HTTPException", DOWNSTREAM),
    _rule("urllib:HTTPError", by_status=True),
    _rule("urllib:ContentTooShortError", TRANSIENT, AMBIGUOUS),
    _rule("urllib:URLError", DOWNSTREAM, CONFIG, below=permanent, unwrap="reason"),
    _rule(
        "urllib:URLError",
        VALIDATION,
        when=lambda exc: type(exc.reason) is str and "unknown url type" in exc.reason,
    ),
    _rule("urllib:URLError", TRANSIENT, unwrap="reason"),
    # What came could not be read.
    _rule("json:JSONDecodeError", DOWNSTREAM),
    _rule("xml:ParseError", DOWNSTREAM),
    _rule("xml:ExpatError", DOWNSTREAM),
    _rule("builtins:UnicodeDecodeError", DOWNSTREAM),
    _rule("builtins:UnicodeEncodeError", VALIDATION),
    _rule("zlib:error", DOWNSTREAM),
    _rule("gzip:BadGzipFile", DOWNSTREAM),
    _rule("_lzma:LZMAError", DOWNSTREAM),
    _rule("zipfile:BadZipFile", DOWNSTREAM),
    _rule("tarfile:ReadError", DOWNSTREAM),
    _rule("_pickle:UnpicklingError", DOWNSTREAM),
    _rule("binascii:Error", DOWNSTREAM),
    _rule("_csv:Error", DOWNSTREAM),
    # Child processes.
    _rule("subprocess:TimeoutExpired", TRANSIENT, AMBIGUOUS),
    # EX_TEMPFAIL of sysexits.h.
    _rule("subprocess:CalledProcessError", TRANSIENT, when=lambda exc: exc.returncode == 75),
    _rule("subprocess:CalledProcessError", INTERRUPTED, LOCAL, when=lambda exc: exc.returncode in (-2, 130)),
    _rule("subprocess:CalledProcessError", DOWNSTREAM),
    # Queues, streams, pools.
    _rule("asyncio:IncompleteReadError", TRANSIENT, AMBIGUOUS),
    _rule("asyncio:LimitOverrunError", DOWNSTREAM),
    _rule("asyncio:InvalidStateError", INTERNAL),
    _rule("asyncio:QueueFull", TRANSIENT, SATURATION),
    _rule("asyncio:QueueEmpty", CONTROL),
    _rule("queue:Full", TRANSIENT, SATURATION),
    _rule("_queue:Empty", CONTROL),
    # A worker died, often out of memory, and the pool stays broken.
    _rule("concurrent:BrokenProcessPool", INTERNAL, SATURATION),
    _rule("concurrent:BrokenThreadPool", INTERNAL),
    _rule("concurrent:InvalidStateError", INTERNAL),
    _rule("builtins:EOFError", TRANSIENT),
    # Kafka's producer raises this builtin when its own queue is full.
    _rule("builtins:BufferError", TRANSIENT, SATURATION, when=lambda exc: "queue full" in str(exc).lower()),
    _rule("builtins:BufferError", INTERNAL),
    _rule("builtins:MemoryError", INTERNAL, SATURATION),
    # Our own bugs, and our own input.
    *(_rule(f"builtins:{name}", INTERNAL) for name in _OUR_BUGS),
    _rule("builtins:ImportError", INTERNAL, CONFIG),
    _rule("builtins:ModuleNotFoundError", INTERNAL, CONFIG),
    _rule("builtins:ValueError", VALIDATION),
    # Mail and files: here a 4xx is temporary and a 5xx is for good, the reverse of HTTP.
    _rule("smtplib:SMTPServerDisconnected", TRANSIENT, AMBIGUOUS),
    _rule("smtplib:SMTPAuthenticationError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    _rule("smtplib:SMTPConnectError", TRANSIENT, UNSENT, when=lambda exc: exc.smtp_code < 500),
    _rule("smtplib:SMTPResponseException", TRANSIENT, when=lambda exc: 400 <= exc.smtp_code < 500),
    _rule("smtplib:SMTPResponseException", DOWNSTREAM, CLIENT_FAULT),
    _rule("smtplib:SMTPRecipientsRefused", DOWNSTREAM, CLIENT_FAULT),
    _rule("ftplib:error_temp", TRANSIENT),
    _rule("ftplib:error_perm", DOWNSTREAM, CLIENT_FAULT),
    _rule("imaplib:IMAP4.abort", TRANSIENT),
    _rule("imaplib:IMAP4.error", DOWNSTREAM),
    # SQLite: bad SQL and a missing table are OperationalErrors too, so what is left is our bug.
    # BUSY, LOCKED, PROTOCOL, SCHEMA.
    _rule("sqlite3:OperationalError", TRANSIENT, CONTENTION, when=_sqlite(5, 6, 15, 17, texts=("is locked",))),
    # INTERRUPT: we asked for it.
    _rule(
        "sqlite3:OperationalError",
        INTERRUPTED,
        LOCAL,
        when=lambda exc: _sqlite(9)(exc) or str(exc) == "interrupted",
    ),
    # IOERR, CORRUPT, FULL, NOTADB.
    _rule(
        "sqlite3:OperationalError",
        DOWNSTREAM,
        when=_sqlite(10, 11, 13, 26, texts=("disk is full", "disk I/O")),
    ),
    # READONLY, CANTOPEN, AUTH.
    _rule(
        "sqlite3:OperationalError",
        CONTRACT,
        CONFIG,
        when=_sqlite(8, 14, 23, texts=("readonly", "unable to open")),
    ),
    _rule("sqlite3:OperationalError", INTERNAL),
    _rule("sqlite3:IntegrityError", CONTRACT),
    _rule("sqlite3:DatabaseError", DOWNSTREAM),
    _rule("sqlite3:ProgrammingError", INTERNAL),
    _rule("sqlite3:DataError", VALIDATION),
    _rule("sqlite3:InterfaceError", INTERNAL),
    # Tenacity: the last attempt decides; it may hold a value that nobody wanted instead of an error.
    Rule("tenacity:RetryError", DOWNSTREAM, when=lambda exc: not exc.last_attempt.failed),
    Rule("tenacity:RetryError", TRANSIENT, unwrap=lambda exc: exc.last_attempt.exception()),
    Rule("tenacity:TryAgain", TRANSIENT),
)
