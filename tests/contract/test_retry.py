"""Contract section 6: retry."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from email.utils import formatdate

import pytest
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st
from naming import named

from resilience import (
    BulkheadConfig,
    BulkheadFullError,
    Fault,
    FaultFlag,
    FaultKind,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    classify,
    compose,
    idempotent,
    retry,
    timeout,
)
from resilience._core.events import RetryExhausted, RetryScheduled
from resilience.testing import ManualClock, use_clock

T = FaultKind.TRANSIENT


def waits(world):
    """What was slept so far, without the pauses of nothing."""
    return [seconds for seconds in world.clock.slept if seconds]


# ------------------------------------------------------------------------------------------ attempts and outcomes
@pytest.mark.parametrize("attempts", [1, 2, 3, 7])
def test_max_attempts_includes_the_first(env, remote, attempts):
    """Section 6: max_attempts includes the first (I13)."""
    provider = remote(then=ConnectionError)
    fn = retry(attempts, wait=0, idempotent=True)(env.function(provider))
    env.fails(fn)

    assert attempts == provider.calls


def test_exhausted_raises_the_last_real_exception(env, remote):
    """Section 6: the last real exception is raised, unchanged: the very object."""
    errors = [ConnectionError(str(number)) for number in range(3)]
    fn = retry(3, wait=0, idempotent=True)(env.function(remote(*errors)))

    assert errors[2] is env.fails(fn)


def test_success_after_failures(env, remote):
    """Section 6: the first success is returned, the very object."""
    answer = object()
    fn = retry(3, wait=0, idempotent=True)(env.function(remote(ConnectionError, TimeoutError, answer)))

    assert answer is env.call(fn)


def test_arguments_are_the_same_each_time(env, remote):
    """Section 6: every attempt gets the same arguments."""
    provider = remote(ConnectionError, ConnectionError, "ok")
    argument = object()
    env.call(retry(3, wait=0, idempotent=True)(env.function(provider)), argument)

    assert [True] * 3 == [seen is argument for seen in provider.seen]


@pytest.mark.parametrize("exc", [ValueError, TypeError, KeyError, FileNotFoundError, AssertionError, StopIteration])
def test_what_is_not_transient_is_not_retried(env, exc):
    """Section 2: never retried."""
    calls = []

    def body(arg):
        calls.append(1)
        raise exc

    fn = retry(3, wait=0, idempotent=True)(env.function(body))
    env.fails(fn)
    assert 1 == len(calls)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_base_exceptions_are_not_retried(env, stop):
    """Section 2: any other BaseException passes through untouched."""
    calls = []
    interrupted = stop()

    def body(arg):
        calls.append(1)
        raise interrupted

    fn = retry(3, wait=0, idempotent=True)(env.function(body))
    with pytest.raises(stop) as caught:
        if env.is_async:
            fn().send(None)
        else:
            fn()
    assert interrupted is caught.value
    assert 1 == len(calls)


@pytest.mark.parametrize(
    ("status", "calls"),
    [
        (503, 3),
        (429, 3),
        (408, 3),
        (425, 3),
        (500, 3),
        (502, 3),
        (400, 1),
        (401, 1),
        (404, 1),
        (409, 1),
        (501, 1),
        (505, 1),
    ],
)
def test_statuses_that_are_retried(world, remote, http_error, status, calls):
    """Section 2: 408, 425, 429 and most 5xx."""
    provider = remote(then=http_error(status))
    world.fails(retry(3, wait=0, idempotent=True)(world.function(provider)))

    assert calls == provider.calls


def test_downstream_is_opt_in(world, remote, http_error):
    """Section 2: DOWNSTREAM is opt-in, never a client_fault."""
    both = (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)
    for error, calls in ((http_error(501), 3), (http_error(404), 1)):
        provider = remote(then=error)
        world.fails(retry(3, wait=0, idempotent=True, retry_on=both)(world.function(provider)))
        assert calls == provider.calls


def test_downstream_alone(world, remote, http_error):
    """Section 2: retry_on without TRANSIENT."""
    provider = remote(then=http_error(503))
    world.fails(retry(3, wait=0, idempotent=True, retry_on=(FaultKind.DOWNSTREAM,))(world.function(provider)))

    assert 1 == provider.calls


def test_retry_on_is_an_iterable_used_once(world, remote):
    """Bad input: a generator for retry_on works."""
    provider = remote(then=ConnectionError)
    policy = retry(2, wait=0, idempotent=True, retry_on=(kind for kind in [FaultKind.TRANSIENT]))
    world.fails(policy(world.function(provider)))
    world.fails(policy(world.function(provider)))

    assert 4 == provider.calls


@pytest.mark.parametrize(
    ("flags", "idempotent_", "safe_only", "calls"),
    [
        ({FaultFlag.QUOTA}, True, False, 1),
        ({FaultFlag.CLIENT_FAULT}, True, False, 1),
        ({FaultFlag.AMBIGUOUS}, True, False, 3),
        ({FaultFlag.AMBIGUOUS}, False, True, 1),
        ({FaultFlag.UNSENT}, False, True, 3),
        (set(), False, True, 1),
        ({FaultFlag.CONTENTION}, True, False, 3),
        ({FaultFlag.SATURATION}, True, False, 3),
        ({FaultFlag.LOCAL}, True, False, 3),
        ({FaultFlag.UNSENT, FaultFlag.QUOTA}, False, True, 1),
        ({FaultFlag.UNSENT}, True, True, 3),
        (set(), True, True, 1),
    ],
)
def test_flags_decide_what_is_retried(world, remote, flags, idempotent_, safe_only, calls):
    """Sections 2 and 6: quota and client faults never; unsent even where not idempotent; ambiguous only where it is."""
    provider = remote(then=ConnectionError)
    fault = Fault(T, flags)
    policies = compose(
        retry(3, wait=0, idempotent=idempotent_, safe_only=safe_only), breaker("api", classify=lambda exc: fault)
    )
    world.fails(policies(world.function(provider)))

    if safe_only and idempotent_ and FaultFlag.UNSENT not in flags:
        assert provider.calls in (1, 3)  # both declared: the contract does not say which wins
    else:
        assert calls == provider.calls


def test_safe_only_repeats_a_refused_connection(env, remote):
    """Section 3: safe_only: only faults flagged unsent."""
    provider = remote(then=ConnectionRefusedError)
    env.fails(retry(3, wait=0, safe_only=True)(env.function(provider)))
    assert 3 == provider.calls


def test_safe_only_does_not_repeat_a_reset(env, remote):
    """Section 3: a reset may have been processed."""
    provider = remote(then=ConnectionResetError)
    env.fails(retry(3, wait=0, safe_only=True)(env.function(provider)))
    assert 1 == provider.calls


def test_fault_kind_on_the_exception_is_believed(world):
    """Section 2: an exception that carries a FaultKind."""
    calls = []

    class Mine(Exception):
        fault_kind = FaultKind.TRANSIENT

    def body(arg):
        calls.append(1)
        raise Mine

    world.fails(retry(3, wait=0, idempotent=True)(world.function(body)))
    assert 3 == len(calls)


def test_group_is_retried_only_if_every_leaf_may_be(world, remote):
    """Section 2: a group is retryable only if every leaf is."""
    for leaves, calls in (([ConnectionError(), TimeoutError()], 3), ([ConnectionError(), ValueError()], 1)):
        provider = remote(then=ExceptionGroup("g", leaves))
        world.fails(retry(3, wait=0, idempotent=True)(world.function(provider)))
        assert calls == provider.calls


# ------------------------------------------------------------------------------------------ results judged faults
def judged(value):
    return T if value == "bad" else None


def test_result_judged_a_fault_is_retried(env, remote):
    """Section 6: a result judged a fault is retried like an exception."""
    provider = remote("bad", "bad", "good")
    fn = retry(3, wait=0, idempotent=True)(breaker("api", classify_result=judged)(env.function(provider)))

    assert "good" == env.call(fn)
    assert 3 == provider.calls


def test_exhausted_returns_the_last_result(env, remote):
    """Section 6: when exhausted the last result is returned, unchanged."""

    class Response:
        bad = True

    responses = [Response() for _ in range(3)]
    site = breaker("api", classify_result=lambda value: T if value.bad else None)
    fn = retry(3, wait=0, idempotent=True)(site(env.function(remote(*responses))))

    assert responses[2] is env.call(fn)


def test_result_then_exception(env, remote):
    """Section 6: whatever came last leaves."""
    last = ConnectionError()
    fn = retry(2, wait=0, idempotent=True)(breaker("api", classify_result=judged)(env.function(remote("bad", last))))
    assert last is env.fails(fn)


def test_exception_then_result(env, remote):
    """Section 6: an exhausted retry that ended with a judged value returns it."""
    fn = retry(2, wait=0, idempotent=True)(
        breaker("api", classify_result=judged)(env.function(remote(ConnectionError, "bad")))
    )
    assert "bad" == env.call(fn)


def test_results_retry_after_is_the_least_wait(world, remote, least_chance):
    """Sections 2 and 6: a Fault of a result carries Retry-After too."""
    fault = Fault(T, retry_after=7.0)
    provider = remote("bad", "good")
    site = breaker("api", classify_result=lambda value: fault if value == "bad" else None)
    world.call(retry(2, wait=1, idempotent=True)(site(world.function(provider))))

    assert [7.0] == waits(world)


# ------------------------------------------------------------------------------------------ waits
def test_backoff_doubles_to_its_cap(world, remote):
    """Section 6: b = min(max_backoff, initial_backoff * 2^(n-1))."""
    fn = retry(7, initial_backoff=1, max_backoff=10, jitter=0, idempotent=True)(
        world.function(remote(then=ConnectionError))
    )
    world.fails(fn)

    assert [1, 2, 4, 8, 10, 10] == waits(world)


def test_jitter_stays_in_its_bounds_and_never_vanishes(world, remote):
    """Section 6: wait = b +- jitter * b, jitter after the cap."""
    fn = retry(40, initial_backoff=1, max_backoff=4, jitter=0.25, idempotent=True)(
        world.function(remote(then=ConnectionError))
    )
    world.fails(fn)
    slept = waits(world)
    assert all(0.75 * b <= wait <= 1.25 * b for wait, b in zip(slept, [1, 2] + [4] * 40, strict=False))
    assert len(set(slept[2:])) > 30
    assert any(wait > 4 for wait in slept)


def test_initial_backoff_zero_means_none(world, remote):
    """Section 3: zero is allowed: none."""
    world.fails(retry(5, initial_backoff=0, idempotent=True)(world.function(remote(then=ConnectionError))))
    assert [] == waits(world)


def test_max_backoff_zero_means_none(world, remote):
    """Section 3: zero is allowed: none."""
    world.fails(retry(5, max_backoff=0, idempotent=True)(world.function(remote(then=ConnectionError))))
    assert [] == waits(world)


def test_wait_in_seconds(world, remote):
    """Section 6: wait= seconds, exactly."""
    world.fails(retry(3, wait=2.5, idempotent=True)(world.function(remote(then=ConnectionError))))
    assert [2.5, 2.5] == waits(world)


def test_no_wait_after_the_last_attempt(world, remote):
    """Section 6: nothing is waited for in vain."""
    world.fails(retry(2, wait=5, idempotent=True)(world.function(remote(then=ConnectionError))))
    assert [5] == waits(world)


def test_very_many_attempts_never_overflow(world, remote):
    """I20: 2^(n-1) of the 5,000th attempt is no float; the cap holds."""
    provider = remote(then=ConnectionError)
    world.fails(
        retry(5000, initial_backoff=0.001, max_backoff=0.002, jitter=0, idempotent=True)(world.function(provider))
    )
    assert 5000 == provider.calls


# ------------------------------------------------------------------------------------------ Retry-After
@pytest.mark.parametrize("value", ["7", "7 ", " 7", "7.0"])
def test_retry_after_seconds_is_the_least_wait(world, remote, http_error, value, least_chance):
    """Section 6: a server's Retry-After sets the minimum wait."""
    fn = retry(2, wait=1, idempotent=True)(world.function(remote(http_error(429, Retry_After=value))))
    world.call(fn)

    assert [7] == waits(world)


