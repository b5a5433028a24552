"""Reading when a spent rate limit is filled up again, where a server says only that.

The last resort after Retry-After, and only where the matching *remaining* is 0: OpenAI's
and Groq's resets name the moment at which the bucket is full, which is an upper bound.
Four dialects: durations ("6m0s", "12ms"), RFC 3339 instants, epoch or delta seconds, and
the IETF's structured `RateLimit: "name";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.reading import plain_text
from resilience._core.retry_after import LONGEST, parse_clock, parse_http_date, seconds_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from resilience._core.headers import Lookup

PAIRS = (
    *((f"x-ratelimit-remaining-{what}", f"x-ratelimit-reset-{what}") for what in ("requests", "tokens")),
    *(
        (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
# Beside other statuses a spent limit is not the reason.
_OVERLOADED = frozenset({429, 503})

# Below, a number is seconds from now; above, seconds since the epoch (it is 2001 there).
_EPOCH = 1e9
_EPOCH_IN_MILLISECONDS = 1e11


def wait_beside(status: int | None, headers: Iterable[Lookup], now: Callable[[], float]) -> float | None:
    """Seconds until the limit that a status may be about is filled up again, by the first headers that tell."""
    if status in _OVERLOADED:
        for lookup in headers:
            wait = wait_until_reset(lookup, now())
            if wait is not None:
                return wait
    return None


def wait_until_reset(lookup: Lookup, now: float) -> float | None:
    """Seconds until every limit that is spent is filled up again; None if none is said to be spent.

    Args:
        lookup: gives a header by its name in lower case.
        now: wall-clock seconds since the epoch.
    """
    waits: list[float] = []
    for remaining, reset in PAIRS:
        if seconds_in(lookup(remaining)) == 0.0:
            wait = _wait(lookup(reset), lookup("date"), now)
            if wait is not None:
                waits.append(wait)
    text = plain_text(lookup("ratelimit"), 4 * LONGEST)
    if text is not None:
        waits += _structured(text)
    return max(waits, default=None)


def _wait(value: object, date: object, now: float) -> float | None:
    number = seconds_in(value)
    text = plain_text(value, LONGEST)
    if number is None and text is not None:
        number = _duration(text)
        if number is None:
            number = _instant(text)
    if number is None or number < _EPOCH:
        return number
    if number >= _EPOCH_IN_MILLISECONDS:
        number /= 1000
    sent = plain_text(date, LONGEST)
    base = None if sent is None else parse_http_date(sent, now=now)
    return max(0.0, number - (now if base is None else base))


def _duration(text: str) -> float | None:
    """Seconds of a Go duration such as "1h2m3.5s" or "120ms"."""
    rest = text.strip()
    if rest.endswith("ms"):
        milliseconds = seconds_in(rest[:-2])
        return None if milliseconds is None else milliseconds / 1000
    total, found = 0.0, False
    for unit, seconds in (("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        number, found_here, after = rest.partition(unit)
        if found_here:
            amount = seconds_in(number)
            if amount is None:
                return None
            total, found, rest = total + amount * seconds, True, after
    return total if found and not rest else None


def _instant(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 instant."""
    day, separator, clock = text.strip().upper().partition("T")
    if not separator:
        return None
    offset = 0
    if clock.endswith("Z"):
        clock = clock[:-1]
    else:
        for sign, factor in (("+", 1), ("-", -1)):
            if sign in clock:
                clock, _, zone = clock.partition(sign)
                hours, _, minutes = zone.partition(":")
                if not (len(hours) == len(minutes) == 2 and (hours + minutes).isdecimal()):
                    return None
                offset = factor * (int(hours) * 3600 + int(minutes) * 60)
                break
        else:
            return None
    clock, point, fraction = clock.partition(".")
    part = seconds_in(f"0.{fraction}") if point else 0.0
    moment = parse_clock(day.split("-"), clock)
    return None if moment is None or part is None else moment + part - offset


def _structured(text: str) -> list[float]:
    """The waits of the items of a RateLimit header of which nothing remains."""
    found = []
    # Earlier drafts have one limit and no name: `limit=10, remaining=0, reset=50`.
    items = [text.replace(",", ";")] if "remaining=" in text else [item.partition(";")[2] for item in text.split(",")]
    for item in items:
        parameters: dict[str, str] = {}
        for part in item.split(";"):
            name, _, value = part.partition("=")
            parameters[name.strip()] = value
        wait = seconds_in(parameters.get("t", parameters.get("reset")))
        if seconds_in(parameters.get("r", parameters.get("remaining"))) == 0.0 and wait is not None:
            found.append(wait)
    return found
