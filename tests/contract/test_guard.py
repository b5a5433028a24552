"""Contract section 4: guard() blocks, sync and async."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    breaker,
    timeout,
)
from resilience._policies import guard as guard_module

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = FaultKind.TRANSIENT


@pytest.fixture(params=["with", "async with"])
def block(request):
    """Run `body(permit)` in a guard block of either form; the exception leaves."""

    def run_sync(guard, body):
        with guard as permit:
            return body(permit)

    def run_async(guard, body):
        async def main():
            async with guard as permit:
                await asyncio.sleep(0)
                return body(permit)

        return asyncio.run(main())

    return run_sync if request.param == "with" else run_async


@pytest.fixture(
    params=[
        BreakerConfig(Consecutive(2), cooldown=30),
        BreakerConfig(FailureRate(1.0, window=30, bucket=3, min_calls=2), cooldown=30),
    ],
    ids=["streak", "rate"],
)
def config(request):
    return request.param


def raises(exc):
    def body(permit):
        raise exc

    return body


def attempt(block, guard, body):
    with contextlib.suppress(Exception):
        block(guard, body)


def trip(circuit):
    for _ in range(10):
        if circuit.is_open():
            return
        circuit.on_failure(circuit.try_acquire(), DOWN)
    raise AssertionError("ten failures did not open the circuit")


def test_guard_counts_failures(registry, ticking, block, config):
    """Section 4: a guard block feeds the breaker like a call."""
    ref = breaker("api", config)
    for _ in range(2):
        attempt(block, ref.guard(), raises(ConnectionError()))

    assert OPEN is ref.state


def test_guard_lets_the_same_exception_leave(registry, ticking, block, config):
    """I10: the very same exception."""
    error = ConnectionError()
    with pytest.raises(ConnectionError) as caught:
        block(breaker("api", config).guard(), raises(error))
    assert error is caught.value


def test_guard_success_resets(registry, ticking, block):
    """Section 4: a block that ends well is a success."""
    ref = breaker("api", BreakerConfig(Consecutive(2)))
    attempt(block, ref.guard(), raises(ConnectionError()))
    block(ref.guard(), lambda permit: None)
    attempt(block, ref.guard(), raises(ConnectionError()))

    assert CLOSED is ref.state
    assert (1, 2) == (ref.status().successes_total, ref.status().failures_total)


def test_guard_permit_is_true(registry, ticking, block, config):
    """Section 4: the permit is true where the block may go."""
    assert block(breaker("api", config).guard(), bool) is True


def test_guard_refuses_when_open(registry, ticking, block, config):
    """Section 4: FAIL raises on entry; the body does not run."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ran = []
    with pytest.raises(CircuitOpenError) as caught:
        block(ref.guard(), ran.append)
    assert [] == ran
    assert 30.0 == caught.value.retry_after


def test_guard_bypass_yields_a_false_permit(registry, ticking, block, config):
    """Section 4: in guard() BYPASS yields a permit that is false, marks and counts on entry and judges nothing."""
    ref = breaker("api", config, on_open=OnOpen.BYPASS)
    trip(ref.breaker)
    before = ref.status()

    assert block(ref.guard(), bool) is False
    attempt(block, ref.guard(), raises(ConnectionError()))
    after = ref.status()
    assert 2 == after.bypassed_total - before.bypassed_total
    assert (before.failures_total, before.successes_total, before.retry_after) == (
        after.failures_total,
        after.successes_total,
        after.retry_after,
    )


def test_breaker_guard_on_open_argument(registry, ticking, block, config):
    """Design 1: CircuitBreaker.guard(on_open=...)."""
    circuit = registry.breaker("api", config)
    trip(circuit)
    assert block(circuit.guard(OnOpen.BYPASS), bool) is False
    with pytest.raises(CircuitOpenError):
        block(circuit.guard(), bool)


def test_guard_is_one_shared_object_per_closed_episode(registry, config):
    """Section 4: while CLOSED guard() returns one shared object per CLOSED episode."""
    ref = breaker("api", config)
    first = ref.guard()
    assert first is ref.guard()
    trip(ref.breaker)
    ref.reset()
    assert first is not ref.guard()


def test_guard_nests(registry, ticking, block):
    """Section 4: may be nested."""
    ref = breaker("api", BreakerConfig(Consecutive(2)))

    def inner(permit):
        with ref.guard(), ref.guard():
            raise ConnectionError

    attempt(block, ref.guard(), inner)
    assert CLOSED is ref.state