@pytest.mark.parametrize(("options", "most"), [({}, 10.5), ({"jitter": 0.25}, 8.75), ({"wait": 1}, 7.7)])
def test_retry_after_is_spread_upwards(world, remote, http_error, options, most):
    """Section 6: the minimum wait; callers who share a Retry-After do not come back in one instant."""
    for _ in range(40):
        world.call(retry(2, idempotent=True, **options)(world.function(remote(http_error(429, Retry_After="7")))))
    slept = waits(world)

    assert 7 <= min(slept) <= max(slept) <= most
    assert len(set(slept)) > 30
    assert max(slept) - min(slept) > (most - 7) / 2


def test_retry_after_without_jitter(world, remote, http_error):
    """Section 6: jitter=0 is exactly what the server said."""
    world.call(retry(2, jitter=0, idempotent=True)(world.function(remote(http_error(429, Retry_After="7")))))
    assert [7] == waits(world)


def test_retry_after_shorter_than_the_wait(world, remote, http_error):
    """Section 6: it is a minimum only."""
    world.call(retry(2, wait=9, idempotent=True)(world.function(remote(http_error(429, Retry_After="2")))))
    assert [9] == waits(world)


def test_retry_after_milliseconds(world, remote, http_error, least_chance):
    """Section 6: retry-after-ms."""
    world.call(retry(2, wait=0, idempotent=True)(world.function(remote(http_error(429, retry_after_ms="1500")))))
    assert [1.5] == waits(world)


