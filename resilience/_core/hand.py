"""Who of many may go: a clock hand that looks at a few of them at a time.

It goes round and round. Whoever it finds at rest, with the same activity as when it
came by before, has done nothing for a whole round and may go. A look costs the same
however many there are: a round begins with a copy of the list, which is paid for by
as many looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Watched(Protocol):
    """What the hand goes over.

    Attributes:
        seen: the activity at the hand's last visit, None before the first and where it could not go then.
    """

    seen: int | None

    def activity(self, now: float) -> int | None:
        """A figure that every use changes; None while it can't go."""


W = TypeVar("W", bound=Watched)


class Hand(Generic[W]):
    """The hand of one family. May be moved by several threads at once: each looks at another one."""

    __slots__ = ("_round",)

    def __init__(self) -> None:
        self._round: Iterator[W] = iter(())

    def look(self, members: Mapping[tuple[str, ...], W], now: float) -> W | None:
        """Go on by one; the one looked at if it may go."""
        watched = next(self._round, None)
        if watched is None:
            self._round = iter(tuple(members.values()))
            watched = next(self._round, None)
            if watched is None:
                return None
        activity = watched.activity(now)
        if activity is not None and activity == watched.seen:
            return watched
        watched.seen = activity
        return None
