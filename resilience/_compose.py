"""Putting policies on a function: one wrapper, whatever the stacking, for whatever can be called.

A plain function gets the compiled straight path. Class and static methods are
re-made around a wrapper of their function. Everything else that can be called
(partials, builtins, instances with `__call__`) is carried by a transparent proxy.
"""

from __future__ import annotations

import warnings
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from resilience._assembly import Assembly
from resilience._core.order import POSITION
from resilience._describe import ATTRIBUTE, Description, own_description
from resilience._engine.straight import Shape, compile_wrapper, rebind
from resilience._settings import Policy, one_of_each
from resilience._trampoline import trampoline
from resilience.errors import CompositionWarning, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


def decorate(target: Any, *policies: Policy) -> Any:
    """`target` with policies added to those it has; one wrapper, in the fixed order.

    Raises:
        ConfigurationError: not a callable, a class, a generator function, two policies of a
            kind, or a policy that this function can't carry.
    """
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(decorate(target.__func__, *policies))
    _refuse_what_is_no_function(target)
    found = own_description(target)
    if found is not None:
        target, policies = found.fn, (*found.policies, *policies)
    one_of_each(policies)
    _refuse_generators(target)
    if found is None:
        _warn_of_foreign_order(target, policies)
    own_bulkhead = None if found is None else found.own_bulkhead
    if type(target) is FunctionType:
        return _wrap_function(target, Assembly(target, policies, is_async(target), label_of(target), own_bulkhead))
    return _wrap_object(target, policies, own_bulkhead)


# ---------------------------------------------------------------------------------------------- plain functions
def _wrap_function(fn: FunctionType, assembly: Assembly) -> FunctionType:
    shape = assembly.shape or _plan_only(is_async(fn))
    closure = assembly.closure if assembly.shape else {"circuit": None, "slow": assembly.run}
    wrapper = compile_wrapper(fn, shape, closure)
    wrapper.__module__ = fn.__module__
    wrapper.__name__ = fn.__name__
    wrapper.__qualname__ = fn.__qualname__
    wrapper.__doc__ = fn.__doc__
    wrapper.__annotations__ = fn.__annotations__
    if hasattr(fn, "__type_params__"):
        wrapper.__type_params__ = fn.__type_params__
    wrapper.__dict__.update(fn.__dict__)
    wrapper.__wrapped__ = fn  # type: ignore[attr-defined]  # as functools.wraps does
    _put_description(wrapper, assembly.description)
    _rebind_when_found(wrapper, assembly)
    return wrapper


def _rebind_when_found(wrapper: FunctionType, assembly: Assembly) -> None:
    if assembly.pending and assembly.shape is not None:

        def found() -> None:
            rebind(wrapper, assembly.shared_closure())

        assembly.on_found = found  # type: ignore[method-assign]  # a hook, empty until here


def _put_description(wrapper: Any, description: Description) -> None:
    description.attach(wrapper)
    setattr(wrapper, ATTRIBUTE, description)


# ---------------------------------------------------------------------------------------------- everything else
def _wrap_object(target: Any, policies: tuple[Policy, ...], own_bulkhead: Any) -> Any:
    # Only now: wrapt is needed by few, and costs everybody who imports it.
    from resilience._proxy import PolicyProxy

    through = trampoline(is_async(target), target)
    assembly = Assembly(through, policies, is_async(target), label_of(target), own_bulkhead)
    assembly.description.stands_for(target)
    call = _wrap_function(through, assembly)
    return PolicyProxy(target, call, assembly.description)


# ---------------------------------------------------------------------------------------------- what it is
def is_async(target: Any) -> bool:
    """Whether calling it gives a coroutine to await: coroutine functions, partials of them, async `__call__`."""
    while type(target).__name__ == "partial" and hasattr(target, "func"):
        target = target.func
    if isinstance(target, MethodType):
        target = target.__func__
    code = getattr(target, "__code__", None)
    if code is None:
        code = getattr(getattr(type(target), "__call__", None), "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _COROUTINE)


def label_of(target: Any) -> str:
    """`module:qualname` of a callable; of its type where it has no name."""
    named = target.func if type(target).__name__ == "partial" and hasattr(target, "func") else target
    name = getattr(named, "__qualname__", None)
    if not isinstance(name, str):
        named, name = type(named), type(named).__qualname__
    return f"{getattr(named, '__module__', None) or 'builtins'}:{name}"


def _refuse_what_is_no_function(target: Any) -> None:
    if isinstance(target, type):
        raise ConfigurationError(f"fn must be a function, got the class {target.__name__}: decorate its methods")
    if isinstance(target, property):
        raise ConfigurationError("fn must be a function, got a property: put the policy below @property")
    if not callable(target):
        raise ConfigurationError(f"fn must be a function or another callable, got {type(target).__name__}")


def _refuse_generators(target: Any) -> None:
    while type(target).__name__ == "partial" and hasattr(target, "func"):
        target = target.func
    if isinstance(target, MethodType):
        target = target.__func__
    code = getattr(target, "__code__", None)
    if code is None:
        code = getattr(getattr(type(target), "__call__", None), "__code__", None)
    flags = getattr(code, "co_flags", 0)
    if flags & _ASYNC_GENERATOR or (flags & _GENERATOR and not flags & _ITERABLE_COROUTINE):
        kind = "an async generator function" if flags & _ASYNC_GENERATOR else "a generator function"
        raise ConfigurationError(
            f"fn must return its result, {label_of(target)} is {kind}: its items would come unprotected. "
            "Streams are not available in this version; put `with breaker(...).guard():` around the loop"
        )


def _warn_of_foreign_order(target: Any, policies: tuple[Policy, ...]) -> None:
    """A foreign decorator between ours keeps them apart, so they apply as stacked, which may be the wrong way round."""
    seen: set[int] = set()
    below: Any = target
    while below is not None and id(below) not in seen:
        seen.add(id(below))
        below = getattr(below, "__wrapped__", None)
        found = own_description(below)
        if found is None:
            continue
        ours = [(policy.kind, layer) for policy in policies for layer in policy.places()]
        theirs = [(policy.kind, layer) for policy in found.policies for layer in policy.places()]
        for kind, layer in ours:
            for inner_kind, inner_layer in theirs:
                if POSITION[layer] >= POSITION[inner_layer]:
                    warnings.warn(
                        f"{label_of(target)}: {kind} stands outside {inner_kind}, with a foreign decorator between them; "
                        f"it belongs inside. Put the foreign decorator above or below all policies",
                        CompositionWarning,
                        stacklevel=5,
                    )
                    return


def _plan_only(is_async: bool) -> Shape:
    """A wrapper whose every call takes the plan: a circuit that is never closed."""
    return Shape(is_async, breaker=True, windowed=False, bulkhead=False, budget=False, retry=False, fail_fast=False)


def caller(policies: tuple[Policy, ...], target: Any) -> FunctionType:
    """A function that calls any callable like `target` (its first argument) under the policies."""
    _refuse_what_is_no_function(target)
    _refuse_generators(target)
    through = trampoline(is_async(target), target)
    through.__name__ = through.__qualname__ = "compose"
    return _wrap_function(through, Assembly(through, policies, is_async(target), "resilience:compose"))
