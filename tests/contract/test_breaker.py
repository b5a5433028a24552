"""Contract section 4: states, trip modes, verdicts, Retry-After, half-open, reading."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilience import (
    BreakerConfig,
    BreakerMode,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    Fault,
    FaultFlag,
    FaultKind,
    OnOpen,
    Registry,
    breaker,
    classify,
    count_everything,
)
from resilience._core.events import LateResult, ProbeFailed, ProbeReleased, ProbeStarted, ProbeSucceeded, StateChanged
from resilience.testing import ManualClock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


@pytest.fixture
def shared(registry, clock):
    """`shared(config)`: a breaker on the manual clock."""
    count = itertools.count()
    return lambda *args, **kwargs: registry.breaker(f"b{next(count)}", BreakerConfig(*args, **kwargs))


class Unheard(Exception):
    """An exception nobody has a rule for."""


def fail(shared, times=1, fault=DOWN):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), fault)


def succeed(shared, times=1):
    for _ in range(times):
        shared.on_success(shared.try_acquire())


# ------------------------------------------------------------------------------------------ consecutive
def test_opens_at_the_nth_failure(env, remote, trips_at):
    """I5: the N-th failure trips, not the one before."""
    fn = breaker("api", trips_at(3))(env.function(remote(then=ConnectionError)))
    states = []
    for _ in range(3):
        env.fails(fn)
        states.append(env.registry.get("api").state)

    assert [CLOSED, CLOSED, OPEN] == states


def test_success_resets_the_streak(env, remote, trips_at):
    """Section 4: a success resets it."""
    fn = breaker("api", trips_at(3))(
        env.function(remote(ConnectionError, ConnectionError, "ok", ConnectionError, ConnectionError, "ok"))
    )
    for _ in range(6):
        env.fails(fn)

    assert CLOSED is env.registry.get("api").state
    assert 0 == env.registry.get("api").status().failure_count


def test_default_config():
    """Section 4: the defaults."""
    config = BreakerConfig()
    assert (Consecutive(5), 30.0, 1, 1, 30.0, 300.0, True, False, "reset") == (
        config.trip,
        config.cooldown,
        config.half_open_probes,
        config.half_open_successes,
        config.probe_lease,
        config.max_cooldown,
        config.honour_retry_after,
        config.shadow,
        config.answered,
    )
    assert {FaultKind.TRANSIENT, FaultKind.DOWNSTREAM} == set(config.trip_on)


def test_presets():
    """Section 4: presets."""
    assert BreakerConfig(Consecutive(5), cooldown=30) == BreakerConfig.remote()
    assert BreakerConfig(Consecutive(20), cooldown=5) == BreakerConfig.in_process()
    assert FailureRate(rate=0.5, window=30, bucket=3, min_calls=10) == BreakerConfig.cloud().trip


def test_config_is_hashable_and_equal_by_value():
    """Issue 2, Build 3: frozen, hashable, equal by value, whatever the containers given."""
    one = BreakerConfig(Consecutive(3), trip_on=[FaultKind.TRANSIENT, FaultKind.DOWNSTREAM], trip_on_status=[401, 403])
    two = BreakerConfig(
        Consecutive(3),
        trip_on={FaultKind.DOWNSTREAM, FaultKind.TRANSIENT},
        trip_on_status=(403, 401),
        cooldown=timedelta(seconds=30),
    )
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(AttributeError):
        one.cooldown = 5


def test_within_needs_all_failures_inside(shared, clock):
    """Section 4: 4 failures at t=0 and 1 at t=70 count as 1."""
    circuit = shared(Consecutive(5, within=60))
    fail(circuit, 4)
    clock.advance(70)
    fail(circuit)

    assert CLOSED is circuit.state
    assert 1 == circuit.status().failure_count


def test_within_counts_an_entry_aged_exactly_within(shared, clock):
    """Section 4: an entry aged exactly `within` still counts."""
    circuit = shared(Consecutive(2, within=60))
    fail(circuit)
    clock.advance(60)
    fail(circuit)

    assert OPEN is circuit.state


def test_within_one_moment_too_late(shared, clock):
    """Section 4: and one aged more does not."""
    circuit = shared(Consecutive(2, within=60))
    fail(circuit)
    clock.advance(60.001)
    fail(circuit)

    assert CLOSED is circuit.state


def test_within_slides(shared, clock):
    """Section 4: a true sliding window, no tumbling edge."""
    circuit = shared(Consecutive(3, within=10))
    for _ in range(3):
        fail(circuit)
        clock.advance(6)
    assert CLOSED is circuit.state
    clock.advance(-0.0)
    fail(circuit)
    fail(circuit)
    assert OPEN is circuit.state


def test_within_success_clears(shared):
    """Section 4: a success clears them."""
    circuit = shared(Consecutive(2, within=60))
    fail(circuit)
    succeed(circuit)
    fail(circuit)

    assert CLOSED is circuit.state


def test_status_of_a_timed_streak_is_of_the_moment_read(shared, clock):
    """Design 1: failure_count holds what would count at the moment of the read."""
    circuit = shared(Consecutive(5, within=60))
    fail(circuit, 2)
    clock.advance(30)
    fail(circuit)
    assert 3 == circuit.status().failure_count
    clock.advance(31)
    assert 1 == circuit.status().failure_count
    clock.advance(60)
    assert 0 == circuit.status().failure_count


@settings(max_examples=150)
@given(
    n=st.integers(1, 4),
    within=st.sampled_from([None, 5.0, 10.0]),
    steps=st.lists(st.tuples(st.sampled_from("fsa"), st.integers(0, 4)), max_size=40),
)
def test_consecutive_against_a_plain_list(n, within, steps):
    """Section 4: Consecutive equals its definition over a list of times."""
    clock = ManualClock(50)
    circuit = Registry(clock=clock).breaker("b", BreakerConfig(Consecutive(n, within=within)))
    times = []
    for what, pause in steps:
        clock.advance(pause)
        permit = circuit.try_acquire()
        if what == "f":
            circuit.on_failure(permit, DOWN)
            times.append(clock.monotonic())
        elif what == "s":
            circuit.on_success(permit)
            times.clear()
        else:
            circuit.release(permit)
        last = times[-n:]
        tripped = len(last) == n and (within is None or last[-1] - last[0] <= within) and what == "f"
        assert tripped == (circuit.state is OPEN)
        if tripped:
            return


# ------------------------------------------------------------------------------------------ failure rate
def test_rate_needs_min_calls(env, remote):
    """Section 4: calls >= min_calls."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))(
        env.function(remote(then=ConnectionError))
    )
    states = []
    for _ in range(4):
        env.fails(fn)
        states.append(env.registry.get("api").state)

    assert [CLOSED, CLOSED, CLOSED, OPEN] == states


