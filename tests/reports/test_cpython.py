"""Reports to CPython, anyio and freezegun, each retold: the same fault does not exist here."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime

import pytest
from forking import in_child, needs_fork

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FaultKind,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    remaining,
    retry,
    timeout,
    use_registry,
)
from resilience.testing import ManualClock, use_clock

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def clock(registry):
    """A clock that moves when told."""
    with use_clock(ManualClock(100.0), registry) as clock:
        yield clock


async def turns(count=8):
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------ cancels and deadlines
DEADLINES = {
    "budget": lambda: timeout(60),
    "attempt": lambda: timeout(60, per_attempt=30),
    "all": lambda: compose(
        bulkhead(max_in_flight=1), timeout(60, per_attempt=30), retry(3, wait=0, idempotent=True), breaker("api")
    ),
}

deadlines = pytest.mark.parametrize("deadline", DEADLINES)


@deadlines
@pytest.mark.parametrize("ending", ["a result", "an error"])
@pytest.mark.parametrize("between", range(3))
def test_a_cancel_in_the_turn_of_the_answer_is_not_lost(registry, deadline, ending, between):
    """cpython#86296: `wait_for` returned the answer that came in the turn of a cancel, and the cancel was gone."""
    entered = []

    async def main():
        answer = asyncio.get_running_loop().create_future()

        @DEADLINES[deadline]()
        async def ask():
            entered.append(1)
            return await answer

        async def caller():
            try:
                await ask()
            except LookupError:
                pass
            await asyncio.sleep(60)

        task = asyncio.create_task(caller())
        await turns()
        if ending == "a result":
            answer.set_result("late")
        else:
            answer.set_exception(LookupError())
        await turns(between)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        answer.exception()
        return task.cancelled()

    assert asyncio.run(main())
    assert [1] == entered


@deadlines
@pytest.mark.parametrize("first", ["cancel", "deadline"])
def test_a_cancel_in_the_turn_of_the_deadline_is_not_lost(registry, clock, deadline, first):
    """cpython#86296: nor is a cancel that comes in the turn in which the deadline expires."""

    async def main():
        @DEADLINES[deadline]()
        async def ask():
            await asyncio.Event().wait()

        task = asyncio.create_task(ask())
        await turns()
        acts = [task.cancel, lambda: clock.advance(60)]
        for act in acts if first == "cancel" else reversed(acts):
            act()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(main())


@pytest.mark.parametrize("budget", [1e-9, 1e-6, 0.001, 60])
def test_an_earlier_cancel_survives_the_shortest_timeout(registry, budget):
    """cpython#134471: `timeout(0)` took a cancel that was there before it for its own, and the task went on."""
    went_on = []

    @timeout(budget)
    async def ask():
        await asyncio.sleep(60)

    async def caller():
        asyncio.current_task().cancel()
        try:
            await ask()
        except TimeoutExceeded:
            await asyncio.sleep(0)  # a cancel that is still to come comes here
        went_on.append(1)

    async def main():
        task = asyncio.create_task(caller())
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(main())
    assert [] == went_on


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_an_earlier_cancel_survives_a_deadline_that_has_passed(registry, clock, late):
    """cpython#134471: the same where the deadline around the call is over when it is reached."""
    went_on = []

    @timeout(1)
    async def inner():
        await asyncio.Event().wait()

    @timeout(3)
    async def outer():
        asyncio.current_task().cancel()
        clock.advance(late)
        await inner()

    async def caller():
        try:
            await outer()
        except TimeoutExceeded:
            await asyncio.sleep(0)
        went_on.append(1)

    async def main():
        task = asyncio.create_task(caller())
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(main())
    assert [] == went_on


def test_an_earlier_cancel_survives_a_deadline_that_expires_before_the_first_await(registry, clock):
    """cpython#134471: the timer's cancel and the earlier one arrive as one CancelledError, which is not all ours."""

    @timeout(1)
    async def ask():
        clock.advance(1)
        await asyncio.Event().wait()

    async def caller():
        asyncio.current_task().cancel()
        try:
            await ask()
        except TimeoutExceeded:
            await asyncio.sleep(0)

    async def main():
        task = asyncio.create_task(caller())
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(main())


def hog():
    """Keep the event loop from turning for longer than the deadline."""
    time.sleep(0.02)


