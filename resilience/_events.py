"""The hub: takes events inside locks, hands them to listeners outside, in one order.

`put` only appends, so it may be called under any lock. `deliver` is called after
unlocking; one thread at a time delivers and numbers, whoever comes meanwhile leaves
its events to that thread. A listener that calls a breaker only adds to the outbox.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections import deque
from typing import TYPE_CHECKING, Any

from resilience._core import events as ev
from resilience._turns import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._clock import Clock

    Sink = Callable[[ev.Event], object]


_MOST_IN_TURN = 2_000
_LONGEST_OUTBOX = 10_000
_MOST_TALLIES = 1_000


class Hub:
    """Outbox, listeners and counts of one registry."""

    def __init__(self, clock: Callable[[], Clock]) -> None:
        self._clock = clock
        self.outbox: deque[ev.Event] = deque()
        self._delivering = Turn()
        self._subscriptions: tuple[tuple[Sink, frozenset[type[ev.Event]] | None], ...] = ()
        self._sequence = 0
        self._delivered_in_turn = 0
        self.wanted: frozenset[type[ev.Event]] = frozenset()
        # Public for those who look before they call: an empty outbox needs no delivery.
        self.counts: Tally[str] = Tally()
        """Rare things worth a figure: config conflicts, sink failures, unclassified exceptions by type."""

    # ------------------------------------------------------------------------------------------------ listening
    def subscribe(self, sink: Sink, only: tuple[type[ev.Event], ...] | None = None) -> Callable[[], None]:
        """Call `sink(event)` for every event (or those of the types `only`); returns the way to stop it."""
        entry = (sink, None if only is None else frozenset(only))
        self._set((*self._subscriptions, entry))

        def unsubscribe() -> None:
            self._set(tuple(kept for kept in self._subscriptions if kept is not entry))

        return unsubscribe

    def _set(self, subscriptions: tuple[tuple[Sink, frozenset[type[ev.Event]] | None], ...]) -> None:
        self._subscriptions = subscriptions
        self.wanted = frozenset(kind for _, only in subscriptions for kind in (ev.OPTIONAL if only is None else only))

    def wants(self, kind: type[ev.Event]) -> bool:
        """Whether a listener asked for this type: one that nobody asked for is not even built."""
        return kind in self.wanted

    # ------------------------------------------------------------------------------------------------ sending
    def tally(self, key: str) -> None:
        """Count a rare thing by name; names beyond a bound are counted together."""
        if key not in self.counts and len(self.counts) >= _MOST_TALLIES:
            key = key.split(":", 1)[0] + ":__other__"
        self.counts[key] += 1

    def put(self, event: ev.Event) -> None:
        """Leave an event for delivery. Safe under any lock: it appends, and runs nobody's code."""
        if len(self.outbox) >= _LONGEST_OUTBOX and type(event) in ev.OPTIONAL:
            # Listeners are slower than the flood: what only they asked for is counted instead.
            self.counts["events_dropped"] += 1
            return
        clock = self._clock()
        event.__dict__["at"] = clock.monotonic()
        event.__dict__["time_ns"] = clock.time_ns()
        self.outbox.append(event)

    def deliver(self) -> None:
        """Hand out what is waiting, unless another thread is at it (which then does it for us).

        A call is kept for no more than 2,000 events; a thread of our own goes on with the rest of a flood.
        """
        # Looked at again after each turn: somebody may have come and left in between.
        while self.outbox and self._delivering.take(self._drain):
            if self.outbox and self._delivered_in_turn >= _MOST_IN_TURN:
                threading.Thread(target=self.deliver, name="resilience events", daemon=True).start()
                return

    def publish(self, event: ev.Event) -> None:
        """Put and deliver, for events that belong to no lock."""
        self.put(event)
        self.deliver()

    def _drain(self) -> None:
        self._delivered_in_turn = 0
        while self._delivered_in_turn < _MOST_IN_TURN:
            try:
                event = self.outbox.popleft()
            except IndexError:
                return
            self._delivered_in_turn += 1
            self._sequence += 1
            event.numbered(self._sequence)
            try:
                _log(event)
            except Exception:
                # Somebody's log handler: no more than a listener may it reach the caller.
                self.counts["log_failed"] += 1
            for sink, only in self._subscriptions:
                if only is None or type(event) in only:
                    try:
                        sink(event)
                    except Exception as error:
                        self._note_failure(sink, error)

    def _note_failure(self, sink: Any, error: Exception) -> None:
        name = str(getattr(sink, "__qualname__", type(sink).__qualname__))
        key = f"sink_failed:{name}"
        self.counts[key] += 1
        if self.counts[key] == 1:
            warn(
                "event listener %s failed with %s; it goes on being called, further failures are only counted",
                name,
                type(error).__name__,
            )
            # Not for the failed listener alone: others may count failures. The outbox is being drained right now.
            self.put(ev.SinkFailed(name=name, sink=name, error=type(error).__name__))

    def renew_lock(self) -> None:
        """In a forked child: a thread that does not exist here may have held the lock."""
        self._delivering = Turn()


def warn(message: str, *args: object) -> None:
    """Log a warning; somebody's log handler that raises never reaches the caller."""
    try:
        logger().warning(message, *args)
    except Exception:
        pass


def logger() -> Any:
    """The library's logger; logging is imported when there is something to say."""
    if not _LOGGER:
        import logging

        _LOGGER.append(logging.getLogger("resilience"))
    return _LOGGER[0]


_LOGGER: list[Any] = []


def _log(event: ev.Event) -> None:
    if isinstance(event, ev.StateChanged):
        _log_state(event)
    elif isinstance(event, ev.ConfigConflict):
        logger().warning(
            "breaker, bulkhead or retry budget %r is registered already; the new settings change nothing: %s",
            event.name,
            "; ".join(event.differences),
        )
    elif isinstance(event, ev.Reconfigured):
        by = f" by {event.actor}" if event.actor else ""
        logger().info("circuit %r has other settings%s: %s", event.name, by, "; ".join(event.differences))
    elif isinstance(event, ev.KeyOverflow):
        why = _NO_KEY[event.reason].format(event.max_keys)
        logger().warning("%r: %s; such calls share the key __other__", event.name, why)
    elif isinstance(event, (ev.ProbeStarted, ev.ProbeSucceeded, ev.ProbeFailed, ev.ProbeReleased, ev.Rejected)):
        logger().debug("%s %s", event.name, type(event).__name__)


# Never the key itself: it may be anybody's text.
_NO_KEY = {
    "full": "all {:,} keys that it may have are in use, and a further one is asked for",
    "unsafe": "a part of a key is no str of 1 to 256 bytes of A-Z a-z 0-9 . _ : / @ + -, nor a whole number",
    "parts": "a key has more or fewer parts than the family has labels",
    "raised": "the function that tells the key raised",
}


def _log_state(event: ev.StateChanged) -> None:
    opened = event.after.value == "open"
    say = logger().warning if opened else logger().info
    stay = "" if event.retry_after is None else f" for {event.retry_after:.3g} s"
    by = f" by {event.actor}" if event.actor else ""
    say("circuit %r is %s%s (%s%s)", event.name, event.after.value, stay, event.cause, by)
