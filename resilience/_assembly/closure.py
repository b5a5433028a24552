"""What the straight path's source names, taken from the parts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core.deadline import Deadline, UncountedDeadline, is_past
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.straight import Shape
from resilience._policies.lane import failure_lane, front_door
from resilience._words import OnOpen

if TYPE_CHECKING:
    from resilience._assembly.parts import Parts
    from resilience._assembly.runner import Runner


def choose_shape(parts: Parts, is_async: bool) -> Shape | None:
    """What the straight path is made of; None where a policy asks for more than it knows."""
    breaker, timeout = parts.given.breaker, parts.given.timeout
    if breaker is not None and (
        breaker.unless is not None or breaker.classify_result is not None or breaker.account == "call"
    ):
        return None
    if timeout is not None and (not is_async or timeout.per_attempt is not None or timeout.pass_as is not None):
        return None
    if parts.site.uninterruptible:
        return None
    known = parts.breaker is not None and not parts.pending
    return Shape(
        is_async=is_async,
        breaker=parts.breaker is not None,
        windowed=known and parts.breaker is not None and parts.breaker.breaker.config.trip.windowed,
        bulkhead=parts.bulkhead is not None,
        budget=timeout is not None,
        retry=parts.retry is not None,
        fail_fast=breaker is not None and breaker.on_open is OnOpen.FAIL,
    )


def make_closure(parts: Parts, runner: Runner, is_async: bool) -> dict[str, Any]:
    closure: dict[str, Any] = {
        "Exception": Exception,
        "IndexError": IndexError,
        "RuntimeError": RuntimeError,
        "adopt": runner.adopt,
        "awaitable": AWAITABLE,
        "plain": AWAITABLE.plain,
        "fn": parts.site.fn,
        "interrupted": runner.interrupted,
        "outer_deadline": DEADLINE.get,
        "recover": runner.recover,
        "settled": _nothing_to_settle,
        "slow": runner.run,
        "time": time,
        "type": type,
    }
    if is_async:
        closure |= _async_closure(parts, runner)
    if parts.pending:
        closure |= {"circuit": NOT_YET, "door": _nothing, "queue": (None,)}
    return closure | shared_closure(parts, runner)


def shared_closure(parts: Parts, runner: Runner) -> dict[str, Any]:
    """The names that belong to a shared breaker or bulkhead, as far as they are known."""
    closure: dict[str, Any] = {}
    if parts.pending:
        return closure
    if parts.breaker is not None:
        breaker = parts.breaker.breaker
        closure |= {
            "circuit": breaker.circuit,
            "count": breaker.circuit.totals.successes.tick,
            "door": front_door(breaker),
            "refuse": breaker.refuse,
            "settled": failure_lane(breaker, parts.site),
            "succeeded": breaker.succeed,
            "slow": runner.run,
        }
    if parts.bulkhead is not None:
        slots = parts.bulkhead.bulkhead.slots
        closure |= {
            "take": slots.free.pop,
            "give": slots.free.append,
            "queue": slots.queue,
            "hand_over": parts.bulkhead.bulkhead.hand_over,
            "slow": runner.run,
        }
    return closure


def _async_closure(parts: Parts, runner: Runner) -> dict[str, Any]:
    import asyncio

    from resilience._engine import timers

    closure: dict[str, Any] = {"CancelledError": asyncio.CancelledError}
    if parts.given.timeout is not None and parts.given.timeout.budget is not None:
        buckets = timers.Buckets()
        parts.home.watch_clock(buckets)
        closure |= {
            "buckets": buckets,
            "is_ours": timers.is_ours,
            "new_deadline": Deadline if parts.given.timeout.counts else UncountedDeadline,
            "past": is_past,
            "reset_deadline": DEADLINE.reset,
            "seconds": parts.given.timeout.budget,
            "set_deadline": DEADLINE.set,
            "this_task": asyncio.current_task,
            "timed_out": runner.timed_out,
        }
    return closure


class _NotYet:
    """Stands for the circuit of a name that nobody has registered: never closed, so the first call takes the plan."""

    closed = closed_windowed = clean = 0


NOT_YET = _NotYet()


def _nothing() -> None:
    return None


def _nothing_to_settle(episode: int, error: Exception) -> bool:
    return True
