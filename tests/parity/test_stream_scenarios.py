"""Streams, on good and on bad days: threads and asyncio, straight path and plan show one trace."""

from __future__ import annotations

import pytest

from resilience import (
    BreakerConfig,
    Consecutive,
    FailureRate,
    OnOpen,
    OnReject,
    breaker,
    bulkhead,
    retry,
    timeout,
)

TWO_IN_A_ROW = BreakerConfig(Consecutive(2), cooldown=30)
ONE = BreakerConfig(Consecutive(1), cooldown=30)
CALM = BreakerConfig(Consecutive(9))
RATE = BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2))


def down(text="down"):
    return ConnectionError(text)


def provider(config=TWO_IN_A_ROW, **options):
    return breaker("provider", config, **options)


def again(attempts=3, **options):
    return retry(attempts, **{"wait": 1, **options})


def room(limit=2, **options):
    return bulkhead("room", max_in_flight=limit, **options)


def full_stack():
    return room(), again(), provider()


def full_stack_timed():
    return room(6), timeout(60), again(), provider()


SUBSETS = {
    "stack": full_stack,
    "timed stack": full_stack_timed,
    "breaker": lambda: (provider(),),
    "bulkhead": lambda: (room(),),
    "retry": lambda: (again(),),
    "breaker and bulkhead": lambda: (provider(), room()),
    "rate": lambda: (provider(RATE), room()),
    "timeout": lambda: (timeout(60),),
    "waits for items": lambda: (timeout(60, first_item=20, idle=20), provider()),
    "whole call": lambda: (again(), provider(account="call")),
}
subsets = pytest.mark.parametrize("policies", SUBSETS.values(), ids=SUBSETS)
opened = pytest.mark.parametrize("opens", [False, True], ids=["generator", "opened"])
NEXT3 = ("next", "next", "next")


def items(*values):
    return [("item", value) for value in values]


def in_flight(trace):
    return {figures[0] for figures in trace.bulkheads.values()}


def marked(policies, opens):
    """The policies, with the word that the function opens a stream."""
    found = list(policies())
    if opens:
        first = found[0]
        found[0] = type(first)(**{**first.as_dict(), "stream": True})
    return found


# ---------------------------------------------------------------------------------------------- ends
@opened
@subsets
def test_a_whole_stream(parity, policies, opens):
    """Its items, its end, one success, nothing left behind."""

    async def scenario(stage):
        stream = stage.stream([["a", "b"]], *marked(policies, opens), opens=opens)
        await stage.consume(stream, *NEXT3, "next", args=(1,))

    trace = parity(scenario)

    assert [*items("a", "b"), ("end",), ("end",)] == trace.outcomes
    assert [] == trace.events
    assert in_flight(trace) <= {0}
    assert (None, (), None, 0) == trace.left_behind
    assert all(1 == status["successes_total"] for status in trace.statuses.values())


@opened
@subsets
def test_an_empty_stream(parity, policies, opens):
    """It has ended well."""

    async def scenario(stage):
        await stage.consume(stage.stream([[]], *marked(policies, opens), opens=opens), "next")

    trace = parity(scenario)

    assert [("end",)] == trace.outcomes
    assert all(1 == status["successes_total"] for status in trace.statuses.values())


@opened
@subsets
def test_a_stream_that_breaks(parity, policies, opens):
    """Its error, counted once, and no repeat."""

    async def scenario(stage):
        stream = stage.stream([["a", down()]], *marked(policies, opens), opens=opens)
        await stage.consume(stream, *NEXT3)

    trace = parity(scenario)

    assert [*items("a"), ("raised", "ConnectionError", "down"), ("end",)] == trace.outcomes
    assert [()] == trace.notes
    assert in_flight(trace) <= {0}
    assert all(1 == status["failures_total"] for status in trace.statuses.values())


@opened
@subsets
@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_that_is_left_early(parity, policies, opens, end):
    """Nothing is counted, the slot is back."""

    async def scenario(stage):
        stream = stage.stream([["a", "b"]], *marked(policies, opens), opens=opens)
        await stage.consume(stream, "next", end)

    trace = parity(scenario)

    assert items("a") == trace.outcomes[:1]
    assert in_flight(trace) <= {0}
    assert all(0 == status["successes_total"] + status["failures_total"] for status in trace.statuses.values())


@subsets
@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_that_is_never_begun(parity, policies, end):
    """Nothing at all has happened."""

    async def scenario(stage):
        await stage.consume(stage.stream([["a"]], *policies()), end)

    trace = parity(scenario)

    assert [] == trace.calls
    assert [] == trace.events


