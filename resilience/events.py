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
    Reconfigured,
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
    "Reconfigured",
    "Rejected",
    "RetryExhausted",
    "RetryScheduled",
    "SinkFailed",
    "StateChanged",
    "TimedOut",
]
