"""Real threads, tasks and loops on one breaker: exact counts, one trip, one probe."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    breaker,
    bulkhead,
    retry,
)
from resilience._core.events import ProbeReleased, ProbeStarted, StateChanged
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


@pytest.fixture
def transitions(registry):
    seen = []
    registry.subscribe(seen.append, StateChanged)
    return seen


def conserved(status):
    """I15: what of the probes is still out."""
    return status.probes_started - status.probes_succeeded - status.probes_failed - status.probes_released


def test_eight_threads_overlap(registry, together):
    """Eight threads are in one breaker's call at once."""
    all_inside = threading.Barrier(8)

    @bulkhead(max_in_flight=8)
    @retry(2, wait=0, idempotent=True)
    @breaker("api", BreakerConfig())
    def call(index):
        all_inside.wait(10)
        return index

    assert list(range(8)) == together(8, call)


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("round_number", range(5))
def test_exactly_one_thread_probes(registry, together, restless, clocked, round_number):
    """I1: 50 threads after the cooldown: exactly one reaches the provider."""
    reached = []
    inside = threading.Event()

    @breaker("api", BreakerConfig(Consecutive(1), cooldown=0.001, probe_lease=30))
    def call(index):
        reached.append(index)
        inside.wait(5)
        return "ok"

    shared = registry.get("api")
    clock = ManualClock(10)
    if clocked:
        with use_clock(clock, registry):
            _fifty(shared, call, clock.advance, reached, inside, together)
    else:
        _fifty(shared, call, lambda seconds: time.sleep(0.002), reached, inside, together)
    assert CLOSED is shared.state
    assert (1, 1) == (shared.status().probes_started, shared.status().probes_succeeded)


def _fifty(shared, call, wait, reached, inside, together):
    shared.on_failure(shared.try_acquire(), DOWN)
    wait(1)
    refused = []
    done = threading.Event()

    def work(index):
        try:
            return call(index)
        except CircuitOpenError:
            refused.append(index)
            if len(refused) == 49:
                inside.set()
                done.set()
            return "refused"

    results = together(50, work)
    assert 1 == len(reached)
    assert 49 == results.count("refused")
    assert 1 == results.count("ok")


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
def test_exactly_one_task_probes(registry, clocked):
    """I1: 50 tasks after the cooldown: exactly one reaches the provider."""
    reached = []

    async def main():
        gate = asyncio.Event()

        @breaker("api", BreakerConfig(Consecutive(1), cooldown=0.001))
        async def call(index):
            reached.append(index)
            await gate.wait()
            return "ok"

        shared = registry.get("api")
        shared.on_failure(shared.try_acquire(), DOWN)
        if clocked:
            registry.clock.advance(1)
        else:
            await asyncio.sleep(0.002)
        tasks = [asyncio.create_task(call(index)) for index in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    if clocked:
        with use_clock(ManualClock(10), registry):
            results = asyncio.run(main())
    else:
        results = asyncio.run(main())
    assert 1 == len(reached)
    assert 49 == sum(isinstance(result, CircuitOpenError) for result in results)


def test_exactly_one_over_threads_and_loops(registry, together, restless):
    """I1, I19: threads and three loops together: exactly one reaches the provider."""
    reached, inside = [], threading.Event()
    registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=0.001))

    @breaker("api")
    def call():
        reached.append("thread")
        inside.wait(1)

    @breaker("api")
    async def acall():
        reached.append("task")
        while not inside.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    shared = registry.get("api")
    shared.on_failure(shared.try_acquire(), DOWN)
    time.sleep(0.002)
    refused = []

    def note(results):
        for result in results:
            if isinstance(result, CircuitOpenError):
                refused.append(1)  # noqa: PERF401
        if len(refused) == 6 + 3 * 5 - 1:
            inside.set()

    def work(index):
        if index < 6:
            try:
                call()
            except CircuitOpenError as exc:
                note([exc])
            return

        async def one():
            try:
                await acall()
            except CircuitOpenError as exc:
                note([exc])

        async def main():
            await asyncio.gather(*(one() for _ in range(5)))

        asyncio.run(main())

    together(9, work)
    assert 1 == len(reached)
    assert CLOSED is shared.state


