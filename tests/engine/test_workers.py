"""Workers: hand-over, what a caller leaves behind, how idle ones end, and what a forked child has."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextvars import ContextVar, copy_context

import pytest
from forking import in_child, needs_fork

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
from resilience._core.deadline import fixed_deadline
from resilience._engine import workers
from resilience._engine.workers import EXPIRED, WorkerPool, run_on, signal, wait_for_lock
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


class Left:
    """What a caller leaves behind when it goes."""

    def __init__(self):
        self.asked = 0
        self.ended = threading.Event()

    def __call__(self):
        self.asked += 1
        return self.ended.set


def perform(worker, fn=lambda: "done", *args, seconds=None, clock=SYSTEM_CLOCK, leave=Left, **kwargs):
    return worker.perform((copy_context(), fn, args, kwargs), seconds, clock, leave() if leave is Left else leave)


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


# ---------------------------------------------------------------------------------------------- a job
def test_a_value(pool):
    """What the function returned."""
    assert (3, None) == perform(pool.take(), lambda a, b: a + b, 1, b=2)


def test_an_exception(pool):
    """What it raised is handed over, not raised."""
    error = LookupError("x")

    def fail():
        raise error

    value, raised = perform(pool.take(), fail)

    assert (None, True) == (value, raised is error)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception(pool, kind):
    """It is handed over as well, and the worker lives on."""

    def stop():
        raise kind("stop")

    worker = pool.take()
    assert kind is type(perform(worker, stop)[1])
    assert ("done", None) == perform(pool.take())


def test_a_worker_keeps_nothing(pool):
    """The answer is the caller's alone, or an exception would hang in a ring with the frames it crossed."""

    class Weak(Exception):
        pass

    class Argument:
        pass

    def fail(argument):
        raise Weak

    argument = Argument()
    references = [weakref.ref(argument)]
    answer = perform(pool.take(), fail, argument)
    references.append(weakref.ref(answer[1]))
    del argument
    gc.disable()
    try:
        del answer
        assert [None, None] == [reference() for reference in references]
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

    perform(pool.take(), change)

    assert (["caller's"], "caller's") == (seen, variable.get())


# ---------------------------------------------------------------------------------------------- the pool
def test_an_idle_worker_is_used_again(pool):
    """One after the other needs one thread."""
    assert 1 == len({perform(pool.take(), threading.get_ident)[0] for _ in range(5)})


def test_all_workers_are_busy(pool):
    """Beyond the limit there is none."""
    assert [True, True, False] == [pool.take() is not None for _ in range(3)]


def test_a_worker_is_a_daemon_with_the_sites_name(pool):
    """It keeps no process alive, and a thread dump says whose it is."""
    thread, _ = perform(pool.take(), threading.current_thread)

    assert (True, "resilience site") == (thread.daemon, thread.name)


def test_an_idle_worker_ends(pool, monkeypatch):
    """After a while without work its thread goes, and makes room for another."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.001)
    thread, _ = perform(pool.take(), threading.current_thread)
    thread.join(5)

    assert (False, 0, []) == (thread.is_alive(), pool.workers, pool.idle)


def test_a_worker_that_is_given_work_just_as_it_would_end(pool):
    """It asks first, and stays."""
    worker = pool.take()
    perform(worker)

    assert pool.take() is worker
    assert (False, 1) == (pool.retire(worker), pool.workers)


def test_a_worker_that_was_refused_its_end_goes_on(pool, monkeypatch):
    """It waits for the work that it was promised."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.001)
    asked = []

    class Promised(list):
        """Workers that somebody has just taken, whenever they ask."""

        def remove(self, worker):
            asked.append(worker)
            raise ValueError

    pool.idle = Promised()
    worker = pool.take()
    ident, _ = perform(worker, threading.get_ident)
    until(lambda: len(asked) > 2)

    assert (worker, 1) == (asked[0], pool.workers)
    assert (ident, None) == perform(pool.take(), threading.get_ident)
    pool.idle = list(pool.idle)
    until(lambda: pool.workers == 0)


def test_a_thread_that_can_not_be_started(pool, monkeypatch):
    """The error is the caller's; the worker is free, and the next caller tries again."""

    def start(thread):
        raise RuntimeError("can't start new thread")

    left = Left()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            perform(pool.take(), leave=left)

    assert (True, 0) == (left.ended.is_set(), pool.orphans)
    assert (1, ("done", None)) == (pool.workers, perform(pool.take()))


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


def test_being_interrupted_under_a_test_clock(monkeypatch):
    """Nothing stays pending that would wake somebody else later."""

    class Interrupting:
        """A lock whose waiter is interrupted."""

        def acquire(self, *how):
            raise KeyboardInterrupt

    clock = ManualClock()
    with pytest.raises(KeyboardInterrupt):
        wait_for_lock(Interrupting(), 5, clock)

    assert 0 == clock.pending


# ---------------------------------------------------------------------------------------------- orphans
@pytest.fixture
def give_up(pool, gate, monkeypatch):
    """Have a worker run the gate, and go as soon as it has begun."""

    def give_up(leave, fn=gate):
        def until_it_runs(lock, seconds, clock):
            assert gate.entered.acquire(timeout=5)
            return False

        worker = pool.take()
        with monkeypatch.context() as patch:
            patch.setattr(workers, "wait_for_lock", until_it_runs)
            assert None is perform(worker, fn, leave=leave)
        return worker

    return give_up