def test_retry_after_date(world, remote, http_error, least_chance):
    """Section 6: an HTTP date, on the wall clock."""
    import time

    when = formatdate(time.time() + 30, usegmt=True)
    world.call(retry(2, wait=0, idempotent=True)(world.function(remote(http_error(503, Retry_After=when)))))
    assert 25 <= waits(world)[0] <= 31


def test_retry_after_date_of_the_past(world, remote, http_error):
    """Section 6: past = 0."""
    when = formatdate(0, usegmt=True)
    world.call(retry(2, wait=0, idempotent=True)(world.function(remote(http_error(503, Retry_After=when)))))
    assert [] == waits(world)


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "soon",
        "-5",
        "1e3",
        "٣",
        "9" * 65,
        "NaN",
        "inf",
        "0x10",
        "5;",
        "1,5",
        None,
        7.5,
        True,
        [],
        b"7",
        "\x00",
        "Wed",
    ],
)
def test_junk_is_ignored(world, remote, http_error, junk, least_chance):
    """Section 6: hostile-proof: junk = ignored."""
    error = http_error(503)
    error.headers = {"Retry-After": junk}
    world.call(retry(2, wait=1, idempotent=True)(world.function(remote(error))))
    assert waits(world)[0] in (1, 7.5, 7)


@settings(max_examples=300)
@given(
    junk=st.one_of(
        st.text(max_size=80),
        st.binary(max_size=20),
        st.integers(),
        st.floats(),
        st.none(),
        st.lists(st.integers(), max_size=2),
    )
)
def test_no_header_crashes_the_parser(junk):
    """I20: no input crashes it: header."""
    error = ConnectionError()
    error.headers = {"Retry-After": junk}
    error.status_code = 503
    found = classify(error).retry_after
    assert found is None or 0 <= found < float("inf")


