"""Fixtures for pytest: `pytest_plugins = ["resilience.testing.fixtures"]` in a conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from resilience import Registry, use_registry
from resilience.testing.clock import ManualClock, use_clock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clean_registry() -> Iterator[Registry]:
    """A registry of the test's own, used for what it decorates and looks up."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def manual_clock(clean_registry: Registry) -> Iterator[ManualClock]:
    """A clock that stands still until advanced, in the test's own registry."""
    clock = ManualClock()
    with use_clock(clock, clean_registry):
        yield clock
