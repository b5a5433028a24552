"""What an item of a protected stream costs more than one of the bare generator."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from resilience import BreakerConfig, Registry, breaker, bulkhead, compose, retry, timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

ITEMS = 100_000


def numbers(most: int) -> Iterator[int]:
    """The bare generator."""
    yield from range(most)


async def numbers_async(most: int) -> AsyncIterator[int]:
    """The same for asyncio."""
    for number in range(most):
        yield number


def stack(*more: Any) -> Any:
    """Bulkhead, retry and breaker, in a registry of their own."""
    registry = Registry()
    return compose(
        bulkhead("streams", max_in_flight=3, registry=registry),
        retry(3, idempotent=True),
        breaker("streams", BreakerConfig(), registry=registry),
        *more,
    )


def consume(stream: Callable[[int], Iterator[int]]) -> float:
    """Nanoseconds for each item."""
    began = time.thread_time_ns()
    for _ in stream(ITEMS):
        pass
    return (time.thread_time_ns() - began) / ITEMS


async def consume_async(stream: Callable[[int], AsyncIterator[int]]) -> float:
    """The same for an async stream."""
    began = time.thread_time_ns()
    async for _ in stream(ITEMS):
        pass
    return (time.thread_time_ns() - began) / ITEMS


def run(repeats: int) -> dict[str, float]:
    """Microseconds that each item costs more than without policies, at best."""
    plain, guarded = numbers, stack()(numbers)
    streams = {
        "stream_item_async_us": stack()(numbers_async),
        "stream_item_async_budget_us": stack(timeout(3600, first_item=60))(numbers_async),
    }

    def best(measure: Callable[[], float]) -> float:
        return min(measure() for _ in range(repeats))

    found = {"stream_item_sync_us": (best(lambda: consume(guarded)) - best(lambda: consume(plain))) / 1000}
    with asyncio.Runner() as runner:
        bare = best(lambda: runner.run(consume_async(numbers_async)))
        for name, stream in streams.items():

            def measure(stream: Any = stream) -> float:
                return runner.run(consume_async(stream))

            found[name] = (best(measure) - bare) / 1000
    return found
