"""What the straight path's source names, taken from the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.deadline import fixed_deadline
from resilience._core.faults import Fault, FaultKind
from resilience._core.tripping import NEVER
from resilience._engine.signature import signature_of
from resilience._engine.source import Shape
from resilience._keying import names_of
from resilience._policies.lane import classified_lane, failure_lane, front_door, keyed_lane
from resilience._policies.retry_budget import OVER
from resilience._words import OnOpen

if TYPE_CHECKING:
    from resilience._assembly.parts import Parts
    from resilience._assembly.runner import Runner
    from resilience._core.tripping import Trip
    from resilience._engine.kinds import Kind
    from resilience._policies.retry_budget import BudgetReference
    from resilience._settings import BreakerPolicy, BulkheadPolicy


def choose_shape(parts: Parts, kind: Kind) -> Shape | None:
    """What the straight path is made of; None where a policy asks for more than it knows."""
    breaker, timeout = parts.given.breaker, parts.given.timeout
    if breaker is not None and (
        breaker.unless is not None or breaker.classify_result is not None or breaker.account == "call"
    ):
        return None
    if kind.opens:
        return None
    if kind.is_generator and timeout is not None and not (kind.is_async and timeout.idle is None and timeout.counts):
        return None
    if timeout is not None and (timeout.per_attempt is not None or timeout.pass_as is not None):
        return None
    if timeout is not None and not kind.is_async and parts.bulkhead is not None:
        # A function that is left behind keeps its slot, which takes a call that can say so.
        return None
    if parts.site.uninterruptible:
        return None
    trip = _known_trip(parts)
    if kind.is_generator and trip is not None and trip.slow_from != NEVER:
        # How long its first item took is noted by a call of its own.
        return None
    keyed = parts.breaker is not None and parts.breaker.keys is not None
    roomed = parts.bulkhead is not None and parts.bulkhead.keys is not None
    if kind.is_generator and (keyed or roomed):
        return None
    return Shape(
        is_async=kind.is_async,
        items=kind.is_generator,
        breaker=parts.breaker is not None,
        windowed=trip is not None and trip.windowed,
        timed=trip is not None and trip.slow_from != NEVER,
        bulkhead=parts.bulkhead is not None,
        budget=timeout is not None and timeout.budget is not None,
        first_item=timeout is not None and timeout.first_item is not None,
        retry=parts.retry is not None,
        counted=parts.retry is not None and parts.retry.budget is not None,
        stateful=parts.retry is not None and parts.retry.needs_state,
        fail_fast=breaker is not None and breaker.on_open is OnOpen.FAIL,
        keyed=keyed,
        keys=_looked_up(parts.site.fn, parts.given.breaker),
        roomed=roomed,
        rooms=_looked_up(parts.site.fn, parts.given.bulkhead),
    )


def _known_trip(parts: Parts) -> Trip | None:
    """How the breaker trips, where that is known already."""
    bound = parts.breaker
    if bound is None:
        return None
    if bound.keys is not None:
        return bound.known_trip
    return None if parts.pending else bound.breaker.config.trip


def _looked_up(fn: Any, policy: BreakerPolicy | BulkheadPolicy | None) -> tuple[str, ...]:
    """The names of `key=` where all of them are parameters that the straight path has at hand."""
    names = () if policy is None else names_of(policy.key)
    here = signature_of(fn).names if isinstance(policy and policy.key, tuple) else ()
    return names if set(names) <= set(here) and not hasattr(fn, "__signature__") else ()


def make_closure(parts: Parts, runner: Runner, kind: Kind) -> dict[str, Any]:
    """Everything a wrapper of this function needs; stand-ins for what is not found yet."""
    closure: dict[str, Any] = {
        "adopt": runner.adopt,
        "first": getattr(runner, "first", None),
        "fn": parts.site.fn,
        "gave_up": runner.gave_up,
        "interrupted": runner.interrupted,
        "now": None if parts.retry is None else parts.retry.now,
        "recover": runner.recover,
        "settled": _of_no_interest if parts.retry is None else classified_lane(parts.site),
        "slow": runner.run,
        "timed_out": runner.timed_out,
    }
    timeout = parts.given.timeout
    if timeout is not None and timeout.budget is not None:
        closure["new_deadline"] = fixed_deadline(timeout.budget, timeout.counts)
        if kind.is_async:
            from resilience._engine.timers import Buckets

            closure["buckets"] = buckets = Buckets()
            parts.home.watch_clock(buckets)
        else:
            closure["pool"] = parts.world.pool
    if parts.pending:
        closure |= {"circuit": NOT_YET, "door": _nothing, "queue": (None,)}
    if parts.retry is not None and parts.retry.budget is not None:
        closure |= budget_closure(parts.retry.budget)
    return closure | keyed_closure(parts) | shared_closure(parts, runner)


def keyed_closure(parts: Parts) -> dict[str, Any]:
    """The names of a wrapper that looks up its breaker or bulkhead by a key."""
    closure: dict[str, Any] = {}
    if parts.breaker is not None and parts.breaker.keys is not None:
        keys = parts.breaker.keys
        closure |= {
            "find": keys.of_parts,
            "find_of": keys.of_call,
            "members": {} if keys.known is None else keys.known.members,
            "settled": keyed_lane(parts.site),
        }
    if parts.bulkhead is not None and parts.bulkhead.keys is not None:
        rooms = parts.bulkhead.keys
        closure |= {
            "find_room": rooms.of_parts,
            "find_room_of": rooms.of_call,
            "rooms": {} if rooms.known is None else rooms.known.members,
        }
    return closure


def budget_closure(reference: BudgetReference) -> dict[str, Any]:
    """The names that belong to a retry budget; a stand-in that is soon replaced while nobody knows which it is."""
    budget = reference.found
    if budget is None:
        return {"calls": NOT_COUNTED}
    return {"calls": budget, "next_slice": budget.next_slice}


def shared_closure(parts: Parts, runner: Runner) -> dict[str, Any]:
    """The names that belong to a shared breaker or bulkhead, as far as they are known."""
    closure: dict[str, Any] = {}
    if parts.pending:
        return closure
    closure["slow"] = runner.run
    if parts.breaker is not None and parts.breaker.keys is None:
        breaker = parts.breaker.breaker
        closure |= {
            "circuit": breaker.circuit,
            "counter": breaker.circuit.totals.successes.ticks,
            "door": front_door(breaker),
            "refuse": breaker.refuse,
            "settled": failure_lane(breaker, parts.site),
            "succeeded": breaker.succeed,
        }
    if parts.bulkhead is not None and parts.bulkhead.keys is None:
        bulkhead = parts.bulkhead.bulkhead
        closure |= {
            "take": bulkhead.slots.free.pop,
            "give": bulkhead.slots.free.append,
            "queue": bulkhead.slots.queue,
            "give_back": bulkhead.give,
            "hand_over": bulkhead.hand_over,
        }
    return closure


class _NotYet:
    """Stands for the circuit of a name that nobody has registered: never closed, so the first call takes the plan."""

    closed = closed_windowed = closed_timed = 0


NOT_YET = _NotYet()


class _NotCounted:
    """Stands for a retry budget that nobody has registered: its slice is over, so the first call asks for another."""

    current = OVER


NOT_COUNTED = _NotCounted()


def _nothing() -> None:
    return None


def _of_no_interest(episode: int, error: Exception) -> Fault:
    return _ANY


_ANY = Fault(FaultKind.INTERNAL)
