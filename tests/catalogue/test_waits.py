"""Waits that stand in odd places: RetryInfo as JSON and as protobuf, pushback, moments."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest

from resilience import FaultFlag, FaultKind, classify
from resilience.catalogue import waits


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number, value):
    """One protobuf field: an int as varint, bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def status_with(*details):
    return field(1, 8) + field(2, b"quota") + b"".join(field(3, detail) for detail in details)


def any_of(name, value):
    return field(1, b"type.googleapis.com/" + name) + field(2, value)


def retry_info(seconds=0, nanos=0):
    delay = (field(1, seconds) if seconds else b"") + (field(2, nanos) if nanos else b"")
    return any_of(b"google.rpc.RetryInfo", field(1, delay))


class AioRpcError(Exception):
    def __init__(self, code, metadata=(), details=""):
        super().__init__()
        self._code, self._metadata, self._details = code, metadata, details

    def code(self):
        return SimpleNamespace(name=self._code)

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._metadata


AioRpcError.__module__ = "grpc.aio._call"


def told(*metadata):
    return classify(AioRpcError("RESOURCE_EXHAUSTED", metadata)).retry_after


@pytest.mark.parametrize(
    ("detail", "seconds"),
    [
        (retry_info(7), 7.0),
        (retry_info(1, 500_000_000), 1.5),
        (retry_info(), 0.0),
        (retry_info(300), 300.0),
    ],
)
def test_retry_info_in_grpc_metadata(detail, seconds):
    """google.rpc.Status, its details, their RetryInfo, its duration."""
    other = any_of(b"google.rpc.QuotaFailure", field(1, b"x"))

    assert seconds == told(("x", "y"), ("grpc-status-details-bin", status_with(other, detail)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"\xff" * 20,
        b"\x1a",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        status_with(b"\x0a"),
        status_with(any_of(b"google.rpc.RetryInfo", b"\x0a\x05")),
        status_with(any_of(b"google.rpc.RetryInfo", field(1, 5))),
        status_with(any_of(b"google.rpc.Other", field(1, field(1, 7)))),
        status_with(any_of(b"google.rpc.RetryInfo", field(1, field(1, 1 << 63)))),
        field(3, 5),
        b"\x1b\x00",
        b"x" * 20_000,
        "text",
        None,
        7,
    ],
)
def test_junk_in_grpc_metadata(message):
    """Whatever a server sends there: no wait, and no exception."""
    assert told(("grpc-status-details-bin", message)) is None


def test_fixed_fields_are_skipped():
    """Fields of four and eight bytes stand between those that are wanted."""
    fixed = varint(9 << 3 | 5) + b"\x00" * 4 + varint(10 << 3 | 1) + b"\x00" * 8

    assert 7.0 == told(("grpc-status-details-bin", fixed + status_with(retry_info(7))))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500", 1.5), ("0", 0.0), ("1.5", None), ("", None), ("abc", None), (b"250", 0.25), (None, None)],
)
def test_pushback(text, seconds):
    """gRFC A6: milliseconds."""
    assert seconds == told(("grpc-retry-pushback-ms", text))


def test_negative_pushback_forbids_another_try():
    """The server would rather not see this call again."""
    fault = classify(AioRpcError("UNAVAILABLE", (("grpc-retry-pushback-ms", "-1"),)))

    assert (FaultKind.DOWNSTREAM, frozenset()) == (fault.kind, fault.flags)


@pytest.mark.parametrize("metadata", [None, (), ((1,),), (1,), 5, "xy"])
def test_metadata_that_is_none(metadata):
    """A call that never reached a server has no metadata, and a mock has anything."""
    fault = classify(AioRpcError("UNAVAILABLE", metadata))

    assert (FaultKind.TRANSIENT, {FaultFlag.AMBIGUOUS}, None) == (fault.kind, fault.flags, fault.retry_after)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("17s", 17.0), ("0.5s", 0.5), ("0s", 0.0), ("17", None), ("s", None), ("-1s", None), ("1.s", None), (17, None)],
)
def test_duration(text, seconds):
    """A protobuf Duration in JSON."""
    assert seconds == waits.duration(text)


def test_retry_info_as_messages_and_as_json():
    """api-core hands out messages over gRPC and dicts over REST."""

    class RetryInfo:
        retry_delay = SimpleNamespace(seconds=2, nanos=500_000_000)

    assert 2.5 == waits.retry_info_in([{"@type": "x"}, RetryInfo()])
    assert 17.0 == waits.retry_info_in([{"@type": "x/google.rpc.RetryInfo", "retryDelay": "17s"}])
    assert waits.retry_info_in([{"retryDelay": None}]) is None
    assert waits.retry_info_in("no list") is None


@pytest.mark.parametrize("aware", [True, False])
def test_moments(aware):
    """Naive moments are UTC, whatever the machine's zone."""
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)

    found = waits.until(moment if aware else moment.replace(tzinfo=None))

    assert 58 < found <= 60
    assert 0.0 == waits.until(moment - dt.timedelta(hours=1))
    assert 5.0 == waits.until(5)
    assert waits.until("soon") is None
