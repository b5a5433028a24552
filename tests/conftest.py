"""What every test runs under: a fixed hypothesis profile and no sleeping; and threads that start at once."""

from __future__ import annotations

import os
import threading
import time

import pytest

try:
    import hypothesis
except ImportError:
    # The core-only run brings no more than it must.
    pass
else:
    # A deadline in wall-clock time would make tests flaky; in CI the same examples come every time.
    hypothesis.settings.register_profile("resilience", deadline=None, derandomize="CI" in os.environ)
    hypothesis.settings.load_profile("resilience")

SLEEP_LIMIT = 0.05


@pytest.fixture(autouse=True)
def no_long_sleep(request):
    """Fail a test in which one thread asks time.sleep for more than 50 ms in total."""
    if request.node.get_closest_marker("slow_sleep"):
        yield
        return
    real_sleep = time.sleep
    mine = threading.local()  # thread idents are used again, so they can't be the key
    longest = [0.0]

    def guarded_sleep(seconds):
        mine.slept = getattr(mine, "slept", 0.0) + seconds
        if mine.slept > SLEEP_LIMIT:
            longest.append(mine.slept)
            raise AssertionError(
                f"a test must not sleep: {mine.slept:.3f} s asked for, at most {SLEEP_LIMIT} s allowed"
            )
        real_sleep(seconds)

    time.sleep = guarded_sleep
    try:
        yield
    finally:
        time.sleep = real_sleep
    # The error above may have been swallowed by the code under test or died with its thread.
    assert max(longest) <= SLEEP_LIMIT, f"a thread of this test asked for {max(longest):.3f} s of sleep"


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
