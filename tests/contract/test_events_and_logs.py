"""Contract section 12: events, sinks, logs; what they never tell."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    Consecutive,
    FaultKind,
    OnOpen,
    ProbeEnd,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    interruptible,
    retry,
    timeout,
    use_registry,
)
from resilience._core import events as kinds
from resilience._core.events import (
    Bypassed,
    LateResult,
    ProbeReleased,
    ProbeStarted,
    Rejected,
    RetryScheduled,
    SinkFailed,
    StateChanged,
    TimedOut,
)
from resilience.testing import ManualClock

DOWN = FaultKind.TRANSIENT
SECRET = "hunter2-secret-argument"


def cycle(shared, clock):
    """Open, a failed probe, a released probe, a good probe."""
    shared.on_failure(shared.try_acquire(), DOWN)
    clock.advance(30)
    shared.on_failure(shared.try_acquire(), DOWN)
    clock.advance(30)
    shared.release(shared.try_acquire())
    shared.on_success(shared.try_acquire())


@pytest.fixture
def api(registry, clock, trips_at):
    return registry.breaker("api", trips_at(1, cooldown=30))


# ------------------------------------------------------------------------------------------ order and numbers
def test_sequence_is_the_order_of_delivery(registry, api, clock):
    """Section 12: sequence = delivery order, without a gap."""
    seen = []
    registry.subscribe(seen.append)
    cycle(api, clock)
    numbers = [event.sequence for event in seen]

    assert list(range(numbers[0], numbers[0] + len(numbers))) == numbers


def test_events_over_two_breakers_are_numbered_together(registry, clock, trips_at):
    """Section 12: the registry's outbox numbers them."""
    seen = []
    registry.subscribe(seen.append)
    for name in ("one", "two", "three"):
        cycle(registry.breaker(name, trips_at(1, cooldown=30)), clock)
    assert sorted({event.sequence for event in seen}) == [event.sequence for event in seen]


def test_same_events_and_clock_give_the_same_log():
    """I18: a byte-identical event log."""

    def run():
        clock = ManualClock(100)
        registry = Registry(clock=clock)
        seen = []
        registry.subscribe(lambda event: seen.append(repr(event)))
        with use_registry(registry):
            cycle(registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30)), clock)
            registry.breaker("api", BreakerConfig(Consecutive(2), cooldown=40))
            registry.get("api").force_open("drill", actor="ann")
            registry.get("api").reset()
        return "\n".join(seen).encode()

    assert run() == run()


def test_event_times(registry, api, clock):
    """Section 12: monotonic and wall time of the decision."""
    seen = []
    registry.subscribe(seen.append, StateChanged)
    clock.advance(5)
    api.on_failure(api.try_acquire(), DOWN)

    assert [(105.0, 105_000_000_000)] == [(event.at, event.time_ns) for event in seen]


def test_probe_events_are_paired(registry, api, clock):
    """I15: probe_started = succeeded + failed + released."""
    seen = []
    registry.subscribe(seen.append)
    cycle(api, clock)
    started = sum(isinstance(event, ProbeStarted) for event in seen)
    ended = sum(isinstance(event, (kinds.ProbeSucceeded, kinds.ProbeFailed, ProbeReleased)) for event in seen)
    assert (3, 3) == (started, ended)


@pytest.mark.parametrize("reason", ["neutral", "cancelled", "abandoned"])
def test_release_reasons(registry, api, clock, reason):
    """Section 12: probe_released with its reason, given as a word or a member."""
    seen = []
    registry.subscribe(seen.append, ProbeReleased)
    api.on_failure(api.try_acquire(), DOWN)
    clock.advance(30)
    api.release(api.try_acquire(), reason)
    api.release(api.try_acquire(), ProbeEnd(reason))
    assert [reason, reason] == [event.reason.value for event in seen]


