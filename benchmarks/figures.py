"""Figures that a loop around one statement can't show: threads together, single calls, exactness, memory."""

from __future__ import annotations

import statistics
import sys
import threading
import time
import tracemalloc
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

import streams

from resilience import BreakerConfig, CircuitOpenError, Consecutive, Registry, breaker, bulkhead, compose
from resilience.catalogue import default_classifier

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = 10**9
STREAMS = {
    "stream_item_sync_us": "an item of a stream, sync, adds",
    "stream_item_async_us": "an item of a stream, async, adds",
    "stream_item_async_budget_us": "an item of a stream, async with limits, adds",
}
SLOTS = 3
BREAKERS = 10_000


def new_breaker(config: BreakerConfig) -> Any:
    """A reference to a breaker in a registry of its own."""
    return breaker("bench", config, registry=Registry())


def answer(fails: bool) -> int:
    """The function under protection."""
    if fails:
        raise ConnectionError("down")
    return 1


# ---------------------------------------------------------------------------------------------- threads
def wall(threads: int, work: Callable[[], object]) -> float:
    """Seconds from the common start of the threads until the last has done its work."""
    gate = threading.Barrier(threads + 1)

    def body() -> None:
        gate.wait()
        work()

    workers = [threading.Thread(target=body) for _ in range(threads)]
    for worker in workers:
        worker.start()
    began = time.perf_counter()
    gate.wait()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def eight_threads(repeats: int) -> float:
    """How much longer eight threads take for a call of 10 ms each, through one breaker, than one thread for one."""
    call = new_breaker(BreakerConfig())(time.sleep)
    pairs = [(wall(1, lambda: call(0.01)), wall(8, lambda: call(0.01))) for _ in range(repeats)]
    return statistics.median(eight for _, eight in pairs) / statistics.median(one for one, _ in pairs)


