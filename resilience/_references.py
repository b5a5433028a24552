"""References to named breakers, with a call site's own reaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from resilience._decorate import decorate
from resilience._keying import spelled
from resilience._policies.classifying import classify_with
from resilience._policies.guard import GuardKit
from resilience._registry import current_registry
from resilience._settings import BreakerPolicy
from resilience.catalogue import default_classifier
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from resilience._core.config import BreakerConfig
    from resilience._core.report import BreakerStatus
    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._policies.guard import Block
    from resilience._policies.keyed_breaker import BreakerFamily
    from resilience._words import CircuitState

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
        """The shared breaker, from this reference's registry or the current one.

        Raises:
            ConfigurationError: the reference has `key=`, and so a breaker for each key.
        """
        if self.key is not None:
            raise ConfigurationError(
                f"{self.name!r} has a breaker for each key: ask for one with .family[{spelled(self.key).replace(',', ', ')}]"
            )
        return (self.registry or current_registry()).breaker(self.name, self.config)

    @property
    def family(self) -> BreakerFamily:
        """The family of a reference with `key=`, from its registry or the current one.

        Raises:
            ConfigurationError: the reference has no `key=`.
        """
        if self.key is None:
            raise ConfigurationError(f"{self.name!r} is a single breaker: it is .breaker, or give the reference a key=")
        return self.family_in(self.registry or current_registry())

    def guard(self, *key: object) -> Block:
        """Protect a block: `with ref.guard() as permit:`, or `async with`.

        A block can't be skipped: where `on_open` is BYPASS and the circuit is open, the
        permit is false, and the block is neither counted nor judged.

        Args:
            key: the parts of the key, where the reference has `key=`: `ref.guard(provider, model)`.

        Raises:
            CircuitOpenError: on entry, where `on_open` is FAIL.
            ConfigurationError: parts of a key for a reference without `key=`, or none for one with it.

        Example:
            >>> with breaker("mail", BreakerConfig()).guard() as permit:
            ...     bool(permit)
            True
        """
        if not key:
            return self._kit(self.breaker).guard()
        family = self.family
        return self._keyed_kit(family, family[key]).guard()

    def _kit(self, shared: CircuitBreaker) -> GuardKit:
        """The blocks of this reference; kept with it as long as it means the same breaker."""
        kit: GuardKit | None = self.__dict__.get("_guards")
        if kit is None or kit.breaker is not shared:
            kit = self.__dict__["_guards"] = self._make_kit(shared)
        return kit

    def _keyed_kit(self, family: BreakerFamily, shared: CircuitBreaker) -> GuardKit:
        """The same for each of so many keys as the family may have."""
        kits: dict[object, GuardKit] = self.__dict__.setdefault("_keyed_guards", {})
        kit = kits.get(shared.key)
        if kit is None or kit.breaker is not shared:
            if len(kits) > family.max_keys:
                # Those of keys that have gone are among them.
                kits.clear()
            kit = kits[shared.key] = self._make_kit(shared)
        return kit

    def _make_kit(self, shared: CircuitBreaker) -> GuardKit:
        return GuardKit(shared, classify_with(self.classify, default_classifier()), self.on_open, self.classify_result)

    # The rest is the shared breaker's: a reference with `key=` says which one by `.family[...]`.
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
