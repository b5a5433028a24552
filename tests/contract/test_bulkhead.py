"""Contract section 7: the bulkhead over threads and event loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    ConfigurationError,
    FaultKind,
    OnReject,
    Registry,
    breaker,
    bulkhead,
    classify,
    compose,
    retry,
    use_registry,
)
from resilience._core.events import BulkheadRejected, Bypassed, ConfigConflict


async def turns(count=8):
    for _ in range(count):
        await asyncio.sleep(0)


def until(condition, seconds=2.0):
    gate = threading.Event()
    for _ in range(int(seconds / 0.002)):
        if condition():
            return True
        gate.wait(0.002)
    return condition()


class Threads:
    """Threads whose ends are waited for."""

    def __init__(self):
        self.all = []
        self.errors = []

    def start(self, fn, *args):
        def run():
            try:
                fn(*args)
            except BaseException as exc:
                self.errors.append(exc)

        thread = threading.Thread(target=run, daemon=True)
        self.all.append(thread)
        thread.start()
        return thread

    def join(self):
        for thread in self.all:
            thread.join(5)
            assert not thread.is_alive()


@pytest.fixture
def threads():
    threads = Threads()
    yield threads
    threads.join()


# ------------------------------------------------------------------------------------------ one call
def test_slot_is_given_back(env, remote):
    """I8: after success, failure and refusal."""
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))
    fn = bulkhead("pool")(env.function(remote("ok", ConnectionError, ValueError, "ok")))
    for _ in range(4):
        env.fails(fn)
        assert 0 == pool.in_flight


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_slot_is_given_back_after_a_base_exception(env, stop):
    """I4: whatever ends the call."""
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))

    def body(arg):
        raise stop

    fn = bulkhead("pool")(env.function(body))
    with pytest.raises(stop):
        fn().send(None) if env.is_async else fn()
    assert 0 == pool.in_flight


def test_wrong_arguments_take_no_slot(env):
    """Performance: a wrong argument list leaves nothing behind."""
    pool = env.registry.bulkhead("pool", BulkheadConfig(1))
    fn = bulkhead("pool")(env.function(lambda arg: arg))
    with pytest.raises(TypeError):
        env.call(fn, nonsense=1)
    assert 0 == pool.in_flight


def test_full_rejects_at_once(env):
    """Section 7: wait=0 rejects at once."""
    inner = bulkhead("pool", max_in_flight=1)(env.function(lambda arg: arg))
    if env.is_async:

        @bulkhead("pool")
        async def outer():
            return await inner()

    else:

        @bulkhead("pool")
        def outer():
            return inner()

    refusal = env.fails(outer)
    assert isinstance(refusal, BulkheadFullError)
    assert "pool" == refusal.name
    assert FaultKind.TRANSIENT is classify(refusal).kind
    assert "bulkhead_full" == refusal.code


def test_bypass_value(env):
    """Section 7: on_reject=BYPASS returns the fallback."""
    inner = bulkhead("pool", max_in_flight=1, on_reject=OnReject.BYPASS, fallback=lambda arg, key=None: ("spare", arg))(
        env.function(lambda arg: arg)
    )
    if env.is_async:

        @bulkhead("pool")
        async def outer():
            return await inner(7)

    else:

        @bulkhead("pool")
        def outer():
            return inner(7)

    assert ("spare", 7) == env.call(outer)


def test_events(env, events):
    """Section 12: rejections and bypasses are events where a sink asked for them."""
    hard = bulkhead("pool", max_in_flight=1)(env.function(lambda arg: arg))
    soft = bulkhead("pool", on_reject=OnReject.BYPASS)(env.function(lambda arg: arg))
    for inner in (hard, soft):
        if env.is_async:

            async def outer(inner=inner):
                return await inner()

        else:

            def outer(inner=inner):
                return inner()

        env.fails(bulkhead("pool")(outer))

    assert [False, False] == [event.waited for event in events if isinstance(event, BulkheadRejected)]
    assert ["bulkhead"] == [event.by for event in events if isinstance(event, Bypassed)]


def test_max_waiting_zero_never_waits(registry, clock):
    """Section 7: beyond max_waiting a caller is refused at once."""
    registry.bulkhead("pool", BulkheadConfig(1, 0))
    inner = bulkhead("pool", wait=50)(lambda: None)
    with pytest.raises(BulkheadFullError):
        bulkhead("pool")(lambda: inner())()
    assert [] == clock.slept


# ------------------------------------------------------------------------------------------ names
def test_reference_by_name(env):
    """Section 7: bulkhead(name) without max_in_flight refers to a registered one."""
    bulkhead("pool", max_in_flight=3)
    fn = bulkhead("pool")(env.function(lambda arg: env.registry.get_bulkhead("pool").in_flight))
    assert 1 == env.call(fn)
    assert 3 == env.registry.get_bulkhead("pool").max_in_flight


def test_reference_resolves_at_the_first_call(env):
    """Section 7: the reference may come first."""
    fn = bulkhead("later")(env.function(lambda arg: "in"))
    bulkhead("later", max_in_flight=1)
    assert "in" == env.call(fn)


def test_first_registration_wins(registry, caplog, events):
    """Section 7: first registration wins, conflicts warned as for breakers."""
    caplog.set_level(logging.WARNING, "resilience")
    bulkhead("pool", max_in_flight=3)
    bulkhead("pool", max_in_flight=5)
    bulkhead("pool", max_in_flight=5)

    assert 3 == registry.get_bulkhead("pool").max_in_flight
    assert 1 == len(caplog.records)
    assert "max_in_flight" in caplog.records[0].getMessage()
    assert any(
        "max_in_flight" in difference
        for event in events
        if isinstance(event, ConfigConflict)
        for difference in event.differences
    )


def test_strict_raises(caplog):
    """Section 9: strict=True raises instead."""
    with use_registry(Registry(strict=True)):
        bulkhead("pool", max_in_flight=3)
        bulkhead("pool", max_in_flight=3)
        with pytest.raises(ConfigurationError, match="max_in_flight"):
            bulkhead("pool", max_in_flight=5)


def test_default_line_is_ten_times(registry):
    """Section 7: default 10 x max_in_flight, equal to saying so."""
    bulkhead("pool", max_in_flight=3)
    bulkhead("pool", max_in_flight=3, max_waiting=30)
    assert 30 == registry.get_bulkhead("pool").max_waiting


def test_breaker_and_bulkhead_of_one_name(env):
    """Section 9: two kinds, two name spaces."""
    fn = bulkhead("same", max_in_flight=1)(breaker("same", BreakerConfig())(env.function(lambda arg: "in")))
    assert "in" == env.call(fn)


def test_unnamed_belongs_to_the_function(env):
    """Section 7: without a name it belongs to the function it decorates and is in no registry."""
    policy = bulkhead(max_in_flight=1)
    one = policy(env.function(lambda arg: "one"))
    if env.is_async:

        async def calls_one(arg=None):
            return await one()

    else:

        def calls_one(arg=None):
            return one()

    two = policy(calls_one)
    assert "one" == env.call(two)
    assert env.registry.get_bulkhead("one") is None


def test_unnamed_is_full_by_itself(env):
    """Section 7: and caps that function."""
    fn = None

    if env.is_async:

        async def again(depth=0):
            return await fn(depth + 1) if depth < 3 else depth

    else:

        def again(depth=0):
            return fn(depth + 1) if depth < 3 else depth

    fn = bulkhead(max_in_flight=2)(again)
    assert isinstance(env.fails(fn), BulkheadFullError)
    assert 1 == env.call(bulkhead(max_in_flight=1)(env.function(lambda arg: 1)))


def test_unnamed_is_shown_as_module_and_qualname(env):
    """Design 1: shown as module:qualname."""
    fn = None

    def recursive(arg=None):
        return fn()

    async def arecursive(arg=None):
        return await fn()

    fn = bulkhead(max_in_flight=1)(arecursive if env.is_async else recursive)
    refusal = env.fails(fn)
    assert refusal.name.endswith("recursive")
    assert ":" in refusal.name


# ------------------------------------------------------------------------------------------ FIFO in one loop
def test_waiters_are_served_in_order(registry):
    """Section 7: strict FIFO."""
    order = []

    async def main():
        go = asyncio.Event()

        @bulkhead("pool", max_in_flight=1, max_waiting=50, wait=5)
        async def fn(number):
            order.append(number)
            if number == 0:
                await go.wait()
            await asyncio.sleep(0)

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(fn(number)))
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert list(range(20)) == order


def test_newcomer_never_overtakes_the_line(registry):
    """Section 7: somebody in line: a newcomer without wait is refused even where a slot has just come free."""

    async def main():
        go = asyncio.Event()
        entered = []

        @bulkhead("pool", max_in_flight=1, wait=5)
        async def fn(name):
            entered.append(name)
            await go.wait()

        first = asyncio.create_task(fn("first"))
        await turns(2)
        second = asyncio.create_task(fn("second"))
        await turns(2)
        go.set()
        newcomer = asyncio.create_task(fn("newcomer"))
        await asyncio.gather(first, second, newcomer)
        return entered

    assert ["first", "second", "newcomer"] == asyncio.run(main())


def test_line_is_bounded(registry):
    """Section 7: at most max_waiting in line, the next is refused at once."""

    async def main():
        go = asyncio.Event()

        @bulkhead("pool", max_in_flight=1, max_waiting=2, wait=5)
        async def fn():
            await go.wait()

        tasks = [asyncio.create_task(fn()) for _ in range(4)]
        await turns()
        assert isinstance(tasks[3].exception(), BulkheadFullError)
        assert 2 == registry.get_bulkhead("pool").waiting
        go.set()
        await asyncio.gather(*tasks[:3])

    asyncio.run(main())


def test_place_in_line_comes_free_when_a_waiter_leaves(registry):
    """Section 7: a cancelled waiter gives its place back."""

    async def main():
        go = asyncio.Event()

        @bulkhead("pool", max_in_flight=1, max_waiting=1, wait=5)
        async def fn():
            await go.wait()
            return "in"

        first = asyncio.create_task(fn())
        await turns()
        second = asyncio.create_task(fn())
        await turns()
        second.cancel()
        await turns()
        assert 0 == registry.get_bulkhead("pool").waiting
        third = asyncio.create_task(fn())
        await turns()
        assert not third.done()
        go.set()
        assert ["in", "in"] == await asyncio.gather(first, third)

    asyncio.run(main())


def test_cancelled_waiter_never_loses_a_slot(registry):
    """Section 7: also when it was granted in the very tick in which it is cancelled."""

    async def main():
        pool = registry.bulkhead("pool", BulkheadConfig(1))

        for turn in range(6):
            go = asyncio.Event()

            @bulkhead("pool", wait=5)
            async def fn(go=go):
                await go.wait()

            first = asyncio.create_task(fn())
            await turns()
            second = asyncio.create_task(fn())
            third = asyncio.create_task(fn())
            await turns()
            go.set()
            await turns(turn)
            second.cancel()
            await asyncio.gather(first, third)
            await asyncio.gather(second, return_exceptions=True)
            assert 0 == pool.in_flight, turn
            assert 0 == pool.waiting, turn

    asyncio.run(main())


def test_expired_waiter_is_refused(registry, manual):
    """Section 7: an expired waiter: BulkheadFullError at its time, and the line goes on."""

    async def main():
        go = asyncio.Event()
        registry.bulkhead("pool", BulkheadConfig(1))

        async def fn():
            await go.wait()
            return "in"

        first = asyncio.create_task(bulkhead("pool")(fn)())
        await turns()
        short = asyncio.create_task(bulkhead("pool", wait=2)(fn)())
        await turns()
        patient = asyncio.create_task(bulkhead("pool", wait=20)(fn)())
        await turns()
        manual.advance(2)
        await turns()
        assert isinstance(short.exception(), BulkheadFullError)
        go.set()
        assert ["in", "in"] == await asyncio.gather(first, patient)

    asyncio.run(main())
    assert 0 == registry.get_bulkhead("pool").in_flight
    assert 0 == registry.get_bulkhead("pool").waiting


def test_expiry_and_grant_in_one_tick(registry, manual):
    """Section 7: grant and give-up race for the ticket: whoever wins, no slot is lost."""

    async def main():
        pool = registry.bulkhead("pool", BulkheadConfig(1))
        for order in ("expire first", "give first"):
            go = asyncio.Event()

            @bulkhead("pool", wait=2)
            async def fn(go=go):
                await go.wait()
                return "in"

            first = asyncio.create_task(fn())
            await turns()
            second = asyncio.create_task(fn())
            await turns()
            if order == "expire first":
                manual.advance(2)
                go.set()
            else:
                go.set()
                await asyncio.sleep(0)
                manual.advance(2)
            await asyncio.gather(first, second, return_exceptions=True)
            assert 0 == pool.in_flight, order
            assert 0 == pool.waiting, order

    asyncio.run(main())


def test_waiting_does_not_block_the_loop(registry):
    """Section 7: an async waiter suspends."""

    async def main():
        ticks = 0
        go = asyncio.Event()

        @bulkhead("pool", max_in_flight=1, wait=5)
        async def fn():
            await go.wait()

        tasks = [asyncio.create_task(fn()) for _ in range(2)]
        for _ in range(50):
            ticks += 1
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)
        return ticks

    assert 50 == asyncio.run(main())


# ------------------------------------------------------------------------------------------ threads
def test_threads_wait_in_order(registry, threads):
    """Section 7: strict FIFO across threads."""
    order = []
    leave = threading.Event()
    pool = registry.bulkhead("pool", BulkheadConfig(1, 50))

    @bulkhead("pool", wait=4)
    def fn(number):
        order.append(number)
        if number == 0:
            leave.wait(4)

    for number in range(10):
        threads.start(fn, number)
        assert until(lambda number=number: pool.waiting == number if number else order == [0])
    leave.set()
    threads.join()
    assert list(range(10)) == order
    assert [] == threads.errors


def test_thread_waits_no_longer_than_its_wait(registry, threads):
    """Section 7: wait is the call site's."""
    leave = threading.Event()
    registry.bulkhead("pool", BulkheadConfig(1))
    threads.start(bulkhead("pool")(lambda: leave.wait(4)))
    assert until(lambda: registry.get_bulkhead("pool").in_flight == 1)
    begun = time.monotonic()
    with pytest.raises(BulkheadFullError):
        bulkhead("pool", wait=0.03)(lambda: None)()
    assert 0.025 < time.monotonic() - begun < 0.5
    leave.set()


