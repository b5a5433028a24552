"""A transparent stand-in for callables that are no plain functions.

wrapt carries attributes, identity and binding; what a call does is the compiled
wrapper of a trampoline, which gets the (bound) callable as its first argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from types import FunctionType

    from resilience._describe import Description


class PolicyProxy(wrapt.FunctionWrapper):  # type: ignore[misc]  # wrapt ships no types for it
    """The callable it wraps, with policies."""

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
