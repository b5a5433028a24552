"""A registry of its own for each test, a provider that fails on demand, and policies without pauses."""

from __future__ import annotations

import pytest

from resilience import BreakerConfig, Consecutive, Registry, breaker, bulkhead, retry, use_registry


class Provider:
    """A remote service: it counts what reaches it, and fails as often as told."""

    def __init__(self):
        self.calls = 0
        self.failures_left = 0
        self.while_busy = None

    def answer(self, text):
        self.calls += 1
        if self.failures_left:
            self.failures_left -= 1
            raise ConnectionError("provider is down")
        if self.while_busy is not None:
            self.while_busy()
        return f"re: {text}"


class Policies:
    """The policies of these tests, by name: two failures open the breaker, two attempts, one call in flight."""

    @property
    def breaker(self):
        return breaker("provider", BreakerConfig(Consecutive(2)))

    @property
    def retry(self):
        return retry(2, wait=0, idempotent=True)

    @property
    def bulkhead(self):
        return bulkhead(max_in_flight=1)


@pytest.fixture(autouse=True)
def registry():
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def policies():
    return Policies()
