"""Streams that a function has opened: what they are told by, and the operations that go through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


class Opened(NamedTuple):
    """Handed out instead of an item: the stream itself."""

    stream: Any


_TYPES = 512


class StreamTypes(dict[type, bool]):
    """type → whether its instances are streams, told by such names; bounded."""

    def __init__(self, names: tuple[str, ...], prefix: str) -> None:
        super().__init__()
        self._names = names
        self._prefix = prefix

    def __missing__(self, kind: type) -> bool:
        if len(self) >= _TYPES:
            self.clear()
        found = any(hasattr(kind, name) for name in self._names) or self.answers(kind)
        self[kind] = found
        return found

    def answers(self, kind: type) -> bool:
        """Whether it is a response, which says more than its items: its headers have been handed out with it."""
        return any(name.startswith(self._prefix) for name in dir(kind))


OF_THREADS = StreamTypes(("__next__",), "iter_")
OF_TASKS = StreamTypes(("__anext__", "__aiter__"), "aiter_")


def close(stream: Any) -> None:
    """Close a stream, if it can be closed; what it raises is its own."""
    found = getattr(stream, "close", None)
    if callable(found):
        found()


async def aclose(stream: Any) -> None:
    """Close an async stream, by `aclose` or by `close`, which may have to be awaited."""
    found = getattr(stream, "aclose", None) or getattr(stream, "close", None)
    if callable(found):
        answer: Any = found()
        if hasattr(answer, "__await__"):
            await answer


# ---------------------------------------------------------------------------------------------- operations
# An operation is given the stream, which may be another one than at first: a stream that fails before its
# first item is opened again.


def next_item(stream: Any) -> Any:
    """The next item."""
    return next(stream)


async def anext_item(stream: Any) -> Any:
    """The next item of an async stream."""
    return await stream.__anext__()


class Iteration:
    """The items of one of a stream's iterators, such as `iter_lines(...)`."""

    __slots__ = ("_items", "_make", "_stream")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._stream: Any = None
        self._items: Any = None

    def _of(self, stream: Any) -> Any:
        if self._items is None or self._stream is not stream:
            self._stream, self._items = stream, self._make(stream)
        return self._items

    def next_item(self, stream: Any) -> Any:
        """The next item."""
        return next(self._of(stream))

    async def anext_item(self, stream: Any) -> Any:
        """The next item of an async iterator."""
        return await self._of(stream).__anext__()


def final(read: Callable[[Any], Any]) -> Callable[[Any], NoReturn]:
    """An operation that reads all the rest."""

    def operation(stream: Any) -> NoReturn:
        raise StopIteration(read(stream))

    return operation


def some(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An operation that reads a part; nothing means that there is no more."""

    def operation(stream: Any) -> Any:
        part = read(stream)
        if not part:
            raise StopIteration(part)
        return part

    return operation


class Rest(Exception):
    """Ends an async stream with all the rest of it: a coroutine can't raise StopIteration."""


def asome(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An operation that reads a part of an async stream."""

    async def operation(stream: Any) -> Any:
        part = await read(stream)
        if not part:
            raise Rest(part)
        return part

    return operation


def afinal(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An operation that reads all the rest of an async stream."""

    async def operation(stream: Any) -> NoReturn:
        raise Rest(await read(stream))

    return operation
