"""What a call inherits from the calls around it, and how to shed it.

Three context variables: the innermost deadline, the breakers whose probe is running,
and whether an outer retry is on its second or a later attempt. Tasks and workers
started inside inherit them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from resilience._core import deadline as deadlines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from resilience._core.deadline import Deadline

DEADLINE: ContextVar[Deadline | None] = ContextVar("resilience_deadline", default=None)
PROBING: ContextVar[tuple[object, ...]] = ContextVar("resilience_probing", default=())
RETRYING: ContextVar[bool] = ContextVar("resilience_retrying", default=False)


def remaining_at(now: float) -> float | None:
    """Seconds left of the nearest deadline around the caller, None without one."""
    return deadlines.remaining(DEADLINE.get(), now)


@contextmanager
def detached() -> Iterator[None]:
    """Shed deadline, retry and probe marks for a block: what runs inside is on its own.

    For work that outlives the call it was started in. A deadline that interrupts the
    surrounding task still does so.

    Example:
        >>> with detached():
        ...     remaining() is None
        True
    """
    deadline, probing, retrying = DEADLINE.set(None), PROBING.set(()), RETRYING.set(False)
    try:
        yield
    finally:
        RETRYING.reset(retrying)
        PROBING.reset(probing)
        DEADLINE.reset(deadline)