def test_rate_threshold_is_inclusive(env, remote):
    """Section 4: rate >= threshold."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))(
        env.function(remote("ok", "ok", ConnectionError, ConnectionError))
    )
    for _ in range(4):
        env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_rate_is_judged_on_a_success_too(env, remote):
    """Section 4: the success that reaches min_calls is judged."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))(
        env.function(remote(ConnectionError, ConnectionError, "ok", "ok"))
    )
    for _ in range(4):
        env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_rate_rises_when_old_successes_leave(env, remote):
    """Section 4: as if evaluated after every result: a success in a new bucket can trip."""
    fn = breaker("api", BreakerConfig(FailureRate(0.6, window=6, bucket=3, min_calls=4)))(
        env.function(remote("ok", "ok", "ok", ConnectionError, ConnectionError, ConnectionError, "ok"))
    )
    assert env.registry.breaker("api") is not None
    env.advance((-1000) % 3)  # whole buckets
    for _ in range(3):
        env.call(fn)
    env.advance(3)
    for _ in range(3):
        env.fails(fn)
    assert CLOSED is env.registry.get("api").state
    env.advance(3)
    env.call(fn)

    assert OPEN is env.registry.get("api").state


def test_neutral_calls_are_not_in_the_window(env, remote):
    """Section 4: cancelled and neutral calls are not in the window."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))(
        env.function(remote(then=ValueError))
    )
    for _ in range(5):
        env.fails(fn)

    assert 0 == env.registry.get("api").status().window_calls


def test_answered_calls_are_not_in_the_window(env, remote, http_error):
    """Section 1: windows record nothing for ANSWERED."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))(
        env.function(remote(then=http_error(404)))
    )
    for _ in range(5):
        env.fails(fn)

    assert 0 == env.registry.get("api").status().window_calls


def test_call_counts_in_the_bucket_of_its_completion(shared, clock):
    """Section 4: a call is counted in the bucket of its completion."""
    circuit = shared(FailureRate(1.0, window=3, bucket=3, min_calls=2))
    clock.advance(2)  # 102: a bucket begins
    permit = circuit.try_acquire()
    clock.advance(3)
    circuit.on_failure(permit, DOWN)
    clock.advance(2.9)

    assert 1 == circuit.status().window_calls
    clock.advance(0.1)
    assert 0 == circuit.status().window_calls


def test_status_of_a_window_is_of_the_moment_read(shared, clock):
    """Design 1: window_calls and failure_rate hold what would count now."""
    circuit = shared(FailureRate(1.0, window=30, bucket=3, min_calls=10))
    fail(circuit, 2)
    succeed(circuit, 2)
    status = circuit.status()
    assert (2, 4, 0.5) == (status.failure_count, status.window_calls, status.failure_rate)
    clock.advance(33)
    status = circuit.status()
    assert (0, 0) == (status.failure_count, status.window_calls)


def test_rate_is_none_for_a_streak(shared):
    """BreakerStatus: the rate is None where the breaker counts a streak."""
    assert shared(Consecutive(2)).status().failure_rate is None


