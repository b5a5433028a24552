"""Putting policies on a function: one wrapper, whatever the stacking, for whatever can be called.

A plain function gets the compiled straight path. Class and static methods are
re-made around a wrapper of their function. Everything else that can be called
(partials, builtins, instances with `__call__`) is carried by a transparent proxy.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial, update_wrapper
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from resilience._assembly import Assembly
from resilience._assembly.fitting import place_of, takes
from resilience._core.order import POSITION
from resilience._describe import ATTRIBUTE, Description, own_description
from resilience._engine.kinds import Kind
from resilience._engine.source import Shape
from resilience._engine.straight import compile_wrapper, rebind
from resilience._keying import OfCallee, check_names
from resilience._marks import is_idempotent, is_uninterruptible, worker_limit
from resilience._settings import Policy, one_of_each
from resilience._trampoline import tell_signature, trampoline, without_callee
from resilience.errors import CompositionWarning, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from resilience._policies.bulkhead import SharedBulkhead

_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200
_DEEPEST = 64


def decorate(target: Any, *policies: Policy) -> Any:
    """`target` with policies added to those it has; one wrapper, in the fixed order.

    Raises:
        ConfigurationError: not a callable, a class, two policies of a
            kind, or a policy that this function can't carry.
    """
    # By `type`, not `isinstance`: a foreign proxy around one of these claims its class, and must not be skipped.
    if issubclass(type(target), (staticmethod, classmethod)):
        return type(target)(decorate(target.__func__, *policies))
    if type(target) is MethodType:
        return MethodType(decorate(target.__func__, *policies), target.__self__)
    _refuse_what_is_no_function(target)
    found = own_description(target)
    if found is not None:
        target, policies = found.fn, (*found.policies, *policies)
    one_of_each(policies)
    policies = tuple(sorted(policies, key=lambda policy: POSITION[policy.places()[0]]))
    _refuse_context_managers(target)
    if found is None:
        _warn_of_foreign_order(target, policies)
    own_bulkhead = None if found is None else found.own_bulkhead
    if type(target) is FunctionType:
        return _wrap_function(
            target, Assembly(target, policies, kind_of(target, policies), label_of(target), own_bulkhead)
        )
    return _wrap_object(target, policies, own_bulkhead)


# ---------------------------------------------------------------------------------------------- plain functions
def _wrap_function(fn: FunctionType, assembly: Assembly) -> FunctionType:
    shape = assembly.shape or Shape(assembly.kind.is_async, breaker=True, items=assembly.kind.is_generator)
    closure = assembly.closure if assembly.shape else {"circuit": _NEVER_CLOSED, "slow": assembly.run}
    wrapper = compile_wrapper(fn, shape, closure, assembly.filled_in)
    update_wrapper(wrapper, fn)
    _put_description(wrapper, assembly.description)
    _rebind_when_found(wrapper, assembly)
    return wrapper


_NEVER_CLOSED = SimpleNamespace(closed=0)
"""The circuit of a wrapper whose every call takes the plan."""


def _rebind_when_found(wrapper: FunctionType, assembly: Assembly) -> None:
    if assembly.shape is not None:
        assembly.on_found = partial(rebind, wrapper)


def _put_description(wrapper: Any, description: Description) -> None:
    description.attach(wrapper)
    setattr(wrapper, ATTRIBUTE, description)


# ---------------------------------------------------------------------------------------------- everything else
def _wrap_object(target: Any, policies: tuple[Policy, ...], own_bulkhead: Any) -> Any:
    # Only now: wrapt is needed by few, and costs everybody who imports it.
    from resilience._proxy import AsyncPolicyProxy, PolicyProxy

    kind = kind_of(target, policies)
    through = trampoline(kind, target)
    for policy in policies:
        check_names(target, getattr(policy, "key", None), label_of(target))
    if _filled_in(policies) is not None:
        tell_signature(through, target)
    assembly = Assembly(through, _through(policies), kind, label_of(target), own_bulkhead)
    assembly.description.stands_for(target, policies)
    call = _wrap_function(through, assembly)
    return (AsyncPolicyProxy if kind.returns_coroutine else PolicyProxy)(target, call, assembly.description)


def _through(policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Policies for a trampoline: a user's function of the call's arguments must not meet the callable in front."""
    return tuple(map(_for_trampoline, policies))


def _for_trampoline(policy: Policy) -> Policy:
    values = policy.as_dict()
    changed: dict[str, Any] = {
        name: without_callee(values[name]) for name in ("fallback", "unless") if callable(values.get(name))
    }
    key = values.get("key")
    if key is not None:
        changed["key"] = OfCallee(key) if isinstance(key, tuple) else without_callee(key)
    return type(policy)(**{**values, **changed}) if changed else policy


COMPOSED = "resilience:compose"
"""The call site of all single calls under a set of policies."""


def caller(policies: tuple[Policy, ...], target: Any, own_bulkhead: SharedBulkhead | None = None) -> FunctionType:
    """A function that calls any callable of the sort of `target` (its first argument) under the policies."""
    _refuse_what_is_no_function(target)
    _refuse_context_managers(target)
    kind = kind_of(target, policies)
    through = trampoline(kind, target)
    through.__name__ = through.__qualname__ = "compose"
    if _filled_in(policies) is not None:
        tell_signature(through, target)
    return _wrap_function(through, Assembly(through, _through(policies), kind, COMPOSED, own_bulkhead))