@opened
@subsets
def test_sends_and_throws(parity, policies, opens):
    """They go through; what leaves the stream ends it."""

    async def scenario(stage):
        stream = stage.stream([["a", "b", "c"]], *marked(policies, opens), opens=opens)
        await stage.consume(stream, "next", ("send", 7), ("throw", down("thrown in")), "next")

    trace = parity(scenario)

    assert [*items("a", "b"), ("raised", "ConnectionError", "thrown in"), ("end",)] == trace.outcomes
    assert ("stream", "was sent", 7) in trace.calls
    assert all(1 == status["failures_total"] for status in trace.statuses.values())


@subsets
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, KeyError], ids=lambda error: error.__name__)
def test_what_is_thrown_in_and_says_nothing(parity, policies, error):
    """Neutral, whatever has been delivered."""

    async def scenario(stage):
        await stage.consume(stage.stream([["a", "b"]], *policies()), "next", ("throw", error("x")), "next")

    trace = parity(scenario, only=lambda way: not (way.is_async and error is KeyboardInterrupt))

    assert ("raised", error.__name__) == trace.outcomes[1][:2]
    assert in_flight(trace) <= {0}
    assert all(0 == status["successes_total"] + status["failures_total"] for status in trace.statuses.values())


@subsets
@pytest.mark.parametrize("act", [("send", None), ("throw", down()), ("throw", GeneratorExit("x"))], ids=str)
def test_a_first_step_that_is_no_next(parity, policies, act):
    """As with the bare generator: nothing is sent or thrown into what has not begun."""

    async def scenario(stage):
        await stage.consume(stage.stream([["a", "b"]], *policies()), act, "next")

    trace = parity(scenario)

    assert all(0 == status["failures_total"] for status in trace.statuses.values())


@subsets
def test_steps_in_other_contexts(parity, policies):
    """Whatever context asks: the same items, the same end."""

    async def scenario(stage):
        stream = stage.stream([["a", "b", "c"]], *policies())
        await stage.consume(stream, "elsewhere", "next", "elsewhere", "elsewhere")

    trace = parity(scenario)

    assert [*items("a", "b", "c"), ("end",)] == trace.outcomes
    assert (None, (), None, 0) == trace.left_behind


@subsets
def test_a_stream_whose_clean_up_fails(parity, policies):
    """Closed, it breaks: the error leaves and counts."""

    async def scenario(stage):
        async def fail(stage):
            raise down("in the clean-up")

        fn = stage.stream([["a", fail]], *policies())
        await stage.consume(fn, "next", "next", "next")

    trace = parity(scenario)

    assert ("raised", "ConnectionError", "in the clean-up") == trace.outcomes[1]


# ---------------------------------------------------------------------------------------------- trips and refusals
@opened
def test_streams_that_break_open_the_circuit(parity, opens):
    """The verdict comes at the end, the refusal at the first item of the next (or when it is opened)."""

    async def scenario(stage):
        broken = [["a", down()] for _ in range(2)]
        stream = stage.stream(broken, *marked(lambda: (provider(), room()), opens), opens=opens)
        for _ in range(3):
            await stage.consume(stream, *NEXT3)

    trace = parity(scenario)

    assert 2 == len([call for call in trace.calls if call[1:] == (None, (), "key")])
    assert ("open", 2, 1) == tuple(trace.status()[name] for name in ("state", "failures_total", "rejected_total"))
    assert "CircuitOpenError" in {outcome[1] for outcome in trace.outcomes if outcome[0] == "raised"}


@opened
def test_a_probe_to_its_end(parity, opens):
    """Taken by the first item, held while the consumer is busy, a success at the end."""

    async def scenario(stage):
        stream = stage.stream([[down()], ["a", "b"]], *marked(lambda: (provider(ONE), room()), opens), opens=opens)
        await stage.consume(stream, "next")
        await stage.pass_time(30)

        async def others(stage):
            stage.outcomes.append(stage.breaker().is_open())

        await stage.consume(stream, "next", ("do", others), 5, "next", ("do", others), "next", ("do", others))

    trace = parity(scenario)

    assert [True, True, False] == [outcome for outcome in trace.outcomes if isinstance(outcome, bool)]
    assert ("closed", 1, 1) == tuple(trace.status()[name] for name in ("state", "probes_started", "probes_succeeded"))


