"""`BreakerStatus`: one consistent moment of a breaker, for people and dashboards."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from resilience._core.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resilience._words import BreakerMode, CircuitState, FaultKind

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class LastFailure(Record):
    """The last failure that counted: the exception type's name, its kind, ns since the Unix epoch."""

    type_name: str
    kind: FaultKind
    time: int


class BreakerStatus(Record):
    """A breaker at one moment; times are nanoseconds since the Unix epoch, durations seconds.

    Attributes:
        key, labels: of a breaker in a family: its key, and the same by label; None and empty otherwise.
        state: closed, open or half_open; open while forced, closed while disabled.
        mode: normal, forced_open, disabled, shadow, or retired (no longer in its family).
        failure_count, window_calls, failure_rate: what would count at this moment; as at the trip while not closed.
            The rate is None where the breaker counts a streak.
        slow_calls, slow_rate: the same of successes that took too long; the rate is None without `slow_call`.
        opened_at: when it opened, None while closed.
        last_state_change: when it last changed state; its registration at first.
        next_half_open_at: when a probe may go, None unless open (and not forced for good).
        retry_after: seconds until a call makes sense: 0 where a probe may go now, None while closed or forced for good.
        probes_started: always the sum of succeeded, failed, released and those still out.
        late_results: results that came after the episode or the lease they belonged to.
        last_failure: survives a recovery, cleared by `reset`.
        would_refuse_total: what a breaker in shadow mode would have refused.
        ramp_until: when a circuit that has closed by its probes lets everything through again; None outside of a ramp.
        slow_total: successes that took too long, which `successes_total` includes.
    """

    name: str
    key: tuple[str, ...] | None = None
    state: CircuitState
    mode: BreakerMode
    failure_count: int
    window_calls: int
    failure_rate: float | None
    opened_at: int | None
    last_state_change: int
    next_half_open_at: int | None
    retry_after: float | None
    rejected_total: int
    bypassed_total: int
    successes_total: int
    failures_total: int
    answered_total: int
    probes_started: int
    probes_succeeded: int
    probes_failed: int
    probes_released: int
    late_results: int
    late_accepted: int
    would_refuse_total: int
    labels: Mapping[str, str] = NO_LABELS
    last_failure: LastFailure | None = None
    slow_calls: int = 0
    slow_rate: float | None = None
    slow_total: int = 0
    ramp_until: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A read-only view can't be pickled.
        return {**self.__dict__, "labels": dict(self.labels)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, labels=MappingProxyType(state["labels"]))

    def __hash__(self) -> int:
        # A mapping has none: equal statuses have at least these in common.
        return hash((self.name, self.state, self.last_state_change))
