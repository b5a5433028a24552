"""What rules ask, and how a question is put into words."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

import pytest

from resilience import FaultFlag, FaultKind
from resilience._core.rule import Rule
from resilience.catalogue.conditions import (
    FIRST_ARGUMENT,
    STATUS,
    Condition,
    Field,
    Told,
    attribute,
    flag,
    header,
    inside,
    opens_with,
    says,
    text_of,
)
from resilience.catalogue.families import Case, library
from resilience.catalogue.listing import entry_of

YES, NO = Condition("yes", lambda exc: True), Condition("no", lambda exc: False)


def broken(exc):
    raise RuntimeError


BROKEN = Condition("broken", broken)


class Number(IntEnum):
    SEVEN = 7


def holder(**facts):
    error = Exception()
    error.__dict__.update(facts)
    return error


@pytest.mark.parametrize(
    ("condition", "holds", "text"),
    [
        (YES | NO, True, "yes or no"),
        (NO | NO, False, "no or no"),
        (YES & NO, False, "yes and no"),
        (YES & YES, True, "yes and yes"),
        (~NO, True, "not (no)"),
        (~YES, False, "not (yes)"),
        # One side that raises says nothing; the other may hold all the same.
        (BROKEN | YES, True, "broken or yes"),
        (YES | BROKEN, True, "yes or broken"),
        (BROKEN | NO, False, "broken or no"),
    ],
)
def test_conditions_are_joined(condition, holds, text):
    """With words between them."""
    assert holds is condition(Exception())
    assert text == condition.text
    assert f"<{text}>" == repr(condition)


def test_what_raises_is_left_to_the_rule():
    """A rule whose condition raises does not hold, also where it is turned round."""
    with pytest.raises(RuntimeError):
        (~BROKEN)(Exception())


def test_fields_of_both_sides():
    """What a stand-in must carry for the whole question."""
    first, second = attribute("a"), attribute("b")

    assert (first, second) == (first.among("x") & ~second.among("y")).fields


@pytest.mark.parametrize(
    ("value", "found"),
    [(7, 7), (Number.SEVEN, 7), (True, None), (7.0, None), ("7", None), (None, None)],
)
def test_numbers(value, found):
    """An int, or an enum that stands for one; no bool, no text."""
    assert found == attribute("code", number=True).get(holder(code=value))


@pytest.mark.parametrize(
    ("value", "found"),
    [("word", "word"), (b"word", "word"), ("x" * 300, None), (7, None), (None, None), (["word"], None)],
)
def test_words(value, found):
    """Text of a decent length."""
    assert found == attribute("code").get(holder(code=value))


def test_a_field_that_can_not_be_read_is_missing():
    """What the reader raises means that there is nothing."""
    field = Field("code", broken, setattr)

    assert field.get(Exception()) is None
    assert field.missing(Exception())
    assert "there is no code" == field.missing.text
    assert "<field code>" == repr(field)


def test_questions_about_a_field():
    """One of some values, a range, a beginning."""
    number, word = attribute("n", number=True), attribute("w")

    assert number.among(1, 2)(holder(n=2))
    assert not number.among(1, 2)(holder(n="2"))
    assert [False, True, True, False, False] == [number.within(2, 3)(holder(n=n)) for n in (1, 2, 3, 4, "2")]
    assert [True, False, False] == [word.starting("ab", "c")(holder(w=w)) for w in ("abc", "xab", 7)]
    assert ("n is 1", "n is one of 1, 2", "n is 2 to 3", "w begins with ab or c") == (
        number.among(1).text,
        number.among(1, 2).text,
        number.within(2, 3).text,
        word.starting("ab", "c").text,
    )


def test_common_fields_are_written_and_read():
    """What is put on a stand-in is found there."""
    error = Exception("rest")
    FIRST_ARGUMENT.put(error, 1213)
    STATUS.put(error, 503)

    assert (1213, 503, (1213, "rest")) == (FIRST_ARGUMENT.get(error), STATUS.get(error), error.args)


def test_texts():
    """Phrases anywhere, or at the beginning; an exception without a text has none."""

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert says("lost", "gone")(Exception("it is gone"))
    assert not says("lost")(Mute())
    assert opens_with("BUSY ", "OOM")(Exception("OOM command"))
    assert not opens_with("BUSY ")(Exception("very BUSY "))
    assert "" == text_of(Mute())
    assert 65_536 == len(text_of(Exception("x" * 100_000)))


def test_headers_and_flags():
    """In any case of letters; only a real True is true."""
    error = holder(response=SimpleNamespace(headers={"X-Should-Retry": " TRUE "}), retryable=1)

    assert header("x-should-retry", "true")(error)
    assert not header("x-should-retry", "false")(error)
    assert not header("x-other", "true")(error)
    assert not flag("retryable")(error)
    assert flag("retryable")(holder(retryable=True))


def test_inside_of_dicts():
    """Entries of entries, past whatever is missing or no dict."""
    assert 7 == inside({"a": {"b": 7}}, "a", "b")
    assert inside({"a": 1}, "a", "b") is None
    assert inside(None, "a") is None


def test_a_reader_says_where_it_looks():
    """For the page and for `explain`."""
    told = Told("retry_after_s", lambda exc: exc.retry_after_s)

    assert 7 == told(holder(retry_after_s=7))
    assert "<retry_after_s>" == repr(told)


# ------------------------------------------------------------------------------------------------ families
def test_a_library_is_written_down_by_cases():
    """Every class of every package, in the order of the cases."""
    rules = library(
        "one two",
        Case("A B", FaultKind.TRANSIENT, FaultFlag.UNSENT),
        Case("A", FaultKind.CONTRACT, when=YES),
        code=lambda exc: "code",
        has_status=False,
    )

    assert ["one:A", "one:B", "one:A", "two:A", "two:B", "two:A"] == [rule.match for rule in rules]
    assert {False} == {rule.has_status for rule in rules}
    # Where the type alone decides, no instance is looked at for its code.
    assert [True, True, False] == [rule.code is None for rule in rules[:3]]
    assert [False, False, True] == [rule.looks_at_instance for rule in rules[:3]]


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        (Rule("a:A", FaultKind.CONTRACT), ""),
        (Rule("a:A", by_status=True), "the status"),
        (Rule("a:A", chain=True), "its cause"),
        (Rule("a:A", unwrap="orig"), "its orig"),
        (Rule("a:A", unwrap=lambda exc: None), "the error inside"),
    ],
)
def test_what_is_asked_first(rule, first):
    """The status, or what lies inside."""
    assert first == entry_of(rule).first
