"""The breaker's layers in a scripted world: the door, the permit of each attempt, the report of a whole call."""

from __future__ import annotations

import asyncio
import time

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    TimeoutExceeded,
    TimeoutScope,
)
from resilience._clock import SYSTEM_CLOCK
from resilience._context import DEADLINE, PROBING
from resilience._core.deadline import AttemptDeadline, Deadline
from resilience._core.events import Bypassed, TimedOut
from resilience._core.outcome import Outcome
from resilience._site import Call


@pytest.fixture(params=[False, True], ids=["asked", "published"], autouse=True)
def published(request, registry, clock, monkeypatch):
    """A closed circuit admits by what it publishes; by a test's clock nothing is published, so it is asked."""
    if request.param:
        monkeypatch.setattr(time, "monotonic", clock.monotonic)
        monkeypatch.setattr(time, "time_ns", clock.time_ns)
        registry.clock = SYSTEM_CLOCK
    return request.param


def expired(deadline):
    outcome = Outcome(error=TimeoutExceeded(deadline.scope, deadline.seconds))
    outcome.expired = deadline
    return outcome


def opened(plan, breaker):
    breaker.breaker.force_open("maintenance", seconds=30)
    return plan


# ---------------------------------------------------------------------------------------------- the door
def test_an_open_circuit_is_answered_at_the_door(plan):
    """Nothing inside is asked: who can't be admitted anyway stands in no line."""
    breaker = plan.breaker()
    plan.bulkhead(wait=5.0).bulkhead.take()
    outcome = opened(plan, breaker).call()

    assert (True, 30.0) == (outcome.refused_by is breaker, outcome.error.retry_after)
    assert [] == plan.world.log


def test_opened_by_an_operator_without_an_end(plan):
    """Nobody knows when."""
    plan.breaker().breaker.force_open("maintenance")

    assert plan.call().error.retry_after is None


def test_bypassed(plan, told):
    """The fallback gets the arguments, the call counts as bypassed and not as rejected; listeners hear where."""
    breaker = plan.breaker(on_open=OnOpen.BYPASS, fallback=lambda *args, **kwargs: (args, kwargs))
    outcome = opened(plan, breaker).call(1, key=2)

    assert ((1,), {"key": 2}) == outcome.value
    assert Bypassed(name="provider", site="module:fn", by="circuit_open") == told[-1]
    assert (0, 1) == (plan.status.rejected_total, plan.status.bypassed_total)


def test_bypassed_for_good(plan):
    """An opening without an end is bypassed like any other."""
    plan.breaker(on_open=OnOpen.BYPASS, fallback="instead").breaker.force_open("maintenance")

    assert "instead" == plan.call().value


def test_a_refusal_of_another_breaker_is_not_bypassed(plan):
    """A fallback answers the refusal of its own breaker, told by identity."""
    refusal = Outcome.refusal(CircuitOpenError("other"), "somebody")
    plan.breaker(on_open=OnOpen.BYPASS, fallback="instead")

    assert refusal is plan.call(script=[refusal])


def test_a_permit_that_is_refused_after_the_door(plan):
    """Between door and permit somebody opened: refused, or bypassed, all the same."""
    breaker = plan.breaker(on_open=OnOpen.BYPASS, fallback="instead")
    plan.bulkhead(wait=5.0)
    slot = plan.layers[-1][1].__self__.bulkhead.take()

    def open_and_give(ticket):
        breaker.breaker.force_open("maintenance")
        plan.registry.get_bulkhead("room").give(slot)

    plan.world.on_wait = open_and_give

    assert "instead" == plan.call().value
    assert (0, 1) == (plan.status.rejected_total, plan.status.bypassed_total)


def test_a_permit_that_is_refused_after_the_door_raises(plan):
    """With FAIL it is counted as rejected."""
    breaker = plan.breaker()

    async def open_meanwhile(call, inner):
        breaker.breaker.force_open("maintenance", seconds=9)
        return await inner(call)

    plan.layers.insert(1, (plan.layers[0][0], open_meanwhile))

    assert 9 == plan.call().error.retry_after
    assert 1 == plan.status.rejected_total


