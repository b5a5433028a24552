"""A plan is its layers, linked from the outermost to the attempt."""

from __future__ import annotations

import pytest

from resilience._core.order import Layer
from resilience._core.outcome import Outcome
from resilience._engine.awaitables import Awaitables
from resilience._engine.plan import in_order, link
from resilience._engine.world_sync import run


class World:
    async def attempt(self, call):
        call.seen.append("attempt")
        return Outcome("done")


class Call:
    def __init__(self):
        self.world = World()
        self.seen = []


def layer(name):
    async def around(call, inner):
        call.seen.append(name)
        outcome = await inner(call)
        call.seen.append(f"after {name}")
        return outcome

    return around


def test_layers_are_sorted_by_the_fixed_order():
    """The order of the policies does not matter."""
    pairs = [(Layer.BREAKER, 1), (Layer.FALLBACK, 2), (Layer.ATTEMPT, 3), (Layer.RETRY, 4), (Layer.BULKHEAD, 5)]

    assert [2, 5, 4, 1, 3] == [around for _, around in in_order(pairs)]


def test_two_of_one_layer_keep_their_order():
    """Sorting is stable: the fallback of a breaker stands outside that of a bulkhead."""
    assert ["breaker", "bulkhead"] == [
        x for _, x in in_order([(Layer.FALLBACK, "breaker"), (Layer.FALLBACK, "bulkhead")])
    ]


def test_a_plan_runs_from_the_outside_in_and_back():
    """Each layer wraps all that are inside it."""
    call = Call()
    outcome = run(link([(Layer.TIMEOUT, layer("timeout")), (Layer.BREAKER, layer("breaker"))])(call))

    assert "done" == outcome.value
    assert ["timeout", "breaker", "attempt", "after breaker", "after timeout"] == call.seen


def test_what_lies_inside_of_a_layer():
    """What recovers a failed attempt leaves slot and timer to the straight path."""
    call = Call()
    layers = [(place, layer(place.value)) for place in (Layer.BULKHEAD, Layer.TIMEOUT, Layer.RETRY, Layer.BREAKER)]
    run(link(layers, inside=Layer.RETRY)(call))

    assert ["breaker", "attempt", "after breaker"] == call.seen


def test_a_plan_without_layers_is_the_attempt():
    """Nothing but the function."""
    call = Call()
    run(link([])(call))

    assert ["attempt"] == call.seen


def test_a_plan_that_suspends_without_a_loop():
    """A policy that awaits something foreign is told so, and its coroutine is closed."""
    closed = []

    class Foreign:
        def __await__(self):
            try:
                yield
            finally:
                closed.append(True)

    async def plan():
        await Foreign()

    with pytest.raises(RuntimeError, match="a plan for threads tried to suspend"):
        run(plan())
    assert [True] == closed


def test_awaitable_types_are_asked_once():
    """A type is looked at when it is first seen."""
    asked = []

    class Asked(type):
        def __getattribute__(cls, name):
            asked.append(name)
            return super().__getattribute__(name)

    class Thing(metaclass=Asked):
        def __await__(self):
            yield

    known = Awaitables()
    first = len(asked)

    assert known[Thing] is True
    assert known[Thing] is True
    assert known[int] is False
    assert 1 == asked[first:].count("__await__")


def test_the_memory_of_types_is_bounded(monkeypatch):
    """A program that makes classes for ever is not kept alive by them."""
    monkeypatch.setattr("resilience._engine.awaitables._TYPES", 3)
    known = Awaitables()
    for number in range(10):
        _ = known[type(f"Kind{number}", (), {})]

    assert 3 >= len(known)
