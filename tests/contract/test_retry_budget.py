"""Contract section 6 and I13: a retry budget per named downstream, shared by its call sites."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
import threading

import pytest
from forking import in_child, needs_fork
from hypothesis import given, settings
from hypothesis import strategies as st

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    ConfigurationError,
    Consecutive,
    FailureRate,
    Registry,
    RetryBudget,
    breaker,
    bulkhead,
    compose,
    describe,
    detached,
    interruptible,
    retry,
    timeout,
    use_registry,
)
from resilience._core.events import RetryExhausted, RetryScheduled
from resilience.testing import ManualClock, use_clock


def figures(registry, name="api"):
    status = registry.retry_budget(name).status()
    return status.calls, status.retries, status.left


def nothing_more(name="api"):
    return f"retry stopped: retry budget {name} is exhausted"


# ---------------------------------------------------------------------------------------------- what it bounds
def test_the_floor(env, remote):
    """Section 6: `min_per_second * window` retries, however few the calls."""
    fn = retry(9, wait=0, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.3))(
        env.function(provider := remote(then=ConnectionError))
    )
    failed = env.fails(fn)

    assert (4, [nothing_more()]) == (provider.calls, failed.__notes__)
    assert (1, 3, 0) == figures(env.registry)


def test_the_share_of_the_calls(env, remote):
    """Section 6: 20 % of calls: ten calls that all fail make two retries."""
    fn = retry(2, wait=0, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0))(
        env.function(provider := remote(then=ConnectionError))
    )
    for _ in range(10):
        env.fails(fn)

    assert 12 == provider.calls
    assert (10, 2, 0) == figures(env.registry)


def test_healthy_calls_earn_retries(env, remote):
    """Section 6: every first attempt counts, once."""
    provider = remote(*["ok"] * 10, ConnectionError, ConnectionError, ConnectionError, then="ok")
    fn = retry(9, wait=0, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0))(env.function(provider))
    for _ in range(10):
        env.call(fn)

    assert (10, 0, 2) == figures(env.registry)
    assert [nothing_more()] == env.fails(fn).__notes__
    assert (11, 2, 0) == figures(env.registry)


def test_it_comes_back_with_time(env, remote):
    """Section 6: a rolling window."""
    fn = retry(2, wait=0, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.1))(
        env.function(provider := remote(then=ConnectionError))
    )
    env.fails(fn)
    env.fails(fn)
    env.advance(10)
    env.fails(fn)

    assert 5 == provider.calls


def test_the_last_real_exception_leaves(env, remote):
    """Section 6: unchanged, the very object, with a note."""
    errors = [ConnectionError(str(number)) for number in range(3)]
    fn = retry(9, wait=0, idempotent=True, retry_budget=RetryBudget(min_per_second=0.2))(env.function(remote(*errors)))
    assert errors[2] is env.fails(fn)
    assert [nothing_more(describe(fn).name)] == errors[2].__notes__


def test_events(world, remote, events):
    """Section 12: a retry that the budget stops is exhausted for that reason."""
    fn = retry(9, wait=2, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.1))(
        world.function(remote(then=ConnectionError))
    )
    world.fails(fn)
    seen = [event for event in events if isinstance(event, (RetryScheduled, RetryExhausted))]

    assert [("RetryScheduled", 1, None), ("RetryExhausted", None, "retry_budget")] == [
        (type(event).__name__, getattr(event, "attempt", None), getattr(event, "reason", None)) for event in seen
    ]
    assert 2 == seen[1].attempts


# ---------------------------------------------------------------------------------------------- what counts as a call
def test_refused_at_the_door(env, remote, trips_at):
    """A call that an open circuit refuses is none."""
    fn = retry(1, idempotent=True, retry_budget=RetryBudget("api"))(
        breaker("api", trips_at(1))(env.function(remote(then=ConnectionError)))
    )
    env.fails(fn)
    assert isinstance(env.fails(fn), CircuitOpenError)

    assert (1, 0) == figures(env.registry)[:2]


def test_refused_by_a_full_bulkhead(env, remote):
    """A call that finds no slot is none."""
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))
    fn = bulkhead("pool")(retry(2, idempotent=True, retry_budget=RetryBudget("api"))(env.function(remote())))
    slot = pool.take()
    assert isinstance(env.fails(fn), BulkheadFullError)
    pool.give(slot)
    env.call(fn)

    assert (1, 0) == figures(env.registry)[:2]


def test_refused_by_a_half_open_circuit(registry, clock, remote, trips_at):
    """A call that comes in while the probe is out is none, a probe is one."""
    refused = []

    def probe():
        with pytest.raises(CircuitOpenError):
            detached_call()
        refused.append(figures(registry)[0])
        return "ok"

    fn = retry(1, idempotent=True, retry_budget=RetryBudget("api", window=100))(
        breaker("api", trips_at(1))(remote(ConnectionError, probe, "never"))
    )

    def detached_call():
        with detached():
            fn()

    with pytest.raises(ConnectionError):
        fn()
    clock.advance(30)
    fn()

    assert [2] == refused
    assert (2, 0) == figures(registry)[:2]


def test_the_permit_is_refused_after_the_door(registry, clock, remote, trips_at):
    """The circuit opens between the door and the attempt: no call."""
    fn = timeout(9, pass_as="key")(
        retry(3, idempotent=True, retry_budget=RetryBudget("api"))(
            breaker("api", trips_at(1), unless=lambda **_: registry.get("api").force_open("now"))(
                lambda key=None: "never"
            )
        )
    )
    with pytest.raises(CircuitOpenError):
        fn()

    assert (0, 0) == figures(registry)[:2]


def test_all_workers_busy(registry):
    """No worker, nothing sent: no call."""
    begun, go_on = threading.Event(), threading.Event()

    @timeout(30)
    @retry(2, idempotent=True, retry_budget=RetryBudget("api"))
    @interruptible(max_workers=1)
    def fn():
        begun.set()
        go_on.wait(10)

    other = threading.Thread(target=fn)
    other.start()
    begun.wait(10)
    with pytest.raises(BulkheadFullError):
        fn()
    go_on.set()
    other.join()

    assert (1, 0) == figures(registry)[:2]


def test_a_cancelled_call(registry):
    """It had begun, so it counts."""

    @retry(2, idempotent=True, retry_budget=RetryBudget("api"))
    async def fn():
        await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(fn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert (1, 0) == figures(registry)[:2]


@pytest.mark.parametrize("path", ["straight", "plan"])
def test_a_function_that_returns_an_awaitable(registry, remote, path):
    """One call, counted when the function is called; what is awaited again are retries."""
    provider = remote(ConnectionError, "ok")

    @retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("api"))
    def fn():
        async def answer():
            return provider()

        return answer()

    async def main():
        return await fn()

    if path == "plan":
        with use_clock(ManualClock(), registry):
            assert "ok" == asyncio.run(main())
            assert (1, 1) == figures(registry)[:2]
    else:
        assert "ok" == asyncio.run(main())
        assert (1, 1) == figures(registry)[:2]


def test_wrong_arguments_are_no_call(env, remote):
    """The wrapper's own signature refuses them."""
    fn = retry(2, idempotent=True, retry_budget=RetryBudget("api"))(env.function(remote()))
    assert isinstance(env.fails(fn, 1, 2, 3), TypeError)

    assert (0, 0) == figures(env.registry)[:2]