@settings(max_examples=200)
@given(
    buckets=st.integers(1, 4),
    rate=st.sampled_from([0.25, 0.5, 0.6, 1.0]),
    min_calls=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from("ffssan"), st.integers(0, 5)), max_size=50),
    path=st.sampled_from(["manual", "decorated"]),
)
def test_rate_against_a_plain_list(buckets, rate, min_calls, steps, path):
    """Section 4: FailureRate equals its definition over a list of results, evaluated after every one."""
    clock = ManualClock(30)
    registry = Registry(clock=clock)
    circuit = registry.breaker("b", BreakerConfig(FailureRate(rate, window=buckets * 2, bucket=2, min_calls=min_calls)))

    @breaker("b", registry=registry)
    def call(what):
        if what == "f":
            raise ConnectionError
        if what == "n":
            raise ValueError
        if what == "a":
            error = ValueError()
            error.status_code = 404
            raise error

    results = []
    for what, pause in steps:
        clock.advance(pause)
        if path == "decorated":
            try:
                call(what)
            except (ConnectionError, ValueError):
                pass
        else:
            permit = circuit.try_acquire()
            if what == "f":
                circuit.on_failure(permit, DOWN)
            elif what == "s":
                circuit.on_success(permit)
            elif what == "a":
                circuit.on_failure(permit, Fault(FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}))
            else:
                circuit.on_failure(permit, FaultKind.INTERNAL)
        if what in "fs":
            results.append((clock.monotonic() // 2, what))
        now = clock.monotonic() // 2
        live = [kind for at, kind in results if now - buckets < at <= now]
        tripped = what in "fs" and len(live) >= min_calls and live.count("f") / len(live) >= rate
        assert tripped == (circuit.state is OPEN), (results, clock.monotonic())
        if tripped:
            return
        assert len(live) == circuit.status().window_calls


# ------------------------------------------------------------------------------------------ cooldown and probes
def test_open_until_exactly_the_cooldown(env, remote, trips_at):
    """Section 4: now - opened_at >= cooldown; I2: never early."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(ConnectionError, "ok")))
    env.fails(fn)
    env.advance(29.999)
    assert isinstance(env.fails(fn), CircuitOpenError)
    env.advance(0.001)
    env.advance(1e-9)
    assert "ok" == env.call(fn)


def test_retry_after_is_the_exact_rest(env, remote, trips_at):
    """Section 4: CircuitOpenError.retry_after is the exact remaining time."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(ConnectionError)))
    env.fails(fn)
    env.advance(12.5)

    assert 17.5 == env.fails(fn).retry_after


def test_retry_after_while_a_probe_is_out_is_the_rest_of_its_lease(env, remote, trips_at):
    """Section 4: while a probe is out it is the rest of its lease."""
    fn = breaker("api", trips_at(1, cooldown=30, probe_lease=8))(env.function(remote(ConnectionError)))
    env.fails(fn)
    env.advance(30)
    env.registry.get("api").try_acquire()
    env.advance(3)

    assert 5.0 == env.fails(fn).retry_after


def test_cooled_open_still_reads_open(shared, clock):
    """Section 4, routers: with retry_after 0, and is_open False."""
    circuit = shared(Consecutive(1), cooldown=30)
    fail(circuit)
    clock.advance(31)

    assert OPEN is circuit.state
    assert 0 == circuit.status().retry_after
    assert OPEN is circuit.status().state
    assert not circuit.is_open()


def test_failed_probe_waits_a_full_cooldown_from_the_failure(env, remote, trips_at):
    """Section 4: from the failure, not from the acquire."""
    circuit = env.registry.breaker("api", trips_at(1, cooldown=30))
    fail(circuit)
    env.advance(30)
    probe = circuit.try_acquire()
    env.advance(5)
    circuit.on_failure(probe, DOWN)

    assert 30.0 == circuit.status().retry_after


def test_cooldown_never_grows_by_itself(env, remote, trips_at):
    """Section 4: cooldown never grows by itself."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(then=ConnectionError)))
    rests = []
    for _ in range(5):
        env.fails(fn)
        rests.append(env.fails(fn).retry_after)
        env.advance(30)

    assert [30.0] * 5 == rests


def test_half_open_admits_no_more_than_its_probes(shared, clock):
    """I1: at most half_open_probes unexpired permits."""
    circuit = shared(Consecutive(1), half_open_probes=3)
    fail(circuit)
    clock.advance(30)
    granted = []
    for _ in range(6):
        try:
            granted.append(circuit.try_acquire())
        except CircuitOpenError:
            pass

    assert 3 == len(granted)
    assert all(permit.probe for permit in granted)


def test_settled_probe_gives_its_slot_back(shared, clock):
    """I8: slots granted = settled + live."""
    circuit = shared(Consecutive(1), half_open_probes=1, half_open_successes=3)
    fail(circuit)
    clock.advance(30)
    for expected in (HALF_OPEN, HALF_OPEN, CLOSED):
        circuit.on_success(circuit.try_acquire())
        assert expected is circuit.state


def test_settling_twice_is_harmless(shared, clock):
    """I8: settling twice frees no second slot and counts no second success."""
    circuit = shared(Consecutive(1), half_open_probes=1, half_open_successes=2)
    fail(circuit)
    clock.advance(30)
    probe = circuit.try_acquire()
    for _ in range(5):
        circuit.on_success(probe)
        circuit.release(probe)
    assert HALF_OPEN is circuit.state
    circuit.try_acquire()
    with pytest.raises(CircuitOpenError):
        circuit.try_acquire()


def test_settling_a_failure_twice_counts_once(shared):
    """I8: on a closed circuit too."""
    circuit = shared(Consecutive(3))
    permit = circuit.try_acquire()
    for _ in range(5):
        circuit.on_failure(permit, DOWN)

    assert 1 == circuit.status().failure_count
    assert 1 == circuit.status().failures_total


def test_success_then_failure_on_one_permit(shared):
    """I8: the first report decides."""
    circuit = shared(Consecutive(1))
    permit = circuit.try_acquire()
    circuit.on_success(permit)
    circuit.on_failure(permit, DOWN)

    assert CLOSED is circuit.state


def test_neutral_probe_counts_neither_way(shared, clock):
    """Section 4: a neutral probe counts neither way and gives its slot back in the same step."""
    circuit = shared(Consecutive(1), half_open_successes=2)
    fail(circuit)
    clock.advance(30)
    succeed(circuit)
    circuit.release(circuit.try_acquire())
    assert HALF_OPEN is circuit.state
    succeed(circuit)
    assert CLOSED is circuit.state


def test_first_failed_probe_opens_again(shared, clock):
    """Section 4: the first failed one opens again, however many had succeeded."""
    circuit = shared(Consecutive(1), half_open_probes=2, half_open_successes=3)
    fail(circuit)
    clock.advance(30)
    one, two = circuit.try_acquire(), circuit.try_acquire()
    circuit.on_success(one)
    circuit.on_failure(two, DOWN)

    assert OPEN is circuit.state
    clock.advance(30)
    succeed(circuit, 2)
    assert HALF_OPEN is circuit.state


def test_answered_probe_counts_as_succeeded(env, remote, trips_at, http_error):
    """Section 1: ANSWERED: a probe counts as succeeded."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError, http_error(404))))
    env.fails(fn)
    env.advance(30)
    env.fails(fn)

    status = env.registry.get("api").status()
    assert (CLOSED, 1, 0) == (status.state, status.probes_succeeded, status.probes_failed)


def test_internal_probe_is_neutral(env, remote, trips_at):
    """I4: our own bug decides no probe: HALF_OPEN stays, the slot is back."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError, ValueError, "ok")))
    env.fails(fn)
    env.advance(30)
    env.fails(fn)
    assert HALF_OPEN is env.registry.get("api").state
    assert "ok" == env.call(fn)
    assert CLOSED is env.registry.get("api").state


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupted_probe_gives_its_slot_back(env, remote, trips_at, stop):
    """I4: BaseExceptions pass through untouched and leave no probe behind."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError, "ok")))
    env.fails(fn)
    env.advance(30)
    shared = env.registry.get("api")
    interrupted = stop()

    def raises(arg):
        raise interrupted

    if env.is_async:
        coroutine = breaker("api")(env.function(raises))()
        with pytest.raises(stop) as caught:
            coroutine.send(None)
    else:
        with pytest.raises(stop) as caught:
            breaker("api")(env.function(raises))()
    assert interrupted is caught.value
    assert HALF_OPEN is shared.state
    assert "ok" == env.call(fn)


def test_i7_recovers_within_bound(shared, clock):
    """I7: with a healthy downstream CLOSED within cooldown + lease + half_open_successes calls."""
    circuit = shared(Consecutive(1), cooldown=30, probe_lease=10, half_open_successes=2)
    fail(circuit)
    clock.advance(30)
    circuit.try_acquire()  # lost
    clock.advance(10)
    succeed(circuit, 2)

    assert CLOSED is circuit.state


# ------------------------------------------------------------------------------------------ late results and lost probes
def test_late_success_never_closes(shared, clock):
    """I6, I3: evidence older than the trip can't overrule it."""
    circuit = shared(Consecutive(1))
    early = circuit.try_acquire()
    fail(circuit)
    circuit.on_success(early)
    assert OPEN is circuit.state
    assert 1 == circuit.status().late_results


def test_late_results_do_not_decide_a_probe(shared, clock):
    """I3: HALF_OPEN is decided only by permits of its own episode."""
    circuit = shared(Consecutive(1))
    good, bad = circuit.try_acquire(), circuit.try_acquire()
    fail(circuit)
    clock.advance(30)
    probe = circuit.try_acquire()
    circuit.on_success(good)
    circuit.on_failure(bad, DOWN)

    assert HALF_OPEN is circuit.state
    with pytest.raises(CircuitOpenError):
        circuit.try_acquire()
    circuit.on_success(probe)
    assert CLOSED is circuit.state
    assert 2 == circuit.status().late_results


def test_late_failure_of_an_earlier_closed_episode(shared, clock):
    """I6: late results change only a metric."""
    circuit = shared(Consecutive(2))
    late = [circuit.try_acquire() for _ in range(5)]
    fail(circuit, 2)
    clock.advance(30)
    succeed(circuit)
    for permit in late:
        circuit.on_failure(permit, DOWN)

    assert CLOSED is circuit.state
    assert 0 == circuit.status().failure_count
    assert 5 == circuit.status().late_results


def test_late_results_through_the_decorator(env, remote, trips_at):
    """I6: a call that began before the trip and ends after it changes only a metric."""
    circuit = env.registry.breaker("api", trips_at(1))

    def body(arg):
        fail(circuit)
        return "late"

    assert "late" == env.call(breaker("api")(env.function(body)))
    assert OPEN is circuit.state
    assert 1 == circuit.status().late_results


def test_late_failure_through_the_decorator_does_not_move_the_cooldown(env, trips_at):
    """I2, I11: a late failure never extends OPEN."""
    circuit = env.registry.breaker("api", trips_at(1, cooldown=30))

    def body(arg):
        fail(circuit)
        env.advance(10)
        raise ConnectionError

    env.fails(breaker("api")(env.function(body)))
    assert 20.0 == circuit.status().retry_after


def test_lost_probe_is_replaced(shared, clock, events):
    """Section 4: if the lease runs out, the next acquire takes a new probe (probe_released{lost})."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    circuit.try_acquire()
    clock.advance(10)
    assert circuit.try_acquire().probe

    assert ["lost"] == [event.reason.value for event in events if isinstance(event, ProbeReleased)]
    status = circuit.status()
    assert (2, 1) == (status.probes_started, status.probes_released)


def test_lease_holds_until_its_last_moment(shared, clock):
    """I1: an unexpired permit is not given away."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    circuit.try_acquire()
    clock.advance(9.999)
    with pytest.raises(CircuitOpenError):
        circuit.try_acquire()


def test_lost_probes_result_is_accepted_in_its_episode(shared, clock, events):
    """Section 4: otherwise a lease shorter than an honest slow call would never close."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    slow = circuit.try_acquire()
    clock.advance(10)
    circuit.try_acquire()
    circuit.on_success(slow)

    assert CLOSED is circuit.state
    status = circuit.status()
    assert (2, 0, 0) == (status.probes_started, status.probes_succeeded, status.probes_failed)
    assert 1 == status.late_accepted
    assert [True] == [event.accepted for event in events if isinstance(event, LateResult)]


def test_lost_probes_failure_opens_again(shared, clock):
    """Section 4: the lost one's result moves the state."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    slow = circuit.try_acquire()
    clock.advance(10)
    circuit.try_acquire()
    circuit.on_failure(slow, DOWN)

    assert OPEN is circuit.state


def test_expired_probe_that_nobody_replaced_is_still_a_probe(shared, clock):
    """Section 4: its result is accepted; started = succeeded + failed + released."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    slow = circuit.try_acquire()
    clock.advance(100)
    circuit.on_success(slow)

    assert CLOSED is circuit.state
    status = circuit.status()
    assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released


def test_lost_probe_of_an_earlier_half_open_is_late(shared, clock):
    """Section 4: after the episode it is late: metric only."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    lost = circuit.try_acquire()
    clock.advance(10)
    circuit.on_failure(circuit.try_acquire(), DOWN)
    clock.advance(30)
    circuit.try_acquire()
    circuit.on_success(lost)

    assert HALF_OPEN is circuit.state


def test_lost_probe_does_not_free_its_successors_slot(shared, clock):
    """I1, I8: the lost one's neutral end gives back nothing."""
    circuit = shared(Consecutive(1), probe_lease=10)
    fail(circuit)
    clock.advance(30)
    lost = circuit.try_acquire()
    clock.advance(10)
    circuit.try_acquire()
    circuit.release(lost)
    with pytest.raises(CircuitOpenError):
        circuit.try_acquire()


def test_lease_is_the_longest_limit_of_the_call_site(registry, clock, trips_at, events):
    """Section 4: lease = max(probe_lease, per_attempt, else budget) of the site that took it."""
    from resilience import timeout

    leases = {}
    for name, limits in {"attempt": (90, 50), "budget": (70, None), "none": (None, None), "short": (5, 2)}.items():
        circuit = registry.breaker(name, trips_at(1, probe_lease=30))
        fail(circuit)
        fn = breaker(name)(lambda timeout=None: "ok")
        if limits[0]:
            fn = timeout(limits[0], per_attempt=limits[1], pass_as="timeout")(fn)
        clock.advance(30)
        fn()
        leases[name] = [event.lease for event in events if isinstance(event, ProbeStarted) and event.name == name]

    assert {"attempt": [50.0], "budget": [70.0], "none": [30.0], "short": [30.0]} == leases


# ------------------------------------------------------------------------------------------ verdicts
@pytest.mark.parametrize(
    ("status", "failures"),
    [
        (500, 1),
        (502, 1),
        (503, 1),
        (504, 1),
        (429, 1),
        (408, 1),
        (425, 1),
        (501, 1),
        (505, 1),
        (400, 0),
        (401, 0),
        (403, 0),
        (404, 0),
        (409, 0),
        (422, 0),
        (402, 0),
    ],
)
def test_statuses_that_count(world, remote, trips_at, http_error, status, failures):
    """Section 2: 5xx, 408, 425, 429 count; other 4xx are ANSWERED."""
    fn = breaker("api", trips_at(9))(world.function(remote(then=http_error(status))))
    world.fails(fn)

    assert failures == world.registry.get("api").status().failures_total


def test_trip_on_status_opts_back_in(world, remote, trips_at, http_error):
    """Section 2: trip_on_status={401} opts single statuses back in."""
    fn = breaker("api", trips_at(1, trip_on_status={401, 403}))(world.function(remote(then=http_error(401))))
    world.fails(fn)

    assert OPEN is world.registry.get("api").state


def test_answered_resets_the_streak(env, remote, trips_at, http_error):
    """Section 1: ANSWERED resets a streak."""
    fn = breaker("api", trips_at(2))(env.function(remote(ConnectionError, http_error(404), ConnectionError)))
    for _ in range(3):
        env.fails(fn)

    assert CLOSED is env.registry.get("api").state


def test_answered_ignore_leaves_the_count(env, remote, trips_at, http_error):
    """Section 2: with answered="ignore" it leaves the count of a CLOSED breaker as it was."""
    fn = breaker("api", trips_at(2, answered="ignore"))(
        env.function(remote(ConnectionError, http_error(404), ConnectionError))
    )
    for _ in range(3):
        env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_answered_ignore_still_closes_a_probe(env, remote, trips_at, http_error):
    """Section 2: a probe still succeeds."""
    fn = breaker("api", trips_at(1, answered="ignore"))(env.function(remote(ConnectionError, http_error(404))))
    env.fails(fn)
    env.advance(30)
    env.fails(fn)

    assert CLOSED is env.registry.get("api").state


@pytest.mark.parametrize("exc", [ValueError, TypeError, KeyError, AssertionError, ZeroDivisionError])
def test_our_own_bugs_never_trip(env, remote, trips_at, exc):
    """Section 2: INTERNAL never trips and does not reset the streak."""
    fn = breaker("api", trips_at(2))(env.function(remote(ConnectionError, exc, exc, ConnectionError)))
    for _ in range(3):
        env.fails(fn)
    assert CLOSED is env.registry.get("api").state
    env.fails(fn)
    assert OPEN is env.registry.get("api").state


def test_trip_on_internal(env, remote, trips_at):
    """Section 2: INTERNAL counts where trip_on names it."""
    fn = breaker("api", trips_at(1, trip_on=(FaultKind.INTERNAL,)))(env.function(remote(RuntimeError)))
    env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_kind_left_out_of_trip_on_is_neutral(env, remote, trips_at):
    """Section 2: a TRANSIENT fault that trip_on leaves out is NEUTRAL: it does not reset the streak either."""
    fn = breaker(
        "api",
        trips_at(2, trip_on=(FaultKind.DOWNSTREAM,)),
        classify=lambda exc: FaultKind.DOWNSTREAM if isinstance(exc, ValueError) else None,
    )(env.function(remote(ValueError, ConnectionError, ValueError)))
    for _ in range(3):
        env.fails(fn)

    assert OPEN is env.registry.get("api").state


@pytest.mark.parametrize(
    ("flag", "total"),
    [
        (FaultFlag.CLIENT_FAULT, 0),
        (FaultFlag.CONTENTION, 0),
        (FaultFlag.SATURATION, 0),
        (FaultFlag.LOCAL, 0),
        (FaultFlag.QUOTA, 1),
        (FaultFlag.UNSENT, 1),
        (FaultFlag.AMBIGUOUS, 1),
    ],
    ids=lambda value: getattr(value, "value", value),
)
def test_flags_decide_the_verdict(env, remote, trips_at, flag, total):
    """Section 2: flags."""
    fault = Fault(FaultKind.TRANSIENT, {flag})
    fn = breaker("api", trips_at(9), classify=lambda exc: fault)(env.function(remote(ConnectionError)))
    env.fails(fn)

    assert total == env.registry.get("api").status().failures_total


def test_exception_with_fault_kind_is_believed(env, trips_at):
    """Section 2: an exception that carries a FaultKind as fault_kind is believed before any rule."""

    class Mine(ValueError):
        fault_kind = FaultKind.DOWNSTREAM

    def body(arg):
        raise Mine

    fn = breaker("api", trips_at(1))(env.function(body))
    env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_cause_decides_for_an_unknown_exception(env, trips_at):
    """Section 2: `raise MyError from ConnectionError` is TRANSIENT."""

    class MyError(Exception):
        pass

    def body(arg):
        try:
            raise ConnectionResetError
        except ConnectionResetError as exc:
            raise MyError from exc

    fn = breaker("api", trips_at(1))(env.function(body))
    env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_exception_being_handled_when_the_call_began_is_no_cause(env, trips_at):
    """Section 2: the walk stops at the exception that was being handled when the call began."""

    class MyError(Exception):
        pass

    def body(arg):
        raise MyError

    fn = breaker("api", trips_at(1))(env.function(body))
    if env.is_async:

        async def main():
            try:
                raise ConnectionResetError
            except ConnectionResetError:
                try:
                    await fn()
                except MyError:
                    pass

        env.loop_runner.run(main())
    else:
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            try:
                fn()
            except MyError:
                pass

    assert CLOSED is env.registry.get("api").state


def test_group_takes_the_worst_verdict(env, remote, trips_at):
    """Section 2: a group's verdict is the worst of the leaves (FAILURE > ANSWERED > NEUTRAL)."""
    fn = breaker("api", trips_at(1))(env.function(remote(ExceptionGroup("g", [ValueError("x"), ConnectionError("y")]))))
    env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_count_everything(env, remote, trips_at):
    """Section 2: classify=count_everything makes every unclassified Exception DOWNSTREAM."""
    fn = breaker("api", trips_at(1), classify=count_everything)(env.function(remote(Unheard)))
    env.fails(fn)

    assert OPEN is env.registry.get("api").state


def test_result_can_be_a_fault(env, remote, trips_at):
    """Section 2: returned values can be faults; the value is returned all the same."""
    site = breaker("api", trips_at(1), classify_result=lambda value: FaultKind.TRANSIENT if value == "503" else None)
    fn = site(env.function(remote("503")))

    assert "503" == env.call(fn)
    assert OPEN is env.registry.get("api").state


def test_result_that_is_no_fault_is_a_success(env, remote, trips_at):
    """Section 2: None from classify_result is a success."""
    site = breaker("api", trips_at(2), classify_result=lambda value: FaultKind.TRANSIENT if value == "503" else None)
    fn = site(env.function(remote("503", "200", "503")))
    for _ in range(3):
        env.call(fn)

    assert CLOSED is env.registry.get("api").state


def test_result_fault_in_a_window(env, remote):
    """Sections 2 and 4: a faulty result counts once in the window."""
    site = breaker(
        "api",
        BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)),
        classify_result=lambda value: FaultKind.TRANSIENT if value == "503" else None,
    )
    fn = site(env.function(remote("200", "503")))
    env.call(fn)
    env.call(fn)

    assert OPEN is env.registry.get("api").state


