"""Google: the Gemini SDK, api-core (which every Cloud client raises) and auth."""

from __future__ import annotations

from typing import Any

from resilience._core.headers import entry
from resilience._core.reading import ask, read
from resilience.catalogue.conditions import STATUS, Condition, Told, attribute, flag, inside, shown
from resilience.catalogue.evidence import PERMANENT
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
    QUOTA,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)
from resilience.catalogue.waits import grpc_wait, pushback_of, retry_info_in


def _gemini_details(exc: Any) -> object:
    inner = inside(exc.details, "error")
    return entry(exc.details if inner is None else inner, "details")


_GEMINI_WAIT = Told("retryDelay of the RetryInfo in details", lambda exc: retry_info_in(_gemini_details(exc)))
# QuotaFailure.violations[].quotaId; a RetryInfo may name a short delay all the same.
_DAILY = Condition("the quota that was hit is per day", lambda exc: "PerDay" in shown(exc.details))

_GENAI = library(
    "google.genai",
    Case("ClientError APIError", DOWNSTREAM, QUOTA, when=STATUS.among(429) & _DAILY),
    Case(
        "ClientError",
        DOWNSTREAM,
        CLIENT_FAULT,
        by_status=True,
        retry_after=_GEMINI_WAIT,
    ),
    Case("ServerError", TRANSIENT, by_status=True),
    # Both hierarchies have one of this name; the first loses its subclass by pickling.
    Case("APIError", DOWNSTREAM, by_status=True, retry_after=_GEMINI_WAIT),
    Case("UnknownApiResponseError UnknownFunctionCallArgumentError FunctionInvocationError", DOWNSTREAM),
    Case("UnsupportedFunctionError", VALIDATION),
    Case("ContinuationInterruptedError APITimeoutError", TRANSIENT, AMBIGUOUS),
    Case("APIStatusError GenAiError", DOWNSTREAM, by_status=True),
    Case("APIConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("APIConnectionError", TRANSIENT, chain=True),
    Case("NoResponseError", TRANSIENT),
    Case("APIResponseValidationError ResponseValidationError", DOWNSTREAM),
    Case("GeminiNextGenAPIClientError", CONTRACT, CONFIG),
)

# ErrorInfo tells a spent quota from a rate limit.
_QUOTA_SPENT = attribute("reason").among("QUOTA_EXCEEDED") | _DAILY


def _wait_of(exc: Any) -> float | None:
    wait = retry_info_in(exc.details)
    # Over gRPC the call is the response.
    return ask(grpc_wait, exc.response) if wait is None else wait


_WAIT = Told("RetryInfo in details, or the metadata of the gRPC call", _wait_of)
_NOT_AGAIN = Condition(
    "the server forbids another try (grpc-retry-pushback-ms is negative)",
    lambda exc: (pushback_of(exc.response) or 0.0) < 0,
)
_TOO_LARGE = Condition(
    "the message is larger than a limit of ours", lambda exc: "message larger than max" in exc.message
)


_CLIENT_FAULTS = (
    "InvalidArgument OutOfRange FailedPrecondition BadRequest Unauthorized Unauthenticated PermissionDenied Forbidden "
    "NotFound AlreadyExists Conflict PreconditionFailed LengthRequired MethodNotAllowed RequestRangeNotSatisfiable "
    "ClientError"
)

_API_CORE = library(
    "google.api_core",
    Case("ResourceExhausted", VALIDATION, when=_TOO_LARGE),
    Case("ResourceExhausted TooManyRequests", DOWNSTREAM, QUOTA, when=_QUOTA_SPENT),
    Case("ResourceExhausted ServiceUnavailable", DOWNSTREAM, when=_NOT_AGAIN),
    Case("ResourceExhausted TooManyRequests ServiceUnavailable", TRANSIENT, retry_after=_WAIT),
    Case("DeadlineExceeded GatewayTimeout TransferStalledError", TRANSIENT, AMBIGUOUS),
    Case("BadGateway InternalServerError", TRANSIENT),
    # A conflict by its base class, yet the remote is well: read, modify and write once more.
    Case("Aborted", TRANSIENT, CONTENTION),
    # gRPC's UNKNOWN is an exception that the server did not catch.
    Case("Unknown DataLoss MethodNotImplemented Redirection", DOWNSTREAM),
    # Only our own word makes it ours.
    Case(
        "Cancelled",
        INTERRUPTED,
        LOCAL,
        when=Condition("it was cancelled on this side", lambda exc: "Locally cancelled" in exc.message),
    ),
    Case("Cancelled", DOWNSTREAM),
    Case("NotModified", CONTROL),
    Case(_CLIENT_FAULTS, DOWNSTREAM, CLIENT_FAULT),
    Case("ServerError", TRANSIENT, by_status=True),
    Case("RetryError", TRANSIENT, unwrap="cause"),
    Case("DuplicateCredentialArgs UnseekableStreamError AsyncRestUnsupportedParameterError", INTERNAL),
    Case("GoogleAPICallError", DOWNSTREAM, by_status=True),
    Case("GoogleAPIError", DOWNSTREAM),
    code=lambda exc: read(read(exc, "grpc_status_code"), "name"),
)

_RETRYABLE = flag("retryable", shown="the library calls it retryable")

_AUTH = library(
    "google.auth",
    Case("TransportError TimeoutError", TRANSIENT),
    Case("RefreshError GoogleAuthError", TRANSIENT, when=_RETRYABLE),
    Case("RefreshError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    Case("DefaultCredentialsError OSError", CONTRACT, CONFIG),
    Case("ResponseError GoogleAuthError", DOWNSTREAM),
)

# The discovery-based client, and the HTTP library below it.
_DISCOVERY = (
    *library(
        "googleapiclient",
        Case("HttpError", DOWNSTREAM, by_status=True, headers=Told("resp", lambda exc: exc.resp)),
        Case("InvalidJsonError", DOWNSTREAM),
        Case("Error", INTERNAL),
    ),
    *library(
        "httplib2",
        Case("ServerNotFoundError", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case("ServerNotFoundError", TRANSIENT, UNSENT),
        Case("RelativeURIError", VALIDATION),
        Case("ProxiesUnavailableError", TRANSIENT, UNSENT),
        Case("HttpLib2Error", DOWNSTREAM),
    ),
)

RULES = (*_GENAI, *_API_CORE, *_AUTH, *_DISCOVERY)