# ---------------------------------------------------------------------------------------------- every sort of site
@pytest.mark.parametrize("trip", [Consecutive(5), FailureRate()], ids=["streak", "window"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_with_the_other_policies(env, remote, trip, limited, timed):
    """Whatever stands around it: two calls, one retry."""
    policies = [
        retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("api")),
        breaker("api", BreakerConfig(trip)),
    ]
    if limited:
        policies.append(bulkhead("pool", max_in_flight=2))
    if timed:
        policies.append(timeout(30) if env.is_async else timeout(30, pass_as="key"))
    fn = compose(*policies)(env.function(remote("ok", ConnectionError, "ok")))
    env.call(fn)
    env.call(fn)

    assert (2, 1) == figures(env.registry)[:2]


def test_on_workers(registry, remote):
    """A plain function under a timeout."""
    provider = remote("ok", ConnectionError, "ok")

    @timeout(30)
    @retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("api"))
    @interruptible
    def fn():
        return provider()

    fn()
    fn()

    assert (2, 1) == figures(registry)[:2]


STREAMS = ["generator", "async generator", "opening", "async opening", "opening in a task"]


@pytest.mark.parametrize("path", ["straight", "plan"])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream(registry, remote, kind, path):
    """Section 8: one call, however many items; it is begun anew before the first of them only, which is a retry."""
    provider = remote(ConnectionError, 1)
    policy = retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("api"), stream="opening" in kind)

    async def items():
        yield provider()
        yield 2

    if kind == "generator":

        @policy
        def stream():
            yield provider()
            yield 2

    elif kind == "async generator":
        stream = policy(items)
    elif kind == "opening":

        @policy
        def stream():
            return iter([provider(), 2])

    elif kind == "async opening":

        @policy
        async def stream():
            return items()

    else:

        @policy
        def stream():
            return items()

    async def collect():
        opened = stream()
        return [item async for item in (await opened if kind == "async opening" else opened)]

    def run():
        assert [1, 2] == (list(stream()) if kind in STREAMS[::2][:2] else asyncio.run(collect()))
        assert (1, 1) == figures(registry)[:2]

    if path == "plan":
        with use_clock(ManualClock(), registry):
            run()
    else:
        run()


