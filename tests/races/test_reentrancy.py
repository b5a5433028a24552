"""I9: finalisers, weakref callbacks and signal handlers that run inside our critical sections and call guarded functions.

Each runs in a process of its own: a deadlock there is a failure here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import faulthandler, gc, itertools, logging, random, signal, sys, threading, time, weakref, asyncio
faulthandler.dump_traceback_later(30, exit=True)
logging.disable(logging.CRITICAL)
sys.setswitchinterval(1e-6)
from resilience import *
from resilience._core.events import *
registry = default_registry()
shared = registry.breaker("api", BreakerConfig(Consecutive(3), cooldown=0.0005, probe_lease=5))
pool = registry.bulkhead("pool", BulkheadConfig(3, 100))
seen = []
registry.subscribe(lambda event: seen.append(event.sequence))

@bulkhead("pool")
@breaker("api")
def call(fails):
    if fails:
        raise ConnectionError
    return "ok"

def guarded():
    "What the finaliser does: a call, a block, a report, a reading; refusals are fine."
    for act in (lambda: call(True), lambda: call(False), block, report, shared.status, shared.is_open):
        try:
            act()
        except (ConnectionError, CircuitOpenError, BulkheadFullError):
            pass

def block():
    with shared.guard():
        raise ConnectionError

def report():
    permit = shared.try_acquire()
    random.choice([shared.on_success, shared.release, lambda p: shared.on_failure(p, FaultKind.TRANSIENT)])(permit)

def storm(count):
    for number in range(count):
        try:
            call(number % 2)
        except (ConnectionError, CircuitOpenError, BulkheadFullError):
            pass
        try:
            with shared.guard():
                if number % 3:
                    raise ConnectionError
        except (ConnectionError, CircuitOpenError):
            pass
        if number % 50 == 0:
            shared.reset()
        if number % 70 == 0:
            shared.force_open("x", seconds=0.0002)

def books():
    shared.reset()
    status = shared.status()
    assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released, status
    assert pool.in_flight == 0, pool.in_flight
    assert pool.waiting == 0, pool.waiting
    got = list(seen)  # after a flood a thread of the library's own may still be adding
    assert got == sorted(got) and len(set(got)) == len(got), "order of events"
    call(False)
    print("ok")
"""


# A tracer that allocates at every line starts the collector at every line, whose callback allocates again.
UNTRACED = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def run(program, timeout=40):
    code = PRELUDE + textwrap.dedent(program)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**UNTRACED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (0, "ok") == (ran.returncode, ran.stdout.strip()), ran.stderr[-3000:]


def test_gc_callback_calls_a_guarded_function():
    """I9: the collector runs inside the critical section and its callback calls through the breaker."""
    run(
        """
        busy = threading.local()
        def on_gc(phase, info):
            if getattr(busy, "on", False):
                return
            busy.on = True
            try:
                guarded()
            finally:
                busy.on = False
        gc.callbacks.append(on_gc)
        gc.set_threshold(3, 2, 2)
        storm(1500)
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
        books()
        """
    )


def test_gc_callback_under_threads():
    """I9: the same with eight threads that fight for the lock."""
    run(
        """
        busy = threading.local()
        def on_gc(phase, info):
            if getattr(busy, "on", False):
                return
            busy.on = True
            try:
                guarded()
            finally:
                busy.on = False
        gc.callbacks.append(on_gc)
        gc.set_threshold(20, 2, 2)
        threads = [threading.Thread(target=storm, args=(250,)) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
        books()
        """
    )


def test_finaliser_in_a_cycle_calls_a_guarded_function():
    """I9: __del__ of garbage collected inside our critical section."""
    run(
        """
        class Trash:
            def __init__(self):
                self.me = self
            def __del__(self):
                guarded()
        gc.set_threshold(5, 2, 2)
        def litter(count):
            for _ in range(count):
                Trash()
                storm(2)
        threads = [threading.Thread(target=litter, args=(80,)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.set_threshold(700, 10, 10)
        gc.collect()
        books()
        """
    )


