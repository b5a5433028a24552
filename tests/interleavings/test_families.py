"""Keys in every interleaving of two threads with one preemption: who wakes a breaker, makes one, makes room."""

from __future__ import annotations

import pytest
from scheduler import Race

from resilience import BreakerConfig, BreakerMode, BulkheadConfig, CircuitState, Consecutive, FaultKind
from resilience._core.events import LateResult, StateChanged
from resilience._core.faults import Fault
from resilience._policies import keyed_breaker

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
DOWN = Fault(FaultKind.TRANSIENT)


class Keyed:
    """A family, one breaker of it that sleeps, and what may be reported to it."""

    def __init__(self, registry, limit, max_keys=2):
        self.family = registry.family(
            "llm", labels="provider", config=BreakerConfig(Consecutive(limit), cooldown=30), max_keys=max_keys
        )
        self.shared = self.family["a"]
        self.outbox = registry.hub.outbox
        self.watched = self.shared, self.family, self.outbox, keyed_breaker._WAKING

    def straight_failure(self):
        """As the compiled wrapper and its lane do."""
        return lambda: self.shared.count_error(1, ConnectionError("down"), DOWN)

    def locked_failure(self):
        permit = self.shared.try_acquire()
        return lambda: self.shared.on_failure(permit, FaultKind.TRANSIENT)

    def success(self):
        """As the compiled wrapper does."""
        return lambda: self.shared.succeed(1)

    def retire(self):
        return lambda: self.shared.retire()

    def moves(self):
        return [event for event in self.outbox if type(event) is StateChanged]

    def late(self):
        return [event for event in self.outbox if type(event) is LateResult]

    def check_shared_circuits(self):
        assert {} == keyed_breaker._WAKING
        for circuit in self.family.shared_circuits:
            totals = circuit.totals
            assert (0, 0, 0) == (totals.successes.value, totals.failures.value, totals.late)


@pytest.fixture
def world(quiet_registry, system_time):
    """`world(limit)`: a fresh one."""
    return lambda *args: Keyed(quiet_registry(), *args)


FAILURES = ["straight_failure", "locked_failure"]


@pytest.mark.parametrize("other", FAILURES)
@pytest.mark.parametrize("one", FAILURES)
def test_two_failures_wake_a_breaker(explore, world, one, other):
    """I5: both are counted by the one circuit that it gets, which they open."""

    def make():
        made = world(2)

        def check(results):
            made.check_shared_circuits()
            assert (OPEN, 2, 1) == (made.shared.state, made.shared.circuit.totals.failures.value, len(made.moves()))

        return Race((getattr(made, one)(), getattr(made, other)()), made.watched, check)

    assert explore(make, everywhere=True, preemptions=1).schedules >= 10


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_wakes_a_breaker_beside_a_success(explore, world, failure):
    """Both are counted, and a streak that the success has seen is ended."""

    def make():
        made = world(2)

        def check(results):
            made.check_shared_circuits()
            totals = made.shared.circuit.totals
            assert (CLOSED, 1, 1) == (made.shared.state, totals.failures.value, totals.successes.value)
            assert made.shared.successes is totals.successes

        return Race(
            (getattr(made, failure)(), made.success()),
            made.watched,
            check,
            (),
            lambda results: made.shared.status().failure_count,
        )

    report = explore(make, everywhere=True, preemptions=1)

    assert report.schedules >= 4
    assert 2 <= len(report.outcomes)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_against_making_room(explore, world, failure):
    """Either it is held, and the breaker stays; or it is late, and opens nothing."""

    def make():
        made = world(1)

        def check(results):
            made.check_shared_circuits()
            totals = made.shared.circuit.totals
            retired = made.shared.status().mode is BreakerMode.RETIRED
            assert retired is results[1]
            assert (
                (CLOSED, 0, 1) if retired else (OPEN, 1, 0) == (made.shared.state, totals.failures.value, totals.late)
            )
            assert len(made.moves()) == (0 if retired else 1)

        return Race(
            (getattr(made, failure)(), made.retire()), made.watched, check, (), lambda results: made.shared.retired
        )

    report = explore(make, everywhere=True, preemptions=1)

    assert report.schedules >= 4
    assert 2 <= len(report.outcomes)


def test_two_threads_ask_for_a_new_key(explore, world):
    """They get one breaker, which takes one place."""

    def make():
        made = world(1, 3)

        def ask():
            return made.family["b"]

        def check(results):
            assert results[0] is results[1] is made.family["b"]
            assert (2, 2) == (len(made.family), made.family._places.held)

        return Race((ask, ask), made.watched, check)

    assert explore(make, everywhere=True, preemptions=1).schedules >= 4


def test_two_threads_ask_for_the_last_place(explore, world):
    """One gets it, the other shares `__other__`."""

    def make():
        made = world(1)
        made.shared.force_open("stays")

        def ask(key):
            return lambda: made.family[key].key

        def check(results):
            assert 1 == results.count(("__other__",))
            assert (2, 2) == (len(made.family), made.family._places.held)

        return Race((ask("b"), ask("c")), made.watched, check)

    assert explore(make, everywhere=True, preemptions=1).schedules >= 4


def test_two_threads_come_upon_a_retired_breaker(explore, world):
    """It is taken out once, and one takes its place."""

    def make():
        made = world(1)
        made.shared.retire()

        def ask():
            return made.family["a"]

        def check(results):
            live = made.family["a"]
            assert not live.retired
            # Who had no turn has made do with the retired one.
            assert {live, made.shared} >= set(results)
            assert (1, 1) == (len(made.family), made.family._places.held)

        return Race((ask, ask), made.watched, check)

    assert explore(make, everywhere=True, preemptions=1).schedules >= 4


def test_a_slot_that_is_taken_against_making_room(explore, quiet_registry, system_time):
    """I8: whoever keeps a slot sees a bulkhead that stays."""

    def make():
        rooms = quiet_registry().bulkhead_family("room", BulkheadConfig(1), labels="provider", max_keys=2)
        room = rooms["a"]

        def take():
            slot = room.take()
            if room.leaving:
                room.give(slot)
                return False
            return True

        def check(results):
            assert [True, True] != results
            assert (results[0], results[1]) == (room.in_flight == 1, room.retired)
            assert room.leaving is room.retired

        return Race((take, room.retire), (room, rooms), check, (), lambda results: tuple(results))

    report = explore(make, everywhere=True, preemptions=1)

    assert report.schedules >= 4
    assert 2 <= len(report.outcomes)