def test_one_exception_through_nested_guards_counts_once(registry, ticking, block):
    """Section 4: one exception object counts at most once per breaker."""
    ref = breaker("api", BreakerConfig(Consecutive(9)))

    def inner(permit):
        with ref.guard(), ref.guard():
            raise ConnectionError

    attempt(block, ref.guard(), inner)
    assert 1 == ref.status().failures_total


def test_guard_kept_across_an_opening_is_late(registry, ticking, block, config):
    """I6: a block entered before the opening and left after it changes only a metric."""
    ref = breaker("api", config)

    def body(permit):
        trip(ref.breaker)

    block(ref.guard(), body)
    assert OPEN is ref.state
    assert 1 == ref.status().late_results


def test_guard_object_kept_across_an_opening_asks_anew(registry, ticking, block, config):
    """Section 4: a guard object kept from a CLOSED episode and entered later never passes an open circuit."""
    ref = breaker("api", config)
    kept = ref.guard()
    trip(ref.breaker)
    ran = []
    with pytest.raises(CircuitOpenError):
        block(kept, ran.append)
    assert [] == ran


def test_guard_object_kept_across_an_opening_probes(registry, ticking, block, config):
    """I1: entered after the cooldown it takes the probe, and settles it."""
    ref = breaker("api", config)
    kept = ref.guard()
    trip(ref.breaker)
    ticking.advance(30)
    seen = []
    block(kept, lambda permit: seen.append((permit.probe, ref.state)))

    assert [(True, HALF_OPEN)] == seen
    assert CLOSED is ref.state
    assert 1 == ref.status().probes_succeeded


def test_guard_object_kept_across_a_reset(registry, ticking, block, config):
    """Section 4: entered in a later CLOSED episode its failures count there."""
    ref = breaker("api", config)
    kept = ref.guard()
    trip(ref.breaker)
    ref.reset()
    for _ in range(2):
        attempt(block, kept, raises(ConnectionError()))

    assert OPEN is ref.state


def test_guard_probe(registry, ticking, block, config):
    """Section 4: a guard takes the probe and settles it with its outcome."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)
    attempt(block, ref.guard(), raises(ConnectionError()))
    assert OPEN is ref.state
    ticking.advance(30)
    block(ref.guard(), lambda permit: None)
    assert CLOSED is ref.state


def test_creating_a_guard_takes_nothing(registry, ticking, config):
    """I16: only entering takes the probe."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)
    ref.guard()
    ref.guard()

    assert 0 == ref.status().probes_started


def test_guard_neutral_probe(registry, ticking, block, config):
    """I4: a block that ends with our own bug gives the probe back."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)
    attempt(block, ref.guard(), raises(KeyError()))
    assert HALF_OPEN is ref.state
    block(ref.guard(), lambda permit: None)
    assert CLOSED is ref.state


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_guard_left_by_a_base_exception(registry, ticking, config, stop):
    """I4: KeyboardInterrupt and its like are neutral and give the probe back."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)
    with pytest.raises(stop), ref.guard():
        raise stop
    assert HALF_OPEN is ref.state
    assert ref.breaker.try_acquire().probe


def test_cancelled_guard_is_neutral(registry, ticking, config):
    """P17: the caller's cancel counts nothing, and a probe comes back."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)

    async def main():
        async def body():
            async with ref.guard():
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert HALF_OPEN is ref.state
    assert "cancelled" in str(ref.status().probes_released) or 1 == ref.status().probes_released


def test_guard_left_in_another_task(registry, ticking, config):
    """Section 4: may be left in another task (fixtures, framework dependencies)."""
    ref = breaker("api", config)

    async def main():
        guard = ref.guard()
        await asyncio.create_task(guard.__aenter__())
        await asyncio.create_task(guard.__aexit__(None, None, None))

    asyncio.run(main())
    assert 1 == ref.status().successes_total


def test_probing_guard_left_in_another_task(registry, ticking, config):
    """Section 4: also the one that holds the probe."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)

    async def main():
        guard = ref.guard()
        await asyncio.create_task(guard.__aenter__())
        await asyncio.create_task(guard.__aexit__(None, None, None))

    asyncio.run(main())
    assert CLOSED is ref.state


def test_probing_guard_left_in_another_thread(registry, ticking, config):
    """Section 4: the same over threads."""
    ref = breaker("api", config)
    trip(ref.breaker)
    ticking.advance(30)
    guard = ref.guard()
    guard.__enter__()
    thread = threading.Thread(target=guard.__exit__, args=(None, None, None))
    thread.start()
    thread.join(5)

    assert CLOSED is ref.state


