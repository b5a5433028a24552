"""The machines against a naive reading of the contract, on sequences nobody would think of.

The references keep every result and look at all of them each time. The straight path is
played as the compiled wrappers do it: the door's episode first, then one counter where
the circuit says that this is enough.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resilience._core import events as ev
from resilience._core.circuit import Circuit
from resilience._core.config import BreakerConfig
from resilience._core.faults import Fault
from resilience._core.permit import Permit
from resilience._core.transitions import TRANSITIONS, Input
from resilience._core.trip import Consecutive, Figures
from resilience._core.window import FailureRate
from resilience._words import BreakerMode, CircuitState, FaultKind, ProbeEnd, Verdict

CLOSED, OPEN, HALF_OPEN = CircuitState
NORMAL, FORCED, DISABLED, SHADOW = tuple(BreakerMode)[:4]
SUCCESS, FAILURE, ANSWERED, NEUTRAL = Verdict
TRANSIENT = Fault(FaultKind.TRANSIENT)
SLOW = "slow"
"""A success that took exactly as long as a slow one must; to a breaker that does not look, a success."""


def said(config, verdict):
    """What is reported: the verdict, and how long the attempt took; any other success is as slow as it may be."""
    limit = config.trip.slow_from
    if verdict is SLOW:
        return SUCCESS, 1.0 if limit == math.inf else limit
    return verdict, 0.0 if limit == math.inf else math.nextafter(limit, 0)


# ---------------------------------------------------------------------------------------------------- the contract, read naively
def figures_of(config, history, now):
    """What counts at `now` of the results (time, verdict) of one closed episode."""
    trip = config.trip
    if isinstance(trip, Consecutive):
        streak = []
        for at, verdict in history:
            if verdict is FAILURE:
                streak.append(at)
            elif verdict in (SUCCESS, SLOW) or config.answered == "reset":
                streak = []
        held = sum(1 for at in streak if trip.within is None or now - at <= trip.within)
        # Within a time no more are remembered than would open.
        held = held if trip.within is None else min(held, trip.failures)
        return Figures(held, held, None)
    oldest = math.floor(now / trip.bucket) - round(trip.window / trip.bucket) + 1
    inside = [v for at, v in history if math.floor(at / trip.bucket) >= oldest and v is not ANSWERED]
    failures = inside.count(FAILURE)
    shares = [inside.count(verdict) / len(inside) if inside else 0.0 for verdict in (FAILURE, SLOW)]
    if trip.slow_call is None:
        return Figures(failures, len(inside), shares[0])
    return Figures(failures, len(inside), shares[0], inside.count(SLOW), shares[1])


def opens(config, history):
    """Whether the last of the results opens the circuit."""
    trip, (now, last) = config.trip, history[-1]
    failures, calls, rate, _, slow_rate = figures_of(config, history, now)
    if last is ANSWERED:
        return False
    if isinstance(trip, Consecutive):
        return last is FAILURE and failures >= trip.failures
    return calls >= trip.min_calls and (rate >= trip.rate or (slow_rate is not None and slow_rate >= trip.slow_rate))


@dataclass(eq=False)
class Ticket:
    """What the contract remembers of a permit."""

    episode: int
    probe: bool = False
    exempt: bool = False
    settled: bool = False
    leased_at: float = 0.0
    lease: float = 0.0


@dataclass
class Model:
    """A breaker as the contract describes it."""

    config: BreakerConfig
    state: CircuitState = CLOSED
    mode: BreakerMode = NORMAL
    episode: int = 1
    opened_at: float = 0.0
    open_for: float | None = 0.0
    history: list = field(default_factory=list)
    frozen: Figures | None = None
    probes: list = field(default_factory=list)
    good_probes: int = 0
    ramp: float = 0.0
    ramp_from: float | None = None
    credit: float = 0.0
    counts: Tally = field(default_factory=Tally)
    moves: list = field(default_factory=list)

    def __post_init__(self):
        self.mode = self.own_mode

    @property
    def own_mode(self):
        return SHADOW if self.config.shadow else NORMAL

    def figures(self, now):
        return figures_of(self.config, self.history, now) if self.state is CLOSED else self.frozen

    def move(self, cause, now, open_for=None, held=None):
        after = TRANSITIONS[self.state, cause]
        self.moves.append((self.state, after, cause.value))
        if self.state is CLOSED and after is not CLOSED:
            self.frozen = held
        self.counts["released"] += len(self.probes)
        self.probes, self.good_probes, self.history, self.ramp_from = [], 0, [], None
        if cause is Input.PROBES_SUCCEEDED and self.config.ramp:
            self.ramp, self.ramp_from, self.credit = self.config.ramp, now, 1.0
        if after is OPEN:
            self.opened_at, self.open_for = now, open_for
        self.state = after
        self.episode += 1

    def open_time(self, fault):
        config, hint = self.config, fault and fault.retry_after
        if hint is None or not config.honour_retry_after or hint <= config.cooldown:
            return config.cooldown
        return min(hint, config.max_cooldown)

    def acquire(self, lease, now):
        """A ticket, or the wait of the refusal."""
        if self.state is CLOSED:
            wait = self.ramp_wait(now)
            if wait is not None and self.mode is not SHADOW:
                return wait
            self.counts["would_refuse"] += wait is not None
            return Ticket(self.episode, exempt=self.mode is DISABLED or wait is not None)
        if self.state is OPEN and self.open_for is not None and now - self.opened_at >= self.open_for:
            self.move(Input.COOLED, now)
            self.mode = self.own_mode if self.mode is FORCED else self.mode
        if self.state is OPEN:
            wait = math.inf if self.open_for is None else self.open_for - (now - self.opened_at)
        else:
            live = [probe for probe in self.probes if now - probe.leased_at < probe.lease]
            if len(live) < self.config.half_open_probes:
                self.counts["released"] += len(self.probes) - len(live)
                self.counts["started"] += 1
                self.probes = live
                lease = max(lease, self.config.probe_lease)
                live.append(Ticket(self.episode, probe=True, leased_at=now, lease=lease))
                return live[-1]
            rests = sorted(probe.lease - (now - probe.leased_at) for probe in live)
            wait = rests[len(rests) - self.config.half_open_probes]
        if self.mode is SHADOW:
            self.counts["would_refuse"] += 1
            return Ticket(self.episode, exempt=True)
        return wait

    def ramp_wait(self, now):
        """The rest of the ramp for an ask that it does not let through."""
        if self.ramp_from is None:
            return None
        gone = now - self.ramp_from
        if gone >= self.ramp:
            self.ramp_from = None
            return None
        self.credit += gone / self.ramp
        if self.credit < 1:
            return self.ramp - gone
        self.credit -= 1
        return None

    def settle(self, ticket, verdict, fault, now):
        if ticket.settled or ticket.exempt:
            return
        ticket.settled = True
        live = ticket in self.probes
        if live:
            self.probes.remove(ticket)
        if verdict is NEUTRAL:
            self.counts["released"] += live
        elif ticket.episode != self.episode:
            self.counts["late"] += 1
        else:
            self.counts[SUCCESS if verdict is SLOW else verdict] += 1
            slow = verdict is SLOW and self.config.trip.slow_from < math.inf
            self.counts[SLOW] += slow
            if ticket.probe:
                self.settle_probe(live, FAILURE if slow else verdict, fault, now)
            else:
                # What is to be ignored is not even remembered: other settings may think of it otherwise.
                if verdict is not ANSWERED or self.config.answered == "reset":
                    self.history.append((now, SUCCESS if verdict is SLOW and not slow else verdict))
                if verdict is not ANSWERED and opens(self.config, self.history):
                    held = figures_of(self.config, self.history, now)
                    self.move(Input.TRIPPED, now, self.open_time(fault), held)

    def settle_probe(self, live, verdict, fault, now):
        if not live:
            self.counts["late"] += 1
            self.counts["late_accepted"] += 1
        if verdict is FAILURE:
            self.counts["failed"] += live
            self.move(Input.PROBE_FAILED, now, self.open_time(fault))
            return
        self.counts["succeeded"] += live
        self.good_probes += 1
        if self.good_probes >= self.config.half_open_successes:
            self.move(Input.PROBES_SUCCEEDED, now)

    def reconfigure(self, config, now):
        """Other settings; what counts the same way goes on counting."""
        before, after = self.config.trip, config.trip
        if type(before) is not type(after) or (
            (before.within is None) is not (after.within is None)
            if isinstance(after, Consecutive)
            else before.bucket != after.bucket
        ):
            self.history = []
        elif before != after and isinstance(after, FailureRate):
            for trip in (before, after):
                oldest = math.floor(now / trip.bucket) - round(trip.window / trip.bucket) + 1
                self.history = [result for result in self.history if math.floor(result[0] / trip.bucket) >= oldest]
        elif before != after and after.within is not None:
            since = max((at + 1 for at, (_, v) in enumerate(self.history) if v is not FAILURE), default=0)
            self.history = self.history[since:][-min(before.failures, after.failures) :]
        self.config = config
        self.mode = self.own_mode if self.mode in (NORMAL, SHADOW) else self.mode

    def act(self, cause, now, seconds=None):
        """An operator's act."""
        if cause is Input.RESET and self.state is CLOSED:
            return
        if cause is Input.DISABLED and self.mode is DISABLED:
            return
        if cause is Input.ENABLED and self.mode not in (FORCED, DISABLED):
            return
        self.mode = {Input.FORCED: FORCED, Input.DISABLED: DISABLED}.get(cause, self.own_mode)
        self.move(cause, now, seconds, figures_of(self.config, self.history, now))


