"""Daemon workers for sync functions declared interruptible: what can't be stopped can be left behind.

A worker that is given up on goes on to the end of its function; the caller does not
wait for it. Idle workers wait for more work for a while and end. A hand-over is one
lock released: the queue and condition of an executor cost several times that.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from resilience._clock import is_real
from resilience._core.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from resilience._clock import Clock

IDLE_SECONDS = 10.0


class Work:
    """One attempt on a worker, from hand-over to its end or abandonment."""

    __slots__ = ("_args", "_claim", "_context", "_done", "_fn", "_kwargs", "_on_end", "_outcome", "_raised")

    def __init__(self, context: Context, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._context = context
        self._fn = fn
        self._args = args
        self._kwargs = kwargs
        self._done = threading.Lock()
        self._done.acquire()
        self._claim = [True]
        self._on_end: list[Callable[[], None]] = []
        self._outcome: Outcome | None = None
        self._raised: BaseException | None = None

    def run(self) -> None:
        """On the worker: run the function, keep what became of it."""
        try:
            self._outcome = Outcome(self._context.run(self._fn, *self._args, **self._kwargs))
        except Exception as error:
            self._outcome = Outcome(None, error)
        except BaseException as error:
            self._raised = error
        finally:
            del self._fn, self._args, self._kwargs, self._context

    def finish(self) -> None:
        """On the worker, last: wake the caller, or clean up behind one that is gone."""
        if self._win():
            signal(self._done)
            return
        self._outcome = self._raised = None
        # Set before the caller took the claim, so it is complete here.
        for act in self._on_end:
            act()

    def wait(self, seconds: float | None, clock: Clock) -> bool:
        """On the caller: whether the function ended within `seconds`."""
        return wait_for_lock(self._done, seconds, clock)

    def abandon(self, pool: WorkerPool, on_end: Callable[[], None] | None) -> None:
        """On the caller: leave it; `on_end` runs when the function has ended, now if it just did."""
        self._on_end = [pool.orphan_ended] if on_end is None else [pool.orphan_ended, on_end]
        pool.orphan_left()
        if not self._win():
            for act in self._on_end:
                act()

    def take(self) -> Outcome:
        """On the caller: the outcome; what is no `Exception` is raised as it is."""
        raised = self._raised
        if raised is not None:
            self._raised = None
            try:
                raise raised
            finally:
                del raised
        # Given away, not lent: work, outcome, exception and the worker's frame would form a ring.
        outcome, self._outcome = self._outcome, None
        assert outcome is not None, "a finished work has its outcome"
        return outcome

    def _win(self) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True


class WorkerPool:
    """The workers of one call site.

    Attributes:
        name: for the error when all of them are busy.
        limit: how many there may be.
        orphans: functions that nobody waits for any more and that still run.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.orphans = 0
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._workers = 0
        _POOLS.add(self)

    def submit(self, work: Work) -> bool:
        """Hand work to a free or new worker; False when all are busy."""
        try:
            worker = self._idle.pop()
        except IndexError:
            made = self._make()
            if made is None:
                return False
            worker = made
        try:
            worker.hand(work)
        except BaseException:
            # No thread could be started.
            with self._lock:
                self._workers -= 1
            raise
        return True

    def _make(self) -> Worker | None:
        with self._lock:
            if self._workers >= self.limit:
                return None
            self._workers += 1
        return Worker(self)

    def rejoin(self, worker: Worker) -> None:
        """A worker is free again; the last to come is the first to go, so the others can end."""
        self._idle.append(worker)

    def retire(self, worker: Worker) -> bool:
        """A worker that has been idle for long asks to end; False if it was just given work."""
        try:
            self._idle.remove(worker)
        except ValueError:
            return False
        with self._lock:
            self._workers -= 1
        return True

    def orphan_left(self) -> None:
        """Count an abandoned function."""
        with self._lock:
            self.orphans += 1

    def orphan_ended(self) -> None:
        """An abandoned function has ended after all."""
        with self._lock:
            self.orphans -= 1

    def after_fork(self) -> None:
        """In the child: no worker exists here."""
        self._lock = threading.Lock()
        self._idle = []
        self._workers = self.orphans = 0


class Worker:
    """One thread, started with its first work."""

    __slots__ = ("_pool", "_started", "_wake", "_work")

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._wake = threading.Lock()
        self._wake.acquire()
        self._work: Work | None = None
        self._started = False

    def hand(self, work: Work) -> None:
        """Give it work; it is idle, or new."""
        self._work = work
        if self._started:
            self._wake.release()
        else:
            # First: the new thread may be idle again, and be given more, before start() returns.
            self._started = True
            threading.Thread(target=self._loop, name=f"resilience {self._pool.name}", daemon=True).start()

    def _loop(self) -> None:
        while True:
            work, self._work = self._work, None
            assert work is not None, "a worker is woken with work"
            work.run()
            # Free first, then done: a caller that goes on at once finds a free worker.
            self._pool.rejoin(self)
            work.finish()
            del work
            while not self._wake.acquire(timeout=IDLE_SECONDS):
                if self._pool.retire(self):
                    return


def wait_for_lock(lock: threading.Lock, seconds: float | None, clock: Clock) -> bool:
    """Acquire within `seconds` of the clock's time; None waits without end."""
    if seconds is None:
        return lock.acquire()
    if seconds <= 0:
        return lock.acquire(blocking=False)
    if is_real(clock):
        return lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
    # A test clock: the lock is released to wake us, and a flag tells who did it.
    expired: list[bool] = []

    def expire() -> None:
        expired.append(True)
        signal(lock)

    handle = clock.call_at(None, clock.monotonic() + seconds, expire)
    lock.acquire()
    handle.cancel()
    return not expired


def signal(lock: threading.Lock) -> bool:
    """Wake whoever waits for a lock, which always can be; a second signal before that does nothing."""
    try:
        lock.release()
    except RuntimeError:
        pass
    return True


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def after_fork() -> None:
    """In the child: every pool starts empty."""
    for pool in tuple(_POOLS):
        pool.after_fork()
