"""Public reports of danielfm/pybreaker: what went wrong there does not go wrong here."""

from __future__ import annotations

import inspect
import threading

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Classifier,
    Consecutive,
    FaultKind,
    Registry,
    breaker,
)
from resilience.events import StateChanged

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN


class Outage(Exception):
    """The one exception that is meant to count."""


def test_one_breaker_in_many_threads_gives_one_probe_and_loses_no_count(registry, clock, remote, together):
    """pybreaker#3: one breaker may be shared by threads: no failure is lost and only one thread probes."""
    down = remote(then=ConnectionError)
    call = breaker("api", BreakerConfig(Consecutive(40), cooldown=30))(lambda: down())

    def fail_often(index):
        for _ in range(4):
            with pytest.raises(ConnectionError):
                call()

    together(8, fail_often)
    assert (CLOSED, 32) == (registry.get("api").state, registry.get("api").status().failure_count)
    together(8, lambda index: call())
    assert (OPEN, 40) == (registry.get("api").state, down.calls)

    clock.advance(30)
    probing, may_end = threading.Barrier(2), threading.Event()

    @breaker("api")
    def slow():
        probing.wait(5)
        may_end.wait(5)
        return "probed"

    def one(index):
        if index == 0:
            return slow()
        try:
            probing.wait(5)
            for _ in range(4):
                with pytest.raises(CircuitOpenError):
                    call()
        finally:
            may_end.set()

    assert ["probed", None] == together(2, one)
    assert (CLOSED, 40) == (registry.get("api").state, down.calls)


def test_only_the_listed_exception_counts(registry, world, remote):
    """pybreaker#5: say which exceptions count, and an error nobody foresaw does not open the circuit."""
    listed = breaker("api", BreakerConfig(Consecutive(2)), classify=Classifier().add(Outage, FaultKind.TRANSIENT))
    unforeseen = listed(world.function(remote(then=KeyError)))
    for _ in range(5):
        assert isinstance(world.fails(unforeseen), KeyError)
    assert (CLOSED, 0) == (registry.get("api").state, registry.get("api").status().failure_count)

    foreseen = listed(world.function(remote(then=Outage)))
    for _ in range(2):
        world.fails(foreseen)
    assert OPEN is registry.get("api").state


def test_failures_of_a_coroutine_function_open_the_circuit(registry, world, remote):
    """pybreaker#7: a decorated coroutine function opens the circuit by what its coroutines raise."""
    down = remote(then=ConnectionError)
    call = breaker("api", BreakerConfig(Consecutive(2)))(world.function(down))

    assert world.is_async == inspect.iscoroutinefunction(call)
    for _ in range(2):
        assert isinstance(world.fails(call), ConnectionError)
    assert isinstance(world.fails(call), CircuitOpenError)
    assert 2 == down.calls


def test_monitoring_can_tell_a_cooled_circuit_from_one_that_refuses(registry, clock, remote):
    """pybreaker#15: without traffic a circuit reads open for ever; that a call would pass is told beside it."""
    call = breaker("api", BreakerConfig(Consecutive(1), cooldown=30))(lambda: remote(ConnectionError)())
    with pytest.raises(ConnectionError):
        call()
    circuit = registry.get("api")
    clock.advance(29)
    assert (True, 1.0) == (circuit.is_open(), circuit.status().retry_after)

    clock.advance(3600)
    for _ in range(3):
        status = circuit.status()
        assert (OPEN, 0.0, 100_000_000_000, 130_000_000_000) == (
            status.state,
            status.retry_after,
            status.opened_at,
            status.next_half_open_at,
        )
        assert not circuit.is_open()
    assert 0 == circuit.status().probes_started


def test_who_meets_an_open_circuit_later_does_not_restart_its_cooldown(registry, clock, world, remote):
    """pybreaker#24: each worker that met the shared open circuit set its opening time anew, so nobody ever probed."""
    config = BreakerConfig(Consecutive(1), cooldown=30)
    world.fails(breaker("api", config)(world.function(remote(ConnectionError))))
    for _ in range(6):
        clock.advance(4.5)
        late = breaker("api", config)(world.function(remote("back")))
        assert isinstance(world.fails(late), CircuitOpenError)
    clock.advance(3)

    assert "back" == world.call(late)


