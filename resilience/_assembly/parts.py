"""Policies bound to a function and to their shared machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._assembly.budgets import make_own_budget, refer_to_budget
from resilience._assembly.fitting import place_of
from resilience._engine import world_sync
from resilience._engine.workers import WorkerPool
from resilience._keying import reader_of
from resilience._marks import DEFAULT_WORKERS, is_uninterruptible, worker_limit
from resilience._policies.breaker import BreakerLayers
from resilience._policies.bulkhead import BulkheadLayers, SharedBulkhead
from resilience._policies.classifying import classify_with
from resilience._policies.retry import RetryLayers
from resilience._policies.timeout import TimeoutLayers
from resilience._registry import Registry, current_registry
from resilience._site import Site
from resilience.catalogue import default_classifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.order import Layer
    from resilience._engine.kinds import Kind
    from resilience._policies.retry_budget import BudgetReference
    from resilience._settings import Given, RetryPolicy
    from resilience._site import Call


class Parts:
    """What one function's policies have become.

    Attributes:
        given: the policies as values.
        home: the registry whose clock and events the call site uses.
        site: what all layers share.
        breaker, bulkhead, timeout, retry: the bound policies, None where there is none.
        world: how attempts are performed.
        own_bulkhead: the bulkhead of a policy without a name.
        pending: finds what a reference means; empty once everything is found.
    """

    def __init__(
        self, given: Given, fn: Callable[..., Any], kind: Kind, label: str, own_bulkhead: SharedBulkhead | None
    ) -> None:
        self.given = given
        self.own_bulkhead = own_bulkhead
        self._current = current_registry()
        self.home = self._find_home()
        own_rules = None if given.breaker is None else given.breaker.classify
        self.site = Site(fn, label, self.home, classify_with(own_rules, default_classifier()))
        self.site.uninterruptible = kind.is_async and is_uninterruptible(fn)
        self.breaker = self._assemble_breaker()
        self.bulkhead = self._assemble_bulkhead()
        self.timeout = self._assemble_timeout()
        self.retry = self._assemble_retry()
        self.world: Any = self._assemble_world(fn, kind)
        self.pending = self._find_pending()

    def layers(self) -> list[tuple[Layer, Callable[..., Any]]]:
        """The layers of all policies, in no order yet."""
        bound = (self.breaker, self.bulkhead, self.timeout, self.retry)
        return [layer for policy in bound if policy is not None for layer in policy.layers()]

    def find(self) -> None:
        """Find what the references mean; a name that nobody has registered gets the defaults."""
        for resolve in self.pending:
            resolve()
        self.pending = []

    def _find_home(self) -> Registry:
        for policy in (self.given.breaker, self.given.bulkhead):
            if policy is not None and policy.registry is not None:
                return policy.registry
        return self._current

    def _assemble_breaker(self) -> BreakerLayers | None:
        policy = self.given.breaker
        if policy is None:
            return None
        registry, name = policy.registry or self._current, policy.name
        if policy.config is not None:
            policy.register(registry)
        keys = None
        if policy.key is not None:
            # Only now: few programs have families.
            from resilience._policies.site_keys import SiteKeys

            keys = SiteKeys(lambda: policy.family_in(registry), reader_of(self.site.fn, policy.key))
        self.site.judge_result = policy.classify_result
        return BreakerLayers(
            lambda: registry.breaker(name),
            self.site,
            on_open=policy.on_open,
            fallback=policy.fallback,
            unless=policy.unless,
            per_call=policy.account == "call",
            keys=keys,
        )

    def _assemble_bulkhead(self) -> BulkheadLayers | None:
        policy = self.given.bulkhead
        if policy is None:
            return None
        registry, name, config = policy.registry or self._current, policy.name, policy.config
        keys = None
        if policy.key is not None:
            # Only now: few programs have families.
            from resilience._policies.site_keys import SiteKeys

            keys = SiteKeys(lambda: policy.family_in(registry), reader_of(self.site.fn, policy.key))
        if name is not None:
            if config is not None:
                policy.register(registry)
            shared_name: str = name

            def find() -> SharedBulkhead:
                return registry.bulkhead(shared_name)
        else:
            assert config is not None, "a bulkhead without a name has its size"
            own = self.own_bulkhead or SharedBulkhead(
                self.site.label, config.max_in_flight, config.longest_line, registry
            )
            registry.watch_fork(own)
            self.own_bulkhead = own

            def find() -> SharedBulkhead:
                return own

        return BulkheadLayers(
            find, self.site, wait=policy.wait, on_reject=policy.on_reject, fallback=policy.fallback, keys=keys
        )

    def _assemble_timeout(self) -> TimeoutLayers | None:
        policy = self.given.timeout
        if policy is None:
            return None
        site = self.site
        site.timed = True
        site.first_item, site.idle, site.counts = policy.first_item, policy.idle, policy.counts
        site.budget, site.per_attempt, site.pass_as = policy.budget, policy.per_attempt, policy.pass_as
        site.pass_at = None if policy.pass_as is None else place_of(site.fn, policy.pass_as)
        return TimeoutLayers(site, budget=policy.budget, per_attempt=policy.per_attempt, counts=policy.counts)

    def _assemble_retry(self) -> RetryLayers | None:
        policy = self.given.retry
        if policy is None:
            return None
        home, label = self.home, self.site.label
        budget = None
        if policy.retry_budget is not None:
            budget = refer_to_budget(policy.retry_budget, home, lambda given: make_own_budget(given, label, home))
        return bind_retry(policy, self.site, budget, None if self.breaker is None else self.breaker.stopped)

    def _assemble_world(self, fn: Callable[..., Any], kind: Kind) -> Any:
        if kind.is_stream:
            return self._assemble_stream_world(fn, kind)
        if kind.is_async:
            # Only now: importing asyncio costs more than all of this library.
            from resilience._engine.world_async import AsyncWorld, UninterruptibleWorld

            return (UninterruptibleWorld if self.site.uninterruptible else AsyncWorld)(self.site)
        pool = self._make_pool(fn)
        return world_sync.SyncWorld(self.site) if pool is None else world_sync.WorkerWorld(self.site, pool)

    def _assemble_stream_world(self, fn: Callable[..., Any], kind: Kind) -> Any:
        # Only now: most functions give no stream.
        if kind.is_async:
            from resilience._engine.world_async_streams import AsyncStreamWorld

            return AsyncStreamWorld(self.site, opens=kind.opens)
        from resilience._engine.world_streams import StreamWorld

        return StreamWorld(self.site, self._make_pool(fn), opens=kind.opens)

    def _make_pool(self, fn: Callable[..., Any]) -> WorkerPool | None:
        """The workers of a plain function with a limit that may be left behind."""
        limit = worker_limit(fn)
        if self.timeout is None or limit is None:
            return None
        cap = self.given.bulkhead.max_in_flight if self.given.bulkhead is not None else None
        pool = WorkerPool(self.site.label, limit or cap or DEFAULT_WORKERS)
        self.home.watch_clock(pool)
        return pool

    def _find_pending(self) -> list[Callable[[], object]]:
        """References to names that nobody has registered yet; the others are looked up here and now."""
        pending: list[Callable[[], object]] = []
        breaker, bulkhead = self.given.breaker, self.given.bulkhead
        if self.breaker is not None and breaker is not None:
            registry = breaker.registry or self._current
            known: object = registry.get(breaker.name) or registry.get_family(breaker.name)
            _look_up(self.breaker, known is not None, pending)
        if self.bulkhead is not None and bulkhead is not None:
            registry, name = bulkhead.registry or self._current, bulkhead.name
            known = name is None or registry.get_bulkhead(name) or registry.get_bulkhead_family(name)
            _look_up(self.bulkhead, known is not None, pending)
        return pending


def bind_retry(
    policy: RetryPolicy,
    site: Site,
    budget: BudgetReference | None = None,
    stopped: Callable[[Call, float], str] | None = None,
) -> RetryLayers:
    """A retry at one call site; `stopped` foresees whether a breaker inside would refuse the next attempt."""
    return RetryLayers(
        site,
        max_attempts=policy.max_attempts,
        initial_backoff=policy.initial_backoff,
        max_backoff=policy.max_backoff,
        jitter=policy.jitter,
        wait=policy.wait,
        stop=policy.stop,
        retry_on=policy.retry_on,
        safe_only=policy.safe_only,
        max_retry_after=policy.max_retry_after,
        stopped=stopped,
        budget=budget,
    )


def _look_up(bound: BreakerLayers | BulkheadLayers, known: bool, pending: list[Callable[[], object]]) -> None:
    """Look up what a policy refers to if it is known; one with keys looks up by itself, the others wait for the first call."""
    if bound.keys is not None:
        if known:
            _ = bound.keys.family
    elif known:
        bound.resolve()
    else:
        pending.append(bound.resolve)