@pytest.mark.parametrize(
    "trip",
    [Consecutive(64), Consecutive(64, within=1000), FailureRate(1.0, window=1000, bucket=100, min_calls=64)],
    ids=["streak", "timed", "rate"],
)
@pytest.mark.parametrize("way", ["decorator", "guard", "permit"])
def test_the_nth_failure_trips_exactly_once(registry, together, restless, transitions, trip, way):
    """I5: no failure is lost: the N-th trips, exactly once, with one transition event, under 8 threads."""
    shared = registry.breaker("api", BreakerConfig(trip, cooldown=100))

    @breaker("api")
    def call():
        raise ConnectionError

    def once():
        if way == "decorator":
            call()
        elif way == "guard":
            with shared.guard():
                raise ConnectionError
        else:
            shared.on_failure(shared.try_acquire(), DOWN)

    def work(index):
        for _ in range(7):
            try:
                once()
            except ConnectionError:
                pass

    together(8, work)  # 56 failures
    assert CLOSED is shared.state
    assert 56 == shared.status().failure_count
    assert [] == transitions

    def until_refused(index):
        count = 0
        try:
            while True:
                try:
                    once()
                except ConnectionError:
                    pass
                count += 1
        except CircuitOpenError:
            return count

    counts = together(8, until_refused)
    status = shared.status()
    assert OPEN is shared.state
    assert [(CLOSED, OPEN)] == [(event.before, event.after) for event in transitions]
    assert 64 == status.failure_count
    # Those that were in flight at the trip are late, all others are counted: none is lost.
    assert 8 <= sum(counts) <= 8 + 7
    assert 64 + status.late_results == 56 + sum(counts)


def test_success_counter_is_exact(registry, together, restless):
    """Performance: counters under 8 threads: exact."""
    for number, trip in enumerate((Consecutive(5), FailureRate(0.9, window=1000, bucket=100, min_calls=10**6))):
        name = f"b{number}"
        fn = breaker(name, BreakerConfig(trip))(lambda: None)

        def work(index):
            for _ in range(500):
                fn()

        assert [None] * 8 == together(8, work)
        assert 4000 == registry.get(name).status().successes_total
    assert 4000 == registry.get("b1").status().window_calls


def test_guard_counter_is_exact(registry, together, restless):
    """Performance: blocks count exactly too."""
    ref = breaker("api", BreakerConfig(), registry=registry)

    def work(index):
        for _ in range(400):
            with ref.guard():
                pass

    assert [None] * 8 == together(8, work)
    assert 3200 == ref.status().successes_total


@pytest.mark.parametrize(
    "trip",
    [Consecutive(10**6), Consecutive(10**5, within=1000), FailureRate(1.0, window=1000, bucket=100, min_calls=10**6)],
    ids=["streak", "timed", "rate"],
)
def test_mixed_counters_are_exact(registry, together, restless, trip):
    """I5: successes, failures, answered and neutral ones over 8 threads: each counted once."""
    registry.breaker("api", BreakerConfig(trip))

    class Missing(Exception):
        status_code = 404

    @breaker("api")
    def call(what):
        if what == 0:
            raise ConnectionError
        if what == 1:
            raise Missing
        if what == 2:
            raise KeyError
        return "ok"

    def work(index):
        rng = random.Random(index)
        counts = [0, 0, 0, 0]
        for _ in range(250):
            what = rng.randrange(4)
            counts[what] += 1
            try:
                call(what)
            except (ConnectionError, Missing, KeyError):
                pass
        return counts

    totals = [sum(column) for column in zip(*together(8, work), strict=True)]
    status = registry.get("api").status()
    assert (totals[0], totals[1], totals[3]) == (status.failures_total, status.answered_total, status.successes_total)
    if isinstance(trip, FailureRate):
        assert totals[0] + totals[3] == status.window_calls
        assert totals[0] == status.failure_count


def test_rejections_are_counted_exactly(registry, together, restless):
    """Performance: refusals too."""
    fn = breaker("api", BreakerConfig())(lambda: None)
    registry.get("api").force_open("drill")

    def work(index):
        for _ in range(200):
            try:
                fn()
            except CircuitOpenError:
                pass

    together(8, work)
    assert 1600 == registry.get("api").status().rejected_total


def test_storm_of_everything_keeps_the_books(registry, together, restless):
    """I1, I8, I15: probes granted = settled + live, at most half_open_probes at once, over any history."""
    starts, releases = [], []
    registry.subscribe(starts.append, ProbeStarted)
    registry.subscribe(releases.append, ProbeReleased)
    shared = registry.breaker(
        "api", BreakerConfig(Consecutive(2), cooldown=0.0005, half_open_probes=2, half_open_successes=2, probe_lease=10)
    )
    inside = [0]
    worst = []
    lock = threading.Lock()

    def work(index):
        rng = random.Random(index)
        for _ in range(150):
            act = rng.randrange(20)
            if act == 0:
                shared.reset()
            elif act == 1:
                shared.force_open("x", seconds=0.0003)
            elif act == 2:
                shared.disable() if rng.random() < 0.3 else shared.enable()
            elif act == 3:
                status = shared.status()
                worst.append(0 <= conserved(status) <= 2)
            else:
                try:
                    permit = shared.try_acquire()
                except CircuitOpenError:
                    time.sleep(0.0001)
                    continue
                with lock:
                    inside[0] += 1
                rng.choice([shared.on_success, shared.release, lambda p: shared.on_failure(p, DOWN)])(permit)
                with lock:
                    inside[0] -= 1

    results = together(8, work)
    assert [None] * 8 == results
    assert all(worst)
    shared.enable()
    shared.reset()
    status = shared.status()
    assert 0 == conserved(status)
    assert len(starts) == status.probes_started
    assert len(releases) == status.probes_released


