"""Contract section 3: the fixed order, the door, refusals, bypasses."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    CompositionWarning,
    ConfigurationError,
    Consecutive,
    OnOpen,
    OnReject,
    RejectedError,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    describe,
    idempotent,
    interruptible,
    retry,
    timeout,
    uninterruptible,
)

OPEN_NOTE = "retry stopped: circuit "


def hold(registry, name, slots=1):
    """Register a bulkhead of `slots` and fill it from a thread; returns what lets go."""
    registry.bulkhead(name, BulkheadConfig(slots))
    inside, leave = threading.Barrier(slots + 1), threading.Event()

    @bulkhead(name)
    def occupy():
        inside.wait(5)
        leave.wait(5)

    threads = [threading.Thread(target=occupy) for _ in range(slots)]
    for thread in threads:
        thread.start()
    inside.wait(5)

    def let_go():
        leave.set()
        for thread in threads:
            thread.join(5)

    return let_go


# ------------------------------------------------------------------------------------------ the door
def test_open_circuit_wins_over_a_full_bulkhead(env):
    """Section 3: the door is asked before the bulkhead, so an open circuit is what the caller hears of."""
    let_go = hold(env.registry, "pool")
    fn = bulkhead("pool")(breaker("api", BreakerConfig())(env.function(lambda arg: arg)))
    env.registry.get("api").force_open("drill")
    try:
        assert isinstance(env.fails(fn), CircuitOpenError)
    finally:
        let_go()


def test_half_open_without_a_free_probe_is_answered_at_the_door(env, trips_at):
    """Section 3: HALF_OPEN with its probe out is refused before the bulkhead is looked at."""
    shared = env.registry.breaker("api", trips_at(1))
    shared.on_failure(shared.try_acquire(), ConnectionError())
    env.advance(30)
    probe = shared.try_acquire()
    let_go = hold(env.registry, "pool")
    fn = bulkhead("pool")(breaker("api")(env.function(lambda arg: arg)))
    try:
        assert isinstance(env.fails(fn), CircuitOpenError)
    finally:
        let_go()
        shared.release(probe)


def test_cooled_circuit_lets_the_bulkhead_speak(env, trips_at):
    """Section 3: a cooled circuit may be tried, so a full bulkhead refuses, and the probe is not taken."""
    shared = env.registry.breaker("api", trips_at(1))
    shared.on_failure(shared.try_acquire(), ConnectionError())
    env.advance(30)
    let_go = hold(env.registry, "pool")
    fn = bulkhead("pool")(breaker("api")(env.function(lambda arg: arg)))
    try:
        assert isinstance(env.fails(fn), BulkheadFullError)
        assert 0 == shared.status().probes_started
    finally:
        let_go()


def test_refusal_at_the_door_takes_no_slot(env):
    """Section 3: answered at the door means no slot and no line."""
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))
    fn = bulkhead("pool")(breaker("api", BreakerConfig())(env.function(lambda arg: arg)))
    env.registry.get("api").force_open("drill")
    for _ in range(5):
        env.fails(fn)
    env.registry.get("api").enable()

    assert 0 == pool.in_flight
    assert "x" == env.call(fn, "x")


def test_full_bulkhead_never_counts_against_the_breaker(env, trips_at):
    """Section 7: our own refusal says nothing about the remote."""
    let_go = hold(env.registry, "pool")
    fn = bulkhead("pool")(breaker("api", trips_at(1))(env.function(lambda arg: arg)))
    try:
        env.fails(fn)
        assert CircuitState.CLOSED is env.registry.get("api").state
        assert 0 == env.registry.get("api").status().failures_total
    finally:
        let_go()


# ------------------------------------------------------------------------------------------ the order
def test_breaker_sees_every_attempt(env, remote, trips_at):
    """Section 3: account="attempt" counts each attempt of a retry."""
    provider = remote(then=ConnectionError)
    fn = retry(3, wait=0, idempotent=True)(breaker("api", trips_at(10))(env.function(provider)))
    env.fails(fn)

    assert 3 == env.registry.get("api").status().failure_count


@pytest.mark.parametrize("stacking", list(itertools.permutations(range(4))), ids=lambda order: "".join(map(str, order)))
def test_every_stacking_is_one_order(env, remote, trips_at, stacking):
    """Section 3: all 24 stackings give one wrapper with the policies sorted."""
    limit = timeout(30) if env.is_async else timeout(30, pass_as="key")
    policies = [
        bulkhead("pool", max_in_flight=1),
        limit,
        retry(3, wait=0, idempotent=True),
        breaker("api", trips_at(9)),
    ]
    provider = remote(ConnectionError, ConnectionError, "ok")
    fn = env.function(provider)
    for index in stacking:
        fn = policies[index](fn)

    assert "ok" == env.call(fn)
    described = str(describe(fn))
    places = [described.index(word) for word in ("bulkhead", "timeout", "retry", "breaker")]
    assert sorted(places) == places
    assert 2 == env.registry.get("api").status().failures_total


@pytest.mark.parametrize(
    "make",
    [
        lambda: breaker("a", BreakerConfig()),
        lambda: bulkhead(max_in_flight=1),
        lambda: retry(2, idempotent=True),
        lambda: timeout(1),
    ],
    ids=["breaker", "bulkhead", "retry", "timeout"],
)
def test_two_of_a_kind_are_refused(registry, make):
    """Section 3: two policies of one kind on one function are refused when decorated."""

    async def fn():
        return None

    once = make()(fn)
    with pytest.raises(ConfigurationError):
        make()(once)


def test_foreign_decorator_that_splits_ours_is_warned_about(registry):
    """Section 3: a foreign decorator between ours is found through __wrapped__ and warned about."""

    @bulkhead(max_in_flight=1)
    def fn():
        return None

    @functools.wraps(fn)
    def foreign(*args, **kwargs):
        return fn(*args, **kwargs)

    with pytest.warns(CompositionWarning):
        breaker("api", BreakerConfig())(foreign)


def test_foreign_decorator_that_keeps_the_order_is_not_warned_about(registry):
    """Section 3: only what breaks the order is warned about; retry around breaker is the order."""

    @breaker("api", BreakerConfig())
    def fn():
        return None

    @functools.wraps(fn)
    def foreign(*args, **kwargs):
        return fn(*args, **kwargs)

    assert retry(2, idempotent=True)(foreign)() is None


def test_foreign_wrapper_is_not_taken_for_ours(registry):
    """Section 3: functools.wraps copies our attributes; the copy is still foreign, and is called."""
    seen = []

    @retry(2, wait=0, idempotent=True)
    def fn():
        return "in"

    @functools.wraps(fn)
    def foreign():
        seen.append("foreign")
        return fn()

    with pytest.warns(CompositionWarning):
        outer = breaker("api", BreakerConfig())(foreign)
    assert "in" == outer()
    assert ["foreign"] == seen


@pytest.mark.parametrize("mark", [idempotent, interruptible, uninterruptible], ids=lambda mark: mark.__name__)
def test_mark_above_a_policy_is_refused(registry, mark):
    """Section 3: a mark put above one of our wrappers says to move it down."""
    if mark is uninterruptible:

        @breaker("api", BreakerConfig())
        async def fn():
            return None

    else:

        @breaker("api", BreakerConfig())
        def fn():
            return None

    with pytest.raises(ConfigurationError, match=r"(?i)below|down|under"):
        mark(fn)


def test_missing_idempotence_names_both_cures(registry):
    """Section 3: a policy that misses a mark names the mark below it and the argument."""

    def fn():
        return None

    with pytest.raises(ConfigurationError) as refused:
        retry(2)(fn)
    assert "@idempotent" in str(refused.value)
    assert "idempotent=True" in str(refused.value)


def test_missing_interruptibility_names_both_cures(registry):
    """Section 3: a timeout on a plain def names @interruptible and pass_as."""

    def fn():
        return None

    with pytest.raises(ConfigurationError) as refused:
        timeout(1)(fn)
    assert "@interruptible" in str(refused.value)
    assert "pass_as" in str(refused.value)


def test_idempotent_mark_below_a_foreign_decorator_holds(registry, remote):
    """Section 3: a mark stands next to the function."""
    provider = remote(ConnectionError, "ok")

    @retry(2, wait=0)
    @idempotent
    def fn():
        return provider()

    assert "ok" == fn()


# ------------------------------------------------------------------------------------------ refusals and retry
def test_refusal_ends_the_retry_at_once(env, remote, trips_at):
    """Section 3: no retry is ever sent to an open circuit."""
    provider = remote(then=ConnectionError)
    fn = retry(9, wait=0, idempotent=True)(breaker("api", trips_at(3))(env.function(provider)))
    env.fails(fn)

    assert 3 == provider.calls


def test_refusal_during_a_retry_lets_the_last_real_exception_leave(env, remote, trips_at):
    """Section 3: once something was sent, the last real exception leaves, the very object."""
    last = ConnectionError("second")
    provider = remote(ConnectionError("first"), last)
    fn = retry(9, wait=0, idempotent=True)(breaker("api", trips_at(2))(env.function(provider)))

    assert last is env.fails(fn)


def test_refusal_during_a_retry_leaves_the_note(env, remote, trips_at):
    """Section 3: the note says which circuit is open and for how long."""
    provider = remote(then=ConnectionError)
    fn = retry(9, wait=0, idempotent=True)(breaker("api", trips_at(2, cooldown=30))(env.function(provider)))
    notes = env.fails(fn).__notes__

    assert ["retry stopped: circuit api is open, 30 s left"] == notes


def test_refusal_before_the_first_attempt_is_the_outcome(env, remote, trips_at):
    """Section 3: where nothing was sent the refusal leaves, without a note."""
    provider = remote()
    fn = retry(9, wait=0, idempotent=True)(breaker("api", trips_at(1))(env.function(provider)))
    env.registry.get("api").force_open("drill", seconds=12)
    refusal = env.fails(fn)

    assert isinstance(refusal, CircuitOpenError)
    assert 12 == refusal.retry_after
    assert not hasattr(refusal, "__notes__")
    assert 0 == provider.calls


def test_bypass_does_not_apply_once_something_was_sent(env, remote, trips_at):
    """Section 3: BYPASS answers refusals, not failures of an attempt that ran."""
    provider = remote(then=ConnectionError)
    site = breaker("api", trips_at(2), on_open=OnOpen.BYPASS, fallback="spare")
    fn = retry(9, wait=0, idempotent=True)(site(env.function(provider)))

    assert isinstance(env.fails(fn), ConnectionError)
    assert "spare" == env.call(fn)


def test_circuit_opened_by_others_during_the_wait_ends_the_retry(world, remote, trips_at):
    """Section 3: the permit is asked for before each attempt."""
    provider = remote(then=ConnectionError)

    def body(arg):
        world.registry.get("api").force_open("drill", seconds=7)
        return provider(arg)

    fn = retry(5, wait=2, idempotent=True)(breaker("api", trips_at(9))(world.function(body)))
    failed = world.fails(fn)

    assert 1 == provider.calls
    assert isinstance(failed, ConnectionError)
    assert OPEN_NOTE in failed.__notes__[0]


def test_result_judged_a_fault_leaves_when_the_circuit_opens(env, remote, trips_at, http_error):
    """Sections 3 and 6: if the last outcome was a value judged a fault, that value leaves."""
    from resilience import FaultKind

    provider = remote(then="bad")
    site = breaker("api", trips_at(2), classify_result=lambda v: FaultKind.TRANSIENT if v == "bad" else None)
    fn = retry(9, wait=0, idempotent=True)(site(env.function(provider)))

    assert "bad" == env.call(fn)
    assert 2 == provider.calls
    assert CircuitState.OPEN is env.registry.get("api").state


def test_inner_refusal_is_retried_by_nobody_of_its_own_call(env, remote, trips_at):
    """Section 6: rejections are not retried by the same call; a foreign one is a TRANSIENT fault that may be."""
    inner_remote = remote()
    inner = breaker("inner", trips_at(1))(env.function(inner_remote))
    env.registry.get("inner").force_open("drill")
    calls = []
    if env.is_async:

        async def outer():
            calls.append(1)
            return await inner()

    else:

        def outer():
            calls.append(1)
            return inner()

    fn = retry(3, wait=0, idempotent=True)(breaker("outer", trips_at(1))(outer))

    assert isinstance(env.fails(fn), CircuitOpenError)
    assert 3 == len(calls)
    assert CircuitState.CLOSED is env.registry.get("outer").state


# ------------------------------------------------------------------------------------------ bypass and fallback
def test_bypass_returns_the_fallback_value(env, remote):
    """Section 4: BYPASS skips the call and returns the site's fallback."""
    provider = remote()
    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback={"n": 1})(env.function(provider))
    env.registry.get("api").force_open("drill")

    assert {"n": 1} == env.call(fn)
    assert 0 == provider.calls


