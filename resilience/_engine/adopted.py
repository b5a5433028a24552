"""What a plain function's awaitable becomes: the same to await, under the policies."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Adopted(Coroutine[Any, Any, Any]):
    """Awaiting it, or entering it where the awaitable can be entered, is guarded; anything else is the awaitable's own.

    Nothing is held until then: an object that is never awaited has taken no slot and no permit.
    """

    __slots__ = ("_awaitable", "_guarded", "_running", "_world")

    def __init__(
        self, awaitable: Any, guarded: Callable[[Any], Coroutine[Any, Any, Any]], world: Callable[..., Any]
    ) -> None:
        self._awaitable = awaitable
        self._guarded = guarded
        self._world = world
        self._running: Coroutine[Any, Any, Any] | None = None

    def _run(self) -> Coroutine[Any, Any, Any]:
        if self._running is None:
            self._running = self._guarded(self._world(self._awaitable))
        return self._running

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._run().__await__()

    def send(self, value: Any) -> Any:
        return self._run().send(value)

    def throw(self, *error: Any) -> Any:
        return self._run().throw(*error)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
        else:
            close = getattr(self._awaitable, "close", None)
            if close is not None:
                close()

    async def __aenter__(self) -> Any:
        world = self._world(self._awaitable, entering=True)
        entered = await self._guarded(world)
        # Not kept there as well: a stream that was entered knows its world.
        self._awaitable, world.used = world.used, None
        return entered

    async def __aexit__(self, *error: Any) -> Any:
        return await self._awaitable.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._awaitable, name)
