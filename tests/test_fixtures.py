"""The pytest fixtures that users load with `pytest_plugins = ["resilience.testing.fixtures"]`."""

from __future__ import annotations

import pytest

from resilience import BreakerConfig, CircuitOpenError, Consecutive, breaker, default_registry
from resilience.testing import ManualClock
from resilience.testing.fixtures import clean_registry, manual_clock

__all__ = ["clean_registry", "manual_clock"]


def test_a_clean_registry_is_the_tests_own(clean_registry):
    """What is made inside registers there, not in the process-wide one."""
    breaker("fixture-only", BreakerConfig())

    assert "fixture-only" in clean_registry
    assert "fixture-only" not in default_registry()


def test_a_manual_clock_moves_the_cooldown(manual_clock):
    """The circuit cools when the clock is advanced, and not before."""
    assert isinstance(manual_clock, ManualClock)
    ref = breaker("fixture", BreakerConfig(Consecutive(1), cooldown=30))
    with pytest.raises(ConnectionError), ref.guard():
        raise ConnectionError
    with pytest.raises(CircuitOpenError), ref.guard():
        pass
    manual_clock.advance(30)

    assert not ref.is_open()


def test_the_clock_refuses_to_go_back():
    """Time that is told to go back is a mistake of the test."""
    with pytest.raises(ValueError, match="seconds must be >= 0, got -1"):
        ManualClock().advance(-1)
