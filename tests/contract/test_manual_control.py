"""Contract section 4: manual control, shadow, and what it means for live calls."""

from __future__ import annotations

import pytest

from resilience import (
    BreakerConfig,
    BreakerMode,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    breaker,
)
from resilience._core.events import ProbeReleased, StateChanged

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


def fail(shared, times=1):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), DOWN)


@pytest.fixture
def api(registry, clock, trips_at):
    return registry.breaker("api", trips_at(2, cooldown=30, probe_lease=10))


def test_reset_closes_an_open_circuit(env, remote, trips_at):
    """Section 4: reset() closes -> True; calls pass at once."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError)))
    env.fails(fn)
    shared = env.registry.get("api")

    assert shared.reset() is True
    assert CLOSED is shared.state
    assert "ok" == env.call(fn)


def test_reset_on_a_closed_breaker_changes_nothing(api, events):
    """Section 4: on a CLOSED breaker it returns False and changes nothing, the streak too."""
    fail(api)
    assert api.reset() is False
    assert 1 == api.status().failure_count
    assert [] == events
    fail(api)
    assert OPEN is api.state


def test_reset_zeroes_window(registry, clock):
    """Section 4: zeroes streak and window."""
    shared = registry.breaker("rate", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))
    fail(shared, 2)
    shared.reset()
    status = shared.status()

    assert (0, 0, None) == (status.failure_count, status.window_calls, status.last_failure)
    fail(shared)
    assert CLOSED is shared.state


def test_reset_bumps_the_episode(api):
    """Section 4: results of before are late."""
    old = api.try_acquire()
    fail(api, 2)
    api.reset()
    for _ in range(3):
        api.on_failure(old, DOWN)
    assert 0 == api.status().failure_count
    assert 1 == api.status().late_results


def test_reset_releases_live_probes(api, clock, events):
    """Section 4: releases live probes (reset)."""
    fail(api, 2)
    clock.advance(30)
    probe = api.try_acquire()
    assert api.reset() is True
    api.on_failure(probe, DOWN)

    assert CLOSED is api.state
    assert ["reset"] == [event.reason.value for event in events if isinstance(event, ProbeReleased)]
    status = api.status()
    assert (1, 1, 0) == (status.probes_started, status.probes_released, status.probes_failed)


def test_reset_lifts_a_forced_opening(api):
    """Section 4: and lifts a forced opening."""
    api.force_open("drill")
    assert api.reset() is True
    assert (CLOSED, BreakerMode.NORMAL) == (api.state, api.status().mode)


def test_reset_is_an_event_with_its_actor(api, events):
    """Section 4: manual acts are events with their actor."""
    api.force_open("drill", actor="ann")
    api.reset(reason="done", actor="bob")

    assert [("drill", "ann", OPEN), ("done", "bob", CLOSED)] == [
        (event.reason, event.actor, event.after) for event in events if isinstance(event, StateChanged)
    ]


def test_force_open_refuses_without_end(env, remote, trips_at):
    """Section 4: retry_after None without seconds; no cooldown ends it."""
    fn = breaker("api", trips_at(2))(env.function(remote()))
    env.registry.get("api").force_open("drill")
    env.advance(1e6)
    refusal = env.fails(fn)

    assert isinstance(refusal, CircuitOpenError)
    assert refusal.retry_after is None
    assert env.registry.get("api").is_open()
    status = env.registry.get("api").status()
    assert (OPEN, BreakerMode.FORCED, None, None) == (
        status.state,
        status.mode,
        status.next_half_open_at,
        status.retry_after,
    )


def test_force_open_for_seconds(env, remote, trips_at):
    """Section 4: retry_after = the rest; then as after any cooldown."""
    fn = breaker("api", trips_at(2))(env.function(remote()))
    env.registry.get("api").force_open("drill", seconds=50)
    env.advance(20)
    assert 30.0 == env.fails(fn).retry_after
    env.advance(30)
    assert "ok" == env.call(fn)
    assert CLOSED is env.registry.get("api").state


def test_force_open_while_open(api, clock):
    """Section 4: a forced opening takes the place of the cooldown."""
    fail(api, 2)
    api.force_open("drill")
    clock.advance(100)
    assert api.is_open()
    api.enable()
    assert CLOSED is api.state


def test_force_open_while_half_open_releases_the_probe(api, clock, events):
    """I15: the probe that was out ends; its result is late."""
    fail(api, 2)
    clock.advance(30)
    probe = api.try_acquire()
    api.force_open("drill")
    api.on_success(probe)

    assert OPEN is api.state
    status = api.status()
    assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released


def test_forced_open_is_not_closed_by_a_late_success(api):
    """I2: OPEN is left by time or operator only."""
    permit = api.try_acquire()
    api.force_open("drill")
    api.on_success(permit)

    assert OPEN is api.state


def test_force_open_twice(api, clock):
    """Section 4: the later act holds."""
    api.force_open("one")
    api.force_open("two", seconds=5)
    clock.advance(5)
    assert not api.is_open()


def test_force_open_seconds_beyond_max_cooldown(api, clock):
    """Section 4: max_cooldown caps a server's hint, not an operator."""
    api.force_open("night", seconds=36_000)
    assert 36_000.0 == api.status().retry_after


