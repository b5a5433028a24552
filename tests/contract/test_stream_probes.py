"""Contract sections 4 and 8: a stream as the probe of a half-open breaker (I1, I3, I4, I6, I15)."""

from __future__ import annotations

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    breaker,
    bulkhead,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2, cooldown=30))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


def numbers(stop=3):
    yield from range(stop)


def breaking(error, after=1):
    """A stream that breaks off with an error after some items."""

    def stream():
        yield from range(after)
        raise error

    return stream


def protected(env, body, **options):
    return bulkhead("pool")(breaker("api", **options)(env.stream(body)))


def open_circuit(env, api):
    """Opened by failures, not by hand, so that it cools."""
    while api.state is not OPEN:
        with pytest.raises(ConnectionError):
            env.open(breaker("api")(env.stream(breaking(ConnectionError("down"), 0)))).rest()


def half_open(env, api, seconds=30):
    open_circuit(env, api)
    env.advance(seconds)


def test_the_probe_is_taken_by_the_first_item(env, pool, api):
    """I1: and held until the end, while others are refused."""
    half_open(env, api)
    fn = protected(env, numbers)
    probe = env.open(breaker("api")(env.stream(numbers)))
    assert OPEN is api.state
    probe.next()

    assert HALF_OPEN is api.state
    with pytest.raises(CircuitOpenError):
        env.open(fn).next()
    assert [1, 2] == probe.rest()
    assert CLOSED is api.state
    assert [0, 1, 2] == env.open(fn).rest()


def test_a_probe_that_breaks_opens_again(env, pool, api):
    """Section 4: a full cooldown anew, from the failure."""
    half_open(env, api)
    probe = env.open(protected(env, breaking(ConnectionError("down"))))
    probe.next()
    env.advance(5)
    with pytest.raises(ConnectionError):
        probe.next()

    assert OPEN is api.state
    assert 30 == api.status().retry_after
    assert 1 == api.status().probes_failed


@pytest.mark.parametrize("how", ["close", "drop"])
def test_a_probe_that_is_given_up_is_released(env, pool, api, how):
    """I15: neither failed nor succeeded; the next may try at once."""
    half_open(env, api)
    probe = env.open(protected(env, numbers))
    probe.next()
    getattr(probe, how)()

    status = api.status()
    assert (1, 1, 0, 0) == (
        status.probes_started,
        status.probes_released,
        status.probes_failed,
        status.probes_succeeded,
    )
    assert HALF_OPEN is api.state
    assert [0, 1, 2] == env.open(protected(env, numbers)).rest()
    assert CLOSED is api.state


def test_the_probe_of_a_bug_is_released(env, pool, api):
    """I4: a neutral error gives it back in the same step."""
    half_open(env, api)
    with pytest.raises(TypeError):
        env.open(protected(env, breaking(TypeError("bug")))).rest()

    assert HALF_OPEN is api.state
    assert 1 == api.status().probes_released


def test_a_lost_lease(env, pool, registry):
    """Section 4: another stream may probe, and the lost one's result is still accepted in its episode."""
    api = registry.breaker("leased", BreakerConfig(Consecutive(1), cooldown=5, probe_lease=10, half_open_successes=2))
    fn = breaker("leased")(env.stream(numbers))
    with pytest.raises(ConnectionError):
        env.open(breaker("leased")(env.stream(breaking(ConnectionError("down"), 0)))).next()
    env.advance(5)
    lost, other = env.open(fn), env.open(fn)
    lost.next()
    env.advance(10)
    other.next()
    status = api.status()
    assert (2, 1) == (status.probes_started, status.probes_released)
    lost.rest()
    assert HALF_OPEN is api.state
    other.rest()

    status = api.status()
    assert CLOSED is api.state
    assert (2, 1, 1) == (status.probes_started, status.probes_released, status.probes_succeeded)
    assert 1 == status.late_results


def test_a_probe_whose_lease_is_lost_after_the_closing(env, registry):
    """I6: after its episode its failure changes nothing."""
    api = registry.breaker("leased", BreakerConfig(Consecutive(1), cooldown=5, probe_lease=10))
    with pytest.raises(ConnectionError):
        env.open(breaker("leased")(env.stream(breaking(ConnectionError("down"), 0)))).next()
    env.advance(5)
    lost = env.open(breaker("leased")(env.stream(breaking(ConnectionError("late"), 1))))
    lost.next()
    env.advance(10)
    env.open(breaker("leased")(env.stream(numbers))).rest()
    with pytest.raises(ConnectionError):
        lost.next()

    assert CLOSED is api.state
    assert 1 == api.status().late_results


def test_a_reset_in_the_middle_of_a_probe(env, pool, api):
    """I15: released by the reset; its end is late."""
    half_open(env, api)
    probe = env.open(protected(env, numbers))
    probe.next()
    api.reset()
    probe.rest()

    status = api.status()
    assert (1, 1) == (status.probes_started, status.probes_released)
    assert CLOSED is api.state
