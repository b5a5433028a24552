"""Contract section 4, "Nested call sites of one breaker"."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import (
    CircuitOpenError,
    CircuitState,
    FaultKind,
    OnOpen,
    breaker,
    detached,
    retry,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


def nest(env, outer_body, inner_body, name="api"):
    """An outer and an inner call site of one breaker; outer_body(inner) is a generator-free plain function."""
    inner = breaker(name)(env.function(inner_body))
    if env.is_async:

        async def outer(arg=None):
            return await outer_body(inner)

    else:

        def outer(arg=None):
            return outer_body(inner)

    return breaker(name)(outer)


@pytest.fixture
def cooled(env, trips_at):
    """A cooled open circuit named api."""
    circuit = env.registry.breaker("api", trips_at(1, cooldown=30))
    circuit.on_failure(circuit.try_acquire(), DOWN)
    env.advance(30)
    return circuit


def test_call_inside_a_probe_shares_it(env, cooled):
    """Section 4: it is admitted, asks nothing and records nothing."""
    fn = nest(env, lambda inner: inner("x"), lambda arg: arg)

    assert "x" == env.call(fn)
    assert CLOSED is cooled.state
    assert (1, 1) == (cooled.status().probes_started, cooled.status().probes_succeeded)


def test_failure_inside_a_probe_counts_once(env, cooled):
    """Section 4: the outer probe's failure opens again, once."""
    error = ConnectionError()

    def body(arg):
        raise error

    fn = nest(env, lambda inner: inner("x"), body)
    assert error is env.fails(fn)
    status = cooled.status()
    assert (OPEN, 1, 1, 0) == (status.state, status.probes_started, status.probes_failed, status.late_results)


def test_inner_failure_swallowed_inside_a_probe_records_nothing(env, cooled):
    """Section 4: the probe's outcome is the outer call's."""

    def body(arg):
        raise ConnectionError

    if env.is_async:

        async def outer_body(inner):
            try:
                await inner()
            except ConnectionError:
                return "survived"

    else:

        def outer_body(inner):
            try:
                inner()
            except ConnectionError:
                return "survived"

    assert "survived" == env.call(nest(env, outer_body, body))
    assert CLOSED is cooled.state


def test_is_open_inside_a_probe(env, cooled):
    """Section 4: others are refused while the probe is out."""
    seen = []

    def body(arg):
        seen.append(cooled.is_open())
        refused = []

        def other():
            try:
                cooled.try_acquire()
            except CircuitOpenError:
                refused.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(5)
        seen.append(refused)
        return "x"

    env.call(breaker("api")(env.function(body)))
    assert [True] == seen[1]


def test_guard_inside_a_probe_shares_it(env, cooled):
    """Section 4: a block as well."""

    def body(arg):
        with cooled.guard() as permit:
            assert permit
        return "x"

    assert "x" == env.call(breaker("api")(env.function(body)))
    assert (1, 1, CLOSED) == (cooled.status().probes_started, cooled.status().probes_succeeded, cooled.state)


def test_decorated_call_inside_a_probing_guard(registry, clock, trips_at):
    """Section 4: and a call inside a probing block."""
    ref = breaker("api", trips_at(1, cooldown=30))
    ref.breaker.on_failure(ref.breaker.try_acquire(), DOWN)
    clock.advance(30)
    fn = ref(lambda: "x")
    with ref.guard():
        assert "x" == fn()
    assert (1, 1) == (ref.status().probes_started, ref.status().probes_succeeded)
    assert CLOSED is ref.state


def test_retry_inside_a_probe_of_the_same_breaker_is_one_attempt(env, cooled, remote):
    """Section 3: a probe is exactly one attempt; an inner retry inside it may not multiply it... of its own breaker."""
    provider = remote(then=ConnectionError)
    inner = retry(3, wait=0, idempotent=True)(breaker("api")(env.function(provider)))
    if env.is_async:

        async def outer():
            return await inner()

    else:

        def outer():
            return inner()

    env.fails(breaker("api")(outer))
    assert 1 == provider.calls


def test_bypass_site_inside_a_probe_is_admitted(env, cooled):
    """Section 4: an inner BYPASS site inside the probe runs."""
    inner = breaker("api", on_open=OnOpen.BYPASS, fallback="spare")(env.function(lambda arg: "real"))
    if env.is_async:

        async def outer():
            return await inner()

    else:

        def outer():
            return inner()

    assert "real" == env.call(breaker("api")(outer))


def test_mark_is_gone_after_the_probe(env, cooled):
    """Section 4: set only while a probe is out."""

    def body(arg):
        raise ConnectionError

    fn = breaker("api")(env.function(body))
    env.fails(fn)
    assert isinstance(env.fails(fn), CircuitOpenError)
    with pytest.raises(CircuitOpenError):
        cooled.try_acquire()


def test_detached_sheds_the_probe_mark(env, cooled):
    """Section 5: detached() sheds probe marks: inside it the call asks for itself, and is refused."""
    inner = breaker("api")(env.function(lambda arg: "x"))
    if env.is_async:

        async def outer():
            with detached():
                return await inner()

    else:

        def outer():
            with detached():
                return inner()

    assert isinstance(env.fails(breaker("api")(outer)), CircuitOpenError)


def test_inner_call_of_another_breaker_asks_for_itself(env, cooled, trips_at):
    """Section 4: the mark belongs to one breaker."""
    env.registry.breaker("other", trips_at(1)).force_open("drill")
    inner = breaker("other")(env.function(lambda arg: "x"))
    if env.is_async:

        async def outer():
            return await inner()

    else:

        def outer():
            return inner()

    assert isinstance(env.fails(breaker("api")(outer)), CircuitOpenError)


