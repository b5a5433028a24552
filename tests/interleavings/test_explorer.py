"""The explorer itself: that it comes everywhere, leaves out only what changes nothing, and tells what it finds."""

from __future__ import annotations

from contextvars import copy_context
from itertools import count
from math import comb

import pytest
from cooperative import CoopLock, CoopRLock, Found
from scheduler import Race

from resilience import BreakerConfig, Consecutive, FaultKind
from resilience._clock import SYSTEM_CLOCK
from resilience._core.circuit import Circuit
from resilience._core.faults import Fault
from resilience._core.slots import Ticket
from resilience._engine.workers import WorkerPool
from resilience._policies.bulkhead import SharedBulkhead
from resilience.testing import ManualClock

DOWN = Fault(FaultKind.TRANSIENT)


class Box:
    """What the threads of a small scenario share."""

    def __init__(self):
        self.number = 0
        self.list = []


def nothing(results):
    """No promise."""


def adding():
    def make():
        box = Box()

        def add():
            box.number += 1
            box.list.append(box.number)

        return Race((add, add), (box,), nothing)

    return make


# ------------------------------------------------------------------------------------------------ it comes everywhere
def test_all_interleavings_are_run(explore):
    """Two threads of five steps each (begin, read, write, read, append): ten choose five schedules."""
    report = explore(adding(), pruned=False)

    assert comb(10, 5) == report.complete, report


def test_what_was_seen_is_left_out_and_nothing_is_missed(explore):
    """With states that were seen left out there are fewer schedules, and the same outcomes."""
    plain, pruned = explore(adding(), pruned=False), explore(adding())

    assert pruned.complete < plain.complete
    assert plain.outcomes == pruned.outcomes


def test_preemptions_are_counted(explore):
    """Without a preemption two threads run in two orders; with one there is a schedule for each place to stop at."""
    assert 2 == explore(adding(), preemptions=0).complete
    assert 2 + 2 * 4 == explore(adding(), preemptions=1, pruned=False).complete
    assert comb(10, 5) == explore(adding(), preemptions=8, pruned=False).complete


def test_what_nobody_else_touches_is_no_place_to_stop_at(explore):
    """Two threads that share nothing have no interleaving to speak of."""

    def make():
        mine, others = Box(), Box()

        def add(box):
            box.number += 1
            box.list.append(box.number)

        return Race((lambda: add(mine), lambda: add(others)), (mine, others), nothing)

    report = explore(make, pruned=False)

    assert 2 >= report.complete, report
    assert () == report.places


def test_a_conflict_that_only_some_schedules_show(explore):
    """A place that conflicts on a rare path only is found, and explored from the beginning."""

    def make():
        box = Box()
        box.rare = 0

        def one():
            box.number = 1
            box.number = 0
            box.rare += 1

        def other():
            if box.number:
                box.rare += 1
                return 2
            return 1

        def check(results):
            assert box.rare == results[1], "an increment was lost"

        return Race((one, other), (box,), check)

    with pytest.raises(Found, match="an increment was lost"):
        explore(make)


# ------------------------------------------------------------------------------------------------ it leaves out nothing that matters
def strikes():
    def make():
        circuit = Circuit(BreakerConfig(Consecutive(2)))
        circuit.strike(1, DOWN, 0)
        bodies = (lambda: circuit.strike(1, DOWN, 0), lambda: circuit.end_streak(1))
        return Race(bodies, (circuit,), nothing)

    return make


def tickets():
    def make():
        room = SharedBulkhead("room", 1, 10, None)
        ticket, slot = Ticket(), room.take()
        room.join(ticket)
        return Race((lambda: room.give(slot), lambda: room.give_up(ticket)), (room, ticket), nothing)

    return make


def jobs():
    def make():
        pool = WorkerPool("site", 1)
        ended = []

        def call():
            task = (copy_context(), int, (), {})
            return pool.take().perform(task, 1.0, SYSTEM_CLOCK, lambda: lambda: ended.append(1))

        return Race((call,), (pool, ended), nothing, (1,))

    return make


SMALL = {"strikes": strikes, "tickets": tickets, "jobs": jobs}
LARGE = [pytest.param(name, marks=pytest.mark.proof) for name in ("tickets", "jobs")]


@pytest.mark.parametrize("scenario", ["strikes", *LARGE])
def test_stopping_everywhere_finds_no_other_outcome(explore, scenario):
    """Where the places are left out at which nobody else comes, the outcomes are those of stopping at every access."""
    bound = 2 if scenario == "jobs" else None
    few, all_of_them = (explore(SMALL[scenario](), preemptions=bound, everywhere=every) for every in (False, True))

    assert few.states < all_of_them.states
    assert few.outcomes == all_of_them.outcomes
    assert len(few.outcomes) >= 2, few


