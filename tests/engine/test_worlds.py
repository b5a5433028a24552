"""The two worlds: what a plan awaits, performed by threads or by asyncio."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from types import SimpleNamespace

import pytest

from resilience import Registry, TimeoutExceeded, remaining, retry, timeout, uninterruptible
from resilience._context import DEADLINE
from resilience._core.deadline import Deadline
from resilience._core.outcome import Outcome
from resilience._core.slots import Ticket
from resilience._engine.world_async import AdoptingWorld, AsyncWorld
from resilience._engine.world_sync import SyncWorld, arguments, run
from resilience._registry import current_registry
from resilience._site import Site
from resilience.catalogue import default_classifier
from resilience.testing import ManualClock, use_clock


def by_hand(clock=None):
    """Everything of this test's registry runs on a clock that moves when told."""
    return use_clock(clock or ManualClock(), current_registry())


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def site(clock):
    return Site(lambda *args: args, "module:fn", Registry(clock), default_classifier().classify)


async def inner(call):
    return Outcome(remaining_here())


def remaining_here():
    deadline = DEADLINE.get()
    return None if deadline is None else deadline.seconds


# ---------------------------------------------------------------------------------------------- threads
def test_a_thread_in_line_is_woken(site, clock):
    """A ticket that is granted wakes its thread, long before the time is over."""
    ticket, woken = Ticket(), threading.Event()

    def wait():
        run(SyncWorld(site).wait(ticket, 5, ready.set))
        woken.set()

    ready = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    assert ready.wait(5)
    while not clock.pending:
        threading.Event().wait(0.0005)
    ticket.slot = 0

    assert ticket.wake() is True
    assert woken.wait(5)


def test_a_thread_that_is_granted_before_it_waits(site):
    """Between joining the line and waiting for a wake-up somebody may have granted it."""
    ticket = Ticket()
    ticket.slot = 0
    done = threading.Event()
    thread = threading.Thread(
        target=lambda: (run(SyncWorld(site).wait(ticket, 5, lambda: None)), done.set()), daemon=True
    )
    thread.start()

    assert done.wait(5)


def test_a_thread_waits_its_time(site, clock):
    """Nobody grants: it comes back when the clock says so."""
    done = threading.Event()
    thread = threading.Thread(
        target=lambda: (run(SyncWorld(site).wait(Ticket(), 5, lambda: None)), done.set()), daemon=True
    )
    thread.start()
    while not clock.pending:
        threading.Event().wait(0.0005)
    clock.advance(4.9)
    assert not done.is_set()
    clock.advance(0.2)

    assert done.wait(5)


def test_threads_sleep_by_the_clock(site, clock):
    """A wait between attempts is the registry's clock's business."""
    run(SyncWorld(site).sleep(3))

    assert 3 == clock.monotonic()


def test_a_bounded_block_has_a_deadline_around_it(site):
    """Inside it is the innermost, afterwards it is gone and counts no more."""
    deadline = Deadline(5, 0)

    assert 5 == run(SyncWorld(site).bounded(deadline, None, inner)).value
    assert (None, False) == (DEADLINE.get(), deadline.active)


def test_a_bounded_block_whose_time_is_over(site, clock):
    """Nothing inside is begun."""
    clock.advance(5)
    outcome = run(SyncWorld(site).bounded(Deadline(5, 0), None, None))

    assert "budget of 5 s exceeded" == str(outcome.error)


def test_a_fallback_that_fails_is_an_outcome(site):
    """What a fallback raises is raised by whoever unwraps it."""

    def fail():
        raise LookupError("x")

    assert "x" == str(run(SyncWorld(site).invoke(fail, (), {})).error.args[0])


# ---------------------------------------------------------------------------------------------- seconds handed over
def call_of(site, *args, **kwargs):
    return SimpleNamespace(site=site, args=args, kwargs=kwargs, entered=0.0)


@pytest.fixture
def handing(site):
    site.pass_as, site.budget = "seconds", 10.0
    return site


def test_the_seconds_left_are_handed_over_by_name(handing, clock):
    """By keyword, where the parameter has no place."""
    clock.advance(4)

    assert (("a",), {"seconds": 6}) == arguments(handing, call_of(handing, "a"))


def test_the_seconds_left_are_handed_over_in_their_place(handing, clock):
    """By position, where the call gave something there."""
    handing.pass_at = 1
    clock.advance(4)

    assert (("a", 6, "c"), {}) == arguments(handing, call_of(handing, "a", None, "c"))


@pytest.mark.parametrize(("given", "handed"), [(2, 2), (2.5, 2.5), (99, 10), (None, 10), (True, 10), ("soon", 10)])
def test_a_shorter_number_of_the_callers_stays(handing, given, handed):
    """A bool is no number of seconds, nor is text."""
    assert handed == arguments(handing, call_of(handing, seconds=given))[1]["seconds"]


