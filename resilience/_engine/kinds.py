"""What calling a function gives, which decides how it is run and what its wrapper is."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The sorts of functions.

    Attributes:
        is_async: its plan runs in asyncio.
        is_generator: calling it runs nothing: its items are asked for one by one.
        opens: calling it opens a stream, which it returns.
    """

    PLAIN = "plain"
    COROUTINE = "coroutine"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async_generator"
    OPENING = "opening"
    ASYNC_OPENING = "async_opening"

    is_async: bool
    is_generator: bool
    opens: bool

    def __init__(self, word: str) -> None:
        self.is_async = word in ("coroutine", "async_generator", "async_opening")
        self.is_generator = word in ("generator", "async_generator")
        self.opens = word in ("opening", "async_opening")

    @property
    def returns_coroutine(self) -> bool:
        """What is called is awaited for its result."""
        return self.is_async and not self.is_generator

    @property
    def is_stream(self) -> bool:
        """Whether the call goes on when the function has returned."""
        return self.is_generator or self.opens
