"""Event records: what was decided, in plain fields."""

from __future__ import annotations

import pickle

import pytest

from resilience._core import events as ev
from resilience._core.record import Record
from resilience._words import CircuitState, FaultKind, ProbeEnd, TimeoutScope, Verdict

SAMPLES = [
    ev.Event(name="db"),
    ev.StateChanged(name="db", before=CircuitState.CLOSED, after=CircuitState.OPEN, cause="tripped", episode=2),
    ev.ProbeStarted(name="db", episode=3, lease=30.0),
    ev.ProbeSucceeded(name="db", episode=3),
    ev.ProbeFailed(name="db", episode=3, kind=FaultKind.TRANSIENT),
    ev.ProbeReleased(name="db", episode=3, reason=ProbeEnd.LOST),
    ev.LateResult(name="db", episode=1, verdict=Verdict.SUCCESS, accepted=False),
    ev.Rejected(name="db", retry_after=None),
    ev.Bypassed(name="db", site="f", by="circuit_open"),
    ev.RetryScheduled(name="f", attempt=1, wait=0.5, kind=FaultKind.TRANSIENT),
    ev.RetryExhausted(name="f", attempts=3, reason="attempts"),
    ev.TimedOut(name="f", scope=TimeoutScope.BUDGET, seconds=3.0),
    ev.BulkheadRejected(name="pool", waited=True),
    ev.ConfigConflict(name="db", differences=("cooldown: 30.0, not 5.0",)),
    ev.Reconfigured(name="db", differences=("cooldown: 5.0, not 30.0",), actor="ann"),
    ev.KeyOverflow(name="llm", reason="full", max_keys=1024),
    ev.SinkFailed(name="db", sink="log", error="ValueError"),
]
ids = [type(event).__name__ for event in SAMPLES]


def test_each_type_has_a_sample():
    """These tests see all of them."""
    made = {value for value in vars(ev).values() if isinstance(value, type) and issubclass(value, ev.Event)}

    assert made == {type(event) for event in SAMPLES}


@pytest.mark.parametrize("event", SAMPLES, ids=ids)
def test_common_fields(event):
    """Each begins with its name, its times and its place in the order."""
    assert ["name", "at", "time_ns", "sequence"] == list(event.as_dict())[:4]
    assert (0.0, 0, 0) == (event.at, event.time_ns, event.sequence)


@pytest.mark.parametrize("event", SAMPLES, ids=ids)
def test_values(event):
    """I19: frozen, hashable, picklable."""
    assert isinstance(event, Record)
    assert {event} == {pickle.loads(pickle.dumps(event))}
    with pytest.raises(AttributeError):
        event.name = "other"


def test_numbered():
    """Its deliverer alone gives an event its place, in place."""
    event = ev.ProbeSucceeded(name="db", episode=3)

    assert event is event.numbered(7)
    assert 7 == event.sequence
    assert 0 == ev.ProbeSucceeded(name="db", episode=3).sequence


def test_what_is_built_on_demand():
    """Transitions, probes and conflicts are always built; the events of single calls only when asked for."""
    assert {
        ev.Rejected,
        ev.Bypassed,
        ev.RetryScheduled,
        ev.RetryExhausted,
        ev.TimedOut,
        ev.BulkheadRejected,
    } == ev.OPTIONAL
