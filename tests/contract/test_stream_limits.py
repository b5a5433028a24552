"""Contract sections 5 and 8, P17: the limits of a stream interrupt who waits for an item, and nobody else."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time

import pytest

from resilience import (
    BulkheadConfig,
    BulkheadFullError,
    CircuitState,
    ConfigurationError,
    TimeoutExceeded,
    TimeoutScope,
    breaker,
    bulkhead,
    compose,
    interruptible,
    remaining,
    retry,
    timeout,
)
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only by `advance`, which runs what is due there and then."""

    now = 1000.0

    def __init__(self):
        super().__init__()
        self._timers = []
        self._order = itertools.count()

    def time(self):
        return self.now

    def call_at(self, when, callback, *args, context=None):
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle):
        """It is skipped when its time comes."""

    def skip(self, seconds):
        self.now += seconds

    def advance(self, seconds):
        target = self.now + seconds
        while self._timers and self._timers[0][0] <= target:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                self.now = max(self.now, when)
                handle._run()
        self.now = target


class Skipping(ManualClock):
    """A manual clock that can also move on without firing what is due, as in one step of a task."""

    def skip(self, seconds):
        self._now += seconds


class ByHand:
    """Time that moves when told, for the straight path (a loop's own timers) or the plan (a manual clock)."""

    def __init__(self, advance, skip, loop):
        self._advance = advance
        self._skip = skip
        self._loop = loop

    def run(self, main):
        return self._loop.run_until_complete(main)

    def skip(self, seconds):
        """Time passes, and nothing that it sets off has happened yet."""
        self._skip(seconds)

    async def pass_time(self, seconds):
        """Time passes; what that sets off has its turns."""
        await turns()
        self._advance(seconds)
        await turns()

    async def step(self, stream, seconds=0.0):
        """Ask for an item in a task of its own and let so much time pass meanwhile; the item, or what was raised."""
        task = asyncio.ensure_future(asked(stream))
        await self.pass_time(seconds)
        assert task.done(), "still waiting for the item"
        return task.result()


async def asked(stream):
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return "the end"
    except TimeoutExceeded as error:
        return error.scope
    except ConnectionError:
        return "broken"


async def turns(count=8):
    for _ in range(count):
        await asyncio.sleep(0)


async def hang():
    await asyncio.Event().wait()


@pytest.fixture(params=["straight", "plan"])
def by_hand(request, registry, monkeypatch):
    if request.param == "straight":
        loop = HandLoop()
        monkeypatch.setattr(time, "monotonic", loop.time)
        yield ByHand(loop.advance, loop.skip, loop)
        monkeypatch.undo()
    else:
        loop = asyncio.new_event_loop()
        clock = Skipping(1000.0)
        with use_clock(clock, registry):
            yield ByHand(clock.advance, clock.skip, loop)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(9))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


def limited(fn, *args, attempts=0, counts=True, **limits):
    policies = [bulkhead("pool"), breaker("api"), timeout(*args, counts=counts, **limits)]
    if attempts:
        policies.append(retry(attempts, wait=0, idempotent=True))
    return compose(*policies)(fn)


async def silent_after(items):
    """A stream that falls silent after some items."""
    for number in range(items):
        yield number
    await hang()


async def whole(items=3):
    for number in range(items):
        yield number


LIMITS = {
    "budget": ((10,), TimeoutScope.BUDGET),
    "per_attempt": ((20,), TimeoutScope.ATTEMPT),
    "idle": ((20,), TimeoutScope.IDLE),
    "first_item": ((20,), TimeoutScope.FIRST_ITEM),
}


def limits_of(name):
    """`timeout`'s arguments for a limit of 10 seconds."""
    return ((10,), {}) if name == "budget" else ((20,), {name: 10})


