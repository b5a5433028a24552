"""A plan is driven by a scripted world: what each attempt brings, what a wait brings, and a log of all that was asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    Consecutive,
    FaultKind,
    OnOpen,
    OnReject,
    Registry,
    use_registry,
)
from resilience._core.outcome import Outcome
from resilience._engine.plan import in_order, link
from resilience._engine.world_sync import run
from resilience._policies.breaker import BreakerLayers
from resilience._policies.bulkhead import BulkheadLayers
from resilience._policies.retry import RetryLayers
from resilience._policies.timeout import TimeoutLayers
from resilience._site import Call, Site
from resilience.catalogue import default_classifier
from resilience.testing import ManualClock


class ScriptedWorld:
    """Attempts end as the script says: a value, an exception, an `Outcome`, or a function that makes one of them."""

    adopted = False

    def __init__(self, clock):
        self.clock = clock
        self.script = []
        self.log = []
        self.on_wait = lambda ticket: None
        self.on_sleep = lambda seconds: None

    async def attempt(self, call):
        self.log.append("attempt")
        step = self.script.pop(0)
        made = step() if callable(step) else step
        if isinstance(made, Outcome):
            return made
        return Outcome(error=made) if isinstance(made, Exception) else Outcome(made)

    async def sleep(self, seconds):
        self.log.append(("sleep", seconds))
        self.clock.advance(seconds)
        self.on_sleep(seconds)

    async def wait(self, ticket, seconds, ready):
        self.log.append(("wait", seconds))
        ready()
        self.on_wait(ticket)

    async def bounded(self, deadline, call, inner):
        self.log.append(("bounded", deadline.scope.value, deadline.seconds))
        return await inner(call)

    async def invoke(self, function, args, kwargs):
        self.log.append("invoke")
        try:
            return Outcome(function(*args, **kwargs))
        except Exception as error:
            return Outcome(error=error)


class Plan:
    """A site, its world and the layers under test."""

    def __init__(self, registry, clock):
        self.registry = registry
        self.clock = clock
        self.world = ScriptedWorld(clock)
        self.site = Site(lambda *args, **kwargs: None, "module:fn", registry, default_classifier().classify)
        self.layers = []
        self.events = []
        registry.subscribe(self.events.append)

    def breaker(self, config=None, *, on_open=OnOpen.FAIL, fallback=None, unless=None, per_call=False):
        config = config or BreakerConfig(Consecutive(2), cooldown=30)
        made = BreakerLayers(
            lambda: self.registry.breaker("provider", config),
            self.site,
            on_open=on_open,
            fallback=fallback,
            unless=unless,
            per_call=per_call,
        )
        self.layers += made.layers()
        return made

    def bulkhead(self, limit=1, waiting=10, *, wait=0.0, on_reject=OnReject.FAIL, fallback=None):
        made = BulkheadLayers(
            lambda: self.registry.bulkhead("room", BulkheadConfig(limit, waiting)),
            self.site,
            wait=wait,
            on_reject=on_reject,
            fallback=fallback,
        )
        self.layers += made.layers()
        return made

    def retry(self, attempts=3, *, breaker=None, **options):
        given = {
            "max_attempts": attempts,
            "initial_backoff": 1.0,
            "max_backoff": 8.0,
            "jitter": 0.0,
            "wait": None,
            "stop": None,
            "retry_on": frozenset({FaultKind.TRANSIENT}),
            "safe_only": False,
            "max_retry_after": 60.0,
            "stopped": None if breaker is None else breaker.stopped,
            "budget": None,
        }
        made = RetryLayers(self.site, **{**given, **options})
        self.layers += made.layers()
        return made

    def timeout(self, budget=None, per_attempt=None, counts=True):
        self.site.timed, self.site.budget, self.site.per_attempt = True, budget, per_attempt
        made = TimeoutLayers(self.site, budget=budget, per_attempt=per_attempt, counts=counts)
        self.layers += made.layers()
        return made

    def call(self, *args, script=(), **kwargs):
        """Drive one call; its outcome."""
        self.world.script = list(script)
        self.latest = Call(self.site, self.world, args, kwargs)
        if self.site.timed:
            self.latest.entered = self.clock.monotonic()
        return run(link(in_order(self.layers))(self.latest))

    @property
    def status(self):
        return self.registry.get("provider").status()

    @property
    def event_names(self):
        return [type(event).__name__ for event in self.events]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry(clock):
    with use_registry(Registry(clock)) as registry:
        yield registry


@pytest.fixture
def plan(registry, clock):
    return Plan(registry, clock)


@pytest.fixture
def told(registry):
    """What a listener is told: every event as it was delivered, but for when that was."""
    seen = []

    def listen(event):
        seen.append(type(event)(**{**event.as_dict(), "at": 0.0, "time_ns": 0, "sequence": 0}))

    registry.subscribe(listen)
    return seen


@pytest.fixture
def down():
    return lambda text="down": ConnectionError(text)


@pytest.fixture
def fault_of():
    """An exception that carries what a classifier believes."""

    def make(kind=FaultKind.TRANSIENT, **options):
        error = ConnectionError("carried")
        error.fault_kind = kind
        vars(error).update(options)
        return error

    return make


@pytest.fixture
def namespace():
    return SimpleNamespace