def test_disable_lets_everything_pass_and_counts_nothing(env, remote, trips_at):
    """Section 4: disabled: the state reads CLOSED, nothing trips."""
    fn = breaker("api", trips_at(2))(env.function(remote(then=ConnectionError)))
    shared = env.registry.breaker("api")
    shared.disable()
    for _ in range(10):
        assert isinstance(env.fails(fn), ConnectionError)
    status = shared.status()

    assert (CLOSED, BreakerMode.DISABLED, 0) == (status.state, status.mode, status.failure_count)
    assert not shared.is_open()


def test_disable_while_open_passes(env, remote, trips_at):
    """Section 4: disabling an open circuit lets calls pass."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError)))
    env.fails(fn)
    shared = env.registry.get("api")
    shared.disable()

    assert "ok" == env.call(fn)
    assert CLOSED is shared.status().state


def test_enable_after_disable_starts_fresh(env, remote, trips_at):
    """Section 4: enable() ends disabled; what came in between does not count."""
    fn = breaker("api", trips_at(2))(env.function(remote(then=ConnectionError)))
    shared = env.registry.breaker("api")
    shared.disable()
    for _ in range(5):
        env.fails(fn)
    shared.enable()
    assert (CLOSED, BreakerMode.NORMAL) == (shared.state, shared.status().mode)
    env.fails(fn)
    assert CLOSED is shared.state
    env.fails(fn)
    assert OPEN is shared.state


def test_permit_of_disabled_times_is_of_no_interest(api):
    """Section 4: a call admitted while disabled counts nothing after enable."""
    api.disable()
    permits = [api.try_acquire() for _ in range(5)]
    api.enable()
    for permit in permits:
        api.on_failure(permit, DOWN)

    assert CLOSED is api.state
    assert 0 == api.status().failure_count


def test_permit_from_before_disable_is_late(api):
    """I6: the episode was bumped."""
    permits = [api.try_acquire() for _ in range(5)]
    api.disable()
    api.enable()
    for permit in permits:
        api.on_failure(permit, DOWN)

    assert CLOSED is api.state


def test_disable_while_a_probe_is_out(api, clock):
    """I15: the probe is released."""
    fail(api, 2)
    clock.advance(30)
    probe = api.try_acquire()
    api.disable()
    api.on_success(probe)
    status = api.status()

    assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released


def test_enable_ends_forced(api):
    """Section 4: enable() ends forced and disabled."""
    api.force_open("drill")
    api.enable()
    assert (CLOSED, BreakerMode.NORMAL) == (api.state, api.status().mode)


def test_enable_in_normal_mode_changes_nothing(api, clock):
    """I2: enable() is no reset: an open circuit that nobody forced stays as it is."""
    fail(api, 2)
    api.enable()
    assert OPEN is api.state


def test_enable_in_normal_closed_mode_keeps_the_count(api, events):
    """Section 4: there is nothing to end."""
    fail(api)
    api.enable()
    assert 1 == api.status().failure_count


def test_manual_acts_are_transition_events(api, events):
    """Section 4: rows of the transition table, count as transitions, events with their actor."""
    api.disable(reason="maintenance", actor="ann")
    api.enable(actor="bob")
    acts = [(event.actor, event.before, event.after) for event in events if isinstance(event, StateChanged)]

    assert [("ann", CLOSED, CLOSED), ("bob", CLOSED, CLOSED)] == acts


def test_reference_forwards_the_controls(registry, clock, trips_at):
    """Design 1: BreakerRef forwards state, is_open, status, reset and the manual controls."""
    ref = breaker("api", trips_at(2))
    ref.force_open("drill", seconds=9, actor="ann")
    assert OPEN is ref.state
    assert ref.is_open()
    assert 9.0 == ref.status().retry_after
    assert ref.reset(reason="r", actor="a") is True
    ref.disable(reason="r", actor="a")
    assert BreakerMode.DISABLED is ref.status().mode
    ref.enable(actor="a")
    assert BreakerMode.NORMAL is ref.status().mode


def test_disabled_breaker_still_times_out_and_retries(env, remote, trips_at):
    """Section 4: the mode concerns the breaker alone."""
    from resilience import retry

    provider = remote(ConnectionError, "ok")
    fn = retry(2, wait=0, idempotent=True)(breaker("api", trips_at(1))(env.function(provider)))
    env.registry.get("api").disable()

    assert "ok" == env.call(fn)


# ------------------------------------------------------------------------------------------ shadow
def test_shadow_refuses_nothing(env, remote, trips_at):
    """Section 4: shadow runs the machine beside live traffic and refuses nothing."""
    provider = remote(then=ConnectionError)
    fn = breaker("api", trips_at(2, shadow=True))(env.function(provider))
    for _ in range(6):
        assert isinstance(env.fails(fn), ConnectionError)

    assert 6 == provider.calls


def test_shadow_counts_what_it_would_have_refused(env, remote, trips_at):
    """Section 4: and counts what it would have refused."""
    fn = breaker("api", trips_at(2, shadow=True))(env.function(remote(then=ConnectionError)))
    for _ in range(6):
        env.fails(fn)
    status = env.registry.get("api").status()

    assert 4 == status.would_refuse_total
    assert 0 == status.rejected_total
    assert BreakerMode.SHADOW is status.mode


def test_shadow_is_never_open_for_a_router(env, remote, trips_at):
    """Section 4: is_open is True when an acquire would be refused: in shadow never."""
    fn = breaker("api", trips_at(1, shadow=True))(env.function(remote(then=ConnectionError)))
    env.fails(fn)

    assert not env.registry.get("api").is_open()


def test_shadow_runs_the_whole_machine(env, remote, trips_at):
    """Section 4: it cools, probes and closes like any other."""
    fn = breaker("api", trips_at(1, shadow=True))(env.function(remote(ConnectionError, "ok")))
    env.fails(fn)
    assert OPEN is env.registry.get("api").state
    env.advance(30)
    env.call(fn)
    status = env.registry.get("api").status()

    assert (CLOSED, 1, 1) == (status.state, status.probes_started, status.probes_succeeded)


def test_shadow_does_not_stop_retries(env, remote, trips_at):
    """Section 4: a shadowed circuit ends no retry."""
    provider = remote(then=ConnectionError)
    fn = retry_of(env, provider, trips_at(1, shadow=True))
    env.fails(fn)

    assert 4 == provider.calls


def test_shadow_does_not_make_a_probe_one_attempt(env, remote, trips_at):
    """Section 4: a probe in shadow is judged like any, and its call goes on as if there were no breaker."""
    provider = remote(ConnectionError, ConnectionError, "ok")
    plain = breaker("api", trips_at(1, shadow=True))(env.function(provider))
    env.fails(plain)
    env.advance(30)
    fn = retry_of(env, provider, trips_at(1, shadow=True))

    assert "ok" == env.call(fn)
    assert (1, 3) == (env.registry.get("api").status().probes_failed, provider.calls)


def test_shadow_leaves_no_note(env, remote, trips_at):
    """Section 4: what a shadow would have refused says nothing about a circuit on its way out."""
    fn = retry_of(env, remote(then=ConnectionError), trips_at(1, shadow=True))
    error = env.fails(fn)

    assert ["retry gave up after 4 attempts"] == error.__notes__


def test_shadow_tells_its_transitions(env, remote, trips_at):
    """Section 4: its events are those of any breaker."""
    fn = breaker("api", trips_at(1, shadow=True))(env.function(remote(ConnectionError, "ok")))
    told = []
    env.registry.subscribe(lambda event: told.append(event.cause), StateChanged)
    env.fails(fn)
    env.advance(30)
    env.call(fn)

    assert ["tripped", "cooled", "probes_succeeded"] == told


def test_shadow_by_permits(registry, clock, trips_at):
    """Section 4: permits alike: none is refused, and only the probe has a say."""
    shared = registry.breaker("api", trips_at(1, shadow=True, cooldown=30))
    fail(shared)
    clock.advance(30)
    probe, other = shared.try_acquire(), shared.try_acquire(OnOpen.BYPASS)
    shared.on_failure(other, FaultKind.TRANSIENT)
    shared.on_success(probe)

    assert (True, False) == (bool(other), other.bypassed)
    assert (CLOSED, 1) == (shared.state, shared.status().would_refuse_total)


def test_a_shadow_forced_for_a_time(registry, clock, trips_at):
    """Section 4: an operator's opening with an end is real until then, and a shadow's again after it."""
    shared = registry.breaker("api", trips_at(1, shadow=True))
    shared.force_open("drill", seconds=5)
    with pytest.raises(CircuitOpenError):
        shared.try_acquire()
    clock.advance(5)
    shared.try_acquire()
    shared.try_acquire()

    assert (BreakerMode.SHADOW, 1) == (shared.status().mode, shared.status().would_refuse_total)


def retry_of(env, provider, config):
    from resilience import retry

    return retry(4, wait=0, idempotent=True)(breaker("api", config)(env.function(provider)))


def test_shadow_never_bypasses(env, remote, trips_at):
    """Section 4: nothing is skipped."""
    provider = remote(ConnectionError, "ok")
    fn = breaker("api", trips_at(1, shadow=True), on_open=OnOpen.BYPASS, fallback="spare")(env.function(provider))
    env.fails(fn)

    assert "ok" == env.call(fn)
    assert 0 == env.registry.get("api").status().bypassed_total


def test_forcing_a_shadow_breaker_refuses(registry, clock, trips_at):
    """Section 4: an operator's act is meant."""
    shared = registry.breaker("api", trips_at(1, shadow=True))
    shared.force_open("drill")
    with pytest.raises(CircuitOpenError):
        shared.try_acquire()
    shared.enable()
    assert BreakerMode.SHADOW is shared.status().mode


def test_shadow_result_while_would_be_refused_is_not_counted_as_a_probe(registry, clock, trips_at):
    """I3: in shadow, calls that would have been refused decide nothing."""
    shared = registry.breaker("api", trips_at(1, shadow=True, cooldown=30))
    fail(shared)
    shared.on_success(shared.try_acquire())

    assert OPEN is shared.state


def test_clear_state_puts_everything_back(registry, clock, trips_at):
    """Design 1: registry.clear_state() puts a breaker back to CLOSED and zero."""
    shared = registry.breaker("api", trips_at(1))
    fail(shared)
    registry.clear_state()
    status = shared.status()

    assert (CLOSED, 0, 0, None) == (status.state, status.failure_count, status.failures_total, status.last_failure)
    assert Consecutive(1) == shared.config.trip


def test_clear_state_lifts_modes(registry, clock, trips_at):
    """Design 1: as just registered."""
    shared = registry.breaker("api", trips_at(1))
    shared.disable()
    registry.clear_state()
    assert BreakerMode.NORMAL is shared.status().mode
    shared.force_open("x")
    registry.clear_state()
    assert not shared.is_open()
