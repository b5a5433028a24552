"""What is shared under a name, and compared when the name is registered again."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, cast

from resilience._core.checks import Faults
from resilience._core.record import spelled
from resilience._core.trip import Consecutive
from resilience._core.window import FailureRate
from resilience._words import FaultKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resilience._core.tripping import Trip

TRIPPING = (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)
MAY_TRIP = (*TRIPPING, FaultKind.INTERNAL)


@dataclass(frozen=True, slots=True, repr=False)
class BreakerConfig:
    """Settings of a breaker; whoever registers a name first sets them. Frozen, hashable, equal by value.

    Args:
        trip: `Consecutive(...)` (default: 5 in a row) or `FailureRate(...)`.
        cooldown: seconds an opened circuit stays open before a probe may go (> 0, default 30).
        half_open_probes: probes at one time (≥ 1, default 1).
        half_open_successes: probes in a row that must succeed to close (≥ 1, default 1); more is the cure for flapping.
        trip_on: fault kinds that count: out of transient, downstream (default: both) and internal.
        trip_on_status: HTTP statuses that count although the remote answered, such as {401, 403} for a revoked key.
        answered: what an answered refusal (most 4xx) does to a streak: "reset" (default) or "ignore".
        probe_lease: seconds after which a probe that never reported gives its slot back (> 0, default 30).
        max_cooldown: the longest a server's Retry-After may keep the circuit open (≥ cooldown, default 300 s).
        honour_retry_after: whether it may at all (default True).
        shadow: run beside live traffic, count what would be refused, refuse nothing (default False).
        ramp: seconds over which the share of calls that pass grows from 0 to 1 after the circuit has closed by
            its probes (> 0); None (default): all pass at once. The circuit reads closed all the while.

    Raises:
        ConfigurationError: listing every value that can't be right.

    Example:
        >>> BreakerConfig(Consecutive(3), cooldown=10).cooldown
        10.0
    """

    trip: Trip = Consecutive()
    cooldown: float = field(default=30.0, kw_only=True)
    half_open_probes: int = field(default=1, kw_only=True)
    half_open_successes: int = field(default=1, kw_only=True)
    trip_on: Iterable[FaultKind] = field(default=TRIPPING, kw_only=True)
    trip_on_status: Iterable[int] = field(default=(), kw_only=True)
    answered: Literal["reset", "ignore"] = field(default="reset", kw_only=True)
    probe_lease: float = field(default=30.0, kw_only=True)
    max_cooldown: float = field(default=300.0, kw_only=True)
    honour_retry_after: bool = field(default=True, kw_only=True)
    shadow: bool = field(default=False, kw_only=True)
    ramp: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        faults = Faults()
        trip: object = self.trip
        if not isinstance(trip, (Consecutive, FailureRate)):
            faults.add("trip", self.trip, "Consecutive(...) or FailureRate(...)")
        for name in ("cooldown", "probe_lease", "max_cooldown"):
            object.__setattr__(self, name, faults.seconds(name, getattr(self, name)))
        for name in ("half_open_probes", "half_open_successes"):
            faults.count(name, getattr(self, name))
        object.__setattr__(self, "trip_on", faults.members("trip_on", self.trip_on, FaultKind, MAY_TRIP))
        object.__setattr__(self, "trip_on_status", _statuses(faults, self.trip_on_status))
        faults.choice("answered", self.answered, ("reset", "ignore"))
        for name in ("honour_retry_after", "shadow"):
            faults.flag(name, getattr(self, name))
        if self.ramp is not None:
            object.__setattr__(self, "ramp", faults.seconds("ramp", self.ramp))
        if not faults and self.max_cooldown < self.cooldown:
            faults.add("max_cooldown", self.max_cooldown, f">= cooldown ({self.cooldown:g})")
        faults.raise_any()

    @property
    def trip_kinds(self) -> frozenset[FaultKind]:
        """`trip_on` in its normal form."""
        return cast("frozenset[FaultKind]", self.trip_on)

    @property
    def trip_statuses(self) -> frozenset[int]:
        """`trip_on_status` in its normal form."""
        return cast("frozenset[int]", self.trip_on_status)

    @classmethod
    def remote(cls) -> BreakerConfig:
        """For one remote endpoint: 5 failures in a row open it for 30 s."""
        return cls()

    @classmethod
    def in_process(cls) -> BreakerConfig:
        """For a component of the same process: 20 failures in a row open it for 5 s."""
        return cls(Consecutive(20), cooldown=5.0)

    @classmethod
    def cloud(cls) -> BreakerConfig:
        """For a busy hosted API: half of at least 10 calls failing in 30 s open it for 30 s."""
        return cls(FailureRate(0.5, window=30.0, bucket=3.0, min_calls=10))

    def __repr__(self) -> str:
        shown = (f"{item.name}={spelled(getattr(self, item.name))}" for item in fields(self))
        return f"BreakerConfig({', '.join(shown)})"

    def differences(self, other: BreakerConfig) -> tuple[str, ...]:
        """Field by field what `other` would change, as `cooldown: 30.0, not 5.0`."""
        return tuple(
            f"{item.name}: {spelled(getattr(self, item.name))}, not {spelled(getattr(other, item.name))}"
            for item in fields(self)
            if getattr(self, item.name) != getattr(other, item.name)
        )


@dataclass(frozen=True, slots=True)
class BulkheadConfig:
    """Settings of a named bulkhead; whoever registers a name first sets them. Frozen, hashable, equal by value.

    Args:
        max_in_flight: calls that may run at one time, over all threads and event loops (≥ 1).
        max_waiting: callers that may stand in line (≥ 0); None (default) for 10 × `max_in_flight`.

    Raises:
        ConfigurationError: a value out of its range.
    """

    max_in_flight: int
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        faults = Faults()
        faults.count("max_in_flight", self.max_in_flight)
        if self.max_waiting is not None:
            faults.count("max_waiting", self.max_waiting, least=0)
        faults.raise_any()

    @property
    def longest_line(self) -> int:
        """`max_waiting` in its normal form."""
        return 10 * self.max_in_flight if self.max_waiting is None else self.max_waiting

    def differences(self, other: BulkheadConfig) -> tuple[str, ...]:
        """Field by field what `other` would change."""
        pairs = (
            ("max_in_flight", self.max_in_flight, other.max_in_flight),
            ("max_waiting", self.longest_line, other.longest_line),
        )
        return tuple(f"{name}: {ours}, not {theirs}" for name, ours, theirs in pairs if ours != theirs)


def _statuses(faults: Faults, value: object) -> frozenset[int]:
    right = "a collection of HTTP statuses (whole numbers in 100-599)"
    try:
        found = tuple(cast("Iterable[object]", value))
    except TypeError:
        faults.add("trip_on_status", value, right)
        return frozenset()
    if any(not isinstance(status, int) or not 100 <= status <= 599 for status in found):
        faults.add("trip_on_status", value, right)
        return frozenset()
    return frozenset(cast("tuple[int, ...]", found))
