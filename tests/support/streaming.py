"""Streams for tests of both worlds: one body as a generator or an async generator, and one way of consuming them."""

from __future__ import annotations

import asyncio

END = "the end"
"""What `next` and its like give where the stream has ended."""


def asynchronous(body):
    """An async generator function that does step by step what the generator function `body` does."""

    async def stream(*args, **kwargs):
        steps = body(*args, **kwargs)
        try:
            item = next(steps)
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    item = steps.throw(error)
                else:
                    item = steps.send(sent)
        except StopIteration:
            return

    return stream


class Consumer:
    """Takes a stream step by step; `END` is its end."""

    def __init__(self, stream):
        self.stream = stream

    def next(self):
        return self._step(lambda: next(self.stream))

    def send(self, value):
        return self._step(lambda: self.stream.send(value))

    def throw(self, error):
        return self._step(lambda: self.stream.throw(error))

    def _step(self, act):
        try:
            return act()
        except StopIteration:
            return END

    def close(self):
        self.stream.close()

    def rest(self):
        """The items up to the end."""
        return list(self.stream)

    def drop(self):
        """Forget the stream, as a consumer does that is not interested any more."""
        self.stream = None


class AsyncConsumer(Consumer):
    """The same by asyncio, each step in a task of its own."""

    def __init__(self, stream, run):
        super().__init__(stream)
        self._run = run

    def next(self):
        return self._step(lambda: self.stream.__anext__())

    def send(self, value):
        return self._step(lambda: self.stream.asend(value))

    def throw(self, error):
        return self._step(lambda: self.stream.athrow(error))

    def _step(self, act):
        async def step():
            try:
                return await act()
            except StopAsyncIteration:
                return END

        return self._run(step())

    def close(self):
        async def close():
            await self.stream.aclose()

        self._run(close())

    def rest(self):
        async def rest():
            return [item async for item in self.stream]

        return self._run(rest())

    def drop(self):
        """Forgotten, it is closed by the event loop's own hook within two turns."""

        async def drop():
            self.stream = None
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self._run(drop())
