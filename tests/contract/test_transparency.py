"""I10 and I12: a protected call looks like a plain one: objects, chains, contexts, and nothing is kept."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import traceback
import weakref

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    Consecutive,
    FailureRate,
    OnOpen,
    OnReject,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
)

VAR = contextvars.ContextVar("var", default="default")


def stacks(env, trips=999):
    """Each way to be protected: each policy alone, and all together."""
    limit = timeout(30) if env.is_async else timeout(30, pass_as="key")
    attempt = timeout(60, per_attempt=20) if env.is_async else timeout(60, per_attempt=20, pass_as="key")
    yield "breaker", compose(breaker("a", BreakerConfig(Consecutive(trips))))
    yield "window", compose(breaker("w", BreakerConfig(FailureRate(1.0, min_calls=trips))))
    yield "account", compose(breaker("c", BreakerConfig(Consecutive(trips)), account="call"), retry(1, idempotent=True))
    yield "judged", compose(breaker("j", BreakerConfig(Consecutive(trips)), classify_result=lambda value: None))
    yield "bulkhead", compose(bulkhead(max_in_flight=5))
    yield "retry", compose(retry(2, wait=0, idempotent=True))
    yield "timeout", compose(limit)
    yield "attempt", compose(attempt)
    yield (
        "all",
        compose(
            bulkhead(max_in_flight=5),
            limit,
            retry(2, wait=0, idempotent=True),
            breaker("a2", BreakerConfig(Consecutive(trips))),
        ),
    )


NAMES = ["breaker", "window", "account", "judged", "bulkhead", "retry", "timeout", "attempt", "all"]


@pytest.fixture(params=NAMES)
def stack(request, env):
    return dict(stacks(env))[request.param]


# ------------------------------------------------------------------------------------------ results and exceptions
def test_same_result_object(env, stack):
    """I10: the very same result."""
    result = object()
    assert result is env.call(stack(env.function(lambda arg, key=None: result)))


@pytest.mark.parametrize(
    "kind", [ConnectionError, ValueError, StopIteration, KeyError, TimeoutError, StopAsyncIteration, RuntimeError]
)
def test_same_exception_object(env, stack, kind):
    """I10: the very same exception, a StopIteration stays one (in sync code)."""
    error = kind("x")

    def body(arg, key=None):
        raise error

    fn = stack(env.function(body))
    if env.is_async and kind is StopIteration:
        pytest.skip("a coroutine can't raise StopIteration")
    with pytest.raises(kind) as caught:
        env.call(fn)
    assert error is caught.value


@pytest.mark.parametrize("kind", [ConnectionError, ValueError])
def test_no_cause_or_context_is_added(env, stack, kind):
    """I10: __cause__ and __context__ untouched."""
    errors = []

    def body(arg, key=None):
        errors.append(kind("x"))
        raise errors[-1]

    fn = stack(env.function(body))
    failed = env.fails(fn)
    assert errors[-1] is failed
    assert failed.__cause__ is None
    assert failed.__context__ is None
    assert failed.__suppress_context__ is False


@pytest.mark.parametrize("kind", [ConnectionError, ValueError])
def test_context_is_the_handled_exception_as_for_a_plain_call(env, stack, kind):
    """I10: called inside an except block: __context__ is what Python itself would set, nothing else."""

    def body(arg, key=None):
        raise kind("inner")

    plain, fn = env.function(body), None
    fn = stack(env.function(body))
    found = []
    for callee in (plain, fn):
        handled = LookupError("handled")
        if env.is_async:

            async def main(callee=callee, handled=handled):
                try:
                    raise handled
                except LookupError:
                    await callee()

            with pytest.raises(kind) as caught:
                env.loop_runner.run(main())
        else:
            with pytest.raises(kind) as caught:
                try:
                    raise handled
                except LookupError:
                    callee()
        found.append((caught.value.__context__ is handled, caught.value.__cause__, caught.value.__suppress_context__))
    assert (True, None, False) == found[0]
    assert found[0] == found[1]


def test_own_cause_is_kept(env, stack):
    """I10: what the function chained stays chained."""
    cause = LookupError("cause")

    def body(arg, key=None):
        raise ConnectionError("x") from cause

    failed = env.fails(stack(env.function(body)))
    assert cause is failed.__cause__
    assert failed.__suppress_context__ is True


def test_later_attempts_do_not_inherit_the_first_failure(env, remote):
    """fault-rules 2.8: run retry attempts outside except blocks, or attempt 2 inherits attempt 1."""
    errors = [ConnectionError("first"), ConnectionError("second"), ConnectionError("third")]
    fn = retry(3, wait=0, idempotent=True)(env.function(remote(*errors)))
    assert errors[2] is env.fails(fn)
    assert [None, None, None] == [error.__context__ for error in errors]


def test_function_sees_no_exception_being_handled(env, remote):
    """I10: sys.exception() inside a retried attempt is as in a plain call: nothing."""
    seen = []

    def body(arg):
        seen.append(sys.exc_info()[1])
        if len(seen) < 3:
            raise ConnectionError
        return "ok"

    env.call(retry(3, wait=0, idempotent=True)(env.function(body)))
    assert [None, None, None] == seen


def test_refusal_has_no_context(env, remote):
    """I10: a refusal raised outside an except block carries no context of ours."""
    fn = breaker("api", BreakerConfig())(env.function(remote()))
    env.registry.get("api").force_open("drill")
    refusal = env.fails(fn)
    assert (None, None) == (refusal.__cause__, refusal.__context__)


def test_sys_exception_is_clean_after_a_handled_call(env, stack):
    """I10: nothing is left as 'being handled' in the caller."""
    env.fails(stack(env.function(lambda arg, key=None: 1 / 0)))
    assert sys.exc_info() == (None, None, None)


def test_traceback_ends_in_the_function(env, stack):
    """Design 2: tracebacks show where it happened; few frames of ours."""

    def body(arg, key=None):
        raise ConnectionError("x")

    failed = env.fails(stack(env.function(body)))
    frames = traceback.extract_tb(failed.__traceback__)
    assert "body" == frames[-1].name
    ours = [frame for frame in frames if "resilience" in frame.filename and "tests" not in frame.filename]
    assert len(ours) < 12


# ------------------------------------------------------------------------------------------ contextvars
def test_contextvars_set_by_the_function_are_visible(env, stack):
    """I10: as for a plain call, in the same context."""

    def body(arg, key=None):
        VAR.set(arg)
        return "ok"

    fn = stack(env.function(body))
    if env.is_async:

        async def main():
            VAR.set("before")
            await fn("inside")
            return VAR.get()

        assert "inside" == env.loop_runner.run(main())
    else:

        def main():
            VAR.set("before")
            fn("inside")
            return VAR.get()

        assert "inside" == contextvars.copy_context().run(main)


def test_contextvars_set_by_a_failing_function_are_visible(env, stack):
    """I10: also where it fails."""

    def body(arg, key=None):
        VAR.set(arg)
        raise ConnectionError

    fn = stack(env.function(body))
    if env.is_async:

        async def main():
            try:
                await fn("inside")
            except ConnectionError:
                return VAR.get()

        assert "inside" == env.loop_runner.run(main())
    else:

        def main():
            try:
                fn("inside")
            except ConnectionError:
                return VAR.get()

        assert "inside" == contextvars.copy_context().run(main)


@pytest.mark.parametrize("fails", [False, True])
def test_no_contextvar_of_ours_is_left(env, stack, fails):
    """I10: contextvars are left as they were."""

    def body(arg, key=None):
        if fails:
            raise ConnectionError
        return "ok"

    fn = stack(env.function(body))
    if env.is_async:

        async def main():
            before = dict(contextvars.copy_context())
            try:
                await fn()
            except ConnectionError:
                pass
            return before, dict(contextvars.copy_context())

        before, after = env.loop_runner.run(main())
    else:

        def main():
            before = dict(contextvars.copy_context())
            try:
                fn()
            except ConnectionError:
                pass
            return before, dict(contextvars.copy_context())

        before, after = contextvars.copy_context().run(main)
    assert dict(before.items()) == {var: value for var, value in after.items() if value is not None or var in before}


def test_probe_leaves_no_contextvar(env, remote, trips_at):
    """I10: nor does a probe."""
    shared = env.registry.breaker("api", trips_at(1, cooldown=30))
    shared.on_failure(shared.try_acquire(), ConnectionError())
    env.advance(30)
    fn = breaker("api")(env.function(remote()))

    if env.is_async:

        async def main():
            before = dict(contextvars.copy_context())
            await fn()
            return before, dict(contextvars.copy_context())

        before, after = env.loop_runner.run(main())
    else:

        def main():
            before = dict(contextvars.copy_context())
            fn()
            return before, dict(contextvars.copy_context())

        before, after = contextvars.copy_context().run(main)
    assert before == {var: value for var, value in after.items() if value is not None or var in before}


# ------------------------------------------------------------------------------------------ tasks
def test_cancelling_is_left_as_it_was(registry, clock):
    """I10: task.cancelling() is left as it was."""

    async def main():
        @compose(bulkhead(max_in_flight=2), timeout(30), retry(2, wait=0, idempotent=True), breaker("api"))
        async def fn(fails):
            if fails:
                raise ConnectionError
            return "ok"

        task = asyncio.current_task()
        counts = []
        for fails in (False, True):
            try:
                await fn(fails)
            except ConnectionError:
                pass
            counts.append(task.cancelling())
        return counts

    assert [0, 0] == asyncio.run(main())


def test_no_task_is_created_for_an_async_call(registry):
    """I10: an async call runs in its caller's task."""

    async def main():
        seen = []

        @compose(bulkhead(max_in_flight=2), timeout(30), retry(2, wait=0, idempotent=True), breaker("api"))
        async def fn():
            seen.append(asyncio.current_task())
            await asyncio.sleep(0)
            seen.append(len(asyncio.all_tasks()))

        await fn()
        return seen == [asyncio.current_task(), 1]

    assert asyncio.run(main())


