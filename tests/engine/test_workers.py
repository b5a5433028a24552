"""Workers: hand-over, what a caller leaves behind, how idle ones end, and what a forked child has."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from contextvars import ContextVar, copy_context

import pytest

from resilience import (
    BulkheadFullError,
    TimeoutExceeded,
    bulkhead,
    idempotent,
    interruptible,
    remaining,
    retry,
    timeout,
)
from resilience._clock import SYSTEM_CLOCK
from resilience._engine import workers
from resilience._engine.workers import Work, WorkerPool, signal, wait_for_lock
from resilience._registry import current_registry
from resilience.testing import ManualClock, use_clock

REAL_MONOTONIC = time.monotonic


def by_hand(clock=None):
    """Everything of this test's registry runs on a clock that moves when told."""
    return use_clock(clock or ManualClock(), current_registry())


def until(condition, seconds=5.0):
    """Wait for another thread, by turns short enough to be no sleep."""
    end = REAL_MONOTONIC() + seconds
    while not condition():
        assert REAL_MONOTONIC() < end, "it never came to that"
        threading.Event().wait(0.0005)


def work(fn=lambda: "done", *args, **kwargs):
    return Work(copy_context(), fn, args, kwargs)


@pytest.fixture
def pool():
    return WorkerPool("site", 2)


@pytest.fixture
def gate():
    """A function that runs until it is let go, which it is at the latest when the test ends."""

    class Gate:
        def __init__(self):
            self.entered = threading.Semaphore(0)
            self.opened = threading.Event()

        def __call__(self, result="late"):
            self.entered.release()
            assert self.opened.wait(10)
            return result

    gate = Gate()
    yield gate
    gate.opened.set()


# ---------------------------------------------------------------------------------------------- work
def test_a_value(pool):
    """What the function returned."""
    made = work(lambda a, b: a + b, 1, b=2)
    pool.submit(made)

    assert made.wait(None, SYSTEM_CLOCK) is True
    assert 3 == made.take().value


def test_an_exception(pool):
    """What it raised is an outcome."""
    error = LookupError("x")

    def fail():
        raise error

    made = work(fail)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)

    assert error is made.take().error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception(pool, kind):
    """It is raised at the caller, and the worker lives on."""

    def stop():
        raise kind("stop")

    made = work(stop)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    with pytest.raises(kind, match="stop"):
        made.take()

    after = work()
    pool.submit(after)
    assert after.wait(None, SYSTEM_CLOCK) is True


def test_a_work_that_was_taken_keeps_nothing(pool):
    """Its outcome is the caller's alone, or an exception would hang in a ring with the frame it crossed."""

    class Weak(Exception):
        pass

    def fail():
        raise Weak

    made = work(fail)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    reference = weakref.ref(made.take().error)
    until(lambda: pool._idle)
    gc.disable()
    try:
        assert reference() is None
    finally:
        gc.enable()


def test_the_context_is_a_copy(pool):
    """The function sees the caller's context; what it sets stays with it."""
    variable = ContextVar("variable")
    variable.set("caller's")
    seen = []

    def change():
        seen.append(variable.get())
        variable.set("worker's")

    made = work(change)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)

    assert (["caller's"], "caller's") == (seen, variable.get())


# ---------------------------------------------------------------------------------------------- the pool
def test_an_idle_worker_is_used_again(pool):
    """One after the other needs one thread."""
    threads = set()
    for _ in range(5):
        made = work(threading.get_ident)
        pool.submit(made)
        made.wait(None, SYSTEM_CLOCK)
        threads.add(made.take().value)
        until(lambda: pool._idle)

    assert 1 == len(threads)


def test_all_workers_are_busy(pool, gate):
    """Beyond the limit nothing is taken."""
    assert [True, True, False] == [pool.submit(work(gate)) for _ in range(3)]


def test_a_worker_is_a_daemon_with_the_sites_name(pool):
    """It keeps no process alive, and a thread dump says whose it is."""
    made = work(threading.current_thread)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    thread = made.take().value

    assert (True, "resilience site") == (thread.daemon, thread.name)


