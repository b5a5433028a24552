"""What others may read of a circuit at any moment, without its lock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from resilience._words import BreakerMode, CircuitState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resilience._core.config import BreakerConfig
    from resilience._core.permit import Permit
    from resilience._core.ramp import Ramp
    from resilience._core.tripping import Held

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
    config: BreakerConfig
    ramp: Ramp | None
    held: Held

    def refusal(self, now: float) -> float | None:
        """Seconds for which an acquire would be refused (`FOREVER`: until an operator acts), None if it would not.

        What a ramp does with a call is decided when it asks, so nobody can foresee it.
        """
        if self.state is CircuitState.CLOSED or self.mode in _NEVER_REFUSING:
            return None
        if self.state is CircuitState.OPEN:
            if self.open_for is None:
                return FOREVER
            waited = now - self.opened_at
            # Opened in the future: the clock jumped back, and nobody can tell how long it has been open.
            return None if waited < 0 or waited >= self.open_for else self.open_for - waited
        return slot_refusal(self.probes, self.config.half_open_probes, now)


_NEVER_REFUSING = frozenset({BreakerMode.DISABLED, BreakerMode.SHADOW, BreakerMode.RETIRED})


def slot_refusal(probes: Sequence[Permit], limit: int, now: float) -> float | None:
    """The wait of a half-open circuit whose slots are all taken: until so many leases have ended that one is free."""
    rests = sorted(probe.lease - (now - probe.leased_at) for probe in probes if probe.holds_at(now))
    # More than the limit are out where it was lowered meanwhile.
    return None if len(rests) < limit else rests[len(rests) - limit]
