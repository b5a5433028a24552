"""The shared breaker: permits by hand, an operator's acts, the lock that can be re-entered, the status."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    ConfigurationError,
    Consecutive,
    FailureRate,
    Fault,
    FaultFlag,
    FaultKind,
    OnOpen,
    ProbeEnd,
    Registry,
    default_registry,
)
from resilience._clock import SYSTEM_CLOCK
from resilience._core.events import Bypassed, Rejected
from resilience._policies.circuit_breaker import CircuitBreaker
from resilience._policies.classifying import classify_with
from resilience._policies.lane import classified_lane, failure_lane, front_door
from resilience._policies.marks import MARK, counts_first
from resilience._policies.verdicts import end_of
from resilience._site import Site
from resilience._words import Verdict
from resilience.catalogue import default_classifier

CONFIG = BreakerConfig(Consecutive(2), cooldown=30)


@pytest.fixture
def shared(registry):
    return registry.breaker("provider", CONFIG)


@pytest.fixture
def straight(registry):
    """A breaker whose slots are published."""
    registry.clock = SYSTEM_CLOCK
    return registry.breaker("provider", CONFIG)


@pytest.fixture
def frozen(monkeypatch):
    """The system's clocks stand still; `set_to(seconds)` sets both."""

    def set_to(seconds):
        monkeypatch.setattr(time, "monotonic", lambda: seconds)
        monkeypatch.setattr(time, "time_ns", lambda: round(seconds * 1e9))

    set_to(1000.0)
    return set_to


def trip(shared):
    for _ in range(2):
        shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)


# ---------------------------------------------------------------------------------------------- permits
def test_a_permit_is_reported_once(shared):
    """A second report does nothing."""
    permit = shared.try_acquire()
    shared.on_failure(permit, FaultKind.TRANSIENT)
    shared.on_failure(permit, FaultKind.TRANSIENT)
    shared.on_success(permit)

    assert (1, 0) == (shared.status().failures_total, shared.status().successes_total)


def test_a_permit_that_was_given_back_is_not_reported_on(shared):
    """Who has said that the attempt was never made has said all."""
    permit = shared.try_acquire()
    shared.release(permit)
    shared.on_failure(permit, FaultKind.TRANSIENT)

    assert 0 == shared.status().failures_total


def test_the_lease_of_a_probe_by_hand(registry, clock):
    """Is `probe_lease`, however short."""
    shared = registry.breaker("short", BreakerConfig(Consecutive(1), cooldown=30, probe_lease=0.5))
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)

    assert 0.5 == shared.try_acquire().lease


@pytest.mark.parametrize(
    "reported", [FaultKind.TRANSIENT, Fault(FaultKind.DOWNSTREAM), ConnectionError("down"), TimeoutError()]
)
def test_what_a_failure_may_be(shared, reported):
    """A kind, a fault, an exception."""
    shared.on_failure(shared.try_acquire(), reported)

    assert 1 == shared.status().failures_total


def test_what_a_failure_may_not_be(shared):
    """Anything else is a mistake of the caller's."""
    with pytest.raises(TypeError, match="fault must be a Fault, a FaultKind or an exception, got 'down'"):
        shared.on_failure(shared.try_acquire(), "down")


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (None, Verdict.SUCCESS),
        (Fault(FaultKind.TRANSIENT), Verdict.FAILURE),
        (Fault(FaultKind.INTERNAL), Verdict.NEUTRAL),
        (Fault(FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}), Verdict.ANSWERED),
    ],
)
def test_verdicts(shared, fault, verdict):
    """What a fault means to this breaker."""
    assert verdict is shared.verdict(fault)


def test_refused_by_hand(shared):
    """With the exact time left, or a false permit."""
    trip(shared)
    with pytest.raises(CircuitOpenError) as caught:
        shared.try_acquire()

    assert 30 == caught.value.retry_after
    assert not shared.try_acquire(OnOpen.BYPASS)
    assert (1, 1) == (shared.status().rejected_total, shared.status().bypassed_total)


@pytest.mark.parametrize(("seconds", "left"), [(30, 30.0), (None, None)])
def test_what_listeners_hear_of_refusals_by_hand(shared, told, seconds, left):
    """Who refused, for how long where that is known, and that no call site was skipped."""
    shared.force_open("maintenance", seconds=seconds)
    told.clear()
    with pytest.raises(CircuitOpenError):
        shared.try_acquire()
    shared.try_acquire(OnOpen.BYPASS)

    assert [
        Rejected(name="provider", retry_after=left),
        Bypassed(name="provider", site="", by="circuit_open"),
    ] == told


