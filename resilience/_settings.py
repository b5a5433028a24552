"""The policies as values: frozen settings, checked when they are made, with one error for all faults."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from resilience._core.checks import COROUTINE, Faults, code_flags
from resilience._core.config import BreakerConfig, BulkheadConfig
from resilience._core.faults import FaultKind
from resilience._core.order import Layer
from resilience._core.record import Record
from resilience._core.retry_budget import RetryBudget
from resilience._core.rules import Classifier
from resilience._keying import names_of
from resilience._registry import Registry
from resilience._words import OnOpen, OnReject
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._policies.keyed_breaker import BreakerFamily
    from resilience._policies.keyed_bulkhead import BulkheadFamily

RETRYABLE = (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)


class Policy(Record):
    """One policy's settings. `kind` is its word; a function carries one of a kind."""

    kind: ClassVar[str]

    stream: bool = False
    """The function returns a stream: its end is the end of the call."""

    def places(self) -> tuple[Layer, ...]:
        """Where in the fixed order the policy applies."""
        return (Layer(self.kind),)

    def __reduce__(self) -> tuple[Any, ...]:
        # A registry stays in its process: elsewhere the name is looked up there.
        values = {name: value for name, value in self.as_dict().items() if name != "registry"}
        return _remade, (type(self), values)


def _remade(kind: type[Policy], values: dict[str, Any]) -> Policy:
    return kind(**values)


