"""Contract section 4: a live breaker takes other settings as one change, and loses nothing by it."""

from __future__ import annotations

import itertools
import logging
import pickle

import pytest

from resilience import (
    BreakerConfig,
    BreakerMode,
    CircuitOpenError,
    CircuitState,
    ConfigurationError,
    Consecutive,
    FailureRate,
    Fault,
    FaultFlag,
    FaultKind,
    Registry,
    breaker,
)
from resilience.events import ConfigConflict, Reconfigured, StateChanged

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


def fail(shared, times=1):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), DOWN)


def succeed(shared, times=1):
    for _ in range(times):
        shared.on_success(shared.try_acquire())


def rate(share=1.0, window=30, bucket=3, min_calls=10, **settings):
    return BreakerConfig(FailureRate(share, window=window, bucket=bucket, min_calls=min_calls, **settings))


@pytest.fixture
def api(registry, clock):
    return registry.breaker("api", BreakerConfig(Consecutive(5), cooldown=30))


# ------------------------------------------------------------------------------------------ what it is
def test_it_reads_the_new_settings(api):
    """`config` is what holds now, and so is what a pickle carries."""
    config = BreakerConfig(Consecutive(2), cooldown=5)
    api.reconfigure(config)

    assert config == api.config


def test_the_event(api, registry):
    """Always told: each difference, the new value first, and who it was."""
    told = []
    registry.subscribe(told.append)
    api.reconfigure(BreakerConfig(Consecutive(5), cooldown=5, half_open_probes=2), actor="ann")

    assert [(Reconfigured, "api", "ann")] == [(type(event), event.name, event.actor) for event in told]
    assert ("cooldown: 5.0, not 30.0", "half_open_probes: 2, not 1") == told[0].differences


def test_the_log(api, caplog):
    """An operator's act is told at INFO."""
    with caplog.at_level(logging.INFO, "resilience"):
        api.reconfigure(BreakerConfig(Consecutive(5), cooldown=5), actor="ann")

    assert [(logging.INFO, "circuit 'api' has other settings by ann: cooldown: 5.0, not 30.0")] == [
        (record.levelno, record.getMessage()) for record in caplog.records
    ]


def test_the_same_settings_change_nothing(api, registry):
    """And nothing is told."""
    told = []
    registry.subscribe(told.append)
    fail(api, 2)
    before = api.status()
    api.reconfigure(BreakerConfig(Consecutive(5), cooldown=30))

    assert (before, []) == (api.status(), told)


@pytest.mark.parametrize("wrong", [None, "remote", Consecutive(2), BreakerConfig])
def test_all_or_nothing(api, registry, wrong):
    """What is no configuration is refused before anything has changed."""
    told = []
    registry.subscribe(told.append)
    before = api.config
    with pytest.raises(ConfigurationError) as caught:
        api.reconfigure(wrong, actor="")

    assert ["config", "actor"] == [line.split()[0] for line in caught.value.faults]
    assert (before, []) == (api.config, told)


def test_by_a_reference(registry, clock):
    """Forwarded to the shared breaker."""
    ref = breaker("api", BreakerConfig(Consecutive(5)))
    ref.reconfigure(BreakerConfig(Consecutive(1)), actor="ann")
    fail(ref.breaker)

    assert OPEN is ref.state


# ------------------------------------------------------------------------------------------ what stays
def test_a_streak_goes_on(api):
    """Failures held count by the new limit, from the next result on."""
    fail(api, 4)
    api.reconfigure(BreakerConfig(Consecutive(2)))
    assert (CLOSED, 4) == (api.state, api.status().failure_count)
    fail(api)

    assert (OPEN, 5) == (api.state, api.status().failure_count)


def test_a_longer_streak(api):
    """What was held is part of it."""
    fail(api, 4)
    api.reconfigure(BreakerConfig(Consecutive(6)))
    fail(api)
    assert (CLOSED, 5) == (api.state, api.status().failure_count)
    fail(api)

    assert (OPEN, 6) == (api.state, api.status().failure_count)


def test_a_streak_that_ends_begins_at_nothing(api):
    """A success after the change ends it as ever."""
    fail(api, 4)
    api.reconfigure(BreakerConfig(Consecutive(2)))
    succeed(api)
    fail(api)

    assert (CLOSED, 1) == (api.state, api.status().failure_count)


