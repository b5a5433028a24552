"""Breakers by key: many of them, most of which never see a failure.

One that has seen none is *asleep*: all it has of its own is a count of successes. Its
circuit, which it shares with its sleeping sisters, is closed and never changes, so
calls pass as through any healthy breaker. The first act that would change a circuit
wakes it: it gets a circuit, a lock and counters of its own. One that leaves while it is
asleep shares a retired circuit in the same way.

Waking takes no lock. All who wake a breaker at once take the same set of parts, the one
that was first in `_WAKING`; each puts all of them in place, the circuit last, before the
set is taken out again. So whoever comes later finds the breaker awake.
"""

from __future__ import annotations

import threading
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from resilience._core.circuit import Circuit
from resilience._core.counter import Counter
from resilience._core.keys import spelled_key
from resilience._policies.attempts import AttemptedCircuit
from resilience._policies.circuit_breaker import FAIL, CircuitBreaker
from resilience._policies.families import Family
from resilience._policies.guard import GuardKit
from resilience._policies.marks import new_mark
from resilience._words import BreakerMode, CircuitState, OnOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from resilience._core.config import BreakerConfig
    from resilience._core.report import BreakerStatus
    from resilience._core.view import View
    from resilience._policies.guard import Block
    from resilience._site import Classify, Services