@pytest.mark.parametrize(
    "kind", [FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.CONTROL, FaultKind.INTERRUPTED, FaultKind.INTERNAL]
)
def test_kinds_that_are_neutral(shared, kind):
    """Section 2: VALIDATION, CONTRACT, INTERNAL, CONTROL, INTERRUPTED are NEUTRAL."""
    circuit = shared(Consecutive(2))
    fail(circuit)
    fail(circuit, 5, kind)
    assert 1 == circuit.status().failure_count
    fail(circuit)
    assert OPEN is circuit.state


# ------------------------------------------------------------------------------------------ Retry-After and the open time
def test_retry_after_keeps_the_circuit_open(env, remote, trips_at, http_error):
    """Section 4: a longer Retry-After of the failure that trips is the open time."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(http_error(429, Retry_After="120"))))
    env.fails(fn)

    assert 120.0 == env.fails(fn).retry_after


def test_retry_after_is_capped_by_max_cooldown(env, remote, trips_at, http_error):
    """Section 4: capped by max_cooldown."""
    fn = breaker("api", trips_at(1, cooldown=30, max_cooldown=100))(
        env.function(remote(http_error(503, Retry_After="9999")))
    )
    env.fails(fn)

    assert 100.0 == env.fails(fn).retry_after


def test_shorter_retry_after_does_not_shorten(env, remote, trips_at, http_error):
    """Section 4: a shorter one changes nothing."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(http_error(503, Retry_After="3"))))
    env.fails(fn)

    assert 30.0 == env.fails(fn).retry_after


