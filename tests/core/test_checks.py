"""Checks that collect every fault before one error lists them all."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.checks import Faults, as_number, as_seconds, checked, is_safe_name
from resilience._words import CircuitState, FaultKind
from resilience.errors import ConfigurationError

TWO = (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)


class Unprintable:
    """An object that is of no help."""

    def __repr__(self):
        raise RuntimeError("no")


class Wide:
    """An object with much to say."""

    def __repr__(self):
        return "wide\n" * 50


NO_NUMBERS = [
    *(math.nan, math.inf, -math.inf, True, False, 10**400, -(10**400), 10**5_000),
    *("1", b"1", None, [], {}, 1j, Decimal(1), Fraction(1), Unprintable(), Wide(), object, timedelta),
]


def check(method, value, **options):
    """What a check says about one value: its normal form, and the lines."""
    faults = Faults()
    return getattr(faults, method)("it", value, **options), faults.lines


# ---------------------------------------------------------------------------------------------------- collecting
def test_no_fault():
    """Nothing noted, nothing raised."""
    faults = Faults()
    faults.raise_any()

    assert not faults


def test_all_lines_in_one_error():
    """Each fault is a line: parameter, what would be right, the value given."""
    faults = Faults()
    faults.add("cooldown", -1, "> 0")
    faults.say("and nothing fits")
    faults.seconds("lease", math.nan)

    assert faults
    with pytest.raises(ConfigurationError) as caught:
        faults.raise_any()
    assert (
        "cooldown must be > 0, got -1",
        "and nothing fits",
        "lease must be a finite number of seconds > 0, got nan",
    ) == caught.value.faults
    assert "\n".join(caught.value.faults) == str(caught.value)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("method", ["seconds", "share", "count", "flag", "name", "callable_or_none"])
def test_hostile_values(method, value):
    """I20: whatever is given, there is at most one line, short and single, and no exception."""
    _, lines = check(method, value)

    assert len(lines) <= 1
    assert all(len(line) < 200 and "\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("method", "value", "options"),
    [
        *((method, "a b", {}) for method in ("seconds", "share", "count", "flag", "callable_or_none", "name")),
        ("member", "a b", {"words": FaultKind}),
        ("members", "a b", {"words": FaultKind, "allowed": TWO}),
        ("members", ["internal"], {"words": FaultKind, "allowed": TWO}),
        ("choice", "a b", {"words": ("attempt", "call")}),
        ("instance", "a b", {"kind": Wide}),
        ("instance_or_none", "a b", {"kind": Wide}),
        ("text", " ", {}),
    ],
)
def test_each_line_shows_the_value(method, value, options):
    """Whatever is wrong, the reader sees what was given."""
    (line,) = check(method, value, **options)[1]

    assert line.endswith(f", got {value!r}")


# ---------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_no_number(value):
    """Only finite ints and floats are numbers; a bool is none."""
    assert as_number(value) is None


@pytest.mark.parametrize("value", [0, -3, 2.5, 10**300, 5e-324])
def test_numbers(value):
    """As a float."""
    number = as_number(value)

    assert (float(value), float) == (number, type(number))


@given(st.one_of(st.floats(), st.integers(), st.booleans(), st.text(), st.none(), st.timedeltas()))
def test_any_value_is_a_finite_number_or_none(value):
    """I20: no value crashes it."""
    number = as_seconds(value)

    assert number is None or math.isfinite(number)


@pytest.mark.parametrize(
    ("value", "seconds"), [(3, 3.0), (0.5, 0.5), (timedelta(seconds=90), 90.0), (timedelta(days=-1), -86_400.0)]
)
def test_as_seconds(value, seconds):
    """A number or a timedelta."""
    assert seconds == as_seconds(value)


def test_something_named_timedelta():
    """A foreign type of that name is none."""

    class timedelta:
        pass

    assert as_seconds(timedelta()) is None


@pytest.mark.parametrize(
    ("value", "zero"), [(5e-324, False), (30, False), (0, True), (0.0, True), (timedelta(1), False)]
)
def test_seconds(value, zero):
    """Right ones come back as floats."""
    number, lines = check("seconds", value, zero=zero)

    assert (float, []) == (type(number), lines)


@pytest.mark.parametrize(
    ("value", "zero", "right"),
    [
        (0, False, "> 0, got 0"),
        (-1, False, "> 0, got -1"),
        (-0.5, True, ">= 0, got -0.5"),
        (math.nan, True, ">= 0, got nan"),
        (True, True, ">= 0, got True"),
        (timedelta(0), False, "> 0, got datetime.timedelta(0)"),
    ],
)
def test_wrong_seconds(value, zero, right):
    """Zero only where it means something; never negative."""
    assert [f"it must be a finite number of seconds {right}"] == check("seconds", value, zero=zero)[1]


@pytest.mark.parametrize(("value", "zero"), [(5e-324, False), (0.5, False), (1, False), (0, True)])
def test_share(value, zero):
    """Above 0, at most 1."""
    number, lines = check("share", value, zero=zero)

    assert (value, float, []) == (number, type(number), lines)


@pytest.mark.parametrize(
    ("value", "zero", "right"),
    [
        (0, False, "(0, 1]"),
        (1.0001, False, "(0, 1]"),
        (-0.1, True, "[0, 1]"),
        (2, True, "[0, 1]"),
        (True, True, "[0, 1]"),
    ],
)
def test_wrong_share(value, zero, right):
    """The range is named as it is written."""
    assert [f"it must be a number in {right}, got {value}"] == check("share", value, zero=zero)[1]


@pytest.mark.parametrize(("value", "least"), [(1, 1), (10**30, 1), (0, 0)])
def test_count(value, least):
    """Whole numbers from `least` on."""
    assert (value, []) == check("count", value, least=least)


@pytest.mark.parametrize(("value", "least"), [(0, 1), (-1, 0), (True, 1), (1.0, 1), ("3", 1), (math.nan, 0), (None, 0)])
def test_wrong_count(value, least):
    """A float is no count, whatever it says."""
    assert [f"it must be a whole number >= {least}, got {value!r}"] == check("count", value, least=least)[1]


# ---------------------------------------------------------------------------------------------------- words
@pytest.mark.parametrize("value", [True, False])
def test_flag(value):
    """True or False."""
    assert [] == check("flag", value)[1]


@pytest.mark.parametrize("value", [0, 1, "True", None, [], Unprintable()])
def test_wrong_flag(value):
    """Nothing that merely looks like it."""
    (line,) = check("flag", value)[1]

    assert line.startswith("it must be True or False, got ")


@pytest.mark.parametrize("value", [CircuitState.HALF_OPEN, "half_open"])
def test_member(value):
    """A member, or its spelling."""
    assert (CircuitState.HALF_OPEN, []) == check("member", value, words=CircuitState)


@pytest.mark.parametrize("value", ["HALF_OPEN", "ajar", None, 3, [], {}, FaultKind.TRANSIENT, Unprintable()])
def test_wrong_member(value):
    """All right ones are listed; I20: whatever the wrong one is."""
    (line,) = check("member", value, words=CircuitState)[1]

    assert line.startswith("it must be one of 'closed', 'open', 'half_open', got ")


def test_checked():
    """One word alone: the member, or one error that names the parameter."""
    assert CircuitState.OPEN is checked(CircuitState, "state", "open")
    with pytest.raises(ConfigurationError, match=r"^state must be one of 'closed', 'open', 'half_open', got 'ajar'$"):
        checked(CircuitState, "state", "ajar")


@pytest.mark.parametrize(
    "value",
    [
        FaultKind.TRANSIENT,
        "transient",
        ["transient"],
        {FaultKind.TRANSIENT},
        (FaultKind.TRANSIENT, "transient"),
    ],
)
def test_members(value):
    """One or a collection, members or spellings: a frozenset of members."""
    assert (frozenset({FaultKind.TRANSIENT}), []) == check("members", value, words=FaultKind, allowed=TWO)


def test_all_members_that_are_allowed():
    """Nothing has to be left out."""
    assert (frozenset(TWO), []) == check("members", TWO, words=FaultKind, allowed=TWO)


def test_members_from_an_iterator():
    """It is read once."""
    value = iter([FaultKind.TRANSIENT])

    assert (frozenset({FaultKind.TRANSIENT}), []) == check("members", value, words=FaultKind, allowed=TWO)


@pytest.mark.parametrize(
    "value",
    [(), [], "", "internal", [FaultKind.INTERNAL], ["transient", "internal"], 3, None, ["ajar"], [[]], [Unprintable()]],
)
def test_wrong_members(value):
    """Empty, unknown or not allowed: the line lists what is."""
    (line,) = check("members", value, words=FaultKind, allowed=iter(TWO))[1]

    assert line.startswith("it must be a non-empty collection of 'transient', 'downstream', got ")


@pytest.mark.parametrize("value", [None, len, lambda: None, int])
def test_callable(value):
    """Something that can be called, or nothing."""
    assert (value, []) == check("callable_or_none", value)


@pytest.mark.parametrize("value", [3, "len", []])
def test_not_callable(value):
    """Else a fault."""
    assert [f"it must be a callable or None, got {value!r}"] == check("callable_or_none", value)[1]


@pytest.mark.parametrize("value", ["call", "attempt"])
def test_choice(value):
    """One of a few texts."""
    assert [] == check("choice", value, words=("attempt", "call"))[1]


@pytest.mark.parametrize("value", ["CALL", "", None, 1, [], Unprintable()])
def test_wrong_choice(value):
    """The right ones are spelled out."""
    (line,) = check("choice", value, words=("attempt", "call"))[1]

    assert line.startswith("it must be 'attempt' or 'call', got ")


def test_instance():
    """An object of one type; where it may be missing, None too."""
    assert [] == check("instance", Wide(), kind=Wide)[1]
    assert [] == check("instance_or_none", Wide(), kind=Wide)[1]
    assert [] == check("instance_or_none", None, kind=Wide)[1]


@pytest.mark.parametrize(("method", "right"), [("instance", "a Wide"), ("instance_or_none", "a Wide or None")])
@pytest.mark.parametrize("value", [Wide, 3, Unprintable()])
def test_wrong_instance(value, method, right):
    """A class is no object of itself."""
    (line,) = check(method, value, kind=Wide)[1]

    assert line.startswith(f"it must be {right}, got ")


def test_no_instance():
    """Where it must be there, None is a fault."""
    assert ["it must be a Wide, got None"] == check("instance", None, kind=Wide)[1]


@pytest.mark.parametrize("name", ["a", "db", "llm:open/v1.2@eu-west_1+b", "x" * 256])
def test_safe_names(name):
    """Up to 256 bytes of an alphabet that no label, log line or command minds."""
    assert is_safe_name(name)
    assert (name, []) == check("name", name)


def test_a_name_is_a_plain_text():
    """A subclass counts by its text, which is what is kept."""

    class Text(str):
        def __str__(self):
            return "another"

    name, lines = check("name", Text("db"))

    assert ("db", str, []) == (name, type(name), lines)


@pytest.mark.parametrize(("value", "expected"), [(0, 0.0), (0.5, 0.5), (10**6, 1e6)])
def test_rate(value, expected):
    """So many a second, none included."""
    assert (expected, []) == check("rate", value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "1", None])
def test_no_rate(value):
    """A number that can't be, or none."""
    (line,) = check("rate", value)[1]

    assert line.startswith("it must be a finite number >= 0, got ")


@pytest.mark.parametrize("value", ["a", " a "])
def test_text(value):
    """A text that says something."""
    assert [] == check("text", value)[1]


@pytest.mark.parametrize("value", ["", " \n", None, 3, b"a", Unprintable()])
def test_no_text(value):
    """Nothing, or nothing but blanks, says nothing."""
    (line,) = check("text", value)[1]

    assert line.startswith("it must be a text that is not empty, got ")


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "a b", "a\n", "ä", "a\x00", "a'", 'a"', "${a}", "٣", "a,b", None, b"a", 3, True]
)
def test_unsafe_names(name):
    """Everything else is a fault."""
    assert not is_safe_name(name)
    (line,) = check("name", name)[1]
    assert line.startswith("it must be a str of 1 to 256 bytes of A-Z a-z 0-9 . _ : / @ + -, got ")
