"""Contract section 4: slow calls count in the window of a failure rate."""

from __future__ import annotations

import asyncio

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    FailureRate,
    FaultKind,
    Registry,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
)
from resilience.events import ProbeFailed

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def slow_from(seconds, rate=0.5, slow_rate=None, min_calls=2, **settings):
    trip = FailureRate(rate, window=60, bucket=1, min_calls=min_calls, slow_call=seconds, slow_rate=slow_rate)
    return BreakerConfig(trip, **{"cooldown": 30, **settings})


@pytest.fixture
def taking(env):
    """A function that takes as many seconds as it is told, and then raises what it is told."""

    def body(seconds, key=None):
        env.advance(seconds)
        if key is not None:
            raise key
        return seconds

    return env.function(body)


def test_a_circuit_opens_for_slowness(env, taking):
    """Answers that all come, but late, open it as failures do."""
    fn = breaker("api", slow_from(2))(taking)
    env.call(fn, 2)
    assert CLOSED is env.registry.get("api").state
    env.call(fn, 3)

    assert OPEN is env.registry.get("api").state
    assert isinstance(env.fails(fn, 1), CircuitOpenError)


@pytest.mark.parametrize(("seconds", "slow"), [(1.75, 0), (2.0, 1), (2.25, 1)])
def test_slow_from_exactly_the_limit(env, taking, seconds, slow):
    """A success that took exactly `slow_call` is slow."""
    fn = breaker("api", slow_from(2, min_calls=10))(taking)
    env.call(fn, seconds)
    status = env.registry.get("api").status()

    assert (slow, float(slow), slow, 1) == (
        status.slow_calls,
        status.slow_rate,
        status.slow_total,
        status.successes_total,
    )


def test_quick_calls_never_open(env, taking):
    """Not one of them is slow."""
    fn = breaker("api", slow_from(2))(taking)
    for _ in range(5):
        env.call(fn, 0.5)

    assert (CLOSED, 0) == (env.registry.get("api").state, env.registry.get("api").status().slow_calls)


def test_slow_failures_are_failures(env, taking):
    """What fails slowly counts as a failure and as nothing else."""
    fn = breaker("api", slow_from(2, rate=1.0, slow_rate=0.1))(taking)
    env.fails(fn, 5, key=ConnectionError())
    env.call(fn, 1)
    status = env.registry.get("api").status()

    assert (CLOSED, 1, 0) == (status.state, status.failure_count, status.slow_calls)


def test_either_rate_opens(env, taking):
    """The failures alone do, although nothing is slow."""
    fn = breaker("api", slow_from(2, rate=0.5, slow_rate=1.0))(taking)
    env.call(fn, 1)
    env.fails(fn, 0.5, key=ConnectionError())

    assert OPEN is env.registry.get("api").state


def test_its_own_share(env, taking):
    """With `slow_rate` the two shares are told apart."""
    fn = breaker("api", slow_from(2, rate=0.5, slow_rate=1.0))(taking)
    env.call(fn, 1)
    env.call(fn, 5)
    assert CLOSED is env.registry.get("api").state
    status = env.registry.get("api").status()

    assert (0.0, 0.5) == (status.failure_rate, status.slow_rate)


def test_only_from_the_minimum_on(env, taking):
    """One slow call of one is no share yet; the quick one that makes enough of them opens."""
    fn = breaker("api", slow_from(2))(taking)
    env.call(fn, 9)
    assert CLOSED is env.registry.get("api").state
    env.call(fn, 0.5)

    assert OPEN is env.registry.get("api").state


def test_slow_calls_leave_the_window(env, taking):
    """They count for as long as any other."""
    fn = breaker("api", slow_from(2, min_calls=3))(taking)
    env.call(fn, 5)
    env.advance(60)
    env.call(fn, 0)

    assert (0, 0.0, 1) == (
        env.registry.get("api").status().slow_calls,
        env.registry.get("api").status().slow_rate,
        env.registry.get("api").status().slow_total,
    )


def test_a_slow_probe_has_failed(env, taking):
    """A circuit that opened for slowness does not close on a slow answer, and its cooldown starts anew."""
    fn = breaker("api", slow_from(2, min_calls=1))(taking)
    told = []
    env.registry.subscribe(told.append, ProbeFailed)
    env.call(fn, 5)
    env.advance(30)
    assert 5 == env.call(fn, 5)
    status = env.registry.get("api").status()

    assert (OPEN, 1, 0, 30.0) == (status.state, status.probes_failed, status.probes_succeeded, status.retry_after)
    assert [(True, None)] == [(event.slow, event.kind) for event in told]
    env.advance(30)
    env.call(fn, 1)
    assert CLOSED is env.registry.get("api").state


