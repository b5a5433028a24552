"""Keep a program standing when the services it calls do not.

Bulkheads, timeouts, retries and circuit breakers as decorators and context managers.
Stacked in any order, they apply in one fixed order:

    bulkhead → timeout → retry → breaker → function
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._clock import Clock
from resilience._context import detached
from resilience._core.config import BreakerConfig, BulkheadConfig
from resilience._core.faults import Fault
from resilience._core.permit import Permit
from resilience._core.report import BreakerStatus
from resilience._core.retry_budget import RetryBudget, RetryBudgetStatus
from resilience._core.rules import Classifier
from resilience._core.trip import Consecutive
from resilience._core.window import FailureRate
from resilience._decorators import breaker, bulkhead, compose, remaining, retry, timeout
from resilience._describe import Description, describe
from resilience._marks import idempotent, interruptible, uninterruptible
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience._references import BreakerRef
from resilience._registry import Registry, default_registry, use_registry
from resilience._values import Bulkhead, PolicySet, Retry, Timeout
from resilience._words import (
    BreakerMode,
    CircuitState,
    FaultFlag,
    FaultKind,
    OnOpen,
    OnReject,
    ProbeEnd,
    TimeoutScope,
    Verdict,
)
from resilience.catalogue import classify, classify_response, count_everything, kind_of
from resilience.errors import (
    BulkheadFullError,
    CircuitOpenError,
    CompositionWarning,
    ConfigurationError,
    RejectedError,
    ResilienceError,
    TimeoutExceeded,
)

if TYPE_CHECKING:
    from resilience._blocks.attempts import Attempt
    from resilience._blocks.limit import TimeoutBlock
    from resilience._blocks.slot import BulkheadBlock
    from resilience._policies.keyed_breaker import BreakerFamily
    from resilience._policies.keyed_bulkhead import BulkheadFamily

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "BreakerConfig",
    "BreakerFamily",
    "BreakerMode",
    "BreakerRef",
    "BreakerStatus",
    "Bulkhead",
    "BulkheadBlock",
    "BulkheadConfig",
    "BulkheadFamily",
    "BulkheadFullError",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitState",
    "Classifier",
    "Clock",
    "CompositionWarning",
    "ConfigurationError",
    "Consecutive",
    "Description",
    "FailureRate",
    "Fault",
    "FaultFlag",
    "FaultKind",
    "OnOpen",
    "OnReject",
    "Permit",
    "PolicySet",
    "ProbeEnd",
    "Registry",
    "RejectedError",
    "ResilienceError",
    "Retry",
    "RetryBudget",
    "RetryBudgetStatus",
    "Timeout",
    "TimeoutBlock",
    "TimeoutExceeded",
    "TimeoutScope",
    "Verdict",
    "breaker",
    "bulkhead",
    "classify",
    "classify_response",
    "compose",
    "count_everything",
    "default_registry",
    "describe",
    "detached",
    "idempotent",
    "interruptible",
    "kind_of",
    "remaining",
    "retry",
    "timeout",
    "uninterruptible",
    "use_registry",
]

_LATE = {
    "Attempt": "resilience._blocks.attempts",
    "BulkheadBlock": "resilience._blocks.slot",
    "TimeoutBlock": "resilience._blocks.limit",
    "BreakerFamily": "resilience._policies.keyed_breaker",
    "BulkheadFamily": "resilience._policies.keyed_bulkhead",
}


def __getattr__(name: str) -> object:
    """What few need is loaded when it is asked for: everybody pays for an import."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)
