"""What a rule may ask of an exception, in a form that can also be shown.

A field is one fact that a library keeps on its exceptions: a status, an error code, a
SQLSTATE. It knows how to read it without trusting the object, and how to put it on a
stand-in, which is how `resilience explain` builds an exception from a name and a code.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from resilience._core.headers import entry, lookups_of
from resilience._core.reading import ask, holds, members_of, plain_int, plain_text, read
from resilience._core.status import read_status

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LONGEST = 256
_MOST_TEXT = 65_536
_MOST_ARGS = 64
_MOST_PARTS = 512


class Condition:
    """A question about one exception.

    Attributes:
        text: the question as a phrase, for people.
        fields: the facts it asks for.
    """

    __slots__ = ("_test", "fields", "text")

    def __init__(self, text: str, test: Callable[[Any], object], fields: tuple[Field, ...] = ()) -> None:
        self.text = text
        self.fields = fields
        self._test = test

    def __call__(self, exc: Any) -> bool:
        return bool(self._test(exc))

    def __or__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.text} or {other.text}",
            lambda exc: holds(self, exc) or holds(other, exc),
            (*self.fields, *other.fields),
        )

    def __and__(self, other: Condition) -> Condition:
        return Condition(
            f"{self.text} and {other.text}", lambda exc: self(exc) and other(exc), (*self.fields, *other.fields)
        )

    def __invert__(self) -> Condition:
        return Condition(f"not ({self.text})", lambda exc: not self(exc), self.fields)

    def __repr__(self) -> str:
        return f"<{self.text}>"


class Told:
    """A reader that can say where it looks, for a Retry-After kept in an odd place."""

    __slots__ = ("_read", "text")

    def __init__(self, text: str, read: Callable[[Any], object]) -> None:
        self.text = text
        self._read = read

    def __call__(self, exc: Any) -> object:
        return self._read(exc)

    def __repr__(self) -> str:
        return f"<{self.text}>"


class Field:
    """One fact on an exception, and how it is read and written.

    Args:
        name: how people call it.
        get: reads it; what it raises means that there is none.
        put: writes a value on a stand-in.
        number: whether it is a whole number rather than a word.
        role: which of a user's answers belongs here: "status", "code" or "text".
    """

    __slots__ = ("_get", "name", "number", "put", "role")

    def __init__(
        self,
        name: str,
        get: Callable[[Any], object],
        put: Callable[[Any, Any], object],
        *,
        number: bool = False,
        role: str = "code",
    ) -> None:
        self.name = name
        self.number = number
        self.put = put
        self.role = role
        self._get = get

    def get(self, exc: object) -> str | int | None:
        """The value, None where there is none or it is nothing that a rule could compare."""
        value = ask(self._get, exc)
        if self.number:
            return plain_int(value)
        return plain_text(value, _LONGEST)

    def among(self, *values: str | int) -> Condition:
        """Whether the value is one of these."""
        wanted = frozenset(values)
        shown = ", ".join(str(value) for value in values)
        verb = "is" if len(values) == 1 else "is one of"
        return Condition(f"{self.name} {verb} {shown}", lambda exc: self.get(exc) in wanted, (self,))

    def within(self, low: int, high: int) -> Condition:
        """Whether the number lies in this range, both ends included."""

        def inside_it(exc: object) -> bool:
            value = self.get(exc)
            return isinstance(value, int) and low <= value <= high

        return Condition(f"{self.name} is {low} to {high}", inside_it, (self,))

    def starting(self, *prefixes: str) -> Condition:
        """Whether the word begins with one of these."""

        def begins(exc: object) -> bool:
            value = self.get(exc)
            return isinstance(value, str) and value.startswith(prefixes)

        return Condition(f"{self.name} begins with {' or '.join(prefixes)}", begins, (self,))

    @property
    def missing(self) -> Condition:
        """Whether there is no such value."""
        return Condition(f"there is no {self.name}", lambda exc: self.get(exc) is None, (self,))

    def __repr__(self) -> str:
        return f"<field {self.name}>"


# ------------------------------------------------------------------------------------------------ common fields
def _put_status(exc: Any, value: int) -> None:
    exc.status_code = value


def attribute(name: str, *, number: bool = False, shown: str = "") -> Field:
    """A fact that stands in an attribute of its own."""
    return Field(
        shown or name, lambda exc: getattr(exc, name), lambda exc, value: setattr(exc, name, value), number=number
    )


STATUS = Field("status", read_status, _put_status, number=True, role="status")

FIRST_ARGUMENT = Field(
    "number",
    lambda exc: exc.args[0],
    lambda exc, value: setattr(exc, "args", (value, *exc.args)),
    number=True,
)


def text_of(exc: object) -> str:
    """The exception's text, cut; "" where it has none that can be had for little."""
    args = members_of(read(exc, "args"), _MOST_ARGS)
    if any(_is_long(arg) for arg in args):
        return shown(args)
    text = ask(str, exc)
    return text[:_MOST_TEXT] if type(text) is str else ""


def _is_long(arg: object) -> bool:
    if type(arg) is str:
        return len(arg) > _MOST_TEXT
    return type(arg) is dict or (type(arg) in (list, tuple, set) and len(arg) > _MOST_ARGS)  # type: ignore[arg-type]  # it has a length


def shown(thing: Any) -> str:
    """The words in a structure of dicts and lists, and no more of it than anybody would read."""
    words: list[str] = []
    waiting: list[Any] = [thing]
    for _ in range(_MOST_PARTS):
        if not waiting:
            break
        part = waiting.pop()
        if type(part) is str:
            words.append(part[:_MOST_TEXT])
        elif issubclass(type(part), dict):
            for key, value in islice(dict.items(part), _MOST_ARGS):
                waiting += [value, key]
        else:
            waiting += reversed(members_of(part, _MOST_ARGS))
    return " ".join(words)[:_MOST_TEXT]


def says(*phrases: str) -> Condition:
    """Whether one of these phrases is in the exception's text."""
    shown = " or ".join(f'"{phrase}"' for phrase in phrases)
    return Condition(f"the text has {shown}", lambda exc: any(phrase in text_of(exc) for phrase in phrases), (MESSAGE,))


def opens_with(*words: str) -> Condition:
    """Whether the exception's text begins with one of these."""
    shown = " or ".join(word.strip() for word in words)
    return Condition(f"the text begins with {shown}", lambda exc: text_of(exc).startswith(words), (MESSAGE,))


def _put_message(exc: Any, value: str) -> None:
    exc.args = (*exc.args, value)


MESSAGE = Field("text", text_of, _put_message, role="text")


def header(name: str, value: str) -> Condition:
    """Whether a response header has this value."""

    def has_it(exc: object) -> bool:
        for lookup in lookups_of(exc):
            found = plain_text(lookup(name), _LONGEST)
            if found is not None:
                return found.strip().lower() == value
        return False

    return Condition(f"header {name} is {value}", has_it)


def flag(name: str, *, shown: str = "") -> Condition:
    """Whether an attribute is true."""
    return Condition(shown or f"{name} is true", lambda exc: getattr(exc, name) is True)


def inside(thing: object, *keys: str) -> Any:
    """An entry of nested dicts; None where one of them is missing."""
    for key in keys:
        thing = entry(thing, key)
    return thing


def body_of(exc: object) -> object:
    """The parsed body that the Stainless-made SDKs keep."""
    return read(exc, "body")
