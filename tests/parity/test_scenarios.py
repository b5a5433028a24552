"""Scenarios of everyday life and of bad days: threads and asyncio, straight path and plan show one trace."""

from __future__ import annotations

import asyncio

import pytest

from resilience import (
    BreakerConfig,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    OnReject,
    breaker,
    bulkhead,
    classify_response,
    retry,
    timeout,
)

TWO_IN_A_ROW = BreakerConfig(Consecutive(2), cooldown=30)
CALM = BreakerConfig(Consecutive(9))


def always_one_key(*args, **kwargs):
    return "two", "key"


KEYED = {}
"""What the policies below are given besides."""


@pytest.fixture(
    params=[None, ("second", "key"), always_one_key],
    ids=["", "keyed", "by function"],
    autouse=True,
)
def keyed(request, monkeypatch):
    """Every scenario plays with one breaker and bulkhead, and with one of each per key."""
    if request.param is not None:
        monkeypatch.setitem(KEYED, "key", request.param)


class HttpError(Exception):
    """What a client library raises for a status."""

    def __init__(self, status, retry_after=None):
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


class Response:
    def __init__(self, status):
        self.status_code = status
        self.headers = {}

    def __repr__(self):
        return f"<{self.status_code}>"

    def __eq__(self, other):
        return self.status_code == other.status_code

    __hash__ = None


def down(text="down"):
    return ConnectionError(text)


def provider(config=TWO_IN_A_ROW, **options):
    return breaker("provider", config, **options, **KEYED)


def again(attempts=3, **options):
    return retry(attempts, **{"wait": 1, **options})


def room(limit=2, **options):
    return bulkhead("room", max_in_flight=limit, **options, **KEYED)


def full_stack():
    return room(), again(), provider()


def full_stack_timed():
    return room(6), timeout(60), again(), provider()


RETURNED, RAISED = "returned", "raised"


# ---------------------------------------------------------------------------------------------- success and failure
@pytest.mark.parametrize(
    "policies", [full_stack, full_stack_timed, lambda: (provider(),), lambda: (room(),), lambda: (again(),)]
)
def test_success(parity, policies):
    """A healthy call returns, is counted, and leaves nothing behind."""

    async def scenario(stage):
        await stage.call(stage.remote(["fine"], *policies()), 1)

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert [] == trace.events
    assert (None, (), None, 0) == trace.left_behind


def test_arguments(parity):
    """Defaults, keywords and both stars reach the function as given."""

    async def scenario(stage):
        remote = stage.remote([1, 2, 3, 4], *full_stack())
        await stage.call(remote)
        await stage.call(remote, "a", second="b")
        await stage.call(remote, "a", "b", "c", "d", key="k")
        await stage.call(remote, first="a", other="o")

    trace = parity(scenario)

    assert [
        ("remote", None, "two", (), "key", {}),
        ("remote", "a", "b", (), "key", {}),
        ("remote", "a", "b", ("c", "d"), "k", {}),
        ("remote", "a", "two", (), "key", {"other": "o"}),
    ] == trace.calls


@pytest.mark.parametrize("keyed", [None], indirect=True)
def test_wrong_arguments(parity):
    """A wrong argument list fails before any policy sees the call."""

    async def scenario(stage):
        remote = stage.remote(["never"], room(), provider())
        try:
            await stage.invoke(remote, "a", "b", second="b")
        except TypeError:
            stage.outcomes.append("TypeError")

    trace = parity(scenario)

    assert ["TypeError"] == trace.outcomes
    assert [] == trace.calls
    assert (0, 0) == (trace.status()["failures_total"], trace.bulkheads["room"][0])


def test_fail_once_then_succeed(parity):
    """One passing failure is repeated, and the breaker has seen both attempts."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), "fine"], *full_stack()), 1, key=2)

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert [("remote", 1, "two", (), 2, {})] * 2 == trace.calls
    assert [1.0] == trace.waits
    assert (1, 1, 0) == tuple(trace.status()[name] for name in ("failures_total", "successes_total", "failure_count"))
    assert ["RetryScheduled"] == trace.event_names()


def test_fail_once_then_succeed_within_a_budget(parity):
    """The same under a deadline that is never reached."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), "fine"], *full_stack_timed()))

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert ["RetryScheduled"] == trace.event_names()


def test_backoff(parity):
    """The waits double up to the longest."""

    async def scenario(stage):
        policy = retry(5, initial_backoff=1, max_backoff=3, jitter=0)
        await stage.call(stage.remote([down()] * 5, policy))

    assert [1.0, 2.0, 3.0, 3.0] == parity(scenario).waits


def test_exhausted(parity):
    """The last real exception leaves with one note, and every attempt has counted."""

    async def scenario(stage):
        policies = again(), provider(BreakerConfig(Consecutive(5)))
        await stage.call(stage.remote([down("a"), down("b"), down("c")], *policies))

    trace = parity(scenario)

    assert [(RAISED, "ConnectionError", "c")] == trace.outcomes
    assert [("retry gave up after 3 attempts",)] == trace.notes
    assert 3 == trace.status()["failure_count"]
    assert ["RetryScheduled", "RetryScheduled", "RetryExhausted"] == trace.event_names()


def test_not_retryable(parity):
    """Our own bug is not repeated and says nothing about the remote."""

    async def scenario(stage):
        await stage.call(stage.remote([TypeError("bug")], *full_stack()))

    trace = parity(scenario)

    assert [(RAISED, "TypeError", "bug")] == trace.outcomes
    assert [] == trace.waits
    assert [()] == trace.notes
    assert 0 == trace.status()["failures_total"]