def test_bypass_without_fallback_returns_none(env, remote):
    """Section 4: None by default."""
    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS)(env.function(remote()))
    env.registry.get("api").force_open("drill")

    assert env.call(fn) is None


def test_fallback_function_gets_the_same_arguments(env, remote):
    """Section 4: a fallback function is called with the arguments of the call."""
    fn = breaker(
        "api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=lambda arg=None, *, key=None: ("spare", arg, key)
    )(env.function(remote()))
    env.registry.get("api").force_open("drill")

    assert ("spare", 7, "k") == env.call(fn, 7, key="k")


def test_async_fallback_is_awaited(registry, remote):
    """Section 4: an async function takes an async fallback."""

    async def spare(arg):
        await asyncio.sleep(0)
        return ("spare", arg)

    @breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=spare)
    async def fn(arg):
        return arg

    registry.get("api").force_open("drill")
    assert ("spare", 3) == asyncio.run(fn(3))


def test_fallback_that_raises_is_the_outcome(env, remote):
    """Section 4: what the fallback raises leaves as it is."""
    oops = LookupError("no spare")

    def spare(arg=None, *, key=None):
        raise oops

    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=spare)(env.function(remote()))
    env.registry.get("api").force_open("drill")

    assert oops is env.fails(fn)


def test_fallback_without_bypass_is_refused(registry):
    """Section 3: fallback= without BYPASS can't mean anything."""
    with pytest.raises(ConfigurationError, match="fallback"):
        breaker("api", BreakerConfig(), fallback=1)
    with pytest.raises(ConfigurationError, match="fallback"):
        bulkhead("pool", max_in_flight=1, fallback=1)


