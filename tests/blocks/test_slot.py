"""`bulkhead(...).guard()`: a slot for as long as the block lasts, given back once, from wherever."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
import weakref

import pytest
from forking import in_child, needs_fork

from resilience import (
    Bulkhead,
    BulkheadConfig,
    BulkheadFullError,
    ConfigurationError,
    OnReject,
    Registry,
    bulkhead,
    timeout,
    use_registry,
)
from resilience._blocks import slot
from resilience._clock import SYSTEM_CLOCK
from resilience._core.events import BulkheadRejected, Bypassed
from resilience._policies.bulkhead import SharedBulkhead
from resilience.testing import use_clock


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1))


async def turns(count=4):
    for _ in range(count):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------------------------------- a slot
def test_a_block_holds_a_slot(inside, pool):
    """From its beginning to its end."""
    block = bulkhead("pool").guard()

    assert (1, True) == inside(block, lambda block: (pool.in_flight, bool(block)))
    assert (0, False) == (pool.in_flight, bool(block))


def test_a_block_that_fails_gives_the_slot_back(inside, pool):
    """And lets the very exception leave."""
    error = LookupError("mine")

    def body(block):
        raise error

    with pytest.raises(LookupError) as caught:
        inside(bulkhead("pool").guard(), body)
    assert (error, 0) == (caught.value, pool.in_flight)


def test_a_full_bulkhead_refuses(inside, pool, told):
    """The block is not entered, and the guard can be entered later."""
    block = bulkhead("pool").guard()
    held = pool.take()
    with pytest.raises(BulkheadFullError, match="'pool' is full"):
        inside(block, lambda block: pytest.fail("there is no slot"))
    pool.give(held)

    assert "inside" == inside(block, lambda block: "inside")
    assert [BulkheadRejected(name="pool", waited=False).waited] == [event.waited for event in told]
    assert 1 == pool.rejected.value


def test_a_bypassed_block_is_false(inside, pool, told):
    """It can't be skipped: who asks it knows, and an event tells."""
    held = pool.take()
    seen = inside(bulkhead("pool", on_reject=OnReject.BYPASS).guard(), lambda block: (bool(block), pool.in_flight))

    assert (False, 1) == seen
    pool.give(held)
    assert 0 == pool.in_flight
    assert [BulkheadRejected, Bypassed] == [type(event) for event in told]
    assert ("bulkhead", "pool") == (told[1].by, told[1].name)
    assert told[1].site.startswith(f"{__name__}:test_a_bypassed_block_is_false")


def test_a_block_of_a_registry_that_is_named(inside, registry):
    """`registry=` holds."""
    other = Registry()
    block = bulkhead("pool", max_in_flight=1, registry=other).guard()

    assert 1 == inside(block, lambda block: other.get_bulkhead("pool").in_flight)
    assert registry.get_bulkhead("pool") is None


def test_a_reference_follows_the_registry(registry):
    """As a breaker's does."""
    policy = bulkhead("pool", max_in_flight=1)
    with use_registry(Registry()) as other, policy.guard():
        assert (1, 0) == (other.get_bulkhead("pool").in_flight, registry.get_bulkhead("pool").in_flight)


# ---------------------------------------------------------------------------------------------- without a name
def test_blocks_of_a_value_without_a_name_share_one_cap(registry):
    """Of this very value; another one has its own, and so has each function that it decorates."""
    policy, other = bulkhead(max_in_flight=1), bulkhead(max_in_flight=1)

    @policy
    def function():
        return "its own"

    with policy.guard(), pytest.raises(BulkheadFullError) as caught:
        policy.guard().__enter__()
    with policy.guard(), other.guard():
        assert "its own" == function()
    assert f"{__name__}:test_blocks_of_a_value_without_a_name_share_one_cap" == caught.value.name


def test_the_first_block_of_a_value_without_a_name(registry, together):
    """Of many threads that come first together all find one."""
    policy = bulkhead(max_in_flight=3, registry=registry)
    start = threading.Barrier(8)
    entered = []

    def visit(index):
        block = policy.guard()
        try:
            block.__enter__()
            entered.append(index)
        except BulkheadFullError:
            pass
        start.wait(10)
        if block:
            block.__exit__(None, None, None)

    together(8, visit)

    assert 3 == len(entered)


def test_a_first_block_that_comes_between(registry, monkeypatch):
    """Another thread makes the bulkhead at the same moment: the first one is everybody's."""
    policy = bulkhead(max_in_flight=1)
    between = []

    def made(*args):
        between.append(None)
        if len(between) == 1:
            between.append(policy.guard())
            between[-1].__enter__()
        return SharedBulkhead(*args)

    monkeypatch.setattr(slot, "SharedBulkhead", made)
    with pytest.raises(BulkheadFullError):
        policy.guard().__enter__()


