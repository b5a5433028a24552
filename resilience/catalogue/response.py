"""Returned responses as faults: many clients hand out a 503 as an ordinary result."""

from __future__ import annotations

import time

from resilience._core.faults import Fault
from resilience._core.headers import entry, lookup_in
from resilience._core.reading import ask, name_of, read
from resilience._core.reset import wait_beside
from resilience._core.retry_after import look_up_wait
from resilience._core.status import as_status, judged, read_wish


def classify_response(value: object) -> Fault | None:
    """Return the fault that a returned HTTP response stands for, None if it is none.

    Made for `classify_result=`. It knows the responses of httpx, requests, aiohttp,
    urllib, urllib3, http.client and boto3 by what they carry; only the status and the
    headers are read, never the body. It never raises.

    Args:
        value: whatever the function returned.

    Example:
        >>> from types import SimpleNamespace
        >>> from resilience import classify_response
        >>> fault = classify_response(SimpleNamespace(status_code=503, headers={"retry-after": "7"}))
        >>> fault.status, fault.retry_after
        (503, 7.0)
    """
    return ask(_read, value)  # type: ignore[no-any-return]  # what _read returns


def _read(value: object) -> Fault | None:
    metadata = entry(value, "ResponseMetadata")
    for place in (read(value, "status_code"), read(value, "status"), entry(metadata, "HTTPStatusCode")):
        status = as_status(place)
        if status is not None:
            break
    else:
        return None
    headers = lookup_in(read(value, "headers") if metadata is None else entry(metadata, "HTTPHeaders"))
    meaning = judged(status, read_wish([headers])) if status >= 400 else None
    if meaning is None:
        return None
    now = time.time()
    wait = look_up_wait(headers, now, None)
    if wait is None:
        wait = wait_beside(status, [headers], lambda: now)
    return Fault(*meaning, status=status, retry_after=wait, origin=".".join(name_of(type(value))))
