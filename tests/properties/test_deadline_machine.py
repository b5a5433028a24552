"""Nested deadlines against a naive reading: look at every scope around the caller each time.

Scopes are entered in several contexts, as tasks and workers do, and left in any order.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from math import inf

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from resilience._context import DEADLINE, detached, remaining_at
from resilience._core import deadline as deadlines
from resilience._core.deadline import AttemptDeadline, Deadline, fixed_deadline
from resilience._words import TimeoutScope

picks = st.integers(0, 99)
# Exact in binary, so that a sum of them is exact.
lengths = st.sampled_from([0.25, 0.5, 1.0, 2.0, 2.0, 8.0])


class Scope:
    """What the model remembers of a scope."""

    def __init__(self, real, around, ends, length, budget, counts):
        self.real = real
        self.around = around
        self.ends = ends
        self.length = length
        self.budget = budget
        self.counts = counts
        self.left = False
        self.fired = False

    def all_around(self):
        """This scope and those around it, innermost first, without those that have been left."""
        found = [] if self.around is None else self.around.all_around()
        return found if self.left else [self, *found]


class Place:
    """A task or a thread: its context, and the innermost scope there."""

    def __init__(self, context, scope=None):
        self.context = context
        self.scope = scope


class Nesting(RuleBasedStateMachine):
    """Scopes entered and left in several contexts while time passes."""

    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.scopes = []
        self.places = [Place(Context())]

    def place(self, pick):
        return self.places[pick % len(self.places)]

    @rule(where=picks, length=lengths, sort=st.sampled_from(["budget", "attempt", "fixed"]), counts=st.booleans())
    def enter(self, where, length, sort, counts):
        place = self.place(where)
        outer = place.context.run(DEADLINE.get)
        if sort == "fixed":
            real = fixed_deadline(length, counts)()
            real.started, real.left = self.now, False
            if outer is not None:
                real.outer = outer
        else:
            real = (AttemptDeadline if sort == "attempt" else Deadline)(length, self.now, outer)
            real.counts = counts
        place.context.run(DEADLINE.set, real)
        place.scope = Scope(real, place.scope, self.now + length, length, sort != "attempt", counts)
        self.scopes.append(place.scope)

    @precondition(lambda self: self.scopes)
    @rule(pick=picks)
    def leave(self, pick):
        """Any of them, also an outer one first; who is still inside keeps its node."""
        scope = self.scopes[pick % len(self.scopes)]
        scope.left = scope.real.left = True
        for place in self.places:
            if place.scope is scope:
                place.scope = scope.around
                place.context.run(DEADLINE.set, scope.real.outer)
                break

    @rule(where=picks)
    def start_a_task(self, where):
        """It inherits what is around its creator."""
        place = self.place(where)
        if len(self.places) < 4:
            self.places.append(Place(place.context.run(copy_context), place.scope))

    @precondition(lambda self: self.scopes)
    @rule(pick=picks)
    def fire(self, pick):
        scope = self.scopes[pick % len(self.scopes)]
        scope.fired = scope.real.fired = True

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 4.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(where=picks, length=lengths)
    def shed_them(self, where, length):
        """Inside `detached` there is none but those that are entered there."""

        def inside():
            before = DEADLINE.get()
            with detached():
                assert remaining_at(self.now) is None
                DEADLINE.set(Deadline(length, self.now, DEADLINE.get()))
                assert length == remaining_at(self.now)
            assert DEADLINE.get() is before

        self.place(where).context.run(inside)

    @invariant()
    def seen_from_every_place(self):
        """The seconds left are those of the first scope to end around the caller."""
        for place in self.places:
            around = [] if place.scope is None else place.scope.all_around()
            least = min((scope.ends - self.now for scope in around), default=None)
            assert least == place.context.run(remaining_at, self.now)

    @invariant()
    def seen_from_every_scope(self):
        """Nearest, past, fired and the chain, as all scopes around say together."""
        for scope in self.scopes[-8:]:
            around = scope.all_around()
            real = scope.real
            assert [each.real for each in around] == list(deadlines.chain(real))
            first = min((each.ends for each in around), default=inf)
            nearest = next((each.real for each in reversed(around) if each.ends == first), None)
            assert nearest is deadlines.nearest(real)
            assert (None if nearest is None else first - self.now) == deadlines.remaining(real, self.now)
            assert any(each.ends <= self.now for each in around) is deadlines.is_past(real, self.now)
            assert next((each.real for each in around if each.fired), None) is deadlines.fired(real)

    @invariant()
    def a_scope_keeps_what_it_is(self):
        """Its end, its sort and whether it counts do not change with what goes on around it."""
        for scope in self.scopes:
            assert (scope.ends, not scope.left) == (scope.real.expires, scope.real.active)
            assert (TimeoutScope.BUDGET if scope.budget else TimeoutScope.ATTEMPT) is scope.real.scope

    @precondition(lambda self: self.scopes)
    @rule(pick=picks, in_flight=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 4.0]), per_attempt=st.none() | lengths)
    def what_an_expiry_proves(self, pick, in_flight, per_attempt):
        """P17: in flight for half of the limit, or of the attempt's own where that is shorter, if it counts at all."""
        scope = self.scopes[pick % len(self.scopes)]
        needed = min(scope.length / 2, inf if per_attempt is None else per_attempt / 2)
        expected = scope.counts and in_flight >= needed
        assert expected is deadlines.is_evidence(scope.real, in_flight, per_attempt)


# Without explaining: that takes minutes, and the shortest story says enough.
SETTINGS = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def test_deadlines_in_any_order():
    """However scopes are nested, inherited and left: the nearest one in force decides."""
    run_state_machine_as_test(Nesting, settings=SETTINGS)
