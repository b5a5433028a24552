"""Families from the inside: who is first, who makes room, what is left when somebody is interrupted."""

from __future__ import annotations

import threading

import pytest

from resilience import (
    BreakerConfig,
    BreakerMode,
    BulkheadConfig,
    BulkheadFullError,
    CircuitState,
    Consecutive,
    FaultKind,
    Registry,
    breaker,
    bulkhead,
    compose,
    use_registry,
)
from resilience._changing import CHANGING
from resilience._core.slots import Ticket
from resilience._policies import keyed_breaker
from resilience._policies.families import Family
from resilience._policies.keyed_breaker import _WAKING
from resilience._policies.site_keys import SiteKeys
from resilience.events import KeyOverflow

DOWN = FaultKind.TRANSIENT


@pytest.fixture
def registry():
    """By the system's clock: only there may breakers sleep."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def family(registry):
    return registry.family("llm", labels="provider", config=BreakerConfig(Consecutive(2)), max_keys=2)


@pytest.fixture
def rooms(registry):
    return registry.bulkhead_family("room", BulkheadConfig(1), labels="provider", max_keys=2)


def fail(shared, times=1):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), DOWN)


# ---------------------------------------------------------------------------------------------- coming
def test_who_is_not_first_gives_its_place_back(family, monkeypatch):
    """Another thread made the same key's breaker in between: its one is found, and no place is lost."""
    make = type(family)._make

    def overtaken(self, key):
        monkeypatch.undo()
        others.append(self[key])
        return make(self, key)

    others = []
    monkeypatch.setattr(type(family), "_make", overtaken)
    found = family["a"]

    assert ([found], 1) == (others, len(family))
    assert family["b"].key == ("b",)


def test_who_is_not_first_with_other(family, monkeypatch):
    """The same with the shared breaker."""
    make = type(family)._make

    def overtaken(self, key):
        monkeypatch.undo()
        others.append(self[None])
        return make(self, key)

    others = []
    monkeypatch.setattr(type(family), "_make", overtaken)

    assert [family[None]] == others


def test_an_interruption_while_a_member_is_made(family, monkeypatch):
    """Its place is given back."""

    def interrupted(self, key):
        raise KeyboardInterrupt

    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(type(family), "_make", interrupted)
            with pytest.raises(KeyboardInterrupt):
                _ = family["a"]

    assert [("a",), ("b",)] == [family[key].key for key in "ab"]


def test_a_retired_member_that_is_still_there(family):
    """Whoever retired it was interrupted: the next who asks takes it out."""
    left = family["a"]
    assert left.retire()

    assert family["a"] is not left
    assert (1, ("b",)) == (len(family), family["b"].key)


def test_a_retired_member_that_nobody_asks_for(family):
    """The hand comes upon it."""
    family["a"].retire()
    _ = family["b"]
    for _ in range(6):
        found = family["c"]

    assert (("c",), None) == (found.key, family.get("a"))


def test_a_retired_member_while_another_thread_is_at_it(family):
    """For this call it will do: nothing can happen to it any more."""
    left = family["a"]
    left.retire()
    asked = []
    family._turn.take(lambda: asked.append(family["a"]))

    assert [left] == asked
    assert family["a"] is not left


def test_it_takes_out_none_but_that_one(family):
    """Somebody else did, and the key has a new one."""
    old = family["a"]
    old.retire()
    new = family["a"]
    family._take_out(old)

    assert family["a"] is new


def test_room_that_another_thread_takes(family):
    """Who has made room may find it taken: its call shares `__other__`."""
    kept, going = family["a"], family["b"]
    fail(kept)
    take_out = family._take_out

    def taken(member):
        take_out(member)
        family._places.take()

    for _ in range(2):
        _ = family["warm"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(family), "_take_out", lambda self, member: taken(member))
        found = family["c"]
        if not going.retired:
            found = family["c"]

    assert (True, family.other) == (going.retired, found)


def test_told_once_by_whoever_is_first(registry, family, monkeypatch):
    """Two threads find at once that there is no room: one tells."""
    seen = []
    registry.subscribe(seen.append, KeyOverflow)
    for reason in ("unsafe", "unsafe"):
        _ = family["a b"]
        assert reason == seen[0].reason

    class Racing(dict):
        """A note that another thread has made, but that was not seen."""

        def __contains__(self, reason):
            return False

    family._told = Racing(family._told)
    _ = family["a b"]

    assert 1 == len(seen)


def test_told_in_the_middle_of_a_change(registry, family):
    """I9: nobody's listener runs there; the event waits for the end of it."""
    seen, during = [], []
    registry.subscribe(seen.append, KeyOverflow)

    def change(now, time_ns):
        _ = family["a b"]
        during.extend(seen)

    registry.breaker("another")._section(change)

    assert ([], 1) == (during, len(seen))