@opened
@pytest.mark.parametrize("end", ["close", "drop", "next"])
def test_a_probe_that_is_not_heard_to_its_end(parity, opens, end):
    """Released where the consumer leaves, failed where it breaks."""

    async def scenario(stage):
        attempts = [[down()], ["a", down()]]
        stream = stage.stream(attempts, *marked(lambda: (provider(ONE), room()), opens), opens=opens)
        await stage.consume(stream, "next")
        await stage.pass_time(30)
        await stage.consume(stream, "next", end)

    status = parity(scenario).status()

    if end == "next":
        assert ("open", 0, 1) == (status["state"], status["probes_released"], status["probes_failed"])
    else:
        assert ("half_open", 1, 0) == (status["state"], status["probes_released"], status["probes_failed"])


def test_a_lost_probe(parity):
    """Its lease runs out in the consumer's hands; another may probe; its end is still accepted."""

    async def scenario(stage):
        config = BreakerConfig(Consecutive(1), cooldown=5, probe_lease=10, half_open_successes=2)
        stream = stage.stream([[down()], ["a"], ["b"]], provider(config))
        await stage.consume(stream, "next")
        await stage.pass_time(5)
        lost = await stage.consume(stream, "next")
        await stage.pass_time(10)
        other = await stage.consume(stream, "next")
        await stage.consume(None, "next", stream=lost)
        await stage.consume(None, "next", stream=other)

    trace = parity(scenario)

    assert ("closed", 2, 1, 1) == tuple(
        trace.status()[name] for name in ("state", "probes_started", "probes_released", "late_accepted")
    )


def test_a_nested_call_shares_the_probe_and_the_consumers_does_not(parity):
    """In every step, whatever lies between two of them."""

    async def scenario(stage):
        nested = stage.remote(["fine"] * 9, provider(ONE), name="nested")

        async def inside(stage):
            return await stage.invoke(nested)

        async def outside(stage):
            await stage.call(nested)

        stream = stage.stream([[down()], [inside, inside]], provider(ONE))
        await stage.consume(stream, "next")
        await stage.pass_time(30)
        await stage.consume(stream, "next", ("do", outside), "next", ("do", outside), "next", ("do", outside))

    trace = parity(scenario)

    assert ["CircuitOpenError", "CircuitOpenError"] == [
        outcome[1] for outcome in trace.outcomes if outcome[0] == "raised" and outcome[1] != "ConnectionError"
    ]
    assert ("returned", "fine") == trace.outcomes[-1]


@opened
def test_a_full_bulkhead(parity, opens):
    """Held from the first item to the end, by whoever came first."""

    async def scenario(stage):
        stream = stage.stream([["a"], ["b"]], *marked(lambda: (room(1), provider()), opens), opens=opens)
        first = await stage.consume(stream, "next")
        await stage.consume(stream, "next")
        await stage.consume(None, "next", stream=first)
        await stage.consume(stream, "next", "next")

    trace = parity(scenario)

    assert 1 == len([outcome for outcome in trace.outcomes if "BulkheadFullError" in outcome])
    assert (0, 0, 1) == trace.bulkheads["room"]
    assert 2 == trace.status()["successes_total"]


@pytest.mark.parametrize("fallback", [None, "one", ["x", "y"], ("x",)], ids=str)
def test_bypassed_streams(parity, fallback):
    """The items are the fallback's: of an open circuit and of a full bulkhead."""

    async def scenario(stage):
        options = {"on_open": OnOpen.BYPASS, "fallback": fallback}
        reject = {"on_reject": OnReject.BYPASS, "fallback": fallback}
        stream = stage.stream([["a", "b"], [down()]], room(1, **reject), provider(ONE, **options))
        holder = await stage.consume(stream, "next")
        await stage.consume(stream, *NEXT3)
        await stage.consume(None, "close", stream=holder)
        await stage.consume(stream, "next")
        await stage.consume(stream, *NEXT3)
        await stage.consume(stream, "next", "close")

    trace = parity(scenario)

    assert 2 == trace.status()["bypassed_total"]
    assert (0, 0, 0) == (*trace.bulkheads["room"][:2], trace.status()["successes_total"])


def test_unless(parity):
    """Such a stream neither asks nor feeds."""

    async def scenario(stage):
        unless = {"unless": lambda own=None, *rest, key="key": own == "own"}
        stream = stage.stream([[down()], ["a", down()], ["b"]], provider(ONE, **unless), room())
        await stage.consume(stream, "next")
        await stage.consume(stream, *NEXT3, args=("own",))
        await stage.consume(stream, "next")

    trace = parity(scenario)

    assert (1, 1) == (trace.status()["failures_total"], trace.status()["rejected_total"])