def test_unclassified(parity):
    """An exception that no rule knows is counted nowhere but among the unclassified."""

    class Strange(Exception):
        pass

    found = []

    async def scenario(stage):
        await stage.call(stage.remote([Strange("x"), Strange("y")], *full_stack()))
        found.append(sum(stage.registry.hub.counts.values()))

    trace = parity(scenario)

    assert [(RAISED, "Strange", "x")] == trace.outcomes
    assert [1] * 6 == found


@pytest.mark.parametrize("retried", [True, False])
def test_a_client_fault_resets_a_streak(parity, retried):
    """A 404 is an answer: the remote is alive, so the streak of failures ends."""

    async def scenario(stage):
        policies = (again(1), provider()) if retried else (provider(),)
        remote = stage.remote([down(), HttpError(404), down(), "fine"], *policies)
        for _ in range(4):
            await stage.call(remote)

    trace = parity(scenario)

    assert (RAISED, "HttpError", "status 404") == trace.outcomes[1]
    assert (RETURNED, "fine") == trace.outcomes[3]
    assert (2, 1, "closed") == tuple(trace.status()[name] for name in ("failures_total", "answered_total", "state"))


def test_an_answer_that_is_to_be_ignored(parity):
    """With `answered="ignore"` a 404 leaves the streak as it was."""

    async def scenario(stage):
        remote = stage.remote(
            [down(), HttpError(404), down()], provider(BreakerConfig(Consecutive(2), answered="ignore"))
        )
        for _ in range(3):
            await stage.call(remote)

    assert "open" == parity(scenario).status()["state"]


def test_a_status_that_trips(parity):
    """A 401 named by `trip_on_status` is a failure."""

    async def scenario(stage):
        remote = stage.remote(
            [HttpError(401), HttpError(401)], provider(BreakerConfig(Consecutive(2), trip_on_status={401}))
        )
        for _ in range(2):
            await stage.call(remote)

    trace = parity(scenario)

    assert "open" == trace.status()["state"]
    assert ["StateChanged"] == trace.event_names()


def test_own_classifier(parity):
    """A site's own function decides first, and one that raises yields INTERNAL."""

    def classify(error):
        if error.args == ("broken",):
            raise LookupError
        return FaultKind.DOWNSTREAM if error.args == ("remote",) else None

    async def scenario(stage):
        remote = stage.remote([ValueError("remote"), ConnectionError("broken"), down()], provider(classify=classify))
        for _ in range(3):
            await stage.call(remote)

    trace = parity(scenario)

    assert "open" == trace.status()["state"]
    assert 2 == trace.status()["failures_total"]


def test_a_value_that_is_a_fault(parity):
    """A response with status 503 is retried like an exception; the last one is returned."""

    async def scenario(stage):
        policies = again(2), provider(classify_result=classify_response)
        await stage.call(stage.remote([Response(503), Response(503)], *policies))

    trace = parity(scenario)

    assert [(RETURNED, Response(503))] == trace.outcomes
    assert "open" == trace.status()["state"]


# ---------------------------------------------------------------------------------------------- the circuit
def test_trip_in_the_middle_of_a_retry(parity):
    """No retry is sent to a circuit that has just opened; the last real exception leaves."""

    async def scenario(stage):
        await stage.call(stage.remote([down("a"), down("b"), "never"], *full_stack()[1:]))

    trace = parity(scenario)

    assert [(RAISED, "ConnectionError", "b")] == trace.outcomes
    assert 2 == len(trace.calls)
    assert ["RetryScheduled", "StateChanged", "RetryExhausted"] == trace.event_names()
    assert 0 == trace.status()["rejected_total"]


