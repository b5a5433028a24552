"""The breaker's layers at one call site: the door, the permit around each attempt, the report of a whole call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from resilience._context import DEADLINE, is_probing, mark_probe, unmark_probe
from resilience._core.deadline import is_evidence
from resilience._core.order import Layer
from resilience._core.outcome import Outcome
from resilience._core.permit import Permit
from resilience._core.tripping import NEVER
from resilience._core.view import FOREVER
from resilience._policies.fallback import Fallback
from resilience._policies.marks import counts_first
from resilience._policies.verdicts import end_of, interrupted_verdict
from resilience._words import OnOpen, ProbeEnd, TimeoutScope, Verdict
from resilience.errors import CircuitOpenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.faults import Fault
    from resilience._core.tripping import Trip
    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._policies.families import Family
    from resilience._policies.keyed_breaker import BreakerFamily, KeyedBreaker
    from resilience._policies.site_keys import SiteKeys
    from resilience._site import Call, Inner, Site


class BreakerLayers:
    """One call site's view of a shared breaker, or of one for each key.

    `find` gives the breaker: it is asked once, at the first call, because a reference
    without settings must not register a name that somebody else is about to configure.

    Attributes:
        keys: tells the breaker of a call, None where one serves all.
    """

    def __init__(
        self,
        find: Callable[[], CircuitBreaker],
        site: Site,
        *,
        on_open: OnOpen,
        fallback: Any,
        unless: Callable[..., object] | None,
        per_call: bool,
        keys: SiteKeys[KeyedBreaker] | None = None,
    ) -> None:
        self._find = find
        self._found: CircuitBreaker | None = None
        self._site = site
        self._on_open = on_open
        self._fallback = Fallback(fallback)
        self._unless = unless
        self._per_call = per_call
        self.keys = keys

    @property
    def breaker(self) -> CircuitBreaker:
        """The shared breaker of a site without keys."""
        return self._found or self.resolve()

    @property
    def shared(self) -> CircuitBreaker | Family[KeyedBreaker]:
        """What all calls of the site share: the breaker, or the family of those it has keys for."""
        return self.breaker if self.keys is None else self.keys.family

    @property
    def known_trip(self) -> Trip | None:
        """How the breakers of a site with keys trip, where that is known already."""
        family = None if self.keys is None else self.keys.known
        return None if family is None else cast("BreakerFamily", family).config.trip

    def of(self, call: Call) -> CircuitBreaker:
        """The breaker of a call: found once, by its key where the site has keys."""
        breaker: CircuitBreaker | None = call.breaker
        if breaker is None:
            keys = self.keys
            breaker = (self._found or self.breaker) if keys is None else keys.of_call(call.args, call.kwargs)
            call.breaker = breaker
        return breaker

    def resolve(self) -> CircuitBreaker:
        """Find the shared breaker: the first call does, unless the name was known before."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def layers(self) -> list[tuple[Layer, Callable[[Call, Inner], Any]]]:
        """What this policy adds to a plan."""
        found: list[tuple[Layer, Callable[[Call, Inner], Any]]] = [
            (Layer.FALLBACK, self.door),
            (Layer.BREAKER, self.around_attempt),
        ]
        if self._per_call:
            found.append((Layer.REPORT, self.report))
        return found

    # ------------------------------------------------------------------------------------------------ the door
    async def door(self, call: Call, inner: Inner) -> Outcome:
        """Answer at once what can't be admitted anyway: no slot, no line, no timer is spent on it."""
        if self._unless is not None:
            asked = await call.world.invoke(self._unless, call.args, call.kwargs)
            if asked.error is not None:
                return asked
            call.exempt = bool(asked.value)
        wait = None if call.exempt else self.of(call).refusal_here()
        outcome = await inner(call) if wait is None else self._refuse(call, wait)
        if outcome.refused_by is self and self._on_open is OnOpen.BYPASS:
            outcome.discard()
            self.of(call).note_bypass(self._site.label)
            return await self._fallback.answer(call)
        return outcome

    def stopped(self, call: Call, wait: float) -> str:
        """Why an attempt after a wait would be refused, for a retry that need not wait for it; "" if it may go."""
        breaker = self.of(call)
        if breaker.circuit.passing:
            return ""
        left = breaker.refusal_here()
        if left is None or left <= wait:
            return ""
        rest = "" if left == FOREVER else f", {left:.3g} s left"
        return f"retry stopped: circuit {breaker.name} is open{rest}"

    # ------------------------------------------------------------------------------------------------ one attempt
    async def around_attempt(self, call: Call, inner: Inner) -> Outcome:
        """Ask for a permit, make the attempt, report it."""
        if call.exempt:
            return await inner(call)
        breaker = call.breaker or self.of(call)
        # While closed, the episode is all there is to a permit, as on the straight path.
        episode = breaker.circuit.passing
        if not episode or self._per_call:
            return await self._permitted(call, inner)
        started = self.began(call, breaker)
        try:
            outcome = await inner(call)
        except BaseException as error:
            self._settle_interrupted(breaker, Permit(episode), error, call.since(started))
            raise
        if outcome.pending:
            return outcome
        if outcome.error is None and self._site.judge_result is None:
            breaker.succeed(episode, 0.0 if started is None else self._took(call, breaker, started))
        else:
            self.settle(call, Permit(episode), outcome, started)
        return outcome

    async def _permitted(self, call: Call, inner: Inner) -> Outcome:
        """The attempt with a permit from the machine, which may be a probe; to be reported now or with the whole call."""
        breaker = self.of(call)
        permit = breaker.acquire(self._lease())
        if not isinstance(permit, Permit):
            return self._refuse(call, permit)
        # Also inside somebody else's probe there is one attempt. A shadow ends no retry.
        call.probed = (permit.probe or is_probing(breaker, breaker.circuit.episode)) and not breaker.shadowed
        if self._per_call:
            return await self._keep(call, permit, inner)
        if permit.probe:
            mark_probe(breaker, permit)
        started = self.began(call, breaker)
        try:
            outcome = await inner(call)
        except BaseException as error:
            self._settle_interrupted(breaker, permit, error, call.since(started))
            raise
        finally:
            if permit.probe:
                unmark_probe(permit)
        if outcome.pending:
            breaker.settle(permit, Verdict.NEUTRAL)
        else:
            self.settle(call, permit, outcome, started)
        return outcome

    def began(self, call: Call, breaker: CircuitBreaker) -> float | None:
        """When an attempt that begins here begins; None where neither a deadline nor the breaker looks at its time."""
        if breaker.circuit.slow_from != NEVER:
            call.watch()
            return breaker.now()
        return None if DEADLINE.get() is None else breaker.now()

    def _took(self, call: Call, breaker: CircuitBreaker, started: float) -> float:
        """How long the attempt took, in seconds: until now; a stream's until its first item. 0 where nobody looks."""
        if not call.watched:
            # A stream that began before anybody looked: what it took until now is its consumer's time as well.
            return 0.0
        answered = call.answered_at
        return breaker.took(started) if answered is None else answered - started

    def settle(self, call: Call, permit: Permit, outcome: Outcome, started: float | None) -> None:
        """Report an attempt; `started` is when it began, None where nobody looks at its time."""
        fault = call.site.judge(call, outcome)
        if permit.exempt:
            # Not even a mark on the exception: whoever holds the real permit is to count it.
            return
        # An attempt that a deadline of ours cut short without a word on the remote was cancelled, as in asyncio.
        end = ProbeEnd.NEUTRAL if outcome.expired is None else ProbeEnd.CANCELLED
        breaker = self.of(call)
        took = 0.0 if started is None else self._took(call, breaker, started)
        breaker.settle(permit, self._verdict_once(breaker, outcome, fault, call.since(started)), fault, end, took)

    def _settle_interrupted(
        self, breaker: CircuitBreaker, permit: Permit, error: BaseException, started: float | None
    ) -> None:
        if permit.exempt:
            return
        verdict, fault = interrupted_verdict(breaker, error, breaker.now(), started, self._site.per_attempt)
        breaker.settle(permit, verdict, fault, end_of(error))

    def _verdict_once(
        self, breaker: CircuitBreaker, outcome: Outcome, fault: Fault | None, started: float | None
    ) -> Verdict:
        if outcome.refused_by is not None:
            return Verdict.NEUTRAL
        expired = outcome.expired
        if expired is not None and expired.scope is TimeoutScope.BUDGET:
            # A worker gave up waiting at the deadline of the whole call, or of a caller.
            in_flight = expired.expires - (expired.started if started is None else started)
            if not is_evidence(expired, in_flight, self._site.per_attempt):
                return Verdict.NEUTRAL
        elif expired is not None and not expired.counts:
            return Verdict.NEUTRAL
        if fault is None:
            return Verdict.SUCCESS
        verdict = breaker.verdict(fault)
        if verdict is Verdict.FAILURE and outcome.error is not None:
            return verdict if counts_first(outcome.error, breaker.mark) else Verdict.NEUTRAL
        return verdict

    # ------------------------------------------------------------------------------------------------ one verdict per call
    async def _keep(self, call: Call, permit: Permit, inner: Inner) -> Outcome:
        """Keep the latest permit for the report of the call, giving the earlier one back."""
        # One that a shadow would have refused has nothing to report: the call is judged on the one before.
        if call.permit is None or not permit.exempt:
            if call.permit is not None:
                self.of(call).settle(call.permit, Verdict.NEUTRAL)
            call.permit = permit
        if permit.probe:
            mark_probe(self.of(call), permit)
        try:
            return await inner(call)
        finally:
            if permit.probe:
                unmark_probe(permit)

    async def report(self, call: Call, inner: Inner) -> Outcome:
        """Settle the last permit once, with what became of the whole call."""
        started = None if call.exempt else self.began(call, self.of(call))
        try:
            outcome = await inner(call)
        except BaseException as error:
            if call.permit is not None:
                self._settle_interrupted(self.of(call), call.permit, error, call.since(started))
            raise
        if call.permit is not None and outcome.pending:
            self.of(call).settle(call.permit, Verdict.NEUTRAL)
        elif call.permit is not None:
            self.settle(call, call.permit, outcome, started)
        return outcome

    # ------------------------------------------------------------------------------------------------ small things
    def _refuse(self, call: Call, wait: float) -> Outcome:
        """The refusal as an outcome; a bypassed call is counted as bypassed, not as rejected."""
        breaker = self.of(call)
        if self._on_open is OnOpen.BYPASS:
            return Outcome.refusal(CircuitOpenError(breaker.name, None if wait == FOREVER else wait), self)
        return Outcome.refusal(breaker.refuse(wait), self)

    def _lease(self) -> float:
        site = self._site
        return site.per_attempt or site.budget or 0.0
