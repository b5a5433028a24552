"""Every public async operation, cancelled at every one of its await points and around its expiries.

After each: no slot, permit, task or timer is left, nothing is counted that the remote did not
do, a cancel is never swallowed and never invented (I4, I8, I14, P17).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FaultKind,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    retry,
    timeout,
    uninterruptible,
)
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
TURNS = 40


class Provider:
    """What the remote did, so that the books can be compared."""

    def __init__(self, script):
        self.script = script
        self.failed = 0
        self.succeeded = 0
        self.live = 0

    async def __call__(self):
        self.live += 1
        try:
            what = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            await asyncio.sleep(0)
            if what == "hang":
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(0)
            if what == "fail":
                self.failed += 1
                raise ConnectionError
            self.succeeded += 1
            return "ok"
        finally:
            self.live -= 1


class Scene:
    """One registry, one bulkhead, one breaker, one provider."""

    functions = 0

    def __init__(self, registry, clock, script, state=CLOSED):
        type(self).functions += 1
        self.registry = registry
        self.clock = clock
        self.provider = Provider(list(script))
        self.pool = registry.bulkhead("pool", BulkheadConfig(1))
        self.shared = registry.breaker("api", BreakerConfig(Consecutive(50), cooldown=30))
        registry.clear_state()
        if state is HALF_OPEN:
            self.shared.force_open("x", seconds=0.0001)
            if clock is None:
                import time

                time.sleep(0.0002)
            else:
                clock.advance(1)

    def function(self, policies):
        provider = self.provider

        async def fn():
            return await provider()

        return compose(*policies)(fn) if policies else fn

    def check(self, tasks_before, counts=True):
        """Nothing is left behind, and the books agree with what the provider did."""
        status = self.shared.status()
        assert 0 == self.provider.live
        assert 0 == self.pool.in_flight
        assert 0 == self.pool.waiting
        assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released
        assert tasks_before == asyncio.all_tasks()
        if counts:
            assert self.provider.failed == status.failures_total + status.late_results
        # One lazily armed timer for each function is the design; none for each call.
        assert len(waiting_timers()) <= self.functions
        if self.clock is not None:
            assert self.clock.pending <= self.functions
        if status.state is not OPEN:
            permit = self.shared.try_acquire()
            self.shared.release(permit)


def waiting_timers():
    return [handle for handle in getattr(asyncio.get_running_loop(), "_scheduled", ()) if not handle.cancelled()]


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def settled(task):
    """Let a task come to its end, whatever it is."""
    for _ in range(TURNS):
        if task.done():
            break
        await asyncio.sleep(0)
    assert task.done(), "the task hangs"
    with contextlib.suppress(BaseException):
        task.exception()


async def watched(make, seen):
    """Run a call inside the task and note how it ended and what is owed."""
    task = asyncio.current_task()
    try:
        return await make()
    except BaseException as exc:
        seen.append(exc)
        raise
    finally:
        seen.append(task.cancelling())


POLICIES = {
    "B": lambda: bulkhead("pool", wait=5),
    "T": lambda: timeout(20),
    "P": lambda: timeout(20, per_attempt=10),
    "R": lambda: retry(3, wait=0, idempotent=True),
    "W": lambda: retry(3, wait=7, idempotent=True),
    "C": lambda: breaker("api"),
    "A": lambda: breaker("api", account="call"),
    "J": lambda: breaker("api", classify_result=lambda value: FaultKind.TRANSIENT if value == "bad" else None),
}
SUBSETS = [
    "".join(parts)
    for parts in itertools.product(("", "B"), ("", "T", "P"), ("", "R", "W"), ("", "C", "A", "J"))
    if any(parts) and not ("W" in parts and parts[0] == "")  # waits are swept with a slot held
]
SCRIPTS = {
    "ok": ["ok"],
    "fail": ["fail"],
    "flaky": ["fail", "ok"],
    "hang": ["hang"],
    "fail then hang": ["fail", "hang"],
}


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("subset", SUBSETS)
def test_cancel_at_every_await_point(registry, subset, clocked, state):
    """I4, I8: a decorated call with each subset of policies, cancelled after k turns for all k."""
    if state is HALF_OPEN and not set(subset) & set("CAJ"):
        pytest.skip("no breaker")
    clock = ManualClock(100) if clocked else None
    counts = bool(set(subset) & set("CJ"))

    async def main():
        for name, script in SCRIPTS.items():
            for turn in range(TURNS):
                scene = Scene(registry, clock, script, state)
                before = asyncio.all_tasks()
                seen = []
                fn = scene.function([POLICIES[letter]() for letter in subset])
                task = asyncio.create_task(watched(fn, seen))
                await turns(turn)
                if task.done():
                    assert not task.cancelled(), "a cancel was invented"
                    with contextlib.suppress(ConnectionError, CircuitOpenError):
                        task.result()
                    scene.check(before, counts=counts)
                    break
                assert task.cancel()
                await settled(task)
                assert task.cancelled(), (name, turn, "the cancel was swallowed")
                if turn:
                    assert isinstance(seen[0], asyncio.CancelledError)
                    assert 1 == seen[1], (name, turn)
                scene.check(before, counts=counts)
                if turn > 14:
                    break  # it hangs, or waits: every point has been seen

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize(
    "order",
    [
        "cancel, expire",
        "expire, cancel",
        "expire",
        "expire, turn, cancel",
        "expire, turn, turn, cancel",
        "cancel, turn, expire",
    ],
)
@pytest.mark.parametrize("subset", ["T", "P", "TC", "PC", "BTC", "BPRC", "BTRC", "TR", "PR", "BTWC", "BPWA", "TJ"])
@pytest.mark.parametrize("script", ["hang", "fail then hang", "fail"])
def test_cancel_around_an_expiry(registry, subset, order, script):
    """I14, P17: a cancel before, in the same tick as and after an expiry: cancel wins wherever it was accepted."""
    clock = ManualClock(100)

    async def main():
        for turn in range(1, 14):
            scene = Scene(registry, clock, SCRIPTS[script])
            before = asyncio.all_tasks()
            seen = []
            task = asyncio.create_task(watched(scene.function([POLICIES[letter]() for letter in subset]), seen))
            await turns(turn)
            accepted = False
            for step in order.split(", "):
                if step == "cancel":
                    accepted = task.cancel() or accepted
                elif step == "expire":
                    clock.advance(20)
                else:
                    await asyncio.sleep(0)
            for _ in range(8):  # later attempts expire as well
                await turns(8)
                if task.done():
                    break
                clock.advance(20)
            await settled(task)
            if accepted:
                assert task.cancelled(), (turn, "the cancel was swallowed", task)
                assert seen[1:] == [] or seen[1] >= 1
            else:
                assert not task.cancelled(), (turn, "a cancel was invented")
                assert isinstance(task.exception(), (TimeoutExceeded, ConnectionError))
                assert 0 == seen[1], turn
            scene.check(before, counts=False)

    with use_clock(clock, registry):
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("order", ["cancel, result", "result, cancel"])
@pytest.mark.parametrize("subset", ["C", "T", "BTRC", "BPRA", "B"])
def test_cancel_in_the_tick_of_the_result(registry, subset, order, clocked):
    """I14: a cancel in the same tick as the result: like a plain await: the cancel wins, nothing is left."""
    clock = ManualClock(100) if clocked else None

    async def main():
        scene = Scene(registry, clock, ["ok"])
        before = asyncio.all_tasks()
        outcomes = []
        for decorated in (False, True):
            result = asyncio.get_running_loop().create_future()

            async def fn(result=result):
                return await result

            target = compose(*[POLICIES[letter]() for letter in subset])(fn) if decorated else fn
            task = asyncio.create_task(target())
            await turns(6)
            for step in order.split(", "):
                if step == "cancel":
                    task.cancel()
                elif not result.done():
                    result.set_result("ok")
            await settled(task)
            outcomes.append(task.cancelled())
        assert outcomes[0] == outcomes[1]
        scene.check(before, counts=False)

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("script", ["ok", "fail", "hang"])
def test_guard_blocks(registry, clocked, state, script):
    """I4: a guard block cancelled at every await point."""
    clock = ManualClock(100) if clocked else None

    async def main():
        for turn in range(TURNS):
            scene = Scene(registry, clock, SCRIPTS[script], state)
            before = asyncio.all_tasks()

            async def block(scene=scene):
                async with breaker("api").guard():
                    await scene.provider()

            task = asyncio.create_task(block())
            await turns(turn)
            if task.done():
                assert not task.cancelled()
                with contextlib.suppress(ConnectionError):
                    task.result()
                scene.check(before)
                return
            task.cancel()
            await settled(task)
            assert task.cancelled()
            scene.check(before)
            if turn > 8:
                return

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("how", ["acall", "breaker.acall", "fallback"])
@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
def test_other_ways_to_call(registry, how, clocked):
    """I4: compose(...).acall, breaker.acall, and an async fallback."""
    from resilience import OnOpen

    clock = ManualClock(100) if clocked else None

    async def main():
        for turn in range(TURNS):
            scene = Scene(registry, clock, ["fail", "ok"])
            before = asyncio.all_tasks()

            async def target(scene=scene):
                return await scene.provider()

            if how == "acall":
                make = lambda: compose(*(POLICIES[letter]() for letter in "BTRC")).acall(target)  # noqa: E731
            elif how == "breaker.acall":
                make = lambda: scene.shared.acall(target)  # noqa: E731
            else:
                scene.shared.force_open("drill")
                make = breaker("api", on_open=OnOpen.BYPASS, fallback=target)(target)
            task = asyncio.create_task(make())
            await turns(turn)
            if task.done():
                assert not task.cancelled()
                with contextlib.suppress(ConnectionError):
                    task.result()
                return
            task.cancel()
            await settled(task)
            assert task.cancelled()
            if how == "fallback":
                scene.shared.reset()
            scene.check(before, counts=how != "fallback")

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.parametrize("release", range(12))
def test_bulkhead_line(registry, clocked, line, release):
    """Section 7, I8: a waiter cancelled at every moment around the hand-over: slots and the line are whole."""
    clock = ManualClock(100) if clocked else None

    async def main():
        pool = registry.bulkhead("pool", BulkheadConfig(1))
        for turn in range(10):
            gate = asyncio.Event()
            entered = []

            @bulkhead("pool", wait=50)
            async def fn(number, gate=gate, entered=entered):
                entered.append(number)
                await gate.wait()
                return number

            before = asyncio.all_tasks()
            tasks = [asyncio.create_task(fn(number)) for number in range(4)]
            await turns(4)
            victim = tasks[line]
            actions = sorted([(release, "open"), (turn, "cancel")])
            now = 0
            for when, action in actions:
                await turns(when - now)
                now = when
                if action == "open":
                    gate.set()
                else:
                    accepted = victim.cancel()
            for task in tasks:
                await settled(task)
            assert accepted == victim.cancelled()
            assert all(task.done() and not task.cancelled() for task in tasks if task is not victim)
            assert sorted(entered) == entered, "FIFO"
            assert (0, 0) == (pool.in_flight, pool.waiting), (turn, release)
            assert before == asyncio.all_tasks()

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize(
    "order",
    [
        "cancel, expire",
        "expire, cancel",
        "expire",
        "open, expire",
        "expire, open",
        "open, cancel, expire",
        "expire, cancel, open",
    ],
)
def test_bulkhead_wait_expiry(registry, order):
    """Section 7: expiry, grant and cancel of a waiter in one tick, in every order."""
    clock = ManualClock(100)

    async def main():
        pool = registry.bulkhead("pool", BulkheadConfig(1))
        for pause in range(4):
            gate = asyncio.Event()

            @bulkhead("pool", wait=5)
            async def fn(gate=gate):
                await gate.wait()
                return "in"

            before = asyncio.all_tasks()
            first = asyncio.create_task(fn())
            await turns(4)
            second = asyncio.create_task(fn())

            @bulkhead("pool", wait=500)
            async def patient():
                await asyncio.sleep(0)

            third = asyncio.create_task(patient())
            await turns(4)
            accepted = False
            for step in order.split(", "):
                if step == "cancel":
                    accepted = second.cancel()
                elif step == "expire":
                    clock.advance(5)
                else:
                    gate.set()
                await turns(pause)
            gate.set()
            for task in (first, second, third):
                await settled(task)
            assert accepted == second.cancelled()
            if not accepted:
                assert second.exception() is None or isinstance(second.exception(), BulkheadFullError)
            assert third.exception() is None
            assert (0, 0) == (pool.in_flight, pool.waiting)
            assert before == asyncio.all_tasks()
            assert 0 == clock.pending

    with use_clock(clock, registry):
        asyncio.run(main())


def test_retry_sleep(registry):
    """I4: cancelled in the middle of a wait: no timer stays, the slot is back, no further attempt is made."""
    clock = ManualClock(100)

    async def main():
        for advanced in (0, 3, 6.9):
            scene = Scene(registry, clock, ["fail"])
            before = asyncio.all_tasks()
            task = asyncio.create_task(scene.function([POLICIES["B"](), POLICIES["W"](), POLICIES["C"]()])())
            await turns(8)
            clock.advance(advanced)
            await turns(4)
            assert 1 == scene.provider.failed
            task.cancel()
            await settled(task)
            assert task.cancelled()
            clock.advance(100)
            await turns(4)
            assert 1 == scene.provider.failed
            scene.check(before)
            assert 0 == clock.pending

    with use_clock(clock, registry):
        asyncio.run(main())


@pytest.mark.parametrize("order", ["cancel, wake", "wake, cancel"])
def test_retry_sleep_ends_in_the_tick_of_the_cancel(registry, order):
    """I14: the wait is over in the very tick of the cancel: the cancel wins."""
    clock = ManualClock(100)

    async def main():
        scene = Scene(registry, clock, ["fail"])
        before = asyncio.all_tasks()
        task = asyncio.create_task(scene.function([POLICIES["B"](), POLICIES["W"](), POLICIES["C"]()])())
        await turns(8)
        for step in order.split(", "):
            if step == "cancel":
                task.cancel()
            else:
                clock.advance(7)
        await settled(task)
        assert task.cancelled()
        assert 1 == scene.provider.failed
        scene.check(before)

    with use_clock(clock, registry):
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("subset", ["", "C", "B", "BC", "BRC"])
@pytest.mark.parametrize("script", ["ok", "fail"])
def test_uninterruptible(registry, clocked, subset, script):
    """Section 5: an @uninterruptible function cancelled at every point ends its work, is judged, then the cancel is raised."""
    clock = ManualClock(100) if clocked else None

    async def main():
        for turn in range(TURNS):
            scene = Scene(registry, clock, SCRIPTS[script])
            before = asyncio.all_tasks()

            @uninterruptible
            async def fn(scene=scene):
                return await scene.provider()

            target = compose(*(POLICIES[letter]() for letter in subset or "C"))(fn)
            task = asyncio.create_task(target())
            await turns(turn)
            if task.done():
                assert not task.cancelled()
                with contextlib.suppress(ConnectionError):
                    task.result()
                scene.check(before, counts=subset != "B")
                return
            began = scene.provider.live or scene.provider.failed or scene.provider.succeeded
            task.cancel()
            await settled(task)
            assert task.cancelled(), turn
            if began:
                assert scene.provider.failed + scene.provider.succeeded >= 1
            await turns(2)
            scene.check(before, counts=subset != "B")

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "B", "T"])
def test_coroutine_closed_at_every_await_point(registry, clocked, subset):
    """I4: GeneratorExit (a coroutine closed by hand) at every suspension: everything is given back, nothing counted."""
    clock = ManualClock(100) if clocked else None

    async def main():
        for point in range(12):
            scene = Scene(registry, clock, ["fail", "ok"])
            before = asyncio.all_tasks()
            coroutine = scene.function([POLICIES[letter]() for letter in subset])()
            finished = False
            for _ in range(point):
                try:
                    coroutine.send(None)
                except (StopIteration, ConnectionError):
                    finished = True
                    break
            coroutine.close()
            scene.check(before, counts=bool(set(subset) & set("CJ")))
            if finished:
                return

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "BRJ"])
@pytest.mark.parametrize(
    "exception", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, ConnectionError]
)
def test_exception_thrown_at_every_await_point(registry, clocked, subset, exception):
    """I4, I10: whatever is thrown in at any suspension leaves everything whole; what is no Exception leaves as it is."""
    clock = ManualClock(100) if clocked else None

    async def main():
        for point in range(1, 12):
            scene = Scene(registry, clock, ["fail", "ok"])
            before = asyncio.all_tasks()
            coroutine = scene.function([POLICIES[letter]() for letter in subset])()
            finished = False
            for _ in range(point):
                try:
                    coroutine.send(None)
                except (StopIteration, ConnectionError):
                    finished = True
                    break
            if finished:
                return
            thrown = exception()
            try:
                coroutine.throw(thrown)
                while True:
                    coroutine.send(None)
            except BaseException as exc:
                if not issubclass(exception, Exception):
                    assert thrown is exc  # noqa: PT017
            scene.check(before, counts=False)

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


@pytest.mark.parametrize("clocked", [False, True], ids=["straight", "plan"])
@pytest.mark.parametrize("subset", ["T", "P", "BTRC", "BPRC"])
def test_one_timer_for_all_calls_of_a_function(registry, subset, clocked):
    """Performance: one shared, lazily armed timer per (loop, function): cancels leave no timers behind."""
    clock = ManualClock(100) if clocked else None

    async def main():
        scene = Scene(registry, clock, ["hang"])
        fn = scene.function([POLICIES[letter]() for letter in subset])
        most = 2 if "P" in subset else 1
        for turn in range(10):
            task = asyncio.create_task(fn())
            await turns(turn)
            task.cancel()
            await settled(task)
            assert (len(waiting_timers()) if clock is None else clock.pending) <= most

    with use_clock(clock, registry) if clocked else contextlib.nullcontext():
        asyncio.run(main())


def test_cancel_storm_over_one_stack(registry):
    """I8: 300 calls cancelled at random moments: the books are whole."""
    import random

    rng = random.Random(11)
    pool = registry.bulkhead("pool", BulkheadConfig(3, 1000))
    registry.breaker("api", BreakerConfig(Consecutive(10**6)))
    raised = [0]

    @bulkhead("pool", wait=50)
    @timeout(50, per_attempt=20)
    @retry(3, wait=0, idempotent=True)
    @breaker("api")
    async def fn(plan):
        for _ in range(plan % 4):
            await asyncio.sleep(0)
        if plan % 3 == 0:
            raised[0] += 1
            raise ConnectionError
        return plan

    async def main():
        before = asyncio.all_tasks()
        tasks = [asyncio.create_task(fn(rng.randrange(100))) for _ in range(300)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            for task in rng.sample(tasks, 5):
                task.cancel()
        assert before == asyncio.all_tasks()

    asyncio.run(main())
    assert (0, 0) == (pool.in_flight, pool.waiting)
    assert raised[0] == registry.get("api").status().failures_total