# ---------------------------------------------------------------------------------------------- asleep and awake
def test_a_healthy_breaker_sleeps(family):
    """Its calls need no circuit of its own."""
    shared = family["a"]
    permit = shared.try_acquire()
    shared.succeed(permit.episode)

    assert (True, 1, CircuitState.CLOSED, False) == (
        shared.is_asleep,
        shared.status().successes_total,
        shared.state,
        shared.is_open(),
    )


def test_failures_wake_it(family):
    """It counts them as any other, and its sisters sleep on."""
    shared, sister = family["a"], family["b"]
    fail(shared)
    assert (1, False, True) == (shared.status().failure_count, shared.is_asleep, sister.is_asleep)
    fail(shared)

    assert (CircuitState.OPEN, CircuitState.CLOSED, 0) == (shared.state, sister.state, sister.status().failures_total)


def test_all_who_wake_it_at_once_find_one_circuit(family, together):
    """No failure is lost, whoever was first."""
    config = BreakerConfig(Consecutive(10_000))
    many = family._services.family("many", labels="provider", config=config)

    for round_ in range(30):
        shared = many[str(round_)]
        together(8, lambda index, shared=shared: fail(shared, 5))
        assert 40 == shared.status().failures_total

    assert {} == _WAKING


def test_who_comes_late_to_a_waking(family):
    """The parts that somebody else has put in place stay."""
    shared = family["a"]
    late = shared._new_parts(retired=False)
    asleep = shared.circuit
    circuit = shared.awake()
    shared._wake(asleep, late)

    assert circuit is shared.circuit
    assert {} == _WAKING


def test_an_interruption_while_it_wakes(family, monkeypatch):
    """Whoever comes next finishes with the same parts."""
    shared = family["a"]
    parts = shared._new_parts(retired=False)
    monkeypatch.setitem(_WAKING, (shared, shared.circuit), parts)

    assert parts.circuit is shared.awake()


def test_one_that_is_woken_while_it_retires(family, monkeypatch):
    """The one that wakes it was first: it retires under its own lock."""
    shared = family["a"]
    parts = shared._new_parts(retired=False)
    monkeypatch.setitem(_WAKING, (shared, shared.circuit), parts)

    assert (True, parts.circuit) == (shared.retire(), shared.circuit)
    assert BreakerMode.RETIRED is shared.status().mode


def test_one_that_fails_while_it_retires(family):
    """It has something to lose, and stays."""
    shared = family["a"]
    fail(shared)

    assert (False, False) == (shared.retire(), shared.retired)


def test_one_that_retires_in_the_middle_of_a_change(registry, family):
    """It can't be told at once; when it has happened, it is found."""
    shared = family["a"]
    fail(shared)
    shared.reset()
    shared.on_success(shared.try_acquire())
    done = []
    registry.breaker("another")._section(lambda now, time_ns: done.append(shared.retire()))

    assert ([False], True) == (done, shared.retired)
    assert family["a"] is not shared
    assert {} == CHANGING


def test_what_was_asked_of_the_shared_circuit(family):
    """A caller that looked before it woke up, or before it retired, means its own."""
    shared = family["a"]
    record = shared.circuit.record
    shared.awake()
    shared._section(record, 1, keyed_breaker.CircuitBreaker.verdict(shared, None))
    assert 1 == shared.status().successes_total

    gone = family["b"]
    gone.retire()
    gone._section(record, 1, keyed_breaker.CircuitBreaker.verdict(gone, None))
    assert (1, BreakerMode.RETIRED) == (gone.status().late_results, gone.status().mode)
    assert 0 == family.shared_circuits[0].totals.successes.value == family.shared_circuits[1].totals.late


def test_the_shared_circuits_never_change(family):
    """Whatever happens to their breakers."""
    before = [circuit.view for circuit in family.shared_circuits]
    for key in "abcdefgh":
        shared = family[key]
        shared.after_fork()
        permit = shared.try_acquire()
        shared.disable()
        shared.enable()
        shared.force_open("drill")
        shared.reset()
        shared.on_failure(permit, DOWN)
        shared.clear_state()
        shared.after_fork()
        shared.publish_slots(False)
        shared.publish_slots(True)

    assert before == [circuit.view for circuit in family.shared_circuits]
    assert [0, 0] == [circuit.totals.failures.value for circuit in family.shared_circuits]


def test_a_clock_is_set_while_it_sleeps(family):
    """It wakes, since it must ask that clock; told of the system's, it sleeps on."""
    shared, sister = family["a"], family["b"]
    shared.publish_slots(False)
    sister.publish_slots(True)

    assert (False, True, 0) == (shared.is_asleep, sister.is_asleep, shared.circuit.closed)


def test_mark(family):
    """Each has its own, which it keeps."""
    first, second = family["a"], family["b"]

    assert first.mark == first.mark != second.mark


def test_cleared_in_its_sleep(family):
    """Its count starts over."""
    shared = family["a"]
    shared.succeed(1)
    shared.clear_state()

    assert (True, 0) == (shared.is_asleep, shared.status().successes_total)


