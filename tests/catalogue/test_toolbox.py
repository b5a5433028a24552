"""What stands between a caller and a client: retriers that hold the real error inside."""

from __future__ import annotations

import concurrent.futures

import pytest
import tenacity
from instances import catch

from resilience import FaultKind, classify

TRANSIENT, DOWNSTREAM = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
INTERNAL, INTERRUPTED = FaultKind.INTERNAL, FaultKind.INTERRUPTED


def retry_error(function):
    retrying = tenacity.Retrying(stop=tenacity.stop_after_attempt(1), retry=tenacity.retry_always)
    return catch(lambda: retrying(function))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TimeoutError(), TRANSIENT), (TypeError(), INTERNAL), (concurrent.futures.CancelledError(), INTERRUPTED)],
)
def test_tenacity_is_read_by_its_last_attempt(error, kind):
    """A RetryError is what the last attempt ended with."""

    def fail():
        raise error

    assert kind is classify(retry_error(fail)).kind


def test_tenacity_may_hold_a_value():
    """A RetryError over a value that nobody wanted counts against the remote."""
    assert DOWNSTREAM is classify(retry_error(lambda: None)).kind


def test_tenacity_over_an_unknown_error():
    """A RetryError over an error that nobody knows is transient."""

    def fail():
        raise Exception("x")

    assert TRANSIENT is classify(retry_error(fail)).kind


def test_tenacity_try_again():
    """TryAgain is an explicit wish to retry."""
    assert TRANSIENT is classify(tenacity.TryAgain()).kind