def test_fallback_none_without_bypass_is_fine(registry):
    """Section 3: None is the default."""
    assert breaker("api", BreakerConfig(), fallback=None).name == "api"


def test_bulkhead_bypass_returns_its_own_fallback(env, remote):
    """Section 3: a fallback answers only the refusal of its own policy."""
    let_go = hold(env.registry, "pool")
    provider = remote()
    fn = bulkhead("pool", on_reject=OnReject.BYPASS, fallback="from bulkhead")(
        breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback="from breaker")(env.function(provider))
    )
    try:
        assert "from bulkhead" == env.call(fn)
    finally:
        let_go()
    env.registry.get("api").force_open("drill")
    assert "from breaker" == env.call(fn)
    assert 0 == provider.calls


def test_fallback_does_not_answer_an_inner_refusal_of_another_name(env):
    """Section 3: a CircuitOpenError that the function raised is no refusal of this site."""
    foreign = CircuitOpenError("other", 3.0)

    def body(arg):
        raise foreign

    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback="spare")(env.function(body))

    assert foreign is env.fails(fn)


def test_fallback_does_not_answer_an_inner_refusal_of_the_same_name(env):
    """Section 3: told by identity, not by name."""
    foreign = CircuitOpenError("api", 3.0)

    def body(arg):
        raise foreign

    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback="spare")(env.function(body))

    assert foreign is env.fails(fn)