def test_retry_after_longer_than_max_retry_after_fails_now(world, remote, http_error):
    """Section 6: fail now."""
    error = http_error(429, Retry_After="61")
    provider = remote(error)
    assert error is world.fails(retry(5, wait=0, idempotent=True)(world.function(provider)))
    assert 1 == provider.calls
    assert [] == waits(world)
    assert 61 == classify(error).retry_after
    assert "retry_after" not in vars(error)


def test_retry_after_of_exactly_max_retry_after(world, remote, http_error, least_chance):
    """Section 6: 60 s still fits."""
    world.call(retry(2, wait=0, idempotent=True)(world.function(remote(http_error(429, Retry_After="60")))))
    assert [60] == waits(world)


def test_max_retry_after_of_the_policy(world, remote, http_error, least_chance):
    """Section 6: max_retry_after is the policy's."""
    provider = remote(http_error(429, Retry_After="61"))
    world.call(retry(2, wait=0, idempotent=True, max_retry_after=100)(world.function(provider)))
    assert [61] == waits(world)


def test_retry_after_that_does_not_fit_the_budget_fails_now(world, remote, http_error):
    """Section 6: if the wait does not fit the remaining budget: fail now."""
    provider = remote(then=http_error(429, Retry_After="20"))
    limit = timeout(10) if world.is_async else timeout(10, pass_as="key")
    world.fails(limit(retry(5, wait=0, idempotent=True)(world.function(provider))))

    assert 1 == provider.calls
    assert [] == waits(world)


def test_wait_that_does_not_fit_the_budget_fails_now(world, remote):
    """Section 6: also our own waits: the exception leaves at once, not the timeout."""
    provider = remote(then=ConnectionError)
    limit = timeout(10) if world.is_async else timeout(10, pass_as="key")
    failed = world.fails(limit(retry(5, wait=20, idempotent=True)(world.function(provider))))

    assert isinstance(failed, ConnectionError)
    assert 1 == provider.calls


def test_wait_is_clipped_to_outer_deadlines(registry, clock, remote):
    """Section 5: waits are clipped to the outer ones."""
    provider = remote(then=ConnectionError)

    @retry(5, wait=4, idempotent=True)
    def inner():
        provider()

    @timeout(10, pass_as="limit")
    def outer(limit=None):
        inner()

    with pytest.raises(ConnectionError):
        outer()
    assert 3 == provider.calls
    assert 8 == sum(clock.slept)


