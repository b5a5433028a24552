"""`timeout(...).guard()`: a limit around a block.

With `async with` the timer of the engine interrupts the task that entered, with the same
bookkeeping as around a function. With `with` there is nothing that could be interrupted:
the limit is a deadline that everything inside sees.

A block that is left in another task than it was entered in is only switched off there:
the one that left it was never interrupted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NoReturn

from resilience._context import DEADLINE, leave_deadline
from resilience._core.deadline import Deadline, in_force
from resilience._engine.world_sync import past
from resilience.errors import TimeoutExceeded

if TYPE_CHECKING:
    from types import TracebackType

    from resilience._blocks.place import Place
    from resilience._engine.timers import BlockExpiry


class TimeoutBlock:
    """A block with a limit in seconds, for `async with` and `with`; made by `timeout(...).guard()`.

    Attributes:
        seconds: the limit.
    """

    __slots__ = ("_counts", "_deadline", "_entry", "_expiry", "_left_at", "_place", "seconds")

    def __init__(self, seconds: float, counts: bool, place: Place) -> None:
        self.seconds = seconds
        self._counts = counts
        self._place = place
        self._deadline: Deadline | None = None
        self._expiry: BlockExpiry | None = None
        self._left_at: float | None = None
        # Popped by who enters: one at a time.
        self._entry = deque([True], maxlen=1)

    @property
    def expired(self) -> bool:
        """Whether the seconds ran out in the last use of the block, whatever came of that; False before the first."""
        if self._deadline is None:
            return False
        end = self._place.registry.now() if self._left_at is None else self._left_at
        return self._deadline.expires <= end

    def __enter__(self) -> TimeoutBlock:
        DEADLINE.set(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._deadline is not None, "left after it was entered"
        leave_deadline(self._deadline)
        self._end()

    async def __aenter__(self) -> TimeoutBlock:
        # Only now: who is here has loaded asyncio.
        from resilience._engine.timers import BlockExpiry

        deadline = self._begin()
        try:
            self._expiry = BlockExpiry(deadline, self._place.registry.clock)
        except BaseException:
            self._entry.append(True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        expiry, deadline = self._expiry, self._deadline
        assert expiry is not None, "left after it was entered"
        assert deadline is not None, "left after it was entered"
        ours = expiry.leave()
        self._end()
        if ours and kind is not None and issubclass(kind, _cancelled_error()):
            self._place.site.tell_expiry(deadline)
            raise TimeoutExceeded(deadline.scope, self.seconds) from error

    def _begin(self) -> Deadline:
        """The deadline of this use.

        Raises:
            TimeoutExceeded: it, or one around it, has run out already.
            RuntimeError: the block is in use.
        """
        try:
            self._entry.pop()
        except IndexError:
            raise RuntimeError("this block is entered already: call guard() for each use") from None
        try:
            now = self._place.registry.now()
            # Those that were left elsewhere go, or a context that enters many such blocks would collect them.
            deadline = Deadline(self.seconds, now, in_force(DEADLINE.get()))
            deadline.counts = self._counts
            expired = past(deadline, now)
            if expired is not None:
                expired.unwrap()
        except BaseException:
            self._entry.append(True)
            raise
        self._deadline, self._left_at = deadline, None
        return deadline

    def _end(self) -> None:
        """The use is over: another may begin."""
        self._expiry = None
        self._left_at = self._place.registry.now()
        self._entry.append(True)

    def __del__(self) -> None:
        # Never left: dropped, or interrupted by a signal on the way in. No variable is set in a finaliser.
        if self._deadline is not None:
            self._deadline.left = True

    def __repr__(self) -> str:
        return f"<TimeoutBlock {self.seconds:g} s{', entered' if not self._entry else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a guard belongs to a running block: it can't be pickled")


def _cancelled_error() -> type[BaseException]:
    from asyncio import CancelledError

    return CancelledError