def totals_of(circuit):
    totals = circuit.totals
    return {
        SUCCESS: totals.successes.value,
        SLOW: totals.slow,
        FAILURE: totals.failures.value,
        ANSWERED: totals.answered,
        "late": totals.late,
        "late_accepted": totals.late_accepted,
        "would_refuse": totals.would_refuse,
        "started": totals.probes_started,
        "succeeded": totals.probes_succeeded,
        "failed": totals.probes_failed,
        "released": totals.probes_released,
    }


def moment(circuit, now):
    """Everything there is to see of a circuit, but its events."""
    view = circuit.view
    held = view.held.figures(now, circuit.totals.successes.value)
    return totals_of(circuit), view[:-1], held, circuit.last_failure, circuit.refusal(now)


def pass_straight(circuit, episode, verdict, now, fault=TRANSIENT):
    """Report on a call that the door let through in `episode`, as a compiled wrapper does."""
    verdict, took = said(circuit._config, verdict)
    if verdict is SUCCESS:
        if circuit.clean == episode and now < circuit.edge and took < circuit.slow_from:
            circuit.totals.successes.tick()
        elif not circuit.end_streak(episode):
            circuit.record(episode, SUCCESS, took=took, now=now)
    elif verdict is FAILURE:
        at_limit = circuit.strike(episode, fault, 0)
        if at_limit is None:
            circuit.record(episode, FAILURE, fault, now=now)
        elif at_limit:
            circuit.strike_out(episode, at_limit, fault, now=now)
    else:
        circuit.record(episode, verdict, None if verdict is NEUTRAL else fault, now=now)


