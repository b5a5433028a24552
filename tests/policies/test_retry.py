"""The retry's plan in a scripted world: when it goes on, what it waits for, how it ends."""

from __future__ import annotations

import contextvars
import logging

import pytest
import tenacity

from resilience import BulkheadFullError, CircuitOpenError, FaultKind, TimeoutExceeded
from resilience._context import DEADLINE, RETRYING, Repeat, is_repeating
from resilience._core.deadline import AttemptDeadline, Deadline
from resilience._core.events import RetryExhausted, RetryScheduled
from resilience._core.outcome import Outcome
from resilience._policies.retry import stopped_by


def sleeps(plan):
    return [entry[1] for entry in plan.world.log if entry[0] == "sleep"]


def test_a_success_is_the_answer(plan):
    """One attempt, nothing else."""
    plan.retry()

    assert "fine" == plan.call(script=["fine"]).value
    assert ["attempt"] == plan.world.log


def test_a_failure_is_repeated_after_a_wait(plan, down):
    """Backoff doubles from the first wait."""
    plan.retry(4)
    outcome = plan.call(script=[down(), down(), down(), "fine"])

    assert "fine" == outcome.value
    assert [1.0, 2.0, 4.0] == sleeps(plan)


def test_no_wait_needs_no_sleep(plan, down):
    """A wait of nothing does not go through the world."""
    plan.retry(wait=0.0)
    plan.call(script=[down(), "fine"])

    assert ["attempt", "attempt"] == plan.world.log


def test_the_jitter_is_a_share_of_the_wait(plan, down):
    """The source of chance is the layer's own, and can be set."""
    plan.retry(jitter=0.5).rng = lambda: 0.0
    plan.call(script=[down(), "fine"])

    assert [0.5] == sleeps(plan)


def test_later_attempts_know_that_they_are_repeats(plan, down):
    """The mark is set around every attempt but the first, and gone afterwards."""
    seen = []

    def attempt(result):
        return lambda: (seen.append(is_repeating()), result)[1]

    plan.retry(3, wait=0.0)
    plan.call(script=[attempt(down()), attempt(down()), attempt("fine")])

    assert [False, True, True] == seen
    assert RETRYING.get() is None


def test_the_mark_goes_when_an_attempt_is_interrupted(plan, down):
    """KeyboardInterrupt passes; the context is as before."""

    def interrupt():
        raise KeyboardInterrupt

    plan.retry(3, wait=0.0)
    with pytest.raises(KeyboardInterrupt):
        plan.call(script=[down(), interrupt])

    assert RETRYING.get() is None


def test_who_still_holds_the_mark_of_an_attempt_that_is_over(plan, down):
    """A task that was started in a second attempt and outlives it retries for itself: the mark is switched off."""
    contexts = []

    def start():
        contexts.append(contextvars.copy_context())
        return "fine"

    plan.retry(2, wait=0.0)
    plan.call(script=[down(), start])

    assert [False] == [context.run(is_repeating) for context in contexts]


def test_an_answer_of_the_straight_path_is_the_first_attempt(plan, down):
    """Its failure has been settled already: the plan goes on with the second attempt."""
    from resilience._engine.plan import attempt
    from resilience._engine.world_sync import run

    retry = plan.retry(2, wait=0.0)
    plan.call(script=["unused"])
    plan.world.log.clear()
    plan.world.script = ["fine"]

    assert "fine" == run(retry.go_on(plan.latest, Outcome(error=down()), attempt, 0.0)).value
    assert ["attempt"] == plan.world.log


def test_a_kind_that_is_not_named(plan, fault_of):
    """`retry_on` decides."""
    plan.retry()

    assert 1 == len([plan.call(script=[fault_of(FaultKind.DOWNSTREAM)])])
    assert ["attempt"] == plan.world.log


def test_a_kind_that_is_named(plan, fault_of):
    """DOWNSTREAM is repeated where the user wants it."""
    plan.retry(retry_on=frozenset({FaultKind.DOWNSTREAM}), wait=0.0)

    assert "fine" == plan.call(script=[fault_of(FaultKind.DOWNSTREAM), "fine"]).value


def test_only_what_was_surely_not_sent(plan, down):
    """With `safe_only` a lost connection is not repeated, a refused one is."""
    plan.retry(safe_only=True, wait=0.0)

    assert "down" == str(plan.call(script=[down()]).error)
    assert "fine" == plan.call(script=[ConnectionRefusedError(111, "refused"), "fine"]).value