def test_never_awaited_coroutine_takes_nothing(registry, recwarn):
    """I8: a coroutine that is made and dropped takes no slot and no permit."""
    fn = bulkhead("pool", max_in_flight=1)(breaker("api", BreakerConfig())(lambda: None))

    @bulkhead("pool")
    @breaker("api")
    async def afn():
        return None

    coroutine = afn()
    coroutine.close()
    assert 0 == registry.get_bulkhead("pool").in_flight
    fn()


def test_is_coroutine_function(env, stack):
    """Issue 2, Build 6: iscoroutinefunction is kept."""
    fn = stack(env.function(lambda arg, key=None: None))
    assert env.is_async == inspect.iscoroutinefunction(fn)


# ------------------------------------------------------------------------------------------ memory
class Argument:
    """Something a weak reference can watch."""


def dies(env, fn, prepare=lambda: None):
    """Whether an argument has died once the call is over and its exception is gone."""
    prepare()
    if env.is_async:

        async def main():
            argument = Argument()
            gone = weakref.ref(argument)
            try:
                await fn(argument)
            except Exception:
                pass
            del argument
            return gone() is None

        return env.loop_runner.run(main())
    argument = Argument()
    gone = weakref.ref(argument)
    try:
        fn(argument)
    except Exception:
        pass
    del argument
    return gone() is None


