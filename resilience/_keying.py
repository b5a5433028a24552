"""Where a call's key comes from: the parameters that `key=` names, or what its function says of the arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from resilience._policies.site_keys import Read


def spelled(key: Any) -> str:
    """`key=` as people read it: the parameters' names, or the function's."""
    names = names_of(key)
    return ",".join(names) if names else str(getattr(key, "__qualname__", type(key).__qualname__))


def names_of(key: Any) -> tuple[str, ...]:
    """The parameters that `key=` names, none where it is a function."""
    return key.names if isinstance(key, OfCallee) else key if isinstance(key, tuple) else ()


def missing_names(fn: Any, key: Any) -> list[str]:
    """Which of the names are no parameters of a callable; none where it does not tell what it has."""
    return [name for name in names_of(key) if not isinstance(key, OfCallee) and _place(fn, name) is None]


def reader_of(fn: Any, key: Any) -> Read:
    """A function of a call's arguments that gives the parts of its key; it may raise."""
    if not isinstance(key, tuple):
        return lambda args, kwargs: key(*args, **kwargs)
    places = [(name, *(_place(fn, name) or _ANYWHERE)) for name in key]

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(
            args[place] if 0 <= place < len(args) else kwargs.get(name, default) for name, place, default in places
        )

    return read


class OfCallee:
    """Names that are looked for among the parameters of whatever a trampoline is given to call."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        # Hardly ever more than one: the latest, and how it is read.
        self._latest: tuple[Any, Read] = (self, lambda args, kwargs: None)

    def __call__(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        known, read = self._latest
        if known is not callee:
            read = reader_of(callee, self.names)
            self._latest = (callee, read)
        return read(args, kwargs)


def check_names(fn: Any, key: Any, label: str) -> None:
    """Refuse a callable without the parameters that `key=` names.

    Raises:
        ConfigurationError: naming those it lacks.
    """
    missing = missing_names(fn, key)
    if missing:
        raise ConfigurationError(lacks(label, missing))


def lacks(label: str, missing: list[str]) -> str:
    """What is wrong where parameters are missing."""
    return (
        f"key must name parameters of {label}, or be a function of its arguments; it has no {' and no '.join(missing)}"
    )


_NOWHERE: Any = object()
"""Stands for an argument that nobody gave: it is no key."""
_ANYWHERE = (-1, _NOWHERE)
"""A parameter that is given by name only."""


def _place(fn: Any, name: str) -> tuple[int, Any] | None:
    """Which positional argument a parameter is (-1: none) and its default; None where there is no such parameter."""
    import inspect

    try:
        parameters = inspect.signature(fn).parameters
    except (ValueError, TypeError):
        # A builtin that does not tell.
        return _ANYWHERE
    found = parameters.get(name)
    if found is None or found.kind in (found.VAR_POSITIONAL, found.VAR_KEYWORD):
        fixed = _fixed(fn)
        if name in fixed:
            return -1, fixed[name]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        return _ANYWHERE if takes_any else None
    default = _NOWHERE if found.default is found.empty else found.default
    if found.kind is found.KEYWORD_ONLY:
        return -1, default
    return list(parameters).index(name), default


def _fixed(fn: Any) -> dict[str, Any]:
    """The arguments that a partial has fixed, by name."""
    import inspect

    if not isinstance(fn, partial):
        return {}
    return {**inspect.signature(fn.func).bind_partial(*fn.args, **fn.keywords).arguments, **_fixed(fn.func)}
