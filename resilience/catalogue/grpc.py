"""gRPC, where the exception is the call itself, and its texts are constants of the core library."""

from __future__ import annotations

from typing import Any

from resilience._core.reading import ask
from resilience.catalogue.conditions import Condition, Field, Told
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)
from resilience.catalogue.waits import grpc_wait, is_running, pushback_of


def _status_of(exc: Any) -> object:
    return None if is_running(exc) else exc.code().name


def _put_status(exc: Any, value: str) -> None:
    from types import SimpleNamespace

    name = _BY_NUMBER[int(value)] if value.isdecimal() and int(value) < len(_BY_NUMBER) else value.upper()
    exc.code = lambda: SimpleNamespace(name=name)


def _details_of(exc: Any) -> str:
    text = None if is_running(exc) else exc.details()
    return text if type(text) is str else ""


def _put_details(exc: Any, value: str) -> None:
    exc.details = lambda: value


# grpc/status.h.
_BY_NUMBER = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_STATUS = Field("gRPC status", _status_of, _put_status)
_DETAILS = Field("details", _details_of, _put_details, role="text")


def _says(*phrases: str) -> Condition:
    shown = " or ".join(f'"{phrase}"' for phrase in phrases)

    def holds(exc: Any) -> bool:
        details = ask(_details_of, exc) or ""
        return any(phrase in details for phrase in phrases)

    return Condition(f"the details have {shown}", holds, (_DETAILS,))


def _refused(exc: Any) -> bool:
    pushback = pushback_of(exc)
    return pushback is not None and pushback < 0


_WAIT = Told("grpc-retry-pushback-ms or RetryInfo in the trailing metadata", grpc_wait)
_NOT_AGAIN = Condition("the server forbids another try (grpc-retry-pushback-ms is negative)", _refused)
# All kinds of call; each is an exception of its own class.
_ERRORS = "_InactiveRpcError _MultiThreadedRendezvous _SingleThreadedRendezvous _Rendezvous AioRpcError RpcError"

RULES = library(
    "grpc",
    # Unavailable: https://grpc.io/docs/guides/status-codes
    Case(_ERRORS, DOWNSTREAM, when=_STATUS.among("UNAVAILABLE", "RESOURCE_EXHAUSTED") & _NOT_AGAIN),
    Case(
        _ERRORS,
        DOWNSTREAM,
        CONFIG,
        when=_STATUS.among("UNAVAILABLE")
        & _says("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "Domain name not found"),
    ),
    Case(
        _ERRORS,
        TRANSIENT,
        UNSENT,
        when=_STATUS.among("UNAVAILABLE") & _says("failed to connect to all addresses", "DNS resolution failed"),
    ),
    Case(_ERRORS, TRANSIENT, AMBIGUOUS, when=_STATUS.among("UNAVAILABLE"), retry_after=_WAIT),
    # The same code tells of a message that is larger than a limit of ours.
    Case(_ERRORS, VALIDATION, when=_STATUS.among("RESOURCE_EXHAUSTED") & _says("message larger than max")),
    Case(_ERRORS, TRANSIENT, when=_STATUS.among("RESOURCE_EXHAUSTED"), retry_after=_WAIT),
    # HTTP/2 resets surface as INTERNAL.
    Case(_ERRORS, TRANSIENT, AMBIGUOUS, when=_STATUS.among("DEADLINE_EXCEEDED", "INTERNAL")),
    Case(_ERRORS, TRANSIENT, CONTENTION, when=_STATUS.among("ABORTED")),
    Case(_ERRORS, INTERRUPTED, LOCAL, when=_STATUS.among("CANCELLED") & _says("Locally cancelled")),
    # Cancelled by the server or a proxy; UNKNOWN is an exception that the server did not catch.
    Case(_ERRORS, DOWNSTREAM, when=_STATUS.among("CANCELLED", "UNKNOWN", "DATA_LOSS", "UNIMPLEMENTED")),
    Case(
        _ERRORS,
        DOWNSTREAM,
        CLIENT_FAULT,
        when=_STATUS.among(
            "INVALID_ARGUMENT",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "UNAUTHENTICATED",
            "FAILED_PRECONDITION",
            "OUT_OF_RANGE",
        ),
    ),
    # A code that is not in the list, or none.
    Case(_ERRORS, DOWNSTREAM),
    Case("FutureTimeoutError", TRANSIENT, AMBIGUOUS),
    Case("FutureCancelledError", INTERRUPTED, LOCAL),
    # `context.abort()` in a server's own handler.
    Case("AbortError", CONTROL),
    Case("UsageError InternalError BaseError", INTERNAL),
    code=_status_of,
    has_status=False,
)
