"""`ManualClock`: time that passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from resilience import Clock, Registry, default_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ManualClock:
    """A clock for tests. `sleep` moves it by itself; everything else waits for `advance`.

    Safe from threads. What is due fires in the order of its time, with the clock
    standing at that time; callbacks that belong to an event loop run in that loop.

    Args:
        start: what `monotonic()` reads at first, in seconds (default 0).

    Example:
        >>> clock = ManualClock()
        >>> clock.advance(1.5)
        >>> clock.monotonic()
        1.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)
        self._lock = threading.RLock()
        self._due: list[tuple[float, int, Pending]] = []
        self._order = count()

    def monotonic(self) -> float:
        """The time now, in seconds."""
        return self._now

    def time_ns(self) -> int:
        """The same as nanoseconds since the Unix epoch."""
        return round(self._now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once, firing what becomes due."""
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Suspend the task until somebody has advanced the clock far enough."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        handle = self.call_at(loop, self._now + seconds, wake)
        try:
            await woken
        finally:
            handle.cancel()

    def call_at(self, loop: asyncio.AbstractEventLoop | None, when: float, callback: Callable[[], object]) -> Pending:
        """Run `callback` when the clock is advanced to `when`; in `loop`, or in the advancing thread where that is None."""
        pending = Pending(loop, callback)
        with self._lock:
            heapq.heappush(self._due, (when, next(self._order), pending))
        return pending

    def advance(self, seconds: float) -> None:
        """Move the time on by `seconds` (≥ 0), firing what becomes due on the way.

        Raises:
            ValueError: `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must be >= 0, got {seconds!r}")
        with self._lock:
            target = self._now + seconds
        while (pending := self._next_until(target)) is not None:
            pending.run()
        with self._lock:
            self._now = max(self._now, target)

    @property
    def pending(self) -> int:
        """Callbacks that wait for their time."""
        with self._lock:
            return sum(1 for _, _, waiting in self._due if not waiting.cancelled)

    def _next_until(self, target: float) -> Pending | None:
        with self._lock:
            return self._pop_until(target)

    def _pop_until(self, target: float) -> Pending | None:
        while self._due and self._due[0][0] <= target:
            when, _, pending = heapq.heappop(self._due)
            if not pending.cancelled:
                self._now = max(self._now, when)
                return pending
        return None


class Pending:
    """A callback that waits for its time."""

    __slots__ = ("_callback", "_loop", "cancelled")

    def __init__(self, loop: asyncio.AbstractEventLoop | None, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Forget it, with all that its callback holds; harmless when it has run."""
        self.cancelled = True
        self._callback = _nothing

    def run(self) -> None:
        """Run it where it belongs."""
        if self._loop is None or self._loop is asyncio._get_running_loop():
            self._run()
        else:
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:
                pass  # the loop is closed: nobody waits there any more

    def _run(self) -> None:
        if not self.cancelled:
            self._callback()


def _nothing() -> None:
    return None


@contextmanager
def use_clock(clock: Clock, registry: Registry | None = None) -> Iterator[Clock]:
    """Let everything of a registry (default: the process-wide one) run on `clock` inside the block.

    Wrappers compiled before ask the registry as well while the block lasts.

    Example:
        >>> with use_clock(ManualClock()) as clock:
        ...     clock.advance(3600)
    """
    target = registry or default_registry()
    before = target.clock
    target.clock = clock
    try:
        yield clock
    finally:
        target.clock = before
