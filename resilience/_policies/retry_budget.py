"""A retry budget with a clock: shared by every call site that uses its name.

Nobody ever waits for it. Each step is one that the interpreter makes as a whole: to
count a call, to find the slice of time it belongs to, to hang one more retry on the
last record. Who comes second with the last of these looks again.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from resilience._core.counter import Counter
from resilience._core.retry_budget import Balance, CallSlice, CallWindow, RetryBudget, RetryBudgetStatus, Spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._site import Services


class SharedRetryBudget:
    """A retry budget at work.

    Attributes:
        name: its name in the registry; for a call site's own the function's label.
        config: the settings.
        current: the slice that counts calls, as long as its `edge` lies ahead.
    """

    def __init__(self, name: str, config: RetryBudget, services: Services) -> None:
        self.name = name
        self.config = config
        self.current = OVER
        self._services = services
        self._real = True
        self._calls = CallWindow(config.window)
        self._spent = Spent()
        self._refused = Counter()

    # ------------------------------------------------------------------------------------------------ calls
    def next_slice(self) -> CallSlice:
        """The slice that a call counts in now, to be asked when the current one has reached its edge."""
        found = self._calls.slice_at(self._now())
        self.current = found
        # Asked afterwards: who sets another clock meanwhile has to be seen.
        if not self._real:
            self.current = OVER
        return found

    def begin_call(self) -> CallSlice:
        """Count a call; the slice it was counted in."""
        current = self.current
        if self._now() >= current.edge:
            current = self.next_slice()
        next(current.ticks)
        return current

    # ------------------------------------------------------------------------------------------------ retries
    def spend(self) -> bool:
        """Take one retry out of the budget; False, and nothing changed, if there is none left."""
        while True:
            spent = self._spent.latest
            balance = self._balance(spent)
            if self.current.began > balance.now:
                # The clock has jumped back: calls are counted afresh from here on.
                self.next_slice()
            granted = balance.left > 0
            if not granted and not balance.jumped:
                self._refused.tick()
                return False
            following = balance.after_one() if granted else balance.after_jump()
            if spent.follow(following):
                self._spent = following
                if granted:
                    return True

    def status(self) -> RetryBudgetStatus:
        """What is in the window now. Pure."""
        balance = self._balance(self._spent.latest)
        return RetryBudgetStatus(
            name=self.name,
            calls=balance.calls,
            retries=balance.retries,
            left=balance.left,
            refused_total=self._refused.value,
        )

    def _balance(self, spent: Spent) -> Balance:
        slices = self._calls.slices
        # The clock last: what has been read so far then lies behind it.
        return Balance(self.config, spent, slices, self._now())

    # ------------------------------------------------------------------------------------------------ around it
    def clear(self) -> None:
        """Start over, without calls and retries."""
        self._calls = CallWindow(self.config.window)
        self._spent = Spent()
        self._refused = Counter()
        self.current = OVER

    def publish_slots(self, published: bool) -> None:
        """Whether compiled wrappers may read the system's clock by themselves."""
        self._real = published
        self.current = OVER

    def after_fork(self) -> None:
        """In the child: the calls and retries of the parent are the parent's."""
        self.clear()

    def _now(self) -> float:
        return time.monotonic() if self._real else self._services.now()

    def __repr__(self) -> str:
        return f"<RetryBudget {self.name!r} {self.status().left} left>"


class BudgetReference:
    """What a call site means by its retry budget; `find` is asked once, at the first call unless it is known before.

    Attributes:
        found: the budget, None until then.
    """

    def __init__(self, find: Callable[[], SharedRetryBudget]) -> None:
        self._find = find
        self.found: SharedRetryBudget | None = None

    def resolve(self) -> SharedRetryBudget:
        """The budget."""
        if self.found is None:
            self.found = self._find()
        return self.found


OVER = CallSlice(-inf, -inf)
"""A slice that is always over: who comes to it asks for the next one."""
