"""Reading foreign objects without trusting them.

An exception that arrives here was made by somebody else. Its properties may raise
anything, its `__class__` may lie, its `__eq__` may be a database query. So nothing is
set, hashed, compared or converted to text; attributes are read through `read`, types
are told by `type()`, and whatever a property raises means "nothing there". Only
KeyboardInterrupt and SystemExit pass: they may be somebody's Ctrl-C, not the property's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What is learnt of a class is remembered, so here nothing may be swallowed. The slots of
# `type` itself run no code of the class or of its metaclass.
_MRO: Any = type.__dict__["__mro__"].__get__
_NAMESPACE: Any = type.__dict__["__dict__"].__get__
_MODULE: Any = type.__dict__["__module__"].__get__
_QUALNAME: Any = type.__dict__["__qualname__"].__get__

_VENDORS = frozenset({"vendor", "vendored", "_vendor", "_vendored"})
_TWO_SEGMENTS = frozenset({"google", "azure"})


def read(thing: object, name: str) -> Any:
    """The attribute, or None if there is none or it can't be read."""
    try:
        return getattr(thing, name, None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def ask(question: Callable[..., Any], *args: Any) -> Any:
    """The answer of foreign code, or None if it raises."""
    try:
        return question(*args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def holds(condition: Callable[[Any], object], thing: object) -> bool:
    """Whether the condition is true; one that raises is not."""
    try:
        return bool(condition(thing))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return False


def is_exception(thing: object) -> TypeGuard[BaseException]:
    """Whether this is an exception object; `isinstance` would ask the object's own `__class__`."""
    return issubclass(type(thing), BaseException)


def members_of(thing: Any, most: int) -> list[Any]:
    """At most `most` items of a tuple or list, read past whatever its class overrides; else none."""
    if issubclass(type(thing), tuple):
        return [*tuple.__getitem__(thing, slice(most))]
    if issubclass(type(thing), list):
        return [*list.__getitem__(thing, slice(most))]
    return []


def plain_text(thing: Any, most: int) -> str | None:
    """A str, or bytes as text, of at most `most` characters; else None."""
    if issubclass(type(thing), str):
        return None if str.__len__(thing) > most else str.__str__(thing)
    if type(thing) is bytes and len(thing) <= most:
        return thing.decode("latin-1")
    return None


def plain_int(thing: Any) -> int | None:
    """What an int, an enum's member or another int in disguise stands for; None for a bool and all else."""
    return int.__index__(thing) if issubclass(type(thing), int) and type(thing) is not bool else None


def has_only_digits(text: str) -> bool:
    """Whether it is a number in plain ASCII digits, without a sign."""
    return text.isascii() and text.isdigit()


def mro_of(kind: type) -> tuple[type, ...]:
    """The bases of a class, whatever its own class makes of attributes."""
    return _MRO(kind)  # type: ignore[no-any-return]  # what the slot of `type` gives


def namespace_of(kind: type) -> Mapping[str, object]:
    """What a class itself defines."""
    return _NAMESPACE(kind)  # type: ignore[no-any-return]  # what the slot of `type` gives


def name_of(kind: type) -> tuple[str, str]:
    """`__module__` and `__qualname__` of a class, as text whatever is in them."""
    # A class made without a module has none, and then asking raises.
    module = ask(_MODULE, kind)
    return (module if type(module) is str else "?"), _QUALNAME(kind)


def segment_of(module: str) -> str:
    """The first segment of a module's name, two for packages that many distributions share.

    Libraries move their classes between private modules; the first segment stays. A copy
    inside another package (`pip._vendor.urllib3.exceptions`) is the library that it copies.
    """
    first, _, rest = without_vendor(module).partition(".")
    return f"{first}.{rest.partition('.')[0]}" if rest and first in _TWO_SEGMENTS else first


def without_vendor(module: str) -> str:
    """The module's name without the package that carries a copy of it."""
    if "vendor" in module:
        parts = module.split(".")
        for place in range(len(parts) - 2, -1, -1):
            if parts[place] in _VENDORS:
                return ".".join(parts[place + 1 :])
    return module


def has_base(kind: type, segment: str, qualname: str) -> bool:
    """Whether a class of this name is among the bases of `kind`, told without importing it."""
    for base in mro_of(kind):
        module, found = name_of(base)
        if found == qualname and segment_of(module) == segment:
            return True
    return False