# ---------------------------------------------------------------------------------------------- repeats
@opened
@pytest.mark.parametrize(
    "policies", [full_stack, full_stack_timed, lambda: (again(),)], ids=["stack", "timed", "retry"]
)
def test_a_stream_that_begins_at_the_second_time(parity, policies, opens):
    """Begun anew before its first item, with its arguments; not after it."""

    async def scenario(stage):
        attempts = [[down("early")], ["a", down("late")]]
        stream = stage.stream(attempts, *marked(policies, opens), opens=opens)
        await stage.consume(stream, *NEXT3, args=(1, 2))

    trace = parity(scenario)

    assert [*items("a"), ("raised", "ConnectionError", "late"), ("end",)] == trace.outcomes
    assert [("stream", 1, (2,), "key")] * 2 == [call for call in trace.calls if call[1] == 1]
    assert [()] == trace.notes
    assert [1] == trace.waits


@opened
def test_a_stream_that_never_begins(parity, opens):
    """The last real exception, with its note."""

    async def scenario(stage):
        attempts = [[down("a")], [down("b")], [down("c")]]
        policies = marked(lambda: (room(), again(), provider(CALM)), opens)
        await stage.consume(stage.stream(attempts, *policies, opens=opens), "next", "next")

    trace = parity(scenario)

    assert [("raised", "ConnectionError", "c"), ("end",)] == trace.outcomes
    assert [("retry gave up after 3 attempts",)] == trace.notes
    assert 3 == trace.status()["failures_total"]


@opened
def test_a_repeat_that_meets_an_open_circuit(parity, opens):
    """The last real exception leaves, not the refusal."""

    async def scenario(stage):
        policies = marked(lambda: (room(), again(), provider(ONE)), opens)
        await stage.consume(stage.stream([[down()]], *policies, opens=opens), "next")

    trace = parity(scenario)

    assert [("raised", "ConnectionError", "down")] == trace.outcomes
    assert ["retry stopped"] == [note[:13] for note in trace.notes[0]]


def test_one_verdict_for_all_attempts(parity):
    """account="call": the end decides."""

    async def scenario(stage):
        policies = again(), provider(account="call")
        await stage.consume(stage.stream([[down()], ["a"]], *policies, name="well"), "next", "next")
        await stage.consume(stage.stream([[down()], ["a", down()]], *policies, name="badly"), *NEXT3)
        await stage.consume(stage.stream([[down()], ["a", "b"]], *policies, name="early"), "next", "close")

    trace = parity(scenario)

    assert (1, 1) == (trace.status()["successes_total"], trace.status()["failures_total"])


def test_nested_streams_add(parity):
    """Three attempts inside three are five."""

    async def scenario(stage):
        inner = stage.stream([[down()]] * 9, again(wait=0), name="inner")

        async def through(stage):
            stream = inner()
            return await stream.__anext__() if stage.way.is_async else next(stream)

        await stage.consume(stage.stream([[through]] * 3, again(wait=0), name="outer"), "next")

    trace = parity(scenario)

    assert 5 == len([call for call in trace.calls if call[0] == "inner" and call[1] is None])


# ---------------------------------------------------------------------------------------------- limits
LIMITS = {
    "budget": ({"budget": 5}, "budget of 5 s exceeded"),
    "attempt": ({"per_attempt": 5}, "attempt of 5 s exceeded"),
    "idle": ({"budget": 50, "idle": 5}, "idle of 5 s exceeded"),
}


@opened
@pytest.mark.parametrize("name", LIMITS)
def test_a_stream_that_falls_silent(parity, opens, name):
    """The limit ends the wait for its item, and counts."""
    limits, text = LIMITS[name]

    async def scenario(stage):
        policies = marked(lambda: (room(4), timeout(**limits), again(), provider()), opens)
        await stage.consume(stage.stream([["a", parity.slow(9)]], *policies, opens=opens), *NEXT3)

    trace = parity(scenario)

    assert [*items("a"), ("raised", "TimeoutExceeded", text), ("end",)] == trace.outcomes
    assert 1 == trace.status()["failures_total"]
    assert [()] == trace.notes
    assert (0, 0, 0) == trace.bulkheads["room"]


