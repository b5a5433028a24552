"""I9: out of the middle of a change, nothing waits for another name."""

from __future__ import annotations

import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    Consecutive,
    FaultKind,
    Registry,
    bulkhead,
)
from resilience._changing import CHANGING, LEFT
from resilience.events import StateChanged
from resilience.testing import ManualClock

TRANSIENT = FaultKind.TRANSIENT


@pytest.fixture
def pair(registry):
    """Two breakers that the second failure opens."""
    return [registry.breaker(name, BreakerConfig(Consecutive(2), cooldown=1e-6)) for name in ("one", "other")]


def in_the_middle(breaker, call):
    """Do as a finaliser or handler would that comes in while a breaker changes; what it raised, or its answer."""
    answers = []

    def act(now, time_ns):
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    breaker._section(act)
    return answers[0]


def test_two_changes_that_report_to_each_other(pair, together):
    """Each holds its own lock and reports to the other: neither waits, and both reports are counted afterwards."""
    permits = [breaker.try_acquire() for breaker in pair]
    both_inside = threading.Barrier(2)

    def change(index):
        def call():
            both_inside.wait(5)
            pair[1 - index].record(permits[1 - index].episode, pair[0].verdict(None))
            pair[1 - index]._section(pair[1 - index].circuit.force_open, f"by {index}", None, None)
            both_inside.wait(5)

        return in_the_middle(pair[index], call)

    assert [None, None] == together(2, change, seconds=8)
    assert ["open", "open"] == [breaker.state.value for breaker in pair]
    assert ({}, {}) == (CHANGING, LEFT)


def test_a_report_to_another_name_is_counted_before_the_call_ends(pair):
    """Not by whoever comes next."""
    one, other = pair
    in_the_middle(one, lambda: other.force_open("drill"))

    assert ("closed", "open") == (one.state.value, other.state.value)


def test_events_of_a_report_to_another_registry(pair):
    """Each registry's listeners hear of it before the call ends, not when that one is called next."""
    elsewhere, told = Registry(), []
    elsewhere.subscribe(lambda event: told.append(event.name), StateChanged)
    other = elsewhere.breaker("elsewhere", BreakerConfig())
    in_the_middle(pair[0], lambda: other.force_open("drill"))

    assert ["elsewhere"] == told


def test_a_probe_of_another_name_is_refused(pair):
    """There is nothing to wait for; the probe stays for others."""
    one, other = pair
    other.force_open("drill", seconds=1e-6)
    threading.Event().wait(0.001)
    refusal = in_the_middle(one, other.try_acquire)

    assert (CircuitOpenError, 0.0) == (type(refusal), refusal.retry_after)
    assert other.try_acquire().probe is True


def test_a_change_that_fails_leaves_no_mark(registry, pair):
    """Its thread may wait again, and what was left is made good by whoever comes next."""
    one, other = pair

    def fail(now, time_ns):
        other.force_open("drill")
        raise LookupError

    with pytest.raises(LookupError):
        one._section(fail)
    assert ({}, "closed") == (CHANGING, other.state.value)
    told = []
    registry.subscribe(lambda event: told.append(event.cause), StateChanged)
    other.disable()

    assert ["disabled", "forced_open"] == told


def test_the_line_of_a_bulkhead_is_not_for_those_in_the_middle(registry, pair):
    """A full bulkhead refuses at once, whatever wait it allows: whoever holds its slots may need this very breaker."""
    registry.bulkhead("pool", BulkheadConfig(1))

    @bulkhead("pool", wait=30)
    def ask():
        return "fine"

    pool = registry.get_bulkhead("pool")
    slot = pool.take()
    assert BulkheadFullError is type(in_the_middle(pair[0], ask))
    pool.give(slot)
    assert "fine" == in_the_middle(pair[0], ask)


def test_registering_at_once(registry, together, restless):
    """One breaker and one bulkhead for all, with the settings of the first."""

    def register(index):
        return (
            registry.breaker("new", BreakerConfig(cooldown=index + 1)),
            registry.bulkhead("pool", BulkheadConfig(index + 1)),
        )

    for _ in range(50):
        registry._breakers.clear()
        registry._bulkheads.clear()
        found = together(4, register)
        assert (1, 1) == tuple(len({id(one) for one in kind}) for kind in zip(*found, strict=True))
        assert registry.get("new") is found[0][0]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_registering_while_another_clock_is_set(registry, late):
    """Whoever comes first: a breaker under a test clock never reads the system's time."""

    class Names(dict):
        def setdefault(self, name, made):
            if not late:
                registry.clock = ManualClock()
            found = super().setdefault(name, made)
            if late:
                registry.clock = ManualClock()
            return found

    registry._breakers = Names()

    assert 0 == registry.breaker("api", BreakerConfig()).circuit.closed