def test_an_earlier_cancel_survives_a_timer_that_is_due_in_the_same_turn(registry):
    """cpython#134471: the cancel is on its way through what the task waits for when the timer of other calls finds this one due."""

    @timeout(0.01)
    async def ask(*, block):
        if block:
            hog()
        await asyncio.Event().wait()

    async def caller(go):
        await go.wait()
        asyncio.current_task().cancel()
        try:
            await ask(block=True)
        except TimeoutExceeded:
            await asyncio.sleep(0)

    async def main():
        go = asyncio.Event()
        task, other = asyncio.create_task(caller(go)), asyncio.create_task(ask(block=False))
        await asyncio.sleep(0)
        go.set()
        hog()  # the timer that the other call has armed is due now
        await asyncio.wait([task, other], timeout=5)
        assert type(other.exception()) is TimeoutExceeded
        return task.cancelled()

    assert asyncio.run(main())


# ------------------------------------------------------------------------------------------ fork, signals, collector
class StoppableClock(ManualClock):
    """A clock at which one thread can be made to stop, wherever in the library it reads the time."""

    def __init__(self):
        super().__init__()
        self.stops = None
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def monotonic(self):
        if self.stops == threading.get_ident():
            self.reached.set()
            self.go_on.wait(10)
        return super().monotonic()


@needs_fork
def test_a_thread_stopped_in_the_middle_of_a_decision_does_not_hang_the_child(registry):
    """cpython#50970: a lock that another thread held at a fork stayed locked for ever in the child."""
    with use_clock(StoppableClock(), registry) as clock:
        api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=0.001))

        def decide():
            clock.stops = threading.get_ident()
            api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)

        def check():
            api.reset()
            assert "ok" == breaker("api")(lambda: "ok")()
            api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
            assert CircuitState.OPEN is api.state

        thread = threading.Thread(target=decide, daemon=True)
        thread.start()
        try:
            assert clock.reached.wait(5)
            assert "ok" == in_child(check)
        finally:
            clock.go_on.set()
            thread.join(5)