def test_a_call_site_that_is_skipped_is_named(shared, told):
    """To listeners, beside the breaker."""
    shared.note_bypass("module:fn")

    assert [Bypassed(name="provider", site="module:fn", by="circuit_open")] == told


def test_events_that_nobody_listens_for_take_no_number(shared, registry):
    """A listener of another type makes none either: what it hears is numbered without a gap."""
    seen = []
    registry.subscribe(seen.append, Bypassed)
    shared.refuse(30.0)
    shared.note_bypass()

    assert [1] == [event.sequence for event in seen]


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (
            lambda shared: shared.release(shared.try_acquire(), "bored"),
            "reason must be one of 'neutral', 'cancelled', 'abandoned', 'lost', 'reset', got 'bored'",
        ),
        (lambda shared: shared.guard("sometimes"), "on_open must be one of 'fail', 'bypass', got 'sometimes'"),
        (
            lambda shared: shared.force_open(" ", seconds=-1),
            "reason must be a text that is not empty, got ' '\nseconds must be a finite number of seconds > 0, got -1",
        ),
    ],
)
def test_a_mistake_is_named(shared, mistake, text):
    """By parameter, value given, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        mistake(shared)

    assert text == str(caught.value)


def test_a_permit_that_is_given_back(shared, clock):
    """A probe that never ran frees its slot, with the reason."""
    trip(shared)
    clock.advance(30)
    shared.release(shared.try_acquire(), ProbeEnd.ABANDONED)
    shared.release(shared.try_acquire())

    assert ("half_open", 2) == (shared.state.value, shared.status().probes_released)


def test_a_permit_inside_a_probe(shared, clock):
    """Shares it, and its report is of no interest."""
    trip(shared)
    clock.advance(30)
    with shared.guard():
        permit = shared.try_acquire()
        shared.on_failure(permit, FaultKind.TRANSIENT)
        assert (None, "<Permit exempt, episode 3>") == (shared.refusal_here(), repr(permit))

    assert ("closed", 2) == (shared.state.value, shared.status().failures_total)


def test_is_open_reads_only(shared, clock):
    """Closed, open, cooled, half-open with its slot taken."""
    seen = [shared.is_open()]
    trip(shared)
    seen.append(shared.is_open())
    clock.advance(30)
    seen.append(shared.is_open())
    shared.try_acquire()
    seen.append(shared.is_open())

    assert [False, True, False, True] == seen


@pytest.mark.parametrize(("later", "is_open"), [(0, True), (29, True), (29.5, True), (30, False), (31, False)])
def test_is_open_to_the_end_of_the_cooldown(straight, frozen, later, is_open):
    """By the system's clock: from the trip to just before the moment at which a probe may go."""
    trip(straight)
    frozen(1000.0 + later)

    assert is_open is straight.is_open()


def test_is_open_of_a_published_breaker(straight, registry):
    """One look at a slot while it is closed, of either mode."""
    rate = registry.breaker("rate", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))

    assert (False, False) == (straight.is_open(), rate.is_open())


# ---------------------------------------------------------------------------------------------- an operator's acts
def test_reset(shared):
    """True where something was closed by it."""
    assert shared.reset() is False
    trip(shared)

    assert shared.reset(reason="calm", actor="me") is True
    assert "closed" == shared.state.value


def test_forced_for_a_while(shared, clock):
    """And then as after any cooldown."""
    shared.force_open("maintenance", seconds=5)

    assert 5 == shared.refusal()
    clock.advance(5)
    assert shared.refusal() is None


@pytest.mark.parametrize("seconds", [0, -1, True, float("nan"), "soon"])
def test_forced_for_no_time_at_all(shared, seconds):
    """Not a number of seconds."""
    with pytest.raises(ConfigurationError, match="seconds"):
        shared.force_open("maintenance", seconds=seconds)


def test_disabled_and_enabled(shared):
    """Nothing counts in between."""
    shared.disable(reason="test", actor="me")
    trip(shared)
    shared.enable(actor="me")

    assert ("closed", 0) == (shared.state.value, shared.status().failures_total)


