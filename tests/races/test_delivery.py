"""Section 12 and I17: delivering events never holds a call for as long as others publish."""

from __future__ import annotations

import threading
import time

from resilience import BreakerConfig, CircuitOpenError, breaker
from resilience._core.events import Rejected

MANY = 3000


def test_deliverer_is_not_kept_for_as_long_as_others_publish(registry):
    """I17: listeners never delay a call beyond a bound: whoever delivers hands over after a bounded number of events."""
    fn = breaker("api", BreakerConfig())(lambda: None)
    registry.get("api").force_open("drill")
    delivered = {}
    go, done = threading.Semaphore(0), threading.Semaphore(0)
    over = threading.Event()

    def refused():
        try:
            fn()
        except CircuitOpenError:
            pass

    def publish():
        while go.acquire(timeout=5) and not over.is_set():
            refused()
            done.release()

    others = threading.Thread(target=publish, daemon=True)
    others.start()

    def sink(event):
        me = threading.get_ident()
        delivered[me] = delivered.get(me, 0) + 1
        if me != others.ident and sum(delivered.values()) < MANY:
            go.release()
            done.acquire(timeout=1)  # while we deliver, the other thread has published one more

    registry.subscribe(sink, Rejected)
    refused()
    mine = delivered[threading.get_ident()]
    over.set()
    go.release()
    others.join(5)
    assert mine < MANY - 1


def test_every_event_is_delivered_in_the_end(registry, together, restless):
    """Section 12: handing over loses nothing: after the last call everything published is delivered, in order."""
    seen = []
    registry.subscribe(lambda event: seen.append(event.sequence), Rejected)
    fn = breaker("api", BreakerConfig())(lambda: None)
    registry.get("api").force_open("drill")

    def work(index):
        for _ in range(300):
            try:
                fn()
            except CircuitOpenError:
                pass

    assert [None] * 8 == together(8, work)
    # Who has delivered enough leaves the rest to a thread of the library's own.
    deadline = time.monotonic() + 10
    while len(seen) < 2400 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert 2400 == len(seen)
    assert sorted(seen) == seen