@pytest.mark.slow
@needs_fork
def test_threads_busy_everywhere_do_not_hang_the_child(registry, monkeypatch):
    """cpython#50970: the same with threads that call, register and wait in line while the process forks."""
    monkeypatch.setattr(logging.getLogger("resilience"), "disabled", True)  # its handlers' locks are not ours
    api = registry.breaker("api", BreakerConfig(Consecutive(2), cooldown=60))
    registry.bulkhead("pool", BulkheadConfig(1))
    registry.subscribe(lambda event: None)
    stop = threading.Event()

    @bulkhead("pool", wait=0.001)
    @breaker("api")
    def ask(fails):
        if fails:
            raise ConnectionError
        return "ok"

    def hammer(number):
        while not stop.is_set():
            try:
                ask(number)
            except (ConnectionError, CircuitOpenError, BulkheadFullError):
                api.reset()
            registry.breaker(f"fresh-{number}", BreakerConfig())

    def check():
        for number in range(10):
            api.reset()
            api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
            registry.breaker(f"child-{number}", BreakerConfig())
            api.reset()
            assert "ok" == ask(False)
        list(registry.status_all())

    threads = [threading.Thread(target=hammer, args=(number,), daemon=True) for number in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        assert ["ok"] * 8 == [in_child(check) for _ in range(8)]
    finally:
        stop.set()
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join(5)


def test_the_collector_may_call_from_anywhere(registry, monkeypatch):
    """cpython#59181: a finaliser that ran while its own thread held the queue's lock waited for itself."""
    monkeypatch.setattr(logging.getLogger("resilience"), "disabled", True)
    api = registry.breaker("api", BreakerConfig(Consecutive(2), cooldown=0.0001))
    registry.bulkhead("pool", BulkheadConfig(2))
    registry.subscribe(lambda event: None)
    finalised = []

    @bulkhead("pool")
    @breaker("api")
    def ask():
        raise ConnectionError

    def use_everything():
        try:
            api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
            ask()
        except (ConnectionError, CircuitOpenError, BulkheadFullError):
            api.reset()

    class Session:
        def __init__(self):
            self.me = self  # only the collector frees it

        def __del__(self):
            finalised.append(1)
            if len(finalised) < 1500:
                Session()  # garbage again: wherever the next collection comes, it finalises something
            use_everything()

    def storm():
        Session()
        while len(finalised) < 1500:
            use_everything()

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    thread = threading.Thread(target=storm, daemon=True)
    try:
        thread.start()
        thread.join(20)
    finally:
        gc.set_threshold(*thresholds)
    assert not thread.is_alive(), "deadlock"
    api.reset()
    status = api.status()
    assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released
    assert 0 == registry.get_bulkhead("pool").in_flight


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
def test_a_signal_handler_may_call_from_anywhere():
    """cpython#59181: the same for a signal handler (in a process of its own: a deadlock there is a failure here)."""
    program = """
        import logging, signal
        from resilience import *

        logging.disable(logging.CRITICAL)
        api = default_registry().breaker("api", BreakerConfig(Consecutive(2), cooldown=0.0001))
        default_registry().subscribe(lambda event: None)
        handled = 0

        @bulkhead("pool", max_in_flight=2)
        @breaker("api")
        def ask():
            raise ConnectionError

        def use_everything():
            try:
                api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
                ask()
            except (ConnectionError, CircuitOpenError, BulkheadFullError):
                api.reset()

        def on_signal(number, frame):
            global handled
            handled += 1
            use_everything()

        signal.signal(signal.SIGALRM, on_signal)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        while handled < 300:
            use_everything()
        signal.setitimer(signal.ITIMER_REAL, 0)
        api.reset()
        assert "ok" == breaker("api")(lambda: "ok")()
        print("ok")
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert ("ok", "") == (ran.stdout.strip(), ran.stderr)


# ------------------------------------------------------------------------------------------ lines of waiters
@pytest.mark.parametrize("order", ["give, then cancel", "cancel, then give"])
@pytest.mark.parametrize("between", range(6))
def test_a_slot_granted_to_a_cancelled_waiter_is_not_lost(registry, order, between):
    """anyio#947: a waiter cancelled just when it was given the limiter's token took the token with it."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        leave = asyncio.Event()

        @bulkhead("pool", wait=60)
        async def hold():
            await leave.wait()

        holder = asyncio.create_task(hold())
        await turns()
        waiter = asyncio.create_task(hold())
        await turns()
        assert 1 == pool.waiting
        acts = [leave.set, waiter.cancel]
        first, second = acts if order == "give, then cancel" else reversed(acts)
        first()
        await turns(between)
        second()
        await asyncio.wait([holder, waiter], timeout=5)
        assert (0, 0) == (pool.in_flight, pool.waiting)
        return await bulkhead("pool")(asyncio.sleep)(0, "let in at once")

    assert "let in at once" == asyncio.run(main())


@pytest.mark.parametrize("order", ["give, then cancel", "cancel, then give"])
@pytest.mark.parametrize("cancelled", [1, 2, 3])
def test_those_behind_a_cancelled_waiter_are_served(registry, order, cancelled):
    """anyio#1145: when the waiter that was to have the lock was cancelled, those behind it waited for ever."""
    registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        leave = asyncio.Event()
        served = []

        @bulkhead("pool", wait=60)
        async def hold(name):
            served.append(name)
            await leave.wait()

        holder = asyncio.create_task(hold("holder"))
        await turns()
        line = []
        for number in range(5):
            line.append(asyncio.create_task(hold(number)))
            await turns()
        acts = [leave.set, lambda: [waiter.cancel() for waiter in line[:cancelled]]]
        for act in acts if order == "give, then cancel" else reversed(acts):
            act()
        _, forgotten = await asyncio.wait([holder, *line], timeout=5)
        assert not forgotten
        return served

    assert ["holder", *range(cancelled, 5)] == asyncio.run(main())


def test_a_line_whose_waiters_have_all_left_stops_nobody(registry):
    """anyio#1145: waiters that had been cancelled made a free lock look taken to one who would not wait."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))

    async def main():
        leave = asyncio.Event()
        holder = asyncio.create_task(bulkhead("pool")(leave.wait)())
        await turns()
        line = [asyncio.create_task(bulkhead("pool", wait=60)(leave.wait)()) for _ in range(3)]
        await turns()
        for waiter in line:
            waiter.cancel()
        leave.set()
        await holder
        answer = await bulkhead("pool", wait=0)(asyncio.sleep)(0, "let in at once")
        await asyncio.wait(line)
        return answer

    assert "let in at once" == asyncio.run(main())
    assert (0, 0) == (pool.in_flight, pool.waiting)


# ------------------------------------------------------------------------------------------ a frozen clock
def test_an_event_loop_that_is_not_frozen_goes_on_under_a_frozen_clock(registry):
    """freezegun#383: tests that froze the time for the sake of dates found their timeouts and waits frozen as well."""
    freeze_time = pytest.importorskip("freezegun").freeze_time
    provider = iter([ConnectionError, None])

    @timeout(5)
    @retry(2, wait=0.001, idempotent=True)
    @breaker("api")
    async def ask():
        error = next(provider)
        await asyncio.sleep(0.001)
        if error:
            raise error
        return datetime.now(UTC), remaining()

    with freeze_time(START, real_asyncio=True):
        now, left = asyncio.run(asyncio.wait_for(ask(), 5))
    assert START == now
    assert 5.0 == pytest.approx(left)  # deadlines are on the frozen clock, not on the loop's


def test_a_deadline_follows_the_frozen_clock(registry):
    """freezegun#383: a timeout neither fires while the time stands still, nor stays out once the time was moved on."""
    freeze_time = pytest.importorskip("freezegun").freeze_time

    async def main(frozen):
        task = asyncio.create_task(timeout(0.01)(asyncio.Event().wait)())
        still, _ = await asyncio.wait([task], timeout=0.04)
        frozen.tick(1)
        moved, _ = await asyncio.wait([task], timeout=5)
        return len(still), len(moved), type(task.exception())

    with freeze_time(START, real_asyncio=True) as frozen:
        assert (0, 1, TimeoutExceeded) == asyncio.run(main(frozen))


def test_an_hour_of_frozen_time_harms_no_circuit_afterwards(registry):
    """freezegun#383: what was noted on the frozen clock is worth nothing on the real one, and must do no harm there."""
    freeze_time = pytest.importorskip("freezegun").freeze_time
    api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    for year in (1999, 2199):
        with freeze_time(START.replace(year=year)):
            api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
            assert CircuitState.OPEN is api.state
        assert 0 <= api.status().retry_after <= 30
        api.reset()


@pytest.mark.parametrize("real_asyncio", [False, True])
def test_waits_and_deadlines_pass_on_a_clock_of_ours_though_the_loop_is_frozen(registry, clock, real_asyncio):
    """freezegun#437: `await asyncio.sleep()` hung under a frozen clock, and so did all that waits like that."""
    freeze_time = pytest.importorskip("freezegun").freeze_time
    answers = iter([ConnectionError, None])

    @retry(2, wait=10, idempotent=True)
    async def flaky():
        if error := next(answers):
            raise error
        return "ok"

    async def main():
        waiting = asyncio.create_task(flaky())
        hanging = asyncio.create_task(timeout(30)(asyncio.Event().wait)())
        await turns()
        clock.advance(10)
        await turns()
        assert (True, False) == (waiting.done(), hanging.done())
        clock.advance(20)
        await turns()
        return waiting.result(), type(hanging.exception())

    with freeze_time(START, real_asyncio=real_asyncio):
        assert ("ok", TimeoutExceeded) == asyncio.run(main())


def test_a_retry_without_a_wait_needs_no_time_to_pass(registry):
    """freezegun#437: where there is nothing to wait for, a frozen event loop stops nothing."""
    freeze_time = pytest.importorskip("freezegun").freeze_time
    attempts = []

    @timeout(5)
    @retry(3, wait=0, idempotent=True)
    async def ask():
        attempts.append(1)
        raise ConnectionError

    with freeze_time(START), pytest.raises(ConnectionError):
        asyncio.run(ask())
    assert 3 == len(attempts)


DROPPED_IN_CYCLES = """
import gc
from contextvars import ContextVar

from resilience import BreakerConfig, breaker, timeout


@breaker("dropped", BreakerConfig())
@timeout(1000, pass_as="timeout")
def limited(timeout=None):
    yield 1


@breaker("dropped", unless=lambda: False, stream=True)
def opened():
    return iter([1, 2])


class Ring:
    def __init__(self, stream):
        self.ring, self.stream = self, stream
        next(stream)


variables = [ContextVar(f"v{number}") for number in range(100)]
gc.set_threshold(1, 1, 1)
for turn in range(90):
    for variable in variables:
        if turn % 3 == 0:
            Ring(limited())
            Ring(opened())
        variable.set(object())
print("alive")
"""


@pytest.mark.slow
def test_streams_that_the_collector_closes():
    """cpython#148891: on 3.11 a finaliser that sets a context variable while another is being set crashes; ours set none."""
    ended = subprocess.run([sys.executable, "-c", DROPPED_IN_CYCLES], capture_output=True, text=True, timeout=120)
    assert (0, "alive") == (ended.returncode, ended.stdout.strip())
