"""Issue 2, Must hold: a frozen clock (freezegun) drives cooldown, windows and records over the system clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    breaker,
    remaining,
    retry,
    timeout,
)
from resilience._core.events import StateChanged

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
START_NS = int(START.timestamp()) * 1_000_000_000


@pytest.fixture
def frozen():
    with freeze_time(START, real_asyncio=True) as frozen:
        yield frozen


def fail(shared, times=1):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)


def test_cooldown(registry, frozen, remote):
    """The cooldown passes with the frozen clock alone."""
    fn = breaker("api", BreakerConfig(Consecutive(1), cooldown=30))(remote(ConnectionError, "ok"))
    with pytest.raises(ConnectionError):
        fn()
    frozen.tick(29)
    with pytest.raises(CircuitOpenError) as caught:
        fn()
    assert 1.0 == pytest.approx(caught.value.retry_after, abs=1e-6)
    frozen.tick(1.001)
    assert "ok" == fn()
    assert CLOSED is registry.get("api").state


def test_cooldown_async(registry, frozen):
    """The same for async functions."""
    up = False

    @breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    async def fn():
        if not up:
            raise ConnectionError
        return "ok"

    with asyncio.Runner() as runner:
        with pytest.raises(ConnectionError):
            runner.run(fn())
        frozen.tick(29)
        with pytest.raises(CircuitOpenError):
            runner.run(fn())
        up = True
        frozen.tick(1.001)
        assert "ok" == runner.run(fn())


def test_time_stands_still(registry, frozen):
    """Without a tick nothing cools, however long it really takes."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=0.001))
    fail(shared)
    end = time.perf_counter
    for _ in range(1000):
        end()
    assert shared.is_open()


def test_decorated_before_the_clock_was_frozen(registry, remote):
    """A wrapper compiled before reads the frozen clock too."""
    fn = breaker("api", BreakerConfig(Consecutive(1), cooldown=30))(remote(ConnectionError, "ok"))
    with freeze_time(START) as frozen:
        with pytest.raises(ConnectionError):
            fn()
        with pytest.raises(CircuitOpenError) as caught:
            fn()
        assert 30.0 == caught.value.retry_after
        frozen.tick(30.001)
        assert "ok" == fn()


def test_window(registry, frozen):
    """A rolling window rolls with it."""
    shared = registry.breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))
    fail(shared, 3)
    assert 3 == shared.status().window_calls
    frozen.tick(33)
    assert 0 == shared.status().window_calls
    fail(shared, 3)
    assert CLOSED is shared.state
    fail(shared)
    assert OPEN is shared.state


def test_window_through_the_decorator(registry, frozen, remote):
    """The straight path counts in the frozen bucket."""
    fn = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))(remote())
    for _ in range(3):
        fn()
    assert 3 == registry.get("api").status().window_calls
    frozen.tick(33)
    assert 0 == registry.get("api").status().window_calls
    fn()
    assert 1 == registry.get("api").status().window_calls


def test_timed_streak(registry, frozen):
    """4 failures at t=0 and 1 at t=70 count as 1."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(5, within=60)))
    fail(shared, 4)
    frozen.tick(70)
    fail(shared)
    assert 1 == shared.status().failure_count


def test_records(registry, frozen, events):
    """Records carry the frozen wall clock in nanoseconds."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    assert START_NS == shared.status().last_state_change
    frozen.tick(5)
    fail(shared)
    status = shared.status()

    assert START_NS + 5 * 10**9 == status.opened_at
    assert START_NS + 5 * 10**9 == status.last_failure.time
    assert START_NS + 35 * 10**9 == status.next_half_open_at
    assert START_NS + 5 * 10**9 == next(event.time_ns for event in events if isinstance(event, StateChanged))