def test_bulkhead_fallback_does_not_answer_an_inner_bulkhead(env):
    """Section 3: the same for bulkheads."""
    foreign = BulkheadFullError("pool")

    def body(arg):
        raise foreign

    fn = bulkhead("pool", max_in_flight=1, on_reject=OnReject.BYPASS, fallback="spare")(env.function(body))

    assert foreign is env.fails(fn)


def test_bypass_is_counted(env, remote):
    """Section 4: nothing degrades silently."""
    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS)(env.function(remote()))
    env.registry.get("api").force_open("drill")
    env.call(fn)
    env.call(fn)

    assert 2 == env.registry.get("api").status().bypassed_total


def test_reaction_is_the_call_sites_own(env, remote):
    """Section 4: on_open is per call site."""
    soft = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback="spare")(env.function(remote()))
    hard = breaker("api")(env.function(remote()))
    env.registry.get("api").force_open("drill")

    assert "spare" == env.call(soft)
    assert isinstance(env.fails(hard), CircuitOpenError)


def test_every_refusal_is_a_fresh_object(env, remote):
    """Section 10: a fresh object per raise."""
    fn = breaker("api", BreakerConfig())(env.function(remote()))
    env.registry.get("api").force_open("drill")

    assert env.fails(fn) is not env.fails(fn)


