"""A registry of the test's own."""

from __future__ import annotations

import pytest

from resilience import Registry, use_registry


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry
