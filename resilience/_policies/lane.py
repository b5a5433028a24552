"""What the straight path does when a call is refused, or fails, while all is still simple.

An outage is a flood of the same few exceptions. For one that its type alone explains
(no attributes, no chain, only texts in `args`) everything is known: its fault, this
breaker's verdict, that it carries no mark. It is then counted without a lock. All
others are classified and reported in full.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from resilience._context import PROBING
from resilience._policies.marks import MARK
from resilience._words import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.faults import Fault
    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._site import Site

FAILURE = Verdict.FAILURE


def front_door(breaker: CircuitBreaker) -> Callable[[], float | None]:
    """A function that tells for how many seconds a call is refused, None if it may try. Pure."""
    circuit, probing, refusal = breaker.circuit, PROBING.get, breaker.refusal_here

    def door() -> float | None:
        left = circuit.open_until - time.monotonic()
        # More than the whole open time left: the clock jumped, which the full answer knows how to take.
        if left > 0.0 and (circuit.open_for is None or left <= circuit.open_for) and not probing():
            return left
        return refusal()

    return door


def failure_lane(breaker: CircuitBreaker, site: Site) -> Callable[[int, Exception], bool]:
    """A function that reports a failed attempt; False where more has to be known outside of the `except` block."""
    circuit, by_kind, mark, bare = breaker.circuit, breaker.by_kind, breaker.mark, site.bare

    def settled(episode: int, error: Exception) -> bool:
        fault: Fault | None = None
        attributes: dict[str, Any] = {}
        try:
            if error.__context__ is not None:
                # What was being handled when the call began can't be told in here.
                return False
            attributes = error.__dict__
            if not attributes and error.__cause__ is None:
                fault = bare.get(type(error))
                for argument in error.args:
                    if type(argument) is not str:
                        fault = None
        except Exception:
            # An exception that does not let itself be read.
            fault = None
        if fault is None or not fault.plain or by_kind[fault.kind] is not FAILURE:
            breaker.count_error(episode, error, site.classify(error, None))
            return True
        attributes[MARK] = mark
        opens = circuit.strike(episode, fault, time.time_ns())
        if opens is not False:
            breaker.count_strike(episode, fault, opens)
        return True

    return settled