@pytest.mark.parametrize(
    ("seconds", "note"),
    [(30, "retry stopped: circuit provider is open, 30 s left"), (None, "retry stopped: circuit provider is open")],
)
def test_a_further_attempt_that_is_refused_where_refusals_are_bypassed(plan, down, seconds, note):
    """The call has its real exception, with a note on who refused and for how long; it is not answered instead."""
    breaker = plan.breaker(on_open=OnOpen.BYPASS, fallback="instead")
    plan.retry(wait=0.0)

    def fail_and_open():
        breaker.breaker.force_open("maintenance", seconds=seconds)
        return down()

    assert [note] == plan.call(script=[fail_and_open]).error.__notes__


def test_nothing_stops_a_retry_while_the_circuit_is_closed(plan):
    """Before the first call, too."""
    layers = plan.breaker()

    assert "" == layers.stopped(Call(plan.site, plan.world, (), {}), 1.0)


@pytest.mark.parametrize(("exempt", "failures"), [(True, 0), (False, 1)])
def test_unless(plan, down, exempt, failures):
    """An exempt call neither asks nor feeds the breaker."""
    layers = plan.breaker(unless=lambda own: own)
    plan.call(exempt, script=[down()])

    assert failures == layers.breaker.status().failures_total
    assert ["invoke", "attempt"] == plan.world.log


def test_an_exempt_call_passes_an_open_circuit(plan):
    """The door is not asked either."""
    breaker = plan.breaker(unless=lambda: True)

    assert "fine" == opened(plan, breaker).call(script=["fine"]).value


def test_unless_that_fails(plan):
    """What the predicate raises is the outcome."""

    def broken():
        raise LookupError("x")

    plan.breaker(unless=broken)

    assert isinstance(plan.call().error, LookupError)


def test_a_breaker_is_looked_up_at_the_first_call(plan):
    """A reference registers nothing before."""
    layers = plan.breaker()

    assert "provider" not in plan.registry
    plan.call(script=["fine"])
    assert layers.breaker is plan.registry.get("provider")
    assert layers.resolve() is layers.breaker


# ---------------------------------------------------------------------------------------------- an attempt
def test_a_success_is_counted(plan, published, monkeypatch):
    """Without a lock while all is well."""
    layers = plan.breaker()
    if published:
        monkeypatch.setattr(layers.breaker, "_section", lambda act, *args: pytest.fail("took the lock"))
    plan.call(script=["fine"])

    assert (1, 0) == (plan.status.successes_total, plan.status.failures_total)


def test_a_value_that_is_a_fault(plan):
    """Judged by the site."""
    plan.site.judge_result = lambda value: FaultKind.DOWNSTREAM if value == "bad" else None
    plan.breaker()
    plan.call(script=["fine"])
    plan.call(script=["bad"])

    assert (1, 1) == (plan.status.successes_total, plan.status.failures_total)


def test_a_refusal_from_inside_is_neutral(plan):
    """Our own refusals say nothing about the remote."""
    plan.breaker()
    plan.call(script=[Outcome.refusal(CircuitOpenError("inner"), "somebody")])

    assert (0, 0, 0) == (plan.status.successes_total, plan.status.failures_total, plan.status.answered_total)


def test_an_exception_that_this_breaker_has_counted(plan, down):
    """Raised again, it is no second failure."""
    plan.breaker()
    error = down()
    plan.call(script=[error])
    plan.call(script=[error])

    assert ("closed", 1) == (plan.status.state.value, plan.status.failures_total)


def test_an_exception_that_was_no_failure_before(plan, fault_of):
    """It was not counted: who judges it otherwise, counts it."""
    plan.breaker()
    error = fault_of(FaultKind.CONTRACT)
    plan.call(script=[error])
    error.fault_kind = FaultKind.TRANSIENT
    plan.call(script=[error])

    assert 1 == plan.status.failures_total


