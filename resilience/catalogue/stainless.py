"""What the SDKs made by Stainless have in common: OpenAI, Anthropic, Groq, Together and others.

All have one tree: a class per HTTP status, `APIStatusError` for the rest, `APIError` bare
where an error comes in the middle of a stream, and transport errors wrapped in
`APIConnectionError` with httpx's own as the cause.
"""

from __future__ import annotations

from resilience.catalogue.conditions import header
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

# What a timeout or a lost connection was, as the transport below tells.
TRANSPORT = (
    Case("APITimeoutError APIConnectionError", TRANSIENT, SATURATION, below=_POOL_FULL),
    Case("APITimeoutError", TRANSIENT, UNSENT, below=_NOT_CONNECTED),
    Case("APITimeoutError", TRANSIENT, AMBIGUOUS),
    Case("APIConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
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
