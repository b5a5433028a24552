"""One thread at a time, without waiting: whoever comes meanwhile leaves its work to the one inside."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turn:
    """Lets one thread in; the others, and a finaliser of the same thread, are turned away.

    Who holds the lock is asked of the lock itself: a signal handler may raise between
    the moment the lock is taken and the moment anybody could note it down.
    """

    __slots__ = ("_inside", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = False

    def take(self, work: Callable[[], None]) -> bool:
        """Do `work` if nobody is at it; False if somebody is."""
        try:
            if not self._lock.acquire(blocking=False):
                return False
            if self._inside:
                return False
            try:
                self._inside = True
                work()
            finally:
                self._inside = False
            return True
        finally:
            if self._lock._is_owned():  # type: ignore[attr-defined]  # as threading.Condition asks it
                self._lock.release()