def test_failures_within_a_time(registry, clock):
    """The last ones stay, as many as the new limit needs."""
    shared = registry.breaker("timed", BreakerConfig(Consecutive(4, within=10)))
    for _ in range(3):
        clock.advance(1)
        fail(shared)
    shared.reconfigure(BreakerConfig(Consecutive(2, within=60)))
    assert (CLOSED, 2) == (shared.state, shared.status().failure_count)
    clock.advance(50)
    fail(shared)

    assert OPEN is shared.state


def test_a_window_of_the_same_bucket(registry, clock):
    """Its slices stay: trimmed where it became shorter."""
    shared = registry.breaker("rate", rate(window=30))
    fail(shared, 3)
    clock.advance(9)
    succeed(shared, 2)
    shared.reconfigure(rate(window=9))
    assert (0, 2) == (shared.status().failure_count, shared.status().window_calls)
    shared.reconfigure(rate(window=30))

    assert (0, 2) == (shared.status().failure_count, shared.status().window_calls)


def test_a_longer_window(registry, clock):
    """What counted goes on counting, longer than it would have."""
    shared = registry.breaker("rate", rate(window=9))
    fail(shared, 3)
    shared.reconfigure(rate(window=30))
    clock.advance(20)

    assert 3 == shared.status().failure_count


def test_the_next_success_is_judged_too(registry, clock):
    """By the new numbers the window may be full and bad: a success opens it as a failure would."""
    shared = registry.breaker("rate", rate(min_calls=100))
    fail(shared, 9)
    shared.reconfigure(rate(0.5, min_calls=5))
    assert CLOSED is shared.state
    succeed(shared)

    assert (OPEN, 10) == (shared.state, shared.status().window_calls)


@pytest.mark.parametrize(
    "changed",
    [
        BreakerConfig(Consecutive(9, within=60)),
        rate(min_calls=50),
    ],
    ids=["within", "rate"],
)
def test_another_shape_starts_fresh(api, changed):
    """A streak says nothing about a window."""
    fail(api, 4)
    api.reconfigure(changed)

    assert (CLOSED, 0) == (api.state, api.status().failure_count)
    assert 4 == api.status().failures_total


def test_another_bucket_starts_fresh(registry, clock):
    """Slices of one length can't be cut into others."""
    shared = registry.breaker("rate", rate(bucket=3))
    fail(shared, 3)
    shared.reconfigure(rate(bucket=1))

    assert 0 == shared.status().window_calls


def test_permits_in_flight_stay_good(api):
    """The episode goes on: what was admitted before counts after."""
    permit = api.try_acquire()
    api.reconfigure(BreakerConfig(Consecutive(1)))
    api.on_failure(permit, DOWN)

    assert (OPEN, 0) == (api.state, api.status().late_results)


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(["streak", "timed", "rate", "slow"], 2)])
def test_permits_in_flight_between_all_modes(registry, clock, before, after):
    """Also where it counts in another way from now on, and guards and permits alike."""
    settings = {
        "streak": BreakerConfig(Consecutive(2)),
        "timed": BreakerConfig(Consecutive(2, within=60)),
        "rate": rate(min_calls=2),
        "slow": rate(min_calls=2, slow_call=5),
    }
    ref = breaker("api", settings[before])
    permit = ref.breaker.try_acquire()
    with pytest.raises(ConnectionError), ref.guard():
        ref.reconfigure(settings[after])
        raise ConnectionError
    assert (CLOSED, 1) == (ref.state, ref.status().failure_count)
    ref.breaker.on_failure(permit, DOWN)

    assert (OPEN, 2, 0) == (ref.state, ref.status().failure_count, ref.status().late_results)


def test_probes_keep_their_leases(registry, clock):
    """A lease is a promise made when the probe was let go."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30, probe_lease=20))
    fail(shared)
    clock.advance(30)
    probe = shared.try_acquire()
    shared.reconfigure(BreakerConfig(Consecutive(1), cooldown=30, probe_lease=1))
    clock.advance(19)
    assert (HALF_OPEN, 1.0) == (shared.state, shared.status().retry_after)
    shared.on_success(probe)

    assert CLOSED is shared.state


def test_fewer_probes_than_are_out(registry, clock):
    """Those that are out stay; the next one goes when there are fewer than the new limit, and is told so."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), half_open_probes=3, probe_lease=10))
    fail(shared)
    clock.advance(30)
    for _ in range(3):
        shared.try_acquire()
        clock.advance(1)
    shared.reconfigure(BreakerConfig(Consecutive(1), half_open_probes=1, probe_lease=10))
    with pytest.raises(CircuitOpenError) as refused:
        shared.try_acquire()

    assert 9.0 == refused.value.retry_after
    clock.advance(9)
    assert shared.try_acquire().probe


