"""The circuit's machine: what moves it, who may decide half-open, and what a result that comes late can do."""

from __future__ import annotations

import math
import sys
from itertools import count

import pytest

from resilience._core import events as ev
from resilience._core.circuit import Circuit
from resilience._core.config import BreakerConfig
from resilience._core.faults import Fault
from resilience._core.permit import Permit
from resilience._core.transitions import TRANSITIONS, Input
from resilience._core.trip import Consecutive, Figures, Strikes
from resilience._core.window import FailureRate
from resilience._words import BreakerMode, CircuitState, FaultKind, ProbeEnd, Verdict

CLOSED, OPEN, HALF_OPEN = CircuitState
NORMAL, FORCED, DISABLED, SHADOW = tuple(BreakerMode)[:4]
SUCCESS, FAILURE, ANSWERED, NEUTRAL = Verdict
TRANSIENT = Fault(FaultKind.TRANSIENT)
DOWNSTREAM = Fault(FaultKind.DOWNSTREAM)


# ---------------------------------------------------------------------------------------------------- shorthands
def make(trip=Consecutive(1), **settings):
    """A closed circuit that opens at the first failure, for 30 s."""
    return Circuit(BreakerConfig(trip, **settings))


def settle(circuit, verdict, now, fault=None):
    """One attempt that begins and ends at one moment."""
    permit = circuit.acquire(now=now)
    circuit.settle(permit, verdict, fault, now=now)
    return permit


def fail(circuit, now, fault=TRANSIENT):
    return settle(circuit, FAILURE, now, fault)


def succeed(circuit, now):
    return settle(circuit, SUCCESS, now)


def opened(fault=TRANSIENT, **settings):
    """Open since 0."""
    circuit = make(**settings)
    fail(circuit, 0, fault)
    return circuit


def probing(**settings):
    """Half-open since 30, with one probe out."""
    circuit = opened(**settings)
    return circuit, circuit.acquire(now=30)


def half_open(**settings):
    return probing(**settings)[0]


def forced(**settings):
    circuit = make(**settings)
    circuit.force_open("maintenance", now=0)
    return circuit


def disabled(**settings):
    circuit = make(**settings)
    circuit.disable(now=0)
    return circuit


def figures(circuit, now):
    return circuit.view.held.figures(now, circuit.totals.successes.value)


def of_type(circuit, kind):
    return [event for event in circuit.events if type(event) is kind]


def moves(circuit):
    return [(event.before, event.after, event.cause) for event in of_type(circuit, ev.StateChanged)]


def released(circuit):
    return [event.reason for event in of_type(circuit, ev.ProbeReleased)]


def probes_are_paired(circuit):
    totals = circuit.totals
    ended = totals.probes_succeeded + totals.probes_failed + totals.probes_released
    return totals.probes_started == ended + len(circuit.view.probes)


def everything(circuit):
    """All that anybody can observe; figures that are read at a moment are read at 1,000."""
    totals = circuit.totals
    seen = {name: getattr(totals, name) for name in totals.__slots__ if name not in ("successes", "failures")}
    seen |= {"successes": totals.successes.value, "failures": totals.failures.value}
    door = (circuit.closed, circuit.closed_windowed, circuit.open_until, circuit.episode, circuit.last_failure)
    return seen, circuit.view[:-1], figures(circuit, 1_000), door, tuple(circuit.events)


# ---------------------------------------------------------------------------------------------------- the table
ROWS = {
    (CLOSED, Input.TRIPPED): (make, lambda circuit: fail(circuit, 40)),
    (OPEN, Input.COOLED): (opened, lambda circuit: circuit.acquire(now=40)),
    (HALF_OPEN, Input.PROBES_SUCCEEDED): (
        lambda: half_open(half_open_probes=2),
        lambda circuit: succeed(circuit, 40),
    ),
    (HALF_OPEN, Input.PROBE_FAILED): (lambda: half_open(half_open_probes=2), lambda circuit: fail(circuit, 40)),
    (OPEN, Input.RESET): (opened, lambda circuit: circuit.reset(now=40)),
    (HALF_OPEN, Input.RESET): (half_open, lambda circuit: circuit.reset(now=40)),
    (CLOSED, Input.FORCED): (make, lambda circuit: circuit.force_open(now=40)),
    (OPEN, Input.FORCED): (opened, lambda circuit: circuit.force_open(now=40)),
    (HALF_OPEN, Input.FORCED): (half_open, lambda circuit: circuit.force_open(now=40)),
    (CLOSED, Input.DISABLED): (make, lambda circuit: circuit.disable(now=40)),
    (OPEN, Input.DISABLED): (opened, lambda circuit: circuit.disable(now=40)),
    (HALF_OPEN, Input.DISABLED): (half_open, lambda circuit: circuit.disable(now=40)),
    (CLOSED, Input.ENABLED): (disabled, lambda circuit: circuit.enable(now=40)),
    (OPEN, Input.ENABLED): (forced, lambda circuit: circuit.enable(now=40)),
}


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_each_row_moves(row):
    """Each row of the table can be walked: one event, one new episode, the state it names."""
    start, drive = ROWS[row]
    circuit = start()
    episode = circuit.episode
    circuit.events.clear()
    drive(circuit)

    assert [(row[0], TRANSITIONS[row], row[1].value)] == moves(circuit)
    assert (TRANSITIONS[row], episode + 1) == (circuit.view.state, circuit.view.episode)


def _closed_with_an_old_probe():
    circuit, _ = probing(half_open_probes=2)
    old = circuit.acquire(now=30)
    succeed_first = circuit.view.probes[0]
    circuit.settle(succeed_first, SUCCESS, now=31)
    return circuit, old


def _open_with_an_old_probe():
    circuit, first = probing(half_open_probes=2)
    old = circuit.acquire(now=30)
    circuit.settle(first, FAILURE, TRANSIENT, now=31)
    return circuit, old


def _with_an_old_permit(state):
    circuit = make()
    old = circuit.acquire(now=0)
    fail(circuit, 0)
    if state is HALF_OPEN:
        circuit.acquire(now=30)
    return circuit, old


NO_ROWS = {
    (CLOSED, Input.COOLED): (lambda: (make(), None), lambda circuit, _: circuit.acquire(now=1e9)),
    (CLOSED, Input.PROBES_SUCCEEDED): (
        _closed_with_an_old_probe,
        lambda circuit, old: circuit.settle(old, SUCCESS, now=40),
    ),
    (CLOSED, Input.PROBE_FAILED): (
        _closed_with_an_old_probe,
        lambda circuit, old: circuit.settle(old, FAILURE, TRANSIENT, now=40),
    ),
    (CLOSED, Input.RESET): (lambda: (make(), None), lambda circuit, _: circuit.reset(now=40)),
    (OPEN, Input.TRIPPED): (
        lambda: _with_an_old_permit(OPEN),
        lambda circuit, old: circuit.settle(old, FAILURE, TRANSIENT, now=40),
    ),
    (OPEN, Input.PROBES_SUCCEEDED): (
        _open_with_an_old_probe,
        lambda circuit, old: circuit.settle(old, SUCCESS, now=40),
    ),
    (OPEN, Input.PROBE_FAILED): (
        _open_with_an_old_probe,
        lambda circuit, old: circuit.settle(old, FAILURE, TRANSIENT, now=40),
    ),
    (HALF_OPEN, Input.TRIPPED): (
        lambda: _with_an_old_permit(HALF_OPEN),
        lambda circuit, old: circuit.settle(old, FAILURE, TRANSIENT, now=40),
    ),
    (HALF_OPEN, Input.COOLED): (probing, lambda circuit, _: circuit.acquire(now=1e9)),
    (HALF_OPEN, Input.ENABLED): (probing, lambda circuit, _: circuit.enable(now=40)),
}


