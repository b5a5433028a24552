"""How a circuit moves: one row of the transition table at a time, with everything that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core import events as ev
from resilience._core.published import Published
from resilience._core.ramp import FIRST_CREDIT, Ramp
from resilience._core.totals import Totals
from resilience._core.transitions import MANUAL, TRANSITIONS, Input
from resilience._words import BreakerMode, CircuitState, ProbeEnd

if TYPE_CHECKING:
    from resilience._core.config import BreakerConfig
    from resilience._core.faults import Fault
    from resilience._core.tripping import Figures

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
NORMAL, FORCED, SHADOW = BreakerMode.NORMAL, BreakerMode.FORCED, BreakerMode.SHADOW


class Moving(Published):
    """A circuit's moves, totals and events."""

    __slots__ = ("_name", "_probe_successes", "events", "last_failure", "totals")

    def __init__(self, config: BreakerConfig, name: str = "circuit", time_ns: int = 0) -> None:
        super().__init__(config, time_ns)
        self._name = name
        self._probe_successes = 0
        self.totals = Totals()
        self.last_failure: tuple[Fault, int] | None = None
        self.events: list[ev.Event] = []

    def _move(
        self,
        cause: Input,
        now: float,
        time_ns: int,
        fault: Fault | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
    ) -> None:
        before, after = self._state, TRANSITIONS[self._state, cause]
        held = self._held_at(cause, now) if before is CLOSED and after is not CLOSED else None
        self._drop_probes(ProbeEnd.RESET if cause in MANUAL else ProbeEnd.ABANDONED)
        self._probe_successes = 0
        self._ramp = None
        if after is OPEN:
            self._close_door()
            if cause is not Input.FORCED:
                self.open_for = self._open_time(fault)
            self._opened_at, self._opened_ns = now, time_ns
        elif after is CLOSED:
            self._opened_ns = None
            # Not where an operator closes it: who does that means it.
            if cause is Input.PROBES_SUCCEEDED and self._config.ramp is not None:
                self._ramp = Ramp(now, self._config.ramp, time_ns + round(self._config.ramp * 1e9))
                self._credit = FIRST_CREDIT
            self._trip = self._trip.renewed(self._successes())
        elif self._mode is FORCED:
            # A forced opening with an end has come to it.
            self._mode = self._own_mode()
        self._state = after
        self._changed_ns = time_ns
        self.episode += 1
        self._store(held)
        self.events.append(
            ev.StateChanged(
                name=self._name,
                before=before,
                after=after,
                cause=cause.value,
                episode=self.episode,
                kind=None if fault is None else fault.kind,
                retry_after=self.open_for if after is OPEN else None,
                reason=reason,
                actor=actor,
            )
        )

    def _open_time(self, fault: Fault | None) -> float:
        """The cooldown, or the server's own word where it asks for longer."""
        config = self._config
        hint = None if fault is None or not config.honour_retry_after else fault.retry_after
        return config.cooldown if hint is None else max(config.cooldown, min(hint, config.max_cooldown))

    def _held_at(self, cause: Input, now: float) -> Figures:
        """The figures that an open circuit goes on showing: those at the trip, or when an operator opened it."""
        if cause is Input.TRIPPED:
            return self._trip.tripped(now, self._successes())
        return self._trip.held.figures(now, self._successes())

    def _own_mode(self) -> BreakerMode:
        return SHADOW if self._config.shadow else NORMAL

    def _successes(self) -> int:
        """The running total, which only a window looks at: reading it costs more than a streak's whole step."""
        return self.totals.successes.value if self._windowed else 0

    def _release(self, end: ProbeEnd) -> None:
        self.totals.probes_released += 1
        self.events.append(ev.ProbeReleased(name=self._name, episode=self.episode, reason=end))

    def _drop_probes(self, end: ProbeEnd) -> None:
        for _ in self._probes:
            self._release(end)
        self._probes.clear()
