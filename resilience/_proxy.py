"""A transparent stand-in for callables that are no plain functions.

wrapt carries attributes, identity and binding; what a call does is the compiled
wrapper of a trampoline, which gets the (bound) callable as its first argument.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from types import FunctionType

    from resilience._describe import Description


class BoundPolicyProxy(wrapt.BoundFunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]  # typed since wrapt 2
    """A proxy bound by a descriptor of its own making; like a method it leads to what was bound."""

    @property
    def __func__(self) -> PolicyProxy:
        found: PolicyProxy = self._self_parent
        return found

    @property
    def resilience(self) -> Description:
        """What the policies are, in the order in which they apply."""
        found: Description = self.__func__.resilience
        return found


class PolicyProxy(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]  # typed since wrapt 2
    """The callable it wraps, with policies."""

    __bound_function_wrapper__ = BoundPolicyProxy

    def __init__(self, wrapped: Any, call: FunctionType, description: Description) -> None:
        def through(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return call(wrapped, *args, **kwargs)

        super().__init__(wrapped, through)
        self._self_description = description
        description.attach(self)

    @property
    def resilience(self) -> Description:
        """What the policies are, in the order in which they apply."""
        found: Description = self._self_description
        return found

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        target: Any = self.__wrapped__
        bind = getattr(type(target), "__get__", None)
        bound: Any = target if bind is None else bind(target, instance, owner)
        if bound is target:
            return self
        if type(bound) is MethodType and bound.__func__ is target:
            # As a function binds: the policies see the instance as the first argument.
            return MethodType(self, bound.__self__)
        return super().__get__(instance, owner)

    # Like a function: its copy is itself, and it is pickled by name.
    def __copy__(self) -> PolicyProxy:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PolicyProxy:
        return self

    def __reduce_ex__(self, protocol: Any) -> str:
        name = getattr(self, "__qualname__", None)
        if not isinstance(name, str):
            raise TypeError(f"a {type(self.__wrapped__).__name__} with policies has no name to be pickled by")
        return name


class AsyncPolicyProxy(PolicyProxy):
    """Its `__call__` is a coroutine function: that is how frameworks tell an async callable object."""

    async def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return await super().__call__(*args, **kwargs)