def test_probing_guard_left_in_another_task_leaves_no_mark(registry, ticking, trips_at):
    """Section 4: no probe mark stays behind in the context that entered it."""
    ref = breaker("api", trips_at(1, cooldown=30))
    trip(ref.breaker)
    ticking.advance(30)
    guard = ref.guard()
    guard.__enter__()
    thread = threading.Thread(target=guard.__exit__, args=(None, None, None))
    thread.start()
    thread.join(5)
    trip(ref.breaker)

    with pytest.raises(CircuitOpenError):
        ref.breaker.try_acquire()
    with pytest.raises(CircuitOpenError), ref.guard():
        pass


def test_guards_of_interleaved_tasks(registry, ticking):
    """Section 4: no per-use state: interleaved blocks settle each its own outcome."""
    ref = breaker("api", BreakerConfig(Consecutive(99)))

    async def one(number):
        async with ref.guard():
            for _ in range(number % 3):
                await asyncio.sleep(0)
            if number % 2:
                raise ConnectionError

    async def main():
        await asyncio.gather(*(one(number) for number in range(20)), return_exceptions=True)

    asyncio.run(main())
    assert (10, 10) == (ref.status().successes_total, ref.status().failures_total)


def test_judge_makes_a_value_a_fault(registry, ticking, block):
    """Section 4: with classify_result each block has its own, with .judge(value)."""
    ref = breaker("api", BreakerConfig(Consecutive(2)), classify_result=lambda value: DOWN if value == "503" else None)

    for _ in range(2):
        guard = ref.guard()
        block(guard, lambda permit: guard.judge("503"))
    assert OPEN is ref.state


def test_judge_of_a_good_value_is_a_success(registry, ticking, block):
    """Section 4: a value without a fault is a success."""
    ref = breaker("api", BreakerConfig(Consecutive(2)), classify_result=lambda value: DOWN if value == "503" else None)
    for answer in ("503", "200", "503"):
        guard = ref.guard()
        block(guard, lambda permit: guard.judge(answer))

    assert CLOSED is ref.state
    assert (1, 2) == (ref.status().successes_total, ref.status().failures_total)


def test_blocks_with_classify_result_are_not_shared(registry, ticking):
    """Section 4: each block has its own."""
    ref = breaker("api", BreakerConfig(Consecutive(2)), classify_result=lambda value: None)
    assert ref.guard() is not ref.guard()


def test_judged_value_does_not_stick(registry, ticking, block):
    """Section 4: a judged block says nothing about the next one."""
    ref = breaker("api", BreakerConfig(Consecutive(9)), classify_result=lambda value: DOWN if value == "503" else None)
    guard = ref.guard()
    block(guard, lambda permit: guard.judge("503"))
    block(ref.guard(), lambda permit: None)

    assert (1, 1) == (ref.status().successes_total, ref.status().failures_total)


def test_judging_without_classify_result_never_crashes_silently(registry, ticking):
    """Section 4: .judge belongs to blocks with classify_result."""
    ref = breaker("api", BreakerConfig(Consecutive(9)))
    guard = ref.guard()
    with guard:
        if hasattr(guard, "judge"):
            with contextlib.suppress(Exception):
                guard.judge("x")
    assert 0 == ref.status().failures_total


def test_guard_with_classify(registry, ticking, block):
    """Section 2: classify= of the site holds for its blocks."""
    ref = breaker("api", BreakerConfig(Consecutive(1)), classify=lambda exc: DOWN)
    attempt(block, ref.guard(), raises(KeyError()))

    assert OPEN is ref.state


def test_guard_entered_inside_an_except_block(registry, ticking, block):
    """Section 2: the exception that was being handled on entry is no cause."""
    ref = breaker("api", BreakerConfig(Consecutive(1)))

    class Mine(Exception):
        pass

    try:
        raise ConnectionError
    except ConnectionError:
        if block.__name__ == "run_sync":
            attempt(block, ref.guard(), raises(Mine()))
    assert CLOSED is ref.state


def test_guard_while_disabled(registry, ticking, block, config):
    """Section 4: disabled: passes, counts nothing."""
    ref = breaker("api", config)
    ref.disable()
    for _ in range(5):
        attempt(block, ref.guard(), raises(ConnectionError()))
    assert 0 == ref.status().failure_count
    assert CLOSED is ref.state


def test_guard_in_shadow(registry, ticking, block):
    """Section 4: shadow: refuses nothing."""
    ref = breaker("api", BreakerConfig(Consecutive(1), shadow=True))
    ran = []
    for _ in range(3):
        block(ref.guard(), ran.append)
        attempt(block, ref.guard(), raises(ConnectionError()))
    assert 3 == len(ran)


