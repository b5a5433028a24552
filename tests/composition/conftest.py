"""Probes at every station of a call: what happened, in which order, and what held at that moment.

- `door`: the predicate given as `unless`, asked before anything is taken
- `slot`, `slot back`: the bulkhead's own list of free slots, which records what is popped and appended
- `permit`: the making of a permit
- `call`: the function
- `wait`: the clock

Each tells what is left of the limits around it: so the budget begins after the slot and before
the first permit, and the limit of an attempt after its permit and before the call.
"""

from __future__ import annotations

import asyncio

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    Registry,
    breaker,
    bulkhead,
    idempotent,
    interruptible,
    remaining,
    retry,
    timeout,
    use_registry,
)
from resilience._core.permit import Permit
from resilience.testing import ManualClock

BODIES = ("async", "worker", "pass_as")


class PatientClock(ManualClock):
    """Waits pass by themselves, and are recorded."""

    def __init__(self, record):
        super().__init__()
        self._record = record

    def sleep(self, seconds):
        self._record("wait")
        self.advance(seconds)

    async def asleep(self, seconds):
        self.sleep(seconds)


class RecordedSlots(list):
    def __init__(self, slots, record):
        super().__init__(slots)
        self._record = record

    def pop(self):
        slot = super().pop()
        self._record("slot")
        return slot

    def append(self, slot):
        super().append(slot)
        self._record("slot back")


class Stations:
    """One registry and function with probes; `policies` are of the function's kind."""

    def __init__(self, body, *, plan=True):
        self.body = body
        self.plan = plan
        self.seen = []
        self.calls = 0
        self.failures = 1
        self.registry = Registry(PatientClock(self.note)) if plan else Registry()
        self.room = self.registry.bulkhead("room", BulkheadConfig(4))
        self.room.slots.free = RecordedSlots(self.room.slots.free, self.note)

    def note(self, station):
        left = remaining()
        self.seen.append(f"{station}: {'no limit' if left is None else f'{left:g} s left' if self.plan else 'limited'}")

    def policy(self, kind):
        if kind == "bulkhead":
            return bulkhead("room", max_in_flight=4)
        if kind == "timeout":
            return timeout(
                30, per_attempt=10 if self.plan else None, pass_as="seconds" if self.body == "pass_as" else None
            )
        if kind == "retry":
            return retry(3, wait=1 if self.plan else 0)
        return breaker("provider", BreakerConfig(), unless=self._door if self.plan else None)

    def function(self):
        """Fails once where it may be repeated, and tells what holds around it."""

        def work(seconds):
            self.calls += 1
            self.note(f"call {self.calls} with {self.room.in_flight} in flight")
            if self.calls <= self.failures:
                raise ConnectionError("down")
            return "fine"

        if self.body == "async":

            async def remote(seconds=None):
                return work(seconds)

        else:

            def remote(seconds=None):
                return work(seconds)

        return idempotent(interruptible(remote) if self.body == "worker" else remote)

    def stack(self, kinds):
        """A function with policies, the first of them outermost."""
        with use_registry(self.registry):
            fn = self.function()
            for kind in reversed(kinds):
                fn = self.policy(kind)(fn)
        return fn

    def call(self, fn):
        # What is made together with a breaker is no station of a call.
        self.seen.clear()
        with use_registry(self.registry):
            return asyncio.run(fn()) if self.body == "async" else fn()

    def _door(self, *args, **kwargs):
        self.note(f"door with {self.room.in_flight} in flight")
        return False


@pytest.fixture
def stations(monkeypatch):
    """Makes `Stations`; the making of permits is recorded on the latest."""
    made = []

    def make(body, *, plan=True):
        made.append(Stations(body, plan=plan))
        return made[-1]

    admit = Permit.__init__

    def recorded_permit(self, *args, **kwargs):
        admit(self, *args, **kwargs)
        if made:
            made[-1].note("permit")

    monkeypatch.setattr(Permit, "__init__", recorded_permit)
    return make


@pytest.fixture(params=BODIES)
def body(request):
    return request.param
