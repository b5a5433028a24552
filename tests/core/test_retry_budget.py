"""A retry budget: a share of the calls of a rolling window, and a floor."""

from __future__ import annotations

import gc
import math
import pickle
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.retry_budget import SLICES, Balance, CallWindow, RetryBudget, Spent
from resilience.errors import ConfigurationError


class Kept:
    """A budget with its calls and retries, as its owner keeps them."""

    def __init__(self, **settings):
        self.budget = RetryBudget(**settings)
        self.window = CallWindow(self.budget.window)
        self.spent = Spent()

    def call(self, now, times=1):
        for _ in range(times):
            next(self.window.slice_at(now).ticks)

    def balance(self, now):
        self.spent = self.spent.latest
        return Balance(self.budget, self.spent, self.window.slices, now)

    def spend(self, now):
        balance = self.balance(now)
        return bool(balance.left) and self.spent.latest.follow(balance.after_one())

    def spend_all(self, now):
        spent = 0
        while self.spend(now):
            spent += 1
        return spent


# ---------------------------------------------------------------------------------------------------- the setting
def test_defaults():
    """A fifth of the calls and one a second, over ten seconds; nobody's name."""
    budget = RetryBudget()

    assert (None, 0.2, 1.0, 10.0) == (budget.name, budget.ratio, budget.min_per_second, budget.window)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_value(protocol):
    """Equal, hashed and pickled by its settings; seconds may be a timedelta, numbers whole."""
    one = RetryBudget("mail", ratio=1, min_per_second=2, window=timedelta(minutes=1))
    other = RetryBudget("mail", ratio=1.0, min_per_second=2.0, window=60.0)

    assert one == other == pickle.loads(pickle.dumps(one, protocol))
    assert hash(one) == hash(other)
    assert one != RetryBudget("post", ratio=1, min_per_second=2, window=60)


def test_it_is_frozen():
    """Nothing can be set."""
    with pytest.raises(AttributeError, match="read-only"):
        RetryBudget().ratio = 1.0


def test_its_text():
    """It reads like the call that made it."""
    assert "RetryBudget(name='mail', ratio=0.2, min_per_second=1.0, window=10.0)" == repr(RetryBudget("mail"))


def test_under_a_name():
    """The same settings."""
    assert RetryBudget("mail", ratio=0.5) == RetryBudget(ratio=0.5).named("mail")


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ({"ratio": 0}, ["ratio must be a number in (0, 1], got 0"]),
        ({"min_per_second": -1}, ["min_per_second must be a finite number >= 0, got -1"]),
        ({"window": 0.0001}, ["window must be >= 0.001 s, got 0.0001"]),
        (
            {"min_per_second": 5e14, "window": 2},
            ["min_per_second must be less than 1e+15 in a window, got 500000000000000.0"],
        ),
        (
            {"name": "a b", "ratio": 2, "window": 0, "min_per_second": True},
            [
                "name must be a str of 1 to 256 bytes of A-Z a-z 0-9 . _ : / @ + -, got 'a b'",
                "ratio must be a number in (0, 1], got 2",
                "min_per_second must be a finite number >= 0, got True",
                "window must be a finite number of seconds > 0, got 0",
            ],
        ),
    ],
)
def test_what_can_not_be_right(settings, faults):
    """One error lists every fault."""
    with pytest.raises(ConfigurationError) as caught:
        RetryBudget(**settings)

    assert faults == list(caught.value.faults)


@pytest.mark.parametrize(
    "settings", [{"window": 0.001}, {"ratio": 1}, {"min_per_second": 0}, {"window": 2, "min_per_second": 4e14}]
)
def test_what_is_just_right(settings):
    """The edges of the ranges are in them."""
    budget = RetryBudget(**settings)

    assert settings == {name: getattr(budget, name) for name in settings}


def test_differences():
    """Field by field; the name is what both are known by."""
    ours = RetryBudget("mail", ratio=0.5, window=10)

    assert () == ours.differences(RetryBudget(ratio=0.5))
    assert ("ratio: 0.5, not 0.2", "min_per_second: 1.0, not 2.0", "window: 10.0, not 5.0") == ours.differences(
        RetryBudget(min_per_second=2, window=5)
    )


@pytest.mark.parametrize(
    ("ratio", "floor", "calls", "expected"),
    [(0.2, 1, 0, 10), (0.2, 0, 4, 0), (0.2, 0, 5, 1), (0.29, 0, 100, 29), (0.1, 0.1, 30, 4), (1, 0, 7, 7)],
)
def test_allowed(ratio, floor, calls, expected):
    """The share of the calls plus the floor, rounded down; what only floats take away from it is given back."""
    assert expected == RetryBudget(ratio=ratio, min_per_second=floor, window=10).allowed(calls)


# ---------------------------------------------------------------------------------------------------- the window
def test_the_floor_is_there_without_a_call():
    """Quiet times: `min_per_second * window`."""
    assert 10 == Kept().spend_all(100.0)


