"""What one caller writes down: each call once when it begins, and once when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from resilience import BulkheadFullError, CircuitOpenError

if TYPE_CHECKING:
    from collections.abc import Iterable


SKIPPED = "skipped"
"""What the fallback answers."""


@dataclass
class Order:
    """One call on its way: how often it was sent, how often the fallback was asked in its place."""

    attempts: int = 0
    fallbacks: int = 0


@dataclass
class Tally:
    """One caller's calls. Only that caller writes here, so there is nothing to lock.

    Attributes:
        made: calls begun.
        succeeded: calls that brought an answer.
        failed: calls that were sent and ended in an error of the provider's, or in a timeout.
        bad_answers: those of `failed` that ended in a status that is none of success.
        timed_out: those of `failed` that ended in a timeout.
        refused: calls that the open circuit refused.
        full: calls that the full bulkhead refused.
        bypassed: calls that came back with the fallback's answer.
        fallbacks: how often the fallback ran.
        unsent: calls that ran out of time before they could be sent; part of `failed`.
        attempts: requests sent.
        retried: those that were not the first of their call.
        stray: requests sent by calls that were refused or bypassed: there must be none.
        refusals: nanoseconds that each refusal by the circuit took.
    """

    made: int = 0
    succeeded: int = 0
    failed: int = 0
    bad_answers: int = 0
    timed_out: int = 0
    refused: int = 0
    full: int = 0
    bypassed: int = 0
    fallbacks: int = 0
    unsent: int = 0
    attempts: int = 0
    retried: int = 0
    stray: int = 0
    refusals: list[int] = field(default_factory=list)

    def begin(self) -> Order:
        """A call is made."""
        self.made += 1
        return Order()

    def returned(self, answer: str, order: Order) -> None:
        """The call returned an answer of the provider's, or the fallback's."""
        bypassed = answer == SKIPPED
        self._sent(order, rejected=bypassed)
        self.bypassed += bypassed
        self.succeeded += not bypassed

    def raised(self, error: Exception, order: Order, nanoseconds: int) -> None:
        """The call raised."""
        rejected = isinstance(error, (CircuitOpenError, BulkheadFullError))
        self._sent(order, rejected=rejected)
        if isinstance(error, CircuitOpenError):
            self.refused += 1
            self.refusals.append(nanoseconds)
        elif rejected:
            self.full += 1
        else:
            self.failed += 1
            self.bad_answers += has_status(error)
            self.timed_out += is_timeout(error)
            self.unsent += not order.attempts

    def _sent(self, order: Order, *, rejected: bool) -> None:
        self.fallbacks += order.fallbacks
        self.attempts += order.attempts
        self.retried += max(0, order.attempts - 1)
        if rejected:
            self.stray += order.attempts


def is_timeout(error: Exception) -> bool:
    """Ours, the socket's, or the socket's wrapped by urllib."""
    return isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)


def has_status(error: Exception) -> bool:
    """Whether the provider did answer: urllib says `code`, our own exception `status`."""
    return isinstance(getattr(error, "code", None) or getattr(error, "status", None), int)


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    whole = Tally()
    for tally in tallies:
        for item in fields(Tally):
            setattr(whole, item.name, getattr(whole, item.name) + getattr(tally, item.name))
    return whole