def test_an_abandoned_function_is_an_orphan_until_it_ends(pool, gate, give_up):
    """It is counted, and what is to follow its end follows; then the worker is free again."""
    left = Left()
    worker = give_up(left)

    assert (1, 1, False, []) == (pool.orphans, left.asked, left.ended.is_set(), pool.idle)
    gate.opened.set()
    assert left.ended.wait(5)
    assert (0, [worker]) == (pool.orphans, pool.idle)
    assert ("done", None) == perform(pool.take())


def test_an_orphan_that_nothing_follows(pool, gate, give_up):
    """A caller may have nothing to clean up."""
    give_up(lambda: None)
    gate.opened.set()
    until(lambda: pool.idle)

    assert 0 == pool.orphans


def test_a_function_that_ends_just_as_it_is_abandoned(pool, monkeypatch):
    """Its end is made good by the caller, and the worker's late signal reaches nobody."""
    ended, left, worker = threading.Event(), Left(), pool.take()

    def too_late(lock, seconds, clock):
        assert lock.acquire(True, 5)
        signal(lock)  # as if it were on its way
        return False

    with monkeypatch.context() as patch:
        patch.setattr(workers, "wait_for_lock", too_late)
        assert None is perform(worker, ended.set, leave=left)

    assert (True, True, 0, [worker]) == (ended.is_set(), left.ended.is_set(), pool.orphans, pool.idle)
    # It must wait for its own function, not find the lock of the last one.
    assert (7, None) == perform(pool.take(), lambda: threading.Event().wait(0.005) or 7)


def test_a_function_that_has_not_begun_when_it_is_abandoned(pool, monkeypatch):
    """It never does, and the worker is free at once."""
    worker, left, ran = pool.take(), Left(), []
    perform(worker)
    with monkeypatch.context() as patch:
        patch.setattr(workers, "signal", lambda lock: True)  # the wake-up does not arrive in time
        assert None is perform(pool.take(), lambda: ran.append("!"), seconds=0.001, leave=left)

    assert (True, 0, [worker]) == (left.ended.is_set(), pool.orphans, pool.idle)
    signal(worker._wake)
    until(lambda: worker._wake.locked())
    assert (("done", None), []) == (perform(pool.take()), ran)


@pytest.mark.parametrize("where", ["begin", "wake", "wait"])
def test_a_caller_that_is_interrupted(pool, monkeypatch, where):
    """Wherever a signal handler raises, the worker is free or an orphan's, never lost."""

    def interrupt(*args):
        raise KeyboardInterrupt

    left = Left()
    worker = pool.take()
    perform(worker)
    with monkeypatch.context() as patch:
        if where == "begin":
            del worker._done
        elif where == "wake":
            patch.setattr(workers, "signal", interrupt)
        else:
            patch.setattr(workers, "wait_for_lock", interrupt)
        with pytest.raises((KeyboardInterrupt, AttributeError)):
            perform(pool.take(), leave=left)
    assert left.ended.wait(5)
    until(lambda: pool.idle)

    assert (0, [worker]) == (pool.orphans, pool.idle)
    assert ("done", None) == perform(pool.take())


def test_what_an_orphan_returns_is_forgotten(pool, gate, give_up):
    """Nobody will ask for it."""

    class Answer:
        pass

    references = []

    def late():
        answer = gate(Answer())
        references.append(weakref.ref(answer))
        return answer

    left = Left()
    give_up(left, late)
    gate.opened.set()
    assert left.ended.wait(5)
    until(lambda: references[0]() is None)


# ---------------------------------------------------------------------------------------------- on the straight path
def budget(seconds=5.0, outer=None):
    made = fixed_deadline(seconds, True)()
    made.started, made.left, made.outer = time.monotonic(), False, outer
    return made


def test_running_on_a_worker(pool):
    """The value, or the very exception."""
    error = LookupError("x")

    def fail():
        raise error

    assert "done" == run_on(pool.take(), budget(), lambda: "done", (), {})
    with pytest.raises(LookupError) as caught:
        run_on(pool.take(), budget(), fail, (), {})
    assert caught.value is error


def test_an_exception_of_a_worker_is_in_no_ring(pool):
    """It dies with the last name for it."""

    class Weak(Exception):
        pass

    def fail():
        raise Weak

    gc.disable()
    try:
        try:
            run_on(pool.take(), budget(), fail, (), {})
        except Weak as error:
            reference = weakref.ref(error)
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("own", [5.0, 0.001])
def test_the_nearest_deadline_ends_the_waiting(pool, gate, own):
    """That of the call, or one around it."""
    outer = budget(0.001 if own == 5.0 else 5.0)
    assert EXPIRED is run_on(pool.take(), budget(own, outer), gate, (), {})


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
def test_a_pool_starts_afresh(pool, give_up):
    """Neither workers nor orphans of the parent exist in a child."""
    give_up(Left())
    pool.idle.append(pool.take())
    workers.after_fork()

    assert (0, 0, []) == (pool.workers, pool.orphans, pool.idle)


@needs_fork
def test_a_forked_child_has_workers_of_its_own():
    """A pool with an idle worker works in the child, where that thread does not exist."""

    @timeout(2)
    @interruptible
    def fetch():
        return "fine"

    def check():
        assert "fine" == fetch()

    fetch()
    assert "ok" == in_child(check)
