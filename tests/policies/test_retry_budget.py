"""A retry budget with a clock: exact under threads, and nobody ever waits for it."""

from __future__ import annotations

import gc
import sys
import threading
import time

import pytest
from forking import in_child, needs_fork

from resilience import CircuitOpenError, FaultKind, Registry, RetryBudget, RetryBudgetStatus
from resilience._core.events import RetryExhausted, RetryScheduled
from resilience._core.outcome import Outcome
from resilience._core.retry_budget import Spent
from resilience._policies.retry_budget import OVER, BudgetReference, SharedRetryBudget


@pytest.fixture
def shared(registry):
    """Make a budget on the registry's clock."""

    def make(**settings):
        made = SharedRetryBudget("mail", RetryBudget(**settings), registry)
        registry.watch_clock(made)
        registry.watch_fork(made)
        return made

    return make


@pytest.fixture
def budgeted(plan, shared):
    """A plan whose retry has a budget; gives that budget."""

    def make(attempts=3, settings=(), **options):
        made = shared(**dict(settings))
        plan.retry(attempts, budget=BudgetReference(lambda: made), **{"wait": 0.0, **options})
        return made

    return make


def figures(budget):
    status = budget.status()
    return status.calls, status.retries, status.left


# ---------------------------------------------------------------------------------------------------- by itself
def test_status(shared):
    """Calls, retries and what is left in the window, and how many had to do without."""
    budget = shared(ratio=0.5, min_per_second=0)
    for _ in range(4):
        budget.begin_call()
    granted = [budget.spend() for _ in range(3)]

    assert [True, True, False] == granted
    assert RetryBudgetStatus(name="mail", calls=4, retries=2, left=0, refused_total=1) == budget.status()


def test_its_text(shared):
    """The name and what is left."""
    assert "<RetryBudget 'mail' 10 left>" == repr(shared())


def test_time_is_the_registrys(shared, clock):
    """A window on the manual clock."""
    budget = shared(min_per_second=0.1)

    assert [True, False] == [budget.spend(), budget.spend()]
    clock.advance(10)
    assert budget.spend()


def test_a_call_counts_where_it_began(shared, clock):
    """Each slice by itself."""
    budget = shared()
    first = budget.begin_call()
    clock.advance(1)

    assert first is not budget.begin_call()
    assert 2 == figures(budget)[0]


def test_wrappers_may_not_read_the_systems_clock_under_another(shared):
    """Their slice is always over: they ask, and the registry's clock answers."""
    budget = shared()
    budget.begin_call()

    assert budget.current is OVER


def test_wrappers_read_the_systems_clock_by_themselves(shared, monkeypatch):
    """The slice is theirs until its edge."""
    budget = shared()
    budget.publish_slots(True)
    now = [100.2]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    current = budget.begin_call()

    assert current is budget.current is budget.begin_call()
    now[0] = 101.0
    assert current is not budget.begin_call()


def test_a_budget_of_the_systems_time():
    """From the beginning."""
    made = SharedRetryBudget("mail", RetryBudget(), Registry())

    assert made.begin_call() is made.current


def test_another_clock_while_a_slice_begins(shared, monkeypatch):
    """The slice is not left for wrappers that would go on by the system's clock."""
    budget = shared()
    budget.publish_slots(True)

    def read():
        monkeypatch.undo()
        budget.publish_slots(False)
        return 100.0

    monkeypatch.setattr(time, "monotonic", read)
    budget.next_slice()

    assert budget.current is OVER


def test_a_clock_that_jumps_back_while_calls_are_counted(shared, monkeypatch):
    """The next retry notices: calls count afresh, and what was spent stays spent for one window."""
    budget = shared(ratio=1, min_per_second=0)
    budget.publish_slots(True)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(10):
        budget.begin_call()
    budget.spend()
    now[0] = 500.0
    budget.begin_call()

    assert not budget.spend()
    budget.begin_call()
    budget.begin_call()
    assert (2, 1, 1) == figures(budget)
    now[0] = 509.5
    assert (2, 1, 1) == figures(budget)
    now[0] = 510.0
    assert (0, 0, 0) == figures(budget)


