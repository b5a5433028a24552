"""A shared bulkhead against a number and a list, whoever takes, waits, gives up or gives back in whatever order."""

from __future__ import annotations

from collections import deque

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resilience import BulkheadConfig, Registry
from resilience._core.slots import Ticket

picks = st.integers(0, 9)


class Waiter:
    """Somebody with a ticket.

    `manner`: what he does when woken. "stays": keeps the slot; "hurries": is done at once and gives it back from
    inside the wake-up; "gone": can't be reached any more.
    """

    def __init__(self, machine, manner):
        self.machine = machine
        self.manner = manner
        self.ticket = Ticket()
        self.ticket.wake = self.wake

    def wake(self):
        assert self.ticket.slot is not None, "woken without a slot"
        self.machine.woken.append(self)
        if self.manner == "hurries":
            self.machine.bulkhead.give(self.ticket.slot)
        return self.manner != "gone"


class Queueing(RuleBasedStateMachine):
    """Callers of one bulkhead; the model counts free slots and keeps the line."""

    @initialize(limit=st.integers(1, 4), longest=st.integers(0, 5))
    def begin(self, limit, longest):
        self.limit, self.longest = limit, longest
        self.bulkhead = Registry().bulkhead("room", BulkheadConfig(limit, longest))
        self.free, self.line = limit, deque()
        self.slots = []  # that somebody holds who took one without waiting
        self.granted = []  # waiters who hold one
        self.woken, self.to_be_woken = [], []
        self.given, self.settled = 0, 0

    def match(self):
        """What handing over means: the first in line first, as long as there is a slot."""
        while self.free and self.line:
            waiter = self.line.popleft()
            self.to_be_woken.append(waiter)
            self.given += 1
            if waiter.manner == "stays":
                self.free -= 1
                self.granted.append(waiter)
            else:
                self.settled += 1

    @rule()
    def take(self):
        """Without waiting: never past the line, never a slot that is not there."""
        slot = self.bulkhead.take()
        assert (slot is not None) is (self.free > 0 and not self.line)
        if slot is not None:
            assert slot not in self.held(), "two hold one slot"
            self.slots.append(slot)
            self.free -= 1
            self.given += 1

    @rule(manner=st.sampled_from(["stays", "stays", "stays", "hurries", "gone"]), at_once=st.booleans())
    def join(self, manner, at_once):
        """Stand in line, and ask for a match as every waiter does; `at_once` False: somebody comes in between."""
        waiter = Waiter(self, manner)
        assert self.bulkhead.join(waiter.ticket) is (len(self.line) < self.longest)
        if len(self.line) < self.longest:
            self.line.append(waiter)
            if at_once:
                self.hand_over()

    @rule()
    def hand_over(self):
        self.bulkhead.hand_over()
        self.match()
        self.nobody_waits_beside_a_free_slot()

    @precondition(lambda self: self.slots)
    @rule(pick=picks)
    def give(self, pick):
        self.give_back(self.slots.pop(pick % len(self.slots)))

    @precondition(lambda self: self.granted)
    @rule(pick=picks)
    def give_back_after_waiting(self, pick):
        self.give_back(self.granted.pop(pick % len(self.granted)).ticket.slot)

    def give_back(self, slot):
        self.bulkhead.give(slot)
        self.free += 1
        self.settled += 1
        self.match()
        self.nobody_waits_beside_a_free_slot()

    @precondition(lambda self: self.line)
    @rule(pick=picks)
    def give_up(self, pick):
        """A waiter who stops waiting, wherever he stands, loses no slot and blocks none."""
        waiter = self.line[pick % len(self.line)]
        self.line.remove(waiter)
        assert self.bulkhead.give_up(waiter.ticket) is True
        assert self.bulkhead.give_up(waiter.ticket) is False

    @precondition(lambda self: self.granted)
    @rule(pick=picks)
    def give_up_too_late(self, pick):
        """Granted before: the slot is the waiter's, and he has to give it back."""
        waiter = self.granted.pop(pick % len(self.granted))
        assert self.bulkhead.give_up(waiter.ticket) is False
        self.give_back(waiter.ticket.slot)

    @rule()
    def fork(self):
        """A child starts full and alone: who held or awaited a slot stayed in the parent."""
        self.bulkhead.after_fork()
        self.free, self.slots, self.granted, self.line = self.limit, [], [], deque()
        self.given = self.settled = 0

    def held(self):
        return [*self.slots, *(waiter.ticket.slot for waiter in self.granted)]

    def nobody_waits_beside_a_free_slot(self):
        assert not (self.bulkhead.waiting and self.bulkhead.in_flight < self.limit), "a lost wake-up"

    @invariant()
    def first_in_first_out(self):
        """Woken are those who were to be, in the order of the line, once each."""
        assert self.to_be_woken == self.woken

    @invariant()
    def every_slot_is_somewhere(self):
        """I8: granted = settled + live; never two holders of one slot, never more than there are."""
        held = self.held()
        assert self.given == self.settled + len(held)
        assert len(held) == len(set(held)) <= self.limit
        assert (len(held), len(self.line)) == (self.bulkhead.in_flight, self.bulkhead.waiting)
        assert self.limit == self.free + len(held)

    def teardown(self):
        """When all are done every slot is free again."""
        if not hasattr(self, "bulkhead"):
            return
        while self.slots or self.granted:
            self.give_back(self.slots.pop() if self.slots else self.granted.pop().ticket.slot)
        self.hand_over()
        while self.slots or self.granted:
            self.give_back(self.granted.pop().ticket.slot)
        assert (0, 0) == (self.bulkhead.in_flight, self.bulkhead.waiting)
        assert self.limit == len({self.bulkhead.take() for _ in range(self.limit)} - {None})
        assert self.bulkhead.take() is None


# Without explaining: that takes minutes, and the shortest story says enough.
SETTINGS = settings(
    max_examples=70,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def test_a_bulkhead_in_any_order():
    """I8: strictly first in, first out, no slot lost or given twice, no wake-up lost, whatever the order."""
    run_state_machine_as_test(Queueing, settings=SETTINGS)