def test_torn_by_a_fork(family):
    """It woke up in another thread at the moment of the fork, in the middle of its first change: it starts over."""
    shared = family["a"]
    fail(shared)
    shared._busy = -1
    shared.after_fork()

    assert (0, 0, False) == (shared.busy, shared.status().failure_count, shared.is_asleep)


# ---------------------------------------------------------------------------------------------- bulkheads
def test_a_bulkhead_retires_once(rooms):
    """Of those who try at once, one is first."""
    room = rooms["a"]

    assert [True, False, True, True] == [room.retire(), room.retire(), room.retired, room.leaving]


def test_a_bulkhead_in_use_stays(rooms):
    """One slot held, or somebody in line."""
    held, waited = rooms["a"], rooms["b"]
    held.take()
    waited.join(Ticket())

    assert [False, False] == [held.retire(), waited.retire()]
    assert [(False, False)] * 2 == [(room.leaving, room.retired) for room in (held, waited)]


def test_a_bulkhead_that_is_taken_while_it_leaves(rooms, monkeypatch):
    """It looks once more after it has said so, and stays."""
    room = rooms["a"]
    seen = []

    def taken_meanwhile():
        seen.append(room.leaving)
        return True

    monkeypatch.setattr(room, "_is_used", taken_meanwhile)

    assert (False, [True]) == (room.retire(), seen)
    assert (False, False) == (room.leaving, room.retired)


def test_a_fork_while_it_leaves(rooms):
    """In the child nobody finishes that."""
    room, gone = rooms["a"], rooms["b"]
    room._claim.clear()
    room.leaving = True
    gone.retire()
    rooms.after_fork()

    assert (False, True, True) == (room.leaving, room.retire(), gone.leaving)


def test_a_fork_renews_the_places(family, rooms):
    """A place that a thread of the parent was about to use is free in the child."""
    _ = family["a"]
    family._places.take()
    family.after_fork()

    assert [("a",), ("b",)] == [family[key].key for key in "ab"]
    assert 2 == len(family)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("wait", [0.0, 5.0])
def test_a_call_whose_bulkhead_is_leaving(rooms, full, wait):
    """It gives back what it took, does not stand in that line, and looks again; where that does not help, it shares `__other__`."""
    fn = bulkhead("room", key="provider", wait=wait)(lambda provider: rooms.other.in_flight)
    room = rooms["a"]
    room.leaving = True
    if full:
        room.take()

    assert 1 == fn("a")
    assert (full, 0, 0) == (room.in_flight, room.waiting, rooms.other.in_flight)


@pytest.mark.parametrize("wait", [0.0, 0.001])
def test_a_call_whose_bulkhead_is_leaving_where_all_is_full(rooms, wait):
    """It is refused like any other."""
    fn = bulkhead("room", key="provider", wait=wait)(lambda provider: None)
    rooms["a"].leaving = True
    rooms[None].take()
    with pytest.raises(BulkheadFullError):
        fn("a")

    assert (0, 1) == (rooms["a"].in_flight, rooms.other.in_flight)


def test_a_call_whose_bulkhead_stays_after_all(rooms, monkeypatch):
    """It had said that it would leave, found somebody in it, and is used at the second look."""
    room = rooms["a"]
    give = room.give

    def stays(slot):
        room.leaving = False
        give(slot)

    room.leaving = True
    monkeypatch.setattr(room, "give", stays)
    # Judging what is returned takes the plan.
    in_full = compose(bulkhead("room", key="provider"), breaker("api", classify_result=lambda value: None))
    fn = in_full(lambda provider: room.in_flight)

    assert (1, None) == (fn("a"), rooms.other)


def test_a_call_whose_bulkhead_has_left(rooms):
    """It finds the one that has taken its place."""
    fn = bulkhead("room", key="provider")(lambda provider: rooms["a"].in_flight)
    old = rooms["a"]
    old.retire()

    assert (1, True) == (fn("a"), old is not rooms["a"])


# ---------------------------------------------------------------------------------------------- a call site
def test_a_site_finds_its_family_once(family):
    """And says so."""
    asked, told = [], []
    keys = SiteKeys(lambda: asked.append(1) or family, lambda args, kwargs: args[0])
    keys.on_family = told.append
    assert keys.known is None

    assert family["a"] is keys.of_call(("a",), {}) is keys.of_parts(("a",))
    assert ([1], [family], family) == (asked, told, keys.known)


def test_a_site_that_nobody_waits_for(family):
    """The family is found all the same."""
    assert family["a"] is SiteKeys(lambda: family, lambda args, kwargs: None).of_parts(("a",))


def test_a_family_of_nothing(registry):
    """What its members are is for its kinds to say."""
    with pytest.raises(NotImplementedError):
        _ = Family("nothing", ("key",), 1, registry)["a"]


def test_two_threads_ask_a_family_for_everything(family, together):
    """Two in, two there."""
    found = together(8, lambda index: {family[key] for key in "ab" * 50})

    assert ({frozenset(family)}, 2) == ({frozenset(members) for members in found}, len(family))
    assert not threading.current_thread().daemon
