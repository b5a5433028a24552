"""Streams consumed in many threads and event loops at once: exact counts, slots never exceeded, one probe."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
)
from resilience._core.events import StateChanged
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
MANY = BreakerConfig(Consecutive(10**6))
THREADS = 8


class Inside:
    """How many streams are between their first item and their end, and the most that ever were."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error):
        with self._lock:
            self.now -= 1


def whole(status):
    """I15."""
    return status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released


def guarded(policies, inside):
    @policies
    def stream(end, items=3):
        with inside:
            yield from range(items)
            if end == "broken":
                raise ConnectionError

    return stream


def consume(stream, end):
    """Take a stream as its end is to be: `whole`, `broken`, `closed` or `dropped`."""
    if end in ("whole", "broken"):
        for _ in stream:
            pass
    else:
        next(stream)
        if end == "closed":
            stream.close()


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("retried", [False, True], ids=["plain", "retry"])
def test_threads_count_exactly(registry, together, restless, clocked, retried):
    """I5, I8: every end is counted once, early ends not at all, and there are never more streams than slots."""
    pool = registry.bulkhead("pool", BulkheadConfig(3, 1000))
    api = registry.breaker("api", MANY)
    inside = Inside()
    policies = [bulkhead("pool", wait=20), breaker("api")]
    if retried:
        policies.append(retry(2, wait=0, idempotent=True))
    stream = guarded(compose(*policies), inside)
    ends = ["whole", "broken", "closed", "dropped"]

    def work(index):
        rng = random.Random(index)
        done = dict.fromkeys(ends, 0)
        for _ in range(40):
            end = rng.choice(ends)
            done[end] += 1
            try:
                consume(stream(end), end)
            except ConnectionError:
                pass
        return done

    if clocked:
        with use_clock(Ticking(), registry):
            results = together(THREADS, work)
    else:
        results = together(THREADS, work)

    assert 1 <= inside.most <= 3
    status = api.status()
    assert sum(done["whole"] for done in results) == status.successes_total
    assert sum(done["broken"] for done in results) == status.failures_total
    assert (0, 0) == (pool.in_flight, pool.waiting)


class Ticking(ManualClock):
    """A clock of the test's own that stands: every stream takes the plan, and nobody waits in vain for a slot."""


def test_threads_and_loops_share_the_slots(registry, together, restless):
    """Section 7: one cap for the whole process, whoever consumes."""
    pool = registry.bulkhead("pool", BulkheadConfig(3, 1000))
    api = registry.breaker("api", MANY)
    inside = Inside()
    policies = compose(bulkhead("pool", wait=20), breaker("api"))
    plain = guarded(policies, inside)

    @policies
    async def stream(end, items=3):
        with inside:
            for number in range(items):
                await asyncio.sleep(0)
                yield number
            if end == "broken":
                raise ConnectionError

    async def consume_async(end):
        running = stream(end)
        try:
            if end in ("whole", "broken"):
                async for _ in running:
                    pass
            else:
                await anext(running)
                await running.aclose()
        except ConnectionError:
            pass

    ends = ("whole", "broken", "closed")

    def work(index):
        if index % 2:

            async def main():
                for _ in range(5):
                    await asyncio.gather(*(consume_async(end) for end in ends * 2))

            asyncio.run(main())
        else:
            for end in ends * 10:
                try:
                    consume(plain(end), end)
                except ConnectionError:
                    pass

    assert [None] * THREADS == together(THREADS, work, 60)
    assert 1 <= inside.most <= 3
    status = api.status()
    assert (10 * THREADS, 10 * THREADS) == (status.successes_total, status.failures_total)
    assert (0, 0) == (pool.in_flight, pool.waiting)


