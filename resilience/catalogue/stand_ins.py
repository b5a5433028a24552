"""Exceptions of which only the name and a few facts are known, for `resilience explain`.

The facts are put where the exception's own library would keep them, so that the rules
find them there.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from resilience._core.reading import mro_of, name_of, namespace_of, segment_of
from resilience._core.rule import spellings
from resilience.catalogue.conditions import MESSAGE, STATUS
from resilience.catalogue.homes import rules_of
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from resilience._core.rule import Rule
    from resilience.catalogue.conditions import Field

# Classes that botocore makes at run time, which nobody can import.
_MADE_AT_RUN_TIME = {"botocore.errorfactory": "botocore.exceptions.ClientError"}


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
        cause: the dotted name of the class of what lies inside it (default: none).
        load: import the class, so that its bases are known too (default: only those of the standard
            library and of this one are).

    Raises:
        ConfigurationError: `name` or `cause` names no exception class, or its module can't be imported.
    """
    exc: Any = _bare("exception", name, load)
    rules = [*_rules_about(type(exc))]
    if code is not None and type(exc) is OSError:
        return _os_error(code, message)
    if message:
        exc.args = (message,)
    if headers:
        exc.headers = dict(headers)
    fields = _fields_of(rules)
    if code is not None:
        _put_code(exc, fields, code)
    if message:
        for field in fields:
            if field.role == "text" and field is not MESSAGE:
                field.put(exc, message)
    if status is not None:
        STATUS.put(exc, status)
    if cause is not None:
        _put_cause(exc, rules, _bare("cause", cause, load))
    return exc  # type: ignore[no-any-return]  # an exception


def unread(name: str, *, status: int | None, code: str | None, message: str, load: bool = False) -> list[str]:
    """Which of these facts no rule about this class asks for, and which one would be missed."""
    rules = [*_rules_about(_class_of("exception", name, load))]
    roles = {field.role for field in _fields_of(rules)}
    by_status = any(rule.by_status for rule in rules)
    notes = []
    if code is not None and "code" not in roles and name not in ("OSError", "builtins.OSError"):
        notes.append("no rule about this class asks for a code")
    if message and "text" not in roles:
        notes.append("no rule about this class asks for its text")
    if status is None and by_status:
        notes.append("the status decides about this class: give --status")
    return notes


def is_named(name: str) -> bool:
    """Whether a rule of the catalogue is about exactly this class."""
    return any(
        rule.match == f"{segment}:{qualname}" for segment, qualname in spellings(name) for rule in rules_of(segment)
    )


# ------------------------------------------------------------------------------------------------ facts
def _put_code(exc: Any, fields: list[Field], code: str) -> None:
    codes = [field for field in fields if field.role == "code"]
    for field in codes:
        if not field.number:
            field.put(exc, code)
        elif code.removeprefix("-").isdecimal():
            field.put(exc, int(code))
    if not codes:
        exc.code = code


def _os_error(code: str, message: str) -> OSError:
    """Python chooses the class by the number."""
    number = int(code) if code.isdecimal() else getattr(errno, code, None)
    return OSError(message) if number is None else OSError(number, message)


def _put_cause(exc: Any, rules: list[Rule], cause: BaseException) -> None:
    """What lies inside stands as the cause, and where the rules look for it."""
    exc.__cause__ = cause
    for rule in rules:
        if isinstance(rule.unwrap, str):
            if rule.unwrap != "__context__":
                setattr(exc, rule.unwrap, cause)
        elif rule.unwrap is not None:
            # Wherever its function may look: the driver's error, an argument, a last attempt.
            exc.orig, exc.args = cause, (cause, cause)
            exc.last_attempt = SimpleNamespace(failed=True, exception=lambda: cause)


def _fields_of(rules: list[Rule]) -> list[Field]:
    """The facts that rules ask for, each once."""
    found: dict[int, Field] = {}
    for rule in rules:
        for field in getattr(rule.when, "fields", ()):
            found[id(field)] = field
    return list(found.values())


def _rules_about(kind: type) -> Iterator[Rule]:
    for base in mro_of(kind):
        module, qualname = name_of(base)
        for rule in rules_of(segment_of(module)):
            if str(rule.match).partition(":")[2] == qualname:
                yield rule


# ------------------------------------------------------------------------------------------------ classes
def _bare(parameter: str, name: str, load: bool) -> BaseException:
    """An instance that carries nothing yet."""
    kind = _class_of(parameter, name, load)
    if issubclass(kind, BaseExceptionGroup):
        raise ConfigurationError(
            f"{parameter} must be a single exception, {name!r} is read by its leaves: name one of them"
        )
    return kind.__new__(kind)


def _class_of(parameter: str, name: str, load: bool) -> type[BaseException]:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigurationError(f"{parameter} must be the dotted name of an exception class, got {name!r}")
    module, _, qualname = name.rpartition(".")
    made = _MADE_AT_RUN_TIME.get(module)
    if made is not None:
        return type(qualname, (_class_of(parameter, made, False),), {"__module__": module})
    if module and not load and parts[0] not in sys.stdlib_module_names and parts[0] != "resilience":
        return type(qualname, (Exception,), {"__module__": module})
    found = _imported(parameter, name)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ConfigurationError(f"{parameter} must be the name of an exception class, and {name!r} is none")
    return _twin(found)


def _twin(kind: type[BaseException]) -> type[BaseException]:
    """The same names along the bases, without what its library does when an instance is made."""
    if name_of(kind)[0].partition(".")[0] in sys.stdlib_module_names:
        return kind
    bases = tuple(_twin(base) for base in kind.__bases__ if issubclass(base, BaseException))
    module, qualname = name_of(kind)
    said = {name: value for name, value in namespace_of(kind).items() if name in ("fault_kind", "fault_flags")}
    return type(kind.__name__, bases, {"__module__": module, "__qualname__": qualname, **said})


def _imported(parameter: str, name: str) -> object:
    parts = name.split(".") if "." in name else ["builtins", name]
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            found: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{module}.".startswith(f"{error.name}."):
                continue
            raise ConfigurationError(f"{parameter} must be in a module that can be imported: {error}") from error
        except Exception as error:  # whatever the module does when it is imported
            raise ConfigurationError(
                f"{parameter} must be in a module that can be imported, {name!r} raised {error!r}"
            ) from error
        for part in parts[length:]:
            if not hasattr(found, part):
                raise ConfigurationError(f"{parameter} must be the name of an exception class: {module} has no {part}")
            found = getattr(found, part)
        return found
    raise ConfigurationError(f"{parameter} must be in a module that can be imported: no module is called {parts[0]}")