@pytest.mark.parametrize("again", [BreakerConfig(Consecutive(2)), None], ids=["config", "reference"])
def test_a_second_declaration_neither_closes_nor_forgets(registry, remote, again):
    """pybreaker#26: a breaker made for a name in use closed the circuit and zeroed its failures."""
    down = remote(then=ConnectionError)
    with pytest.raises(ConnectionError):
        breaker("api", BreakerConfig(Consecutive(2)))(lambda: down())()

    with pytest.raises(ConnectionError):
        breaker("api", again)(lambda: down())()
    assert OPEN is registry.get("api").state

    with pytest.raises(CircuitOpenError):
        breaker("api", again)(lambda: down())()
    assert 2 == down.calls


def test_listener_that_raises_changes_nothing_for_caller_circuit_and_other_listeners(registry, world, remote):
    """pybreaker#41: a badly behaved listener interfered with the calls and the circuit."""
    heard = []

    def bad(event):
        raise RuntimeError("a broken listener")

    registry.subscribe(bad, StateChanged)
    registry.subscribe(heard.append, StateChanged)
    boom = ConnectionError("the real one")
    call = breaker("api", BreakerConfig(Consecutive(1)))(world.function(remote(boom)))

    assert boom is world.fails(call)
    assert isinstance(world.fails(call), CircuitOpenError)
    assert registry.get("api").reset()
    assert "ok" == world.call(call)
    assert [OPEN, CLOSED] == [event.after for event in heard]


@pytest.mark.parametrize("form", ["decorator", "guard", "call"])
@pytest.mark.parametrize("state", ["healthy", "failing"])
def test_calls_of_one_breaker_run_side_by_side(registry, together, form, state):
    """pybreaker#41, #55: a lock held around the protected call let only one thread work at a time."""
    inside = threading.Barrier(6)
    circuit = registry.breaker("api", BreakerConfig(Consecutive(100)))

    def meet():
        inside.wait(5)  # broken unless all six are inside at once
        if state == "failing":
            raise ConnectionError
        return "met"

    decorated = breaker("api")(meet)

    def one(index):
        if form == "decorator":
            return decorated()
        if form == "call":
            return circuit.call(meet)
        with circuit.guard():
            return meet()

    results = together(6, one)
    expected = ConnectionError if state == "failing" else str
    assert [expected] * 6 == [type(result) for result in results]


def test_the_failure_that_opens_leaves_as_itself(registry, clock, world, remote):
    """pybreaker#60: the call that opened the circuit raised "circuit open", and hid that a request had been sent."""
    last, probed = TimeoutError("read"), ConnectionError("probe")
    down = remote(ConnectionError, last, probed)
    call = breaker("api", BreakerConfig(Consecutive(2), cooldown=30))(world.function(down))
    world.fails(call)

    assert last is world.fails(call)
    assert last.__cause__ is None
    assert isinstance(world.fails(call), CircuitOpenError)
    assert 2 == down.calls
    clock.advance(30)
    assert probed is world.fails(call)
    assert OPEN is registry.get("api").state


def test_two_names_are_two_circuits(registry, world, remote):
    """pybreaker#88: opening one of two breakers on the same storage opened the other."""
    config = BreakerConfig(Consecutive(1))
    world.fails(breaker("mail", config)(world.function(remote(ConnectionError))))
    other = breaker("mail-archive", config)(world.function(remote()))
    elsewhere = breaker("mail", config, registry=Registry())(world.function(remote()))

    assert OPEN is registry.get("mail").state
    assert "ok" == world.call(other)
    assert "ok" == world.call(elsewhere)
    assert registry.get("mail").reset()
    world.fails(breaker("mail-archive")(world.function(remote(ConnectionError))))
    assert (CLOSED, OPEN) == (registry.get("mail").state, registry.get("mail-archive").state)
