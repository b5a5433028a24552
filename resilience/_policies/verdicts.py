"""From what left a protected attempt to a verdict: exceptions, values, cancels (P17), and counting only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._context import DEADLINE
from resilience._core import deadline as deadlines
from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience._policies.marks import counts_first
from resilience._words import ProbeEnd, Verdict
from resilience.errors import TimeoutExceeded

if TYPE_CHECKING:
    from resilience._core.permit import Permit
    from resilience._policies.circuit_breaker import CircuitBreaker

HUNG = Fault(
    FaultKind.TRANSIENT,
    frozenset({FaultFlag.AMBIGUOUS}),
    code="timeout",
    origin=f"{TimeoutExceeded.__module__}.{TimeoutExceeded.__qualname__}",
)
"""What a deadline of ours that interrupted an attempt says about the remote."""


def settle_error(breaker: CircuitBreaker, permit: Permit, error: BaseException, fault: Fault) -> None:
    """Report an attempt that ended in a classified exception."""
    verdict = breaker.verdict(fault)
    if verdict is Verdict.FAILURE and not counts_first(error, breaker.mark):
        verdict = Verdict.NEUTRAL
    breaker.settle(permit, verdict, fault)


def interrupted_verdict(
    breaker: CircuitBreaker, error: BaseException, now: float, started: float | None, per_attempt: float | None
) -> tuple[Verdict, Fault | None]:
    """What an attempt that was cut short says: nothing, unless a deadline of ours did it after a fair while.

    `started` is when the attempt began; None stands for the moment the nearest deadline began.
    """
    expired = deadlines.fired(DEADLINE.get())
    # A GeneratorExit or KeyboardInterrupt may come while a deadline has fired as well: it is no cancel.
    if expired is None or type(error).__name__ != "CancelledError":
        return Verdict.NEUTRAL, None
    in_flight = now - (expired.started if started is None else started)
    if not deadlines.is_evidence(expired, in_flight, per_attempt) or not counts_first(error, breaker.mark):
        return Verdict.NEUTRAL, None
    return breaker.verdict(HUNG), HUNG


def end_of(error: BaseException) -> ProbeEnd:
    """Why a probe that was cut short is given back."""
    return ProbeEnd.NEUTRAL if isinstance(error, Exception) else ProbeEnd.CANCELLED