def test_starting_over(shared):
    """Nothing counted, nothing spent."""
    budget = shared(min_per_second=0.1)
    budget.begin_call()
    budget.spend()
    budget.spend()
    budget.clear()

    assert RetryBudgetStatus(name="mail", calls=0, retries=0, left=1, refused_total=0) == budget.status()


def test_a_reference_asks_once():
    """Whatever it finds, it keeps."""
    asked = []
    reference = BudgetReference(lambda: asked.append(1) or "found")

    assert None is reference.found
    assert ["found"] * 2 == [reference.resolve(), reference.resolve()]
    assert [1] == asked


# ---------------------------------------------------------------------------------------------------- many at once
@pytest.mark.parametrize("left", [1, 7, 400])
def test_exactly_what_is_left_is_spent(shared, hurried, left):
    """I13: threads that come at once take what there is, all of it and not one more."""
    budget = shared(min_per_second=left / 10)
    granted = hurried(8, lambda: sum(budget.spend() for _ in range(100)))

    assert min(left, 800) == sum(granted)
    assert (0, left, 0) == figures(budget)
    assert 800 - left == budget.status().refused_total


def test_every_call_is_counted(shared, hurried, clock):
    """Exactly, also those that begin a slice together."""
    budget = shared()

    def call():
        for _ in range(500):
            budget.begin_call()

    for _ in range(4):
        hurried(8, call)
        clock.advance(1)

    assert 16_000 == budget.status().calls


@pytest.fixture
def hurried():
    """Run a function in several threads that take turns as often as they can; its answers."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def run(threads, function):
        start, answers = threading.Barrier(threads), []

        def work():
            start.wait()
            answers.append(function())

        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert threads == len(answers)
        return answers

    yield run
    sys.setswitchinterval(before)


@pytest.mark.parametrize("left", [1, 2])
def test_who_is_overtaken_looks_again(shared, monkeypatch, left):
    """A finaliser that spends in the middle of spending: neither takes what the other has."""
    budget = shared(min_per_second=left / 10)
    inside = []
    follow = Spent.follow

    def interrupted(self, after):
        if not inside:
            inside.append(None)
            inside[0] = budget.spend()
        return follow(self, after)

    monkeypatch.setattr(Spent, "follow", interrupted)
    outer = budget.spend()

    assert (left == 2, [True]) == (outer, inside)
    assert (0, left, 0) == figures(budget)


def test_finalisers_anywhere_in_it(shared):
    """The collector runs at every allocation: nothing hangs, nothing is spent twice."""
    budget = shared(min_per_second=29.7)

    class Finalised:
        def __init__(self):
            self.ring = self

        def __del__(self):
            budget.begin_call()
            took.append(budget.spend())

    took = []
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Finalised()
            took.append(budget.spend())
    finally:
        gc.set_threshold(*before)
    gc.collect()
    spent = figures(budget)[1]

    assert 400 == len(took)
    assert sum(took) == spent == min(400, budget.config.allowed(budget.status().calls))


def test_a_signal_handler_that_raises_in_the_middle(shared, monkeypatch):
    """What was spent for nothing goes out of the window with the rest; nothing stays locked."""
    budget = shared(min_per_second=0.2)
    follow = Spent.follow

    def interrupted(self, after):
        follow(self, after)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Spent, "follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        budget.spend()

    assert [True, False] == [budget.spend(), budget.spend()]


@needs_fork
def test_a_forked_child_starts_afresh(shared):
    """The calls and retries of the parent are the parent's."""
    budget = shared(min_per_second=0.1)
    budget.begin_call()
    budget.spend()

    def check():
        assert (0, 0, 1) == figures(budget)

    assert "ok" == in_child(check)
    assert (1, 1, 0) == figures(budget)
    budget.after_fork()
    assert (0, 0, 1) == figures(budget)