def test_honour_retry_after_false(env, remote, trips_at, http_error):
    """Section 4: honour_retry_after=False keeps the fixed cadence."""
    fn = breaker("api", trips_at(1, cooldown=30, honour_retry_after=False))(
        env.function(remote(http_error(503, Retry_After="120")))
    )
    env.fails(fn)

    assert 30.0 == env.fails(fn).retry_after


def test_retry_after_of_an_earlier_failure_does_not_count(env, remote, trips_at, http_error):
    """Section 4: only the failure that trips."""
    fn = breaker("api", trips_at(2, cooldown=30))(
        env.function(remote(http_error(503, Retry_After="120"), ConnectionError))
    )
    env.fails(fn)
    env.fails(fn)

    assert 30.0 == env.fails(fn).retry_after


def test_failed_probe_with_retry_after(env, remote, trips_at, http_error):
    """Section 4: or a failed probe."""
    fn = breaker("api", trips_at(1, cooldown=30))(
        env.function(remote(ConnectionError, http_error(503, Retry_After="90")))
    )
    env.fails(fn)
    env.advance(30)
    env.fails(fn)

    assert 90.0 == env.fails(fn).retry_after


def test_retry_after_holds_the_probe_back(env, remote, trips_at, http_error):
    """I2: never early: the cooldown alone is not enough."""
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(http_error(429, Retry_After="120"))))
    env.fails(fn)
    env.advance(119)
    assert isinstance(env.fails(fn), CircuitOpenError)
    env.advance(1)
    assert "ok" == env.call(fn)


