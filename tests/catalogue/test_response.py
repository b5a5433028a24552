"""Returned responses that are faults."""

from __future__ import annotations

import http.client
import time
from types import SimpleNamespace

import pytest

from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience.catalogue import classify_response


def response(**attributes):
    return SimpleNamespace(**attributes)


@pytest.mark.parametrize(
    "value",
    [
        response(status_code=503, headers={"Retry-After": "7"}),
        response(status=503, headers={"retry-after": "7"}),
        response(status_code="LOADING", status=503, headers={"retry-after-ms": "7000"}),
    ],
)
def test_a_failed_response(value):
    """A 503 that was returned is a 503 all the same, with its wait."""
    assert Fault(FaultKind.TRANSIENT, status=503, retry_after=7.0, origin="types.SimpleNamespace") == classify_response(
        value
    )


def test_a_failed_response_of_boto():
    """boto3 returns dicts."""
    value = {"ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "7"}}}

    assert (429, 7.0) == (classify_response(value).status, classify_response(value).retry_after)


def test_a_real_response():
    """http.client's response is read without its body."""

    class Line:
        def makefile(self, mode):
            import io

            return io.BytesIO(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nbody")

    real = http.client.HTTPResponse(Line())
    real.begin()
    fault = classify_response(real)

    assert (FaultKind.DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, 404) == (fault.kind, fault.flags, fault.status)
    assert b"body" == real.read()


@pytest.mark.parametrize(
    "value",
    [
        response(status_code=200),
        response(status_code=304),
        response(status_code=999),
        response(status_code=True),
        response(code=503),
        response(),
        {"ResponseMetadata": {"HTTPStatusCode": 200}},
        {},
        503,
        "503",
        None,
    ],
)
def test_no_fault(value):
    """Success, redirects, a 304 that was asked for, and what is no response at all."""
    assert classify_response(value) is None


def test_a_failed_response_without_headers():
    """Headers may be missing."""
    assert classify_response(response(status_code=500)).retry_after is None


def test_the_servers_wish_is_obeyed():
    """`x-should-retry: false` makes it one that is not retried."""
    assert (
        FaultKind.DOWNSTREAM is classify_response(response(status_code=503, headers={"x-should-retry": "false"})).kind
    )


def test_a_date_is_measured_by_the_wall_clock(monkeypatch):
    """A Retry-After date needs to know what time it is."""
    monkeypatch.setattr(time, "time", lambda: 784111770.0)
    value = response(status_code=503, headers={"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"})

    assert 7.0 == classify_response(value).retry_after


def test_a_hostile_value():
    """A value that raises whatever it is asked is no fault of the remote."""

    class Hostile:
        def __getattribute__(self, name):
            raise GeneratorExit

        def __bool__(self):
            raise AssertionError

    assert classify_response(Hostile()) is None