def test_a_policy_set(env, remote):
    """All its functions share the one that has no name."""
    careful = compose(retry(2, wait=0, idempotent=True, retry_budget=RetryBudget(min_per_second=0.1)))
    first, second = remote(then=ConnectionError), remote(then=ConnectionError)
    for provider in (first, second):
        body = env.function(provider)
        run = careful.acall if env.is_async else careful.call
        assert isinstance(env.fails(run, body), ConnectionError)

    assert (2, 1) == (first.calls, second.calls)


# ---------------------------------------------------------------------------------------------- names
def test_shared_by_name(env, remote):
    """Section 6: per named downstream: two call sites, one budget."""
    budget = RetryBudget("api", min_per_second=0.1)
    first, second = remote(then=ConnectionError), remote(then=ConnectionError)
    for provider in (first, second):
        env.fails(retry(2, wait=0, idempotent=True, retry_budget=budget)(env.function(provider)))

    assert (2, 1) == (first.calls, second.calls)


def test_without_a_name_it_is_the_call_sites_own(env, remote):
    """Two sites with equal settings share nothing."""
    policy = retry(2, wait=0, idempotent=True, retry_budget=RetryBudget(min_per_second=0.1))
    first, second = remote(then=ConnectionError), remote(then=ConnectionError)
    for provider in (first, second):
        env.fails(policy(env.function(provider)))

    assert (2, 2) == (first.calls, second.calls)
    assert None is env.registry.get_retry_budget(describe(policy(env.function(first))).name)


def test_a_name_refers_to_a_registered_one(env, remote):
    """A plain name, registered before."""
    env.registry.retry_budget("api", RetryBudget(min_per_second=0.1))
    fn = retry(9, wait=0, idempotent=True, retry_budget="api")(env.function(provider := remote(then=ConnectionError)))
    env.fails(fn)

    assert 2 == provider.calls


def test_a_name_that_is_registered_later(env, remote):
    """Section 9, as for breakers: a reference registers nothing, it resolves at its first call."""
    fn = retry(9, wait=0, idempotent=True, retry_budget="api")(env.function(provider := remote(then=ConnectionError)))
    assert None is env.registry.get_retry_budget("api")
    env.registry.retry_budget("api", RetryBudget(min_per_second=0.1))
    env.fails(fn)
    env.fails(fn)

    assert (2 + 1, (2, 1, 0)) == (provider.calls, figures(env.registry))


