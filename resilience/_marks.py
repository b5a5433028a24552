"""Marks next to a function: what it promises, for the policies above it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from resilience._core.checks import Faults
from resilience._describe import is_ours
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

_IDEMPOTENT = "__resilience_idempotent__"
_INTERRUPTIBLE = "__resilience_interruptible__"
_UNINTERRUPTIBLE = "__resilience_uninterruptible__"
_MARKS = (_IDEMPOTENT, _INTERRUPTIBLE, _UNINTERRUPTIBLE)

DEFAULT_WORKERS = 8


def idempotent(fn: F) -> F:
    """Promise that calling the function twice does no more than calling it once: `@retry` may repeat it.

    Stands next to the function, below every policy.

    Raises:
        ConfigurationError: put above a policy.
    """
    return _mark(fn, "idempotent", _IDEMPOTENT, True)  # type: ignore[no-any-return]  # what it was given


@overload
def interruptible(fn: F, /) -> F: ...
@overload
def interruptible(*, max_workers: int | None = None) -> Callable[[F], F]: ...
def interruptible(fn: Any = None, /, *, max_workers: int | None = None) -> Any:
    """Allow a timeout to give up on a plain function: each attempt runs on a daemon thread of this call site.

    The attempt is abandoned, not stopped: it runs on behind the caller's back to its
    own end. Don't use it for work that writes state; see the timeout page.

    Args:
        max_workers: attempts that may run or linger at one time (≥ 1); default: the
            function's `max_in_flight`, else 8. When all are busy a call is refused.

    Raises:
        ConfigurationError: put above a policy, or on an async function, or a bad number.
    """
    if fn is not None:
        return _mark(fn, "interruptible", _INTERRUPTIBLE, 0)
    if max_workers is not None:
        faults = Faults()
        faults.count("max_workers", max_workers)
        faults.raise_any()
    return lambda function: _mark(function, "interruptible", _INTERRUPTIBLE, max_workers or 0)


def uninterruptible(fn: F) -> F:
    """Keep every deadline and cancel from cutting an async function short: once begun, it is waited for.

    For work that must not be torn: a cancel that arrives meanwhile is raised when the
    function has ended, and an outer deadline only decides whether it starts.

    Raises:
        ConfigurationError: put above a policy.
    """
    return _mark(fn, "uninterruptible", _UNINTERRUPTIBLE, True)  # type: ignore[no-any-return]  # what it was given


def is_idempotent(fn: object) -> bool:
    """Whether the function is marked idempotent."""
    return _read(fn, _IDEMPOTENT) is True


def is_uninterruptible(fn: object) -> bool:
    """Whether the function is marked uninterruptible."""
    return _read(fn, _UNINTERRUPTIBLE) is True


def worker_limit(fn: object) -> int | None:
    """The number of workers of an interruptible function (0: the default), None for any other."""
    return _read(fn, _INTERRUPTIBLE)


def copy_marks(source: object, target: object) -> None:
    """Put the marks of a callable on a function that stands for it."""
    for mark in _MARKS:
        found = _read(source, mark)
        if found is not None:
            setattr(target, mark, found)


def _read(fn: object, mark: str) -> int | None:
    """The mark of a callable: its own, that of the function of a partial, or that of its class's `__call__`."""
    for place in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004  # the method is wanted
        found = getattr(place, mark, None)
        # Anything else is an answer of somebody's `__getattr__`, which promises nothing.
        if isinstance(found, int):
            return found
    return _read(fn.func, mark) if isinstance(fn, partial) else None


def _mark(fn: Any, name: str, attribute: str, value: object) -> Any:
    target = fn.__func__ if isinstance(fn, (staticmethod, classmethod)) else fn
    if is_ours(target) or is_ours(getattr(target, "__func__", None)):
        raise ConfigurationError(f"@{name} stands above a policy of {target!r}: move it down, next to the function")
    if not callable(target):
        raise ConfigurationError(f"@{name} marks a function, got {type(fn).__name__}")
    try:
        setattr(target, attribute, value)
    except (AttributeError, TypeError):
        raise ConfigurationError(
            f"@{name} can't mark {type(fn).__name__} objects, which take no attributes: "
            "wrap it in a function, or use the policy's own argument"
        ) from None
    return fn
