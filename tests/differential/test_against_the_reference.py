"""The breaker beside a second one, written from the contract alone: the same steps, the same answers.

A run is a list of steps made from a seed. Each step is done to both breakers, and then
everything that can be seen of them is compared: answer, state, mode, figures, totals,
the probes' ledger, `is_open`. The real one is used in five ways: by permits, and through
decorated functions (and guards) in both worlds, on the straight path and through plans.

`make proof` takes `RESILIENCE_DIFFERENTIAL_STEPS` steps (default 5,000,000) in all; from some
50,000,000 on with `-o faulthandler_timeout=0`, for then one test takes longer than a hanging one may.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from math import inf
from operator import itemgetter
from pathlib import Path
from random import Random

import pytest

from resilience import BreakerConfig, CircuitOpenError
from resilience._site import Call


def sibling(name):
    """A module beside this one; with importlib's import mode its folder is on no path."""
    spec = importlib.util.spec_from_file_location(f"differential_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference, steps_of, ways = sibling("reference"), sibling("steps"), sibling("ways")
Reference, Slip, verdict_of = reference.Reference, reference.Slip, reference.verdict_of
CUT, PASSED_ON = steps_of.CUT, steps_of.PASSED_ON
FAIL, BYPASS, JUDGED = ways.FAIL, ways.BYPASS, ways.JUDGED
Answer, Difference, Scripted, Stopped, WAYS = ways.Answer, ways.Difference, ways.Scripted, ways.Stopped, ways.WAYS

QUICK_STEPS = 50_000
PROOF_STEPS = int(os.environ.get("RESILIENCE_DIFFERENTIAL_STEPS", "5_000_000"))
RUN_STEPS, RUNS_PER_CONFIG = 60, 60

FIELDS = (
    *("state", "mode", "failure_count", "window_calls", "failure_rate", "slow_calls", "slow_rate"),
    *("opened_at", "last_state_change", "next_half_open_at", "retry_after"),
    *("rejected_total", "bypassed_total", "successes_total", "failures_total", "answered_total"),
    *("probes_started", "probes_succeeded", "probes_failed", "probes_released"),
    *("late_results", "late_accepted", "would_refuse_total", "slow_total", "ramp_until"),
)
read_fields = itemgetter(*FIELDS)


# ---------------------------------------------------------------------------------------------------- both, side by side
class Both:
    """One run: the real breaker and the reference, step by step."""

    def __init__(self, config, way):
        way.breaker.reconfigure(config)
        way.registry.clear_state()
        self.way, self.breaker = way, way.breaker
        self.model = Reference(config, way.now())
        self.flights, self.landed = [], []
        self.inside = ()
        self.last_error = None

    def run(self, steps):
        for step in steps:
            getattr(self, step[0])(*step[1:])
            self.compare()
            self.way.steps += 1

    def compare(self):
        wanted, status = self.model.status(self.way.now()), self.breaker.status()
        last = status.last_failure
        real = (self.breaker.is_open(), *read_fields(status.__dict__), last and (last.kind, last.time))
        if real != wanted:
            parts = zip(("is_open()", *FIELDS, "last_failure"), wanted, real, strict=True)
            raise Difference(
                "; ".join(f"{name}: {ours} is right, not {its}" for name, ours, its in parts if ours != its)
            )
        if self.breaker.state is not status.state:
            raise Difference(f"state: {status.state} in the status, {self.breaker.state} by itself")

    # ------------------------------------------------------------------------------------------------ asking and reporting
    def ask(self, site):
        """The reference's answer: a slip, or the wait; None where the call is bypassed."""
        if self.inside and self.shares_a_probe():
            return EXEMPT
        answer = self.model.ask(self.way.now())
        if type(answer) is Slip:
            return answer
        self.model.totals["bypassed" if site == BYPASS else "rejected"] += 1
        return None if site == BYPASS else answer

    def shares_a_probe(self):
        """Whether the caller is inside a probe that is still out: its result would be accepted."""
        return any(slip.episode == self.model.episode for slip in self.inside if not slip.settled)

    def settle(self, slip, result, began):
        """Tell the reference what came of a slip that was given when the attempt began; an exception counts at most once."""
        if isinstance(result, (Stopped, CircuitOpenError)):
            verdict, fault = reference.NEUTRAL, None
        else:
            fault = result.fault
            verdict = verdict_of(fault, self.model.config)
            if verdict is reference.FAILURE and isinstance(result, Scripted) and self.way.nests and not slip.exempt:
                if getattr(result, "counted", False):
                    verdict = reference.NEUTRAL
                result.counted = True
        self.model.settle(slip, verdict, fault, self.way.now() - began, self.way.now())

    # ------------------------------------------------------------------------------------------------ steps
    def call(self, site, outcome, fresh, steps):
        around, began = self.inside, self.way.now()
        self.inside = () if fresh else around
        slip, made = self.ask(site), []

        def attempt():
            if type(slip) is not Slip:
                raise Difference(f"let in, not {said(slip)}")
            self.inside = (*self.inside, slip) if slip.probe and self.way.nests else self.inside
            self.last_error = None
            self.run(steps)
            made.append(self.result(outcome, site))
            return made[0]

        try:
            result = self.way.call(site, attempt, fresh)
        except (Exception, Stopped) as error:
            # Its traceback holds this frame, and so would keep everything in it.
            result = error.with_traceback(None)
        self.inside = around
        if type(slip) is Slip:
            if not made or result is not made[0]:
                raise Difference(f"gave {result!r}, not {made[0]!r}" if made else f"gave {result!r} and never called")
            self.settle(slip, result, began)
        elif slip is None:
            if result is not ways.SKIPPED:
                raise Difference(f"gave {result!r}, not bypassed")
        elif type(result) is not CircuitOpenError or result.retry_after != (None if slip == inf else slip):
            raise Difference(f"gave {result!r}, not refused for {slip} s")
        self.last_error = result if isinstance(result, BaseException) else None

    def result(self, outcome, site=FAIL):
        """A new result of an attempt; for a site that judges values the fault is in the value."""
        if outcome is PASSED_ON:
            return self.last_error or Answer()
        if outcome is CUT:
            return Stopped()
        return Answer(outcome) if outcome is None or site == JUDGED else Scripted(outcome)

    def begin(self, site):
        around, self.inside = self.inside, ()
        slip = self.ask(site)
        self.inside = around
        try:
            flight = self.way.begin(site)
        except CircuitOpenError as error:
            if type(slip) is Slip or slip is None or error.retry_after != (None if slip == inf else slip):
                raise Difference(f"refused for {error.retry_after} s, not {said(slip)}") from None
            return
        if (flight is None) is not (slip is None) or (slip is not None and type(slip) is not Slip):
            raise Difference(f"{'bypassed' if flight is None else 'let in'}, not {said(slip)}")
        if flight is not None:
            self.flights.append((flight, slip, self.way.now()))

    def finish(self, number, outcome):
        if self.flights:
            flight, slip, began = self.flights.pop(number % len(self.flights))
            result = self.result(outcome)
            self.way.finish(flight, result)
            self.settle(slip, result, began)
            self.landed = [flight, *self.landed[:7]]

    def again(self, number, outcome):
        if self.landed:
            self.way.again(self.landed[number % len(self.landed)], self.result(outcome))

    def wait(self, seconds):
        self.way.advance(seconds)

    def as_told(self, more):
        rest = self.model.refusal(self.way.now())
        if rest is not None and 0 < rest + more < inf:
            self.way.advance(rest + more)

    def reset(self, _):
        wanted = self.model.reset(self.way.now())
        if self.breaker.reset() is not wanted:
            raise Difference(f"reset() should have been {wanted}")

    def force(self, seconds):
        self.model.act(reference.FORCED, reference.OPEN, self.way.now(), seconds)
        self.breaker.force_open("a test", seconds=seconds)

    def disable(self, _):
        self.model.disable(self.way.now())
        self.breaker.disable()

    def enable(self, _):
        self.model.enable(self.way.now())
        self.breaker.enable()

    def reconfigure(self, config):
        self.model.reconfigure(config, self.way.now())
        self.breaker.reconfigure(config)
        if self.breaker.config != config:
            raise Difference(f"the settings are {self.breaker.config}")

    def end(self):
        """Nothing is left in flight."""
        while self.flights:
            self.finish(0, CUT)
            self.compare()


EXEMPT = Slip(0)
EXEMPT.exempt = True


def said(answer):
    return "let in" if type(answer) is Slip else "bypassed" if answer is None else f"refused for {answer} s"


def difference(config, way, steps):
    """How many steps it takes to a difference, and which; None where both agree to the end."""
    with way.installed():
        both, number = Both(config, way), 0
        try:
            for step in steps:
                number += 1
                both.run((step,))
            both.end()
        except Difference as found:
            return number, str(found)
    return None


def fewer(steps):
    """The same list with one step less, on whatever level, the last ones first."""
    for number in reversed(range(len(steps))):
        before, step, after = steps[:number], steps[number], steps[number + 1 :]
        yield before + after
        if step[0] == "call":
            yield from ((*before, (*step[:4], inside), *after) for inside in fewer(step[4]))


def shortest(config, way_of, steps):
    """A failing run without the steps it does not need; whole where it fails only after other runs."""
    if difference(config, way_of(config), steps) is None:
        return steps
    while True:
        for candidate in fewer(steps):
            if difference(config, way_of(config), candidate):
                steps = candidate
                break
        else:
            return steps


def search(mode, way_of, number, seed):
    """Go `number` steps; fail with the seed and the shortest way to the difference."""
    rng, gone = Random(seed), 0
    while gone < number:
        config = steps_of.some_config(rng, mode)
        way = way_of(config)
        for _ in range(RUNS_PER_CONFIG):
            steps = tuple(steps_of.some_steps(rng, RUN_STEPS))
            found = difference(config, way, steps)
            if found:
                needed = shortest(config, way_of, steps[: found[0]])
                again = difference(config, way_of(config), needed)
                told = "\n    ".join(map(repr, needed))
                pytest.fail(f"seed {seed!r}, {gone + way.steps} steps in: {(again or found)[1]}\n{config}\n    {told}")
            if gone + way.steps >= number:
                break
        gone += way.steps


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """A circuit that opens tells the log."""
    monkeypatch.setattr(logging.getLogger("resilience"), "disabled", True)


every_way = pytest.mark.parametrize("way", WAYS)
every_mode = pytest.mark.parametrize("mode", ["streak", "within", "rate"])
PARTS = 3 * len(WAYS)


@every_mode
@every_way
def test_some_steps(mode, way):
    """Whatever happens in whatever order, the breaker does what the contract says."""
    search(mode, WAYS[way], QUICK_STEPS // PARTS, f"{mode} {way}")


@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_each_way_takes_its_path(way, monkeypatch):
    """A healthy call meets no plan on the straight path and exactly one off it, or both would be searched as one."""
    plans, begin = [], Call.__init__

    def counted(call, *given):
        plans.append(call)
        begin(call, *given)

    monkeypatch.setattr(Call, "__init__", counted)
    user = WAYS[way](BreakerConfig())
    with user.installed():
        answers = [user.call(site, Answer, False) for site in (FAIL, BYPASS)]

    assert [None, None] == [answer.fault for answer in answers]
    assert (0 if user.straight else 2) == len(plans)


@pytest.mark.proof
@every_mode
@every_way
def test_many_steps(mode, way):
    """The same for as long as anybody wants."""
    search(mode, WAYS[way], PROOF_STEPS // PARTS, f"proof {mode} {way}")