def test_fifo_over_threads_and_loops(registry, threads):
    """Section 7: one line for threads and any number of event loops together."""
    order = []
    leave = threading.Event()
    pool = registry.bulkhead("pool", BulkheadConfig(1, 50))

    @bulkhead("pool", wait=4)
    def sync(number):
        order.append(number)
        if number == 0:
            leave.wait(4)

    @bulkhead("pool", wait=4)
    async def asynchronous(number):
        order.append(number)
        await asyncio.sleep(0)

    for number in range(9):
        if number % 3 == 0:
            threads.start(sync, number)
        else:
            threads.start(lambda number=number: asyncio.run(asynchronous(number)))
        assert until(lambda number=number: pool.waiting == number if number else order == [0])
    leave.set()
    threads.join()
    assert list(range(9)) == order
    assert [] == threads.errors
    assert 0 == pool.in_flight


def test_waiter_whose_loop_was_closed_blocks_nobody(registry):
    """Section 7, performance: a closed loop is skipped."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    loop = asyncio.new_event_loop()
    waiter = bulkhead("pool", wait=50)

    async def abandoned():
        return "never"

    kept = []

    @bulkhead("pool")
    def first():
        task = loop.create_task(waiter(abandoned)())
        kept.append(task)
        loop.run_until_complete(turns())
        assert 1 == pool.waiting
        loop.close()

    first()
    assert "in" == bulkhead("pool", wait=1)(lambda: "in")()
    kept[0]._log_destroy_pending = False
    with contextlib.suppress(RuntimeError, asyncio.CancelledError):
        kept[0].get_coro().close()
    assert 0 == pool.in_flight
    assert 0 == pool.waiting


def test_abandoned_waiter_is_collected(registry):
    """Section 7: a coroutine closed while it stands in line leaves the line."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def fn():
        return "in"

    async def main():
        go = asyncio.Event()

        @bulkhead("pool")
        async def hold():
            await go.wait()

        first = asyncio.create_task(hold())
        await turns()
        coroutine = bulkhead("pool", wait=50)(fn)()
        coroutine.send(None)
        assert 1 == pool.waiting
        coroutine.close()
        assert 0 == pool.waiting
        go.set()
        await first

    asyncio.run(main())
    assert 0 == pool.in_flight


