"""How a family of libraries writes its rules down: one line for all classes that mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.rule import Rule
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from typing import Any

    from resilience._core.rule import Reader

VALIDATION, CONTRACT, CONTROL, INTERRUPTED = (
    FaultKind.VALIDATION,
    FaultKind.CONTRACT,
    FaultKind.CONTROL,
    FaultKind.INTERRUPTED,
)
TRANSIENT, DOWNSTREAM, INTERNAL = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERNAL
CLIENT_FAULT, CONTENTION, SATURATION = FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION, FaultFlag.SATURATION
LOCAL, QUOTA, UNSENT = FaultFlag.LOCAL, FaultFlag.QUOTA, FaultFlag.UNSENT
AMBIGUOUS, CONFIG = FaultFlag.AMBIGUOUS, FaultFlag.CONFIG


class Case:
    """What some classes of a library mean, perhaps under a condition.

    Args:
        names: the qualified names, with spaces between them.
        kind, flags, how: as for `Rule`.
    """

    __slots__ = ("flags", "how", "kind", "names")

    def __init__(self, names: str, kind: FaultKind | None = None, *flags: FaultFlag, **how: Any) -> None:
        self.names = names.split()
        self.kind = kind
        self.flags = flags
        self.how = how


def library(segments: str, *cases: Case, code: Reader | None = None, **how: Any) -> tuple[Rule, ...]:
    """The rules of one library, or of several that have the same classes.

    Args:
        segments: the first segments of their modules, with spaces between them.
        cases: in the order in which they are asked; within one class the first that holds decides.
        code: gives the short code for logs, where an instance is looked at anyway.
        how: for every rule, as for `Rule`.
    """
    rules = []
    for segment in segments.split():
        for case in cases:
            for name in case.names:
                rule = Rule(f"{segment}:{name}", case.kind, *case.flags, **how, **case.how)
                if code is not None and rule.code is None and rule.looks_at_instance:
                    rule.code = code
                rules.append(rule)
    return tuple(rules)
