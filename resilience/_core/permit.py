"""Permits: what a caller holds while it makes an attempt, and reports on afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn


class Permit:
    """Leave to make one attempt; its result is reported on it.

    False in a truth test when the call was bypassed instead.

    Attributes:
        episode: the episode it was given in; a report from a later one is late.
        probe: whether it is one of the probes of a half-open circuit.
        bypassed: nothing was admitted, the call site asked to be skipped.
        exempt: its report is of no interest: bypassed, disabled, a nested call in a probe.
        settled: it has been reported on; a second report does nothing.
        leased_at, lease: when a probe's lease began and how long it lasts, in seconds.
        given_at: when it was given out, None where nobody looks at how long attempts take.
    """

    __slots__ = ("__weakref__", "bypassed", "episode", "exempt", "given_at", "lease", "leased_at", "probe", "settled")

    def __init__(self, episode: int, *, exempt: bool = False, bypassed: bool = False) -> None:
        self.episode = episode
        self.probe = False
        self.exempt = exempt
        self.bypassed = bypassed
        self.settled = False
        self.leased_at = 0.0
        self.lease = 0.0
        self.given_at: float | None = None

    def holds_at(self, now: float) -> bool:
        """Whether a probe's lease runs; one that began in the future is from before a clock jump."""
        return 0 <= now - self.leased_at < self.lease

    def __bool__(self) -> bool:
        return not self.bypassed

    def __repr__(self) -> str:
        what = "bypassed" if self.bypassed else "probe" if self.probe else "exempt" if self.exempt else "plain"
        return f"<Permit {what}, episode {self.episode}{', settled' if self.settled else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a permit belongs to the breaker that gave it, in this process: it can't be pickled")