def test_cancelled_probe_says_cancelled(registry, api, clock):
    """I15: the reason of a probe whose caller gave up."""
    seen = []
    registry.subscribe(seen.append, ProbeReleased)
    api.on_failure(api.try_acquire(), DOWN)
    clock.advance(30)

    @breaker("api")
    async def hang():
        await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(hang())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert ["cancelled"] == [event.reason.value for event in seen]


def test_neutral_probe_says_neutral(registry, api, clock):
    """I15: our own bug is neutral."""
    seen = []
    registry.subscribe(seen.append, ProbeReleased)
    api.on_failure(api.try_acquire(), DOWN)
    clock.advance(30)
    with pytest.raises(ZeroDivisionError):
        breaker("api")(lambda: 1 / 0)()
    assert ["neutral"] == [event.reason.value for event in seen]


# ------------------------------------------------------------------------------------------ subscribing
def test_subscribe_to_some_types(registry, api, clock):
    """Design 1: subscribe(sink, *types)."""
    seen = []
    registry.subscribe(seen.append, ProbeStarted, ProbeReleased)
    cycle(api, clock)
    assert {ProbeStarted, ProbeReleased} == {type(event) for event in seen}


def test_optional_events_only_where_asked(registry, api, clock):
    """Section 12: rejections, bypasses, retries, timeouts only if a sink asked for their type."""
    everything, rejected = [], []
    registry.subscribe(everything.append)
    fn = breaker("api")(lambda: None)
    api.force_open("drill")
    with pytest.raises(CircuitOpenError):
        fn()
    registry.subscribe(rejected.append, Rejected)
    with pytest.raises(CircuitOpenError):
        fn()
    assert 1 == len(rejected)
    assert 2 == api.status().rejected_total


def test_unsubscribe(registry, api, clock):
    """Design 1: subscribe -> unsubscribe; twice is harmless."""
    seen = []
    stop = registry.subscribe(seen.append)
    api.force_open("one")
    stop()
    stop()
    api.reset()
    assert 1 == len(seen)


def test_one_sink_twice(registry, api):
    """Design 1: two subscriptions of one sink are two."""
    seen = []
    first = registry.subscribe(seen.append)
    registry.subscribe(seen.append)
    api.force_open("one")
    first()
    api.reset()
    assert 3 == len(seen)


def test_unsubscribing_inside_the_sink(registry, api, clock):
    """Section 12: a sink may leave while it is called; others miss nothing."""
    seen, others = [], []

    def once(event):
        seen.append(event)
        stop()

    stop = registry.subscribe(once)
    registry.subscribe(others.append)
    cycle(api, clock)
    assert 1 == len(seen)
    assert len(others) > 5


@pytest.mark.parametrize("sink", [None, 5, "print"])
def test_what_is_no_sink(registry, sink):
    """I20: refused at once, not at the first event."""
    with pytest.raises((TypeError, ValueError)):
        registry.subscribe(sink)


# ------------------------------------------------------------------------------------------ sinks that misbehave
def test_raising_sink_is_isolated_and_logged_once(registry, api, clock, caplog):
    """Section 12: a raising sink is isolated, counted, logged once."""
    caplog.set_level(logging.DEBUG, "resilience")
    good = []

    def bad(event):
        raise RuntimeError("sink is broken")

    registry.subscribe(bad)
    registry.subscribe(good.append)
    cycle(api, clock)
    said = [record for record in caplog.records if "sink" in record.getMessage().lower()]

    assert len([event for event in good if not isinstance(event, SinkFailed)]) >= 10
    assert 1 == len(said)


def test_raising_sink_never_reaches_the_caller(env, remote, trips_at):
    """I17: listeners never fail a call."""

    def bad(event):
        raise RuntimeError

    env.registry.subscribe(bad)
    fn = breaker("api", trips_at(1))(env.function(remote(ConnectionError)))
    assert isinstance(env.fails(fn), ConnectionError)
    assert isinstance(env.fails(fn), CircuitOpenError)


