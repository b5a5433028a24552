"""The applied layers as text: stable, since people compare it and tests hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.config import BreakerConfig
from resilience._core.order import Layer
from resilience._describe import DescribedLayer
from resilience._keying import spelled

if TYPE_CHECKING:
    from resilience._core.retry_budget import RetryBudget
    from resilience._settings import Given, RetryPolicy, TimeoutPolicy


def described_layers(given: Given, label: str) -> tuple[DescribedLayer, ...]:
    """What applies, outermost first."""
    layers: list[tuple[Layer, str]] = []
    breaker, bulkhead, timeout, retry = given.breaker, given.bulkhead, given.timeout, given.retry
    if bulkhead is not None:
        config = bulkhead.config
        cap = "" if config is None else f", max_in_flight={config.max_in_flight}, max_waiting={config.longest_line}"
        text = f"{bulkhead.name or label}{_key_details(bulkhead.key)}{cap}, wait={bulkhead.wait:g} s, on_reject={bulkhead.on_reject}"
        layers.append((Layer.BULKHEAD, text))
    if timeout is not None and timeout.budget is not None:
        layers.append((Layer.TIMEOUT, f"budget={timeout.budget:g} s{_timeout_details(timeout)}"))
    if retry is not None:
        layers.append((Layer.RETRY, _retry_details(retry)))
    if breaker is not None:
        shared = "" if breaker.config is None else f", {_config_details(breaker.config)}"
        layers.append(
            (
                Layer.BREAKER,
                f"{breaker.name}{_key_details(breaker.key)}{shared}, on_open={breaker.on_open}, account={breaker.account}",
            )
        )
    if timeout is not None and Layer.ATTEMPT in timeout.places():
        names = ("per_attempt", "first_item", "idle")
        limits = [f"{name}={getattr(timeout, name):g} s" for name in names if getattr(timeout, name) is not None]
        layers.append((Layer.ATTEMPT, ", ".join(limits) + _timeout_details(timeout)))
    return tuple(DescribedLayer(layer=layer, settings=text) for layer, text in layers)


def _key_details(key: object) -> str:
    return "" if key is None else f", key={spelled(key)}"


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
    budget = "" if retry.retry_budget is None else f", retry_budget={_budget_details(retry.retry_budget)}"
    return (
        f"max_attempts={retry.max_attempts}, {pause}{stop}, retry_on={kinds}, "
        f"max_retry_after={retry.max_retry_after:g} s{safe}{budget}"
    )


def _budget_details(budget: RetryBudget | str) -> str:
    if isinstance(budget, str):
        return budget
    name = "own" if budget.name is None else budget.name
    return f"{name}({budget.ratio:g} of calls + {budget.min_per_second:g}/s in {budget.window:g} s)"


def _config_details(config: BreakerConfig) -> str:
    kinds = "+".join(sorted(kind.value for kind in config.trip_kinds))
    text = f"{config.trip!r}, cooldown={config.cooldown:g} s, trip_on={kinds}"
    if config.trip_statuses:
        text += "+" + "+".join(str(status) for status in sorted(config.trip_statuses))
    if (config.half_open_probes, config.half_open_successes) != (1, 1):
        text += f", half_open={config.half_open_probes}/{config.half_open_successes}"
    for name in ("answered", "probe_lease", "max_cooldown", "honour_retry_after", "shadow", "ramp"):
        value = getattr(config, name)
        if value != getattr(_DEFAULTS, name):
            text += f", {name}={value:g} s" if isinstance(value, float) else f", {name}={value}"
    return text


_DEFAULTS = BreakerConfig()
