"""The bulkhead's hand-over: giving back against standing in line, waiting, giving up and taking."""

from __future__ import annotations

import pytest
from cooperative import Found
from scheduler import Race

from resilience import BulkheadFullError, bulkhead
from resilience._core.slots import Slots, Stock, Ticket
from resilience._engine.world_sync import SyncWorld
from resilience._policies.bulkhead import SharedBulkhead, _slot_of
from resilience._turns import Turn
from resilience.testing import ManualClock


class World:
    """A bulkhead, its slots taken as far as a scenario says, and the threads' acts as bodies."""

    def __init__(self, registry, limit=1, longest=10):
        self.registry = registry
        self.shared = SharedBulkhead("room", limit, longest, registry)
        self.slots = self.shared.slots
        self.granted = []

    @property
    def watched(self):
        return self.shared, self.granted

    def take(self):
        slot = self.shared.take()
        assert slot is not None
        return slot

    def stand_in_line(self):
        """A ticket in line, whose grant is noted."""
        ticket = Ticket()
        number = len(self.slots.queue)

        def wake():
            self.granted.append(number)
            return True

        ticket.wake = wake
        assert self.shared.join(ticket)
        return ticket

    def giving(self, slot):
        def give():
            self.shared.give(slot)

        return give

    def joining(self):
        """As `SyncWorld.wait` does up to the point where it would sleep: the ticket it has then."""

        def join():
            ticket = Ticket()
            assert self.shared.join(ticket)
            self.shared.hand_over()
            return ticket

        return join

    def giving_up(self, ticket):
        def give_up():
            return self.shared.give_up(ticket)

        return give_up

    def taking(self):
        return self.shared.take

    def balanced(self, held):
        """I8: no slot is lost or doubled: so many are held, all others lie free, each once."""
        free = list(self.slots.free)
        assert held == self.slots.held, f"{self.slots.held} slots held, {held} granted"
        assert len(free) == len(set(free)) == self.slots.limit - held

    def nobody_is_forgotten(self):
        """A waiter that can be granted is granted."""
        assert not (self.slots.queue and self.slots.free), "a free slot, and somebody in line"


@pytest.fixture
def world(quiet_registry):
    """`world(limit)`: a fresh one."""
    return lambda *args, **kwargs: World(quiet_registry(ManualClock()), *args, **kwargs)


# ------------------------------------------------------------------------------------------------ the acts one by one
def joining(world):
    """Two who want the last place in line."""

    def make():
        made = world(1, longest=1)
        made.take()

        def join():
            return made.shared.join(Ticket())

        def check(results):
            assert [False, True] == sorted(results)
            assert 1 == made.shared.waiting

        return Race((join, join), made.watched, check)

    return make


def test_one_of_two_gets_the_last_place(explore, world):
    """The line is exactly as long as it may be."""
    report = explore(joining(world))

    assert 2 == len(report.outcomes), report


def giving_against_joining(world):
    def make():
        made = world()
        bodies = (made.giving(made.take()), made.joining())

        def check(results):
            assert 0 == results[1].slot, "a lost wake-up"
            made.nobody_is_forgotten()
            made.balanced(held=1)

        return Race(bodies, made.watched, check)

    return make


def test_giving_back_against_standing_in_line(explore, world):
    """No lost wake-up: whoever is in line when the slot has come back has it, in every interleaving."""
    report = explore(giving_against_joining(world))

    assert report.schedules >= 50, report


def giving_against_giving_up(world):
    def make():
        made = world()
        slot = made.take()
        ticket = made.stand_in_line()

        bodies = (made.giving(slot), made.giving_up(ticket))

        def check(results):
            gave_up = results[1]
            # Granted, or out of line with the slot free again: one of the two.
            assert gave_up is not bool(made.granted)
            assert not made.slots.queue
            made.balanced(held=0 if gave_up else 1)

        return Race(bodies, (*made.watched, ticket), check)

    return make


