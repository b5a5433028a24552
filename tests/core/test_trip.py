"""When failures open: the streak, with and without a time limit."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta

import pytest

from resilience._core.trip import NEVER, Consecutive, Figures, Streak, TimedStreak, Unstruck
from resilience.errors import ConfigurationError


def timed(limit, within):
    return Consecutive(limit, within=within).machine()


def fails(machine, *times):
    """What each failure answers."""
    return [machine.fail(now, 0) for now in times]


# ---------------------------------------------------------------------------------------------------- the setting
def test_defaults():
    """Five in a row, whenever they were."""
    assert (5, None, False) == (Consecutive().failures, Consecutive().within, Consecutive().windowed)


@pytest.mark.parametrize("within", [60, 60.0, timedelta(minutes=1)])
def test_within_is_seconds(within):
    """A number or a timedelta."""
    assert Consecutive(5, within=60.0) == Consecutive(5, within=within)
    assert hash(Consecutive(5, within=60.0)) == hash(Consecutive(5, within=within))


@pytest.mark.parametrize("failures", [0, -1, True, 2.0, "5", None, math.nan])
def test_bad_failures(failures):
    """A whole number of at least 1."""
    with pytest.raises(ConfigurationError, match=r"^failures must be a whole number >= 1, got "):
        Consecutive(failures)


@pytest.mark.parametrize("within", [0, -1, math.nan, math.inf, True, "60", 10**400, timedelta(0)])
def test_bad_within(within):
    """Seconds above 0."""
    with pytest.raises(ConfigurationError, match=r"^within must be a finite number of seconds > 0, got "):
        Consecutive(5, within=within)


def test_both_bad():
    """One error names both."""
    with pytest.raises(ConfigurationError) as caught:
        Consecutive(0, within=0)

    assert ["failures", "within"] == [line.split()[0] for line in caught.value.faults]


def test_frozen_and_pickled():
    """A setting is a value."""
    with pytest.raises(AttributeError):
        Consecutive().failures = 3
    assert Consecutive(3, within=2) == pickle.loads(pickle.dumps(Consecutive(3, within=2)))


@pytest.mark.parametrize(("within", "kind"), [(None, Streak), (5, TimedStreak)])
def test_machines(within, kind):
    """Each call makes a machine of its own."""
    setting = Consecutive(3, within=within)

    assert kind is type(setting.machine())
    assert setting.machine() is not setting.machine()


def test_every_accepted_number_makes_a_machine():
    """I20: a number that is accepted must work, however large."""
    assert not Consecutive(10**30, within=60).machine().fail(0.0, 0)


# ---------------------------------------------------------------------------------------------------- the streak
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_nth_opens(limit):
    """I5: the N-th failure in a row, not one before."""
    assert [False] * (limit - 1) + [True] == fails(Streak(limit), *range(limit))


def test_without_a_limit_age_does_not_matter():
    """A streak may take years."""
    assert [False, True] == fails(Streak(2), 0, 1e9)


@pytest.mark.parametrize("end", [lambda streak: streak.succeed(0, 1), lambda streak: streak.answered()])
def test_a_streak_ends(end):
    """A success or an answer starts the count anew, and neither opens."""
    streak = Streak(2)
    streak.fail(0, 0)

    assert not end(streak)
    assert [False, True] == fails(streak, 0, 0)


def test_clean_streak():
    """Nothing to end: for the episode it was told, until a strike, and from the next success on."""
    streak = Streak(3)
    assert (False, NEVER, 0) == (streak.clean, streak.edge, streak.episode)
    streak.episode = 7
    streak.succeed(0, 0)
    assert 7 == streak.strikes.clean
    fails(streak, 0)
    assert 0 == streak.strikes.clean
    streak.succeed(0, 0)

    assert (True, NEVER, streak) == (streak.clean, streak.edge, streak.streak)


@pytest.mark.parametrize(("holder", "limit"), [(lambda: Streak(3), 3), (Unstruck, 0)], ids=["streak", "unstruck"])
def test_strikes_at_the_beginning(holder, limit):
    """Whoever holds them knows the limit, 0 where failures are not counted; no success may pass until one is told so."""
    held = holder()

    assert (limit, 0, 0) == (held.limit, held.strikes.clean, held.strikes.value)


def test_figures_of_a_streak():
    """The failures held, as calls too, and no rate."""
    streak = Streak(3)
    held = streak.held
    fails(streak, 0, 0)

    assert Figures(2, 2, None) == held.figures(0, 0) == streak.held.figures(1e9, 99)
    assert Figures(3, 3, None) == streak.tripped(0, 0)


def test_figures_stop_before_the_limit():
    """A closed circuit never shows what would have opened it."""
    streak = Streak(2)
    fails(streak, 0, 0, 0)

    assert Figures(1, 1, None) == streak.held.figures(0, 0)


def test_figures_follow_the_streak():
    """A strike that is counted without the lock shows at once, and so does the end of the streak."""
    streak = Streak(3)
    held = streak.held
    next(streak.strikes.ticks)
    assert Figures(1, 1, None) == held.figures(0, 0)
    streak.answered()

    assert Figures(0, 0, None) == held.figures(0, 0)


def test_another_episode_has_another_streak():
    """What is still on its way to the old one reaches nobody."""
    streak = Streak(3)

    assert streak is not streak.renewed(0)
    assert Figures(0, 0, None) == streak.renewed(0).held.figures(0, 0)


# ---------------------------------------------------------------------------------------------------- within
def test_aged_exactly_within():
    """An entry aged exactly `within` still counts."""
    assert [False, True] == fails(timed(2, 60), 0, 60)
    assert [False, False] == fails(timed(2, 60), 0, math.nextafter(60, 61))


def test_four_at_0_and_one_at_70():
    """They count as 1."""
    streak = timed(5, 60)

    assert [False] * 5 == fails(streak, 0, 0, 0, 0, 70)
    assert Figures(1, 1, None) == streak.held.figures(70, 0)


def test_a_true_sliding_window():
    """Any N failures inside the time open, not only those of one block of it."""
    assert [False, False, False, True] == fails(timed(3, 10), 0, 7, 11, 12)


@pytest.mark.parametrize("end", [lambda streak: streak.succeed(5, 1), lambda streak: streak.answered()])
def test_success_clears_the_times(end):
    """A success between them clears what was held, however young."""
    streak = timed(2, 60)
    streak.fail(0, 0)

    assert not end(streak)
    assert [False, True] == fails(streak, 6, 7)


def test_the_window_still_slides_after_a_success():
    """Failures too old to count with the newest are forgotten in the second streak as in the first."""
    streak = timed(2, 10)
    streak.succeed(0, 1)

    assert [False, False, True] == fails(streak, 1, 20, 21)


def test_clean_timed_streak():
    """Clean while nothing is held."""
    streak = timed(2, 60)
    assert (True, NEVER, None) == (streak.clean, streak.edge, streak.streak)
    streak.fail(0, 0)
    assert streak.clean is False
    streak.renewed(0)

    assert streak.clean is True


@pytest.mark.parametrize(("now", "held"), [(4, 3), (10, 3), (10.5, 2), (14, 1), (14.5, 0), (1e9, 0)])
def test_figures_get_older(now, held):
    """Read later, only what still lies inside counts."""
    streak = timed(5, 10)
    fails(streak, 0, 1, 4)

    assert Figures(held, held, None) == streak.held.figures(now, 0)


def test_frozen_figures():
    """What comes later is no part of figures taken before, nor is a streak that begins afterwards."""
    streak = timed(5, 10)
    fails(streak, 0, 1)
    held = streak.held
    fails(streak, 1, 2)
    assert Figures(2, 2, None) == held.figures(2, 0)
    streak.renewed(0)
    streak.fail(3, 0)

    assert Figures(2, 2, None) == held.figures(2, 0)


def test_figures_at_the_trip():
    """All that opened it."""
    streak = timed(3, 10)
    fails(streak, 0, 5, 10)

    assert Figures(3, 3, None) == streak.tripped(10, 0)


def test_figures_of_nothing():
    """Nothing held, nothing shown."""
    assert Figures(0, 0, None) == timed(3, 10).held.figures(0, 0)


def test_figures_are_held_figures():
    """Figures that stay as they are can be read like any others."""
    assert Figures(3, 4, 0.75) == Figures(3, 4, 0.75).figures(1e9, 17)