@pytest.mark.parametrize("scenario", ["strikes", "tickets"])
def test_forgetting_what_was_seen_finds_no_other_outcome(explore, scenario):
    """Where seen states are left out, the outcomes are those of running every schedule to its end."""
    few, all_of_them = explore(SMALL[scenario]()), explore(SMALL[scenario](), pruned=False)

    assert few.complete < all_of_them.complete
    assert few.outcomes == all_of_them.outcomes


# ------------------------------------------------------------------------------------------------ it tells what it finds
def test_a_lost_update_is_found_and_told(explore):
    """The oldest race there is, with the place at which a thread was put aside."""

    def make():
        box = Box()

        def add():
            box.number += 1

        def check(results):
            assert 2 == box.number, "an update was lost"

        return Race((add, add), (box,), check)

    with pytest.raises(
        Found, match=r"(?s)an update was lost.*thread 0 stops at test_explorer.py:\d+ .*add; thread 1 goes on"
    ):
        explore(make)


def test_an_error_in_a_thread_is_found(explore):
    """A body that raises in some schedule is a find."""

    def make():
        box = Box()

        def fill():
            box.list.append(1)

        return Race((fill, lambda: box.list.pop()), (box,), nothing)

    with pytest.raises(Found, match="thread 1 raised IndexError"):
        explore(make)


def locks_in_two_orders(explore, kind):
    def make():
        one, other = (kind(explore.explorer) for _ in range(2))

        def take(first, second):
            with first, second:
                pass

        return Race((lambda: take(one, other), lambda: take(other, one)), (one, other), nothing)

    return make


@pytest.mark.parametrize("kind", [CoopLock, CoopRLock])
def test_a_deadlock_is_found(explore, kind):
    """Two locks taken in two orders: nobody can go on."""
    with pytest.raises(Found, match="deadlock: thread 0, thread 1 wait for ever"):
        explore(locks_in_two_orders(explore, kind))


def test_what_a_lock_protects_is_well(explore):
    """Under a lock, which may be taken again, no update is lost; the place does not even conflict."""

    def make():
        box, lock = Box(), CoopRLock(explore.explorer)

        def add():
            with lock, lock:
                box.number += 1

        def check(results):
            assert 2 == box.number

        return Race((add, add), (box, lock), check)

    report = explore(make)

    assert () == report.places
    assert 2 <= report.complete, report


def test_a_timeout_may_run_out_at_any_moment(explore):
    """A wait with a timeout ends in both ways where it may run out, and in one where it may not."""

    def scenario(patience):
        def make():
            lock = CoopLock(explore.explorer)
            lock.acquire()
            return Race((lambda: lock.acquire(True, 5.0), lock.release), (lock,), nothing, (patience,))

        return make

    assert 1 == len(explore(scenario(0)).outcomes)
    assert 2 == len(explore(scenario(1)).outcomes)


def test_a_lock_that_is_only_tried(explore):
    """Who only tries a lock can tell before from after its release."""

    def make():
        lock = CoopRLock(explore.explorer)

        def hold():
            with lock:
                pass

        def attempt():
            taken = lock.acquire(blocking=False)
            if taken:
                lock.release()
            return taken

        return Race((hold, attempt), (lock,), nothing)

    assert 2 == len(explore(make).outcomes)


def test_a_world_that_is_another_each_time_is_refused(explore):
    """What is watched must not hold a number that goes up from schedule to schedule."""
    numbers = count()

    def make():
        box = Box()
        box.other = next(numbers)

        def add():
            box.number += 1

        return Race((add, add), (box,), nothing)

    with pytest.raises(AssertionError, match="another in each schedule"):
        explore(make, most=1_000)


def test_a_scenario_without_an_end_is_refused(explore):
    """`most` ends an exploration that is larger than anybody meant."""
    with pytest.raises(AssertionError, match="more than 5 schedules"):
        explore(adding(), most=5)


def test_the_order_one_after_the_other_is_asked_for(explore):
    """A reading that no order of the bodies gives is a find; one that some order gives is none."""

    def scenario(write):
        def make():
            box = Box()

            def act():
                write(box)

            return Race((act, act), (box,), nothing, (), lambda results: box.number)

        return make

    def careless(box):
        box.number += 1

    def well(box):
        box.number = 1

    assert explore(scenario(well)).complete >= 2
    with pytest.raises(Found, match="no order one after the other gives 1"):
        explore(scenario(careless))


def test_time_stands_still_for_the_library(explore, quiet_registry):
    """A clock of the test's own is a thread's like everything else."""

    def make():
        clock = ManualClock()
        fired = []
        clock.call_at(None, 5.0, lambda: fired.append(clock.monotonic()))

        def check(results):
            assert 1 == len(fired)

        return Race((lambda: clock.advance(10), lambda: clock.advance(10)), (clock, fired), check)

    report = explore(make)

    assert report.schedules >= 4, report
