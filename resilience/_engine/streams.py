"""A plan that hands out the items of a stream, driven step by step.

The plan of a stream is the plan of any call: its layers hold slot and permit while what
is inside of them goes on. It only goes on for longer, and stops at each item until the
consumer asks for the next one. So a plan for threads is suspended at its items and
nowhere else; one for asyncio at its items, which a box marks, and wherever it awaits.

Deadline, probe and retry marks are the plan's own: they are in force during a step, and
the consumer's are put back after it, in whatever context the next step is asked for.

Whatever ends the stream goes through the layers: the end, an error, the consumer that
closes it, and a finaliser, which closes the plan where it stands.
"""

from __future__ import annotations

from contextvars import copy_context
from types import coroutine
from typing import TYPE_CHECKING, Any, Literal

from resilience._context import OwnMarks, take_over
from resilience._engine.hand_out import Closed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator

    from resilience._core.outcome import Outcome
    from resilience._engine.hand_out import Box
    from resilience._engine.stream_call import StreamCall

    Plan = Coroutine[Any, Any, Outcome]


# ---------------------------------------------------------------------------------------------- threads
def steps_of(plan: Plan, call: StreamCall) -> Generator[Any, Any, Outcome]:
    """The items that a plan for threads hands out, then its outcome."""
    step: Callable[[Any], Any] = plan.send
    argument: Any = None
    marks = OwnMarks()
    while True:
        ended: Outcome | None = None
        theirs = marks.put_on()
        try:
            passed = call.begin_step()
            if passed is not None:
                step, argument = plan.throw, passed
            step(argument)
        except StopIteration as stop:
            ended = stop.value
        finally:
            argument = passed = None
            marks.take_off(theirs)
        if ended is not None:
            return ended
        closed = False
        try:
            argument = yield call.box.take()
            step = plan.send
        except GeneratorExit:
            closed = True
        except BaseException as error:
            step, argument = plan.throw, error
        if closed:
            return _close(plan, marks)


def _close(plan: Plan, marks: OwnMarks) -> Outcome:
    """End a plan that its consumer, or a finaliser, has closed: whoever closes hears of what it raises only.

    In a copy of the context: on Python 3.11 the collector may come in the middle of
    setting a context variable, and crashes if a finaliser sets one of the same context
    meanwhile (cpython#148891).
    """
    context = copy_context()
    try:
        outcome = context.run(_throw_closed, plan, marks)
    finally:
        take_over(context)
    if outcome is not None:  # pragma: no cover  # Python 3.11 traces nothing after a throw() that ends a coroutine
        outcome.unwrap()
        return outcome
    raise GeneratorExit


def _throw_closed(plan: Plan, marks: OwnMarks) -> Outcome | None:
    """The outcome of a plan that answers for what its stream has raised; None of one that is just closed."""
    theirs = marks.put_on()
    try:
        plan.throw(Closed())
    except StopIteration as stop:  # pragma: no cover  # the same
        outcome: Outcome = stop.value
        return outcome
    except Closed:
        pass
    finally:
        marks.take_off(theirs)
    return None


def items_of(plan: Plan, call: StreamCall) -> Generator[Any, Any, Any]:
    """What a generator with such a plan is to its consumer."""
    outcome = yield from steps_of(plan, call)
    if not call.bypassed:
        return outcome.unwrap()
    # Nothing is sent to a fallback, which may be no generator.
    for item in iterated(outcome.unwrap()):  # noqa: UP028
        yield item
    return None


def iterated(fallback: Any) -> Iterator[Any]:
    """The items of a fallback: none of None, those of an iterator, list or tuple, else the one that it is."""
    if fallback is None:
        return iter(())
    if hasattr(type(fallback), "__next__") or isinstance(fallback, (list, tuple)):
        return iter(fallback)
    return iter((fallback,))