def test_an_idle_worker_ends(pool, monkeypatch):
    """After a while without work its thread goes, and makes room for another."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.001)
    made = work(threading.current_thread)
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    thread = made.take().value
    thread.join(5)

    assert (False, 0, []) == (thread.is_alive(), pool._workers, pool._idle)


def test_a_worker_that_is_given_work_just_as_it_would_end(pool):
    """It asks first, and stays."""
    made = work()
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    until(lambda: pool._idle)
    worker = pool._idle.pop()

    assert pool.retire(worker) is False
    pool.rejoin(worker)
    assert pool.retire(worker) is True
    pool._workers += 1
    pool.rejoin(worker)


def test_a_worker_that_was_refused_its_end_goes_on(pool, monkeypatch):
    """It waits for the work that it was promised."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.001)
    asked = []

    def refuse(worker):
        asked.append(worker)
        return len(asked) > 2 and WorkerPool.retire(pool, worker)

    monkeypatch.setattr(pool, "retire", refuse)
    pool.submit(work())
    until(lambda: len(asked) > 2)

    assert 0 == pool._workers or until(lambda: pool._workers == 0) is None


def test_a_thread_that_can_not_be_started(pool, monkeypatch):
    """The error is the caller's, and the place is free again."""

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(work())

    assert 0 == pool._workers


def test_a_signal_to_an_idle_worker(pool):
    """Two hand-overs at once can't be lost: a second signal before the first was taken does nothing."""
    lock = threading.Lock()
    lock.acquire()

    assert (True, True) == (signal(lock), signal(lock))
    assert lock.acquire(blocking=False)


# ---------------------------------------------------------------------------------------------- waiting
def test_waiting_without_a_limit():
    """Until it is signalled."""
    lock = threading.Lock()

    assert wait_for_lock(lock, None, SYSTEM_CLOCK) is True


@pytest.mark.parametrize("seconds", [0, -1])
def test_waiting_for_nothing(seconds):
    """No time left: look once."""
    lock = threading.Lock()

    assert wait_for_lock(lock, seconds, SYSTEM_CLOCK) is True
    assert wait_for_lock(lock, seconds, SYSTEM_CLOCK) is False


def test_waiting_in_real_time():
    """By the lock's own timeout; one longer than it takes is cut to that."""
    lock = threading.Lock()
    lock.acquire()

    assert wait_for_lock(lock, 0.001, SYSTEM_CLOCK) is False
    lock.release()
    assert wait_for_lock(lock, 1e300, SYSTEM_CLOCK) is True


def test_waiting_by_a_test_clock():
    """The clock's own step wakes the waiter and says that the time is over."""
    clock, lock, found = ManualClock(), threading.Lock(), []
    lock.acquire()
    waiter = threading.Thread(target=lambda: found.append(wait_for_lock(lock, 5, clock)))
    waiter.start()
    until(lambda: clock.pending)
    clock.advance(5)
    waiter.join(5)

    assert [False] == found


def test_being_signalled_under_a_test_clock():
    """Signalled in time: True, and nothing is pending any more."""
    clock, lock, found = ManualClock(), threading.Lock(), []
    lock.acquire()
    waiter = threading.Thread(target=lambda: found.append(wait_for_lock(lock, 5, clock)))
    waiter.start()
    until(lambda: clock.pending)
    signal(lock)
    waiter.join(5)

    assert ([True], 0) == (found, clock.pending)


# ---------------------------------------------------------------------------------------------- orphans
def test_an_abandoned_function_is_an_orphan_until_it_ends(pool, gate):
    """It is counted, and what is to follow its end follows."""
    made, ended = work(gate), threading.Event()
    pool.submit(made)
    made.abandon(pool, ended.set)

    assert (1, False) == (pool.orphans, ended.is_set())
    gate.opened.set()
    assert ended.wait(5)
    assert 0 == pool.orphans


def test_a_function_that_has_just_ended_when_it_is_abandoned(pool):
    """Its end is made good at once."""
    made, ended = work(), []
    pool.submit(made)
    made.wait(None, SYSTEM_CLOCK)
    made.abandon(pool, lambda: ended.append(True))

    assert (0, [True]) == (pool.orphans, ended)


def test_what_an_orphan_returns_is_forgotten(pool, gate):
    """Nobody will ask for it."""
    made, ended = work(gate), threading.Event()
    pool.submit(made)
    made.abandon(pool, ended.set)
    gate.opened.set()
    ended.wait(5)

    with pytest.raises(AssertionError, match="a finished work has its outcome"):
        made.take()


