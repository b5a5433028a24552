"""The SDKs of language models."""

from __future__ import annotations

from typing import Any

from resilience._core.headers import entry
from resilience._core.reading import read
from resilience.catalogue.conditions import (
    STATUS,
    Condition,
    Field,
    Told,
    attribute,
    body_of,
    flag,
    inside,
    says,
    shown,
)
from resilience.catalogue.evidence import PERMANENT, caused_by
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    DOWNSTREAM,
    INTERNAL,
    QUOTA,
    SATURATION,
    TRANSIENT,
    VALIDATION,
    Case,
    library,
)
from resilience.catalogue.stainless import RETRY_ASKED_FOR, STATUSES, TRANSPORT

_CODE, _TYPE = attribute("code"), attribute("type")
_NETWORK_DOWN = caused_by("httpx2:TransportError", "httpx:TransportError", "requests:RequestException")

# OpenAI help article 5955604: 429s that no wait cures.
_OUT_OF_MONEY = _TYPE.among("insufficient_quota") | _CODE.among(
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
)
_PASSING = _TYPE.among(
    "server_error", "rate_limit_error", "overloaded_error", "service_unavailable_error"
) | _CODE.among("server_error", "rate_limit_exceeded", "server_is_overloaded")


def _code_of(exc: Any) -> object:
    return exc.code


_OPENAI = library(
    "openai",
    Case("RateLimitError", DOWNSTREAM, QUOTA, when=_OUT_OF_MONEY),
    Case("OAuthError", DOWNSTREAM, CLIENT_FAULT, by_status=True),
    *TRANSPORT,
    *STATUSES,
    # Bare in the middle of a stream: no status, no response.
    Case("APIError", DOWNSTREAM, QUOTA, when=_OUT_OF_MONEY),
    Case("APIError", TRANSIENT, when=_PASSING),
    Case("APIError", DOWNSTREAM),
    # What `.parse()` raises for an answer that was cut or filtered.
    Case("ContentFilterFinishReasonError LengthFinishReasonError", DOWNSTREAM, CLIENT_FAULT),
    Case("InvalidWebhookSignatureError", VALIDATION),
    Case("WebSocketConnectionClosedError", TRANSIENT, AMBIGUOUS),
    Case("WebSocketQueueFullError", TRANSIENT, SATURATION),
    # Bare: no key was given when the client was made.
    Case("OpenAIError", CONTRACT, CONFIG),
    code=_code_of,
)


# ------------------------------------------------------------------------------------------------ Groq
def _groq_error(exc: Any) -> object:
    # The whole document for a status, the inner object in a stream.
    inner = entry(exc.body, "error")
    return exc.body if inner is None else inner


def _groq_word(exc: Any) -> object:
    error = _groq_error(exc)
    return entry(error, "code") or entry(error, "type")


def _put_groq_word(exc: Any, value: str) -> None:
    exc.body = {"error": {"type": value}}


_GROQ_WORD = Field("error code or type", _groq_word, _put_groq_word)
_PER_DAY = Condition(
    "the limit that was hit is per day",
    lambda exc: "per day" in shown(entry(_groq_error(exc), "message") or exc.body),
)


_GROQ = library(
    "groq",
    Case("RateLimitError", DOWNSTREAM, QUOTA, when=_PER_DAY),
    *TRANSPORT,
    *STATUSES,
    Case(
        "APIError",
        TRANSIENT,
        when=_GROQ_WORD.among("server_error", "internal_server_error", "service_unavailable", "rate_limit_exceeded"),
    ),
    Case("APIError", DOWNSTREAM),
    Case("GroqError", CONTRACT, CONFIG),
    code=_groq_word,
)

_TOGETHER = library("together cerebras", *TRANSPORT, *STATUSES, Case("APIError", DOWNSTREAM))


# ------------------------------------------------------------------------------------------------ Anthropic
def _error_code(exc: Any) -> object:
    given = read(exc, "error_code")
    return inside(body_of(exc), "error", "details", "error_code") if given is None else given


def _put_error_code(exc: Any, value: str) -> None:
    exc.error_code = value


def _error_type(exc: Any) -> object:
    return inside(body_of(exc), "error", "type")


def _put_error_type(exc: Any, value: str) -> None:
    exc.body = {"error": {"type": value}}


_ERROR_CODE = Field("error code", _error_code, _put_error_code)
_ERROR_TYPE = Field("error type", _error_type, _put_error_type)