# ------------------------------------------------------------------------------------------ probe, account, unless
def _opened(env, trips_at, name="api", **settings):
    shared = env.registry.breaker(name, trips_at(1, **settings))
    shared.on_failure(shared.try_acquire(), ConnectionError())
    return shared


def test_probe_is_exactly_one_attempt(env, remote, trips_at):
    """Section 3: a failed probe is not retried."""
    shared = _opened(env, trips_at)
    env.advance(30)
    provider = remote(then=ConnectionError)
    fn = retry(5, wait=0, idempotent=True)(breaker("api")(env.function(provider)))

    assert isinstance(env.fails(fn), ConnectionError)
    assert 1 == provider.calls
    assert CircuitState.OPEN is shared.state


def test_failed_probe_is_not_retried_even_where_the_cooldown_would_pass(world, remote, trips_at):
    """Section 3: while HALF_OPEN a probe is exactly one attempt, however long the wait would be."""
    _opened(world, trips_at)
    world.advance(30)
    provider = remote(then=ConnectionError)
    fn = retry(5, wait=60, idempotent=True)(breaker("api")(world.function(provider)))
    world.fails(fn)

    assert 1 == provider.calls


def test_neutral_probe_is_not_retried_either(env, remote, trips_at):
    """Section 3: while HALF_OPEN a probe is exactly one attempt."""
    from resilience import Fault, FaultFlag, FaultKind

    _opened(env, trips_at)
    env.advance(30)
    provider = remote(then=ConnectionError)
    local = Fault(FaultKind.TRANSIENT, {FaultFlag.LOCAL})
    fn = retry(5, wait=0, idempotent=True)(breaker("api", classify=lambda exc: local)(env.function(provider)))
    env.fails(fn)

    assert 1 == provider.calls


def test_successful_probe_closes(env, remote, trips_at):
    """Section 4: one success after the cooldown closes."""
    shared = _opened(env, trips_at)
    env.advance(30)
    fn = retry(5, wait=0, idempotent=True)(breaker("api")(env.function(remote())))

    assert "ok" == env.call(fn)
    assert CircuitState.CLOSED is shared.state


def test_retry_wait_that_outlasts_the_cooldown_does_not_probe(world, remote, trips_at):
    """Section 3: a retry that finds the circuit cooled takes the probe as one attempt: its failure ends the call."""
    provider = remote(then=ConnectionError)
    fn = retry(5, wait=60, idempotent=True)(breaker("api", trips_at(1, cooldown=30))(world.function(provider)))
    world.fails(fn)

    assert provider.calls <= 2


def test_account_call_counts_an_exhausted_retry_once(env, remote, trips_at):
    """Section 3: account="call" settles once with the call's outcome."""
    provider = remote(then=ConnectionError)
    fn = retry(3, wait=0, idempotent=True)(breaker("api", trips_at(9), account="call")(env.function(provider)))
    env.fails(fn)

    assert 3 == provider.calls
    assert 1 == env.registry.get("api").status().failures_total