def test_the_note_of_a_retry_that_an_open_circuit_ends(parity):
    """The note names the circuit and the time left."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), down()], *full_stack()))

    assert [("retry stopped: circuit provider is open, 30 s left",)] == [
        tuple(note.replace("'", "") for note in notes) for notes in parity(scenario).notes
    ]


def test_opened_by_somebody_else_during_a_wait(parity):
    """The permit for the second attempt is refused, so the first exception leaves."""

    async def scenario(stage):
        other = stage.remote([down(), down()], provider(), name="other")

        async def fail_and_let_others_fail(stage):
            await stage.aside(other)
            await stage.aside(other)
            raise down("mine")

        # A failure of an earlier episode: late for the streak, and the door is shut by then.
        await stage.call(stage.remote([fail_and_let_others_fail, "never"], *full_stack()))

    trace = parity(scenario)

    assert (RAISED, "ConnectionError", "mine") == trace.outcomes[-1]
    assert 1 == trace.status()["late_results"]


def test_refused_at_the_door(parity):
    """An open circuit answers with the exact time left, takes no slot and calls nothing."""

    async def scenario(stage):
        remote = stage.remote([down(), down()], *full_stack())
        await stage.call(remote)
        await stage.pass_time(12)
        await stage.call(remote)

    trace = parity(scenario)

    assert (RAISED, "CircuitOpenError", "circuit 'provider' is open, retry in 18 s") == trace.outcomes[1]
    assert 2 == len(trace.calls)
    assert "Rejected" == trace.event_names()[-1]
    assert 1 == trace.status()["rejected_total"]


def test_an_open_circuit_wins_over_a_full_bulkhead(parity):
    """The breaker is looked at before the bulkhead."""

    async def scenario(stage):
        remote = stage.remote(["never"], room(1), provider())
        stage.breaker().force_open("maintenance")

        async def while_full(stage):
            await stage.aside(remote)

        await stage.call(stage.remote([while_full], room(1), name="holder"))

    trace = parity(scenario)

    assert (RAISED, "CircuitOpenError", "circuit 'provider' is open") == trace.outcomes[0]


@pytest.mark.parametrize("keyed", [None, always_one_key], indirect=True)
def test_bypass_with_a_fallback(parity):
    """An open circuit skips the call; the fallback gets the same arguments."""

    async def scenario(stage):
        def fallback(first, second, *rest, key, **more):
            return "instead", first, second, rest, key, more

        policy = provider(on_open=OnOpen.BYPASS, fallback=fallback)
        remote = stage.remote([down(), down()], room(), again(2), policy)
        await stage.call(remote)
        await stage.call(remote, 7, "b", 9, key="k", other=8)

    trace = parity(scenario)

    assert [
        (RAISED, "ConnectionError", "down"),
        (RETURNED, ("instead", 7, "b", (9,), "k", {"other": 8})),
    ] == trace.outcomes
    assert (0, 1) == (trace.status()["rejected_total"], trace.status()["bypassed_total"])
    assert "Bypassed" == trace.event_names()[-1]


def test_bypass_with_a_value(parity):
    """A fallback that can't be called stands for itself; none given means None."""

    async def scenario(stage):
        for name, policy in (
            ("valued", provider(on_open=OnOpen.BYPASS, fallback=[])),
            ("bare", provider(on_open=OnOpen.BYPASS)),
        ):
            remote = stage.remote([], policy, name=name)
            stage.breaker().force_open("maintenance")
            await stage.call(remote)

    assert [(RETURNED, []), (RETURNED, None)] == parity(scenario).outcomes


def test_a_fallback_that_fails(parity):
    """What the fallback raises is raised, and judged by nobody."""

    def fallback(*args, **kwargs):
        raise down("fallback")

    async def scenario(stage):
        remote = stage.remote([], provider(on_open=OnOpen.BYPASS, fallback=fallback))
        stage.breaker().force_open("maintenance")
        await stage.call(remote)

    trace = parity(scenario)

    assert [(RAISED, "ConnectionError", "fallback")] == trace.outcomes
    assert 0 == trace.status()["failures_total"]


def test_a_probe_that_succeeds(parity):
    """After the cooldown one call goes as a probe, and its success closes."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), "back", "fine"], *full_stack())
        await stage.call(remote)
        await stage.pass_time(30)
        await stage.call(remote)
        await stage.call(remote)

    trace = parity(scenario)

    assert [(RETURNED, "back"), (RETURNED, "fine")] == trace.outcomes[1:]
    assert ["StateChanged", "ProbeStarted", "ProbeSucceeded", "StateChanged"] == trace.event_names()[-4:]


def test_a_probe_that_fails(parity):
    """A probe is one attempt: its failure is not retried, and opens again."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), down("probe"), "never"], *full_stack())
        await stage.call(remote)
        await stage.pass_time(30)
        await stage.call(remote)

    trace = parity(scenario)

    assert [(RAISED, "ConnectionError", "probe")] == trace.outcomes[1:]
    assert ["ProbeStarted", "ProbeFailed", "StateChanged"] == trace.event_names()[-3:]
    assert 3 == len(trace.calls)


def test_a_probe_that_is_answered(parity):
    """A 404 closes a half-open circuit: somebody is there."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), HttpError(404)], *full_stack())
        await stage.call(remote)
        await stage.pass_time(30)
        await stage.call(remote)

    assert "closed" == parity(scenario).status()["state"]


def test_two_probes_must_succeed(parity):
    """With `half_open_successes=2` the second success closes."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), 1, 2], provider(BreakerConfig(Consecutive(2), half_open_successes=2)))
        await stage.call(remote)
        await stage.call(remote)
        await stage.pass_time(30)
        await stage.call(remote)
        assert "half_open" == stage.breaker().state.value
        await stage.call(remote)

    assert "closed" == parity(scenario).status()["state"]


def test_reset_while_a_call_is_in_flight(parity):
    """A result that comes after a reset belongs to an earlier episode: a figure, nothing else."""

    async def scenario(stage):
        other = stage.remote([down(), down()], provider(), name="other")

        async def meanwhile(stage):
            await stage.aside(other)
            await stage.aside(other)
            stage.breaker().reset(actor="operator")
            raise down("late")

        await stage.call(stage.remote([meanwhile], provider()))

    trace = parity(scenario)

    assert (RAISED, "ConnectionError", "late") == trace.outcomes[-1]
    assert ("closed", 0, 1) == tuple(trace.status()[name] for name in ("state", "failure_count", "late_results"))
    assert ["StateChanged", "StateChanged", "LateResult"] == trace.event_names()


def test_a_late_success(parity):
    """A success that comes after the trip does not close."""

    async def scenario(stage):
        other = stage.remote([down(), down()], provider(), name="other")

        async def meanwhile(stage):
            await stage.aside(other)
            await stage.aside(other)
            return "late"

        await stage.call(stage.remote([meanwhile], *full_stack()))

    trace = parity(scenario)

    assert (RETURNED, "late") == trace.outcomes[-1]
    assert ("open", 1) == (trace.status()["state"], trace.status()["late_results"])


