"""Event records: what was decided, in plain fields.

An event never carries arguments, results or messages. `sequence` is its place in the
order of delivery; `at` is monotonic seconds, `time_ns` wall-clock nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.record import Record

if TYPE_CHECKING:
    from resilience._words import CircuitState, FaultKind, ProbeEnd, TimeoutScope, Verdict


class Event(Record):
    """What every event has: the name of the breaker, bulkhead or call site it is about, its key in a family, and when."""

    name: str
    at: float = 0.0
    time_ns: int = 0
    sequence: int = 0
    key: tuple[str, ...] | None = None

    def numbered(self, sequence: int) -> Event:
        """The same event with its place in the order of delivery, which only its deliverer knows."""
        self.__dict__["sequence"] = sequence
        return self


class StateChanged(Event):
    """A circuit moved; `cause` is the row of the transition table, `retry_after` the seconds it stays open."""

    before: CircuitState
    after: CircuitState
    cause: str
    episode: int
    kind: FaultKind | None = None
    retry_after: float | None = None
    reason: str | None = None
    actor: str | None = None


class ProbeStarted(Event):
    """A half-open circuit let one attempt through."""

    episode: int
    lease: float


class ProbeSucceeded(Event):
    """A probe found the remote alive."""

    episode: int


class ProbeFailed(Event):
    """A probe found the remote still failing, or still too slow (`slow`)."""

    episode: int
    kind: FaultKind | None = None
    slow: bool = False


class ProbeReleased(Event):
    """A probe ended without a word on the remote."""

    episode: int
    reason: ProbeEnd


class LateResult(Event):
    """A result of an earlier episode (`accepted` False), or of a probe whose lease had run out."""

    episode: int
    verdict: Verdict
    accepted: bool


class Rejected(Event):
    """A breaker refused a call: nothing was sent."""

    retry_after: float | None


class Bypassed(Event):
    """A call was skipped where the call site asked for it; `by` is `circuit_open` or `bulkhead`."""

    site: str
    by: str


class RetryScheduled(Event):
    """A failed attempt will be repeated after `wait` seconds."""

    attempt: int
    wait: float
    kind: FaultKind


class RetryExhausted(Event):
    """A call gave up retrying: `reason` is `attempts`, `budget`, `retry_after`, `retry_budget`, `refused` or `nested`."""

    attempts: int
    reason: str


class TimedOut(Event):
    """A limit of ours ran out."""

    scope: TimeoutScope
    seconds: float


class BulkheadRejected(Event):
    """A bulkhead refused a call: nothing was sent."""

    waited: bool


class ConfigConflict(Event):
    """A shared name was registered again with other settings, which changed nothing."""

    differences: tuple[str, ...]


class Reconfigured(Event):
    """An operator gave a live breaker other settings: each difference as `cooldown: 5.0, not 30.0`, the new value first."""

    differences: tuple[str, ...]
    actor: str | None = None


class KeyOverflow(Event):
    """Calls of a family share the key `__other__` from now on; told once for each `reason`.

    `full`: `max_keys` keys are in use. `unsafe`: a part is no text of the safe alphabet.
    `parts`: their number is wrong. `raised`: the function that tells the key raised.
    """

    reason: str
    max_keys: int


class SinkFailed(Event):
    """A listener raised; it is counted and goes on being called."""

    sink: str
    error: str


OPTIONAL: frozenset[type[Event]] = frozenset(
    {Rejected, Bypassed, RetryScheduled, RetryExhausted, TimedOut, BulkheadRejected}
)
"""Types built only when a listener asked for them; everything else is always built."""
