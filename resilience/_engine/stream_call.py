"""One call that hands out items: what its plan has to know besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from resilience._context import DEADLINE
from resilience._core.deadline import Passed
from resilience._engine.hand_out import Box
from resilience._site import Call

if TYPE_CHECKING:
    from resilience._core.deadline import Deadline
    from resilience._site import Site, World


class Limit(Protocol):
    """A deadline of this call that goes on from step to step."""

    deadline: Deadline

    def begin_step(self) -> None:
        """The consumer asks for an item: from now on this may be interrupted."""

    def end_step(self) -> None:
        """The consumer has its item, and must not be interrupted."""


class StreamCall(Call):
    """A call whose plan stops at each item.

    Attributes:
        box: where it leaves the item that it stops at.
        delivered: the consumer has been given something, so the stream can't be begun anew.
        bypassed: the call was skipped, and its value is the call site's fallback.
        limits: the deadlines of this call that are in force, outermost first.
        watched: somebody wants to know how long an attempt takes to its first item.
        answered_at: when the attempt under way gave that; None before, or where nobody wants to know.
        stepped: when the step under way began; None where no deadline watches it.
    """

    __slots__ = ("answered_at", "box", "bypassed", "delivered", "limits", "stepped", "watched")

    def __init__(self, site: Site, world: World, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(site, world, args, kwargs)
        self.box = Box()
        self.delivered = self.bypassed = False
        self.limits: list[Limit] = []
        self.stepped: float | None = None
        self.watched = False
        self.answered_at: float | None = None

    def watch(self) -> None:
        self.watched = True
        self.answered_at = None

    def note_item(self) -> None:
        """The watched attempt has given an item."""
        if self.answered_at is None:
            self.answered_at = self.site.services.now()

    def skip(self) -> None:
        self.bypassed = True

    def begin_step(self) -> Passed | None:
        """Before a step: what ends the stream, where a deadline ran out while the consumer had it."""
        if not self.limits and DEADLINE.get() is None:
            self.stepped = None
            return None
        self.stepped = now = self.site.services.now()
        for limit in self.limits:
            if limit.deadline.expires <= now:
                return Passed(limit.deadline)
            limit.begin_step()
        return None

    def end_step(self) -> None:
        """After a step."""
        for limit in self.limits:
            limit.end_step()

    def since(self, started: float | None) -> float | None:
        """A stream's attempt is in flight while the consumer waits for an item: since this step began, at the earliest."""
        if started is None or self.stepped is None:
            # The first step begins before the limits of its own stream do.
            return self.stepped if started is None else started
        return max(started, self.stepped)
