"""The policies as values that decorate, compose and guard blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from resilience._blocks.place import place_of_caller
from resilience._core.checks import Faults
from resilience._decorate import decorate
from resilience._keying import check_names, spelled
from resilience._registry import Registry, current_registry
from resilience._settings import BreakerPolicy, BulkheadPolicy, Policy, RetryPolicy, TimeoutPolicy, one_of_each
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from typing import ParamSpec

    from resilience._blocks.attempts import Attempt
    from resilience._blocks.limit import TimeoutBlock
    from resilience._blocks.place import Place
    from resilience._blocks.slot import BulkheadBlock
    from resilience._policies.bulkhead import SharedBulkhead
    from resilience._policies.keyed_bulkhead import BulkheadFamily

    P = ParamSpec("P")
    R = TypeVar("R")

F = TypeVar("F")


class Retry(RetryPolicy):
    """A retry as a value; made by `retry(...)`.

    Decorates a function, goes into `compose`, repeats a block: whoever writes the loop
    says that the block may be repeated, so `idempotent` is not asked for.

    Example:
        >>> for attempt in retry(3):
        ...     with attempt:
        ...         answer = "fetched"
    """

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function

    def __iter__(self) -> Iterator[Attempt]:
        """Repeat a block: `for attempt in retry(3): with attempt: ...`; the waits block the thread."""
        # Only now, as with all blocks: everybody pays for an import.
        from resilience._blocks.attempts import SyncAttempts

        return SyncAttempts(self, place_of_caller(current_registry()))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        """Repeat a block: `async for attempt in retry(3): with attempt: ...`; the waits suspend the task."""
        from resilience._blocks.attempts import AsyncAttempts

        return AsyncAttempts(self, place_of_caller(current_registry()))


class Timeout(TimeoutPolicy):
    """Limits as a value; made by `timeout(...)`.

    Decorates a function, goes into `compose`, limits a block with `guard()`.
    """

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function

    def guard(self) -> TimeoutBlock:
        """Limit a block: `async with timeout(5).guard():` interrupts it, `with` can't.

        With `async with` the task that entered is cancelled when the time is up, and the
        block raises `TimeoutExceeded`. With `with`, in plain code, the limit is a deadline
        that everything inside sees (`remaining()`, limits and waits of calls inside), and
        a block that comes to its end late has come to its end: nothing is raised, and
        `expired` of the block tells.

        Raises:
            ConfigurationError: no `budget`, or a limit that a block can't have.
            TimeoutExceeded: on entry, where a deadline around the block has run out.

        Example:
            >>> with timeout(5).guard() as block:
            ...     0 < remaining() <= 5
            True
            >>> block.expired
            False
        """
        others = self.per_attempt, self.first_item, self.idle, self.pass_as
        if self.budget is None or others != (None, None, None, None):
            self._refuse_block()
        assert self.budget is not None, "that is one of the faults"
        from resilience._blocks.limit import TimeoutBlock

        return TimeoutBlock(self.budget, self.counts, place_of_caller(current_registry()))

    def _refuse_block(self) -> None:
        faults = Faults()
        if self.budget is None:
            faults.say("budget must be given for guard(): it is the only limit of a block")
        for name, cure in _NO_BLOCK.items():
            if getattr(self, name) is not None:
                faults.add(name, getattr(self, name), f"left out for guard(): {cure}")
        faults.raise_any()


_NO_BLOCK = {
    "per_attempt": "a block in a retry's loop has a guard of its own in each attempt",
    "first_item": "a block has no items",
    "idle": "a block has no items",
    "pass_as": "what is inside the block asks remaining()",
}


class Bulkhead(BulkheadPolicy):
    """A cap on calls in flight as a value; made by `bulkhead(...)`.

    Decorates a function, goes into `compose`, guards a block with `guard()`.
    """

    @property
    def family(self) -> BulkheadFamily:
        """The family of a bulkhead with `key=`, from its registry or the current one.

        Raises:
            ConfigurationError: there is no `key=`.
        """
        if self.key is None:
            raise ConfigurationError(f"{self.name!r} is a single bulkhead: give it a key=")
        return self.family_in(self.registry or current_registry())

    def __call__(self, fn: F, /) -> F:
        """Put the policy on a function."""
        return decorate(fn, self)  # type: ignore[no-any-return]  # the wrapper looks like the function

    def guard(self, *key: object) -> BulkheadBlock:
        """Hold a slot for a block: `with pool.guard():`, or `async with`.

        Where it has to wait in line, `with` blocks the thread and `async with` suspends the
        task. A block can't be skipped: where `on_reject` is BYPASS and there is no slot, the
        block is false, so ask it. Without a name all blocks of this very value share one cap.

        Args:
            key: the parts of the key, where the value has `key=`: `pool.guard(provider, model)`.

        Raises:
            ConfigurationError: there is a `fallback`, or nobody has registered the name; parts of a key for a
                value without `key=`, or none for one with it.
            BulkheadFullError: on entry, where `on_reject` is FAIL.

        Example:
            >>> with bulkhead("disk", max_in_flight=2).guard() as slot:
            ...     bool(slot)
            True
        """
        if self.fallback is not None:
            faults = Faults()
            faults.add(
                "fallback", self.fallback, "left out for guard(): a block can't be skipped, ask whether it is true"
            )
            faults.raise_any()
        registry = self.registry or current_registry()
        from resilience._blocks.slot import BulkheadBlock

        place = place_of_caller(registry)
        if not key and self.key is None:
            return BulkheadBlock(self._shared(registry, place), self.wait, self.on_reject, place)
        if not key:
            raise ConfigurationError(
                f"{self.name!r} has a bulkhead for each key: say which with guard({spelled(self.key).replace(',', ', ')})"
            )
        # Only now: few programs have families.
        from resilience._policies.site_keys import SiteKeys

        family = self.family
        keys = SiteKeys(lambda: family, lambda args, kwargs: key)
        return BulkheadBlock(family[key], self.wait, self.on_reject, place, keys)

    def _shared(self, registry: Registry, place: Place) -> SharedBulkhead:
        """The bulkhead of this value's blocks; kept with it as long as the name means the same one."""
        if self.name is None:
            from resilience._blocks.slot import own_bulkhead

            return own_bulkhead(self.__dict__, self, place, registry)
        kept: tuple[Registry, SharedBulkhead] | None = self.__dict__.get("_bulkhead")
        if kept is None or kept[0] is not registry:
            kept = self.__dict__["_bulkhead"] = registry, registry.bulkhead(self.name, self.config)
        return kept[1]


