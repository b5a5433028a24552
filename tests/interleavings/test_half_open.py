"""A cooled or half-open circuit under two and three threads: who gets the probe, and what a report does meanwhile."""

from __future__ import annotations

import pytest
from cooperative import Found
from scheduler import Race

from resilience import BreakerConfig, CircuitOpenError, CircuitState, Consecutive, FaultKind, breaker
from resilience._core.circuit import Circuit
from resilience._core.permit import Permit
from resilience._policies.locked import LockedCircuit
from resilience.testing import ManualClock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
TRANSIENT = FaultKind.TRANSIENT


def books(circuit):
    """I15 and I1: every probe that was started has ended in one way, or is out; no more are out than may be."""
    totals = circuit.totals
    ended = totals.probes_succeeded + totals.probes_failed + totals.probes_released
    assert totals.probes_started == ended + len(circuit._probes)
    assert len(circuit._probes) <= circuit._config.half_open_probes
    assert circuit._probes == [] or circuit._state is HALF_OPEN
    assert {circuit.episode} >= {probe.episode for probe in circuit._probes}
    published = circuit.episode if circuit._state is CLOSED and circuit._published else 0
    assert published == circuit.closed


def told(circuit):
    """Everything a user can tell of a circuit, its episode and its figures included."""
    totals, view = circuit.totals, circuit.view
    return (
        (view.state, view.episode, len(view.probes), view.opened_at, view.open_for, circuit.closed),
        (totals.successes.value, totals.failures.value, totals.answered, totals.late, totals.late_accepted),
        (totals.probes_started, totals.probes_succeeded, totals.probes_failed, totals.probes_released),
    )


def names_of(events):
    return tuple((type(event).__name__, getattr(event, "episode", None)) for event in events)


def answer_of(result):
    if isinstance(result, Permit):
        return ("permit", result.episode, result.probe)
    return ("refused", result.retry_after)


def asking(shared):
    """A body that asks for a permit; a refusal is a result."""

    def ask():
        try:
            return shared.try_acquire()
        except CircuitOpenError as refusal:
            return refusal

    return ask


@pytest.fixture
def cooled(quiet_registry):
    """`cooled(**settings)`: a breaker that opened and has cooled, its clock, and a permit of the time before."""

    def make(**settings):
        clock = ManualClock()
        registry = quiet_registry(clock)
        shared = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30, **settings))
        old = shared.try_acquire()
        shared.on_failure(shared.try_acquire(), TRANSIENT)
        clock.advance(30)
        registry.hub.outbox.clear()
        return shared, clock, old

    return make


# ------------------------------------------------------------------------------------------------ who gets the probe
def callers(cooled, count, probes):
    def make():
        shared, _, _ = cooled(half_open_probes=probes)
        circuit, outbox = shared.circuit, shared._hub.outbox

        def check(results):
            permits = [result for result in results if isinstance(result, Permit)]
            assert probes == len(permits), f"{len(permits)} of {count} callers were let pass"
            assert all(permit.probe and permit.episode == circuit.episode for permit in permits)
            assert [30.0] * (count - probes) == [one.retry_after for one in results if not isinstance(one, Permit)]
            assert (HALF_OPEN, probes) == (circuit.view.state, circuit.totals.probes_started)
            assert ["StateChanged", *["ProbeStarted"] * probes] == [type(event).__name__ for event in outbox]
            books(circuit)

        return Race((asking(shared),) * count, (shared, outbox), check)

    return make


def test_one_of_two_callers_gets_the_probe(explore, cooled):
    """I1: two callers ask a cooled circuit, in every interleaving: one permit, one refusal, one transition."""
    report = explore(callers(cooled, 2, 1))

    assert report.schedules >= 50, report
    assert 2 == len(report.outcomes), report


@pytest.mark.proof
@pytest.mark.parametrize("probes", [1, 2])
def test_as_many_of_three_callers_as_there_are_probes(explore, cooled, probes):
    """I1: three callers, at most one preemption: exactly `half_open_probes` are let pass."""
    report = explore(callers(cooled, 3, probes), preemptions=1)

    assert report.schedules >= 100, report
    assert len(report.outcomes) >= 3, report


@pytest.mark.proof
def test_one_of_three_callers_gets_the_probe_in_full(explore, cooled):
    """I1: three callers, in every interleaving."""
    report = explore(callers(cooled, 3, 1))

    assert report.schedules >= 1_000, report
    assert len(report.outcomes) >= 3, report


