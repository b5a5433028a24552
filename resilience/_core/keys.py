"""Keys of families: what a call says, as texts that may go into labels, logs and commands.

Nothing that is given here raises, and no two different things become one key: a whole
number is its decimal text, but True and 1.0 are no keys at all.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from resilience._core.checks import NAME_BYTES, is_safe_name

OTHER = "__other__"
"""Each part of the key that is shared by all calls which have none of their own."""

_MOST_BITS = 8 * NAME_BYTES
_MOST_PARTS = 16


class NoKey(Enum):
    """Why a call has no key of its own."""

    FULL = "full"
    """The family has as many keys as it may, and all of them are in use."""
    UNSAFE = "unsafe"
    """A part is no text of the safe alphabet, or too long."""
    PARTS = "parts"
    """There are more or fewer parts than labels."""
    RAISED = "raised"
    """What should have told the key raised instead."""

    __hash__ = object.__hash__


def read_key(given: Any, count: int) -> tuple[str, ...] | NoKey:
    """The key that a single part or a tuple of parts stands for; `count` is how many there must be, 0 for any (up to 16)."""
    try:
        parts = tuple(tuple.__iter__(given)) if issubclass(type(given), tuple) else (given,)
        if not 0 < len(parts) <= (count or _MOST_PARTS) or len(parts) < count:
            return NoKey.PARTS
        texts = tuple(map(_text_of, parts))
    except Exception:
        # An object that does not let itself be read.
        return NoKey.UNSAFE
    return texts if all(map(is_safe_name, texts)) else NoKey.UNSAFE  # type: ignore[return-value]  # all are texts


def _text_of(part: Any) -> str | None:
    kind = type(part)
    if kind is str:
        return part  # type: ignore[no-any-return]  # as told
    # By the type, not `isinstance`: a proxy may claim any class.
    if issubclass(kind, str):
        return str.__str__(part)
    if issubclass(kind, int):
        return _decimal(part)
    if issubclass(kind, Enum):
        value = part._value_
        return str.__str__(value) if issubclass(type(value), str) else None
    return None


def _decimal(part: int) -> str | None:
    number = int.__index__(part)
    # The longest that could be safe; beyond, some numbers have no text at all.
    if type(part) is bool or number.bit_length() > _MOST_BITS:
        return None
    return str(number)


def spelled_key(name: str, key: tuple[str, ...]) -> str:
    """A name and a key as one text that no other pair shares: brackets and commas belong to no name."""
    return f"{name}[{','.join(key)}]"


def read_spelled(text: object) -> tuple[str, tuple[str, ...]] | None:
    """Name and key of such a text, None for anything else."""
    if not isinstance(text, str) or not text.endswith("]"):
        return None
    name, bracket, inside = text[:-1].partition("[")
    return (name, tuple(inside.split(","))) if bracket else None