def test_lease(registry, frozen):
    """A lease runs out by it."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30, probe_lease=10))
    fail(shared)
    frozen.tick(30.001)
    shared.try_acquire()
    frozen.tick(9)
    assert shared.is_open()
    frozen.tick(1.001)
    assert not shared.is_open()


def test_forced_opening(registry, frozen):
    """force_open(seconds=) as well."""
    shared = registry.breaker("api", BreakerConfig())
    shared.force_open("drill", seconds=60)
    frozen.tick(20)
    assert 40.0 == pytest.approx(shared.status().retry_after)
    frozen.tick(40.001)
    assert not shared.is_open()


def test_remaining_and_pass_as(registry, frozen):
    """Deadlines stand on the frozen clock."""

    @timeout(10, pass_as="limit")
    def fn(limit=None):
        frozen.tick(4)
        return limit, remaining()

    limit, left = fn()
    assert 10.0 == pytest.approx(limit)
    assert 6.0 == pytest.approx(left)


def test_budget_ends_a_retry(registry, frozen):
    """A wait that does not fit what the frozen clock leaves ends the retry."""
    calls = []

    @timeout(10, pass_as="limit")
    @retry(5, wait=3, idempotent=True)
    def fn(limit=None):
        calls.append(limit)
        frozen.tick(8)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        fn()
    assert 1 == len(calls)


def test_async_deadline_on_a_frozen_clock(registry, frozen):
    """Section 5: deadlines are in monotonic(), never in loop.time(): one that is past fails before the function starts."""
    started = []

    @timeout(60)
    async def inner():
        started.append(1)

    @timeout(5)
    async def outer():
        frozen.tick(6)
        await inner()

    with pytest.raises(TimeoutError):
        asyncio.run(outer())
    assert [] == started


def test_clock_moved_back(registry, frozen):
    """I11: a wall clock set back (freezegun moves monotonic along) never extends OPEN beyond one cooldown."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    fail(shared)
    frozen.move_to(datetime(2025, 1, 1, tzinfo=UTC))
    assert shared.status().retry_after <= 30
    shared.is_open()
    try:
        shared.try_acquire()
    except CircuitOpenError as refusal:
        assert refusal.retry_after <= 30  # noqa: PT017
    frozen.tick(31)
    shared.try_acquire()


def test_clock_moved_far_ahead(registry, frozen):
    """I11: a jump ahead cools at once and breaks nothing."""
    shared = registry.breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2), cooldown=30))
    fail(shared, 2)
    frozen.move_to(datetime(2199, 1, 1, tzinfo=UTC))
    shared.on_success(shared.try_acquire())
    assert CLOSED is shared.state
    fail(shared)
    assert 1 == shared.status().window_calls


def test_window_of_a_clock_moved_back(registry, frozen):
    """I11: a window survives a jump back: it never counts what lies in its future for ever."""
    shared = registry.breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4)))
    fail(shared, 3)
    frozen.move_to(datetime(2025, 1, 1, tzinfo=UTC))
    shared.status()
    shared.on_success(shared.try_acquire())
    frozen.tick(60)
    for _ in range(4):
        shared.on_success(shared.try_acquire())
    assert CLOSED is shared.state
    fail(shared, 4)
    assert OPEN is shared.state


def test_timed_streak_of_a_clock_moved_back(registry, frozen):
    """I11: and a timed streak."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(3, within=60)))
    fail(shared, 2)
    frozen.move_to(datetime(2025, 1, 1, tzinfo=UTC))
    shared.on_success(shared.try_acquire())
    fail(shared, 3)
    assert OPEN is shared.state


def test_thaw_with_a_circuit_opened_in_the_frozen_future(registry, remote):
    """freezegun#383: state made under a frozen clock of another time harms nobody afterwards for more than a cooldown."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    with freeze_time(datetime(2199, 1, 1, tzinfo=UTC)):
        fail(shared)
    retry_after = shared.status().retry_after
    assert retry_after is not None
    assert 0 <= retry_after <= 30
    registry.clear_state()
    assert "ok" == breaker("api")(remote())()
