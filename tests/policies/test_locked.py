"""The inbox: what comes from inside a locked section is made good afterwards, and never for ever."""

from __future__ import annotations

from threading import get_ident

from resilience import BreakerConfig, Consecutive, FaultKind, Registry
from resilience._changing import CHANGING, LEFT, after_fork


def test_reports_that_lead_to_reports_end():
    """I9: if making one report good leads to the next, a section still comes to its end, and nothing is lost."""
    breaker = Registry().breaker("api", BreakerConfig(Consecutive(10**6)))
    left = [2500]

    circuit = breaker.circuit
    record = type(circuit)._note

    def note(fault, time_ns):
        record(circuit, fault, time_ns)
        if left[0]:
            left[0] -= 1
            breaker.record(circuit.episode, breaker.verdict(fault), fault)

    class Telling(type(circuit)):
        __slots__ = ()
        _note = staticmethod(note)

    circuit.__class__ = Telling
    permit = breaker.try_acquire()
    breaker.on_failure(permit, FaultKind.TRANSIENT)

    assert 1001 == breaker.status().failures_total
    for _ in range(2):
        breaker.reset()
    assert 2501 == breaker.status().failures_total


def test_a_report_to_another_breaker_from_inside_a_change(registry):
    """It waits for nothing there, and is taken in as soon as the change is over; a request is refused."""
    changing, other = registry.breaker("changing"), registry.breaker("other")
    permit, inside, later = other.try_acquire(), [], []

    def change(now, time_ns):
        inside.append(other.acquire())
        other.on_failure(permit, FaultKind.TRANSIENT)
        other._section(lambda now, time_ns: later.append(other.busy))
        inside.append(other.status().failures_total)

    changing._section(change)

    assert ([0.0, 0], [get_ident()]) == (inside, later)
    assert (1, 0) == (other.status().failures_total, other.busy)


def test_what_another_thread_was_left_is_not_ours(registry, monkeypatch):
    """It is taken in by the thread whose change it waits for."""
    other = registry.breaker("other")
    other._inbox.append((other.circuit.force_open, ("drill", None, None)))
    monkeypatch.setitem(LEFT, -1, [other])
    registry.breaker("changing").force_open("drill")

    assert ("closed", [other]) == (other.state.value, LEFT[-1])


def test_between_two_acts_of_a_change(registry):
    """Who comes in there finds the lock its own and nothing half done: it is answered at once."""
    breaker, answers, later = registry.breaker("api"), [], []

    def come_in():
        answers.append(breaker._section(lambda now, time_ns: breaker.busy))
        permit = breaker.acquire()
        breaker.on_failure(permit, FaultKind.TRANSIENT)
        answers.append((permit.episode, breaker.status().failures_total))

    comings = [come_in]

    class Interrupted(list):
        """An inbox; when it is looked into for the first time, somebody comes."""

        def pop(self, place):
            while comings:
                comings.pop()()
            return super().pop(place)

    breaker._inbox = Interrupted()
    left = [lambda now, time_ns: later.append(breaker.busy)] * 2
    breaker._section(lambda now, time_ns: [breaker._section(act) for act in left])

    assert [get_ident(), (breaker.circuit.episode, 1)] == answers
    assert [get_ident()] * 2 == later


def test_a_fork_out_of_a_change(registry, clock):
    """In the child that change goes on under its lock, and gives the parent's probe back when it is over."""
    breaker = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=1))
    breaker.force_open("drill", seconds=1)
    clock.advance(1)
    assert breaker.try_acquire().probe
    seen = []

    def fork(now, time_ns):
        lock = breaker.lock
        breaker.after_fork()
        seen.append((breaker.lock is lock, breaker.busy == get_ident(), breaker.status().probes_released))

    breaker._section(fork)

    assert ([(True, True, 0)], 1) == (seen, breaker.status().probes_released)


def test_other_threads_are_forgotten_after_a_fork(registry, monkeypatch):
    """Their numbers will be given to others; what this thread is in the middle of goes on."""
    breaker = registry.breaker("api")
    for by_thread in (CHANGING, LEFT):
        monkeypatch.setitem(by_thread, -1, breaker)
        monkeypatch.setitem(by_thread, get_ident(), breaker)
    after_fork()
    kept = [list(by_thread) for by_thread in (CHANGING, LEFT)]
    for by_thread in (CHANGING, LEFT):
        del by_thread[get_ident()]

    assert [[get_ident()]] * 2 == kept