def test_calls_bring_retries():
    """`ratio` of them."""
    kept = Kept(ratio=0.2, min_per_second=0)
    kept.call(100.0, times=14)

    assert 2 == kept.spend_all(100.0)
    assert (14, 2, 0) == (kept.balance(100.0).calls, kept.balance(100.0).retries, kept.balance(100.0).left)


def test_a_retry_goes_out_of_the_window():
    """One that is exactly as old as the window does not count any more."""
    kept = Kept(min_per_second=0.1)

    assert kept.spend(100.0)
    assert not kept.spend(109.999)
    assert kept.spend(110.0)


def test_a_call_goes_out_of_the_window():
    """Exactly then, too."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.5)

    assert 1 == kept.balance(110.499).left
    assert 0 == kept.balance(110.5).left


def test_a_slice_that_began_late_stays_longer():
    """Its first call decides, not its edge: slices that begin meanwhile do not push it out."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.9)
    kept.call(110.5)

    assert 2 == kept.balance(110.5).calls


def test_calls_of_a_slice_go_with_the_first_of_them():
    """What is held is never more than what a true window holds."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.1)
    kept.call(100.9)

    assert 2 == kept.balance(110.05).calls
    assert 0 == kept.balance(110.2).calls


def test_retries_of_a_slice_go_with_the_last_of_them():
    """What is spent is never less than what a true window holds."""
    kept = Kept(min_per_second=0.2)
    kept.spend(100.1)
    kept.spend(100.9)

    assert 2 == kept.balance(110.5).retries
    assert 0 == kept.balance(110.9).retries


def test_a_slice_ends_at_its_edge():
    """The call at the edge is the first of the next slice."""
    window = CallWindow(10.0)
    first = window.slice_at(100.4)

    assert (100.4, 101.0) == (first.began, first.edge)
    assert first is window.slice_at(math.nextafter(101.0, 0))
    assert first is not window.slice_at(101.0)


@pytest.mark.parametrize(("window", "edge"), [(5.0, 100.5), (10.0, 101.0), (40.0, 104.0)])
def test_a_slice_is_a_tenth_of_the_window(window, edge):
    """From one multiple of it to the next."""
    assert edge == CallWindow(window).slice_at(100.0).edge == CallWindow(window).slice_at(edge - 0.01).edge


@pytest.mark.parametrize(("window", "later"), [(5.0, 100.49), (40.0, 103.9)])
def test_retries_of_a_tenth_are_one_part(window, later):
    """And those of the next are another."""
    kept = Kept(min_per_second=10, window=window)
    for now in (100.0, later, later + window / 10):
        kept.spend(now)

    assert ((later, 2), (later + window / 10, 1)) == kept.spent.latest.parts


def test_a_refused_call_does_not_count():
    """It is taken back where it was counted."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.0, times=2)
    next(kept.window.slice_at(100.0).refused)

    assert 1 == kept.balance(100.0).calls


def test_left_is_never_below_nothing():
    """Calls go, and the retries that they allowed are still there."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.0, times=5)
    kept.spend_all(109.0)

    assert (0, 5, 0) == (kept.balance(110.0).calls, kept.balance(110.0).retries, kept.balance(110.0).left)


def test_memory_is_bounded_by_the_slices():
    """I12: whatever the traffic."""
    kept = Kept(min_per_second=1000)
    for step in range(10_000):
        kept.call(step / 100)
        kept.spend(step / 100)

    assert len(kept.window.slices) <= SLICES + 2
    assert len(kept.spent.latest.parts) <= SLICES + 1


def test_looking_changes_nothing():
    """I16: however often, and whenever."""
    kept = Kept(min_per_second=0.1)
    kept.call(100.0)
    kept.spend(100.0)
    for now in (0.0, 100.0, 105.0, 1e9):
        kept.balance(now)

    assert (1, 1, 0) == (kept.balance(101.0).calls, kept.balance(101.0).retries, kept.balance(101.0).left)


# ---------------------------------------------------------------------------------------------------- one at a time
def test_only_one_takes_the_last_retry():
    """Both saw that one was left; who comes second has to look again."""
    kept = Kept(min_per_second=0.1)
    latest, ours, theirs = kept.spent.latest, kept.balance(100.0), kept.balance(100.0)

    assert latest.follow(theirs.after_one())
    assert not latest.follow(ours.after_one())
    assert 0 == kept.balance(100.0).left


def test_an_old_record_leads_to_the_latest():
    """A thread that was held up has missed nothing."""
    kept = Kept()
    first = kept.spent
    kept.spend_all(100.0)

    assert ((100.0, 10),) == first.latest.parts
    assert kept.spent.latest is first.latest


@pytest.mark.slow
def test_a_long_chain_dies_in_peace():
    """A thread that was held up for long holds every record since: letting go of them overflows no stack."""
    first = record = Spent()
    for _ in range(300_000):
        after = Spent()
        record.follow(after)
        record = after
    del record, after
    del first

    assert not [thing for thing in gc.get_objects() if type(thing) is Spent]


def test_slices_are_found_not_made_twice():
    """Whoever comes at once counts in one slice."""
    window = CallWindow(10.0)

    assert window.slice_at(100.2) is window.slice_at(100.7)


# ---------------------------------------------------------------------------------------------------- a clock that jumps
@pytest.mark.parametrize("back", [0.5, 3.0, 50.0, 1e6])
def test_retries_of_the_future_count_as_made_now(back):
    """Nobody spends them again, and nobody waits for longer than a window."""
    kept = Kept(min_per_second=0.2)
    kept.spend_all(1e7)
    now = 1e7 - back

    assert (0, True) == (kept.balance(now).left, kept.balance(now).jumped)
    kept.spent.latest.follow(kept.balance(now).after_jump())
    assert (2, False) == (kept.balance(now).retries, kept.balance(now).jumped)
    assert 2 == kept.balance(now + 9.99).retries
    assert 0 == kept.balance(now + 10).retries


def test_a_retry_after_a_jump():
    """It takes those of the future with it."""
    kept = Kept(min_per_second=0.3)
    kept.spend(1000.0)

    assert kept.spend(500.0)
    assert ((500.0, 2),) == kept.spent.latest.parts


@pytest.mark.parametrize("back", [0.5, 3.0, 50.0, 1e6])
def test_calls_of_the_future_do_not_count(back):
    """They may be long past: nobody knows."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(1e7 + 0.9, times=100)
    now = 1e7 + 0.9 - back

    assert 0 == kept.balance(now).left


