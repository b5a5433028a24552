"""What the straight path does when a call is refused, or fails, while all is still simple.

An outage is a flood of the same few exceptions. For one that its type alone explains
(no attributes, no chain, only texts in `args`) everything is known: its fault, this
breaker's verdict, that it carries no mark. It is then counted without a lock. All
others are classified and reported in full.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
    circuit, refusal = breaker.awake(), breaker.refusal_here

    def door() -> float | None:
        left = circuit.open_until - time.monotonic()
        # More than the whole open time left: the clock jumped, which the full answer knows how to take.
        if 0.0 < left <= circuit.open_span:
            return left
        return refusal()

    return door


def failure_lane(breaker: CircuitBreaker, site: Site) -> Callable[[int, Exception], Fault | None]:
    """A function that reports a failed attempt and tells its fault.

    None, with nothing reported, where more has to be known outside of the `except` block.
    """
    circuit, mark, bare = breaker.awake(), breaker.mark, site.bare

    def in_full(episode: int, error: Exception) -> Fault:
        fault = site.classify(error, None)
        breaker.count_error(episode, error, fault)
        return fault

    def settled(episode: int, error: Exception) -> Fault | None:
        try:
            if error.__context__ is not None:
                # What was being handled when the call began can't be told in here.
                return None
            attributes = error.__dict__
            fault = None if attributes or error.__cause__ is not None else bare.get(type(error))
            for argument in error.args:
                if type(argument) is not str:
                    fault = None
        except Exception:
            # An exception that does not let itself be read.
            return in_full(episode, error)
        if fault is None or not fault.plain or circuit.by_kind[fault.kind] is not FAILURE:
            return in_full(episode, error)
        attributes[MARK] = mark
        strike = circuit.strike(episode, fault, time.time_ns())
        if strike is not False:
            breaker.count_strike(episode, fault, strike)
        return fault

    return settled


def keyed_lane(site: Site) -> Callable[[int, Exception, CircuitBreaker], Fault | None]:
    """The same for a call site with many breakers, which says each time which one it means."""

    def settled(episode: int, error: Exception, breaker: CircuitBreaker) -> Fault | None:
        return failure_lane(breaker, site)(episode, error)

    return settled


def classified_lane(site: Site) -> Callable[[int, Exception], Fault | None]:
    """The same for a wrapper without a breaker: there is nobody to report to, only a retry that asks for the fault."""

    def settled(episode: int, error: Exception) -> Fault | None:
        try:
            if error.__context__ is not None:
                return None
        except Exception:
            pass  # classifying copes with what can't be read
        return site.classify(error, None)

    return settled