def test_never_no_seconds_at_all(handing, clock):
    """Zero means other things to other clients."""
    clock.advance(99)

    assert 0.001 == arguments(handing, call_of(handing))[1]["seconds"]


def test_nothing_to_hand_over(handing):
    """A limit for each attempt only, asked outside of one: the arguments stay as they are."""
    handing.budget = None

    assert ((1,), {"seconds": 2}) == arguments(handing, call_of(handing, 1, seconds=2))


@pytest.mark.parametrize("given", [(), (None,)])
def test_pass_as_with_an_ordinary_parameter(given):
    """`def fetch(timeout=None)`: the decorated function hands the seconds over."""
    with by_hand():

        @timeout(30, pass_as="timeout")
        def fetch(timeout=None):
            return timeout

        assert 30 == fetch(*given)


def test_pass_as_with_an_async_function():
    """A coroutine function may ask for the seconds as well."""

    async def scenario():
        with by_hand():

            @timeout(30, per_attempt=7, pass_as="timeout")
            async def fetch(*, timeout=None):
                return timeout

            return await fetch()

    assert 7 == asyncio.run(scenario())


def test_a_late_result_is_returned():
    """With `pass_as` nothing is thrown away, and no further attempt is made."""
    clock = ManualClock()
    with by_hand(clock):

        @retry(3, wait=0, idempotent=True)
        @timeout(5, pass_as="seconds")
        def fetch(*, seconds=None):
            clock.advance(99)
            return "late"

        assert "late" == fetch()


def test_pass_as_reaches_later_attempts_of_an_adopted_awaitable():
    """A plain function that returns a coroutine is handed the seconds in each attempt."""
    handed = []

    async def answer(fail):
        if fail:
            raise ConnectionError("down")
        return "fine"

    async def scenario():
        with by_hand():

            @retry(3, wait=0, idempotent=True)
            @timeout(30, pass_as="seconds")
            def fetch(*, seconds=None):
                handed.append(seconds)
                return answer(len(handed) == 1)

            return await fetch()

    assert "fine" == asyncio.run(scenario())
    assert [30, 30] == handed


# ---------------------------------------------------------------------------------------------- asyncio
def test_a_task_in_line_is_woken(site):
    """From any thread."""

    async def scenario():
        ticket = Ticket()
        waiting = asyncio.ensure_future(AsyncWorld(site).wait(ticket, 5, lambda: None))
        await asyncio.sleep(0)
        ticket.slot = 0
        thread = threading.Thread(target=ticket.wake)
        thread.start()
        await waiting
        thread.join()
        # A second signal does nothing.
        ticket.wake()
        await asyncio.sleep(0)
        return waiting.done()

    assert asyncio.run(scenario()) is True


def test_a_task_that_is_granted_before_it_waits(site):
    """It goes on at once."""

    async def scenario():
        ticket = Ticket()
        await AsyncWorld(site).wait(ticket, 5, lambda: setattr(ticket, "slot", 0))
        return ticket.slot

    assert 0 == asyncio.run(scenario())


def test_a_task_waits_its_time(site, clock):
    """And leaves no timer behind."""

    async def scenario():
        waiting = asyncio.ensure_future(AsyncWorld(site).wait(Ticket(), 5, lambda: None))
        await asyncio.sleep(0)
        clock.advance(5)
        await waiting
        return clock.pending

    assert 0 == asyncio.run(scenario())


