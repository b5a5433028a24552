"""The timeout layers: a budget around the whole call, a fresh limit around each attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core.deadline import AttemptDeadline, Deadline
from resilience._core.order import Layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.outcome import Outcome
    from resilience._site import Call, Inner, Site


class TimeoutLayers:
    """One call site's limits, in seconds."""

    def __init__(self, site: Site, *, budget: float | None, per_attempt: float | None, counts: bool) -> None:
        self._site = site
        self._budget = budget
        self._per_attempt = per_attempt
        self._counts = counts

    def layers(self) -> list[tuple[Layer, Callable[[Call, Inner], Any]]]:
        """What this policy adds to a plan."""
        found: list[tuple[Layer, Callable[[Call, Inner], Any]]] = []
        if self._budget is not None:
            found.append((Layer.TIMEOUT, self.around_call))
        if self._per_attempt is not None:
            found.append((Layer.ATTEMPT, self.around_attempt))
        return found

    async def around_call(self, call: Call, inner: Inner) -> Outcome:
        """Everything inside ends by the budget, which began when the call entered."""
        assert self._budget is not None
        assert call.entered is not None, "a site with a budget is timed"
        deadline = Deadline(self._budget, call.entered, DEADLINE.get())
        deadline.counts = self._counts
        return self.told(await call.world.bounded(deadline, call, inner), deadline)

    async def around_attempt(self, call: Call, inner: Inner) -> Outcome:
        """One attempt ends by its own limit, which begins now."""
        assert self._per_attempt is not None
        now = self._site.services.now()
        deadline = AttemptDeadline(self._per_attempt, now, DEADLINE.get())
        deadline.counts = self._counts
        return self.told(await call.world.bounded(deadline, call, inner), deadline)

    def told(self, outcome: Outcome, deadline: Deadline | None) -> Outcome:
        """The outcome, told to listeners if it is the expiry of `deadline`."""
        if deadline is not None and outcome.expired is deadline:
            self._site.tell_expiry(deadline)
        return outcome
