"""The view: what anybody may read of a circuit without its lock."""

from __future__ import annotations

import math

import pytest

from resilience._core.config import BreakerConfig
from resilience._core.permit import Permit
from resilience._core.trip import Figures
from resilience._core.view import FOREVER, View, slot_refusal
from resilience._words import BreakerMode, CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState
NORMAL, FORCED, DISABLED, SHADOW = tuple(BreakerMode)[:4]
NOTHING = Figures(0, 0, None)


def probe(leased_at, lease):
    permit = Permit(3)
    permit.probe, permit.leased_at, permit.lease = True, leased_at, lease
    return permit


def view(state, mode=NORMAL, *, open_for=30.0, probes=()):
    return View(state, mode, 2, 100.0, open_for, 0, 0, tuple(probes), BreakerConfig(), None, NOTHING)


@pytest.mark.parametrize("mode", [NORMAL, DISABLED, SHADOW])
def test_closed_refuses_nobody(mode):
    """Closed is closed."""
    assert view(CLOSED, mode).refusal(0) is None


@pytest.mark.parametrize(
    ("now", "wait"),
    [(100, 30.0), (129.5, 0.5), (130, None), (131, None), (99, None)],
)
def test_open(now, wait):
    """The rest of the cooldown; none from its very end, nor where the clock has jumped back to before the opening."""
    assert wait == view(OPEN).refusal(now)


@pytest.mark.parametrize("now", [0, 100, 1e12])
def test_forced_for_good(now):
    """Only an operator can tell."""
    assert FOREVER == math.inf == view(OPEN, FORCED, open_for=None).refusal(now)


@pytest.mark.parametrize("mode", [SHADOW, DISABLED])
@pytest.mark.parametrize("state", [OPEN, HALF_OPEN])
def test_modes_that_never_refuse(state, mode):
    """A shadow refuses nobody, whatever its machine says."""
    assert view(state, mode, probes=[probe(100, 30)]).refusal(101) is None


def test_half_open():
    """While the probe is out, the rest of its lease."""
    assert 20.0 == view(HALF_OPEN, probes=[probe(100, 30)]).refusal(110)


@pytest.mark.parametrize(
    ("limit", "now", "wait"),
    [
        (1, 5, 17.0),
        (2, 5, 5.0),
        (3, 5, None),
        (2, 10, None),
        (1, 10, 12.0),
        (1, 22, None),
    ],
)
def test_slots(limit, now, wait):
    """Two probes whose leases end at 10 and 22: until so many have ended that a slot is free."""
    assert wait == slot_refusal([probe(2, 20), probe(0, 10)], limit, now)


def test_no_probe_out():
    """A slot is free."""
    assert slot_refusal([], 1, 0) is None
