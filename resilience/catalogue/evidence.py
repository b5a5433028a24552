"""Conditions that several catalogues share, on the exceptions found below one.

A certificate that does not verify and a host that does not exist stay so until
somebody changes a setting, and clients hide both two to four levels deep behind
"connection error" or even behind a timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.reading import has_base
from resilience.catalogue.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CUT_SHORT = ("SSLEOFError", "SSLZeroReturnError", "SSLSyscallError", "SSLWantReadError", "SSLWantWriteError")


def permanent(below: Sequence[BaseException]) -> bool:
    """Whether a TLS or DNS failure that stays so is among them."""
    return tls_permanent(below) or dns_permanent(below)


def tls_permanent(below: Sequence[BaseException]) -> bool:
    """Whether a certificate was refused, or TLS failed otherwise than by being cut off."""
    return any(is_tls_permanent(exc) for exc in below)


def tls_cut(below: Sequence[BaseException]) -> bool:
    """Whether a TLS connection was cut off, as a peer that restarts does."""
    return any(
        has_base(type(exc), "ssl", "SSLEOFError")
        or has_base(type(exc), "ssl", "SSLZeroReturnError")
        or (has_base(type(exc), "ssl", "SSLError") and was_cut_off(exc))
        for exc in below
    )


def dns_permanent(below: Sequence[BaseException]) -> bool:
    """Whether a name was looked up that does not exist."""
    return any(has_base(type(exc), "socket", "gaierror") and is_unknown_name(exc) for exc in below)


def caused_by(*matches: str) -> Condition:
    """Whether an exception of one of these classes, each "segment:Qualname", is among those below."""
    named = [(segment, qualname) for segment, _, qualname in (match.partition(":") for match in matches)]
    shown = " or ".join(match.replace(":", ".") for match in matches)
    return Condition(f"{shown} is behind it", lambda below: _has_one_of(named, below))


def _has_one_of(named: Iterable[tuple[str, str]], below: Sequence[BaseException]) -> bool:
    return any(has_base(type(exc), segment, qualname) for exc in below for segment, qualname in named)


_LOST = (
    ("builtins", "ConnectionResetError"),
    ("builtins", "ConnectionAbortedError"),
    ("builtins", "BrokenPipeError"),
    ("http", "BadStatusLine"),
    ("http", "IncompleteRead"),
    ("urllib3", "ProtocolError"),
    ("urllib3", "ReadTimeoutError"),
    ("aiohttp", "ServerDisconnectedError"),
    ("aiohttp", "ClientPayloadError"),
    ("aiohttp", "SocketTimeoutError"),
)


def was_lost(below: Sequence[BaseException]) -> bool:
    """Whether a connection that stood was lost: what was asked may have been done."""
    return _has_one_of(_LOST, below)


def is_tls_permanent(exc: BaseException) -> bool:
    """Whether this is such a TLS error itself."""
    kind = type(exc)
    if has_base(kind, "ssl", "SSLCertVerificationError"):
        return True
    if not has_base(kind, "ssl", "SSLError") or any(has_base(kind, "ssl", name) for name in _CUT_SHORT):
        return False
    return not was_cut_off(exc)


def was_cut_off(exc: BaseException) -> bool:
    """Whether a TLS error of no special class tells of a connection that was cut."""
    text = str(exc)
    return "EOF" in text or "timed out" in text or "DECRYPTION_FAILED" in text


def is_unknown_name(exc: BaseException) -> bool:
    """Whether a resolver's error says that the name has no address."""
    return resolver_code(exc, "EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")


def resolver_code(exc: BaseException, *names: str) -> bool:
    """Whether the error's code is one of these constants, whose numbers differ by platform."""
    import socket

    code = exc.args[0] if exc.args else None
    return type(code) is int and any(code == getattr(socket, name, None) for name in names)


TLS_PERMANENT = Condition("TLS failed for good, such as a certificate that was refused", tls_permanent)
DNS_PERMANENT = Condition("the name does not exist", dns_permanent)
PERMANENT = Condition("a certificate was refused, or the name does not exist", permanent)
LOST = Condition("a connection that stood was lost", was_lost)
TLS_CUT = Condition("the peer cut the TLS connection", tls_cut)
