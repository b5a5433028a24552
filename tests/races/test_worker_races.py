"""Workers under many callers: no answer reaches the wrong caller, no worker is lost, whoever gives up when."""

from __future__ import annotations

import random
import threading
import time

from resilience._clock import SYSTEM_CLOCK
from resilience._core.deadline import fixed_deadline
from resilience._engine.workers import EXPIRED, WorkerPool, run_on

CALLERS = 6
CALLS = 600


def settled(pool):
    """Whether every worker is idle again."""
    gate = threading.Event()
    for _ in range(1000):
        if len(pool.idle) == pool.workers and not pool.orphans:
            return True
        gate.wait(0.002)
    return False


def test_every_answer_reaches_its_own_caller(together, restless):
    """Some are given up on before, while and after they run, by deadlines about as long as a hand-over takes."""
    pool = WorkerPool("site", CALLERS + 2)
    ran = []

    def fn(number):
        if number % 60 == 0:
            time.sleep(0.001)
        ran.append(number)
        if number % 5 == 0:
            raise LookupError(number)
        return number

    def work(index):
        rng = random.Random(index)
        given_up = 0
        for number in range(index * CALLS, (index + 1) * CALLS):
            while (worker := pool.take()) is None:
                time.sleep(0)
            deadline = fixed_deadline(rng.choice([5.0, 0.0005, 0.0001, 1e-9]), True)()
            deadline.started, deadline.left = SYSTEM_CLOCK.monotonic(), False
            try:
                answer = run_on(worker, deadline, fn, (number,), {})
            except LookupError as error:
                answer = error.args[0]
            assert answer is EXPIRED or answer == number
            given_up += answer is EXPIRED
        return given_up

    results = together(CALLERS, work)
    assert all(type(result) is int for result in results), results

    assert settled(pool)
    assert pool.workers <= pool.limit
    assert len(set(pool.idle)) == pool.workers
    assert 0 < sum(results) < CALLERS * CALLS
    # A function that was given up on ran once, or never.
    assert len(ran) == len(set(ran)) >= CALLERS * CALLS - sum(results)
