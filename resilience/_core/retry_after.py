"""Reading how long the remote asks us to wait.

The value comes from the network, so it is parsed by hand and strictly: at most 64
characters, ASCII digits, three date forms. Everything else is junk and means that
nobody asked for anything. `int()` and `float()` would take "1_0", "inf", "1e400" and
Arabic digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.headers import lookup_in
from resilience._core.reading import has_only_digits, plain_text, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.headers import Lookup

LONGEST = 64
MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONG_DAYS = ("Monday,", "Tuesday,", "Wednesday,", "Thursday,", "Friday,", "Saturday,", "Sunday,")
_DAYS = tuple(day[:3] for day in _LONG_DAYS)
_DAYS_IN = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_INFINITY = float("inf")


def parse_retry_after(value: object, *, now: float, date: object = None) -> float | None:
    """Seconds to wait (>= 0) that a Retry-After value asks for; None if it is junk.

    Args:
        value: the header's text (or bytes, or a number of seconds).
        now: wall-clock seconds since the Unix epoch.
        date: the response's own Date header. A date is measured against it, so that a
            remote whose clock is wrong still gets the wait it meant.
    """
    seconds = seconds_in(value)
    if seconds is not None:
        return seconds
    text = plain_text(value, LONGEST)
    when = None if text is None else parse_http_date(text, now=now)
    if when is None:
        return None
    sent = plain_text(date, LONGEST)
    base = None if sent is None else parse_http_date(sent, now=now)
    return max(0.0, when - (now if base is None else base))


def parse_http_date(text: str, *, now: float) -> float | None:
    """Seconds since the epoch of an HTTP date in any of its three forms; None if it is none of them.

    `now` settles the century of the form with a two-digit year.
    """
    match text.strip(" \t").split(" "):
        case [day, dd, month, year, clock, "GMT"] if day[3:] == "," and day[:3] in _DAYS:
            return _moment(_number(year, 4), month, _number(dd, 2), clock)
        case [day, date, clock, "GMT"] if day in _LONG_DAYS:
            dd, _, rest = date.partition("-")
            month, _, yy = rest.partition("-")
            return _moment(_full_year(_number(yy, 2), now), month, _number(dd, 2), clock)
        case [day, month, "", d, clock, year] if day in _DAYS:
            return _moment(_number(year, 4), month, _number(d, 1), clock)
        case [day, month, dd, clock, year] if day in _DAYS:
            return _moment(_number(year, 4), month, _number(dd, 2), clock)
        case _:
            return None


def read_retry_after(headers: object, *, now: float, on_junk: Callable[[], object] | None = None) -> float | None:
    """Seconds to wait that a response's headers ask for, or None.

    Args:
        headers: any mapping with `get`, or an object with `getheader`; keys in any case.
        now: wall-clock seconds since the Unix epoch.
        on_junk: called when a value is there and can't be read (it is ignored).
    """
    return look_up_wait(lookup_in(headers), now, on_junk)


def look_up_wait(lookup: Lookup, now: float, on_junk: Callable[[], object] | None) -> float | None:
    """Seconds to wait, by a function that looks a header up."""
    for name in MILLISECONDS:
        value = lookup(name)
        if value is not None:
            milliseconds = seconds_in(value)
            if milliseconds is not None:
                return milliseconds / 1000
            _tell(on_junk)
    value = lookup("retry-after")
    if value is None:
        return None
    seconds = parse_retry_after(value, now=now, date=lookup("date"))
    if seconds is None:
        _tell(on_junk)
    return seconds


def retry_after_of(
    thing: object, headers: list[Lookup], *, now: float, on_junk: Callable[[], object] | None = None
) -> float | None:
    """Seconds to wait that an exception carries: in its headers, else as `retry_after`."""
    for lookup in headers:
        seconds = look_up_wait(lookup, now, on_junk)
        if seconds is not None:
            return seconds
    return as_number(read(thing, "retry_after"))


def _tell(on_junk: Callable[[], object] | None) -> None:
    if on_junk is not None:
        on_junk()


def seconds_in(value: object) -> float | None:
    """A number of seconds (>= 0), or its text in plain ASCII digits; None for anything else."""
    number = as_number(value)
    if number is not None:
        return number
    text = plain_text(value, LONGEST)
    if text is None:
        return None
    if has_only_digits(text):
        return float(text)
    whole, point, fraction = text.strip(" \t").partition(".")
    if not has_only_digits(whole) or (point and not has_only_digits(fraction)):
        return None
    return float(f"{whole}.{fraction}")


def as_number(value: object) -> float | None:
    """A number of seconds that somebody can wait, None for anything else."""
    if type(value) is float:
        return value if 0 <= value < _INFINITY else None
    if type(value) is int and 0 <= value < 1 << 63:
        return float(value)
    return None


def _number(text: str, width: int) -> int:
    return int(text) if len(text) == width and has_only_digits(text) else -1


def _full_year(year: int, now: float) -> int:
    """A year of two digits is in the past if it would lie more than 50 years ahead."""
    if year < 0:
        return year
    this_year = 1970 + int(now // 31_556_952)
    year += this_year - this_year % 100
    return year - 100 if year > this_year + 50 else year


def _moment(year: int, month: str, day: int, clock: str) -> float | None:
    parts = [_number(part, 2) for part in clock.split(":")]
    if month not in _MONTHS or len(parts) != 3 or year < 1:
        return None
    number = 1 + _MONTHS.index(month)
    if not 1 <= day <= _days_in(number, year):
        return None
    hour, minute, second = parts
    # 60 is a leap second.
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60):
        return None
    return float(_days_since_epoch(year, number, day) * 86_400 + hour * 3_600 + minute * 60 + second)


def parse_clock(day: list[str], clock: str) -> float | None:
    """Seconds since the epoch of year, month and day in digits and a clock; None if there is no such moment."""
    if len(day) != 3:
        return None
    year, month, number = _number(day[0], 4), _number(day[1], 2), _number(day[2], 2)
    return _moment(year, _MONTHS[month - 1], number, clock) if 1 <= month <= 12 else None


def _days_in(month: int, year: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS_IN[month - 1] + leap


def _days_since_epoch(year: int, month: int, day: int) -> int:
    # The year is taken to begin in March: the leap day is then its last, and
    # 153 days make five months.
    if month <= 2:
        year, month = year - 1, month + 12
    leaps = year // 4 - year // 100 + year // 400
    return 365 * year + leaps + (153 * (month - 3) + 2) // 5 + day - 719_469