def test_guard_of_a_reference_follows_the_registry(registry, ticking, config):
    """Section 9: guard() of a reference without a config resolves on use."""
    ref = breaker("api")
    registry.breaker("api", config)
    trip(registry.get("api"))
    with pytest.raises(CircuitOpenError), ref.guard():
        pass


def test_guard_returns_what_the_with_statement_needs(registry, ticking, config):
    """I10: exceptions are never swallowed by a block."""
    guard = breaker("api", config).guard()
    guard.__enter__()
    assert not guard.__exit__(ConnectionError, ConnectionError(), None)


def test_guard_in_a_generator_left_by_close(registry, ticking, config):
    """I4: GeneratorExit through a guard is neutral."""
    ref = breaker("api", config)

    def stream():
        with ref.guard():
            yield 1
            yield 2

    items = stream()
    next(items)
    items.close()
    assert (0, 0) == (ref.status().failures_total, ref.status().successes_total)


def test_exitstack(registry, ticking, config):
    """Style: entered by an ExitStack like any context manager."""
    ref = breaker("api", config)
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(ref.guard())
    assert 1 == ref.status().successes_total


# ---------------------------------------------------------------------------------------------- left elsewhere
def left_elsewhere(guard, error=None, context=None):
    """Leave a block as another task does: in a context of its own, or in the one that is given."""
    (context or contextvars.copy_context()).run(guard.__exit__, type(error) if error else None, error, None)


def entered_in(context, guard):
    return context.run(guard.__enter__)


def test_probe_of_a_kept_guard_left_in_another_task(registry, ticking, config):
    """I7: a program that keeps its guard, and leaves it elsewhere each time, gets its circuit closed again."""
    ref = breaker("api", config)
    guard = ref.guard()
    trip(ref.breaker)
    ticking.advance(30)
    entered_in(contextvars.Context(), guard)
    left_elsewhere(guard, context=contextvars.Context())

    assert CLOSED is ref.state
    assert 1 == ref.status().probes_succeeded


def test_two_probes_of_a_kept_guard_left_in_other_tasks(registry, ticking):
    """Each leaves one of them, whichever it is."""
    ref = breaker("api", BreakerConfig(Consecutive(2), cooldown=30, half_open_probes=2, half_open_successes=2))
    guard = ref.guard()
    trip(ref.breaker)
    ticking.advance(30)
    mine = contextvars.Context()
    entered_in(mine, guard)
    entered_in(contextvars.Context(), guard)
    left_elsewhere(guard, context=contextvars.Context())
    left_elsewhere(guard, context=mine)

    assert (CLOSED, 2) == (ref.state, ref.status().probes_succeeded)


def test_two_probes_of_a_kept_guard_left_in_tasks_of_others(registry, ticking):
    """Neither is found where it is left, and neither is lost."""
    ref = breaker("api", BreakerConfig(Consecutive(2), cooldown=30, half_open_probes=2, half_open_successes=2))
    guard = ref.guard()
    trip(ref.breaker)
    ticking.advance(30)
    for _ in range(2):
        entered_in(contextvars.Context(), guard)
    for _ in range(2):
        left_elsewhere(guard, context=contextvars.Context())

    assert (CLOSED, 2) == (ref.state, ref.status().probes_succeeded)


def test_probe_of_a_kept_guard_is_left_once(registry, ticking, config):
    """Where it was left in its own context, a late use of the same object finds nothing to leave."""
    ref = breaker("api", config)
    guard = ref.guard()
    late = contextvars.Context()
    entered_in(late, guard)
    trip(ref.breaker)
    ticking.advance(30)
    with guard:
        pass
    left_elsewhere(guard, ConnectionError("late"), late)

    assert (CLOSED, 1) == (ref.state, ref.status().probes_succeeded)


def test_late_block_of_a_kept_guard_beside_no_probe(registry, ticking, config):
    """Without a probe of its own such an object reports what is late as late."""
    ref = breaker("api", config)
    guard = ref.guard()
    guard.__enter__()
    trip(ref.breaker)
    ticking.advance(30)
    with ref.guard():
        left_elsewhere(guard, context=contextvars.Context())
        assert HALF_OPEN is ref.state
    assert CLOSED is ref.state


def test_guard_under_a_deadline_left_in_another_task(registry, ticking, config):
    """What a block leaves behind where it was entered is not taken for that of a later one."""
    ref = breaker("api", config)
    guard = ref.guard()
    here = contextvars.Context()

    def enter_twice():
        with timeout(30).guard():
            guard.__enter__()
        left_elsewhere(guard, context=contextvars.Context())
        with timeout(30).guard():
            guard.__enter__()
        guard.__exit__(None, None, None)
        with guard:
            pass
        return guard_module._KEPT.get()

    left_behind = here.run(enter_twice)

    assert 3 == ref.status().successes_total
    assert int(isinstance(guard, guard_module.ClosedBlock)) == len(left_behind)