def test_a_name_that_nobody_registers(env, remote):
    """Section 9, as for breakers: the defaults, from the first call on."""
    fn = retry(2, idempotent=True, retry_budget="api")(env.function(remote()))
    env.call(fn)
    env.call(fn)

    assert RetryBudget("api") == env.registry.get_retry_budget("api").config
    assert (2, 0) == figures(env.registry)[:2]


def test_a_name_beside_a_breaker_that_is_not_known_either(env, remote):
    """Both are found at the first call, and the straight path is taken from then on."""
    fn = retry(2, wait=0, idempotent=True, retry_budget="api")(
        breaker("api")(env.function(remote("ok", ConnectionError, "ok", "ok")))
    )
    for _ in range(3):
        env.call(fn)

    assert (3, 1) == figures(env.registry)[:2]


def test_first_registration_wins(registry, caplog):
    """Section 9: a different setting changes nothing and is told in one warning, field by field."""
    caplog.set_level(logging.WARNING, "resilience")
    first = registry.retry_budget("api", RetryBudget(ratio=0.1))
    for _ in range(2):
        assert first is registry.retry_budget("api", RetryBudget(ratio=0.5, window=5))

    assert RetryBudget("api", ratio=0.1) == first.config
    (record,) = caplog.records
    assert "'api' is registered already" in record.getMessage()
    assert "ratio: 0.1, not 0.5; window: 10.0, not 5.0" in record.getMessage()


def test_equal_settings_are_no_conflict(registry, caplog):
    """With or without the name in them, by reference too."""
    caplog.set_level(logging.WARNING, "resilience")
    registry.retry_budget("api", RetryBudget("api"))
    registry.retry_budget("api", RetryBudget())
    registry.retry_budget("api")

    assert [] == caplog.records


def test_strict_raises_instead(registry):
    """Section 9."""
    strict = Registry(strict=True)
    strict.retry_budget("api", RetryBudget(ratio=0.1))
    with pytest.raises(ConfigurationError, match="'api' is registered already with ratio: 0.1, not 0.2"):
        strict.retry_budget("api", RetryBudget())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a b",), "name must be a str of 1 to 256 bytes"),
        (("api", 0.2), "config must be a RetryBudget or None, got 0.2"),
        (("api", RetryBudget("other")), "config must be a RetryBudget without a name, or of the name 'api', got "),
    ],
)
def test_mistakes_at_the_registry(registry, arguments, text):
    """Named, and nothing is registered."""
    with pytest.raises(ConfigurationError, match=text):
        registry.retry_budget(*arguments)

    assert None is registry.get_retry_budget("api")


def test_registered_where_the_word_is_written(registry):
    """As for breakers: `retry(...)` registers it, and tells of a conflict, before anything is decorated."""
    retry(2, retry_budget=RetryBudget("api", ratio=0.1))
    assert 0.1 == registry.retry_budget("api").config.ratio


def test_it_lives_where_its_call_site_does(registry, remote):
    """The registry of the breaker beside it."""
    other = Registry()
    fn = compose(
        retry(2, idempotent=True, retry_budget=RetryBudget("api")), breaker("api", BreakerConfig(), registry=other)
    )(remote())
    fn()

    assert (1, 0) == figures(other)[:2]


def test_registering_from_many_threads_gives_one_budget(registry):
    """I19: whoever comes first."""
    start, found = threading.Barrier(8), []

    def register():
        start.wait()
        found.append(registry.retry_budget("api"))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [found[0]] * 8 == found


