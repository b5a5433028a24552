"""An operator's acts on a circuit, and what is done to it from outside: cleared, forked, put under a test clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core import events as ev
from resilience._core.moving import Moving
from resilience._core.published import BY_ITSELF
from resilience._core.transitions import Input
from resilience._words import BreakerMode, CircuitState, ProbeEnd

if TYPE_CHECKING:
    from resilience._core.config import BreakerConfig

CLOSED = CircuitState.CLOSED
FORCED, DISABLED, RETIRED = BreakerMode.FORCED, BreakerMode.DISABLED, BreakerMode.RETIRED


class Operated(Moving):
    """A circuit that does as it is told."""

    __slots__ = ()

    def reset(self, reason: str | None = None, actor: str | None = None, now: float = 0.0, time_ns: int = 0) -> bool:
        """Close, forget the figures, lift a forced opening; False and no change when closed already."""
        if self._state is CLOSED:
            return False
        self.last_failure = None
        self._mode = self._own_mode()
        self._move(Input.RESET, now, time_ns, reason=reason, actor=actor)
        return True

    def force_open(
        self,
        reason: str | None = None,
        seconds: float | None = None,
        actor: str | None = None,
        now: float = 0.0,
        time_ns: int = 0,
    ) -> None:
        """Open until `enable` or `reset`, or for `seconds` and then as after any cooldown."""
        if self._mode is not RETIRED:
            self._mode = FORCED
            self.open_for = seconds
            self._move(Input.FORCED, now, time_ns, reason=reason, actor=actor)

    def disable(self, reason: str | None = None, actor: str | None = None, now: float = 0.0, time_ns: int = 0) -> None:
        """Let everything pass and count nothing, until `enable`."""
        if self._mode is not DISABLED and self._mode is not RETIRED:
            self._mode = DISABLED
            self._move(Input.DISABLED, now, time_ns, reason=reason, actor=actor)

    def enable(self, actor: str | None = None, now: float = 0.0, time_ns: int = 0) -> None:
        """End a forced opening or a disabling: closed, with fresh figures."""
        if self._mode is FORCED or self._mode is DISABLED:
            self._mode = self._own_mode()
            self._move(Input.ENABLED, now, time_ns, actor=actor)

    def reconfigure(self, config: BreakerConfig, actor: str | None = None, now: float = 0.0, time_ns: int = 0) -> None:
        """Go on with other settings; state, episode, probes and an operator's mode stay, and what is held as far as it fits.

        Nothing opens or closes by it: the next result is judged by the new settings.
        """
        before = self._config
        differences = config.differences(before)
        if not differences or self._mode is RETIRED:
            return
        # First the door, as for a move: what has passed it under the old settings reports under the lock.
        self._close_door()
        self._configure(config)
        if config.trip != before.trip:
            # A circuit that is not closed counts nothing, and what it closes with is another machine anyway.
            closed = self._state is CLOSED
            adjusted = self._trip.adjusted(config.trip, now, self._successes()) if closed else None
            self._trip = adjusted or config.trip.machine().renewed(self._successes())
        if self._mode in BY_ITSELF:
            self._mode = self._own_mode()
        self._store()
        self.events.append(ev.Reconfigured(name=self._name, differences=differences, actor=actor))

    def retire(self, now: float = 0.0, time_ns: int = 0) -> bool:
        """Leave for good, where nothing is lost by it: closed without a ramp, nobody's act in force, no failure held.

        Returns:
            True: whatever is still under way is late, and what comes lets pass without a
            word. False: nothing has changed.
        """
        if self._state is not CLOSED or self._mode not in BY_ITSELF or self._ramp is not None:
            return False
        if self._trip.held.figures(now, self._successes()).failures:
            return False
        self._close_door()
        self._mode = RETIRED
        self.episode += 1
        self._store()
        return True

    def clear(self, now: float = 0.0, time_ns: int = 0) -> None:
        """Back to the very beginning, silently: what a test asks for between two cases."""
        if self._mode is RETIRED:
            return
        self.totals.zero()
        self.last_failure = None
        self.events.clear()
        self._probes.clear()
        self._ramp = None
        self._state, self._mode, self._opened_ns, self._changed_ns = CLOSED, self._own_mode(), None, time_ns
        # A permit of before must stay late, so episodes never repeat.
        self.episode += 1
        self._trip = self._trip.renewed(0)
        self._store()

    def abandon_probes(self, now: float = 0.0, time_ns: int = 0) -> None:
        """Give back every probe: in a forked child the parent's are nobody's."""
        self._drop_probes(ProbeEnd.ABANDONED)
        self._store()

    def publish(self, published: bool, now: float = 0.0, time_ns: int = 0) -> None:
        """Whether the straight path may pass without asking; off under a test clock."""
        self._published = published
        self._store()