def test_a_probe_that_is_lost_while_too_many_are_out(registry, clock):
    """I15: an ask that is refused changes nothing, as at the door; the next that is let in gives the slots back."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), half_open_probes=3, probe_lease=10))
    fail(shared)
    clock.advance(30)
    shared.try_acquire()
    clock.advance(5)
    for _ in range(2):
        shared.try_acquire()
    shared.reconfigure(BreakerConfig(Consecutive(1), half_open_probes=1, probe_lease=10))
    clock.advance(5)
    with pytest.raises(CircuitOpenError) as refused:
        shared.try_acquire()
    assert (5, 3, 0) == (
        refused.value.retry_after,
        shared.status().probes_started,
        shared.status().probes_released,
    )

    clock.advance(5)
    assert shared.try_acquire().probe
    assert (4, 3, 1) == (
        shared.status().probes_started,
        shared.status().probes_released,
        len(shared.circuit.view.probes),
    )


def test_it_closes_nothing_by_itself(registry, clock):
    """As many successes as would do now are there already: the next one closes."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), half_open_successes=3))
    fail(shared)
    clock.advance(30)
    succeed(shared, 2)
    shared.reconfigure(BreakerConfig(Consecutive(1), half_open_successes=1))
    assert HALF_OPEN is shared.state
    succeed(shared)

    assert CLOSED is shared.state


def test_an_open_circuit_keeps_its_end(api, clock):
    """The new cooldown holds from the next opening on."""
    fail(api, 5)
    api.reconfigure(BreakerConfig(Consecutive(5), cooldown=1))
    assert 30.0 == api.status().retry_after
    clock.advance(30)
    fail(api)

    assert (OPEN, 1.0) == (api.state, api.status().retry_after)


def test_a_ramp_keeps_its_end(registry, clock):
    """And the new one holds from the next closing on."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), ramp=10))
    fail(shared)
    clock.advance(30)
    succeed(shared)
    until = shared.status().ramp_until
    shared.reconfigure(BreakerConfig(Consecutive(1)))

    assert until == shared.status().ramp_until is not None


@pytest.mark.parametrize(("act", "mode"), [("force_open", BreakerMode.FORCED), ("disable", BreakerMode.DISABLED)])
def test_an_operators_mode_stays(api, act, mode):
    """It is not the settings'; what comes after it is."""
    getattr(api, act)(reason="drill")
    api.reconfigure(BreakerConfig(Consecutive(5), shadow=True))
    assert mode is api.status().mode
    api.enable()

    assert BreakerMode.SHADOW is api.status().mode


def test_into_shadow_and_out_of_it(api):
    """An open circuit stops refusing, and refuses again."""
    fail(api, 5)
    api.reconfigure(BreakerConfig(Consecutive(5), shadow=True))
    assert (False, OPEN) == (api.is_open(), api.state)
    assert api.try_acquire()
    api.reconfigure(BreakerConfig(Consecutive(5)))

    assert api.is_open()
    with pytest.raises(CircuitOpenError):
        api.try_acquire()


def test_no_transition(api, registry):
    """It moves nothing, whatever the new numbers say of what is held."""
    moves = []
    registry.subscribe(moves.append, StateChanged)
    fail(api, 4)
    for config in (BreakerConfig(Consecutive(1)), rate(min_calls=1), BreakerConfig(Consecutive(1, within=1))):
        api.reconfigure(config)

    assert [] == moves


# ------------------------------------------------------------------------------------------ what follows
def test_verdicts_follow(api):
    """Which kinds and statuses count is looked up in the new settings."""
    api.reconfigure(BreakerConfig(Consecutive(5), trip_on={FaultKind.DOWNSTREAM}, trip_on_status={401}))
    fail(api, 2)
    assert 0 == api.status().failure_count
    api.on_failure(api.try_acquire(), FaultKind.DOWNSTREAM)
    api.on_failure(api.try_acquire(), Fault(FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=401))

    assert 2 == api.status().failure_count


def test_verdicts_of_compiled_wrappers_follow(env, remote):
    """Functions decorated before judge by the new settings as well."""
    fn = breaker("api", BreakerConfig(Consecutive(1)))(env.function(remote(then=ConnectionError)))
    shared = env.registry.get("api")
    shared.reconfigure(BreakerConfig(Consecutive(1), trip_on={FaultKind.DOWNSTREAM}))
    env.fails(fn)
    assert CLOSED is shared.state
    shared.reconfigure(BreakerConfig(Consecutive(1)))
    env.fails(fn)

    assert OPEN is shared.state