def ten_threads(repeats: int, calls: int = 200_000) -> dict[str, float]:
    """What a call of an empty function costs when ten threads make them, and when one thread makes as many."""
    ref = new_breaker(BreakerConfig())
    call = ref(answer)

    def work(times: int) -> None:
        for _ in repeat(None, times):
            call(False)

    pairs = [(wall(1, lambda: work(calls)), wall(10, lambda: work(calls // 10))) for _ in range(repeats)]
    if (counted := ref.status().successes_total) != 2 * repeats * calls:
        raise AssertionError(f"{counted} successes counted of {2 * repeats * calls}")
    one = statistics.median(one for one, _ in pairs) / calls * 1e9
    ten = statistics.median(ten for _, ten in pairs) / calls * 1e9
    return {"one_ns": one, "ten_ns": ten, "ratio": ten / one}


def exactness(calls: int = 3_000) -> dict[str, int]:
    """Eight threads through one breaker and a bulkhead: results that were miscounted, calls above the slots."""
    ref = new_breaker(BreakerConfig(Consecutive(NEVER)))
    lock = threading.Lock()
    running = highest = 0

    def body(fails: bool) -> int:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        try:
            return answer(fails)
        finally:
            with lock:
                running -= 1

    call = compose(bulkhead(max_in_flight=SLOTS, max_waiting=100, wait=60), ref)(body)

    def work() -> None:
        for number in range(calls):
            with suppress(ConnectionError):
                call(number % 4 == 0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        wall(8, work)
    finally:
        sys.setswitchinterval(interval)
    status = ref.status()
    failures = 8 * len(range(0, calls, 4))
    wrong = abs(status.failures_total - failures) + abs(status.successes_total - (8 * calls - failures))
    return {"miscounted": wrong, "above_slots": max(0, highest - SLOTS)}


# ---------------------------------------------------------------------------------------------- single calls
def percentiles(samples: list[float]) -> dict[str, float]:
    """Median and tail of single calls."""
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def clock_cost() -> float:
    """What two looks at the clock cost, to be taken off each sample."""
    clock = time.perf_counter_ns
    return statistics.median(-(clock() - clock()) for _ in range(2_000))


def timed(call: Callable[[bool], object], fails: bool) -> tuple[int, Exception | None]:
    """Nanoseconds of one call, and what it raised."""
    clock = time.perf_counter_ns
    error = None
    began = clock()
    try:
        call(fails)
    except Exception as raised:
        took = clock() - began
        error = raised.with_traceback(None)
    else:
        took = clock() - began
    return took, error


def single_calls(count: int) -> dict[str, dict[str, float]]:
    """Nanoseconds of single calls, by what happens to them; a cycle is a trip, a refusal, a probe that closes."""
    cost = clock_cost()
    healthy = new_breaker(BreakerConfig(Consecutive(NEVER)))(answer)
    down = new_breaker(BreakerConfig(Consecutive(1), cooldown=3600, max_cooldown=3600))(answer)
    timed(down, True)
    found = {
        "closed": [timed(healthy, False)[0] - cost for _ in range(count)],
        "failing": [timed(healthy, True)[0] - cost for _ in range(count)],
        "refused": [timed(down, False)[0] - cost for _ in range(count)],
    }
    found |= cycles(count // 5, cost)
    return {name: percentiles(samples) for name, samples in found.items()}


def cycles(count: int, cost: float) -> dict[str, list[float]]:
    """Whole cycles of a breaker with the real clock; the cooldown between is waited for and not timed."""
    ref = new_breaker(BreakerConfig(Consecutive(1), cooldown=0.0005))
    call, kept = ref(answer), ref.breaker
    probes: list[float] = []
    whole: list[float] = []
    while len(whole) < count:
        trip, _ = timed(call, True)
        refusal, error = timed(call, False)
        if not isinstance(error, CircuitOpenError):
            # The machine was busy and the cooldown is over: that call was the probe.
            continue
        while kept.is_open():
            pass
        probe, _ = timed(call, False)
        probes.append(probe - cost)
        whole.append(trip + refusal + probe - 3 * cost)
    return {"half_open": probes, "cycle": whole}


# ---------------------------------------------------------------------------------------------- the rest
def million_is_open(repeats: int) -> float:
    """Milliseconds for a million calls of a kept breaker's `is_open()` with their loop, at best."""
    kept = new_breaker(BreakerConfig()).breaker

    def once() -> int:
        began = time.thread_time_ns()
        for _ in repeat(None, 1_000_000):
            kept.is_open()
        return time.thread_time_ns() - began

    return min(once() for _ in range(repeats)) / 1e6


def known_fault(repeats: int) -> float:
    """Nanoseconds to look up the fault of an exception type that has been seen and decides alone, at best."""
    classifier = default_classifier()
    kind = ConnectionRefusedError
    classifier.classify(kind())
    known = classifier.known
    assert known(kind) is not None, "the type decides alone"

    def once(look_up: Callable[[type], object]) -> int:
        began = time.thread_time_ns()
        for _ in repeat(None, 1_000_000):
            look_up(kind)
        return time.thread_time_ns() - began

    def nothing() -> int:
        began = time.thread_time_ns()
        for _ in repeat(None, 1_000_000):
            pass
        return time.thread_time_ns() - began

    return (min(once(known) for _ in range(repeats)) - min(nothing() for _ in range(repeats))) / 1e6


def bytes_per_breaker() -> float:
    """Memory of one breaker among 10,000 in a registry, without its name and its configuration."""
    names = [f"bench:{number}" for number in range(BREAKERS)]
    config = BreakerConfig()
    registry = Registry()
    registry.breaker("first", config)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for name in names:
            registry.breaker(name, config)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / BREAKERS


def bytes_per_keyed_breaker() -> float:
    """Memory of one breaker among 10,000 of a family, without its key: what only the key has is taken off."""
    family = Registry().family("bench", labels="key", max_keys=BREAKERS + 1)
    _ = family["first"]
    names = [f"k{number}" for number in range(BREAKERS)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for name in names:
            _ = family[name]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # With the header of the garbage collector.
    key = sys.getsizeof(("k",)) + 16
    return (after - before) / BREAKERS - key


def run(repeats: int) -> dict[str, Any]:
    """Measure everything here and print it."""
    found: dict[str, Any] = {
        "is_open_million_ms": million_is_open(min(repeats, 5)),
        "known_fault_ns": known_fault(min(repeats, 5)),
        "eight_threads": eight_threads(repeats),
        "ten_threads": ten_threads(min(repeats, 5)),
        "single_calls_ns": single_calls(200 * repeats),
        **exactness(200 * repeats),
        "bytes_per_breaker": bytes_per_breaker(),
        "bytes_per_keyed_breaker": bytes_per_keyed_breaker(),
        **streams.run(min(repeats, 5)),
    }
    show(found)
    return found


def show(found: dict[str, Any]) -> None:
    """Print the figures."""
    print("\n### figures")
    print(f"  a million is_open() of a closed breaker           {found['is_open_million_ms']:8.1f} ms")
    print(f"  the fault of a known exception type               {found['known_fault_ns']:8.1f} ns")
    print(f"  8 threads, one 10 ms call each / one call         {found['eight_threads']:8.2f}")
    ten = found["ten_threads"]
    print(f"  10 threads on an empty function / one thread      {ten['ratio']:8.2f}   ({ten['ten_ns']:.0f} ns a call)")
    print(f"  results miscounted, calls above the slots         {found['miscounted']:8d} {found['above_slots']}")
    print(f"  bytes per breaker at {BREAKERS:,}                   {found['bytes_per_breaker']:8.0f}")
    print(f"  the same of a family, without its key             {found['bytes_per_keyed_breaker']:8.0f}")
    for name, says in STREAMS.items():
        print(f"  {says:50s}{found[name]:8.3f} us")
    for name, cuts in found["single_calls_ns"].items():
        print(f"  {name:10s}" + "".join(f"   {cut} {ns:7.0f} ns" for cut, ns in cuts.items()))