def test_a_probe_is_marked_while_it_runs(plan, down):
    """Calls inside share it; afterwards the mark is gone."""
    layers = plan.breaker()
    plan.call(script=[down()])
    plan.call(script=[down()])
    plan.clock.advance(30)
    seen = plan.call(
        script=[lambda: (len(PROBING.get()), layers.breaker.refusal(), layers.breaker.refusal_here())]
    ).value

    assert (1, 30.0, None) == seen
    assert () == PROBING.get()
    assert plan.latest.probed is True


@pytest.mark.parametrize(("kind", "reason"), [(KeyboardInterrupt, "cancelled"), (LookupError, "neutral")])
def test_a_probe_that_is_interrupted(plan, down, kind, reason):
    """It gives its slot back, and its mark; only what is no exception has cancelled it."""

    def interrupt():
        raise kind

    plan.breaker()
    plan.call(script=[down()])
    plan.call(script=[down()])
    plan.clock.advance(30)
    with pytest.raises(kind):
        plan.call(script=[interrupt])

    assert ((), 1) == (PROBING.get(), plan.status.probes_released)
    assert reason == plan.events[-1].reason.value


@pytest.mark.parametrize(("expires", "reason"), [(True, "cancelled"), (False, "neutral")])
def test_a_probe_that_found_nothing_out(plan, down, expires, reason):
    """Cut short by a limit that says nothing of the remote it was cancelled, refused inside it was never made."""
    deadline = AttemptDeadline(10, 0)
    deadline.counts = False
    plan.breaker()
    plan.call(script=[down()])
    plan.call(script=[down()])
    plan.clock.advance(30)
    plan.call(script=[expired(deadline) if expires else Outcome.refusal(CircuitOpenError("inner"), "somebody")])

    assert ("ProbeReleased", reason) == (plan.event_names[-1], plan.events[-1].reason.value)


@pytest.mark.parametrize(
    ("probe_lease", "budget", "per_attempt", "lease"),
    [
        (30, None, None, 30.0),
        (30, 90.0, None, 90.0),
        (30, 90.0, 40.0, 40.0),
        (30, 10.0, None, 30.0),
        (0.5, None, None, 0.5),
    ],
)
def test_the_lease_of_a_probe(plan, down, probe_lease, budget, per_attempt, lease):
    """At least `probe_lease`; longer where an honest call may take longer."""
    plan.breaker(BreakerConfig(Consecutive(2), cooldown=30, probe_lease=probe_lease))
    plan.site.budget, plan.site.per_attempt = budget, per_attempt
    plan.call(script=[down()])
    plan.call(script=[down()])
    plan.clock.advance(30)
    plan.call(script=["back"])

    assert [lease] == [event.lease for event in plan.events if type(event).__name__ == "ProbeStarted"]


def test_an_attempt_in_a_disabled_breaker(plan, down):
    """Let through and not counted."""
    layers = plan.breaker()
    layers.breaker.disable()
    plan.call(script=[down()])

    assert 0 == plan.status.failures_total


def test_an_interruption_in_a_disabled_breaker(plan):
    """Nothing to give back."""

    def interrupt():
        raise KeyboardInterrupt

    plan.breaker().breaker.disable()
    with pytest.raises(KeyboardInterrupt):
        plan.call(script=[interrupt])

    assert (0, 0) == (plan.status.failures_total, plan.status.late_results)


# ---------------------------------------------------------------------------------------------- deadlines of ours
@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize(
    ("per_attempt", "started", "failures"), [(None, 0, 1), (None, 5, 1), (None, 5.1, 0), (2.0, 9, 1), (2.0, 9.1, 0)]
)
def test_a_budget_that_a_worker_gave_up_at(plan, per_attempt, started, failures, per_call):
    """It counts if the attempt, or a call that is reported as one, was in flight for half of it, or of a shorter limit."""
    plan.breaker(per_call=per_call)
    plan.site.per_attempt = per_attempt
    deadline = Deadline(10, 0)
    plan.clock.advance(started)
    token = DEADLINE.set(deadline)
    try:
        plan.call(script=[lambda: expired(deadline)])
    finally:
        DEADLINE.reset(token)

    assert failures == plan.status.failures_total


