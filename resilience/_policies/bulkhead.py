"""The bulkhead: one named cap on calls in flight, over threads and any number of event loops.

`free` and `queue` are the machine's own list and deque: the compiled straight path
pops and appends them without a lock. Whoever gives a slot back looks at the line
afterwards and matches; only one thread matches at a time, and who fails to become that
one leaves the work to it: it looks again after unlocking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._changing import is_changing
from resilience._core.counter import Counter
from resilience._core.events import BulkheadRejected, Bypassed
from resilience._core.order import Layer
from resilience._core.outcome import Outcome
from resilience._core.slots import Slots, Ticket
from resilience._policies.fallback import Fallback
from resilience._turns import Turn
from resilience._words import OnReject
from resilience.errors import BulkheadFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._policies.families import Family
    from resilience._policies.keyed_bulkhead import KeyedBulkhead
    from resilience._policies.site_keys import SiteKeys
    from resilience._site import Call, Inner, Services, Site


class SharedBulkhead:
    """A named bulkhead, shared by every call site that uses its name.

    Attributes:
        name: its name in the registry.
        max_in_flight: how many calls may run at one time.
        max_waiting: how many more may stand in line.
        key: its key in a family, None for one that is alone under its name.
        leaving: whether it makes room for another key; who has just taken a slot gives it back and looks again.
    """

    def __init__(self, name: str, max_in_flight: int, max_waiting: int, services: Services) -> None:
        self.name = name
        self.max_in_flight = max_in_flight
        self.max_waiting = max_waiting
        self.slots = Slots(max_in_flight, max_waiting)
        self.key: tuple[str, ...] | None = None
        self.leaving = False
        self.rejected = Counter()
        self._services = services
        self._matching = Turn()

    @property
    def in_flight(self) -> int:
        """Calls that hold a slot now."""
        return self.slots.held

    @property
    def waiting(self) -> int:
        """Callers in line now."""
        return len(self.slots.queue)

    def take(self) -> int | None:
        """A free slot without waiting, or None."""
        return self.slots.take()

    def give(self, slot: int) -> None:
        """Give a slot back, and hand it on if somebody is in line."""
        self.slots.free.append(slot)
        if self.slots.queue:
            self.hand_over()

    def join(self, ticket: Ticket) -> bool:
        """Stand in line; False if the line is full."""
        return self.slots.join(ticket)

    def hand_over(self) -> None:
        """Match free slots with waiting tickets, unless another thread is at it."""
        slots = self.slots
        # Looked at again after each turn: somebody may have come and left in between.
        while slots.queue and slots.free and self._matching.take(self._match):
            pass

    def _match(self) -> None:
        while (ticket := self.slots.match()) is not None:
            if not ticket.wake():
                # Its event loop is gone: nobody will ever use or return this slot.
                self.slots.free.append(_slot_of(ticket))

    def give_up(self, ticket: Ticket) -> bool:
        """Settle a ticket whose waiter stops waiting; False if it had been granted, the slot being the waiter's."""
        gave_up = ticket.win()
        if gave_up:
            self.slots.leave(ticket)
        return gave_up

    def refuse(self, *, waited: bool) -> BulkheadFullError:
        """Count a refusal and make its exception."""
        self.rejected.tick()
        hub = self._services.hub
        if hub.wants(BulkheadRejected):
            hub.publish(BulkheadRejected(name=self.name, key=self.key, waited=waited))
        return BulkheadFullError(self.name)

    def note_bypass(self, site: str) -> None:
        """Tell listeners of a call that was skipped."""
        hub = self._services.hub
        if hub.wants(Bypassed):
            hub.publish(Bypassed(name=self.name, key=self.key, site=site, by="bulkhead"))

    def after_fork(self) -> None:
        """In the child: all slots are free, whoever held or awaited one stayed in the parent."""
        self._matching = Turn()
        self.slots.refill()

    def __repr__(self) -> str:
        return f"<Bulkhead {self.name!r} {self.in_flight}/{self.max_in_flight}, {self.waiting} waiting>"


_LOOKS = 2
"""How often a key is looked up whose bulkhead is just leaving."""


