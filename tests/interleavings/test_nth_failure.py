"""Failures and successes of two and three threads, with the lock and without it: none is lost, and one opens."""

from __future__ import annotations

import pytest
from cooperative import Found
from scheduler import Race

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultFlag,
    FaultKind,
    breaker,
)
from resilience._core.circuit import Circuit
from resilience._core.events import LateResult, StateChanged
from resilience._core.faults import Fault
from resilience._core.trip import Struck

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
TRANSIENT = FaultKind.TRANSIENT
DOWN = Fault(TRANSIENT)


class World:
    """A closed breaker that is left to itself, with some failures held, and what may be reported to it."""

    def __init__(self, registry, limit, held=0, trip=None):
        config = BreakerConfig(trip or Consecutive(limit), cooldown=30)
        self.registry, self.config, self.limit = registry, config, limit
        self.shared = registry.breaker("api", config)
        self.circuit = self.shared.circuit
        self.outbox = registry.hub.outbox
        for _ in range(held):
            self.shared.on_failure(self.shared.try_acquire(), TRANSIENT)

    @property
    def watched(self):
        return self.shared, self.outbox

    # What a caller that was let pass in the first episode may report.
    def straight_failure(self):
        """As the compiled wrapper and its lane do: without the lock unless it opens."""
        episode = self.circuit.episode

        def fail():
            self.shared.count_error(episode, ConnectionError("down"), DOWN)

        return fail

    def locked_failure(self):
        """As somebody with a permit does."""
        permit = self.shared.try_acquire()

        def fail():
            self.shared.on_failure(permit, TRANSIENT)

        return fail

    def straight_success(self):
        """As the compiled wrapper does."""
        episode = self.circuit.episode

        def succeed():
            self.shared.succeed(episode)

        return succeed

    def locked_success(self):
        permit = self.shared.try_acquire()

        def succeed():
            self.shared.on_success(permit)

        return succeed

    def answered(self):
        permit = self.shared.try_acquire()

        def answer():
            self.shared.on_failure(permit, Fault(FaultKind.DOWNSTREAM, status=404, flags={FaultFlag.CLIENT_FAULT}))

        return answer

    def reset_after_opening(self):
        """An operator who opens the circuit and closes it again: another episode."""

        def act():
            self.shared.force_open("test")
            self.shared.reset()

        return act

    def opens_exactly_once(self, reports):
        """I5: with at least as many failures as it takes the circuit is open, by one transition."""
        moves = [event for event in self.outbox if type(event) is StateChanged]
        late = [event for event in self.outbox if type(event) is LateResult]
        totals = self.circuit.totals
        assert len(moves) <= 1, f"opened {len(moves)} times"
        assert (OPEN if moves else CLOSED) is self.circuit.view.state
        assert (0 if moves else 1) == self.circuit.closed
        # Each report is counted once: as what it is, or as late.
        assert len(late) == totals.late
        counted = totals.failures.value + totals.successes.value + totals.answered
        assert reports == counted + totals.late, f"{reports} reports: {counted} counted and {totals.late} late"
        if not moves:
            assert 0 == totals.late
            held = self.circuit.streak.strikes
            assert held.value == 0 or not held.clean, "a success would skip a streak that is there to be ended"

    def told(self):
        circuit = self.circuit
        view = circuit.view
        figures = view.held.figures(0.0, 0)
        moves = tuple(
            (event.before, event.after, event.episode) for event in self.outbox if type(event) is StateChanged
        )
        return view.state, view.episode, figures.failures, circuit.closed, circuit.clean, moves, view.probes


@pytest.fixture
def world(quiet_registry, system_time):
    """`world(limit, held)`: a fresh one."""
    return lambda *args, **kwargs: World(quiet_registry(), *args, **kwargs)


def reports(world, limit, held, kinds, **options):
    """Each thread makes one report; what is seen afterwards is what some order of them gives."""

    def make():
        made = world(limit, held, **options)
        bodies = tuple(getattr(made, kind)() for kind in kinds)

        def check(results):
            made.opens_exactly_once(held + len(kinds))

        return Race(bodies, made.watched, check, (), lambda results: made.told())

    return make


FAILURES = ["straight_failure", "locked_failure"]
PAIRS = [("straight_failure", "straight_failure"), ("straight_failure", "locked_failure"), ("locked_failure",) * 2]
ENDS = ["straight_success", "locked_success", "answered"]


# ------------------------------------------------------------------------------------------------ two threads, in full
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_last_two_failures(explore, world, one, other):
    """I5: one failure is held, three open, two come at once, in every interleaving: opened by one transition."""

    report = explore(reports(world, 3, 1, (one, other)))

    assert report.schedules >= 10, report


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_failures_of_which_one_opens(explore, world, one, other):
    """I5, I6: the first of two failures at once opens, the other is late: exactly one transition."""
    report = explore(reports(world, 2, 1, (one, other)))

    assert report.schedules >= 10, report