# ------------------------------------------------------------------------------------------ tenacity
STOPS = {
    "never": (lambda: tenacity.stop_never, 6),
    "after_attempt": (lambda: tenacity.stop_after_attempt(3), 3),
    "after_delay": (lambda: tenacity.stop_after_delay(5), 4),  # attempts at 0, 2, 4, 6
    "before_delay": (lambda: tenacity.stop_before_delay(5), 3),  # the next would be at 6
    "any": (lambda: tenacity.stop_any(tenacity.stop_after_attempt(4), tenacity.stop_after_delay(100)), 4),
    "all": (lambda: tenacity.stop_all(tenacity.stop_after_attempt(2), tenacity.stop_after_delay(3)), 3),
    "or": (lambda: tenacity.stop_after_attempt(4) | tenacity.stop_after_delay(3), 3),
    "and": (lambda: tenacity.stop_after_attempt(2) & tenacity.stop_after_delay(3), 3),
    "when_event_set": (lambda: tenacity.stop_when_event_set(__import__("threading").Event()), 6),
    "function": (lambda: lambda state: state.attempt_number >= 2, 2),
    "zero delay": (lambda: tenacity.stop_after_delay(0), 1),
}


@pytest.mark.parametrize("name", sorted(STOPS))
def test_every_tenacity_stop(world, remote, name):
    """Section 6: any tenacity stop object beside max_attempts; either ends it."""
    make, calls = STOPS[name]
    provider = remote(then=ConnectionError)
    world.fails(retry(6, wait=2, stop=make(), idempotent=True)(world.function(provider)))

    assert calls == provider.calls


def test_stop_when_event_set(world, remote):
    """Section 6: stop_when_event_set, set by the function."""
    import threading

    event = threading.Event()
    calls = []

    def body(arg):
        calls.append(1)
        if len(calls) == 2:
            event.set()
        raise ConnectionError

    world.fails(retry(6, wait=2, stop=tenacity.stop_when_event_set(event), idempotent=True)(world.function(body)))
    assert 2 == len(calls)


def test_max_attempts_ends_before_a_later_stop(world, remote):
    """Section 6: either ends it."""
    provider = remote(then=ConnectionError)
    world.fails(retry(2, wait=0, stop=tenacity.stop_after_attempt(9), idempotent=True)(world.function(provider)))
    assert 2 == provider.calls


WAITS = {
    "none": (lambda: tenacity.wait_none(), [0, 0, 0, 0]),
    "fixed": (lambda: tenacity.wait_fixed(3), [3, 3, 3, 3]),
    "incrementing": (lambda: tenacity.wait_incrementing(1, 2, 6), [1, 3, 5, 6]),
    "exponential": (lambda: tenacity.wait_exponential(multiplier=1, min=1, max=5), [1, 2, 4, 5]),
    "chain": (lambda: tenacity.wait_chain(*[tenacity.wait_fixed(n) for n in (1, 2)]), [1, 2, 2, 2]),
    "combine": (lambda: tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), [3, 3, 3, 3]),
    "plus": (lambda: tenacity.wait_fixed(1) + tenacity.wait_fixed(2), [3, 3, 3, 3]),
    "sum": (lambda: sum([tenacity.wait_fixed(1), tenacity.wait_fixed(2)]), [3, 3, 3, 3]),
    "exception": (
        lambda: tenacity.wait_exception(lambda exc: 4 if isinstance(exc, ConnectionError) else 1),
        [4, 4, 4, 4],
    ),
    "function": (lambda: lambda state: state.attempt_number, [1, 2, 3, 4]),
    "idle": (lambda: lambda state: state.idle_for + 1, [1, 2, 4, 8]),
    "since start": (lambda: lambda state: state.seconds_since_start + 1, [1, 2, 4, 8]),
    "timedelta": (lambda: tenacity.wait_fixed(__import__("datetime").timedelta(seconds=3)), [3, 3, 3, 3]),
}


@pytest.mark.parametrize("name", sorted(WAITS))
def test_every_steady_tenacity_wait(world, remote, name):
    """Section 6: any tenacity wait object may be given."""
    make, expected = WAITS[name]
    if name == "exception" and not hasattr(tenacity, "wait_exception"):
        pytest.skip("a later tenacity")
    world.fails(retry(5, wait=make(), idempotent=True)(world.function(remote(then=ConnectionError))))

    assert [seconds for seconds in expected if seconds] == waits(world)


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (lambda: tenacity.wait_random(1, 2), [1] * 4, [2] * 4),
        (lambda: tenacity.wait_random_exponential(multiplier=1, max=4), [0] * 4, [1, 2, 4, 4]),
        (lambda: tenacity.wait_full_jitter(multiplier=1, max=4), [0] * 4, [1, 2, 4, 4]),
        (lambda: tenacity.wait_exponential_jitter(initial=1, max=4, jitter=1), [1, 2, 4, 4], [2, 3, 4, 4]),
        (lambda: tenacity.wait_fixed(1) + tenacity.wait_random(0, 1), [1] * 4, [2] * 4),
    ],
    ids=["random", "random_exponential", "full_jitter", "exponential_jitter", "fixed+random"],
)
def test_every_random_tenacity_wait(world, remote, make, low, high):
    """Section 6: the random ones stay inside their bounds."""
    world.fails(retry(5, wait=make(), idempotent=True)(world.function(remote(then=ConnectionError))))
    slept = world.clock.slept

    assert 4 == len(slept)
    assert all(a <= wait <= b for a, wait, b in zip(low, slept, high, strict=True))


