"""The failure lane: what the straight path does with a failure, inside its `except` block.

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


def failure_lane(breaker: CircuitBreaker, site: Site) -> Callable[[int, Exception], bool]:
    """A function that reports a failed attempt; False where more has to be known outside of the `except` block."""
    circuit, by_kind, mark, bare = breaker.circuit, breaker.by_kind, breaker.mark, site.bare

    def settled(episode: int, error: Exception) -> bool:
        if error.__context__ is not None:
            # What was being handled when the call began can't be told in here.
            return False
        attributes = error.__dict__
        fault: Fault | None = None
        if not attributes and error.__cause__ is None:
            try:
                fault = bare.get(type(error))
            except Exception:
                fault = None  # a class whose class can't hash it
            for argument in error.args:
                if type(argument) is not str:
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
