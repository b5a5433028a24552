"""The circuit: it moves by the transition table, gives permits that name their episode, and leases probes.

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
    The slots of `Published`, at any moment. Everything else belongs to whoever holds
    the owner's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from resilience._core import events as ev
from resilience._core.operated import Operated
from resilience._core.permit import Permit
from resilience._core.transitions import Input
from resilience._core.trip import Strikes, Struck
from resilience._core.view import FOREVER, slot_refusal
from resilience._words import BreakerMode, CircuitState, ProbeEnd, Verdict

if TYPE_CHECKING:
    from resilience._core.faults import Fault
    from resilience._core.ramp import Ramp

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
DISABLED, SHADOW, RETIRED = BreakerMode.DISABLED, BreakerMode.SHADOW, BreakerMode.RETIRED
SUCCESS, FAILURE, NEUTRAL = Verdict.SUCCESS, Verdict.FAILURE, Verdict.NEUTRAL


class Circuit(Operated):
    """One breaker's machine. `now` is monotonic seconds, `time_ns` the wall clock for records.

    Both come last everywhere, `took` (seconds from the attempt's beginning to its result) before
    them; only a success that took at least `slow_from` makes a difference. Its owner calls it under a lock and takes the `events`
    that followed afterwards.
    """

    __slots__ = ()

    # ------------------------------------------------------------------------------------------------ reading
    def refusal(self, now: float) -> float | None:
        """Seconds for which an acquire would be refused, None if it would not. Pure: reads the view, takes nothing."""
        return self.view.refusal(now)

    # ------------------------------------------------------------------------------------------------ asking
    def acquire(self, lease: float = 0.0, now: float = 0.0, time_ns: int = 0) -> Permit | float:
        """A permit for one attempt, or the seconds it is refused for. The only thing that takes a probe."""
        if self._state is not CLOSED:
            answer = self._acquire_probe(lease, now, time_ns)
        elif self._ramp is None:
            return Permit(self.episode, exempt=self._mode is DISABLED or self._mode is RETIRED)
        else:
            answer = self._acquire_on(self._ramp, now)
        if self._mode is SHADOW and not isinstance(answer, Permit):
            self.totals.would_refuse += 1
            return Permit(self.episode, exempt=True)
        return answer

    def _acquire_on(self, ramp: Ramp, now: float) -> Permit | float:
        """A permit where the ramp's share allows it, else the rest of the ramp."""
        left = ramp.left(now)
        if left:
            self._credit += ramp.share(now)
            if self._credit < 1.0:
                return left
            self._credit -= 1.0
        else:
            self._ramp = None
            self._store()
        return Permit(self.episode)

    def _acquire_probe(self, lease: float, now: float, time_ns: int) -> Permit | float:
        if self._state is OPEN:
            if self.open_for is None:
                return FOREVER
            left = self.open_for - (now - self._opened_at)
            # Opened in the future: the clock jumped back, and nobody can tell how long it has been open.
            if now < self._opened_at:
                left = 0.0
            if left > 0:
                return left
            self._move(Input.COOLED, now, time_ns)
        # Refused as at the door, which changes nothing: more may be out than there are slots by now.
        refusal = slot_refusal(self._probes, self._config.half_open_probes, now)
        if refusal is not None:
            return refusal
        self._drop_lost(now)
        permit = Permit(self.episode)
        permit.probe = True
        permit.leased_at = now
        permit.lease = max(self._config.probe_lease, lease)
        self._probes.append(permit)
        self.totals.probes_started += 1
        self.events.append(ev.ProbeStarted(name=self._name, episode=self.episode, lease=permit.lease))
        self._store()
        return permit

    def _drop_lost(self, now: float) -> None:
        """Give back the slots of probes whose lease has run out."""
        for probe in [probe for probe in self._probes if not probe.holds_at(now)]:
            self._probes.remove(probe)
            self._release(ProbeEnd.LOST)

    # ------------------------------------------------------------------------------------------------ reporting
    def settle(
        self,
        permit: Permit,
        verdict: Verdict,
        fault: Fault | None = None,
        end: ProbeEnd = ProbeEnd.NEUTRAL,
        took: float = 0.0,
        now: float = 0.0,
        time_ns: int = 0,
    ) -> None:
        """Report the result of a permit; a second report of the same permit does nothing."""
        if permit.settled:
            return
        permit.settled = True
        if permit.exempt:
            return
        if permit.probe:
            self._settle_probe(permit, verdict, fault, end, took, now, time_ns)
        else:
            self.record(permit.episode, verdict, fault, took, now, time_ns)

    def record(
        self,
        episode: int,
        verdict: Verdict,
        fault: Fault | None = None,
        took: float = 0.0,
        now: float = 0.0,
        time_ns: int = 0,
    ) -> None:
        """Report the result of an attempt that a closed circuit let through in `episode`."""
        if verdict is NEUTRAL:
            return
        if episode != self.episode or self._state is not CLOSED:
            self._late(episode, verdict, accepted=False)
            return
        trip = self._trip
        tripped = False
        if verdict is FAILURE:
            self.totals.failures.tick()
            self._note(fault, time_ns)
            tripped = trip.fail(now, self._successes())
        elif verdict is SUCCESS:
            slow = self._count_success(took)
            tripped = trip.succeed(now, self._successes(), slow)
        else:
            self.totals.answered += 1
            if self._config.answered == "reset":
                trip.answered()
        if tripped:
            self._move(Input.TRIPPED, now, time_ns, fault)
        else:
            self._store_figures()

    def strike(self, episode: int, fault: Fault, time_ns: int) -> Struck | Literal[False] | None:
        """Count one more failure of a plain streak without the lock, as the straight path counts successes.

        Returns:
            False: counted, and nothing else to do. A strike: it reaches the limit, or the
            settings are changing: `strike_out` is to be called under the lock, which
            counts it. None: not counted; report it with `record`.
        """
        streak = self.streak
        strikes = streak.strikes
        # Looked at after the strikes: if the episode has gone on, they belong to the past.
        if self.closed != episode or not streak.limit:
            return None
        number = next(strikes.ticks)
        strikes.clean = 0
        if number >= streak.limit or strikes.sealed is not None:
            # Of those that get here at once, one opens and the others are late.
            return Struck(streak, strikes, number)
        next(self.totals.failures)
        self.last_failure = (fault, time_ns)
        return False

    def end_streak(self, episode: int) -> bool:
        """Count a success that ends a plain streak, without the lock; False if it is to be reported with `record`."""
        # Looked at before the door: the streak of an episode that is over may be ended, it reaches nobody.
        streak = self.streak
        if self.closed != episode or not streak.limit:
            return False
        streak.strikes = Strikes(episode)
        if self.streak is not streak:
            # The settings are changing, or the episode is: it may have come too late to be seen.
            return False
        next(self.totals.successes)
        return True

    def strike_out(
        self, episode: int, struck: Struck, fault: Fault | None = None, now: float = 0.0, time_ns: int = 0
    ) -> None:
        """Count the strike that reached the limit, and open for it; one that was beaten to it is late.

        Where the settings have changed in between, the strike was taken over already, or
        it comes after them and is judged by them.
        """
        sealed = struck.strikes.sealed
        if episode != self.episode:
            self._late(episode, FAILURE, accepted=False)
        elif struck.streak is self._trip:
            self.totals.failures.tick()
            self._note(fault, time_ns)
            self._move(Input.TRIPPED, now, time_ns, fault)
        elif sealed is not None and struck.number <= sealed:
            self.totals.failures.tick()
            self._note(fault, time_ns)
            self._store_figures()
        else:
            self.record(episode, FAILURE, fault, 0.0, now, time_ns)

    def _settle_probe(
        self,
        permit: Permit,
        verdict: Verdict,
        fault: Fault | None,
        end: ProbeEnd,
        took: float,
        now: float,
        time_ns: int,
    ) -> None:
        if permit.episode != self.episode:
            if verdict is not NEUTRAL:
                self._late(permit.episode, verdict, accepted=False)
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
            self.totals.late_accepted += 1
            self._late(permit.episode, verdict, accepted=True)
        slow = False
        if verdict is FAILURE:
            self.totals.failures.tick()
            self._note(fault, time_ns)
        elif verdict is SUCCESS:
            slow = self._count_success(took)
        else:
            self.totals.answered += 1
        # A circuit that opened because answers were slow must not close on a slow one.
        if slow or verdict is FAILURE:
            if live:
                self.totals.probes_failed += 1
                kind = None if fault is None else fault.kind
                self.events.append(ev.ProbeFailed(name=self._name, episode=self.episode, kind=kind, slow=slow))
            self._move(Input.PROBE_FAILED, now, time_ns, fault)
            return
        if live:
            self.totals.probes_succeeded += 1
            self.events.append(ev.ProbeSucceeded(name=self._name, episode=self.episode))
        self._probe_successes += 1
        if self._probe_successes >= self._config.half_open_successes:
            self._move(Input.PROBES_SUCCEEDED, now, time_ns)
        else:
            self._store()

    # ------------------------------------------------------------------------------------------------ small things
    def _count_success(self, took: float) -> bool:
        """Count a success; whether it took too long."""
        self.totals.successes.tick()
        slow = took >= self.slow_from
        self.totals.slow += slow
        return slow

    def _note(self, fault: Fault | None, time_ns: int) -> None:
        if fault is not None:
            self.last_failure = (fault, time_ns)

    def _late(self, episode: int, verdict: Verdict, *, accepted: bool) -> None:
        self.totals.late += 1
        # Figures are part of what is read as one moment.
        self._store()
        self.events.append(ev.LateResult(name=self._name, episode=episode, verdict=verdict, accepted=accepted))