def test_listeners_hear_who_acted_and_why(shared, told):
    """An operator's acts carry the breaker's name, the reason and the name that were given."""
    shared.disable(reason="drill", actor="me")
    shared.enable(actor="you")
    shared.force_open("maintenance", actor="me")
    shared.reset(reason="calm", actor="you")

    assert [
        ("provider", "drill", "me"),
        ("provider", None, "you"),
        ("provider", "maintenance", "me"),
        ("provider", "calm", "you"),
    ] == [(event.name, event.reason, event.actor) for event in told]


def test_clear_state(shared):
    """As just registered."""
    trip(shared)
    with pytest.raises(CircuitOpenError):
        shared.try_acquire()
    shared.clear_state()
    status = shared.status()

    assert ("closed", 0, 0, None) == (
        status.state.value,
        status.failures_total,
        status.rejected_total,
        status.last_failure,
    )


# ---------------------------------------------------------------------------------------------- the lock
def test_a_report_from_inside_the_section(shared, monkeypatch):
    """A finaliser that reports in the middle of a locked section: it waits in the inbox, and counts."""
    inside = []
    permit = shared.try_acquire()

    def reset(*args):
        # As if the collector ran here.
        inside.append(shared.try_acquire(OnOpen.BYPASS))
        shared.on_failure(permit, FaultKind.TRANSIENT)
        inside.append(shared.status().state.value)
        return True

    assert shared._section(reset) is True
    assert (False, "closed", 1) == (bool(inside[0]), inside[1], shared.status().failures_total)


def test_an_act_from_inside_the_section(shared):
    """So does an operator's act; its answer is not known yet."""
    trip(shared)
    answers = []

    assert shared._section(lambda now, time_ns: answers.append(shared.reset())) is None
    assert ([True], "closed") == (answers, shared.state.value)


def test_who_is_in_the_middle_of_a_change(straight):
    """The thread that makes it, while it does."""
    seen = [straight.busy]
    straight._section(lambda now, time_ns: seen.append(straight.busy))

    assert [0, threading.get_ident(), 0] == [*seen, straight.busy]


def test_the_clock_decides_what_is_published(shared, registry, clock):
    """Others may compare a circuit with the system's time while that is the registry's own, and not otherwise."""
    clock.advance(7)
    seen = [shared.circuit.closed]
    registry.clock = SYSTEM_CLOCK
    seen.append(shared.circuit.closed)
    registry.clock = clock
    seen.append(shared.circuit.closed)

    assert [0, shared.circuit.episode, 0] == seen


def test_a_refusal_from_inside_the_section(shared):
    """There is nothing to wait for."""
    waits = []
    shared._section(lambda now, time_ns: waits.append(shared.acquire()))

    assert [0.0] == waits


def test_a_section_that_fails_is_left(shared):
    """The next one runs."""

    def broken(now, time_ns):
        raise LookupError

    with pytest.raises(LookupError):
        shared._section(broken)

    assert (False, True) == (shared.busy, bool(shared.try_acquire()))


def test_the_system_clock_is_read_directly(straight):
    """By a breaker whose slots are published."""
    times = straight._section(lambda now, time_ns: (now, time_ns))

    assert (True, True) == (0 < times[0] <= time.monotonic(), 0 < times[1] <= time.time_ns())


def test_a_forked_child(shared, clock):
    """Nobody holds the lock there, and the parent's probe is nobody's."""
    trip(shared)
    clock.advance(30)
    shared.try_acquire()
    shared._lock.acquire()
    shared._busy = True
    shared._inbox.append((shared.circuit.reset, (None, None)))
    shared.after_fork()

    assert ("half_open", 1) == (shared.state.value, shared.status().probes_released)
    assert shared.try_acquire().probe is True


# ---------------------------------------------------------------------------------------------- status
def test_a_status_in_the_middle_of_a_change(shared):
    """A reader lets the change finish; from inside it takes what there is."""
    seen = []
    shared._section(lambda now, time_ns: seen.append(shared.status().state.value))

    assert ["closed"] == seen


def test_a_status_while_another_thread_is_in_the_section(shared):
    """Reading takes no lock, and waits a little for the change to end."""
    entered, leave = threading.Event(), threading.Event()

    def slow(now, time_ns):
        entered.set()
        leave.wait(5)

    thread = threading.Thread(target=lambda: shared._section(slow))
    thread.start()
    entered.wait(5)
    status = shared.status()
    leave.set()
    thread.join(5)

    assert "closed" == status.state.value


