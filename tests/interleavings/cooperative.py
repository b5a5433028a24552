"""Locks and threads in the hands of the explorer: whoever would block lets another one go on."""

from __future__ import annotations

import functools
import sys
import threading
from contextvars import Context

from pictures import Picture


class CoopLock:
    """`threading.Lock` in the hands of the explorer; also `threading.RLock`."""

    reentrant = False

    def __init__(self, explorer):
        self.explorer = explorer
        self.owner = None
        self.held = 0
        self.serial = explorer.next_lock()

    def acquire(self, blocking=True, timeout=-1):
        explorer = self.explorer
        me = explorer.current
        if not blocking or timeout >= 0:
            explorer.is_tried(self.serial)
        explorer.stop_at_lock(sys._getframe(0))
        while not self.is_free_for(me):
            if not blocking or timeout == 0:
                return False
            if not explorer.wait_for(self, timed=timeout > 0):
                return False
        self.owner = me
        self.held += 1
        if self.reentrant and me is not None and self.serial is not None:
            me.locks = me.locks | {self.serial}
        return True

    def is_free_for(self, thread):
        return not self.held or (self.reentrant and self.owner is thread)

    def release(self):
        # Whoever waits for a lock may as well go on later; who only tries it can tell when it is released.
        if not self.reentrant or self.serial is None or self.serial in self.explorer.tried:
            self.explorer.stop_at_lock(sys._getframe(0))
        if not self.held or (self.reentrant and self.owner is not self.explorer.current):
            raise RuntimeError("release unlocked lock")
        self.held -= 1
        if not self.held:
            if self.reentrant and self.owner is not None:
                self.owner.locks = self.owner.locks - {self.serial}
            self.owner = None

    def locked(self):
        self.explorer.stop_at_lock(sys._getframe(0))
        return bool(self.held)

    def _is_owned(self):
        return bool(self.held) and self.owner is self.explorer.current

    def __enter__(self):
        self.acquire()
        return True

    def __exit__(self, *exc):
        self.release()


class CoopRLock(CoopLock):
    """`threading.RLock` in the hands of the explorer."""

    reentrant = True


Picture.kinds[CoopLock] = Picture.kinds[CoopRLock] = lambda picture, lock: picture.out.extend(
    (lock.held, None if lock.owner is None else lock.owner.index)
)


class CoopThread:
    """`threading.Thread` in the hands of the explorer."""

    def __init__(self, explorer, target, name=None, daemon=None, args=()):
        self._explorer, self._target, self._args, self._daemon = explorer, target, args, daemon

    def start(self):
        self._explorer.add(functools.partial(self._target, *self._args), daemon=True)


class Threading:
    """Stands for the module `threading` in the library's modules."""

    def __init__(self, explorer):
        self.Lock = functools.partial(CoopLock, explorer)
        self.RLock = functools.partial(CoopRLock, explorer)
        self.Thread = functools.partial(CoopThread, explorer)

    def __getattr__(self, name):
        return getattr(threading, name)


class Abort(BaseException):
    """Ends a thread whose schedule is of no more interest."""


class Found(AssertionError):
    """A schedule that breaks a promise."""


class Thread:
    """One of the threads of a schedule; it runs on a real thread that is used for all schedules."""

    def __init__(self, explorer, index):
        self.explorer = explorer
        self.index = index
        self.baton = threading.Lock()
        self.baton.acquire()
        self.chains = {}
        self.renew(None)
        self.real = threading.Thread(target=self._live, name=f"interleaving {index}", daemon=True)
        self.real.start()

    def renew(self, body, daemon=False, patience=0):
        self.body = body
        self.daemon = daemon
        self.patience = patience
        self.done = body is None
        self.waiting = None
        self.timed = False
        self.frame = self.latest = None
        self.chains.clear()
        self.called = None
        self.locks = frozenset()
        self.result = self.error = None

    def can_go_on(self):
        if self.done:
            return False
        lock = self.waiting
        return lock is None or lock.is_free_for(self) or (self.timed and self.patience > 0)

    def _live(self):
        before = sys.gettrace()
        # Once for good: where tracing goes on and off while another thread stands in a traced bytecode, 3.12 crashes.
        sys.settrace(self.explorer.tracer(self))
        try:
            while True:
                self.baton.acquire()
                if self.body is None:
                    return
                self._run()
                self.explorer.finished(self)
        finally:
            sys.settrace(before)

    def _run(self):
        try:
            # A context of its own, or a mark would be left behind for the next schedule.
            self.result = Context().run(self.body)
        except Abort:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.frame = self.latest = None
            self.done = True