# ---------------------------------------------------------------------------------------------------- settings to try
streaks = st.builds(Consecutive, st.integers(1, 4), within=st.sampled_from([None, None, 2.0, 5.0]))


slowness = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"slow_call": st.sampled_from([0.1, 2.0])}, optional={"slow_rate": st.sampled_from([0.2, 0.5, 1.0])}
    ),
)


@st.composite
def rates(draw):
    bucket = draw(st.sampled_from([0.1, 0.3, 0.7, 1.0, 1 / 3, 3.0]))
    return FailureRate(
        draw(st.sampled_from([0.1, 0.3, 1 / 3, 0.5, 2 / 3, 1.0])),
        window=bucket * draw(st.integers(1, 5)),
        bucket=bucket,
        min_calls=draw(st.integers(1, 6)),
        **draw(slowness),
    )


configs = st.builds(
    BreakerConfig,
    st.one_of(streaks, rates()),
    cooldown=st.sampled_from([0.5, 4.0]),
    half_open_probes=st.integers(1, 3),
    half_open_successes=st.integers(1, 3),
    answered=st.sampled_from(["reset", "ignore"]),
    probe_lease=st.sampled_from([0.5, 8.0]),
    max_cooldown=st.sampled_from([4.0, 6.0]),
    honour_retry_after=st.booleans(),
    shadow=st.sampled_from([False, False, False, True]),
    ramp=st.sampled_from([None, None, 0.75, 6.0]),
)
# Exact in binary, so that a wait added to a time is that time later.
steps = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.75, 4.0, 8.0])
verdicts = st.sampled_from([FAILURE, FAILURE, FAILURE, SUCCESS, SUCCESS, SLOW, ANSWERED, NEUTRAL])
faults = st.sampled_from(
    [TRANSIENT, TRANSIENT, *(Fault(FaultKind.DOWNSTREAM, retry_after=s) for s in (1.0, 5.0, 99.0))]
)