@pytest.mark.parametrize("back", [3.0, 50.0, 1e6])
def test_calls_after_a_jump_count(back):
    """In a slice of their own."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(1e7 + 0.9, times=100)
    kept.call(1e7 - back, times=2)

    assert 2 == kept.balance(1e7 - back).left


def test_calls_after_a_jump_within_a_slice():
    """They count with the others of the slice, when the clock has come to its first call again."""
    kept = Kept(ratio=1, min_per_second=0)
    kept.call(100.9, times=3)
    kept.call(100.4, times=2)

    assert [0, 5] == [kept.balance(now).left for now in (100.4, 100.9)]


@pytest.mark.parametrize("back", [3.0, 9.0, 50.0])
def test_slices_of_the_future_are_dropped(back):
    """When the clock comes there again, what they counted is not counted twice."""
    kept = Kept(ratio=1, min_per_second=0)
    for second in range(5):
        kept.call(100.0 + second, times=7)
    now = 104.0 - back
    kept.call(now)
    kept.call(104.0)

    assert 1 == next(part.calls for part in kept.window.slices if part.began == 104.0)


def test_a_slice_of_a_faster_thread_stays():
    """Somebody who read the clock a moment earlier does not throw away what is counted meanwhile."""
    kept = Kept()
    kept.call(101.0, times=3)
    kept.call(100.99)

    assert 4 == kept.balance(101.0).calls


def test_a_clock_that_jumps_ahead():
    """All is out of the window."""
    kept = Kept()
    kept.call(100.0, times=100)
    kept.spend_all(100.0)

    assert (0, 0, 10) == (kept.balance(1e6).calls, kept.balance(1e6).retries, kept.balance(1e6).left)


# ---------------------------------------------------------------------------------------------------- the promise
@given(
    ratio=st.sampled_from([0.05, 0.1, 0.2, 0.5, 1.0]),
    floor=st.sampled_from([0, 0.1, 0.25, 1]),
    window=st.sampled_from([1, 7, 10]),
    steps=st.lists(st.tuples(st.sampled_from([0, 0.05, 0.3, 1.1, 5, 12]), st.sampled_from("ccccrrr")), max_size=120),
)
def test_i13_no_window_has_more_retries_than_its_budget(ratio, floor, window, steps):
    """I13: looking back from any retry; and what a naive count of a wider window allows is never refused."""
    kept = Kept(ratio=ratio, min_per_second=floor, window=window)
    ratio, floor = Fraction(str(ratio)), Fraction(str(floor)) * window
    now, calls, retries = 50.0, [], []
    for ahead, act in steps:
        now += ahead
        if act == "c":
            kept.call(now)
            calls.append(now)
            continue
        granted = kept.spend(now)
        held = [sum(now - at < window for at in made) for made in (calls, retries)]
        if granted:
            retries.append(now)
            assert held[1] + 1 <= ratio * held[0] + floor
        else:
            slice_ = window / SLICES
            fresh = sum(now - at < window - slice_ for at in calls)
            spent = sum(now - at < window + slice_ for at in retries)
            assert spent + 1 > ratio * fresh + floor