def sort_of(target: Any, policies: tuple[Policy, ...]) -> tuple[object, ...]:
    """What a `caller` depends on: two callables of one sort are called by the same."""
    name = _filled_in(policies)
    filled_in = None if name is None else (takes(target, name), place_of(target, name))
    return kind_of(target, policies), is_idempotent(target), is_uninterruptible(target), worker_limit(target), filled_in


def _filled_in(policies: tuple[Policy, ...]) -> str | None:
    """The parameter that is handed the seconds left, where a policy says so."""
    return next((name for policy in policies if (name := getattr(policy, "pass_as", None)) is not None), None)


# ---------------------------------------------------------------------------------------------- what it is
def kind_of(target: Any, policies: Iterable[Policy]) -> Kind:
    """What calling it gives: told by its code (also behind partials, and of a `__call__`), and by `stream=True` on a policy."""
    flags = _flags_of(target)
    if flags & _ASYNC_GENERATOR:
        return Kind.ASYNC_GENERATOR
    if flags & _GENERATOR and not flags & _ITERABLE_COROUTINE:
        return Kind.GENERATOR
    declared = any(policy.stream for policy in policies)
    if _is_coroutine_function(target, flags):
        return Kind.ASYNC_OPENING if declared else Kind.COROUTINE
    return Kind.OPENING if declared else Kind.PLAIN


def _is_coroutine_function(target: Any, flags: int) -> bool:
    if flags & (_COROUTINE | _ITERABLE_COROUTINE):
        return True
    # Marked by inspect.markcoroutinefunction, which nobody can have called without importing inspect.
    inspect = sys.modules.get("inspect")
    return inspect is not None and bool(inspect.iscoroutinefunction(target))


def label_of(target: Any) -> str:
    """`module:qualname` of a callable, of its type where it has no name; on one line whatever they hold."""
    named = _behind_partials(target)
    name = getattr(named, "__qualname__", None)
    if not isinstance(name, str):
        named, name = type(named), type(named).__qualname__
    module = getattr(named, "__module__", None)
    label = f"{module if isinstance(module, str) else 'builtins'}:{name}"
    return label if label.isprintable() else ascii(label)[1:-1]


def _behind_partials(target: Any) -> Any:
    while isinstance(target, partial):
        target = target.func
    return target


def _flags_of(target: Any) -> int:
    """The code flags of what runs in the end: behind partials, of a method's function, of a class's `__call__`."""
    target = _behind_partials(target)
    target = getattr(target, "__func__", target)
    for place in (target, getattr(type(target), "__call__", None)):  # noqa: B004  # the method is wanted
        flags = getattr(getattr(place, "__code__", None), "co_flags", None)
        if isinstance(flags, int):
            return flags
    return 0


def _refuse_what_is_no_function(target: Any) -> None:
    if isinstance(target, type):
        raise ConfigurationError(f"fn must be a function, got the class {target.__name__}: decorate its methods")
    if isinstance(target, property):
        raise ConfigurationError("fn must be a function, got a property: put the policy below @property")
    if not callable(target):
        raise ConfigurationError(f"fn must be a function or another callable, got {type(target).__name__}")


def _refuse_context_managers(target: Any) -> None:
    if type(target) is FunctionType and target.__globals__.get("__name__") == "contextlib":
        raise ConfigurationError(
            f"fn must do its work when called, {label_of(target)} only makes a context manager: "
            "put `with breaker(...).guard():` around or inside the block instead"
        )


# ---------------------------------------------------------------------------------------------- what is below it
def _warn_of_foreign_order(target: Any, policies: tuple[Policy, ...]) -> None:
    """A foreign decorator between ours keeps them apart, so they apply as stacked, which may be the wrong way round."""
    ours = [(policy.kind, layer) for policy in policies for layer in policy.places()]
    for found in _descriptions_below(target):
        theirs = [(policy.kind, layer) for policy in found.policies for layer in policy.places()]
        for kind, layer in ours:
            for inner_kind, inner_layer in theirs:
                if POSITION[layer] >= POSITION[inner_layer]:
                    warnings.warn(
                        f"{label_of(target)}: {kind} stands outside {inner_kind}, with a foreign decorator between them; "
                        f"it belongs inside. Put the foreign decorator above or below all policies",
                        CompositionWarning,
                        stacklevel=_level_outside(),
                    )
                    return


def _descriptions_below(target: Any) -> Iterator[Description]:
    """Our wrappers under foreign ones, as far as partials and `__wrapped__` lead to them."""
    for _ in range(_DEEPEST):
        found = own_description(target) or own_description(getattr(target, "__func__", None))
        if found is not None:
            yield found
        target = target.func if isinstance(target, partial) else getattr(target, "__wrapped__", None)
        if target is None:
            return


def _level_outside() -> int:
    """The `stacklevel` of the frame that decorates, for a caller in this module."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("resilience."):
        frame, level = frame.f_back, level + 1
    return level
