"""Other settings in the middle of reports: nothing is lost, and every end is one that some order of whole calls gives."""

from __future__ import annotations

import pytest
from scheduler import Race

from resilience import BreakerConfig, CircuitState, Consecutive, FailureRate, Fault, FaultKind, breaker
from resilience._core.events import Reconfigured, StateChanged

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
DOWN = Fault(FaultKind.TRANSIENT)
STREAK, TIMED = Consecutive(2), Consecutive(2, within=60)
RATE, SLOW = (FailureRate(1.0, window=30, bucket=3, min_calls=2, slow_call=slow) for slow in (None, 5))


class World:
    """A closed breaker with some failures held, and what may happen to it."""

    def __init__(self, registry, trip, held):
        self.registry, self.shared = registry, registry.breaker("api", BreakerConfig(trip))
        self.circuit, self.outbox = self.shared.circuit, registry.hub.outbox
        self.held = held
        for _ in range(held):
            self.shared.on_failure(self.shared.try_acquire(), DOWN)

    def failure(self):
        """As the compiled wrapper and its lane report it."""
        episode = self.circuit.episode
        return lambda: self.shared.count_error(episode, ConnectionError("down"), DOWN)

    def success(self):
        """As the compiled wrapper reports one that is not a mere tick."""
        episode = self.circuit.episode
        return lambda: self.shared.succeed(episode)

    def permit(self):
        """A caller that asks and reports."""

        def call():
            permit = self.shared.acquire()
            self.shared.settle(permit, self.shared.verdict(DOWN), DOWN)

        return call

    def reconfigure(self, trip):
        return lambda: self.shared.reconfigure(BreakerConfig(trip))

    def told(self):
        """What can be seen when everybody is done; a success beside the failure that opens may count, or be late."""
        view, totals = self.circuit.view, self.circuit.totals
        moves = [event.episode for event in self.outbox if type(event) is StateChanged]
        doors = bool(self.circuit.closed), bool(self.circuit.closed_windowed), bool(self.circuit.closed_timed)
        figures = view.held.figures(1000.0, totals.successes.value)
        return view.state, view.config, figures, doors, tuple(moves)


@pytest.fixture
def race(explore, quiet_registry, system_time):
    """Explore one or two reports against a change of the settings."""

    def run(before, after, held, *kinds, **options):
        def make():
            made = World(quiet_registry(), before, held)
            bodies = (*(getattr(made, kind)() for kind in kinds), made.reconfigure(after))

            def check(results):
                totals = made.circuit.totals
                assert held + len(kinds) == totals.failures.value + totals.successes.value + totals.late
                assert 1 == [type(event) for event in made.outbox].count(Reconfigured)
                clean = made.circuit.clean
                assert not clean or made.circuit.view.state is CLOSED

            return Race(bodies, (made.shared, made.outbox), check, (), lambda results: made.told())

        return explore(make, **options)

    return run


@pytest.mark.parametrize("limit", [2, 4])
@pytest.mark.parametrize("kind", ["failure", "permit"])
def test_the_failure_that_opens_against_another_limit(race, kind, limit):
    """I5: two are held of three: it is judged by the old limit or by the new one, and is counted once."""
    report = race(Consecutive(3), Consecutive(limit), 2, kind)

    assert report.schedules >= 5, report


@pytest.mark.parametrize("limit", [2, 5])
def test_a_failure_that_does_not_open(race, limit):
    """I5: it is held by the time the settings change, or comes after."""
    assert race(Consecutive(4), Consecutive(limit), 1, "failure").schedules >= 5


@pytest.mark.parametrize("limit", [2, 5])
def test_the_end_of_a_streak(race, limit):
    """A success ends it before or after; the streak that follows has the new limit."""
    assert race(Consecutive(4), Consecutive(limit), 3, "success").schedules >= 5


@pytest.mark.parametrize("kind", ["failure", "success", "permit"])
@pytest.mark.parametrize(
    ("before", "after"),
    [(STREAK, RATE), (STREAK, SLOW), (STREAK, TIMED), (RATE, STREAK), (TIMED, STREAK), (RATE, SLOW), (SLOW, RATE)],
)
def test_another_way_to_count(race, before, after, kind):
    """A report goes to the old figures or to the new ones."""
    assert race(before, after, 1, kind).schedules >= 3


@pytest.mark.parametrize("kinds", [("failure", "failure"), ("failure", "success")])
@pytest.mark.parametrize("after", [Consecutive(2), Consecutive(5), RATE])
def test_two_reports(race, kinds, after):
    """I5: three threads, at most one preemption."""
    assert race(Consecutive(3), after, 1, *kinds, preemptions=1).schedules >= 10


@pytest.mark.parametrize("before", [STREAK, RATE, SLOW])
@pytest.mark.parametrize("after", [STREAK, RATE, SLOW])
@pytest.mark.parametrize("fails", [False, True])
def test_a_compiled_wrapper(explore, quiet_registry, system_time, before, after, fails):
    """A whole call through a wrapper that was compiled for the settings of before."""

    def make():
        made = World(quiet_registry(), before, 1)

        @breaker("api", registry=made.registry)
        def send():
            if fails:
                raise ConnectionError("down")

        def call():
            try:
                send()
            except ConnectionError:
                pass

        def check(results):
            totals = made.circuit.totals
            assert 2 == totals.failures.value + totals.successes.value
            assert 0 == totals.late

        bodies = (call, made.reconfigure(after))
        return Race(bodies, (made.shared, made.outbox), check, (), lambda results: made.told())

    assert explore(make, preemptions=2).schedules >= 3