def test_a_status_waits_for_a_change_of_another_thread(shared, monkeypatch):
    """What is read is one moment: after the change, not in the middle of it."""
    shared._busy = -1

    def let_the_other_finish(seconds):
        shared._busy = 0
        shared.on_success(shared.try_acquire())

    monkeypatch.setattr(time, "sleep", let_the_other_finish)

    assert 1 == shared.status().successes_total


def test_the_status_of_an_open_circuit(shared, clock):
    """Since when, until when, and what the last failure was; one that was reported by hand has no type."""
    clock.advance(7)
    trip(shared)
    clock.advance(10)
    status = shared.status()

    assert (7_000_000_000, 37_000_000_000, 20.0) == (status.opened_at, status.next_half_open_at, status.retry_after)
    last = status.last_failure
    assert (FaultKind.TRANSIENT, "", 7_000_000_000) == (last.kind, last.type_name, last.time)


def test_the_status_of_a_new_circuit(registry, clock):
    """It is what it is since it was registered."""
    clock.advance(7)

    assert 7_000_000_000 == registry.breaker("new").status().last_state_change


def test_the_status_of_a_forced_circuit(shared):
    """Nobody can tell until when."""
    shared.force_open("x")
    status = shared.status()

    assert (None, None) == (status.next_half_open_at, status.retry_after)


def test_the_status_of_a_cooled_circuit(shared, clock):
    """It still reads open, with nothing to wait for."""
    trip(shared)
    clock.advance(30)

    assert ("open", 0.0) == (shared.status().state.value, shared.status().retry_after)


# ---------------------------------------------------------------------------------------------- counting from the straight path
def test_a_strike(straight):
    """Counted without the lock; the last one opens."""
    fault = Fault(FaultKind.TRANSIENT)
    for _ in range(2):
        straight.count_error(straight.circuit.episode, ConnectionError(), fault)

    assert "open" == straight.state.value


def test_a_closed_circuit_takes_no_lock(straight, registry, monkeypatch):
    """Admission, and a streak short of the limit, go beside it: calls never wait for each other."""
    lane = lane_of(straight, registry, ConnectionError)
    episode, fault = straight.circuit.episode, Fault(FaultKind.TRANSIENT)
    rate = registry.breaker("rate", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2)))
    for closed in (straight, rate):
        monkeypatch.setattr(closed, "_section", lambda act, *args: pytest.fail("took the lock"))
        assert closed.try_acquire()
    straight.count_error(episode, ConnectionError(), fault)
    straight.succeed(episode)
    lane(episode, ConnectionError())
    straight.succeed(episode)

    assert (0, 2, 2) == (
        straight.status().failure_count,
        straight.status().failures_total,
        straight.status().successes_total,
    )


@pytest.mark.parametrize("through_the_lane", [True, False])
def test_a_last_strike_opens_whatever_comes_before_the_lock(straight, registry, monkeypatch, through_the_lane):
    """The limit was reached: a success that comes while the lock is awaited ends nothing any more."""
    lane, fault = lane_of(straight, registry, ConnectionError), Fault(FaultKind.TRANSIENT)
    episode, section = straight.circuit.episode, straight._section
    straight.count_error(episode, ConnectionError(), fault)

    def overtaken(act, *args):
        monkeypatch.undo()
        straight.succeed(episode)
        return section(act, *args)

    monkeypatch.setattr(straight, "_section", overtaken)
    if through_the_lane:
        lane(episode, ConnectionError())
    else:
        straight.count_error(episode, ConnectionError(), fault)

    assert "open" == straight.state.value


@pytest.mark.parametrize("through_the_lane", [True, False])
@pytest.mark.parametrize(
    "trip",
    [Consecutive(1), Consecutive(2), Consecutive(2, within=60), FailureRate(0.5, window=30, bucket=3, min_calls=9)],
)
def test_the_last_failure_of_the_straight_path(registry, frozen, trip, through_the_lane):
    """Its kind, its type and its time, whatever counts it."""
    registry.clock = SYSTEM_CLOCK
    counted = registry.breaker("counted", BreakerConfig(trip))
    if through_the_lane:
        lane_of(counted, registry, ConnectionError)(counted.circuit.episode, ConnectionError())
    else:
        fault = default_classifier().classify(ConnectionError())
        counted.count_error(counted.circuit.episode, ConnectionError(), fault)
    last = counted.status().last_failure

    assert (FaultKind.TRANSIENT, "builtins.ConnectionError", 1000 * 10**9) == (last.kind, last.type_name, last.time)


