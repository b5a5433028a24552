"""Exceptions of which only the name and a few facts are known, for `resilience explain`.

The facts are put where the exception's own library would keep them, so that the rules
find them there.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from resilience._core.reading import mro_of, name_of, segment_of
from resilience._core.rule import spellings
from resilience.catalogue.conditions import MESSAGE, STATUS
from resilience.catalogue.homes import rules_of
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resilience.catalogue.conditions import Field


def stand_in(
    name: str,
    *,
    status: int | None = None,
    code: str | None = None,
    message: str = "",
    headers: Mapping[str, str] | None = None,
    cause: str | None = None,
    load: bool = False,
) -> BaseException:
    """Make an exception of which only the name and a few facts are known.

    Args:
        name: the dotted name of its class, such as `openai.RateLimitError`.
        status: the HTTP status it carries (default: none).
        code: the library's own error code: a word, SQLSTATE, number or gRPC status (default: none).
        message: its text (default: empty).
        headers: the response's headers (default: none).
        cause: the dotted name of the class of its cause (default: none).
        load: import the class, so that its bases are known too (default: only what the standard
            library defines is).

    Raises:
        ConfigurationError: `name` or `cause` names no exception class, or its module can't be imported.
    """
    kind = _class_of("exception", name, load)
    exc: Any = kind.__new__(kind)
    if kind is OSError and hasattr(errno, code or ""):
        # Python chooses the class by the number.
        exc = OSError(getattr(errno, code or ""), message)
    if message:
        exc.args = (message,)
    if headers:
        exc.headers = dict(headers)
    fields = _fields_of(kind)
    if code is not None:
        _put_code(exc, fields, code)
    if message:
        for field in fields:
            if field.role == "text" and field is not MESSAGE:
                field.put(exc, message)
    if status is not None:
        STATUS.put(exc, status)
    if cause is not None:
        reason = _class_of("cause", cause, load)
        exc.__cause__ = reason.__new__(reason)
    return exc  # type: ignore[no-any-return]  # an instance of `kind`


def _put_code(exc: Any, fields: list[Field], code: str) -> None:
    codes = [field for field in fields if field.role == "code"]
    for field in codes:
        if not field.number:
            field.put(exc, code)
        elif code.removeprefix("-").isdecimal():
            field.put(exc, int(code))
    if not codes:
        exc.code = code


def _fields_of(kind: type) -> list[Field]:
    """The facts that the catalogue's rules for this class and its bases ask for, each once."""
    found: dict[int, Field] = {}
    for base in mro_of(kind):
        module, qualname = name_of(base)
        for rule in rules_of(segment_of(module)):
            if str(rule.match).partition(":")[2] == qualname:
                for field in getattr(rule.when, "fields", ()):
                    found[id(field)] = field
    return list(found.values())


def _class_of(parameter: str, name: str, load: bool) -> type[BaseException]:
    module, _, qualname = name.rpartition(".")
    module = module or "builtins"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{parameter} must be the dotted name of an exception class, got {name!r}")
    if not load and module.partition(".")[0] not in sys.stdlib_module_names:
        return type(qualname, (Exception,), {"__module__": module})
    try:
        found = _imported(name)
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigurationError(
            f"{parameter} must be in a module that can be imported, {name!r} raised {error!r}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ConfigurationError(f"{parameter} must be the name of an exception class, and {name!r} is none")
    return found


def _imported(name: str) -> object:
    parts = name.split(".") if "." in name else ["builtins", name]
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found
    return None


def is_named(name: str) -> bool:
    """Whether a rule of the catalogue is about exactly this class."""
    return any(
        rule.match == f"{segment}:{qualname}" for segment, qualname in spellings(name) for rule in rules_of(segment)
    )
