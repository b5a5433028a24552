"""Running the plan of a stream: from its first item, or from where the straight path left off."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from resilience._assembly.runner import Runner
from resilience._engine.adopted import Adopted
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.kinds import Kind
from resilience._engine.stream_call import StreamCall
from resilience._engine.streams import AsyncItems, AsyncSteps, items_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from resilience._assembly.parts import Parts
    from resilience._core.faults import Fault
    from resilience._core.outcome import Outcome


class StreamRunner(Runner):
    """Drives the plans of a function whose calls are streams.

    Attributes:
        run: the plan as what such a function gives: a generator, something like an async
            generator, or the stream that it opens (for an async function a coroutine of it).
        recover: the plan from the retry inwards, for a generator that has failed on the
            straight path, as a generator.
    """

    def __init__(self, parts: Parts, kind: Kind) -> None:
        super().__init__(parts, kind)
        self.run = {
            Kind.GENERATOR: self._run_generator,
            Kind.ASYNC_GENERATOR: self._run_async_generator,
            Kind.OPENING: self._run_opening,
            Kind.ASYNC_OPENING: self._run_async_opening,
        }[kind]
        self.recover = self._recover_async_items if kind.is_async else self._recover_items

    def _begin(
        self, world: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failed: int = 0
    ) -> tuple[StreamCall, Coroutine[Any, Any, Outcome]]:
        call = StreamCall(self._site, world, args, kwargs)
        if self._site.timed:
            call.entered = self._site.services.now()
        call.attempt += failed
        return call, self._plan(call)  # type: ignore[return-value]  # a plan is a coroutine

    # ------------------------------------------------------------------------------------------------ generators
    def _run_generator(self, /, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call, plan = self._begin(self._world, args, kwargs)
        return (yield from items_of(plan, call))

    def _run_async_generator(self, /, *args: Any, **kwargs: Any) -> AsyncItems:
        return AsyncItems(partial(self._begin, self._world, args, kwargs))

    async def first(self, stream: Any) -> Any:
        """The first item of an async generator, within its limit."""
        return await self._world.first(stream)

    def _recover_items(
        self,
        episode: int,
        failed: Exception,
        fault: Fault | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        began: float,
        delivered: bool,
    ) -> Generator[Any, Any, Any]:
        """Report a stream that has failed, and begin anew where nothing has been delivered yet."""
        call = StreamCall(self._site, self._world, args, kwargs)
        call.delivered = delivered
        outcome = self._first_answer(call, episode, failed, fault)
        del failed
        if self._retry is None:
            return outcome.unwrap()
        return (yield from items_of(self._retry.go_on(call, outcome, self._again, began), call))

    def _recover_async_items(
        self,
        episode: int,
        failed: Exception,
        fault: Fault | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        began: float,
        delivered: bool,
    ) -> AsyncItems:
        call = StreamCall(self._site, self._world, args, kwargs)
        call.delivered = delivered
        outcome = self._first_answer(call, episode, failed, fault)
        del failed
        if self._retry is None:
            return AsyncItems(lambda: (call, _only(outcome)))
        retry = self._retry
        return AsyncItems(lambda: (call, retry.go_on(call, outcome, self._again, began)))

    # ------------------------------------------------------------------------------------------------ opened streams
    def _run_opening(self, /, *args: Any, **kwargs: Any) -> Any:
        call, plan = self._begin(self._world, args, kwargs)
        steps = steps_of(plan, call)
        try:
            opened = next(steps)
        except StopIteration as stop:
            outcome: Outcome = stop.value
        else:
            # Only now: wrapt is needed by few, and costs everybody who imports it.
            from resilience._opened import OpenedStream

            return OpenedStream(opened.stream, steps)  # type: ignore[arg-type]  # what a generator function gives is one
        if outcome.pending:
            return self._adopt_stream(outcome.value, args, kwargs, call.attempt - 1)
        return outcome.unwrap()

    async def _run_async_opening(self, /, *args: Any, **kwargs: Any) -> Any:
        return await self._open(AsyncSteps(partial(self._begin, self._world, args, kwargs)))

    async def _open(self, steps: AsyncSteps) -> Any:
        outcome = await steps.send(None)
        if outcome is not None:
            return outcome.unwrap()
        from resilience._opened import AsyncOpenedStream

        return AsyncOpenedStream(steps.call.box.take().stream, steps)

    def _adopt_stream(self, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failed: int) -> Any:
        """Guard what a plain function has returned, which is awaited or asked for its items in a task: from then on."""
        from resilience._engine.world_async_streams import AdoptingStreamWorld
        from resilience._opened import AsyncOpenedStream, EnteredStream

        if not AWAITABLE[type(value)]:
            world = AdoptingStreamWorld(self._site, value)
            return AsyncOpenedStream(value, AsyncSteps(partial(self._begin, world, args, kwargs, failed)))

        async def guarded(world: AdoptingStreamWorld) -> Any:
            try:
                opened = await self._open(AsyncSteps(partial(self._begin, world, args, kwargs, failed)))
            finally:
                world.close()
            if world.entering:
                # Leaving that ends the stream as well.
                world.used = EnteredStream(world.used, opened)
            return opened

        return Adopted(value, guarded, partial(AdoptingStreamWorld, self._site))


async def _only(outcome: Outcome) -> Outcome:
    """The plan of which nothing is left to be done."""
    return outcome
