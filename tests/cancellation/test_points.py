"""Every public async operation, cancelled once and twice at every one of its await points (I4, I8, I10, I14, I15)."""

from __future__ import annotations

import itertools

import pytest

from resilience import CircuitState, FaultKind, OnOpen, OnReject, breaker, bulkhead, compose, retry, timeout

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN

SUBSETS = [
    "".join(parts)
    for parts in itertools.product(("", "B"), ("", "T", "P", "Q"), ("", "R", "W"), ("", "C", "A", "J"))
    if any(parts)
]
# One of each kind of wrapper: where every loop is gone through.
CHOSEN = ["B", "T", "C", "TC", "BTRC", "BPRC", "BTWC", "PA", "J"]
SCRIPTS = {
    "ok": ["ok"],
    "fail": ["fail"],
    "flaky": ["fail", "ok"],
    "hang": ["hang"],
    "fail then hang": ["fail", "hang"],
    "gate": ["gate"],
    "tidy": ["tidy"],
    "swallow": ["swallow"],
    "convert": ["convert"],
}


def thorough(subsets, step, always=()):
    """All of them in the long search, every few of them in the ordinary run."""
    return [
        pytest.param(subset, marks=() if number % step == 0 or subset in always else pytest.mark.proof)
        for number, subset in enumerate(subsets)
    ]


@pytest.mark.parametrize("subset", thorough(SUBSETS, 5))
def test_decorated(place, subset):
    """I4, I8, I14: a call with each subset of policies, cancelled at each suspension, before and after the wake-up."""
    with place(lambda world: world.function(subset), subset) as world:
        for script in SCRIPTS.values():
            world.sweep(script)


@pytest.mark.parametrize("subset", CHOSEN)
def test_decorated_on_every_loop(any_place, subset):
    """I4, I8, I14: the same on uvloop and with eager tasks."""
    with any_place(lambda world: world.function(subset), subset) as world:
        for script in ("flaky", "hang", "tidy"):
            world.sweep(SCRIPTS[script])


@pytest.mark.parametrize("subset", thorough([subset for subset in SUBSETS if set(subset) & set("CAJ")], 7))
def test_probe(place, subset):
    """I1, I4, I15: a half-open breaker's probe, cancelled at each suspension: released, and the next may go at once."""
    with place(lambda world: world.function(subset), subset, state=HALF_OPEN) as world:
        for script in ("ok", "fail", "hang", "tidy"):
            world.sweep(SCRIPTS[script])


@pytest.mark.parametrize("subset", ["T", "Q", "TC", "BPRC", "BTRC", "BTWA", "J"])
def test_in_the_cleanup_of_a_cancelled_task(place, subset):
    """I10, I14: a task with a pending cancel makes a call: that cancel is neither taken back nor taken for ours."""
    with place(lambda world: world.function(subset), subset) as world:
        for script, pending in itertools.product(("ok", "fail", "hang", "tidy"), (1, 2)):
            world.sweep(SCRIPTS[script], pending=pending)


@pytest.mark.parametrize("subset", ["T", "Q", "TC", "BPRC", "BTRC", "BTWA", "J"])
def test_in_a_task_that_has_just_cancelled_itself(any_place, subset):
    """I14: a cancel that is still to be delivered when the call begins comes out of its first await, also past an expiry."""
    with any_place(lambda world: world.function(subset), subset, owing=True) as world:
        for script, acts in itertools.product(("ok", "hang", "tidy"), (("expire",), ("cancel",), ("lapse", "cancel"))):
            world.sweep(SCRIPTS[script], acts)


@pytest.mark.parametrize("subset", thorough(SUBSETS, 9, CHOSEN))
def test_task_group_in_the_body(place, subset):
    """I14: a body with a task group, which cancels and uncancels by itself."""
    with place(lambda world: world.function(subset), subset) as world:
        world.sweep(["group"], modes=("next", "late"))


# ---------------------------------------------------------------------------------------------- twice
@pytest.mark.parametrize("subset", thorough(SUBSETS, 9, CHOSEN))
def test_second_cancel_while_the_first_unwinds(place, subset):
    """I14: a second cancel at each await of the clean-up that the first has set off."""
    with place(lambda world: world.function(subset), subset) as world:
        assert world.sweep_twice(SCRIPTS["tidy"])


@pytest.mark.parametrize("subset", thorough(SUBSETS, 9, CHOSEN))
def test_second_cancel_at_the_same_point(place, subset):
    """I14: two cancels in one tick, and in two that follow each other: both are owed to whoever asked."""
    with place(lambda world: world.function(subset), subset) as world:
        for script in ("ok", "flaky", "hang", "tidy"):
            world.sweep(SCRIPTS[script], ("cancel", "cancel"))
            world.sweep(SCRIPTS[script], ("cancel", "turn", "cancel"))


