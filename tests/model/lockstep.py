"""The model and the real circuit side by side: for every state and step of the model, the circuit does the same.

The circuit can't be copied, so each step is made on a fresh one that was led to the state first.
"""

from __future__ import annotations

import math

import protocol
from protocol import CLOSED, FAILURE, FOREVER, OPEN, Probe, Streak, TimedStreak

from resilience import BreakerConfig, Consecutive, FailureRate, Fault, FaultKind
from resilience._core import events
from resilience._core.circuit import Circuit
from resilience._core.permit import Permit
from resilience._words import BreakerMode, Verdict

START = 1000.0
FAULT = Fault(FaultKind.TRANSIENT)
SAID = {
    events.ProbeStarted: lambda event: "started",
    events.ProbeSucceeded: lambda event: "succeeded",
    events.ProbeFailed: lambda event: "failed",
    events.ProbeReleased: lambda event: ("released", event.reason.value),
    events.LateResult: lambda event: ("late", event.accepted),
    events.StateChanged: lambda event: (event.before.value, event.after.value, event.cause),
}


def config_of(setting):
    """The library's configuration for a setting; a tick is a second."""
    trip = setting.trip
    if isinstance(trip, Streak):
        mode = Consecutive(trip.failures)
    elif isinstance(trip, TimedStreak):
        mode = Consecutive(trip.failures, within=trip.within)
    else:
        mode = FailureRate(trip.percent / 100, window=trip.buckets, bucket=1, min_calls=trip.min_calls)
    return BreakerConfig(
        mode,
        cooldown=setting.cooldown,
        max_cooldown=max(300, setting.cooldown),
        probe_lease=setting.lease,
        half_open_probes=setting.probes,
        half_open_successes=setting.successes,
        answered=setting.answered,
        shadow=setting.shadow,
        ramp=setting.ramp or None,
    )


