"""The world of asyncio: what a plan awaits is really awaited."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE, take_over
from resilience._core.outcome import Outcome
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.timers import Expiry, this_task
from resilience._engine.world_sync import arguments, exceeded, past

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.deadline import Deadline
    from resilience._core.slots import Ticket
    from resilience._site import Call, Inner, Site


class AsyncWorld:
    """Awaits the function in the caller's own task."""

    adopted = False

    def __init__(self, site: Site) -> None:
        self._site = site

    async def attempt(self, call: Call) -> Outcome:
        site = self._site
        args, kwargs = (call.args, call.kwargs) if site.pass_as is None else arguments(site, call)
        try:
            return Outcome(await site.fn(*args, **kwargs))
        except Exception as error:
            return Outcome(None, error)

    async def sleep(self, seconds: float) -> None:
        this_task()  # type: ignore[unused-awaitable]  # asked only so that it can refuse
        await self._site.services.clock.asleep(seconds)

    async def wait(self, ticket: Ticket, seconds: float, ready: Callable[[], object]) -> None:
        clock = self._site.services.clock
        loop = this_task().get_loop()
        granted: asyncio.Future[None] = loop.create_future()

        def wake() -> bool:
            try:
                loop.call_soon_threadsafe(done)
            except RuntimeError:
                return False  # the loop is closed
            return True

        def done() -> None:
            if not granted.done():
                granted.set_result(None)

        ticket.wake = wake
        # Granted before it could be woken? Whoever grants sets the slot first and wakes afterwards.
        ready()
        if ticket.slot is not None:
            return
        handle = clock.call_at(loop, clock.monotonic() + seconds, done)
        try:
            await granted
        finally:
            handle.cancel()

    async def bounded(self, deadline: Deadline, call: Call, inner: Inner) -> Outcome:
        clock = self._site.services.clock
        expired = past(deadline, clock.monotonic())
        if expired is not None:
            return expired
        return await within(Expiry(deadline, clock), call, inner)

    async def invoke(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        try:
            value = function(*args, **kwargs)
            return Outcome(await value if AWAITABLE[type(value)] else value)
        except Exception as error:
            return Outcome(None, error)


async def within(expiry: Expiry, call: Call, inner: Inner) -> Outcome:
    """The layers inside of a scope that has been entered; a cancel of its own is an outcome."""
    cut: BaseException | None = None
    try:
        outcome = await inner(call)
    except asyncio.CancelledError as error:
        if not expiry.leave():
            raise
        cut = error
    except BaseException:
        expiry.leave()
        raise
    else:
        expiry.leave()
        return outcome
    try:
        return exceeded(expiry.deadline, cut)
    finally:
        del cut


class UninterruptibleWorld(AsyncWorld):
    """Runs each attempt in a task of its own and waits for its end, whatever is cancelled meanwhile."""

    async def attempt(self, call: Call) -> Outcome:
        # An outer deadline only decides whether it starts.
        outer = DEADLINE.get()
        expired = None if outer is None else past(outer, self._site.services.now())
        if expired is not None:
            return expired
        context = copy_context()
        task = this_task().get_loop().create_task(super().attempt(call), context=context)
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                # Raised when the breaker has judged what really became of the attempt.
                call.cancelled = error
        take_over(context)
        return task.result()


class AdoptingWorld(AsyncWorld):
    """Awaits first what a plain function has returned already, and calls the function anew for later attempts.

    With `entering` it enters the object as an async context manager instead of awaiting it.

    Attributes:
        used: the object of the last attempt.
    """

    adopted = True

    def __init__(self, site: Site, awaitable: Any, *, entering: bool = False) -> None:
        super().__init__(site)
        self._adopted = [awaitable]
        self._entering = entering
        self.used: Any = None

    async def attempt(self, call: Call) -> Outcome:
        try:
            self.used = self._adopted.pop() if self._adopted else self._call_again(call)
            if self._entering:
                return Outcome(await self.used.__aenter__())
            # A later call may well answer at once.
            return Outcome(await self.used if AWAITABLE[type(self.used)] else self.used)
        except Exception as error:
            return Outcome(None, error)

    def _call_again(self, call: Call) -> Any:
        site = self._site
        args, kwargs = (call.args, call.kwargs) if site.pass_as is None else arguments(site, call)
        return site.fn(*args, **kwargs)

    def close(self) -> None:
        """Close a coroutine that was refused before it could begin."""
        while self._adopted:
            close_awaitable(self._adopted.pop())


def close_awaitable(awaitable: Any) -> None:
    """Close what will never be awaited, if it can be closed."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()
