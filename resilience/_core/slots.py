"""Bulkhead slots: a free list and a strict first-in-first-out line of tickets.

Nobody needs a lock to take a free slot or to give one back: both are one C call. So it
is with the places in the line, which whoever takes a ticket out of it gives back.
`match` pairs free slots with waiting tickets and is run by one thread at a time. A
waiter joins the line first and asks for a match afterwards; a giver gives first and
looks at the line afterwards: whatever the interleaving, one of them sees the other.

Both are made when they are first needed, so that a generous limit costs nothing.

A ticket is won by whoever pops its one-element claim: the hand that grants it or the
waiter that gives up, never both.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

from resilience._core.counter import Counter

if TYPE_CHECKING:
    from collections.abc import Callable


class Ticket:
    """A place in the line.

    Attributes:
        slot: the slot it was granted, None until then.
        offered: the slot that a grant is about; told before the claim is popped, so that a waiter that
            gives up just then, and finds the claim gone, knows which slot it has been granted.
        wake: tells the waiter that it was granted one; False if the waiter can't be reached any more.
    """

    __slots__ = ("_claim", "offered", "slot", "wake")

    def __init__(self) -> None:
        self._claim = [True]
        self.slot: int | None = None
        self.offered: int | None = None
        self.wake: Callable[[], bool] = lambda: True

    def win(self) -> bool:
        """Settle the ticket; True for exactly one caller."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True


class Stock:
    """So many things that one can hold, by number.

    Attributes:
        limit: how many there are.
        free: those that nobody holds and that have been made; `append` gives one back.
    """

    __slots__ = ("_make", "free", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # No more than there are may lie here: a call that was under way at a fork gives back, in the
        # child as well, what the child has been given anew.
        self.free: deque[int] = deque(maxlen=min(limit, sys.maxsize))
        self.refill()

    @property
    def held(self) -> int:
        """How many somebody holds now."""
        return max(0, min(self._make.value, self.limit) - len(self.free))

    def take(self) -> int | None:
        """A free one, or None."""
        try:
            return self.free.pop()
        except IndexError:
            number = self._make.tick()
            return number if number < self.limit else None

    def refill(self) -> None:
        """All free, in place: at the beginning, and what a forked child starts with."""
        self._make = Counter()
        self.free.clear()
        self.free.extend(self._make.tick() for _ in range(min(self.limit, _READY_MADE)))


class Slots(Stock):
    """The slots of one bulkhead, and the line for them.

    Attributes:
        queue: the tickets in line.
        places: what a ticket needs to be there.
    """

    __slots__ = ("places", "queue")

    def __init__(self, limit: int, longest: int) -> None:
        self.places = Stock(longest)
        self.queue: deque[Ticket] = deque()
        super().__init__(limit)

    def take(self) -> int | None:
        """A free slot, or None: there is none, or somebody is in line and must not be overtaken."""
        return None if self.queue else super().take()

    def join(self, ticket: Ticket) -> bool:
        """Stand in line; False if the line is as long as it may be."""
        if self.places.take() is None:
            return False
        self.queue.append(ticket)
        return True

    def leave(self, ticket: Ticket) -> None:
        """Step out of the line, if still in it."""
        try:
            self.queue.remove(ticket)
        except ValueError:
            return
        self.places.free.append(0)

    def match(self) -> Ticket | None:
        """Grant a free slot to the first in line who still wants one. One caller at a time."""
        while self.queue:
            slot = super().take()
            if slot is None:
                return None
            try:
                ticket = self.queue.popleft()
            except IndexError:
                self.free.append(slot)
                return None
            self.places.free.append(0)
            ticket.offered = slot
            if ticket.win():
                ticket.slot = slot
                return ticket
            self.free.append(slot)
        return None

    def refill(self) -> None:
        """All slots free and nobody in line, in place."""
        self.queue.clear()
        self.places.refill()
        super().refill()


_READY_MADE = 1024
