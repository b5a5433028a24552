"""Where libraries keep the wait that the remote asked for, when it is not in a header.

Google's APIs send a `google.rpc.RetryInfo`: as JSON over REST, as protobuf over gRPC.
The protobuf is read here by hand, so that no library has to be there for it; only the
few fields on the way are looked at, and nothing that the message says is trusted.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from resilience._core.reading import ask, has_only_digits, members_of, plain_text, read
from resilience._core.retry_after import as_number
from resilience.catalogue.conditions import inside

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 64
_MOST_BYTES = 16_384
_RETRY_INFO = "google.rpc.RetryInfo"


# ------------------------------------------------------------------------------------------------ moments
def until(moment: object) -> float | None:
    """Seconds (>= 0) until an aware or naive-UTC datetime; a number is taken as seconds."""
    number = as_number(moment)
    if number is not None:
        return number
    return ask(_seconds_to, moment)  # type: ignore[no-any-return]  # what _seconds_to returns


def _seconds_to(moment: Any) -> float:
    from datetime import UTC

    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, float(moment.timestamp()) - time.time())


# ------------------------------------------------------------------------------------------------ google.rpc.RetryInfo
def retry_info_in(details: object) -> float | None:
    """Seconds that the first RetryInfo in a list of error details asks for; dicts or messages."""
    for detail in members_of(details, _MOST):
        delay = inside(detail, "retryDelay")
        if delay is not None:
            return duration(delay)
        if type(detail).__name__ == "RetryInfo":
            seconds, nanos = read(detail.retry_delay, "seconds"), read(detail.retry_delay, "nanos")
            return _together(seconds, nanos)
    return None


def duration(text: object) -> float | None:
    """Seconds of a protobuf Duration in JSON, such as "17s" or "0.5s"."""
    word = plain_text(text, _MOST)
    if word is None or not word.endswith("s"):
        return None
    whole, point, fraction = word[:-1].partition(".")
    if not has_only_digits(whole) or (point and not has_only_digits(fraction)):
        return None
    return float(f"{whole}.{fraction or 0}")


def pushback_of(exc: Any) -> float | None:
    """Milliseconds that a gRPC server asks to wait (gRFC A6); negative: do not try again."""
    for key, value in _metadata(exc):
        if key == "grpc-retry-pushback-ms":
            text = plain_text(value, _MOST)
            if text is not None and has_only_digits(text.removeprefix("-")):
                return float(text)
    return None


def grpc_wait(exc: Any) -> float | None:
    """Seconds that a gRPC error's trailing metadata asks for."""
    pushback = pushback_of(exc)
    if pushback is not None and pushback >= 0:
        return pushback / 1000
    for key, value in _metadata(exc):
        if key == "retry-after":
            text = plain_text(value, _MOST)
            return float(text) if text is not None and has_only_digits(text) else None
        if key == "grpc-status-details-bin" and type(value) is bytes and len(value) <= _MOST_BYTES:
            seconds = _retry_info_in_status(value)
            if seconds is not None:
                return seconds
    return None


def is_running(call: object) -> bool:
    """Whether a gRPC call, which is its own exception, still goes on: asking it anything would wait for its end."""
    return ask(read(call, "is_active")) is True


def _metadata(exc: Any) -> Iterable[tuple[object, object]]:
    """The trailing metadata, as far as anybody needs to look."""
    found: Iterable[tuple[object, object]] = () if is_running(exc) else exc.trailing_metadata() or ()
    return islice(found, _MOST)


# ------------------------------------------------------------------------------------------------ protobuf
def _retry_info_in_status(message: bytes) -> float | None:
    """RetryInfo.retry_delay in a serialised google.rpc.Status: field 3 is a list of Any (1: type, 2: value)."""
    for detail in _fields(message).get(3, ()):
        if type(detail) is not bytes:
            continue
        fields = _fields(detail)
        name, value = _first(fields, 1), _first(fields, 2)
        if type(name) is bytes and name.endswith(_RETRY_INFO.encode()) and type(value) is bytes:
            delay = _first(_fields(value), 1)
            if type(delay) is bytes:
                numbers = _fields(delay)
                return _together(_first(numbers, 1) or 0, _first(numbers, 2) or 0)
    return None


def _first(fields: dict[int, list[int | bytes]], number: int) -> int | bytes | None:
    return next(iter(fields.get(number, ())), None)


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protobuf message by number; raises on what is none."""
    found: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        value: int | bytes
        match key & 7:
            case 0:
                value, place = _varint(message, place)
            case 1:
                value, place = message[place : place + 8], place + 8
            case 2:
                length, place = _varint(message, place)
                value, place = message[place : place + length], place + length
            case 5:
                value, place = message[place : place + 4], place + 4
            case _:
                raise ValueError("no protobuf")
        if place > len(message):
            raise ValueError("cut short")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("no varint")


def _together(seconds: object, nanos: object) -> float | None:
    if type(seconds) is not int or type(nanos) is not int:
        return None
    # The range of google.protobuf.Duration.
    return seconds + nanos / 1e9 if 0 <= seconds <= 315_576_000_000 and 0 <= nanos < 1e9 else None