# ---------------------------------------------------------------------------------------------------- the whole circuit
class WholeCircuit(RuleBasedStateMachine):
    """Every act there is, in any order, on a circuit and on the contract."""

    permits = Bundle("permits")
    reported = Bundle("reported")
    flights = Bundle("flights")

    @initialize(config=configs, start=st.sampled_from([0.0, 1_000.25]))
    def begin(self, config, start):
        self.config, self.now = config, start
        self.circuit, self.model = Circuit(config), Model(config)
        self.given = []
        self.moves = []
        self.probe_events = Tally()
        self.last_cause = None
        self.promised = config.half_open_probes

    # -------------------------------------------------------------------------- acts
    @rule(target=permits, lease=st.sampled_from([0.0, 0.0, 12.0]))
    def acquire(self, lease):
        pair = self.ask(lease)
        return multiple() if pair is None else pair

    def ask(self, lease=0.0):
        foreseen = self.circuit.refusal(self.now)
        at_the_door = self.refused_at_the_door()
        permit, ticket = self.circuit.acquire(lease, now=self.now), self.model.acquire(lease, self.now)
        if not isinstance(permit, Permit):
            assert ticket == permit
            assert foreseen == (None if self.model.state is CLOSED else permit)
            return None
        assert foreseen is None
        assert not at_the_door
        assert (ticket.episode, ticket.probe, ticket.exempt) == (permit.episode, permit.probe, permit.exempt)
        assert ticket.lease == permit.lease
        self.given.append((permit, ticket))
        return permit, ticket

    @rule(target=reported, pair=consumes(permits), verdict=verdicts, fault=faults, end=st.sampled_from(ProbeEnd))
    def settle(self, pair, verdict, fault, end):
        self.report(*pair, verdict, fault, end)
        return pair

    def report(self, permit, ticket, verdict, fault=TRANSIENT, end=ProbeEnd.NEUTRAL):
        before = moment(self.circuit, self.now)
        late = permit.episode != self.circuit.episode and not permit.settled and not permit.exempt
        told, took = said(self.config, verdict)
        fault = None if told is SUCCESS else fault
        self.circuit.settle(permit, told, fault, end, took, now=self.now)
        self.model.settle(ticket, verdict, fault, self.now)
        if verdict is NEUTRAL and not permit.probe:
            assert before == moment(self.circuit, self.now), "I4"
        if late:
            gained = {"late": before[0]["late"] + (verdict is not NEUTRAL)}
            assert (before[0] | gained, *before[1:]) == moment(self.circuit, self.now), "I6"

    @rule(pair=reported, verdict=verdicts)
    def settle_again(self, pair, verdict):
        before = moment(self.circuit, self.now)
        told, took = said(self.config, verdict)
        self.circuit.settle(pair[0], told, TRANSIENT, took=took, now=self.now)
        assert before == moment(self.circuit, self.now), "I8"

    @rule(target=flights)
    def pass_the_door(self):
        """A wrapper reads the door; closed to it, the call takes another way."""
        return self.door() or multiple()

    def door(self):
        return self.circuit.passing

    @rule(episode=consumes(flights), verdict=verdicts, fault=faults)
    def return_straight(self, episode, verdict, fault):
        pass_straight(self.circuit, episode, verdict, self.now, fault)
        self.model.settle(Ticket(episode), verdict, None if verdict in (SUCCESS, SLOW) else fault, self.now)

    @rule(outcomes=st.lists(verdicts, min_size=2, max_size=8), fault=faults)
    def a_busy_moment(self, outcomes, fault):
        """Several straight calls in a row, as far as the door stays open."""
        for verdict in outcomes:
            if self.door():
                self.return_straight(self.door(), verdict, fault)

    @rule(outcomes=st.lists(verdicts, min_size=1, max_size=4), fault=faults)
    def asking_callers(self, outcomes, fault):
        """Several calls that ask for a permit in a row."""
        for verdict in outcomes:
            pair = self.ask()
            if pair is not None:
                self.report(*pair, verdict, fault)

    @precondition(lambda self: self.model.state is CLOSED and self.model.mode is not DISABLED)
    @precondition(lambda self: self.model.ramp_from is None)
    @rule(target=flights, fault=faults)
    def an_outage(self, fault):
        """I5: with nothing else in the window it opens at the N-th failure at the latest."""
        trip, in_flight = self.config.trip, self.door()
        if trip.windowed:
            self.now += math.ceil(trip.window + trip.bucket)
        for _ in range(trip.min_calls if trip.windowed else trip.failures):
            if self.model.state is CLOSED:
                self.report(*self.ask(), FAILURE, fault)
        assert OPEN is self.circuit.view.state, "I5"
        return in_flight or multiple()

    @rule(seconds=steps)
    def time_passes(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.circuit.refusal(self.now) not in (None, math.inf))
    @rule(target=permits)
    def wait_as_told(self):
        """A caller that waits as long as it was told is not told to wait again."""
        self.now += self.circuit.refusal(self.now)
        assert self.circuit.refusal(self.now) is None
        return self.ask()

    @precondition(lambda self: self.model.probes)
    @rule(target=permits, verdict=st.none() | verdicts, fault=faults)
    def a_probe_is_lost(self, verdict, fault):
        """Its lease runs out and another caller takes its place, unless more are out; then it reports all the same, or not."""
        lost = next(pair for pair in self.given if pair[1] in self.model.probes)
        self.now = max(self.now, lost[1].leased_at + lost[1].lease)
        other = self.ask()
        assert lost[1] not in self.model.probes or self.circuit.refusal(self.now) is not None
        if verdict is not None:
            self.report(*lost, verdict, fault)
        return other

    @rule(
        act=st.sampled_from(["reset", "force", "force", "disable", "enable"]), seconds=st.sampled_from([None, 0.5, 6.0])
    )
    def operator(self, act, seconds):
        circuit, now = self.circuit, self.now
        if act == "reset":
            assert circuit.reset(now=now) is (self.model.state is not CLOSED)
            self.model.act(Input.RESET, now)
        elif act == "force":
            circuit.force_open("test", seconds, now=now)
            self.model.act(Input.FORCED, now, seconds)
        elif act == "disable":
            circuit.disable(now=now)
            self.model.act(Input.DISABLED, now)
        else:
            circuit.enable(now=now)
            self.model.act(Input.ENABLED, now)

    @rule(config=configs)
    def other_settings(self, config):
        """As one change, which moves nothing."""
        self.circuit.reconfigure(config, now=self.now)
        self.model.reconfigure(config, self.now)
        self.config = config
        self.promised = max(self.promised, config.half_open_probes)

    @precondition(lambda self: self.model.mode is DISABLED)
    @rule()
    def enable(self):
        """Nothing happens while it is disabled, so that does not last long."""
        self.operator("enable", None)

    # -------------------------------------------------------------------------- what always holds
    @invariant()
    def as_the_contract_says(self):
        """Same state, mode and episode; I5: each move with one event."""
        view, model = self.circuit.view, self.model
        assert (model.state, model.mode, model.episode) == view[:3]
        if model.state is OPEN:
            assert (model.opened_at, model.open_for) == (view.opened_at, view.open_for)
        self.read_events()
        assert model.moves == self.moves

    @invariant()
    def figures_agree(self):
        """Status: what would count now while closed, as at the trip while not; read twice, the same."""
        successes = self.circuit.totals.successes.value
        read = [self.circuit.view.held.figures(self.now, successes) for _ in range(2)]
        assert [self.model.figures(self.now)] * 2 == read

    @invariant()
    def totals_agree(self):
        """I15, and every other count."""
        totals = totals_of(self.circuit)
        assert {name: self.model.counts[name] for name in totals} == totals
        ended = totals["succeeded"] + totals["failed"] + totals["released"]
        assert totals["started"] == ended + len(self.circuit.view.probes)
        names = {"started": ev.ProbeStarted, "succeeded": ev.ProbeSucceeded, "failed": ev.ProbeFailed}
        names |= {"released": ev.ProbeReleased, "late": ev.LateResult}
        assert {name: totals[name] for name in names} == {name: self.probe_events[kind] for name, kind in names.items()}

    @invariant()
    def never_too_many_probes(self):
        """I1, from what callers hold."""
        out = [
            permit
            for permit, _ in self.given
            if permit.probe and not permit.settled and permit.episode == self.circuit.episode
            if self.now - permit.leased_at < permit.lease
        ]
        # Probes that were let go under other settings keep their leases.
        assert len(out) <= self.promised

    @invariant()
    def a_success_may_skip_only_where_it_changes_nothing(self):
        """`clean` is never wrong: with it, and before the edge, one more success ends no streak and opens nothing."""
        circuit, model = self.circuit, self.model
        if not circuit.clean or self.now >= circuit.edge:
            return
        assert (CLOSED, circuit.clean) == (model.state, model.episode)
        assert model.mode in (NORMAL, SHADOW)
        after = [*model.history, (self.now, SUCCESS)]
        assert not opens(self.config, after)
        if isinstance(self.config.trip, Consecutive):
            assert FAILURE not in [v for _, v in model.history[self.last_end(model) :]]

    @invariant()
    def the_door_tells_no_lies(self):
        """Refused at the door is refused by the machine; the straight door opens on a closed circuit that decides by itself."""
        circuit, model = self.circuit, self.model
        refusing = model.state is OPEN and model.mode is not SHADOW and circuit.refusal(self.now) is not None
        assert refusing is self.refused_at_the_door()
        deciding = model.state is CLOSED and model.mode in (NORMAL, SHADOW) and model.ramp_from is None
        passing = model.episode if deciding else 0
        trip = self.config.trip
        door = 0 if isinstance(trip, Consecutive) else 1 if trip.slow_call is None else 2
        doors = [circuit.closed, circuit.closed_windowed, circuit.closed_timed]
        assert passing == circuit.passing == doors.pop(door)
        assert [0, 0] == doors

    # -------------------------------------------------------------------------- reading
    def refused_at_the_door(self):
        left = self.circuit.open_until - self.now
        return left > 0 and (self.circuit.open_for is None or left <= self.circuit.open_for)

    def last_end(self, model):
        """Where the current streak begins in the history."""
        ends = (SUCCESS, SLOW, ANSWERED) if self.config.answered == "reset" else (SUCCESS, SLOW)
        return max((at + 1 for at, (_, v) in enumerate(model.history) if v in ends), default=0)

    def read_events(self):
        events, self.circuit.events = self.circuit.events, []
        for event in events:
            if type(event) is ev.Reconfigured:
                assert event.differences
            elif type(event) is ev.StateChanged:
                self.moves.append((event.before, event.after, event.cause))
            else:
                self.probe_events[type(event)] += 1

    @invariant()
    def ramps_agree(self):
        """A ramp begins with a closing by probes, and only then."""
        ramp = self.circuit.view.ramp
        assert self.model.ramp_from == (None if ramp is None else ramp.began)

    def teardown(self):
        """I7: with a healthy downstream it is closed within cooldown, lease and `half_open_successes` calls."""
        circuit = getattr(self, "circuit", None)
        if circuit is None or circuit.view.state is CLOSED or circuit.view.open_for is None:
            return
        now = self.now
        if circuit.view.state is OPEN:
            now += circuit.view.open_for
        now += max((probe.lease for probe in circuit.view.probes), default=0.0)
        for _ in range(self.config.half_open_successes):
            if circuit.view.state is not CLOSED:
                permit = circuit.acquire(now=now)
                assert isinstance(permit, Permit), "I7"
                circuit.settle(permit, SUCCESS, now=now)

        assert CLOSED is circuit.view.state, "I7"


