"""What an outcome means: a small value that the breaker and the retry read instead of the exception.

The kind says what happened. Two questions remain that a kind alone can't answer:
may the same call be sent again, and does this say anything about the health of the
remote? The flags answer them, and the two functions below are the only place where
kind and flags are turned into a decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from resilience._words import FaultFlag, FaultKind, Verdict
from resilience.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Fault", "FaultFlag", "FaultKind", "may_retry", "verdict_of"]

NO_FLAGS: frozenset[FaultFlag] = frozenset()

_FROM_WORST = (
    FaultKind.INTERRUPTED,
    FaultKind.INTERNAL,
    FaultKind.CONTRACT,
    FaultKind.VALIDATION,
    FaultKind.DOWNSTREAM,
    FaultKind.TRANSIENT,
    FaultKind.CONTROL,
)
_RANK = {kind: rank for rank, kind in enumerate(_FROM_WORST)}

# Members as module names: looking one up on its enum costs several times as much on 3.11.
_TRANSIENT, _DOWNSTREAM, _INTERNAL = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERNAL
_FAILURE, _ANSWERED, _NEUTRAL = Verdict.FAILURE, Verdict.ANSWERED, Verdict.NEUTRAL
_NOT_ASKED = frozenset({FaultFlag.SATURATION, FaultFlag.LOCAL})
_REMOTE_SAID_NO = frozenset({FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION})
_REPEATING_IS_IN_VAIN = frozenset({FaultFlag.CLIENT_FAULT, FaultFlag.QUOTA})
_UNSENT = FaultFlag.UNSENT


class Fault:
    """What one outcome means: compared by value, frozen, cheap to keep and to pickle.

    Args:
        kind: what happened.
        flags: what the kind alone does not say (default: none).
        status: the HTTP status (100 to 599), None without one.
        code: a short word for logs, such as `circuit_open`; None without one.
        retry_after: seconds (>= 0) the remote asked us to wait; None if it did not.
        origin: `module.Qualname` of the exception type that decided; None if it was no exception.
        leaves: for an exception group the faults of its leaves, as kind, flags and
            status only; () for a single exception.

    Example:
        >>> Fault(FaultKind.TRANSIENT, {FaultFlag.UNSENT}) == Fault(FaultKind.TRANSIENT, {FaultFlag.UNSENT})
        True
    """

    __slots__ = ("code", "flags", "kind", "leaves", "origin", "plain", "retry_after", "status")

    kind: FaultKind
    flags: frozenset[FaultFlag]
    status: int | None
    code: str | None
    retry_after: float | None
    origin: str | None
    leaves: tuple[Fault, ...]
    plain: bool
    """Only the kind decides: there are no flags, no status and no leaves."""

    def __init__(
        self,
        kind: FaultKind,
        flags: Iterable[FaultFlag] = NO_FLAGS,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        origin: str | None = None,
        leaves: tuple[Fault, ...] = (),
    ) -> None:
        if type(kind) is not FaultKind or flags or status is not None or code is not None or retry_after is not None:
            _check(kind, flags, status, code, retry_after)
        _set_kind(self, kind)
        _set_flags(self, flags if type(flags) is frozenset else frozenset(flags))
        _set_status(self, status)
        _set_code(self, code)
        _set_retry_after(self, retry_after)
        _set_origin(self, origin)
        _set_leaves(self, leaves)
        _set_plain(self, not flags and status is None and not leaves)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Fault is frozen: {name} can't be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Fault is frozen: {name} can't be deleted")

    def _fields(
        self,
    ) -> tuple[FaultKind, frozenset[FaultFlag], int | None, str | None, float | None, str | None, tuple[Fault, ...]]:
        return self.kind, self.flags, self.status, self.code, self.retry_after, self.origin, self.leaves

    def __eq__(self, other: object) -> bool:
        if type(other) is not Fault:
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple[object, ...]:
        return Fault, self._fields()

    def __repr__(self) -> str:
        parts = [f"FaultKind.{self.kind.name}"]
        if self.flags:
            parts.append("flags={" + ", ".join(sorted(flag.value for flag in self.flags)) + "}")
        for name in ("status", "code", "retry_after", "origin"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value!r}")
        if self.leaves:
            parts.append(f"leaves={len(self.leaves)}")
        return f"Fault({', '.join(parts)})"


def _check(kind: object, flags: object, status: object, code: object, retry_after: object) -> None:
    """Refuse what can't be a fault: it would go on to decide waits and open times."""
    faults = []
    if type(kind) is not FaultKind:
        faults.append(f"kind must be a FaultKind, got {shown(kind)}")
    if isinstance(flags, str) or not all(type(flag) is FaultFlag for flag in cast("Iterable[object]", flags)):
        faults.append(f"flags must be a collection of FaultFlag, got {shown(flags)}")
    if status is not None and (type(status) is not int or not 100 <= status <= 599):
        faults.append(f"status must be a whole number in 100-599 or None, got {shown(status)}")
    if code is not None and not isinstance(code, str):
        faults.append(f"code must be a str or None, got {shown(code)}")
    if retry_after is not None and (type(retry_after) not in (int, float) or not 0 <= retry_after < 1e300):  # type: ignore[operator]  # a number
        faults.append(f"retry_after must be a finite number of seconds >= 0 or None, got {shown(retry_after)}")
    if faults:
        raise ConfigurationError(*faults)