class KeyedBreaker(CircuitBreaker):
    """The breaker of one key of a family."""

    __slots__ = ("_created_ns", "family", "seen")

    def __init__(self, family: BreakerFamily, key: tuple[str, ...], time_ns: int) -> None:
        # Nothing is called on the way up: what is shared is the family's. One by one, for a loop takes twice as long.
        shared = family.pattern
        self.name, self.registered = shared.name, shared.registered
        self._services, self._hub, self._outbox = shared._services, shared._hub, shared._outbox
        self._classify, self._home, self._real = shared._classify, shared._home, True
        self._guards, self._failing_guards = shared._guards, shared._failing_guards
        self._lock, self._inbox, self.mark = shared._lock, shared._inbox, shared.mark
        self.rejected, self.bypassed, self._ask = shared.rejected, shared.bypassed, shared._ask
        self.circuit = shared.circuit
        self.family = family
        self.key: tuple[str, ...] | None = key
        self.seen: int | None = None
        self.successes = Counter()
        self._busy = 0
        self._created_ns = time_ns

    # ------------------------------------------------------------------------------------------------ asleep and awake
    @property
    def is_asleep(self) -> bool:
        """Whether it has no circuit of its own."""
        return self.circuit in self.family.shared_circuits

    def awake(self) -> Circuit:
        shared = self.family.shared_circuits
        # Twice, at most: one that falls asleep for good meanwhile wakes as a retired one.
        while (circuit := self.circuit) in shared:
            self._wake(circuit, self._new_parts(retired=circuit is not shared[0]))
        return circuit

    @property
    def mark(self) -> tuple[int, ...]:
        """What an exception that it counts is marked with: its own, which it has once it is awake."""
        self.awake()
        mark: tuple[int, ...] = _MARK.__get__(self)
        return mark

    @mark.setter
    def mark(self, mark: tuple[int, ...]) -> None:
        _MARK.__set__(self, mark)

    def _new_parts(self, *, retired: bool) -> Parts:
        circuit = Circuit(self.family.config, self.name, self._created_ns)
        if retired:
            circuit.retire()
        circuit.totals.successes = self.successes
        return Parts(threading.RLock(), [], new_mark(), Counter(), Counter(), circuit.acquire, circuit)

    def _wake(self, asleep: Circuit, new: Parts) -> None:
        """Exchange a shared circuit for what comes after it."""
        parts = _WAKING.setdefault((self, asleep), new)
        if self.circuit is asleep:
            self._lock, self._inbox, self.mark, self.rejected, self.bypassed, self._ask, circuit = parts
            self.circuit = circuit
        _WAKING.pop((self, asleep), None)

    def _section(self, act: Callable[..., Any], *args: Any) -> Any:
        # What was asked of a shared circuit, perhaps by somebody who looked a moment ago, means this breaker's own.
        if getattr(act, "__self__", None) in self.family.shared_circuits:
            act = getattr(self.awake(), act.__name__)
        return super()._section(act, *args)

    def publish_slots(self, published: bool) -> None:
        if not (published and self.is_asleep):
            super().publish_slots(published)

    def clear_state(self) -> None:
        if self.is_asleep:
            self.successes.zero()
        else:
            super().clear_state()

    def after_fork(self) -> None:
        if self.is_asleep:
            return
        torn = self._busy not in (0, get_ident())
        super().after_fork()
        if torn:
            # It woke up in the middle of the fork, when nobody could wait for it: there is nothing that it could lose.
            self._section(self.circuit.clear)

    # ------------------------------------------------------------------------------------------------ making room
    @property
    def retired(self) -> bool:
        """Whether it has made room for another key."""
        return self.circuit.view.mode is BreakerMode.RETIRED

    def activity(self, now: float) -> int | None:
        """How many results it has seen; None while it can't go: not closed, an operator's act in force, a failure held."""
        circuit, successes = self.circuit, self.successes.value
        if circuit is self.family.shared_circuits[0]:
            return successes
        view = circuit.view
        if view.mode is BreakerMode.RETIRED:
            # Whoever was to take it out was interrupted.
            return successes
        if view.state is not CircuitState.CLOSED or view.mode not in _LEAVING or view.config is not self.family.config:
            return None
        if view.held.figures(now, successes).failures:
            return None
        return successes + circuit.totals.answered

    def retire(self) -> bool:
        """Leave for good; False where something would be lost by it."""
        asleep, retired = self.family.shared_circuits
        if self.circuit is asleep:
            self._wake(asleep, self.family.retired_parts)
            if self.circuit is retired:
                return True
        return self._section(self.circuit.retire) is True

    # ------------------------------------------------------------------------------------------------ what a breaker does
    @property
    def labels(self) -> Mapping[str, str]:
        """The key by the family's labels."""
        return MappingProxyType(dict(zip(self.family.labels, self.key or (), strict=False)))

    def changed_ns(self, view: View) -> int:
        return self._created_ns if view.changed_ns == _SHARED_NS else view.changed_ns

    def guard(self, on_open: OnOpen = FAIL) -> Block:
        if self._guards is self.family.pattern._guards:
            self._failing_guards = GuardKit(self, self._classify, FAIL)
            self._guards = {FAIL: self._failing_guards, OnOpen.BYPASS: GuardKit(self, self._classify, OnOpen.BYPASS)}
        return super().guard(on_open)

    # An operator's act on a breaker that was kept too long means the one that has taken its place.
    def force_open(self, reason: str, *, seconds: float | None = None, actor: str | None = None) -> None:
        super().force_open(reason, seconds=seconds, actor=actor)
        successor = self._successor()
        if successor is not None:
            successor.force_open(reason, seconds=seconds, actor=actor)

    def disable(self, *, reason: str | None = None, actor: str | None = None) -> None:
        super().disable(reason=reason, actor=actor)
        successor = self._successor()
        if successor is not None:
            successor.disable(reason=reason, actor=actor)

    def reconfigure(self, config: BreakerConfig, *, actor: str | None = None) -> None:
        super().reconfigure(config, actor=actor)
        successor = self._successor()
        if successor is not None:
            successor.reconfigure(config, actor=actor)

    def reset(self, *, reason: str | None = None, actor: str | None = None) -> bool:
        done = super().reset(reason=reason, actor=actor)
        present = self._present()
        return done if present is None else present.reset(reason=reason, actor=actor)

    def enable(self, *, actor: str | None = None) -> None:
        super().enable(actor=actor)
        present = self._present()
        if present is not None:
            present.enable(actor=actor)

    def _present(self) -> KeyedBreaker | None:
        """The one that has taken its place, where there is one: what nobody has asked for is closed anyway."""
        found = self.family.members.get(self.key or ()) if self.retired else None
        return None if found is self else found

    def _successor(self) -> KeyedBreaker | None:
        found = self.family.find(self.key) if self.retired else None
        return found if found is not self and found is not self.family.other else None

    def __repr__(self) -> str:
        return f"<CircuitBreaker {spelled_key(self.name, self.key or ())!r} {self.state.value}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._home is None:
            return super().__reduce__()
        family = self.family
        # Not its own settings: an operator may have changed them for this key, and they are what the family would get.
        return self._home, (self.name, family.labels, family.config, family.max_keys, self.key)


