"""HTTP statuses: what each means, and where foreign exceptions keep theirs.

Duck typing is the last resort for libraries nobody has written rules for, so it is
narrow: redis has `status_code == "LOADING"`, opensearch "N/A", ollama -1, grpc a bound
method `code`, openai an error word. A status is an int, no bool, in 100-599.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.faults import NO_FLAGS
from resilience._core.headers import entry
from resilience._core.reading import plain_text, read
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from resilience._core.headers import Lookup

_AMBIGUOUS = frozenset({FaultFlag.AMBIGUOUS})
_CLIENT_FAULT = frozenset({FaultFlag.CLIENT_FAULT})
_CONTENTION = frozenset({FaultFlag.CONTENTION})

_RETRY_4XX = frozenset({408, 425, 429})
# The server is up and will say the same again: not implemented, wrong version, a loop,
# a captive portal, a bad certificate at the origin.
_SETTLED_5XX = frozenset({501, 505, 506, 508, 510, 511, 525, 526})
# A gateway gave up waiting: the origin may have done the work.
_GATEWAY_TIMEOUTS = frozenset({504, 524})


def meaning_of(status: int) -> tuple[FaultKind, frozenset[FaultFlag]] | None:
    """Kind and flags of an HTTP status that came as an error; None where it says nothing."""
    if 500 <= status <= 599:
        if status in _SETTLED_5XX:
            return FaultKind.DOWNSTREAM, NO_FLAGS
        return FaultKind.TRANSIENT, _AMBIGUOUS if status in _GATEWAY_TIMEOUTS else NO_FLAGS
    if status // 100 == 4:
        if status in _RETRY_4XX:
            return FaultKind.TRANSIENT, NO_FLAGS
        return FaultKind.DOWNSTREAM, _CLIENT_FAULT
    return (FaultKind.CONTROL, NO_FLAGS) if status == 304 else None


def judged(status: int, wish: bool | None) -> tuple[FaultKind, frozenset[FaultFlag]] | None:
    """`meaning_of`, corrected by what the server said about a retry (`x-should-retry`)."""
    meaning = meaning_of(status)
    if meaning is None or wish is None:
        return meaning
    kind = meaning[0]
    if kind is FaultKind.TRANSIENT and not wish:
        return FaultKind.DOWNSTREAM, NO_FLAGS
    if kind is FaultKind.DOWNSTREAM and wish:
        # A 409 to be repeated is a lock held by somebody else: the remote is well.
        return FaultKind.TRANSIENT, _CONTENTION if status == 409 else NO_FLAGS
    return meaning


def read_status(thing: object) -> int | None:
    """The HTTP status that an exception or its response carries, or None."""
    for candidate in _places(thing):
        status = as_status(candidate)
        if status is not None:
            return status
    return None


def as_status(thing: Any) -> int | None:
    """An int in 100-599 as a plain int; None for everything else."""
    if not issubclass(type(thing), int):
        return None
    # Enum members and other ints in disguise become what they stand for.
    number = int.__index__(thing)
    return number if 100 <= number <= 599 else None


def _places(thing: object) -> Iterator[object]:
    yield read(thing, "status_code")
    response = read(thing, "response")
    if response is not None:
        yield read(response, "status_code")
        yield read(response, "status")
    meta = read(thing, "meta")
    if meta is not None:
        yield read(meta, "status")
    yield read(thing, "status")
    yield read(thing, "code")
    if response is not None:
        yield entry(entry(response, "ResponseMetadata"), "HTTPStatusCode")
    yield read(thing, "http_status")


def read_wish(headers: list[Lookup]) -> bool | None:
    """What the server says about a retry in `x-should-retry`; None if nothing."""
    for lookup in headers:
        value = plain_text(lookup("x-should-retry"), 16)
        if value is not None:
            return {"true": True, "false": False}.get(value.strip().lower())
    return None