@pytest.mark.proof
def test_one_of_two_callers_gets_the_probe_and_events_are_delivered(explore, cooled):
    """I1 and section 12: the same with delivery: each event is told once, in the order of the numbers it is given."""

    def make():
        shared, _, _ = cooled()
        hub, seen = shared._hub, []
        del hub.deliver
        hub.subscribe(seen.append)

        def check(results):
            assert 1 == sum(isinstance(result, Permit) for result in results)
            assert not hub.outbox, "an event was left behind"
            assert [1, 2, 3] == [event.sequence for event in seen]
            assert ["ProbeStarted", "Rejected", "StateChanged"] == sorted(type(event).__name__ for event in seen)
            assert seen[0].before is OPEN, "the probe was told before the transition that made it possible"
            books(shared.circuit)

        return Race((asking(shared),) * 2, (shared, hub, seen), check)

    report = explore(make)

    assert report.schedules >= 1_000, report
    assert len(report.outcomes) >= 3, report


# ------------------------------------------------------------------------------------------------ the compiled wrapper
def wrapped_callers(quiet_registry, system_time, count, *, fails):
    def make():
        registry = quiet_registry()
        config = BreakerConfig(Consecutive(1), cooldown=30)
        shared = registry.breaker("api", config)
        shared.on_failure(shared.try_acquire(), TRANSIENT)
        shared.circuit._opened_at -= 30
        shared.circuit._store()
        sent = []

        @breaker("api", config, registry=registry)
        def send():
            sent.append(shared.circuit.view.state)
            if fails:
                raise ConnectionError("down")
            return "ok"

        def call():
            try:
                return send()
            except CircuitOpenError:
                return "refused"
            except ConnectionError:
                return "failed"

        def check(results):
            circuit = shared.circuit
            if fails:
                assert ["failed", *["refused"] * (count - 1)] == sorted(results), results
                assert [HALF_OPEN] == sent, sent
                assert (OPEN, 2) == (circuit.view.state, circuit.totals.failures.value)
            else:
                assert sent.count(HALF_OPEN) == 1 == circuit.totals.probes_started, sent
                assert {"ok", "refused"} >= set(results), results
                assert len(sent) == results.count("ok") == circuit.totals.successes.value
                assert CLOSED is circuit.view.state
            books(circuit)

        return Race((call,) * count, (shared, shared._hub.outbox, sent), check)

    return make


def test_two_calls_of_which_the_probe_fails(explore, quiet_registry, system_time):
    """I1: of two calls through a compiled wrapper that fails, one is sent; at most one preemption."""
    report = explore(wrapped_callers(quiet_registry, system_time, 2, fails=True), preemptions=1)

    assert report.schedules >= 50, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.proof
def test_two_calls_of_which_the_probe_fails_in_full(explore, quiet_registry, system_time):
    """I1: the same with at most two preemptions: 2,400 schedules (all of them are 8,140, and hold)."""
    report = explore(wrapped_callers(quiet_registry, system_time, 2, fails=True), preemptions=2)

    assert report.schedules >= 1_000, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.proof
def test_two_calls_of_which_the_probe_succeeds(explore, quiet_registry, system_time):
    """I1: one probe, and no other call while it is out; at most one preemption (all of them are 7,966, and hold)."""
    report = explore(wrapped_callers(quiet_registry, system_time, 2, fails=False), preemptions=1)

    assert report.schedules >= 50, report
    assert len(report.outcomes) >= 2, report


@pytest.mark.proof
def test_three_calls_of_which_the_probe_fails(explore, quiet_registry, system_time):
    """I1: three calls through a compiled wrapper, at most one preemption."""
    report = explore(wrapped_callers(quiet_registry, system_time, 3, fails=True), preemptions=1)

    assert report.schedules >= 100, report


# ------------------------------------------------------------------------------------------------ a report meanwhile
REPORTS = {
    "success": lambda shared, probe, old: shared.on_success(probe),
    "failure": lambda shared, probe, old: shared.on_failure(probe, TRANSIENT),
    "neutral": lambda shared, probe, old: shared.release(probe),
    "late success": lambda shared, probe, old: shared.on_success(old),
    "late failure": lambda shared, probe, old: shared.on_failure(old, TRANSIENT),
    "twice": lambda shared, probe, old: (shared.on_success(probe), shared.on_failure(probe, TRANSIENT)),
}


def reporting(cooled, report, others=1, *, lost=False, **settings):
    """One thread reports on a probe that is out, others ask for a permit."""

    def make():
        shared, clock, old = cooled(**settings)
        probe = shared.try_acquire()
        if lost:
            clock.advance(40)
        circuit, outbox = shared.circuit, shared._hub.outbox

        def settle():
            REPORTS[report](shared, probe, old)

        def check(results):
            for result in results[1:]:
                if isinstance(result, Permit) and result.probe and circuit._state is HALF_OPEN:
                    assert result.episode == circuit.episode, "a permit of the wrong episode"
            books(circuit)

        def reading(results):
            answers = tuple(answer_of(result) for result in results[1:])
            return told(circuit), answers, names_of(outbox)

        return Race((settle,) + (asking(shared),) * others, (shared, outbox, probe, old), check, (), reading)

    return make


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_against_a_request(explore, cooled, report):
    """I1-I4, I6: in every interleaving what both see is what they see in one of the two orders."""
    made = explore(reporting(cooled, report))

    assert made.schedules >= 20, made


