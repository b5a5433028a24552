"""Keys: whatever a call gives becomes safe texts, or no key; nothing raises, and nothing takes another's place."""

from __future__ import annotations

from collections import namedtuple
from enum import Enum, IntEnum, StrEnum

import pytest

from resilience._core.keys import NoKey, read_key, read_spelled, spelled_key


class Text(str):
    """A text that says something else when it is asked."""

    def __str__(self):
        return "another"


class Provider(Enum):
    OPENAI = "openai"
    ONE = 1
    UNSAFE = "a b"


class Model(StrEnum):
    SMALL = "small-1"


class Size(IntEnum):
    LARGE = 3


class Hostile:
    """Nothing can be done with it."""

    def _refuse(self, *ignored):
        raise RuntimeError("no")

    __hash__ = __eq__ = __str__ = __repr__ = __iter__ = __len__ = __bool__ = __index__ = _refuse


class HostileInt(int):
    __index__ = __str__ = __int__ = Hostile._refuse


class Claiming:
    """A proxy that claims to be a text."""

    @property
    def __class__(self):
        return str


Pair = namedtuple("Pair", "provider model")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("gpt-4.1", "gpt-4.1"),
        ("A/b_c:d.e@f+g-h", "A/b_c:d.e@f+g-h"),
        ("x" * 256, "x" * 256),
        (Text("mine"), "mine"),
        (Provider.OPENAI, "openai"),
        (Model.SMALL, "small-1"),
        (Size.LARGE, "3"),
        (42, "42"),
        (0, "0"),
        (-7, "-7"),
        (10**255, "1" + "0" * 255),
        (HostileInt(5), "5"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_part(given, text):
    """Texts, enum members by their value, whole numbers as decimals: always a text of our own."""
    key = read_key(given, 1)

    assert (text,) == key
    assert str is type(key[0])


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a b",
        "größe",
        "a\n",
        "a,b",
        "a[b]",
        "x" * 257,
        "\ud800",
        b"openai",
        None,
        True,
        False,
        1.0,
        10**256,
        -(10**256),
        1 << 100_000,
        [],
        ["openai"],
        {},
        Provider.ONE,
        Provider.UNSAFE,
        object.__new__(Provider),
        Claiming(),
        object(),
        str,
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_part(given):
    """Anything else is no key, and does not raise."""
    assert NoKey.UNSAFE is read_key(given, 1)
    assert NoKey.UNSAFE is read_key(("openai", given), 2)


def test_what_does_not_let_itself_be_touched():
    """No hash, no comparison, no text: it is no key all the same."""
    assert NoKey.UNSAFE is read_key(Hostile(), 1)
    assert NoKey.UNSAFE is read_key(("openai", Hostile()), 2)


@pytest.mark.parametrize(("given", "count"), [((), 1), ("a", 2), (("a", "b"), 1), (("a", "b", "c"), 2), ((), 0)])
def test_the_wrong_number_of_parts(given, count):
    """As many parts as labels."""
    assert NoKey.PARTS is read_key(given, count)


def test_any_number_of_parts():
    """Where nobody has said how many there are."""
    assert [("a",), ("a", "b")] == [read_key("a", 0), read_key(("a", "b"), 0)]
    assert 16 == len(read_key(("a",) * 16, 0))
    assert NoKey.PARTS is read_key(("a",) * 17, 0)


def test_a_tuple_of_another_class():
    """Its parts are taken from the tuple itself, whatever its class says."""

    class Odd(tuple):
        __iter__ = __len__ = Hostile._refuse

    assert ("openai", "gpt") == read_key(Pair("openai", "gpt"), 2) == read_key(Odd(("openai", "gpt")), 2)


def test_numbers_do_not_alias():
    """1, True and 1.0 are equal and hash alike, but only one of them is a key."""
    assert [("1",), NoKey.UNSAFE, NoKey.UNSAFE] == [read_key(given, 1) for given in (1, True, 1.0)]


def test_a_name_with_a_key_as_one_text():
    """And back; what is no such text is none."""
    assert "llm[openai,gpt-4]" == spelled_key("llm", ("openai", "gpt-4"))
    assert ("llm", ("openai", "gpt-4")) == read_spelled("llm[openai,gpt-4]")
    assert [None] * 4 == [read_spelled(text) for text in ("llm", "llm]", "llm[a", None)]
