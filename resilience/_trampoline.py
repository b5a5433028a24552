"""Functions of our own that call what they are given: how the straight path reaches other callables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.checks import COROUTINE, code_flags
from resilience._marks import copy_marks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from resilience._engine.kinds import Kind


def trampoline(kind: Kind, target: object) -> FunctionType:
    """A function of its own that calls what it is given; it carries the marks of `target`."""
    made = _async_call() if kind.returns_coroutine else _sync_call()
    copy_marks(target, made)
    return made  # type: ignore[no-any-return]  # made right below


def tell_signature(made: FunctionType, target: Callable[..., Any]) -> None:
    """Let a trampoline say which parameters `target` has, and in which places, where anybody can tell."""
    import inspect

    try:
        signature = inspect.signature(target)
    except (ValueError, TypeError):
        return
    callee = inspect.Parameter("_r_callee", inspect.Parameter.POSITIONAL_ONLY)
    told = signature.replace(parameters=[callee, *signature.parameters.values()])
    made.__signature__ = told  # type: ignore[attr-defined]  # where inspect looks first


def without_callee(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for the arguments of a trampoline: it gets those of the call, without the callable in front."""

    def call(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def acall(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    made: Any = acall if code_flags(function) & COROUTINE else call
    # By which `describe` knows it.
    made.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return made  # type: ignore[no-any-return]  # one of the two


def _sync_call() -> Any:
    def call(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return callee(*args, **kwargs)

    return call


def _async_call() -> Any:
    async def call(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await callee(*args, **kwargs)

    return call
