"""What nobody thinks of: hostile exceptions, awaitables from plain functions, Ctrl-C, the end of the process."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import traceback
import weakref

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitOpenError,
    CircuitState,
    ConfigurationError,
    Fault,
    FaultKind,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    describe,
    retry,
    timeout,
)

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
DOWN = FaultKind.TRANSIENT


# ------------------------------------------------------------------------------------------ hostile exceptions
class NotesAreFive(ConnectionError):
    __notes__ = 5


class RefusesNotes(ConnectionError):
    def add_note(self, note):
        raise RuntimeError("no notes")


class RefusesAttributes(ConnectionError):
    def __setattr__(self, name, value):
        raise RuntimeError("no attributes")


class RefusesEverything(ConnectionError):
    def __getattribute__(self, name):
        if name in ("__class__", "__traceback__", "__dict__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"no {name}")

    def __eq__(self, other):
        raise RuntimeError("no ==")

    def __hash__(self):
        raise RuntimeError("no hash")

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __bool__(self):
        raise RuntimeError("no bool")


class Falsy(ConnectionError):
    def __bool__(self):
        return False

    def __len__(self):
        return 0


class LyingStatus(ConnectionError):
    status_code = property(lambda self: 1 / 0)
    response = property(lambda self: self)
    headers = property(lambda self: {"Retry-After": self})
    fault_kind = "transient"
    code = property(lambda self: self.code)


Nameless = type("", (ConnectionError,), {"__module__": None})
Weird = type("a b\nc", (ConnectionError,), {"__module__": 5, "__qualname__": "x" * 5000})


class Meta(type):
    @property
    def __mro__(cls):
        raise RuntimeError("no mro")

    def __hash__(cls):
        raise RuntimeError("no hash")

    def __eq__(cls, other):
        raise RuntimeError("no ==")


class HostileType(ConnectionError, metaclass=Meta):
    pass


class EqualsEverything(ConnectionError):
    def __eq__(self, other):
        return True

    __hash__ = None


def endless():
    one, two = ConnectionError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    one.__context__, two.__context__ = two, one
    return one


def deep_chain():
    error = KeyError()
    for _ in range(5000):
        outer = RuntimeError()
        outer.__cause__ = error
        error = outer
    return error


HOSTILE = {
    "notes are five": NotesAreFive,
    "refuses notes": RefusesNotes,
    "refuses attributes": RefusesAttributes,
    "refuses everything": RefusesEverything,
    "falsy": Falsy,
    "lying status": LyingStatus,
    "nameless": Nameless,
    "weird name": Weird,
    "hostile type": HostileType,
    "equals everything": EqualsEverything,
    "endless chain": endless,
    "deep chain": deep_chain,
    "wide group": lambda: ExceptionGroup("g", [ConnectionError(str(n)) for n in range(3000)]),
    "group in itself": lambda: _nest(ExceptionGroup("g", [ConnectionError()]), 200),
}


def _nest(group, depth):
    for _ in range(depth):
        group = ExceptionGroup("g", [group])
    return group


def described(exc, error):
    """ "same" if `error` left, else what did, in words."""
    if exc is error:
        return "same"
    if exc is None:
        return "nothing"
    where = traceback.extract_tb(BaseException.__getattribute__(exc, "__traceback__"))[-1]
    return f"{type(exc).__name__} at {where.filename}:{where.lineno}"


def ending(call, error):
    """How a call ended, in words: neither pytest nor asyncio could print what these exceptions are."""
    try:
        call()
    except Exception as exc:
        return described(exc, error)
    return "nothing"


async def ending_of(call, error):
    try:
        await call()
    except Exception as exc:
        return described(exc, error)
    return "nothing"


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_exceptions_pass_as_they_are(env, name, trips_at):
    """I10, I20: no exception object crashes us; the very object leaves, from every policy, with every ending."""
    error = HOSTILE[name]()

    def body(arg):
        raise error

    single = [
        compose(breaker("api", trips_at(1, cooldown=30))),
        compose(breaker("rate", BreakerConfig.cloud())),
        compose(retry(2, wait=0, idempotent=True)),
        compose(bulkhead("pool", max_in_flight=1)),
        compose(retry(3, wait=0, idempotent=True), breaker("both", trips_at(1)), bulkhead("pool2", max_in_flight=1)),
        compose(retry(3, wait=0, idempotent=True), breaker("call", trips_at(9), account="call")),
    ]
    for policies in single:
        fn = policies(env.function(body))
        ended = env.loop_runner.run(ending_of(fn, error)) if env.is_async else ending(fn, error)
        assert ("same", name) == (ended, name)
    assert 0 == env.registry.get_bulkhead("pool").in_flight
    assert 0 == env.registry.get_bulkhead("pool2").in_flight


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"deep chain", "group in itself"}))
def test_hostile_connection_errors_are_still_counted(registry, name, trips_at):
    """Section 2: matching is by name along the MRO: hostile ConnectionErrors trip like any (what can't be read is INTERNAL)."""
    error = HOSTILE[name]()
    shared = registry.breaker("api", trips_at(9))
    assert ("same", name) == (ending(lambda: shared.call(_raise, error), error), name)
    if name not in {"hostile type", "refuses everything", "endless chain"}:
        assert 1 == shared.status().failures_total


def _raise(error):
    raise error


BAD_FAULTS = {
    "kind word": (("nonsense",), {}),
    "kind number": ((5,), {}),
    "kind none": ((None,), {}),
    "flags word": ((DOWN,), {"flags": "quota"}),
    "flags number": ((DOWN,), {"flags": [5]}),
    "status word": ((DOWN,), {"status": "503"}),
    "status bool": ((DOWN,), {"status": True}),
    "status huge": ((DOWN,), {"status": 10**400}),
    "wait word": ((DOWN,), {"retry_after": "7"}),
    "wait bool": ((DOWN,), {"retry_after": True}),
    "wait negative": ((DOWN,), {"retry_after": -1.0}),
    "wait nan": ((DOWN,), {"retry_after": float("nan")}),
    "wait inf": ((DOWN,), {"retry_after": float("inf")}),
    "wait huge": ((DOWN,), {"retry_after": 10**400}),
    "code number": ((DOWN,), {"code": 5}),
}


@pytest.mark.parametrize("name", sorted(BAD_FAULTS))
def test_impossible_fault_never_escapes_into_the_call(world, name, trips_at):
    """I10, I20, section 2: a Fault that can't be right is refused when made (INTERNAL then), or harmless: the real exception leaves."""
    args, kwargs = BAD_FAULTS[name]
    error = ConnectionError("real")
    policies = compose(
        retry(2, wait=0, idempotent=True),
        breaker("api", trips_at(1, cooldown=30, max_cooldown=100), classify=lambda exc: Fault(*args, **kwargs)),
    )

    def body(arg):
        raise error

    assert error is world.fails(policies(world.function(body)))
    status = world.registry.get("api").status()
    assert status.retry_after is None or 30 <= status.retry_after <= 100
    assert (1 if status.state is OPEN else 0) == status.failures_total


@pytest.mark.parametrize("name", sorted(BAD_FAULTS))
def test_impossible_fault_says_so(name):
    """Bad input: a Fault that can't be right is a ConfigurationError (or a TypeError) that names what is wrong."""
    args, kwargs = BAD_FAULTS[name]
    with pytest.raises((ConfigurationError, TypeError)):
        Fault(*args, **kwargs)


def test_exception_types_are_not_kept(registry, trips_at):
    """I12: classes made on the fly die: neither the cache of classifications nor the once-a-site warning keeps them."""
    fn = retry(2, wait=0, idempotent=True)(breaker("api", trips_at(10**6))(_raise))
    gone = []
    for number in range(300):
        kind = type(f"Made{number}", (Exception,), {})
        gone.append(weakref.ref(kind))
        try:
            fn(kind())
        except Exception:
            pass
        del kind
    gc.collect()
    # A bounded cache may hold the latest ones.
    assert sum(ref() is not None for ref in gone) < 300


def test_unclassified_warnings_are_bounded(registry, trips_at, caplog):
    """I12, section 2: a site that makes a new exception class for each call does not fill the log or the memory for ever."""
    import tracemalloc

    fn = breaker("api", trips_at(10**6))(_raise)

    def work(start, count):
        for number in range(start, start + count):
            try:
                fn(type(f"Made{number}", (Exception,), {})())
            except Exception:
                pass
        caplog.clear()
        gc.collect()

    work(0, 1200)
    tracemalloc.start()
    try:
        work(2000, 300)
        before = tracemalloc.get_traced_memory()[0]
        work(3000, 1500)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 500_000


# ------------------------------------------------------------------------------------------ plain functions that return awaitables
def test_failure_of_a_returned_awaitable_is_counted(registry, trips_at):
    """Issue 2, Build 6: a sync function that returns an awaitable: guard the await."""

    async def work(fails):
        await asyncio.sleep(0)
        if fails:
            raise ConnectionError
        return "ok"

    fn = breaker("api", trips_at(9))(lambda fails: work(fails))

    async def main():
        assert "ok" == await fn(False)
        with pytest.raises(ConnectionError):
            await fn(True)

    asyncio.run(main())
    status = registry.get("api").status()
    assert (1, 1) == (status.successes_total, status.failures_total)


def test_slot_of_a_returned_awaitable_is_held_until_its_end(registry):
    """Issue 2, Build 6: the slot is held while it is awaited, and given back at its end."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def work():
        await asyncio.sleep(0)
        return pool.in_flight

    fn = bulkhead("pool")(lambda: work())
    assert 1 == asyncio.run(_await(fn))
    assert 0 == pool.in_flight


async def _await(fn):
    return await fn()


def test_returned_awaitable_that_is_cancelled(registry, trips_at):
    """I4: cancelled: neutral, and the slot is back."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def work():
        await asyncio.Event().wait()

    fn = bulkhead("pool")(breaker("api", trips_at(1))(lambda: work()))

    async def main():
        task = asyncio.create_task(_await(fn))
        for _ in range(4):
            await asyncio.sleep(0)
        assert 1 == pool.in_flight
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert 0 == pool.in_flight
    assert CLOSED is registry.get("api").state


@pytest.mark.parametrize("way", ["close", "drop"])
def test_returned_awaitable_that_nobody_awaits(registry, trips_at, way):
    """I4, I8: given up without being awaited: neutral, and the slot is back."""
    import warnings

    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def work():
        return "never"

    fn = bulkhead("pool")(breaker("api", trips_at(1))(lambda: work()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        awaitable = fn()
        if way == "close" and hasattr(awaitable, "close"):
            awaitable.close()
        del awaitable
        gc.collect()
    assert 0 == pool.in_flight
    assert 0 == registry.get("api").status().failures_total


def test_probe_of_a_returned_awaitable(registry, clock, trips_at):
    """Section 4: the probe is held until the awaitable ends."""
    shared = registry.breaker("api", trips_at(1, cooldown=30))
    shared.on_failure(shared.try_acquire(), DOWN)
    clock.advance(30)

    async def work():
        assert CircuitState.HALF_OPEN is shared.state
        with pytest.raises(CircuitOpenError):
            await asyncio.to_thread(lambda: threading.current_thread() and _in_a_fresh_context(shared.try_acquire))
        return "ok"

    fn = breaker("api")(lambda: work())
    assert "ok" == asyncio.run(_await(fn))
    assert CLOSED is shared.state


def _in_a_fresh_context(call):
    import contextvars

    return contextvars.Context().run(call)


def test_breaker_call_of_an_async_function(registry, trips_at):
    """Design 1: breaker.call(async fn) hands out the awaitable, guarded like any returned one."""
    shared = registry.breaker("api", trips_at(9))

    async def work():
        raise ConnectionError

    async def main():
        with pytest.raises(ConnectionError):
            await shared.call(work)

    asyncio.run(main())
    assert 1 == shared.status().failures_total
    assert 0 == shared.status().successes_total


def test_retry_of_a_returned_awaitable(registry, clock):
    """Issue 2, Build 6: a retry on such a function retries the await, or is refused when decorated; never half."""
    calls = []

    async def work():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return "ok"

    try:
        fn = retry(3, wait=0, idempotent=True)(lambda: work())
    except ConfigurationError:
        return
    assert "ok" == asyncio.run(_await(fn))
    assert 3 == len(calls)


# ------------------------------------------------------------------------------------------ registries and their arguments
@pytest.mark.parametrize("value", [5, "clock", object(), True])
def test_registry_clock(value):
    """I20: what is no clock is refused when given."""
    with pytest.raises((ConfigurationError, TypeError)):
        Registry(clock=value)


@pytest.mark.parametrize("value", [5, "yes", None])
def test_registry_strict(value):
    """I20: strict is a bool."""
    with pytest.raises((ConfigurationError, TypeError)):
        Registry(strict=value)


@pytest.mark.parametrize("value", [int, "Rejected", 5, None])
def test_subscribe_types(registry, value):
    """I20: what is no event type is refused at once."""
    with pytest.raises((ConfigurationError, TypeError)):
        registry.subscribe(print, value)


@pytest.mark.parametrize("value", [None, 5, "fn", len])
def test_describe_of_what_is_not_decorated(value):
    """I20: describe says so."""
    with pytest.raises((ConfigurationError, TypeError)):
        describe(value)


def test_three_probes_exactly(registry, trips_at, clock):
    """I1: half_open_probes=3: of 50 tasks exactly three reach the provider."""
    reached = []

    async def main():
        gate = asyncio.Event()

        @breaker("api", trips_at(1, cooldown=30, half_open_probes=3, half_open_successes=3))
        async def fn():
            reached.append(1)
            await gate.wait()

        shared = registry.get("api")
        shared.on_failure(shared.try_acquire(), DOWN)
        clock.advance(30)
        tasks = [asyncio.create_task(fn()) for _ in range(50)]
        for _ in range(4):
            await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert 3 == len(reached)
    assert 47 == sum(isinstance(result, CircuitOpenError) for result in results)
    assert CLOSED is registry.get("api").state


# ------------------------------------------------------------------------------------------ several loops at once
def test_timeouts_on_four_loops_at_once(registry):
    """Section 5: one function, four loops in four threads: each expiry belongs to its own loop."""

    @timeout(0.02)
    async def fn(hangs):
        if hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return "quick"

    results = {}

    def loop(number):
        async def main():
            return await asyncio.gather(*(fn(index % 2 == 0) for index in range(20)), return_exceptions=True)

        results[number] = asyncio.run(main())

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    for result in results.values():
        assert 10 == result.count("quick")
        assert 10 == sum(isinstance(one, TimeoutExceeded) for one in result)
    assert 4 == len(results)


def test_many_loops_leave_nothing(registry):
    """I12: a function used on 100 loops keeps none of their timers."""

    @timeout(5)
    async def fn():
        await asyncio.sleep(0)

    class Loop(asyncio.SelectorEventLoop):
        pass

    gone = []
    for _ in range(100):
        loop = Loop()
        gone.append(weakref.ref(loop))
        loop.run_until_complete(fn())
        loop.close()
        del loop
    gc.collect()
    assert sum(ref() is not None for ref in gone) <= 1


# ------------------------------------------------------------------------------------------ Ctrl-C and the end of the process
def run(program, timeout=15):
    code = textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_ctrl_c_while_a_worker_works():
    """I4: KeyboardInterrupt while the caller waits for its worker: neutral for the breaker; the slot follows the orphan."""
    ran = run(
        """
        import signal, threading, time
        from resilience import *
        release = threading.Event()
        pool = default_registry().bulkhead("pool", BulkheadConfig(1))
        @bulkhead("pool")
        @timeout(10)
        @breaker("api", BreakerConfig(Consecutive(1)))
        @interruptible(max_workers=2)
        def fn():
            release.wait(5)
        def stop(*args):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        try:
            fn()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 2)
        print(breaker("api").state.value, pool.in_flight)
        release.set()
        for _ in range(200):
            if pool.in_flight == 0:
                break
            time.sleep(0.005)
        print(pool.in_flight)
        """
    )
    assert ("interrupted True\nclosed 1\n0\n", "") == (ran.stdout, ran.stderr)


def test_ctrl_c_while_standing_in_line():
    """Section 7: a thread interrupted in line leaves it, and no slot is lost."""
    ran = run(
        """
        import signal, threading, time
        from resilience import *
        release, inside = threading.Event(), threading.Event()
        pool = default_registry().bulkhead("pool", BulkheadConfig(1))
        def hold():
            inside.set()
            release.wait(5)
        holder = threading.Thread(target=bulkhead("pool")(hold))
        holder.start()
        inside.wait(5)
        def stop(*args):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        try:
            bulkhead("pool", wait=8)(lambda: None)()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 2)
        print(pool.waiting)
        release.set()
        holder.join()
        print(bulkhead("pool")(lambda: "in")(), pool.in_flight)
        """
    )
    assert ("interrupted True\n0\nin 0\n", "") == (ran.stdout, ran.stderr)


def test_ctrl_c_while_waiting_between_attempts():
    """I4: interrupted in a retry's wait."""
    ran = run(
        """
        import signal, time
        from resilience import *
        pool = default_registry().bulkhead("pool", BulkheadConfig(1))
        @bulkhead("pool")
        @retry(3, wait=8, idempotent=True)
        def fn():
            raise ConnectionError
        def stop(*args):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            fn()
        except KeyboardInterrupt as exc:
            print("interrupted")
        print(pool.in_flight)
        """
    )
    assert ("interrupted\n0\n", "") == (ran.stdout, ran.stderr)


def test_process_ends_with_an_orphan_at_work():
    """Section 5: a daemon worker never holds up the end of the process, and says nothing."""
    ran = run(
        """
        import threading
        from resilience import *
        @timeout(0.02)
        @interruptible
        def fn():
            threading.Event().wait(60)
        try:
            fn()
        except TimeoutExceeded:
            print("gave up")
        """
    )
    assert (0, "gave up\n", "") == (ran.returncode, ran.stdout, ran.stderr)


def test_calls_at_interpreter_shutdown():
    """I20: calls made by atexit handlers and finalisers at the end of the process raise nothing odd."""
    ran = run(
        """
        import atexit
        from resilience import *
        @retry(2, wait=0, idempotent=True)
        @breaker("api", BreakerConfig(Consecutive(1)))
        def fn(fails):
            if fails:
                raise ConnectionError
            return "ok"
        class Late:
            def __del__(self):
                try:
                    print(fn(False))
                except CircuitOpenError:
                    print("refused")
        late = Late()
        late.me = late
        @atexit.register
        def end():
            print(fn(False))
            try:
                fn(True)
            except ConnectionError:
                print("failed")
        """
    )
    assert (0, "ok\nfailed\nrefused\n") == (ran.returncode, ran.stdout)
    assert "Traceback" not in ran.stderr
