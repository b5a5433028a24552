"""However decorators are stacked, a call passes the same stations in the same order."""

from __future__ import annotations

import itertools

import pytest

from resilience import CircuitOpenError, compose, describe, use_registry

KINDS = ("bulkhead", "timeout", "retry", "breaker")
STACKINGS = list(itertools.permutations(KINDS))
SUBSETS = [subset for size in range(1, 5) for subset in itertools.combinations(KINDS, size)]

WHOLE = [
    "door with 0 in flight: no limit",
    "slot: no limit",
    "permit: 30 s left",
    "call 1 with 1 in flight: 10 s left",
    "wait: 30 s left",
    "permit: 29 s left",
    "call 2 with 1 in flight: 10 s left",
    "slot back: no limit",
]
HEALTHY = ["slot: no limit", "call 1 with 1 in flight: limited", "slot back: no limit"]


def expected(kinds):
    """The stations of a call with some of the policies."""
    calls = 2 if "retry" in kinds else 1
    slots = 1 if "bulkhead" in kinds else 0
    timed = "timeout" in kinds
    found = ["door with 0 in flight: no limit"] if "breaker" in kinds else []
    found += ["slot: no limit"] if slots else []
    for number in range(1, calls + 1):
        found += [f"wait: {'30 s left' if timed else 'no limit'}"] if number > 1 else []
        found += [f"permit: {f'{31 - number} s left' if timed else 'no limit'}"] if "breaker" in kinds else []
        found += [f"call {number} with {slots} in flight: {'10 s left' if timed else 'no limit'}"]
    return [*found, "slot back: no limit"] if slots else found


def ids(kinds):
    return "-".join(kinds)


# ---------------------------------------------------------------------------------------------- all four
@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_passes_the_same_stations(stations, body, kinds):
    """Door, slot, budget, and for each attempt a permit and its own limit: 24 stackings, one order."""
    run = stations(body)

    assert "fine" == run.call(run.stack(kinds))
    assert WHOLE == run.seen


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_takes_the_same_straight_path(stations, kinds):
    """In good health: slot, budget, function, slot back; a permit is no object there."""
    run = stations("async", plan=False)
    run.failures = 0
    run.call(run.stack(kinds))

    assert HEALTHY == run.seen


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_is_one_wrapper(stations, body, kinds):
    """The wrapper leads straight to the function, and its code is that of every other stacking."""
    run = stations(body, plan=False)
    first, fn = run.stack(KINDS), run.stack(kinds)

    assert not hasattr(fn.__wrapped__, "__wrapped__")
    assert first.__code__.co_filename == fn.__code__.co_filename
    assert first.__code__.co_code == fn.__code__.co_code


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_shares_what_is_shared(stations, body, kinds):
    """One breaker and one bulkhead stand behind all of them."""
    run = stations(body)
    fn = run.stack(kinds)

    assert run.registry.get("provider") is describe(fn).breaker
    assert run.room is describe(fn).bulkhead


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_is_described_alike(stations, body, kinds):
    """`describe` tells the order that applies, not the one in which decorators were written."""
    run = stations(body)
    text = str(describe(run.stack(kinds)))

    assert str(describe(run.stack(KINDS))) == text
    assert ["bulkhead", "timeout", "retry", "breaker", "attempt"] == [line.split()[0] for line in text.splitlines()[1:]]


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_answers_at_the_door(stations, body, kinds):
    """An open circuit is answered before a slot, a deadline or a permit is made."""
    run = stations(body, plan=False)
    fn = run.stack(kinds)
    run.registry.get("provider").force_open("maintenance")

    with pytest.raises(CircuitOpenError):
        run.call(fn)
    assert [] == run.seen


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_every_stacking_tells_the_same_events(stations, body, kinds):
    """Two failures of three open nothing; the events of the call are those of the fixed order."""
    run = stations(body)
    run.failures = 9
    names = []
    run.registry.subscribe(lambda event: names.append(type(event).__name__))

    with pytest.raises(ConnectionError):
        run.call(run.stack(kinds))
    assert ["RetryScheduled", "RetryScheduled", "RetryExhausted"] == names
    assert 3 == run.registry.get("provider").status().failure_count


# ---------------------------------------------------------------------------------------------- some of them
@pytest.mark.parametrize("kinds", SUBSETS, ids=ids)
def test_every_subset_passes_its_own_stations(stations, body, kinds):
    """Any of the 15 subsets, stacked in any order: the whole order with the others left out."""
    for stacking in itertools.permutations(kinds):
        run = stations(body)
        run.failures = 1 if "retry" in kinds else 0
        run.call(run.stack(stacking))

        assert expected(kinds) == run.seen


def test_the_whole_order_is_that_of_its_subsets():
    """What is expected of subsets gives, for all four, the order written out above."""
    assert WHOLE == expected(KINDS)


# ---------------------------------------------------------------------------------------------- compose
@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_compose_takes_its_arguments_in_any_order(stations, body, kinds):
    """A policy set decorates like the decorators themselves."""
    run = stations(body)
    with use_registry(run.registry):
        fn = compose(*map(run.policy, kinds))(run.function())
    run.call(fn)

    assert WHOLE == run.seen


@pytest.mark.parametrize("kinds", STACKINGS, ids=ids)
def test_compose_calls_in_the_same_order(stations, body, kinds):
    """So does a single call of an undecorated function."""
    run = stations(body)
    with use_registry(run.registry):
        policies = compose(*map(run.policy, kinds))
        fn = run.function()
        run.call(lambda: policies.acall(fn) if body == "async" else policies.call(fn))

    assert WHOLE == run.seen


@pytest.mark.parametrize("kinds", SUBSETS, ids=ids)
def test_compose_of_a_subset_on_top_of_the_rest(stations, body, kinds):
    """A policy set above decorators, or below: still one wrapper and one order."""
    rest = [kind for kind in KINDS if kind not in kinds]
    run = stations(body)
    with use_registry(run.registry):
        fn = compose(*map(run.policy, kinds))(run.stack(rest) if rest else run.function())
    run.call(fn)

    assert WHOLE == run.seen
    assert not hasattr(fn.__wrapped__, "__wrapped__")
