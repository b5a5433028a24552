"""The permit protocol, searched completely: every state that callers, operators and time can reach (contract, I1-I8, I15)."""

from __future__ import annotations

import protocol
import pytest
from lockstep import disagreement
from protocol import (
    CLOSED,
    FAILURE,
    FOREVER,
    HALF_OPEN,
    NEUTRAL,
    OPEN,
    SUCCESS,
    Probe,
    Rate,
    Setting,
    Streak,
    TimedStreak,
)
from search import broken, search, unhealed

SETTINGS = {
    "streak": Setting(Streak(2)),
    "streak of one": Setting(Streak(1), cooldown=1, lease=1),
    "streak, two probes, two successes": Setting(Streak(3), probes=2, successes=2),
    "streak, answers ignored, three successes": Setting(Streak(2), probes=2, successes=3, answered="ignore"),
    "streak, lease shorter than the cooldown": Setting(Streak(2), cooldown=3, lease=1, probes=2),
    "streak, shadow": Setting(Streak(2), probes=2, successes=2, shadow=True),
    "streak, ramp": Setting(Streak(2), cooldown=1, ramp=2),
    "streak, shadow, ramp": Setting(Streak(1), cooldown=1, lease=1, shadow=True, ramp=4),
    "timed streak": Setting(TimedStreak(2, within=2), cooldown=3, lease=1),
    "timed streak, two probes, two successes": Setting(TimedStreak(3, within=2), probes=2, successes=2),
    "rate": Setting(Rate(50, min_calls=2, buckets=2, most=4), probes=2),
    "rate of all": Setting(Rate(100, min_calls=1, buckets=2, most=3), successes=2),
    "rate, three buckets, two successes": Setting(Rate(50, min_calls=3, buckets=3, most=4), successes=2),
    "rate, shadow": Setting(Rate(34, min_calls=2, buckets=2, most=4), shadow=True),
}


# ---------------------------------------------------------------------------------------------- the protocol
def check(setting, callers, at_least):
    found = search(setting, callers)
    assert [] == found.violations
    phases = {state.phase for state in found.came_from}
    assert {CLOSED, OPEN, HALF_OPEN} == phases
    # Slots and permits were really fought for.
    assert max(len(state.probes) for state in found.came_from) == setting.probes
    assert max(state.callers() for state in found.came_from) == callers
    assert len(found.came_from) >= at_least


@pytest.mark.parametrize("name", SETTINGS)
def test_no_step_of_two_callers_breaks_an_invariant(name):
    """I1-I8 and I15 hold at each step, and every state can get well (I7)."""
    check(SETTINGS[name], callers=2, at_least=40)


@pytest.mark.proof
@pytest.mark.parametrize("name", SETTINGS)
def test_no_step_of_five_callers_breaks_an_invariant(name):
    """The same with as many as can differ in what they hold."""
    check(SETTINGS[name], callers=5, at_least=400)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["streak, two probes, two successes", "timed streak", "rate", "rate, shadow"])
def test_no_step_of_ten_callers_breaks_an_invariant(name):
    """The same with ten callers: more than can hold any mixture of permits that matters."""
    check(SETTINGS[name], callers=10, at_least=1_000)


# ---------------------------------------------------------------------------------------------- the code is the protocol
def agree(setting, callers, free):
    found = search(setting, callers)
    assert disagreement(setting, found, callers, free=free) is None


@pytest.mark.parametrize("free", [False, True], ids=["locked", "free"])
@pytest.mark.parametrize("name", ["streak", "timed streak", "streak of one"])
def test_the_circuit_does_what_the_model_does(name, free):
    """Each step of each state, told, shown and foreseen by the door; `free`: reported without the lock where that is allowed."""
    agree(SETTINGS[name], callers=2, free=free)


@pytest.mark.proof
@pytest.mark.parametrize("free", [False, True], ids=["locked", "free"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_circuit_does_what_the_model_does_with_three_callers(name, free):
    """The same in every setting."""
    agree(SETTINGS[name], callers=3, free=free)


# ---------------------------------------------------------------------------------------------- the search finds what is wrong
def half_open(**changes):
    return protocol.State(HALF_OPEN, 0)._replace(**changes)


LIVE = Probe(2, True)
WRONG_STEPS = {
    "I1": (half_open(), ("acquire",), half_open(probes=(LIVE, LIVE)), ("started", "probe") * 2),
    "I2": (protocol.State(OPEN, 0, wait=1, late=1), ("late", SUCCESS), protocol.State(CLOSED, 0), (("late", False),)),
    "I2: the open time": (
        protocol.State(OPEN, 0, wait=1, late=1),
        ("late", FAILURE),
        protocol.State(OPEN, 0, wait=2),
        (),
    ),
    "I3": (half_open(late=1), ("late", SUCCESS), protocol.State(CLOSED, 0), (("late", False),)),
    "I4": (protocol.State(CLOSED, 1, plain=1), ("plain", NEUTRAL), protocol.State(CLOSED, 0), ()),
    "I4: a neutral probe kept": (half_open(probes=(LIVE,)), ("probe", LIVE, NEUTRAL), half_open(probes=(LIVE,)), ()),
    "I5: the failure that": (protocol.State(CLOSED, 1, plain=1), ("plain", FAILURE), protocol.State(CLOSED, 2), ()),
    "I5: a failure was lost": (protocol.State(CLOSED, 0, plain=1), ("plain", FAILURE), protocol.State(CLOSED, 0), ()),
    "I6": (protocol.State(CLOSED, 0, late=1), ("late", FAILURE), protocol.State(CLOSED, 1), (("late", False),)),
    "I6: a result of the kind exempt": (
        protocol.State(CLOSED, 0, exempt=1),
        ("exempt", FAILURE),
        protocol.State(CLOSED, 1),
        (),
    ),
    "I8": (protocol.State(CLOSED, 0), ("acquire",), protocol.State(CLOSED, 0, plain=2), ("plain",)),
    "I15": (half_open(probes=(LIVE,)), ("probe", LIVE, NEUTRAL), half_open(), ()),
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_a_wrong_step_is_seen(name):
    """Each invariant is really asked: a step that breaks it is named."""
    before, action, after, told = WRONG_STEPS[name]

    found = list(broken(Setting(Streak(2)), before, protocol.Step(action, after, told)))
    assert any(why.startswith(name) for why in found), found


def test_a_state_that_can_not_get_well_is_seen():
    """I7: a slot that nobody ever gives back."""

    class NoLease:
        """The protocol, in which time takes no lease away."""

        acquire, enable, probe_result = protocol.acquire, protocol.enable, protocol.probe_result

        @staticmethod
        def tick(setting, state):
            return protocol.Step(("tick",), state._replace(wait=max(FOREVER, state.wait - 1)), ())

    setting, stuck = Setting(Streak(2)), half_open(probes=(Probe(2, alive=False),))

    assert [] == list(unhealed(setting, stuck))
    assert ["I7: no probe within the open time and a lease"] == list(unhealed(setting, stuck, NoLease))