def test_account_call_counts_a_recovered_call_as_success(env, remote, trips_at):
    """Section 3: the call's outcome is what counts."""
    provider = remote(ConnectionError, ConnectionError, "ok")
    fn = retry(3, wait=0, idempotent=True)(breaker("api", trips_at(1), account="call")(env.function(provider)))

    assert "ok" == env.call(fn)
    status = env.registry.get("api").status()
    assert (0, 1, CircuitState.CLOSED) == (status.failures_total, status.successes_total, status.state)


def test_account_call_trips_after_n_calls(env, remote, trips_at):
    """Section 3: N failed calls trip, not N attempts."""
    provider = remote(then=ConnectionError)
    fn = retry(3, wait=0, idempotent=True)(breaker("api", trips_at(2), account="call")(env.function(provider)))
    env.fails(fn)
    assert CircuitState.CLOSED is env.registry.get("api").state
    env.fails(fn)
    assert CircuitState.OPEN is env.registry.get("api").state
    assert 6 == provider.calls


def test_account_call_probe_settles_once(env, remote, trips_at):
    """Sections 3 and I15: a probe under account="call" starts and ends once."""
    shared = _opened(env, trips_at)
    env.advance(30)
    fn = retry(3, wait=0, idempotent=True)(breaker("api", account="call")(env.function(remote())))

    assert "ok" == env.call(fn)
    status = shared.status()
    assert (1, 1, 0, 0) == (
        status.probes_started,
        status.probes_succeeded,
        status.probes_failed,
        status.probes_released,
    )
    assert CircuitState.CLOSED is status.state


def test_account_call_refusal_during_retry_keeps_the_failure(world, remote, trips_at):
    """Section 3: a retry stopped by an opening still settles the call's outcome once (late: metric only)."""
    provider = remote(then=ConnectionError)

    def body(arg):
        world.registry.get("api").force_open("drill", seconds=5)
        return provider(arg)

    fn = retry(3, wait=0, idempotent=True)(breaker("api", trips_at(9), account="call")(world.function(body)))

    assert isinstance(world.fails(fn), ConnectionError)
    assert 1 == provider.calls


def test_account_call_without_retry_counts_each_call(env, remote, trips_at):
    """Section 3: without a retry both accounts are the same."""
    fn = breaker("api", trips_at(2), account="call")(env.function(remote(then=ConnectionError)))
    env.fails(fn)
    env.fails(fn)

    assert CircuitState.OPEN is env.registry.get("api").state


def test_account_call_budget_expiry_counts_once(manual, registry, trips_at):
    """Sections 3 and 5: a hung provider under account="call" and a budget counts one failure."""

    @timeout(10)
    @retry(3, wait=0, idempotent=True)
    @breaker("api", trips_at(5), account="call")
    async def hang():
        await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(hang())
        for _ in range(5):
            await asyncio.sleep(0)
        manual.advance(10)
        with pytest.raises(TimeoutExceeded):
            await task

    asyncio.run(main())
    assert 1 == registry.get("api").status().failures_total


def test_unless_neither_asks_nor_feeds(env, remote, trips_at):
    """Section 4: such a call passes an open breaker and its failure is not counted."""
    provider = remote(then=ConnectionError)
    fn = breaker("api", trips_at(1), unless=lambda arg=None, *, key=None: key is not None)(env.function(provider))
    env.fails(fn, key="mine")
    assert CircuitState.CLOSED is env.registry.get("api").state
    assert 0 == env.registry.get("api").status().failures_total
    env.registry.get("api").force_open("drill")
    assert isinstance(env.fails(fn, key="mine"), ConnectionError)
    assert isinstance(env.fails(fn), CircuitOpenError)


def test_unless_success_does_not_reset_the_streak(env, remote, trips_at):
    """Section 4: it does not feed the breaker in either direction."""
    provider = remote(ConnectionError, "ok", ConnectionError)
    fn = breaker("api", trips_at(2), unless=lambda arg=None, *, key=None: key is not None)(env.function(provider))
    env.fails(fn)
    env.call(fn, key="mine")
    env.fails(fn)

    assert CircuitState.OPEN is env.registry.get("api").state


