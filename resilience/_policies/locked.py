"""A circuit behind one lock.

A finaliser, a weakref callback or a signal handler may run in the middle of a locked
section and call a guarded function, of this breaker or another. It then finds its
thread among those in the middle of a change and waits for nothing: its report stays in
the inbox, of this breaker until just before the lock is given back, of another until
just after; its request for a permit is refused with nothing to wait for. No user code,
no I/O and no other lock is ever reached from inside: events only go to the hub's
outbox, and are delivered after unlocking.
"""

from __future__ import annotations

import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from resilience._changing import CHANGING, LEFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.circuit import Circuit
    from resilience._site import Services


_MOST_AT_ONCE = 1_000


class LockedCircuit:
    """Runs a circuit's acts one at a time, and tells its events afterwards.

    Attributes:
        circuit: the machine; its published slots may be read by anybody.
        key: what tells its events from those of the same name, None without.
    """

    # `__dict__`, which costs nothing until it is used, for those who put a stand-in for a method on an object.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_ask",
        "_busy",
        "_hub",
        "_inbox",
        "_lock",
        "_outbox",
        "_real",
        "_services",
        "circuit",
        "key",
    )

    def __init__(self, circuit: Circuit, services: Services) -> None:
        self.circuit = circuit
        self.key: tuple[str, ...] | None = None
        self._services = services
        self._hub = services.hub
        self._outbox = services.hub.outbox
        self._lock = threading.RLock()
        self._busy = 0
        self._real = True
        # Hardly ever more than a few, and of many breakers at a time: a deque would take ten times the room.
        self._inbox: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._ask: Callable[..., Any] = circuit.acquire

    @property
    def busy(self) -> int:
        """The thread that is in the middle of a change, 0 if none is."""
        return self._busy

    def now(self) -> float:
        """Monotonic seconds on the registry's clock."""
        return time.monotonic() if self._real else self._services.now()

    def publish_slots(self, published: bool) -> None:
        """Whether the system's clock may be read without asking the registry for its own."""
        self._real = published
        self._section(self.circuit.publish, published)

    @property
    def lock(self) -> threading.RLock:
        """What a change holds from its beginning to its end."""
        return self._lock

    def after_fork(self) -> None:
        """In the child: the parent's probe is not ours, and nobody else is in the middle of a change."""
        # Where the fork itself came out of one, from a handler or a finaliser, that change goes on here as well.
        if self._busy != get_ident():
            self._lock = threading.RLock()
            self._busy = 0
            self._inbox.clear()
        self._section(self.circuit.abandon_probes)

    def make_good(self) -> None:
        """Take in what was left in the inbox by those who could not wait."""
        if self._inbox:
            # What is left meanwhile waits for whoever comes next: one would never come to an end of it.
            self._change(_nothing, (), get_ident())
            self._hub.deliver()

    def _section(self, act: Callable[..., Any], *args: Any) -> Any:
        """Run one act of the circuit under the lock; None where it has to wait in the inbox."""
        me = get_ident()
        if me in CHANGING:
            return self._from_inside(me, act, args)
        result = self._change(act, args, me)
        if LEFT:
            for circuit in LEFT.pop(me, ()):
                circuit.make_good()
        if self._outbox:
            self._hub.deliver()
        return result

    def _from_inside(self, me: int, act: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        ours = CHANGING[me] is self
        if ours and not self._busy:
            # Between two acts of a change of this very circuit.
            result = self._perform(act, args, me)
            if self._inbox:
                self._perform_those_left(me)
            return result
        # A request for a permit is answered on the spot; only reports and acts are made good later.
        if act != self._ask:
            self._inbox.append((act, args))
            if not ours:
                LEFT.setdefault(me, []).append(self)
        return None

    # `with`, not acquire and release: a signal handler that raises between a call of acquire and the try after it
    # would leave the lock held for good. For the same reason nothing is called, and no loop stands (CPython 3.13
    # leaves a hole in the try at its end, cpython#130279), where the marks are set and cleared: handlers and the
    # collector come in after calls and at the end of a loop's turn.
    def _change(self, act: Callable[..., Any], args: tuple[Any, ...], me: int) -> Any:
        with self._lock:
            try:
                CHANGING[me] = self
                result = self._perform(act, args, me)
                if self._inbox:
                    self._perform_those_left(me)
            finally:
                del CHANGING[me]
        return result

    def _perform(self, act: Callable[..., Any], args: tuple[Any, ...], me: int) -> Any:
        try:
            self._busy = me
            if self._real:
                result = act(*args, time.monotonic(), time.time_ns())
            else:
                clock = self._services.clock
                result = act(*args, clock.monotonic(), clock.time_ns())
            # Still busy: the events of whoever comes in between belong after these.
            if self.circuit.events:
                self._hand_over_events()
            return result
        finally:
            self._busy = 0

    def _hand_over_events(self) -> None:
        events, key = self.circuit.events, self.key
        while events:
            event = events.pop(0)
            if key is not None:
                event.__dict__["key"] = key
            self._hub.put(event)

    def _perform_those_left(self, me: int) -> None:
        # Bounded: if making one good leads to the next, the rest waits for whoever comes next.
        for _ in range(_MOST_AT_ONCE):
            # Popped rather than looked at: a finaliser may come between two reports and make them all good.
            try:
                act, args = self._inbox.pop(0)
            except IndexError:
                return
            self._perform(act, args, me)


def _nothing(now: float, time_ns: int) -> None:
    """The act of who only comes for what was left."""