def test_a_task_that_is_cancelled_in_line(site, clock):
    """The timer is forgotten."""

    async def scenario():
        waiting = asyncio.ensure_future(AsyncWorld(site).wait(Ticket(), 5, lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return clock.pending

    assert 0 == asyncio.run(scenario())


def test_a_waiter_whose_loop_is_closed(site):
    """It can't be woken, and says so."""
    ticket = Ticket()

    async def scenario():
        waiting = asyncio.ensure_future(AsyncWorld(site).wait(ticket, 5, lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(scenario())

    assert ticket.wake() is False


def test_a_wait_between_attempts_needs_a_task(site):
    """Under another event loop the error says what is supported."""
    with pytest.raises(RuntimeError, match="other event loops are not supported"):
        AsyncWorld(site).sleep(1).send(None)


def test_an_async_fallback_is_awaited(site):
    """In the async world a fallback may be a coroutine function, a plain one, or fail."""

    async def late():
        return "late"

    def fail():
        raise LookupError("x")

    async def scenario():
        world = AsyncWorld(site)
        return [(await world.invoke(function, (), {})) for function in (late, lambda: "plain", fail)]

    first, second, third = asyncio.run(scenario())

    assert ("late", "plain", "LookupError") == (first.value, second.value, type(third.error).__name__)


def test_a_bounded_task_whose_time_is_over(site, clock):
    """Nothing inside is begun in the async world either."""
    clock.advance(5)

    async def scenario():
        return await AsyncWorld(site).bounded(Deadline(5, 0), None, None)

    assert "budget of 5 s exceeded" == str(asyncio.run(scenario()).error)


def test_an_interruption_leaves_a_bounded_scope(site, clock):
    """The deadline around the caller is as before, and no timer waits."""

    async def stop(call):
        raise SystemExit

    async def scenario():
        with pytest.raises(SystemExit):
            await AsyncWorld(site).bounded(Deadline(5, 0), None, stop)
        return DEADLINE.get(), clock.pending

    assert (None, 0) == asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------- adopted awaitables
def test_an_adopted_awaitable_that_never_began(site):
    """A coroutine is closed, so it gives no warning; what can't be closed is dropped."""

    async def answer(): ...

    coroutine = answer()
    AdoptingWorld(site, coroutine).close()
    AdoptingWorld(site, object()).close()

    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        coroutine.send(None)


def test_an_adopted_future(site):
    """Any awaitable can be adopted."""

    async def scenario():
        future = asyncio.get_running_loop().create_future()
        future.set_result("fine")
        world = AdoptingWorld(site, future)
        return (await world.attempt(SimpleNamespace(args=(), kwargs={}, site=site))).value

    assert "fine" == asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------- what must not be torn
def test_what_an_uninterruptible_function_sets_is_the_callers():
    """Its task has a copy of the context; what it sets there is set here, as if it had run here."""
    variable = ContextVar("variable", default="before")

    @retry(2, wait=0, idempotent=True)
    @uninterruptible
    async def write():
        variable.set("set inside")

    async def scenario():
        await write()
        return variable.get()

    assert "set inside" == asyncio.run(scenario())


@pytest.fixture
def work():
    """An uninterruptible function that a test lets go on."""

    class Work:
        def __init__(self):
            self.began = asyncio.Event()
            self.go = asyncio.Event()
            self.finished = 0

        async def __call__(self):
            self.began.set()
            await self.go.wait()
            self.finished += 1
            return "written"

    return Work


def protected(work):
    @retry(2, wait=0, idempotent=True)
    @uninterruptible
    async def write():
        return await work()

    return write


def test_an_uninterruptible_function_returns(work):
    """Without a cancel its result is the call's."""

    async def scenario():
        made = work()
        made.go.set()
        return await protected(made)()

    assert "written" == asyncio.run(scenario())


def test_an_uninterruptible_function_is_waited_for(work):
    """However often the caller is cancelled, it ends first; then the cancel is raised."""

    async def scenario():
        made = work()
        call = asyncio.ensure_future(protected(made)())
        await made.began.wait()
        for _ in range(3):
            call.cancel()
            await asyncio.sleep(0)
        assert not call.done()
        made.go.set()
        await asyncio.gather(call, return_exceptions=True)
        return call.cancelled(), made.finished

    assert (True, 1) == asyncio.run(scenario())


def test_an_uninterruptible_function_that_fails_after_a_cancel():
    """It is not repeated: the caller has gone."""
    calls = []

    async def scenario():
        began, go = asyncio.Event(), asyncio.Event()

        @retry(3, wait=0, idempotent=True)
        @uninterruptible
        async def write():
            calls.append(True)
            began.set()
            await go.wait()
            raise ConnectionError("down")

        call = asyncio.ensure_future(write())
        await began.wait()
        call.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(call, return_exceptions=True)
        return call.cancelled()

    assert asyncio.run(scenario()) is True
    assert [True] == calls


def test_an_outer_deadline_only_decides_whether_it_starts(work):
    """Past before it begins: it does not begin."""

    async def scenario():
        made = work()
        inner = protected(made)
        with by_hand() as clock:

            @timeout(5)
            async def outer():
                clock._now += 9  # time that passes without anybody being woken
                return await inner()

            with pytest.raises(TimeoutExceeded):
                await outer()
        return made.began.is_set()

    assert asyncio.run(scenario()) is False


def test_an_outer_deadline_with_time_left_lets_it_begin(work):
    """The function sees what is left, and runs to its end."""

    async def scenario():
        with by_hand():

            @retry(2, wait=0, idempotent=True)
            @uninterruptible
            async def write():
                return remaining()

            return await timeout(5)(lambda_of(write))()

    def lambda_of(fn):
        async def outer():
            return await fn()

        return outer

    assert 5 == asyncio.run(scenario())
