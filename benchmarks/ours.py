"""Our entries for the side-by-side benchmark: `build(scenario, fn)` as `peers.py --ours` asks for it."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any

from resilience import (
    BreakerConfig,
    Consecutive,
    FailureRate,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
)

NEVER = 10**9
_names = count()


async def build(scenario: str, fn: Any) -> Any:
    """The function under the policies of a scenario, None where there is nothing of ours to show."""
    world, policies, case = scenario.split("/")
    # An hour: a circuit that is opened here stays open however long the measuring takes.
    never_trips = case in ("failure", "retry1", "exhaust")
    config = BreakerConfig(Consecutive(NEVER if never_trips else 5), cooldown=3600, max_cooldown=3600)
    name = f"bench-{next(_names)}"
    if policies == "breaker":
        return await _tripped(case, breaker(name, config)(fn), breaker(name))
    if policies == "breaker-window":
        return breaker(name, BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=10)))(fn)
    if policies == "guard":
        return breaker(name, config).breaker.guard
    if policies == "retry":
        return retry(3, wait=0, idempotent=True)(fn)
    if policies == "bulkhead":
        return bulkhead(max_in_flight=10)(fn)
    if policies == "timeout":
        return timeout(30)(fn if world == "async" else interruptible(fn))
    stack = [bulkhead(max_in_flight=10), retry(3, wait=0, idempotent=True), breaker(name, config)]
    if policies == "stack4":
        stack.append(timeout(30))
        fn = fn if world == "async" else interruptible(fn)
    return await _tripped(case, compose(*stack)(fn), breaker(name))


async def _tripped(case: str, wrapped: Any, ref: Any) -> Any:
    """Open the circuit by failing through it, where the scenario wants it open."""
    if case == "reject":
        for _ in range(5):
            with suppress(ConnectionError), ref.guard():
                raise ConnectionError("down")
        assert ref.is_open()
    return wrapped
