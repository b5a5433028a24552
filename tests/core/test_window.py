"""A failure rate in a rolling window."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.config import BreakerConfig
from resilience._core.trip import Figures
from resilience._core.window import FailureRate, first_moment_of
from resilience.errors import ConfigurationError


class Calls:
    """A window with the running total that its circuit would keep."""

    def __init__(self, *args, **settings):
        self.machine = FailureRate(*args, **settings).machine()
        self.total = 0

    def success(self, now, slow=False):
        self.total += 1
        return self.machine.succeed(now, self.total, slow)

    def failure(self, now):
        return self.machine.fail(now, self.total)

    def figures(self, now):
        return self.machine.held.figures(now, self.total)


# ---------------------------------------------------------------------------------------------------- the setting
def test_defaults():
    """Half of at least 10 calls in 30 s of 3 s slices."""
    setting = FailureRate()

    assert (0.5, 30.0, 3.0, 10, True) == (
        setting.rate,
        setting.window,
        setting.bucket,
        setting.min_calls,
        setting.windowed,
    )


def test_a_value():
    """Equal, hashed and pickled by its settings; seconds may be a timedelta, a rate a whole number."""
    one, other = FailureRate(1, window=timedelta(minutes=1), bucket=6), FailureRate(1.0, window=60.0, bucket=6.0)

    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("window", "bucket"), [(30, 3), (3, 3), (0.9, 0.3), (0.7, 0.1), (1.2, 0.4), (1, 1 / 3), (9999.9, 0.1)]
)
def test_multiples(window, bucket):
    """Also where floats are a hair off."""
    assert FailureRate(window=window, bucket=bucket).machine()


@pytest.mark.parametrize(("window", "bucket"), [(30, 4), (1, 3), (10, 3), (1, 0.3), (0.1, 10)])
def test_no_multiple(window, bucket):
    """A window that is no multiple of its bucket is refused, a bucket longer than the window too."""
    with pytest.raises(ConfigurationError, match=r"^window must be a multiple of bucket \(") as caught:
        FailureRate(window=window, bucket=bucket)
    assert str(caught.value).endswith(f" ({bucket}), got {float(window)}")


@pytest.mark.parametrize(("window", "bucket"), [(1e300, 1e-300), (1e300, 1e-6), (100_000, 1), (100_000.5, 0.5)])
def test_too_many_slices(window, bucket):
    """I12, I20: a window of more slices than anybody could need is refused, also where the quotient is no float."""
    with pytest.raises(ConfigurationError, match=r"^window must be less than 100,000 buckets \(") as caught:
        FailureRate(window=window, bucket=bucket)
    assert str(caught.value).endswith(f" ({bucket:g}), got {float(window)}")


@pytest.mark.parametrize("bucket", [5e-324, 1e-300, 9e-7])
def test_too_short_a_bucket(bucket):
    """I20: a slice that no clock could tell from the next."""
    with pytest.raises(ConfigurationError, match=f"^bucket must be >= 1e-06 s, got {bucket}$"):
        FailureRate(window=bucket, bucket=bucket)


@pytest.mark.parametrize(("window", "bucket"), [(99_999, 1), (1e-6, 1e-6), (1e300, 1e300)])
@pytest.mark.parametrize("now", [0.0, 1.0, 1e9, 1e15])
def test_extreme_settings_count(window, bucket, now):
    """I20: what is accepted works, at any time."""
    calls = Calls(1.0, window=window, bucket=bucket, min_calls=2)

    assert [False, True] == [calls.failure(now), calls.failure(now)]


@pytest.mark.parametrize("rate", [0, -0.1, 1.0001, 2, math.nan, math.inf, True, "0.5", None])
def test_bad_rate(rate):
    """A share above 0, at most 1."""
    with pytest.raises(ConfigurationError, match=r"^rate must be a number in \(0, 1\], got "):
        FailureRate(rate)


def test_all_bad():
    """One error lists every field."""
    with pytest.raises(ConfigurationError) as caught:
        FailureRate(0, window=0, bucket=math.nan, min_calls=True, slow_call=0, slow_rate=2)

    assert ["rate", "window", "bucket", "min_calls", "slow_call", "slow_rate"] == [
        line.split()[0] for line in caught.value.faults
    ]


def test_slow_rate_without_a_share_of_its_own():
    """Is the rate of failures, and equal to one that says so; shown only where somebody looks."""
    setting = FailureRate(0.25, slow_call=timedelta(seconds=2))

    assert (2.0, 0.25, 2.0) == (setting.slow_call, setting.slow_rate, setting.slow_from)
    assert FailureRate(0.25, slow_call=2, slow_rate=0.25) == setting
    assert (
        repr(setting) == "FailureRate(rate=0.25, window=30.0, bucket=3.0, min_calls=10, slow_call=2.0, slow_rate=0.25)"
    )
    assert "slow" not in repr(FailureRate())
    assert math.inf == FailureRate().slow_from


# ---------------------------------------------------------------------------------------------------- judging
def test_the_minimum_and_the_rate():
    """Opens when there are enough calls and the share is reached, and not before."""
    calls = Calls(0.5, min_calls=4)

    assert [False, False, False, True] == [calls.success(0), calls.success(0), calls.failure(0), calls.failure(0)]


def test_the_share_of_slow_calls():
    """Opens when their share is reached, in a later slice as in the same."""
    calls = Calls(1.0, window=3, bucket=1, min_calls=3, slow_call=1, slow_rate=0.5)

    assert [False] * 3 == [calls.success(0, slow=True), calls.success(0), calls.success(1)]
    assert Figures(0, 3, 0.0, 1, 1 / 3) == calls.figures(1)
    assert calls.success(2, slow=True)
    assert Figures(0, 4, 0.0, 2, 0.5) == calls.machine.tripped(2, calls.total)
    assert Figures(0, 2, 0.0, 1, 0.5) == calls.figures(3)


def test_a_success_must_be_reported_while_a_slow_one_waits_for_company():
    """Below the minimum the next quick success may be the one that makes enough calls."""
    calls = Calls(1.0, min_calls=2, slow_call=1)
    calls.success(0)
    assert calls.machine.clean
    calls = Calls(1.0, min_calls=3, slow_call=1)
    calls.success(0, slow=True)

    assert not calls.machine.clean


def test_below_the_rate():
    """One failure in three is less than a half."""
    calls = Calls(0.5, min_calls=3)

    assert [False] * 3 == [calls.failure(0), calls.success(0), calls.success(0)]


def test_a_rate_of_one():
    """All must fail."""
    calls = Calls(1.0, min_calls=2)
    calls.success(0)

    assert [False, False] == [calls.failure(0), calls.failure(0)]
    assert not calls.failure(33)


def test_the_success_that_completes_the_minimum():
    """The rate is judged after each result, a success too."""
    calls = Calls(0.5, min_calls=2)

    assert [False, True] == [calls.failure(0), calls.success(0)]


def test_the_first_result_in_a_new_slice_is_judged():
    """Old successes fall out, the share of failures rises: the next success finds it too high."""
    calls = Calls(0.5, window=2, bucket=1, min_calls=3)
    calls.success(0)
    calls.success(0)
    calls.success(0)
    assert [False, False] == [calls.failure(1), calls.failure(1)]

    assert calls.success(2)


def test_answered_is_not_recorded():
    """Nothing happens."""
    calls = Calls()
    calls.failure(0)
    calls.machine.answered()

    assert Figures(1, 1, 1.0) == calls.figures(0)


# ---------------------------------------------------------------------------------------------------- rolling
@pytest.mark.parametrize(("now", "calls"), [(0, 2), (2.999, 2), (3, 2), (8.999, 2), (9, 0), (1e9, 0)])
def test_a_window_of_three_slices(now, calls):
    """This slice and the two before it: what came at 0 is gone from 9 on."""
    window = Calls(window=9, bucket=3)
    window.success(0)
    window.failure(1)

    assert Figures(calls // 2, calls, 0.5 if calls else 0.0) == window.figures(now)


def test_counted_in_the_slice_of_its_end():
    """Slices fall out one by one."""
    window = Calls(window=3, bucket=1, min_calls=100)
    for now in (0.5, 1.5, 2.5):
        window.failure(now)
    window.success(2.9)

    assert [4, 4, 3, 2, 0] == [window.figures(now).calls for now in (2.9, 2.99, 3, 4, 5)]


def test_figures_after_rolling():
    """What has been rolled is summed with what is current."""
    window = Calls(window=3, bucket=1, min_calls=100)
    for now in (0, 1, 1, 2):
        window.failure(now)
        window.success(now)

    assert Figures(4, 8, 0.5) == window.figures(2)
    window.success(3)
    assert Figures(3, 7, 3 / 7) == window.figures(3)


def test_empty_slices_are_not_kept():
    """I12: memory is bounded by the slices that hold something."""
    window = Calls(window=30, bucket=3)
    for now in range(0, 3_000, 3):
        window.success(now)

    assert 9 == len(window.machine.held.closed)
    window.success(10_000)
    assert () == window.machine.held.closed


def test_frozen_figures():
    """Figures taken before stay as they were, but for successes in the slice they were taken in."""
    window = Calls(window=3, bucket=1, min_calls=100)
    window.failure(0)
    held = window.machine.held
    window.failure(0)
    window.failure(1)

    assert Figures(1, 1, 1.0) == held.figures(0, 0)
    assert Figures(1, 2, 0.5) == held.figures(0, 1)


def test_totals_of_before_do_not_go_below_zero():
    """A total that was read a moment too early is no negative number of calls."""
    window = Calls(min_calls=100)
    window.success(0)
    window.success(3)

    assert Figures(0, 1, 0.0) == window.machine.held.figures(3, 0)


def test_figures_at_the_trip():
    """All that opened it."""
    window = Calls(0.5, min_calls=2)
    window.success(0)
    window.failure(4)

    assert Figures(1, 2, 0.5) == window.machine.tripped(4, 1)


def test_successes_before_the_first_report():
    """What others have counted before the machine was told of anything is part of the window."""
    machine = FailureRate(0.5, min_calls=4).machine()

    assert not machine.succeed(0, 3)
    assert machine.fail(0, 3) is False
    assert Figures(1, 4, 0.25) == machine.held.figures(0, 3)


def test_clear():
    """Starts over; successes of before are no part of it."""
    window = Calls(min_calls=2)
    window.success(0)
    window.failure(4)
    window.machine.renewed(window.total)

    assert (True, -math.inf) == (window.machine.clean, window.machine.edge)
    assert Figures(0, 0, 0.0) == window.figures(4)
    window.success(5)
    assert Figures(0, 1, 0.0) == window.figures(5)


def test_a_clock_that_jumped_back():
    """What is held can't be placed any more, and is dropped."""
    window = Calls(min_calls=2)
    window.failure(100)

    assert not window.failure(10)
    assert Figures(1, 1, 1.0) == window.figures(10)