def test_a_value_that_is_a_fault(plan):
    """It is repeated; the last one is returned as it is, without an exception to note anything on."""
    plan.site.judge_result = lambda value: FaultKind.TRANSIENT if value == "busy" else None
    plan.retry(2, wait=0.0)

    assert "busy" == plan.call(script=["busy", "busy"]).value
    assert "fine" == plan.call(script=["busy", "fine"]).value


def test_a_value_that_is_no_fault(plan):
    """A judged success is the answer."""
    plan.site.judge_result = lambda value: None
    plan.retry()

    assert "fine" == plan.call(script=["fine"]).value


def test_the_last_exception_gets_a_note(plan, down):
    """It leaves unchanged but for that."""
    plan.retry(2, wait=0.0)
    last = down("last")
    outcome = plan.call(script=[down(), last])

    assert last is outcome.error
    assert ["retry gave up after 2 attempts"] == last.__notes__


def test_an_exception_that_is_raised_again_keeps_one_note(plan, down):
    """A note of a kind says it once, however often the object comes by."""
    plan.retry(1)
    error = down()
    plan.call(script=[error])
    plan.call(script=[error])

    assert ["retry gave up after 1 attempts"] == error.__notes__


def test_an_exception_that_takes_no_note(plan):
    """It leaves all the same."""

    class Proud(ConnectionError):
        def add_note(self, note):
            raise RuntimeError("no")

    plan.retry(1)
    error = Proud("x")

    assert error is plan.call(script=[error]).error


def test_an_earlier_outcome_is_emptied(plan, down):
    """What was given up for another attempt holds nothing any more."""
    first = Outcome(error=down())
    plan.retry(2, wait=0.0)
    plan.call(script=[first, "fine"])

    assert first.error is None


# ---------------------------------------------------------------------------------------------- Retry-After
def test_a_retry_after_raises_the_wait(plan, fault_of):
    """It is the least wait, not the wait."""
    plan.retry(3, wait=5.0).rng = lambda: 0.0
    plan.call(script=[fault_of(retry_after=7), fault_of(retry_after=2), "fine"])

    assert [7, 5.0] == sleeps(plan)


def test_a_retry_after_is_spread_upwards(plan, fault_of):
    """All callers were told the same: the jitter is added, so that they do not come back in one instant."""
    plan.retry(3, jitter=0.5).rng = lambda: 0.5
    plan.call(script=[fault_of(retry_after=8), fault_of(retry_after=2), "fine"])

    assert [10.0, 2.5] == sleeps(plan)


def test_a_wait_that_is_longer_than_the_hint_has_its_own_spread(plan, fault_of):
    """The hint does not set it."""
    plan.retry(2, initial_backoff=8.0, jitter=0.5).rng = lambda: 0.75
    plan.call(script=[fault_of(retry_after=8), "fine"])

    assert [10.0] == sleeps(plan)


@pytest.mark.parametrize(
    ("hint", "options", "slept"),
    [
        (8, {"jitter": 0.0}, [8]),
        (8, {"wait": 8.0}, [8.4]),
        (8, {"wait": lambda state: 1.0}, [8.4]),
        (8, {"wait": 9.0}, [9.0]),
        (0, {"wait": 0.0}, []),
        (0, {"initial_backoff": 2.0, "jitter": 0.5}, [2.0]),
    ],
)
def test_how_far_a_hint_is_spread(plan, fault_of, hint, options, slept):
    """Not at all without jitter; by a tenth under a wait of the user's own; a hint of 0 leaves the wait as it is."""
    plan.retry(2, **options).rng = lambda: 0.5
    plan.call(script=[fault_of(retry_after=hint), "fine"])

    assert pytest.approx(slept) == sleeps(plan)


def test_the_spread_never_misses_the_deadline(plan, fault_of):
    """It shrinks to what is left after the hint."""
    plan.timeout(budget=8.5)
    plan.retry(2, jitter=0.5).rng = lambda: 0.5
    plan.call(script=[fault_of(retry_after=8), "fine"])

    assert [8.25] == sleeps(plan)


def test_the_servers_limit_is_on_what_it_said(plan, fault_of):
    """The spread may go beyond `max_retry_after`."""
    plan.retry(2, jitter=0.5).rng = lambda: 0.5
    plan.call(script=[fault_of(retry_after=60), "fine"])

    assert [75.0] == sleeps(plan)


def test_a_hint_that_does_not_fit_the_deadline(plan, fault_of):
    """Fail now, and tell the wait that the server asked for."""
    plan.timeout(budget=8.0)
    plan.retry(2, jitter=0.5).rng = lambda: 0.5
    error = plan.call(script=[fault_of(retry_after=8)]).error

    assert ["retry stopped: a wait of 8 s does not fit the deadline"] == error.__notes__


