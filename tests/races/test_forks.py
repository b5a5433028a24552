"""Forks at every moment of a change: the child gets whole ones, and nobody waits for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import pytest
from forking import in_child, needs_fork

from resilience import BreakerConfig, CircuitState, Consecutive, FaultKind
from resilience import _forks as forks
from resilience._changing import CHANGING, LEFT

TRANSIENT = FaultKind.TRANSIENT


@pytest.fixture
def shared(registry):
    """A breaker that the first failure opens, for no time at all."""
    return registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=1e-6))


def works(shared):
    """Whether a breaker takes a report and moves."""
    shared.reset()
    shared.on_failure(shared.try_acquire(), TRANSIENT)
    return shared.state is CircuitState.OPEN


def books(shared):
    """Probes that were started and have not ended."""
    status = shared.status()
    return status.probes_started - status.probes_succeeded - status.probes_failed - status.probes_released


class Stops:
    """A change of another thread that stands still in the middle until it is told to go on."""

    def __init__(self, shared, seconds):
        self.reached, self.seconds = threading.Event(), seconds
        self.go_on = threading.Event()
        self.thread = threading.Thread(target=shared._section, args=(self.change,), daemon=True)
        self.thread.start()
        assert self.reached.wait(10)

    def change(self, now, time_ns):
        self.reached.set()
        self.go_on.wait(self.seconds)


@needs_fork
def test_the_fork_waits_for_a_change(shared):
    """I19: it happens before the change or after it, never in the middle."""
    other = Stops(shared, 0.1)

    assert "ok" == in_child(lambda: None if works(shared) else 1 / 0)
    assert other.go_on.is_set() is False
    other.thread.join(10)
    assert works(shared)


@needs_fork
def test_a_change_that_does_not_end_holds_no_fork_up(shared, monkeypatch):
    """I19: a finaliser in the middle of it may wait for this very fork."""
    monkeypatch.setattr(forks, "LONGEST_WAIT", 0.05)
    other = Stops(shared, 30)
    began = time.monotonic()
    report = in_child(lambda: None if works(shared) else 1 / 0)

    assert ("ok", True) == (report, time.monotonic() - began < 10)
    other.go_on.set()
    other.thread.join(10)
    assert works(shared)


@needs_fork
def test_a_fork_in_the_middle_of_its_own_change(shared):
    """I9, I15, I19: a handler or finaliser forks; the change goes on in both, and then the child gives its probe back."""
    shared.on_failure(shared.try_acquire(), TRANSIENT)
    shared.try_acquire()
    assert (1, 1) == (books(shared), len(shared.circuit._probes))

    def change(now, time_ns):
        return os.fork()

    child = shared._section(change)
    if child == 0:
        os._exit(0 if (books(shared), shared.busy) == (0, 0) and works(shared) else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (1, True) == (books(shared), works(shared))


@needs_fork
def test_threads_that_fork_at_once(registry, together):
    """I19: neither waits for the other's locks for ever."""
    shared = [registry.breaker(f"api-{number}", BreakerConfig(Consecutive(1))) for number in range(20)]

    def fork(index):
        return in_child(lambda: None if all(works(one) for one in shared) else 1 / 0)

    assert ["ok"] * 4 == together(4, fork)
    assert all(works(one) for one in shared)


@needs_fork
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_handler_that_raises_before_the_fork(registry):
    """I8, I19: wherever it raises, no lock stays behind."""
    shared = [registry.breaker(f"api-{number}", BreakerConfig(Consecutive(1))) for number in range(50)]

    class Stop(BaseException):
        pass

    def handler(number, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    # Raised in somebody's `gc.callbacks` it would be printed and forgotten.
    gc.disable()
    try:
        for number in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, (number + 1) * 2e-6)
                # What os.fork calls: there an exception is printed and forgotten.
                try:
                    forks.before()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                pass
            forks.after_in_parent()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    free = []

    def try_all():
        for one in shared:
            if one.lock.acquire(timeout=1):
                one.lock.release()
                free.append(one)

    thread = threading.Thread(target=try_all, daemon=True)
    thread.start()
    thread.join(10)
    assert shared == free


@needs_fork
def test_threads_of_the_parent_are_forgotten(shared, monkeypatch):
    """I19: a thread of the child may be given the number of one that was in the middle of a change."""
    monkeypatch.setattr(forks, "LONGEST_WAIT", 0.05)
    other = Stops(shared, 30)

    def check():
        assert ({}, {}) == (CHANGING, LEFT)
        thread = threading.Thread(target=shared.force_open, args=("drill",))
        thread.start()
        thread.join()
        assert CircuitState.OPEN is shared.state

    try:
        assert "ok" == in_child(check)
    finally:
        other.go_on.set()
        other.thread.join(10)
