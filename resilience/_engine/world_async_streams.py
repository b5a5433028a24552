"""The world in which a plan for asyncio hands out a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core.deadline import Deadline, FirstItemDeadline, IdleDeadline, Passed
from resilience._core.outcome import Outcome
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.hand_out import Closed, hand_out
from resilience._engine.opened import OF_TASKS, Opened, Rest, aclose, close
from resilience._engine.timers import SteppedExpiry
from resilience._engine.world_async import AsyncWorld, within
from resilience._engine.world_sync import exceeded, past
from resilience._site import fault_of_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from resilience._engine.stream_call import StreamCall
    from resilience._site import Call, Inner, Site


class AsyncStreamWorld(AsyncWorld):
    """Asks an async stream for its items, in whatever task asks for them.

    Attributes:
        opens: the function returns the stream; else it is an async generator function.
    """

    def __init__(self, site: Site, *, opens: bool) -> None:
        super().__init__(site)
        self.opens = opens

    async def attempt(self, call: StreamCall) -> Outcome:  # type: ignore[override]  # a stream's site makes stream calls
        if self.opens:
            opened = await self._step(call, self.open(call), FirstItemDeadline, self._site.first_item)
            return opened if opened.error is not None else await self._go_on(call, opened)
        try:
            stream = self._site.fn(*call.args, **call.kwargs)
        except Exception as error:
            return Outcome(None, error)
        return await self._items(call, stream, stream.__anext__())

    def open(self, call: StreamCall) -> Awaitable[Any]:
        """Begin to open the stream."""
        return self._site.fn(*call.args, **call.kwargs)  # type: ignore[no-any-return]  # a coroutine function

    async def _go_on(self, call: StreamCall, opened: Outcome) -> Outcome:
        """With what the function has returned."""
        stream, judge = opened.value, self._site.judge_result
        kind = type(stream)
        if not OF_TASKS[kind] or (judge is not None and fault_of_result(judge, stream) is not None):
            return opened
        call.delivered = OF_TASKS.answers(kind)
        try:
            operation = await hand_out(call.box, Opened(stream))
        except Passed as error:
            ended = error
        else:
            return await self._items(call, stream, operation(stream))
        try:
            failed = await closing(stream)
            if failed is not None:
                # Nobody wants it begun anew.
                call.delivered = True
                return failed
            raise ended
        finally:
            del ended

    async def _items(self, call: StreamCall, stream: Any, step: Awaitable[Any]) -> Outcome:
        """From the first item to the end of the stream."""
        limit: Callable[..., Deadline] = FirstItemDeadline
        seconds = self._site.first_item
        ended: BaseException | None = None
        while True:
            outcome = await self._step(call, step, limit, seconds)
            if outcome.error is not None:
                return self._ended(outcome)
            call.delivered = True
            if call.watched:
                call.note_item()
            limit, seconds = IdleDeadline, self._site.idle
            try:
                sent = await hand_out(call.box, outcome.value)
                step = sent(stream) if self.opens else stream.asend(sent)
            except (GeneratorExit, Closed, Passed) as error:
                ended = error
            except BaseException as error:
                step = stream.athrow(error)
            del outcome
            if ended is not None:
                # The consumer has had enough of it, or a limit ran out meanwhile. Outside of the handler: in
                # there the stream's own exceptions would be raised "during the handling of" this one. A returned
                # stream is closed by whoever has it: the plan must end at once, also in a finaliser.
                try:
                    failed = None if self.opens and type(ended) is not Passed else await closing(stream)
                    if failed is not None:
                        return failed
                    raise ended
                finally:
                    del ended

    def _ended(self, outcome: Outcome) -> Outcome:
        error = outcome.error
        try:
            if not isinstance(error, (StopAsyncIteration, Rest)):
                return outcome
            # Emptied, or a frame would hold the exception, and that, by its traceback, the frame.
            outcome.discard()
            return Outcome(error.args[0] if type(error) is Rest else None)
        finally:
            del error

    async def first(self, stream: Any) -> Any:
        """The first item of a stream of the straight path."""
        step = stream.__anext__()
        return (await self._step(None, step, FirstItemDeadline, self._site.first_item)).unwrap()

    async def _step(
        self, call: StreamCall | None, step: Awaitable[Any], limit: Callable[..., Deadline], seconds: float | None
    ) -> Outcome:
        """Make one step: its item, or what it raised; StopAsyncIteration is the end."""
        if seconds is None:
            try:
                return Outcome(await step)
            except Exception as error:
                return Outcome(None, error)
        deadline = limit(seconds, self._site.services.now(), DEADLINE.get())
        deadline.counts = self._site.counts

        begun = False

        async def make(call: Call) -> Outcome:
            nonlocal begun
            begun = True
            try:
                return Outcome(await step)
            except Exception as error:
                return Outcome(None, error)

        outcome = await super().bounded(deadline, call, make)  # type: ignore[arg-type]  # `make` does not look at the call
        if not begun:
            close(step)
        if outcome.expired is deadline:
            self._site.tell_expiry(deadline)
        return outcome

    async def bounded(self, deadline: Deadline, call: StreamCall, inner: Inner) -> Outcome:  # type: ignore[override]
        clock = self._site.services.clock
        expired = past(deadline, clock.monotonic())
        if expired is not None:
            return expired
        limit = SteppedExpiry(deadline, clock)
        call.limits.append(limit)
        try:
            return await within(limit, call, inner)
        except Passed as error:
            if error.deadline is not deadline:
                raise
            # It ran out while the consumer had the stream.
            deadline.counts = False
            return exceeded(deadline)
        finally:
            call.limits.remove(limit)


async def closing(stream: Any) -> Outcome | None:
    """Close an async stream; an outcome where that fails."""
    try:
        await aclose(stream)
    except Exception as error:
        return Outcome(None, error)
    return None


class AdoptingStreamWorld(AsyncStreamWorld):
    """Goes on first with what a plain function has returned already, and calls the function anew for later attempts."""

    adopted = True

    def __init__(self, site: Site, stream: Any, *, entering: bool = False) -> None:
        super().__init__(site, opens=True)
        self._adopted = [stream]
        self.entering = entering
        self.used: Any = None

    async def attempt(self, call: StreamCall) -> Outcome:  # type: ignore[override]  # as above
        try:
            self.used = self._adopted.pop() if self._adopted else self._site.fn(*call.args, **call.kwargs)
        except Exception as error:
            return Outcome(None, error)
        if self.entering:
            opened = await self._step(call, self.used.__aenter__(), FirstItemDeadline, self._site.first_item)
        elif AWAITABLE[type(self.used)]:
            opened = await self._step(call, self.used, FirstItemDeadline, self._site.first_item)
        else:
            opened = Outcome(self.used)
        return opened if opened.error is not None else await self._go_on(call, opened)

    def close(self) -> None:
        """Close a coroutine that was refused before it could begin."""
        while self._adopted:
            close(self._adopted.pop())
