"""A registry of the test's own, threads that are waited for, and a thread switch after every few bytecodes where asked."""

from __future__ import annotations

import sys
import threading

import pytest

from resilience import Registry, use_registry


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def restless():
    """The interpreter switches threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.fixture
def together():
    """`together(n, work)`: run `work(index)` in n threads that start at once; their results in order, exceptions included."""

    def run(count, work, seconds=20):
        start = threading.Barrier(count)
        results = [None] * count

        def one(index):
            start.wait(10)
            try:
                results[index] = work(index)
            except BaseException as exc:
                results[index] = exc

        threads = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
        assert not any(thread.is_alive() for thread in threads), "deadlock"
        return results

    return run