def test_the_whole_circuit():
    """I1 to I8, I15, I16: whatever happens in whatever order, a circuit does what the contract says."""
    run_state_machine_as_test(WholeCircuit, settings=settings(max_examples=200, stateful_step_count=35, deadline=None))


# ---------------------------------------------------------------------------------------------------- a rate
gaps = st.sampled_from([0.0, 0.0, 0.0, 0.05, 0.1, 0.3, 0.7, 1 / 3, 1.0, 2.999999, 3.0, 0.1 + 0.2])
calls = st.lists(st.tuples(gaps, verdicts, st.booleans()), max_size=40)


@settings(max_examples=400)
@given(trip=rates(), start=st.sampled_from([0.0, 0.3, 0.1 * 3, 12_345.678, 1e6 + 0.1]), calls=calls)
def test_a_rate_is_exact(trip, start, calls):
    """Opens at the very result at which looking at all of them would, and shows the same figures all the way."""
    config = BreakerConfig(trip)
    circuit, history, now = Circuit(config), [], start
    for gap, verdict, straight in calls:
        now += gap
        if straight:
            pass_straight(circuit, circuit.passing, verdict, now)
        else:
            told, took = said(config, verdict)
            circuit.settle(circuit.acquire(now=now), told, TRANSIENT, took=took, now=now)
        if verdict is not NEUTRAL:
            history.append((now, verdict))
        expected = bool(history) and verdict is not NEUTRAL and opens(config, history)

        assert (OPEN if expected else CLOSED) is circuit.view.state
        for later in (now, now + trip.bucket, now + trip.window):
            at = now if expected else later
            held = circuit.view.held.figures(later, circuit.totals.successes.value)
            assert figures_of(config, history, at) == held
        if expected:
            return


