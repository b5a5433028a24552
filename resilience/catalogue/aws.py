"""AWS: botocore, boto3 and s3transfer (aiobotocore raises the same classes).

`ClientError` stands for every service, so the service's own code decides, and before
the status: throttling comes as 400, 429, 502 or 503. Modelled classes such as
`errorfactory.ThrottlingException` are made at run time and derive from it.
"""

from __future__ import annotations

from typing import Any

from resilience._core.headers import entry
from resilience._core.reading import members_of, plain_text
from resilience.catalogue.conditions import Condition, Field, inside
from resilience.catalogue.evidence import LOST, PERMANENT, TLS_CUT, TLS_PERMANENT
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    DOWNSTREAM,
    INTERNAL,
    LOCAL,
    QUOTA,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)


def _code_of(exc: Any) -> object:
    return inside(exc.response, "Error", "Code")


def _put_code(exc: Any, value: str) -> None:
    response = entry(exc.__dict__, "response") or {}
    response["Error"] = {"Code": value}
    exc.response = response


_CODE = Field("error code", _code_of, _put_code)

_PASSING = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


def _only_passing(exc: Any) -> bool:
    codes = {
        plain_text(entry(reason, "Code"), 64) for reason in members_of(entry(exc.response, "CancellationReasons"), 128)
    }
    codes -= {"None", None}
    return bool(codes) and codes <= _PASSING


_ONLY_PASSING = Condition("all reasons are conflicts with another transaction, or throttling", _only_passing)

_CLIENT_ERROR = (
    Case(
        "ClientError",
        TRANSIENT,
        when=_CODE.among(
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottledException",
            "RequestThrottled",
            "TooManyRequestsException",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "BandwidthLimitExceeded",
            "PriorRequestNotComplete",
            "SlowDown",
            "EC2ThrottledException",
            "KmsThrottled",
            "KMSThrottlingException",
        ),
    ),
    Case("ClientError", DOWNSTREAM, QUOTA, when=_CODE.among("ServiceQuotaExceededException", "LimitExceededException")),
    # Bedrock.
    Case("ClientError", TRANSIENT, when=_CODE.among("ModelNotReadyException", "ModelStreamErrorException")),
    Case(
        "ClientError",
        TRANSIENT,
        AMBIGUOUS,
        when=_CODE.among("ModelTimeoutException", "RequestTimeout", "RequestTimeoutException"),
    ),
    # The model failed on this input; a 424 that counts.
    Case("ClientError", DOWNSTREAM, when=_CODE.among("ModelErrorException")),
    Case(
        "ClientError",
        TRANSIENT,
        CONTENTION,
        when=_CODE.among(
            "TransactionConflictException",
            "TransactionInProgressException",
            "ReplicatedWriteConflictException",
            "OperationAborted",
            "ConcurrentModificationException",
        ),
    ),
    # Cancelled for reasons that pass.
    Case(
        "ClientError",
        TRANSIENT,
        CONTENTION,
        when=_CODE.among("TransactionCanceledException") & _ONLY_PASSING,
    ),
    Case(
        "ClientError",
        CONTRACT,
        when=_CODE.among(
            "ConditionalCheckFailedException",
            "TransactionCanceledException",
            "BucketAlreadyExists",
            "BucketAlreadyOwnedByYou",
            "ResourceConflictException",
            "EntityAlreadyExists",
            "PreconditionFailed",
            "IdempotentParameterMismatchException",
        ),
    ),
    Case(
        "ClientError",
        DOWNSTREAM,
        CLIENT_FAULT,
        when=_CODE.among(
            "AccessDenied",
            "AccessDeniedException",
            "UnrecognizedClientException",
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
            "InvalidSignatureException",
            "OptInRequired",
        ),
    ),
    # Credentials are refreshed by the next call.
    Case(
        "ClientError",
        TRANSIENT,
        LOCAL,
        when=_CODE.among("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"),
    ),
    Case(
        "ClientError",
        DOWNSTREAM,
        CLIENT_FAULT,
        when=_CODE.among(
            "ValidationException",
            "ResourceNotFoundException",
            "NoSuchKey",
            "NoSuchBucket",
            "InvalidParameterValueException",
            "InvalidRequestException",
            "404",
        ),
    ),
    Case("ClientError", DOWNSTREAM, by_status=True),
)