def test_before_zero():
    """A monotonic clock may begin anywhere."""
    window = Calls(window=3, bucket=1, min_calls=2)
    window.failure(-5.5)

    assert Figures(1, 1, 1.0) == window.figures(-4.5)
    assert Figures(0, 0, 0.0) == window.figures(-3)


# ---------------------------------------------------------------------------------------------------- what need not be reported
def test_nothing_is_known_before_the_first_report():
    """The first success of all tells the machine where it is in time."""
    assert -math.inf == Calls().machine.edge


def test_clean_without_failures():
    """While nothing failed, a success can't open."""
    window = Calls(min_calls=3)
    window.success(0)

    assert (True, 3.0) == (window.machine.clean, window.machine.edge)


def test_not_clean_below_the_minimum():
    """The success that completes the minimum decides, so each is to be reported."""
    window = Calls(min_calls=3)
    window.failure(0)

    assert not window.machine.clean


def test_clean_above_the_minimum():
    """Enough calls and not open: one more success only lowers the rate."""
    window = Calls(0.5, min_calls=3)
    window.success(0)
    window.success(0)
    window.failure(0)

    assert window.machine.clean


@given(number=st.integers(0, 10**9), bucket=st.floats(0.001, 1e4))
def test_the_edge_is_the_first_moment(number, bucket):
    """The next slice begins at exactly that float, not at the one before."""
    moment = first_moment_of(number, bucket)

    assert math.floor(moment / bucket) >= number
    assert math.floor(math.nextafter(moment, -math.inf) / bucket) < number


@pytest.mark.parametrize(("number", "bucket"), [(3, 0.1), (6, 0.1), (3, 0.3), (1, 0.3), (29, 0.7), (10**6 + 1, 0.1)])
def test_awkward_edges(number, bucket):
    """Products of floats that are one step off."""
    moment = first_moment_of(number, bucket)

    assert (number, number - 1) == (
        math.floor(moment / bucket),
        math.floor(math.nextafter(moment, -math.inf) / bucket),
    )


def test_the_preset_is_this_setting():
    """`cloud` is the default of this mode."""
    assert FailureRate() == BreakerConfig.cloud().trip
