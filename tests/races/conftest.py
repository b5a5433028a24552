"""A registry of the test's own, and a thread switch after every few bytecodes where asked."""

from __future__ import annotations

import sys

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
