"""What stands between a caller and a client: async runtimes, validators, retriers, other breakers.

Validators do not say whether our input or the remote's answer was wrong; VALIDATION is
the safe reading, which neither retries nor counts. Where the answer is validated, a
rule at the call site says so.
"""

from __future__ import annotations

from typing import Any

from resilience._core.reading import ask, read
from resilience.catalogue.conditions import Condition, Told
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
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
from resilience.catalogue.waits import until

_RUNTIMES = (
    *library(
        "anyio",
        Case("BrokenResourceError", TRANSIENT, AMBIGUOUS),
        Case("EndOfStream WouldBlock", CONTROL),
        Case(
            "ClosedResourceError BusyResourceError RunFinishedError NoEventLoopError TypedAttributeLookupError",
            INTERNAL,
        ),
        Case("IncompleteRead", TRANSIENT),
        Case("DelimiterNotFound", DOWNSTREAM),
        Case("ConnectionFailed", TRANSIENT, UNSENT),
        Case("BrokenWorkerProcess BrokenWorkerInterpreter", INTERNAL, SATURATION),
    ),
    *library(
        "trio",
        # A BaseException of its own; asyncio's does not match it.
        Case("Cancelled", INTERRUPTED, LOCAL),
        # `trio.fail_after`; no builtin TimeoutError.
        Case("TooSlowError", TRANSIENT),
        Case("BrokenResourceError", TRANSIENT, AMBIGUOUS),
        Case("WouldBlock EndOfChannel", CONTROL),
        Case("ClosedResourceError BusyResourceError RunFinishedError TrioInternalError NeedHandshakeError", INTERNAL),
    ),
)

_VALIDATORS = (
    *library(
        "pydantic_core pydantic",
        Case("ValidationError PydanticSerializationError", VALIDATION),
        Case("SchemaError", INTERNAL),
    ),
    *library("pydantic", Case("PydanticUserError PydanticUndefinedAnnotation", INTERNAL)),
    *library(
        "jsonschema",
        Case("ValidationError FormatError", VALIDATION),
        Case("SchemaError UnknownType UndefinedTypeCheck", INTERNAL),
    ),
    *library("marshmallow", Case("ValidationError", VALIDATION), Case("RegistryError MarshmallowError", INTERNAL)),
)


# ------------------------------------------------------------------------------------------------ what wraps a call
def _is_pending(exc: Any) -> bool:
    # Asking an attempt that is not done would wait for it.
    return ask(read(exc.last_attempt, "done")) is False


def _last_error(exc: Any) -> object:
    return None if _is_pending(exc) else exc.last_attempt.exception()


_RETRIERS = library(
    "tenacity",
    # The last attempt decides; it may hold a value that nobody wanted instead of an error.
    Case(
        "RetryError",
        DOWNSTREAM,
        when=Condition(
            "the last attempt returned a value", lambda exc: not _is_pending(exc) and not exc.last_attempt.failed
        ),
    ),
    Case("RetryError", TRANSIENT, unwrap=_last_error),
    Case("TryAgain", TRANSIENT),
)

# A breaker inside ours is open: nothing was sent.
_BREAKERS = (
    *library("pybreaker", Case("CircuitBreakerError", TRANSIENT, LOCAL)),
    *library(
        "circuitbreaker",
        Case(
            "CircuitBreakerError",
            TRANSIENT,
            LOCAL,
            retry_after=Told("open_remaining of its breaker", lambda exc: exc._circuit_breaker.open_remaining),
        ),
    ),
    *library(
        "aiobreaker",
        # `reopen_time` is naive UTC, from which its own `time_remaining` subtracts local time.
        Case(
            "CircuitBreakerError", TRANSIENT, LOCAL, retry_after=Told("reopen_time", lambda exc: until(exc.reopen_time))
        ),
    ),
)


# ------------------------------------------------------------------------------------------------ SSH and DNS
_SSH = library(
    "paramiko",
    Case("BadHostKeyException IncompatiblePeer ConfigParseError", DOWNSTREAM, CONFIG),
    Case("AuthenticationException", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    # Its errno is None; a failure for each address is in `errors`.
    Case("NoValidConnectionsError", TRANSIENT, UNSENT),
    Case("ProxyCommandFailure", TRANSIENT, AMBIGUOUS),
    Case("ChannelException", TRANSIENT),
    Case("SSHException", TRANSIENT, chain=True),
)

_DNS = library(
    "dns",
    Case("NXDOMAIN NoAnswer YXDOMAIN", DOWNSTREAM, CONFIG),
    Case("NoResolverConfiguration", DOWNSTREAM, CONFIG),
    Case("LifetimeTimeout NoNameservers", TRANSIENT, UNSENT),
    Case("Timeout", TRANSIENT),
    Case("SyntaxError", VALIDATION),
    Case("BadResponse FormError UnexpectedSource DNSException", DOWNSTREAM),
)

RULES = (*_RUNTIMES, *_VALIDATORS, *_RETRIERS, *_BREAKERS, *_SSH, *_DNS)