@pytest.mark.parametrize("per_call", [False, True])
def test_a_budget_whose_scope_is_gone(plan, per_call):
    """Without a deadline around, the attempt began with the expired one."""
    plan.breaker(per_call=per_call)
    plan.clock.advance(9)
    plan.call(script=[expired(Deadline(10, 0))])

    assert 1 == plan.status.failures_total


@pytest.mark.parametrize(("counts", "failures"), [(True, 1), (False, 0)])
@pytest.mark.parametrize("kind", [Deadline, AttemptDeadline])
def test_a_limit_that_does_not_count(plan, kind, counts, failures):
    """A client's own limit says nothing about the remote."""
    plan.breaker()
    deadline = kind(10, 0)
    deadline.counts = counts
    plan.call(script=[expired(deadline)])

    assert failures == plan.status.failures_total


def cancelled_by(deadline):
    def cut():
        deadline.fired = True
        raise asyncio.CancelledError

    return cut


@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize(("started", "failures"), [(0, 1), (5, 1), (5.1, 0)])
def test_a_cancel_by_a_deadline_of_ours(plan, started, failures, per_call):
    """P17: it counts as one transient failure after half of the limit, for an attempt or for the whole call."""
    plan.breaker(per_call=per_call)
    deadline = Deadline(10, 0)
    plan.clock.advance(started)

    def cut():
        plan.clock.advance(10 - started)
        cancelled_by(deadline)()

    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(asyncio.CancelledError):
            plan.call(script=[cut])
    finally:
        DEADLINE.reset(token)

    assert failures == plan.status.failures_total


def test_a_cancel_by_somebody_else(plan):
    """Neutral: the caller gave up."""

    def cut():
        plan.clock.advance(9)
        raise asyncio.CancelledError

    plan.breaker()
    token = DEADLINE.set(Deadline(10, 0))
    try:
        with pytest.raises(asyncio.CancelledError):
            plan.call(script=[cut])
    finally:
        DEADLINE.reset(token)

    assert 0 == plan.status.failures_total


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
def test_an_interruption_while_a_deadline_has_fired(plan, kind):
    """It is no cancel, whatever the deadline did."""
    deadline = Deadline(10, 0)

    def cut():
        plan.clock.advance(10)
        deadline.fired = True
        raise kind

    plan.breaker()
    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(kind):
            plan.call(script=[cut])
    finally:
        DEADLINE.reset(token)

    assert 0 == plan.status.failures_total


# ---------------------------------------------------------------------------------------------- one verdict per call
def test_a_call_is_reported_once(plan, down):
    """Two failed attempts, one failure."""
    plan.breaker(per_call=True)
    plan.retry(2, wait=0.0)
    plan.call(script=[down(), down()])

    assert 1 == plan.status.failures_total


def test_a_call_that_succeeds_in_the_end(plan, down):
    """Is one success."""
    plan.breaker(per_call=True)
    plan.retry(2, wait=0.0)
    plan.call(script=[down(), "fine"])

    assert (1, 0) == (plan.status.successes_total, plan.status.failures_total)


def test_a_call_that_was_refused(plan):
    """Has nothing to report."""
    breaker = plan.breaker(per_call=True)

    async def open_meanwhile(call, inner):
        breaker.breaker.force_open("maintenance")
        return await inner(call)

    plan.layers.insert(1, (plan.layers[0][0], open_meanwhile))
    plan.call()

    assert (0, 0) == (plan.status.successes_total, plan.status.failures_total)


def test_a_call_whose_answer_is_still_to_be_awaited(plan):
    """Nothing is known yet: the permit is given back, neutral."""

    def answer_later():
        outcome = Outcome("awaitable")
        outcome.pending = True
        return outcome

    plan.breaker(per_call=True)
    plan.call(script=[answer_later])

    assert (0, 0, 0) == (plan.status.successes_total, plan.status.failures_total, plan.status.answered_total)


def test_a_call_that_is_interrupted(plan):
    """Gives its permit back."""

    def interrupt():
        raise KeyboardInterrupt

    plan.breaker(per_call=True)
    with pytest.raises(KeyboardInterrupt):
        plan.call(script=[interrupt])

    assert 0 == plan.status.failures_total


