"""Frozen records with named fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from resilience._core.record import Record
from resilience._core.report import LastFailure
from resilience._words import FaultKind


class Point(Record):
    """A record of the tests'."""

    x: int
    y: int = 0


class Named(Point):
    """One that adds a field and gives another one a default."""

    name: str
    x: int = 7


class Other(Record):
    """Another one with the same fields."""

    x: int
    y: int = 0


def test_fields_and_defaults():
    """Fields by name, defaults where none is given."""
    point = Point(x=1)

    assert (1, 0) == (point.x, point.y)
    assert {"x": 1, "y": 0} == point.as_dict()


def test_inherited_fields_keep_their_places():
    """What a record adds comes after what it has; a default makes a required field optional."""
    assert ["x", "y", "name"] == list(Named(name="a").as_dict())
    assert 7 == Named(name="a").x


def test_a_record_of_ones_own():
    """A class below a record is one too: with its fields, those it takes over, and their defaults."""

    class Base(Record):
        x: int
        y: int = 0

    class Full(Base):
        name: str
        x: int = 7

    class Same(Full):
        pass

    assert {"x": 1, "y": 0} == Base(x=1).as_dict()
    for record in (Full(name="a"), Same(name="a")):
        assert [("x", 7), ("y", 0), ("name", "a")] == list(record.as_dict().items())
    for kind, missing in ((Base, "x"), (Full, "name"), (Same, "name")):
        with pytest.raises(TypeError, match=rf"missing \['{missing}'\], unknown \[\]$"):
            kind()


def test_missing():
    """A required field must be given."""
    with pytest.raises(TypeError, match=r"^Point: missing \['x'\], unknown \[\]$"):
        Point(y=1)


def test_unknown():
    """No other may be."""
    with pytest.raises(TypeError, match=r"^Point: missing \['x'\], unknown \['z'\]$"):
        Point(z=1)


def test_by_name_only():
    """Positions mean nothing."""
    with pytest.raises(TypeError):
        Point(1)


def test_frozen():
    """Neither set nor deleted, nor given something new."""
    point = Point(x=1)
    with pytest.raises(AttributeError, match=r"^Point\.x is read-only$"):
        point.x = 2
    with pytest.raises(AttributeError, match=r"^Point\.x is read-only$"):
        del point.x
    with pytest.raises(AttributeError):
        point.z = 3

    assert 1 == point.x


def test_equal_by_value():
    """A default and the same value given are one; so are their hashes."""
    assert Point(x=1) == Point(x=1, y=0)
    assert 1 == len({Point(x=1), Point(x=1, y=0)})


@pytest.mark.parametrize(
    "other", [Point(x=2), Point(x=1, y=1), Other(x=1), Named(x=1, name="a"), {"x": 1, "y": 0}, None]
)
def test_unequal(other):
    """Another value, another type."""
    assert Point(x=1) != other


@pytest.mark.parametrize("other", [Point(x=2), Point(x=1, y=1), Other(x=1)])
def test_hashes_differ(other):
    """What is unequal is found apart in a set."""
    assert hash(Point(x=1)) != hash(other)


def test_repr():
    """Reads like the call that makes it."""
    assert "Named(x=1, y=0, name='a')" == repr(Named(x=1, name="a"))


def test_repr_of_a_set():
    """The same set reads the same in every process."""
    assert "Point(x={a, b, c}, y='d')" == repr(Point(x=frozenset("cab"), y="d"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol):
    """Records cross processes with the fields they were given."""
    record = LastFailure(type_name="shop.Busy", kind=FaultKind.TRANSIENT, time=7)

    assert record == pickle.loads(pickle.dumps(record, protocol))


def test_copies():
    """A copy is equal and frozen too."""
    twin = copy.deepcopy(Point(x=1, y=2))

    assert Point(x=1, y=2) == twin
    with pytest.raises(AttributeError):
        twin.x = 3