def test_giving_back_against_giving_up(explore, world):
    """I8: a waiter that gives up as the slot comes back has it, or leaves it free."""
    report = explore(giving_against_giving_up(world))

    assert report.schedules >= 20, report
    assert len(report.outcomes) >= 2, report


def giving_against_leaving(world):
    def make():
        made = world()
        slot = made.take()
        ticket = made.stand_in_line()

        def leave():
            if not made.shared.give_up(ticket):
                made.shared.give(_slot_of(ticket))

        bodies = (made.giving(slot), leave)
        return Race(bodies, (*made.watched, ticket), lambda results: made.balanced(held=0))

    return make


def test_whoever_is_granted_a_slot_as_it_gives_up_knows_which(explore, world):
    """Section 7: an expired waiter never loses a slot: one that is too late to give up has its slot to give back."""
    report = explore(giving_against_leaving(world))

    assert report.schedules >= 20, report


def test_giving_back_against_the_first_in_line_giving_up(explore, world):
    """A waiter that gives up never blocks the slot: the next in line gets it, or the first one did."""

    def make():
        made = world()
        slot = made.take()
        first, second = made.stand_in_line(), made.stand_in_line()
        bodies = (made.giving(slot), made.giving_up(first))

        def check(results):
            assert ([1] if results[1] else [0]) == made.granted
            made.nobody_is_forgotten()
            made.balanced(held=1)

        return Race(bodies, (*made.watched, first, second), check)

    report = explore(make)

    assert report.schedules >= 20, report
    assert len(report.outcomes) >= 2, report


def test_giving_back_against_taking(explore, world):
    """Nobody overtakes: with somebody in line, a slot that comes back is not for a newcomer."""

    def make():
        made = world()
        slot = made.take()
        ticket = made.stand_in_line()
        bodies = (made.giving(slot), made.taking())

        def check(results):
            # A newcomer that looked at the line when it had just been served finds no slot either.
            assert [0] == made.granted
            assert results[1] is None
            made.balanced(held=1)

        return Race(bodies, (*made.watched, ticket), check)

    report = explore(make)

    assert report.schedules >= 20, report


def givers_and_waiters(world):
    def make():
        made = world(2)
        slots = made.take(), made.take()
        made.stand_in_line(), made.stand_in_line()
        bodies = (made.giving(slots[0]), made.giving(slots[1]))

        def check(results):
            assert [0, 1] == made.granted, f"granted in the order {made.granted}"
            made.nobody_is_forgotten()
            made.balanced(held=2)

        return Race(bodies, made.watched, check)

    return make


def test_two_slots_come_back_to_two_waiters(explore, world):
    """Strict first in, first out, and none of the two slots is lost, in every interleaving."""
    report = explore(givers_and_waiters(world))

    assert report.schedules >= 50, report


def test_a_slot_comes_back_to_one_whose_loop_is_gone(explore, world):
    """A waiter that can't be reached any more costs nobody the slot."""

    def make():
        made = world()
        slot = made.take()
        gone, waiting = made.stand_in_line(), made.stand_in_line()
        gone.wake = lambda: False
        bodies = (made.giving(slot), made.joining())

        def check(results):
            assert [1] == made.granted
            assert (1, None) == (len(made.slots.queue), results[1].slot)
            made.balanced(held=1)

        return Race(bodies, (*made.watched, gone, waiting), check)

    report = explore(make)

    assert report.schedules >= 50, report


def test_two_join_a_line_that_has_room_for_one(explore, world):
    """Section 7: the line is never longer than `max_waiting`."""

    def make():
        made = world(1, longest=1)
        made.take()

        def join():
            return made.shared.join(Ticket())

        def check(results):
            assert [False, True] == sorted(results)
            assert 1 == made.shared.waiting

        return Race((join, join), made.watched, check)

    report = explore(make)

    assert report.schedules >= 4, report