def test_a_call_that_is_interrupted_without_a_permit(plan):
    """Nothing to give back."""
    layers = plan.breaker(per_call=True)

    async def interrupt(call, inner):
        raise KeyboardInterrupt

    plan.layers.append((plan.layers[-1][0], interrupt))
    with pytest.raises(KeyboardInterrupt):
        plan.call()

    assert (0, 0) == (layers.breaker.status().failures_total, layers.breaker.status().probes_released)


def test_a_probe_of_a_whole_call(plan, down):
    """It is marked while it runs, decides once, and is not repeated."""
    layers = plan.breaker(per_call=True)
    plan.retry(3, wait=0.0)
    plan.call(script=[down()] * 3)
    plan.call(script=[down()] * 3)
    plan.clock.advance(30)
    seen = []
    plan.call(script=[lambda: (seen.append(layers.breaker.refusal_here()), down())[1]])

    assert [None] == seen
    assert ((), 1) == (PROBING.get(), plan.status.probes_failed)


@pytest.mark.parametrize("per_call", [False, True])
def test_what_is_known_of_a_hung_call(plan, per_call):
    """P17: the status names our own limit as the last failure, a transient one."""
    deadline = Deadline(10, 0)

    def cut():
        plan.clock.advance(10)
        cancelled_by(deadline)()

    plan.breaker(per_call=per_call)
    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(asyncio.CancelledError):
            plan.call(script=[cut])
    finally:
        DEADLINE.reset(token)

    last = plan.status.last_failure
    assert (FaultKind.TRANSIENT, "resilience.errors.TimeoutExceeded") == (last.kind, last.type_name)


# ---------------------------------------------------------------------------------------------- limits
def test_the_limits_of_a_call(plan):
    """A budget around everything, a limit around each attempt, inside the breaker."""
    plan.timeout(budget=9.0, per_attempt=3.0)
    plan.breaker()
    plan.call(script=["fine"])

    assert [("bounded", "budget", 9.0), ("bounded", "attempt", 3.0), "attempt"] == plan.world.log


def test_an_expiry_is_told(plan, told):
    """Only for the limit that ran out, and only to who wants to know."""
    layers = plan.timeout(budget=9.0)

    async def bounded(deadline, call, inner):
        return expired(deadline)

    plan.world.bounded = bounded
    plan.call()
    assert [TimedOut(name="module:fn", scope=TimeoutScope.BUDGET, seconds=9.0)] == told

    plan.registry.hub._set(())
    plan.call()
    assert 1 == len(told)
    assert 1 == len(layers.layers())


def test_an_expiry_of_somebody_elses_limit_is_not_told(plan):
    """The outer limit tells for itself."""
    plan.timeout(budget=9.0)
    plan.call(script=[expired(Deadline(1, 0))])

    assert [] == plan.event_names


@pytest.mark.parametrize("value", [None, [], "text", 0])
def test_a_fallback_that_is_a_value(plan, value):
    """It stands for itself, whatever the call's arguments."""
    opened(plan, plan.breaker(on_open=OnOpen.BYPASS, fallback=value))

    assert value == plan.call(1, key=2).value


# ---------------------------------------------------------------------------------------------- windows
def test_a_rate_in_the_plan(plan, down):
    """A windowed breaker is asked and fed the same way."""
    plan.breaker(BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))
    plan.call(script=[down()])
    plan.call(script=["fine"])

    assert "open" == plan.status.state.value


def test_a_shadow_in_the_plan(plan, down):
    """It refuses nothing."""
    plan.breaker(BreakerConfig(Consecutive(1), shadow=True))
    plan.call(script=[down()])

    assert "passed" == plan.call(script=["passed"]).value
    assert 1 == plan.status.would_refuse_total


def test_a_probe_of_a_shadow_ends_no_retry(plan, down):
    """A half-open circuit allows one attempt; its shadow only looks."""
    plan.breaker(BreakerConfig(Consecutive(1), cooldown=30, shadow=True))
    plan.call(script=[down()])
    plan.clock.advance(30)
    plan.call(script=[down()])

    assert plan.latest.probed is False
    assert 1 == plan.status.probes_failed