class BulkheadLayers:
    """One call site's use of a shared bulkhead, or of one for each key; `find` is asked once, at the first call.

    Attributes:
        keys: tells the bulkhead of a call, None where one serves all.
    """

    def __init__(
        self,
        find: Callable[[], SharedBulkhead],
        site: Site,
        *,
        wait: float,
        on_reject: OnReject,
        fallback: Any,
        keys: SiteKeys[KeyedBulkhead] | None = None,
    ) -> None:
        self._find = find
        self._found: SharedBulkhead | None = None
        self._site = site
        self._wait = wait
        self._on_reject = on_reject
        self._fallback = Fallback(fallback)
        self.keys = keys

    @property
    def bulkhead(self) -> SharedBulkhead:
        """The shared bulkhead of a site without keys."""
        return self._found or self.resolve()

    @property
    def shared(self) -> SharedBulkhead | Family[KeyedBulkhead]:
        """What all calls of the site share: the bulkhead, or the family of those it has keys for."""
        return self.bulkhead if self.keys is None else self.keys.family

    def of(self, call: Call) -> SharedBulkhead:
        """The bulkhead of a call."""
        return self.bulkhead if self.keys is None else self.keys.of_call(call.args, call.kwargs)

    def resolve(self) -> SharedBulkhead:
        """Find the shared bulkhead: the first call does, unless the name was known before."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def layers(self) -> list[tuple[Layer, Callable[[Call, Inner], Any]]]:
        """What this policy adds to a plan."""
        found: list[tuple[Layer, Callable[[Call, Inner], Any]]] = [(Layer.BULKHEAD, self.around)]
        if self._on_reject is OnReject.BYPASS:
            found.append((Layer.FALLBACK, self.fallback))
        return found

    async def fallback(self, call: Call, inner: Inner) -> Outcome:
        """Answer this bulkhead's own refusal with the site's fallback."""
        outcome = await inner(call)
        if outcome.refused_by is not self:
            return outcome
        outcome.discard()
        self.of(call).note_bypass(self._site.label)
        return await self._fallback.answer(call)

    async def around(self, call: Call, inner: Inner) -> Outcome:
        """Hold a slot while everything inside runs."""
        bulkhead = self.of(call)
        slot = bulkhead.take()
        if slot is None:
            slot = await self.stand_in_line(call, bulkhead)
        if bulkhead.leaving:
            bulkhead, slot = await self.look_again(call, bulkhead, slot)
        if slot is None:
            return Outcome.refusal(bulkhead.refuse(waited=self._wait > 0), self)
        call.bulkhead, call.slot = bulkhead, slot
        try:
            return await inner(call)
        finally:
            _leave(call, bulkhead)

    async def look_again(
        self, call: Call, leaving: SharedBulkhead, slot: int | None
    ) -> tuple[SharedBulkhead, int | None]:
        """Another bulkhead and a slot of it, None where it is full, for a key whose own makes room for another one."""
        for _ in range(_LOOKS):
            if slot is not None:
                leaving.give(slot)
            bulkhead = self.of(call)
            slot = bulkhead.take()
            if slot is None:
                slot = await self.stand_in_line(call, bulkhead)
            if not bulkhead.leaving:
                return bulkhead, slot
            leaving = bulkhead
        if slot is not None:
            leaving.give(slot)
        # Whoever takes it out is held up: one is always there.
        assert self.keys is not None, "only one with a key ever leaves"
        bulkhead = self.keys.family.find(None)
        slot = bulkhead.take()
        return bulkhead, await self.stand_in_line(call, bulkhead) if slot is None else slot

    async def stand_in_line(self, call: Call, bulkhead: SharedBulkhead) -> int | None:
        """Wait for a slot as long as this site does; None where none came."""
        left = self._site.left(call)
        seconds = self._wait if left is None else min(self._wait, left)
        if seconds <= 0 or is_changing():
            return None
        ticket = Ticket()
        if not bulkhead.join(ticket):
            return None
        try:
            if not bulkhead.leaving:
                await call.world.wait(ticket, seconds, bulkhead.hand_over)
        except BaseException:
            if not bulkhead.give_up(ticket):
                bulkhead.give(_slot_of(ticket))
            raise
        return None if bulkhead.give_up(ticket) else _slot_of(ticket)


def _leave(call: Call, bulkhead: SharedBulkhead) -> None:
    # None where an attempt that could only be abandoned keeps the slot until it ends.
    if call.slot is not None:
        bulkhead.give(call.slot)


def _slot_of(ticket: Ticket) -> int:
    assert ticket.offered is not None, "a granted ticket has its slot"
    return ticket.offered
