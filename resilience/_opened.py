"""What a function that opens a stream returns to its caller: the stream, under the policies of the call.

Everything is the stream's own but what leads to its items: those operations go through
the plan, which holds slot and permit until the stream has ended, is closed, or is
dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wrapt

from resilience._engine.hand_out import Closed
from resilience._engine.opened import Iteration, Opened, afinal, anext_item, asome, final, next_item, some
from resilience._engine.streams import async_iterated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import GeneratorType

    from resilience._core.outcome import Outcome
    from resilience._engine.streams import AsyncSteps


PARTS = frozenset({"read", "read1", "readany", "readexactly", "readinto", "readline", "readuntil", "aread"})
"""Methods that read from where the stream stands; without a size, `read` and `aread` all the rest."""

STEPS = frozenset({"send", "throw", "asend", "athrow"})
"""What a generator can be told besides."""


class OpenedStream(wrapt.ObjectProxy):  # type: ignore[misc, type-arg, unused-ignore]  # typed since wrapt 2
    """A stream of threads: its iterators, `read`, and its ways to close it are the plan's."""

    def __init__(self, stream: Any, steps: GeneratorType[Any, Any, Outcome]) -> None:
        super().__init__(stream)
        self._self_steps: GeneratorType[Any, Any, Outcome] | None = steps
        self._self_failed = False

    def __next__(self) -> Any:
        return self._self_go_on(next_item)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(type(self.__wrapped__), "__next__"):
            return self
        return self._self_iterate(Iteration(iter))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        if self._self_steps is None or not callable(found):
            return found
        if name.startswith("iter_"):
            return lambda *args, **kwargs: self._self_iterate(
                Iteration(lambda stream: iter(getattr(stream, name)(*args, **kwargs)))
            )
        if name in PARTS:
            return lambda *args, **kwargs: self._self_read(name, args, kwargs)
        if name == "close":
            return self._self_close
        if name in STEPS:
            return lambda *args: self._self_go_on(lambda stream: getattr(stream, name)(*args))
        return found

    def __enter__(self) -> Any:
        entered = self.__wrapped__.__enter__()
        return self if entered is self.__wrapped__ else entered

    def __exit__(self, *error: Any) -> Any:
        self._self_leave()
        return self.__wrapped__.__exit__(*error)

    def _self_go_on(self, operation: Callable[[Any], Any]) -> Any:
        """Make a step; raises StopIteration with the rest, where it ends the stream."""
        steps = self._self_steps
        if self._self_failed:
            raise StopIteration
        if steps is None:
            return operation(self.__wrapped__)
        try:
            item = self._self_step(steps, operation)
        except StopIteration as stop:
            self._self_steps = None
            # None where another thread has closed it at this very moment.
            outcome: Outcome | None = stop.value
            # It has ended, as a generator that has raised has; whatever may still be going on in there.
            self._self_failed = outcome is None or outcome.error is not None
        except BaseException:
            # Where another thread is in the middle of a step, this was none.
            if steps.gi_frame is None:
                self._self_steps = None
            raise
        else:
            return item
        raise StopIteration(None if outcome is None else outcome.unwrap())

    def _self_step(self, steps: Any, operation: Callable[[Any], Any]) -> Any:
        # Apart from the `try` around it, which a loop would leave a hole in on Python 3.13 (cpython#130279).
        item = steps.send(operation)
        while type(item) is Opened:
            # It failed before its first item, and has been opened again.
            self.__wrapped__ = item.stream
            item = steps.send(operation)
        return item

    def _self_iterate(self, iteration: Iteration) -> Iterator[Any]:
        while True:
            try:
                item = self._self_go_on(iteration.next_item)
            except StopIteration:
                return
            yield item

    def _self_read(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def read(stream: Any) -> Any:
            return getattr(stream, name)(*args, **kwargs)

        if self._self_steps is None:
            return read(self.__wrapped__)
        whole = name == "read" and not args and not kwargs
        try:
            return self._self_go_on(final(read) if whole else some(read))
        except StopIteration as stop:
            return stop.value

    def _self_leave(self) -> None:
        steps, self._self_steps = self._self_steps, None
        # A step that is under way in another thread comes to its end by itself.
        if steps is not None and not steps.gi_running:
            steps.close()

    def _self_close(self) -> Any:
        self._self_leave()
        return self.__wrapped__.close()


class AsyncOpenedStream(wrapt.ObjectProxy):  # type: ignore[misc, type-arg, unused-ignore]  # typed since wrapt 2
    """A stream of tasks: the same with `aiter_...`, `aread`, and awaitable ways to close it."""

    def __init__(self, stream: Any, steps: AsyncSteps) -> None:
        super().__init__(stream)
        self._self_steps: AsyncSteps | None = steps
        self._self_fallback: AsyncIterator[Any] | None = None
        self._self_failed = False

    async def __anext__(self) -> Any:
        return await self._self_go_on(anext_item)

    def __aiter__(self) -> AsyncIterator[Any]:
        if hasattr(type(self.__wrapped__), "__anext__"):
            return self
        return self._self_iterate(Iteration(aiter))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        if self._self_steps is None or not callable(found):
            return found
        if name.startswith("aiter_"):
            return lambda *args, **kwargs: self._self_iterate(
                Iteration(lambda stream: aiter(getattr(stream, name)(*args, **kwargs)))
            )
        if name in PARTS:
            return lambda *args, **kwargs: self._self_read(name, args, kwargs)
        if name in ("close", "aclose"):
            return lambda: self._self_close(name)
        if name in STEPS:
            return lambda *args: self._self_go_on(lambda stream: getattr(stream, name)(*args))
        return found

    async def __aenter__(self) -> Any:
        entered = await self.__wrapped__.__aenter__()
        return self if entered is self.__wrapped__ else entered

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self.__wrapped__.__aexit__(*error)
        finally:
            await self._self_leave()

    async def _self_go_on(self, operation: Callable[[Any], Any]) -> Any:
        """Make a step; raises StopAsyncIteration at the end, with the rest."""
        steps = self._self_steps
        if self._self_fallback is not None:
            return await self._self_fallback.__anext__()
        if self._self_failed:
            raise StopAsyncIteration
        if steps is None:
            return await operation(self.__wrapped__)
        try:
            outcome = await self._self_step(steps, operation)
        finally:
            if steps.over:
                self._self_steps = None
        if outcome is None:
            return steps.call.box.take()
        self._self_failed = outcome.error is not None
        value = outcome.unwrap()
        if not steps.call.bypassed:
            raise StopAsyncIteration(value)
        self._self_fallback = async_iterated(value)
        return await self._self_fallback.__anext__()

    async def _self_step(self, steps: Any, operation: Callable[[Any], Any]) -> Any:
        # Apart from the `try` around it, which a loop would leave a hole in on Python 3.13 (cpython#130279).
        # A stream that a plain function has returned begins now, with itself.
        outcome = await steps.send(operation if steps.begun else None)
        while outcome is None and type(steps.call.box.item) is Opened:
            # Or it failed before its first item, and has been opened again.
            self.__wrapped__ = steps.call.box.take().stream
            outcome = await steps.send(operation)
        return outcome

    async def _self_iterate(self, iteration: Iteration) -> AsyncIterator[Any]:
        while True:
            try:
                item = await self._self_go_on(iteration.anext_item)
            except StopAsyncIteration:
                return
            yield item

    async def _self_read(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def read(stream: Any) -> Any:
            return getattr(stream, name)(*args, **kwargs)

        if self._self_steps is None:
            return await read(self.__wrapped__)
        whole = name in ("read", "aread") and not args and not kwargs
        try:
            return await self._self_go_on(afinal(read) if whole else asome(read))
        except StopAsyncIteration as stop:
            return stop.args[0]

    async def _self_leave(self) -> None:
        steps, self._self_steps = self._self_steps, None
        # A step that is under way in another task comes to its end by itself.
        if steps is not None and steps.begun and not steps.running:
            try:
                await steps.throw(Closed())
            except Closed:
                pass

    async def _self_close(self, name: str) -> Any:
        # The slot is free when the connection is.
        try:
            answer = getattr(self.__wrapped__, name)()
            return await answer if hasattr(answer, "__await__") else answer
        finally:
            await self._self_leave()


class EnteredStream:
    """What opened a stream when it was entered, and how to leave it."""

    __slots__ = ("_opened", "_opener")

    def __init__(self, opener: Any, opened: Any) -> None:
        self._opener = opener
        self._opened = opened

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self._opener.__aexit__(*error)
        finally:
            if isinstance(self._opened, AsyncOpenedStream):
                await self._opened._self_leave()
