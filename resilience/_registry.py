"""Registries: where names are shared, first registration wins, and a clock is set for all.

The process-wide registry is used unless another is named. `use_registry` puts another
in its place for what is decorated or looked up inside a block.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from resilience import _forks as forks
from resilience._clock import SYSTEM_CLOCK, Clock, is_real
from resilience._core.checks import Faults
from resilience._core.config import BreakerConfig, BulkheadConfig
from resilience._core.events import ConfigConflict, Event
from resilience._core.retry_budget import RetryBudget
from resilience._events import Hub
from resilience._families import Families, refuse_single
from resilience._policies.bulkhead import SharedBulkhead
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience._policies.retry_budget import SharedRetryBudget
from resilience.catalogue import default_classifier
from resilience.errors import ConfigurationError, shown

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from resilience._core.report import BreakerStatus
    from resilience._policies.keyed_breaker import BreakerFamily
    from resilience._policies.keyed_bulkhead import BulkheadFamily
    from resilience._site import Site


class Registry(Families):
    """Breakers, bulkheads and retry budgets by name, and families of the first two.

    Iterating gives the breakers, those of families included; `in` asks for a breaker's name. Safe from any thread.

    Args:
        clock: what all of them ask for time (default: the system's).
        strict: whether registering a name again with other settings raises instead of warning (default False).
        max_keys: the most keys of a family that does not say it itself (≥ 1, default 1,024).

    Example:
        >>> registry = Registry()
        >>> registry.breaker("mail", BreakerConfig(cooldown=5)).state.value
        'closed'
    """

    def __init__(self, clock: Clock | None = None, strict: bool = False, max_keys: int = 1024) -> None:
        faults = Faults()
        faults.count("max_keys", max_keys)
        faults.flag("strict", strict)
        if clock is not None and not callable(getattr(clock, "monotonic", None)):
            faults.add("clock", clock, "a Clock (monotonic, time_ns, sleep, asleep, call_at) or None")
        faults.raise_any()
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self.now: Callable[[], float] = self._clock.monotonic
        self._strict = strict
        self._max_keys = max_keys
        self._breakers: dict[str, CircuitBreaker | BreakerFamily] = {}
        self._bulkheads: dict[str, SharedBulkhead | BulkheadFamily] = {}
        self._retry_budgets: dict[str, SharedRetryBudget] = {}
        self._conflicts: set[tuple[str, tuple[str, ...]]] = set()
        self._watchers: weakref.WeakSet[ClockWatcher] = weakref.WeakSet()
        self._forked: weakref.WeakSet[ForkWatcher] = weakref.WeakSet()
        self.hub = Hub(lambda: self._clock)
        # The call sites of blocks, by where they stand in the program.
        self.block_sites: dict[str, Site] = {}
        forks.watch(self)

    # ------------------------------------------------------------------------------------------------ names
    def breaker(self, name: str, config: BreakerConfig | None = None) -> CircuitBreaker:
        """The breaker of this name, registered with `config` (or the defaults) if it is new.

        If it is not, its settings stay as they are: a `config` that differs is told in
        one warning with the difference field by field, and counted.

        Raises:
            ConfigurationError: an unsafe name, no `BreakerConfig`; with `strict`, a difference. Not where
                `config` is what the name was first registered with: an operator has changed it since.
        """
        faults = Faults()
        name = faults.name("name", name)
        faults.instance_or_none("config", config, BreakerConfig)
        faults.raise_any()
        found = self._breakers.get(name)
        if found is None:
            home = _from_default_registry if self is _DEFAULT else None
            made = CircuitBreaker(name, config or BreakerConfig(), self, default_classifier().classify, home)
            # No lock: of those who register a name at once one is first, and the others find its breaker.
            found = self._breakers.setdefault(name, made)
            if found is made:
                # Asked afterwards: who sets another clock meanwhile tells all that are registered.
                if not is_real(self._clock):
                    made.publish_slots(False)
                return made
        if not isinstance(found, CircuitBreaker):
            refuse_single(name, "breaker")
        if config is not None and config != found.config:
            self._conflict(name, found.config.differences(config), refusable=config != found.registered)
        return found

    def bulkhead(self, name: str, config: BulkheadConfig | None = None) -> SharedBulkhead:
        """The bulkhead of this name, registered with `config` if it is new.

        Raises:
            ConfigurationError: a new name without `config`, an unsafe name; with `strict`, a difference.
        """
        faults = Faults()
        name = faults.name("name", name)
        faults.instance_or_none("config", config, BulkheadConfig)
        faults.raise_any()
        found = self._bulkheads.get(name)
        if found is None:
            if config is None:
                raise ConfigurationError(
                    f"bulkhead {name!r} is not registered: give it max_in_flight where it is first used"
                )
            made = SharedBulkhead(name, config.max_in_flight, config.longest_line, self)
            found = self._bulkheads.setdefault(name, made)
        if not isinstance(found, SharedBulkhead):
            refuse_single(name, "bulkhead")
        present = BulkheadConfig(found.max_in_flight, found.max_waiting)
        if config is not None and (config.max_in_flight, config.longest_line) != (
            found.max_in_flight,
            found.max_waiting,
        ):
            self._conflict(name, present.differences(config))
        return found

    def retry_budget(self, name: str, config: RetryBudget | None = None) -> SharedRetryBudget:
        """The retry budget of this name, registered with `config` (or the defaults) if it is new.

        Raises:
            ConfigurationError: an unsafe name, no `RetryBudget`, one of another name; with `strict`, a difference.
        """
        faults = Faults()
        name = faults.name("name", name)
        faults.instance_or_none("config", config, RetryBudget)
        if not faults and config is not None and config.name not in (None, name):
            faults.add("config", config, f"a RetryBudget without a name, or of the name {name!r}")
        faults.raise_any()
        found = self._retry_budgets.get(name)
        if found is None:
            made = SharedRetryBudget(name, (config or RetryBudget()).named(name), self)
            found = self._retry_budgets.setdefault(name, made)
            self.watch_clock(found)
            self.watch_fork(found)
        if config is not None and (differences := found.config.differences(config)):
            self._conflict(name, differences)
        return found

    def get_retry_budget(self, name: str) -> SharedRetryBudget | None:
        """The retry budget of this name, or None."""
        return self._retry_budgets.get(name)

    def _services(self) -> Registry:
        return self

    def _keyed_home(self) -> Callable[..., object] | None:
        return _keyed_from_default_registry if self is _DEFAULT else None

    def _conflict(self, name: str, differences: tuple[str, ...], *, refusable: bool = True) -> None:
        if self._strict and refusable:
            raise ConfigurationError(*(f"{name!r} is registered already with {line}" for line in differences))
        # Decorators stacked on one function register one setting several times: it is one conflict.
        if (name, differences) in self._conflicts:
            return
        self._conflicts.add((name, differences))
        self.hub.counts[f"config_conflict:{name}"] += 1
        self.hub.publish(ConfigConflict(name=name, differences=differences))

    # ------------------------------------------------------------------------------------------------ operating
    def status_all(self) -> dict[str, BreakerStatus]:
        """The status of every breaker by name, of a family's by `name[part,part]`; takes no breaker's lock."""
        return {
            breaker.name if breaker.key is None else f"{breaker.name}[{','.join(breaker.key)}]": breaker.status()
            for breaker in self
        }

    def reset(self, name: str) -> bool:
        """Reset a breaker, by its name or `name[part,part]`; True if it existed and was not closed."""
        found = self.get(name)
        return found is not None and found.reset()

    def clear_state(self) -> None:
        """Put every breaker back to closed and zero, for the next test, and every retry budget: registrations stay."""
        for breaker in self:
            breaker.clear_state()
        for watcher in tuple(self._forked):
            if isinstance(watcher, SharedRetryBudget):
                watcher.clear()

    def subscribe(self, sink: Callable[[Event], object], *types: type[Event]) -> Callable[[], None]:
        """Call `sink(event)` for every decision from now on, or only for events of `types`.

        Events come in one order, numbered, after all locks are released. A sink only
        listens: one that raises is logged once and counted.

        Returns:
            A function that ends the subscription.
        """
        if not callable(sink):
            raise ConfigurationError("sink must be a callable that takes an event")
        wrong = [kind for kind in types if not _is_event_type(kind)]
        if wrong:
            raise ConfigurationError(f"types must be event classes of resilience.events, got {shown(wrong)}")
        return self.hub.subscribe(sink, types or None)

    # ------------------------------------------------------------------------------------------------ time and forks
    @property
    def clock(self) -> Clock:
        """What everything in this registry asks for time; may be set, for tests."""
        return self._clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock = clock
        self.now = clock.monotonic
        real = is_real(clock)
        for watcher in (*self, *self._watchers):
            watcher.publish_slots(real)

    def watch_clock(self, watcher: ClockWatcher) -> None:
        """Tell `watcher`, held weakly, whenever compiled wrappers may (not) read the system's clock by themselves."""
        self._watchers.add(watcher)
        if not is_real(self._clock):
            watcher.publish_slots(False)

    def watch_fork(self, watcher: ForkWatcher) -> None:
        """Tell `watcher`, held weakly, in a forked child."""
        self._forked.add(watcher)

    def locks(self) -> list[threading.RLock]:
        """What a fork has to wait for: whoever holds one is in the middle of a change."""
        # Those that are asleep have none of their own.
        return list({breaker.lock for breaker in self})

    def after_fork(self) -> None:
        """In the child: nobody here holds a lock, a slot or a probe."""
        self.hub.renew_lock()
        families = [found for found in self._breakers.values() if not isinstance(found, CircuitBreaker)]
        for thing in (*families, *self, *self._bulkheads.values(), *self._forked):
            thing.after_fork()

    def __repr__(self) -> str:
        return f"<Registry of {sum(1 for _ in self)} breakers, {len(self._bulkheads)} bulkheads>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a registry belongs to its process: it can't be pickled")


