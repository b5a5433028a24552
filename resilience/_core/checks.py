"""Checks of settings that collect every fault before one error lists them all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from resilience.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from enum import Enum

    E = TypeVar("E", bound=Enum)

NAME_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@+-")
NAME_BYTES = 256
COROUTINE = 0x80
# Code flags of generator and coroutine functions.
_GIVES_NO_RESULT = 0x20 | COROUTINE | 0x200


class Faults:
    """The faults found so far; each line names the parameter, the value and what would be right.

    A check returns the value in its normal form, or the value as given where it is
    wrong: the error is raised before anybody uses it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, parameter: str, value: object, right: str) -> None:
        """Note one fault."""
        self.lines.append(f"{parameter} must be {right}, got {shown(value)}")

    def say(self, line: str) -> None:
        """Note a fault that is no single value's."""
        self.lines.append(line)

    def raise_any(self) -> None:
        """Raise one `ConfigurationError` if there is any fault."""
        if self.lines:
            raise ConfigurationError(*self.lines)

    def seconds(self, parameter: str, value: Any, *, zero: bool = False) -> float:
        """A duration: a finite number of seconds or a `timedelta`, > 0 (or ≥ 0)."""
        number = as_seconds(value)
        if number is None or number < 0 or (number == 0 and not zero):
            self.add(parameter, value, f"a finite number of seconds {'>=' if zero else '>'} 0")
            return value  # type: ignore[no-any-return]  # never used: the fault is noted
        return number

    def share(self, parameter: str, value: Any, *, zero: bool = False) -> float:
        """A share: 0 < value ≤ 1 (or 0 ≤ value ≤ 1)."""
        number = as_number(value)
        if number is None or not 0 <= number <= 1 or (number == 0 and not zero):
            self.add(parameter, value, "a number in [0, 1]" if zero else "a number in (0, 1]")
            return value  # type: ignore[no-any-return]  # never used: the fault is noted
        return number

    def rate(self, parameter: str, value: Any) -> float:
        """So many a second: a finite number, ≥ 0."""
        number = as_number(value)
        if number is None or number < 0:
            self.add(parameter, value, "a finite number >= 0")
            return value  # type: ignore[no-any-return]  # never used: the fault is noted
        return number

    def count(self, parameter: str, value: Any, *, least: int = 1) -> int:
        """A whole number, at least `least`."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.add(parameter, value, f"a whole number >= {least}")
        return value  # type: ignore[no-any-return]  # checked above

    def flag(self, parameter: str, value: Any) -> None:
        """True or False, and nothing that merely looks like it."""
        if not isinstance(value, bool):
            self.add(parameter, value, "True or False")

    def member(self, parameter: str, value: Any, words: type[E]) -> E:
        """A member of an enum, or its value's spelling."""
        try:
            return words(value)
        except Exception:
            # Not only ValueError: the enum formats the value, which may raise anything.
            self.add(parameter, value, "one of " + ", ".join(repr(word.value) for word in words))
            return value  # type: ignore[no-any-return]  # never used: the fault is noted

    def members(self, parameter: str, value: Any, words: type[E], allowed: Iterable[E]) -> frozenset[E]:
        """A non-empty collection of enum members (or spellings) out of `allowed`."""
        permitted = tuple(allowed)
        right = "a non-empty collection of " + ", ".join(repr(word.value) for word in permitted)
        try:
            given = (value,) if isinstance(value, (str, words)) else tuple(value)
            found = frozenset(words(word) for word in given)
        except Exception:
            self.add(parameter, value, right)
            return frozenset()
        if not found or not found <= frozenset(permitted):
            self.add(parameter, value, right)
        return found

    def callable_or_none(self, parameter: str, value: Any) -> Callable[..., Any] | None:
        """Something that can be called, or None."""
        if value is not None and not callable(value):
            self.add(parameter, value, "a callable or None")
        return value  # type: ignore[no-any-return]  # checked above

    def judge_or_none(self, parameter: str, value: Any) -> None:
        """A function whose plain answer is looked at, or None: what only gives a generator would always be true."""
        if value is not None and not (callable(value) and not code_flags(value) & _GIVES_NO_RESULT):
            self.add(parameter, value, "a plain function or None")

    def choice(self, parameter: str, value: object, words: tuple[str, ...]) -> None:
        """One of a few texts."""
        if not isinstance(value, str) or value not in words:
            self.add(parameter, value, " or ".join(map(repr, words)))

    def instance(self, parameter: str, value: object, kind: type) -> None:
        """An object of one type."""
        if not isinstance(value, kind):
            self.add(parameter, value, f"a {kind.__name__}")

    def instance_or_none(self, parameter: str, value: object, kind: type) -> None:
        """An object of one type, or None."""
        if value is not None and not isinstance(value, kind):
            self.add(parameter, value, f"a {kind.__name__} or None")

    def name(self, parameter: str, value: Any) -> str:
        """A shared name: 1 to 256 bytes of the safe alphabet; a subclass of str counts by its text."""
        text = str.__str__(value) if isinstance(value, str) else value
        if not is_safe_name(text):
            self.add(parameter, value, f"a str of 1 to {NAME_BYTES} bytes of A-Z a-z 0-9 . _ : / @ + -")
        return text

    def labels(self, parameter: str, value: Any) -> tuple[str, ...]:
        """The names of a key's parts: distinct identifiers, one alone as it is; none for None."""
        if value is None:
            return ()
        try:
            found = (value,) if isinstance(value, str) else tuple(value)
        except Exception:
            found = ()
        if not found or not _are_names(found) or not all(map(str.isascii, found)):
            self.add(parameter, value, "one or more different names, such as ('provider', 'model')")
            return ()
        return tuple(map(str.__str__, found))

    def key(self, parameter: str, value: Any) -> Any:
        """What tells a call's key: parameter names as a tuple, a function, or None."""
        right = "the name of a parameter, a tuple of such names, or a plain function of the call's arguments"
        if value is None or (callable(value) and not code_flags(value) & _GIVES_NO_RESULT):
            return value
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, (tuple, list)) or not names or not _are_names(names):
            self.add(parameter, value, right)
            return None
        return tuple(map(str.__str__, names))

    def text(self, parameter: str, value: object) -> None:
        """A text that says something."""
        if not isinstance(value, str) or not value.strip():
            self.add(parameter, value, "a text that is not empty")

    def text_or_none(self, parameter: str, value: object) -> None:
        """A text that says something, or None."""
        if value is not None:
            self.text(parameter, value)