@pytest.mark.parametrize("round_number", range(5))
def test_one_stream_probes(registry, together, restless, round_number):
    """I1: of many that ask for their first item at once, one is let in; the others are refused until it has ended."""
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=5))
        api.force_open("drill", seconds=5)
        clock.advance(5)
        refused = threading.Barrier(THREADS)

        @breaker("api")
        def stream():
            yield 1
            yield 2

        def work(index):
            running = stream()
            try:
                next(running)
            except CircuitOpenError:
                refused.wait(10)
                return "refused"
            # It goes on only when everybody else has been refused.
            refused.wait(10)
            return list(running)

        results = together(THREADS, work)

    assert 1 == results.count([2])
    assert THREADS - 1 == results.count("refused")
    assert CLOSED is api.state
    assert 1 == api.status().probes_started


@pytest.mark.parametrize("round_number", range(3))
def test_probes_given_up_all_the_time(registry, together, restless, round_number):
    """I1, I15: streams that probe and are closed, broken or heard to their end, by many: every probe has one end."""
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=1, half_open_successes=3))
        stream = guarded(breaker("api"), Inside())

        def work(index):
            rng = random.Random(index + 100 * round_number)
            for _ in range(60):
                end = rng.choice(["whole", "broken", "closed", "dropped"])
                try:
                    consume(stream(end), end)
                except ConnectionError:
                    clock.advance(1)
                except CircuitOpenError:
                    clock.advance(0.3)

        assert [None] * 4 == together(4, work)

    status = api.status()
    assert whole(status)
    assert 0 < status.probes_released


def test_the_failure_that_trips_trips_once(registry, together, restless):
    """I5: many streams that break at once: one transition."""
    moves = []
    registry.subscribe(moves.append, StateChanged)
    registry.breaker("api", BreakerConfig(Consecutive(THREADS), cooldown=300))
    begun = threading.Barrier(THREADS)

    @breaker("api")
    def stream():
        yield 1
        begun.wait(10)
        raise ConnectionError

    results = together(THREADS, lambda index: list(stream()))

    assert ["ConnectionError"] * THREADS == [type(error).__name__ for error in results]
    assert [OPEN] == [move.after for move in moves]


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
def test_handed_from_thread_to_thread(registry, probing):
    """Section 8: begun in one thread, gone on with in others, ended in a third: one slot, one verdict."""
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        pool = registry.bulkhead("pool", BulkheadConfig(1))
        api = registry.breaker("api", BreakerConfig(Consecutive(1)))
        if probing:
            api.force_open("drill", seconds=1)
            clock.advance(1)
        stream = compose(bulkhead("pool"), retry(2, wait=0, idempotent=True), breaker("api"))(
            lambda: (yield from "abc")
        )()
        items, held = [], []

        def step():
            items.append(next(stream, None))
            held.append(pool.in_flight)

        for _ in range(4):
            thread = threading.Thread(target=step)
            thread.start()
            thread.join(10)

    assert ["a", "b", "c", None] == items
    assert [1, 1, 1, 0] == held
    assert (CLOSED, 1) == (api.state, api.status().successes_total)


def test_many_threads_ask_one_stream(registry, together, restless):
    """As with a bare generator: some are told that it is executing already; each item comes once, and the end counts once."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    api = registry.breaker("api", MANY)
    stream = compose(bulkhead("pool"), breaker("api"))(lambda: (yield from range(200)))()

    def work(index):
        found = []
        while True:
            try:
                found.append(next(stream))
            except StopIteration:
                return found
            except ValueError:
                pass

    results = together(4, work)

    assert list(range(200)) == sorted(item for found in results for item in found)
    assert (1, 0) == (api.status().successes_total, pool.in_flight)


def test_an_opened_stream_is_asked_by_many(registry, together, restless):
    """The same for one that a function returns: nobody gets past its policies."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    api = registry.breaker("api", MANY)
    stream = compose(bulkhead("pool"), breaker("api", stream=True))(lambda: iter_of(200))()

    def work(index):
        found = []
        while True:
            try:
                found.append(next(stream))
            except StopIteration:
                return found
            except ValueError:
                pass

    results = together(4, work)

    assert list(range(200)) == sorted(item for found in results for item in found)
    assert (1, 0) == (api.status().successes_total, pool.in_flight)


def iter_of(count):
    yield from range(count)


