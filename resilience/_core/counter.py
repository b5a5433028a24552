"""An exact counter that many threads may tick without a lock."""

from __future__ import annotations

from itertools import count


class Counter:
    """Counts calls of `tick`; one C call per tick makes it exact under threads."""

    __slots__ = ("_count", "tick")

    def __init__(self) -> None:
        self._count = count()
        self.tick = self._count.__next__

    @property
    def value(self) -> int:
        """Ticks so far."""
        # The only way to read an itertools.count without moving it.
        return int(repr(self._count)[6:-1])
