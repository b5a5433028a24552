"""Threads on the same new keys, and on keys that come and go: one live breaker per key, exact figures, no more than so many."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import tracemalloc

import pytest
from forking import in_child, needs_fork

from resilience import (
    BreakerConfig,
    BreakerMode,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FaultKind,
    Permit,
    Registry,
    breaker,
    bulkhead,
    compose,
    use_registry,
)
from resilience.events import KeyOverflow, StateChanged

DOWN = FaultKind.TRANSIENT


@pytest.fixture
def registry():
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def eager():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_threads_that_ask_for_one_new_key(registry, eager, together):
    """All get the same breaker."""
    family = registry.family("llm", labels="provider")
    for number in range(200):
        found = together(4, lambda index, number=number: family[f"key{number}"])
        assert 1 == len(set(found))

    assert 200 == len(family)


@pytest.mark.slow
def test_every_failure_of_a_new_key_counts(registry, eager, together):
    """I5: of those that fail at once on a key that nobody has seen, none is lost, and one opens it, once."""
    opened = []
    registry.subscribe(opened.append, StateChanged)

    @breaker("llm", BreakerConfig(Consecutive(8), cooldown=3600, max_cooldown=3600), key="provider")
    def ask(provider):
        raise ConnectionError("down")

    def work(index):
        for number in range(50):
            for _ in range(2):
                with pytest.raises((ConnectionError, CircuitOpenError)):
                    ask(f"p{number}")

    together(4, work)
    statuses = registry.get_family("llm").status_all()

    assert {(CircuitState.OPEN, 8)} == {(status.state, status.failures_total) for status in statuses.values()}
    assert sorted(statuses) == sorted(event.key for event in opened)


@pytest.mark.slow
def test_successes_are_counted_exactly(registry, eager, together):
    """Also across the moment at which a breaker wakes up."""

    @breaker("llm", BreakerConfig(Consecutive(10**6)), key="provider")
    def ask(provider, fails):
        if fails:
            raise ConnectionError("down")

    def work(index):
        for number in range(2_000):
            try:
                ask(f"p{number % 20}", number % 100 == 99)
            except ConnectionError:
                pass

    together(4, work)
    statuses = registry.get_family("llm").status_all().values()

    assert (7_920, 80) == (
        sum(status.successes_total for status in statuses),
        sum(status.failures_total for status in statuses),
    )


@pytest.mark.slow
def test_threads_on_keys_that_come_and_go(registry, eager, together):
    """Never more than so many, no call fails, and an open circuit is never forgotten."""
    family = registry.family(
        "llm", labels="provider", config=BreakerConfig(Consecutive(2), cooldown=3600, max_cooldown=3600), max_keys=16
    )
    most = []

    @breaker("llm", key="provider")
    def ask(provider):
        most.append(len(family))
        if provider == "down":
            raise ConnectionError("down")
        return provider

    for _ in range(2):
        with pytest.raises(ConnectionError):
            ask("down")
    opened = family["down"]

    def work(index):
        for number in range(1_500):
            key = f"k{(number * 7 + index * 13) % 60}"
            assert key == ask(key)
            with pytest.raises(CircuitOpenError):
                ask("down")

    assert [None] * 4 == together(4, work, 60)
    assert max(most) <= 16
    assert (opened, 16) == (family["down"], len(family))


@pytest.mark.slow
def test_an_eviction_and_failures_on_the_same_key(registry, eager, together):
    """Whatever the order: the breaker that the family has for the key is never a retired one for long, and opens for two failures in a row."""
    family = registry.family(
        "llm", labels="provider", config=BreakerConfig(Consecutive(2), cooldown=3600, max_cooldown=3600), max_keys=2
    )

    for round_ in range(150):
        key = f"victim{round_}"
        victim = family[key]

        def work(index, key=key):
            if index == 0:
                for number in range(8):
                    _ = family[f"filler{number}"]
            else:
                permit = family[key].try_acquire()
                family[key].on_failure(permit, DOWN)

        assert [None] * 3 == together(3, work)
        now = family.get(key)
        if now is not None and now is not family.other:
            assert not now.retired
        if victim.retired:
            assert CircuitState.CLOSED is victim.state
            assert now is not victim
        for shared in family.everybody:
            shared.reset()
            shared.on_success(shared.try_acquire())

    assert len(family) <= 2


@pytest.mark.slow
def test_the_cap_of_a_key_is_never_exceeded(registry, eager, together):
    """I8: however often its bulkhead leaves and comes again, by the protocol that every call follows."""
    family = registry.bulkhead_family("room", BulkheadConfig(2), labels="provider", max_keys=2)
    lock, inside, most = threading.Lock(), [], []

    def visit(key):
        room = family[key]
        slot = room.take()
        if slot is None:
            return
        if not room.leaving and room is not family.other and key == "same":
            with lock:
                inside.append(1)
                most.append(len(inside))
            time.sleep(0)
            with lock:
                inside.pop()
        room.give(slot)

    def work(index):
        for number in range(2_000):
            visit("same" if number % 3 else f"other{(number + index) % 9}")

    assert [None] * 5 == together(5, work, 60)
    assert 2 == max(most)
    assert {0} == {room.in_flight for room in family.everybody}


@pytest.mark.slow
def test_no_slot_of_a_key_that_comes_and_goes_is_lost(registry, eager, together):
    """Through wrappers, with and without a line: in the end all are free, and nobody was kept waiting for nothing."""
    family = registry.bulkhead_family("room", BulkheadConfig(1, 50), labels="provider", max_keys=2)
    refused = []

    @bulkhead("room", key="provider")
    def ask(provider):
        return provider

    @bulkhead("room", wait=20, key=lambda provider: provider)
    def wait(provider):
        return provider

    def work(index):
        for number in range(500):
            for key in ("same", f"other{index}{number % 3}"):
                assert key == wait(key)
                try:
                    assert key == ask(key)
                except BulkheadFullError:
                    refused.append(key)

    assert [None] * 4 == together(4, work, 60)
    assert len(refused) < 4 * 1_000
    assert {(0, 0)} == {(room.in_flight, room.waiting) for room in family.everybody}


@pytest.mark.slow
def test_loops_and_threads_together(registry, together):
    """Two event loops and two threads on the same keys."""
    plain = compose(bulkhead("room", max_in_flight=9, key="provider"), breaker("llm", BreakerConfig(), key="provider"))

    @plain
    def ask(provider):
        return provider

    @plain
    async def ask_async(provider):
        await asyncio.sleep(0)
        return provider

    async def many():
        for number in range(200):
            assert ["a", "b"] == await asyncio.gather(ask_async("a"), ask_async("b"))
            assert f"k{number}" == await ask_async(f"k{number}")

    def work(index):
        if index % 2:
            asyncio.run(many())
        else:
            for number in range(200):
                assert ("a", "b", f"k{number}") == (ask("a"), ask("b"), ask(f"k{number}"))

    assert [None] * 4 == together(4, work, 60)
    statuses = registry.get_family("llm").status_all()
    assert (202, 4 * 600) == (len(statuses), sum(status.successes_total for status in statuses.values()))


class Finaliser:
    """Asks for a new key when it dies, wherever that is."""

    def __init__(self, ask):
        self.ask = ask

    def __del__(self):
        self.ask()


def test_a_finaliser_in_the_middle_of_a_change(registry):
    """I9: it may ask for keys of any family, new or old, and waits for nothing."""
    family = registry.family("llm", labels="provider", config=BreakerConfig(Consecutive(1)), max_keys=2)
    other = registry.breaker("other")
    answers = []

    def ask():
        for key in "abcd":
            shared = family[key]
            answers.append(shared.acquire())
            if isinstance(answers[-1], Permit):
                shared.on_failure(answers[-1], DOWN)

    def change(now, time_ns):
        Finaliser(ask)

    other._section(change)
    family["a"]._section(change)
    for _ in range(2):
        family["a"].reset()
        ring = [Finaliser(ask)]
        ring.append(ring)
        del ring
        gc.collect()

    assert 16 == len(answers)
    assert 2 == len(family)


@needs_fork
def test_a_fork(registry):
    """I19: the child has the families, no probe of the parent's, and full bulkheads."""
    family = registry.family("llm", labels="provider", config=BreakerConfig(Consecutive(1), cooldown=0.001), max_keys=3)
    rooms = registry.bulkhead_family("room", BulkheadConfig(1), labels="provider")
    asleep, probing = family["asleep"], family["probing"]
    probing.on_failure(probing.try_acquire(), DOWN)
    while probing.is_open():
        pass
    assert probing.try_acquire().probe
    rooms["a"].take()

    def check():
        assert (family["asleep"], family["probing"]) == (asleep, probing)
        assert (1, True) == (probing.status().probes_released, asleep.is_asleep)
        assert 0 == rooms["a"].in_flight
        for number in range(30):
            _ = family[str(number)]
        assert 3 == len(family)
        assert CircuitState.CLOSED is asleep.state

    assert "ok" == in_child(check)
    assert (0, 1) == (probing.status().probes_released, rooms["a"].in_flight)


