"""An explorer for each test, and a clock that every `time.monotonic` of the library reads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from scheduler import Explorer

from resilience import Registry
from resilience.testing import ManualClock


@pytest.fixture(scope="package")
def explorer():
    """One for all tests: where tracing ends and begins again, Python 3.13 gives no more bytecodes of code it knows."""
    explorer = Explorer()
    yield explorer
    explorer.close()


@pytest.fixture
def explore(request, explorer):
    """`explore(make, preemptions=None)`: run a scenario in every schedule; what it was is printed, for `-s` and `-rP`."""
    explorer.traced_file = str(request.path)

    def run(make, **options):
        report = explorer(make, **options)
        print(f"{request.node.name}: {report}", *report.places, sep="\n    ")
        return report

    run.explorer = explorer
    return run


@pytest.fixture
def system_time(monkeypatch):
    """The system's time, which stands still: wrappers take the straight path, and nothing depends on how long things take."""
    clock = ManualClock(1000.0)
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    return clock


@pytest.fixture
def quiet_registry():
    """`quiet_registry(clock=None)`: a registry whose events stay in the outbox, so that delivery is no part of the scenario."""

    def make(clock=None):
        registry = Registry() if clock is None else Registry(clock)
        registry.hub.deliver = lambda: None
        return registry

    return make


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All of it is a long search beside the plain tests."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.proof)