def test_closed_by_one_while_another_asks(registry, restless):
    """I8: an opened stream that is closed in the middle of another thread's step: the slot comes back, once."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    fn = compose(bulkhead("pool"), breaker("api", MANY, stream=True))(lambda: iter_of(10**6))
    for _ in range(100):
        stream = fn()
        asked = threading.Event()

        def ask(stream=stream, asked=asked):
            try:
                for _ in stream:
                    asked.set()
            except ValueError:
                pass

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(10)
        # A bare generator says so, too, where it is in the middle of a step; then the thread goes on to its end.
        with contextlib.suppress(ValueError):
            stream.close()
        del stream, ask
        thread.join(20)
        assert not thread.is_alive()
    assert 0 == pool.in_flight


def test_streams_on_workers(registry, together):
    """Section 5: steps that hang are left behind by many at once: each orphan keeps its slot until it has ended."""
    pool = registry.bulkhead("pool", BulkheadConfig(8))
    api = registry.breaker("api", MANY)
    gate = threading.Event()

    @compose(timeout(30, idle=0.02), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=8)
    def stream(index):
        yield index
        if index % 2:
            gate.wait(20)
        yield index

    results = together(8, lambda index: list(stream(index)))

    assert 4 == sum(isinstance(result, TimeoutError) for result in results)
    assert (4, 4) == (api.status().successes_total, api.status().failures_total)
    assert 4 == pool.in_flight
    gate.set()
    ended = threading.Event()
    for _ in range(2000):
        if not pool.in_flight:
            break
        ended.wait(0.002)
    assert 0 == pool.in_flight


def test_tasks_cancelled_at_random(registry):
    """I8: a hundred consumers in one loop, cancelled at random moments: the books are whole."""
    pool = registry.bulkhead("pool", BulkheadConfig(5, 1000))
    api = registry.breaker("api", MANY)
    ends = {"whole": 0, "broken": 0}
    rng = random.Random(7)

    @compose(
        bulkhead("pool", wait=50),
        timeout(50, idle=20, first_item=20),
        retry(2, wait=0, idempotent=True),
        breaker("api"),
    )
    async def stream(number):
        for item in range(number % 4):
            await asyncio.sleep(0)
            yield item
        if number % 3 == 0:
            ends["broken"] += 1
            raise ConnectionError
        ends["whole"] += 1

    async def consumer(number):
        try:
            async for _ in stream(number):
                await asyncio.sleep(0)
        except ConnectionError:
            pass

    async def main():
        before = asyncio.all_tasks()
        tasks = [asyncio.create_task(consumer(rng.randrange(100))) for _ in range(100)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            for task in rng.sample(tasks, 2):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(4):
            await asyncio.sleep(0)
        assert before == asyncio.all_tasks()

    asyncio.run(main())

    assert (0, 0) == (pool.in_flight, pool.waiting)
    status = api.status()
    assert (ends["whole"], ends["broken"]) == (status.successes_total, status.failures_total)


def test_a_finaliser_drops_a_stream_inside_of_a_change(registry):
    """I9: a stream that the collector frees in the middle of its own breaker's change gives everything back."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=300))
    streams = []

    @compose(bulkhead("pool"), breaker("api"))
    def stream():
        yield 1
        yield 2

    def profile(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "_move" and streams:
            streams.clear()

    streams.append(stream())
    next(streams[0])
    sys.setprofile(profile)
    try:
        api.force_open("drill")
    finally:
        sys.setprofile(None)

    assert [] == streams
    assert 0 == pool.in_flight
    assert whole(api.status())


def test_refused_streams_leave_nothing(registry, together, restless):
    """I8: with one slot and no line, whoever is refused has taken nothing."""
    pool = registry.bulkhead("pool", BulkheadConfig(1, 0))
    api = registry.breaker("api", MANY)
    stream = guarded(compose(bulkhead("pool"), breaker("api")), Inside())

    def work(index):
        done = 0
        for _ in range(50):
            with contextlib.suppress(BulkheadFullError):
                done += len(list(stream("whole"))) == 3
        return done

    results = together(THREADS, work)

    assert sum(results) == api.status().successes_total
    assert sum(results) + pool.rejected.value == 50 * THREADS
    assert 0 == pool.in_flight
