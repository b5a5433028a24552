"""What a fork does to the registries: the child gets whole changes only, and starts with none under way.

Before a fork the forking thread waits until no other thread is in the middle of a
change, as `logging` does with its handlers: a child that inherits half of one could
not tell which half. Afterwards the parent goes on, and the child gives back what
belongs to threads that it does not have.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING

from resilience import _changing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

# A change takes microseconds. Where a finaliser came in between and waits for something,
# for this very fork perhaps, the fork goes ahead: the child then makes do with what it finds.
LONGEST_WAIT = 1.0


def watch(registry: Forked) -> None:
    """Tell `registry`, held weakly, of every fork."""
    _REGISTRIES.add(registry)


def before() -> None:
    """Take every lock."""
    held: list[threading.RLock] = []
    _HELD.setdefault(get_ident(), []).append(held)
    end = time.monotonic() + LONGEST_WAIT
    for registry in tuple(_REGISTRIES):
        for lock in registry.locks():
            # Noted before it is taken: a signal handler may raise in between.
            held.append(lock)
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                held.remove(lock)


def after_in_parent() -> None:
    """Give the locks back."""
    mine = _HELD.get(get_ident())
    # Either is missing where a signal handler raised before: what happens before a fork can't prevent it.
    for lock in mine.pop() if mine else ():
        with suppress(RuntimeError):
            lock.release()


def after_in_child() -> None:
    """The same, and nobody else is here who could hold a lock, a slot or a probe."""
    after_in_parent()
    _changing.after_fork()
    # Where nobody has loaded them there are none.
    workers = sys.modules.get("resilience._engine.workers")
    if workers is not None:
        workers.after_fork()
    for registry in tuple(_REGISTRIES):
        registry.after_fork()


_REGISTRIES: weakref.WeakSet[Forked] = weakref.WeakSet()
# By thread; more than one where a handler forks in the middle of a fork.
_HELD: dict[int, list[list[threading.RLock]]] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


# For type checkers only: a protocol takes its time to make, which everybody would pay for at import.
if TYPE_CHECKING:

    class Forked(Protocol):
        """A registry."""

        def locks(self) -> Iterable[threading.RLock]:
            """Those to be held while the memory is copied."""

        def after_fork(self) -> None:
            """In the child: start afresh."""
