"""Time: the one protocol everything asks, and the system's own clock.

`time.monotonic` is read through its module at every call, so that freezegun and its
kind reach it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Handle(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Forget it; harmless when it has run."""


class Clock(Protocol):
    """What the library needs of a clock. All durations are seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def time_ns(self) -> int:
        """The wall clock in nanoseconds since the Unix epoch, for records."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    async def asleep(self, seconds: float) -> None:
        """Suspend the calling task."""

    def call_at(self, loop: asyncio.AbstractEventLoop | None, when: float, callback: Callable[[], object]) -> Handle:
        """Run `callback` once `monotonic()` reaches `when`: in `loop`, or in any thread where that is None."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    def call_at(self, loop: asyncio.AbstractEventLoop | None, when: float, callback: Callable[[], object]) -> Handle:
        if loop is None:
            raise ValueError("the system clock calls back in an event loop only: threads wait with their own timeout")
        # An event loop has a clock of its own: only the distance carries over.
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


SYSTEM_CLOCK = SystemClock()


def is_real(clock: Clock) -> bool:
    """Whether a thread may wait on this clock with the operating system's timeouts."""
    return isinstance(clock, SystemClock)
