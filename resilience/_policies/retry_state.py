"""What tenacity's strategies read of a retry in progress: a light stand-in for tenacity's own state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resilience._core.outcome import Outcome
    from resilience._site import Call


class RetryState:
    """What tenacity's `stop` and `wait` strategies read of a retry in progress.

    Attributes:
        attempt_number: the attempt that has just failed; 1 is the first.
        outcome: the failed attempt, with tenacity's future-like methods.
        seconds_since_start: since the call's first attempt began.
        idle_for: seconds waited so far; upcoming_sleep: the wait that has been chosen.
    """

    __slots__ = (
        "args",
        "attempt_number",
        "fn",
        "idle_for",
        "kwargs",
        "next_action",
        "outcome",
        "outcome_timestamp",
        "retry_object",
        "seconds_since_start",
        "start_time",
        "upcoming_sleep",
    )

    def __init__(self, call: Call, outcome: Outcome, number: int, began: float, now: float, idle: float) -> None:
        self.fn = call.site.fn
        self.args = call.args
        self.kwargs = call.kwargs
        self.attempt_number = number
        self.outcome = AttemptResult(outcome, number)
        self.start_time = began
        self.outcome_timestamp = now
        self.seconds_since_start = now - began
        self.idle_for = idle
        self.upcoming_sleep = 0.0
        self.next_action = None
        self.retry_object = None


class AttemptResult:
    """A failed attempt as tenacity's strategies expect to find it."""

    __slots__ = ("_outcome", "attempt_number")

    def __init__(self, outcome: Outcome, number: int) -> None:
        self._outcome = outcome
        self.attempt_number = number

    @property
    def failed(self) -> bool:
        """Whether it ended in an exception."""
        return self._outcome.error is not None

    def exception(self) -> BaseException | None:
        """The exception, None where a returned value was judged a fault."""
        return self._outcome.error

    def result(self) -> Any:
        """The returned value; raises the exception where there is one."""
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.value