_ANTHROPIC = library(
    "anthropic",
    # Spend limits are 429s whose type still says rate_limit_error.
    Case("EnforcedSpendLimitReachedError ContractSpendLimitReachedError", DOWNSTREAM, QUOTA),
    Case(
        "RateLimitError",
        DOWNSTREAM,
        QUOTA,
        when=_ERROR_CODE.among("enforced_spend_limit_reached", "contract_spend_limit_reached"),
    ),
    # The limit that an organisation has set itself is a 400 known by its text only.
    Case(
        "BadRequestError",
        DOWNSTREAM,
        QUOTA,
        CLIENT_FAULT,
        when=says("specified API usage limits", "credit balance is too low"),
    ),
    Case("PaymentRequiredError LinkedOrganizationSpendLimitReachedError", DOWNSTREAM, QUOTA, CLIENT_FAULT),
    Case("BadRequestError", TRANSIENT, when=_ERROR_CODE.among("request_body_timeout", "thread_continue_in_flight")),
    Case(
        "ConflictError",
        TRANSIENT,
        CONTENTION,
        when=RETRY_ASKED_FOR
        | _ERROR_CODE.among(
            "concurrent_membership_change",
            "scan_pending",
            "workspace_changed_concurrently",
            "storage_changed_concurrently",
        ),
    ),
    # Half done rather than overloaded.
    Case(
        "ServiceUnavailableError",
        DOWNSTREAM,
        when=_ERROR_CODE.among("registration_pending", "workspace_created_incomplete"),
    ),
    Case("GatewayTimeoutError", TRANSIENT, AMBIGUOUS),
    Case("RampLimitExceededError RequestTimeoutError RetryableError", TRANSIENT),
    # 529, and in older releases no InternalServerError.
    Case("OverloadedError ServiceUnavailableError", TRANSIENT, by_status=True),
    # 499: some hop gave up. A remote word only, so it is nobody's cancel.
    Case("ClientClosedRequestError PreconditionFailedError ContentTooLargeError", DOWNSTREAM, CLIENT_FAULT),
    Case("RequestHeaderFieldsTooLargeError", DOWNSTREAM, CLIENT_FAULT),
    *TRANSPORT,
    # An error event in a stream keeps the 200 of the response, and the bare class.
    Case(
        "APIStatusError",
        TRANSIENT,
        when=STATUS.among(200)
        & _ERROR_TYPE.among("overloaded_error", "rate_limit_error", "api_error", "timeout_error"),
    ),
    Case("APIStatusError", DOWNSTREAM, CLIENT_FAULT, when=STATUS.among(200)),
    *STATUSES,
    Case("APIWebhookValidationError", VALIDATION),
    Case("WorkloadIdentityError", TRANSIENT, when=STATUS.missing | STATUS.within(500, 599) | STATUS.among(429)),
    Case("WorkloadIdentityError", DOWNSTREAM, CLIENT_FAULT),
    Case("APIError", DOWNSTREAM),
    Case("CredentialsError IdentityTokenFileError AnthropicError", CONTRACT, CONFIG),
    code=lambda exc: _error_code(exc) or _error_type(exc),
)

_MISTRAL = library(
    "mistralai",
    # Its status is 200, or that of an error whose body is not the one that was expected.
    Case("ResponseValidationError", DOWNSTREAM, by_status=True),
    Case("HTTPValidationError", DOWNSTREAM, CLIENT_FAULT),
    Case("NoResponseError", TRANSIENT),
    Case("SDKError MistralError", DOWNSTREAM, by_status=True),
    # Before 2.0.
    headers=Told("raw_response.headers", lambda exc: exc.raw_response.headers),
)

