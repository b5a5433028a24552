"""Permits: what a caller holds while it makes an attempt."""

from __future__ import annotations

import copy
import math
import pickle
import weakref

import pytest

from resilience._core.permit import Permit


def probe(leased_at, lease):
    permit = Permit(3)
    permit.probe, permit.leased_at, permit.lease = True, leased_at, lease
    return permit


def test_plain():
    """A plain permit names its episode and nothing else: it has no lease."""
    permit = Permit(7)

    assert (0.0, 0.0) == (permit.leased_at, permit.lease)
    assert (7, False, False, False, False) == (
        permit.episode,
        permit.probe,
        permit.exempt,
        permit.bypassed,
        permit.settled,
    )


@pytest.mark.parametrize(("bypassed", "truth"), [(False, True), (True, False)])
def test_truth(bypassed, truth):
    """Only the permit of a call that was skipped is false."""
    assert truth is bool(Permit(1, exempt=True, bypassed=bypassed))


@pytest.mark.parametrize(
    ("now", "holds"),
    [(9.999, False), (10, True), (14.999, True), (math.nextafter(15, 0), True), (15, False), (math.inf, False)],
)
def test_lease(now, holds):
    """A lease holds from its beginning to just before its end; one from the future is from before a clock jump."""
    assert holds is probe(10, 5).holds_at(now)


@pytest.mark.parametrize(
    ("permit", "text"),
    [
        (Permit(1), "<Permit plain, episode 1>"),
        (Permit(1, exempt=True), "<Permit exempt, episode 1>"),
        (Permit(1, exempt=True, bypassed=True), "<Permit bypassed, episode 1>"),
        (probe(0, 1), "<Permit probe, episode 3>"),
    ],
)
def test_repr(permit, text):
    """A permit says what it is."""
    assert text == repr(permit)


def test_repr_when_settled():
    """And whether it has been reported on."""
    permit = Permit(1)
    permit.settled = True

    assert "<Permit plain, episode 1, settled>" == repr(permit)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_never_pickled(protocol):
    """I19: a permit belongs to this process."""
    with pytest.raises(TypeError, match="^a permit belongs to the breaker that gave it, .*: it can't be pickled$"):
        pickle.dumps(Permit(1), protocol)


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy])
def test_never_copied(twin):
    """Two permits for one attempt could be settled twice."""
    with pytest.raises(TypeError):
        twin(Permit(1))


def test_weakly_referenced():
    """Whoever forgets a permit can be noticed."""
    permit = Permit(1)
    watcher = weakref.ref(permit)
    del permit

    assert watcher() is None
