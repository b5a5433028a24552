"""The side of a circuit that others read without its lock.

`passing` is the episode while everything may pass, else 0: admission and permit in one
read. Compiled wrappers read it under the name of what they do around a call: `closed`
for a mode without a window, `closed_windowed` for one with a window, `closed_timed`
where it also wants to know how long calls take, which is at least `slow_from` for a slow
one. `clean` is the same episode while a quick success changes nothing but a counter,
before `edge`: it stands in `streak.strikes.clean`, for a window in `clean_windowed`.
`streak.strikes` is where the failures of a plain streak are counted. Until `open_until` everything is refused, which is never
further away than `open_span` unless the clock jumped. `view` is one immutable tuple for
everybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.faults import Fault, verdict_of
from resilience._core.trip import Unstruck
from resilience._core.tripping import NEVER
from resilience._core.view import FOREVER, View
from resilience._words import BreakerMode, CircuitState, FaultKind

if TYPE_CHECKING:
    from resilience._core.config import BreakerConfig
    from resilience._core.permit import Permit
    from resilience._core.ramp import Ramp
    from resilience._core.trip import Streak
    from resilience._core.tripping import Figures, TripMachine

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
NORMAL, SHADOW = BreakerMode.NORMAL, BreakerMode.SHADOW
BY_ITSELF = frozenset({NORMAL, SHADOW})
"""The modes in which the machine decides, and an operator does not."""

_new_tuple = tuple.__new__
_PLAIN_FAULTS = [(kind, Fault(kind)) for kind in FaultKind]


class Published:
    """A circuit's state, and what is published of it."""

    __slots__ = (
        "_changed_ns",
        "_config",
        "_credit",
        "_mode",
        "_opened_at",
        "_opened_ns",
        "_probes",
        "_published",
        "_ramp",
        "_state",
        "_trip",
        "_unstruck",
        "_windowed",
        "by_kind",
        "clean_windowed",
        "closed",
        "closed_timed",
        "closed_windowed",
        "edge",
        "episode",
        "open_for",
        "open_span",
        "open_until",
        "passing",
        "slow_from",
        "streak",
        "view",
    )

    def __init__(self, config: BreakerConfig, time_ns: int) -> None:
        self._configure(config)
        self._trip: TripMachine = config.trip.machine()
        self._mode = SHADOW if config.shadow else NORMAL
        self._state = CLOSED
        self._opened_at = 0.0
        self._opened_ns: int | None = None
        self._changed_ns = time_ns
        self._probes: list[Permit] = []
        self._published = True
        self._ramp: Ramp | None = None
        self._credit = 0.0
        self.open_for: float | None = 0.0
        self.episode = 1
        self._unstruck = Unstruck()
        self.streak: Streak | Unstruck = self._unstruck
        self.view: View
        self._close_door()
        self._store()

    def _configure(self, config: BreakerConfig) -> None:
        """Take over settings, and what is worked out from them once."""
        self._config = config
        self._windowed = config.trip.windowed
        self.slow_from = config.trip.slow_from
        # What the most frequent faults mean, those that say nothing but their kind.
        self.by_kind = {
            kind: verdict_of(fault, trip_on=config.trip_kinds, trip_on_status=config.trip_statuses)
            for kind, fault in _PLAIN_FAULTS
        }

    def _store(self, held: Figures | None = None) -> None:
        """Publish everything that others may read; for a circuit that closes, the door last of all."""
        closed = self._state is CLOSED
        self.view = View(
            self._state,
            self._mode,
            self.episode,
            self._opened_at,
            self.open_for,
            self._opened_ns,
            self._changed_ns,
            tuple(self._probes),
            self._config,
            self._ramp,
            self._trip.held if closed else held or self.view.held,
        )
        # Not under a test clock, whose time others must not compare with the system's.
        refusing = self._state is OPEN and self._mode is not SHADOW and self._published
        self.open_span = FOREVER if self.open_for is None else self.open_for
        self.open_until = self._opened_at + self.open_span if refusing else -FOREVER
        passing = closed and self._mode in BY_ITSELF and self._ramp is None and self._published
        plain = self.episode if passing else 0
        if not self._windowed:
            self.closed = plain
        elif self.slow_from == NEVER:
            self.closed_windowed = plain
        else:
            self.closed_timed = plain
        self.passing = plain
        self._publish_trip(plain)

    def _close_door(self) -> None:
        """Before anything else changes: nobody may see an open circuit that lets pass."""
        self.closed = self.closed_windowed = self.closed_timed = self.passing = 0
        self.clean_windowed = self._unstruck.strikes.clean = 0
        self.streak = self._unstruck

    def _store_figures(self) -> None:
        """Publish the figures of a closed circuit: all that a result which moves nothing can change."""
        view, held = self.view, self._trip.held
        if held is not view.held:
            # A NamedTuple's own `_replace` takes four times as long.
            self.view = _new_tuple(View, view[:-1] + (held,))  # noqa: RUF005  # as is unpacking
        self._publish_trip(self.passing)

    def _publish_trip(self, plain: int) -> None:
        """Publish when a success may pass without the lock, and the streak whose failures may be counted without it."""
        trip = self._trip
        self.edge = trip.edge
        streak = trip.streak
        if streak is not None and plain:
            if streak.episode != plain:
                # A streak that nobody has counted on yet, or one that successes could not pass for a while.
                streak.episode = plain
                if not streak.strikes.value:
                    streak.answered()
            self.streak = streak
            return
        clean = plain if trip.clean else 0
        self.clean_windowed = clean if self._windowed else 0
        self._unstruck.strikes.clean = 0 if self._windowed else clean
        self.streak = self._unstruck

    def count_nothing(self) -> None:
        """Publish no streak that failures could be counted on: this circuit stands for many, and never changes."""
        self._unstruck.strikes.clean = self.streak.strikes.clean
        self.streak = self._unstruck

    @property
    def clean(self) -> int:
        """The episode while a success changes nothing but a counter, before `edge`; else 0."""
        return self.clean_windowed or self.streak.strikes.clean
