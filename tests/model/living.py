"""The permit protocol, lived by real streams: each caller of the model is a generator under a breaker.

A caller acquires by asking for its first item, holds its permit for as long as the others take, and reports by its
end: exhausted, broken, or left, in one of the ways in which a consumer can leave. Nobody vanishes: a stream that is
dropped is closed. In between it hands out items, which must change nothing.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import protocol
from lockstep import SAID, START, Real, difference
from protocol import ANSWERED, FAILURE, FOREVER, NEUTRAL, SUCCESS

from resilience import BreakerMode, CircuitOpenError, Registry, breaker, use_registry
from resilience._core.permit import Permit


class NotFound(Exception):
    """The remote is alive and said no."""

    status_code = 404


class WithoutVanishing:
    """The protocol, in which every caller reports in the end."""

    initial, acquire, enable, tick = protocol.initial, protocol.acquire, protocol.enable, protocol.tick
    probe_result = protocol.probe_result

    @staticmethod
    def steps(setting, state, callers):
        return (step for step in protocol.steps(setting, state, callers) if step.action[0] != "vanish")


class Living(Real):
    """A real breaker whose callers are streams; `clock` is moved by hand; `leaving` are ways to leave, taken in turn."""

    def __init__(self, setting, clock, leaving=("close", "drop", "bug", "throw")):
        self.registry = Registry()
        clock.install(self.registry)
        self.clock = clock
        self.told = []
        super().__init__(setting, circuit=self._register)
        self.registry.subscribe(self._note, *SAID)
        self.streams = {}
        self.leaving = itertools.cycle(leaving)
        with use_registry(self.registry):

            @breaker("api")
            def stream():
                while True:
                    verdict = yield "item"
                    if verdict == SUCCESS:
                        return
                    if verdict == FAILURE:
                        raise ConnectionError
                    if verdict == ANSWERED:
                        raise NotFound
                    if verdict == NEUTRAL:
                        raise KeyError

        self.stream = stream

    def _register(self, config):
        self.breaker = self.registry.breaker("api", config)
        return self.breaker.circuit

    def _note(self, event):
        told = SAID[type(event)](event)
        # The model knows no reasons of a caller's own.
        self.told.append(("released", "neutral") if told == ("released", "cancelled") else told)

    # ------------------------------------------------------------------------------------------------ doing
    def do(self, action):
        told = super().do(action)
        before = self.shown(), self.figures()
        for stream in self.streams.values():
            assert next(stream) == "item", "a stream that is out goes on"
        assert before == (self.shown(), self.figures()), "an item changes nothing"
        assert [] == self.told, "nor does it tell anything"
        return told

    def _events(self):
        told, self.told = self.told, []
        return told

    def _acquire(self):
        foreseen = self.breaker.is_open()
        before = self.circuit.view.probes
        stream = self.stream()
        try:
            next(stream)
        except CircuitOpenError as refusal:
            assert foreseen, "a reading foresees a refusal"
            return [*self._events(), ("refused", FOREVER if refusal.retry_after is None else refusal.retry_after)]
        permit, kind = self._permit(before)
        self.held.append(permit)
        self.streams[id(permit)] = stream
        return [*self._events(), kind]

    def retire(self):
        """Close what is still out: not left to the collector, which on 3.11 may come in the middle of a context's change."""
        while self.streams:
            self.streams.popitem()[1].close()

    def _permit(self, before):
        """What stands for the stream's permit, which is nowhere to be seen while the circuit is closed."""
        probes = [permit for permit in self.circuit.view.probes if permit not in before]
        if probes:
            return probes[0], "probe"
        permit = Permit(self.circuit.episode)
        permit.exempt = (
            self.circuit.view.mode is BreakerMode.DISABLED or self.circuit.view.state.value != protocol.CLOSED
        )
        return permit, "exempt" if permit.exempt else "plain"

    def _report(self, permit, verdict):
        self.held.remove(permit)
        stream = self.streams.pop(id(permit))
        if verdict != NEUTRAL:
            with suppress(StopIteration, ConnectionError, NotFound):
                stream.send(verdict)
                raise AssertionError("the stream has not ended")
            return
        how = next(self.leaving)
        if how == "close":
            stream.close()
        elif how == "bug":
            with suppress(KeyError):
                stream.send(verdict)
        elif how == "throw":
            with suppress(KeyboardInterrupt):
                stream.throw(KeyboardInterrupt())
        del stream

    def door(self):
        if not self.clock.by_hand:
            return super().door()
        # Under a test's clock no compiled wrapper passes; whoever asks reads the view.
        view = self.circuit.view
        plain = view.state.value == protocol.CLOSED and view.mode in (BreakerMode.NORMAL, BreakerMode.SHADOW)
        return self.circuit.episode if plain else 0, 0.0

    def _tick(self):
        self.now += 1
        self.clock.advance(1)

    def _reset(self):
        return () if self.breaker.reset() else ("no change",)

    def _force_open(self, ticks):
        self.breaker.force_open("drill", seconds=None if ticks == FOREVER else ticks)

    def _disable(self):
        self.breaker.disable()

    def _enable(self):
        self.breaker.enable()


def disagreement(setting, found, callers, clock):
    """The first way on which real streams do not do what the model does; None if there is none."""
    for state in found.came_from:
        way = found.way_to(state)
        for step in WithoutVanishing.steps(setting, state, callers):
            clock.now = START
            real = Living(setting, clock)
            for action in way:
                real.do(action)
            try:
                told = tuple(real.do(step.action))
                wrong = f"told {told} instead of {step.told}" if told != step.told else None
            except (AssertionError, StopIteration) as error:
                wrong = repr(error)
            wrong = wrong or difference(setting, step.after, real)
            real.retire()
            if wrong:
                return [*way, step.action], wrong
    return None
