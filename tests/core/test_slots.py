"""Bulkhead slots: never more than the limit, strictly first in first out."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.slots import Slots, Ticket


def full(limit=1, longest=10):
    """All slots taken."""
    slots = Slots(limit, longest)
    for _ in range(limit):
        slots.take()
    return slots


def line(slots, number):
    tickets = [Ticket() for _ in range(number)]
    for ticket in tickets:
        assert slots.join(ticket)
    return tickets


# ---------------------------------------------------------------------------------------------------- tickets
def test_a_ticket_is_won_once():
    """The hand that grants and the waiter that gives up can't both win."""
    ticket = Ticket()

    assert [True, False, False] == [ticket.win() for _ in range(3)]


def test_a_fresh_ticket():
    """No slot yet, none offered, and nobody to wake."""
    ticket = Ticket()

    assert (None, None, True) == (ticket.slot, ticket.offered, ticket.wake())


# ---------------------------------------------------------------------------------------------------- taking
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_as_many_as_the_limit(limit):
    """Each slot once, then none."""
    slots = Slots(limit, 0)
    taken = [slots.take() for _ in range(limit + 1)]

    assert taken[-1] is None
    assert list(range(limit)) == sorted(taken[:-1])


@pytest.mark.parametrize("limit", [64, 1_024, 1_025, 3_000])
def test_a_generous_limit(limit):
    """Slots are made when they are needed, and never one too many, also after some came back."""
    slots = Slots(limit, 0)
    taken = [slots.take() for _ in range(limit)]
    slots.free.append(taken.pop())
    taken += [slots.take() for _ in range(3)]

    assert [*range(limit)] == sorted(slot for slot in taken if slot is not None)
    assert [None, None] == taken[-2:]


def test_a_limit_of_any_size():
    """I20: a bulkhead that bounds nothing costs nothing."""
    slots = Slots(10**30, 0)

    assert 100 == len({slots.take() for _ in range(100)})
    assert 100 == slots.held


def test_a_line_for_slots_that_were_never_made():
    """Whoever stands in line gets one of those too."""
    slots = Slots(3_000, 10)
    (ticket,) = line(slots, 1)
    slots.free.clear()

    assert ticket is slots.match()
    assert ticket.slot is not None


@pytest.mark.parametrize("limit", [1, 3, 2_000])
def test_held(limit):
    """How many somebody holds now, however often one was refused."""
    slots = Slots(limit, 0)
    assert 0 == slots.held
    slot = slots.take()
    assert 1 == slots.held
    for _ in range(limit + 3):
        slots.take()
    assert limit == slots.held
    slots.free.append(slot)
    assert limit - 1 == slots.held
    slots.refill()

    assert 0 == slots.held


def test_given_back_is_taken_again():
    """A slot comes round."""
    slots = full()
    slots.free.append(0)

    assert 0 == slots.take()


def test_nobody_in_line_is_overtaken():
    """A free slot belongs to the first in line."""
    slots = full()
    line(slots, 1)
    slots.free.append(0)

    assert slots.take() is None


# ---------------------------------------------------------------------------------------------------- the line
@pytest.mark.parametrize("longest", [0, 1, 3])
def test_the_line_has_an_end(longest):
    """Beyond it a caller is refused at once."""
    slots = full(longest=longest)
    line(slots, longest)

    assert not slots.join(Ticket())


def test_first_in_first_out():
    """Slots go to the tickets in the order they came."""
    slots = full()
    tickets = line(slots, 3)
    granted = []
    for _ in range(3):
        slots.free.append(0)
        granted.append(slots.match())

    assert tickets == granted
    assert slots.match() is None


def test_the_slot_is_on_the_ticket():
    """Whoever was granted a slot knows which to give back."""
    slots = full(limit=2)
    (ticket,) = line(slots, 1)
    slots.free.append(1)
    slots.match()

    assert 1 == ticket.slot


def test_no_match_without_a_slot():
    """The line stays as it is."""
    slots = full()
    tickets = line(slots, 2)

    assert slots.match() is None
    assert tickets == list(slots.queue)


def test_no_match_without_a_line():
    """The slot stays free."""
    slots = Slots(2, 10)

    assert slots.match() is None
    assert 2 == len(slots.free)


def test_who_gave_up_is_passed_over():
    """I8: the slot goes to the next who still wants one, and is not lost."""
    slots = full()
    first, second = line(slots, 2)
    assert first.win()
    slots.free.append(0)

    assert second is slots.match()
    assert (None, 0) == (first.slot, second.slot)


def test_all_gave_up():
    """I8: the slot is free again."""
    slots = full()
    for ticket in line(slots, 3):
        ticket.win()
    slots.free.append(0)

    assert slots.match() is None
    assert [0] == list(slots.free)
    assert not slots.queue


def test_granted_before_giving_up():
    """A waiter that comes too late to give up has a slot, and must give it back."""
    slots = full()
    (ticket,) = line(slots, 1)
    slots.free.append(0)
    slots.match()

    assert not ticket.win()
    assert 0 == ticket.slot


def test_leaving_the_line():
    """Whoever steps out makes room, and the others keep their places."""
    slots = full(longest=3)
    first, second, third = line(slots, 3)
    slots.leave(second)
    slots.leave(second)

    assert [first, third] == list(slots.queue)
    assert slots.join(Ticket())


def test_the_line_empties_between_slot_and_ticket():
    """I8: the last waiter left while its slot was in the hand: the slot goes back."""

    class Left(deque):
        def popleft(self):
            self.clear()
            return super().popleft()

    slots = full()
    slots.queue = Left([Ticket()])
    slots.free.append(0)

    assert slots.match() is None
    assert [0] == list(slots.free)


def test_refill():
    """I19: a forked child starts with all slots free and nobody in line, in the same lists."""
    slots = full(limit=3)
    line(slots, 2)
    free, queue = slots.free, slots.queue
    slots.refill()

    assert [0, 1, 2] == list(slots.free)
    assert (free, queue) == (slots.free, slots.queue)
    assert free is slots.free
    assert not queue


acts = st.lists(st.tuples(st.sampled_from(["come", "give", "give up", "match"]), st.integers(0, 9)), max_size=60)


def test_what_is_given_back_too_often_is_no_slot_more():
    """A call that was under way at a fork gives back in the child what the child has been given anew."""
    slots = Slots(2, 1)
    for slot in (0, 1, 0):
        slots.free.append(slot)

    assert (2, 0) == (len(slots.free), slots.held)


@given(limit=st.integers(1, 3), longest=st.integers(0, 3), acts=acts)
def test_never_more_than_the_limit_never_out_of_order(limit, longest, acts):
    """I8: free and held slots are always all of them, each once; grants come in the order of joining."""
    slots, held, waiting, granted, joined = Slots(limit, longest), [], [], [], []
    for act, pick in acts:
        if act == "come":
            slot, ticket = slots.take(), Ticket()
            if slot is not None:
                held.append(slot)
            elif slots.join(ticket):
                waiting.append(ticket)
                joined.append(ticket)
        elif act == "give" and held:
            slots.free.append(held.pop(pick % len(held)))
        elif act == "give up" and waiting:
            ticket = waiting.pop(pick % len(waiting))
            assert ticket.win()
            joined.remove(ticket)
            if pick % 2:
                slots.leave(ticket)
        ticket = slots.match()
        if ticket is not None:
            waiting.remove(ticket)
            granted.append(ticket)
            held.append(ticket.slot)

        assert list(range(limit)) == sorted([*slots.free, *held])
        assert len(slots.queue) <= longest
        assert joined[: len(granted)] == granted
        assert not (waiting and slots.free)