@pytest.mark.parametrize("kind", [ConnectionError, ValueError])
def test_arguments_of_a_failed_call_die(env, stack, kind, no_gc):
    """Issue 2, Must hold: with gc switched off the arguments die with the exception."""

    def body(arg, key=None):
        raise kind("x")

    fn = stack(env.function(body))
    assert dies(env, fn)


def test_arguments_of_a_refused_call_die(env, remote, no_gc):
    """Issue 2, Must hold: refused at the door."""
    fn = bulkhead(max_in_flight=1)(breaker("api", BreakerConfig())(env.function(remote)))
    env.registry.get("api").force_open("drill")
    assert dies(env, fn)
    assert 1 == env.registry.get("api").status().rejected_total


def test_arguments_of_a_bypassed_call_die(env, no_gc):
    """Brief: bypassed."""
    fn = breaker("api", BreakerConfig(), on_open=OnOpen.BYPASS, fallback=lambda arg=None, *, key=None: "spare")(
        env.function(lambda arg: arg)
    )
    env.registry.get("api").force_open("drill")
    assert dies(env, fn)
    assert 1 == env.registry.get("api").status().bypassed_total


def test_arguments_of_a_call_refused_by_a_full_bulkhead_die(env, no_gc):
    """Issue 2, Must hold: refused by the bulkhead."""
    inner = bulkhead("pool", max_in_flight=1)(env.function(lambda arg: arg))
    answers = []
    if env.is_async:

        @bulkhead("pool")
        async def outer():
            async def call():
                argument = Argument()
                gone = weakref.ref(argument)
                try:
                    await inner(argument)
                except BulkheadFullError:
                    pass
                del argument
                return gone() is None

            answers.append(await call())

    else:

        @bulkhead("pool")
        def outer():
            def call():
                argument = Argument()
                gone = weakref.ref(argument)
                try:
                    inner(argument)
                except BulkheadFullError:
                    pass
                del argument
                return gone() is None

            answers.append(call())

    env.call(outer)
    assert [True] == answers