# ---------------------------------------------------------------------------------------------- guards and other ways
def guarded(world):
    async def call():
        async with world.shared.guard():
            return await world.provider()

    return call


def guarded_by_with(world):
    async def call():
        with breaker("api").guard():
            return await world.provider()

    return call


def guarded_twice(world):
    async def call():
        async with world.shared.guard(), breaker("api").guard():
            return await world.provider()

    return call


def guarded_in_except(world):
    async def call():
        try:
            raise LookupError
        except LookupError:
            async with world.shared.guard():
                return await world.provider()

    return call


def guarded_and_judged(world):
    ref = breaker("api", classify_result=lambda value: FaultKind.TRANSIENT if value == "bad" else None)

    async def call():
        async with ref.guard() as permit:
            assert permit
            return await world.provider()

    return call


def guarded_under_a_deadline(world):
    @timeout(20)
    async def call():
        async with world.shared.guard():
            return await world.provider()

    return call


def guarded_while_retried(world):
    @compose(retry(3, wait=0, idempotent=True), timeout(20))
    async def call():
        async with world.shared.guard():
            return await world.provider()

    return call


def acall(world):
    return lambda: world.shared.acall(world.provider)


def call_of_a_coroutine_function(world):
    async def fn():
        return await world.provider()

    return lambda: world.shared.call(fn)


def composed_acall(world):
    policies = compose(bulkhead("pool", wait=5), timeout(20), retry(3, wait=0, idempotent=True), breaker("api"))

    async def fn():
        return await world.provider()

    return lambda: policies.acall(fn)


BLOCKS = [
    guarded,
    guarded_by_with,
    guarded_twice,
    guarded_in_except,
    guarded_and_judged,
    guarded_under_a_deadline,
    guarded_while_retried,
    acall,
    call_of_a_coroutine_function,
    composed_acall,
]
TIMED = (guarded_under_a_deadline, guarded_while_retried, composed_acall)


def named(make):
    return make.__name__


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("make", BLOCKS, ids=named)
def test_guards_and_single_calls(any_place, make, state):
    """I4, I15: `guard()` in all its forms, `acall`, `call` of a coroutine function, `compose(...).acall`."""
    # Two blocks of one breaker count what both see, but one exception only once.
    counts = make is not guarded_twice
    with any_place(make, counts=counts, state=state, lazily=int(make in TIMED)) as world:
        for script in ("ok", "fail", "flaky", "hang", "tidy"):
            world.sweep(SCRIPTS[script])
        world.sweep_twice(SCRIPTS["tidy"])


@pytest.mark.parametrize("make", [guarded, guarded_under_a_deadline], ids=named)
def test_bypassed_guard(any_place, make):
    """Section 4: a refused block is not entered, and a cancel at its only point leaves nothing either."""
    with any_place(make, state=OPEN, lazily=1) as world:
        quiet = world.sweep(SCRIPTS["ok"])
        assert 0 == world.provider.began
        assert "CircuitOpenError" == quiet.error.__name__


def with_a_slot(world):
    async def call():
        async with bulkhead("pool", wait=5).guard():
            return await world.provider()

    return call


def with_a_limit(world):
    async def call():
        async with timeout(20).guard():
            return await world.provider()

    return call


def with_a_limit_inside_a_limit(world):
    async def call():
        async with timeout(100).guard(), timeout(20).guard():
            return await world.provider()

    return call


def with_attempts(world):
    async def call():
        async for attempt in retry(3, wait=0):
            with attempt:
                return await world.provider()
        raise AssertionError("a block that returns ends the loop")

    return call


def with_attempts_and_waits(world):
    async def call():
        async for attempt in retry(3, wait=7):
            async with attempt:
                return await world.provider()
        raise AssertionError("a block that returns ends the loop")

    return call


def with_everything(world):
    async def call():
        async with bulkhead("pool", wait=5).guard(), timeout(20).guard():
            async for attempt in retry(3, wait=7):
                with attempt:
                    async with breaker("api").guard():
                        return await world.provider()
        raise AssertionError("a block that returns ends the loop")

    return call


def with_blocks_in_the_plan(world):
    inner = with_everything(world)

    @compose(retry(2, wait=0, idempotent=True), timeout(100))
    async def call():
        return await inner()

    return call


NEW_BLOCKS = [
    with_a_slot,
    with_a_limit,
    with_a_limit_inside_a_limit,
    with_attempts,
    with_attempts_and_waits,
    with_everything,
    with_blocks_in_the_plan,
]