# ---------------------------------------------------------------------------------------------------- in a plan
def test_the_plan_counts_first_attempts_only(plan, budgeted, down):
    """Whatever comes of them."""
    budget = budgeted()
    plan.call(script=[down(), down(), "fine"])
    plan.call(script=["fine"])

    assert (2, 2) == figures(budget)[:2]


def test_an_exhausted_budget_ends_the_retry(plan, budgeted, down, told):
    """The last real exception leaves with a note; the event says why."""
    budgeted(9, {"min_per_second": 0.2})
    last = down("third")
    outcome = plan.call(script=[down(), down(), last])

    assert last is outcome.error
    assert ["retry stopped: retry budget mail is exhausted"] == last.__notes__
    assert [
        RetryScheduled(name="module:fn", attempt=1, wait=0.0, kind=FaultKind.TRANSIENT),
        RetryScheduled(name="module:fn", attempt=2, wait=0.0, kind=FaultKind.TRANSIENT),
        RetryExhausted(name="module:fn", attempts=3, reason="retry_budget"),
    ] == told


def test_an_exhausted_budget_without_a_listener(plan, budgeted, down):
    """It ends the retry all the same, whether there is a wait or not."""
    plan.registry.hub._set(())
    budgeted(9, {"min_per_second": 0.1})
    outcome = plan.call(script=[down(), down()])

    assert ["retry stopped: retry budget mail is exhausted"] == outcome.error.__notes__


def test_a_value_that_is_a_fault_without_a_budget_left(plan, budgeted):
    """It is returned as it is."""
    plan.site.judge_result = lambda value: FaultKind.TRANSIENT
    budgeted(9, {"min_per_second": 0.1})

    assert "busy" == plan.call(script=["busy", "busy"]).value


@pytest.mark.parametrize(
    "ended_by", ["success", "kind", "attempts", "nesting", "server", "deadline", "circuit", "circuit at once"]
)
def test_what_is_not_scheduled_takes_nothing(plan, shared, fault_of, ended_by):
    """The budget is asked when all else has said yes."""
    from resilience._context import RETRYING, Repeat

    made = shared()
    script = [fault_of()]
    options = {"wait": 1.0, "budget": BudgetReference(lambda: made)}
    if ended_by == "success":
        script = ["fine"]
    elif ended_by == "kind":
        script = [fault_of(FaultKind.DOWNSTREAM)]
    elif ended_by == "server":
        script = [fault_of(retry_after=61)]
    elif ended_by == "deadline":
        plan.timeout(budget=1.0)
    elif ended_by.startswith("circuit"):
        options["breaker"] = breaker = plan.breaker()
        options["wait"] = 0.0 if ended_by == "circuit at once" else 1.0
        breaker.breaker.on_failure(breaker.breaker.try_acquire(), FaultKind.TRANSIENT)
    plan.registry.hub._set(())
    plan.retry(1 if ended_by == "attempts" else 9, **options)
    mark = RETRYING.set(Repeat() if ended_by == "nesting" else None)
    try:
        plan.call(script=script)
    finally:
        RETRYING.reset(mark)

    assert (1, 0) == figures(made)[:2]


def test_a_refused_call_is_no_call(plan, budgeted):
    """Nothing was sent."""
    budget = budgeted()
    plan.call(script=[Outcome.refusal(CircuitOpenError("x"), "somebody")])

    assert (0, 0) == figures(budget)[:2]


def test_a_cancelled_call_is_a_call(plan, budgeted):
    """It had begun."""

    def interrupt():
        raise KeyboardInterrupt

    budget = budgeted()
    with pytest.raises(KeyboardInterrupt):
        plan.call(script=[interrupt])

    assert (1, 0) == figures(budget)[:2]


def test_a_call_that_was_adopted_is_counted_already(plan, budgeted, down):
    """The plain function that began it was; its retries are retries."""
    budget = budgeted()
    plan.world.adopted = True
    plan.call(script=[down(), "fine"])

    assert (0, 1) == figures(budget)[:2]
