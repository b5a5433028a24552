"""What the errors of well-known libraries mean, without importing any of them.

The rules stand in modules of their own, one per family of libraries, and a module is
loaded when the first exception of such a library turns up.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from resilience._core.rules import Classifier
from resilience._words import FaultKind
from resilience.catalogue.response import classify_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resilience._core.faults import Fault
    from resilience._core.rules import Rule
    from resilience.catalogue.explaining import Explanation

__all__ = [
    "Classifier",
    "classify",
    "classify_response",
    "count_everything",
    "default_classifier",
    "explain",
    "ignored_retry_after",
    "kind_of",
    "sdk_retries",
]

# First segment of an exception's module (two for google and azure) -> module of this
# package whose `RULES` know it.
HOMES: dict[str, str] = {
    segment: family
    for family, segments in {
        "aws": "boto3 botocore s3transfer",
        "azure": "azure.core",
        "google": "google.api_core google.auth google.genai",
        "grpc": "grpc",
        "http": (
            "aiohttp fastapi h11 httpcore httpcore2 httpx httpx2 niquests requests starlette urllib3 urllib3_future "
            "websockets werkzeug"
        ),
        "llm": "anthropic cohere groq huggingface_hub litellm mistralai ollama openai",
        "messaging": "aio_pika aiokafka aiormq amqp billiard celery cimpl confluent_kafka kafka kombu pika",
        "nosql": "bson elastic_transport elasticsearch opensearchpy pymongo qdrant_client redis valkey",
        "orm": "django sqlalchemy",
        "sql": "MySQLdb asyncmy asyncpg mysql oracledb psycopg psycopg2 psycopg_pool pymysql",
        "stdlib": (
            "_csv _lzma _pickle _queue asyncio binascii builtins concurrent ftplib gzip http imaplib json "
            "multiprocessing poplib queue smtplib socket sqlite3 ssl subprocess tarfile tomllib urllib xml zipfile zlib"
        ),
        "toolbox": (
            "aiobreaker anyio circuitbreaker dns jsonschema marshmallow paramiko pybreaker pydantic pydantic_core "
            "tenacity trio"
        ),
    }.items()
    for segment in segments.split()
}

_junk = itertools.count()


def rules_of(segment: str) -> Iterable[Rule]:
    """The catalogue's rules for one package, by the first segment of its modules; their module is loaded for it."""
    home = HOMES.get(segment)
    if home is None:
        return ()
    from importlib import import_module

    found: tuple[Rule, ...] = import_module(f"resilience.catalogue.{home}").RULES
    prefix = f"{segment}:"
    return [rule for rule in found if isinstance(rule.match, str) and rule.match.startswith(prefix)]


def _wall() -> float:
    # Read through its module, so that a test that replaces the clock is obeyed.
    return time.time()


_CATALOGUE = Classifier(load=rules_of, wall=_wall, on_junk=_junk.__next__, name=f"{__name__}:_CATALOGUE")
_DEFAULT = Classifier(parent=_CATALOGUE, name=f"{__name__}:_DEFAULT")
Classifier.default = _DEFAULT

count_everything = Classifier(otherwise=FaultKind.DOWNSTREAM, name=f"{__name__}:count_everything")
"""For `classify=`: every exception that no rule knows counts against the remote, as DOWNSTREAM."""


def default_classifier() -> Classifier:
    """Return the classifier that every call site uses unless it is given another.

    Rules added to it hold for the whole process, also for every `Classifier` made before.

    Example:
        >>> from resilience import FaultKind
        >>> rules = default_classifier().add("warehouse.Offline", FaultKind.TRANSIENT)
    """
    return _DEFAULT


def classify(exc: BaseException, handled: BaseException | None = None) -> Fault:
    """Return the fault behind an exception, by the default classifier; it never raises.

    Args:
        exc: the exception; it is only read.
        handled: the exception that was being handled when the call began (default: None);
            what hangs on that one is not looked at.

    Example:
        >>> from resilience import classify
        >>> str(classify(TimeoutError()).kind)
        'transient'
    """
    return _DEFAULT.classify(exc, handled)


def explain(exc: BaseException, classifier: Classifier | None = None) -> Explanation:
    """Return an exception's fault together with the rule or the evidence that decided, in words.

    Args:
        exc: the exception; it is only read.
        classifier: whose rules are asked (default: the process's default classifier).

    Example:
        >>> from resilience.catalogue import explain
        >>> explain(ConnectionRefusedError()).why
        'the rule for builtins.ConnectionRefusedError'
    """
    from resilience.catalogue.explaining import explanation_of

    return explanation_of(exc, classifier or _DEFAULT)


def kind_of(exc: BaseException) -> FaultKind:
    """Return the kind of the fault behind an exception, by the default classifier.

    Example:
        >>> from resilience import kind_of
        >>> str(kind_of(ValueError("no such size")))
        'validation'
    """
    return _DEFAULT.classify(exc).kind


def sdk_retries(client: object) -> int | None:
    """Return how many times a client repeats a failed call by itself, at most.

    It knows the clients of OpenAI, Anthropic, Groq and every other SDK made by Stainless,
    of Cohere, Gemini and LiteLLM (Router), boto3 (clients and resources), Azure,
    Elasticsearch, OpenSearch, Redis, Valkey and MongoDB, and httpx, requests and urllib3.
    Nothing is called on the network, and it never raises.

    Args:
        client: the client, or one of its parts that a call goes through, such as
            `client.chat.completions`, a boto3 table or a MongoDB collection.

    Returns:
        0 if it does not retry; `sys.maxsize` if it never stops; None if this is no client
        that is known, or it does not tell.

    Example:
        >>> from resilience.catalogue import sdk_retries
        >>> sdk_retries("no client") is None
        True
    """
    # Only now: it is asked once per call site, if at all.
    from resilience.catalogue.clients import retries_of

    return retries_of(client)


def ignored_retry_after() -> int:
    """Return how many Retry-After values could not be read, and so were ignored, since the process began."""
    # A counter's repr is the one look at it that does not move it.
    return int(repr(_junk)[len("count(") : -1])
