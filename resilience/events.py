"""The events a registry tells its listeners: `registry.subscribe(sink, StateChanged, ProbeFailed)`."""

from resilience._core.events import (
    BulkheadRejected,
    Bypassed,
    ConfigConflict,
    Event,
    LateResult,
    ProbeFailed,
    ProbeReleased,
    ProbeStarted,
    ProbeSucceeded,
    Rejected,
    RetryExhausted,
    RetryScheduled,
    SinkFailed,
    StateChanged,
    TimedOut,
)

__all__ = [
    "BulkheadRejected",
    "Bypassed",
    "ConfigConflict",
    "Event",
    "LateResult",
    "ProbeFailed",
    "ProbeReleased",
    "ProbeStarted",
    "ProbeSucceeded",
    "Rejected",
    "RetryExhausted",
    "RetryScheduled",
    "SinkFailed",
    "StateChanged",
    "TimedOut",
]