def test_weakref_callback_calls_a_guarded_function():
    """I9: weakref callbacks."""
    run(
        """
        class Trash:
            pass
        refs = []
        gc.set_threshold(5, 2, 2)
        def litter(count):
            for _ in range(count):
                trash = Trash()
                trash.me = trash
                refs.append(weakref.ref(trash, lambda ref: guarded()))
                del trash
                storm(2)
        threads = [threading.Thread(target=litter, args=(80,)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.set_threshold(700, 10, 10)
        gc.collect()
        books()
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals")
def test_signal_handler_calls_a_guarded_function():
    """I9: a signal handler that interrupts our critical section."""
    run(
        """
        fired = itertools.count()
        inside = False
        def handler(signum, frame):
            global inside
            if inside:
                return
            inside = True
            next(fired)
            guarded()
            inside = False
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            storm(50)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert next(fired) > 100
        books()
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals")
def test_signal_handler_with_threads_behind():
    """I9: the same while other threads want the lock."""
    run(
        """
        inside = False
        def handler(signum, frame):
            global inside
            if not inside:
                inside = True
                guarded()
                inside = False
        signal.signal(signal.SIGALRM, handler)
        threads = [threading.Thread(target=storm, args=(400,)) for _ in range(3)]
        for thread in threads: thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        storm(600)
        for thread in threads: thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        books()
        """
    )


def test_signal_handler_that_raises():
    """I7: KeyboardInterrupt out of a handler, anywhere in our code: no lock or flag stays behind, the breaker goes on."""
    run(
        """
        class Stop(BaseException):
            pass
        def handler(signum, frame):
            raise Stop
        signal.signal(signal.SIGALRM, handler)
        shared.reset()
        stopped = 0
        end = time.monotonic() + 1.5
        def round():
            try:
                signal.setitimer(signal.ITIMER_REAL, random.random() * 0.0006 + 0.00002)
                storm(60)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        while time.monotonic() < end:
            try:
                round()
            except Stop:
                stopped += 1
        assert stopped > 100, stopped
        # The breaker still answers from this and other threads.
        done = []
        def other():
            shared.reset()
            shared.on_success(shared.try_acquire())  # ends whatever streak the storm has left
            for _ in range(3):
                shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
            done.append(shared.state is CircuitState.OPEN)
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(5)
        assert done == [True], done
        shared.reset()
        print("ok")
        """
    )


def test_trace_function_calls_a_guarded_function_at_every_line():
    """I9: a call from inside at every line of our own code (a trace function stands for a handler)."""
    run(
        """
        import resilience
        root = resilience.__path__[0]
        inside = False
        lines = set()
        def tracer(frame, event, arg):
            global inside
            if not frame.f_code.co_filename.startswith((root, "<resilience")):
                return None
            if event == "line" and not inside:
                inside = True
                try:
                    lines.add((frame.f_code.co_filename, frame.f_lineno))
                    guarded()
                finally:
                    inside = False
            return tracer
        sys.settrace(tracer)
        try:
            storm(60)
            for _ in range(5):
                shared.reset()
                for _ in range(3):
                    try:
                        shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
                    except CircuitOpenError:
                        pass
                time.sleep(0.001)
                storm(3)
        finally:
            sys.settrace(None)
        assert len(lines) > 50, len(lines)
        books()
        """
    )


def test_trace_function_lets_other_threads_call_at_every_line():
    """I9: at every line of our own code another thread makes a whole call: nobody waits for ever."""
    run(
        """
        import queue, resilience
        root = resilience.__path__[0]
        orders, answers = queue.SimpleQueue(), queue.SimpleQueue()
        def helper():
            while orders.get():
                guarded()
                answers.put(1)
        thread = threading.Thread(target=helper, daemon=True)
        thread.start()
        inside = False
        stuck = lines = 0
        def tracer(frame, event, arg):
            global inside, stuck, lines
            if not frame.f_code.co_filename.startswith((root, "<resilience")):
                return None
            # A bound, or a deliverer would be fed for ever by what it lets happen.
            if event == "line" and not inside and lines < 2500:
                inside = True
                lines += 1
                orders.put(1)
                try:
                    answers.get(timeout=0.003)   # may have to wait for the lock that we hold: then it goes on later
                except queue.Empty:
                    stuck += 1
                inside = False
            return tracer
        sys.settrace(tracer)
        try:
            storm(4)
        finally:
            sys.settrace(None)
        orders.put(0)
        thread.join(10)
        assert not thread.is_alive(), "the other thread never came back"
        books()
        """
    )


def test_sinks_that_call_from_many_threads():
    """I9, section 12: re-entrant sinks under threads."""
    run(
        """
        left = iter(range(400))
        def sink(event):
            if next(left, None) is not None:  # each call makes events of its own: it must come to an end
                guarded()
                registry.status_all()
        registry.subscribe(sink, StateChanged, ProbeStarted, ProbeReleased, Rejected)
        threads = [threading.Thread(target=storm, args=(150,)) for _ in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        books()
        """
    )


def test_two_breakers_never_wait_for_each_other():
    """I9: two names never wait for each other, also with re-entrant calls crosswise."""
    run(
        """
        other = registry.breaker("other", BreakerConfig(Consecutive(2), cooldown=0.0003))
        def cross(event):
            for target in (shared, other):
                try:
                    permit = target.try_acquire()
                    target.on_failure(permit, FaultKind.TRANSIENT)
                except CircuitOpenError:
                    pass
        registry.subscribe(cross, ProbeReleased)
        busy = threading.local()
        def on_gc(phase, info):
            if getattr(busy, "on", False):
                return
            busy.on = True
            try:
                cross(None)
            finally:
                busy.on = False
        gc.callbacks.append(on_gc)
        gc.set_threshold(20, 2, 2)
        def work(target):
            for number in range(300):
                try:
                    permit = target.try_acquire()
                    target.on_failure(permit, FaultKind.TRANSIENT) if number % 3 else target.on_success(permit)
                except CircuitOpenError:
                    pass
        threads = [threading.Thread(target=work, args=(target,)) for target in (shared, other) * 3]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
        books()
        """
    )


def test_report_inside_the_critical_section_is_not_lost():
    """I9, I5: a report made inside the critical section waits in the inbox and is counted: none is lost."""
    run(
        """
        big = registry.breaker("big", BreakerConfig(Consecutive(10**9)))
        made = itertools.count()
        busy = threading.local()
        def on_gc(phase, info):
            if getattr(busy, "on", False):
                return
            busy.on = True
            try:
                try:
                    permit = big.try_acquire()
                except CircuitOpenError as refusal:
                    assert refusal.retry_after == 0, refusal.retry_after
                    return
                big.on_failure(permit, FaultKind.TRANSIENT)
                next(made)
            finally:
                busy.on = False
        gc.callbacks.append(on_gc)
        gc.set_threshold(4, 2, 2)
        def work():
            for _ in range(1000):
                big.on_failure(big.try_acquire(), FaultKind.TRANSIENT)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
        extra = next(made)
        assert extra > 10, extra
        big.reset()  # changes nothing, but whoever comes next makes good what is still waiting
        status = big.status()
        assert status.failures_total == 4000 + extra, (status.failures_total, 4000 + extra)
        assert status.failure_count == 4000 + extra, (status.failure_count, 4000 + extra)
        books()
        """
    )
