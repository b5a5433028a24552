"""The retry budget, on which nobody waits: spending against spending, and against calls that begin a slice of time."""

from __future__ import annotations

import pytest
from scheduler import Race

from resilience import RetryBudget
from resilience._policies.retry_budget import SharedRetryBudget
from resilience.testing import ManualClock


class World:
    """A budget, with some calls counted."""

    def __init__(self, registry, clock, calls=0, **settings):
        self.registry, self.clock = registry, clock
        self.shared = SharedRetryBudget("api", RetryBudget(**settings), registry)
        self.shared.publish_slots(False)
        for _ in range(calls):
            self.shared.begin_call()

    @property
    def watched(self):
        return (self.shared,)

    @property
    def figures(self):
        status = self.shared.status()
        return status.calls, status.retries, status.left


@pytest.fixture
def world(quiet_registry):
    """`world(calls, **settings)`: a fresh one."""

    def make(*args, **settings):
        clock = ManualClock(1000.0)
        return World(quiet_registry(clock), clock, *args, **settings)

    return make


@pytest.mark.parametrize(("left", "spenders"), [(1, 2), (2, 2), (1, 3), (2, 3)])
def test_no_two_take_the_same_retry(explore, world, left, spenders):
    """I13: of those who come at once exactly as many get one as there are left, in every interleaving."""

    def make():
        made = world(min_per_second=left / 10)

        def check(results):
            granted = min(left, spenders)
            assert granted == sum(results), f"{sum(results)} of {left} granted"
            assert (0, granted, left - granted) == made.figures

        return Race((made.shared.spend,) * spenders, made.watched, check)

    report = explore(make, preemptions=None if spenders == 2 else 3)

    assert report.schedules >= 4, report


def test_two_calls_that_begin_a_slice(explore, world):
    """Both are counted, in one slice."""

    def make():
        made = world()

        def check(results):
            assert (2, 0, 10) == made.figures
            assert 1 == len({id(part) for part in results})

        return Race((made.shared.begin_call,) * 2, made.watched, check)

    report = explore(make)

    assert report.schedules >= 2, report


@pytest.mark.parametrize("calls", [0, 1])
def test_a_call_against_a_retry(explore, world, calls):
    """The call counts whether or not it came in time to earn the retry."""

    def make():
        made = world(calls, ratio=0.5, min_per_second=0)

        def check(results):
            assert calls + 1 == made.figures[0]
            assert int(results[1]) == made.figures[1] <= (calls + 1) // 2

        return Race((made.shared.begin_call, made.shared.spend), made.watched, check)

    report = explore(make)

    assert (2 if calls else 1) == len(report.outcomes), report


def test_a_slice_that_begins_against_a_retry(explore, world):
    """What goes out of the window, and what comes into it, while somebody spends."""

    def make():
        made = world(4, ratio=0.25, min_per_second=0)
        made.clock.advance(9.5)

        def later():
            made.clock.advance(1)
            return made.shared.begin_call()

        def check(results):
            assert 1 == made.figures[0]
            assert int(results[1]) == made.figures[1] <= 1

        return Race((later, made.shared.spend), made.watched, check)

    report = explore(make)

    assert 2 == len(report.outcomes), report


def test_two_who_find_that_the_clock_has_jumped_back(explore, world):
    """I13: what was spent ahead of it stays spent, once."""

    def make():
        made = world(min_per_second=0.3)
        made.shared.spend()
        made.registry.clock = ManualClock(500.0)

        def check(results):
            assert [True, True] == results
            assert (0, 3, 0) == made.figures

        return Race((made.shared.spend,) * 2, made.watched, check)

    report = explore(make)

    assert report.schedules >= 4, report