def test_arguments_of_a_call_bypassed_by_a_full_bulkhead_die(env, no_gc):
    """Brief: bypassed."""
    inner = bulkhead("pool", max_in_flight=1, on_reject=OnReject.BYPASS)(env.function(lambda arg: arg))
    answers = []
    if env.is_async:

        @bulkhead("pool")
        async def outer():
            argument = Argument()
            gone = weakref.ref(argument)
            await inner(argument)
            del argument
            answers.append(gone() is None)

    else:

        @bulkhead("pool")
        def outer():
            argument = Argument()
            gone = weakref.ref(argument)
            inner(argument)
            del argument
            answers.append(gone() is None)

    env.call(outer)
    assert [True] == answers


def test_arguments_of_a_retried_call_die(env, no_gc):
    """Issue 2, Must hold: retried, exhausted and recovered."""
    script = []

    def body(arg):
        if script and script.pop(0):
            raise ConnectionError
        return "ok"

    fn = retry(3, wait=0, idempotent=True)(breaker("api", BreakerConfig(Consecutive(999)))(env.function(body)))
    for failures in ([True, False], [True, True, True], [True, True, False]):
        script[:] = failures
        assert dies(env, fn), failures


def test_arguments_of_a_retry_stopped_by_an_opening_die(env, no_gc):
    """Issue 2, Must hold: the last exception left with a note."""

    def body(arg):
        raise ConnectionError

    fn = retry(3, wait=0, idempotent=True)(breaker("api", BreakerConfig(Consecutive(1)))(env.function(body)))

    assert dies(env, fn)
    assert dies(env, fn, env.registry.get("api").reset)


def test_arguments_of_a_probe_die(env, no_gc, trips_at):
    """Issue 2, Must hold: a failed probe."""
    shared = env.registry.breaker("api", trips_at(1, cooldown=30))
    shared.on_failure(shared.try_acquire(), ConnectionError())

    def body(arg):
        raise ConnectionError

    fn = breaker("api")(env.function(body))

    assert dies(env, fn, lambda: env.advance(30))
    assert 1 == shared.status().probes_failed


def test_arguments_of_a_timed_out_call_die(registry, no_gc):
    """Brief: timed out (async)."""
    runner = asyncio.Runner()

    for limit in (timeout(0.01), timeout(5, per_attempt=0.01)):

        @limit
        @breaker("api", BreakerConfig(Consecutive(999)))
        async def fn(arg):
            await asyncio.Event().wait()

        async def call():
            argument = Argument()
            gone = weakref.ref(argument)
            try:
                await fn(argument)
            except TimeoutExceeded:
                pass
            del argument
            await asyncio.sleep(0)  # the loop itself holds the cancel it has thrown until the next turn
            return gone() is None

        assert runner.run(call())
    runner.close()


def test_arguments_of_a_timed_out_and_retried_call_die(registry, no_gc):
    """Brief: timed out, retried, timed out."""

    @timeout(5, per_attempt=0.005)
    @retry(2, wait=0, idempotent=True)
    @breaker("api", BreakerConfig(Consecutive(999)))
    async def fn(arg):
        await asyncio.Event().wait()

    async def call():
        argument = Argument()
        gone = weakref.ref(argument)
        try:
            await fn(argument)
        except TimeoutExceeded:
            pass
        del argument
        await asyncio.sleep(0)  # the loop itself holds the cancel it has thrown until the next turn
        return gone() is None

    assert asyncio.run(call())


