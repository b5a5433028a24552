"""Every exception the library raises by itself, under one root.

Each carries `fault_kind` and `fault_flags`, which every classifier believes
before any rule, and a stable `code` for logs and JSON. Messages are built when
they are asked for: a refusal is raised far more often than it is printed.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from resilience._words import FaultFlag, FaultKind, TimeoutScope

_LOCAL = frozenset({FaultFlag.LOCAL})


class ResilienceError(Exception):
    """Root of everything the library raises by itself."""

    fault_kind: FaultKind = FaultKind.INTERNAL
    fault_flags: ClassVar[frozenset[FaultFlag]] = frozenset()
    code: ClassVar[str] = "resilience"

    # A pathway's outcome so far, where a pathway let this error pass.
    outcome: Any = None


class ConfigurationError(ResilienceError, ValueError):
    """A policy, name or setting can't be right; raised as early as it can be known.

    The text lists every fault found, one a line, each with the parameter, the
    value given and what would be right.
    """

    fault_kind = FaultKind.VALIDATION
    code = "configuration"

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.faults: tuple[str, ...] = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)


class RejectedError(ResilienceError):
    """The call never started: nothing was sent.

    Made as `CircuitOpenError(name, retry_after)`. Refusals are raised in floods, so both
    values stay where `Exception` puts them, and the text is built when it is asked for.
    """

    fault_kind = FaultKind.TRANSIENT
    fault_flags = _LOCAL
    code = "rejected"

    @property
    def name(self) -> str:
        """The breaker or bulkhead that refused."""
        return str(self.args[0]) if self.args else ""

    @property
    def retry_after(self) -> float | None:
        """Seconds until a new try makes sense, None when unknown."""
        return self.args[1] if len(self.args) > 1 else None

    def _wait(self) -> str:
        return "" if self.retry_after is None else f", retry in {self.retry_after:.3g} s"


class CircuitOpenError(RejectedError):
    """The breaker `name` is open; `retry_after` is the exact time left, None if only an operator can tell."""

    code = "circuit_open"

    def __str__(self) -> str:
        return f"circuit {self.name!r} is open{self._wait()}"


class BulkheadFullError(RejectedError):
    """The bulkhead `name` has no free slot, and the line was full or the wait too long."""

    code = "bulkhead_full"

    def __str__(self) -> str:
        return f"bulkhead {self.name!r} is full{self._wait()}"


class TimeoutExceeded(ResilienceError, TimeoutError):
    """A deadline of ours ran out.

    Attributes:
        scope: which limit: `budget` (the whole call), `attempt`, `first_item` or `idle`.
        seconds: the length of that limit.
    """

    fault_kind = FaultKind.TRANSIENT
    fault_flags = frozenset({FaultFlag.AMBIGUOUS})
    code = "timeout"

    def __init__(self, scope: TimeoutScope | str, seconds: float) -> None:
        # OSError would read two arguments as errno and strerror.
        super().__init__()
        self.args = (scope, seconds)
        self.scope = TimeoutScope(scope)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.scope.value} of {self.seconds:g} s exceeded"


class CompositionWarning(UserWarning):
    """A foreign decorator between ours breaks the fixed order."""


def shown(value: object) -> str:
    """`repr` for a message: short, on one line, and never an exception."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = text.replace(os.linesep, " ").replace("\n", " ")
    return text if len(text) <= 80 else text[:77] + "..."