@pytest.mark.parametrize("act", ["disable", "force_open"])
def test_an_operator_acts_while_a_call_is_in_flight(parity, act):
    """Whatever an operator does meanwhile, the result of before is late."""

    async def scenario(stage):
        async def meanwhile(stage):
            if act == "disable":
                stage.breaker().disable(reason="calm")
            else:
                stage.breaker().force_open("calm", seconds=5)
            raise down("late")

        remote = stage.remote([meanwhile, "fine"], provider())
        await stage.call(remote)
        await stage.call(remote)

    trace = parity(scenario)

    assert 1 == trace.status()["late_results"]
    assert 0 == trace.status()["failures_total"]


def test_disabled(parity):
    """A disabled breaker lets everything pass and counts nothing."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), down(), "fine"], provider())
        stage.breaker().disable()
        for _ in range(4):
            await stage.call(remote)
        stage.breaker().enable()

    trace = parity(scenario)

    assert (RETURNED, "fine") == trace.outcomes[-1]
    assert (0, 0) == (trace.status()["failures_total"], trace.status()["successes_total"])


def test_shadow(parity):
    """A shadow breaker refuses nothing and counts what it would have refused."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), "passed"], provider(BreakerConfig(Consecutive(2), shadow=True)))
        for _ in range(3):
            await stage.call(remote)

    trace = parity(scenario)

    assert (RETURNED, "passed") == trace.outcomes[-1]
    assert 1 == trace.status()["would_refuse_total"]


def test_streak_within_a_time(parity):
    """Only failures inside the window count together."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), down()], provider(BreakerConfig(Consecutive(2, within=10))))
        await stage.call(remote)
        await stage.pass_time(11)
        await stage.call(remote)
        assert "closed" == stage.breaker().state.value
        await stage.pass_time(10)
        await stage.call(remote)

    assert "open" == parity(scenario).status()["state"]


def test_a_failure_rate_that_a_success_completes(parity):
    """The success that reaches the minimum is evaluated too, and opens."""

    async def scenario(stage):
        config = BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4))
        remote = stage.remote([down(), down(), "one", "two"], room(), provider(config))
        for _ in range(4):
            await stage.call(remote)

    trace = parity(scenario)

    assert (RETURNED, "two") == trace.outcomes[-1]
    assert ("open", 4, 0.5) == tuple(trace.status()[name] for name in ("state", "window_calls", "failure_rate"))


def test_a_failure_rate_over_a_rolling_window(parity):
    """Old calls leave the window, so the first result of a new bucket can open."""

    async def scenario(stage):
        config = BreakerConfig(FailureRate(0.5, window=4, bucket=1, min_calls=2))
        remote = stage.remote(["a", "b", "c", down(), down(), "d"], provider(config))
        for wait in (0, 0, 0, 2, 0, 2):
            await stage.pass_time(wait)
            await stage.call(remote)

    assert "open" == parity(scenario).status()["state"]


def test_one_exception_object_counts_once(parity):
    """The same exception raised again is one failure."""

    async def scenario(stage):
        cached = down("cached")
        remote = stage.remote([cached, cached, cached], provider())
        for _ in range(3):
            await stage.call(remote)

    trace = parity(scenario)

    assert ("closed", 1) == (trace.status()["state"], trace.status()["failures_total"])


def test_nested_call_sites_of_one_breaker(parity):
    """A failure that passes two call sites of one breaker counts once."""

    async def scenario(stage):
        inner = stage.remote([down()], provider(), name="inner")

        async def through(stage):
            return await stage.invoke(inner)

        await stage.call(stage.remote([through], provider()))

    assert 1 == parity(scenario).status()["failures_total"]


def test_a_call_inside_a_probe_shares_it(parity):
    """A nested call of the probed breaker is admitted and records nothing."""

    async def scenario(stage):
        inner = stage.remote([down(), down(), "inner"], provider(), name="inner")
        await stage.call(inner)
        await stage.call(inner)
        await stage.pass_time(30)

        async def through(stage):
            return await stage.invoke(inner)

        await stage.call(stage.remote([through], provider()))

    trace = parity(scenario)

    assert (RETURNED, "inner") == trace.outcomes[-1]
    assert (1, 1) == (trace.status()["probes_started"], trace.status()["successes_total"])


def test_a_call_inside_a_probe_that_fails(parity):
    """Its failure is the probe's: counted once, by whoever holds the permit."""

    async def scenario(stage):
        inner = stage.remote([down(), down(), down("probe")], provider(), name="inner")
        await stage.call(inner)
        await stage.call(inner)
        await stage.pass_time(30)

        async def through(stage):
            return await stage.invoke(inner)

        await stage.call(stage.remote([through], provider()))

    trace = parity(scenario)

    assert (RAISED, "ConnectionError", "probe") == trace.outcomes[-1]
    assert (1, 3) == (trace.status()["probes_failed"], trace.status()["failures_total"])


def test_another_call_during_a_probe(parity):
    """While the probe is out everybody else is refused for the rest of its lease."""

    async def scenario(stage):
        remote = stage.remote([down(), down()], provider())
        await stage.call(remote)
        await stage.call(remote)
        await stage.pass_time(30)

        async def meanwhile(stage):
            await stage.pass_time(1)
            await stage.aside(remote)
            return "back"

        await stage.call(stage.remote([meanwhile], provider(), name="prober"))

    trace = parity(scenario)

    assert (RAISED, "CircuitOpenError", "circuit 'provider' is open, retry in 29 s") == trace.outcomes[2]


