"""What a name stands for in a registry: one breaker or bulkhead, or a family of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from resilience._clock import is_real
from resilience._core.checks import Faults
from resilience._core.config import BreakerConfig, BulkheadConfig
from resilience._policies.bulkhead import SharedBulkhead
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience.catalogue import default_classifier
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from resilience._clock import Clock
    from resilience._policies.families import Family
    from resilience._policies.keyed_breaker import BreakerFamily
    from resilience._policies.keyed_bulkhead import BulkheadFamily
    from resilience._site import Services


class Families:
    """The part of a registry that finds names, and knows families."""

    _clock: Clock
    _max_keys: int
    _breakers: dict[str, CircuitBreaker | BreakerFamily]
    _bulkheads: dict[str, SharedBulkhead | BulkheadFamily]

    def _conflict(self, name: str, differences: tuple[str, ...]) -> None:
        raise NotImplementedError

    def _keyed_home(self) -> Callable[..., object] | None:
        raise NotImplementedError

    def _services(self) -> Services:
        """The registry, as its members see it."""
        raise NotImplementedError

    @property
    def is_real(self) -> bool:
        """Whether that is the system's."""
        return is_real(self._clock)

    def family(
        self,
        name: str,
        labels: Iterable[str] | None = None,
        config: BreakerConfig | None = None,
        *,
        max_keys: int | None = None,
    ) -> BreakerFamily:
        """The family of breakers of this name, registered with these settings if it is new: one breaker per key.

        If it is not, its settings stay as they are: what differs is told in one warning
        field by field, and counted.

        Args:
            name: 1 to 256 bytes of `A-Z a-z 0-9 . _ : / @ + -`, and no single breaker's.
            labels: what the parts of a key are called, such as `("provider", "model")`; one name for keys of
                one part. None (default) for those that are registered, or that the first key has parts.
            config: the settings of every breaker of the family (default: `BreakerConfig()`).
            max_keys: the most keys that have a breaker at a time (≥ 1; default: the registry's `max_keys`).

        Raises:
            ConfigurationError: a value that can't be right, a single breaker's name, another number of
                labels than registered; with `strict`, any difference.

        Example:
            >>> family = Registry().family("llm", labels=("provider", "model"))
            >>> family["openai", "gpt-4"].status().labels["model"]
            'gpt-4'
        """
        faults = Faults()
        name = faults.name("name", name)
        names = faults.labels("labels", labels)
        faults.instance_or_none("config", config, BreakerConfig)
        if max_keys is not None:
            faults.count("max_keys", max_keys)
        faults.raise_any()
        found = self._breakers.get(name)
        if found is None:
            # Only now, as in all that follows: few programs have families.
            from resilience._policies.keyed_breaker import BreakerFamily

            made = BreakerFamily(
                name,
                names,
                config or BreakerConfig(),
                max_keys or self._max_keys,
                self._services(),
                default_classifier().classify,
                self._keyed_home(),
            )
            # As for single breakers: of those who register a name at once one is first.
            found = self._breakers.setdefault(name, made)
        if isinstance(found, CircuitBreaker):
            refuse_family(name, "breaker")
        differences = () if config is None else found.config.differences(config)
        self._compare(found, names, max_keys, differences)
        return found

    def bulkhead_family(
        self,
        name: str,
        config: BulkheadConfig | None = None,
        labels: Iterable[str] | None = None,
        *,
        max_keys: int | None = None,
    ) -> BulkheadFamily:
        """The family of bulkheads of this name, registered with these settings if it is new: one cap per key.

        Args:
            name: as for `family`, and no single bulkhead's.
            config: the size of every bulkhead; needed where the name is new.
            labels: as for `family`.
            max_keys: the most keys that have a bulkhead at a time (≥ 1; default: the registry's `max_keys`).

        Raises:
            ConfigurationError: as for `family`, and a new name without `config`.
        """
        faults = Faults()
        name = faults.name("name", name)
        names = faults.labels("labels", labels)
        faults.instance_or_none("config", config, BulkheadConfig)
        if max_keys is not None:
            faults.count("max_keys", max_keys)
        faults.raise_any()
        found = self._bulkheads.get(name)
        if found is None:
            if config is None:
                raise ConfigurationError(
                    f"bulkhead family {name!r} is not registered: give it max_in_flight where it is first used"
                )
            from resilience._policies.keyed_bulkhead import BulkheadFamily

            found = self._bulkheads.setdefault(
                name, BulkheadFamily(name, names, config, max_keys or self._max_keys, self._services())
            )
        if isinstance(found, SharedBulkhead):
            refuse_family(name, "bulkhead")
        differences = () if config is None else found.config.differences(config)
        self._compare(found, names, max_keys, differences)
        return found

    def family_by(self, names: tuple[str, ...], name: str, config: BreakerConfig | None) -> BreakerFamily:
        """The family that a call site means, whose parameters are called `names`; they are labels where there are none."""
        return self.family(name, _as_labels(names, name, self.get_family(name)), config)

    def bulkhead_family_by(self, names: tuple[str, ...], name: str, config: BulkheadConfig | None) -> BulkheadFamily:
        """The same of bulkheads."""
        return self.bulkhead_family(name, config, _as_labels(names, name, self.get_bulkhead_family(name)))

    def get(self, name: str) -> CircuitBreaker | None:
        """The breaker of this name, or None; `name[part,part]` is the one of a family's key."""
        found = self._breakers.get(name)
        if found is None and _names_a_key(name):
            from resilience._core.keys import read_spelled

            spelled = read_spelled(name)
            family = None if spelled is None else self.get_family(spelled[0])
            return None if spelled is None or family is None else family.get(spelled[1])
        return found if isinstance(found, CircuitBreaker) else None

    def get_bulkhead(self, name: str) -> SharedBulkhead | None:
        """The bulkhead of this name, or None."""
        found = self._bulkheads.get(name)
        return found if isinstance(found, SharedBulkhead) else None

    def get_family(self, name: str) -> BreakerFamily | None:
        """The family of breakers of this name, or None."""
        found = self._breakers.get(name)
        return None if isinstance(found, CircuitBreaker) else found

    def get_bulkhead_family(self, name: str) -> BulkheadFamily | None:
        """The family of bulkheads of this name, or None."""
        found = self._bulkheads.get(name)
        return None if isinstance(found, SharedBulkhead) else found

    def __iter__(self) -> Iterator[CircuitBreaker]:
        for found in tuple(self._breakers.values()):
            if isinstance(found, CircuitBreaker):
                yield found
            else:
                yield from found.everybody

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def _compare(
        self, found: Family[Any], labels: tuple[str, ...], max_keys: int | None, differences: tuple[str, ...]
    ) -> None:
        if labels:
            found.declare(labels)
            known = found.labels
            if len(known) != len(labels):
                raise ConfigurationError(
                    f"labels must be {len(known)} as registered for {found.name!r} ({', '.join(known)}), "
                    f"got {len(labels)} ({', '.join(labels)})"
                )
            if known != labels:
                differences = (f"labels: {', '.join(known)}, not {', '.join(labels)}", *differences)
        if max_keys is not None and max_keys != found.max_keys:
            differences = (*differences, f"max_keys: {found.max_keys}, not {max_keys}")
        if differences:
            self._conflict(found.name, differences)


def _as_labels(names: tuple[str, ...], name: str, family: Family[Any] | None) -> tuple[str, ...] | None:
    """A call site may call its parameters as it likes, once the labels are declared; only there must be as many.

    Raises:
        ConfigurationError: it calls them as the labels, in another order: its keys would be other calls' keys.
    """
    known = () if family is None else family.labels
    if known != names and sorted(known) == sorted(names):
        raise ConfigurationError(
            f"key must name {', '.join(known)} in this order, as registered for {name!r}, got {', '.join(names)}"
        )
    return None if not names or len(known) == len(names) else names


def _names_a_key(name: object) -> bool:
    return isinstance(name, str) and name.endswith("]")


def refuse_family(name: str, what: str) -> NoReturn:
    """Say that a name stands for one breaker or bulkhead."""
    raise ConfigurationError(f"{name!r} is a single {what}: leave key= out, or give the family another name")


def refuse_single(name: str, what: str) -> NoReturn:
    """Say that a name stands for a family."""
    raise ConfigurationError(
        f"{name!r} is a family of {what}s: give key=, ask registry.{'' if what == 'breaker' else 'bulkhead_'}"
        f"family({name!r})[...], or use another name"
    )