# ---------------------------------------------------------------------------------------------- each limit
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_interrupts_who_waits(by_hand, pool, api, name):
    """Section 8: the provider falls silent: the limit ends the stream, counts, and the slot is back."""
    args, kwargs = limits_of(name)
    before = 0 if name == "first_item" else 1
    fn = limited(silent_after, *args, **kwargs)

    async def main():
        stream = fn(before)
        for _ in range(before):
            await by_hand.step(stream)
        found = await by_hand.step(stream, 10)
        assert "the end" == await by_hand.step(stream)
        return found

    assert LIMITS[name][1] is by_hand.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_does_not_count(by_hand, pool, api, name):
    """Section 4: counts=False for limits that a client sets."""
    args, kwargs = limits_of(name)
    before = 0 if name == "first_item" else 1
    fn = limited(silent_after, *args, counts=False, **kwargs)

    async def main():
        stream = fn(before)
        for _ in range(before):
            await by_hand.step(stream)
        return await by_hand.step(stream, 10)

    assert LIMITS[name][1] is by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("name", LIMITS)
def test_a_stream_within_its_limits(by_hand, pool, api, name):
    """Nothing happens before the time is up."""
    args, kwargs = limits_of(name)

    async def main():
        stream = limited(whole, *args, **kwargs)()
        found = [await by_hand.step(stream) for _ in range(4)]
        await by_hand.pass_time(100)
        return found

    assert [0, 1, 2, "the end"] == by_hand.run(main())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_the_message_tells_the_limit(by_hand, pool, api):
    """Section 5: scope and seconds."""

    async def main():
        stream = limited(silent_after, 20, idle=10)(1)
        await by_hand.step(stream)
        task = asyncio.ensure_future(stream.__anext__())
        await by_hand.pass_time(10)
        with pytest.raises(TimeoutExceeded, match="idle of 10 s exceeded") as caught:
            await task
        return caught.value.seconds

    assert 10.0 == by_hand.run(main())


def test_idle_begins_anew_with_each_item(by_hand, pool, api):
    """Section 8: the wait for each further item, however long the stream is."""
    gates = [asyncio.Event() for _ in range(4)]

    async def slow():
        for number, gate in enumerate(gates):
            yield number
            await gate.wait()

    async def main():
        stream = limited(slow, 100, idle=10)()
        found = [await by_hand.step(stream)]
        for gate in gates:
            task = asyncio.ensure_future(asked(stream))
            await by_hand.pass_time(9)
            gate.set()
            found.append(await task)
        return found

    assert [0, 1, 2, 3, "the end"] == by_hand.run(main())
    assert (1, 0) == counted(api)


def test_idle_is_not_for_the_first_item(by_hand, pool, api):
    """Section 8: that is what first_item is for."""
    gate = asyncio.Event()

    async def late():
        await gate.wait()
        yield 1

    async def main():
        stream = limited(late, 100, idle=10)()
        task = asyncio.ensure_future(asked(stream))
        await by_hand.pass_time(50)
        gate.set()
        return await task, await by_hand.step(stream)

    assert (1, "the end") == by_hand.run(main())


def test_first_item_is_not_for_further_ones(by_hand, pool, api):
    """Section 8: after it, time does not matter to it."""
    gate = asyncio.Event()

    async def late():
        yield 1
        await gate.wait()
        yield 2

    async def main():
        stream = limited(late, 100, first_item=10)()
        found = [await by_hand.step(stream)]
        task = asyncio.ensure_future(asked(stream))
        await by_hand.pass_time(50)
        gate.set()
        return [*found, await task]

    assert [1, 2] == by_hand.run(main())


# ---------------------------------------------------------------------------------------------- the consumer's own time
def test_idle_is_not_the_consumers_time(by_hand, pool, api):
    """Section 8: a consumer that takes its time with an item is no silent provider."""

    async def main():
        stream = limited(whole, 1000, idle=10)()
        found = []
        for _ in range(4):
            found.append(await by_hand.step(stream))
            await by_hand.pass_time(60)
        return found

    assert [0, 1, 2, "the end"] == by_hand.run(main())
    assert (1, 0) == counted(api)


