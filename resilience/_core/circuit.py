"""The circuit: one transition table, permits that name their episode, leased probes.

What moves it
    Results move it only in the episode they were admitted in: a state change starts a
    new episode, and a result that comes after it is *late*, which is a figure and
    nothing else. Time moves it only when somebody asks for a permit. An operator moves
    it through the rows below the line.

Who may decide half-open
    Only a probe of this very half-open episode. Each probe is leased: a caller that
    vanished gives its slot back when the lease ends, so a circuit can't be stuck. Its
    result is still accepted while the episode lasts, or a lease shorter than an honest
    slow call could never close.

What others may read
    `closed`, `closed_windowed`, `clean` and `edge` let the compiled straight path
    admit and count a healthy call without a lock. `view` is one immutable tuple, replaced
    in one store, from which state, status and the door are read at any moment.
    Everything else belongs to whoever holds the owner's lock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from resilience._core import events as ev
from resilience._core.counter import Counter
from resilience._words import BreakerMode, CircuitState, ProbeEnd, Verdict, Word

if TYPE_CHECKING:
    from typing import NoReturn

    from resilience._core.config import BreakerConfig
    from resilience._core.faults import Fault
    from resilience._core.trip import Frozen

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
NORMAL, FORCED, DISABLED, SHADOW = BreakerMode.NORMAL, BreakerMode.FORCED, BreakerMode.DISABLED, BreakerMode.SHADOW
SUCCESS, FAILURE, ANSWERED, NEUTRAL = Verdict.SUCCESS, Verdict.FAILURE, Verdict.ANSWERED, Verdict.NEUTRAL


class Input(Word):
    """What can move a circuit."""

    TRIPPED = "tripped"
    COOLED = "cooled"
    PROBES_SUCCEEDED = "probes_succeeded"
    PROBE_FAILED = "probe_failed"
    RESET = "reset"
    FORCED = "forced_open"
    DISABLED = "disabled"
    ENABLED = "enabled"


TRANSITIONS: dict[tuple[CircuitState, Input], CircuitState] = {
    (CLOSED, Input.TRIPPED): OPEN,
    (OPEN, Input.COOLED): HALF_OPEN,
    (HALF_OPEN, Input.PROBES_SUCCEEDED): CLOSED,
    (HALF_OPEN, Input.PROBE_FAILED): OPEN,
    # --- an operator's rows
    (OPEN, Input.RESET): CLOSED,
    (HALF_OPEN, Input.RESET): CLOSED,
    (CLOSED, Input.FORCED): OPEN,
    (OPEN, Input.FORCED): OPEN,
    (HALF_OPEN, Input.FORCED): OPEN,
    (CLOSED, Input.DISABLED): CLOSED,
    (OPEN, Input.DISABLED): CLOSED,
    (HALF_OPEN, Input.DISABLED): CLOSED,
    (CLOSED, Input.ENABLED): CLOSED,
    (OPEN, Input.ENABLED): CLOSED,
}


class Permit:
    """Leave to make one attempt; its result is reported on it.

    False in a truth test when the call was bypassed instead.

    Attributes:
        episode: the episode it was given in; a report from a later one is late.
        probe: whether it is one of the probes of a half-open circuit.
        bypassed: nothing was admitted, the call site asked to be skipped.
        exempt: its report is of no interest: bypassed, disabled, a nested call in a probe.
        settled: it has been reported on; a second report does nothing.
        leased_at, lease: when a probe's lease began and how long it lasts, in seconds.
    """

    __slots__ = ("__weakref__", "bypassed", "episode", "exempt", "lease", "leased_at", "probe", "settled")

    def __init__(self, episode: int, *, exempt: bool = False, bypassed: bool = False) -> None:
        self.episode = episode
        self.probe = False
        self.exempt = exempt
        self.bypassed = bypassed
        self.settled = False
        self.leased_at = 0.0
        self.lease = 0.0

    def __bool__(self) -> bool:
        return not self.bypassed

    def __repr__(self) -> str:
        what = "bypassed" if self.bypassed else "probe" if self.probe else "exempt" if self.exempt else "plain"
        return f"<Permit {what}, episode {self.episode}{', settled' if self.settled else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a permit belongs to the breaker that gave it, in this process: it can't be pickled")


FOREVER = math.inf
"""The wait of a circuit that only an operator can end."""


class View(NamedTuple):
    """One consistent moment of a circuit, for readers without a lock."""

    state: CircuitState
    mode: BreakerMode
    episode: int
    opened_at: float
    open_for: float | None
    opened_ns: int | None
    changed_ns: int
    probes: tuple[Permit, ...]
    held: Frozen
    last_failure: tuple[Fault, int] | None
    """The last fault that counted, and the wall clock then."""


class Circuit:
    """One breaker's machine. `now` is monotonic seconds, `time_ns` the wall clock for records.

    Its owner calls it under a lock and takes the `events` that followed afterwards.
    """

    __slots__ = (
        "_changed_ns",
        "_config",
        "_last_failure",
        "_mode",
        "_name",
        "_open_for",
        "_opened_at",
        "_opened_ns",
        "_probe_successes",
        "_probes",
        "_published",
        "_state",
        "_trip",
        "_windowed",
        "answered",
        "clean",
        "closed",
        "closed_windowed",
        "counter",
        "edge",
        "episode",
        "events",
        "failures",
        "late",
        "late_accepted",
        "probes_failed",
        "probes_released",
        "probes_started",
        "probes_succeeded",
        "view",
        "would_refuse",
    )

    def __init__(self, config: BreakerConfig, name: str = "circuit", time_ns: int = 0) -> None:
        self._config = config
        self._name = name
        self._trip = config.trip.machine()
        self._windowed = config.trip.windowed
        self._mode = SHADOW if config.shadow else NORMAL
        self._state = CLOSED
        self._opened_at = 0.0
        self._open_for: float | None = 0.0
        self._opened_ns: int | None = None
        self._changed_ns = time_ns
        self._last_failure: tuple[Fault, int] | None = None
        self._probes: list[Permit] = []
        self._probe_successes = 0
        self._published = True
        self.episode = 1
        self.counter = Counter()
        self.events: list[ev.Event] = []
        self.failures = self.answered = self.late = self.late_accepted = self.would_refuse = 0
        self.probes_started = self.probes_succeeded = self.probes_failed = self.probes_released = 0
        self.closed = self.closed_windowed = self.clean = 0
        self.edge = self._trip.edge
        self._store()

    # ------------------------------------------------------------------------------------------------ reading
    def refusal(self, now: float) -> float | None:
        """Seconds for which an acquire at this moment would be refused (`FOREVER`: until an operator acts), else None.

        Pure: it reads the view and takes nothing.
        """
        view = self.view
        if view.state is CLOSED or view.mode is DISABLED or view.mode is SHADOW:
            return None
        if view.state is OPEN:
            if view.open_for is None:
                return FOREVER
            waited = now - view.opened_at
            # Before its opening: the clock jumped, and the next acquire starts the wait anew.
            return None if waited < 0 or waited >= view.open_for else view.open_for - waited
        return _slot_refusal(view.probes, self._config.half_open_probes, now)

    # ------------------------------------------------------------------------------------------------ asking
    def acquire(self, now: float, lease: float = 0.0, time_ns: int = 0) -> Permit | float:
        """A permit for one attempt, or the seconds it is refused for. The only thing that takes a probe."""
        if self._state is CLOSED:
            return Permit(self.episode, exempt=self._mode is DISABLED)
        answer = self._acquire_probe(now, lease, time_ns)
        if self._mode is SHADOW and not isinstance(answer, Permit):
            self.would_refuse += 1
            return Permit(self.episode, exempt=True)
        return answer

    def _acquire_probe(self, now: float, lease: float, time_ns: int) -> Permit | float:
        if self._state is OPEN:
            if self._open_for is None:
                return FOREVER
            if now < self._opened_at:
                self._opened_at = now
                self._store()
            left = self._open_for - (now - self._opened_at)
            if left > 0:
                return left
            self._move(Input.COOLED, now, time_ns)
        self._drop_lost(now)
        refusal = _slot_refusal(tuple(self._probes), self._config.half_open_probes, now)
        if refusal is not None:
            return refusal
        permit = Permit(self.episode)
        permit.probe = True
        permit.leased_at = now
        permit.lease = max(self._config.probe_lease, lease)
        self._probes.append(permit)
        self.probes_started += 1
        self.events.append(ev.ProbeStarted(name=self._name, episode=self.episode, lease=permit.lease))
        self._store()
        return permit

    def _drop_lost(self, now: float) -> None:
        """Give back the slots of probes whose lease has run out; a lease from the future is one before a clock jump."""
        for probe in [probe for probe in self._probes if not 0 <= now - probe.leased_at < probe.lease]:
            self._probes.remove(probe)
            self._release(ProbeEnd.LOST)

    # ------------------------------------------------------------------------------------------------ reporting
    def settle(
        self,
        permit: Permit,
        verdict: Verdict,
        now: float,
        time_ns: int = 0,
        fault: Fault | None = None,
        end: ProbeEnd = ProbeEnd.NEUTRAL,
    ) -> None:
        """Report the result of a permit; a second report of the same permit does nothing."""
        if permit.settled:
            return
        permit.settled = True
        if permit.exempt:
            return
        if permit.probe:
            self._settle_probe(permit, verdict, now, time_ns, fault, end)
        else:
            self.record(permit.episode, verdict, now, time_ns, fault)

    def record(
        self, episode: int, verdict: Verdict, now: float, time_ns: int = 0, fault: Fault | None = None
    ) -> None:
        """Report the result of an attempt that a closed circuit let through in `episode`."""
        if verdict is NEUTRAL:
            return
        if episode != self.episode:
            self._late(episode, verdict, accepted=False)
            self._store()
            return
        trip = self._trip
        if verdict is FAILURE:
            self.failures += 1
            self._note(fault, time_ns)
            tripped = trip.fail(now, self._successes())
        elif verdict is SUCCESS:
            self.counter.tick()
            tripped = trip.succeed(now, self._successes())
        else:
            self.answered += 1
            tripped = False
            if self._config.answered == "reset":
                trip.answered()
        if tripped:
            self._move(Input.TRIPPED, now, time_ns, fault)
        else:
            self._store()

    def _settle_probe(
        self, permit: Permit, verdict: Verdict, now: float, time_ns: int, fault: Fault | None, end: ProbeEnd
    ) -> None:
        if permit.episode != self.episode:
            if verdict is not NEUTRAL:
                self._late(permit.episode, verdict, accepted=False)
                self._store()
            return
        live = permit in self._probes
        if live:
            self._probes.remove(permit)
        if verdict is NEUTRAL:
            if live:
                self._release(end)
                self._store()
            return
        if not live:
            # Its lease had run out, which was its end; the episode still listens.
            self.late_accepted += 1
            self._late(permit.episode, verdict, accepted=True)
        if verdict is FAILURE:
            self.failures += 1
            self._note(fault, time_ns)
            if live:
                self.probes_failed += 1
                kind = None if fault is None else fault.kind
                self.events.append(ev.ProbeFailed(name=self._name, episode=self.episode, kind=kind))
            self._move(Input.PROBE_FAILED, now, time_ns, fault)
            return
        if verdict is SUCCESS:
            self.counter.tick()
        else:
            self.answered += 1
        if live:
            self.probes_succeeded += 1
            self.events.append(ev.ProbeSucceeded(name=self._name, episode=self.episode))
        self._probe_successes += 1
        if self._probe_successes >= self._config.half_open_successes:
            self._move(Input.PROBES_SUCCEEDED, now, time_ns)
        else:
            self._store()

    # ------------------------------------------------------------------------------------------------ an operator's acts
    def reset(self, now: float, time_ns: int = 0, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Close, forget the figures, lift a forced opening; False and no change when closed already."""
        if self._state is CLOSED:
            return False
        self._last_failure = None
        self._mode = self._own_mode()
        self._move(Input.RESET, now, time_ns, reason=reason, actor=actor)
        return True

    def force_open(
        self,
        now: float,
        time_ns: int = 0,
        *,
        seconds: float | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Open until `enable` or `reset`, or for `seconds` and then as after any cooldown."""
        self._mode = FORCED
        self._open_for = seconds
        self._move(Input.FORCED, now, time_ns, reason=reason, actor=actor)

    def disable(self, now: float, time_ns: int = 0, *, reason: str | None = None, actor: str | None = None) -> None:
        """Let everything pass and count nothing, until `enable`."""
        if self._mode is not DISABLED:
            self._mode = DISABLED
            self._move(Input.DISABLED, now, time_ns, reason=reason, actor=actor)

    def enable(self, now: float, time_ns: int = 0, *, actor: str | None = None) -> None:
        """End a forced opening or a disabling: closed, with fresh figures."""
        if self._mode is FORCED or self._mode is DISABLED:
            self._mode = self._own_mode()
            self._move(Input.ENABLED, now, time_ns, actor=actor)

    def clear(self, time_ns: int = 0) -> None:
        """Back to the very beginning, silently: what a test asks for between two cases."""
        published, episode = self._published, self.episode
        self.__init__(self._config, self._name, time_ns)  # type: ignore[misc]  # all state is set there, once
        # A permit of before must stay late, so episodes never repeat.
        self._published, self.episode = published, episode + 1
        self._store()

    def abandon_probes(self) -> None:
        """Give back every probe: in a forked child the parent's are nobody's."""
        self._drop_probes(ProbeEnd.ABANDONED)
        self._store()

    def publish(self, published: bool) -> None:
        """Whether the straight path may pass without asking; off under a test clock."""
        self._published = published
        self._store()

    # ------------------------------------------------------------------------------------------------ moving
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
        self._drop_probes(ProbeEnd.RESET if cause in _MANUAL else ProbeEnd.ABANDONED)
        self._probe_successes = 0
        if after is OPEN:
            # First the door, then the state: nobody may see an open circuit that lets pass.
            self.closed = self.closed_windowed = self.clean = 0
            if cause is not Input.FORCED:
                self._open_for = self._open_time(fault)
            self._opened_at, self._opened_ns = now, time_ns
        elif after is CLOSED:
            self._opened_ns = None
            self._trip.clear(self._successes())
        elif self._mode is FORCED:
            # A forced opening with an end has come to it.
            self._mode = self._own_mode()
        self._state = after
        self._changed_ns = time_ns
        self.episode += 1
        tripped = before is CLOSED and after is not CLOSED
        self._store(frozen=self._trip.freeze().figures(now, self._successes()) if tripped else None)
        self.events.append(
            ev.StateChanged(
                name=self._name,
                before=before,
                after=after,
                cause=cause.value,
                episode=self.episode,
                kind=None if fault is None else fault.kind,
                retry_after=self._open_for if after is OPEN else None,
                reason=reason,
                actor=actor,
            )
        )

    def _open_time(self, fault: Fault | None) -> float:
        """The cooldown, or the server's own word where it asks for longer."""
        config = self._config
        hint = None if fault is None or not config.honour_retry_after else fault.retry_after
        return config.cooldown if hint is None else max(config.cooldown, min(hint, config.max_cooldown))

    def _store(self, frozen: Frozen | None = None) -> None:
        """Publish what others may read; for a circuit that closes, `closed` last of all."""
        closed = self._state is CLOSED
        held = self._trip.freeze() if closed else frozen if frozen is not None else self.view.held
        # A NamedTuple's own constructor is a Python function, and this runs at every failure.
        self.view = tuple.__new__(
            View,
            (
                self._state,
                self._mode,
                self.episode,
                self._opened_at,
                self._open_for,
                self._opened_ns,
                self._changed_ns,
                tuple(self._probes),
                held,
                self._last_failure,
            ),
        )
        self.edge = self._trip.edge
        plain = self.episode if closed and self._mode is NORMAL and self._published else 0
        self.clean = plain if self._trip.clean else 0
        if self._windowed:
            self.closed_windowed = plain
        else:
            self.closed = plain

    # ------------------------------------------------------------------------------------------------ small things
    def _own_mode(self) -> BreakerMode:
        return SHADOW if self._config.shadow else NORMAL

    def _successes(self) -> int:
        """The running total, which only a window looks at: reading it costs more than a streak's whole step."""
        return self.counter.value if self._windowed else 0

    def _note(self, fault: Fault | None, time_ns: int) -> None:
        if fault is not None:
            self._last_failure = (fault, time_ns)

    def _late(self, episode: int, verdict: Verdict, *, accepted: bool) -> None:
        self.late += 1
        self.events.append(ev.LateResult(name=self._name, episode=episode, verdict=verdict, accepted=accepted))

    def _release(self, end: ProbeEnd) -> None:
        self.probes_released += 1
        self.events.append(ev.ProbeReleased(name=self._name, episode=self.episode, reason=end))

    def _drop_probes(self, end: ProbeEnd) -> None:
        for _ in self._probes:
            self._release(end)
        self._probes.clear()


_MANUAL = frozenset({Input.RESET, Input.FORCED, Input.DISABLED, Input.ENABLED})


def _slot_refusal(probes: tuple[Permit, ...], limit: int, now: float) -> float | None:
    """The wait of a half-open circuit whose slots are all taken: the rest of the lease that ends first."""
    live = [probe for probe in probes if 0 <= now - probe.leased_at < probe.lease]
    if len(live) < limit:
        return None
    return min(probe.lease - (now - probe.leased_at) for probe in live)

