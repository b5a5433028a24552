"""Which results of a plain function are awaitable: told by their type, asked once per type."""

from __future__ import annotations

_TYPES = 4096


class Awaitables(dict[type, bool]):
    """type → whether its instances can be awaited; bounded."""

    def __missing__(self, kind: type) -> bool:
        if len(self) >= _TYPES:
            self.clear()
        found = self[kind] = hasattr(kind, "__await__")
        return found


AWAITABLE = Awaitables()