_DEFAULT = Registry()
_CURRENT: ContextVar[Registry | None] = ContextVar("resilience_registry", default=None)


def default_registry() -> Registry:
    """The process-wide registry."""
    return _DEFAULT


def current_registry() -> Registry:
    """The registry of the innermost `use_registry`, else the process-wide one."""
    return _CURRENT.get() or _DEFAULT


@contextmanager
def use_registry(registry: Registry) -> Iterator[Registry]:
    """Use another registry for what is decorated or looked up inside the block.

    A function decorated before keeps its own.

    Example:
        >>> with use_registry(Registry()) as registry:
        ...     guarded = breaker("mail", BreakerConfig())(print)
        >>> "mail" in registry, "mail" in default_registry()
        (True, False)
    """
    faults = Faults()
    faults.instance("registry", registry, Registry)
    faults.raise_any()
    before = _CURRENT.get()
    _CURRENT.set(registry)
    try:
        yield registry
    finally:
        _CURRENT.set(before)


def _is_event_type(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, Event)


def _keyed_from_default_registry(
    name: str, labels: tuple[str, ...], config: BreakerConfig, max_keys: int, key: tuple[str, ...]
) -> CircuitBreaker:
    """The same for one of a family: by its name and key."""
    return _DEFAULT.family(name, labels or None, config, max_keys=max_keys)[key]


def _from_default_registry(name: str, config: BreakerConfig) -> CircuitBreaker:
    """Where a pickled breaker is found again: by its name, in the process that loads it."""
    return _DEFAULT.breaker(name, config)


# For type checkers only: a protocol takes its time to make, which everybody would pay for at import.
if TYPE_CHECKING:

    class ClockWatcher(Protocol):
        """Whoever lets compiled wrappers pass by the system's clock."""

        def publish_slots(self, published: bool) -> None:
            """Whether they may."""

    class ForkWatcher(Protocol):
        """Whoever holds locks, slots or threads that a forked child does not have."""

        def after_fork(self) -> None:
            """Start afresh."""