@pytest.mark.parametrize("success", ENDS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_against_a_success(explore, world, failure, success):
    """I5: the streak is ended before the failure or after it, and a figure never says otherwise."""
    report = explore(reports(world, 3, 1, (failure, success)))

    assert report.schedules >= 4, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.parametrize("success", [*ENDS[:2], pytest.param(ENDS[2], marks=pytest.mark.proof)])
@pytest.mark.parametrize("failure", FAILURES)
def test_the_failure_that_opens_against_a_success(explore, world, failure, success):
    """I5: the success ends the streak in time, or the circuit opens and the success is late."""
    report = explore(reports(world, 2, 1, (failure, success)))

    assert report.schedules >= 10, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_against_a_new_episode(explore, world, failure):
    """I6: a failure of before a reset reaches no later episode: it is held in the first one, or late."""

    def make():
        made = world(2, 0)
        bodies = (getattr(made, failure)(), made.reset_after_opening())

        def check(results):
            circuit = made.circuit
            assert (CLOSED, 3, 3) == (circuit.view.state, circuit.view.episode, circuit.closed)
            assert 0 == circuit.streak.strikes.value, "a failure of an earlier episode is held"
            assert circuit.totals.failures.value + circuit.totals.late >= 1

        return Race(bodies, made.watched, check)

    report = explore(make)

    assert report.schedules >= 10, report


@pytest.mark.parametrize("other", ["locked_failure", "locked_success"])
def test_a_window_counts_each_result(explore, world, other):
    """I5: the same for a rate: two results that both reach the minimum, in every interleaving."""

    def make():
        made = world(3, 1, trip=FailureRate(rate=0.5, window=30, bucket=3, min_calls=3))
        bodies = (made.locked_failure(), getattr(made, other)())

        def check(results):
            moves = [event for event in made.outbox if type(event) is StateChanged]
            assert 1 == len(moves), f"opened {len(moves)} times"
            totals = made.circuit.totals
            assert (3, 0) == (totals.failures.value + totals.successes.value, totals.late)
            assert 0 == made.circuit.closed_windowed == made.circuit.closed

        return Race(bodies, made.watched, check, (), lambda results: made.told()[:3])

    report = explore(make)

    assert report.schedules >= 5, report


# ------------------------------------------------------------------------------------------------ three threads
THREE = [
    ("straight_failure", "straight_failure", "straight_failure"),
    ("straight_failure", "locked_failure", "straight_failure"),
    ("straight_failure", "locked_failure", "straight_success"),
    ("straight_failure", "straight_failure", "locked_success"),
]


@pytest.mark.parametrize("kinds", [*(pytest.param(kinds, marks=pytest.mark.proof) for kinds in THREE[:2]), THREE[2]])
def test_three_reports(explore, world, kinds):
    """I5: three threads, at most one preemption: exactly one transition if any, figures of one of the six orders."""
    report = explore(reports(world, 3, 1, kinds), preemptions=1)

    assert report.schedules >= 30, report


@pytest.mark.proof
@pytest.mark.parametrize(("kinds", "held"), list(zip(THREE, (1, 0, 0, 1), strict=True)))
def test_three_reports_in_full(explore, world, kinds, held):
    """I5: three threads, in every interleaving."""
    report = explore(reports(world, 3, held, kinds))

    assert report.schedules >= 100, report


# ------------------------------------------------------------------------------------------------ the compiled wrapper
def calls(world, fails, limit, held):
    """Each thread calls one compiled wrapper, whose function fails for some of them."""

    def make():
        made = world(limit, held)
        sent = []

        @breaker("api", made.config, registry=made.registry)
        def send(fail):
            sent.append(fail)
            if fail:
                raise ConnectionError("down")

        def calling(fail):
            def call():
                try:
                    send(fail)
                except CircuitOpenError:
                    return "refused"
                except ConnectionError:
                    return "failed"
                return "ok"

            return call

        def check(results):
            assert len(sent) == len(results) - results.count("refused")
            made.opens_exactly_once(held + len(sent))
            if all(fails):
                assert (OPEN, limit, False) == (
                    made.circuit.view.state,
                    made.circuit.view.held.failures,
                    bool(made.circuit.closed),
                )

        return Race(tuple(calling(fail) for fail in fails), (*made.watched, sent), check)

    return make


def test_two_calls_that_fail(explore, world):
    """I5: two calls through a compiled wrapper make the last two failures: it opens, once; at most one preemption."""
    report = explore(calls(world, (True, True), 3, 1), preemptions=1)

    assert report.schedules >= 20, report


@pytest.mark.proof
def test_two_calls_that_fail_in_full(explore, world):
    """I5: the same in every interleaving."""
    report = explore(calls(world, (True, True), 3, 1))

    assert report.schedules >= 50, report


def test_two_calls_of_which_the_first_opens(explore, world):
    """I5: the other call is refused, or was let pass before and is late; at most one preemption."""
    report = explore(calls(world, (True, True), 2, 1), preemptions=1)

    assert report.schedules >= 30, report
    assert len(report.outcomes) >= 3, report


@pytest.mark.proof
@pytest.mark.parametrize("fails", [(True, True), (True, False)])
def test_two_calls_of_which_the_first_opens_in_full(explore, world, fails):
    """I5: the same in every interleaving, and with one that succeeds."""
    report = explore(calls(world, fails, 2, 1))

    assert report.schedules >= 200, report
    assert len(report.outcomes) >= 3, report


@pytest.mark.proof
@pytest.mark.parametrize("fails", [(True, True, True), (True, True, False)])
def test_three_calls(explore, world, fails):
    """I5: three calls through a compiled wrapper, at most one preemption."""
    report = explore(calls(world, fails, 3, 1), preemptions=1)

    assert report.schedules >= 100, report


# ------------------------------------------------------------------------------------------------ faults that must be found
class NaiveStrikes:
    """The failures of a streak, counted as an int."""

    def __init__(self, clean, carried=0):
        self.clean, self.value, self.carried, self.sealed = clean, 0, 0, None


def naive_strike(self, episode, fault, time_ns):
    limit, strikes = self.streak.limit, self.streak.strikes
    if self.closed != episode or not limit:
        return None
    next(self.totals.failures.ticks)
    strikes.value += 1
    strikes.clean = 0
    return Struck(self.streak, strikes, limit) if strikes.value >= limit else False


def test_counting_with_an_int_is_found(explore, world, monkeypatch):
    """The explorer finds the failure that is lost between the reading and the writing of an int."""
    monkeypatch.setattr("resilience._core.trip.Strikes", NaiveStrikes)
    monkeypatch.setattr(Circuit, "strike", naive_strike)

    with pytest.raises(Found, match="no order one after the other gives"):
        explore(reports(world, 5, 0, ("straight_failure", "straight_failure")))


def test_opening_without_asking_for_the_episode_is_found(explore, world, monkeypatch):
    """The explorer finds the second transition where the strike that opens does not look whether it was beaten to it."""

    strike_out = Circuit.strike_out

    def careless(self, episode, *args):
        self._state = CLOSED
        strike_out(self, self.episode, *args)

    monkeypatch.setattr(Circuit, "strike_out", careless)

    with pytest.raises(Found, match="opened 2 times"):
        explore(reports(world, 2, 1, ("straight_failure", "straight_failure")))


def test_clean_said_before_the_count_is_found(explore, world, monkeypatch):
    """The explorer finds a streak that no success would end where `clean` is put away before the strike is counted."""

    def strike(self, episode, fault, time_ns):
        limit, strikes = self.streak.limit, self.streak.strikes
        if self.closed != episode or not limit:
            return None
        next(self.totals.failures.ticks)
        number = next(strikes.ticks)
        # Of the streak of now, which may be another one than was struck.
        self.streak.strikes.clean = 0
        return Struck(self.streak, strikes, number) if number >= limit else False

    def end_streak(self, episode):
        # In place, as long as nobody looks.
        limit, strikes = self.streak.limit, self.streak.strikes
        if self.closed != episode or not limit:
            return False
        next(self.totals.successes.ticks)
        strikes.ticks = type(strikes)(0).ticks
        strikes.clean = episode
        return True

    monkeypatch.setattr(Circuit, "strike", strike)
    monkeypatch.setattr(Circuit, "end_streak", end_streak)

    with pytest.raises(Found):
        explore(reports(world, 3, 1, ("straight_failure", "straight_success")))


def test_a_late_strike_that_looks_too_early_is_found(explore, world, monkeypatch):
    """The explorer finds the failure that reaches a later episode where the episode is looked at before the strikes."""

    def strike(self, episode, fault, time_ns):
        if self.closed != episode:
            return None
        limit, strikes = self.streak.limit, self.streak.strikes
        if not limit:
            return None
        next(self.totals.failures.ticks)
        number = next(strikes.ticks)
        strikes.clean = 0
        return Struck(self.streak, strikes, number) if number >= limit else False

    monkeypatch.setattr(Circuit, "strike", strike)

    def make():
        made = world(2, 0)
        bodies = (made.straight_failure(), made.reset_after_opening())

        def check(results):
            assert 0 == made.circuit.streak.strikes.value, "a failure of an earlier episode is held"

        return Race(bodies, made.watched, check)

    with pytest.raises(Found, match="a failure of an earlier episode is held"):
        explore(make)
