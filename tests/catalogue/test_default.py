"""The classifiers that everybody shares, and the functions around them."""

from __future__ import annotations

import copy
import pickle
import time

import pytest

from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience._core.rules import Classifier
from resilience.catalogue import (
    classify,
    count_everything,
    default_classifier,
    ignored_retry_after,
    kind_of,
)

UNCLASSIFIED = FaultFlag.UNCLASSIFIED


def error(name, **attributes):
    made = type(name, (Exception,), {"__module__": "shop"})()
    made.__dict__.update(attributes)
    return made


def test_classify_and_kind_of():
    """The short ways ask the default classifier."""
    assert Fault(FaultKind.TRANSIENT, origin="builtins.TimeoutError") == classify(TimeoutError())
    assert FaultKind.VALIDATION is kind_of(ValueError())


def test_classify_stops_at_what_was_being_handled():
    """The exception that was being handled when the call began can be named."""
    exc, handled = error("Odd"), TimeoutError()
    exc.__context__ = handled

    assert FaultKind.TRANSIENT is classify(exc).kind
    assert FaultKind.INTERNAL is classify(exc, handled).kind


def test_there_is_one_default():
    """Whoever asks gets the same."""
    assert default_classifier() is default_classifier()


def test_a_classifier_of_ones_own_knows_the_catalogue():
    """One's own rules stand before the catalogue, not in its place."""
    own = Classifier().add("shop.Odd", FaultKind.CONTRACT)

    assert [FaultKind.CONTRACT, FaultKind.TRANSIENT] == [
        own.classify(exc).kind for exc in (error("Odd"), TimeoutError())
    ]


def test_a_rule_for_the_whole_process():
    """A rule added to the default holds everywhere, also in classifiers made before."""
    own = Classifier()
    before = own.classify(error("OnlyInThisTest")).kind
    default_classifier().add("shop.OnlyInThisTest", FaultKind.CONTRACT)

    assert [FaultKind.INTERNAL, FaultKind.CONTRACT] == [before, own.classify(error("OnlyInThisTest")).kind]


def test_counting_everything():
    """What no rule knows counts against the remote; what a rule knows stays what it is."""
    assert Fault(FaultKind.DOWNSTREAM, origin="shop.Odd") == count_everything.classify(error("Odd"))
    assert FaultKind.INTERNAL is count_everything.classify(TypeError()).kind
    assert UNCLASSIFIED in classify(error("Odd")).flags


@pytest.mark.parametrize("shared", [default_classifier(), count_everything, Classifier(load=None)._parent._parent])
def test_the_shared_ones_pickle_by_name(shared):
    """A policy that crosses to another process finds that process's own classifier."""
    assert shared is pickle.loads(pickle.dumps(shared))
    assert shared is copy.deepcopy(shared)


def test_a_date_is_measured_by_the_wall_clock(monkeypatch):
    """The clock is read through its module, so that a test can set it."""
    monkeypatch.setattr(time, "time", lambda: 784111770.0)

    exc = error("Busy", status_code=503, headers={"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"})
    assert 7.0 == classify(exc).retry_after


def test_junk_is_counted():
    """A Retry-After that can't be read is ignored, and counted exactly."""
    before = ignored_retry_after()
    for _ in range(3):
        assert classify(error("Busy", status_code=503, headers={"Retry-After": "soon"})).retry_after is None

    assert 3 == ignored_retry_after() - before == ignored_retry_after() - before
