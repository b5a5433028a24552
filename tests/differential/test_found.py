"""What the search beside this file has found, each by itself.

Calls inside a probe that has ended. Section 4: a call made inside another call's probe of
the same breaker shares that probe, by a mark that is "set only while a probe is out". A
reset, a forced opening or another probe that decides ends it: its own result is late from
then on, and so there is nothing left to share.

An exception reported on a permit. Section 4: "one exception object counts at most once
per breaker: whoever counts it first marks it".
"""

from __future__ import annotations

import contextvars

import pytest

from resilience import BreakerConfig, CircuitOpenError, CircuitState, Consecutive, FaultKind, Registry, breaker
from resilience._clock import SYSTEM_CLOCK
from resilience.testing import ManualClock


def an_opened_circuit(clock, **settings):
    """A function that runs what it is given under an opened, cooled circuit."""
    registry = Registry(clock=clock)
    ref = breaker("remote", BreakerConfig(Consecutive(1), cooldown=1e-9, **settings), registry=registry)

    @ref
    def run(inside):
        return inside()

    with pytest.raises(ConnectionError):
        run(fails)
    if isinstance(clock, ManualClock):
        clock.advance(1)
    return run, ref.breaker


def fails():
    raise ConnectionError("down")


def works():
    return "well"


clocks = pytest.mark.parametrize(
    "clock",
    [
        pytest.param(lambda: SYSTEM_CLOCK, id="straight"),
        pytest.param(ManualClock, id="plan"),
    ],
)


@clocks
def test_an_ended_probe_is_not_shared(clock):
    """After a reset a call inside the old probe is an ordinary one: its failure counts, whatever the path."""
    run, shared = an_opened_circuit(clock())

    def inside():
        assert shared.reset()
        with pytest.raises(ConnectionError):
            run(fails)
        return shared.state

    assert CircuitState.OPEN is run(inside)
    assert 2 == shared.status().failures_total


@pytest.mark.parametrize("clock", [lambda: SYSTEM_CLOCK, ManualClock], ids=["straight", "plan"])
def test_a_forced_opening_holds_inside_an_old_probe(clock):
    """Force open means refuse everything: the probe ended with it, and no call inside of it is let in."""
    run, shared = an_opened_circuit(clock())

    def inside():
        shared.force_open("maintenance")
        with pytest.raises(CircuitOpenError):
            run(works)

    run(inside)


@pytest.mark.parametrize("clock", [lambda: SYSTEM_CLOCK, ManualClock], ids=["straight", "plan"])
def test_another_probe_has_closed_a_circuit_in_shadow(clock):
    """Another probe closes the circuit: a call inside the first one counts, in shadow as in normal mode."""
    run, shared = an_opened_circuit(clock(), half_open_probes=2, shadow=True)

    def inside():
        assert "well" == contextvars.Context().run(run, works)
        assert CircuitState.CLOSED is shared.state
        with pytest.raises(ConnectionError):
            run(fails)

    run(inside)
    assert 2 == shared.status().failures_total


def test_a_probe_that_is_out_is_shared():
    """The contrary: inside a probe that is out a call is let in and counts nothing; the probe's own result decides."""
    run, shared = an_opened_circuit(ManualClock())

    def inside():
        with pytest.raises(ConnectionError):
            run(fails)
        return shared.state

    assert CircuitState.HALF_OPEN is run(inside)
    assert (CircuitState.CLOSED, 1) == (shared.state, shared.status().failures_total)


def test_an_exception_reported_on_a_permit_counts_once():
    """Reported on a permit and then raised through a call site of the same breaker: one failure."""
    registry = Registry()
    ref = breaker("remote", BreakerConfig(), registry=registry)

    @ref
    def run():
        permit = ref.breaker.try_acquire()
        try:
            fails()
        except ConnectionError as error:
            ref.breaker.on_failure(permit, error)
            raise

    with pytest.raises(ConnectionError):
        run()

    assert 1 == ref.status().failures_total


def test_an_ask_that_is_refused_gives_no_lost_probe_back():
    """More probes out than there are slots by now, one of them lost: an ask by permit changed what one at the door did not."""
    clock = ManualClock()
    shared = Registry(clock=clock).breaker("remote", BreakerConfig(Consecutive(1), half_open_probes=2, probe_lease=8))
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    shared.try_acquire()
    clock.advance(1)
    shared.try_acquire()
    shared.reconfigure(BreakerConfig(Consecutive(1), half_open_probes=1))
    clock.advance(7)
    assert shared.is_open()
    with pytest.raises(CircuitOpenError):
        shared.try_acquire()
    assert 0 == shared.status().probes_released
