"""The retry schedule against section 6 read naively: which attempts there are, and how long each wait is.

Functions are called again and again with scripts of what their attempts do, by themselves,
inside a deadline, or inside an outer call that is retried; time moves only as it is told.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from resilience import Fault, FaultFlag, FaultKind, Registry, RetryBudget, breaker, retry, timeout, use_registry
from resilience._context import DEADLINE, RETRYING, Repeat
from resilience._core.deadline import Deadline
from resilience._policies import retry as retrying
from resilience.testing import ManualClock

TRANSIENT, DOWNSTREAM = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
faults = st.sampled_from(
    [
        *(Fault(TRANSIENT),) * 8,
        *(Fault(TRANSIENT, retry_after=seconds) for seconds in (0.0, 0.5, 3.0, 20.0)),
        Fault(TRANSIENT, {FaultFlag.UNSENT}),
        Fault(TRANSIENT, {FaultFlag.UNSENT}),
        Fault(TRANSIENT, {FaultFlag.QUOTA}),
        Fault(DOWNSTREAM),
        Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=404),
        Fault(FaultKind.INTERNAL),
        None,
    ]
)
# What an attempt finds, and how long it takes.
attempts = st.tuples(faults, st.sampled_from([0.0, 0.0, 0.0, 0.25, 2.0]))
outages = st.just([(Fault(TRANSIENT), 0.0)] * 8)
scripts = st.one_of(outages, st.lists(attempts, max_size=8))
# Exact in binary, so that a wait added to a time is that time later.
chances = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.625, 0.75, 0.9375]), min_size=16, max_size=16)
plans = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([1, 2, 3, 4, 5, 5]),
        "initial_backoff": st.sampled_from([0.25, 1.0, 0.0]),
        "max_backoff": st.sampled_from([0.5, 1.0, 4.0, 0.0, 1e6]),
        "jitter": st.sampled_from([0.0, 0.5, 1.0]),
        "retry_on": st.sampled_from([(TRANSIENT,), (TRANSIENT, DOWNSTREAM)]),
        "max_retry_after": st.sampled_from([1.0, 60.0]),
        "safe_only": st.sampled_from([False, False, False, True]),
        "retry_budget": st.sampled_from(
            [
                *(None,) * 3,
                RetryBudget(ratio=0.5, min_per_second=0.25, window=10),
                RetryBudget("shared", ratio=1, min_per_second=0, window=20),
            ]
        ),
    }
)


class Failed(Exception):
    """A failed attempt, with what it means."""

    def __init__(self, fault):
        self.fault = fault


def may_be_repeated(fault, plan):
    """Section 6 with section 2's flags: a kind that is named, that repeating may cure, and that is safe where it must be."""
    if fault.kind not in plan["retry_on"] or fault.flags & {FaultFlag.QUOTA, FaultFlag.CLIENT_FAULT}:
        return False
    return not plan["safe_only"] or FaultFlag.UNSENT in fault.flags


