"""Reading a breaker's status: one consistent moment, without its lock."""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING

from resilience._core.report import BreakerStatus, LastFailure
from resilience._core.view import FOREVER
from resilience._words import CircuitState

if TYPE_CHECKING:
    from resilience._core.faults import Fault
    from resilience._policies.circuit_breaker import CircuitBreaker

_TRIES = 50


def read_status(breaker: CircuitBreaker) -> BreakerStatus:
    """The status at a moment at which nobody was in the middle of a change."""
    for _ in range(_TRIES):
        view = breaker.circuit.view
        status = _read(breaker)
        if breaker.circuit.view is view and not breaker.busy:
            return status
        if breaker.busy == get_ident():
            # Asked by a finaliser or signal handler inside our own change: nothing will move before we return.
            return status
        # Let them finish.
        time.sleep(0)
    return _read(breaker)


def _read(breaker: CircuitBreaker) -> BreakerStatus:
    circuit = breaker.circuit
    view = circuit.view
    totals = circuit.totals
    now = breaker.now()
    successes = breaker.successes.value
    held = view.held.figures(now, successes)
    return BreakerStatus(
        name=breaker.name,
        key=breaker.key,
        labels=breaker.labels,
        state=view.state,
        mode=view.mode,
        failure_count=held.failures,
        window_calls=held.calls,
        failure_rate=held.rate,
        slow_calls=held.slow,
        slow_rate=held.slow_rate,
        opened_at=view.opened_ns,
        last_state_change=breaker.changed_ns(view),
        next_half_open_at=_next_half_open_at(view.state, view.opened_ns, view.open_for),
        retry_after=_retry_after(view.state, circuit.refusal(now)),
        rejected_total=breaker.rejected.value,
        bypassed_total=breaker.bypassed.value,
        successes_total=successes,
        failures_total=totals.failures.value,
        answered_total=totals.answered,
        probes_started=totals.probes_started,
        probes_succeeded=totals.probes_succeeded,
        probes_failed=totals.probes_failed,
        probes_released=totals.probes_released,
        late_results=totals.late,
        late_accepted=totals.late_accepted,
        would_refuse_total=totals.would_refuse,
        slow_total=totals.slow,
        ramp_until=None if view.ramp is None or not view.ramp.left(now) else view.ramp.ends_ns,
        last_failure=_last_failure(circuit.last_failure),
    )


def _next_half_open_at(state: CircuitState, opened_ns: int | None, open_for: float | None) -> int | None:
    if state is not CircuitState.OPEN or opened_ns is None or open_for is None:
        return None
    return opened_ns + round(open_for * 1e9)


def _retry_after(state: CircuitState, wait: float | None) -> float | None:
    """A wait as people read it: nothing to wait for while closed, nothing to tell where only an operator can."""
    if wait is None:
        return None if state is CircuitState.CLOSED else 0.0
    return None if wait == FOREVER else wait


def _last_failure(noted: tuple[Fault, int] | None) -> LastFailure | None:
    if noted is None:
        return None
    fault, time_ns = noted
    return LastFailure(type_name=fault.origin or "", kind=fault.kind, time=time_ns)