def test_what_was_pickled_has_a_cap_of_its_own(registry):
    """It is another value in another process; a block does not travel."""
    policy = bulkhead(max_in_flight=1)
    with policy.guard() as block, pickle.loads(pickle.dumps(policy)).guard():
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(block)
        assert isinstance(policy, Bulkhead)


# ---------------------------------------------------------------------------------------------- in line
def test_an_async_block_waits_in_line(registry, pool):
    """Strict first in, first out, with those that are decorated."""

    async def main():
        order = []

        async def visit(name):
            async with bulkhead("pool", wait=5).guard():
                order.append(name)
                await asyncio.sleep(0)

        @bulkhead("pool", wait=5)
        async def call(name):
            order.append(name)

        await asyncio.gather(visit("first"), call("second"), visit("third"))
        return order

    assert ["first", "second", "third"] == asyncio.run(main())
    assert (0, 0) == (pool.in_flight, pool.waiting)


def test_a_block_that_waits_in_a_thread(registry, pool):
    """It blocks the thread, and is woken by whoever gives a slot back, an event loop too."""
    policy = bulkhead("pool", wait=20, registry=registry)
    seen = []

    def visit():
        with policy.guard():
            seen.append((pool.in_flight, pool.waiting))

    def until_it_waits():
        while not pool.waiting and thread.is_alive():
            time.sleep(0.0001)

    async def main():
        async with policy.guard():
            thread.start()
            await asyncio.to_thread(until_it_waits)
            seen.append((pool.in_flight, pool.waiting))

    thread = threading.Thread(target=visit)
    with use_clock(SYSTEM_CLOCK, registry):
        asyncio.run(main())
        thread.join(10)

    assert [(1, 1), (1, 0), 0] == [*seen, pool.in_flight]


def test_a_wait_that_was_for_nothing(registry, pool, clock, told):
    """It ends with the site's patience; the refusal tells that it waited."""
    held = pool.take()

    async def main():
        block = bulkhead("pool", wait=5).guard()
        task = asyncio.create_task(block.__aenter__())
        await turns()
        clock.advance(5)
        with pytest.raises(BulkheadFullError):
            await task
        return pool.waiting, clock.pending

    assert (0, 0) == asyncio.run(main())
    assert [True] == [event.waited for event in told]
    pool.give(held)
    assert 0 == pool.in_flight


def test_a_wait_is_bounded_by_the_deadline_around(registry, pool, clock):
    """Nobody waits for a slot beyond his own limit."""
    pool.take()

    async def main():
        with timeout(2).guard():
            task = asyncio.create_task(bulkhead("pool", wait=5).guard().__aenter__())
            await turns()
            clock.advance(2)
            with pytest.raises(BulkheadFullError):
                await task

    asyncio.run(main())


@pytest.mark.parametrize("granted", [False, True])
def test_entering_that_is_cancelled(registry, pool, granted):
    """Whether or not the slot has been granted meanwhile: it is free again, and the guard can be entered."""
    held = pool.take()

    async def main():
        block = bulkhead("pool", wait=5).guard()
        task = asyncio.create_task(block.__aenter__())
        await turns()
        task.cancel()
        if granted:
            pool.give(held)
        await asyncio.wait([task])
        if not granted:
            pool.give(held)
        async with block:
            return task.cancelled(), pool.in_flight, pool.waiting

    assert (True, 1, 0) == asyncio.run(main())
    assert 0 == pool.in_flight


def test_an_async_wait_needs_asyncio(registry, pool):
    """Under another loop it says so, and leaves the line."""
    pool.take()
    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        bulkhead("pool", wait=5).guard().__aenter__().send(None)

    assert 0 == pool.waiting


# ---------------------------------------------------------------------------------------------- left elsewhere
def test_a_block_that_is_left_in_another_task(registry, pool):
    """As fixtures do."""

    async def main():
        block = bulkhead("pool").guard()
        await asyncio.create_task(block.__aenter__())
        held = pool.in_flight
        await asyncio.create_task(block.__aexit__(None, None, None))
        return held, pool.in_flight

    assert (1, 0) == asyncio.run(main())


def test_a_block_that_is_left_in_another_thread(registry, pool):
    """The next in line is let in from there."""

    async def main():
        block = bulkhead("pool").guard()
        await block.__aenter__()
        second = bulkhead("pool", wait=5).guard()
        waiting = asyncio.create_task(second.__aenter__())
        await turns()
        thread = threading.Thread(target=block.__exit__, args=(None, None, None))
        thread.start()
        await waiting
        thread.join(5)
        return bool(block), bool(second), pool.in_flight

    assert (False, True, 1) == asyncio.run(main())


def test_fixtures_made_of_generators(registry, pool):
    """Set up in one task, torn down in another; or never, and then by the interpreter."""

    async def fixture():
        async with bulkhead("pool").guard() as block:
            yield block

    async def main():
        generator = fixture()
        block = await asyncio.create_task(anext(generator))
        held = bool(block)
        await asyncio.create_task(generator.aclose())
        return held, pool.in_flight

    def plain():
        with bulkhead("pool").guard():
            yield pool.in_flight

    assert (True, 0) == asyncio.run(main())
    generator = plain()
    assert 1 == next(generator)
    del generator
    assert 0 == pool.in_flight