def test_a_retry_after_that_is_too_long(plan, fault_of):
    """Fail now, and say why."""
    plan.retry()
    error = plan.call(script=[fault_of(retry_after=61)]).error

    assert ["retry stopped: the server asks for 61 s, more than max_retry_after"] == error.__notes__
    assert ["RetryExhausted"] == plan.event_names


# ---------------------------------------------------------------------------------------------- deadlines
def test_a_wait_that_does_not_fit(plan, down):
    """It is not begun."""
    plan.timeout(budget=1.0)
    plan.retry(wait=1.0)
    error = plan.call(script=[down()]).error

    assert ["retry stopped: a wait of 1 s does not fit the deadline"] == error.__notes__
    assert [] == sleeps(plan)


def test_a_callers_deadline_counts_too(plan, down):
    """Waits are clipped to the outer deadlines."""
    plan.retry(wait=1.0)
    token = DEADLINE.set(Deadline(1, 0))
    try:
        error = plan.call(script=[down()]).error
    finally:
        DEADLINE.reset(token)

    assert ["retry stopped: a wait of 1 s does not fit the deadline"] == error.__notes__


def test_no_time_left_for_an_attempt_without_a_wait(plan, down):
    """It is not begun either, whether or not somebody listens."""
    plan.registry.hub._set(())
    plan.timeout(budget=1.0)
    plan.retry(wait=0.0)

    def fail_at_the_deadline():
        plan.clock.advance(1.0)
        return down()

    error = plan.call(script=[fail_at_the_deadline]).error

    assert ["retry stopped: a wait of 0 s does not fit the deadline"] == error.__notes__


@pytest.mark.parametrize(("kind", "attempts"), [(Deadline, 1), (AttemptDeadline, 2)])
def test_a_limit_that_ran_out(plan, kind, attempts):
    """After one of the whole call there is nothing to repeat for; one of the attempt is a failure like others."""
    expired = Outcome(error=TimeoutExceeded(kind.scope, 1))
    expired.expired = kind(1, 0)
    plan.retry(2, wait=0.0)
    plan.call(script=[expired, "fine"])

    assert ["attempt"] * attempts == plan.world.log


# ---------------------------------------------------------------------------------------------- refusals
def test_a_refusal_of_the_first_attempt_is_the_answer(plan):
    """Nothing was sent, so nothing is repeated."""
    refusal = Outcome.refusal(CircuitOpenError("x"), "somebody")
    plan.retry()

    assert refusal is plan.call(script=[refusal])
    assert ["attempt"] == plan.world.log


@pytest.mark.parametrize(
    ("refusal", "note"),
    [
        (CircuitOpenError("mail", 30.0), "retry stopped: circuit mail is open, 30 s left"),
        (CircuitOpenError("mail"), "retry stopped: circuit mail is open"),
        (BulkheadFullError("room"), "retry stopped: bulkhead room is full"),
    ],
)
def test_a_refusal_of_a_later_attempt(plan, down, refusal, note):
    """The last real exception leaves, with a note on what refused."""
    plan.retry(wait=0.0)
    error = down("real")
    outcome = plan.call(script=[error, Outcome.refusal(refusal, "somebody")])

    assert error is outcome.error
    assert [note] == error.__notes__
    assert note == stopped_by(refusal)


@pytest.mark.parametrize("wait", [None, 1.0])
def test_no_wait_for_a_circuit_that_stays_open_longer(plan, down, wait):
    """The retry ends at once, with the name and the time left, whether its waits grow or not."""
    breaker = plan.breaker()
    plan.retry(5, breaker=breaker, wait=wait)
    error = plan.call(script=[down(), down()]).error

    assert ["retry stopped: circuit provider is open, 30 s left"] == error.__notes__
    assert [1.0] == sleeps(plan)


@pytest.mark.parametrize("wait", [30.0, 31.0])
def test_a_circuit_that_cools_during_the_wait(plan, down, wait):
    """The next attempt goes as a probe: it is worth the wait, to the moment."""
    breaker = plan.breaker()
    plan.retry(3, breaker=breaker, wait=wait)

    assert "back" == plan.call(script=[down(), down(), "back"]).value
    assert 1 == plan.status.probes_succeeded


def test_a_circuit_that_an_operator_has_opened(plan, down):
    """Nobody can say how long."""
    breaker = plan.breaker()
    plan.retry(3, breaker=breaker)

    def fail():
        breaker.breaker.force_open("maintenance")
        return down()

    assert ["retry stopped: circuit provider is open"] == plan.call(script=[fail]).error.__notes__