@pytest.mark.parametrize("name", ["budget", "per_attempt"])
def test_the_consumers_time_belongs_to_a_budget(by_hand, pool, api, name):
    """Section 8: it runs out while the consumer has the stream: told at the next step, and says nothing of the remote."""
    args, kwargs = limits_of(name)
    closed = []

    async def stream():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(pool.in_flight)

    async def main():
        limited_stream = limited(stream, *args, **kwargs)()
        found = [await by_hand.step(limited_stream)]
        await by_hand.pass_time(11)
        assert 1 == pool.in_flight
        return [*found, await by_hand.step(limited_stream), await by_hand.step(limited_stream)]

    assert [1, LIMITS[name][1], "the end"] == by_hand.run(main())
    assert [1] == closed
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_budget_never_cancels_the_consumer(by_hand, pool, api):
    """Section 8: between two items the task is the consumer's own, whatever runs out meanwhile."""

    async def main():
        stream = limited(whole, 10)()
        await stream.__anext__()
        await by_hand.pass_time(50)
        task = asyncio.current_task()
        with pytest.raises(TimeoutExceeded):
            await stream.__anext__()
        await asyncio.sleep(0)
        return task.cancelling()

    assert 0 == by_hand.run(main())


def test_closing_past_the_budget_is_quiet(by_hand, pool, api):
    """Whoever closes a stream does not ask for an item."""

    async def main():
        stream = limited(whole, 10)()
        await stream.__anext__()
        await by_hand.pass_time(50)
        await stream.aclose()
        assert "the end" == await by_hand.step(stream)

    by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_dropping_past_the_budget_is_quiet(by_hand, pool, api):
    """Nor does whoever forgets it."""

    async def main():
        stream = limited(whole, 10)()
        await stream.__anext__()
        await by_hand.pass_time(50)
        del stream
        await turns()

    by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_throwing_past_the_budget(by_hand, pool, api):
    """A step like any other: the budget's end is what the consumer is told."""

    async def main():
        stream = limited(whole, 10)()
        await stream.__anext__()
        await by_hand.pass_time(50)
        with pytest.raises(TimeoutExceeded):
            await stream.athrow(ConnectionError("the consumer's"))

    by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_stream_made_early_has_its_budget_from_the_first_item(by_hand, pool, api):
    """Section 8: from the first item asked for."""

    async def main():
        stream = limited(whole, 10)()
        await by_hand.pass_time(50)
        return [await by_hand.step(stream) for _ in range(4)]

    assert [0, 1, 2, "the end"] == by_hand.run(main())


# ---------------------------------------------------------------------------------------------- what an expiry proves
@pytest.mark.parametrize(("waited", "failures"), [(4, 0), (5, 1), (6, 1)])
def test_half_of_the_budget_decides(by_hand, pool, api, waited, failures):
    """P17: a budget that interrupts a step counts only if that step had lasted half of its length."""

    async def main():
        stream = limited(silent_after, 10)(1)
        await by_hand.step(stream)
        await by_hand.pass_time(10 - waited)
        return await by_hand.step(stream, waited)

    assert TimeoutScope.BUDGET is by_hand.run(main())
    assert failures == counted(api)[1]


@pytest.mark.parametrize(("waited", "failures"), [(4, 0), (5, 1)])
def test_half_of_a_deadline_around_the_consumer_decides(by_hand, pool, api, waited, failures):
    """P17: the same for a limit of the consumer's own call."""
    inner = compose(bulkhead("pool"), breaker("api"))(silent_after)

    @timeout(10)
    async def consume():
        stream = inner(1)
        await stream.__anext__()
        await asyncio.shield(gate.wait())
        await stream.__anext__()

    gate = asyncio.Event()

    async def main():
        task = asyncio.ensure_future(consume())
        await by_hand.pass_time(10 - waited)
        gate.set()
        await by_hand.pass_time(waited)
        with pytest.raises(TimeoutExceeded):
            await task
        await turns()

    by_hand.run(main())
    assert (0, failures) == counted(api)
    assert 0 == pool.in_flight