def test_raising_sink_of_sink_failed_does_not_loop(registry, api, caplog):
    """Section 12: a sink that raises on SinkFailed too is no endless loop."""
    calls = []

    def bad(event):
        calls.append(event)
        raise RuntimeError

    registry.subscribe(
        bad, *[kind for kind in vars(kinds).values() if isinstance(kind, type) and issubclass(kind, kinds.Event)]
    )
    api.force_open("drill")
    assert len(calls) < 5


def test_base_exception_of_a_sink(registry, api):
    """I17, I4: a KeyboardInterrupt inside a sink leaves, and delivery goes on afterwards."""
    seen = []

    def sink(event):
        seen.append(event)
        if len(seen) == 1:
            raise KeyboardInterrupt

    registry.subscribe(sink)
    try:
        api.force_open("one")
    except KeyboardInterrupt:
        pass
    api.reset()
    assert 2 == len(seen)


def test_reentrant_sink_does_not_deadlock(registry, api, clock):
    """Section 12: a sink that calls the breaker; events stay in order."""
    seen = []

    def sink(event):
        seen.append((event.sequence, type(event).__name__, getattr(event, "reason", None)))
        api.status()
        registry.status_all()
        if isinstance(event, StateChanged) and event.reason == "first":
            api.reset()
            api.force_open("second")

    registry.subscribe(sink)
    done = threading.Thread(target=api.force_open, args=("first",), daemon=True)
    done.start()
    done.join(5)
    assert not done.is_alive()
    assert sorted(seen) == seen
    assert ["first", None, "second"] == [reason for _, _, reason in seen]


def test_sink_that_calls_a_guarded_function(registry, api, clock):
    """I9: no callback under a lock: the sink may call through the breaker, also its own probe."""
    results = []
    fn = breaker("api")(lambda: "called")

    def sink(event):
        if isinstance(event, StateChanged):
            try:
                results.append(fn())
            except CircuitOpenError:
                results.append("refused")

    registry.subscribe(sink, StateChanged)
    worker = threading.Thread(target=api.force_open, args=("drill",), daemon=True)
    worker.start()
    worker.join(5)
    assert not worker.is_alive()
    assert "refused" == results[0]


def test_slow_sink_holds_no_lock(registry, api):
    """I9, I17: while a sink stands still other threads call, fail and read."""
    inside, leave = threading.Event(), threading.Event()

    def sink(event):
        inside.set()
        leave.wait(5)

    registry.subscribe(sink)
    other = registry.breaker("other", BreakerConfig(Consecutive(1)))
    slow = threading.Thread(target=api.force_open, args=("drill",), daemon=True)
    slow.start()
    assert inside.wait(5)
    try:
        api.status()
        assert api.is_open()
        other.on_success(other.try_acquire())
        done = threading.Thread(target=lambda: (other.on_failure(other.try_acquire(), DOWN), api.reset()), daemon=True)
        done.start()
        done.join(2)
        assert not done.is_alive(), "an event of another thread waits for a slow sink"
    finally:
        leave.set()
        slow.join(5)


def test_events_are_frozen(registry, api):
    """Section 12: frozen records."""
    seen = []
    registry.subscribe(seen.append)
    api.force_open("drill")
    with pytest.raises(AttributeError):
        seen[0].name = "other"


def test_mutating_sink_does_not_reach_others(registry, api):
    """Section 12: plain fields; equal records for all sinks."""
    one, two = [], []
    registry.subscribe(one.append)
    registry.subscribe(two.append)
    api.force_open("drill")
    assert one == two


