"""An exact counter that many threads may tick without a lock."""

from __future__ import annotations

from itertools import count


class Counter:
    """Counts calls of `tick`; one C call per tick makes it exact under threads."""

    __slots__ = ("_base", "_count", "tick")

    def __init__(self) -> None:
        self._count = count()
        self._base = 0
        self.tick = self._count.__next__

    @property
    def value(self) -> int:
        """Ticks so far, or since `zero`."""
        # The only way to read an itertools.count without moving it.
        return int(repr(self._count)[6:-1]) - self._base

    def zero(self) -> None:
        """Start over; whoever holds `tick` goes on counting here."""
        self._base = 0
        self._base = self.value