# ---------------------------------------------------------------------------------------------- as a policy
def test_a_timeout_leaves_the_function_behind(gate, registry):
    """The caller goes at the deadline; the slot comes back with the function's end."""

    @bulkhead("room", max_in_flight=1)
    @timeout(0.005)
    @interruptible
    def fetch():
        return gate()

    with pytest.raises(TimeoutExceeded):
        fetch()
    room = registry.get_bulkhead("room")

    assert 1 == room.in_flight
    with pytest.raises(BulkheadFullError):
        fetch()
    gate.opened.set()
    until(lambda: room.in_flight == 0)


def test_an_attempt_after_an_orphan_needs_a_slot_of_its_own(gate, registry):
    """None is free: the retry ends with its last exception."""

    @bulkhead("room", max_in_flight=1)
    @retry(3, wait=0)
    @timeout(per_attempt=0.005)
    @interruptible(max_workers=5)
    @idempotent
    def fetch():
        return gate()

    with pytest.raises(TimeoutExceeded) as caught:
        fetch()

    assert ["retry stopped: bulkhead room is full"] == caught.value.__notes__


def test_an_attempt_after_an_orphan_takes_a_free_slot(gate, registry):
    """Two attempts, two slots; both come back."""
    answers = iter([gate, lambda: "fine"])

    @bulkhead("room", max_in_flight=2)
    @retry(3, wait=0)
    @timeout(per_attempt=0.02)
    @interruptible(max_workers=5)
    @idempotent
    def fetch():
        return next(answers)()

    assert "fine" == fetch()
    room = registry.get_bulkhead("room")
    assert 1 == room.in_flight
    gate.opened.set()
    until(lambda: room.in_flight == 0)


def test_all_workers_linger(gate):
    """A call that finds no worker is refused, not queued."""

    @timeout(0.005)
    @interruptible(max_workers=1)
    def fetch():
        return gate()

    with pytest.raises(TimeoutExceeded):
        fetch()
    with pytest.raises(BulkheadFullError, match="fetch"):
        fetch()


def test_the_number_of_workers_is_that_of_the_bulkhead(gate):
    """Without a number of its own a function has as many workers as it may have calls in flight."""

    @bulkhead(max_in_flight=2)
    @timeout(0.005)
    @interruptible
    def fetch():
        return gate()

    for _ in range(2):
        with pytest.raises(TimeoutExceeded):
            fetch()
    with pytest.raises(BulkheadFullError, match="fetch"):
        fetch()


def test_an_interrupted_caller_leaves_its_attempt_behind(gate, registry, monkeypatch):
    """Ctrl-C while waiting: the attempt becomes an orphan, with the slot."""

    @bulkhead("room", max_in_flight=1)
    @timeout(30)
    @interruptible
    def fetch():
        return gate()

    def interrupted(lock, seconds, clock):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "wait_for_lock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    room = registry.get_bulkhead("room")

    assert 1 == room.in_flight
    gate.opened.set()
    until(lambda: room.in_flight == 0)


def test_the_function_sees_what_is_left():
    """The deadline goes along to the worker."""

    @timeout(30)
    @interruptible
    def fetch():
        return remaining()

    with by_hand():
        assert 30 == fetch()


def test_a_deadline_that_is_past_starts_nothing():
    """A wait that took longer than planned: no further attempt begins."""

    class Oversleeping(ManualClock):
        def sleep(self, seconds):
            self.advance(seconds + 100)

    started = []
    with by_hand(Oversleeping()):

        @retry(3, wait=1)
        @timeout(5)
        @interruptible
        @idempotent
        def fetch():
            started.append(True)
            raise ConnectionError("down")

        with pytest.raises(TimeoutExceeded):
            fetch()
        # Whoever was started nevertheless would have had its turn by now.
        threading.Event().wait(0.005)

    assert [True] == started


# ---------------------------------------------------------------------------------------------- forks
def test_a_pool_starts_afresh(pool, gate):
    """Neither workers nor orphans of the parent exist in a child."""
    made = work(gate)
    pool.submit(made)
    made.abandon(pool, None)
    workers.after_fork()

    assert (0, 0, []) == (pool._workers, pool.orphans, pool._idle)
    gate.opened.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own():
    """A pool with an idle worker works in the child, where that thread does not exist."""

    @timeout(2)
    @interruptible
    def fetch():
        return "fine"

    fetch()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if fetch() == "fine" else 1)
        except BaseException:
            os._exit(2)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
