"""Slots over threads and event loops: never exceeded, never lost."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from resilience import BulkheadConfig, BulkheadFullError, bulkhead, interruptible, retry, timeout


class Gauge:
    """How many are inside, and the most that ever were."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = 0
        self.most = 0
        self.entries = 0

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.entries += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *exc):
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("wait", [0, 5])
def test_slots_over_threads_and_three_loops(registry, together, restless, wait):
    """Issue 2: the bulkhead holds over threads and several event loops at once: slots are never exceeded."""
    gauge = Gauge()
    pool = registry.bulkhead("pool", BulkheadConfig(3, 500))

    @bulkhead("pool", wait=wait)
    def call():
        with gauge:
            pass

    @bulkhead("pool", wait=wait)
    async def acall():
        with gauge:
            await asyncio.sleep(0)

    def work(index):
        full = 0
        if index < 5:
            for _ in range(60):
                try:
                    call()
                except BulkheadFullError:
                    full += 1
            return full

        async def one():
            try:
                await acall()
            except BulkheadFullError:
                return 1
            return 0

        async def main():
            return sum(await asyncio.gather(*(one() for _ in range(60))))

        return asyncio.run(main())

    full = together(8, work)
    assert gauge.most <= 3
    assert 8 * 60 == gauge.entries + sum(full)
    assert (0, 0, 0) == (gauge.now, pool.in_flight, pool.waiting)
    if wait:
        assert 0 == sum(full)


def test_short_waits_and_cancels(registry, together, restless):
    """Section 7: waiters that expire and are cancelled in storms neither lose nor block a slot."""
    gauge = Gauge()
    pool = registry.bulkhead("pool", BulkheadConfig(2, 500))

    @bulkhead("pool", wait=0.002)
    def call():
        with gauge:
            time.sleep(0.0002)

    @bulkhead("pool", wait=0.002)
    async def acall():
        with gauge:
            await asyncio.sleep(0.0005)

    def work(index):
        rng = random.Random(index)
        if index < 3:
            for _ in range(50):
                try:
                    call()
                except BulkheadFullError:
                    pass
            return

        async def main():
            tasks = []
            for _ in range(60):
                tasks.append(asyncio.create_task(acall()))
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                    rng.choice(tasks).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(main())

    assert [None] * 6 == together(6, work)
    assert gauge.most <= 2
    assert (0, 0, 0) == (gauge.now, pool.in_flight, pool.waiting)

    @bulkhead("pool")
    def one():
        return bulkhead("pool")(lambda: "both slots are there")()

    assert "both slots are there" == one()


def test_loops_that_die_with_waiters_in_line(registry, together, restless):
    """Section 7: closed loops are skipped, whoever stands behind them is served."""
    pool = registry.bulkhead("pool", BulkheadConfig(1, 500))

    @bulkhead("pool", wait=5)
    async def acall():
        await asyncio.sleep(0)

    @bulkhead("pool", wait=5)
    def call():
        return "served"

    def work(index):
        if index % 2:
            return [call() for _ in range(30)].count("served")
        for _ in range(15):

            async def main():
                tasks = [asyncio.create_task(acall()) for _ in range(4)]
                await asyncio.sleep(0)
                return len(tasks)  # asyncio.run cancels what is left and closes the loop

            asyncio.run(main())
        return 30

    assert [30] * 6 == together(6, work)
    assert (0, 0) == (pool.in_flight, pool.waiting)


def test_unnamed_bulkheads_hold_too(registry, together, restless):
    """Section 7: one of the function's own."""
    gauge = Gauge()

    @bulkhead(max_in_flight=2, max_waiting=100, wait=5)
    @retry(2, wait=0, idempotent=True)
    def call(fails):
        with gauge:
            if fails:
                raise ConnectionError

    def work(index):
        for number in range(40):
            try:
                call(number % 3 == 0)
            except ConnectionError:
                pass

    assert [None] * 8 == together(8, work)
    assert gauge.most <= 2


def test_orphans_and_slots(registry, together):
    """Section 5, I8: workers given up at their deadline keep their slots exactly as long as they run."""
    gauge = Gauge()
    pool = registry.bulkhead("pool", BulkheadConfig(3))

    @bulkhead("pool")
    @timeout(0.004)
    @interruptible(max_workers=3)
    def call(seconds):
        with gauge:
            time.sleep(seconds)

    def work(index):
        rng = random.Random(index)
        for _ in range(4):
            try:
                call(rng.choice([0, 0.002, 0.008]))
            except (TimeoutError, BulkheadFullError):
                pass

    assert [None] * 6 == together(6, work)
    assert gauge.most <= 3
    gate = threading.Event()
    for _ in range(400):
        if pool.in_flight == 0:
            break
        gate.wait(0.002)
    assert (0, 0) == (pool.in_flight, gauge.now)