def test_a_repeat_that_began_late_proves_nothing(by_hand, pool, api):
    """P17: a budget that cuts short a second attempt which began with little of it left."""
    gate = asyncio.Event()
    attempts = []

    async def main():
        fn = compose(bulkhead("pool"), breaker("api"), timeout(10), retry(2, wait=0, idempotent=True))(failing)
        task = asyncio.ensure_future(asked(fn()))
        await by_hand.pass_time(7)
        gate.set()
        await by_hand.pass_time(0)
        await by_hand.pass_time(3)
        return task.result()

    async def failing():
        attempts.append(1)
        await gate.wait()
        gate.clear()
        raise ConnectionError
        yield

    assert TimeoutScope.BUDGET is by_hand.run(main())
    assert 2 == len(attempts)
    assert (0, 1) == counted(api)


def test_a_callers_cancel_never_counts(by_hand, pool, api):
    """P17: whoever cancels the task gave up; `cancelling()` is as it was left by them."""

    async def main():
        stream = limited(silent_after, 10)(1)
        await by_hand.step(stream)
        task = asyncio.ensure_future(stream.__anext__())
        await by_hand.pass_time(9)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await by_hand.step(stream)

    assert "the end" == by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_expiry_opens_again(by_hand, pool, api):
    """Section 4: a probe whose provider falls silent has failed."""

    async def main():
        api.force_open("drill", seconds=5)
        await by_hand.pass_time(5)
        stream = limited(silent_after, 20, idle=10)(1)
        await by_hand.step(stream)
        assert HALF_OPEN is api.state
        return await by_hand.step(stream, 10)

    assert TimeoutScope.IDLE is by_hand.run(main())
    assert OPEN is api.state
    assert 1 == api.status().probes_failed


def test_a_probe_past_its_budget_is_released(by_hand, pool, api):
    """I15: the consumer took the time: cancelled, not failed."""

    async def main():
        api.force_open("drill", seconds=5)
        await by_hand.pass_time(5)
        stream = limited(whole, 20)()
        await by_hand.step(stream)
        await by_hand.pass_time(21)
        return await by_hand.step(stream)

    assert TimeoutScope.BUDGET is by_hand.run(main())
    assert HALF_OPEN is api.state
    assert (1, 0) == (api.status().probes_released, api.status().probes_failed)


@pytest.mark.parametrize("limits", [{"budget": 50}, {"first_item": 50}, {"budget": 50, "first_item": 50}], ids=str)
def test_a_deadline_of_the_consumers_that_is_past_already(by_hand, pool, api, limits):
    """Section 5: it fails before the stream's body has begun."""
    began = []

    async def stream():
        began.append(1)
        yield 1

    @timeout(5)
    async def consume():
        # Time that nobody can interrupt.
        by_hand.skip(6)
        return await anext(compose(bulkhead("pool"), breaker("api"), timeout(**limits))(stream)())

    async def main():
        with pytest.raises(TimeoutExceeded):
            await consume()

    by_hand.run(main())
    assert [] == began
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_two_limits_pass_at_one_time(by_hand, pool, api):
    """Section 8: in the consumer's hands: the outer one is told."""

    async def main():
        stream = limited(whole, 10, per_attempt=10)()
        await by_hand.step(stream)
        await by_hand.pass_time(11)
        return await by_hand.step(stream)

    assert TimeoutScope.BUDGET is by_hand.run(main())
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- retry
def test_first_item_is_retried(by_hand, pool, api):
    """Section 8: a provider that does not begin is asked again, each attempt with its own limit."""
    attempts = []

    async def slow_twice():
        attempts.append(1)
        if len(attempts) < 3:
            await hang()
        yield "item"

    async def main():
        stream = limited(slow_twice, 100, first_item=10, attempts=3)()
        task = asyncio.ensure_future(asked(stream))
        await by_hand.pass_time(10)
        await by_hand.pass_time(10)
        return await task, await by_hand.step(stream)

    assert ("item", "the end") == by_hand.run(main())
    assert 3 == len(attempts)
    assert (1, 2) == counted(api)