_COHERE = library(
    "cohere",
    Case(
        "InternalServerError ServiceUnavailableError GatewayTimeoutError TooManyRequestsError",
        TRANSIENT,
        by_status=True,
    ),
    Case("NotImplementedError", DOWNSTREAM),
    Case(
        "BadRequestError UnauthorizedError ForbiddenError NotFoundError UnprocessableEntityError "
        "InvalidTokenError ClientClosedRequestError",
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    Case("ApiError", DOWNSTREAM, by_status=True),
)

_OLLAMA = library(
    "ollama",
    Case("ResponseError", DOWNSTREAM, by_status=True),
    Case("RequestError", VALIDATION),
)

_HUGGINGFACE = library(
    "huggingface_hub",
    # A builtin ConnectionError, and yet no wait ends it.
    Case("OfflineModeIsEnabled LocalTokenNotFoundError", CONTRACT, CONFIG),
    Case("InferenceTimeoutError InferenceEndpointTimeoutError OverloadedError XetDownloadError", TRANSIENT),
    Case("BadRequestError GatedRepoError RepositoryNotFoundError RevisionNotFoundError", DOWNSTREAM, CLIENT_FAULT),
    Case("LocalEntryNotFoundError", TRANSIENT, below=_NETWORK_DOWN),
    Case("LocalEntryNotFoundError EntryNotFoundError CacheNotFound", CONTRACT),
    Case("HfHubHTTPError", by_status=True),
    Case("ValidationError", DOWNSTREAM, CLIENT_FAULT),
    Case("HFValidationError", VALIDATION),
    Case("DeviceCodeError OIDCError", DOWNSTREAM, CLIENT_FAULT),
    Case("NotASafetensorsRepoError", CONTRACT),
    Case("GenerationError TextGenerationError InferenceEndpointError FileMetadataError", DOWNSTREAM),
    Case("SafetensorsParsingError DDUFError", DOWNSTREAM),
)


# ------------------------------------------------------------------------------------------------ LiteLLM
# `code` and `type` of a 429 are LiteLLM's own; the provider's survive in the body.
def _put_provider_word(exc: Any, value: str) -> None:
    exc.body = {"code": value}


_PROVIDER_CODE = Field("the provider's code", lambda exc: inside(exc.body, "code"), _put_provider_word)
_PROVIDER_TYPE = Field("the provider's type", lambda exc: inside(exc.body, "type"), _put_provider_word)
_INSUFFICIENT = _PROVIDER_CODE.among("insufficient_quota") | _PROVIDER_TYPE.among("insufficient_quota")


# `response` is often made up, without headers.
_LITELLM_HEADERS = Told("litellm_response_headers", lambda exc: exc.litellm_response_headers)


_LITELLM = library(
    "litellm",
    Case("BudgetExceededError", DOWNSTREAM, QUOTA),
    Case(
        "RateLimitError",
        DOWNSTREAM,
        QUOTA,
        when=_INSUFFICIENT
        | attribute("rate_limit_type").among("budget", "max_iterations")
        | says("exceeded your current quota"),
    ),
    # The proxy's own limiter.
    Case(
        "RateLimitError",
        TRANSIENT,
        SATURATION,
        when=attribute("category").among("litellm_rate_limit", "litellm_batch_rate_limit"),
    ),
    Case(
        "RouterRateLimitError RouterRateLimitErrorBasic",
        TRANSIENT,
        SATURATION,
        retry_after=Told("cooldown_time", lambda exc: exc.cooldown_time),
    ),
    Case("Timeout", TRANSIENT, AMBIGUOUS),
    # Every exception that LiteLLM does not expect becomes this one, also those of its own bugs; the 500 is made up.
    Case("APIConnectionError", INTERNAL, when=says("KeyError", "AttributeError", "TypeError"), has_status=False),
    Case("APIConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT, has_status=False),
    Case("APIConnectionError", TRANSIENT, has_status=False),
    # Tokens have been handed out already.
    Case("MidStreamFallbackError", DOWNSTREAM, when=~flag("is_pre_first_chunk", shown="no token was handed out")),
    Case("MidStreamFallbackError", TRANSIENT, unwrap="original_exception"),
    Case("RateLimitError ServiceUnavailableError BadGatewayError InternalServerError", TRANSIENT, by_status=True),
    Case("PaymentRequiredError", DOWNSTREAM, QUOTA, CLIENT_FAULT),
    Case("APIError", DOWNSTREAM, QUOTA, CLIENT_FAULT, when=STATUS.among(402)),
    Case("APIError", DOWNSTREAM, CLIENT_FAULT, by_status=True),
    # Found before anything was sent.
    Case("UnsupportedParamsError LiteLLMUnknownProvider", VALIDATION),
    Case("JSONSchemaValidationError", DOWNSTREAM),
    Case(
        "ContextWindowExceededError ContentPolicyViolationError AuthenticationError NotFoundError "
        "PermissionDeniedError UnprocessableEntityError GuardrailRaisedException BlockedPiiEntityError",
        DOWNSTREAM,
        CLIENT_FAULT,
    ),
    # Also stands for other statuses.
    Case("BadRequestError", DOWNSTREAM, CLIENT_FAULT, by_status=True),
    headers=_LITELLM_HEADERS,
)

RULES = (*_OPENAI, *_GROQ, *_TOGETHER, *_ANTHROPIC, *_MISTRAL, *_COHERE, *_OLLAMA, *_HUGGINGFACE, *_LITELLM)