class Parts(NamedTuple):
    """What an awake breaker has of its own, in the order in which it is put in place."""

    lock: threading.RLock
    inbox: list[Any]
    mark: tuple[int, ...]
    rejected: Counter
    bypassed: Counter
    ask: Callable[..., Any]
    circuit: Circuit


_WAKING: dict[tuple[KeyedBreaker, Circuit], Parts] = {}
_MARK: Any = AttemptedCircuit.__dict__["mark"]
_SHARED_NS = -1
"""When a shared circuit came into being: never."""
_LEAVING = frozenset({BreakerMode.NORMAL, BreakerMode.SHADOW})


class BreakerFamily(Family[KeyedBreaker]):
    """One breaker per key under one name, all with the same settings; made by `Registry.family`.

    `family[provider, model]` is the breaker of a key, made if need be; its first use
    decides nothing: settings and labels are the family's. No more than `max_keys` keys
    have a breaker at a time. For a further one, a key that was idle for a while (closed,
    no failure held, no call since the last look) makes room; where there is none, the
    call shares the breaker `__other__`.

    Safe from any number of threads and event loops.

    Attributes:
        name: its name in the registry.
        config: the settings of every breaker.
        max_keys: the most keys that have a breaker at a time.

    Example:
        >>> family = Registry().family("llm", labels=("provider", "model"))
        >>> family["openai", "gpt-4"].state.value, family.get("openai", "gpt-5")
        ('closed', None)
    """

    __slots__ = ("config", "pattern", "retired_parts", "shared_circuits")

    def __init__(
        self,
        name: str,
        labels: tuple[str, ...],
        config: BreakerConfig,
        max_keys: int,
        services: Services,
        classify: Classify,
        home: object = None,
    ) -> None:
        super().__init__(name, labels, max_keys, services)
        self.config = config
        self.pattern = CircuitBreaker(name, config, services, classify, home)
        asleep, retired = Circuit(config, name, _SHARED_NS), Circuit(config, name, _SHARED_NS)
        asleep.count_nothing()
        retired.retire()
        shared = self.pattern
        shared.circuit, shared._ask = asleep, asleep.acquire
        self.shared_circuits = (asleep, retired)
        self.retired_parts = Parts(
            shared.lock, [], shared.mark, shared.rejected, shared.bypassed, retired.acquire, retired
        )

    def _make(self, key: tuple[str, ...]) -> KeyedBreaker:
        return KeyedBreaker(self, key, self._services.clock.time_ns())

    def _made(self, member: KeyedBreaker) -> None:
        # Asked afterwards: who sets another clock meanwhile tells all that have entered.
        if not self._services.is_real:
            member.publish_slots(False)

    def status_all(self) -> dict[tuple[str, ...], BreakerStatus]:
        """The status of every breaker by its key, `__other__` included; takes no breaker's lock."""
        return {breaker.key or (): breaker.status() for breaker in self.everybody}

    def reset(self, *key: Any, reason: str | None = None, actor: str | None = None) -> bool:
        """Reset the breaker of a key (its parts, or one tuple of them), or without a key all of them.

        Returns:
            Whether there was one that was not closed.
        """
        if key:
            found = self.get(*key)
            return found is not None and found.reset(reason=reason, actor=actor)
        done = [breaker.reset(reason=reason, actor=actor) for breaker in self.everybody]
        return any(done)

    def __repr__(self) -> str:
        return (
            f"<BreakerFamily {self.name!r} by {', '.join(self.labels) or 'key'}, {len(self)} of {self.max_keys} keys>"
        )