class PolicySet:
    """Several policies as one reusable value; made by `compose(...)`."""

    __slots__ = ("_calls", "_own", "_unnamed", "policies")

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.policies = policies
        self._calls: dict[tuple[object, ...], tuple[Registry, Any]] = {}
        bulkhead = one_of_each(policies).bulkhead
        self._unnamed = bulkhead if bulkhead is not None and bulkhead.name is None else None
        self._own: dict[str, Any] = {}

    def __call__(self, fn: F, /) -> F:
        """Put all policies on a function."""
        return decorate(fn, *self.policies)  # type: ignore[no-any-return]  # the wrapper looks like the function

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function once under the policies, without decorating it.

        Names are looked up in the current registry; a bulkhead without a name is the set's
        own, shared by all its calls. What a coroutine function returns is to be awaited.

        Raises:
            ConfigurationError: the function can't carry the policies, as when it is decorated.
        """
        return self._caller(fn)(fn, *args, **kwargs)  # type: ignore[no-any-return]  # what fn returns

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and await an async function once under the policies, without decorating it."""
        return await self._caller(fn)(fn, *args, **kwargs)  # type: ignore[no-any-return]  # what fn returns

    def _caller(self, fn: Any) -> Any:
        """One assembled caller for all functions of a sort."""
        from resilience import _compose

        for policy in self.policies:
            if isinstance(policy, (BreakerPolicy, BulkheadPolicy)) and policy.key is not None:
                check_names(fn, policy.key, _compose.label_of(fn))
        registry = current_registry()
        sort = _compose.sort_of(fn, self.policies)
        found = self._calls.get(sort)
        if found is None or found[0] is not registry:
            unnamed = self._unnamed
            own = None
            if unnamed is not None:
                from resilience._blocks.slot import own_bulkhead

                own = own_bulkhead(self._own, unnamed, None, registry)
            found = self._calls[sort] = registry, _compose.caller(self.policies, fn, own)
        return found[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicySet, (self.policies,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolicySet) and self.policies == other.policies

    def __hash__(self) -> int:
        return hash(self.policies)

    def __repr__(self) -> str:
        return f"compose({', '.join(map(repr, self.policies))})"