@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_an_exempt_call_goes_on_whatever_the_circuit_does(plan, down, wait):
    """It neither asks nor feeds the breaker, in none of its attempts."""
    breaker = plan.breaker(unless=lambda: True)
    plan.retry(3, breaker=breaker, wait=wait)
    breaker.breaker.force_open("maintenance")

    assert "fine" == plan.call(script=[down(), "fine"]).value


def test_a_probe_is_one_attempt(plan, down):
    """Its failure is the answer, without a note."""
    breaker = plan.breaker()
    plan.retry(3, breaker=breaker, wait=0.0)
    plan.call(script=[down(), down()])
    plan.clock.advance(30)
    outcome = plan.call(script=[down("probe")])

    assert ("probe", False) == (str(outcome.error), hasattr(outcome.error, "__notes__"))


# ---------------------------------------------------------------------------------------------- nested
def test_a_nested_retry_makes_one_attempt(plan, down, caplog):
    """Inside a repeat it leaves repeating to the outer call, and says so once, with its name."""
    told = (
        "module:fn: an outer call is retrying already, so this retry makes one attempt: "
        "retries add, they do not multiply"
    )
    plan.retry(3)
    mark = RETRYING.set(Repeat())
    try:
        with caplog.at_level(logging.WARNING, "resilience"):
            notes = [plan.call(script=[down()]).error.__notes__ for _ in range(2)]
    finally:
        RETRYING.reset(mark)

    assert [["retry left to the outer call"]] * 2 == notes
    assert [told] == [record.getMessage() for record in caplog.records]


# ---------------------------------------------------------------------------------------------- tenacity's strategies
def test_a_wait_strategy(plan, down):
    """It is asked after each failure, with what tenacity's own objects read."""
    plan.retry(4, wait=tenacity.wait_incrementing(start=1, increment=2))
    plan.call(script=[down(), down(), down(), "fine"])

    assert [1.0, 3.0, 5.0] == sleeps(plan)


def test_a_wait_strategy_that_looks_at_the_outcome(plan, down):
    """The failed attempt has tenacity's future-like methods."""
    error = down("mine")
    seen = []

    def wait(state):
        seen.append((state.outcome.failed, state.outcome.exception(), state.attempt_number, state.args, state.kwargs))
        with pytest.raises(ConnectionError, match="mine"):
            state.outcome.result()
        return -1

    plan.retry(wait=wait)
    plan.call(1, key=2, script=[error, "fine"])

    assert [(True, error, 1, (1,), {"key": 2})] == seen
    assert [] == sleeps(plan)


def test_a_wait_strategy_reads_what_tenacity_offers(plan, down):
    """The function, when which attempt ended, and that no wait has been chosen yet."""
    seen = []

    def wait(state):
        seen.append((state.fn, state.outcome.attempt_number, state.outcome_timestamp, state.upcoming_sleep))
        seen.append((state.next_action, state.retry_object))
        return 0

    plan.clock.advance(100)
    plan.retry(wait=wait)
    plan.call(script=[down(), "fine"])

    assert [(plan.site.fn, 1, 100.0, 0.0), (None, None)] == seen


def test_a_wait_strategy_after_a_value(plan):
    """A value that was judged a fault has no exception."""
    seen = []

    def wait(state):
        seen.append((state.outcome.failed, state.outcome.exception(), state.outcome.result()))
        return 0

    plan.site.judge_result = lambda value: FaultKind.TRANSIENT if value == "busy" else None
    plan.retry(wait=wait)
    plan.call(script=["busy", "fine"])

    assert [(False, None, "busy")] == seen


def test_a_wait_strategy_whose_answer_no_float_can_hold(plan, down):
    """An endless wait fits no deadline; without one the wait would be endless."""
    plan.timeout(budget=1000.0)
    plan.retry(wait=lambda state: 10**400)

    assert ["retry stopped: a wait of inf s does not fit the deadline"] == plan.call(script=[down()]).error.__notes__


@pytest.mark.parametrize(("wait", "slept"), [(None, [1.0, 2.0]), (4.0, [4.0, 4.0])])
def test_a_stop_strategy(plan, down, wait, slept):
    """It ends the retry beside `max_attempts`, whatever the wait is."""
    plan.retry(9, wait=wait, stop=tenacity.stop_after_attempt(3))
    error = plan.call(script=[down()] * 3).error

    assert ["retry gave up after 3 attempts"] == error.__notes__
    assert slept == sleeps(plan)