def test_retry_after_of_a_result(env, remote, trips_at):
    """Sections 2 and 4: a faulty result's Fault carries it too."""
    fault = Fault(FaultKind.TRANSIENT, retry_after=77.0)
    fn = breaker("api", trips_at(1), classify_result=lambda value: fault)(env.function(remote()))
    env.call(fn)

    assert 77.0 == env.fails(fn).retry_after


def test_open_time_is_never_jittered(env, remote, trips_at):
    """Section 4: the open time is never jittered."""
    random.seed(1)
    rests = set()
    fn = breaker("api", trips_at(1, cooldown=30))(env.function(remote(then=ConnectionError)))
    for _ in range(10):
        env.fails(fn)
        rests.add(env.registry.get("api").status().retry_after)
        env.advance(30)

    assert {30.0} == rests


# ------------------------------------------------------------------------------------------ I11: clock jumps
def test_a_clock_that_jumps_back_never_extends_open_beyond_one_cooldown(registry, trips_at):
    """I11: a clock jump never extends OPEN beyond one cooldown."""

    class Jumping(ManualClock):
        def jump(self, seconds):
            self._now += seconds

    clock = Jumping(10_000)
    registry.clock = clock
    circuit = registry.breaker("api", trips_at(1, cooldown=30))
    fail(circuit)
    clock.jump(-5_000)

    assert circuit.status().retry_after <= 30
    clock.advance(30)
    assert not circuit.is_open()
    assert circuit.try_acquire().probe