def test_idle_is_not_retried(by_hand, pool, api):
    """Section 8: something has been delivered; no note of a retry either."""
    attempts = []

    async def silent():
        attempts.append(1)
        yield 1
        await hang()

    async def main():
        stream = limited(silent, 100, idle=10, attempts=3)()
        await by_hand.step(stream)
        task = asyncio.ensure_future(stream.__anext__())
        await by_hand.pass_time(10)
        with pytest.raises(TimeoutExceeded) as caught:
            await task
        return caught.value

    error = by_hand.run(main())
    assert TimeoutScope.IDLE is error.scope
    assert 1 == len(attempts)
    assert [] == getattr(error, "__notes__", [])


def test_per_attempt_begins_anew(by_hand, pool, api):
    """Section 3: fresh for each attempt, which lasts to the end of its stream."""
    attempts = []

    async def breaks_once():
        attempts.append(1)
        await gates[len(attempts) - 1].wait()
        if len(attempts) == 1:
            raise ConnectionError
        yield 1

    gates = [asyncio.Event(), asyncio.Event()]

    async def main():
        stream = limited(breaks_once, 100, per_attempt=10, attempts=2)()
        task = asyncio.ensure_future(asked(stream))
        await by_hand.pass_time(9)
        gates[0].set()
        await by_hand.pass_time(9)
        gates[1].set()
        return await task, await by_hand.step(stream)

    assert (1, "the end") == by_hand.run(main())


# ---------------------------------------------------------------------------------------------- opened streams
def test_opening_has_its_limit_too(by_hand, pool, api):
    """Section 8: first_item bounds the opening, and again the first item."""

    async def never_opens():
        await hang()

    async def main():
        fn = compose(bulkhead("pool"), breaker("api"), timeout(100, first_item=10, stream=True))(never_opens)
        task = asyncio.ensure_future(fn())
        await by_hand.pass_time(10)
        with pytest.raises(TimeoutExceeded) as caught:
            await task
        return caught.value.scope

    assert TimeoutScope.FIRST_ITEM is by_hand.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_the_first_item_of_an_opened_stream_has_its_own(by_hand, pool, api):
    """Section 8: again in full."""
    gate = asyncio.Event()

    async def opens():
        await gate.wait()
        return silent_after(0)

    async def main():
        fn = compose(bulkhead("pool"), breaker("api"), timeout(100, first_item=10, stream=True))(opens)
        task = asyncio.ensure_future(fn())
        await by_hand.pass_time(9)
        gate.set()
        stream = await task
        step = asyncio.ensure_future(asked(stream))
        await by_hand.pass_time(9)
        assert not step.done()
        await by_hand.pass_time(1)
        return step.result()

    assert TimeoutScope.FIRST_ITEM is by_hand.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("name", ["budget", "per_attempt", "idle"])