def test_wait_exception_of_a_result(world, remote):
    """Section 6: strategies that read `outcome` see a judged value as a result."""
    seen = []

    def wait(state):
        seen.append((state.outcome.failed, None if state.outcome.failed else state.outcome.result()))
        return 1

    provider = remote("bad", ConnectionError, "good")
    world.call(retry(3, wait=wait, idempotent=True)(breaker("api", classify_result=judged)(world.function(provider))))
    assert [(False, "bad"), (True, None)] == seen


def test_strategies_see_the_exception(world, remote):
    """Performance, retry on tenacity: the attributes they read."""
    seen = []
    error = ConnectionError()

    def stop(state):
        seen.append(
            (
                state.attempt_number,
                state.outcome.exception() is error,
                state.upcoming_sleep >= 0,
                state.seconds_since_start,
                state.idle_for,
            )
        )
        return False

    world.fails(retry(3, wait=2, stop=stop, idempotent=True)(world.function(remote(then=error))))
    assert [1, 2] == [row[0] for row in seen][:2]
    assert all(row[1] and row[2] for row in seen)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("what", ["wait", "stop"])
def test_strategies_know_when_the_first_attempt_began(registry, is_async, what):
    """Section 6: `seconds_since_start` has the first attempt in it, on the system's clock too."""
    seen = []

    def strategy(state):
        seen.append((state.seconds_since_start, time.monotonic() - state.start_time))
        return 0

    def slow():
        time.sleep(0.01)
        raise ConnectionError

    async def aslow():
        slow()

    guarded = retry(2, **{"wait": 0, what: strategy}, idempotent=True)(aslow if is_async else slow)
    with pytest.raises(ConnectionError):
        asyncio.run(guarded()) if is_async else guarded()

    assert 0.01 <= seen[0][0] <= seen[0][1] < 5


def test_strategies_count_on_the_clock_of_the_moment(registry, remote):
    """Section 6: a function decorated before a test clock was put in place asks that clock, from the first attempt on."""
    seen = []
    clock = ManualClock()
    guarded = retry(3, wait=lambda state: seen.append(state.seconds_since_start) or 2, idempotent=True)(
        remote(then=ConnectionError)
    )
    with use_clock(clock, registry), pytest.raises(ConnectionError):
        guarded()

    assert [0, 2] == seen


def test_strategy_that_raises(world, remote):
    """I20: a strategy of the user's that raises: it is no hang and no lost slot."""
    pool = world.registry.bulkhead("pool", BulkheadConfig(1))

    def wait(state):
        raise LookupError("strategy")

    failed = world.fails(
        bulkhead("pool")(retry(3, wait=wait, idempotent=True)(world.function(remote(then=ConnectionError))))
    )
    assert isinstance(failed, (LookupError, ConnectionError))
    assert 0 == pool.in_flight


@pytest.mark.parametrize("answer", [None, "soon", object(), []], ids=named)
def test_strategy_that_answers_no_number(world, remote, answer):
    """I20: a strategy that answers no number: its TypeError or the last exception, and nothing hangs."""
    failed = world.fails(
        retry(3, wait=lambda state: answer, idempotent=True)(world.function(remote(then=ConnectionError)))
    )
    assert isinstance(failed, (ConnectionError, ValueError, TypeError))


@pytest.mark.parametrize("answer", [-5, float("nan"), float("inf"), 10**400], ids=["-5", "nan", "inf", "10**400"])
def test_strategy_that_answers_an_impossible_number(world, remote, answer):
    """I20, section 6: a wait nobody can wait is none, or the end of the retry; the last real exception leaves."""
    failed = world.fails(
        retry(3, wait=lambda state: answer, idempotent=True)(world.function(remote(then=ConnectionError)))
    )
    assert isinstance(failed, ConnectionError)
    assert [] == waits(world)


def test_tenacity_try_again_is_a_control_exception(world):
    """Section 2: tenacity.TryAgain is no fault we know; it leaves as it is."""
    again = tenacity.TryAgain()

    def body(arg):
        raise again

    assert again is world.fails(retry(3, wait=0, idempotent=True)(world.function(body)))