THREE = {
    "give, join, give up": lambda made, slot, ticket: (made.giving(slot), made.joining(), made.giving_up(ticket)),
    "give, join, take": lambda made, slot, ticket: (made.giving(slot), made.joining(), made.taking()),
    "give, give up, take": lambda made, slot, ticket: (made.giving(slot), made.giving_up(ticket), made.taking()),
}


def three_acts(world, acts):
    def make():
        made = world()
        slot = made.take()
        ticket = made.stand_in_line()
        bodies = THREE[acts](made, slot, ticket)

        def check(results):
            made.nobody_is_forgotten()
            joined = [result for result in results if isinstance(result, Ticket)]
            taken = sum(result == 0 and result is not False for result in results)
            granted = len(made.granted) + sum(other.slot is not None for other in joined) + taken
            assert granted <= 1, "one slot for two"
            made.balanced(held=granted)

        return Race(bodies, (*made.watched, ticket), check)

    return make


@pytest.mark.parametrize("acts", THREE)
def test_three_acts(explore, world, acts):
    """Three threads, at most one preemption: no lost wake-up, no slot lost or doubled."""
    report = explore(three_acts(world, acts), preemptions=1)

    assert report.schedules >= 50, report


@pytest.mark.proof
@pytest.mark.parametrize("acts", THREE)
def test_three_acts_in_full(explore, world, acts):
    """Three threads, in every interleaving: no lost wake-up, no slot lost or doubled."""
    report = explore(three_acts(world, acts))

    assert report.schedules >= 200, report


# ------------------------------------------------------------------------------------------------ whole calls
def whole_calls(registry, count, limit, *, wait=1000.0, expires=False):
    """Threads that call through a compiled wrapper and wait in line; another lets their time run out, where asked."""

    def make():
        clock = ManualClock()
        made = registry(clock)
        inside, most = [], []

        @bulkhead("room", max_in_flight=limit, wait=wait, registry=made)
        def work(number):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            return number

        def calling(number):
            def call():
                try:
                    return work(number)
                except BulkheadFullError:
                    return "full"

            return call

        def expire():
            clock.advance(wait)

        shared = made.bulkhead("room")

        def check(results):
            assert max(most) <= limit, f"{max(most)} calls in flight"
            for number in range(count):
                assert results[number] in ((number, "full") if expires else (number,))
            assert not shared.slots.queue
            assert 0 == shared.in_flight
            assert len(set(shared.slots.free)) == len(shared.slots.free) == limit

        bodies = tuple(calling(number) for number in range(count)) + ((expire,) if expires else ())
        return Race(bodies, (shared, inside, most, clock), check)

    return make


def test_two_calls_share_one_slot(explore, quiet_registry, system_time):
    """Two calls, one slot, and time stands still: both run, one after the other; a lost wake-up would be a deadlock."""
    report = explore(whole_calls(quiet_registry, 2, 1), preemptions=2)

    assert report.schedules >= 50, report


@pytest.mark.proof
def test_two_calls_share_one_slot_in_full(explore, quiet_registry):
    """The same with at most three preemptions (all interleavings are 11,201 schedules, and hold)."""
    report = explore(whole_calls(quiet_registry, 2, 1), preemptions=3)

    assert report.schedules >= 1_000, report


@pytest.mark.proof
def test_two_calls_of_which_one_may_run_out_of_time(explore, quiet_registry):
    """The same while the time of whoever waits runs out, at most two preemptions: the slot is never lost."""
    report = explore(whole_calls(quiet_registry, 2, 1, expires=True), preemptions=2)

    assert report.schedules >= 1_000, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.proof
@pytest.mark.parametrize("limit", [1, 2])
def test_three_calls(explore, quiet_registry, limit):
    """Three calls, at most one preemption: never more in flight than there are slots, and all come to run."""
    report = explore(whole_calls(quiet_registry, 3, limit), preemptions=1)

    assert report.schedules >= 100, report