def test_limits_of_an_opened_stream(by_hand, pool, api, name):
    """Section 8: they last to its end."""
    args, kwargs = limits_of(name)

    async def opens():
        return silent_after(1)

    async def main():
        fn = compose(bulkhead("pool"), breaker("api"), timeout(*args, stream=True, **kwargs))(opens)
        stream = await fn()
        await by_hand.step(stream)
        return await by_hand.step(stream, 10)

    assert LIMITS[name][1] is by_hand.run(main())
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("items", [0, 1])
@pytest.mark.parametrize("breaks", [False, True])
def test_a_budget_that_runs_out_closes_an_opened_stream(by_hand, pool, api, items, breaks):
    """Section 8: in the consumer's hands; what breaks as it is closed leaves instead."""
    closed = []

    class Opened:
        def __aiter__(self):
            return self

        async def __anext__(self):
            return "item"

        async def aclose(self):
            await asyncio.sleep(0)
            closed.append(pool.in_flight)
            if breaks:
                raise ConnectionError("broke on closing")

    async def opens():
        return Opened()

    async def main():
        stream = await compose(bulkhead("pool"), breaker("api"), timeout(10, stream=True))(opens)()
        for _ in range(items):
            await by_hand.step(stream)
        await by_hand.pass_time(11)
        return await by_hand.step(stream), await by_hand.step(stream)

    assert ("broken" if breaks else TimeoutScope.BUDGET, "the end") == by_hand.run(main())
    assert [1] == closed
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- what the stream sees
def test_remaining_inside_a_step(by_hand, pool, api):
    """Section 5: what is left of the budget, at each step; and of the consumer's, outside."""

    async def stream():
        while True:
            yield remaining()

    async def main():
        limited_stream = limited(stream, 10)()
        found = []
        for _ in range(3):
            found.append(await by_hand.step(limited_stream))
            assert remaining() is None
            await by_hand.pass_time(2)
        await limited_stream.aclose()
        return found

    assert [10.0, 8.0, 6.0] == by_hand.run(main())


def test_remaining_is_clipped_to_the_consumers(by_hand, pool, api):
    """Section 5: to the outer deadlines of whoever makes the step."""

    async def stream():
        while True:
            yield remaining()

    limited_stream = limited(stream, 100)()

    @timeout(5)
    async def consume():
        return await limited_stream.__anext__()

    async def main():
        return [await consume(), await limited_stream.__anext__(), await consume()]

    assert [5.0, 100.0, 5.0] == by_hand.run(main())
    by_hand.run(limited_stream.aclose())


def test_the_limits_are_off_in_the_consumers_hands(by_hand, pool, api):
    """Section 8: a call that the consumer makes between two items is not under the stream's deadline."""
    seen = []

    @timeout(50)
    async def other():
        seen.append(remaining())

    async def main():
        async for _ in limited(whole, 10)():
            await other()

    by_hand.run(main())
    assert [50.0, 50.0, 50.0] == seen


# ---------------------------------------------------------------------------------------------- plain generators
def test_a_plain_generator_is_handed_the_rest(registry, clock, pool, api):
    """Section 5: `pass_as`: the seconds of the budget; nothing is interrupted."""

    @compose(timeout(10, pass_as="seconds"), bulkhead("pool"), breaker("api"))
    def stream(seconds=None):
        yield seconds
        clock.advance(20)
        yield "late"

    assert [10.0, "late"] == list(stream())
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("limits", [{"budget": 5}, {"per_attempt": 5}, {"first_item": 5}, {"idle": 5}], ids=str)
def test_a_plain_generator_that_can_not_be_interrupted(registry, limits):
    """Section 5: refused when decorated, with both cures: a mark, or the argument."""
    with pytest.raises(ConfigurationError, match="interruptible"):
        timeout(**limits)(numbers)


def numbers(stop=3):
    yield from range(stop)


def test_a_stream_stands_in_line_for_its_slot(by_hand, registry, api):
    """Section 7: at its first item, first in, first out; no longer than its budget."""
    registry.bulkhead("narrow", BulkheadConfig(1, 5))
    fn = compose(bulkhead("narrow", wait=50), timeout(10), breaker("api"))(whole)

    async def main():
        first, second, third = fn(), fn(), fn()
        assert 0 == await by_hand.step(first)
        waiting = [asyncio.ensure_future(asked_or_full(stream)) for stream in (second, third)]
        await by_hand.pass_time(9)
        await first.aclose()
        await turns()
        assert 0 == waiting[0].result()
        await by_hand.pass_time(1)
        assert "full" == await waiting[1]
        await second.aclose()

    async def asked_or_full(stream):
        try:
            return await stream.__anext__()
        except BulkheadFullError:
            return "full"

    by_hand.run(main())
    assert 0 == registry.get_bulkhead("narrow").in_flight
    assert (0, 0) == counted(api)