# ---------------------------------------------------------------------------------------------- asyncio
class AsyncSteps:
    """A plan for asyncio, step by step. Nothing runs before the first: `begin` makes the call and its plan.

    Attributes:
        call: the call, once it has begun.
        plan: its plan while it goes on, else None.
        running: whether a step is under way.
    """

    __slots__ = ("_begin", "_marks", "call", "plan", "running")

    def __init__(self, begin: Callable[[], tuple[StreamCall, Plan]]) -> None:
        self._begin: Callable[[], tuple[StreamCall, Plan]] | None = begin
        self._marks = OwnMarks()
        self.call: StreamCall
        self.plan: Plan | None = None
        self.running = False

    async def send(self, value: Any) -> Outcome | None:
        """Go on to the next item, which is then in the call's box; the outcome where the plan has ended.

        Raises:
            RuntimeError: another task is in the middle of a step.
        """
        if self._begin is not None:
            self.call, self.plan = self._begin()
            self._begin = None
        return await self._step("send", value)

    async def throw(self, error: BaseException) -> Outcome | None:
        """The same, with an exception raised where the plan stands."""
        try:
            return await self._step("throw", error)
        finally:
            # Or it, which may come back, would hold this frame, and this frame it.
            del error

    @property
    def begun(self) -> bool:
        """Whether there has been a first step."""
        return self._begin is None

    @property
    def over(self) -> bool:
        """Whether the plan has ended."""
        return self.plan is None and self._begin is None

    def forget(self) -> None:
        """Never begin."""
        self._begin = None

    async def _step(self, how: Literal["send", "throw"], argument: Any) -> Outcome | None:
        plan = self.plan
        assert plan is not None, "a plan that has ended makes no step"
        call = self.call
        if self.running:
            raise RuntimeError("the stream is being asked for an item already, by another task")
        self.running = True
        theirs = self._marks.put_on()
        over = True
        try:
            step = plan.send if how == "send" else plan.throw
            passed = call.begin_step()
            if passed is not None and type(argument) is not Closed:
                step, argument = plan.throw, passed
            outcome = await _drive(plan, step, argument, call.box)
            over = outcome is not None
            return outcome
        finally:
            argument = passed = None
            call.end_step()
            self._marks.take_off(theirs)
            self.running = False
            if over:
                self.plan = None


@coroutine
def _drive(plan: Plan, step: Callable[[Any], Any], argument: Any, box: Box) -> Generator[Any, Any, Outcome | None]:
    """Run a plan up to its next item; its outcome where it has come to its end, else None."""
    while True:
        try:
            signal = step(argument)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        finally:
            argument = None
        if signal is box:
            return None
        # What it awaits is between it and the event loop.
        try:
            argument = yield signal
            step = plan.send
        except BaseException as error:
            step, argument = plan.throw, error


class AsyncItems:
    """What an async generator with such a plan is to its consumer."""

    __slots__ = ("_fallback", "_steps")

    def __init__(self, begin: Callable[[], tuple[StreamCall, Plan]]) -> None:
        self._steps = AsyncSteps(begin)
        self._fallback: AsyncIterator[Any] | None = None

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self.asend(None)

    async def asend(self, value: Any) -> Any:
        """The next item; raises StopAsyncIteration at the end, or what ended the stream."""
        steps = self._steps
        if steps.over:
            return await self._next_of_fallback()
        outcome = await steps.send(value)
        return steps.call.box.take() if outcome is None else await self._end(outcome)

    async def athrow(self, error: BaseException) -> Any:
        """Raise an exception in the stream, where it stands."""
        steps = self._steps
        if steps.plan is None:
            steps.forget()
            self._fallback = None
            try:
                raise error
            finally:
                del error
        outcome = await steps.throw(error)
        return steps.call.box.take() if outcome is None else await self._end(outcome)

    async def aclose(self) -> None:
        """End the stream; nobody is to blame."""
        steps = self._steps
        steps.forget()
        self._fallback = None
        if steps.plan is not None:
            try:
                outcome = await steps.throw(Closed())
            except Closed:
                return
            if outcome is None:
                raise RuntimeError("async generator ignored GeneratorExit")
            outcome.unwrap()

    async def _end(self, outcome: Outcome) -> Any:
        value = outcome.unwrap()
        if not self._steps.call.bypassed:
            raise StopAsyncIteration
        self._fallback = async_iterated(value)
        return await self._next_of_fallback()

    async def _next_of_fallback(self) -> Any:
        if self._fallback is None:
            raise StopAsyncIteration
        return await self._fallback.__anext__()


async def async_iterated(fallback: Any) -> AsyncIterator[Any]:
    """The items of a fallback, which may also be an async iterator."""
    if hasattr(type(fallback), "__anext__"):
        async for item in fallback:
            yield item
    else:
        for item in iterated(fallback):
            yield item


# ---------------------------------------------------------------------------------------------- the straight path
class Held:
    """The slot of an async stream on the straight path.

    An async generator whose event loop is gone is never closed, only freed: then this
    gives the slot back.
    """

    __slots__ = ("_give", "_slot")

    def __init__(self, slot: int, give: Callable[[int], None]) -> None:
        self._slot: int | None = slot
        self._give = give

    def leave(self) -> None:
        """Give it back, once."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._give(slot)

    def __del__(self) -> None:
        self.leave()
