"""A search that visits every state of the protocol and asks each step whether it keeps the invariants of the contract."""

from __future__ import annotations

from typing import NamedTuple

import protocol
from protocol import CLOSED, FAILURE, FOREVER, HALF_OPEN, NEUTRAL, NO_RAMP, OPEN, SUCCESS

OPERATOR = ("reset", "force_open", "disable", "enable")


REPORTS = ("plain", "probe", "lost", "late", "old", "exempt")
OF_NO_MORE_INTEREST = {"late": {("late", False)}, "old": {("late", False)}, "exempt": set()}


class Found(NamedTuple):
    """What a search has seen: states with the step that first led there, steps looked at, violations with their way."""

    came_from: dict
    steps: int
    violations: list

    def way_to(self, state):
        """The actions that lead from the beginning to a state."""
        actions = []
        while (origin := self.came_from[state]) is not None:
            state, action = origin
            actions.append(action)
        return actions[::-1]


def search(setting, callers, *, rules=protocol, most_violations=5):
    """Visit everything that so many callers can reach."""
    start = rules.initial(setting)
    came_from = {start: None}
    found = Found(came_from, 0, [])
    count = 0
    frontier = [start]
    while frontier:
        following = []
        for before in frontier:
            for why in unhealed(setting, before, rules):
                found.violations.append((why, found.way_to(before)))
            for step in rules.steps(setting, before, callers):
                count += 1
                for why in broken(setting, before, step):
                    found.violations.append((why, [*found.way_to(before), step.action]))
                if step.after not in came_from:
                    came_from[step.after] = before, step.action
                    following.append(step.after)
            if len(found.violations) >= most_violations:
                return found._replace(steps=count)
        frontier = following
    return found._replace(steps=count)


# ---------------------------------------------------------------------------------------------- each step
def broken(setting, before, step):
    """The invariants that a step breaks."""
    action, after, told = step
    what, verdict = action[0], action[-1]
    if sum(probe.lease > 0 for probe in after.probes) > setting.probes:
        yield "I1: more probes than slots"
    if before.phase == OPEN:
        yield from _left_open(before, after, what)
    decided = before.phase == HALF_OPEN and after.phase != HALF_OPEN and what not in OPERATOR
    if decided and (what not in ("probe", "lost") or verdict == NEUTRAL):
        yield "I3: half-open decided by something else than a probe of its episode"
    if what in REPORTS and verdict == NEUTRAL:
        yield from _neutral(before, after, what)
    if what == "plain" and verdict == FAILURE:
        yield from _counted(setting, before, after, told)
    if what in OF_NO_MORE_INTEREST:
        unchanged = before._replace(**{what: getattr(before, what) - 1})
        if after != unchanged or not set(told) <= OF_NO_MORE_INTEREST[what]:
            yield f"I6: a result of the kind {what} changed something"
    yield from _ramped(setting, before, after, what, told)
    if _balance(told) != len(after.probes) - len(before.probes):
        yield "I15: probes started, ended and live do not add up"
    if after.callers() - before.callers() != _granted(what, told):
        yield "I8: permits granted, settled and live do not add up"
    if len(_moves(told)) > 1:
        yield "I5: more than one transition in a step"


def _ramped(setting, before, after, what, told):
    if before.phase == CLOSED and before.ramp <= 0 and any(note[0] == "refused" for note in told):
        yield "a closed circuit refused without a ramp"
    by_probes = before.phase == HALF_OPEN and after.phase == CLOSED and what not in OPERATOR
    begun = after.ramp > before.ramp
    if begun != bool(by_probes and setting.ramp) or (begun and after.ramp != setting.ramp):
        yield "a ramp began, or was left out, where it should not"
    if after.phase != CLOSED and after.ramp != NO_RAMP:
        yield "a ramp outlived its closing"


def _left_open(before, after, what):
    if after.phase != OPEN and what not in OPERATOR and not (what == "acquire" and before.wait == 0):
        yield "I2: OPEN left otherwise than by time or an operator"
    if after.phase == OPEN and after.wait != before.wait and what not in ("tick", "force_open"):
        yield "I2: the open time was changed"


def _neutral(before, after, what):
    kept = ("phase", "figures", "mode", "wait", "good")
    if [getattr(before, name) for name in kept] != [getattr(after, name) for name in kept]:
        yield "I4: a neutral outcome changed a counter or a state"
    if what == "probe" and len(after.probes) != len(before.probes) - 1:
        yield "I4: a neutral probe kept its slot"


def _counted(setting, before, after, told):
    figures, trips = setting.trip.fail(before.figures)
    openings = [move for move in _moves(told) if move[1] == OPEN]
    if trips and (after.phase != OPEN or len(openings) != 1):
        yield "I5: the failure that reaches the limit did not open, once"
    if not trips and (after.phase != CLOSED or after.figures != figures or openings):
        yield "I5: a failure was lost, or opened before its time"


def _moves(told):
    return [note for note in told if isinstance(note, tuple) and len(note) == 3]


def _balance(told):
    ended = sum(note in ("succeeded", "failed") or note[0] == "released" for note in told)
    return told.count("started") - ended


def _granted(what, told):
    if what in (*REPORTS, "vanish"):
        return -1
    return sum(told.count(kind) for kind in ("plain", "probe", "exempt"))


# ---------------------------------------------------------------------------------------------- each state
def unhealed(setting, state, rules=protocol):
    """I7: with a healthy remote and nobody else, closed within the open time, a lease and so many successes."""
    if state.phase == OPEN and state.wait == FOREVER:
        state = rules.enable(setting, state).after
    time = (state.wait if state.phase == OPEN else 0) + setting.lease
    calls = setting.successes
    while state.phase != CLOSED:
        step = rules.acquire(setting, state)
        if step.told[-1] != "probe":
            if not time:
                yield "I7: no probe within the open time and a lease"
                return
            time -= 1
            state = rules.tick(setting, step.after).after
            continue
        if not calls:
            yield "I7: not closed after the successes that it takes"
            return
        calls -= 1
        place = next(place for place, probe in enumerate(step.after.probes) if probe == (setting.lease, True))
        state = rules.probe_result(setting, step.after, place, SUCCESS).after