@pytest.fixture
def gate():
    """What a step on a worker waits for; opened at the end of the test."""
    gate = threading.Event()
    yield gate
    gate.set()


def until(condition, seconds=5.0):
    """Wait for what another thread does."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.002)):
        if condition():
            return True
        pause.wait(0.002)
    return False


@pytest.mark.parametrize(
    ("limits", "before", "scope"),
    [
        ({"budget": 0.03}, 1, TimeoutScope.BUDGET),
        ({"per_attempt": 0.03}, 1, TimeoutScope.ATTEMPT),
        ({"budget": 30, "first_item": 0.03}, 0, TimeoutScope.FIRST_ITEM),
        ({"budget": 30, "idle": 0.03}, 1, TimeoutScope.IDLE),
    ],
    ids=["budget", "per_attempt", "first_item", "idle"],
)
def test_a_plain_generator_on_workers(registry, pool, api, gate, limits, before, scope):
    """Section 5: a step that hangs is left behind; the slot comes back when the orphan has ended."""
    ended = []

    @compose(timeout(**limits), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=2)
    def stream():
        try:
            yield from range(before)
            gate.wait(10)
            yield "late"
        finally:
            ended.append(1)

    hanging = stream()
    assert list(range(before)) == [next(hanging) for _ in range(before)]
    with pytest.raises(TimeoutExceeded) as caught:
        next(hanging)

    assert scope is caught.value.scope
    assert (0, 1) == counted(api)
    assert 1 == pool.in_flight
    gate.set()
    assert until(lambda: pool.in_flight == 0)
    assert until(lambda: ended)
    with pytest.raises(StopIteration):
        next(hanging)


def test_a_plain_generator_on_workers_within_its_limits(registry, pool, api):
    """Items, sends, errors and the end are those of the bare one."""

    @compose(timeout(30, idle=10), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=2)
    def echo():
        item = "first"
        while item != "stop":
            item = yield item
        return "value"

    def outer():
        returned.append((yield from echo()))

    returned = []
    stream = outer()
    assert ["first", "a"] == [next(stream), stream.send("a")]
    with pytest.raises(StopIteration):
        stream.send("stop")
    assert ["value"] == returned
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_a_plain_generator_on_workers_that_is_closed(registry, pool, api):
    """I4: its clean-up has run when `close` returns."""
    seen = []

    @compose(timeout(30), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=2)
    def stream():
        try:
            yield 1
        finally:
            seen.append("tidy")

    running = stream()
    next(running)
    running.close()

    assert ["tidy"] == seen
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("limits", [{}, {"per_attempt": 10}], ids=["budget", "both"])
def test_a_budget_of_workers_that_runs_out_in_the_consumers_hands(registry, clock, pool, api, limits):
    """Section 8: told at the next step, closes the stream, says nothing of the remote."""
    seen = []

    @compose(timeout(10, **limits), bulkhead("pool"), breaker("api"))
    @interruptible(max_workers=2)
    def stream():
        try:
            yield 1
            yield 2
        finally:
            seen.append("tidy")

    running = stream()
    next(running)
    clock.advance(11)
    with pytest.raises(TimeoutExceeded) as caught:
        next(running)

    assert TimeoutScope.BUDGET is caught.value.scope
    assert ["tidy"] == seen
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_first_item_on_workers_is_retried(registry, gate, api):
    """Section 8: the attempt that hung is left behind, the next begins anew on another worker."""
    room = registry.bulkhead("room", BulkheadConfig(3))
    attempts = []

    @compose(
        timeout(30, first_item=0.03),
        bulkhead("room"),
        breaker("api"),
        retry(2, wait=0, idempotent=True),
    )
    @interruptible(max_workers=3)
    def stream():
        attempts.append(1)
        if len(attempts) == 1:
            gate.wait(10)
        yield "item"

    assert ["item"] == list(stream())
    assert (1, 1) == counted(api)
    gate.set()
    assert until(lambda: room.in_flight == 0)