def test_clear_state(registry, clock, remote):
    """For the next test: named ones and those without a name start over."""
    fns = [
        retry(2, wait=0, idempotent=True, retry_budget=RetryBudget(name, min_per_second=0.1))(
            remote(then=ConnectionError)
        )
        for name in ("api", None)
    ]
    for _ in range(2):
        for fn in fns:
            with pytest.raises(ConnectionError) as caught:
                fn()
            assert "retry gave up after 2 attempts" in caught.value.__notes__
        registry.clear_state()


@needs_fork
def test_a_forked_child(registry, remote):
    """I19: it starts with nothing counted and nothing spent."""
    fn = retry(2, wait=0, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.1))(
        remote(then=ConnectionError)
    )
    with pytest.raises(ConnectionError):
        fn()

    def check():
        assert (0, 0, 1) == figures(registry)
        with pytest.raises(ConnectionError, match="scripted"):
            fn()
        assert (1, 1, 0) == figures(registry)

    assert "ok" == in_child(check)
    assert (1, 1, 0) == figures(registry)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("budget", ["api", RetryBudget("api", ratio=0.5), RetryBudget(window=5)])
def test_a_policy_travels_with_its_budget(registry, budget, protocol):
    """I19: by name and settings."""
    policy = retry(2, retry_budget=budget)

    assert policy == pickle.loads(pickle.dumps(policy, protocol))
    assert hash(policy) == hash(pickle.loads(pickle.dumps(policy, protocol)))


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (None, ""),
        ("api", ", retry_budget=api"),
        (RetryBudget("api"), ", retry_budget=api(0.2 of calls + 1/s in 10 s)"),
        (RetryBudget(ratio=0.5, min_per_second=0), ", retry_budget=own(0.5 of calls + 0/s in 10 s)"),
    ],
)
def test_describe_tells_it(registry, budget, text):
    """Section 3: all settings."""
    fn = retry(2, idempotent=True, retry_budget=budget)(len)

    assert str(describe(fn)).endswith(f"max_retry_after=60 s{text}")


def test_describe_finds_it(env, remote):
    """Its status, with or without a name; a name that nobody has registered gets the defaults."""
    own = retry(2, wait=0, idempotent=True, retry_budget=RetryBudget())(env.function(remote(ConnectionError, "ok")))
    named = retry(2, wait=0, idempotent=True, retry_budget="api")(env.function(remote()))
    without = retry(2, idempotent=True)(env.function(remote()))
    env.call(own)
    status = describe(own).retry_budget.status()

    assert (describe(own).name, 1, 1, 9) == (status.name, status.calls, status.retries, status.left)
    assert env.registry.retry_budget("api") is describe(named).retry_budget
    assert None is describe(without).retry_budget
    assert None is describe(breaker("api")(env.function(remote()))).retry_budget


# ---------------------------------------------------------------------------------------------- nested
def test_outer_and_inner_spend_from_one(env, remote):
    """I13: nested retries add, and all of them are in the budget: five attempts are four retries."""
    provider = remote(then=ConnectionError)
    budget = RetryBudget("api", min_per_second=9)
    inner = retry(3, wait=0, idempotent=True, retry_budget=budget)(env.function(provider))
    if env.is_async:

        async def around():
            return await inner()

    else:

        def around():
            return inner()

    env.fails(retry(3, wait=0, idempotent=True, retry_budget=budget)(around))

    assert 5 == provider.calls
    assert 4 == figures(env.registry)[1]


def test_what_the_inner_retry_has_spent_the_outer_has_not(env, remote):
    """I13: one budget for both."""
    provider = remote(then=ConnectionError)
    budget = RetryBudget("api", ratio=0.1, min_per_second=0.3)
    inner = retry(3, wait=0, idempotent=True, retry_budget=budget)(env.function(provider))
    if env.is_async:

        async def around():
            return await inner()

    else:

        def around():
            return inner()

    failed = env.fails(retry(9, wait=0, idempotent=True, retry_budget=budget)(around))

    assert 4 == provider.calls
    assert nothing_more() in failed.__notes__


