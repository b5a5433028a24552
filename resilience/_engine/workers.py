"""Daemon workers for sync functions declared interruptible: what can't be stopped can be left behind.

A worker that is given up on goes on to the end of its function; the caller does not
wait for it. Idle workers wait for more work for a while and end. A hand-over is one
lock released: the queue and condition of an executor cost several times that.

Who owns a worker
    Whoever took it from the pool, until its function has ended and the caller puts it
    back. A caller that leaves earlier leaves the worker to itself: it puts itself back.

Who decides
    A job is a list of two things, and each can be taken out once. The task: by the
    worker, which begins, or by a caller that leaves before that. The lock to signal: by
    the worker, which has ended in time, or by the caller, which has left.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from resilience._clock import SYSTEM_CLOCK, is_real
from resilience._core import deadline as deadlines
from resilience._core.outcome import raise_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from resilience._clock import Clock
    from resilience._core.deadline import Deadline

IDLE_SECONDS = 10.0

give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Let whom we have just woken run at once, where we have nothing to do but wait for it.

On a single core that spares most of the switches between two threads that would each
wake up only to find the other in possession of the interpreter.
"""


class WorkerPool:
    """The workers of one call site.

    Attributes:
        name: for the error when all of them are busy.
        limit: how many there may be.
        idle: those that nobody owns; the last to come is the first to go, so the others can end.
        orphans: functions that nobody waits for any more and that still run.
        real: whether compiled wrappers may wait by the system's clock.
    """

    __slots__ = ("__weakref__", "_lock", "idle", "limit", "name", "orphans", "real", "workers")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.real = True
        _POOLS.add(self)
        self.after_fork()

    def take(self) -> Worker | None:
        """A free or new worker, None when all are busy."""
        try:
            return self.idle.pop()
        except IndexError:
            pass
        with self._lock:
            if self.workers >= self.limit:
                return None
            self.workers += 1
        return Worker(self)

    def retire(self, worker: Worker) -> bool:
        """A worker that has been idle for long asks to end; False if it was just given work."""
        try:
            self.idle.remove(worker)
        except ValueError:
            return False
        self.lose()
        return True

    def lose(self) -> None:
        """A worker is no more."""
        with self._lock:
            self.workers -= 1

    def orphan(self, change: int) -> None:
        """Count one more abandoned function, or one less."""
        with self._lock:
            self.orphans += change

    def publish_slots(self, published: bool) -> None:
        """Whether compiled wrappers may wait by the system's clock."""
        self.real = published

    def after_fork(self) -> None:
        """In the child, and at first: no worker exists here."""
        self._lock = threading.Lock()
        self.idle: list[Worker] = []
        self.workers = self.orphans = 0


class Worker:
    """One thread, started with its first job."""

    __slots__ = ("_done", "_error", "_job", "_on_end", "_pool", "_started", "_value", "_wake")

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._wake = _locked()
        self._done = _locked()
        self._job: list[Any] = []
        self._on_end: Callable[[], object] | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._started = False

    # ------------------------------------------------------------------------------------------------ on the caller
    def perform(
        self,
        task: tuple[Context, Callable[..., Any], tuple[Any, ...], dict[str, Any]],
        seconds: float | None,
        clock: Clock,
        leave: Callable[[], Callable[[], object] | None],
    ) -> tuple[Any, BaseException | None] | None:
        """Run a function with its context and arguments; None if it has not ended within `seconds`.

        A caller that goes before that, for whatever reason, is asked by `leave()` for
        what is to be done when the function has ended.

        Returns:
            What it returned, and what it raised.
        """
        answer = None
        finished = False
        try:
            done = self._done
            self._job = [done, task]
            if self._started:
                signal(self._wake)
                give_way()
            else:
                self._start()
            finished = wait_for_lock(done, seconds, clock)
        finally:
            # No call comes before the worker is free again, so no signal handler that raises can lose it.
            if finished:
                answer = self._value, self._error
                self._value = self._error = None
                self._pool.idle.append(self)
            else:
                self._abandon(leave())
        return answer

    def _start(self) -> None:
        # First: the new thread may be idle again, and be given more, before start() returns.
        self._started = True
        try:
            threading.Thread(target=self._loop, name=f"resilience {self._pool.name}", daemon=True).start()
        except Exception:
            # There is no thread. Whoever takes this worker next tries again.
            self._started = False
            raise

    def _abandon(self, on_end: Callable[[], object] | None) -> None:
        job = self._job
        # Both before the lock is taken out: after that the worker may be somebody else's.
        self._on_end = on_end
        self._done = _locked()
        self._pool.orphan(1)
        begun = _take(job, 1) is None
        left = _take(job, 0) is not None
        if not (begun and left):
            # It will never begin, or has just ended.
            self._ended()

    # ------------------------------------------------------------------------------------------------ on the worker
    def _loop(self) -> None:
        while True:
            job = self._job
            task = _take(job, 1)
            # None: woken for a job whose caller has gone again.
            if task is not None:
                self._run(*task)
                del task
                done = _take(job, 0)
                if done is None:
                    self._ended()
                else:
                    signal(done)
                    give_way()
            while not self._wake.acquire(True, IDLE_SECONDS):
                if self._pool.retire(self):
                    return

    def _run(self, context: Context, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self._value = context.run(fn, *args, **kwargs)
        except BaseException as error:
            self._error = error

    # ------------------------------------------------------------------------------------------------ on either
    def _ended(self) -> None:
        """Clean up behind a caller that has gone."""
        on_end, self._on_end = self._on_end, None
        self._value = self._error = None
        self._pool.orphan(-1)
        self._pool.idle.append(self)
        if on_end is not None:
            on_end()


def _take(job: list[Any], place: int) -> Any:
    """Take a thing out of a job; None if the other side was first."""
    try:
        return job.pop(place)
    except IndexError:
        return None


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


# ---------------------------------------------------------------------------------------------- the straight path
EXPIRED = object()
"""What a function on a worker never returns: its deadline has run out."""


def run_on(
    worker: Worker, deadline: Deadline, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What the function returns or raises on a worker; `EXPIRED` if the deadline, or one around it, comes first."""
    seconds: float | None = deadline.seconds
    if deadline.outer is not None:
        seconds = deadlines.remaining(deadline, SYSTEM_CLOCK.monotonic())
    answer = worker.perform((copy_context(), fn, args, kwargs), seconds, SYSTEM_CLOCK, _nothing)
    if answer is None:
        return EXPIRED
    value, error = answer
    if error is None:
        return value
    del answer
    try:
        raise_unchanged(error)
    finally:
        del error


def _nothing() -> None:
    return None


# ---------------------------------------------------------------------------------------------- waiting
def wait_for_lock(lock: threading.Lock, seconds: float | None, clock: Clock) -> bool:
    """Acquire within `seconds` of the clock's time; None waits without end."""
    if seconds is None:
        return lock.acquire()
    if seconds <= 0:
        return lock.acquire(False)
    if is_real(clock):
        return lock.acquire(True, min(seconds, threading.TIMEOUT_MAX))
    # A test clock: the lock is released to wake us, and a flag tells who did it.
    expired: list[bool] = []

    def expire() -> None:
        expired.append(True)
        signal(lock)

    handle = clock.call_at(None, clock.monotonic() + seconds, expire)
    try:
        lock.acquire()
    finally:
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