def test_probes_of_two_breakers_nested(env, cooled, trips_at):
    """Section 4: probes of two breakers at once: each mark is found below the other."""
    other = env.registry.breaker("other", trips_at(1, cooldown=30))
    other.on_failure(other.try_acquire(), DOWN)
    env.advance(30)
    seen = []
    innermost = breaker("api")(env.function(lambda arg: seen.append("ran") or "x"))
    if env.is_async:

        @breaker("other")
        async def middle():
            return await innermost()

        async def outer():
            return await middle()

    else:

        @breaker("other")
        def middle():
            return innermost()

        def outer():
            return middle()

    assert "x" == env.call(breaker("api")(outer))
    assert (CLOSED, CLOSED) == (cooled.state, other.state)
    assert (1, 1) == (cooled.status().probes_started, other.status().probes_started)


def test_one_exception_object_counts_once(env, trips_at):
    """Section 4: one exception object counts at most once per breaker."""
    circuit = env.registry.breaker("api", trips_at(9))

    def body(arg):
        raise ConnectionError

    env.fails(nest(env, lambda inner: inner(), body))
    assert 1 == circuit.status().failures_total
    assert 1 == circuit.status().failure_count


def test_one_exception_counts_once_for_each_of_two_breakers(env, trips_at):
    """Section 4: per breaker: another breaker counts it too."""
    one, two = env.registry.breaker("one", trips_at(9)), env.registry.breaker("two", trips_at(9))

    def body(arg):
        raise ConnectionError

    inner = breaker("one")(env.function(body))
    if env.is_async:

        async def outer():
            return await inner()

    else:

        def outer():
            return inner()

    env.fails(breaker("two")(outer))
    assert (1, 1) == (one.status().failures_total, two.status().failures_total)


def test_another_exception_raised_from_it_counts(env, trips_at):
    """Section 4: a new object counts anew."""
    circuit = env.registry.breaker("api", trips_at(9))

    def body(arg):
        raise ConnectionError

    if env.is_async:

        async def outer_body(inner):
            try:
                await inner()
            except ConnectionError as exc:
                raise TimeoutError from exc

    else:

        def outer_body(inner):
            try:
                inner()
            except ConnectionError as exc:
                raise TimeoutError from exc

    env.fails(nest(env, outer_body, body))
    assert 2 == circuit.status().failures_total


def test_one_object_raised_again_in_a_later_call(env, trips_at):
    """Section 4: one exception object counts at most once per breaker - whoever counts it first marks it."""
    circuit = env.registry.breaker("api", trips_at(9))
    error = ConnectionError()

    def body(arg):
        raise error

    fn = breaker("api")(env.function(body))
    for _ in range(3):
        env.fails(fn)
    assert 1 == circuit.status().failures_total


def test_exception_that_takes_no_attribute(env, trips_at):
    """Section 4: if it takes none it may count at each site; the call is not harmed."""

    class Frozen(ConnectionError):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    error = Frozen()
    circuit = env.registry.breaker("api", trips_at(9))

    def body(arg):
        raise error

    assert error is env.fails(nest(env, lambda inner: inner(), body))
    assert circuit.status().failures_total in (1, 2)


def test_the_mark_on_an_exception_is_private(env, trips_at):
    """Section 4: a private attribute; nothing else is set on foreign objects."""
    env.registry.breaker("api", trips_at(9))
    error = ConnectionError()

    def body(arg):
        raise error

    env.fails(breaker("api")(env.function(body)))
    assert all(name.startswith("_") for name in vars(error))


def test_shared_probe_in_child_tasks(registry, clock, trips_at):
    """Section 4: a ContextVar: child tasks of the probe share it."""
    circuit = registry.breaker("api", trips_at(1, cooldown=30))
    circuit.on_failure(circuit.try_acquire(), DOWN)
    clock.advance(30)

    @breaker("api")
    async def inner(number):
        await asyncio.sleep(0)
        return number

    @breaker("api")
    async def outer():
        return await asyncio.gather(*(inner(number) for number in range(3)))

    assert [0, 1, 2] == asyncio.run(outer())
    assert (1, 1) == (circuit.status().probes_started, circuit.status().probes_succeeded)


def test_child_task_that_outlives_the_probe_is_on_its_own(registry, clock, trips_at):
    """Section 4: set only while a probe is out: afterwards a left-over child asks for itself."""
    circuit = registry.breaker("api", trips_at(1, cooldown=30))
    circuit.on_failure(circuit.try_acquire(), DOWN)
    clock.advance(30)
    go = None

    @breaker("api")
    async def inner():
        return "ran"

    async def child():
        await go.wait()
        return await inner()

    children = []

    @breaker("api")
    async def outer():
        children.append(asyncio.create_task(child()))
        raise ConnectionError

    async def main():
        nonlocal go
        go = asyncio.Event()
        with pytest.raises(ConnectionError):
            await outer()
        assert OPEN is circuit.state
        go.set()
        with pytest.raises(CircuitOpenError):
            await children[0]

    asyncio.run(main())


def test_child_task_that_outlives_the_probe_counts_for_itself(registry, clock, trips_at):
    """Section 4: its failure in the CLOSED episode after the probe counts."""
    circuit = registry.breaker("api", trips_at(1, cooldown=30))
    circuit.on_failure(circuit.try_acquire(), DOWN)
    clock.advance(30)

    @breaker("api")
    async def inner():
        raise ConnectionError

    async def main():
        go = asyncio.Event()
        children = []

        async def child():
            await go.wait()
            return await inner()

        @breaker("api")
        async def outer():
            children.append(asyncio.create_task(child()))
            return "ok"

        await outer()
        assert CLOSED is circuit.state
        go.set()
        with pytest.raises(ConnectionError):
            await children[0]

    asyncio.run(main())
    assert OPEN is circuit.state