def test_status_is_one_consistent_moment(registry, together, restless):
    """Section 9: status takes no lock, yet is one consistent moment."""
    shared = registry.breaker("api", BreakerConfig(Consecutive(3), cooldown=0.0002))
    stop = threading.Event()
    wrong = []

    def work(index):
        if index < 2:
            while not stop.is_set():
                status = registry.status_all()["api"]
                if status.state is CLOSED:
                    if (
                        status.opened_at is not None
                        or status.next_half_open_at is not None
                        or status.failure_count >= 3
                    ):
                        wrong.append(status)
                elif (
                    status.opened_at is None
                    or status.failure_count != 3
                    or (status.state is OPEN) != (status.next_half_open_at is not None)
                ):
                    wrong.append(status)
            return
        for _ in range(300):
            try:
                permit = shared.try_acquire()
            except CircuitOpenError:
                time.sleep(0.0001)
                continue
            if permit.probe:
                shared.on_success(permit)
            else:
                shared.on_failure(permit, DOWN)
        if index == 2:
            stop.set()

    try:
        together(5, work)
    finally:
        stop.set()
    assert [] == wrong[:3]


def test_reset_races_a_probe(registry, together, restless):
    """I15: a reset while probes settle: every probe has exactly one end."""
    ends = []
    registry.subscribe(ends.append)
    shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=0.0001))
    for _ in range(60):
        shared.reset()
        shared.on_failure(shared.try_acquire(), DOWN)
        while shared.is_open():
            pass
        probe = shared.try_acquire()
        together(
            3, lambda index: [shared.reset, lambda: shared.on_success(probe), lambda: shared.on_success(probe)][index]()
        )
        assert 0 == conserved(shared.status())
        assert CLOSED is shared.state
    names = [type(event).__name__ for event in ends]
    assert names.count("ProbeStarted") == names.count("ProbeSucceeded") + names.count("ProbeReleased")


def test_trip_races_a_late_success(registry, together, restless):
    """I6: successes that come during a trip never undo it."""
    for number in range(80):
        shared = registry.breaker(f"b{number}", BreakerConfig(Consecutive(2), cooldown=100))
        permits = [shared.try_acquire() for _ in range(4)]
        before = shared.status().failures_total

        def work(index, permits=permits, shared=shared):
            if index < 2:
                shared.on_failure(permits[index], DOWN)
            else:
                shared.on_success(permits[index])

        together(4, work)
        status = shared.status()
        assert 2 == status.failures_total - before
        if status.state is OPEN:
            assert 2 == status.failure_count
        else:
            assert status.failure_count in (0, 1)


def test_registration_races_first_calls(registry, together, restless):
    """Section 9: references that resolve in many threads at once share one breaker."""
    for number in range(20):
        functions = [breaker(f"b{number}")(lambda: (_ for _ in ()).throw(ConnectionError())) for _ in range(4)]

        def work(index, functions=functions):
            try:
                functions[index]()
            except ConnectionError:
                pass

        together(4, work)
        assert (
            4 == registry.get(f"b{number}").status().failures_total + registry.get(f"b{number}").status().late_results
        )


def test_async_and_sync_callers_share_one_count(registry, together, restless):
    """I19: threads and loops at once: exact."""
    registry.breaker("api", BreakerConfig(Consecutive(10**6)))

    @breaker("api")
    def call():
        raise ConnectionError

    @breaker("api")
    async def acall():
        await asyncio.sleep(0)
        raise ConnectionError

    def work(index):
        if index % 2:
            for _ in range(100):
                with pytest.raises(ConnectionError):
                    call()
            return

        async def main():
            await asyncio.gather(*(acall() for _ in range(100)), return_exceptions=True)

        asyncio.run(main())

    assert [None] * 6 == together(6, work)
    assert 600 == registry.get("api").status().failure_count


def test_use_clock_while_calls_run(registry, together, restless):
    """Design 1: installing a clock while wrappers run loses no count."""
    fn = breaker("api", BreakerConfig())(lambda: None)

    def work(index):
        if index == 0:
            for _ in range(40):
                with use_clock(ManualClock(5), registry):
                    pass
            return
        for _ in range(300):
            fn()

    assert [None] * 5 == together(5, work)
    assert 1200 == registry.get("api").status().successes_total