class BreakerPolicy(Policy):
    """A call site's reference to a named breaker, and its own reaction to an open circuit."""

    kind = "breaker"

    name: str
    config: BreakerConfig | None = None
    on_open: OnOpen = OnOpen.FAIL
    fallback: Any = None
    unless: Callable[..., object] | None = None
    key: Any = None
    classify: Classifier | Callable[[BaseException], object] | None = None
    classify_result: Callable[[Any], object] | None = None
    account: Literal["attempt", "call"] = "attempt"
    registry: Registry | None = None

    @classmethod
    def check(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values in their normal form.

        Raises:
            ConfigurationError: listing every fault.
        """
        faults = Faults()
        values["key"] = faults.key("key", values["key"])
        values["name"] = faults.name("name", values["name"])
        faults.instance_or_none("config", values["config"], BreakerConfig)
        values["on_open"] = faults.member("on_open", values["on_open"], OnOpen)
        if values["fallback"] is not None and values["on_open"] is not OnOpen.BYPASS:
            faults.add("fallback", values["fallback"], "left out unless on_open is BYPASS")
        unless = values["unless"]
        if not code_flags(unless) & COROUTINE:
            # Where its function is one that can be awaited, so can this.
            faults.judge_or_none("unless", unless)
        faults.judge_or_none("classify_result", values["classify_result"])
        if values["classify"] is not None and not isinstance(values["classify"], Classifier):
            faults.callable_or_none("classify", values["classify"])
        faults.choice("account", values["account"], ("attempt", "call"))
        faults.flag("stream", values["stream"])
        faults.instance_or_none("registry", values["registry"], Registry)
        faults.raise_any()
        return values

    def register(self, registry: Registry) -> CircuitBreaker | BreakerFamily:
        """What the name means in a registry: registered with the settings, if it is new there."""
        return registry.breaker(self.name, self.config) if self.key is None else self.family_in(registry)

    def family_in(self, registry: Registry) -> BreakerFamily:
        """The family of a keyed reference in a registry."""
        return registry.family_by(names_of(self.key), self.name, self.config)


class RetryPolicy(Policy):
    """A retry's settings; times in seconds."""

    kind = "retry"

    max_attempts: int = 3
    initial_backoff: float = 0.1
    max_backoff: float = 30.0
    jitter: float = 0.5
    wait: Callable[[Any], float] | float | None = None
    stop: Callable[[Any], object] | None = None
    retry_on: frozenset[FaultKind] = frozenset({FaultKind.TRANSIENT})
    idempotent: bool = False
    safe_only: bool = False
    max_retry_after: float = 60.0
    retry_budget: RetryBudget | str | None = None

    @classmethod
    def check(cls, values: dict[str, Any], given: frozenset[str]) -> dict[str, Any]:
        """The values in their normal form; `given` are the backoff arguments the user named.

        Raises:
            ConfigurationError: listing every fault.
        """
        faults = Faults()
        faults.count("max_attempts", values["max_attempts"])
        for name in ("initial_backoff", "max_backoff"):
            values[name] = faults.seconds(name, values[name], zero=True)
        values["jitter"] = faults.share("jitter", values["jitter"], zero=True)
        wait = values["wait"]
        if wait is not None:
            if given:
                faults.say(f"wait must be left out where {', '.join(sorted(given))} is given, or the other way round")
            if not callable(wait):
                values["wait"] = faults.seconds("wait", wait, zero=True)
            elif _is_whole_retry(wait):
                faults.add("wait", wait, "a wait strategy, not a whole Retrying: pass its .wait")
        faults.callable_or_none("stop", values["stop"])
        if values["stop"] is not None and _is_whole_retry(values["stop"]):
            faults.add("stop", values["stop"], "a stop strategy, not a whole Retrying: pass its .stop")
        values["retry_on"] = faults.members("retry_on", values["retry_on"], FaultKind, RETRYABLE)
        for name in ("idempotent", "safe_only", "stream"):
            faults.flag(name, values[name])
        values["max_retry_after"] = faults.seconds("max_retry_after", values["max_retry_after"])
        budget = values["retry_budget"]
        if isinstance(budget, str):
            values["retry_budget"] = faults.name("retry_budget", budget)
        elif budget is not None and not isinstance(budget, RetryBudget):
            faults.add("retry_budget", budget, "a RetryBudget, the name of a registered one or None")
        faults.raise_any()
        return values


class TimeoutPolicy(Policy):
    """Limits in seconds: of the whole call, and of each attempt."""

    kind = "timeout"

    budget: float | None = None
    per_attempt: float | None = None
    first_item: float | None = None
    idle: float | None = None
    pass_as: str | None = None
    counts: bool = True

    @classmethod
    def check(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values in their normal form.

        Raises:
            ConfigurationError: listing every fault.
        """
        faults = Faults()
        for name in _LIMITS:
            if values[name] is not None:
                values[name] = faults.seconds(name, values[name])
        if all(values[name] is None for name in _LIMITS):
            faults.say(
                "budget or per_attempt must be given (for a stream, or first_item or idle): a timeout of nothing limits nothing"
            )
        if not faults:
            # Each lies within those before it.
            for outer, inner in combinations(_LIMITS[:3], 2):
                _check_within(faults, values, inner, outer)
            _check_within(faults, values, "idle", "per_attempt" if values["per_attempt"] is not None else "budget")
        pass_as = values["pass_as"]
        if pass_as is not None and not (isinstance(pass_as, str) and pass_as.isidentifier()):
            faults.add("pass_as", pass_as, "the name of one of the function's parameters")
        for name in ("counts", "stream"):
            faults.flag(name, values[name])
        faults.raise_any()
        return values

    def places(self) -> tuple[Layer, ...]:
        whole = () if self.budget is None else (Layer.TIMEOUT,)
        if self.per_attempt is None and self.first_item is None and self.idle is None:
            return whole
        return (*whole, Layer.ATTEMPT)


_LIMITS = ("budget", "per_attempt", "first_item", "idle")


def _check_within(faults: Faults, values: dict[str, Any], inner: str, outer: str) -> None:
    if values[inner] is not None and values[outer] is not None and values[inner] > values[outer]:
        faults.add(inner, values[inner], f"<= {outer} ({values[outer]:g})")


class BulkheadPolicy(Policy):
    """A call site's use of a bulkhead: the shared cap, and its own patience and reaction."""

    kind = "bulkhead"

    name: str | None = None
    max_in_flight: int | None = None
    max_waiting: int | None = None
    wait: float = 0.0
    on_reject: OnReject = OnReject.FAIL
    fallback: Any = None
    key: Any = None
    registry: Registry | None = None

    @classmethod
    def check(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values in their normal form.

        Raises:
            ConfigurationError: listing every fault.
        """
        faults = Faults()
        if values["name"] is not None:
            values["name"] = faults.name("name", values["name"])
        elif values["max_in_flight"] is None:
            faults.say("max_in_flight must be given for a bulkhead without a name")
        values["key"] = faults.key("key", values["key"])
        if values["key"] is not None and values["name"] is None:
            faults.say("name must be given for a bulkhead with key=: it is the family's")
        if values["max_in_flight"] is not None:
            faults.count("max_in_flight", values["max_in_flight"])
        if values["max_waiting"] is not None:
            faults.count("max_waiting", values["max_waiting"], least=0)
            if values["max_in_flight"] is None:
                faults.add("max_waiting", values["max_waiting"], "left out without max_in_flight, which it belongs to")
        values["wait"] = faults.seconds("wait", values["wait"], zero=True)
        values["on_reject"] = faults.member("on_reject", values["on_reject"], OnReject)
        if values["fallback"] is not None and values["on_reject"] is not OnReject.BYPASS:
            faults.add("fallback", values["fallback"], "left out unless on_reject is BYPASS")
        faults.flag("stream", values["stream"])
        faults.instance_or_none("registry", values["registry"], Registry)
        faults.raise_any()
        return values

    def register(self, registry: Registry) -> None:
        """Register what is shared under the name, if it has one."""
        if self.key is not None:
            self.family_in(registry)
        elif self.name is not None:
            registry.bulkhead(self.name, self.config)

    def family_in(self, registry: Registry) -> BulkheadFamily:
        """The family of a keyed bulkhead in a registry."""
        assert self.name is not None, "a bulkhead with a key has a name"
        return registry.bulkhead_family_by(names_of(self.key), self.name, self.config)

    @property
    def config(self) -> BulkheadConfig | None:
        """What is shared under the name; None for a reference."""
        return None if self.max_in_flight is None else BulkheadConfig(self.max_in_flight, self.max_waiting)


def _is_whole_retry(strategy: object) -> bool:
    """Whether somebody passed tenacity's own engine, told without importing it."""
    return any(kind.__name__ == "BaseRetrying" for kind in type(strategy).__mro__)


class Given(NamedTuple):
    """The policies of one function, by their kind."""

    breaker: BreakerPolicy | None = None
    retry: RetryPolicy | None = None
    timeout: TimeoutPolicy | None = None
    bulkhead: BulkheadPolicy | None = None


def one_of_each(policies: tuple[Policy, ...]) -> Given:
    """The policies by kind.

    Raises:
        ConfigurationError: two of one kind.
    """
    found: dict[str, Any] = {}
    for policy in policies:
        if policy.kind in found:
            raise ConfigurationError(
                f"a function takes one {policy.kind}, got two: {found[policy.kind]!r} and {policy!r}; keep one"
            )
        found[policy.kind] = policy
    return Given(**found)
