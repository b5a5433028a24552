"""The bulkhead's plan and its shared half: slots, the line, hand-over, refusals."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import BulkheadFullError, OnReject, bulkhead, timeout
from resilience._context import DEADLINE
from resilience._core.deadline import Deadline
from resilience._core.events import BulkheadRejected, Bypassed
from resilience._core.outcome import Outcome
from resilience._core.slots import Slots, Ticket
from resilience._policies.bulkhead import SharedBulkhead, _slot_of


@pytest.fixture
def room(registry):
    return SharedBulkhead("room", 1, 2, registry)


def test_a_slot_is_held_during_the_call(plan):
    """And comes back afterwards."""
    layers = plan.bulkhead(2)

    assert 1 == plan.call(script=[lambda: layers.bulkhead.in_flight]).value
    assert 0 == layers.bulkhead.in_flight


def test_a_bulkhead_is_looked_up_once(plan):
    """By the first call, or before where the name is known."""
    layers = plan.bulkhead()

    assert layers.resolve() is layers.resolve()
    assert layers.bulkhead is plan.registry.get_bulkhead("room")


def test_a_slot_comes_back_from_an_interruption(plan):
    """Whatever passes through."""

    def interrupt():
        raise KeyboardInterrupt

    layers = plan.bulkhead()
    with pytest.raises(KeyboardInterrupt):
        plan.call(script=[interrupt])

    assert 0 == layers.bulkhead.in_flight


def test_a_slot_that_an_orphan_took_over(plan):
    """It is not given back by the call."""
    layers = plan.bulkhead()

    def leave_behind():
        plan.latest.slot = None

    plan.call(script=[leave_behind])

    assert 1 == layers.bulkhead.in_flight


def test_full(plan, told):
    """Refused at once, counted, told."""
    layers = plan.bulkhead()
    layers.bulkhead.take()
    outcome = plan.call()

    assert (True, "bulkhead 'room' is full") == (outcome.refused_by is layers, str(outcome.error))
    assert [BulkheadRejected(name="room", waited=False)] == told
    assert ([], 1) == (plan.world.log, layers.bulkhead.rejected.value)


def test_events_are_built_only_when_wanted(plan):
    """A refusal and a bypass without a listener make no record."""
    plan.registry.hub._set(())
    layers = plan.bulkhead(on_reject=OnReject.BYPASS)
    layers.bulkhead.take()
    plan.call()

    assert [] == plan.events


def test_full_and_bypassed(plan, told):
    """The fallback gets the arguments of the call."""
    layers = plan.bulkhead(on_reject=OnReject.BYPASS, fallback=lambda *args, **kwargs: (args, kwargs))
    layers.bulkhead.take()

    assert ((1,), {"key": 2}) == plan.call(1, key=2).value
    assert [
        BulkheadRejected(name="room", waited=False),
        Bypassed(name="room", site="module:fn", by="bulkhead"),
    ] == told


def test_a_fallback_answers_its_own_refusal_only(plan):
    """Somebody else's refusal passes."""
    refusal = Outcome.refusal(BulkheadFullError("other"), "somebody")
    plan.bulkhead(on_reject=OnReject.BYPASS, fallback="instead")

    assert refusal is plan.call(script=[refusal])


# ---------------------------------------------------------------------------------------------- the line
def test_waiting_for_a_slot(plan):
    """A slot that is given back meanwhile is the waiter's."""
    layers = plan.bulkhead(wait=5.0)
    slot = layers.bulkhead.take()
    plan.world.on_wait = lambda ticket: layers.bulkhead.give(slot)

    assert "fine" == plan.call(script=["fine"]).value
    assert [("wait", 5.0), "attempt"] == plan.world.log
    assert (0, 0) == (layers.bulkhead.in_flight, layers.bulkhead.waiting)


@pytest.mark.parametrize("wait", [0.5, 5.0])
def test_waiting_in_vain(plan, told, wait):
    """The waiter leaves the line and is refused, however short its patience was."""
    layers = plan.bulkhead(wait=wait)
    layers.bulkhead.take()
    outcome = plan.call()

    assert isinstance(outcome.error, BulkheadFullError)
    assert (0, [BulkheadRejected(name="room", waited=True)]) == (layers.bulkhead.waiting, told)