@pytest.mark.parametrize("bucket", [0.1, 0.3, 0.7, 1 / 3])
def test_a_rate_at_awkward_edges(bucket):
    """A success on the very edge of a slice is in the next one, with the lock or without."""
    config = BreakerConfig(FailureRate(1.0, window=bucket * 2, bucket=bucket, min_calls=10**6))
    circuit, history = Circuit(config), []
    for number in range(1, 200):
        for now in (math.nextafter(number * bucket, 0), number * bucket):
            pass_straight(circuit, circuit.closed_windowed, SUCCESS, now)
            history.append((now, SUCCESS))

            assert figures_of(config, history[-9:], now) == circuit.view.held.figures(
                now, circuit.totals.successes.value
            )


# ---------------------------------------------------------------------------------------------------- a streak
@settings(max_examples=150)
@given(config=configs, calls=st.lists(st.tuples(steps, verdicts, faults), max_size=40))
def test_strikes_equal_records(config, calls):
    """Counted without the lock or reported under it: nobody can see a difference."""
    straight, asked, now = Circuit(config), Circuit(config), 0.0
    for seconds, verdict, fault in calls:
        now += seconds
        episode = straight.passing
        told, took = said(config, verdict)
        permit = asked.acquire(now=now)
        if episode:
            pass_straight(straight, episode, verdict, now, fault)
        else:
            other = straight.acquire(now=now)
            assert type(permit) is type(other)
            if isinstance(other, Permit):
                straight.settle(other, told, None if told is SUCCESS else fault, took=took, now=now)
        if isinstance(permit, Permit):
            asked.settle(permit, told, None if told is SUCCESS else fault, took=took, now=now)

        assert moment(asked, now) == moment(straight, now)
        assert asked.events == straight.events


