"""Every row of the table, on stand-ins that look like the real exceptions."""

from __future__ import annotations

import importlib

import instances
import pytest
import rows
from specimen import StandIns

from resilience import FaultFlag, classify
from resilience.catalogue.homes import HOMES, rules_of

RECORDED = rows.specimens()
STAND_INS = StandIns(RECORDED["classes"])
OURS = [row for row in rows.ROWS if row.library in rows.ALWAYS_HERE]
THEIRS = [row for row in rows.ROWS if row.library not in rows.ALWAYS_HERE]


def by_name(row):
    return row.name[:120]


@pytest.mark.parametrize("row", OURS, ids=by_name)
def test_the_standard_library(row):
    """Real instances, each of them such that its row's condition holds."""
    error = instances.build(row.expression)

    assert not row.condition or instances.holds(row.condition, error)
    assert [] == rows.differences(row, classify(error))


@pytest.mark.parametrize("row", THEIRS, ids=by_name)
def test_the_libraries(row):
    """Stand-ins with the names, the facts and the chain that were recorded from the real ones."""
    error = STAND_INS.make(RECORDED["instances"][row.name])

    assert [] == rows.differences(row, classify(error))


def needs_no_instance():
    """Rows that the class alone decides, one for each class."""
    found = {}
    for row in THEIRS:
        found.setdefault(row.exception, row)
    return [row for row in found.values() if not row.condition]


@pytest.mark.parametrize("row", needs_no_instance(), ids=by_name)
def test_a_name_is_enough(row):
    """A class is known by its name, whatever it derives from and whatever it carries."""
    module, _, name = row.exception.rpartition(".")
    error = type(name, (Exception,), {"__module__": module})("m")

    fault = classify(error)

    assert row.kind is fault.kind
    assert FaultFlag.UNCLASSIFIED not in fault.flags


def test_every_rule_has_a_home():
    """Each rule of each family is found by the first segment of its class's module, and each segment has some."""
    for family in sorted(set(HOMES.values())):
        rules = importlib.import_module(f"resilience.catalogue.{family}").RULES
        segments = [segment for segment, home in HOMES.items() if home == family]

        assert set(rules) == {rule for segment in segments for rule in rules_of(segment)}
        assert all(rules_of(segment) for segment in segments)


def test_nothing_is_left_out():
    """What was recorded is what the table has, no more and no less."""
    assert {row.name for row in THEIRS} == set(RECORDED["instances"])
    assert len(rows.ROWS) == len({row.name for row in rows.ROWS})
    # The families that the catalogue promises.
    assert {"aws", "azure", "google", "grpc", "http", "llm", "messaging", "nosql", "sql", "stdlib"} <= set(
        HOMES.values()
    )
    assert 1_250 <= len(rows.ROWS)
