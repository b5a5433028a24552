"""From a function and its policies to what runs: the site, its layers, the plan, the straight path's closure."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, cast

from resilience._context import DEADLINE
from resilience._core.checks import Faults
from resilience._core.deadline import Deadline, UncountedDeadline, is_past
from resilience._core.events import TimedOut
from resilience._core.order import Layer
from resilience._core.outcome import Outcome, raise_unchanged
from resilience._describe import DescribedLayer, Description
from resilience._engine import world_sync
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.plan import in_order, link
from resilience._engine.straight import Shape
from resilience._engine.workers import WorkerPool
from resilience._marks import DEFAULT_WORKERS, is_idempotent, is_uninterruptible, worker_limit
from resilience._policies.breaker import BreakerLayers
from resilience._policies.bulkhead import BulkheadLayers, SharedBulkhead
from resilience._policies.classifying import classify_with
from resilience._policies.lane import failure_lane, front_door
from resilience._policies.retry import RetryLayers
from resilience._policies.timeout import TimeoutLayers
from resilience._policies.verdicts import interrupted_verdict
from resilience._registry import Registry, current_registry
from resilience._settings import BreakerPolicy, BulkheadPolicy, Policy, RetryPolicy, TimeoutPolicy, one_of_each
from resilience._site import Call, Site
from resilience._words import OnOpen
from resilience.catalogue import default_classifier
from resilience.errors import TimeoutExceeded, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.faults import Fault

    from resilience._site import Classify


class Assembly:
    """One decorated function, assembled.

    Attributes:
        description: what `describe` tells.
        shape: of the straight path, None where every call takes the plan.
        closure: what the straight path's source names.
        run: the plan as a function of the same kind (sync or async) as the protected one.
        pending: policies whose breaker or bulkhead will be found at the first call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        policies: tuple[Policy, ...],
        is_async: bool,
        label: str,
        own_bulkhead: SharedBulkhead | None = None,
    ) -> None:
        by_kind = one_of_each(policies)
        self._breaker_policy = cast("BreakerPolicy | None", by_kind.get("breaker"))
        self._retry_policy = cast("RetryPolicy | None", by_kind.get("retry"))
        self._timeout_policy = cast("TimeoutPolicy | None", by_kind.get("timeout"))
        self._bulkhead_policy = cast("BulkheadPolicy | None", by_kind.get("bulkhead"))
        self._fn = fn
        self._is_async = is_async
        self._label = label
        self._own_bulkhead = own_bulkhead
        self._check()
        self._current = current_registry()
        self.site = Site(fn, label, self._home(), classify_function(self._breaker_policy))
        self._breaker = self._assemble_breaker()
        self._bulkhead = self._assemble_bulkhead()
        self._timeout = self._assemble_timeout()
        self._retry = self._assemble_retry()
        self.site.uninterruptible = is_async and is_uninterruptible(fn)
        parts = (self._breaker, self._bulkhead, self._timeout, self._retry)
        layers = in_order(layer for part in parts if part is not None for layer in part.layers())
        self._plan = link(layers)
        self._recovery = link(layers, inward_from=Layer.RETRY)
        self._world: Any = self._assemble_world()
        self.description = self._describe(policies)
        self.pending = self._find_pending()
        self._count_error: Callable[[int, Exception, Fault], None] = _count_nothing
        self._learn_breaker()
        self.run: Callable[..., Any] = self._run_async if is_async else self._run_sync
        self.shape = self._choose_shape()
        self.closure = {} if self.shape is None else self._make_closure()

    # ------------------------------------------------------------------------------------------------ checking
    def _check(self) -> None:
        """What a policy needs of the function it stands on; one error for all of it."""
        faults = Faults()
        retry, limit = self._retry_policy, worker_limit(self._fn)
        if retry is not None and not (retry.idempotent or retry.safe_only or is_idempotent(self._fn)):
            faults.say(
                f"retry must know that {self._label} may be repeated: put @idempotent next to the function, or give "
                "idempotent=True (or safe_only=True, to repeat only what was surely not sent)"
            )
        if limit is not None and self._is_async:
            faults.say(
                f"@interruptible must stand on a plain function; {self._label} is async, which a timeout cancels"
            )
        if self._timeout_policy is not None:
            self._check_timeout(faults, self._timeout_policy, limit)
        faults.raise_any()

    def _check_timeout(self, faults: Faults, timeout: TimeoutPolicy, limit: int | None) -> None:
        if self._is_async:
            if is_uninterruptible(self._fn):
                faults.say(f"timeout must be left out: {self._label} is marked @uninterruptible")
        elif timeout.pass_as is None and limit is None:
            faults.say(
                f"timeout can't interrupt {self._label}, a plain function: put @interruptible next to the function to "
                "run it on a worker that may be abandoned, or give pass_as='NAME' to hand it the seconds left; "
                "work that writes state should have no timeout at all"
            )
        elif timeout.pass_as is not None and limit is not None:
            faults.add("pass_as", timeout.pass_as, "left out for an @interruptible function: choose one of the two")
        if timeout.pass_as is not None and not takes_keyword(self._fn, timeout.pass_as):
            faults.add("pass_as", timeout.pass_as, f"a parameter of {self._label} that can be given by name")

    # ------------------------------------------------------------------------------------------------ parts
    def _home(self) -> Registry:
        for policy in (self._breaker_policy, self._bulkhead_policy):
            if policy is not None and policy.registry is not None:
                return policy.registry
        return self._current

    def _assemble_breaker(self) -> BreakerLayers | None:
        policy = self._breaker_policy
        if policy is None:
            return None
        registry, name = policy.registry or self._current, policy.name
        if policy.config is not None:
            registry.breaker(name, policy.config)
        self.site.judge_result = policy.classify_result
        return BreakerLayers(
            lambda: registry.breaker(name),
            self.site,
            on_open=policy.on_open,
            fallback=policy.fallback,
            unless=policy.unless,
            per_call=policy.account == "call",
        )

    def _assemble_bulkhead(self) -> BulkheadLayers | None:
        policy = self._bulkhead_policy
        if policy is None:
            return None
        registry, name, config = policy.registry or self._current, policy.name, policy.config
        if name is not None:
            if config is not None:
                registry.bulkhead(name, config)
            shared_name: str = name

            def find() -> SharedBulkhead:
                return registry.bulkhead(shared_name)
        else:
            assert config is not None, "a bulkhead without a name has its size"
            own = self._own_bulkhead or SharedBulkhead(self._label, config.max_in_flight, config.longest_line, registry)
            registry.watch_fork(own)
            self._own_bulkhead = own

            def find() -> SharedBulkhead:
                return own

        return BulkheadLayers(find, self.site, wait=policy.wait, on_reject=policy.on_reject, fallback=policy.fallback)

    def _assemble_timeout(self) -> TimeoutLayers | None:
        policy = self._timeout_policy
        if policy is None:
            return None
        site = self.site
        site.timed = True
        site.budget, site.per_attempt, site.pass_as = policy.budget, policy.per_attempt, policy.pass_as
        return TimeoutLayers(site, budget=policy.budget, per_attempt=policy.per_attempt, counts=policy.counts)

    def _assemble_retry(self) -> RetryLayers | None:
        policy = self._retry_policy
        if policy is None:
            return None
        return RetryLayers(
            self.site,
            max_attempts=policy.max_attempts,
            initial_backoff=policy.initial_backoff,
            max_backoff=policy.max_backoff,
            jitter=policy.jitter,
            wait=policy.wait,
            stop=policy.stop,
            retry_on=policy.retry_on,
            safe_only=policy.safe_only,
            max_retry_after=policy.max_retry_after,
            stopped=None if self._breaker is None else self._breaker.stopped,
        )

    def _assemble_world(self) -> Any:
        if self._is_async:
            # Only now: importing asyncio costs more than all of this library.
            from resilience._engine.world_async import AsyncWorld, UninterruptibleWorld

            return (UninterruptibleWorld if self.site.uninterruptible else AsyncWorld)(self.site)
        limit = worker_limit(self._fn)
        if self._timeout is None or limit is None:
            return world_sync.SyncWorld(self.site)
        cap = self._bulkhead_policy.max_in_flight if self._bulkhead_policy is not None else None
        pool = WorkerPool(self._label, limit or cap or DEFAULT_WORKERS)
        return world_sync.WorkerWorld(self.site, pool)

    def _find_pending(self) -> list[Callable[[], object]]:
        """References to names that nobody has registered yet; the others are looked up here and now."""
        pending: list[Callable[[], object]] = []
        breaker, bulkhead = self._breaker_policy, self._bulkhead_policy
        if self._breaker is not None and breaker is not None:
            if (breaker.registry or self._current).get(breaker.name) is None:
                pending.append(lambda layers=self._breaker: layers.breaker)  # type: ignore[misc]  # bound early on purpose
            else:
                _ = self._breaker.breaker
        if self._bulkhead is not None and bulkhead is not None:
            known = bulkhead.name is None or (bulkhead.registry or self._current).get_bulkhead(bulkhead.name)
            if known is None:
                pending.append(lambda layers=self._bulkhead: layers.bulkhead)  # type: ignore[misc]  # bound early on purpose
            else:
                _ = self._bulkhead.bulkhead
        return pending

    def _learn_breaker(self) -> None:
        if self._breaker is not None and not self.pending:
            self._count_error = self._breaker.breaker.count_error

    # ------------------------------------------------------------------------------------------------ running the plan
    def _run_sync(self, *args: Any, **kwargs: Any) -> Any:
        call = Call(self.site, self._world, args, kwargs)
        outcome = world_sync.run(self._plan(call))  # type: ignore[arg-type]  # a plan is a coroutine
        if outcome.refused_by is AWAITABLE:
            return self._adopt(outcome.value, args, kwargs)
        return outcome.unwrap()

    async def _run_async(self, *args: Any, **kwargs: Any) -> Any:
        call = Call(self.site, self._world, args, kwargs)
        outcome = await self._plan(call)
        if call.cancelled is not None:
            outcome.discard()
            raise call.cancelled
        return outcome.unwrap()

    async def _adopt(self, awaitable: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Guard the await of what a plain function returned: the whole plan runs around it."""
        from resilience._engine.world_async import AdoptingWorld

        world = AdoptingWorld(self.site, awaitable)
        del awaitable
        try:
            outcome = await self._plan(Call(self.site, world, args, kwargs))
        finally:
            world.close()
        return outcome.unwrap()

    # ------------------------------------------------------------------------------------------------ the straight path
    def _choose_shape(self) -> Shape | None:
        """What the straight path is made of; None where a policy asks for more than it knows."""
        breaker, timeout = self._breaker_policy, self._timeout_policy
        if breaker is not None and (
            breaker.unless is not None or breaker.classify_result is not None or breaker.account == "call"
        ):
            return None
        if timeout is not None and (
            not self._is_async or timeout.per_attempt is not None or timeout.pass_as is not None
        ):
            return None
        if self.site.uninterruptible:
            return None
        known = self._breaker is not None and not self.pending
        return Shape(
            is_async=self._is_async,
            breaker=self._breaker is not None,
            windowed=known and self._breaker is not None and self._breaker.breaker.config.trip.windowed,
            bulkhead=self._bulkhead is not None,
            budget=timeout is not None,
            retry=self._retry is not None,
            fail_fast=breaker is not None and breaker.on_open is OnOpen.FAIL,
        )

    def _make_closure(self) -> dict[str, Any]:
        closure: dict[str, Any] = {
            "Exception": Exception,
            "IndexError": IndexError,
            "RuntimeError": RuntimeError,
            "adopt": self._adopt,
            "awaitable": AWAITABLE,
            "fn": self._fn,
            "interrupted": self._interrupted,
            "outer_deadline": DEADLINE.get,
            "recover": self._recovery_function(),
            "settled": _nothing_to_settle,
            "slow": self.run,
            "time": time,
            "type": type,
        }
        if self._is_async:
            closure |= self._async_closure()
        if self.pending:
            closure |= {"circuit": NOT_YET, "door": _nothing, "slow": self._run_pending, "queue": (None,)}
        return closure | self.shared_closure()

    def shared_closure(self) -> dict[str, Any]:
        """The names that belong to a shared breaker or bulkhead, as far as they are known."""
        closure: dict[str, Any] = {}
        if self.pending:
            return closure
        if self._breaker is not None:
            breaker = self._breaker.breaker
            closure |= {
                "circuit": breaker.circuit,
                "count": breaker.circuit.totals.successes.tick,
                "door": front_door(breaker),
                "refuse": breaker.refuse,
                "settled": failure_lane(breaker, self.site),
                "succeeded": breaker.succeed,
                "slow": self.run,
            }
        if self._bulkhead is not None:
            slots = self._bulkhead.bulkhead.slots
            closure |= {
                "take": slots.free.pop,
                "give": slots.free.append,
                "queue": slots.queue,
                "hand_over": self._bulkhead.bulkhead.hand_over,
                "slow": self.run,
            }
        return closure

    def _async_closure(self) -> dict[str, Any]:
        import asyncio

        from resilience._engine import timers

        closure: dict[str, Any] = {"CancelledError": asyncio.CancelledError}
        if self._timeout_policy is not None and self._timeout_policy.budget is not None:
            buckets = timers.Buckets()
            self._home().watch_clock(buckets)
            closure |= {
                "buckets": buckets,
                "is_ours": timers.is_ours,
                "new_deadline": Deadline if self._timeout_policy.counts else UncountedDeadline,
                "past": is_past,
                "reset_deadline": DEADLINE.reset,
                "seconds": self._timeout_policy.budget,
                "set_deadline": DEADLINE.set,
                "this_task": asyncio.current_task,
                "timed_out": self._timed_out,
            }
        return closure

    def _run_pending(self, *args: Any, **kwargs: Any) -> Any:
        """The first call: find what the references mean, then go on as ever."""
        for find in self.pending:
            find()
        self.pending = []
        self._learn_breaker()
        self.on_found()
        return self.run(*args, **kwargs)

    def on_found(self) -> None:
        """Replaced by whoever made a wrapper from `closure`."""

    # ------------------------------------------------------------------------------------------------ leaving the straight path
    def _report(self, episode: int, error: Exception) -> None:
        """Report a failed attempt from outside of its `except` block."""
        if self._breaker is not None:
            handled = sys.exc_info()[1]
            self._count_error(episode, error, self.site.classify(error, handled))

    def _interrupted(self, episode: int, error: BaseException, started: float | None) -> None:
        """Report an attempt that was cancelled: nothing, unless a deadline of ours did it (P17)."""
        assert self._breaker is not None
        breaker = self._breaker.breaker
        verdict, fault = interrupted_verdict(breaker, error, breaker.now(), started, self.site.per_attempt)
        breaker.record(episode, verdict, fault)

    def _timed_out(self, deadline: Deadline) -> TimeoutExceeded:
        hub = self.site.services.hub
        if hub.wants(TimedOut):
            hub.publish(TimedOut(name=self._label, scope=deadline.scope, seconds=deadline.seconds))
        return TimeoutExceeded(deadline.scope, deadline.seconds)

    def _recovery_function(self) -> Callable[..., Any]:
        if self._retry is None:
            return self._raise_async if self._is_async else self._raise_sync
        return self._recover_async if self._is_async else self._recover_sync

    def _raise_sync(self, episode: int, failed: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._report(episode, failed)
        try:
            raise_unchanged(failed)
        finally:
            del failed

    async def _raise_async(
        self, episode: int, failed: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._report(episode, failed)
        try:
            raise_unchanged(failed)
        finally:
            del failed

    def _recover_sync(self, episode: int, failed: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Call(self.site, self._world, args, kwargs)
        outcome = self._first_answer(call, episode, failed)
        del failed
        if call.first is not None:
            outcome = world_sync.run(self._recovery(call))  # type: ignore[arg-type]  # a plan is a coroutine
            if outcome.refused_by is AWAITABLE:
                return self._adopt(outcome.value, args, kwargs)
        return outcome.unwrap()

    async def _recover_async(
        self, episode: int, failed: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = Call(self.site, self._world, args, kwargs)
        outcome = self._first_answer(call, episode, failed)
        del failed
        if call.first is not None:
            outcome = await self._recovery(call)
        return outcome.unwrap()

    def _first_answer(self, call: Call, episode: int, failed: Exception) -> Outcome:
        """Settle the attempt that the straight path made; it becomes the plan's first answer if it may be repeated."""
        outcome = Outcome(error=failed)
        fault = self.site.judge(call, outcome)
        if self._breaker is not None and fault is not None:
            self._count_error(episode, failed, fault)
        call.first = outcome
        return outcome

    # ------------------------------------------------------------------------------------------------ telling
    def _describe(self, policies: tuple[Policy, ...]) -> Description:
        layers: list[tuple[Layer, str]] = []
        breaker, bulkhead = self._breaker_policy, self._bulkhead_policy
        timeout, retry = self._timeout_policy, self._retry_policy
        if bulkhead is not None:
            shared = bulkhead.name or self._label
            cap = (
                ""
                if bulkhead.config is None
                else (f", max_in_flight={bulkhead.config.max_in_flight}, max_waiting={bulkhead.config.longest_line}")
            )
            layers.append((Layer.BULKHEAD, f"{shared}{cap}, wait={bulkhead.wait:g} s, on_reject={bulkhead.on_reject}"))
        if timeout is not None and timeout.budget is not None:
            layers.append((Layer.TIMEOUT, f"budget={timeout.budget:g} s{_timeout_details(timeout)}"))
        if retry is not None:
            layers.append((Layer.RETRY, _retry_details(retry)))
        if breaker is not None:
            config = "" if breaker.config is None else f", {_config_details(breaker.config)}"
            layers.append(
                (Layer.BREAKER, f"{breaker.name}{config}, on_open={breaker.on_open}, account={breaker.account}")
            )
        if timeout is not None and timeout.per_attempt is not None:
            layers.append((Layer.ATTEMPT, f"per_attempt={timeout.per_attempt:g} s{_timeout_details(timeout)}"))
        found_breaker, found_bulkhead = self._breaker, self._bulkhead
        return Description(
            self._label,
            self._fn,
            policies,
            tuple(DescribedLayer(layer=layer, settings=text) for layer, text in layers),
            None if found_breaker is None else lambda: found_breaker.breaker,
            None if found_bulkhead is None else lambda: found_bulkhead.bulkhead,
            self._own_bulkhead,
        )


class _NotYet:
    """Stands for the circuit of a name that nobody has registered: never closed, so the first call takes the plan."""

    closed = closed_windowed = clean = 0


NOT_YET = _NotYet()


def _nothing() -> None:
    return None


def _nothing_to_settle(episode: int, error: Exception) -> bool:
    return True


def _count_nothing(episode: int, error: Exception, fault: Fault) -> None:
    """For a site without a breaker, or whose breaker is not found yet: no attempt takes the straight path."""


def _timeout_details(timeout: TimeoutPolicy) -> str:
    passed = "" if timeout.pass_as is None else f", pass_as={timeout.pass_as}"
    return passed + ("" if timeout.counts else ", counts=False")


def _retry_details(retry: RetryPolicy) -> str:
    kinds = "+".join(sorted(kind.value for kind in retry.retry_on))
    if retry.wait is None:
        pause = f"backoff={retry.initial_backoff:g}..{retry.max_backoff:g} s, jitter={retry.jitter:g}"
    elif callable(retry.wait):
        pause = f"wait={type(retry.wait).__name__}"
    else:
        pause = f"wait={retry.wait:g} s"
    stop = "" if retry.stop is None else f", stop={type(retry.stop).__name__}"
    safe = ", safe_only=True" if retry.safe_only else ""
    return (
        f"max_attempts={retry.max_attempts}, {pause}{stop}, retry_on={kinds}, "
        f"max_retry_after={retry.max_retry_after:g} s{safe}"
    )


def _config_details(config: Any) -> str:
    kinds = "+".join(sorted(kind.value for kind in config.trip_kinds))
    text = f"{shown(config.trip)}, cooldown={config.cooldown:g} s, trip_on={kinds}"
    if config.trip_statuses:
        text += "+" + "+".join(str(status) for status in sorted(config.trip_statuses))
    if (config.half_open_probes, config.half_open_successes) != (1, 1):
        text += f", half_open={config.half_open_probes}/{config.half_open_successes}"
    return text + (", shadow=True" if config.shadow else "")


# ---------------------------------------------------------------------------------------------- small questions
def takes_keyword(fn: Any, name: str) -> bool:
    """Whether a callable has a parameter that can be given by this name."""
    import inspect

    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):
        return True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD or (parameter.name == name and parameter.kind in named)
        for parameter in parameters
    )


def classify_function(policy: BreakerPolicy | None) -> Classify:
    """The call site's way to classify an exception: its own rules, else the ready-made ones."""
    return classify_with(None if policy is None else policy.classify, default_classifier())
