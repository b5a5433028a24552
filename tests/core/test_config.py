"""What is shared under a name: checked whole, compared field by field."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import pytest

from resilience._core.config import BreakerConfig, BulkheadConfig
from resilience._core.trip import Consecutive
from resilience._core.window import FailureRate
from resilience._words import FaultKind
from resilience.errors import ConfigurationError

TRANSIENT, DOWNSTREAM, INTERNAL = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERNAL


def faults_of(make, *args, **settings):
    """The parameters an error complains about."""
    with pytest.raises(ConfigurationError) as caught:
        make(*args, **settings)
    return [line.split()[0] for line in caught.value.faults]


# ---------------------------------------------------------------------------------------------------- of a breaker
def test_defaults():
    """As the contract says."""
    config = BreakerConfig()

    assert (Consecutive(5), 30.0, 1, 1, {TRANSIENT, DOWNSTREAM}, set(), "reset", 30.0, 300.0, True, False) == (
        config.trip,
        config.cooldown,
        config.half_open_probes,
        config.half_open_successes,
        config.trip_kinds,
        config.trip_statuses,
        config.answered,
        config.probe_lease,
        config.max_cooldown,
        config.honour_retry_after,
        config.shadow,
    )


@pytest.mark.parametrize(
    ("preset", "trip", "cooldown"),
    [
        (BreakerConfig.remote, Consecutive(5), 30.0),
        (BreakerConfig.in_process, Consecutive(20), 5.0),
        (BreakerConfig.cloud, FailureRate(0.5, window=30, bucket=3, min_calls=10), 30.0),
    ],
)
def test_presets(preset, trip, cooldown):
    """Only what they are named for differs from the defaults."""
    assert BreakerConfig(trip, cooldown=cooldown) == preset()


def test_normal_forms():
    """However it was written: equal, with one hash."""
    one = BreakerConfig(
        Consecutive(3),
        cooldown=timedelta(seconds=10),
        trip_on=["downstream", TRANSIENT],
        trip_on_status=[401, 403, 401],
        probe_lease=5,
        max_cooldown=timedelta(minutes=1),
    )
    other = BreakerConfig(
        Consecutive(3),
        cooldown=10.0,
        trip_on={TRANSIENT, DOWNSTREAM},
        trip_on_status=(403, 401),
        probe_lease=5.0,
        max_cooldown=60,
    )

    assert one == other
    assert hash(one) == hash(other)
    assert () == one.differences(other)


def test_statuses_of_the_whole_range():
    """The first and the last number that can be a status may be named."""
    assert {100, 599} == BreakerConfig(trip_on_status=(100, 599)).trip_statuses


def test_one_kind_alone():
    """A single kind needs no collection, and INTERNAL may be named."""
    assert {INTERNAL} == BreakerConfig(trip_on=INTERNAL).trip_kinds


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol):
    """I19: settings cross processes."""
    config = BreakerConfig.cloud()

    assert config == pickle.loads(pickle.dumps(config, protocol))


def test_frozen():
    """What is shared is not changed by one."""
    with pytest.raises(FrozenInstanceError):
        BreakerConfig().cooldown = 1.0


def test_replace_checks_again():
    """A changed copy is as safe as a new one."""
    assert 5.0 == replace(BreakerConfig(), cooldown=5).cooldown
    assert ["cooldown"] == faults_of(replace, BreakerConfig(), cooldown=0)


def test_all_bad():
    """Every field that can't be right is in ONE error."""
    bad = {
        "trip": "often",
        "cooldown": 0,
        "half_open_probes": 0,
        "half_open_successes": True,
        "trip_on": (),
        "trip_on_status": [99],
        "answered": "maybe",
        "probe_lease": math.nan,
        "max_cooldown": math.inf,
        "honour_retry_after": 1,
        "shadow": "no",
        "ramp": 0,
    }

    assert sorted(bad) == sorted(faults_of(BreakerConfig, **bad))


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("trip", "often", "Consecutive(...) or FailureRate(...)"),
        ("trip_on_status", 401, "a collection of HTTP statuses (whole numbers in 100-599)"),
        ("trip_on_status", [99], "a collection of HTTP statuses (whole numbers in 100-599)"),
        ("answered", "maybe", "'reset' or 'ignore'"),
    ],
)
def test_what_would_be_right(name, value, right):
    """The error names the parameter, what it may be and what was given."""
    with pytest.raises(ConfigurationError) as caught:
        BreakerConfig(**{name: value})

    assert (f"{name} must be {right}, got {value!r}",) == caught.value.faults


@pytest.mark.parametrize("name", ["cooldown", "probe_lease", "max_cooldown"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "30", None, 10**400, timedelta(0)])
def test_bad_seconds(name, value):
    """Finite, above 0, no bool."""
    assert [name] == faults_of(BreakerConfig, **{name: value})


