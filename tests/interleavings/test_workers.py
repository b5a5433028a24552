"""A worker's hand-over: a caller that gives up against the worker that begins, ends, or goes."""

from __future__ import annotations

from contextvars import copy_context

import pytest
from cooperative import Found
from scheduler import Race

from resilience._clock import SYSTEM_CLOCK
from resilience._engine import workers
from resilience._engine.workers import Worker, WorkerPool, _take, signal

GAVE_UP, BUSY = "gave up", "busy"


def callers(jobs, patience, limit=1, callers=1):
    """Callers that take a worker for one job after the other, and may run out of time `patience` times each.

    The worker is a real thread that the pool makes, and counts as the next one. It goes when it has been idle for long as
    often as `patience` says for it.
    """

    def make():
        pool = WorkerPool("site", limit)
        ended, begun = [], []

        def call(number):
            worker = pool.take()
            if worker is None:
                return BUSY

            def job():
                begun.append(number)
                return number

            def leave():
                return lambda: ended.append(number)

            answer = worker.perform((copy_context(), job, (), {}), 1.0, SYSTEM_CLOCK, leave)
            if answer is None:
                return GAVE_UP
            value, error = answer
            assert error is None
            return value

        def calling(first):
            def body():
                return [call(first + number) for number in range(jobs)]

            return body

        def check(results):
            left = []
            for first, answers in enumerate(results):
                for place, answer in enumerate(answers):
                    number = first * jobs + place
                    assert answer in (number, GAVE_UP, BUSY), f"job {number} was answered with {answer!r}"
                    if answer == GAVE_UP:
                        left.append(number)
                    assert begun.count(number) <= (answer != BUSY), f"job {number} ran more often than it was given"
                    assert answer != number or number in begun
            assert left == sorted(ended), f"left {left}, but cleaned up behind {ended}"
            assert 0 == pool.orphans, f"{pool.orphans} functions are said to run"
            # Every worker that has not gone is at home, once.
            assert pool.workers == len(pool.idle) == len(set(map(id, pool.idle))), "a worker is lost, or there twice"
            assert all((None, None, None) == (one._value, one._error, one._on_end) for one in pool.idle)

        bodies = tuple(calling(first * jobs) for first in range(callers))
        return Race(bodies, (pool, ended, begun), check, patience)

    return make


# ------------------------------------------------------------------------------------------------ caller against worker
def test_giving_up_against_beginning_and_ending(explore):
    """One job: the caller may give up at any moment, and the worker begins, ends and waits, in every interleaving."""
    report = explore(callers(1, (1,)))

    assert report.schedules >= 30, report
    assert len(report.outcomes) >= 3, report


def test_giving_up_and_the_next_job(explore):
    """Two jobs, at most two preemptions: no signal that was meant for the first caller reaches the next."""
    report = explore(callers(2, (1,)), preemptions=2)

    assert report.schedules >= 50, report
    assert len(report.outcomes) >= 4, report


@pytest.mark.proof
@pytest.mark.parametrize("patience", [(1,), (2,), (1, 1)], ids=["once", "twice", "and the worker goes"])
def test_giving_up_and_the_next_job_in_full(explore, patience):
    """Two jobs in every interleaving; the caller gives up once or twice, or the idle worker wants to go as well."""
    report = explore(callers(2, patience))

    assert report.schedules >= 200, report
    assert len(report.outcomes) >= 4, report


@pytest.mark.proof
def test_three_jobs(explore):
    """Three jobs, at most three preemptions: whatever the first one left behind, the last one is well."""
    report = explore(callers(3, (1,)), preemptions=3)

    assert report.schedules >= 500, report


def test_an_idle_worker_goes(explore):
    """A worker that has been idle for long goes, or is given the next job: never both, in every interleaving."""
    report = explore(callers(2, (0, 1)))

    assert report.schedules >= 50, report
    assert len(report.outcomes) >= 2, report


# ------------------------------------------------------------------------------------------------ three threads
def test_two_callers_of_one_worker(explore):
    """Two callers of a pool of one, at most one preemption: one works or both do, one after the other."""
    report = explore(callers(1, (1, 1), callers=2), preemptions=1)

    assert report.schedules >= 50, report


@pytest.mark.proof
@pytest.mark.parametrize("limit", [1, 2])
def test_two_callers_in_full(explore, limit):
    """Two callers of a pool of one or two, of which the first may give up; at most two preemptions, or one."""
    report = explore(callers(1, (1, 0), limit=limit, callers=2), preemptions=3 - limit)

    assert report.schedules >= 200, report


# ------------------------------------------------------------------------------------------------ faults that must be found
def test_a_lock_replaced_after_the_claim_is_found(explore, monkeypatch):
    """The explorer finds the caller that waits on a lock nobody signals where the lock is replaced too late."""

    def abandon(self, on_end):
        job = self._job
        self._on_end = on_end
        self._pool.orphan(1)
        begun = _take(job, 1) is None
        left = _take(job, 0) is not None
        if not (begun and left):
            self._ended()
        # The worker may be somebody else's by now, or signal what the next one waits for.
        self._done = workers._locked()

    monkeypatch.setattr(Worker, "_abandon", abandon)

    with pytest.raises(Found):
        explore(callers(1, (1, 0), callers=2), preemptions=2)


def test_a_clean_up_noted_after_the_claim_is_found(explore, monkeypatch):
    """The explorer finds the clean-up that is forgotten where it is noted after the claim."""

    def abandon(self, on_end):
        job = self._job
        self._done = workers._locked()
        self._pool.orphan(1)
        begun = _take(job, 1) is None
        left = _take(job, 0) is not None
        self._on_end = on_end
        if not (begun and left):
            self._ended()

    monkeypatch.setattr(Worker, "_abandon", abandon)

    with pytest.raises(Found, match="but cleaned up behind"):
        explore(callers(1, (1,)))


def test_a_signal_without_a_claim_is_found(explore, monkeypatch):
    """The explorer finds the lost worker where its end is signalled although the caller may have left."""

    def loop(self):
        while True:
            job = self._job
            task = _take(job, 1)
            if task is not None:
                self._run(*task)
                if job:
                    signal(job[0])
                else:
                    self._ended()
            self._wake.acquire()

    monkeypatch.setattr(Worker, "_loop", loop)

    with pytest.raises(Found):
        explore(callers(1, (1,)))


def test_one_lock_for_all_jobs_is_found(explore, monkeypatch):
    """The explorer finds the signal that reaches the next caller where the lock of an abandoned job is used again."""

    def abandon(self, on_end):
        job = self._job
        self._on_end = on_end
        self._pool.orphan(1)
        if _take(job, 1) is None and job:
            # Left to itself; it will signal when it ends, whoever waits then.
            self._ended()
        else:
            self._ended()

    monkeypatch.setattr(Worker, "_abandon", abandon)

    with pytest.raises(Found):
        explore(callers(2, (1,)), preemptions=2)


def test_a_worker_that_goes_without_asking_is_found(explore, monkeypatch):
    """The explorer finds the job that nobody does where an idle worker goes without leaving the pool first."""

    def retire(self, worker):
        if worker not in self.idle:
            return False
        self.lose()
        self.idle = [other for other in self.idle if other is not worker]
        return True

    monkeypatch.setattr(WorkerPool, "retire", retire)

    with pytest.raises(Found):
        explore(callers(2, (0, 1)))
