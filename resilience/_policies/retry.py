"""The retry layer: another attempt where one may help, and the last real answer where none may."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from resilience._context import RETRYING, Repeat, is_repeating
from resilience._core.events import RetryExhausted, RetryScheduled
from resilience._core.faults import FaultKind, may_retry
from resilience._core.order import Layer
from resilience._core.reading import ask
from resilience._core.schedule import backoff, fits, release
from resilience._events import warn
from resilience._policies.retry_state import RetryState
from resilience._words import TimeoutScope
from resilience.errors import BulkheadFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.faults import Fault
    from resilience._core.outcome import Outcome
    from resilience._policies.retry_budget import BudgetReference, SharedRetryBudget
    from resilience._site import Call, Inner, Site


class RetryLayers:
    """One call site's retry.

    Attributes:
        needs_state: whether a strategy is asked, which may want to know when the call began.
        rng: a chance in [0, 1), for the jitter.
        budget: what bounds the retries of all calls, None without.
    """

    def __init__(
        self,
        site: Site,
        *,
        max_attempts: int,
        initial_backoff: float,
        max_backoff: float,
        jitter: float,
        wait: Callable[[Any], float] | float | None,
        stop: Callable[[Any], object] | None,
        retry_on: frozenset[FaultKind],
        safe_only: bool,
        max_retry_after: float,
        stopped: Callable[[Call, float], str] | None,
        budget: BudgetReference | None,
    ) -> None:
        self._site = site
        self._max_attempts = max_attempts
        self._initial = initial_backoff
        self._longest = max_backoff
        self._jitter = jitter
        self._wait = wait
        self._stop = stop
        self._retry_on = retry_on
        self._safe_only = safe_only
        # For a fault without flags the rule is one look-up, unless only what was not sent may be repeated.
        self._plain_kinds = frozenset[FaultKind]() if safe_only else retry_on
        self._max_retry_after = max_retry_after
        # A strategy of the user's own has no jitter to go by.
        self._spread = jitter if wait is None else RELEASE_SPREAD
        self.budget = budget
        # Why no attempt after such a wait could go, as the breaker inside foresees it; "" if one may.
        self._stopped = stopped
        self.needs_state = stop is not None or callable(wait)
        self._fixed = wait if isinstance(wait, float) and stop is None else None
        self._looked = False
        # A client that repeats calls by itself reports only how the last of them ended.
        self._unsure = False
        self.rng: Callable[[], float] = _chance

    def layers(self) -> list[tuple[Layer, Callable[[Call, Inner], Any]]]:
        """What this policy adds to a plan."""
        return [(Layer.RETRY, self.around)]

    async def around(self, call: Call, inner: Inner) -> Outcome:
        """Attempt, and attempt again while that makes sense."""
        self.look_at(call.args, call.kwargs)
        began = self.now() if self.needs_state else 0.0
        # What a plain function has returned to be awaited was counted when that was called.
        if self.budget is None or call.world.adopted:
            return await self.go_on(call, await inner(call), inner, began)
        return await self.go_on(call, await self._counted(self.budget.resolve(), call, inner), inner, began)

    async def _counted(self, budget: SharedRetryBudget, call: Call, inner: Inner) -> Outcome:
        """The first attempt, counted for the retry budget unless it is refused."""
        counted = budget.begin_call()
        outcome = await inner(call)
        if outcome.refused_by is not None:
            next(counted.refused)
        return outcome

    def look_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """At the first call: tell of a client within its reach that retries as well, or attempts multiply."""
        if self._looked:
            return
        self._looked = True
        # Only now: a call site asks once.
        from resilience.catalogue.clients import retrying_client

        found = ask(retrying_client, self._site.fn, args, kwargs)
        if found is not None:
            self._unsure = found.resends
            warn(
                "%s: %s repeats a failed call by itself, up to %d times for each attempt of this retry: attempts "
                "multiply; leave it to one of the two (%s switches off the client's)%s",
                self._site.label,
                found.name,
                found.number,
                found.off,
                _NOTHING_IS_SURE if found.resends and self._safe_only else "",
            )

    def now(self) -> float:
        """Monotonic seconds on the clock of the moment."""
        return self._site.services.now()

    async def go_on(self, call: Call, outcome: Outcome, inner: Inner, began: float) -> Outcome:
        """From the first attempt's answer to the call's: further attempts while they make sense; waits are the world's.

        `began` is when the first attempt did, for a policy that `needs_state`.
        """
        idle = 0.0
        plain = self._site.judge_result is None
        while True:
            if plain and outcome.error is None:
                return outcome
            wait = self.decide(call, outcome, call.attempt, began, idle)
            if wait is None:
                return outcome
            repeat = Repeat()
            try:
                RETRYING.set(repeat)
                if wait > 0:
                    await call.world.sleep(wait)
                    idle += wait
                call.attempt += 1
                following = await inner(call)
            except BaseException:
                # Emptied, or its exception would live as long as the frames it crossed.
                outcome.discard()
                raise
            finally:
                # Under an outer retry there is no second attempt here, so the mark was not set before.
                repeat.end()
            if following.refused_by is not None:
                self._end(outcome, call.attempt - 1, "refused", stopped_by(following.error))
                following.discard()
                return outcome
            outcome.discard()
            outcome = following

    # ------------------------------------------------------------------------------------------------ deciding
    def decide(self, call: Call, outcome: Outcome, number: int, began: float, idle: float) -> float | None:
        """Seconds to wait before the next attempt, None when this outcome is the answer."""
        site = self._site
        if outcome.pending or outcome.refused_by is not None or call.cancelled is not None or call.delivered:
            return None
        expired = outcome.expired
        if expired is not None and expired.scope is TimeoutScope.BUDGET:
            # The whole call's limit, or a caller's: nobody retries inside of it.
            return None
        fault = outcome.fault if outcome.judged else site.judge(call, outcome)
        # A probe is exactly one attempt, whatever it found.
        if fault is None or call.probed:
            return None
        if not (fault.plain and fault.kind in self._plain_kinds) and not self._may_retry(fault):
            return None
        if number >= self._max_attempts:
            return self._end(outcome, number, "attempts", f"retry gave up after {number} attempts")
        if is_repeating():
            return self._end_nested(outcome, number)
        wait = self._schedule(call, outcome, number, began, idle) if self._fixed is None else self._fixed
        if wait is None:
            return None
        left, hint = site.left(call), fault.retry_after
        if hint is not None:
            if hint > self._max_retry_after:
                note = f"retry stopped: the server asks for {hint:g} s, more than max_retry_after"
                return self._end(outcome, number, "retry_after", note)
            if hint >= wait:
                wait = release(hint, jitter=self._spread, left=left, chance=self.rng()) if self._spread else hint
        if wait == 0.0 and not site.services.hub.wanted and self.budget is None and (left is None or left > 0.0):
            # Nothing to wait for, nobody to tell: the attempt itself asks the circuit.
            return 0.0
        return self._check(call, outcome, fault, number, wait, left)

    def _may_retry(self, fault: Fault) -> bool:
        """Whether this policy repeats after such a fault at all."""
        if self._unsure and self._safe_only:
            return False
        return may_retry(fault, retry_on=self._retry_on, idempotent=not self._safe_only, safe_only=self._safe_only)

    def _schedule(self, call: Call, outcome: Outcome, number: int, began: float, idle: float) -> float | None:
        if not self.needs_state:
            return self._backoff(number)
        now = self._site.services.now()
        state = RetryState(call, outcome, number, began, now, idle)
        if callable(self._wait):
            state.upcoming_sleep = _seconds(self._wait(state))
        else:
            state.upcoming_sleep = self._backoff(number) if self._wait is None else self._wait
        if self._stop is not None and self._stop(state):
            return self._end(outcome, number, "attempts", f"retry gave up after {number} attempts")
        return state.upcoming_sleep

    def _backoff(self, number: int) -> float:
        return backoff(number, initial=self._initial, longest=self._longest, jitter=self._jitter, chance=self.rng())

    def _check(
        self, call: Call, outcome: Outcome, fault: Fault, number: int, wait: float, left: float | None
    ) -> float | None:
        """The wait, or None where it leads to no attempt: past the deadline, to an open circuit, beyond the budget."""
        if not fits(wait, left):
            note = f"retry stopped: a wait of {wait:.3g} s does not fit the deadline"
            return self._end(outcome, number, "budget", note)
        budget = None if self.budget is None else self.budget.resolve()
        # Without a wait the attempt itself asks, at the same moment; but nothing is to be spent on one that is refused.
        asks_itself = wait == 0.0 and budget is None
        note = "" if self._stopped is None or call.exempt or asks_itself else self._stopped(call, wait)
        if note:
            return self._end(outcome, number, "refused", note)
        # Last of all: what is spent is not given back.
        if budget is not None and not budget.spend():
            return self._end(outcome, number, "retry_budget", f"retry stopped: retry budget {budget.name} is exhausted")
        hub = self._site.services.hub
        if hub.wanted and RetryScheduled in hub.wanted:
            hub.publish(RetryScheduled(name=self._site.label, attempt=number, wait=wait, kind=fault.kind))
        return wait

    # ------------------------------------------------------------------------------------------------ ending
    def _end(self, outcome: Outcome, number: int, reason: str, note: str) -> float | None:
        """Say why there is no further attempt; None, as the wait that leads to none."""
        if outcome.error is not None:
            _add_note(outcome.error, note)
        hub = self._site.services.hub
        if hub.wants(RetryExhausted):
            hub.publish(RetryExhausted(name=self._site.label, attempts=number, reason=reason))
        return None

    def _end_nested(self, outcome: Outcome, number: int) -> float | None:
        if self._site.is_first("nested"):
            warn(
                "%s: an outer call is retrying already, so this retry makes one attempt: retries add, they do not multiply",
                self._site.label,
            )
        return self._end(outcome, number, "nested", "retry left to the outer call")


_NOTHING_IS_SURE = (
    "; until then safe_only repeats nothing, for an earlier request of the client may have been processed"
)


RELEASE_SPREAD = 0.1
"""How far the waits after a Retry-After lie apart, as a share of it, where a wait strategy has no jitter to go by."""


def _chance() -> float:
    # Only now: few of those who import the library ever wait.
    from random import random

    return random()


def _seconds(answer: Any) -> float:
    """A strategy's answer as a wait: none for what is below 0 or no number, endless for what no float can hold."""
    try:
        return max(0.0, float(answer))
    except OverflowError:
        return inf


def stopped_by(refusal: BaseException | None) -> str:
    """The note of a retry that a refusal has ended."""
    what = "bulkhead {} is full" if isinstance(refusal, BulkheadFullError) else "circuit {} is open"
    left = getattr(refusal, "retry_after", None)
    rest = "" if left is None else f", {left:.3g} s left"
    return f"retry stopped: {what.format(getattr(refusal, 'name', ''))}{rest}"


def _add_note(error: BaseException, note: str) -> None:
    try:
        # The same object may be raised again and again: one note of a kind is enough.
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    except Exception:
        pass
