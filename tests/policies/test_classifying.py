"""What a call site makes of an exception that nobody knows, and of a `classify=` that raises; told once each."""

from __future__ import annotations

import pytest

from resilience import Classifier, Fault, FaultFlag, FaultKind, Registry, breaker, use_registry


class Odd(Exception):
    """Nobody has a rule for it."""


class Wrong(Exception):
    """Says what it is in a way that is none."""

    fault_kind = "transient"


def broken(error):
    raise ZeroDivisionError


@pytest.fixture
def failing():
    """Let a call site with these rules fail with an error, and give the last failure's kind that its breaker saw."""

    def run(error, classify=None, times=2):
        with use_registry(Registry()):

            @breaker("shop", classify=classify)
            def buy():
                raise error

            for _ in range(times):
                with pytest.raises(type(error)):
                    buy()

    return run


def test_an_unknown_exception_is_told_once_with_two_cures(failing, caplog):
    """The name of the type, what follows from not knowing it, and what to do."""
    failing(Odd())

    (message,) = [record.getMessage() for record in caplog.records]
    assert f"{__name__}.Odd is no fault that any rule knows" in message
    assert "put fault_kind = FaultKind.TRANSIENT on it" in message
    assert "resilience.catalogue.default_classifier().add(Odd, FaultKind.TRANSIENT)" in message


def test_a_function_that_raises_is_told_for_what_it_is(failing, caplog):
    """The exception may be well known; it is the function that does not work."""
    failing(ConnectionResetError(), broken)

    (message,) = [record.getMessage() for record in caplog.records]
    assert "classify= raised while it looked at builtins.ConnectionResetError" in message
    assert "no rule" not in message


@pytest.mark.parametrize(
    "rules",
    [
        lambda error: FaultKind.CONTRACT,
        lambda error: Fault(FaultKind.CONTRACT),
        Classifier().add(Odd, FaultKind.CONTRACT),
    ],
)
def test_what_is_classified_is_not_told(failing, caplog, rules):
    """A kind, a fault or a classifier."""
    failing(Odd(), rules)

    assert [] == caplog.records


@pytest.mark.parametrize("nothing", [None, "transient", 7])
def test_a_function_that_says_nothing_leaves_it_to_the_rules(failing, caplog, nothing):
    """None, and whatever is no fault."""
    failing(ConnectionResetError(), lambda error: nothing)
    assert [] == caplog.records

    failing(Wrong(), lambda error: nothing)
    assert 1 == len(caplog.records)


def test_the_fault_of_a_classifier_that_raises():
    """INTERNAL, unclassified, and marked."""
    from resilience._policies.classifying import classify_with
    from resilience.catalogue import default_classifier

    fault = classify_with(broken, default_classifier())(Odd(), None)

    assert (FaultKind.INTERNAL, {FaultFlag.UNCLASSIFIED}, "classifier_raised") == (fault.kind, fault.flags, fault.code)