def test_a_strike_of_an_earlier_episode(straight):
    """Late."""
    straight.count_error(straight.circuit.episode - 1, ConnectionError(), Fault(FaultKind.TRANSIENT))

    assert (0, 1) == (straight.status().failures_total, straight.status().late_results)


def test_a_strike_that_was_beaten_to_it(straight):
    """Two threads reach the limit: one opens, the other is late."""
    episode, fault = straight.circuit.episode, Fault(FaultKind.TRANSIENT)
    strikes = [straight.circuit.strike(episode, fault, 0) for _ in range(3)][1:]
    for strike in strikes:
        straight.count_strike(episode, fault, strike)

    assert ("open", 1) == (straight.state.value, straight.status().late_results)


def test_an_error_that_is_no_failure(straight):
    """An answer is recorded, a neutral one is not."""
    episode = straight.circuit.episode
    straight.count_error(episode, LookupError(), Fault(FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}))
    straight.count_error(episode, LookupError(), Fault(FaultKind.CONTRACT))

    assert (1, 0) == (straight.status().answered_total, straight.status().failures_total)


def test_an_error_that_was_counted(straight):
    """Not again."""
    episode, fault, error = straight.circuit.episode, Fault(FaultKind.TRANSIENT), ConnectionError()
    for _ in range(3):
        straight.count_error(episode, error, fault)

    assert 1 == straight.status().failures_total


def test_a_success_of_a_clean_circuit(straight):
    """A tick."""
    straight.succeed(straight.circuit.episode)

    assert 1 == straight.status().successes_total


def test_a_success_of_an_earlier_episode(straight):
    """Late."""
    straight.succeed(straight.circuit.episode - 1)

    assert (0, 1) == (straight.status().successes_total, straight.status().late_results)


# ---------------------------------------------------------------------------------------------- the lane
def lane_of(shared, registry, *seen, rules=None):
    """The lane of a site that has met bare exceptions of these types."""
    site = Site(None, "module:fn", registry, (rules or default_classifier()).classify)
    for kind in seen:
        site.classify(kind("seen"), None)
    return failure_lane(shared, site)


@pytest.fixture
def lane(straight, registry):
    return lane_of(straight, registry, ConnectionError)


def test_a_bare_failure_is_settled_in_place(lane, straight):
    """Its type explains everything."""
    errors = [ConnectionError("a"), ConnectionError("b")]

    assert [FaultKind.TRANSIENT] * 2 == [lane(straight.circuit.episode, error).kind for error in errors]
    assert ("open", True) == (straight.state.value, hasattr(errors[0], MARK))


def test_a_bare_failure_is_not_classified_again(straight, registry, monkeypatch):
    """What its type means was found out the first time: an outage is a flood of the same few."""
    site = Site(None, "module:fn", registry, default_classifier().classify)
    site.classify(ConnectionError("seen"), None)
    monkeypatch.setattr(site, "classify", lambda error, handled: pytest.fail("classified again"))
    lane = failure_lane(straight, site)

    assert FaultKind.TRANSIENT is lane(straight.circuit.episode, ConnectionError("a", "b")).kind


def test_a_failure_with_a_context_needs_more(lane, straight):
    """What was being handled outside can't be told inside of the except block."""
    error = ConnectionError("x")
    error.__context__ = LookupError()

    assert lane(straight.circuit.episode, error) is None
    assert 0 == straight.status().failures_total


def test_a_failure_without_a_breaker(registry):
    """It is classified for the retry, unless what was being handled outside has to be known."""
    settled = classified_lane(Site(None, "module:fn", registry, default_classifier().classify))
    within = ConnectionError("x")
    within.__context__ = LookupError()

    assert FaultKind.TRANSIENT is settled(0, ConnectionError("x")).kind
    assert settled(0, within) is None


