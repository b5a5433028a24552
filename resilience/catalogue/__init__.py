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
from resilience.catalogue.homes import rules_of
from resilience.catalogue.response import classify_response

if TYPE_CHECKING:
    from resilience._core.faults import Fault
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

_junk = itertools.count()


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