def test_no_place_in_the_line(plan):
    """Beyond `max_waiting` nobody waits."""
    layers = plan.bulkhead(waiting=0, wait=5.0)
    layers.bulkhead.take()

    assert isinstance(plan.call().error, BulkheadFullError)
    assert [] == plan.world.log


def test_a_waiter_that_is_interrupted(plan):
    """It leaves the line."""

    def interrupt(ticket):
        raise KeyboardInterrupt

    layers = plan.bulkhead(wait=5.0)
    layers.bulkhead.take()
    plan.world.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        plan.call()

    assert (1, 0) == (layers.bulkhead.in_flight, layers.bulkhead.waiting)


def test_a_granted_waiter_that_is_interrupted(plan):
    """It hands its slot on."""
    layers = plan.bulkhead(wait=5.0)
    slot = layers.bulkhead.take()

    def grant_and_interrupt(ticket):
        layers.bulkhead.give(slot)
        raise KeyboardInterrupt

    plan.world.on_wait = grant_and_interrupt
    with pytest.raises(KeyboardInterrupt):
        plan.call()

    assert (0, 0) == (layers.bulkhead.in_flight, layers.bulkhead.waiting)


@pytest.mark.parametrize(
    ("budget", "outer", "waited"), [(3.0, None, 3.0), (None, 2.0, 2.0), (3.0, 2.0, 2.0), (9.0, None, 5.0)]
)
def test_the_wait_is_limited_by_every_deadline(plan, budget, outer, waited):
    """By its own budget, by those around, and by its patience."""
    layers = plan.bulkhead(wait=5.0)
    layers.bulkhead.take()
    plan.site.timed, plan.site.budget = budget is not None, budget
    token = DEADLINE.set(None if outer is None else Deadline(outer, 0))
    try:
        plan.call()
    finally:
        DEADLINE.reset(token)

    assert [("wait", waited)] == plan.world.log


def test_no_time_left_to_wait(plan):
    """A deadline that is past: refused at once."""
    layers = plan.bulkhead(wait=5.0)
    layers.bulkhead.take()
    plan.clock.advance(9)
    token = DEADLINE.set(Deadline(2, 0))
    try:
        outcome = plan.call()
    finally:
        DEADLINE.reset(token)

    assert isinstance(outcome.error, BulkheadFullError)
    assert [] == plan.world.log


# ---------------------------------------------------------------------------------------------- the shared half
def test_strictly_first_in_first_out(room):
    """Slots go down the line in order."""
    slot = room.take()
    first, second = Ticket(), Ticket()
    assert [True, True] == [room.join(first), room.join(second)]
    room.give(slot)

    assert (0, None) == (first.slot, second.slot)
    room.give(first.slot)
    assert 0 == second.slot


def test_nobody_overtakes_the_line(room):
    """A free slot belongs to whoever waits."""
    slot = room.take()
    room.join(Ticket())
    room.slots.free.append(slot)

    assert room.take() is None


def test_a_waiter_that_gave_up_is_passed_over(room):
    """The slot goes to the next."""
    slot = room.take()
    gone, waiting = Ticket(), Ticket()
    room.join(gone)
    room.join(waiting)
    gone.win()
    room.give(slot)

    assert (None, 0) == (gone.slot, waiting.slot)


def test_a_waiter_whose_loop_is_gone(room):
    """It can't be woken: its slot goes to the next, or back."""
    slot = room.take()
    dead, waiting = Ticket(), Ticket()
    dead.wake = lambda: False
    room.join(dead)
    room.join(waiting)
    room.give(slot)

    assert 0 == waiting.slot
    assert 0 == room.waiting


def test_the_last_waiter_whose_loop_is_gone(room):
    """The slot is free again."""
    slot = room.take()
    dead = Ticket()
    dead.wake = lambda: False
    room.join(dead)
    room.give(slot)

    assert (0, 0) == (room.in_flight, room.waiting)


