"""The closed vocabularies that every floor speaks: enums without behaviour.

Their values are the spelling everywhere: labels, logs, JSON, the command line.
"""

from __future__ import annotations

from enum import Enum


class Word(Enum):
    """An enum whose text is its value, hashed by identity (Enum's own hash is Python code)."""

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.value)


class FaultKind(Word):
    """What an outcome says about who is to blame, and so what may be done about it."""

    VALIDATION = "validation"
    """Our input is invalid; found before or at the call."""
    CONTRACT = "contract"
    """A domain rule was broken: a duplicate, a missing precondition."""
    CONTROL = "control"
    """Expected: nothing there, gated off, a stop signal. Not a fault."""
    INTERRUPTED = "interrupted"
    """The caller gave up: cancelled, interrupted, shut down."""
    TRANSIENT = "transient"
    """The same call may well succeed later: timeouts, lost connections, 429, most 5xx."""
    DOWNSTREAM = "downstream"
    """The remote answered, and the same call would get the same answer."""
    INTERNAL = "internal"
    """Our own bug, or something nobody has a rule for."""


class FaultFlag(Word):
    """What the kind alone does not say: may it be sent again, does it say anything about the remote."""

    CLIENT_FAULT = "client_fault"
    """The remote is well and refused what we sent (most 4xx)."""
    CONTENTION = "contention"
    """Deadlock or serialization failure: repeat the whole unit of work."""
    SATURATION = "saturation"
    """Our own pool, queue or descriptors ran out; the remote was not asked."""
    LOCAL = "local"
    """Decided on this side: an inner breaker, our credentials helper, our own cancel."""
    QUOTA = "quota"
    """A 429 that no wait cures: a bill, a daily limit."""
    UNSENT = "unsent"
    """Surely not processed by the remote: may be repeated even when not idempotent."""
    AMBIGUOUS = "ambiguous"
    """May have been processed: repeat only what is idempotent."""
    CONFIG = "config"
    """Wrong until somebody changes a setting: certificate, host name, path."""
    UNCLASSIFIED = "unclassified"
    """No rule knew this exception."""


class CircuitState(Word):
    """Where a circuit stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerMode(Word):
    """Who decides: the machine, or an operator in its place."""

    NORMAL = "normal"
    FORCED = "forced_open"
    DISABLED = "disabled"
    SHADOW = "shadow"
    RETIRED = "retired"
    """Of a keyed breaker that made room for another key: lets pass, counts nothing, and never changes again."""


class Verdict(Word):
    """What an outcome means to a breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANSWERED = "answered"
    NEUTRAL = "neutral"


class ProbeEnd(Word):
    """Why a probe ended without deciding anything."""

    NEUTRAL = "neutral"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    LOST = "lost"
    RESET = "reset"


class OnOpen(Word):
    """What an open circuit means at one call site."""

    FAIL = "fail"
    """Raise `CircuitOpenError`."""
    BYPASS = "bypass"
    """Skip the call, return the site's fallback, leave a mark."""


class OnReject(Word):
    """What a full bulkhead means at one call site."""

    FAIL = "fail"
    """Raise `BulkheadFullError`."""
    BYPASS = "bypass"
    """Skip the call, return the site's fallback, leave a mark."""


class TimeoutScope(Word):
    """Which limit ran out."""

    BUDGET = "budget"
    ATTEMPT = "attempt"
    FIRST_ITEM = "first_item"
    IDLE = "idle"
