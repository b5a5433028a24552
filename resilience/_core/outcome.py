"""What became of a call: a value or an exception, carried as a value through the layers.

An outcome is a box that can be emptied. An exception's traceback keeps the frames
it crossed, and through them whatever those frames still hold; a frame that kept its
outcome would tie exception → frame → outcome → exception into a knot that only the
garbage collector undoes, with every argument of the call inside. So the box is
emptied before the exception is raised, and when an attempt is given up for another.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from resilience._core.deadline import Deadline
    from resilience._core.faults import Fault


class Outcome:
    """The result of one attempt, or of a whole call.

    Attributes:
        value: what the function returned, where `error` is None.
        error: the exception that left it, or None.
        fault: the classified fault, None for a plain success; set by whoever judges first.
        refused_by: the layer of ours that answered instead of the function, told by identity.
        expired: the deadline of ours that ended the attempt, where one did.
        judged: whether `fault` has been worked out.
        pending: the value is an awaitable of a plain function: nothing is known until it is awaited.
    """

    __slots__ = ("error", "expired", "fault", "judged", "pending", "refused_by", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error
        self.fault: Fault | None = None
        self.refused_by: object = None
        self.expired: Deadline | None = None
        self.judged = self.pending = False

    @classmethod
    def refusal(cls, error: Exception, by: object) -> Outcome:
        """The answer of one of our own layers: nothing was sent."""
        outcome = cls(None, error)
        outcome.refused_by = by
        return outcome

    def discard(self) -> None:
        """Forget what the box holds, so that it dies now."""
        self.value = self.error = self.expired = None

    def unwrap(self) -> Any:
        """Return the value or raise the very exception, leaving the box empty."""
        error = self.error
        if error is None:
            return self.value
        self.discard()
        try:
            raise_unchanged(error)
        finally:
            del error


def raise_unchanged(error: BaseException) -> NoReturn:
    """Raise `error` as it is.

    A plain `raise` inside somebody's `except` block would replace the exception's
    own `__context__` with the one being handled there.
    """
    try:
        context = error.__context__
    except Exception:
        context = None  # it does not let itself be read
    if context is None or sys.exc_info()[1] is None:
        try:
            raise error
        finally:
            del error, context
    try:
        raise error
    except BaseException:
        error.__context__ = context
        raise
    finally:
        del error, context