def test_arguments_of_a_cancelled_call_die(registry, no_gc):
    """Brief: and cancelled."""

    @bulkhead(max_in_flight=2)
    @timeout(5)
    @retry(2, wait=0, idempotent=True)
    @breaker("api", BreakerConfig())
    async def fn(arg):
        await asyncio.Event().wait()

    async def main():
        argument = Argument()
        gone = weakref.ref(argument)
        task = asyncio.create_task(fn(argument))
        del argument
        for _ in range(4):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        del task
        await asyncio.sleep(0)
        return gone() is None

    assert asyncio.run(main())


def test_arguments_of_a_worker_call_die(registry, no_gc):
    """Issue 2, Must hold: on workers, failed and succeeded."""

    @timeout(5)
    @breaker("api", BreakerConfig(Consecutive(999)))
    @interruptible(max_workers=1)
    def fn(arg, fails):
        if fails:
            raise ConnectionError
        return "ok"

    def call(fails):
        argument = Argument()
        gone = weakref.ref(argument)
        try:
            fn(argument, fails)
        except ConnectionError:
            pass
        del argument
        return gone

    import threading

    for fails in (False, True):
        gone = call(fails)
        gate = threading.Event()
        for _ in range(200):  # the worker drops its last reference a moment after it has answered
            if gone() is None:
                break
            gate.wait(0.002)
        assert gone() is None, fails


def test_arguments_of_a_guarded_block_die(registry, no_gc):
    """Issue 2, Must hold: blocks too."""
    ref = breaker("api", BreakerConfig(Consecutive(999)))

    def block(arg):
        with ref.guard():
            raise ConnectionError

    argument = Argument()
    gone = weakref.ref(argument)
    try:
        block(argument)
    except ConnectionError:
        pass
    del argument
    assert gone() is None


def test_results_are_not_kept(env, stack, no_gc):
    """I12: nor results."""
    fn = stack(env.function(lambda arg, key=None: Argument()))
    result = env.call(fn)
    gone = weakref.ref(result)
    del result
    env.advance(100)  # what a manual clock still had to fire is gone with its time
    assert gone() is None


def test_exceptions_are_not_kept(env, stack, no_gc):
    """I12: no exception is kept by breaker, retry or status."""

    class Lost(ConnectionError):
        pass

    def body(arg, key=None):
        raise Lost

    fn = stack(env.function(body))
    if env.is_async:

        async def main():
            try:
                await fn()
            except Lost as exc:
                return weakref.ref(exc)

        gone = env.loop_runner.run(main())
    else:
        gone = weakref.ref(env.fails(fn))
    assert gone() is None


def test_memory_is_flat_over_many_calls(registry):
    """I12: nothing grows with the number of calls."""
    import tracemalloc

    fn = bulkhead(max_in_flight=2)(
        retry(2, wait=0, idempotent=True)(
            breaker("api", BreakerConfig(FailureRate(1.0, min_calls=10**6)))(lambda fails: 1 / (not fails))
        )
    )

    def work(count):
        for number in range(count):
            try:
                fn(number % 2)
            except ZeroDivisionError:
                pass

    work(500)
    gc.collect()
    tracemalloc.start()
    try:
        work(200)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work(3000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000


def test_decorated_functions_are_collected(registry):
    """I12: a decorated closure that goes away takes its wrapper along (a registry keeps names, not call sites)."""

    def make():
        @bulkhead(max_in_flight=2)
        @retry(2, wait=0, idempotent=True)
        @breaker("api")
        def fn():
            return "ok"

        fn()
        return weakref.ref(fn)

    gone = make()
    gc.collect()
    assert gone() is None


def test_many_decorated_closures_do_not_grow_the_registry(registry):
    """I12: decorating in a loop does not leak watchers."""
    import tracemalloc

    def make():
        @breaker("api")
        def fn():
            return "ok"

        return fn()

    for _ in range(50):
        make()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            make()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 60_000