def test_slot_released_in_another_thread_wakes_a_loop(registry, threads):
    """Section 7: loops are woken by call_soon_threadsafe."""
    leave = threading.Event()
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    threads.start(bulkhead("pool")(lambda: leave.wait(4)))
    assert until(lambda: pool.in_flight == 1)

    @bulkhead("pool", wait=4)
    async def fn():
        return "in"

    async def main():
        task = asyncio.create_task(fn())
        await turns()
        leave.set()
        return await task

    assert "in" == asyncio.run(main())
    threads.join()
    assert 0 == pool.in_flight


def test_compose_shares_one_line(registry):
    """Design 1: compose(...).acall stands in the same line."""

    async def main():
        order = []
        go = asyncio.Event()

        async def fn(number):
            order.append(number)
            await go.wait()

        careful = compose(bulkhead(max_in_flight=1, wait=5))
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(careful.acall(fn, number)))
            await turns()
        assert [0] == order
        go.set()
        await asyncio.gather(*tasks)
        return order

    assert [0, 1, 2, 3] == asyncio.run(main())


def test_retry_waits_inside_its_slot(registry, clock, remote):
    """Section 3: a retrying call keeps its slot while it waits."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    in_wait = []
    original = clock.sleep

    def sleep(seconds):
        in_wait.append(pool.in_flight)
        original(seconds)

    clock.sleep = sleep
    fn = bulkhead("pool")(retry(2, wait=1, idempotent=True)(remote(ConnectionError, "ok")))
    fn()
    assert [1] == in_wait


def test_resize_is_not_by_reference(registry):
    """Section 7: wait, on_reject, fallback are the call site's; the size is shared."""
    bulkhead("pool", max_in_flight=1)
    assert bulkhead("pool", wait=3) != bulkhead("pool", wait=4)
    assert 1 == registry.get_bulkhead("pool").max_in_flight


def test_clear_state_gives_all_slots_back(registry):
    """Design 1: registrations stay, and a running call does no harm to the count afterwards."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    @bulkhead("pool")
    def fn():
        registry.clear_state()
        return "in"

    fn()
    assert 0 == pool.in_flight
    assert "in" == fn()
    assert 0 == pool.in_flight