MODES = {
    "streak": BreakerConfig(Consecutive(2)),
    "timed": BreakerConfig(Consecutive(2, within=60)),
    "rate": rate(0.6, min_calls=2),
    "slow": rate(0.6, min_calls=2, slow_call=5),
}


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(MODES, 2)])
def test_compiled_wrappers_go_on(env, remote, before, after):
    """Compiled for one way to count, they count in another, and refuse when it opens."""
    fn = breaker("api", MODES[before])(env.function(remote("ok", ConnectionError, ConnectionError)))
    shared = env.registry.get("api")
    env.call(fn)
    shared.reconfigure(MODES[after])
    env.fails(fn)
    assert (CLOSED, 1, 1) == (shared.state, shared.status().failure_count, shared.status().successes_total)
    env.fails(fn)

    assert OPEN is shared.state
    assert isinstance(env.fails(fn), CircuitOpenError)


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(MODES, 2)])
def test_in_the_middle_of_a_call(env, before, after):
    """A success that began under other settings is counted, once, the way that holds when it ends."""

    def body(arg=None, key=None):
        shared.reconfigure(MODES[after])
        return "ok"

    fn = breaker("api", MODES[before])(env.function(body))
    shared = env.registry.get("api")
    env.call(fn)
    status = shared.status()

    assert (1, 1 if after in ("rate", "slow") else 0) == (status.successes_total, status.window_calls)


def test_a_kept_guard_goes_on(env):
    """A block's guard that was made before, and is entered after."""
    ref = breaker("api", MODES["streak"])
    block, own = ref.guard(), ref.breaker.guard()
    with block, own:
        pass
    for number, mode in enumerate(["rate", "slow", "streak", "rate"]):
        ref.reconfigure(MODES[mode])
        with block, own:
            pass
        assert 4 + 2 * number == ref.status().successes_total
    ref.reconfigure(MODES["streak"])
    for guard in (block, own):
        with pytest.raises(ConnectionError), guard:
            raise ConnectionError

    assert OPEN is ref.state


def test_conflicts_are_told_against_it(registry, clock):
    """Who registers the name again hears what differs from the settings that hold."""
    told = []
    registry.subscribe(told.append, ConfigConflict)
    shared = registry.breaker("api", BreakerConfig(cooldown=30))
    shared.reconfigure(BreakerConfig(cooldown=5))
    registry.breaker("api", BreakerConfig(cooldown=5))
    assert [] == told
    registry.breaker("api", BreakerConfig(cooldown=30))

    assert [("cooldown: 5.0, not 30.0",)] == [event.differences for event in told]


def test_a_strict_registry_does_not_refuse_the_code_as_it_is(clock):
    """What the name was registered with in the first place goes on working; anything else is refused."""
    registry = Registry(clock, strict=True)
    ref = breaker("api", BreakerConfig(cooldown=30), registry=registry)
    ref.reconfigure(BreakerConfig(cooldown=5))
    with ref.guard():
        pass
    with pytest.raises(ConfigurationError, match=r"cooldown: 5.0, not 7.0"):
        registry.breaker("api", BreakerConfig(cooldown=7))


def test_a_pickled_breaker_carries_the_settings_that_hold():
    """Elsewhere it is registered with what holds here."""
    from resilience import default_registry

    shared = default_registry().breaker("reconfigured-and-pickled", BreakerConfig())
    shared.reconfigure(BreakerConfig(cooldown=5))

    assert shared is pickle.loads(pickle.dumps(shared))
    assert (shared.name, shared.config) == shared.__reduce__()[1]


def test_cleared_for_the_next_test(api, registry):
    """`clear_state` puts back what happened, not the settings."""
    api.reconfigure(BreakerConfig(Consecutive(1)))
    fail(api)
    registry.clear_state()

    assert (CLOSED, Consecutive(1)) == (api.state, api.config.trip)


def test_before_the_first_call_of_a_reference(env, remote):
    """A function that refers to a name finds it as it is then."""
    fn = breaker("later")(env.function(remote(then=ConnectionError)))
    shared = env.registry.breaker("later", BreakerConfig(Consecutive(5)))
    shared.reconfigure(rate(min_calls=1))
    env.fails(fn)

    assert OPEN is shared.state
