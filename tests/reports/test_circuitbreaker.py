"""Public reports of fabfuel/circuitbreaker: what went wrong there does not go wrong here."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    ConfigurationError,
    Consecutive,
    FaultKind,
    OnOpen,
    Registry,
    breaker,
    bulkhead,
)
from resilience.events import ConfigConflict, StateChanged
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
DAY = 86_400


def test_coroutine_function_is_judged_by_its_end_not_by_its_call(registry, remote):
    """circuitbreaker#4: a decorator made for plain functions counts a coroutine as a success as soon as it is made."""
    down = remote(ConnectionError, ConnectionError)

    @breaker("api", BreakerConfig(Consecutive(2)), on_open=OnOpen.BYPASS, fallback="stale")
    async def call():
        await asyncio.sleep(0)
        return down()

    async def main():
        unawaited = call()
        assert 0 == down.calls
        with pytest.raises(ConnectionError):
            await unawaited
        assert 1 == registry.get("api").status().failure_count
        with pytest.raises(ConnectionError):
            await call()
        assert OPEN is registry.get("api").state
        return await call()

    assert "stale" == asyncio.run(main())
    assert 2 == down.calls


class WallClock(ManualClock):
    """Its wall clock can be set; the other goes on."""

    wall = 0

    def time_ns(self):
        return super().time_ns() + self.wall * 10**9


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_setting_the_wall_clock_changes_no_cooldown(registry, world, remote, jump):
    """circuitbreaker#31: the open time was read off the wall clock: setting that kept a circuit open, or ended it."""
    with use_clock(WallClock(100.0), registry) as clock:
        call = breaker("api", BreakerConfig(Consecutive(1), cooldown=30))(world.function(remote(ConnectionError)))
        world.fails(call)
        clock.wall = jump

        clock.advance(29)
        assert 1.0 == world.fails(call).retry_after
        clock.advance(1)
        assert "ok" == world.call(call)


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_setting_the_wall_clock_changes_no_cooldown_on_the_system_clock(registry, world, remote, monkeypatch, jump):
    """circuitbreaker#31: the same where the time is the system's."""
    call = breaker("api", BreakerConfig(Consecutive(1), cooldown=30))(world.function(remote(ConnectionError)))
    world.fails(call)
    shifted = time.time() + jump
    monkeypatch.setattr(time, "time", lambda: shifted)
    monkeypatch.setattr(time, "time_ns", lambda: int(shifted * 1e9))

    refused = world.fails(call)
    assert isinstance(refused, CircuitOpenError)
    assert 0 < refused.retry_after <= 30


@pytest.mark.parametrize("probes", [1, 3])
def test_no_more_tasks_than_asked_for_test_a_recovering_remote(registry, clock, spin, probes):
    """circuitbreaker#49: after the cooldown every waiting request went through, where one was to try."""
    reached = []
    circuit = registry.breaker(
        "api", BreakerConfig(Consecutive(1), cooldown=30, half_open_probes=probes, half_open_successes=probes)
    )
    circuit.on_failure(circuit.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)

    async def main():
        back = asyncio.Event()

        @breaker("api")
        async def call():
            reached.append(1)
            await back.wait()

        tasks = [asyncio.ensure_future(call()) for _ in range(10)]
        await spin()
        assert probes == len(reached)
        assert 10 - probes == sum(task.done() for task in tasks)
        back.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert probes == results.count(None)
    assert 10 - probes == sum(isinstance(result, CircuitOpenError) for result in results)
    assert CLOSED is circuit.state


class Busy(Exception):
    """A refusal that says when to come back."""

    fault_kind = FaultKind.TRANSIENT

    def __init__(self, seconds):
        super().__init__("busy")
        self.headers = {"Retry-After": str(seconds)}


@pytest.mark.parametrize(("asked", "rest"), [(90, 90.0), (5000, 300.0)])
def test_the_cooldown_grows_only_as_the_remote_asks(registry, clock, world, remote, asked, rest):
    """circuitbreaker#49: it asks for growing pauses: here they grow only where the remote says so, up to a maximum."""
    call = breaker("api", BreakerConfig(Consecutive(1), cooldown=30, max_cooldown=300))(
        world.function(remote(ConnectionError, ConnectionError, Busy(asked)))
    )
    rests = []
    for _ in range(3):
        world.fails(call)
        rests.append(world.fails(call).retry_after)
        clock.advance(rests[-1])

    assert [30.0, 30.0, rest] == rests
    assert "ok" == world.call(call)


def test_one_name_with_two_configs_keeps_the_first_and_says_so(registry, caplog):
    """circuitbreaker#56: the second breaker of a name took the place of the first in the monitor, without a word."""
    conflicts = []
    registry.subscribe(conflicts.append, ConfigConflict)
    first = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=5))
    with caplog.at_level(logging.WARNING):
        second = breaker("api", BreakerConfig(Consecutive(9), cooldown=60)).breaker

    assert first is second is registry.get("api")
    assert BreakerConfig(Consecutive(1), cooldown=5) == second.config
    assert ["api"] == list(registry.status_all())
    assert 1 == len(conflicts)
    assert 1 == sum("api" in record.getMessage() for record in caplog.records)


def test_strict_registry_refuses_a_second_config(registry):
    """circuitbreaker#56: and who wants it strict gets an error."""
    strict = Registry(strict=True)
    strict.breaker("api", BreakerConfig(Consecutive(1)))
    with pytest.raises(ConfigurationError):
        strict.breaker("api", BreakerConfig(Consecutive(2)))


def test_functions_of_one_name_do_not_share_what_was_given_no_name(registry):
    """circuitbreaker#56: two functions of the same name, in different places, got into each other's way."""

    def make(body):
        @bulkhead(max_in_flight=1)
        def func():
            return body()

        return func

    other = make(lambda: "in")
    assert "in" == make(other)()

    itself = make(lambda: itself())
    with pytest.raises(BulkheadFullError):
        itself()


def test_failures_of_many_threads_open_at_the_exact_count_and_once(registry, together, remote):
    """circuitbreaker#61: there was no lock: failures at the same time could be lost, or open the circuit twice."""
    openings = []
    registry.subscribe(openings.append, StateChanged)
    down = remote(then=ConnectionError)
    arrive = threading.Barrier(8)
    call = breaker("api", BreakerConfig(Consecutive(8 * 25 + 1)))(lambda: down())

    def fail_often(index):
        for _ in range(25):
            arrive.wait(5)
            with pytest.raises(ConnectionError):
                call()

    together(8, fail_often)
    assert (CLOSED, 200) == (registry.get("api").state, registry.get("api").status().failure_count)

    results = together(8, lambda index: call())
    assert OPEN is registry.get("api").state
    assert {ConnectionError, CircuitOpenError} >= {type(result) for result in results}
    assert [OPEN] == [event.after for event in openings]
