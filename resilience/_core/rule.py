"""One rule: which exceptions it is about, when it holds, and what it says.

A catalogue names a class as "segment:Qualname", the first segment of its module (two
for google and azure) and its qualified name: never by import, and without the private
path in between, which moves from release to release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.checks import Faults
from resilience._core.reading import ask, name_of, segment_of, without_vendor
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Condition = Callable[[Any], object]
    Below = Callable[[Sequence[BaseException]], object]
    Reader = Callable[[Any], object]
    Match = type[BaseException] | str | Condition


class Rule:
    """What to think of one exception class, under conditions.

    Args:
        match: "segment:Qualname", or an exception type.
        kind: what it says; None for a rule that only unwraps or only asks the status.
        flags: what the kind alone does not say.
        when: condition on the exception; one that raises counts as false.
        below: condition on the exceptions found below it (causes, reasons, contexts).
        predicate: a user's condition on any exception; one that raises fails the classifying.
        unwrap: the attribute or function that gives the exception (or exceptions) inside;
            what is inside decides, and this rule only where that says nothing.
        chain: like `unwrap`, with everything below.
        by_status: the HTTP status decides, and `kind` only where that says nothing.
        retry_after: function that gives the value of a Retry-After kept in an odd place.
        headers: function that gives response headers kept in an odd place.
        has_status: whether numbers on such an exception may be HTTP statuses (default: True).
        code: function that gives a short code for logs.
        generic: this is a class of the standard library: as the base of a foreign class
            it is asked only after status and cause have said nothing.
    """

    __slots__ = (
        "below",
        "by_status",
        "chain",
        "code",
        "flags",
        "generic",
        "has_status",
        "headers",
        "kind",
        "match",
        "predicate",
        "retry_after",
        "unwrap",
        "when",
    )

    def __init__(
        self,
        match: str | type[BaseException] | None,
        kind: FaultKind | None = None,
        *flags: FaultFlag,
        when: Condition | None = None,
        below: Below | None = None,
        predicate: Condition | None = None,
        unwrap: str | Reader | None = None,
        chain: bool = False,
        by_status: bool = False,
        retry_after: Reader | None = None,
        headers: Reader | None = None,
        has_status: bool = True,
        code: Reader | None = None,
        generic: bool = False,
    ) -> None:
        self.match = match
        self.kind = kind
        self.flags = frozenset(flags)
        self.when = when
        self.below = below
        self.predicate = predicate
        self.unwrap = unwrap
        self.chain = chain
        self.by_status = by_status
        self.retry_after = retry_after
        self.headers = headers
        self.has_status = has_status
        self.code = code
        self.generic = generic

    @property
    def looks_at_instance(self) -> bool:
        """Whether the answer needs more than the type and what lies below the exception."""
        return (
            self.kind is None
            or self.chain
            or self.by_status
            or self.when is not None
            or self.predicate is not None
            or self.unwrap is not None
            or self.retry_after is not None
            or self.code is not None
        )


class Book:
    """Rules in the form in which they are looked up; never changed once made.

    Names are kept as (segment, qualname). A dotted name does not say where its module
    ends, so a user's "a.b.C" is found as class `C` and as class `b.C` of anything in `a`.
    """

    __slots__ = ("classes", "generic", "names", "predicates", "size")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.predicates: tuple[Rule, ...] = ()
        self.classes: dict[type, tuple[Rule, ...]] = {}
        self.names: dict[tuple[str, str], tuple[Rule, ...]] = {}
        self.size = 0
        self.generic = False
        for rule in rules:
            self.size += 1
            self.generic = self.generic or rule.generic
            if isinstance(rule.match, str):
                for name in spellings(rule.match):
                    self.names[name] = (*self.names.get(name, ()), rule)
            elif rule.match is not None:
                self.classes[rule.match] = (*self.classes.get(rule.match, ()), rule)
            else:
                self.predicates += (rule,)

    def of(self, kind: type) -> tuple[Rule, ...]:
        """The rules of exactly this class, a type's before a name's."""
        module, qualname = name_of(kind)
        try:
            given = self.classes.get(kind, ())
        except RecursionError:  # what is learnt at the end of the stack would be remembered
            raise
        except Exception:  # a class whose class can't hash it
            given = ()
        return given + self.names.get((segment_of(module), qualname), ())


def spellings(match: str) -> list[tuple[str, str]]:
    """The (segment, qualname) pairs that a written name may mean."""
    if ":" in match:
        segment, _, qualname = match.partition(":")
        return [(segment_of(segment), qualname)]
    module, _, qualname = match.rpartition(".")
    if not module:
        return [("builtins", qualname)]
    module = without_vendor(module)
    segment = segment_of(module)
    inner = module[len(segment) :].split(".")
    found = [(segment, qualname)]
    for part in reversed([part for part in inner if part]):
        qualname = f"{part}.{qualname}"
        found.append((segment, qualname))
    return found


def checked_rule(
    match: object, kind: object, *, flags: object, when: Condition | None, retry_after: Reader | None
) -> Rule:
    """A rule that somebody wrote by hand; one `ConfigurationError` lists all that can't be right."""
    faults = Faults()
    named, predicate = _matched(match)
    if named is None and predicate is None:
        faults.add("match", match, "an exception type below Exception, a dotted name or a function")
    if not isinstance(kind, FaultKind):
        faults.add("kind", kind, "a FaultKind")
        kind = None
    told: tuple[FaultFlag, ...] | None = ask(tuple, flags)
    if told is None or any(type(flag) is not FaultFlag for flag in told):
        faults.add("flags", flags, "a collection of FaultFlag")
        told = ()
    faults.callable_or_none("when", when)
    faults.callable_or_none("retry_after", retry_after)
    faults.raise_any()
    return Rule(named, kind, *told, when=when, predicate=predicate, retry_after=retry_after)


def checked_wrapper(match: object, inner: Any) -> Rule:
    """A rule that only unwraps; one `ConfigurationError` lists all that can't be right."""
    faults = Faults()
    named, _ = _matched(match)
    if named is None:
        faults.add("match", match, "an exception type below Exception or a dotted name")
    if not isinstance(inner, str) and not callable(inner):
        faults.add("inner", inner, "the name of an attribute or a function")
    faults.raise_any()
    return Rule(named, unwrap=inner)


def _matched(match: object) -> tuple[type[BaseException] | str | None, Condition | None]:
    if isinstance(match, str):
        parts = match.replace(":", ".").split(".")
        return (match, None) if all(parts) and match.count(":") <= 1 else (None, None)
    if isinstance(match, type):
        return (match, None) if issubclass(match, Exception) else (None, None)
    return None, match if callable(match) else None