@needs_fork
@pytest.mark.slow
def test_forks_while_keys_come_and_go(registry):
    """Whatever the others are in the middle of, the child's families work."""
    family = registry.family("llm", labels="provider", config=BreakerConfig(Consecutive(10**6)), max_keys=4)
    rooms = registry.bulkhead_family("room", BulkheadConfig(1), labels="provider", max_keys=4)
    stop = threading.Event()

    def churn(index):
        number = 0
        while not stop.is_set():
            number += 1
            shared = family[f"{index}-{number}"]
            if number % 3 == 0:
                shared.on_failure(shared.try_acquire(), DOWN)
                shared.reset()
            room = rooms[f"{index}-{number}"]
            slot = room.take()
            if slot is not None:
                room.give(slot)

    threads = [threading.Thread(target=churn, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()

    def check():
        for number in range(60):
            shared = family[f"child{number}"]
            shared.on_success(shared.try_acquire())
            assert rooms[f"child{number}"].in_flight in (0, 1)
        assert len(family) <= 4
        assert len(rooms) <= 4

    try:
        for _ in range(15):
            assert "ok" == in_child(check)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


# ---------------------------------------------------------------------------------------------- memory
@pytest.mark.slow
def test_a_million_keys(registry):
    """I12: asked of a family capped at 1,024, memory stays flat; one event tells of it."""
    told = []
    registry.subscribe(told.append, KeyOverflow)
    family = registry.family("llm", labels=("provider", "model"))
    down = family["down", "down"]
    down.force_open("drill")

    def ask(first, last):
        for number in range(first, last):
            _ = family["provider", f"m{number}"]

    ask(0, 20_000)
    gc.collect()
    tracemalloc.start()
    try:
        ask(20_000, 30_000)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        ask(30_000, 990_000)
        tracemalloc.start()
        ask(990_000, 1_000_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (1_024, down) == (len(family), family["down", "down"])
    assert after < before * 1.5
    assert ["full"] == [event.reason for event in told]


@pytest.mark.slow
def test_a_million_calls_with_keys(registry):
    """The same through a wrapper, whose look-ups keep nothing."""

    @breaker("llm", BreakerConfig(), key="model")
    def ask(model):
        return None

    def run(calls):
        for number in range(calls):
            ask(f"m{number}")

    run(3_000)
    gc.collect()
    tracemalloc.start()
    try:
        run(3_000)
        before, _ = tracemalloc.get_traced_memory()
        run(30_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 1_024 == len(registry.get_family("llm"))
    assert after < before * 1.5


@pytest.mark.slow
@pytest.mark.parametrize("awake", [False, True])
def test_memory_per_key(registry, awake):
    """At 10,000 keys, without the keys themselves: hardly anything as long as nothing has failed."""
    family = registry.family("llm", labels="provider", max_keys=10_001)
    _ = family["first"]
    keys = [f"k{number}" for number in range(10_000)]
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for key in keys:
            if awake:
                family[key].awake()
            else:
                _ = family[key]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    tuples = sum(map(sys.getsizeof, (shared.key for shared in family))) / len(family) + 16

    assert (after - before) / 10_000 - tuples < (2_600 if awake else 500)


def test_a_retired_breaker_is_freed(registry):
    """Nothing keeps one that has left, but who holds it."""
    import weakref

    family = registry.family("llm", labels="provider", max_keys=1)
    gone = weakref.ref(family["a"])
    for number in range(12):
        _ = family[f"b{number}"]
    gc.collect()

    assert gone() is None
    assert BreakerMode.RETIRED is not family["c"].status().mode
