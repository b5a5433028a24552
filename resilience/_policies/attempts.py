"""What layers, guards and compiled wrappers ask of a breaker: permits, verdicts, reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from resilience._context import is_probing
from resilience._core.circuit import Circuit
from resilience._core.counter import Counter
from resilience._core.events import Bypassed, Rejected
from resilience._core.faults import Fault, verdict_of
from resilience._core.permit import Permit
from resilience._core.tripping import NEVER
from resilience._core.view import FOREVER
from resilience._policies.locked import LockedCircuit
from resilience._policies.marks import counts_first, new_mark
from resilience._words import BreakerMode, ProbeEnd, Verdict
from resilience.errors import CircuitOpenError

if TYPE_CHECKING:
    from resilience._core.config import BreakerConfig
    from resilience._core.trip import Struck
    from resilience._core.view import View
    from resilience._site import Services

SUCCESS, FAILURE, NEUTRAL = Verdict.SUCCESS, Verdict.FAILURE, Verdict.NEUTRAL


class AttemptedCircuit(LockedCircuit):
    """A named circuit with what is done around each attempt.

    Attributes:
        name: its name in the registry.
        registered: the settings it was first registered with.
        mark: what it puts on exceptions that it counts.
        successes: counted by many threads without a lock.
        rejected, bypassed: refused and skipped calls.
    """

    __slots__ = ("bypassed", "mark", "name", "registered", "rejected", "successes")

    def __init__(self, name: str, config: BreakerConfig, services: Services) -> None:
        super().__init__(Circuit(config, name, services.clock.time_ns()), services)
        self.name = name
        self.registered = config
        self.mark = new_mark()
        self.successes = self.circuit.totals.successes
        self.rejected = Counter()
        self.bypassed = Counter()

    def awake(self) -> Circuit:
        """The circuit that is this breaker's own."""
        return self.circuit

    # ------------------------------------------------------------------------------------------------ reading
    def changed_ns(self, view: View) -> int:
        """When the state of a moment began."""
        return view.changed_ns

    @property
    def config(self) -> BreakerConfig:
        """The settings that hold: those it was first registered with, or of the last `reconfigure`."""
        return self.circuit.view.config

    @property
    def shadowed(self) -> bool:
        """Whether it only counts what it would refuse."""
        return self.circuit.view.mode is BreakerMode.SHADOW

    def refusal(self) -> float | None:
        """Seconds for which a call at this moment would be refused (`FOREVER`: until an operator acts), else None. Pure."""
        return self.circuit.refusal(self._services.now())

    def refusal_here(self) -> float | None:
        """The same for a call made here: inside a probe of this breaker it shares that probe."""
        return None if is_probing(self, self.circuit.episode) else self.refusal()

    def began(self) -> float | None:
        """When an attempt that begins here and now begins; None where nobody looks at how long it takes."""
        return None if self.circuit.slow_from == NEVER else self.now()

    def took(self, began: float) -> float:
        """Seconds since then; 0 where nobody looks."""
        return 0.0 if self.circuit.slow_from == NEVER else self.now() - began

    # ------------------------------------------------------------------------------------------------ asking and reporting
    def verdict(self, fault: Fault | None) -> Verdict:
        """What a fault means to this breaker; None is a success."""
        if fault is None:
            return SUCCESS
        if fault.plain:
            return self.circuit.by_kind[fault.kind]
        config = self.config
        return verdict_of(fault, trip_on=config.trip_kinds, trip_on_status=config.trip_statuses)

    def acquire(self, lease: float = 0.0) -> Permit | float:
        """A permit, or the seconds it is refused for. A call inside a probe of this breaker shares that probe."""
        circuit = self.circuit
        episode = circuit.passing
        if episode:
            return Permit(episode)
        if is_probing(self, circuit.episode):
            return Permit(circuit.episode, exempt=True)
        answer = self._section(self._ask, lease)
        return 0.0 if answer is None else answer

    def settle(
        self,
        permit: Permit,
        verdict: Verdict,
        fault: Fault | None = None,
        end: ProbeEnd = ProbeEnd.NEUTRAL,
        took: float = 0.0,
    ) -> None:
        """Report a permit's result."""
        if permit.exempt:
            return
        if verdict is NEUTRAL and not permit.probe:
            permit.settled = True
        else:
            self._section(self.circuit.settle, permit, verdict, fault, end, took)

    def succeed(self, episode: int, took: float = 0.0) -> None:
        """Report a success of an attempt that a closed circuit let through in `episode`."""
        circuit = self.circuit
        if circuit.closed == episode and circuit.streak.strikes.clean == episode:
            next(self.successes)
        elif not circuit.end_streak(episode):
            self._section(circuit.record, episode, SUCCESS, None, took)

    def record(self, episode: int, verdict: Verdict, fault: Fault | None = None) -> None:
        """Report the result of an attempt that the straight path let through in `episode`."""
        if verdict is not NEUTRAL:
            self._section(self.circuit.record, episode, verdict, fault, 0.0)

    def count_error(self, episode: int, error: BaseException, fault: Fault) -> None:
        """Report a classified exception of an attempt that the straight path let through in `episode`."""
        verdict = self.circuit.by_kind[fault.kind] if fault.plain else self.verdict(fault)
        if verdict is FAILURE:
            if not counts_first(error, self.mark):
                return
            strike = self.circuit.strike(episode, fault, time.time_ns())
            if strike is not False:
                self.count_strike(episode, fault, strike)
        else:
            self.record(episode, verdict)

    def count_strike(self, episode: int, fault: Fault, strike: Struck | None) -> None:
        """Finish what `Circuit.strike` could not do without the lock; `strike` is what it said."""
        if strike is not None:
            self._section(self.circuit.strike_out, episode, strike, fault)
        else:
            self._section(self.circuit.record, episode, FAILURE, fault, 0.0)

    def refuse(self, wait: float) -> CircuitOpenError:
        """Count a refusal and make its exception; the caller raises it and keeps no name for it."""
        next(self.rejected)
        hub = self._hub
        if hub.wanted and Rejected in hub.wanted:
            hub.publish(Rejected(name=self.name, key=self.key, retry_after=None if wait == FOREVER else wait))
        return CircuitOpenError(self.name, None if wait == FOREVER else wait)

    def note_bypass(self, site: str = "") -> None:
        """Count a call that was skipped."""
        self.bypassed.tick()
        hub = self._hub
        if hub.wants(Bypassed):
            hub.publish(Bypassed(name=self.name, key=self.key, site=site, by="circuit_open"))
