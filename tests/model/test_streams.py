"""Streams live the permit protocol: held over many steps, ended or left at any moment (contract, I1-I8, I15)."""

from __future__ import annotations

import time

import pytest
from living import Living, WithoutVanishing, disagreement
from lockstep import START, difference
from protocol import FAILURE, NEUTRAL, SUCCESS, Probe, Rate, Setting, Streak, TimedStreak
from search import search

from resilience.testing import ManualClock

SETTINGS = {
    "streak of one": Setting(Streak(1), cooldown=1, lease=1),
    "streak": Setting(Streak(2)),
    "two probes, two successes": Setting(Streak(2), probes=2, successes=2),
    "answers ignored": Setting(Streak(2), cooldown=1, lease=1, answered="ignore"),
    "shadow": Setting(Streak(1), cooldown=1, lease=1, shadow=True),
    "timed streak": Setting(TimedStreak(2, within=1), cooldown=1, lease=1),
    "rate": Setting(Rate(50, min_calls=2, buckets=2, most=3), cooldown=1, lease=1),
}


class Hand:
    """Time for the straight path: the system's own clock, which stands until it is moved."""

    by_hand = False

    def __init__(self):
        self.now = START

    def install(self, registry):
        """Nothing: it is the system's."""

    def advance(self, seconds):
        self.now += seconds


class HandClock(Hand):
    """Time for the plan: a clock of a test's own."""

    by_hand = True

    def install(self, registry):
        registry.clock = self._clock = ManualClock(self.now)

    def advance(self, seconds):
        super().advance(seconds)
        self._clock.advance(seconds)


@pytest.fixture(params=["straight", "plan"])
def clock(request, monkeypatch):
    if request.param == "plan":
        return HandClock()
    hand = Hand()
    monkeypatch.setattr(time, "monotonic", lambda: hand.now)
    monkeypatch.setattr(time, "time_ns", lambda: round(hand.now * 1e9))
    return hand


def agree(setting, callers, clock):
    found = search(setting, callers, rules=WithoutVanishing)
    assert [] == found.violations
    assert disagreement(setting, found, callers, clock) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streak of one", "shadow"])
def test_streams_do_what_the_model_does(name, clock):
    """Each step of each state that two streams can reach, with items handed out in between."""
    agree(SETTINGS[name], 2, clock)


@pytest.mark.proof
@pytest.mark.parametrize("callers", [2, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_more_streams_do_what_the_model_does(name, callers, clock):
    """The same in every setting."""
    agree(SETTINGS[name], callers, clock)


@pytest.mark.parametrize("how", ["close", "drop", "bug", "throw"])
def test_a_probe_is_left_in_each_way(how, clock):
    """I4, I15: the slot is back in the same step, and the next stream probes."""
    setting = Setting(Streak(1), cooldown=1)
    clock.now = START
    real = Living(setting, clock, leaving=(how,))
    told = [real.do(action) for action in (("acquire",), ("plain", FAILURE), ("tick",), ("acquire",))]
    (probe,) = real.circuit.view.probes

    assert "probe" == told[-1][-1]
    assert (("released", "neutral"),) == real.do(("probe", Probe(setting.lease, True), NEUTRAL))
    assert probe.settled
    assert "probe" == real.do(("acquire",))[-1]
    real.do(("probe", Probe(setting.lease, True), SUCCESS))
    assert "closed" == real.shown()[0]


def test_a_stream_that_counts_wrongly_is_seen(clock):
    """Or agreeing would mean nothing: a stream that is closed where the model hears of a success."""
    setting = Setting(Streak(2))
    found = search(setting, 1, rules=WithoutVanishing)
    clock.now = START
    real = Living(setting, clock)
    for action in (("acquire",), ("plain", FAILURE), ("acquire",), ("plain", NEUTRAL)):
        real.do(action)
    healthy = next(iter(found.came_from))

    assert "holds (1, 1) instead of (0, 0)" == difference(setting, healthy, real)
