"""What the SDKs made by Stainless have in common: OpenAI, Anthropic, Groq, Together and others.

All have one tree: a class per HTTP status, `APIStatusError` for the rest, `APIError` bare
where an error comes in the middle of a stream, and transport errors wrapped in
`APIConnectionError` with httpx's own as the cause.
"""

from __future__ import annotations

from typing import Any

from resilience._core.reading import ask
from resilience.catalogue.conditions import Condition, header
from resilience.catalogue.evidence import PERMANENT, caused_by
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    DOWNSTREAM,
    SATURATION,
    TRANSIENT,
    UNSENT,
    Case,
)

RETRY_ASKED_FOR = header("x-should-retry", "true")
_POOL_FULL = caused_by("httpx2:PoolTimeout", "httpx:PoolTimeout")
_NOT_CONNECTED = caused_by("httpx2:ConnectTimeout", "httpx:ConnectTimeout")
_UNREADABLE = caused_by("httpx2:DecodingError", "httpx:DecodingError")
_NOT_SENT = caused_by("httpx2:ConnectError", "httpx2:ConnectTimeout", "httpx:ConnectError", "httpx:ConnectTimeout")


def _repetitions(exc: Any) -> object:
    number = exc.request.headers.get("x-stainless-retry-count")
    return int(number) if number.isdecimal() and len(number) < 4 else None


_REPEATED = Condition("the SDK has repeated the request", lambda exc: (ask(_repetitions, exc) or 0) > 0)

# What a timeout or a lost connection was, as the transport below tells.
TRANSPORT = (
    Case("APITimeoutError APIConnectionError", TRANSIENT, SATURATION, below=_POOL_FULL),
    Case("APIConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    # The last request of several was not sent; those before it may have been processed.
    Case("APITimeoutError APIConnectionError", TRANSIENT, AMBIGUOUS, when=_REPEATED, below=_NOT_SENT),
    Case("APITimeoutError", TRANSIENT, UNSENT, below=_NOT_CONNECTED),
    Case("APITimeoutError", TRANSIENT, AMBIGUOUS),
    # A broken content-encoding is wrapped as a connection error.
    Case("APIConnectionError", DOWNSTREAM, below=_UNREADABLE),
    Case("APIConnectionError", TRANSIENT, chain=True),
)
_REFUSALS = "BadRequestError AuthenticationError PermissionDeniedError NotFoundError UnprocessableEntityError"
STATUSES = (
    # The SDKs repeat every 409 as a lock timeout; a plain one is a conflict.
    Case("ConflictError", TRANSIENT, when=RETRY_ASKED_FOR),
    Case(f"ConflictError {_REFUSALS}", DOWNSTREAM, CLIENT_FAULT),
    Case("RateLimitError InternalServerError", TRANSIENT, by_status=True),
    Case("APIResponseValidationError", DOWNSTREAM),
    Case("APIStatusError", by_status=True),
)