@pytest.mark.parametrize("prepare", ["attribute", "cause", "number", "other type"])
def test_a_failure_that_must_be_looked_at(lane, straight, prepare):
    """Classified in full, and counted all the same."""
    error = TimeoutError("x") if prepare == "other type" else ConnectionError("x")
    if prepare == "attribute":
        error.request = "r"
    elif prepare == "cause":
        error.__cause__ = TimeoutError()
        error.__context__ = None
    elif prepare == "number":
        error.args = (104, "reset")

    assert FaultKind.TRANSIENT is lane(straight.circuit.episode, error).kind
    assert 1 == straight.status().failures_total


@pytest.mark.parametrize("prepare", ["attribute", "cause", "argument"])
def test_a_failure_that_is_none_when_looked_at(straight, registry, prepare):
    """What an exception carries is believed before what its type alone would mean."""

    class Odd(ConnectionError):
        pass

    class NotFound(Exception):
        status_code = 404

    lane, error = lane_of(straight, registry, Odd), Odd("x")
    if prepare == "attribute":
        error.fault_kind = FaultKind.CONTRACT
    elif prepare == "cause":
        error.__cause__ = NotFound()
    else:
        error.args = (NotFound(),)

    assert FaultKind.TRANSIENT is not lane(straight.circuit.episode, error).kind
    assert 0 == straight.status().failures_total


@pytest.mark.parametrize(
    ("kind", "flags", "answers"), [(FaultKind.CONTRACT, (), 0), (FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, 1)]
)
def test_a_type_that_means_no_failure(straight, registry, kind, flags, answers):
    """It is known by its type alone, and counts for what it is."""
    lane = lane_of(
        straight, registry, LookupError, rules=default_classifier().child().add(LookupError, kind, flags=flags)
    )

    assert kind is lane(straight.circuit.episode, LookupError("x")).kind
    assert (answers, 0) == (straight.status().answered_total, straight.status().failures_total)


@pytest.mark.parametrize("args", [("x",), (104, "reset")])
def test_a_failure_is_counted_once_in_the_lane(lane, straight, args):
    """Whether it is settled in place or in full: it may pass another site of this breaker."""
    error = ConnectionError(*args)
    lane(straight.circuit.episode, error)
    straight.count_error(straight.circuit.episode, error, Fault(FaultKind.TRANSIENT))
    vars(error)["request"] = "r"
    lane(straight.circuit.episode, error)

    assert 1 == straight.status().failures_total


def test_a_class_that_can_not_be_hashed(lane, straight):
    """It is looked at like any other."""

    class Unhashable(type):
        __hash__ = None

    class Odd(ConnectionError, metaclass=Unhashable):
        pass

    assert FaultKind.TRANSIENT is lane(straight.circuit.episode, Odd("x")).kind


def test_a_hostile_exception(lane, straight):
    """Attributes that can't be read, args that are none: nothing escapes from here."""

    class NoDict(ConnectionError):
        @property
        def __dict__(self):
            raise RuntimeError

    class NoArgs(ConnectionError):
        args = None

    assert None not in [lane(straight.circuit.episode, kind("x")) for kind in (NoDict, NoArgs)]
    assert (2, 0) == (straight.status().failures_total, straight.status().late_results)


def test_the_front_door(straight):
    """Closed, open, for good."""
    door = front_door(straight)
    seen = [door()]
    straight.force_open("x", seconds=1000)
    seen.append(990 < door() <= 1000)
    straight.force_open("x")
    seen.append(door() == float("inf"))

    assert [None, True, True] == seen


@pytest.mark.parametrize(("later", "left"), [(0, 30.0), (10, 20.0), (29.5, 0.5), (30, None)])
def test_the_front_door_to_the_end_of_the_cooldown(straight, frozen, later, left):
    """It tells the exact time left, and lets a call go for the probe at the very moment."""
    trip(straight)
    frozen(1000.0 + later)

    assert left == front_door(straight)()


def test_the_front_door_inside_a_probe(straight, monkeypatch):
    """A call inside shares the probe: it is not refused, although everybody else is."""
    door, now = front_door(straight), time.monotonic()
    trip(straight)
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    with straight.guard():
        assert (None, True) == (door(), straight.is_open())


def test_the_front_door_of_an_open_circuit_inside_a_probe_of_another(straight, registry, monkeypatch):
    """A probe of another breaker opens no door here."""
    other, now = registry.breaker("other", CONFIG), time.monotonic()
    trip(other)
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    with other.guard():
        straight.force_open("x", seconds=30)

        assert 0 < front_door(straight)() <= 30