def test_a_stop_strategy_by_time(plan, down):
    """The time that counts is the clock's, with the waits in it."""
    plan.retry(9, wait=4.0, stop=tenacity.stop_after_delay(10))
    plan.call(script=[down()] * 4)

    assert [4.0, 4.0, 4.0] == sleeps(plan)


def test_a_strategy_reads_how_long_it_has_waited(plan, down):
    """`idle_for`, `upcoming_sleep` and the start are kept up to date."""
    seen = []

    def stop(state):
        seen.append((state.idle_for, state.upcoming_sleep, state.seconds_since_start, state.start_time))
        return False

    plan.clock.advance(100)
    plan.retry(4, stop=stop)
    plan.call(script=[down(), down(), "fine"])

    assert [(0.0, 1.0, 0.0, 100.0), (1.0, 2.0, 1.0, 100.0)] == seen


@pytest.mark.parametrize(
    "wait",
    [
        tenacity.wait_fixed(1),
        tenacity.wait_none(),
        tenacity.wait_random(0, 1),
        tenacity.wait_exponential(),
        tenacity.wait_random_exponential(),
        tenacity.wait_exponential_jitter(),
        tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(2)),
        tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)),
    ],
)
def test_every_wait_strategy_of_tenacity(plan, down, wait):
    """Each is taken as it is."""
    plan.retry(3, wait=wait)

    assert "fine" == plan.call(script=[down(), down(), "fine"]).value


@pytest.mark.parametrize(
    "stop",
    [
        tenacity.stop_never,
        tenacity.stop_after_attempt(5),
        tenacity.stop_after_delay(1000),
        tenacity.stop_before_delay(1000),
        tenacity.stop_any(tenacity.stop_after_attempt(5), tenacity.stop_after_delay(1000)),
        tenacity.stop_all(tenacity.stop_after_attempt(1), tenacity.stop_after_delay(1000)),
    ],
)
def test_every_stop_strategy_of_tenacity(plan, down, stop):
    """Each is taken as it is."""
    plan.retry(3, stop=stop)

    assert "fine" == plan.call(script=[down(), down(), "fine"]).value


# ---------------------------------------------------------------------------------------------- events
def test_events_are_built_only_when_wanted(plan, down, monkeypatch):
    """Without a listener nothing is made."""
    plan.registry.hub._set(())
    plan.retry(2, wait=0.0)
    plan.call(script=[down(), down()])

    assert [] == plan.events


def test_events_that_nobody_listens_for_take_no_number(plan, down):
    """A listener of another type makes none either: what it hears is numbered without a gap."""
    plan.registry.hub._set(())
    seen = []
    plan.registry.subscribe(seen.append, RetryExhausted)
    plan.retry(2, wait=0.0)
    plan.call(script=[down(), down()])

    assert [1] == [event.sequence for event in seen]


@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_events_tell_attempt_wait_and_reason(plan, down, told, wait):
    """What a dashboard needs, of an attempt that follows at once too."""
    plan.retry(2, wait=wait)
    plan.call(script=[down(), down()])

    assert [
        RetryScheduled(name="module:fn", attempt=1, wait=wait, kind=FaultKind.TRANSIENT),
        RetryExhausted(name="module:fn", attempts=2, reason="attempts"),
    ] == told


@pytest.mark.parametrize(
    ("ended_by", "attempts", "reason"),
    [
        ("strategy", 2, "attempts"),
        ("deadline", 1, "budget"),
        ("server", 1, "retry_after"),
        ("circuit", 2, "refused"),
        ("refusal", 1, "refused"),
        ("nesting", 1, "nested"),
    ],
)
def test_the_event_of_a_retry_that_ended_early(plan, told, fault_of, ended_by, attempts, reason):
    """It tells after how many attempts, and why there was no other."""
    script = [fault_of(), fault_of()]
    if ended_by == "deadline":
        plan.timeout(budget=1.0)
    elif ended_by == "server":
        script = [fault_of(retry_after=61)]
    elif ended_by == "refusal":
        script = [fault_of(), Outcome.refusal(BulkheadFullError("room"), "somebody")]
    breaker = plan.breaker() if ended_by == "circuit" else None
    plan.retry(9, breaker=breaker, stop=tenacity.stop_after_attempt(2) if ended_by == "strategy" else None)
    mark = RETRYING.set(Repeat() if ended_by == "nesting" else None)
    try:
        plan.call(script=script)
    finally:
        RETRYING.reset(mark)

    assert RetryExhausted(name="module:fn", attempts=attempts, reason=reason) == told[-1]