# ------------------------------------------------------------------------------------------------ faults that must be found
def test_looking_at_the_line_before_giving_back_is_found(explore, world, monkeypatch):
    """The explorer finds the lost wake-up where a giver looks at the line first."""

    def give(self, slot):
        if self.slots.queue:
            self.slots.free.append(slot)
            self.hand_over()
        else:
            self.slots.free.append(slot)

    monkeypatch.setattr(SharedBulkhead, "give", give)

    with pytest.raises(Found, match="a lost wake-up"):
        explore(giving_against_joining(world))


def test_looking_for_a_slot_before_standing_in_line_is_found(explore, quiet_registry, monkeypatch):
    """The explorer finds the deadlock where a waiter does not look once more after it has stood in line."""
    wait = SyncWorld.wait

    async def careless(self, ticket, seconds, ready):
        await wait(self, ticket, seconds, lambda: None)

    monkeypatch.setattr(SyncWorld, "wait", careless)

    with pytest.raises(Found, match="deadlock"):
        explore(whole_calls(quiet_registry, 2, 1), preemptions=2)


def test_matching_by_two_at_once_is_found(explore, world, monkeypatch):
    """The explorer finds that the line is served out of order where two threads match at once."""

    def take(self, work):
        work()
        return True

    monkeypatch.setattr(Turn, "take", take)

    with pytest.raises(Found, match=r"granted in the order \[1, 0\]"):
        explore(givers_and_waiters(world))


def test_not_looking_again_after_the_turn_is_found(explore, world, monkeypatch):
    """The explorer finds the waiter that is forgotten where nobody looks again after matching."""

    def hand_over(self):
        self._matching.take(self._match)

    monkeypatch.setattr(SharedBulkhead, "hand_over", hand_over)

    with pytest.raises(Found):
        explore(givers_and_waiters(world))


def test_a_ticket_without_a_claim_is_found(explore, world, monkeypatch):
    """The explorer finds the slot that is lost where granting and giving up only look at the ticket."""

    def win(self):
        if not self._claim:
            return False
        self._claim.clear()
        return True

    monkeypatch.setattr(Ticket, "win", win)

    with pytest.raises(Found):
        explore(giving_against_giving_up(world))


def test_a_slot_noted_after_the_claim_is_found(explore, world, monkeypatch):
    """The explorer finds the slot that is lost where a ticket is won first and its slot noted afterwards, as it once was."""

    def match(self):
        while self.queue:
            slot = Stock.take(self)
            if slot is None:
                return None
            ticket = self.queue.popleft()
            if ticket.win():
                ticket.slot = ticket.offered = slot
                return ticket
            self.free.append(slot)
        return None

    monkeypatch.setattr(Slots, "match", match)

    with pytest.raises(Found, match="a granted ticket has its slot"):
        explore(giving_against_leaving(world))


def test_places_that_are_counted_first_are_found(explore, world, monkeypatch):
    """The explorer finds the line that grows too long where its length is looked at and a ticket then added."""

    def join(self, ticket):
        if len(self.queue) >= self.places.limit:
            return False
        self.queue.append(ticket)
        return True

    monkeypatch.setattr(Slots, "join", join)

    with pytest.raises(Found):
        explore(joining(world))


def test_slots_counted_with_an_int_are_found(explore, world, monkeypatch):
    """The explorer finds the slot that is given to two where a free one is looked at and then taken."""

    def take(self):
        if not self.free:
            return None
        slot = self.free[-1]
        del self.free[-1]
        return slot

    monkeypatch.setattr(Stock, "take", take)

    def make():
        made = world(2)
        bodies = (made.taking(), made.taking())

        def check(results):
            assert 2 == len(set(results)), f"one slot for two: {results}"

        return Race(bodies, made.watched, check)

    with pytest.raises(Found):
        explore(make)