@opened
def test_a_stream_that_is_slow_to_begin(parity, opens):
    """first_item: counted, and begun anew."""

    async def scenario(stage):
        attempts = [[parity.slow(9)], [parity.slow(4, "a"), parity.slow(9, "b")]]
        policies = marked(lambda: (room(4), timeout(60, first_item=5), again(), provider()), opens)
        await stage.consume(stage.stream(attempts, *policies, opens=opens), *NEXT3)

    trace = parity(scenario)

    assert [*items("a", "b"), ("end",)] == trace.outcomes
    assert (1, 1) == (trace.status()["failures_total"], trace.status()["successes_total"])
    assert ["TimedOut", "RetryScheduled"] == trace.event_names()


@opened
@pytest.mark.parametrize("name", ["budget", "attempt"])
def test_a_consumer_that_takes_too_long(parity, opens, name):
    """It is told at the next step; nobody else is to blame."""
    limits, text = LIMITS[name]

    async def scenario(stage):
        policies = marked(lambda: (room(4), timeout(**limits), again(), provider()), opens)
        await stage.consume(stage.stream([["a", "b"]], *policies, opens=opens), "next", 6, "next", "next")

    trace = parity(scenario)

    assert [*items("a"), ("raised", "TimeoutExceeded", text), ("end",)] == trace.outcomes
    assert (0, 0) == (trace.status()["failures_total"], trace.status()["successes_total"])
    assert (0, 0, 0) == trace.bulkheads["room"]
    assert 1 == trace.event_names().count("TimedOut")


@opened
@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_consumer_that_leaves_past_the_budget(parity, opens, end):
    """Quietly: it has asked for nothing."""

    async def scenario(stage):
        policies = marked(lambda: (room(4), timeout(5), provider()), opens)
        await stage.consume(stage.stream([["a", "b"]], *policies, opens=opens), "next", 6, end)

    trace = parity(scenario)

    assert not [outcome for outcome in trace.outcomes if outcome[0] == "raised"]
    assert [] == trace.events
    assert 0 == trace.status()["failures_total"]


@opened
@pytest.mark.parametrize(("busy", "failures"), [(1, 1), (2.5, 1), (3, 0)])
def test_half_of_a_budget_decides(parity, opens, busy, failures):
    """P17: what a step that the budget has cut short proves."""

    async def scenario(stage):
        policies = marked(lambda: (room(4), timeout(5), provider()), opens)
        await stage.consume(stage.stream([["a", parity.slow(9)]], *policies, opens=opens), "next", busy, "next")

    trace = parity(scenario)

    assert ("raised", "TimeoutExceeded", "budget of 5 s exceeded") == trace.outcomes[-1]
    assert failures == trace.status()["failures_total"]


@opened
def test_a_busy_consumer_is_not_idle(parity, opens):
    """Nor does it use up the next wait."""

    async def scenario(stage):
        policies = marked(lambda: (timeout(500, first_item=5, idle=5), provider()), opens)
        attempts = [[parity.slow(4, "a"), parity.slow(4, "b"), parity.slow(4, "c")]]
        await stage.consume(stage.stream(attempts, *policies, opens=opens), "next", 60, "next", 60, "next", 60, "next")

    trace = parity(scenario)

    assert [*items("a", "b", "c"), ("end",)] == trace.outcomes
    assert 1 == trace.status()["successes_total"]


@opened
@pytest.mark.parametrize("counts", [True, False])
def test_limits_that_do_not_count(parity, opens, counts):
    """counts=False: for limits that a client sets."""

    async def scenario(stage):
        for number, limits in enumerate(({"budget": 5}, {"per_attempt": 5}, {"budget": 50, "idle": 5})):
            policies = marked(lambda: (timeout(**limits, counts=counts), provider(CALM)), opens)
            stream = stage.stream([["a", parity.slow(9)]], *policies, opens=opens, name=f"stream {number}")
            await stage.consume(stream, "next", "next")

    assert (3 if counts else 0) == parity(scenario).status()["failures_total"]


# ---------------------------------------------------------------------------------------------- the ways are what they claim
def test_the_straight_path_meets_no_plan(parity):
    """A healthy generator begins a plan on every way but the straight one; also under a budget, in asyncio."""

    async def scenario(stage):
        await stage.consume(stage.stream([["a", "b"]], *full_stack()), *NEXT3)

    async def timed(stage):
        await stage.consume(stage.stream([["a", "b"]], *full_stack_timed()), *NEXT3)

    plans = parity.plans(scenario)
    with_budget = parity.plans(timed)

    assert {
        "sync-straight": 0,
        "sync-plan": 1,
        "sync-clock": 1,
        "async-straight": 0,
        "async-plan": 1,
        "async-clock": 1,
    } == plans
    assert (0, 1, 1) == tuple(with_budget[f"async-{path}"] for path in ("straight", "plan", "clock"))
