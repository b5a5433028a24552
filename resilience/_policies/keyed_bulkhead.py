"""Bulkheads by key: one cap for each.

One may leave while nobody holds a slot and nobody is in line, which can change at any
moment without a lock. So it says first that it is `leaving`, and looks afterwards once
more; who takes a slot or joins the line does so first, and looks afterwards whether it
is leaving. One of them sees the other: it stays, or the caller gives back what it took
and looks its key up again. So there are never two bulkheads at work for one key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.keys import spelled_key
from resilience._policies.bulkhead import SharedBulkhead
from resilience._policies.families import Family

if TYPE_CHECKING:
    from resilience._core.config import BulkheadConfig
    from resilience._site import Services


class KeyedBulkhead(SharedBulkhead):
    """The bulkhead of one key of a family."""

    def __init__(self, family: BulkheadFamily, key: tuple[str, ...], services: Services) -> None:
        config = family.config
        super().__init__(family.name, config.max_in_flight, config.longest_line, services)
        self.key: tuple[str, ...] | None = key
        self.seen: int | None = None
        self.retired = False
        self._claim = [True]

    def activity(self, now: float) -> int | None:
        """Always the same while nobody is in it, None otherwise: there is nothing that it could lose."""
        return None if self._is_used() else 0

    def _is_used(self) -> bool:
        return bool(self.slots.held or self.slots.queue)

    def retire(self) -> bool:
        """Leave for good; False where somebody is in it, or another thread is at it."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        try:
            self.leaving = True
            self.retired = not self._is_used()
        finally:
            if not self.retired:
                self.leaving = False
                self._claim.append(True)
        return self.retired

    def after_fork(self) -> None:
        super().after_fork()
        if not self.retired:
            self.leaving = False
            self._claim = [True]

    def __repr__(self) -> str:
        return super().__repr__().replace(repr(self.name), repr(spelled_key(self.name, self.key or ())), 1)


class BulkheadFamily(Family[KeyedBulkhead]):
    """One bulkhead per key under one name, all of the same size; made by `Registry.bulkhead_family`.

    `family[provider, model]` is the bulkhead of a key, made if need be. No more than
    `max_keys` keys have one at a time. For a further one, a key that nobody uses makes
    room; where there is none, the call shares the bulkhead `__other__`.

    Attributes:
        name: its name in the registry.
        config: the size of every bulkhead.
        max_keys: the most keys that have a bulkhead at a time.

    Example:
        >>> family = Registry().bulkhead_family("llm", BulkheadConfig(4), labels=("provider",))
        >>> family["openai"].max_in_flight
        4
    """

    __slots__ = ("config",)

    def __init__(
        self, name: str, labels: tuple[str, ...], config: BulkheadConfig, max_keys: int, services: Services
    ) -> None:
        super().__init__(name, labels, max_keys, services)
        self.config = config

    def _make(self, key: tuple[str, ...]) -> KeyedBulkhead:
        return KeyedBulkhead(self, key, self._services)

    def after_fork(self) -> None:
        super().after_fork()
        for bulkhead in self.everybody:
            bulkhead.after_fork()

    def __repr__(self) -> str:
        return (
            f"<BulkheadFamily {self.name!r} by {', '.join(self.labels) or 'key'}, {len(self)} of {self.max_keys} keys>"
        )
