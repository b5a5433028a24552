"""`for attempt in retry(...): with attempt: ...`: a block that is repeated as a decorated function would be.

The iterator is the call: how often, how long it has waited, what was being handled when
it began. An attempt that fails is judged where its block is left: another attempt
follows, and the exception ends there, or none does, and the exception leaves as it is.
The wait belongs to the turn of the loop, so a loop that is broken off does not wait.

An iterator is one loop's own; the policy is a value that any number of loops share.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from resilience._assembly.budgets import make_own_budget, refer_to_budget
from resilience._assembly.parts import bind_retry
from resilience._context import RETRYING, Repeat, is_repeating
from resilience._core.outcome import Outcome
from resilience._engine.world_sync import SyncWorld
from resilience._site import Call

if TYPE_CHECKING:
    from types import TracebackType

    from resilience._blocks.place import Place
    from resilience._core.retry_budget import RetryBudget
    from resilience._policies.retry_budget import BudgetReference, SharedRetryBudget
    from resilience._settings import RetryPolicy

_BETWEEN, _OFFERED, _INSIDE = range(3)


class Attempt:
    """One attempt: `with attempt:`, or `async with attempt:`.

    Attributes:
        number: 1 for the first.

    Example:
        >>> for attempt in retry(3, initial_backoff=0.001):
        ...     with attempt:
        ...         if attempt.number < 3:
        ...             raise ConnectionError("down")
        >>> attempt.number
        3
    """

    __slots__ = ("_loop", "number")

    def __init__(self, loop: AttemptLoop, number: int) -> None:
        self._loop = loop
        self.number = number

    def __enter__(self) -> Attempt:
        self._loop.enter(self.number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._loop.leave(error)

    async def __aenter__(self) -> Attempt:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._loop.leave(error)

    def __repr__(self) -> str:
        return f"<Attempt {self.number}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an attempt belongs to a running loop: it can't be pickled")


class AttemptLoop:
    """What `for` and `async for` share: all but the wait."""

    __slots__ = ("_began", "_budget", "_handled", "_idle", "_number", "_phase", "_place", "_policy", "_repeat", "_wait")

    def __init__(self, policy: RetryPolicy, place: Place) -> None:
        self._policy = policy
        self._place = place
        self._phase = _BETWEEN
        self._number = 0
        # Seconds before the next attempt; None where there is no next one.
        self._wait: float | None = 0.0
        self._idle = 0.0
        self._began = 0.0
        self._handled: BaseException | None = None
        self._repeat: Repeat | None = None
        self._budget = None if policy.retry_budget is None else _budget_of(policy, place)

    # ------------------------------------------------------------------------------------------------ the loop's turn
    def _next_wait(self) -> float | None:
        """Seconds before the next attempt, None at the end of the loop.

        Raises:
            RuntimeError: the last attempt has not been entered, or not been left.
        """
        if self._phase == _INSIDE:
            raise RuntimeError(
                f"attempt {self._number} has not been left: the next one begins after its `with attempt:` block"
            )
        wait, self._wait = self._wait, None
        if self._phase == _OFFERED:
            self._phase = _BETWEEN
            raise RuntimeError(
                f"attempt {self._number} was never entered: put what is to be repeated into `with attempt:`, "
                "and break out of a loop that has nothing to attempt"
            )
        return wait

    def _offer(self, waited: float) -> Attempt:
        self._idle += waited
        self._number += 1
        self._phase = _OFFERED
        return Attempt(self, self._number)

    # ------------------------------------------------------------------------------------------------ the block
    def enter(self, number: int) -> None:
        """Begin an attempt."""
        if self._phase != _OFFERED or number != self._number:
            raise RuntimeError(f"attempt {number} is entered once: every turn of the loop brings another")
        self._phase = _INSIDE
        if number == 1:
            self._handled = sys.exception()
            if self._budget is not None:
                self._budget.resolve().begin_call()
            if self._policy.stop is not None or callable(self._policy.wait):
                self._began = self._place.registry.now()
        elif not is_repeating():
            self._repeat = Repeat()
            RETRYING.set(self._repeat)

    def leave(self, error: BaseException | None) -> bool:
        """End the attempt; True where another one follows its failure."""
        if self._phase != _INSIDE:
            raise RuntimeError(f"attempt {self._number} has been left already, or was never entered")
        self._phase = _BETWEEN
        repeat, self._repeat = self._repeat, None
        if repeat is not None:
            repeat.end()
        if isinstance(error, Exception):
            self._wait = self._decide(error)
        if self._wait is None:
            self._handled = None
        return self._wait is not None

    def _decide(self, error: Exception) -> float | None:
        """The decorator's own decision on what left the attempt."""
        site = self._place.site
        call = Call(site, SyncWorld(site), (), {})
        call.attempt, call.handled = self._number, self._handled
        outcome = Outcome(None, error)
        try:
            return bind_retry(self._policy, site, self._budget).decide(
                call, outcome, self._number, self._began, self._idle
            )
        finally:
            outcome.discard()

    def __del__(self) -> None:
        # Never left: dropped, or interrupted by a signal on the way in. No variable is set in a finaliser.
        if self._repeat is not None:
            self._repeat.active = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("a loop of attempts is under way here: it can't be pickled")


def _budget_of(policy: RetryPolicy, place: Place) -> BudgetReference:
    """The retry budget of all loops of a policy; one without a name is theirs alone, and kept with the value."""
    assert policy.retry_budget is not None, "asked only where there is one"
    kept = policy.__dict__

    def find_own(given: RetryBudget) -> SharedRetryBudget:
        if "_own_budget" not in kept:
            kept.setdefault("_own_budget", make_own_budget(given, place.label, place.registry))
        found: SharedRetryBudget = kept["_own_budget"]
        return found

    return refer_to_budget(policy.retry_budget, place.registry, find_own)


class SyncAttempts(AttemptLoop):
    """The iterator of `for attempt in retry(...)`: it blocks the thread while it waits."""

    __slots__ = ()

    def __iter__(self) -> SyncAttempts:
        return self

    def __next__(self) -> Attempt:
        wait = self._next_wait()
        if wait is None:
            raise StopIteration
        if wait > 0:
            self._place.registry.clock.sleep(wait)
        return self._offer(wait)


class AsyncAttempts(AttemptLoop):
    """The iterator of `async for attempt in retry(...)`: it suspends the task while it waits."""

    __slots__ = ()

    def __aiter__(self) -> AsyncAttempts:
        return self

    async def __anext__(self) -> Attempt:
        wait = self._next_wait()
        if wait is None:
            raise StopAsyncIteration
        if wait > 0:
            # Only now: who is here has loaded asyncio.
            from resilience._engine.world_async import AsyncWorld

            await AsyncWorld(self._place.site).sleep(wait)
        return self._offer(wait)
