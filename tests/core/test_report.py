"""`BreakerStatus`: one moment of a breaker as a record."""

from __future__ import annotations

import pickle

import pytest

from resilience._core.report import BreakerStatus, LastFailure
from resilience._words import BreakerMode, CircuitState, FaultKind

GIVEN = {
    "name": "db",
    "state": CircuitState.OPEN,
    "mode": BreakerMode.NORMAL,
    "failure_count": 5,
    "window_calls": 5,
    "failure_rate": None,
    "opened_at": 1,
    "last_state_change": 1,
    "next_half_open_at": 2,
    "retry_after": 0.5,
    "rejected_total": 1,
    "bypassed_total": 2,
    "successes_total": 3,
    "failures_total": 5,
    "answered_total": 0,
    "probes_started": 0,
    "probes_succeeded": 0,
    "probes_failed": 0,
    "probes_released": 0,
    "late_results": 0,
    "late_accepted": 0,
    "would_refuse_total": 0,
}


def test_what_may_be_left_out():
    """Key, labels and the last failure are not everybody's."""
    status = BreakerStatus(**GIVEN)

    assert (None, {}, None) == (status.key, status.labels, status.last_failure)
    assert GIVEN == {name: value for name, value in status.as_dict().items() if name in GIVEN}


def test_the_shared_empty_labels_are_read_only():
    """A default that many share can't be filled by one."""
    with pytest.raises(TypeError):
        BreakerStatus(**GIVEN).labels["team"] = "a"


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_what_must_be_given(name):
    """A status is whole."""
    with pytest.raises(TypeError, match=rf"missing \['{name}'\]"):
        BreakerStatus(**{key: value for key, value in GIVEN.items() if key != name})


def test_equal_statuses_are_one_member_of_a_set():
    """The labels are a mapping, which has no hash; the status has one all the same, that of its equals."""
    status = BreakerStatus(**GIVEN, labels={"team": "a"})

    assert {status} == {status, BreakerStatus(**GIVEN, labels={"team": "a"})}
    assert 2 == len({status, BreakerStatus(**GIVEN, labels={"team": "b"})})


@pytest.mark.parametrize("change", [{"name": "mail"}, {"state": CircuitState.CLOSED}, {"last_state_change": 2}])
def test_hashes_differ(change):
    """Other breakers and other states are found apart in a set."""
    assert hash(BreakerStatus(**GIVEN)) != hash(BreakerStatus(**{**GIVEN, **change}))


def test_pickles():
    """A status crosses processes."""
    failure = LastFailure(type_name="shop.Busy", kind=FaultKind.TRANSIENT, time=7)
    status = BreakerStatus(**GIVEN, labels={"team": "a"}, key=("eu",), last_failure=failure)

    assert status == pickle.loads(pickle.dumps(status))
