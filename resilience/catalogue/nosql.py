"""Stores without SQL: Redis and Valkey, MongoDB, Elasticsearch and OpenSearch, Qdrant."""

from __future__ import annotations

from typing import Any

from resilience._core.headers import entry
from resilience._core.reading import has_only_digits, members_of
from resilience.catalogue.conditions import Condition, Field, Told, attribute, inside, opens_with, says
from resilience.catalogue.evidence import PERMANENT, TLS_PERMANENT, caused_by
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    LOCAL,
    SATURATION,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)

_REDIS = library(
    # Valkey's client is Redis's under another name. Neither ConnectionError nor TimeoutError is a builtin.
    "redis valkey",
    # ConnectionErrors by inheritance.
    Case("AuthenticationError AuthorizationError", DOWNSTREAM, CLIENT_FAULT),
    Case("BusyLoadingError", TRANSIENT),
    # Our own pool is full.
    Case("MaxConnectionsError", TRANSIENT, SATURATION, UNSENT),
    Case(
        "ConnectionError", TRANSIENT, SATURATION, UNSENT, when=says("No connection available", "Too many connections")
    ),
    Case("ConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
    Case("ConnectionError", TRANSIENT, UNSENT, when=says("max number of clients reached")),
    # Sentinel knows no primary at the moment.
    Case("MasterNotFoundError SlaveNotFoundError", TRANSIENT, UNSENT),
    Case("ConnectionError", TRANSIENT, UNSENT, below=caused_by("builtins:ConnectionRefusedError")),
    Case("ConnectionError TimeoutError", TRANSIENT, AMBIGUOUS),
    # READONLY: the primary that we are connected to has become a replica.
    Case("ReadOnlyError ClusterDownError MasterDownError", TRANSIENT),
    Case("TryAgainError WatchError", TRANSIENT, CONTENTION),
    # A client that is no cluster client talks to a cluster.
    Case("MovedError AskError", DOWNSTREAM, CONFIG),
    Case("ClusterCrossSlotError CrossSlotTransactionError DataError", VALIDATION),
    Case("OutOfMemoryError InvalidResponse", DOWNSTREAM),
    Case("ModuleError", DOWNSTREAM, CONFIG),
    Case("NoPermissionError", DOWNSTREAM, CLIENT_FAULT),
    # Load the script and go on.
    Case("NoScriptError", CONTROL, LOCAL),
    Case("ExecAbortError PubSubError ChildDeadlockedError InvalidPipelineStack", INTERNAL),
    # Our lock ran out while we worked.
    Case("LockNotOwnedError LockError", CONTRACT),
    # Some replies have no class; their first word tells.
    Case(
        "ResponseError",
        TRANSIENT,
        when=opens_with("BUSY ", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED", "LOADING", "CLUSTERDOWN", "READONLY"),
    ),
    Case("ResponseError", TRANSIENT, CONTENTION, when=opens_with("TRYAGAIN")),
    Case("ResponseError", DOWNSTREAM, when=opens_with("MISCONF", "OOM ")),
    Case("ResponseError", DOWNSTREAM, CONFIG, when=opens_with("MOVED ", "ASK ")),
    Case("ResponseError", VALIDATION, when=opens_with("CROSSSLOT")),
    Case("ResponseError", DOWNSTREAM, CLIENT_FAULT),
    Case("RedisClusterException ValkeyClusterException ClusterError SlotNotCoveredError", TRANSIENT),
    Case("RedisError ValkeyError", DOWNSTREAM),
    # `status_code` is the word of the reply here.
    has_status=False,
)


# ------------------------------------------------------------------------------------------------ MongoDB
_CODE = attribute("code", number=True)


def _label(name: str) -> Condition:
    return Condition(f"it is labelled {name}", lambda exc: exc.has_error_label(name) is True)


_CODE_OF_ENTRY = Field("code", lambda error: entry(error, "code"), lambda error, code: None, number=True)


def _only_duplicates(exc: Any) -> bool:
    errors = members_of(entry(exc.details, "writeErrors"), 1000)
    return bool(errors) and all(_CODE_OF_ENTRY.get(error) == 11000 for error in errors)


def _cosmos_wait(exc: Any) -> float | None:
    """Azure Cosmos DB writes RetryAfterMs into the text."""
    text = inside(exc.details, "errmsg")
    _, found, rest = text[:4096].partition("RetryAfterMs=")
    digits = rest.partition(",")[0]
    return int(digits) / 1000 if found and has_only_digits(digits) and len(digits) < 10 else None


_BEHIND_A_TEXT = says("CERTIFICATE_VERIFY_FAILED", "Name or service not known", "nodename nor servname provided")

_MONGO = (
    *library(
        "pymongo",
        Case("WaitQueueTimeoutError", TRANSIENT, SATURATION, UNSENT),
        Case("ServerSelectionTimeoutError", DOWNSTREAM, CONFIG, when=_BEHIND_A_TEXT),
        # It has waited for serverSelectionTimeoutMS already, 30 s by default.
        Case("ServerSelectionTimeoutError", TRANSIENT, UNSENT),
        Case("NotPrimaryError ConnectionFailure", TRANSIENT),
        # WTimeoutError: the write is applied on the primary.
        Case("NetworkTimeout AutoReconnect ExecutionTimeout WTimeoutError", TRANSIENT, AMBIGUOUS),
        Case("WriteConcernError", DOWNSTREAM, AMBIGUOUS),
        Case("DuplicateKeyError", CONTRACT),
        Case("WriteError", VALIDATION, when=_CODE.among(121)),
        # Its own code is always 65.
        Case("BulkWriteError", CONTRACT, when=Condition("all write errors are duplicate keys", _only_duplicates)),
        Case("BulkWriteError", DOWNSTREAM, AMBIGUOUS),
        # The cursor ran out; the query is begun anew.
        Case("CursorNotFound", TRANSIENT, LOCAL),
        # Labels before codes (MongoDB's specification of retryable reads and writes).
        Case("OperationFailure", TRANSIENT, CONTENTION, when=_label("TransientTransactionError") | _CODE.among(112)),
        Case(
            "OperationFailure",
            TRANSIENT,
            when=_label("RetryableWriteError")
            | _CODE.among(6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436),
        ),
        Case("OperationFailure", TRANSIENT, AMBIGUOUS, when=_CODE.among(50)),
        Case("OperationFailure", CONTRACT, when=_CODE.among(11000)),
        Case(
            "OperationFailure",
            TRANSIENT,
            when=_CODE.among(16500),
            retry_after=Told("RetryAfterMs in the text of details", _cosmos_wait),
        ),
        Case("OperationFailure", DOWNSTREAM, CLIENT_FAULT, when=_CODE.among(13, 18, 391, 8000)),
        Case("OperationFailure", DOWNSTREAM, CLIENT_FAULT, when=_CODE.among(2, 9, 14, 20, 26, 40, 59, 66, 72)),
        Case("WriteError OperationFailure ProtocolError", DOWNSTREAM),
        Case("InvalidURI InvalidName CollectionInvalid ConfigurationError", CONTRACT, CONFIG),
        Case("InvalidOperation", INTERNAL),
        Case("EncryptionError", DOWNSTREAM, unwrap=lambda exc: _not_ours(exc.cause)),
        Case("PyMongoError", DOWNSTREAM),
        has_status=False,
    ),
    *library(
        "bson",
        Case("InvalidBSON", DOWNSTREAM),
        Case("InvalidDocument InvalidStringData InvalidId BSONError", VALIDATION),
    ),
)


def _not_ours(inner: object) -> object:
    """What the key service raised, unless it is a plain builtin, which says nothing of the service."""
    return None if type(inner).__module__ == "builtins" and not isinstance(inner, OSError) else inner


# ------------------------------------------------------------------------------------------------ search engines
_SEARCH = (
    *library(
        "elasticsearch",
        Case("ConflictError", DOWNSTREAM, CLIENT_FAULT, by_status=True),
        Case("BadRequestError AuthenticationException", DOWNSTREAM, CLIENT_FAULT),
        Case("AuthorizationException NotFoundError", DOWNSTREAM, CLIENT_FAULT),
        Case("UnsupportedProductError", DOWNSTREAM, CONFIG),
        Case("ApiError", DOWNSTREAM, by_status=True),
        # A status per item.
        Case("BulkIndexError", DOWNSTREAM),
        # The scroll has lost shards.
        Case("ScanError", TRANSIENT),
    ),
    *library(
        "elastic_transport",
        Case("TlsError ConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case("ConnectionTimeout", TRANSIENT, AMBIGUOUS),
        Case("TlsError ConnectionError SniffingError TransportError", TRANSIENT),
        Case("SerializationError", DOWNSTREAM),
        Case("ApiError", DOWNSTREAM, by_status=True),
    ),
    *library(
        # `status_code` may be a text: "N/A", "TIMEOUT".
        "opensearchpy",
        Case("SSLError", DOWNSTREAM, CONFIG, below=TLS_PERMANENT),
        Case("ConnectionTimeout", TRANSIENT, AMBIGUOUS),
        Case("ConnectionError", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case("SSLError ConnectionError", TRANSIENT),
        Case("RequestError AuthenticationException AuthorizationException", DOWNSTREAM, CLIENT_FAULT),
        Case("NotFoundError ConflictError", DOWNSTREAM, CLIENT_FAULT),
        Case("TransportError", DOWNSTREAM, by_status=True),
        Case("ValidationException", VALIDATION),
        Case("BulkIndexError SerializationError OpenSearchException", DOWNSTREAM),
        Case("ScanError", TRANSIENT),
        Case("ImproperlyConfigured", CONTRACT, CONFIG),
    ),
    *library(
        "qdrant_client",
        Case("UnexpectedResponse", DOWNSTREAM, by_status=True),
        Case("ResourceExhaustedResponse", TRANSIENT, retry_after=Told("retry_after_s", lambda exc: exc.retry_after_s)),
        Case("ResponseHandlingException", DOWNSTREAM, CONFIG, below=PERMANENT),
        Case("ResponseHandlingException", TRANSIENT, unwrap="source"),
        # A 429 whose Retry-After it could not read.
        Case("QdrantException", TRANSIENT, when=says("Retry-After header value")),
        Case("ApiException QdrantException", DOWNSTREAM),
    ),
)

_NEO4J = library(
    "neo4j",
    Case("ConnectionAcquisitionTimeoutError ConnectionPoolError", TRANSIENT, SATURATION, UNSENT),
    Case("IncompleteCommit", TRANSIENT, AMBIGUOUS),
    Case("ServiceUnavailable SessionExpired", DOWNSTREAM, CONFIG, below=PERMANENT),
    # TransientError also tells of deadlocks: the whole transaction is repeated.
    Case("TransientError ServiceUnavailable SessionExpired TokenExpired", TRANSIENT),
    Case("ConstraintError", CONTRACT),
    Case("CypherSyntaxError CypherTypeError", INTERNAL),
    Case("AuthError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    Case("ClientError", DOWNSTREAM, CLIENT_FAULT),
    Case("ConfigurationError", CONTRACT, CONFIG),
    Case("DatabaseError Neo4jError", DOWNSTREAM),
    Case("DriverError", INTERNAL),
    has_status=False,
)

RULES = (*_REDIS, *_MONGO, *_SEARCH, *_NEO4J)
