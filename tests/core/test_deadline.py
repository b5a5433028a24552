"""Deadline arithmetic: nested limits, and what an expiry proves."""

from __future__ import annotations

import pytest

from resilience._core.deadline import (
    AttemptDeadline,
    Deadline,
    chain,
    fired,
    fixed_deadline,
    is_evidence,
    is_past,
    nearest,
    remaining,
)
from resilience._words import TimeoutScope


def nested(*expiries, started=0.0):
    """A chain, outermost first; the innermost is returned last."""
    made = []
    for expires in expiries:
        made.append(Deadline(expires - started, started, made[-1] if made else None))
    return made


def test_length():
    """A limit runs from its start, for its seconds."""
    deadline = Deadline(5.0, 10.0)

    assert (5.0, 10.0, 15.0) == (deadline.seconds, deadline.started, deadline.expires)


def test_defaults():
    """The whole call's budget, in force, counting, not fired."""
    deadline = Deadline(5.0, 10.0)

    assert (TimeoutScope.BUDGET, True, False, True, False, None, 0) == (
        deadline.scope,
        deadline.active,
        deadline.left,
        deadline.counts,
        deadline.fired,
        deadline.outer,
        deadline.noted,
    )


def test_an_attempts_limit():
    """It differs in its scope alone."""
    attempt = AttemptDeadline(1.0, 0.0)

    assert (TimeoutScope.ATTEMPT, True) == (attempt.scope, attempt.counts)


@pytest.mark.parametrize("counts", [True, False])
def test_a_fixed_length(counts):
    """Where each call makes one of the same length: told only when it starts, it is like any other."""
    deadline = fixed_deadline(5.0, counts)()
    deadline.started, deadline.left = 10.0, False

    assert (5.0, 15.0, counts) == (deadline.seconds, deadline.expires, deadline.counts)
    assert (TimeoutScope.BUDGET, True, False, None, 0) == (
        deadline.scope,
        deadline.active,
        deadline.fired,
        deadline.outer,
        deadline.noted,
    )
    assert counts is is_evidence(deadline, 2.5, None)


def test_one_deadline_is_not_another():
    """What one has gone through says nothing of the next."""
    fixed = fixed_deadline(1.0, True)

    def made():
        deadline = fixed()
        deadline.left = False
        return deadline

    for make in (lambda: Deadline(1.0, 0.0), made):
        first = make()
        first.fired = first.left = True

        assert (True, False) == (first.fired, first.active)
        assert (False, True) == (make().fired, make().active)


def test_chain_goes_outwards():
    """Innermost first."""
    outer, middle, inner = nested(30, 20, 10)

    assert [inner, middle, outer] == list(chain(inner))
    assert [] == list(chain(None))


def test_a_scope_that_was_left_is_passed_over():
    """Also where a child task still holds its node."""
    outer, middle, inner = nested(30, 20, 10)
    middle.left = True

    assert [inner, outer] == list(chain(inner))


@pytest.mark.parametrize(("expiries", "index"), [((30, 20, 10), 2), ((10, 20, 30), 0), ((20, 10, 30), 1)])
def test_nearest(expiries, index):
    """The one that runs out first, wherever it stands."""
    made = nested(*expiries)

    assert made[index] is nearest(made[-1])


def test_nearest_of_two_at_one_moment():
    """The outer one: it ends more."""
    outer, inner = nested(10, 10)

    assert outer is nearest(inner)


def test_nearest_in_force():
    """What was left does not count, and with nothing left there is none."""
    outer, inner = nested(30, 10)
    inner.left = True
    assert outer is nearest(inner)
    outer.left = True

    assert nearest(inner) is None
    assert nearest(None) is None


@pytest.mark.parametrize(("now", "left"), [(0, 10), (9.5, 0.5), (10, 0), (12, -2)])
def test_remaining(now, left):
    """Clipped to the nearest; below zero it is past."""
    assert left == remaining(nested(10, 20)[-1], now)


def test_remaining_without_a_deadline():
    """There is no limit."""
    assert remaining(None, 5) is None


@pytest.mark.parametrize(("now", "past"), [(9.999, False), (10, True), (11, True)])
def test_past(now, past):
    """Any of the chain, from its very moment on."""
    assert past is is_past(nested(10, 20)[-1], now)


def test_past_but_left():
    """A scope that has been left can't be past."""
    (only,) = nested(10)
    only.left = True

    assert not is_past(only, 99)


def test_fired():
    """P17: the innermost one in force that interrupted its task."""
    outer, middle, inner = nested(30, 20, 10)
    assert fired(inner) is None
    assert fired(None) is None
    outer.fired = middle.fired = True
    assert middle is fired(inner)
    middle.left = True

    assert outer is fired(inner)


@pytest.mark.parametrize(
    ("in_flight", "per_attempt", "evidence"),
    [
        (5.0, None, True),
        (4.999, None, False),
        (10.0, None, True),
        (0.005, None, False),
        (2.0, 4.0, True),
        (1.999, 4.0, False),
        (5.0, 40.0, True),
        (4.999, 40.0, False),
        (5.0, 10.0, True),
    ],
)
def test_evidence(in_flight, per_attempt, evidence):
    """P17: half of the limit of 10 s, or of the attempt's own limit where that is shorter."""
    assert evidence is is_evidence(Deadline(10.0, 100.0), in_flight, per_attempt)


def test_a_deadline_that_does_not_count():
    """P17: one that comes from a client says nothing about the remote."""
    assert not is_evidence(fixed_deadline(10.0, counts=False)(), 10.0, None)