def test_one_thread_matches_at_a_time(room):
    """Who finds another at it leaves the work; the holder looks again after unlocking."""
    slot = room.take()
    first, second = Ticket(), Ticket()
    room.join(first)
    woken = []

    def wake_and_come_back():
        woken.append(first.slot)
        # Somebody joins and gives in the middle of the matching: they can't match, the matcher will.
        room.join(second)
        room.give(first.slot)
        return True

    first.wake = wake_and_come_back
    room.give(slot)

    assert ([0], 0) == (woken, second.slot)


def test_a_matcher_that_looks_again(room, monkeypatch):
    """Who joins between the last look and the unlocking is not forgotten."""
    slot, gone, waiting = room.take(), Ticket(), Ticket()
    room.join(gone)
    gone.win()
    match = Slots.match

    def match_and_let_another_come(slots):
        found = match(slots)
        if not room.waiting and waiting.slot is None:
            room.join(waiting)
            # The other thread finds this one at it, and leaves the work to it.
            room.hand_over()
        return found

    monkeypatch.setattr(Slots, "match", match_and_let_another_come)
    room.give(slot)

    assert 0 == waiting.slot


def test_a_ticket_is_won_once(room):
    """Grant and give-up race for it: whoever comes second has lost."""
    ticket = Ticket()
    room.take()
    room.join(ticket)

    assert [True, False] == [room.give_up(ticket), room.give_up(ticket)]
    assert 0 == room.waiting


def test_a_forked_child_starts_full(room):
    """Whoever held or awaited a slot, or was matching the two, stayed in the parent."""
    slot, stuck, leave = room.take(), Ticket(), threading.Event()
    entered = threading.Event()
    stuck.wake = lambda: entered.set() or leave.wait(10)
    room.join(stuck)
    parent = threading.Thread(target=lambda: room.give(slot))
    parent.start()
    assert entered.wait(10)
    room.after_fork()
    taken, waiting = (room.in_flight, room.waiting, room.take()), Ticket()
    room.join(waiting)
    room.give(taken[2])
    leave.set()
    parent.join(10)

    assert ((0, 0, 0), 0) == (taken, waiting.slot)


def test_how_it_shows_itself(room):
    """Name, slots, line."""
    room.take()

    assert "<Bulkhead 'room' 1/1, 0 waiting>" == repr(room)


# ---------------------------------------------------------------------------------------------- the whole way
def test_threads_wait_for_each_other():
    """Real threads: one slot, five callers, nobody is refused."""
    inside, most = [], []

    @bulkhead(max_in_flight=1, wait=10)
    def work():
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [1] * 5 == most


def test_tasks_wait_for_each_other():
    """Real tasks: in the order in which they came."""
    order = []

    @bulkhead(max_in_flight=1, wait=10)
    @timeout(10)
    async def work(number):
        await asyncio.sleep(0)
        order.append(number)

    async def scenario():
        await asyncio.gather(*(work(number) for number in range(5)))

    asyncio.run(scenario())

    assert [0, 1, 2, 3, 4] == order


def test_a_waiter_that_was_granted_before_it_could_be_woken(registry):
    """A slot that comes between joining the line and waiting is used at once, not after the whole wait."""

    @bulkhead("room", max_in_flight=1, wait=5)
    def work():
        return "fine"

    room = registry.get_bulkhead("room")
    slot, join, found = room.take(), room.join, []

    def joins(ticket):
        joined = join(ticket)
        room.give(slot)
        return joined

    room.join = joins
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(2)

    # The clock is a manual one: a waiter that waits would wait for ever.
    assert ["fine"] == found


def test_a_waiter_that_gives_up_in_the_middle_of_a_grant(room):
    """The claim is gone and the slot not noted yet: it knows all the same which one it has been granted."""
    taken, given_up = room.take(), []

    class Hasty(Ticket):
        """Whose waiter gives up between the claim and the note."""

        __slots__ = ()

        def win(self):
            won = super().win()
            if won:
                given_up.append((room.give_up(self), _slot_of(self)))
            return won

    room.join(Hasty())
    room.give(taken)

    assert [(False, taken)] == given_up
