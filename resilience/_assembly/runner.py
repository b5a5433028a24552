"""Running a plan: from its beginning, or from where the straight path left off."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from resilience._context import DEADLINE
from resilience._core.deadline import nearest
from resilience._core.order import Layer
from resilience._core.outcome import Outcome, raise_unchanged
from resilience._core.permit import Permit
from resilience._engine.adopted import Adopted
from resilience._engine.plan import in_order, link
from resilience._engine.world_sync import exceeded, run
from resilience._policies.verdicts import interrupted_verdict
from resilience._site import Call
from resilience.errors import TimeoutExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from resilience._assembly.parts import Parts
    from resilience._core.deadline import Deadline
    from resilience._core.faults import Fault
    from resilience._engine.kinds import Kind
    from resilience._policies.circuit_breaker import CircuitBreaker


class Runner:
    """Drives the plan of one function.

    Attributes:
        run: the whole plan, as a function of the same kind (sync or async) as the protected one.
        recover: the plan from the retry inwards, for an attempt that has failed on the straight path;
            for an async function it gives a coroutine of the outcome.
    """

    def __init__(self, parts: Parts, kind: Kind) -> None:
        layers = in_order(parts.layers())
        self._parts = parts
        self._site = parts.site
        self._world = parts.world
        self._plan = link(layers)
        self._again = link(layers, inside=Layer.RETRY)
        self.run: Callable[..., Any] = self._run_async if kind.is_async else self._run_sync
        self._retry = parts.retry
        if parts.retry is None:
            self.recover: Callable[..., Any] = self._raise
        else:
            self.recover = self._recover_async if kind.is_async else self._recover_sync

    # ------------------------------------------------------------------------------------------------ from the beginning
    def _enter(self, world: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        call = Call(self._site, world, args, kwargs)
        if self._site.timed:
            call.entered = self._site.services.now()
        return call

    def _run_sync(self, /, *args: Any, **kwargs: Any) -> Any:
        call = self._enter(self._world, args, kwargs)
        outcome: Outcome = run(self._plan(call))  # type: ignore[arg-type]  # a plan is a coroutine
        if outcome.pending:
            return self.adopt(outcome.value, args, kwargs, call.attempt - 1)
        return outcome.unwrap()

    async def _run_async(self, /, *args: Any, **kwargs: Any) -> Any:
        call = self._enter(self._world, args, kwargs)
        outcome = Outcome()
        try:
            outcome = await self._plan(call)
        except BaseException:
            # However an uninterruptible function has ended: a cancel that came meanwhile is raised.
            if call.cancelled is None:
                raise
        if call.cancelled is not None:
            outcome.discard()
            raise call.cancelled
        return outcome.unwrap()

    def adopt(self, awaitable: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failed: int = 0) -> Adopted:
        """Guard the await of what a plain function returned: the whole plan runs around it, when it is awaited.

        `failed` attempts have been made already.
        """
        # Only now: a function that returns awaitables has asyncio loaded already.
        from resilience._engine.world_async import AdoptingWorld

        async def guarded(world: AdoptingWorld) -> Any:
            call = self._enter(world, args, kwargs)
            call.attempt += failed
            try:
                outcome = await self._plan(call)
            finally:
                world.close()
            return outcome.unwrap()

        return Adopted(awaitable, guarded, partial(AdoptingWorld, self._site))

    # A wrapper with keys says which breaker it means; otherwise there is only one.
    def interrupted(
        self, episode: int, error: BaseException, started: float | None, breaker: CircuitBreaker | None = None
    ) -> None:
        """Report an attempt that was cancelled: nothing, unless a deadline of ours did it (P17)."""
        assert self._parts.breaker is not None, "only a wrapper with a breaker asks"
        breaker = breaker or self._parts.breaker.breaker
        verdict, fault = interrupted_verdict(breaker, error, breaker.now(), started, self._site.per_attempt)
        breaker.record(episode, verdict, fault)

    def timed_out(self, deadline: Deadline) -> TimeoutExceeded:
        self._site.tell_expiry(deadline)
        return TimeoutExceeded(deadline.scope, deadline.seconds)

    def _raise(
        self,
        episode: int,
        failed: Exception,
        fault: None,
        args: Any,
        kwargs: Any,
        began: float,
        breaker: CircuitBreaker | None = None,
    ) -> NoReturn:
        """Report a failed attempt from outside of its `except` block."""
        assert self._parts.breaker is not None, "without a breaker or a retry, nothing is left to be done out here"
        handled = sys.exc_info()[1]
        breaker = breaker or self._parts.breaker.breaker
        breaker.count_error(episode, failed, self._site.classify(failed, handled))
        try:
            raise_unchanged(failed)
        finally:
            del failed

    def _recover_sync(
        self,
        episode: int,
        failed: Exception,
        fault: Fault | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        began: float,
        breaker: CircuitBreaker | None = None,
    ) -> Any:
        call = Call(self._site, self._world, args, kwargs)
        call.breaker = breaker
        outcome = self._first_answer(call, episode, failed, fault)
        del failed
        return self._go_on_sync(call, outcome, began)

    def gave_up(
        self,
        episode: int,
        deadline: Deadline,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        breaker: CircuitBreaker | None = None,
    ) -> Any:
        """Answer for an attempt that was left to its worker, because `deadline` or one around it has run out."""
        call = Call(self._site, self._world, args, kwargs)
        call.breaker = breaker
        first = nearest(deadline)
        assert first is not None, "the wrapper's own deadline is in force"
        outcome = exceeded(first)
        if self._parts.breaker is not None:
            self._parts.breaker.settle(call, Permit(episode), outcome, deadline.started)
        return self._go_on_sync(call, outcome, deadline.started)

    def _go_on_sync(self, call: Call, outcome: Outcome, began: float) -> Any:
        if self._retry is not None:
            outcome = run(self._retry.go_on(call, outcome, self._again, began))
            if outcome.pending:
                return self.adopt(outcome.value, call.args, call.kwargs, call.attempt - 1)
        if self._parts.timeout is not None:
            self._parts.timeout.told(outcome, DEADLINE.get())
        return outcome.unwrap()

    def _recover_async(
        self,
        episode: int,
        failed: Exception,
        fault: Fault | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        began: float,
        breaker: CircuitBreaker | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        assert self._retry is not None, "without a retry the exception is raised"
        call = Call(self._site, self._world, args, kwargs)
        call.breaker = breaker
        return self._retry.go_on(call, self._first_answer(call, episode, failed, fault), self._again, began)

    def _first_answer(self, call: Call, episode: int, error: Exception, fault: Fault | None) -> Outcome:
        """The attempt that the straight path made, for the retry; without a `fault` it is reported only now."""
        if fault is None:
            fault = self._site.classify(error, call.handled)
            breaker = self._parts.breaker
            if breaker is not None:
                breaker.of(call).count_error(episode, error, fault)
        outcome = Outcome(None, error)
        outcome.fault, outcome.judged = fault, True
        return outcome