def test_a_reference_without_settings(parity):
    """It finds its breaker at the first call, and counts on it from then on."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), "never"], room(), breaker("provider"))
        assert stage.breaker() is None
        stage.registry.breaker("provider", TWO_IN_A_ROW)
        for _ in range(3):
            await stage.call(remote)

    trace = parity(scenario)

    assert "CircuitOpenError" == trace.outcomes[-1][1]


def test_one_verdict_per_call(parity):
    """With `account="call"` an exhausted retry counts once."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), down(), down()], again(), provider(account="call")))

    trace = parity(scenario)

    assert 1 == trace.status()["failures_total"]
    assert 3 == len(trace.calls)


def test_a_call_that_is_exempt(parity):
    """`unless` lets a call pass by an open circuit, unseen by it, with all of its attempts."""

    async def scenario(stage):
        remote = stage.remote(
            [down(), "fine"], again(), provider(unless=lambda first, *rest, **more: first == "own key")
        )
        stage.breaker().force_open("maintenance")
        await stage.call(remote, "own key")
        await stage.call(remote, "ours")

    trace = parity(scenario)

    assert [RETURNED, RAISED] == [outcome[0] for outcome in trace.outcomes]
    assert (0, 0) == (trace.status()["failures_total"], trace.status()["successes_total"])


# ---------------------------------------------------------------------------------------------- Retry-After
def test_retry_after_is_the_least_wait(parity):
    """The server's wish raises the wait."""

    async def scenario(stage):
        await stage.call(stage.remote([HttpError(503, 7), "fine"], *full_stack()))

    assert [7.0] == parity(scenario).waits


def test_retry_after_that_is_too_long(parity):
    """A wish beyond `max_retry_after` ends the retry now."""

    async def scenario(stage):
        await stage.call(stage.remote([HttpError(503, 61), "never"], *full_stack()))

    trace = parity(scenario)

    assert [(RAISED, "HttpError", "status 503")] == trace.outcomes
    assert [("retry stopped: the server asks for 61 s, more than max_retry_after",)] == trace.notes


def test_retry_after_keeps_the_circuit_open(parity):
    """The failure that trips carries a wish longer than the cooldown."""

    async def scenario(stage):
        remote = stage.remote([HttpError(503, 100), HttpError(503, 100)], provider())
        for _ in range(3):
            await stage.call(remote)

    assert "circuit 'provider' is open, retry in 100 s" == parity(scenario).outcomes[-1][2]


# ---------------------------------------------------------------------------------------------- the bulkhead
def test_a_full_bulkhead(parity):
    """Without a wait a call beyond the cap is refused at once; the holder's slot comes back."""

    async def scenario(stage):
        remote = stage.remote([], room(1), again(), provider())

        async def while_full(stage):
            await stage.aside(remote)

        await stage.call(stage.remote([while_full], room(1), name="holder"))

    trace = parity(scenario)

    assert (RAISED, "BulkheadFullError", "bulkhead 'room' is full") == trace.outcomes[0]
    assert (0, 0, 1) == trace.bulkheads["room"]
    assert ["BulkheadRejected"] == trace.event_names()


def test_a_full_bulkhead_that_is_bypassed(parity):
    """BYPASS answers with the fallback instead."""

    async def scenario(stage):
        remote = stage.remote(
            [], room(1, on_reject=OnReject.BYPASS, fallback=lambda *args, **more: ("instead", args[0])), provider()
        )

        async def while_full(stage):
            await stage.aside(remote, 5)

        await stage.call(stage.remote([while_full], room(1), name="holder"))

    trace = parity(scenario)

    assert (RETURNED, ("instead", 5)) == trace.outcomes[0]
    assert ["BulkheadRejected", "Bypassed"] == trace.event_names()


def test_a_refusal_by_an_inner_bulkhead_is_no_business_of_the_outer_fallback(parity):
    """A fallback answers the refusal of its own bulkhead only, told by identity."""

    async def scenario(stage):
        inner = stage.remote([], bulkhead("inner", max_in_flight=1), name="inner")

        async def through(stage):
            return await stage.invoke(inner)

        outer = stage.remote([through], room(on_reject=OnReject.BYPASS, fallback="instead"), provider(), name="outer")

        async def while_full(stage):
            await stage.aside(outer)

        await stage.call(stage.remote([while_full], bulkhead("inner", max_in_flight=1), name="holder"))

    trace = parity(scenario)

    assert (RAISED, "BulkheadFullError", "bulkhead 'inner' is full") == trace.outcomes[0]
    assert 0 == trace.status()["failures_total"]


@pytest.mark.parametrize("error", [down(), TypeError("bug"), KeyboardInterrupt("stop")])
def test_a_slot_comes_back_whatever_happens(parity, error):
    """An exception of any sort leaves no slot behind."""

    async def scenario(stage):
        await stage.call(stage.remote([type(error)(*error.args)], room(1)))

    assert (0, 0, 0) == parity(scenario).bulkheads["room"]