@pytest.mark.parametrize("report", [pytest.param("success", marks=pytest.mark.proof), "failure", "neutral"])
def test_a_report_on_a_lost_probe_against_a_request(explore, cooled, report):
    """Section 4, a lost probe: its lease has run out when another asks and it is reported: one of the two orders."""
    made = explore(reporting(cooled, report, lost=True))

    assert made.schedules >= 20, made
    assert len(made.outcomes) >= 1 + (report != "neutral"), made


def test_a_failed_probe_against_two_requests(explore, cooled):
    """I1-I4: three threads, at most one preemption: the outcome is that of one of the six orders."""
    made = explore(reporting(cooled, "failure", others=2), preemptions=1)

    assert made.schedules >= 100, made


@pytest.mark.proof
@pytest.mark.parametrize("report", ["success", "failure", "neutral"])
def test_a_report_against_two_requests_in_full(explore, cooled, report):
    """I1-I4: three threads, in every interleaving."""
    made = explore(reporting(cooled, report, others=2))

    assert made.schedules >= 500, made


def test_two_reports_of_one_probe(explore, cooled):
    """I8: a probe that two threads settle at once, one as failed and one as succeeded, is settled once."""

    def make():
        shared, _, _ = cooled()
        probe = shared.try_acquire()
        circuit, outbox = shared.circuit, shared._hub.outbox

        def fail():
            shared.on_failure(probe, TRANSIENT)

        def succeed():
            shared.on_success(probe)

        def reading(results):
            return told(circuit), names_of(outbox)

        return Race((fail, succeed), (shared, outbox, probe), lambda results: books(circuit), (), reading)

    report = explore(make)

    assert report.schedules >= 10, report
    assert 2 == len(report.outcomes), report


def test_a_reset_against_a_request(explore, cooled):
    """Section 4, manual control: a reset releases the probe; who asks meanwhile sees the time before it or after it."""

    def make():
        shared, _, _ = cooled()
        probe = shared.try_acquire()
        circuit, outbox = shared.circuit, shared._hub.outbox

        def reading(results):
            return told(circuit), results[0], answer_of(results[1]), names_of(outbox)

        bodies = (shared.reset, asking(shared))
        return Race(bodies, (shared, outbox, probe), lambda results: books(circuit), (), reading)

    report = explore(make)

    assert report.schedules >= 10, report
    assert 2 == len(report.outcomes), report


# ------------------------------------------------------------------------------------------------ faults that must be found
def unlocked(self, act, *args):
    """`LockedCircuit._section` without its lock."""
    return self._perform(act, args, 1)


def test_asking_without_the_lock_is_found(explore, cooled, monkeypatch):
    """The explorer finds two probes where the lock is left out."""
    monkeypatch.setattr(LockedCircuit, "_section", unlocked)

    with pytest.raises(Found, match=r"2 of 2 callers were let pass|AssertionError"):
        explore(callers(cooled, 2, 1))


def test_a_report_without_the_lock_is_found(explore, cooled, monkeypatch):
    """The explorer finds an outcome that no order gives where reports leave the lock out."""
    section = LockedCircuit._section

    def careless(self, act, *args):
        return (section if act is self._ask else unlocked)(self, act, *args)

    monkeypatch.setattr(LockedCircuit, "_section", careless)

    with pytest.raises(Found):
        explore(reporting(cooled, "failure"))


def test_a_probe_counted_after_the_lock_is_found(explore, cooled, monkeypatch):
    """The explorer finds two probes where the free slot is looked at under the lock, but taken after it."""

    def acquire(self, lease=0.0):
        if self._section(self.circuit.refusal_now) is not None:
            return 30.0
        return self._section(self.circuit.take_probe)

    def refusal_now(self, now, time_ns):
        return self.refusal(now)

    def take_probe(self, now, time_ns):
        if self._state is not HALF_OPEN:
            return self.acquire(0.0, now, time_ns)
        permit = Permit(self.episode)
        permit.probe, permit.leased_at, permit.lease = True, now, 30.0
        self._probes.append(permit)
        self.totals.probes_started += 1
        self._store()
        return permit

    monkeypatch.setattr(Circuit, "refusal_now", refusal_now, raising=False)
    monkeypatch.setattr(Circuit, "take_probe", take_probe, raising=False)
    monkeypatch.setattr("resilience._policies.circuit_breaker.CircuitBreaker.acquire", acquire)

    with pytest.raises(Found, match="2 of 2 callers were let pass"):
        explore(callers(cooled, 2, 1))