@given(
    limit=st.integers(1, 4),
    answered=st.sampled_from(["reset", "ignore"]),
    calls=st.lists(st.tuples(st.sampled_from(["straight", "asked", "late"]), verdicts), max_size=40),
)
def test_which_successes_may_skip(limit, answered, calls):
    """A success that was only counted never leaves a streak alive, whatever else is reported in between."""
    config = BreakerConfig(Consecutive(limit), answered=answered)
    circuit = Circuit(config)
    old = [circuit.acquire() for _ in calls]
    circuit.force_open()
    circuit.reset()
    history = []
    for way, verdict in calls:
        if way == "late":
            circuit.settle(old.pop(), said(config, verdict)[0], TRANSIENT)
        else:
            if way == "straight":
                pass_straight(circuit, circuit.closed, verdict, 0.0)
            else:
                circuit.settle(circuit.acquire(), said(config, verdict)[0], TRANSIENT)
            if verdict is not NEUTRAL:
                history.append((0.0, verdict))
                if opens(config, history):
                    assert OPEN is circuit.view.state
                    return
        assert CLOSED is circuit.view.state
        assert figures_of(config, history, 0.0) == circuit.view.held.figures(0.0, 0)


# ---------------------------------------------------------------------------------------------------- time
@given(
    cooldown=st.floats(0.001, 1e4),
    opened_at=st.floats(0, 1e6),
    readings=st.lists(st.floats(0, 1e6), max_size=15),
)
def test_no_clock_keeps_it_open_for_longer_than_a_cooldown(cooldown, opened_at, readings):
    """I2, I11: wherever the clock jumps, what is left is at most one cooldown, and reading and asking agree."""
    circuit = Circuit(BreakerConfig(Consecutive(1), cooldown=cooldown, max_cooldown=1e6))
    circuit.record(1, FAILURE, TRANSIENT, now=opened_at)
    for now in readings:
        foreseen, answer = circuit.refusal(now), circuit.acquire(now=now)
        if isinstance(answer, Permit):
            assert foreseen is None
            assert now < opened_at or now - opened_at >= cooldown
            return
        assert 0 < foreseen == answer <= cooldown
        assert 0 <= now - opened_at < cooldown