@pytest.mark.parametrize("name", ["half_open_probes", "half_open_successes"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_bad_counts(name, value):
    """Whole numbers of at least 1."""
    assert [name] == faults_of(BreakerConfig, **{name: value})


@pytest.mark.parametrize("trip", [None, 5, Consecutive, "Consecutive(5)", Consecutive().machine()])
def test_bad_trip(trip):
    """A mode, not a number or the class of one."""
    assert ["trip"] == faults_of(BreakerConfig, trip)


@pytest.mark.parametrize("kind", [FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.CONTROL, FaultKind.INTERRUPTED])
def test_kinds_that_never_trip(kind):
    """They say nothing about the remote."""
    assert ["trip_on"] == faults_of(BreakerConfig, trip_on={TRANSIENT, kind})


@pytest.mark.parametrize("statuses", [[99], [600], [True], ["401"], "401", 401, None, [401.0], [None]])
def test_bad_statuses(statuses):
    """A collection of whole numbers in 100-599."""
    assert ["trip_on_status"] == faults_of(BreakerConfig, trip_on_status=statuses)


@pytest.mark.parametrize("answered", ["RESET", "", None, 1, []])
def test_bad_answered(answered):
    """One of two words."""
    assert ["answered"] == faults_of(BreakerConfig, answered=answered)


def test_a_cap_below_the_cooldown():
    """`max_cooldown` can't be shorter than the cooldown; equal is fine."""
    with pytest.raises(ConfigurationError, match=r"^max_cooldown must be >= cooldown \(30\), got 29.5$"):
        BreakerConfig(max_cooldown=29.5)
    assert BreakerConfig(max_cooldown=30)


def test_a_long_cooldown_needs_a_longer_cap():
    """And the other way round."""
    assert ["max_cooldown"] == faults_of(BreakerConfig, cooldown=301)


# ---------------------------------------------------------------------------------------------------- differences
def test_differences():
    """Field by field, as one would say it."""
    assert (
        "cooldown: 30.0, not 5.0",
        "trip_on: {downstream, transient}, not {internal}",
        "trip_on_status: {}, not {401, 403}",
        "shadow: False, not True",
    ) == BreakerConfig().differences(
        BreakerConfig(cooldown=5, trip_on=INTERNAL, trip_on_status={403, 401}, shadow=True)
    )


def test_difference_of_modes():
    """Both modes are spelled."""
    (line,) = BreakerConfig().differences(BreakerConfig(Consecutive(3, within=60)))

    assert "trip: Consecutive(failures=5, within=None), not Consecutive(failures=3, within=60.0)" == line


@pytest.mark.parametrize(
    "trip",
    [
        FailureRate(1 / 3, window=100 / 3, bucket=10 / 3, min_calls=20),
        FailureRate(2 / 3, window=100 / 3, bucket=10 / 3),
        FailureRate(1 / 3, window=50 / 3, bucket=10 / 3),
    ],
)
def test_a_difference_shows_what_differs(trip):
    """A warning that spells both sides alike would be of no help."""
    given = BreakerConfig(FailureRate(1 / 3, window=100 / 3, bucket=10 / 3))
    (line,) = given.differences(BreakerConfig(trip))
    ours, theirs = line.removeprefix("trip: ").split(", not ")

    assert ours != theirs


# ---------------------------------------------------------------------------------------------------- of a bulkhead
def test_bulkhead_defaults():
    """The line is ten times as long as the bulkhead is wide."""
    assert (None, 40) == (BulkheadConfig(4).max_waiting, BulkheadConfig(4).longest_line)


@pytest.mark.parametrize("waiting", [0, 1, 7])
def test_bulkhead_line(waiting):
    """Given, it is as given."""
    assert waiting == BulkheadConfig(4, waiting).longest_line


def test_bulkhead_all_bad():
    """One error for both."""
    assert ["max_in_flight", "max_waiting"] == faults_of(BulkheadConfig, 0, -1)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, math.nan, None])
def test_bulkhead_bad_limit(limit):
    """A whole number of at least 1."""
    assert ["max_in_flight"] == faults_of(BulkheadConfig, limit)


def test_bulkhead_differences():
    """Compared by what they mean: a line spelled out is no difference."""
    assert () == BulkheadConfig(4).differences(BulkheadConfig(4, 40))
    assert ("max_in_flight: 4, not 5", "max_waiting: 40, not 50") == BulkheadConfig(4).differences(BulkheadConfig(5))


def test_bulkhead_is_a_value():
    """Equal, hashed and pickled by its fields."""
    config = BulkheadConfig(4, 2)

    assert {config} == {BulkheadConfig(4, 2), pickle.loads(pickle.dumps(config))}


def test_reads_the_same_in_every_process():
    """Sets are shown in order, whatever the hash of their members is today."""
    config = BreakerConfig(trip_on={FaultKind.TRANSIENT, FaultKind.INTERNAL}, trip_on_status={403, 401})

    assert "BreakerConfig(trip=Consecutive(failures=5, within=None), " in repr(config)
    assert "trip_on={internal, transient}, trip_on_status={401, 403}" in repr(config)