# ---------------------------------------------------------------------------------------------- small things
def test_a_mark_per_breaker():
    """Each breaker counts an exception once."""
    error = ConnectionError()

    assert [True, False, True, False] == [counts_first(error, mark) for mark in ((1,), (1,), (2,), (2,))]


def test_an_exception_with_attributes_of_its_own():
    """The mark stands beside them."""
    error = ConnectionError()
    error.request = "r"

    assert [True, False] == [counts_first(error, (1,)), counts_first(error, (1,))]


def test_an_exception_that_takes_no_mark():
    """It counts at each site."""

    class Closed(Exception):
        @property
        def __dict__(self):
            raise RuntimeError

    error = Closed()

    assert [True, True] == [counts_first(error, (1,)), counts_first(error, (1,))]


def test_how_an_interrupted_probe_ends():
    """Cancelled, but for an exception."""
    assert (ProbeEnd.CANCELLED, ProbeEnd.NEUTRAL) == (end_of(KeyboardInterrupt()), end_of(LookupError()))


def test_a_breaker_is_pickled_by_name():
    """That of the process-wide registry; another can't be found again."""
    shared = default_registry().breaker("pickled", BreakerConfig())

    assert shared is pickle.loads(pickle.dumps(shared))
    with pytest.raises(TypeError, match="belongs to no registry that could be found again"):
        pickle.dumps(Registry().breaker("lost"))


def test_a_pickled_breaker_brings_its_settings_along(monkeypatch):
    """A process that does not know the name yet registers it with them."""
    packed = pickle.dumps(default_registry().breaker("packed", CONFIG))
    monkeypatch.setattr(default_registry(), "_breakers", {})

    assert ("packed", CONFIG) == (pickle.loads(packed).name, default_registry().get("packed").config)


def test_how_it_shows_itself(shared):
    """Name and state."""
    assert "<CircuitBreaker 'provider' closed>" == repr(shared)
    assert isinstance(shared, CircuitBreaker)


# ---------------------------------------------------------------------------------------------- classifying
def classify(own, error):
    return classify_with(own, default_classifier())(error, None)


def test_the_rules():
    """Without an own classifier."""
    assert FaultKind.TRANSIENT is classify(None, ConnectionError()).kind


def test_an_own_classifier():
    """Instead of the rules."""
    own = default_classifier().child().add(LookupError, FaultKind.CONTROL)

    assert FaultKind.CONTROL is classify(own, LookupError()).kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (FaultKind.CONTRACT, FaultKind.CONTRACT),
        (Fault(FaultKind.CONTROL), FaultKind.CONTROL),
        (None, FaultKind.TRANSIENT),
        ("nonsense", FaultKind.TRANSIENT),
    ],
)
def test_an_own_function(said, kind):
    """It may leave a case to the rules."""
    assert kind is classify(lambda error: said, ConnectionError()).kind


def test_what_an_own_function_is_asked():
    """The very exception; what it leaves to the rules they judge as without it, by what was being handled around."""

    class Unknown(Exception):
        pass

    error, seen = Unknown("mine"), []
    error.__context__ = around = ConnectionError("around")
    fault = classify_with(seen.append, default_classifier())(error, around)

    assert ([error], FaultKind.INTERNAL) == (seen, fault.kind)


def test_an_own_function_that_fails():
    """INTERNAL, and counted as unclassified."""

    def broken(error):
        raise LookupError

    fault = classify(broken, ConnectionError())

    assert (FaultKind.INTERNAL, True) == (fault.kind, FaultFlag.UNCLASSIFIED in fault.flags)


def test_a_group_that_is_no_exception():
    """The rules judge it leaf by leaf, and what was being handled around it is the cause of none."""

    class Several(BaseExceptionGroup):
        pass

    class Unknown(Exception):
        pass

    leaf = Unknown("mine")
    leaf.__context__ = around = ConnectionError("around")
    fault = classify_with(lambda error: FaultKind.CONTROL, default_classifier())(Several("several", [leaf]), around)

    assert FaultKind.INTERNAL is fault.kind


def test_an_own_function_is_not_asked_about_interruptions():
    """Only exceptions are anybody's to classify."""
    assert FaultKind.INTERRUPTED is classify(lambda error: FaultKind.TRANSIENT, KeyboardInterrupt()).kind
