"""The world in which a plan for threads hands out a stream.

A generator function is called and its items are asked for one by one. A function that
opens a stream is called, and what it returns is handed out first (`Opened`); from then
on each step is an operation on it, which ends the stream by raising StopIteration.

With workers each step is made on one of them, and may be left behind like any attempt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core.deadline import Deadline, FirstItemDeadline, IdleDeadline, Passed
from resilience._core.outcome import Outcome
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.hand_out import Closed, hand_out
from resilience._engine.opened import OF_TASKS, OF_THREADS, Opened, close
from resilience._engine.world_sync import SyncWorld, WorkerWorld, arguments, exceeded
from resilience._site import fault_of_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._engine.stream_call import StreamCall
    from resilience._engine.workers import WorkerPool
    from resilience._site import Call, Inner, Site


class StreamWorld(WorkerWorld):
    """Asks a stream for its items, on the caller's thread or on workers.

    Attributes:
        opens: the function returns the stream; else it is a generator function.
    """

    pool: WorkerPool | None  # type: ignore[assignment]  # None: on the caller's thread

    def __init__(self, site: Site, pool: WorkerPool | None, *, opens: bool) -> None:
        super().__init__(site, pool)  # type: ignore[arg-type]  # see above
        self.opens = opens

    async def attempt(self, call: StreamCall) -> Outcome:  # type: ignore[override]  # a stream's site makes stream calls
        site = self._site
        args, kwargs = (call.args, call.kwargs) if site.pass_as is None else arguments(site, call)
        if self.opens:
            opened = await self._step(call, partial(site.fn, *args, **kwargs), (), None)
            return opened if opened.error is not None else await self._go_on(call, opened)
        try:
            stream = site.fn(*args, **kwargs)
        except Exception as error:
            return Outcome(None, error)
        return await self._items(call, stream, stream.send, None)

    async def _go_on(self, call: StreamCall, opened: Outcome) -> Outcome:
        """With what the function has returned."""
        stream = opened.value
        kind = type(stream)
        if AWAITABLE[kind] or (OF_TASKS[kind] and not OF_THREADS[kind]):
            # Nothing is known of it until it is awaited, or asked for its items in a task.
            opened.pending = True
            return opened
        judge = self._site.judge_result
        if not OF_THREADS[kind] or (judge is not None and fault_of_result(judge, stream) is not None):
            return opened
        call.delivered = OF_THREADS.answers(kind)
        try:
            operation = await hand_out(call.box, Opened(stream))
        except BaseException as error:
            ended = error
        else:
            return await self._items(call, stream, operation, stream)
        try:
            failed = closing(stream)
            if failed is not None:
                # Nobody wants it begun anew.
                call.delivered = True
                return failed
            raise ended
        finally:
            del ended

    async def _items(self, call: StreamCall, stream: Any, step: Callable[[Any], Any], argument: Any) -> Outcome:
        """From the first item to the end of the stream."""
        limit: Callable[..., Deadline] = FirstItemDeadline
        seconds = self._site.first_item
        ended: BaseException | None = None
        while True:
            outcome = await self._step(call, step, (argument,), stream, limit, seconds)
            argument = None
            if type(outcome.error) is StopIteration:
                value = outcome.error.value
                # Or this frame would hold the exception, and that, by its traceback, this frame.
                outcome.discard()
                return Outcome(value)
            if outcome.error is not None:
                return outcome
            call.delivered = True
            if call.watched:
                call.note_item()
            limit, seconds = IdleDeadline, self._site.idle
            try:
                argument = await hand_out(call.box, outcome.value)
                step = stream.send if not self.opens else argument
            except (GeneratorExit, Closed, Passed) as error:
                ended = error
            except BaseException as error:
                step, argument = stream.throw, error
            if ended is not None:
                # The consumer has had enough of it, or a limit ran out meanwhile. Outside of the handler: in
                # there the stream's own exceptions would be raised "during the handling of" this one.
                try:
                    failed = closing(stream)
                    if failed is not None:
                        return failed
                    raise ended
                finally:
                    del ended
            if self.opens:
                argument = stream

    async def _step(
        self,
        call: StreamCall,
        step: Callable[..., Any],
        args: tuple[Any, ...],
        stream: Any,
        limit: Callable[..., Deadline] = FirstItemDeadline,
        seconds: float | None = None,
    ) -> Outcome:
        """Make one step: its item, or what it raised; StopIteration is the end."""
        if self.pool is None:
            try:
                return Outcome(step(*args))
            except Exception as error:
                return Outcome(None, error)
            finally:
                del args
        if seconds is None:
            return self.perform(call, step, args, {}, partial(close, stream))
        deadline = limit(seconds, self._site.services.now(), DEADLINE.get())
        deadline.counts = self._site.counts

        async def perform(call: Call) -> Outcome:
            return self.perform(call, step, args, {}, partial(close, stream))

        outcome = await SyncWorld.bounded(self, deadline, call, perform)
        if outcome.expired is deadline:
            self._site.tell_expiry(deadline)
        return outcome

    async def bounded(self, deadline: Deadline, call: StreamCall, inner: Inner) -> Outcome:  # type: ignore[override]
        if self.pool is None:
            # A limit that is handed to the function: it ends nothing.
            return await super().bounded(deadline, call, inner)
        limit = Lasting(deadline)
        call.limits.append(limit)
        try:
            return await super().bounded(deadline, call, inner)
        except Passed as error:
            if error.deadline is not deadline:
                raise
            # It ran out while the consumer had the stream.
            deadline.counts = False
            return exceeded(deadline)
        finally:
            call.limits.remove(limit)


def closing(stream: Any) -> Outcome | None:
    """Close a stream; an outcome where that fails."""
    try:
        close(stream)
    except Exception as error:
        return Outcome(None, error)
    return None


class Lasting:
    """A limit of a stream on workers: the step under way waits no longer than it, the next one is told."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def begin_step(self) -> None:
        """Nothing: whoever waits for a worker looks at all deadlines."""

    def end_step(self) -> None:
        """Nothing."""
