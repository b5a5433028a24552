"""Which threads are in the middle of a change of a circuit.

A finaliser, a weakref callback or a signal handler may run there, and call a guarded
function of any name. If it waited for what another thread holds, and that one did the
same the other way round, both would wait for ever. So nothing waits there: a report is
left for later, a request is refused.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

CHANGING: dict[int, Later] = {}
"""The circuit that changes, by thread."""
LEFT: dict[int, list[Later]] = {}
"""The other circuits that have been left something meanwhile, by thread."""


def is_changing() -> bool:
    """Whether this thread must not wait."""
    return get_ident() in CHANGING


def after_fork() -> None:
    """In the child: of all threads only this one exists, and others will be given the numbers of those that do not."""
    me = get_ident()
    for by_thread in (CHANGING, LEFT):
        for thread in tuple(by_thread):
            if thread != me:
                del by_thread[thread]


# For type checkers only: a protocol takes its time to make, which everybody would pay for at import.
if TYPE_CHECKING:
    from typing import Protocol

    class Later(Protocol):
        """A circuit that has been left a report."""

        def make_good(self) -> None:
            """Take it in."""
