"""HTTP and WebSocket clients, and the errors that web frameworks raise."""

from __future__ import annotations

from typing import Any

from resilience._core.reading import read
from resilience.catalogue.conditions import STATUS, Condition, Field, Told, says
from resilience.catalogue.evidence import DNS_PERMANENT, LOST, PERMANENT, TLS_CUT, TLS_PERMANENT, caused_by
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


def _first_argument(exc: Any) -> object:
    return exc.args[0]


def _second_argument(exc: Any) -> object:
    return exc.args[1]


def _put_close_code(exc: Any, value: int) -> None:
    from types import SimpleNamespace

    exc.rcvd = SimpleNamespace(code=value, reason="")


# The close frame that was received (RFC 6455, 7.4): 1012 to 1014 are in IANA's registry.
_CLOSE_CODE = Field("close code", lambda exc: exc.rcvd.code, _put_close_code, number=True)
_NO_FRAME = Condition("the connection ended without a close frame", lambda exc: exc.rcvd is None)

_HTTPX = library(
    # OpenAI, Anthropic and others moved to httpx2, which has the same tree under another name.
    "httpx httpx2",
    Case("ConnectError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("ConnectError ConnectTimeout ProxyError", TRANSIENT, UNSENT),
    Case("ReadTimeout WriteTimeout ReadError WriteError", TRANSIENT, AMBIGUOUS),
    # Our own pool was full; nothing of it is about the remote.
    Case("PoolTimeout", TRANSIENT, SATURATION, UNSENT),
    Case("TimeoutException CloseError NetworkError", TRANSIENT),
    # A stale connection, a body that was cut or garbage: the class does not tell which.
    Case("RemoteProtocolError ProtocolError", TRANSIENT, AMBIGUOUS),
    Case("LocalProtocolError", INTERNAL),
    Case("UnsupportedProtocol InvalidURL", VALIDATION),
    Case("DecodingError TooManyRedirects SSEError", DOWNSTREAM),
    Case("TransportError", TRANSIENT),
    # A redirect that was not followed is raised too.
    Case("HTTPStatusError", DOWNSTREAM, by_status=True),
    Case("RequestError HTTPError", TRANSIENT),
    Case("CookieConflict StreamConsumed ResponseNotRead RequestNotRead StreamClosed StreamError", INTERNAL),
)

_HTTPCORE = library(
    "httpcore httpcore2",
    Case("ConnectError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("ConnectError", TRANSIENT, UNSENT, unwrap=_first_argument),
    Case("ConnectTimeout ProxyError", TRANSIENT, UNSENT),
    Case("ReadTimeout WriteTimeout ReadError WriteError RemoteProtocolError", TRANSIENT, AMBIGUOUS),
    Case("PoolTimeout", TRANSIENT, SATURATION, UNSENT),
    Case("TimeoutException NetworkError ConnectionNotAvailable ProtocolError", TRANSIENT),
    Case("LocalProtocolError", INTERNAL),
    Case("UnsupportedProtocol", VALIDATION),
)

_REQUESTS = library(
    "requests niquests",
    Case("JSONDecodeError ContentDecodingError TooManyRedirects", DOWNSTREAM),
    Case("InvalidJSONError InvalidURL InvalidProxyURL MissingSchema InvalidSchema InvalidHeader", VALIDATION),
    Case("URLRequired", VALIDATION),
    Case("SSLError", DOWNSTREAM, CONFIG, below=TLS_PERMANENT),
    Case("SSLError", TRANSIENT, below=TLS_CUT),
    Case("SSLError", DOWNSTREAM, CONFIG),
    # A proxy that takes the request and hangs up is a ProxyError too.
    Case("ProxyError", TRANSIENT, AMBIGUOUS, below=LOST),
    Case("ConnectTimeout ProxyError", TRANSIENT, UNSENT),
    Case("ReadTimeout ChunkedEncodingError", TRANSIENT, AMBIGUOUS),
    Case("ConnectionError", DOWNSTREAM, CONFIG, below=DNS_PERMANENT),
    Case("ConnectionError", TRANSIENT, AMBIGUOUS, below=LOST),
    Case("ConnectionError", TRANSIENT, UNSENT, below=caused_by("urllib3:NewConnectionError")),
    Case("ConnectionError", TRANSIENT, AMBIGUOUS),
    # RetryError has lost the response: the status is left in its text only.
    Case("Timeout RetryError", TRANSIENT),
    Case("HTTPError", by_status=True),
    Case("StreamConsumedError UnrewindableBodyError", INTERNAL),
    Case("RequestException", TRANSIENT),
)

_URLLIB3 = library(
    "urllib3 urllib3_future",
    Case("MaxRetryError NameResolutionError NewConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("ProxyError", TRANSIENT, AMBIGUOUS, below=LOST),
    Case("MaxRetryError", TRANSIENT, unwrap="reason"),
    Case("NameResolutionError NewConnectionError ConnectTimeoutError ProxyError", TRANSIENT, UNSENT),
    Case("ReadTimeoutError IncompleteRead", TRANSIENT, AMBIGUOUS),
    Case("SSLError", DOWNSTREAM, CONFIG, below=TLS_PERMANENT),
    Case("SSLError", TRANSIENT, below=TLS_CUT),
    Case("SSLError", DOWNSTREAM, CONFIG),
    Case("InvalidChunkLength ResponseNotChunked DecodeError InvalidHeader HeaderParsingError", DOWNSTREAM),
    Case("BodyNotHttplibCompatible", DOWNSTREAM),
    Case("ProtocolError", TRANSIENT, AMBIGUOUS, unwrap=_second_argument),
    Case("ResponseError", TRANSIENT, when=says("too many") & says("error responses")),
    Case("ResponseError", DOWNSTREAM),
    Case("EmptyPoolError FullPoolError", TRANSIENT, SATURATION, UNSENT),
    Case("ClosedPoolError HostChangedError TimeoutStateError UnrewindableBodyError", INTERNAL),
    Case("LocationValueError LocationParseError URLSchemeUnknown ProxySchemeUnknown", VALIDATION),
    Case("ProxySchemeUnsupported", VALIDATION),
    # Its base class; no HTTP status is meant by the name.
    Case("HTTPError", TRANSIENT),
)

_AIOHTTP = library(
    "aiohttp",
    Case("ClientConnectorCertificateError ServerFingerprintMismatch", DOWNSTREAM, CONFIG),
    Case("ClientConnectorSSLError", TRANSIENT, when=says("EOF")),
    Case("ClientConnectorSSLError", DOWNSTREAM, CONFIG),
    Case("ClientConnectorDNSError", DOWNSTREAM, CONFIG, below=DNS_PERMANENT),
    Case("ClientConnectorDNSError ClientProxyConnectionError ConnectionTimeoutError", TRANSIENT, UNSENT),
    Case("ClientConnectorError", TRANSIENT, UNSENT, unwrap="os_error"),
    Case("ClientConnectionResetError ClientOSError ServerDisconnectedError", TRANSIENT, AMBIGUOUS),
    Case("SocketTimeoutError ServerTimeoutError", TRANSIENT, AMBIGUOUS),
    Case("ServerConnectionError", TRANSIENT),
    Case("ClientPayloadError", DOWNSTREAM, below=caused_by("aiohttp:ContentEncodingError")),
    Case("ClientPayloadError", TRANSIENT, AMBIGUOUS),
    Case("ContentTypeError TooManyRedirects", DOWNSTREAM),
    Case("WSServerHandshakeError", DOWNSTREAM, CLIENT_FAULT, by_status=True),
    Case("ClientHttpProxyError", TRANSIENT, UNSENT, when=STATUS.within(500, 599)),
    Case("ClientHttpProxyError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    # The client itself invents the 400 here: what came was no HTTP.
    Case("ClientResponseError", DOWNSTREAM, below=caused_by("aiohttp:HttpProcessingError"), has_status=False),
    Case("ClientResponseError", by_status=True),
    Case("NonHttpUrlRedirectClientError InvalidUrlRedirectClientError RedirectClientError", DOWNSTREAM),
    Case("InvalidURL InvalidUrlClientError NonHttpUrlClientError", VALIDATION),
    Case("WSMessageTypeError", INTERNAL),
    Case("ClientConnectionError", INTERNAL, when=says("Connector is closed")),
    Case("ClientConnectionError ClientError", TRANSIENT),
    Case("HttpProcessingError WebSocketError", DOWNSTREAM, has_status=False),
    Case("HTTPException", by_status=True),
    # Raised to answer, not to fail.
    Case("HTTPSuccessful HTTPRedirection", CONTROL),
)

_WEBSOCKETS = library(
    "websockets",
    Case("ConnectionClosedOK", CONTROL, has_status=False),
    Case("ConnectionClosedError ConnectionClosed", TRANSIENT, AMBIGUOUS, when=_NO_FRAME, has_status=False),
    Case(
        "ConnectionClosedError ConnectionClosed",
        TRANSIENT,
        when=_CLOSE_CODE.among(1001, 1011, 1012, 1013, 1014),
        has_status=False,
    ),
    Case(
        "ConnectionClosedError ConnectionClosed",
        DOWNSTREAM,
        CLIENT_FAULT,
        when=_CLOSE_CODE.among(1003, 1007, 1008, 1009, 1010) | _CLOSE_CODE.within(4000, 4999),
        has_status=False,
    ),
    Case("ConnectionClosedError ConnectionClosed", DOWNSTREAM, has_status=False),
    Case("InvalidStatus InvalidStatusCode", DOWNSTREAM, CLIENT_FAULT, by_status=True),
    Case("InvalidMessage", TRANSIENT, AMBIGUOUS, below=caused_by("builtins:EOFError")),
    Case("InvalidProxyStatus ProxyError", TRANSIENT, UNSENT),
    Case("InvalidURI InvalidProxy", VALIDATION),
    Case("InvalidMessage InvalidHandshake PayloadTooBig ProtocolError", DOWNSTREAM),
    Case("ConcurrencyError InvalidState", INTERNAL),
    Case("WebSocketException", DOWNSTREAM),
)

_H11 = library(
    "h11",
    Case("RemoteProtocolError ProtocolError", DOWNSTREAM),
    Case("LocalProtocolError", INTERNAL),
)

# The errors of web frameworks, where a view or a dependency is decorated.
_FRAMEWORKS = (
    *library(
        "starlette",
        Case("HTTPException", by_status=True),
        Case("WebSocketDisconnect ClientDisconnect", INTERRUPTED, LOCAL),
        Case("WebSocketDisconnected", INTERNAL),
    ),
    # The answer of our own view does not fit.
    *library("fastapi", Case("ResponseValidationError", INTERNAL), Case("ValidationException", VALIDATION)),
    *library(
        "werkzeug",
        Case("ClientDisconnected", INTERRUPTED, LOCAL),
        Case("RequestRedirect", CONTROL),
        Case(
            "HTTPException",
            by_status=True,
            retry_after=Told("retry_after", lambda exc: until(read(exc, "retry_after"))),
        ),
    ),
)

_STRIPE = library(
    "stripe",
    Case("APIConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("APIConnectionError", TRANSIENT, chain=True),
    Case("SignatureVerificationError", VALIDATION),
    Case("StripeError", DOWNSTREAM, by_status=True),
)

RULES = (*_HTTPX, *_HTTPCORE, *_REQUESTS, *_URLLIB3, *_AIOHTTP, *_WEBSOCKETS, *_H11, *_FRAMEWORKS, *_STRIPE)
