"""`bulkhead(...).guard()`: a block that holds a slot.

The slot lies in a list from which whoever leaves the block pops it: it is given back
once, from whatever task, thread or context.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from resilience._compose import COMPOSED
from resilience._engine.world_sync import SyncWorld, run
from resilience._policies.bulkhead import BulkheadLayers, SharedBulkhead
from resilience._site import Call
from resilience._words import OnReject

if TYPE_CHECKING:
    from types import TracebackType

    from resilience._blocks.place import Place
    from resilience._policies.keyed_bulkhead import KeyedBulkhead
    from resilience._policies.site_keys import SiteKeys
    from resilience._registry import Registry
    from resilience._settings import BulkheadPolicy
    from resilience._site import World


def own_bulkhead(
    kept: dict[str, Any], policy: BulkheadPolicy, place: Place | None, registry: Registry
) -> SharedBulkhead:
    """The bulkhead of a policy without a name, for all blocks or calls of the value that it is kept with.

    It is named by the place of its first block; for the calls of a composed set there is none.
    """
    if "_own_bulkhead" not in kept:
        config = policy.config
        assert config is not None, "a bulkhead without a name has its size"
        # Of those that come first together one is first, and the others find its bulkhead.
        label = COMPOSED if place is None else place.label
        made = SharedBulkhead(label, config.max_in_flight, config.longest_line, registry)
        registry.watch_fork(kept.setdefault("_own_bulkhead", made))
    found: SharedBulkhead = kept["_own_bulkhead"]
    return found


class BulkheadBlock:
    """A block under a bulkhead, for `with` and `async with`; made by `bulkhead(...).guard()`.

    In a truth test it tells whether it holds a slot: inside the block it is false only
    where `on_reject` is BYPASS and there was none.
    """

    __slots__ = ("_bulkhead", "_entry", "_keys", "_on_reject", "_place", "_slots", "_wait")

    def __init__(
        self,
        bulkhead: SharedBulkhead,
        wait: float,
        on_reject: OnReject,
        place: Place,
        keys: SiteKeys[KeyedBulkhead] | None = None,
    ) -> None:
        self._bulkhead = bulkhead
        self._keys = keys
        self._wait = wait
        self._on_reject = on_reject
        self._place = place
        self._slots: list[int] = []
        # Popped by who enters: one at a time.
        self._entry = deque([True], maxlen=1)

    def __bool__(self) -> bool:
        return bool(self._slots)

    def __enter__(self) -> BulkheadBlock:
        self._begin()
        try:
            slot = self._bulkhead.take()
            if slot is None and self._wait > 0:
                slot = run(self._stand_in_line(SyncWorld))
            if self._bulkhead.leaving:
                slot = run(self._look_again(SyncWorld, slot))
            return self._admit(slot)
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def __aenter__(self) -> BulkheadBlock:
        self._begin()
        try:
            slot = self._bulkhead.take()
            if slot is None and self._wait > 0:
                # Only now: who is here has loaded asyncio.
                from resilience._engine.world_async import AsyncWorld

                slot = await self._stand_in_line(AsyncWorld)
            if self._bulkhead.leaving:
                from resilience._engine.world_async import AsyncWorld

                slot = await self._look_again(AsyncWorld, slot)
            return self._admit(slot)
        except BaseException:
            self._end()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def _stand_in_line(self, world: Any) -> int | None:
        """The plan's own line, in a world that waits as this block was entered."""
        layers, call = self._as_call(world)
        return await layers.stand_in_line(call, self._bulkhead)

    async def _look_again(self, world: Any, slot: int | None) -> int | None:
        """The plan's own second look, for a key whose bulkhead makes room for another one."""
        layers, call = self._as_call(world)
        self._bulkhead, slot = await layers.look_again(call, self._bulkhead, slot)
        return slot

    def _as_call(self, world: Any) -> tuple[BulkheadLayers, Call]:
        site, bulkhead = self._place.site, self._bulkhead
        performs: World = world(site)
        layers = BulkheadLayers(
            lambda: bulkhead, site, wait=self._wait, on_reject=self._on_reject, fallback=None, keys=self._keys
        )
        return layers, Call(site, performs, (), {})

    def _begin(self) -> None:
        try:
            self._entry.pop()
        except IndexError:
            raise RuntimeError("this block is entered already: call guard() for each use") from None

    def _admit(self, slot: int | None) -> BulkheadBlock:
        if slot is not None:
            self._slots.append(slot)
            return self
        waited = self._wait > 0
        if self._on_reject is not OnReject.BYPASS:
            raise self._bulkhead.refuse(waited=waited)
        self._bulkhead.refuse(waited=waited)
        self._bulkhead.note_bypass(self._place.label)
        return self

    def _end(self) -> None:
        """Give the slot back, if this use has one, and let others enter."""
        try:
            slot = self._slots.pop()
        except IndexError:
            pass
        else:
            self._bulkhead.give(slot)
        self._entry.append(True)

    def __del__(self) -> None:
        # Never left: dropped, or interrupted by a signal on the way in.
        if self._slots:
            self._end()

    def __repr__(self) -> str:
        return f"<BulkheadBlock {self._bulkhead.name!r}{', inside' if self else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a guard belongs to a running block: it can't be pickled")