def test_tenacity_retry_error_never_escapes(world, remote):
    """Section 6: tenacity.RetryError never escapes."""
    for policy in (retry(2, wait=tenacity.wait_none(), stop=tenacity.stop_after_attempt(2), idempotent=True),):
        assert isinstance(world.fails(policy(world.function(remote(then=ConnectionError)))), ConnectionError)


def test_tenacity_retry_error_of_the_function_is_unwrapped(world):
    """Section 2: wrappers are unwrapped: a RetryError around a ConnectionError is TRANSIENT; it leaves as it is."""
    calls = []

    @tenacity.retry(stop=tenacity.stop_after_attempt(1))
    def inner():
        calls.append(1)
        raise ConnectionError

    failed = world.fails(retry(3, wait=0, idempotent=True)(world.function(lambda arg: inner())))
    assert isinstance(failed, tenacity.RetryError)
    assert 3 == len(calls)


def test_whole_retrying_is_refused():
    """Design 2: a whole Retrying is not accepted."""
    from resilience import ConfigurationError

    for whole in (tenacity.Retrying(), tenacity.retry_if_exception_type(ValueError)):
        for field in ("wait", "stop"):
            try:
                retry(3, **{field: whole})
            except ConfigurationError as error:
                assert field in str(error)  # noqa: PT017
            else:
                # A callable that is no strategy can't be told from one; only Retrying can.
                assert not isinstance(whole, tenacity.Retrying)


# ------------------------------------------------------------------------------------------ rejections and nesting
def test_full_bulkhead_is_not_retried(world, remote):
    """Section 6: a full bulkhead is not retried by the same call."""
    provider = remote()
    pool = world.registry.bulkhead("pool", BulkheadConfig(1))
    fn = bulkhead("pool")(retry(5, wait=1, idempotent=True)(world.function(provider)))
    if world.is_async:

        async def outer(arg=None):
            return await fn()

    else:

        def outer(arg=None):
            return fn()

    assert isinstance(world.fails(bulkhead("pool")(outer)), BulkheadFullError)
    assert 0 == provider.calls
    assert [] == waits(world)
    assert 0 == pool.in_flight


def nested(env, provider, outer_attempts=3, inner_attempts=3, wait=0):
    inner = retry(inner_attempts, wait=wait, idempotent=True)(env.function(provider))
    if env.is_async:

        @retry(outer_attempts, wait=wait, idempotent=True)
        async def outer():
            return await inner()

    else:

        @retry(outer_attempts, wait=wait, idempotent=True)
        def outer():
            return inner()

    return outer


def test_nested_retries_add(env, remote):
    """I13, section 6: 3 inside 3 = 5 calls, not 9."""
    provider = remote(then=ConnectionError)
    env.fails(nested(env, provider))

    assert 5 == provider.calls


def test_nested_retry_says_so_once(env, remote, caplog):
    """Section 6: and says so once in the log."""
    caplog.set_level(logging.DEBUG, "resilience")
    provider = remote(then=ConnectionError)
    fn = nested(env, provider)
    for _ in range(3):
        env.fails(fn)

    said = [record for record in caplog.records if "retr" in record.getMessage().lower()]
    assert 1 == len(said), [record.getMessage() for record in said]


def test_nested_three_deep(env, remote):
    """I13: the mark reaches through."""
    provider = remote(then=ConnectionError)
    middle = nested(env, provider)
    if env.is_async:

        @retry(3, wait=0, idempotent=True)
        async def outer():
            return await middle()

    else:

        @retry(3, wait=0, idempotent=True)
        def outer():
            return middle()

    env.fails(outer)
    assert 7 == provider.calls


def test_mark_is_gone_after_the_outer_call(env, remote):
    """Section 6: only the recovery path sets the mark; the next call retries in full."""
    provider = remote(*[ConnectionError] * 5, ConnectionError, "ok", then="ok")
    inner = retry(3, wait=0, idempotent=True)(env.function(provider))
    if env.is_async:

        @retry(3, wait=0, idempotent=True)
        async def outer():
            return await inner()

    else:

        @retry(3, wait=0, idempotent=True)
        def outer():
            return inner()

    env.fails(outer)
    assert 5 == provider.calls
    assert "ok" == env.call(inner)
    assert 7 == provider.calls


def test_sibling_calls_in_the_first_attempt_retry_in_full(env, remote):
    """Section 6: during the second and later attempts only."""
    provider = remote(ConnectionError, ConnectionError, "ok")
    assert "ok" == env.call(nested(env, provider))
    assert 3 == provider.calls