# The slots' own setters pass by `__setattr__`, and are faster than `object.__setattr__`.
_set_kind, _set_flags, _set_status, _set_code, _set_retry_after, _set_origin, _set_leaves, _set_plain = (
    vars(Fault)[name].__set__
    for name in ("kind", "flags", "status", "code", "retry_after", "origin", "leaves", "plain")
)


def verdict_of(fault: Fault, *, trip_on: frozenset[FaultKind], trip_on_status: frozenset[int]) -> Verdict:
    """What `fault` means to a breaker; never SUCCESS.

    The mildest reading of the flags wins, because a remote that was not asked can't
    have failed. A group is worth the worst of its leaves.
    """
    if fault.leaves:
        verdicts = [verdict_of(leaf, trip_on=trip_on, trip_on_status=trip_on_status) for leaf in fault.leaves]
        for worst in (_FAILURE, _ANSWERED):
            if worst in verdicts:
                return worst
        return _NEUTRAL
    kind, flags = fault.kind, fault.flags
    if flags and not _NOT_ASKED.isdisjoint(flags):
        return _NEUTRAL
    if fault.status in trip_on_status and kind is not FaultKind.INTERRUPTED:
        return _FAILURE
    if kind is _TRANSIENT or kind is _DOWNSTREAM:
        if flags and not _REMOTE_SAID_NO.isdisjoint(flags):
            return _ANSWERED
    elif kind is not _INTERNAL:
        # Whatever `trip_on` names: these never say anything about the remote.
        return _NEUTRAL
    return _FAILURE if kind in trip_on else _NEUTRAL


def may_retry(fault: Fault, *, retry_on: frozenset[FaultKind], idempotent: bool, safe_only: bool) -> bool:
    """Whether the same call may be sent again after `fault`.

    A function that is not idempotent, or a site that wants only safe repeats, sends
    again what surely was not processed and nothing else. A group only if every leaf may.
    """
    if fault.leaves:
        return all(
            may_retry(leaf, retry_on=retry_on, idempotent=idempotent, safe_only=safe_only) for leaf in fault.leaves
        )
    if fault.kind not in retry_on or not _REPEATING_IS_IN_VAIN.isdisjoint(fault.flags):
        return False
    return (idempotent and not safe_only) or _UNSENT in fault.flags


def of_group(leaves: list[Fault], *, complete: bool) -> Fault:
    """The fault of an exception group: the highest kind of its leaves, what all of them agree on, the longest wait.

    With `complete` false some leaves were left unread: nobody can vouch for them, so
    an unknown one stands in for them and the group is not retried.
    """
    decided = min(leaves, key=lambda leaf: _RANK[leaf.kind])
    flags = frozenset.intersection(*(leaf.flags for leaf in leaves))
    if FaultFlag.UNCLASSIFIED in decided.flags:
        flags |= {FaultFlag.UNCLASSIFIED}
    # Only what a decision needs, so that a fault stays small whatever the leaves carried.
    alike: dict[tuple[object, ...], Fault] = {}
    for leaf in leaves:
        key = (leaf.kind, leaf.flags, leaf.status)
        if key not in alike:
            alike[key] = Fault(leaf.kind, leaf.flags, leaf.status)
    kept = tuple(alike[leaf.kind, leaf.flags, leaf.status] for leaf in leaves)
    if not complete:
        kept += (Fault(_INTERNAL, {FaultFlag.UNCLASSIFIED}),)
    return Fault(
        decided.kind,
        flags,
        status=decided.status if len(leaves) == 1 else None,
        code=decided.code if len(leaves) == 1 else None,
        retry_after=max((leaf.retry_after for leaf in leaves if leaf.retry_after is not None), default=None),
        origin=decided.origin,
        leaves=kept,
    )


def not_surely_unsent(fault: Fault) -> Fault:
    """Without the promise that nothing was sent: what failed before says nothing about the call after it."""
    leaves = tuple(not_surely_unsent(leaf) for leaf in fault.leaves)
    return Fault(
        fault.kind,
        fault.flags - {_UNSENT},
        fault.status,
        fault.code,
        fault.retry_after,
        fault.origin,
        leaves,
    )


def with_wait(fault: Fault, wait: float) -> Fault:
    """The same, with this wait."""
    return Fault(fault.kind, fault.flags, fault.status, fault.code, wait, fault.origin, fault.leaves)