# Inside an event stream the codes begin with a small letter, and there is no status.
_EVENT_STREAM = (
    Case(
        "EventStreamError",
        TRANSIENT,
        when=_CODE.among(
            "throttlingException",
            "internalServerException",
            "serviceUnavailableException",
            "modelStreamErrorException",
            "modelTimeoutException",
        ),
    ),
    Case("EventStreamError", DOWNSTREAM, CLIENT_FAULT),
)

_CONFIGURATION = (
    "NoCredentialsError PartialCredentialsError NoRegionError NoAuthTokenError ProfileNotFound ConfigNotFound "
    "ConfigParseError UnknownServiceError DataNotFoundError InvalidConfigError InvalidRetryConfigurationError "
    "UnknownEndpointError SSOTokenLoadError"
)

RULES = (
    *library(
        "botocore",
        *_EVENT_STREAM,
        *_CLIENT_ERROR,
        Case("SSLError", DOWNSTREAM, CONFIG, below=TLS_PERMANENT),
        Case("SSLError", TRANSIENT, below=TLS_CUT),
        Case("SSLError", DOWNSTREAM, CONFIG),
        Case("EndpointConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case("ProxyConnectionError", TRANSIENT, AMBIGUOUS, below=LOST),
        Case("EndpointConnectionError ConnectTimeoutError ProxyConnectionError", TRANSIENT, UNSENT),
        Case(
            "ReadTimeoutError ConnectionClosedError ResponseStreamingError IncompleteReadError",
            TRANSIENT,
            AMBIGUOUS,
        ),
        Case("HTTPClientError ConnectionError", TRANSIENT),
        Case(_CONFIGURATION, CONTRACT, CONFIG),
        # The metadata service or a helper process, not the service that is called.
        Case("CredentialRetrievalError MetadataRetrievalError", TRANSIENT, LOCAL),
        # Its own rate limiter, in adaptive mode.
        Case("CapacityNotAvailableError", TRANSIENT, LOCAL),
        Case("UnauthorizedSSOTokenError LoginRefreshRequired", DOWNSTREAM, CLIENT_FAULT),
        Case("ParamValidationError ValidationError", VALIDATION),
        Case("ChecksumError ResponseParserError", DOWNSTREAM),
        # A garbled event stream.
        Case(
            "ParserError ChecksumMismatch InvalidPayloadLength InvalidHeadersLength DuplicateHeader "
            "NoInitialResponseError",
            DOWNSTREAM,
        ),
        Case("WaiterError", DOWNSTREAM, chain=True),
        Case("StubAssertionError", INTERNAL),
        Case("BotoCoreError", DOWNSTREAM),
        code=_code_of,
    ),
    *library(
        "boto3",
        # The service's error is only what was being handled.
        Case("S3UploadFailedError S3TransferFailedError", DOWNSTREAM, unwrap="__context__"),
        Case("RetriesExceededError", TRANSIENT, unwrap="last_exception"),
        Case("Boto3Error", INTERNAL),
    ),
    *library(
        "s3transfer",
        Case("S3UploadFailedError S3DownloadFailedError S3CopyFailedError", DOWNSTREAM, unwrap="__context__"),
        Case("RetriesExceededError", TRANSIENT, unwrap="last_exception"),
        # Derives from concurrent.futures.CancelledError, and nobody has cancelled.
        Case("FatalError", DOWNSTREAM),
        Case("TransferNotDoneError InvalidSubscriberMethodError S3ValidationError", INTERNAL),
    ),
)