def test_unless_does_not_take_a_probe(env, remote, trips_at):
    """Section 4: it does not ask, so the cooled circuit stays as it is."""
    shared = _opened(env, trips_at)
    env.advance(30)
    fn = breaker("api", unless=lambda arg=None, *, key=None: True)(env.function(remote()))
    env.call(fn)

    assert 0 == shared.status().probes_started
    assert CircuitState.OPEN is shared.state


def test_unless_applies_the_other_policies(env, remote, trips_at):
    """Section 4: unless concerns the breaker alone; the retry still works."""
    provider = remote(ConnectionError, "ok")
    fn = retry(2, wait=0, idempotent=True)(
        breaker("api", trips_at(1), unless=lambda arg=None, *, key=None: True)(env.function(provider))
    )

    assert "ok" == env.call(fn)
    assert 2 == provider.calls


# ------------------------------------------------------------------------------------------ I13
def test_retry_takes_one_slot_for_all_attempts(env, remote):
    """Section 3: the bulkhead is outermost."""
    in_flight = []
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))
    provider = remote(ConnectionError, ConnectionError, "ok")

    def body(arg):
        in_flight.append(pool.in_flight)
        return provider(arg)

    fn = bulkhead("pool")(retry(3, wait=0, idempotent=True)(env.function(body)))
    env.call(fn)

    assert [1, 1, 1] == in_flight
    assert 0 == pool.in_flight


def test_compose_call_gives_the_same_protection(registry, clock, remote, trips_at):
    """Design 1: compose(...).call runs one call under the policies."""
    provider = remote(ConnectionError, "ok")
    careful = compose(retry(2, wait=0, idempotent=True), breaker("api", trips_at(9)))

    assert "ok" == careful.call(provider, 1)
    assert 1 == registry.get("api").status().failures_total


def test_compose_acall_gives_the_same_protection(registry, clock, remote, trips_at):
    """Design 1: compose(...).acall likewise."""
    provider = remote(ConnectionError, "ok")

    async def fn(arg):
        return provider(arg)

    careful = compose(retry(2, wait=0, idempotent=True), breaker("api", trips_at(9)))

    assert "ok" == asyncio.run(careful.acall(fn, 1))
    assert 1 == registry.get("api").status().failures_total


def test_compose_calls_share_an_unnamed_bulkhead(registry, remote):
    """Section 7: a policy set is one thing; its own bulkhead caps all of its calls."""
    careful = compose(bulkhead(max_in_flight=1))

    def outer():
        return careful.call(lambda: "inner")

    with pytest.raises(BulkheadFullError):
        careful.call(outer)


def test_rejected_error_means_nothing_was_sent(env, remote, trips_at):
    """Section 3: over many calls, a RejectedError never comes from a call that reached the provider."""
    provider = remote(then=ConnectionError)
    fn = retry(4, wait=0, idempotent=True)(breaker("api", trips_at(3, cooldown=10))(env.function(provider)))
    for _ in range(30):
        before = provider.calls
        failed = env.fails(fn)
        assert isinstance(failed, RejectedError) == (provider.calls == before)
        env.advance(3)


def test_wrong_arguments_fail_before_the_breaker_sees_anything(env, remote, trips_at):
    """Performance, traps: a wrong argument list is a TypeError that no policy counts."""
    shared = _opened(env, trips_at)
    env.advance(30)
    fn = bulkhead("pool", max_in_flight=1)(breaker("api")(env.function(remote())))
    with pytest.raises(TypeError):
        env.call(fn, 1, 2, 3)

    assert 0 == shared.status().probes_started
    assert 0 == env.registry.get_bulkhead("pool").in_flight


def test_consecutive_default_config_is_used_for_a_reference(env, remote):
    """Section 9: a reference without a config resolves to the defaults at its first call."""
    fn = breaker("late")(env.function(remote(then=ConnectionError)))
    assert env.registry.get("late") is None
    for _ in range(5):
        env.fails(fn)

    assert BreakerConfig(Consecutive(5)) == env.registry.get("late").config
    assert CircuitState.OPEN is env.registry.get("late").state
