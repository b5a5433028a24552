"""Random streams with random consumers: whatever happens, all ways show one trace."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resilience import BreakerConfig, Consecutive, FailureRate, OnOpen, OnReject, breaker, bulkhead, retry, timeout

ENDINGS = {
    "item": lambda: "item",
    "other item": lambda: "other item",
    "down": lambda: ConnectionError("down"),
    "bug": lambda: TypeError("bug"),
    "missing": lambda: KeyError("missing"),
}

# Seconds no two sums of which meet a limit exactly: at one moment either may come first.
slow = st.sampled_from([0, 0, 0, 1.01, 4.03, 7.07])
steps = st.tuples(slow, st.sampled_from(["item", "item", "other item", *ENDINGS]))
attempts = st.lists(st.lists(steps, max_size=4), min_size=1, max_size=6)
acts = st.lists(
    st.one_of(
        st.just("next"),
        st.just("next"),
        st.just("elsewhere"),
        st.just("close"),
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("throw"), st.sampled_from(["down", "bug"])),
        st.sampled_from([0.7, 3.3, 11.1]),
    ),
    max_size=6,
)
consumers = st.lists(st.tuples(st.sampled_from([0, 0, 3.3, 11.1, 29.9]), acts), min_size=1, max_size=5)

breakers = st.fixed_dictionaries(
    {
        "config": st.sampled_from(
            [
                BreakerConfig(Consecutive(1), cooldown=10, probe_lease=8),
                BreakerConfig(Consecutive(2), cooldown=10, half_open_successes=2),
                BreakerConfig(FailureRate(0.5, window=20, bucket=2, min_calls=2), cooldown=10),
                BreakerConfig(Consecutive(1), shadow=True),
            ]
        ),
        "on_open": st.sampled_from(OnOpen),
        "account": st.sampled_from(["attempt", "attempt", "call"]),
    }
)
retries = st.fixed_dictionaries({"max_attempts": st.integers(1, 4), "wait": st.sampled_from([0, 0.5, 2.5])})
timeouts = st.sampled_from(
    [
        {"budget": 5.0},
        {"budget": 12.0, "counts": False},
        {"per_attempt": 3.0},
        {"budget": 12.0, "per_attempt": 6.0, "first_item": 3.0, "idle": 2.0},
        {"budget": 60.0, "idle": 3.0},
        {"budget": 60.0, "first_item": 3.0},
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
    if draw(st.booleans()) or not found:
        # An orphan keeps its slot, so a timed stream on workers may need several.
        found.append(partial(bulkhead, "room", max_in_flight=40, on_reject=draw(st.sampled_from(OnReject))))
    return draw(st.permutations(found))


def play(parity, policies, attempts, consumers, opens):
    async def scenario(stage):
        made = [
            [parity.slow(seconds, ENDINGS[name]()) if seconds else ENDINGS[name]() for seconds, name in steps]
            for steps in attempts
        ]
        first, *others = policies
        stream = stage.stream(made, first(stream=opens), *(policy() for policy in others), opens=opens)
        for pause, acts in consumers:
            await stage.pass_time(pause)
            await consume(stage, stream, acts)

    parity(scenario)


async def consume(stage, fn, acts):
    """One stream up to its end: what is thrown into one that has ended is another matter in either world."""
    stream = await stage.consume(fn)
    if stream is None:
        # Refused, or bypassed.
        return
    seen = len(stage.outcomes)
    for act in ["next", *acts]:
        if any(outcome[0] in ("end", "raised", "closed") for outcome in stage.outcomes[seen:]):
            break
        if isinstance(act, tuple) and act[0] == "throw":
            act = ("throw", ENDINGS[act[1]]())
        stream = await stage.consume(None, act, stream=stream)
    await stage.consume(None, "drop", stream=stream)
    del stream
    await stage.turns()


plenty = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)


@pytest.mark.slow
@plenty
@given(policies=policies(timed=False), attempts=attempts, consumers=consumers, opens=st.booleans())
def test_any_stream(parity, policies, attempts, consumers, opens):
    """Bulkhead, retry and breaker in any subset, generators and opened streams."""
    play(parity, policies, attempts, consumers, opens)


@pytest.mark.slow
@plenty
@given(policies=policies(timed=True), attempts=attempts, consumers=consumers, opens=st.booleans())
def test_any_stream_under_a_timeout(parity, policies, attempts, consumers, opens):
    """The same with limits in time, by cancelling and by leaving a worker behind."""
    play(parity, policies, attempts, consumers, opens)