# ------------------------------------------------------------------------------------------ logging
def levels(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_levels_of_a_cycle(registry, clock, trips_at, caplog):
    """Section 12: opening at WARNING, closing at INFO, probes at DEBUG."""
    caplog.set_level(logging.DEBUG, "resilience")
    cycle(registry.breaker("api", trips_at(1, cooldown=30)), clock)
    found = levels(caplog)

    opened = [level for level, text in found if "open" in text and "half" not in text and "probe" not in text.lower()]
    assert 2 <= sum(level == "WARNING" for level, _ in found)
    assert 1 == sum(level == "INFO" and "closed" in text for level, text in found)
    assert all("api" in text for _, text in found)
    assert "WARNING" in opened
    assert {"WARNING", "INFO", "DEBUG"} >= {level for level, _ in found}


def test_warning_count_of_a_cycle(registry, clock, trips_at, caplog):
    """Section 12: one WARNING for each opening, no more."""
    caplog.set_level(logging.WARNING, "resilience")
    cycle(registry.breaker("api", trips_at(1, cooldown=30)), clock)
    assert 2 == len(caplog.records)


def test_rejections_log_at_debug_at_most(registry, api, caplog):
    """Section 12: rejections at DEBUG."""
    api.force_open("drill")
    caplog.clear()
    caplog.set_level(logging.INFO, "resilience")
    for _ in range(5):
        with pytest.raises(CircuitOpenError):
            breaker("api")(lambda: None)()
    assert [] == caplog.records


def test_healthy_calls_log_nothing(env, remote, trips_at, caplog):
    """Section 12: a healthy call says nothing."""
    caplog.set_level(logging.DEBUG, "resilience")
    fn = breaker("api", trips_at(1))(env.function(remote()))
    for _ in range(5):
        env.call(fn)
    assert [] == caplog.records


def test_unclassified_exception_is_logged_once_per_site(env, caplog, trips_at):
    """Section 2: logged once per call site at WARNING with the line that would classify it."""
    caplog.set_level(logging.DEBUG, "resilience")

    class Unheard(Exception):
        pass

    def body(arg):
        raise Unheard(SECRET)

    one = breaker("api", trips_at(1))(env.function(body))
    two = breaker("api")(env.function(body))
    for _ in range(3):
        env.fails(one)
    first = [record for record in caplog.records if "Unheard" in record.getMessage()]
    assert 1 == len(first)
    assert "WARNING" == first[0].levelname
    assert "add(" in first[0].getMessage() or "classify" in first[0].getMessage()
    env.fails(two)
    assert 2 == len([record for record in caplog.records if "Unheard" in record.getMessage()])


def test_raising_log_handler_never_reaches_the_caller(registry, remote, trips_at):
    """I17: a log handler whose emit raises never replaces the outcome of the call that trips."""

    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("handler")

    handler = Broken()
    logger = logging.getLogger("resilience")
    logger.addHandler(handler)
    try:
        with pytest.raises(ConnectionError):
            breaker("api", trips_at(1))(remote(ConnectionError))()
    finally:
        logger.removeHandler(handler)
    assert registry.get("api").is_open()


# ------------------------------------------------------------------------------------------ nothing confidential
class Confidential:
    """Must never be printed."""

    printed = 0

    def __repr__(self):
        type(self).printed += 1
        return SECRET

    __str__ = __repr__


def test_no_arguments_results_or_texts_anywhere(env, caplog, trips_at, events):
    """Sections 10 and 12: never arguments, results or exception texts in logs, events and messages of ours."""
    caplog.set_level(logging.DEBUG)
    Confidential.printed = 0
    secret = Confidential()
    outcomes = [
        ConnectionError(SECRET),
        secret,
        ConnectionError(SECRET),
        KeyError(SECRET),
        type(SECRET, (Exception,), {})(SECRET),
    ]

    def body(arg, key=None):
        outcome = outcomes[0] if len(outcomes) == 1 else outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    site = breaker(
        "api",
        trips_at(2),
        classify_result=lambda value: DOWN if value is secret else None,
        on_open=OnOpen.FAIL,
    )
    fn = bulkhead("pool", max_in_flight=1)(retry(3, wait=0, idempotent=True)(site(env.function(body))))
    texts = []
    for _ in range(6):
        failed = env.fails(fn, secret, key=secret)
        if (
            failed is not None
            and not isinstance(failed, (ConnectionError, KeyError))
            and type(failed).__module__.startswith("resilience")
        ):
            texts += [str(failed), repr(failed)]
        texts += getattr(failed, "__notes__", [])
    everything = "\n".join(
        [record.getMessage() for record in caplog.records]
        + texts
        + [repr(event) for event in events]
        + [repr(env.registry.get("api").status())]
    )

    assert SECRET not in everything.replace(f".{SECRET}", "")  # the name of a type is no text of an exception
    if not env.is_async:  # asyncio.Runner prints the result of its task by itself
        assert 0 == Confidential.printed


def test_messages_of_our_errors(registry, api, clock):
    """Section 10: messages carry the name and the wait."""
    api.force_open("drill", seconds=12)
    with pytest.raises(CircuitOpenError) as caught:
        breaker("api")(lambda: None)()
    assert "api" in str(caught.value)
    assert "12" in str(caught.value)
    assert "pool" in str(BulkheadFullError("pool"))
    assert "30" in str(TimeoutExceeded("budget", 30.0))


def test_operators_reason_is_in_no_error(registry, api):
    """Section 10: messages are for strangers."""
    api.force_open(SECRET)
    with pytest.raises(CircuitOpenError) as caught:
        api.try_acquire()
    assert SECRET not in str(caught.value)


# ------------------------------------------------------------------------------------------ the rest of the types
def test_late_result_event(registry, api, clock):
    """Section 12: late results are events, accepted False."""
    seen = []
    registry.subscribe(seen.append, LateResult)
    old = api.try_acquire()
    api.on_failure(api.try_acquire(), DOWN)
    api.on_success(old)
    assert [("success", False)] == [(event.verdict.value, event.accepted) for event in seen]


def test_timed_out_events(registry):
    """Section 12: timeouts where asked for."""
    seen = []
    registry.subscribe(seen.append, TimedOut)

    @timeout(0.01)
    async def budget():
        await asyncio.Event().wait()

    @timeout(per_attempt=0.01)
    async def attempt():
        await asyncio.Event().wait()

    release = threading.Event()

    @timeout(0.01)
    @interruptible
    def worker():
        release.wait(5)

    for call in (lambda: asyncio.run(budget()), lambda: asyncio.run(attempt()), worker):
        with pytest.raises(TimeoutExceeded):
            call()
    release.set()
    assert [("budget", 0.01), ("attempt", 0.01), ("budget", 0.01)] == [
        (event.scope.value, event.seconds) for event in seen
    ]


def test_bypassed_event(env, remote, trips_at):
    """Section 12: bypasses where asked for, with the site."""
    seen = []
    env.registry.subscribe(seen.append, Bypassed)
    fn = breaker("api", trips_at(1), on_open=OnOpen.BYPASS)(env.function(remote()))
    env.registry.get("api").force_open("drill")
    env.call(fn)
    assert ["circuit_open"] == [event.by for event in seen]
    assert ["api"] == [event.name for event in seen]


def test_retry_scheduled_has_a_site_name(world, remote):
    """Section 12: every event has the name of what it is about."""
    seen = []
    world.registry.subscribe(seen.append, RetryScheduled)
    world.fails(retry(2, wait=1, idempotent=True)(world.function(remote(then=ConnectionError))))
    assert ":" in seen[0].name


def test_many_threads_one_order(registry, clock, trips_at):
    """Section 12: delivered by one thread at a time, numbered in the order of delivery, none lost."""
    seen = []
    busy = threading.Lock()

    def sink(event):
        assert busy.acquire(blocking=False), "two threads deliver at once"
        seen.append(event.sequence)
        busy.release()

    registry.subscribe(sink)
    shared = [registry.breaker(f"b{number}", trips_at(1)) for number in range(8)]

    def work(breaker_):
        for _ in range(50):
            breaker_.force_open("x")
            breaker_.reset()

    threads = [threading.Thread(target=work, args=(one,)) for one in shared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert list(range(seen[0], seen[0] + 800)) == seen
