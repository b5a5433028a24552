"""Which results of a plain function are awaitable: told by their type, asked once per type."""

from __future__ import annotations

_TYPES = 512


class Awaitables(dict[type, bool]):
    """type → whether its instances can be awaited; bounded.

    Attributes:
        plain: the types known not to be: for the straight path, which asks a set faster.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plain: set[type] = set()

    def __missing__(self, kind: type) -> bool:
        if len(self) >= _TYPES:
            self.clear()
            self.plain.clear()
        found = self[kind] = hasattr(kind, "__await__")
        if not found:
            self.plain.add(kind)
        return found


AWAITABLE = Awaitables()