def test_one_verdict_per_call_is_as_slow_as_the_call(env, taking):
    """With `account="call"` attempts count together."""
    calls = []

    def body(arg=None, key=None):
        calls.append(arg)
        env.advance(1.25)
        if len(calls) == 1:
            raise ConnectionError
        return "ok"

    fn = compose(breaker("api", slow_from(2, min_calls=5), account="call"), retry(2, wait=0, idempotent=True))(
        env.function(body)
    )

    assert "ok" == env.call(fn)
    assert 1 == env.registry.get("api").status().slow_calls


def test_each_attempt_has_its_own_time(env):
    """Per attempt, a retry that took long does not make its attempts slow."""
    calls = []

    def body(arg=None, key=None):
        calls.append(arg)
        env.advance(1.5)
        if len(calls) == 1:
            raise ConnectionError
        return "ok"

    fn = compose(breaker("api", slow_from(2, min_calls=5)), retry(2, wait=0, idempotent=True))(env.function(body))
    env.call(fn)
    status = env.registry.get("api").status()

    assert (0, 1, 1) == (status.slow_calls, status.successes_total, status.failures_total)


def test_the_line_of_a_bulkhead_is_not_the_remotes_time(env, taking):
    """What is measured is the attempt."""
    fn = compose(breaker("api", slow_from(2, min_calls=5)), bulkhead("room", max_in_flight=1))(taking)
    env.call(fn, 2)

    assert 1 == env.registry.get("api").status().slow_calls


@pytest.mark.parametrize("site", ["classify_result", "unless", "bypass"])
def test_every_sort_of_site(env, taking, site):
    """Measured whatever else the call site wants."""
    options = {
        "classify_result": {"classify_result": lambda value: None},
        "unless": {"unless": lambda *args, **kwargs: False},
        "bypass": {"on_open": "bypass"},
    }[site]
    fn = breaker("api", slow_from(2, min_calls=5), **options)(taking)
    env.call(fn, 2)
    env.call(fn, 1)

    assert 1 == env.registry.get("api").status().slow_calls


def test_answers_are_never_slow(env, taking):
    """A remote that said no in its own good time was alive; windows record nothing of it."""

    class NotFound(Exception):
        status_code = 404

    fn = breaker("api", slow_from(2, min_calls=1))(taking)
    env.fails(fn, 5, key=NotFound())
    status = env.registry.get("api").status()

    assert (CLOSED, 0, 1) == (status.state, status.slow_calls, status.answered_total)


# ------------------------------------------------------------------------------------------ blocks and permits
def test_a_guarded_block(env):
    """Each block has its own time, also several at once."""
    ref = breaker("api", slow_from(2, min_calls=5))
    with ref.guard():
        env.advance(1)
        with ref.guard(), ref.breaker.guard():
            env.advance(1)

    assert (1, 3) == (ref.status().slow_calls, ref.status().successes_total)


def test_one_guard_entered_twice(env):
    """A guard that is kept, and nested in itself, tells its uses apart."""
    ref = breaker("api", slow_from(2, min_calls=5))
    block = ref.guard()
    with block:
        env.advance(1)
        with block:
            env.advance(1.5)

    assert (1, 2) == (ref.status().slow_calls, ref.status().successes_total)


def test_a_permit_remembers_when_it_was_given(registry, clock):
    """From `try_acquire` to `on_success`, also of a probe."""
    shared = registry.breaker("api", slow_from(2, min_calls=1))
    first, second = shared.try_acquire(), shared.try_acquire()
    clock.advance(1)
    shared.on_success(first)
    assert 0 == shared.status().slow_calls
    clock.advance(1)
    shared.on_success(second)
    assert (OPEN, 1) == (shared.state, shared.status().slow_calls)
    clock.advance(30)
    probe = shared.try_acquire()
    clock.advance(2)
    shared.on_success(probe)

    assert (OPEN, 1) == (shared.state, shared.status().probes_failed)


def test_call_and_acall(registry, clock):
    """The breaker's own ways to call."""
    shared = registry.breaker("api", slow_from(2, min_calls=5))
    shared.call(clock.advance, 2)

    async def taking(seconds):
        clock.advance(seconds)

    asyncio.run(shared.acall(taking, 2))
    shared.call(clock.advance, 1)

    assert (2, 3) == (shared.status().slow_calls, shared.status().successes_total)


def test_under_a_timeout(env, taking):
    """A limit of ours around the call changes nothing about it."""
    marked = taking if env.is_async else interruptible(taking)
    fn = timeout(60)(breaker("api", slow_from(2, min_calls=5))(marked))
    env.call(fn, 2)
    env.call(fn, 1)

    assert 1 == env.registry.get("api").status().slow_calls


def test_status_without_slow_calls(env, taking):
    """Who does not ask is told nothing."""
    fn = breaker("api", BreakerConfig(FailureRate()))(taking)
    env.call(fn, 100)
    status = env.registry.get("api").status()

    assert (0, None, 0) == (status.slow_calls, status.slow_rate, status.slow_total)