class Real:
    """A real circuit and the callers that hold its permits.

    `free`: what a closed circuit may be told without its lock is told that way, as compiled wrappers do.
    """

    def __init__(self, setting, *, free=False, circuit=Circuit):
        self.setting = setting
        self.free = free
        self.circuit = circuit(config_of(setting))
        self.now = START
        self.held = []

    # ------------------------------------------------------------------------------------------------ doing
    def do(self, action):
        """One action of the model; what the circuit told."""
        what, *rest = action
        told = getattr(self, f"_{what}")(*rest) or ()
        return (*self._events(), *told)

    def _events(self):
        told = [SAID[type(event)](event) for event in self.circuit.events]
        self.circuit.events.clear()
        return told

    def _acquire(self):
        foreseen = self.circuit.refusal(self.now)
        answer = self.circuit.acquire(0.0, self.now)
        if not isinstance(answer, Permit):
            ramping = self.circuit.view.state.value == CLOSED
            assert foreseen == (None if ramping else answer), (
                "the door foresees the wait of a refusal, but for a ramp's"
            )
            return [("refused", FOREVER if answer == math.inf else answer)]
        # In shadow and disabled the door is never asked.
        assert foreseen is None, "the door foresees that a permit will be given"
        self.held.append(answer)
        return ["exempt" if answer.exempt else "probe" if answer.probe else "plain"]

    def _report(self, permit, verdict):
        self.held.remove(permit)
        if self.free and not permit.probe and not permit.exempt:
            self._report_freely(permit.episode, verdict)
            return
        told = Verdict(verdict)
        self.circuit.settle(permit, told, FAULT if verdict == FAILURE else None, now=self.now)
        before = self.shown(), len(self.circuit.events), self.figures()
        for again in Verdict:
            self.circuit.settle(permit, again, now=self.now)
        assert before == (self.shown(), len(self.circuit.events), self.figures()), "settled twice, counted twice"

    def _report_freely(self, episode, verdict):
        circuit, told = self.circuit, Verdict(verdict)
        if verdict == FAILURE:
            opens = circuit.strike(episode, FAULT, 0)
            if opens is not False:
                (circuit.strike_out if opens else circuit.record)(episode, opens or told, FAULT, now=self.now)
        elif verdict == protocol.SUCCESS and self._passes(episode):
            circuit.totals.successes.tick()
        elif verdict != protocol.SUCCESS or not circuit.end_streak(episode):
            circuit.record(episode, told, now=self.now)

    def _passes(self, episode):
        circuit = self.circuit
        return circuit.passing == episode == circuit.clean and self.now < circuit.edge

    def _plain(self, verdict):
        self._report(self._find(lambda permit: not permit.probe and permit.episode == self.circuit.episode), verdict)

    def _late(self, verdict):
        self._report(self._find(self._is_late), verdict)

    def _old(self, verdict):
        self._report(self._find(self._is_old), verdict)

    def _lost(self, verdict):
        self._report(self._find(self._is_lost), verdict)

    def _exempt(self, verdict):
        self._report(next(permit for permit in self.held if permit.exempt), verdict)

    def _probe(self, probe, verdict):
        self._report(self._find(lambda permit: permit in self._slots() and self._lease(permit) == probe.lease), verdict)

    def _vanish(self, whom):
        if isinstance(whom, Probe):
            chosen = self._find(lambda permit: permit in self._slots() and self._lease(permit) == whom.lease)
        elif whom == "exempt":
            chosen = next(permit for permit in self.held if permit.exempt)
        else:
            chosen = self._find(
                {
                    "plain": lambda permit: not permit.probe and permit.episode == self.circuit.episode,
                    "late": self._is_late,
                    "old": self._is_old,
                    "lost": self._is_lost,
                }[whom]
            )
        self.held.remove(chosen)

    def _tick(self):
        self.now += 1

    def _reset(self):
        return () if self.circuit.reset(now=self.now) else ("no change",)

    def _force_open(self, ticks):
        self.circuit.force_open(seconds=None if ticks == FOREVER else ticks, now=self.now)

    def _disable(self):
        self.circuit.disable(now=self.now)

    def _enable(self):
        self.circuit.enable(now=self.now)

    # ------------------------------------------------------------------------------------------------ reading
    def _find(self, fits):
        return next(permit for permit in self.held if not permit.exempt and fits(permit))

    def _slots(self):
        return self.circuit.view.probes

    def _lease(self, permit):
        return max(0.0, permit.leased_at + permit.lease - self.now)

    def _is_late(self, permit):
        return not permit.probe and permit.episode != self.circuit.episode

    def _is_old(self, permit):
        return permit.probe and permit.episode != self.circuit.episode

    def _is_lost(self, permit):
        return permit.probe and permit.episode == self.circuit.episode and permit not in self._slots()

    def shown(self):
        """What the circuit shows, in the words of the model."""
        circuit, view = self.circuit, self.circuit.view
        probes = tuple(sorted((self._lease(permit), permit in self.held) for permit in view.probes))
        left = 0
        if view.state.value == OPEN:
            left = FOREVER if view.open_for is None else max(0.0, view.open_for - (self.now - view.opened_at))
        mode = BreakerMode.NORMAL if view.mode is BreakerMode.SHADOW else view.mode
        ramp = protocol.NO_RAMP if view.ramp is None else view.ramp.left(self.now)
        return view.state.value, mode.value, left, circuit._probe_successes, probes, ramp

    def figures(self):
        """Failures and calls that count, of a closed circuit."""
        held = self.circuit.view.held.figures(self.now, self.circuit.totals.successes.value)
        return held.failures, held.calls

    def door(self):
        """What compiled wrappers read: whether they may pass, and until when they are refused."""
        circuit = self.circuit
        return circuit.passing, circuit.open_until - self.now


def expected(setting, state):
    """What a circuit in this state of the model shows."""
    probes = tuple((float(probe.lease), probe.alive) for probe in state.probes)
    return state.phase, state.mode, state.wait, state.good, probes, state.ramp


def difference(setting, state, real):
    """How a circuit differs from the state of the model that it should be in, None if it does not."""
    if real.shown() != expected(setting, state):
        return f"shows {real.shown()} instead of {expected(setting, state)}"
    if len(real.held) != state.callers():
        return f"{len(real.held)} permits are out instead of {state.callers()}"
    if state.phase == CLOSED and state.mode == protocol.NORMAL:
        figures = setting.trip.shown(state.figures)
        if real.figures() != figures:
            return f"holds {real.figures()} instead of {figures}"
    passes, refused_for = real.door()
    plain = state.phase == CLOSED and state.mode == protocol.NORMAL and state.ramp == protocol.NO_RAMP
    if bool(passes) != plain or (plain and passes != real.circuit.episode):
        return f"compiled wrappers may pass in episode {passes}"
    if refused_for > 0 and not (state.phase == OPEN and state.wait and (refused_for == state.wait or state.wait < 0)):
        return f"compiled wrappers are refused for {refused_for}"
    return None


def disagreement(setting, found, callers, **how):
    """The first way on which a real circuit does not do what the model does; None if there is none."""
    for state in found.came_from:
        way = found.way_to(state)
        for step in protocol.steps(setting, state, callers):
            real = Real(setting, **how)
            for action in way:
                real.do(action)
            try:
                told = real.do(step.action)
                wrong = f"told {told} instead of {step.told}" if told != step.told else None
            except (AssertionError, StopIteration) as error:
                wrong = repr(error)
            wrong = wrong or difference(setting, step.after, real)
            if wrong:
                return [*way, step.action], wrong
    return None