@pytest.mark.parametrize("make", NEW_BLOCKS, ids=named)
def test_blocks(any_place, make):
    """I4, I8, I14: slots, limits and attempts around a block, cancelled at each suspension, once and twice."""
    counts = make in (with_everything, with_blocks_in_the_plan)
    with any_place(make, counts=counts, lazily=int(make is with_blocks_in_the_plan)) as world:
        for script in SCRIPTS.values():
            world.sweep(script)
        world.sweep_twice(SCRIPTS["tidy"])
        for pending in (1, 2):
            world.sweep(SCRIPTS["hang"], pending=pending)
        world.sweep(SCRIPTS["tidy"], ("expire",))
        world.sweep(SCRIPTS["hang"], ("expire", "cancel"))
        world.sweep(SCRIPTS["hang"], ("cancel", "expire"))


@pytest.mark.parametrize("make", [with_a_slot, with_everything], ids=named)
@pytest.mark.parametrize("acts", [("cancel",), ("grant", "cancel"), ("cancel", "grant")], ids="-".join)
def test_entering_a_block_that_waits_in_line(any_place, make, acts):
    """I8: a cancel while the block stands in line, before and after it was granted a slot: nobody loses one."""
    with any_place(make, in_line=True) as world:
        for script in ("ok", "hang"):
            world.sweep(SCRIPTS[script], acts)


@pytest.mark.parametrize("make", [with_a_limit, with_everything], ids=named)
def test_a_block_in_a_task_that_has_just_cancelled_itself(any_place, make):
    """I14: a cancel that is still to be delivered when the block is entered comes out of its first await."""
    with any_place(make, owing=True) as world:
        for script, acts in itertools.product(("ok", "hang", "tidy"), (("expire",), ("cancel",), ("expire", "cancel"))):
            world.sweep(SCRIPTS[script], acts)


# ---------------------------------------------------------------------------------------------- fallbacks and conditions
def open_with_fallback(world):
    async def fallback():
        return await world.provider()

    @breaker("api", on_open=OnOpen.BYPASS, fallback=fallback)
    async def call():
        raise AssertionError("the circuit is open")

    return call


def full_with_fallback(world):
    async def fallback():
        return await world.provider()

    @bulkhead("pool", wait=5, on_reject=OnReject.BYPASS, fallback=fallback)
    @timeout(3)
    async def call():
        return await world.provider()

    return call


def conditional(world):
    async def unless():
        await world.provider()
        return False

    @breaker("api", unless=unless)
    @bulkhead("pool", wait=5)
    @timeout(20)
    async def call():
        return await world.provider()

    return call


@pytest.mark.parametrize("script", ["ok", "hang", "tidy"])
def test_fallback_of_an_open_circuit(any_place, script):
    """I4: an async fallback for an open circuit, cancelled at each of its awaits."""
    with any_place(open_with_fallback, state=OPEN) as world:
        world.sweep(SCRIPTS[script])
        world.sweep_twice(SCRIPTS[script])


@pytest.mark.parametrize("script", ["ok", "hang", "tidy"])
def test_fallback_of_a_full_bulkhead(any_place, script):
    """I4, I8: a call whose wait in line ends by its budget, and the async fallback after it, cancelled at each await."""
    with any_place(full_with_fallback, in_line=True, lazily=1) as world:
        quiet = world.once(SCRIPTS["ok"], (1, "next", ("expire",)))
        assert (1, "ok") == (world.provider.began, quiet.result), "the fallback has answered"
        for number in range(1, quiet.reached + 1):
            plan = [(1, "next", ("expire",)), (number, "late" if number == 1 else "next", ("cancel",))]
            world.once(SCRIPTS[script], *plan)


@pytest.mark.parametrize("script", ["ok", "hang", "fail"])
def test_async_condition(any_place, script):
    """I4: `unless=` as a coroutine function: its awaits are points of the call as well."""
    with any_place(conditional) as world:
        world.sweep(SCRIPTS[script])


# ---------------------------------------------------------------------------------------------- nested sites
def nested_sites(world):
    inner = world.function("BTRC")

    @compose(timeout(100), retry(2, wait=0, idempotent=True), breaker("api"))
    async def outer():
        return await inner()

    return outer


def nested_scopes(world):
    inner = world.function("T")

    @timeout(20)
    async def outer():
        return await inner()

    return outer


def recursion(world):
    depth = 0

    @timeout(20)
    async def call():
        nonlocal depth
        depth += 1
        try:
            return await (world.provider() if depth > 2 else call())
        finally:
            depth -= 1

    return call


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("make", [nested_sites, nested_scopes, recursion], ids=named)
def test_nested(any_place, make, state):
    """I10, I13: sites and scopes inside each other: marks, deadlines and pending cancels come back as they were."""
    with any_place(make, state=state, lazily=2) as world:
        for script in SCRIPTS.values():
            world.sweep(script)
        world.sweep_twice(SCRIPTS["tidy"])