def test_a_clock_that_jumps_back_never_extends_a_lease(registry, trips_at):
    """I7, I11: nor a lease."""

    class Jumping(ManualClock):
        def jump(self, seconds):
            self._now += seconds

    clock = Jumping(10_000)
    registry.clock = clock
    circuit = registry.breaker("api", trips_at(1, cooldown=30, probe_lease=10))
    fail(circuit)
    clock.advance(30)
    circuit.try_acquire()
    clock.jump(-5_000)
    clock.advance(40)

    assert circuit.try_acquire().probe


# ------------------------------------------------------------------------------------------ I16: reading never writes
def readings(circuit, registry, name):
    circuit.status()
    circuit.is_open()
    circuit.state
    registry.status_all()
    repr(circuit)
    breaker(name).status()
    breaker(name).is_open()
    breaker(name).state


def test_reading_never_moves_a_state_or_takes_a_slot(registry, clock, trips_at, events):
    """I16: status, is_open and state are pure in every state."""
    circuit = registry.breaker("api", trips_at(1, cooldown=30, probe_lease=10))
    for _ in range(3):
        readings(circuit, registry, "api")
    fail(circuit)
    seen = len(events)
    readings(circuit, registry, "api")
    clock.advance(30)
    for _ in range(3):
        readings(circuit, registry, "api")
    assert OPEN is circuit.state
    assert 0 == circuit.status().probes_started
    probe = circuit.try_acquire()
    seen_after_probe = len(events)
    for _ in range(3):
        readings(circuit, registry, "api")
    clock.advance(10)
    readings(circuit, registry, "api")
    assert HALF_OPEN is circuit.state
    assert 0 == circuit.status().probes_released
    assert seen_after_probe == len(events)
    assert seen < seen_after_probe
    circuit.on_success(probe)
    assert CLOSED is circuit.state


def test_is_open_in_every_state(registry, clock, trips_at):
    """Section 4, routers: True exactly when an acquire at this moment would be refused."""
    circuit = registry.breaker("api", trips_at(1, cooldown=30, probe_lease=10))
    answers = [circuit.is_open()]
    fail(circuit)
    answers.append(circuit.is_open())
    clock.advance(30)
    answers.append(circuit.is_open())
    circuit.try_acquire()
    answers.append(circuit.is_open())
    clock.advance(10)
    answers.append(circuit.is_open())

    assert [False, True, False, True, False] == answers


def test_is_open_agrees_with_acquire(registry, clock):
    """Section 4, routers: over random histories is_open tells what try_acquire does."""
    rng = random.Random(7)
    for round_number in range(60):
        circuit = registry.breaker(
            f"r{round_number}",
            BreakerConfig(
                Consecutive(rng.randint(1, 3)),
                cooldown=5,
                half_open_probes=rng.randint(1, 2),
                probe_lease=4,
                half_open_successes=rng.randint(1, 2),
            ),
        )
        live = []
        for _ in range(80):
            act = rng.randrange(9)
            if act < 4:
                said = circuit.is_open()
                try:
                    live.append(circuit.try_acquire())
                    assert not said
                except CircuitOpenError as refusal:
                    assert said
                    assert refusal.retry_after is None or refusal.retry_after > 0  # noqa: PT017
            elif act < 6 and live:
                permit = live.pop(rng.randrange(len(live)))
                rng.choice([circuit.on_success, circuit.release, lambda p: circuit.on_failure(p, DOWN)])(permit)
            elif act == 6:
                clock.advance(rng.choice([0, 1, 3, 5]))
            elif act == 7 and rng.random() < 0.2:
                rng.choice(
                    [circuit.reset, lambda: circuit.force_open("x", seconds=3), circuit.disable, circuit.enable]
                )()
            status = circuit.status()
            out = status.probes_started - status.probes_succeeded - status.probes_failed - status.probes_released
            assert 0 <= out <= circuit.config.half_open_probes


# ------------------------------------------------------------------------------------------ status
def test_status_fields_while_open(registry, clock, trips_at):
    """Design 1: times are ns since the epoch; the figures stay as at the trip."""
    circuit = registry.breaker("api", trips_at(2, cooldown=30))
    fail(circuit)
    clock.advance(5)
    fail(circuit)
    clock.advance(10)
    status = circuit.status()

    assert "api" == status.name
    assert OPEN is status.state
    assert 2 == status.failure_count
    assert 105_000_000_000 == status.opened_at
    assert 105_000_000_000 == status.last_state_change
    assert 135_000_000_000 == status.next_half_open_at
    assert 20.0 == status.retry_after
    assert BreakerMode.NORMAL is status.mode


def test_status_fields_while_closed(registry, clock, trips_at):
    """Design 1: opened_at and next_half_open_at are None while closed."""
    circuit = registry.breaker("api", trips_at(2))
    status = circuit.status()

    assert (None, None, None, 0) == (
        status.opened_at,
        status.next_half_open_at,
        status.retry_after,
        status.failure_count,
    )
    assert 100_000_000_000 == status.last_state_change


def test_status_fields_while_half_open(registry, clock, trips_at):
    """Design 1: next_half_open_at is None unless OPEN; figures stay as at the trip."""
    circuit = registry.breaker("api", trips_at(2, probe_lease=10))
    fail(circuit, 2)
    clock.advance(30)
    circuit.try_acquire()
    clock.advance(4)
    status = circuit.status()

    assert HALF_OPEN is status.state
    assert status.next_half_open_at is None
    assert 2 == status.failure_count
    assert 6.0 == status.retry_after
    assert 100_000_000_000 == status.opened_at
    assert 130_000_000_000 == status.last_state_change


