"""The policies as values that decorate, compose and guard blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from resilience._compose import caller, decorate, kind_of
from resilience._marks import is_idempotent, is_uninterruptible, worker_limit
from resilience._policies.classifying import classify_with
from resilience._policies.guard import GuardKit
from resilience._registry import current_registry
from resilience._settings import BreakerPolicy, BulkheadPolicy, Policy, RetryPolicy, TimeoutPolicy
from resilience.catalogue import default_classifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec

    from resilience._core.config import BreakerConfig
    from resilience._core.report import BreakerStatus
    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._policies.guard import Block
    from resilience._words import CircuitState

    P = ParamSpec("P")
    R = TypeVar("R")

F = TypeVar("F")


class BreakerRef(BreakerPolicy):
    """A reference to a named breaker, with this call site's own reaction; made by `breaker(...)`.

    Decorates a function, goes into `compose`, guards a block with `guard()`; state and
    manual controls are the shared breaker's.
    """

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function

    @property
    def breaker(self) -> CircuitBreaker:
        """The shared breaker, from this reference's registry or the current one."""
        return (self.registry or current_registry()).breaker(self.name, self.config)

    def guard(self) -> Block:
        """Protect a block: `with ref.guard() as permit:`, or `async with`.

        A block can't be skipped: where `on_open` is BYPASS and the circuit is open, the
        permit is false, and the block is neither counted nor judged.

        Raises:
            CircuitOpenError: on entry, where `on_open` is FAIL.

        Example:
            >>> with breaker("mail", BreakerConfig()).guard() as permit:
            ...     bool(permit)
            True
        """
        return self._kit(self.breaker).guard()

    def _kit(self, shared: CircuitBreaker) -> GuardKit:
        """The blocks of this reference; kept with it as long as it means the same breaker."""
        kit: GuardKit | None = self.__dict__.get("_guards")
        if kit is None or kit.breaker is not shared:
            classify = classify_with(self.classify, default_classifier())
            kit = self.__dict__["_guards"] = GuardKit(shared, classify, self.on_open, self.classify_result)
        return kit

    @property
    def state(self) -> CircuitState:
        """The shared breaker's state."""
        return self.breaker.state

    def is_open(self) -> bool:
        """Whether a call at this moment would be refused. Pure."""
        return self.breaker.is_open()

    def status(self) -> BreakerStatus:
        """One consistent moment of the shared breaker."""
        return self.breaker.status()

    def reset(self, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Close the shared circuit; False where it was closed already."""
        return self.breaker.reset(reason=reason, actor=actor)

    def force_open(self, reason: str, *, seconds: float | None = None, actor: str | None = None) -> None:
        """Refuse everything, for `seconds` or until `enable` or `reset`."""
        self.breaker.force_open(reason, seconds=seconds, actor=actor)

    def disable(self, *, reason: str | None = None, actor: str | None = None) -> None:
        """Let everything pass and count nothing, until `enable`."""
        self.breaker.disable(reason=reason, actor=actor)

    def enable(self, *, actor: str | None = None) -> None:
        """End a forced opening or a disabling."""
        self.breaker.enable(actor=actor)

    def reconfigure(self, config: BreakerConfig, *, actor: str | None = None) -> None:
        """Give the shared breaker other settings; those of this reference are what it would be registered with."""
        self.breaker.reconfigure(config, actor=actor)


class Retry(RetryPolicy):
    """A retry as a value; made by `retry(...)`."""

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function


class Timeout(TimeoutPolicy):
    """Limits as a value; made by `timeout(...)`."""

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function


class Bulkhead(BulkheadPolicy):
    """A cap on calls in flight as a value; made by `bulkhead(...)`."""

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function


class PolicySet:
    """Several policies as one reusable value; made by `compose(...)`."""

    __slots__ = ("_calls", "policies")

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.policies = policies
        self._calls: dict[tuple[object, ...], Any] = {}

    def __call__(self, fn: F, /) -> F:
        """Put all policies on a function."""
        return decorate(fn, *self.policies)  # type: ignore[no-any-return]  # the wrapper looks like the function

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function once under the policies, without decorating it."""
        return self._caller(fn)(fn, *args, **kwargs)  # type: ignore[no-any-return]  # what fn returns

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and await an async function once under the policies, without decorating it."""
        return await self._caller(fn)(fn, *args, **kwargs)  # type: ignore[no-any-return]  # what fn returns

    def _caller(self, fn: Any) -> Any:
        """One assembled caller for all functions of a sort, so that all calls share a bulkhead without a name."""
        sort = (kind_of(fn, self.policies), is_idempotent(fn), is_uninterruptible(fn), worker_limit(fn))
        found = self._calls.get(sort)
        if found is None:
            found = self._calls[sort] = caller(self.policies, fn)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicySet, (self.policies,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolicySet) and self.policies == other.policies

    def __hash__(self) -> int:
        return hash(self.policies)

    def __repr__(self) -> str:
        return f"compose({', '.join(map(repr, self.policies))})"
