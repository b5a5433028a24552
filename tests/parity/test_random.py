"""Random policies, random scripts: whatever happens, every way shows the same trace."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilience import (
    BreakerConfig,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    OnReject,
    RetryBudget,
    breaker,
    bulkhead,
    retry,
    timeout,
)


class HttpError(Exception):
    def __init__(self, status, retry_after):
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = {"retry-after": str(retry_after)}


# Each makes a fresh step: an exception belongs to one run.
ENDINGS = {
    "value": lambda: "fine",
    "transient": lambda: ConnectionError("down"),
    "own timeout": lambda: TimeoutError("mine"),
    "client fault": lambda: HttpError(404, 0),
    "busy": lambda: HttpError(503, 2),
    "very busy": lambda: HttpError(503, 45),
    "downstream": lambda: HttpError(501, 0),
    "internal": lambda: TypeError("bug"),
    "unknown": lambda: Unknown("?"),
    "caused": lambda: caused(Unknown("?"), ConnectionError("cause")),
    "group": lambda: ExceptionGroup("several", [ConnectionError("a"), TimeoutError("b")]),
    "cancelled": lambda: asyncio.CancelledError("enough"),
    "interrupt": lambda: KeyboardInterrupt("enough"),
    "exit": lambda: SystemExit("enough"),
}


class Unknown(Exception):
    pass


def caused(error, cause):
    error.__cause__ = cause
    return error


endings = st.sampled_from(sorted(ENDINGS))
# Seconds no two sums of which meet a limit exactly: at one moment either may come first.
slow = st.sampled_from([0, 0, 0, 1.01, 4.03, 7.07])
steps = st.lists(st.tuples(slow, endings), min_size=1, max_size=12)
pauses = st.lists(st.sampled_from([0, 0, 3.3, 11.1, 29.9]), min_size=1, max_size=6)

breakers = st.fixed_dictionaries(
    {
        "config": st.sampled_from(
            [
                BreakerConfig(Consecutive(1), cooldown=10),
                BreakerConfig(Consecutive(2), cooldown=10, half_open_successes=2),
                BreakerConfig(Consecutive(2), answered="ignore", trip_on={FaultKind.INTERNAL, FaultKind.TRANSIENT}),
                BreakerConfig(Consecutive(3, within=20), cooldown=10, honour_retry_after=False),
                BreakerConfig(FailureRate(0.5, window=20, bucket=2, min_calls=3), cooldown=10),
                BreakerConfig(Consecutive(1), shadow=True),
            ]
        ),
        "on_open": st.sampled_from(OnOpen),
        "account": st.sampled_from(["attempt", "attempt", "call"]),
    }
)
retries = st.fixed_dictionaries(
    {
        "max_attempts": st.integers(1, 4),
        "wait": st.sampled_from([0, 0.5, 2.5]),
        "retry_on": st.sampled_from([[FaultKind.TRANSIENT], [FaultKind.TRANSIENT, FaultKind.DOWNSTREAM]]),
        "retry_budget": st.sampled_from(
            [None, None, RetryBudget(min_per_second=0.2), RetryBudget("provider", ratio=0.5, min_per_second=0), "other"]
        ),
    }
)
timeouts = st.sampled_from(
    [
        {"budget": 5.0},
        {"budget": 12.0, "counts": False},
        {"per_attempt": 3.0},
        {"budget": 12.0, "per_attempt": 3.0},
    ]
)


@st.composite
def policies(draw, timed):
    found = []
    if draw(st.booleans()):
        found.append(partial(breaker, "provider", **draw(breakers)))
    if draw(st.booleans()):
        found.append(partial(retry, **draw(retries)))
    if timed:
        found.append(partial(timeout, **draw(timeouts)))
    if draw(st.booleans()):
        # An orphan keeps its slot, so a timed call on workers may need several.
        found.append(partial(bulkhead, "room", max_in_flight=40, on_reject=draw(st.sampled_from(OnReject))))
    return draw(st.permutations(found))


def play(parity, policies, script, pauses):
    async def scenario(stage):
        made = [parity.slow(seconds, ENDINGS[name]()) if seconds else ENDINGS[name]() for seconds, name in script]
        remote = stage.remote(made, *(policy() for policy in policies))
        for pause in pauses:
            await stage.pass_time(pause)
            await stage.call(remote, pause)

    parity(scenario)


plenty = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)


@pytest.mark.slow
@plenty
@given(policies=policies(timed=False), script=steps, pauses=pauses)
def test_any_script(parity, policies, script, pauses):
    """Bulkhead, retry and breaker in any subset, over any outcomes."""
    play(parity, policies, script, pauses)


@pytest.mark.slow
@plenty
@given(policies=policies(timed=True), script=steps, pauses=pauses)
def test_any_script_under_a_timeout(parity, policies, script, pauses):
    """The same with limits in time, by cancelling and by leaving a worker behind."""
    play(parity, policies, script, pauses)