def test_closing_zeroes_the_figures(registry, clock, trips_at):
    """Design 1: closing and reset zero failure_count; last_failure survives a recovery."""
    circuit = registry.breaker("api", trips_at(2))
    fail(circuit, 2)
    clock.advance(30)
    succeed(circuit)
    status = circuit.status()

    assert 0 == status.failure_count
    assert status.opened_at is None
    assert FaultKind.TRANSIENT is status.last_failure.kind
    assert 100_000_000_000 == status.last_failure.time
    circuit.force_open("x")
    circuit.reset()
    assert circuit.status().last_failure is None


def test_last_failure_names_the_type(env, remote, trips_at):
    """Design 1: last_failure is (type name, kind, time)."""
    fn = breaker("api", trips_at(9))(env.function(remote(ConnectionResetError)))
    env.fails(fn)
    last = env.registry.get("api").status().last_failure

    assert "ConnectionResetError" == last.type_name.rsplit(".")[-1]
    assert FaultKind.TRANSIENT is last.kind


def test_window_figures_stay_as_at_the_trip(registry, clock):
    """Design 1: while OPEN and HALF_OPEN they stay as at the trip."""
    circuit = registry.breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4), cooldown=100))
    succeed(circuit, 2)
    fail(circuit, 2)
    clock.advance(99)
    status = circuit.status()
    assert (2, 4, 0.5) == (status.failure_count, status.window_calls, status.failure_rate)
    clock.advance(1)
    circuit.try_acquire()
    status = circuit.status()
    assert (2, 4, 0.5) == (status.failure_count, status.window_calls, status.failure_rate)


def test_totals(env, remote, trips_at, http_error):
    """BreakerStatus: totals over outcomes."""
    fn = breaker("api", trips_at(3))(env.function(remote("ok", ConnectionError, http_error(404), ValueError, "ok")))
    for _ in range(5):
        env.fails(fn)
    status = env.registry.get("api").status()

    assert (2, 1, 1) == (status.successes_total, status.failures_total, status.answered_total)


def test_rejected_total(env, remote, trips_at):
    """BreakerStatus: rejected_total counts refusals, once each."""
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError)))
    for _ in range(4):
        env.fails(fn)

    assert 3 == env.registry.get("api").status().rejected_total


def test_reading_is_no_rejection(registry, clock, trips_at):
    """I16: is_open counts nothing."""
    circuit = registry.breaker("api", trips_at(1))
    fail(circuit)
    circuit.is_open()

    assert 0 == circuit.status().rejected_total


# ------------------------------------------------------------------------------------------ events of a cycle
def test_events_of_a_whole_cycle(registry, clock, trips_at, events):
    """Section 12: every decision is an event, in order, numbered."""
    circuit = registry.breaker("api", trips_at(1))
    fail(circuit)
    clock.advance(30)
    circuit.on_failure(circuit.try_acquire(), DOWN)
    clock.advance(30)
    circuit.on_success(circuit.try_acquire())

    assert [
        (StateChanged, CLOSED, OPEN),
        (StateChanged, OPEN, HALF_OPEN),
        ProbeStarted,
        ProbeFailed,
        (StateChanged, HALF_OPEN, OPEN),
        (StateChanged, OPEN, HALF_OPEN),
        ProbeStarted,
        ProbeSucceeded,
        (StateChanged, HALF_OPEN, CLOSED),
    ] == [
        (type(event), event.before, event.after) if isinstance(event, StateChanged) else type(event) for event in events
    ]
    assert sorted(event.sequence for event in events) == [event.sequence for event in events]
    assert len(events) == len({event.sequence for event in events})


def test_try_acquire_bypass(registry, clock, trips_at):
    """Design 1: BYPASS returns a permit with .bypassed, false in a truth test; its reports judge nothing."""
    circuit = registry.breaker("api", trips_at(1))
    circuit.force_open("x")
    permit = circuit.try_acquire(OnOpen.BYPASS)
    assert not permit
    assert permit.bypassed
    circuit.enable()
    circuit.on_failure(permit, DOWN)
    assert CLOSED is circuit.state


def test_permit_is_true(registry, clock, trips_at):
    """Design 1: a real permit is true."""
    permit = registry.breaker("api", trips_at(1)).try_acquire()
    assert permit
    assert not permit.bypassed


def test_call_and_acall(registry, clock, trips_at, remote):
    """Design 1: breaker.call and acall protect a single call."""
    import asyncio

    circuit = registry.breaker("api", trips_at(2))
    with pytest.raises(ConnectionError):
        circuit.call(remote(ConnectionError), 1)

    async def afail():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(circuit.acall(afail))
    assert OPEN is circuit.state
    with pytest.raises(CircuitOpenError):
        circuit.call(len, "abc")


def test_failure_with_an_exception_is_classified(registry, clock, trips_at):
    """Design 1: on_failure takes an exception, a Fault or a kind."""
    circuit = registry.breaker("api", trips_at(1))
    circuit.on_failure(circuit.try_acquire(), ValueError())
    assert CLOSED is circuit.state
    circuit.on_failure(circuit.try_acquire(), ConnectionError())
    assert OPEN is circuit.state


def test_i12_no_exception_is_kept(registry, clock, trips_at):
    """I12: no exception, frame or argument is kept."""
    import gc
    import weakref

    class Lost(ConnectionError):
        pass

    circuit = registry.breaker("api", trips_at(1))
    error = Lost()
    gone = weakref.ref(error)
    circuit.on_failure(circuit.try_acquire(), error)
    del error
    gc.collect()

    assert gone() is None


def test_bool_status_is_no_status(world, remote, trips_at, http_error):
    """Section 2: a status counts only if it is an int (no bool) in 100-599."""
    for status in (True, "503", 1000, 99, 503.0, None):
        assert classify(http_error(status)).status is None
