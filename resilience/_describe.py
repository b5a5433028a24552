"""What a decorated function is made of, in the order in which it applies."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

from resilience._core.record import Record
from resilience._policies.bulkhead import SharedBulkhead
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.order import Layer
    from resilience._policies.families import Family
    from resilience._policies.keyed_breaker import BreakerFamily, KeyedBreaker
    from resilience._policies.keyed_bulkhead import BulkheadFamily, KeyedBulkhead
    from resilience._policies.retry_budget import SharedRetryBudget

ATTRIBUTE = "resilience"


class DescribedLayer(Record):
    """One applied layer: its place in the order, and its settings as text."""

    layer: Layer
    settings: str

    def __str__(self) -> str:
        return f"{self.layer.value}({self.settings})"


class Description:
    """The policies of one decorated function. Frozen; `str()` is stable, one layer a line, outermost first.

    Attributes:
        name: `module:qualname` of the function.
        layers: the applied layers, outermost first.
        breaker: the shared breaker, None without one and where there is one for each key.
        family: the family of the breakers by key, None where there is only one.
        bulkhead, bulkhead_family: the same of bulkheads.
        retry_budget: the retry budget, None without one.
    """

    __slots__ = (
        "_breaker",
        "_bulkhead",
        "_retry_budget",
        "_wrapper",
        "fn",
        "layers",
        "name",
        "own_bulkhead",
        "policies",
    )

    name: str
    fn: Callable[..., Any]
    policies: tuple[Any, ...]
    layers: tuple[DescribedLayer, ...]
    own_bulkhead: SharedBulkhead | None
    _breaker: Callable[[], CircuitBreaker | Family[KeyedBreaker]] | None
    _bulkhead: Callable[[], SharedBulkhead | Family[KeyedBulkhead]] | None
    _retry_budget: Callable[[], SharedRetryBudget] | None
    _wrapper: weakref.ref[Any] | None

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        policies: tuple[Any, ...],
        layers: tuple[DescribedLayer, ...],
        breaker: Callable[[], CircuitBreaker | Family[KeyedBreaker]] | None,
        bulkhead: Callable[[], SharedBulkhead | Family[KeyedBulkhead]] | None,
        retry_budget: Callable[[], SharedRetryBudget] | None,
        own_bulkhead: SharedBulkhead | None,
    ) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "fn", fn)
        put(self, "policies", policies)
        put(self, "layers", layers)
        put(self, "_breaker", breaker)
        put(self, "_bulkhead", bulkhead)
        put(self, "_retry_budget", retry_budget)
        put(self, "own_bulkhead", own_bulkhead)
        put(self, "_wrapper", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Description.{name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Description.{name} is read-only")

    def __eq__(self, other: object) -> bool:
        """Whether both tell the same."""
        if not isinstance(other, Description):
            return NotImplemented
        return (self.name, self.layers) == (other.name, other.layers)

    def __hash__(self) -> int:
        return hash((self.name, self.layers))

    @property
    def breaker(self) -> CircuitBreaker | None:
        """The shared breaker; a reference without settings registers the defaults now if nobody has yet."""
        found = None if self._breaker is None else self._breaker()
        return found if isinstance(found, CircuitBreaker) else None

    @property
    def family(self) -> BreakerFamily | None:
        """The family of the breakers by key; registered now, like a single breaker, if nobody has yet."""
        found = None if self._breaker is None else self._breaker()
        return None if found is None or isinstance(found, CircuitBreaker) else cast("BreakerFamily", found)

    @property
    def bulkhead(self) -> SharedBulkhead | None:
        """The shared bulkhead."""
        found = None if self._bulkhead is None else self._bulkhead()
        return found if isinstance(found, SharedBulkhead) else None

    @property
    def bulkhead_family(self) -> BulkheadFamily | None:
        """The family of the bulkheads by key."""
        found = None if self._bulkhead is None else self._bulkhead()
        return None if found is None or isinstance(found, SharedBulkhead) else cast("BulkheadFamily", found)

    @property
    def retry_budget(self) -> SharedRetryBudget | None:
        """The retry budget, shared or the call site's own; a name that nobody has registered yet gets the defaults now."""
        return None if self._retry_budget is None else self._retry_budget()

    def attach(self, wrapper: Any) -> None:
        """Say which very object this describes, and put the description on it."""
        object.__setattr__(self, "_wrapper", weakref.ref(wrapper))

    def stands_for(self, target: Any, policies: tuple[Any, ...]) -> None:
        """Say what was decorated with what, where the wrapper calls it through a function of our own."""
        object.__setattr__(self, "fn", target)
        object.__setattr__(self, "policies", policies)

    def describes(self, candidate: object) -> bool:
        """Whether this describes `candidate` itself, and not something that copied its attributes."""
        return self._wrapper is not None and self._wrapper() is candidate

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"  {layer.layer.value:<9} {layer.settings}" for layer in self.layers)])

    def __repr__(self) -> str:
        return f"<Description {self.name}: {', '.join(str(layer) for layer in self.layers)}>"


def is_ours(candidate: object) -> bool:
    """Whether `candidate` is a wrapper of ours: `functools.wraps` copies our attributes onto others."""
    return own_description(candidate) is not None


def own_description(candidate: object) -> Description | None:
    """The description of a wrapper of ours, None for anything else."""
    found = getattr(candidate, ATTRIBUTE, None)
    return found if isinstance(found, Description) and found.describes(candidate) else None


def describe(fn: object) -> Description:
    """Tell which policies a decorated function has, in the order in which they apply, with all settings.

    Also `fn.resilience`. Bound methods, class methods and static methods are described by their function.

    Raises:
        ConfigurationError: the function carries none of our policies.

    Example:
        >>> print(describe(retry(2, idempotent=True)(print)))  # doctest: +ELLIPSIS
        builtins:print
        ...
    """
    found = own_description(fn) or own_description(getattr(fn, "__func__", None))
    if found is None:
        raise ConfigurationError(f"fn must be a function decorated with a policy, got {type(fn).__name__}")
    return found