# ---------------------------------------------------------------------------------------------- from anywhere
def test_in_the_middle_of_a_circuits_change(registry, remote, trips_at):
    """I9: a finaliser that comes in under a circuit's lock may call, count and repeat: nothing is waited for there."""
    provider = remote(then=ConnectionError)
    fn = retry(3, wait=0, idempotent=True, retry_budget=RetryBudget("api"))(provider.__call__)
    seen = []

    class Interrupted(ManualClock):
        """Asked for the time in the middle of a change, as a finaliser comes in anywhere."""

        def time_ns(self):
            other = registry.get("other")
            if other is not None and other.busy and not seen:
                seen.append(None)
                with pytest.raises(ConnectionError):
                    fn()
            return super().time_ns()

    with use_clock(Interrupted(), registry):
        with pytest.raises(ConnectionError):
            breaker("other", trips_at(1))(remote(then=ConnectionError).__call__)()
        assert (1, 2) == figures(registry)[:2]

    assert ([None], 3) == (seen, provider.calls)


def test_a_retry_that_is_cancelled_while_it_waits(registry, remote):
    """It was scheduled, so it is spent; nothing stays behind that would keep others out."""
    fn = retry(3, wait=60, idempotent=True, retry_budget=RetryBudget("api", min_per_second=0.2))

    @fn
    async def call():
        raise ConnectionError

    async def main():
        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert (1, 1, 1) == figures(registry)


def test_a_retry_that_finds_the_circuit_open_after_its_wait(registry, clock, remote, trips_at):
    """It had been scheduled: what is spent is not given back, though nothing was sent."""
    provider = remote(then=ConnectionError)
    fn = compose(
        retry(3, wait=5, idempotent=True, retry_budget=RetryBudget("api", window=100)), breaker("api", trips_at(9))
    )(provider.__call__)
    advance = clock.advance

    def open_meanwhile(seconds):
        registry.get("api").force_open("maintenance")
        advance(seconds)

    clock.advance = open_meanwhile
    with pytest.raises(ConnectionError) as caught:
        fn()

    assert ["retry stopped: circuit api is open"] == caught.value.__notes__
    assert (1, (1, 1)) == (provider.calls, figures(registry)[:2])


# ---------------------------------------------------------------------------------------------- many at once
def test_threads_never_overspend(registry, remote):
    """I13: an outage met by many threads at once makes exactly the retries there are, and each call counts."""
    calls = []
    budget = RetryBudget("api", ratio=0.2, min_per_second=0.5)

    @retry(4, wait=0, idempotent=True, retry_budget=budget)
    def fn():
        calls.append(None)
        raise ConnectionError

    def work():
        for _ in range(25):
            with pytest.raises(ConnectionError):
                fn()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    status = registry.retry_budget("api").status()

    assert 200 == status.calls
    assert len(calls) - 200 == status.retries == budget.allowed(200) == 45


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 0.4, 3, 11])), max_size=40),
    attempts=st.integers(1, 5),
    floor=st.sampled_from([0, 0.1, 0.5]),
)
def test_retries_are_within_the_budget(steps, attempts, floor):
    """I13: retries ≤ retry budget, in every window that ends with a retry, whatever fails when."""
    clock = ManualClock(100.0)
    made = []
    script = []

    def body():
        made.append(clock.monotonic())
        if script and script.pop():
            raise ConnectionError

    begun = []
    with use_registry(Registry(clock)):
        fn = retry(attempts, wait=0, idempotent=True, retry_budget=RetryBudget(min_per_second=floor))(body)
        for failures, pause in steps:
            first = len(made)
            script[:] = [False] + [True] * failures
            try:
                fn()
            except ConnectionError:
                pass
            begun.append(first)
            clock.advance(pause)
    calls = [made[number] for number in begun]
    retries = [at for number, at in enumerate(made) if number not in begun]
    for number, at in enumerate(retries):
        earlier = sum(at - other < 10 for other in retries[: number + 1])
        assert earlier <= 0.2 * sum(0 <= at - other < 10 for other in calls) + floor * 10 + 1e-9