def test_guards_that_are_not_left_in_turn(registry, ticking, config):
    """As generators may do: each finds what it was given, and a probe is settled by its own block."""
    ref, other = breaker("api", config), breaker("other", config)
    first, second = ref.guard(), other.guard()
    trip(ref.breaker)
    ticking.advance(30)
    with timeout(30).guard():
        first.__enter__()
        second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)

    assert (CLOSED, 1) == (ref.state, other.status().successes_total)
    assert () == guard_module._KEPT.get()


def test_guard_that_was_inherited_and_left_by_a_child(registry, ticking, config):
    """The child finds the block; the parent, which has it still in its own context, does not leave it again."""
    ref = breaker("api", config)
    guard = ref.guard()

    def parent():
        with timeout(30).guard():
            guard.__enter__()
            child = contextvars.copy_context()
        left_elsewhere(guard, context=child)
        with guard:
            pass
        guard.__enter__()
        left_elsewhere(guard, context=child)

    contextvars.copy_context().run(parent)

    assert 3 == ref.status().successes_total


def test_child_inside_a_kept_guard_has_a_use_of_its_own(registry, ticking, config):
    """It does not leave its parent's."""
    ref = breaker("api", config)
    guard = ref.guard()

    def child():
        with guard:
            pass

    try:
        raise LookupError
    except LookupError:
        guard.__enter__()
        context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(child,))
    thread.start()
    thread.join(5)
    between = ref.status().successes_total
    guard.__exit__(None, None, None)

    assert (1, 2) == (between, ref.status().successes_total)


def test_context_does_not_collect_guards_that_are_left_elsewhere(registry, ticking, config):
    """However many are entered in it."""
    ref = breaker("api", config)

    def server():
        with timeout(30).guard():
            for _ in range(100):
                guard = ref.guard()
                guard.__enter__()
                left_elsewhere(guard, context=contextvars.Context())
        return len(guard_module._KEPT.get())

    assert contextvars.copy_context().run(server) <= 16
    assert 100 == ref.status().successes_total


def test_own_block_is_left_once(registry, ticking, config):
    """Whoever leaves it a second time does nothing."""
    ref = breaker("api", config, classify_result=lambda value: None)
    guard = ref.guard()
    with guard:
        pass
    guard.__exit__(None, None, None)

    assert 1 == ref.status().successes_total


# ---------------------------------------------------------------------------------------------- one guard, several uses
def test_late_block_does_not_leave_the_probe_of_another(registry, ticking, config):
    """I3: a guard that was kept and is used by several tasks: what began before the trip decides nothing."""
    ref = breaker("api", config, classify_result=lambda value: None)
    guard = ref.guard()
    early, probing = contextvars.Context(), contextvars.Context()
    entered_in(early, guard)
    trip(ref.breaker)
    ticking.advance(30)
    entered_in(probing, guard)
    left_elsewhere(guard, context=early)
    between = ref.state
    left_elsewhere(guard, context=probing)

    assert (HALF_OPEN, CLOSED) == (between, ref.state)


def test_values_of_two_uses_are_judged_apart(registry, ticking):
    """Each use has its own verdict, within itself and beside."""
    ref = breaker("api", BreakerConfig(Consecutive(9)), classify_result=lambda value: DOWN if value == "bad" else None)
    guard = ref.guard()
    first, second = contextvars.Context(), contextvars.Context()
    entered_in(first, guard)
    entered_in(second, guard)
    second.run(guard.judge, "bad")
    left_elsewhere(guard, context=first)
    between = ref.status().failures_total
    left_elsewhere(guard, context=second)
    after = ref.status().failures_total
    with guard, guard:
        with guard:
            guard.judge("bad")
        innermost = ref.status().failures_total
    assert (0, 1, 2, 2) == (between, after, innermost, ref.status().failures_total)


def test_kept_guard_does_not_collect_its_uses(registry, ticking, config):
    """However often it was entered within itself, or took a probe."""
    ref = breaker("api", config)
    guard = ref.guard()
    for _ in range(5):
        trip(ref.breaker)
        ticking.advance(30)
        with guard:
            pass
    judged = breaker("api", classify_result=lambda value: None).guard()
    for _ in range(5):
        with judged, judged:
            pass

    assert len(getattr(guard, "_probes", ())) <= 1
    assert 1 == len(judged._others)