class Counted:
    """Calls and retries as section 6 counts them: by tenths of the window; nothing is ever forgotten."""

    def __init__(self, budget, calls=(), retries=()):
        self.budget, self.calls, self.retries = budget, list(calls), list(retries)

    def in_window(self, moments, now, decides):
        """Those in tenths of which the one that decides (the first, the last) is in the window."""
        tenths = {}
        for at in moments:
            tenths.setdefault(at // (self.budget.window / 10), []).append(at)
        return sum(len(held) for held in tenths.values() if now - decides(held) < self.budget.window)

    def allows_one(self, now):
        calls, retries = self.in_window(self.calls, now, min), self.in_window(self.retries, now, max)
        return retries + 1 <= self.budget.ratio * calls + self.budget.min_per_second * self.budget.window


class Retrying(RuleBasedStateMachine):
    """Calls of one retried function; the model foresees each attempt and each wait."""

    @initialize(plan=plans, budget=st.sampled_from([5.0, None, 1.0]))
    def begin(self, plan, budget):
        self.plan, self.budget = plan, budget
        self.counted = Counted(plan["retry_budget"])
        self.clock = ManualClock(100.0)
        self.registry = Registry(clock=self.clock)
        self.script, self.chances, self.waits, self.made = [], [], [], []
        self.clock.sleep = self.sleep
        chance = retrying._chance
        try:
            # Each retry takes it when it is made.
            retrying._chance = lambda: self.chances.pop(0)
            with use_registry(self.registry):
                self.function = self.decorate()
        finally:
            retrying._chance = chance

    def decorate(self):
        # A breaker that is never asked: it brings the classifier.
        policies = [breaker("remote", classify=lambda error: error.fault, unless=lambda *_, **__: True)]
        policies.append(retry(**self.plan, idempotent=True))
        if self.budget is not None:
            policies.append(timeout(self.budget, pass_as="timeout"))

        def remote(timeout=None):
            fault, seconds = self.script.pop(0) if self.script else (None, 0.0)
            self.clock.advance(seconds)
            self.made.append(Failed(fault) if fault else "well")
            if fault:
                raise self.made[-1]
            return self.made[-1]

        for policy in policies:
            remote = policy(remote)
        return remote

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.clock.advance(seconds)

    # -------------------------------------------------------------------------- what is to be
    def foreseen(self, script, chances, began, *, ends=inf, alone=True):
        """Attempts, waits and the reason of the end for a call at `began`; `ends`: the nearest deadline around it."""
        plan, chances, now, number, waits = self.plan, list(chances), began, 0, []
        counted = self.counted
        counted.calls.append(now)
        if self.budget is not None:
            ends = min(ends, began + self.budget)
        while True:
            number += 1
            fault, seconds = script[number - 1] if number <= len(script) else (None, 0.0)
            now += seconds
            if fault is None or not may_be_repeated(fault, plan):
                return number, waits, None
            if number >= plan["max_attempts"]:
                return number, waits, f"gave up after {number} attempts"
            if not alone:
                return number, waits, "left to the outer call"
            base = min(plan["max_backoff"], plan["initial_backoff"] * 2 ** (number - 1))
            wait = base + plan["jitter"] * base * (2 * chances.pop(0) - 1)
            assert base * (1 - plan["jitter"]) <= wait <= base * (1 + plan["jitter"])
            if fault.retry_after is not None:
                if fault.retry_after > plan["max_retry_after"]:
                    return number, waits, "the server asks for"
                if fault.retry_after >= wait:
                    # A server's word is spread upwards, as far as the time goes.
                    spread = min(plan["jitter"] * fault.retry_after, ends - now - fault.retry_after)
                    chance = chances.pop(0) if plan["jitter"] else 0
                    wait = fault.retry_after + max(0, spread) * chance
            if now + wait >= ends:
                return number, waits, "does not fit the deadline"
            if counted.budget is not None:
                if not counted.allows_one(now):
                    return number, waits, f"{counted.budget.name or ''} is exhausted"
                counted.retries.append(now)
            now += wait
            waits += [wait] if wait else []

    def play(self, script, chances, **around):
        """One call as foreseen: the same attempts and waits, and the very outcome of the last attempt."""
        count, waits, why = self.foreseen(script, chances, self.clock.monotonic(), **around)
        self.script, self.chances, self.made, self.waits = list(script), list(chances), [], []
        try:
            outcome = self.function()
        except Failed as error:
            outcome = error
        assert count == len(self.made)
        assert pytest.approx(waits) == self.waits
        assert outcome is self.made[-1]
        notes = getattr(outcome, "__notes__", [])
        assert (why is not None) is bool(notes)
        assert why is None or why in notes[0]
        self.check_the_budget()

    def check_the_budget(self):
        counted, now = self.counted, self.clock.monotonic()
        if counted.budget is not None and counted.budget.name is not None:
            status = self.registry.retry_budget("shared").status()
            assert counted.in_window(counted.calls, now, min) == status.calls
            assert counted.in_window(counted.retries, now, max) == status.retries
            assert bool(status.left) is counted.allows_one(now)

    # -------------------------------------------------------------------------- acts
    @rule(script=scripts, chances=chances)
    def call(self, script, chances):
        self.play(script, chances)

    @rule(script=scripts, chances=chances, seconds=st.sampled_from([0.5, 3.0, 40.0]))
    def call_inside_a_deadline(self, script, chances, seconds):
        """A caller's deadline bounds the waits as the own budget does."""
        DEADLINE.set(Deadline(seconds, self.clock.monotonic()))
        try:
            self.play(script, chances, ends=self.clock.monotonic() + seconds)
        finally:
            DEADLINE.set(None)

    @rule(chances=chances, seconds=st.sampled_from([0.5, 1.5, 3.0]))
    def an_outage_inside_a_deadline(self, chances, seconds):
        """Whichever ends first, the caller's deadline or the own budget."""
        self.call_inside_a_deadline([(Fault(TRANSIENT), 0.0)] * 8, chances, seconds)

    @rule(script=scripts, chances=chances)
    def call_inside_a_second_attempt(self, script, chances):
        """I13: the outer call is retrying already: one attempt."""
        RETRYING.set(Repeat())
        try:
            self.play(script, chances, alone=False)
        finally:
            RETRYING.set(None)

    @precondition(lambda self: not (self.budget or self.plan["retry_budget"] or self.plan["safe_only"]))
    @rule(outer=st.integers(1, 4), chances=chances)
    def retry_inside_a_retry(self, outer, chances):
        """I13: nested retries add, they do not multiply."""
        calls = []

        @retry(outer, wait=0, idempotent=True)
        def around():
            calls.append(None)
            try:
                return self.function()
            except Failed:
                # What the outer call knows without a classifier of its own.
                raise ConnectionError from None

        self.script, self.chances, self.made, self.waits = [(Fault(TRANSIENT), 0.0)] * 20, list(chances), [], []
        with pytest.raises(ConnectionError):
            around()
        assert outer == len(calls)
        assert self.plan["max_attempts"] + outer - 1 == len(self.made)

    @rule(seconds=st.sampled_from([0.25, 10.0]))
    def time_passes(self, seconds):
        """Each budget begins with its call, whenever that is."""
        self.clock.advance(seconds)

    def teardown(self):
        assert (None, None) == (DEADLINE.get(), RETRYING.get())


# Without explaining: that takes minutes, and the shortest story says enough.
SETTINGS = settings(
    max_examples=120,
    stateful_step_count=12,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def test_a_retry_does_as_it_is_set():
    """I13: attempts, waits, jitter, caps, a server's wish, budgets and outer retries, whatever is found when."""
    run_state_machine_as_test(Retrying, settings=SETTINGS)
