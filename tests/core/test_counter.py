"""A counter that needs no lock."""

from __future__ import annotations

import pytest

from resilience._core.counter import Counter


@pytest.mark.parametrize("ticks", [0, 1, 2, 10, 12_345])
def test_counts(ticks):
    """As many as there were ticks."""
    counter = Counter()
    for _ in range(ticks):
        counter.tick()

    assert ticks == counter.value


def test_a_tick_tells_its_number():
    """The first tick is number 0: one call both counts and tells whether the limit is reached."""
    counter = Counter()

    assert [0, 1, 2] == [counter.tick() for _ in range(3)]


def test_reading_counts_nothing():
    """I16: however often it is read."""
    counter = Counter()
    counter.tick()

    assert [1, 1, 1] == [counter.value for _ in range(3)]


def test_zero():
    """Starts over, as often as one likes, and whoever holds the tick goes on."""
    counter = Counter()
    tick = counter.tick
    for _ in range(3):
        tick()
    counter.zero()
    assert 0 == counter.value
    tick()
    counter.zero()
    tick()

    assert 1 == counter.value
