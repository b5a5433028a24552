"""What others may read of a circuit at any moment, without its lock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from resilience._words import BreakerMode, CircuitState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resilience._core.permit import Permit
    from resilience._core.ramp import Ramp
    from resilience._core.trip import Held

FOREVER = math.inf
"""The wait of a circuit that only an operator can end."""


class View(NamedTuple):
    """One consistent moment of a circuit, for readers without a lock."""

    state: CircuitState
    mode: BreakerMode
    episode: int
    opened_at: float
    open_for: float | None
    opened_ns: int | None
    changed_ns: int
    probes: tuple[Permit, ...]
    ramp: Ramp | None
    held: Held

    def refusal(self, now: float, limit: int) -> float | None:
        """Seconds for which an acquire would be refused (`FOREVER`: until an operator acts), None if it would not.

        `limit` is the number of probes a half-open circuit lets go at one time. What a ramp
        does with a call is decided when it asks, so nobody can foresee it.
        """
        if self.state is CircuitState.CLOSED or self.mode in _NEVER_REFUSING:
            return None
        if self.state is CircuitState.OPEN:
            if self.open_for is None:
                return FOREVER
            waited = now - self.opened_at
            # Opened in the future: the clock jumped back, and nobody can tell how long it has been open.
            return None if waited < 0 or waited >= self.open_for else self.open_for - waited
        return slot_refusal(self.probes, limit, now)


_NEVER_REFUSING = frozenset({BreakerMode.DISABLED, BreakerMode.SHADOW})


def slot_refusal(probes: Sequence[Permit], limit: int, now: float) -> float | None:
    """The wait of a half-open circuit whose slots are all taken: the rest of the lease that ends first."""
    live = [probe for probe in probes if probe.holds_at(now)]
    if len(live) < limit:
        return None
    return min(probe.lease - (now - probe.leased_at) for probe in live)
