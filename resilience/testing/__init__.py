"""For tests: a clock that moves when told, and fixtures for pytest (`pytest_plugins = ["resilience.testing.fixtures"]`)."""

from resilience.testing.clock import ManualClock, use_clock

__all__ = ["ManualClock", "use_clock"]