def test_a_block_that_is_never_left(registry, pool, no_gc):
    """Gives its slot back when nobody can leave it any more, and lets the next one in."""

    async def main():
        block = bulkhead("pool").guard()
        await block.__aenter__()
        waiting = asyncio.create_task(bulkhead("pool", wait=5).guard().__aenter__())
        await turns()
        del block
        return bool(await waiting), pool.in_flight

    assert (True, 1) == asyncio.run(main())


def test_a_block_is_left_once(registry, pool):
    """A second time gives nothing back."""
    other = registry.bulkhead("other", BulkheadConfig(2))
    block = bulkhead("other").guard()
    with bulkhead("other").guard():
        block.__enter__()
        block.__exit__(None, None, None)
        block.__exit__(None, None, None)
        assert 1 == other.in_flight
    assert 0 == other.in_flight


@pytest.mark.parametrize("form", ["with", "async with"])
def test_a_block_in_use_is_not_entered(registry, form):
    """Neither within itself nor beside: each use has a guard of its own. What it holds it keeps."""
    pool = registry.bulkhead("pool", BulkheadConfig(2))
    block = bulkhead("pool").guard()

    async def again():
        async with block:
            pytest.fail("it is in use")

    with block:
        with pytest.raises(RuntimeError, match=r"entered already: call guard\(\) for each use"):
            block.__enter__() if form == "with" else asyncio.run(again())
        assert (1, "<BulkheadBlock 'pool', inside>") == (pool.in_flight, repr(block))
    assert (0, "<BulkheadBlock 'pool'>") == (pool.in_flight, repr(block))


def test_never_more_inside_than_there_are_slots(registry, together):
    """I8, over threads and event loops at once."""
    pool = registry.bulkhead("pool", BulkheadConfig(3))
    skipping = bulkhead("pool", on_reject=OnReject.BYPASS, registry=registry)
    waiting = bulkhead("pool", wait=20, registry=registry)
    inside, most = [], []

    def plain(index):
        for _ in range(200):
            with skipping.guard() as block:
                if block:
                    inside.append(index)
                    most.append(len(inside))
                    inside.remove(index)

    async def visit(index):
        for _ in range(20):
            async with waiting.guard():
                inside.append(index)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.remove(index)

    async def many(index):
        await asyncio.gather(*(visit(100 * index + number) for number in range(10)))

    with use_clock(SYSTEM_CLOCK, registry):
        done = together(4, lambda index: asyncio.run(many(index)) if index % 2 else plain(index))

    assert [None] * 4 == done
    assert max(most) <= 3
    assert (0, 0) == (pool.in_flight, pool.waiting)


# ---------------------------------------------------------------------------------------------- forks
@needs_fork
def test_a_block_that_is_left_in_a_child(registry):
    """I8: there its slot was free from the beginning: not one too many comes of it; in the parent it is still held."""
    policy = bulkhead(max_in_flight=1)
    block = policy.guard()
    block.__enter__()

    def child():
        with policy.guard():
            pass
        block.__exit__(None, None, None)
        with policy.guard(), pytest.raises(BulkheadFullError):
            policy.guard().__enter__()

    assert "ok" == in_child(child)
    with pytest.raises(BulkheadFullError):
        policy.guard().__enter__()
    block.__exit__(None, None, None)


# ---------------------------------------------------------------------------------------------- bad input
def test_a_fallback_has_nothing_to_answer_for(registry):
    """A block can't be skipped, so it can't be answered for."""
    policy = bulkhead("pool", max_in_flight=1, on_reject=OnReject.BYPASS, fallback="nothing")
    with pytest.raises(ConfigurationError, match=r"fallback must be left out for guard\(\): .*ask whether it is true"):
        policy.guard()


def test_a_name_that_nobody_registered(registry):
    """Is found out when the guard is made."""
    with pytest.raises(ConfigurationError, match="'nowhere' is not registered"):
        bulkhead("nowhere").guard()


# ---------------------------------------------------------------------------------------------- what is kept
class WeakError(ConnectionError):
    """A class of Python's own takes weak references."""


def test_nothing_outlives_the_block(inside, pool, no_gc):
    """Neither what it raised nor what refused it."""
    alive = []

    def body(block):
        error = WeakError("payload")
        alive.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    def call(body):
        try:
            inside.driven(bulkhead("pool").guard(), body)
        except (WeakError, BulkheadFullError):
            pass

    call(body)
    held = pool.take()
    payload = WeakError("never used")
    alive.append(weakref.ref(payload))
    call(lambda block, payload=payload: None)
    del payload
    pool.give(held)

    assert [None, None] == [reference() for reference in alive]