def test_figures_stay_while_open(registry, clock):
    """As at the trip."""
    shared = registry.breaker("api", slow_from(2, min_calls=2))
    for _ in range(2):
        permit = shared.try_acquire()
        clock.advance(2)
        shared.on_success(permit)
    clock.advance(20)
    status = shared.status()

    assert (OPEN, 2, 1.0, 0) == (status.state, status.slow_calls, status.slow_rate, status.failure_count)


def test_a_healthy_breaker_that_does_not_look_reads_no_clock(monkeypatch):
    """Breakers without `slow_call` pay nothing: a streak reads no clock, a window one, with `slow_call` two."""
    import time

    registry, reads = Registry(), []
    system = time.monotonic
    configs = (BreakerConfig(), BreakerConfig(FailureRate()), slow_from(2, min_calls=1))
    fns = [breaker(f"b{n}", config, registry=registry)(lambda: "ok") for n, config in enumerate(configs)]
    for fn in fns:
        fn()
    monkeypatch.setattr(time, "monotonic", lambda: reads.append(1) or system())
    counted = []
    for fn in fns:
        reads.clear()
        fn()
        counted.append(len(reads))

    assert [0, 1, 2] == counted


def test_a_permit_of_a_breaker_that_does_not_look(registry, clock):
    """It remembers nothing."""
    shared = registry.breaker("api", BreakerConfig())
    permit = shared.try_acquire()
    shared.on_failure(permit, FaultKind.TRANSIENT)

    assert permit.given_at is None


# ------------------------------------------------------------------------------------------ streams
def test_a_stream_is_as_slow_as_its_first_item(env):
    """How long the rest takes is the stream's length, and the consumer's own time; one without items ends when it ends."""
    config = slow_from(2, min_calls=10)

    @breaker("api", config, registry=env.registry)
    def plain(*waits):
        for wait in waits:
            env.advance(wait)
            yield wait
        env.advance(3)

    @breaker("api", config, registry=env.registry)
    async def tasks(*waits):
        for wait in waits:
            env.advance(wait)
            yield wait
        env.advance(3)

    async def drained(*waits):
        return [item async for item in tasks(*waits)]

    def read(*waits):
        return env.run(drained(*waits)) if env.is_async else [*plain(*waits)]

    shared = env.registry.get("api")
    assert [1, 9] == read(1, 9)
    assert (0, 1) == (shared.status().slow_calls, shared.status().successes_total)
    assert [2, 0] == read(2, 0)
    assert (1, 2) == (shared.status().slow_calls, shared.status().successes_total)
    assert [] == read()

    assert (2, 3) == (shared.status().slow_calls, shared.status().successes_total)


def test_a_stream_that_is_begun_anew(env):
    """Each attempt has a first item of its own."""
    attempts = []

    @retry(2, wait=0, idempotent=True)
    @breaker("api", slow_from(2, min_calls=10), registry=env.registry)
    def items():
        attempts.append(1)
        env.advance(1.5)
        if len(attempts) == 1:
            raise ConnectionError
        yield "item"

    assert ["item"] == [*items()]
    assert (0, 1) == (env.registry.get("api").status().slow_calls, env.registry.get("api").status().failures_total)


@pytest.mark.parametrize("account", ["attempt", "call"])
def test_a_stream_that_is_out_while_slow_calls_begin_to_count(env, account):
    """Nobody noted when its first item came, and its consumer's time is not the remote's."""

    @breaker("api", BreakerConfig(), registry=env.registry, account=account)
    def plain():
        yield 1
        yield 2

    @timeout(100)
    @breaker("api", BreakerConfig(), registry=env.registry, account=account)
    async def tasks():
        yield 1
        yield 2

    def change():
        env.registry.get("api").reconfigure(slow_from(2, min_calls=1))
        env.advance(5)

    async def drained():
        stream = tasks()
        await anext(stream)
        change()
        return [item async for item in stream]

    def read():
        with timeout(100).guard():
            stream = plain()
            next(stream)
            change()
            return [*stream]

    assert [2] == (env.run(drained()) if env.is_async else read())
    status = env.registry.get("api").status()
    assert (CLOSED, 1, 0) == (status.state, status.successes_total, status.slow_total)


def test_a_slow_stream_is_no_answer_of_a_probe(registry, clock):
    """Half-open, a stream whose first item came late has failed, and its consumer gets every item."""

    @breaker("api", slow_from(2, min_calls=1), registry=registry)
    def items(wait):
        clock.advance(wait)
        yield wait

    assert [5] == [*items(5)]
    clock.advance(30)
    assert [5] == [*items(5)]
    status = registry.get("api").status()

    assert (OPEN, 1) == (status.state, status.probes_failed)
