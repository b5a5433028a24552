"""The retry schedule: doubling, capped, then spread."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.schedule import backoff, fits, release

seconds = st.just(0.0) | st.floats(1e-9, 1e6)


def wait(attempt, initial=0.5, longest=8.0, jitter=0.0, chance=0.5):
    return backoff(attempt, initial=initial, longest=longest, jitter=jitter, chance=chance)


def test_doubles_up_to_the_cap():
    """From `initial`, by two, to `longest`."""
    assert [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0] == [wait(attempt) for attempt in range(1, 8)]


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 6.0), (0.25, 7.0), (0.5, 8.0), (0.75, 9.0)])
def test_the_spread_comes_after_the_cap(chance, expected):
    """Callers that failed together do not return together, also when the cap holds."""
    assert expected == wait(20, jitter=0.25, chance=chance)


@pytest.mark.parametrize("attempt", [1_024, 1_100, 10**6, 10**30])
def test_however_many_attempts(attempt):
    """No overflow: the cap holds."""
    assert 8.0 == wait(attempt)


@pytest.mark.parametrize("attempt", [1, 5, 10**6])
@pytest.mark.parametrize(("initial", "longest"), [(0.0, 8.0), (0.5, 0.0), (0.0, 0.0)])
def test_zero_means_none(attempt, initial, longest):
    """A zero on either side: no wait at all."""
    assert 0.0 == wait(attempt, initial=initial, longest=longest, jitter=1.0, chance=0.99)


@given(
    attempt=st.integers(1, 5_000),
    initial=seconds,
    longest=seconds,
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_bounds(attempt, initial, longest, jitter, chance):
    """Never negative, a number always, and within ± jitter of the capped wait."""
    base = wait(attempt, initial, longest)
    spread = wait(attempt, initial, longest, jitter, chance)

    assert 0 <= base <= longest
    assert 0 <= spread < math.inf
    assert abs(spread - base) <= (jitter + 1e-12) * base


@pytest.mark.parametrize(
    ("left", "expected"), [(None, True), (2.5, True), (2.0, False), (1.5, False), (0.0, False), (-1.0, False)]
)
def test_fits(left, expected):
    """A wait that leaves no time for an attempt does not fit; without a deadline all do."""
    assert expected is fits(2.0, left)


def test_a_wait_without_an_end():
    """It fits nowhere, not even where there is no deadline."""
    assert not fits(math.inf, None)


def test_no_wait_fits_where_any_time_is_left():
    """A wait of zero fits a budget that is not used up."""
    assert fits(0.0, 0.001)
    assert not fits(0.0, 0.0)


# ---------------------------------------------------------------------------------------------- a server's own word
@pytest.mark.parametrize(("chance", "expected"), [(0.0, 20.0), (0.5, 25.0), (0.75, 27.5)])
def test_a_hint_is_spread_upwards(chance, expected):
    """Never less than the server asked for, up to the share `jitter` more: all its callers were told the same."""
    assert expected == release(20.0, jitter=0.5, left=None, chance=chance)


@pytest.mark.parametrize(("left", "expected"), [(100.0, 25.0), (30.0, 25.0), (24.0, 22.0), (21.0, 20.5)])
def test_the_spread_ends_where_the_time_does(left, expected):
    """Only the part of it that fits."""
    assert expected == release(20.0, jitter=0.5, left=left, chance=0.5)


@pytest.mark.parametrize("left", [20.0, 19.0, 0.0, -1.0])
def test_a_hint_that_does_not_fit_by_itself(left):
    """It stays what it is, for the retry to fail at once."""
    assert 20.0 == release(20.0, jitter=0.5, left=left, chance=0.5)


@pytest.mark.parametrize(("hint", "jitter"), [(0.0, 1.0), (20.0, 0.0)])
def test_nothing_to_spread(hint, jitter):
    """A date of the past asks for no wait; no jitter is none."""
    assert hint == release(hint, jitter=jitter, left=None, chance=0.9)


@given(
    hint=seconds,
    jitter=st.floats(0, 1),
    left=st.none() | st.floats(-1, 1e6),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_bounds_of_a_release(hint, jitter, left, chance):
    """Not below the hint, not beyond the spread, and past the deadline only if the hint is that by itself."""
    wait = release(hint, jitter=jitter, left=left, chance=chance)

    assert hint <= wait <= hint * (1 + jitter) * (1 + 1e-12)
    assert fits(wait, left) == fits(hint, left)
