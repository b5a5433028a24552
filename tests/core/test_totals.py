"""A circuit's running totals."""

from __future__ import annotations

from resilience._core.totals import Totals


def values(totals):
    return {
        name: getattr(totals, name) if isinstance(getattr(totals, name), int) else getattr(totals, name).value
        for name in Totals.__slots__
    }


def test_start_at_zero():
    """Nothing has happened yet."""
    assert {0} == set(values(Totals()).values())


def test_zero_is_in_place():
    """Compiled wrappers hold the counters' ticks, and go on counting on the same totals."""
    totals = Totals()
    tick = totals.successes.tick
    tick()
    totals.failures.tick()
    totals.late = totals.answered = totals.probes_started = 3
    totals.zero()
    assert {0} == set(values(totals).values())
    tick()

    assert 1 == totals.successes.value
