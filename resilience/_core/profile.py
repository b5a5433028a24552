"""What is known of an exception type before an instance is looked at.

Failures come in floods of the same few types, so everything that the type alone
settles is worked out once: which rules are asked and in which order, whether an
instance could carry anything to read, and, where no rule would look at the instance,
the fault itself.
"""

from __future__ import annotations

from types import GetSetDescriptorType
from typing import TYPE_CHECKING

from resilience._core.faults import NO_FLAGS, Fault
from resilience._core.reading import mro_of, name_of, namespace_of
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resilience._core.rule import Rule

# Attributes that may hold the exception inside, the most telling first. The inner
# exceptions of `args`, of botocore's `kwargs` and of `__context__` come after them.
LINKS = ("cause", "reason", "orig", "original_exception", "inner_exception", "last_exception", "os_error")

# Where a class defines one of these, its instances have something to read even
# while their own `__dict__` is empty.
_TELLING = frozenset(
    {"args", "code", "exceptions", "headers", "kwargs", "meta", "response", "retry_after", "status", "status_code"}
    | {"__cause__", "__class__", "__context__", "__getattr__", "__getattribute__"}
    | set(LINKS)
)


_VARIES = object()


class Profile:
    """One exception type, as one classifier sees it.

    Attributes:
        name: `module.Qualname`.
        is_exception: whether it is an exception type at all.
        interrupts: it is no `Exception`, so it is INTERRUPTED whatever the rules say.
        interrupt_flags: the flags of that.
        is_group: it is an exception group.
        is_timeout: it is a timeout, below which nobody looks.
        plain: an instance with an empty `__dict__` has nothing to read.
        rules: the rules to ask first, in their order.
        bases: the rules of standard library bases, to ask last.
        always: the fault of an instance with an empty `__dict__`, whatever its chain; or None.
        when_bare: the fault of an instance that also has no chain; or None.
        nobody_knows: `when_bare` is what one says of the unknown.
    """

    __slots__ = (
        "always",
        "bases",
        "interrupt_flags",
        "interrupts",
        "is_exception",
        "is_group",
        "is_timeout",
        "name",
        "nobody_knows",
        "plain",
        "rules",
        "when_bare",
    )

    def __init__(self, kind: type, rules: Sequence[Rule], bases: Sequence[Rule], otherwise: FaultKind | None) -> None:
        module, qualname = name_of(kind)
        self.name = f"{module}.{qualname}"
        self.is_exception = issubclass(kind, BaseException)
        self.interrupts = self.is_exception and not issubclass(kind, Exception)
        self.is_group = issubclass(kind, BaseExceptionGroup)
        self.is_timeout = issubclass(kind, TimeoutError)
        self.rules = tuple(rules)
        self.bases = tuple(bases)
        self.interrupt_flags = next((rule.flags for rule in rules if rule.kind is FaultKind.INTERRUPTED), NO_FLAGS)
        self.plain = self.is_exception and _is_plain(kind)
        self.nobody_knows = False
        self.always, self.when_bare = self._foreseen(kind, otherwise)

    def _foreseen(self, kind: type, otherwise: FaultKind | None) -> tuple[Fault | None, Fault | None]:
        if not self.plain or self.is_group:
            return None, None
        if self.interrupts:
            fault = Fault(FaultKind.INTERRUPTED, self.interrupt_flags, origin=self.name)
            return fault, fault
        believed = _constant(kind, "fault_kind")
        if type(believed) is FaultKind:
            fault = Fault(believed, believed_flags(_constant(kind, "fault_flags")), origin=self.name)
            return fault, fault
        by_type_alone = True
        for position, rule in enumerate(self.rules + self.bases):
            if rule.looks_at_instance or rule.kind is None:
                return None, None
            if rule.below is not None:
                # With nothing below, the next rule is asked; with something, who knows.
                by_type_alone = False
                continue
            if position >= len(self.rules):
                by_type_alone = False
                if self.is_guess(rule.kind, rule.flags):
                    break
            fault = Fault(rule.kind, rule.flags, origin=self.name)
            return (fault if by_type_alone else None), fault
        self.nobody_knows = True
        return None, self.unknown(otherwise)

    @staticmethod
    def is_guess(kind: FaultKind, flags: frozenset[FaultFlag]) -> bool:
        """Whether a base class's rule says no more than "unknown".

        A library's own `class ProviderDown(RuntimeError)` is no bug of ours because a
        bare RuntimeError is one: nobody has classified it, and its user should hear so.
        """
        return kind is FaultKind.INTERNAL and not flags

    def unknown(self, otherwise: FaultKind | None, status: int | None = None, wait: float | None = None) -> Fault:
        """The fault of an exception that nobody has a rule for."""
        if otherwise is None:
            return Fault(FaultKind.INTERNAL, {FaultFlag.UNCLASSIFIED}, status, None, wait, self.name)
        return Fault(otherwise, NO_FLAGS, status, None, wait, self.name)


def is_bare(exc: BaseException) -> bool:
    """Whether an instance of a plain type has nothing inside: no attributes, no chain, no odd arguments."""
    if exc.__dict__ or exc.__context__ is not None or exc.__cause__ is not None:
        return False
    return all(type(arg) is str or type(arg) is int for arg in exc.args)


def believed_flags(flags: object) -> frozenset[FaultFlag]:
    """`fault_flags` of an exception, if they are what they should be; else none."""
    if type(flags) is frozenset and all(type(flag) is FaultFlag for flag in flags):
        return flags
    return NO_FLAGS


def _is_plain(kind: type) -> bool:
    for base in mro_of(kind):
        if base is Exception or base is BaseException or base is object:
            continue
        names = namespace_of(base)
        if not _TELLING.isdisjoint(names):
            return False
        if "__dict__" in names and type(names["__dict__"]) is not GetSetDescriptorType:
            return False
    # A plain value shared by all instances is as good as a rule; a property is not.
    return _constant(kind, "fault_kind") is not _VARIES and _constant(kind, "fault_flags") is not _VARIES


def _constant(kind: type, name: str) -> object:
    """The value that all instances share: None if there is none, `_VARIES` if it may be computed."""
    for base in mro_of(kind):
        names = namespace_of(base)
        if name in names:
            value = names[name]
            return value if type(value) is FaultKind or type(value) is frozenset else _VARIES
    return None
