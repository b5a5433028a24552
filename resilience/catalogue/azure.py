"""Azure: azure-core, whose classes the SDKs of all services derive theirs from.

It makes the cleanest split of all: `ServiceRequestError` was never sent,
`ServiceResponseError` was sent and its answer lost.
"""

from __future__ import annotations

from resilience._core.reading import read
from resilience.catalogue.evidence import LOST, PERMANENT
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)

RULES = library(
    "azure.core",
    Case("ServiceRequestError ServiceRequestTimeoutError", DOWNSTREAM, CONFIG, below=PERMANENT),
    # The aiohttp transport says this of every error of aiohttp's that it does not know.
    Case("ServiceRequestError", TRANSIENT, AMBIGUOUS, below=LOST),
    Case("ServiceRequestTimeoutError ServiceRequestError", TRANSIENT, UNSENT),
    # IncompleteReadError derives from DecodeError.
    Case("ServiceResponseTimeoutError ServiceResponseError IncompleteReadError", TRANSIENT, AMBIGUOUS),
    Case("DecodeError TooManyRedirectsError DeserializationError", DOWNSTREAM),
    Case(
        "ClientAuthenticationError ResourceNotFoundError ResourceExistsError ResourceModifiedError",
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    Case("ResourceNotModifiedError", CONTROL),
    Case("HttpResponseError", DOWNSTREAM, by_status=True),
    Case("StreamConsumedError StreamClosedError ResponseNotReadError", INTERNAL),
    Case("SerializationError", VALIDATION),
    Case("AzureError", DOWNSTREAM),
    code=lambda exc: read(read(exc, "error"), "code"),
)
