"""The inbox: what comes from inside a locked section is made good afterwards, and never for ever."""

from __future__ import annotations

from resilience import BreakerConfig, Consecutive, FaultKind, Registry


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
