"""The script: what the provider does, phase by phase, and how long everything takes for a given length."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Behaviour(Enum):
    """What the provider does with a request."""

    HEALTHY = "healthy"
    """Answers 200 after a few milliseconds, but for a hiccup now and then."""
    LIMITED = "limited"
    """Answers 429, with a Retry-After that ends with the phase."""
    DOWN = "down"
    """Answers 503."""
    HANGING = "hanging"
    """Accepts, reads, and never answers."""


@dataclass(frozen=True)
class Phase:
    """One part of the script: a fault has to open the circuit, a recovery to close it, before the next part begins."""

    name: str
    behaviour: Behaviour
    seconds: float

    @property
    def is_fault(self) -> bool:
        """Whether the circuit is to open in it."""
        return self.behaviour is not Behaviour.HEALTHY


# Name, behaviour, and share of the whole in percent.
_PARTS = (
    ("healthy", Behaviour.HEALTHY, 8),
    ("rate limited", Behaviour.LIMITED, 12),
    ("limit lifted", Behaviour.HEALTHY, 8),
    ("outage", Behaviour.DOWN, 14),
    ("outage over", Behaviour.HEALTHY, 8),
    ("hanging", Behaviour.HANGING, 14),
    ("answers again", Behaviour.HEALTHY, 8),
    ("second outage", Behaviour.DOWN, 8),
    ("up for a moment", Behaviour.HEALTHY, 8),
    ("down again", Behaviour.DOWN, 6),
    ("healthy for good", Behaviour.HEALTHY, 6),
)


def script(seconds: float) -> tuple[Phase, ...]:
    """The phases of a run of about this length."""
    return tuple(Phase(name, behaviour, seconds * share / 100) for name, behaviour, share in _PARTS)


@dataclass(frozen=True)
class Pace:
    """The settings of the run in seconds, scaled so that each phase has time for its opening or closing.

    Attributes:
        cooldown: how long the circuit stays open before a probe may go.
        attempt: how long one request may take.
        budget: how long a call may take with its retries.
        backoff: the wait before the first retry.
        queue: how long a call stands in line for a free slot.
        pause: what a caller does between two calls.
        patience: how long a phase may outlast its share until the circuit has moved.
    """

    cooldown: float
    attempt: float
    budget: float
    backoff: float
    queue: float
    pause: float = 0.03
    patience: float = 10.0

    @classmethod
    def of(cls, seconds: float) -> Pace:
        """The pace of a run of this length; a machine under load still answers within a tenth of a second."""
        attempt = min(max(seconds / 48, 0.1), 0.5)
        return cls(
            cooldown=min(max(seconds / 30, 0.1), 2.0),
            attempt=attempt,
            budget=4 * attempt,
            backoff=attempt / 10,
            queue=attempt / 2,
        )