# ---------------------------------------------------------------------------------------------- interruptions
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("policies", [full_stack, full_stack_timed, lambda: (provider(),)])
def test_what_is_no_exception_passes_untouched(parity, kind, policies):
    """A stop signal is neither retried nor counted; the slot comes back."""

    async def scenario(stage):
        remote = stage.remote([down(), "fine", kind("stop"), down(), "fine"], *policies())
        for _ in range(5):
            await stage.call(remote)

    trace = parity(scenario)

    assert [(RAISED, kind.__name__, "stop")] == [outcome for outcome in trace.outcomes if outcome[1] == kind.__name__]
    assert ("closed", 2) == (trace.status()["state"], trace.status()["failures_total"])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_probe_that_is_interrupted(parity, kind):
    """It gives its slot back and decides nothing; the next call probes again."""

    async def scenario(stage):
        remote = stage.remote([down(), down(), kind("stop"), "back"], *full_stack())
        await stage.call(remote)
        await stage.pass_time(30)
        await stage.call(remote)
        assert "half_open" == stage.breaker().state.value
        await stage.call(remote)

    trace = parity(scenario)

    assert (RETURNED, "back") == trace.outcomes[-1]
    assert [{"reason": "cancelled"}] == [
        {"reason": fields["reason"]} for name, fields in trace.events if name == "ProbeReleased"
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interruption_in_the_second_attempt(parity, kind):
    """What happened to the first attempt has counted, the second says nothing."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), kind("stop")], *full_stack()))

    trace = parity(scenario)

    assert kind.__name__ == trace.outcomes[0][1]
    assert (1, 0) == (trace.status()["failures_total"], trace.bulkheads["room"][0])


# ---------------------------------------------------------------------------------------------- exceptions as they are
@pytest.mark.parametrize(
    "policies", [full_stack, full_stack_timed, lambda: (provider(),), lambda: (room(),), lambda: (again(1),)]
)
def test_the_very_same_exception(parity, policies):
    """What the function raised is what the caller catches: the same object, with the same arguments."""
    same = []

    async def scenario(stage):
        error = TypeError("bug", 1)
        try:
            await stage.invoke(stage.remote([error], *policies()))
        except TypeError as caught:
            same.append(caught is error)

    parity(scenario)

    assert {True} == set(same)


@pytest.mark.parametrize(
    "policies", [full_stack, full_stack_timed, lambda: (provider(),), lambda: (again(2),), lambda: ()]
)
@pytest.mark.parametrize("script", [lambda: [TypeError("bug")], lambda: [down("a"), down("b"), down("c")]])
def test_an_exception_inside_a_surrounding_except_block(parity, policies, script):
    """Its context is what was being handled around the call, as without any policy."""

    async def scenario(stage):
        remote = stage.remote(script(), *policies())
        try:
            raise LookupError("around")
        except LookupError:
            await stage.call(remote)

    trace = parity(scenario)

    assert ("LookupError",) == trace.outcomes[0][3:]


def test_what_was_handled_around_the_call_is_not_the_cause(parity):
    """An unknown exception is unwrapped no further than the exception handled when the call began."""

    class Ours(Exception):
        pass

    async def scenario(stage):
        remote = stage.remote([Ours("a"), Ours("b")], provider(BreakerConfig(Consecutive(1))))
        try:
            raise down("around")
        except ConnectionError:
            await stage.call(remote)

    trace = parity(scenario)

    assert ("closed", 0) == (trace.status()["state"], trace.status()["failures_total"])


@pytest.mark.parametrize("policies", [full_stack, lambda: (provider(),)])
def test_an_unknown_exception_with_a_cause(parity, policies):
    """`raise MyError from ConnectionError` is as transient as its cause."""

    class Ours(Exception):
        pass

    def ours():
        error = Ours("wrapped")
        error.__cause__ = down("cause")
        return error

    async def scenario(stage):
        await stage.call(stage.remote([ours(), ours(), ours()], *policies()))

    trace = parity(scenario)

    assert ("raised", "Ours", "wrapped", "ConnectionError") == trace.outcomes[0]
    assert 1 <= trace.status()["failures_total"]


def test_an_exception_with_a_context_of_its_own(parity):
    """A context that the function gave its exception is kept, also inside somebody's except block."""

    async def scenario(stage):
        async def fail(stage):
            try:
                raise KeyError("inner")
            except KeyError:
                raise TypeError("outer")  # noqa: B904  # the implicit context is what is tested

        remote = stage.remote([fail], *full_stack())
        try:
            raise LookupError("around")
        except LookupError:
            await stage.call(remote)

    assert ("KeyError", "LookupError") == parity(scenario).outcomes[0][3:]


def test_stop_iteration(parity):
    """A plain function may raise StopIteration; a coroutine can't, and says so as without policies."""

    async def scenario(stage):
        await stage.call(stage.remote([StopIteration("end")], *full_stack()))

    plain = parity(scenario, only=lambda way: not way.is_async)
    coroutine = parity(scenario, only=lambda way: way.is_async)

    assert [(RAISED, "StopIteration", "end")] == plain.outcomes
    assert [(RAISED, "RuntimeError", "coroutine raised StopIteration", "StopIteration")] == coroutine.outcomes


def test_stop_iteration_in_a_later_attempt(parity):
    """The recovery runs in a coroutine, and yet a StopIteration stays one."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), StopIteration("end")], *full_stack()))

    assert [(RAISED, "StopIteration", "end")] == parity(scenario, only=lambda way: not way.is_async).outcomes


def test_notes_do_not_pile_up(parity):
    """An exception object that is raised again and again gets one note of a kind."""

    async def scenario(stage):
        cached = down("cached")
        remote = stage.remote([cached] * 4, again(2))
        await stage.call(remote)
        await stage.call(remote)

    assert [("retry gave up after 2 attempts",)] * 2 == parity(scenario).notes


class NoArgs(ConnectionError):
    args = None


class NoDict(ConnectionError):
    @property
    def __dict__(self):
        raise RuntimeError("no attributes here")


class NoContext(ConnectionError):
    @property
    def __context__(self):
        raise RuntimeError("no context here")


@pytest.mark.parametrize("kind", [NoArgs, NoDict, NoContext])
@pytest.mark.parametrize("policies", [full_stack, lambda: (provider(),), lambda: (again(),)])
def test_a_hostile_exception(parity, kind, policies):
    """An exception whose attributes can't be read is still the one that leaves."""
    left = []

    async def scenario(stage):
        try:
            await stage.invoke(stage.remote([kind("x"), kind("x"), kind("x")], *policies()))
        except BaseException as error:
            left.append(type(error).__name__)

    parity(scenario)

    assert {kind.__name__} == set(left)


# ---------------------------------------------------------------------------------------------- awaitables of plain functions
@pytest.mark.parametrize("policies", [full_stack, lambda: (provider(),), lambda: (again(),)])
def test_a_plain_function_that_returns_an_awaitable(parity, policies):
    """It is protected while it is awaited, as the coroutine function would be."""

    async def scenario(stage):
        remote = stage.remote(
            [down(), "fine", TypeError("bug"), down(), down(), down()], *policies(), awaitable=range(1, 9)
        )
        for _ in range(3):
            await stage.call(remote, 1, key=2)

    trace = parity(scenario)

    assert ("remote", 1, "two", (), 2, {}) == trace.calls[0]
    assert 3 == len(trace.outcomes)


def test_a_plain_function_that_fails_and_then_returns_an_awaitable(parity):
    """An awaitable that a later attempt returns is awaited and protected too."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), "fine"], again(), awaitable={2}))

    assert [(RETURNED, "fine")] == parity(scenario).outcomes


def test_a_plain_function_whose_later_awaitable_fails(parity):
    """Its failure is judged, and there is a third attempt."""

    async def scenario(stage):
        await stage.call(stage.remote([down("a"), down("b"), "fine"], again(), provider(CALM), awaitable={2, 3}))

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert 3 == len(trace.calls)


def test_a_plain_function_that_returns_an_awaitable_and_then_a_value(parity):
    """A plain answer of a later attempt needs no await."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), "fine"], *full_stack(), awaitable={1}))

    assert [(RETURNED, "fine")] == parity(scenario).outcomes


def test_a_plain_function_on_a_worker_that_returns_an_awaitable(parity):
    """What an interruptible function returns is awaited under the policies as well."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), "fine"], *full_stack_timed(), awaitable={1, 2}))

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert 1 == trace.status()["failures_total"]


# ---------------------------------------------------------------------------------------------- timeouts
def test_a_budget_that_runs_out_in_the_first_attempt(parity):
    """The call ends by its budget, and a hung remote counts."""

    async def scenario(stage):
        policies = room(4), timeout(5), again(), provider()
        await stage.call(stage.remote([parity.slow(9)], *policies))

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert 1 == trace.status()["failures_total"]
    assert (0, 0, 0) == trace.bulkheads["room"]
    assert 1 == trace.event_names().count("TimedOut")


def test_an_expired_budget_is_no_attempt_to_repeat(parity):
    """The retry has nothing to say about it: no note, no event of its own."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(9)], timeout(5), again()))

    trace = parity(scenario)

    assert [()] == trace.notes
    assert ["TimedOut"] == trace.event_names()


def test_a_budget_that_runs_out_in_a_wait(parity):
    """A pause that takes longer than planned ends by the budget, and proves nothing about the remote."""

    async def scenario(stage):
        remote = stage.remote([down(), "never"], room(4), timeout(5), again(), provider())
        stage.clock.oversleep = 10
        await stage.call(remote)

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert 1 == len(trace.calls)
    assert 1 == trace.status()["failures_total"]


def test_a_budget_that_runs_out_in_the_second_attempt(parity):
    """The second attempt had most of the time, so its silence counts."""

    async def scenario(stage):
        await stage.call(stage.remote([down(), parity.slow(9)], room(4), timeout(5), again(), provider()))

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert ("open", 2) == (trace.status()["state"], trace.status()["failures_total"])


def test_an_attempt_that_began_too_late_to_prove_anything(parity):
    """In flight for less than half of the budget: neutral."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(3, down()), parity.slow(9)], timeout(5), again(), provider()))

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert ("closed", 1) == (trace.status()["state"], trace.status()["failures_total"])


def test_a_probe_that_began_too_late_to_prove_anything(parity):
    """Our own deadline cut it short: it gives its slot back, for the same reason in either world."""

    async def scenario(stage):
        config = BreakerConfig(Consecutive(1), cooldown=3.5)
        await stage.call(stage.remote([down(), parity.slow(9)], room(4), timeout(5), again(wait=4), provider(config)))

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert (1, 1) == (trace.status()["probes_released"], trace.status()["failures_total"])


def test_a_budget_that_does_not_count(parity):
    """`counts=False`: a limit that a client sets says nothing about the remote."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(9)], timeout(5, counts=False), provider()))

    assert 0 == parity(scenario).status()["failures_total"]


def test_a_limit_for_each_attempt(parity):
    """A slow attempt is cut and repeated; both verdicts are the breaker's."""

    async def scenario(stage):
        remote = stage.remote(
            [parity.slow(9), parity.slow(1, "fine")], room(6), timeout(20, per_attempt=5), again(), provider()
        )
        await stage.call(remote)

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert (1, 1) == (trace.status()["failures_total"], trace.status()["successes_total"])
    assert ["TimedOut", "RetryScheduled"] == trace.event_names()


def test_a_limit_for_each_attempt_that_does_not_count(parity):
    """`counts=False` holds for the limit of an attempt too; it is repeated all the same."""

    async def scenario(stage):
        policies = room(6), timeout(20, per_attempt=5, counts=False), again(), provider()
        await stage.call(stage.remote([parity.slow(9), "fine"], *policies))

    trace = parity(scenario)

    assert [(RETURNED, "fine")] == trace.outcomes
    assert 0 == trace.status()["failures_total"]


def test_a_limit_for_each_attempt_without_a_budget(parity):
    """Every attempt has its own time, so all of them may use it up."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(9)] * 3, timeout(per_attempt=5), again()))

    trace = parity(scenario)

    assert [(RAISED, "TimeoutExceeded", "attempt of 5 s exceeded")] == trace.outcomes
    assert [("retry gave up after 3 attempts",)] == trace.notes


def test_a_wait_that_does_not_fit_the_budget(parity):
    """It is not begun: the real exception leaves now."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(3, down()), "never"], timeout(5), again(wait=3), provider()))

    trace = parity(scenario)

    assert [(RAISED, "ConnectionError", "down")] == trace.outcomes
    assert [("retry stopped: a wait of 3 s does not fit the deadline",)] == trace.notes


def test_a_slow_call_within_its_budget(parity):
    """What ends in time is a success, however close."""

    async def scenario(stage):
        await stage.call(stage.remote([parity.slow(4.999, "fine")], *full_stack_timed()))

    assert [(RETURNED, "fine")] == parity(scenario).outcomes


def test_a_timed_call_inside_a_timed_call(parity):
    """The outer budget is the shorter one: it ends both, and the inner breaker learns of a hang."""

    async def scenario(stage):
        inner = stage.remote([parity.slow(9)], timeout(8), provider(), name="inner")

        async def through(stage):
            return await stage.invoke(inner)

        await stage.call(stage.remote([through], timeout(5), name="outer"))

    trace = parity(scenario, only=lambda way: way.is_async)

    assert [(RAISED, "TimeoutExceeded", "budget of 5 s exceeded")] == trace.outcomes
    assert 1 == trace.status()["failures_total"]


def test_a_deadline_that_is_past_already(parity):
    """The inner function is not started."""

    async def scenario(stage):
        inner = stage.remote(["never"], timeout(8), provider(), name="inner")

        async def through(stage):
            # Time that nobody can interrupt.
            stage.virtual.advance(6)
            return await stage.invoke(inner)

        await stage.call(stage.remote([through], timeout(5), name="outer"))

    trace = parity(scenario, only=lambda way: way.is_async)

    assert ["outer"] == [call[0] for call in trace.calls]
    assert "TimeoutExceeded" == trace.outcomes[0][1]


# ---------------------------------------------------------------------------------------------- nested retries
def test_nested_retries_add(parity):
    """Three inside three are five calls: in the outer repeats the inner retry makes one attempt."""

    async def scenario(stage):
        inner = stage.remote([down()] * 9, again(), name="inner")

        async def through(stage):
            return await stage.invoke(inner)

        await stage.call(stage.remote([through] * 3, again(), name="outer"))

    trace = parity(scenario)

    assert 5 == [call[0] for call in trace.calls].count("inner")


# ---------------------------------------------------------------------------------------------- the ways are what they claim
def test_the_straight_path_meets_no_plan(parity):
    """A healthy call of a plain function begins a plan on every way but the straight one."""

    async def scenario(stage):
        await stage.call(stage.remote(["fine"], *full_stack()))

    assert {
        "sync-straight": 0,
        "sync-plan": 1,
        "sync-clock": 1,
        "async-straight": 0,
        "async-plan": 1,
        "async-clock": 1,
    } == parity.plans(scenario)


def test_the_straight_path_meets_no_plan_under_a_timeout(parity):
    """Nor does a coroutine function with a budget."""

    async def scenario(stage):
        if stage.way.is_async:
            await stage.call(stage.remote(["fine"], *full_stack_timed()))

    plans = parity.plans(scenario)

    assert (0, 1, 1) == (plans["async-straight"], plans["async-plan"], plans["async-clock"])


def test_the_straight_path_meets_no_plan_on_a_worker(parity):
    """Nor does a plain function with a budget, unless its slot may have to stay behind."""

    async def scenario(stage):
        await stage.call(stage.remote(["fine"], timeout(5), again(), provider()))

    plans = parity.plans(scenario)

    assert (0, 1, 1) == (plans["sync-straight"], plans["sync-plan"], plans["sync-clock"])


def test_a_counted_failure_meets_no_plan(parity):
    """Without a retry a failure is settled in place."""

    async def scenario(stage):
        await stage.call(stage.remote([down()], room(), provider()))

    plans = parity.plans(scenario)

    assert (0, 0) == (plans["sync-straight"], plans["async-straight"])
