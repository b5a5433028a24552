"""The catalogue as a list for people: what each rule is about, in the order in which it is asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from resilience._words import FaultFlag, FaultKind
from resilience.catalogue.homes import HOMES

if TYPE_CHECKING:
    from resilience._core.rule import Rule


class Entry(NamedTuple):
    """What some classes mean.

    Attributes:
        names: the classes' qualified names.
        when: the condition, "" without one.
        kind: None where only the status or what lies inside decides.
        flags: in their order in `FaultFlag`.
        first: what is asked before `kind`: "the status" or what lies inside; "" where it decides alone.
        retry_after: where the wait is kept, "" for the usual headers.
    """

    names: tuple[str, ...]
    when: str
    kind: FaultKind | None
    flags: tuple[FaultFlag, ...]
    first: str
    retry_after: str


class Library(NamedTuple):
    """The rules of one library, or of several with the same classes.

    Attributes:
        family: the module of this package that has them.
        packages: the packages that its classes are found in.
    """

    family: str
    packages: tuple[str, ...]
    entries: tuple[Entry, ...]


def listing() -> list[Library]:
    """The whole catalogue, by family and library."""
    found: list[Library] = []
    for family in sorted(set(HOMES.values())):
        by_package: dict[str, list[Rule]] = {}
        for rule in import_module(f"resilience.catalogue.{family}").RULES:
            package, _, _ = str(rule.match).partition(":")
            by_package.setdefault(package, []).append(rule)
        alike: dict[tuple[Entry, ...], list[str]] = {}
        for package, rules in by_package.items():
            alike.setdefault(tuple(_entries(rules)), []).append(package)
        found += [Library(family, tuple(packages), entries) for entries, packages in alike.items()]
    return found


def _entries(rules: list[Rule]) -> list[Entry]:
    """One entry for neighbours that differ only in the class."""
    found: list[Entry] = []
    for rule in rules:
        _, _, name = str(rule.match).partition(":")
        entry = entry_of(rule, name)
        if found and found[-1]._replace(names=()) == entry._replace(names=()):
            found[-1] = found[-1]._replace(names=(*found[-1].names, name))
        else:
            found.append(entry)
    return found


def entry_of(rule: Rule, *names: str) -> Entry:
    """One rule as an entry."""
    conditions = [text_of(condition) for condition in (rule.when, rule.below) if condition is not None]
    return Entry(
        names,
        " and ".join(conditions),
        rule.kind,
        tuple(flag for flag in FaultFlag if flag in rule.flags),
        first_of(rule),
        text_of(rule.retry_after or rule.headers) if rule.retry_after or rule.headers else "",
    )


def first_of(rule: Rule) -> str:
    """What is asked before the rule's own kind."""
    if rule.by_status:
        return "the status"
    if rule.chain:
        return "its cause"
    if isinstance(rule.unwrap, str):
        return f"its {rule.unwrap}"
    return "" if rule.unwrap is None else "the error inside"


def text_of(thing: object) -> str:
    """What a condition or a reader says of itself."""
    text = getattr(thing, "text", None)
    return text if isinstance(text, str) else "a function says so"