def code_flags(function: object) -> int:
    """The flags of a function's or a method's code, 0 for anything else."""
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags


def _are_names(names: Sequence[object]) -> bool:
    """Whether all are identifiers, and no two the same."""
    texts = [str.__str__(name) for name in names if isinstance(name, str)]
    return len({*texts}) == len(names) and all(map(str.isidentifier, texts))


def is_safe_name(value: object) -> bool:
    """Whether `value` may name a breaker or bulkhead: it goes into labels, logs and commands."""
    return isinstance(value, str) and 0 < len(value) <= NAME_BYTES and NAME_ALPHABET.issuperset(value)


def as_number(value: object) -> float | None:
    """A finite real number as a float; None for anything else (a bool is no number here)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_seconds(value: object) -> float | None:
    """Like `as_number`, and a `timedelta` counts by its seconds."""
    # Told by its type's name: importing datetime only to ask would cost every importer.
    if any(kind.__name__ == "timedelta" and kind.__module__ == "datetime" for kind in type(value).__mro__):
        value = value.total_seconds()  # type: ignore[attr-defined]  # a timedelta has it
    return as_number(value)


def checked(words: type[E], parameter: str, value: Any) -> E:
    """`value` as a member of an enum, or one `ConfigurationError`."""
    faults = Faults()
    member = faults.member(parameter, value, words)
    faults.raise_any()
    return member
