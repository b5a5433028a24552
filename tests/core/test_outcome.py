"""An outcome as a value: unwrapped once, and the exception left as it was."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest

from resilience._core.deadline import Deadline
from resilience._core.outcome import Outcome, raise_unchanged
from resilience.errors import CircuitOpenError


def test_a_value():
    """A value comes out as it went in."""
    value = object()

    assert value is Outcome(value).unwrap()


def test_none_is_a_value():
    """So is None."""
    assert Outcome().unwrap() is None


def test_nothing_is_known_at_first():
    """Nobody has judged, refused or ended it yet."""
    outcome = Outcome()

    assert (None, None, None, False, False) == (
        outcome.fault,
        outcome.refused_by,
        outcome.expired,
        outcome.judged,
        outcome.pending,
    )


def test_the_very_exception():
    """I10: the caller sees the same object."""
    error = ValueError("no")
    with pytest.raises(ValueError, match="no") as caught:
        Outcome(error=error).unwrap()

    assert error is caught.value


def test_emptied_when_raised():
    """A frame that keeps its outcome keeps no exception, and no deadline."""
    outcome = Outcome(error=ValueError())
    outcome.expired = Deadline(1.0, 0.0)
    with pytest.raises(ValueError):
        outcome.unwrap()

    assert (None, None, None) == (outcome.value, outcome.error, outcome.expired)


def test_no_knot():
    """I12: what the call held dies with the exception, without the garbage collector."""

    class Argument:
        pass

    def call(argument):
        outcome = Outcome(error=ValueError())
        return outcome.unwrap()

    def watched():
        argument = Argument()
        watcher = weakref.ref(argument)
        try:
            call(argument)
        except ValueError:
            pass
        return watcher

    gc.disable()
    try:
        assert watched()() is None
    finally:
        gc.enable()


def test_discard():
    """An attempt that is given up for another leaves nothing, but what it meant."""
    outcome = Outcome(7, ValueError())
    outcome.judged = True
    outcome.discard()

    assert (None, None, True) == (outcome.value, outcome.error, outcome.judged)


def test_refusal():
    """A refusal is told by who gave it, never by its type."""
    layer = object()
    error = CircuitOpenError("db", 3.0)
    outcome = Outcome.refusal(error, layer)

    assert (layer, error, False) == (outcome.refused_by, outcome.error, outcome.judged)
    assert Outcome().refused_by is None


# ---------------------------------------------------------------------------------------------------- raise_unchanged
def with_context():
    """An exception that was raised while another one was handled."""
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904  # the context is what is looked at
    except ValueError as error:
        return error


def test_keeps_the_context_in_somebodys_except_block():
    """I10: what the caller is handling does not replace what the function was handling."""
    error = with_context()
    context = error.__context__
    with pytest.raises(ValueError) as caught:
        try:
            raise OSError("the caller's")
        except OSError:
            raise_unchanged(error)

    assert error is caught.value
    assert context is error.__context__


def test_keeps_the_context_where_the_caller_dropped_a_traceback():
    """I10: an exception that is being handled is one, also after somebody took its traceback to save memory."""
    error = with_context()
    context = error.__context__
    with pytest.raises(ValueError):
        try:
            raise OSError("the caller's")
        except OSError as handled:
            handled.__traceback__ = None
            raise_unchanged(error)

    assert context is error.__context__


def test_keeps_the_context_outside():
    """Outside of any except block nothing would touch it."""
    error = with_context()
    context = error.__context__
    with pytest.raises(ValueError):
        raise_unchanged(error)

    assert context is error.__context__


def test_without_a_context_it_gets_the_callers():
    """As a plain raise would: an exception without a history has the caller's."""
    handled = OSError("the caller's")
    error = ValueError()
    with pytest.raises(ValueError):
        try:
            raise handled
        except OSError:
            raise_unchanged(error)

    assert handled is error.__context__


def test_keeps_cause_and_suppression():
    """`raise … from …` stays what it was."""
    cause = KeyError()
    error = with_context()
    error.__cause__ = cause
    with pytest.raises(ValueError):
        try:
            raise OSError
        except OSError:
            raise_unchanged(error)

    assert (cause, True) == (error.__cause__, error.__suppress_context__)


def test_raising_the_handled_exception_itself():
    """Re-raised in its own except block it is no context of itself."""
    with pytest.raises(ValueError) as caught:
        try:
            raise with_context()
        except ValueError as error:
            raise_unchanged(error)

    assert isinstance(caught.value.__context__, KeyError)
    assert "KeyError: 'first'" in "".join(traceback.format_exception(caught.value))


def test_an_exception_that_hides_its_context():
    """I20: what does not let itself be read is raised all the same."""

    class Hidden(Exception):
        @property
        def __context__(self):
            raise RuntimeError("no")

    error = Hidden()
    with pytest.raises(Hidden) as caught:
        try:
            raise OSError
        except OSError:
            raise_unchanged(error)

    assert error is caught.value


def test_base_exceptions_too():
    """KeyboardInterrupt and its like are no different."""
    error = KeyboardInterrupt()
    error.__context__ = context = KeyError()
    with pytest.raises(KeyboardInterrupt):
        try:
            raise OSError
        except OSError:
            raise_unchanged(error)

    assert context is error.__context__