def test_nested_retry_in_a_child_task(registry, clock, remote):
    """Section 6: the mark is a ContextVar: child tasks of a later attempt have it."""
    provider = remote(then=ConnectionError)

    @retry(3, wait=0, idempotent=True)
    async def inner():
        provider()

    @retry(3, wait=0, idempotent=True)
    async def outer():
        await asyncio.create_task(inner())

    with pytest.raises(ConnectionError):
        asyncio.run(outer())
    assert 5 == provider.calls


# ------------------------------------------------------------------------------------------ events
def test_retry_events(world, remote, events):
    """Section 12: retries are events where a sink asked for them."""
    world.fails(retry(3, wait=2, idempotent=True)(world.function(remote(then=ConnectionError))))
    scheduled = [(event.attempt, event.wait, event.kind) for event in events if isinstance(event, RetryScheduled)]

    assert [(1, 2.0, T), (2, 2.0, T)] == scheduled
    assert [(3, "attempts")] == [
        (event.attempts, event.reason) for event in events if isinstance(event, RetryExhausted)
    ]


@pytest.mark.parametrize("why", ["retry_after", "budget", "refused"])
def test_reasons_for_giving_up(world, remote, events, http_error, trips_at, why):
    """Section 12: reason is attempts, budget, retry_after, refused or nested."""
    provider = {
        "retry_after": remote(then=http_error(429, Retry_After="100")),
        "budget": remote(then=ConnectionError),
        "refused": remote(then=ConnectionError),
    }[why]
    fn = retry(5, wait=20, idempotent=True)(
        breaker("api", trips_at(1 if why == "refused" else 9))(world.function(provider))
    )
    if why == "budget":
        fn = (timeout(10) if world.is_async else timeout(10, pass_as="key"))(fn)
    world.fails(fn)

    assert [why] == [event.reason for event in events if isinstance(event, RetryExhausted)]


def test_attempt_timeout_then_success(registry, manual):
    """Section 6: per_attempt is TRANSIENT and retried; budget is not, whatever is left of attempts."""

    @timeout(5, per_attempt=5)
    @retry(3, wait=0, idempotent=True)
    async def fn():
        await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(fn())
        for _ in range(6):
            await asyncio.sleep(0)
        manual.advance(5)
        for _ in range(6):
            await asyncio.sleep(0)
        assert task.done()
        return task.exception()

    assert isinstance(asyncio.run(main()), TimeoutExceeded)


# ------------------------------------------------------------------------------------------ I13 as a property
@settings(max_examples=60)
@given(
    attempts=st.integers(1, 6),
    wait=st.sampled_from([0, 1, 3]),
    budget=st.sampled_from([None, 2, 5, 9]),
    took=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    hints=st.lists(st.sampled_from([None, 1, 4]), min_size=6, max_size=6),
)
def test_attempts_and_time_are_bounded(attempts, wait, budget, took, hints):
    """I13: attempts <= max; waits never run past the budget."""
    clock = ManualClock()
    registry = Registry(clock=clock)
    begun = []

    def call(limit=None):
        number = len(begun)
        begun.append(clock.monotonic())
        clock.advance(took[number])
        error = ConnectionError()
        error.status_code = 503
        error.headers = {"Retry-After": str(hints[number])} if hints[number] else {}
        raise error

    policies = [retry(attempts, wait=wait, idempotent=True), breaker("b", registry=registry)]
    if budget:
        policies.append(timeout(budget, pass_as="limit"))
    from resilience import use_registry

    with use_registry(registry):
        fn = compose(*policies)(call)
        with pytest.raises((ConnectionError, Exception)):
            fn()
    assert 1 <= len(begun) <= attempts
    if budget:
        assert all(at < budget for at in begun)
    for (first, second), hint, lasted in zip(itertools.pairwise(begun), hints, took, strict=False):
        assert second - first >= max(wait, hint or 0) + lasted - 1e-9


def test_decorating_with_the_mark(env, remote):
    """Section 3: @idempotent below is as good as the argument."""
    provider = remote(ConnectionError, "ok")
    fn = retry(2, wait=0)(idempotent(env.function(provider)))
    assert "ok" == env.call(fn)


def test_random_state_of_the_user_is_not_consumed(env, remote):
    """I10: jitter does not draw from the user's seeded global random numbers in a way that... at least never reseeds it."""
    random.seed(5)
    expected = random.Random(5).random()
    env.fails(retry(1, idempotent=True)(env.function(remote(then=ConnectionError))))
    assert expected == random.random()
