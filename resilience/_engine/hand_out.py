"""Where a plan stops: at an item of its stream."""

from __future__ import annotations

from types import coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


class Box:
    """What a plan yields when it stops, and nothing else does, so that its driver knows it by identity.

    Attributes:
        item: the item that is handed out.
    """

    __slots__ = ("item",)

    def __init__(self) -> None:
        self.item: Any = None

    def take(self) -> Any:
        """The item; the box keeps nothing alive."""
        item, self.item = self.item, None
        return item


class Closed(BaseException):
    """Ends a stream that its consumer has closed: what a GeneratorExit is to a generator.

    A coroutine that is thrown a GeneratorExit first closes the one it awaits, which then may
    neither await nor answer any more; so a plan is thrown this instead, and its innermost
    part closes the stream.
    """


@coroutine
def hand_out(box: Box, item: Any) -> Generator[Box, Any, Any]:
    """Stop until the consumer asks for the next item; gives what it sends, and raises what it throws."""
    box.item = item
    del item
    return (yield box)