def test_every_pair_has_its_test():
    """A state and an input either have a row or are shown to move nothing."""
    every = {(state, cause) for state in CircuitState for cause in Input}

    assert every == {*ROWS, *NO_ROWS}
    assert set(ROWS) == set(TRANSITIONS)


@pytest.mark.parametrize("pair", NO_ROWS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def test_no_other_pair_moves(pair):
    """I3, I6: what is no row of the table changes neither the state nor the episode, and raises nothing."""
    start, drive = NO_ROWS[pair]
    circuit, old = start()
    before = circuit.view.state, circuit.view.episode
    circuit.events.clear()
    drive(circuit, old)

    assert (pair[0], before[1]) == before == (circuit.view.state, circuit.view.episode)
    assert [] == moves(circuit)


# ---------------------------------------------------------------------------------------------------- tripping
def test_the_nth_failure_opens_once():
    """I5: the N-th failure opens, not the one before, with one event."""
    circuit = make(Consecutive(3))
    fail(circuit, 0)
    fail(circuit, 1)
    assert CLOSED is circuit.view.state
    fail(circuit, 2, DOWNSTREAM)

    (event,) = circuit.events
    assert (
        ev.StateChanged(
            name="circuit",
            before=CLOSED,
            after=OPEN,
            cause="tripped",
            episode=2,
            kind=FaultKind.DOWNSTREAM,
            retry_after=30.0,
        )
        == event
    )


def test_failures_in_flight_together_open_once():
    """I5, I6: of two failures that were let through together the second is late."""
    circuit = make()
    first, second = circuit.acquire(now=0), circuit.acquire(now=0)
    circuit.settle(first, FAILURE, TRANSIENT, now=1)
    circuit.settle(second, FAILURE, TRANSIENT, now=2)

    assert [(CLOSED, OPEN, "tripped")] == moves(circuit)
    assert (1, 1, 1.0) == (circuit.totals.failures.value, circuit.totals.late, circuit.view.opened_at)


def test_success_ends_the_streak():
    """A success between two failures starts the count anew."""
    circuit = make(Consecutive(2))
    fail(circuit, 0)
    succeed(circuit, 1)
    fail(circuit, 2)

    assert CLOSED is circuit.view.state


@pytest.mark.parametrize(("answered", "state"), [("reset", CLOSED), ("ignore", OPEN)])
def test_answered_between_two_failures(answered, state):
    """Answered refusals end a streak, unless the settings say to ignore them."""
    circuit = make(Consecutive(2), answered=answered)
    fail(circuit, 0)
    settle(circuit, ANSWERED, 1, DOWNSTREAM)
    settle(circuit, ANSWERED, 1, DOWNSTREAM)
    fail(circuit, 2)

    assert state is circuit.view.state
    assert 2 == circuit.totals.answered


def test_answered_records_nothing_in_a_window():
    """A window holds successes and failures only."""
    circuit = make(FailureRate(min_calls=2))
    fail(circuit, 0)
    settle(circuit, ANSWERED, 1, DOWNSTREAM)

    assert Figures(1, 1, 1.0) == figures(circuit, 1)


def test_neutral_changes_nothing():
    """I4: a neutral result in a closed circuit changes no counter and no state."""
    circuit = make(Consecutive(2))
    fail(circuit, 0)
    before = everything(circuit)
    settle(circuit, NEUTRAL, 1)

    assert before == everything(circuit)


def test_a_success_can_open_by_rate():
    """The rate is judged after every result: the success that completes the minimum opens too."""
    circuit = make(FailureRate(0.5, min_calls=2))
    fail(circuit, 0)
    succeed(circuit, 1)

    assert OPEN is circuit.view.state
    assert Figures(1, 2, 0.5) == figures(circuit, 1_000)


# ---------------------------------------------------------------------------------------------------- permits
def test_settling_twice():
    """I8: the second report of one permit does nothing."""
    circuit = make(Consecutive(2))
    permit = fail(circuit, 0)
    circuit.settle(permit, FAILURE, TRANSIENT, now=1)

    assert CLOSED is circuit.view.state
    assert 1 == circuit.totals.failures.value


def test_settling_a_probe_twice():
    """I8: the second report of a probe neither closes nor opens."""
    circuit, probe = probing(half_open_successes=2)
    circuit.settle(probe, SUCCESS, now=31)
    before = everything(circuit)
    circuit.settle(probe, SUCCESS, now=31)
    circuit.settle(probe, FAILURE, TRANSIENT, now=31)

    assert before == everything(circuit)


@pytest.mark.parametrize("verdict", [SUCCESS, FAILURE, ANSWERED])
def test_late_results_are_a_figure_and_nothing_else(verdict):
    """I6: a result of an earlier episode is counted as late; no other counter and no state knows of it."""
    circuit = make()
    old = circuit.acquire(now=0)
    fail(circuit, 0)
    before, view, held, door, _ = everything(circuit)
    circuit.events.clear()
    circuit.settle(old, verdict, DOWNSTREAM, now=5)

    expected = ev.LateResult(name="circuit", episode=1, verdict=verdict, accepted=False)
    assert (before | {"late": 1}, view, held, door, (expected,)) == everything(circuit)


def test_late_after_closing_again():
    """I6: a failure from before the opening says nothing about the circuit that has closed since."""
    circuit = make()
    old = circuit.acquire(now=0)
    fail(circuit, 0)
    succeed(circuit, 30)
    circuit.settle(old, FAILURE, TRANSIENT, now=31)

    assert CLOSED is circuit.view.state
    assert Figures(0, 0, None) == figures(circuit, 31)


def test_late_neutral_is_not_even_late():
    """I4: a neutral result counts nowhere, also when it comes late."""
    circuit = make()
    old = circuit.acquire(now=0)
    fail(circuit, 0)
    before = everything(circuit)
    circuit.settle(old, NEUTRAL, now=5)

    assert before == everything(circuit)


def test_bypassed_permit_judges_nothing():
    """A permit of a call that was skipped carries no result."""
    circuit = make()
    before = everything(circuit)
    circuit.settle(Permit(circuit.episode, exempt=True, bypassed=True), FAILURE, TRANSIENT, now=0)

    assert before == everything(circuit)


def test_disabled_permits_are_exempt():
    """A disabled circuit lets pass and counts nothing."""
    circuit = disabled()
    permit = circuit.acquire(now=1)
    before = everything(circuit)
    circuit.settle(permit, FAILURE, TRANSIENT, now=1)

    assert permit.exempt
    assert permit.settled
    assert before == everything(circuit)


def test_permit_of_before_disabling_is_late():
    """A result that was under way when an operator disabled the circuit does not count."""
    circuit = make()
    permit = circuit.acquire(now=0)
    circuit.disable(now=1)
    circuit.settle(permit, FAILURE, TRANSIENT, now=2)

    assert (0, 1) == (circuit.totals.failures.value, circuit.totals.late)


# ---------------------------------------------------------------------------------------------------- open
@pytest.mark.parametrize(("now", "wait"), [(0, 30.0), (12.5, 17.5), (29.5, 0.5), (math.nextafter(30, 0), None)])
def test_open_refuses_for_what_is_left(now, wait):
    """I2: refused to the last moment of the cooldown, with the exact time left."""
    circuit = opened()
    answer = circuit.acquire(now=now)

    assert (30 - now if wait is None else wait) == answer > 0
    assert answer == circuit.refusal(now)


@pytest.mark.parametrize("now", [30, 30.0, 31, 1e12])
def test_cooled_at_the_very_end(now):
    """A cooldown of 30 is over when 30 s have passed, not later."""
    circuit = opened()

    assert circuit.refusal(now) is None
    assert circuit.acquire(now=now).probe


def test_nobody_asks_nothing_moves():
    """I16: a cooled circuit that nobody has asked still reads open, however often it is looked at."""
    circuit = opened()
    before = everything(circuit)

    assert [None] * 3 == [circuit.refusal(1_000) for _ in range(3)]
    assert before == everything(circuit)


def test_failed_probe_restarts_the_cooldown():
    """A failed probe waits a full cooldown again, from the failure."""
    circuit, probe = probing()
    circuit.settle(probe, FAILURE, TRANSIENT, now=41)

    assert 30.0 == circuit.refusal(41)
    assert 0.5 == circuit.refusal(70.5)
    assert circuit.refusal(71) is None


def test_cooldown_never_grows():
    """However often probes fail, each opening lasts one cooldown."""
    circuit = opened()
    for round_ in range(1, 20):
        fail(circuit, 30 * round_)

        assert 30.0 == circuit.refusal(30 * round_)


@pytest.mark.parametrize(
    ("retry_after", "settings", "open_for"),
    [
        (None, {}, 30.0),
        (5.0, {}, 30.0),
        (30.0, {}, 30.0),
        (60.0, {}, 60.0),
        (1e9, {}, 300.0),
        (60.0, {"max_cooldown": 45}, 45.0),
        (60.0, {"max_cooldown": 30}, 30.0),
        (60.0, {"honour_retry_after": False}, 30.0),
    ],
)
def test_retry_after_of_the_failure_that_opens(retry_after, settings, open_for):
    """A longer Retry-After keeps it open that long, capped; a shorter one, or one not honoured, changes nothing."""
    circuit = opened(Fault(FaultKind.TRANSIENT, retry_after=retry_after), **settings)

    assert open_for == circuit.refusal(0)
    assert open_for == circuit.events[-1].retry_after


def test_retry_after_of_a_failed_probe():
    """A failed probe's Retry-After counts like that of the failure that opened."""
    circuit, probe = probing()
    circuit.settle(probe, FAILURE, Fault(FaultKind.TRANSIENT, retry_after=100.0), now=40)

    assert 100.0 == circuit.refusal(40)


def test_retry_after_is_forgotten():
    """The next opening lasts a plain cooldown again."""
    circuit = opened(Fault(FaultKind.TRANSIENT, retry_after=100.0))
    fail(circuit, 100)

    assert 30.0 == circuit.refusal(100)


def test_failure_without_a_fault():
    """A failure nobody explained opens for a cooldown and leaves the last failure as it was."""
    circuit = make()
    settle(circuit, FAILURE, 0)

    assert 30.0 == circuit.refusal(0)
    assert circuit.last_failure is None


def test_last_failure_is_the_fault():
    """I12: of a failure its fault and time are kept, never an exception."""
    circuit = make()
    circuit.settle(circuit.acquire(), FAILURE, TRANSIENT, now=1, time_ns=7)

    assert (TRANSIENT, 7) == circuit.last_failure


# ---------------------------------------------------------------------------------------------------- clock jumps
def test_clock_jumping_back_before_the_opening():
    """I11: opened at 1,000, the clock jumps back to 10: nobody waits until 1,030, the next call is a probe."""
    circuit = make()
    fail(circuit, 1_000)

    assert circuit.refusal(10) is None
    assert circuit.acquire(now=10).probe


def test_clock_jumping_back_within_the_cooldown():
    """I11: a small jump back leaves at most a cooldown."""
    circuit = opened()

    assert 5.0 == circuit.acquire(now=25) == circuit.refusal(25)
    assert 30.0 == circuit.acquire(now=0) == circuit.refusal(0)


def test_clock_jumping_back_frees_a_probe():
    """A probe whose lease began in the future is lost, not out for ever."""
    circuit = make()
    fail(circuit, 1_000)
    circuit.acquire(now=1_030)

    assert circuit.acquire(now=5).probe
    assert [ProbeEnd.LOST] == released(circuit)


# ---------------------------------------------------------------------------------------------------- half-open
def test_cooling_and_the_first_probe_are_one_step():
    """The acquire that finds it cooled takes the probe."""
    circuit, probe = probing()

    assert (2, 3) == (circuit.events[0].episode, circuit.events[1].episode)
    assert [ev.StateChanged, ev.StateChanged, ev.ProbeStarted] == list(map(type, circuit.events))
    assert (True, 3, 30, 30.0) == (probe.probe, probe.episode, probe.leased_at, probe.lease)


def test_one_probe_at_a_time():
    """I1: the second caller is refused for the rest of the lease."""
    circuit, _ = probing()

    assert 30.0 == circuit.acquire(now=30)
    assert 12.5 == circuit.acquire(now=47.5) == circuit.refusal(47.5)


@pytest.mark.parametrize("probes", [1, 2, 3])
def test_as_many_probes_as_the_settings_say(probes):
    """I1: `half_open_probes` are let go, the next is refused."""
    circuit = opened(half_open_probes=probes)
    answers = [circuit.acquire(now=30 + number) for number in range(probes + 1)]

    assert [True] * probes == [answer.probe for answer in answers[:-1]]
    assert 30.0 - probes == answers[-1]


def test_refused_for_the_lease_that_ends_first():
    """With several probes out the next slot is the one whose lease ends first."""
    circuit = opened(half_open_probes=2)
    circuit.acquire(lease=100, now=30)
    circuit.acquire(now=32)

    assert 20.0 == circuit.acquire(now=42)


@pytest.mark.parametrize(("own", "lease"), [(0.0, 30.0), (10.0, 30.0), (45.0, 45.0)])
def test_the_lease_is_the_longer_of_two(own, lease):
    """A call site whose own limit is longer than the breaker's lease gets that much."""
    circuit = opened()
    probe = circuit.acquire(lease=own, now=30)

    assert (lease, lease) == (probe.lease, circuit.events[-1].lease)


def test_successful_probe_closes():
    """The remote is back: closed, and the door stands open."""
    circuit, probe = probing()
    circuit.settle(probe, SUCCESS, now=31)

    assert CLOSED is circuit.view.state
    assert circuit.episode == circuit.closed == circuit.clean
    assert [ev.ProbeSucceeded, ev.StateChanged] == list(map(type, circuit.events[-2:]))


def test_only_an_opening_tells_a_wait():
    """Nobody has to wait for a circuit that let a probe through or closed."""
    circuit, probe = probing()
    circuit.settle(probe, SUCCESS, now=31)

    assert [30.0, None, None] == [event.retry_after for event in of_type(circuit, ev.StateChanged)]


def test_answered_probe_closes():
    """A remote that says no is alive: the probe succeeded."""
    circuit, probe = probing()
    circuit.settle(probe, ANSWERED, DOWNSTREAM, now=31)

    assert CLOSED is circuit.view.state
    assert (1, 0, 1) == (circuit.totals.answered, circuit.totals.successes.value, circuit.totals.probes_succeeded)


@pytest.mark.parametrize("answered", ["reset", "ignore"])
def test_answered_probe_closes_whatever_it_does_to_streaks(answered):
    """`answered="ignore"` is about counting; a probe still succeeds."""
    circuit, probe = probing(answered=answered)
    circuit.settle(probe, ANSWERED, DOWNSTREAM, now=31)

    assert CLOSED is circuit.view.state


def test_neutral_probe_gives_its_slot_back_at_once():
    """I4: a probe that says nothing frees the slot in the same step and decides nothing."""
    circuit, probe = probing()
    circuit.settle(probe, NEUTRAL, end=ProbeEnd.CANCELLED, now=31)

    assert (HALF_OPEN, ()) == (circuit.view.state, circuit.view.probes)
    assert ev.ProbeReleased(name="circuit", episode=3, reason=ProbeEnd.CANCELLED) == circuit.events[-1]
    assert circuit.refusal(31) is None
    assert circuit.acquire(now=31).probe


def test_several_successes_are_needed():
    """`half_open_successes` probes must succeed before it closes."""
    circuit = opened(half_open_successes=3)
    for now in (30, 31):
        succeed(circuit, now)
        assert HALF_OPEN is circuit.view.state
    succeed(circuit, 32)

    assert CLOSED is circuit.view.state


def test_successes_in_a_row_survive_a_neutral_probe():
    """A neutral probe counts neither way."""
    circuit = opened(half_open_successes=2)
    succeed(circuit, 30)
    settle(circuit, NEUTRAL, 31)
    succeed(circuit, 32)

    assert CLOSED is circuit.view.state


def test_the_first_failed_probe_opens_again():
    """Successes before a failed probe are worth nothing in the next half-open episode."""
    circuit = opened(half_open_successes=2)
    succeed(circuit, 30)
    fail(circuit, 31)
    assert OPEN is circuit.view.state
    succeed(circuit, 61)

    assert HALF_OPEN is circuit.view.state


def test_deciding_gives_the_other_probes_up():
    """I15: probes still out when another has decided end as abandoned, and their results are late."""
    circuit, first = probing(half_open_probes=3)
    second, third = circuit.acquire(now=30), circuit.acquire(now=30)
    circuit.settle(second, SUCCESS, now=31)
    circuit.settle(first, FAILURE, TRANSIENT, now=32)
    circuit.settle(third, NEUTRAL, now=32)

    assert CLOSED is circuit.view.state
    assert [ProbeEnd.ABANDONED, ProbeEnd.ABANDONED] == released(circuit)
    assert (1, 0) == (circuit.totals.late, circuit.totals.late_accepted)
    assert probes_are_paired(circuit)


def test_half_open_is_decided_by_its_own_probes_only():
    """I3: neither a plain permit nor a probe of an earlier half-open episode decides."""
    circuit, old = probing(half_open_probes=2)
    fail(circuit, 31)
    probe = circuit.acquire(now=61)
    circuit.settle(old, SUCCESS, now=62)
    assert HALF_OPEN is circuit.view.state
    circuit.settle(probe, SUCCESS, now=62)

    assert CLOSED is circuit.view.state


# ---------------------------------------------------------------------------------------------------- a lost probe
@pytest.mark.parametrize(("now", "lost"), [(math.nextafter(60, 0), False), (60, True)])
def test_the_lease_ends_to_the_moment(now, lost):
    """A lease of 30 s that began at 30 holds until 60, and no longer."""
    circuit, _ = probing()

    assert lost is isinstance(circuit.acquire(now=now), Permit)


def test_lost_probe_gives_its_slot_back():
    """A caller that vanished can't keep the circuit half-open for ever."""
    circuit, _ = probing()
    circuit.acquire(now=60)

    assert [ProbeEnd.LOST] == released(circuit)
    assert (2, 1) == (circuit.totals.probes_started, circuit.totals.probes_released)
    assert probes_are_paired(circuit)


@pytest.mark.parametrize(("verdict", "state"), [(SUCCESS, CLOSED), (ANSWERED, CLOSED), (FAILURE, OPEN)])
def test_lost_probe_still_decides_in_its_episode(verdict, state):
    """A lease shorter than an honest slow call must not keep it open: the result is accepted, and counted as late."""
    circuit, slow = probing()
    circuit.acquire(now=60)
    circuit.events.clear()
    circuit.settle(slow, verdict, TRANSIENT if verdict is FAILURE else None, now=61)

    assert state is circuit.view.state
    assert (1, 1) == (circuit.totals.late, circuit.totals.late_accepted)
    assert ev.LateResult(name="circuit", episode=3, verdict=verdict, accepted=True) == circuit.events[0]


@pytest.mark.parametrize("verdict", [SUCCESS, ANSWERED, FAILURE])
def test_lost_probe_has_one_end(verdict):
    """I15: `lost` was its end; the accepted result is not a second one."""
    circuit, slow = probing()
    circuit.acquire(now=60)
    circuit.settle(slow, verdict, TRANSIENT, now=61)

    assert (0, 0, 2) == (
        circuit.totals.probes_succeeded,
        circuit.totals.probes_failed,
        circuit.totals.probes_released,
    )
    assert probes_are_paired(circuit)
    assert [ProbeEnd.LOST, ProbeEnd.ABANDONED] == released(circuit)
    assert not of_type(circuit, ev.ProbeSucceeded) + of_type(circuit, ev.ProbeFailed)


def test_lost_probe_counts_among_the_successes_in_a_row():
    """Its success is one of those that are needed."""
    circuit, slow = probing(half_open_successes=2)
    probe = circuit.acquire(now=60)
    circuit.settle(slow, SUCCESS, now=61)
    assert HALF_OPEN is circuit.view.state
    circuit.settle(probe, SUCCESS, now=62)

    assert CLOSED is circuit.view.state


def test_probe_whose_lease_ran_out_unnoticed_is_not_late():
    """As long as nobody took its slot, it is a probe like any other."""
    circuit, slow = probing()
    circuit.settle(slow, SUCCESS, now=500)

    assert CLOSED is circuit.view.state
    assert (0, 1) == (circuit.totals.late, circuit.totals.probes_succeeded)


def test_lost_neutral_probe_changes_nothing():
    """I4: it had its end already."""
    circuit, slow = probing()
    circuit.acquire(now=60)
    before = everything(circuit)
    circuit.settle(slow, NEUTRAL, now=61)

    assert before == everything(circuit)


def test_lost_probe_is_late_after_its_episode():
    """I6: once the episode is over its result is a figure only."""
    circuit, slow = probing()
    fail(circuit, 60)
    circuit.settle(slow, SUCCESS, now=61)

    assert OPEN is circuit.view.state
    assert (1, 0) == (circuit.totals.late, circuit.totals.late_accepted)


def test_fork_abandons_the_probe():
    """I15: in a forked child the parent's probe is nobody's, and its slot is free."""
    circuit, _ = probing()
    circuit.abandon_probes(now=31)

    assert [ProbeEnd.ABANDONED] == released(circuit)
    assert circuit.acquire(now=31).probe
    assert probes_are_paired(circuit)


# ---------------------------------------------------------------------------------------------------- an operator's acts
def test_forced_for_good():
    """Without seconds nobody but an operator ends it."""
    circuit = forced()

    assert (OPEN, FORCED) == circuit.view[:2]
    assert math.inf == circuit.acquire(now=1e12) == circuit.refusal(1e12)
    assert circuit.events[-1].retry_after is None


def test_forced_for_seconds():
    """With seconds it ends like a cooldown: the next caller is a probe, and the circuit its own master again."""
    circuit = make()
    circuit.force_open("deploy", 10, now=5)

    assert 10 == circuit.events[-1].retry_after
    assert 0.5 == circuit.acquire(now=14.5)
    probe = circuit.acquire(now=15)
    assert (HALF_OPEN, NORMAL) == circuit.view[:2]
    circuit.settle(probe, FAILURE, TRANSIENT, now=15)
    assert 30.0 == circuit.refusal(15)


def test_forced_longer_while_open():
    """Forcing an open circuit replaces what was left of its cooldown."""
    circuit = opened()
    circuit.force_open("incident", 100, now=20)

    assert 100 == circuit.refusal(20)


def test_forced_again():
    """The last word of an operator counts."""
    circuit = forced()
    circuit.force_open("shorter", 5, now=10)

    assert circuit.acquire(now=15).probe


def test_forced_while_disabled():
    """An operator may force open what was disabled; enabling ends both."""
    circuit = disabled()
    circuit.force_open(now=1)
    assert (OPEN, FORCED) == circuit.view[:2]
    circuit.enable(now=2)

    assert (CLOSED, NORMAL) == circuit.view[:2]


def test_force_open_gives_probes_back():
    """I15: a probe under way when an operator opens ends as reset, and is late."""
    circuit, probe = probing()
    circuit.force_open(now=31)
    circuit.settle(probe, SUCCESS, now=32)

    assert [ProbeEnd.RESET] == released(circuit)
    assert (OPEN, 1) == (circuit.view.state, circuit.totals.late)


def test_an_act_names_its_reason_and_actor():
    """The event of an operator's act says who and why."""
    circuit = make()
    circuit.force_open("deploy", 10, "ann", now=0)
    circuit.reset("done", "bob", now=1)
    circuit.disable("bench", "cyd", now=2)
    circuit.enable("dan", now=3)

    assert [("deploy", "ann"), ("done", "bob"), ("bench", "cyd"), (None, "dan")] == [
        (event.reason, event.actor) for event in circuit.events
    ]


@pytest.mark.parametrize(
    ("start", "act"),
    [
        (opened, Circuit.reset),
        (make, Circuit.force_open),
        (make, Circuit.disable),
        (disabled, Circuit.enable),
    ],
)
def test_an_act_keeps_its_moment(start, act):
    """The wall clock of an operator's act is that of the last change."""
    circuit = start()
    act(circuit, now=40, time_ns=7)

    assert 7 == circuit.view.changed_ns


def test_reset_of_a_closed_circuit():
    """Nothing to close: False, and nothing changes, not even the streak."""
    circuit = make(Consecutive(2))
    fail(circuit, 0)
    before = everything(circuit)

    assert circuit.reset(now=1) is False
    assert before == everything(circuit)


@pytest.mark.parametrize("start", [opened, half_open, forced])
def test_reset(start):
    """Closed, own mode, no figures, no last failure, the next failure is the first again."""
    circuit = start(trip=Consecutive(1))

    assert circuit.reset(now=40) is True
    assert (CLOSED, NORMAL) == circuit.view[:2]
    assert (Figures(0, 0, None), None) == (figures(circuit, 40), circuit.last_failure)
    assert circuit.episode == circuit.closed == circuit.clean


def test_reset_gives_probes_back():
    """I15: a probe under way ends as reset, and its result is late."""
    circuit, probe = probing()
    circuit.reset(now=31)
    circuit.settle(probe, FAILURE, TRANSIENT, now=32)

    assert [ProbeEnd.RESET] == released(circuit)
    assert CLOSED is circuit.view.state
    assert probes_are_paired(circuit)


def test_reset_of_a_disabled_circuit():
    """It reads closed, so there is nothing to reset; it stays disabled."""
    circuit = disabled()

    assert circuit.reset(now=1) is False
    assert DISABLED is circuit.view.mode


def test_disabling_twice():
    """The second time nothing is left to do."""
    circuit = disabled()
    before = everything(circuit)
    circuit.disable(now=1)

    assert before == everything(circuit)


def test_disabled_reads_closed():
    """Disabled, it shuts the straight path's door: each call asks, and is exempt."""
    circuit = opened()
    circuit.disable(now=1)

    assert (CLOSED, DISABLED) == circuit.view[:2]
    assert (0, 0) == (circuit.closed, circuit.clean)
    assert circuit.refusal(1) is None


@pytest.mark.parametrize("start", [disabled, forced])
def test_enable_ends_it(start):
    """Enabled again it is closed with fresh figures."""
    circuit = start()
    circuit.enable(now=1)

    assert (CLOSED, NORMAL) == circuit.view[:2]
    assert Figures(0, 0, None) == figures(circuit, 1)
    assert circuit.episode == circuit.closed


@pytest.mark.parametrize("start", [make, opened, half_open])
def test_enable_what_is_not_off(start):
    """There is nothing to end where no operator intervened: an open circuit stays open."""
    circuit = start()
    before = everything(circuit)
    circuit.enable(now=31)

    assert before == everything(circuit)


# ---------------------------------------------------------------------------------------------------- shadow
def test_shadow_refuses_nothing():
    """The machine runs, but what it would refuse passes, counted and without a say."""
    circuit = opened(shadow=True)
    circuit.acquire(now=1)
    permit = circuit.acquire(now=1)
    circuit.settle(permit, FAILURE, TRANSIENT, now=1)

    assert (True, circuit.episode) == (permit.exempt, permit.episode)
    assert (OPEN, SHADOW) == circuit.view[:2]
    assert (2, 1, 0) == (circuit.totals.would_refuse, circuit.totals.failures.value, circuit.totals.late)
    assert circuit.refusal(1) is None


def test_shadow_runs_the_whole_machine():
    """After the cooldown one call is the probe, others would be refused, and the probe decides."""
    circuit = opened(shadow=True)
    probe, other = circuit.acquire(now=30), circuit.acquire(now=30)
    assert (True, False) == (probe.probe, other.probe)
    circuit.settle(probe, SUCCESS, now=31)

    assert (CLOSED, 1) == (circuit.view.state, circuit.totals.would_refuse)


def test_a_healthy_shadow_takes_the_straight_path():
    """While closed nothing tells a shadow from the real thing."""
    circuit = make(Consecutive(2), shadow=True)

    assert (1, 1, False) == (circuit.closed, circuit.clean, circuit.strike(circuit.episode, TRANSIENT, 0))


def test_an_open_shadow_publishes_no_refusal():
    """Compiled wrappers are neither let pass nor refused: each call asks, so that it can be counted."""
    circuit = opened(shadow=True)

    assert (0, 0) == (circuit.closed, circuit.clean)
    assert circuit.open_until < 0


def test_shadow_can_be_forced_and_comes_back():
    """An operator's opening is real; after it the breaker is a shadow again."""
    circuit = make(shadow=True)
    circuit.force_open(seconds=5, now=0)
    assert 4.0 == circuit.acquire(now=1) == circuit.refusal(1)
    circuit.enable(now=2)

    assert SHADOW is circuit.view.mode


# ---------------------------------------------------------------------------------------------------- figures
def test_figures_while_open_are_those_at_the_trip():
    """A timed streak goes on showing what opened it, however old that is."""
    circuit = make(Consecutive(2, within=10))
    fail(circuit, 0)
    fail(circuit, 10)

    assert [Figures(2, 2, None)] * 2 == [figures(circuit, 10), figures(circuit, 10_000)]


def test_figures_of_a_window_while_open():
    """A rate goes on showing what opened it."""
    circuit = make(FailureRate(0.5, min_calls=4))
    for now in (0, 1):
        succeed(circuit, now)
    for now in (2, 3):
        fail(circuit, now)

    assert OPEN is circuit.view.state
    assert Figures(2, 4, 0.5) == figures(circuit, 10_000)


def test_figures_survive_half_open_and_a_failed_probe():
    """Until it closes, the figures stay those of the trip."""
    circuit = make(Consecutive(2))
    fail(circuit, 0)
    fail(circuit, 0)
    circuit.acquire(now=30)
    assert Figures(2, 2, None) == figures(circuit, 30)
    fail(circuit, 60)

    assert (OPEN, Figures(2, 2, None)) == (circuit.view.state, figures(circuit, 60))


def test_figures_when_an_operator_opened_it():
    """They are those of the moment of the opening."""
    circuit = make(Consecutive(5, within=10))
    fail(circuit, 0)
    fail(circuit, 8)
    circuit.force_open(now=11)

    assert Figures(1, 1, None) == figures(circuit, 11) == figures(circuit, 10_000)


def test_figures_of_a_window_when_an_operator_opened_it():
    """Successes are part of them."""
    circuit = make(FailureRate())
    succeed(circuit, 0)
    fail(circuit, 0)
    circuit.force_open(now=1)

    assert Figures(1, 2, 0.5) == figures(circuit, 10_000)


def test_figures_forced_again_stay_those_of_the_first_opening():
    """A second opening by an operator does not overwrite what opened it."""
    circuit = opened()
    circuit.force_open(now=1)

    assert Figures(1, 1, None) == figures(circuit, 1)


@pytest.mark.parametrize("trip", [Consecutive(2), Consecutive(2, within=60), FailureRate(0.6, min_calls=3)])
def test_figures_after_closing(trip):
    """Closed again, everything starts at zero; successes of before, the probe's own among them, are forgotten."""
    circuit = make(trip, cooldown=1)
    succeed(circuit, 0)
    fail(circuit, 0)
    fail(circuit, 0)
    succeed(circuit, 1)
    windowed = trip.windowed

    assert Figures(0, 0, 0.0 if windowed else None) == figures(circuit, 1)


def test_a_new_circuit():
    """It begins closed, never opened, last changed when it was made."""
    circuit = Circuit(BreakerConfig(), "db", time_ns=5)

    assert (CLOSED, NORMAL, 1, 0.0, 0.0, None, 5, (), BreakerConfig(), None) == circuit.view[:-1]
    assert Figures(0, 0, None) == figures(circuit, 0)


def test_times_of_the_opening():
    """The wall clock of the opening is kept until it closes, that of the last move always."""
    circuit = make()
    circuit.settle(circuit.acquire(), FAILURE, TRANSIENT, now=0, time_ns=5)
    assert (5, 5) == (circuit.view.opened_ns, circuit.view.changed_ns)
    probe = circuit.acquire(now=30, time_ns=35)
    assert (5, 35) == (circuit.view.opened_ns, circuit.view.changed_ns)
    circuit.settle(probe, SUCCESS, now=31, time_ns=36)

    assert (None, 36) == (circuit.view.opened_ns, circuit.view.changed_ns)


# ---------------------------------------------------------------------------------------------------- without the lock
def test_the_door_names_the_episode():
    """A closed circuit shows its episode at the door, an open one nothing."""
    circuit = make()
    assert (1, 0, 1) == (circuit.closed, circuit.closed_windowed, circuit.clean)
    fail(circuit, 0)

    assert (0, 0, 0) == (circuit.closed, circuit.closed_windowed, circuit.clean)


def test_the_door_of_a_window():
    """A window has a door of its own, and a moment from which successes must be reported."""
    circuit = make(FailureRate(window=3, bucket=1))
    assert (0, 1, 1) == (circuit.closed, circuit.closed_windowed, circuit.clean)
    assert -math.inf == circuit.edge
    succeed(circuit, 1.5)

    assert (1, 2.0) == (circuit.clean, circuit.edge)


@pytest.mark.parametrize(
    ("start", "until"),
    [
        (make, -math.inf),
        (opened, 30.0),
        (forced, math.inf),
        (half_open, -math.inf),
        (disabled, -math.inf),
        (lambda: opened(shadow=True), -math.inf),
        (lambda: forced(shadow=True), math.inf),
    ],
)
def test_everything_is_refused_until(start, until):
    """An open circuit shows until when it refuses all; where somebody might pass, it shows nothing."""
    assert until == start().open_until


@pytest.mark.parametrize("trip", [Consecutive(3), Consecutive(3, within=5), FailureRate(min_calls=3)])
def test_a_recorded_failure_takes_clean_away(trip):
    """Whatever the mode: as long as failures are held, a success has to be reported."""
    circuit = make(trip)
    fail(circuit, 0)
    assert 0 == circuit.clean
    succeed(circuit, 0)

    assert (0 if trip.windowed else 1) == circuit.clean


def test_a_success_may_be_counted_alone():
    """Counted without a report it is part of the window all the same."""
    circuit = make(FailureRate(0.5, window=3, bucket=1, min_calls=4))
    succeed(circuit, 0)
    for _ in range(2):
        assert (1, True) == (circuit.clean, 0.5 < circuit.edge)
        circuit.totals.successes.tick()
    fail(circuit, 0.5)

    assert (CLOSED, Figures(1, 4, 0.25)) == (circuit.view.state, figures(circuit, 0.5))


def test_under_a_test_clock_the_door_is_shut():
    """Unpublished, the straight path has to ask; published again, it may pass."""
    circuit = make(Consecutive(2))
    circuit.publish(False)
    assert (0, 0, None) == (circuit.closed, circuit.clean, circuit.strike(1, TRANSIENT, 0))
    fail(circuit, 0)
    circuit.publish(True)

    assert (1, 0, Figures(1, 1, None)) == (circuit.closed, circuit.clean, figures(circuit, 0))


def test_a_strike_takes_clean_away():
    """After a failure the next success has to be reported, for it ends the streak."""
    circuit = make(Consecutive(3))

    assert circuit.strike(1, TRANSIENT, 7) is False
    assert (0, 1, Figures(1, 1, None)) == (circuit.clean, circuit.totals.failures.value, figures(circuit, 0))
    assert (TRANSIENT, 7) == circuit.last_failure


def test_a_success_gives_clean_and_new_strikes():
    """The streak that ended keeps its strikes; the next one counts on new ones."""
    circuit = make(Consecutive(3))
    old = circuit.streak.strikes
    circuit.strike(1, TRANSIENT, 0)
    circuit.record(1, SUCCESS, now=0)

    assert old is not circuit.streak.strikes
    assert (1, 0) == (circuit.clean, circuit.streak.strikes.value)


def test_strikes_open_at_the_limit():
    """I5: the strike that reaches the limit says so, and opens under the lock."""
    circuit = make(Consecutive(2))

    assert circuit.strike(1, TRANSIENT, 0) is False
    circuit.strike_out(1, circuit.strike(1, DOWNSTREAM, 0), DOWNSTREAM, now=3)
    assert [(CLOSED, OPEN, "tripped")] == moves(circuit)
    assert (30.0, Figures(2, 2, None)) == (circuit.refusal(3), figures(circuit, 3))


def test_strikes_before_and_after_recorded_failures():
    """Failures counted with and without the lock belong to one streak."""
    circuit = make(Consecutive(3))
    circuit.strike(1, TRANSIENT, 0)
    fail(circuit, 0)

    assert 3 == circuit.strike(1, TRANSIENT, 0).number


def test_two_strikes_reach_the_limit_together():
    """I5: the one that comes to the lock second is late; there is one opening."""
    circuit = make(Consecutive(1))
    strikes = [circuit.strike(1, TRANSIENT, 0), circuit.strike(1, TRANSIENT, 0)]
    for strike in strikes:
        circuit.strike_out(1, strike, TRANSIENT, now=0)

    assert [(CLOSED, OPEN, "tripped")] == moves(circuit)
    assert (1, Figures(1, 1, None)) == (circuit.totals.late, figures(circuit, 0))
    assert ev.LateResult(name="circuit", episode=1, verdict=FAILURE, accepted=False) == circuit.events[-1]


def test_the_strike_that_opens_is_like_a_recorded_failure():
    """Counted without the lock or with it: the same opening, the same last failure."""
    struck, recorded = make(), make()
    struck.strike_out(1, struck.strike(1, DOWNSTREAM, 7), DOWNSTREAM, now=3, time_ns=7)
    recorded.record(1, FAILURE, DOWNSTREAM, now=3, time_ns=7)

    assert everything(recorded) == everything(struck)
    assert (DOWNSTREAM, 7) == struck.last_failure


def test_a_success_can_not_undo_the_strike_that_opens():
    """I5: the failure was counted before it, so it opens all the same."""
    circuit = make(Consecutive(1))
    strike = circuit.strike(1, TRANSIENT, 0)
    circuit.record(1, SUCCESS, now=0)
    circuit.strike_out(1, strike, TRANSIENT, now=0)

    assert OPEN is circuit.view.state


def test_the_strike_that_opens_is_not_yet_shown():
    """A circuit that still reads closed never shows the figures of an open one."""
    circuit = make(Consecutive(2))
    circuit.strike(1, TRANSIENT, 0)
    circuit.strike(1, TRANSIENT, 0)

    assert (CLOSED, Figures(1, 1, None)) == (circuit.view.state, figures(circuit, 0))


@pytest.mark.parametrize("trip", [Consecutive(2, within=5), FailureRate()])
def test_no_strikes_where_times_count(trip):
    """Where the time of a failure matters, each has to be reported."""
    circuit = make(trip)

    assert circuit.strike(1, TRANSIENT, 0) is None
    assert 0 == circuit.totals.failures.value


def test_a_strike_of_an_earlier_episode_is_not_counted():
    """I6: it is to be reported, and is late there."""
    circuit = opened()
    succeed(circuit, 30)

    assert circuit.strike(1, TRANSIENT, 0) is None
    assert 0 == circuit.streak.strikes.value


def test_ending_a_streak():
    """A success ends a plain streak without the lock as a recorded one does: new strikes, and clean again."""
    circuit = make(Consecutive(3))
    circuit.strike(1, TRANSIENT, 0)
    old = circuit.streak.strikes

    assert circuit.end_streak(1) is True
    assert (1, 1) == (circuit.clean, circuit.totals.successes.value)
    assert Figures(0, 0, None) == figures(circuit, 0)
    assert old is not circuit.streak.strikes


@pytest.mark.parametrize("trip", [Consecutive(2, within=5), FailureRate(min_calls=2)])
def test_a_success_that_is_to_be_reported(trip):
    """Where times count there are no strikes to end, and nothing is counted."""
    circuit = make(trip)

    assert circuit.end_streak(1) is False
    assert 0 == circuit.totals.successes.value


def test_ending_a_streak_of_an_earlier_episode():
    """I6: it is to be reported, and is late there."""
    circuit = make(Consecutive(2))
    circuit.force_open()
    circuit.reset()
    circuit.strike(circuit.episode, TRANSIENT, 0)

    assert circuit.end_streak(1) is False
    assert (0, Figures(1, 1, None)) == (circuit.totals.successes.value, figures(circuit, 0))


def with_somebody_in_between(prepare, act, other):
    """The circuits that result when `other` gets in before each bytecode of an act of the machine, one after the other."""
    name, *args = act
    core, before = Circuit.acquire.__code__.co_filename.removesuffix("circuit.py"), sys.gettrace()
    for place in count():
        circuit, left = prepare(), [place]

        def trace(frame, event, arg):
            if not frame.f_code.co_filename.startswith(core):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left[0] -= 1
                if left[0] == -1:
                    other(circuit)
            return trace

        # Python 3.12 looks at the start of tracing whether any frame wants bytecodes.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        try:
            getattr(circuit, name)(*args)
        finally:
            sys.settrace(before)
        if left[0] >= 0:
            return
        yield circuit


def one_failure_held(limit=5):
    circuit = make(Consecutive(limit))
    circuit.strike(1, TRANSIENT, 0)
    return circuit


BETWEEN = {
    "strike": lambda circuit: circuit.strike(1, TRANSIENT, 0),
    "end_streak": lambda circuit: circuit.end_streak(1),
    "failure": lambda circuit: circuit.record(1, FAILURE, TRANSIENT),
    "success": lambda circuit: circuit.record(1, SUCCESS),
    "answered": lambda circuit: circuit.record(1, ANSWERED),
}


@pytest.mark.parametrize("other", BETWEEN)
@pytest.mark.parametrize("act", [("strike", 1, TRANSIENT, 0), ("end_streak", 1)], ids=["strike", "end_streak"])
def test_clean_is_never_wrong_whoever_gets_in_between(act, other):
    """Two threads, one of them without the lock: a success may skip only where no failure is held afterwards."""
    seen = list(with_somebody_in_between(one_failure_held, act, BETWEEN[other]))

    assert len(seen) > 20
    assert [] == [circuit.streak.strikes.value for circuit in seen if circuit.clean and circuit.streak.strikes.value]


@pytest.mark.parametrize("other", ["strike", "failure"])
def test_no_failure_is_lost_between_two_of_them(other):
    """I5: whoever gets in between, both failures are held."""
    seen = list(with_somebody_in_between(one_failure_held, ("strike", 1, TRANSIENT, 0), BETWEEN[other]))

    assert {3} == {figures(circuit, 0).failures for circuit in seen}


@pytest.mark.parametrize("act", [("end_streak", 1), ("record", 1, SUCCESS)], ids=["end_streak", "record"])
def test_a_success_that_was_let_skip_has_ended_the_streak(act):
    """A failure, a success, a failure are no two in a row, whoever else is about to end the streak meanwhile."""
    opening = []

    def succeed_and_fail(circuit):
        if circuit.clean == 1:
            circuit.totals.successes.tick()
        else:
            assert circuit.end_streak(1)
        opening.append(circuit.strike(1, TRANSIENT, 0))

    seen = list(with_somebody_in_between(lambda: one_failure_held(limit=2), act, succeed_and_fail))

    assert [False] * len(seen) == opening


def test_who_looks_while_it_opens_can_count_nothing_more():
    """At every moment of an opening the door and the streak can be asked, and an open circuit lets nobody pass."""
    seen = []

    def look(circuit):
        struck = circuit.strike(1, TRANSIENT, 0)
        seen.append((circuit.view.state, circuit.closed, circuit.clean, struck))

    list(with_somebody_in_between(make, ("record", 1, FAILURE, TRANSIENT), look))

    assert {CLOSED, OPEN} == {state for state, *_ in seen}
    assert {(0, 0, None)} == {tuple(rest) for state, *rest in seen if state is OPEN}


def test_a_late_success_ends_no_streak_of_a_later_episode():
    """I6: the circuit moves on while a success is being counted: what the next episode holds stays held."""

    def another_episode(circuit):
        circuit.force_open()
        circuit.reset()
        circuit.strike(circuit.episode, TRANSIENT, 0)
        circuit.strike(circuit.episode, TRANSIENT, 0)

    seen = list(with_somebody_in_between(one_failure_held, ("end_streak", 1), another_episode))

    assert {2} == {figures(circuit, 0).failures for circuit in seen}
    assert {0} == {circuit.clean for circuit in seen}


# ---------------------------------------------------------------------------------------------------- starting over
def test_clear():
    """Back to the beginning, silently; only the episode goes on, so that a permit of before stays late."""
    circuit = half_open(half_open_successes=2)
    succeed(circuit, 70)
    old = circuit.acquire(now=70)
    circuit.clear(now=71, time_ns=9)
    assert old.episode + 1 == circuit.episode
    fresh = make()
    fresh.episode = circuit.episode
    fresh.publish(True)

    seen, view, held, door, events = everything(circuit)
    assert everything(fresh)[0] == seen
    assert (CLOSED, NORMAL, None, 9, ()) == (view[0], view[1], view[5], view[6], view[7])
    assert (Figures(0, 0, None), (circuit.episode, 0, -math.inf, circuit.episode, None), ()) == (held, door, events)
    circuit.settle(old, FAILURE, TRANSIENT, now=72)
    assert (CLOSED, 1) == (circuit.view.state, circuit.totals.late)


def test_cleared_windows_count_from_zero():
    """The running total that a window takes its successes from starts over too."""
    circuit = make(FailureRate(0.5, min_calls=3))
    for now in range(2):
        succeed(circuit, now)
    circuit.clear(now=2)
    fail(circuit, 2)
    succeed(circuit, 2)

    assert (CLOSED, Figures(1, 2, 0.5)) == (circuit.view.state, figures(circuit, 2))


def test_forced_clears_to_its_own_mode():
    """A shadow breaker is a shadow again."""
    circuit = forced(shadow=True)
    circuit.clear()

    assert (CLOSED, SHADOW) == circuit.view[:2]


def test_probes_taken_before_clearing_are_forgotten():
    """The next half-open episode has all its slots."""
    circuit, _ = probing()
    circuit.clear(now=31)
    fail(circuit, 31)

    assert circuit.acquire(now=61).probe
    assert probes_are_paired(circuit)


# ---------------------------------------------------------------------------------------------------- the log
def test_the_log_of_a_whole_life():
    """I18: opening, a failed probe, a good one: the events tell the story, and again the same one."""

    def life():
        circuit = make()
        fail(circuit, 0)
        fail(circuit, 30)
        succeed(circuit, 60)
        return circuit.events

    assert [
        "StateChanged",
        *("StateChanged", "ProbeStarted", "ProbeFailed", "StateChanged"),
        *("StateChanged", "ProbeStarted", "ProbeSucceeded", "StateChanged"),
    ] == [type(event).__name__ for event in life()]
    assert repr(life()) == repr(life())


# ---------------------------------------------------------------------------------------------------- other settings in between
class Interrupted:
    """A streak's count at which something happens, before or after it has counted one more."""

    def __init__(self, ticks, *, before=None, after=None):
        self.ticks, self.before, self.after = ticks, before, after

    def __next__(self):
        if self.before is not None:
            self.before()
        number = next(self.ticks)
        if self.after is not None:
            self.after()
        return number

    def __repr__(self):
        return repr(self.ticks)


def other(circuit, trip):
    return lambda: circuit.reconfigure(BreakerConfig(trip), now=1)


def test_a_strike_that_the_new_streak_has_taken_over():
    """Counted before the strikes were read: it is held already, and only its total is missing."""
    circuit = make(Consecutive(5))
    strikes = circuit.streak.strikes
    strikes.ticks = Interrupted(strikes.ticks, after=other(circuit, Consecutive(1)))
    strike = circuit.strike(1, TRANSIENT, 7)
    circuit.strike_out(1, strike, TRANSIENT, now=1, time_ns=7)

    assert (CLOSED, Figures(1, 1, None), 1) == (circuit.view.state, figures(circuit, 1), circuit.totals.failures.value)
    assert (TRANSIENT, 7) == circuit.last_failure


def test_a_strike_that_came_too_late_to_be_taken_over():
    """Counted after the strikes were read: it is judged by the new settings."""
    circuit = make(Consecutive(5))
    strikes = circuit.streak.strikes
    strikes.ticks = Interrupted(strikes.ticks, before=other(circuit, Consecutive(1)))
    circuit.strike_out(1, circuit.strike(1, TRANSIENT, 0), TRANSIENT, now=1)

    assert (OPEN, 1) == (circuit.view.state, circuit.totals.failures.value)


@pytest.mark.parametrize("trip", [Consecutive(3), FailureRate(1.0, min_calls=2), Consecutive(2, within=5)])
def test_a_strike_on_its_way_to_open(trip):
    """It had reached the old limit and comes to the lock after the change: by the new settings it is the first, or not enough."""
    circuit = make(Consecutive(1))
    strike = circuit.strike(1, TRANSIENT, 0)
    circuit.reconfigure(BreakerConfig(trip), now=1)
    circuit.strike_out(1, strike, TRANSIENT, now=1)

    assert (CLOSED, 1, 1) == (circuit.view.state, figures(circuit, 1).failures, circuit.totals.failures.value)


@pytest.mark.parametrize("trip", [Consecutive(2), FailureRate(1.0, min_calls=2)])
def test_a_success_that_came_too_late_to_be_seen(monkeypatch, trip):
    """It ended a streak that another one has taken over meanwhile: it is to be reported, and ends that one."""
    circuit = make(Consecutive(5))
    fail(circuit, 0)

    def late(episode):
        circuit.reconfigure(BreakerConfig(trip), now=1)
        return Strikes(episode)

    monkeypatch.setattr("resilience._core.circuit.Strikes", late)
    assert circuit.end_streak(1) is False
    assert 0 == circuit.totals.successes.value
    circuit.record(1, SUCCESS, now=1)

    assert (0, 1) == (figures(circuit, 1).failures, circuit.totals.successes.value)


def test_other_settings_of_an_open_circuit_keep_what_is_shown():
    """The figures at the trip, whatever counts from now on."""
    circuit = opened()
    circuit.reconfigure(BreakerConfig(FailureRate()), now=1)

    assert (OPEN, Figures(1, 1, None)) == (circuit.view.state, figures(circuit, 1))
    succeed(circuit, 30)
    assert Figures(0, 0, 0.0) == figures(circuit, 30)


# ------------------------------------------------------------------------------------------ retiring
def test_a_circuit_retires():
    """Closed, with nothing held: what was under way is late, what comes lets pass and says nothing."""
    circuit = make()
    before = circuit.acquire(now=0)
    assert circuit.retire(now=1)
    after = circuit.acquire(now=2)
    circuit.settle(before, FAILURE, TRANSIENT, now=2)
    circuit.settle(after, FAILURE, TRANSIENT, now=2)

    assert (CLOSED, BreakerMode.RETIRED, 0, True) == (*circuit.view[:2], circuit.closed, after.exempt)
    assert (1, 0, None) == (circuit.totals.late, circuit.totals.failures.value, circuit.refusal(2))


def test_a_retired_circuit_stays_so():
    """Whatever an operator does to it, or a test that starts over."""
    circuit = make()
    circuit.retire()
    before = circuit.view
    circuit.force_open("drill")
    circuit.disable()
    circuit.enable()
    circuit.clear()

    assert (before, False, False) == (circuit.view, circuit.reset(), circuit.retire())


@pytest.mark.parametrize(
    "circuit",
    [opened(), half_open(), probing()[0], forced(), disabled()],
    ids=["open", "half open", "probing", "forced", "disabled"],
)
def test_a_circuit_that_is_not_closed_does_not_retire(circuit):
    """Nothing changes."""
    before = circuit.view

    assert (False, before) == (circuit.retire(now=31), circuit.view)


@pytest.mark.parametrize(
    ("trip", "later"), [(Consecutive(2), None), (Consecutive(2, within=10), 11), (FailureRate(window=9, bucket=3), 20)]
)
def test_a_circuit_that_holds_a_failure_does_not_retire(trip, later):
    """Until it counts no more."""
    circuit = make(trip)
    fail(circuit, 0)
    assert not circuit.retire(now=1)
    if later is None:
        succeed(circuit, 1)

    assert circuit.retire(now=later or 1)


def test_a_shadow_retires():
    """It is closed in its own mode."""
    assert make(shadow=True).retire()


@pytest.mark.parametrize("trip", [Consecutive(1), Consecutive(1, within=9), FailureRate(min_calls=1)])
def test_a_circuit_that_counts_nothing(trip):
    """It stands for many: successes pass, and failures have to be reported to somebody else."""
    circuit = make(trip)
    clean = circuit.clean
    circuit.count_nothing()

    assert (clean, None, False) == (circuit.clean, circuit.strike(1, TRANSIENT, 0), circuit.end_streak(1))