@given(config=configs, script=st.lists(st.tuples(steps, verdicts, faults), max_size=30))
def test_the_same_story_twice(config, script):
    """I18: the same calls at the same times give the same events, letter by letter."""

    def told():
        circuit, now = Circuit(config), 0.0
        for seconds, verdict, fault in script:
            now += seconds
            permit = circuit.acquire(now=now)
            if isinstance(permit, Permit):
                told, took = said(config, verdict)
                circuit.settle(permit, told, fault, took=took, now=now)
        return repr(circuit.events)

    assert told() == told()


def test_memory_does_not_grow_with_traffic():
    """I12: after any number of calls a circuit holds what its settings say, and no more."""
    timed = Circuit(BreakerConfig(Consecutive(10, within=0.5)))
    rated = Circuit(BreakerConfig(FailureRate(1.0, window=3, bucket=1, min_calls=10**9)))
    for now in range(3_000):
        timed.record(1, FAILURE, TRANSIENT, now=now)
        rated.record(1, FAILURE, TRANSIENT, now=now)

    assert Figures(1, 1, None) == timed.view.held.figures(2_999, 0)
    assert 10 == len(timed.view.held.times)
    assert Figures(3, 3, 1.0) == rated.view.held.figures(2_999, 0)
    assert 2 == len(rated.view.held.closed)
