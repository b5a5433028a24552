"""Functions of our own that call what they are given: how the straight path reaches other callables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType


def trampoline(is_async: bool, target: object) -> FunctionType:
    """A function of its own that calls what it is given; it carries the marks of `target`."""
    made = _async_call() if is_async else _sync_call()
    for name, value in getattr(target, "__dict__", {}).items():
        if isinstance(name, str) and name.startswith("__resilience_"):
            setattr(made, name, value)
    return made


def _sync_call() -> Any:
    def call(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return callee(*args, **kwargs)

    return call


def _async_call() -> Any:
    async def call(callee: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await callee(*args, **kwargs)

    return call
