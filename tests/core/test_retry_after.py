"""Reading Retry-After: what is understood, and that nothing breaks the reading."""

from __future__ import annotations

import email.utils
import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.headers import lookups_of
from resilience._core.retry_after import parse_http_date, parse_retry_after, read_retry_after, retry_after_of

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp()
MOMENT = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


class Number(int):
    """An int of somebody else's."""


class Text(str):
    """A str of somebody else's."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        ("0", 0.0),
        (" 7\t", 7.0),
        ("007", 7.0),
        (b"7", 7.0),
        (Text("7"), 7.0),
        (7, 7.0),
        (0, 0.0),
        (1.5, 1.5),
        (0.5, 0.5),
        (0.0, 0.0),
        ((1 << 63) - 1, float(1 << 63)),
        ("9" * 64, float("9" * 64)),
        (b"9" * 64, float("9" * 64)),
    ],
)
def test_seconds(value, seconds):
    """Whole and fractional seconds, as text, bytes or a number."""
    assert seconds == parse_retry_after(value, now=NOW)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "-1", "+7", "abc", "inf", "nan", "1e3", "1e400", "1_0", "0x7", "7s", "1.", ".5", "1.5.2", "7, 8"),
        *("7X", "X7", "٣", "７", "\u00b2", "7\n", "7\x00", "9" * 65, b"\xff", b"9" * 65, Text("9" * 65)),
        *(None, True, False, -1, -0.5, math.inf, -math.inf, math.nan, 1 << 63, 10**400, Number(7), ["7"], {}, object()),
    ],
)
def test_junk(value):
    """Everything else is junk, and means that nobody asked for a wait."""
    assert parse_retry_after(value, now=NOW) is None


@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_the_three_forms_of_a_date(text):
    """The form of today, and the two old ones, name the same moment."""
    assert MOMENT == parse_http_date(text, now=NOW)


def test_blanks_around_a_date():
    """Blanks and tabs around a header's value are none of it."""
    assert MOMENT == parse_http_date(" \tSun, 06 Nov 1994 08:49:37 GMT\t ", now=NOW)


def test_asctime_with_a_day_of_two_digits():
    """The old form pads its day with a blank only where it must."""
    assert MOMENT + 86_400 * 10 == parse_http_date("Wed Nov 16 08:49:37 1994", now=NOW)


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("Sunday, 06-Nov-94 08:49:37 GMT", 1994),
        ("Sunday, 06-Nov-77 08:49:37 GMT", 1977),
        ("Sunday, 06-Nov-76 08:49:37 GMT", 2076),
        ("Sunday, 06-Nov-00 08:49:37 GMT", 2000),
    ],
)
def test_two_digit_years(text, year):
    """A year of two digits lies at most fifty years ahead."""
    assert datetime(year, 11, 6, 8, 49, 37, tzinfo=UTC).timestamp() == parse_http_date(text, now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 2026 07:28:00",
        "Wed, 21 Oct 2026 07:28:00 UTC",
        "Wed, 21 Oct 2026 07:28:00 +0000",
        "Wed, 21 Oct 2026 07:28 GMT",
        "Wed, 21 Oct 2026 07:28:00:00 GMT",
        "Wed, 21 Okt 2026 07:28:00 GMT",
        "Wed 21 Oct 2026 07:28:00 GMT",
        "Mit, 21 Oct 2026 07:28:00 GMT",
        "Wed, 1 Oct 2026 07:28:00 GMT",
        "Wed, 21 Oct 26 07:28:00 GMT",
        "Wed, 32 Oct 2026 07:28:00 GMT",
        "Wed, 00 Oct 2026 07:28:00 GMT",
        "Wed, 31 Nov 2026 07:28:00 GMT",
        "Wed, 29 Feb 2026 07:28:00 GMT",
        "Wed, 29 Feb 2100 07:28:00 GMT",
        "Wed, 21 Oct 0000 07:28:00 GMT",
        "Wed, 21 Oct 2026 24:28:00 GMT",
        "Wed, 21 Oct 2026 07:60:00 GMT",
        "Wed, 21 Oct 2026 07:28:61 GMT",
        "Wed, 21 Oct 2026 -7:28:00 GMT",
        "Wed, 21 Oct 2026  07:28:00 GMT",
        "Wednesday, 21-Oct-x6 07:28:00 GMT",
        "Wednesday, 21-Oct 07:28:00 GMT",
        "Wed, 21-Oct-26 07:28:00 GMT",
        "Sun Nov  6 08:49:37 94",
        "Son Nov  6 08:49:37 1994",
        "Son Nov 16 08:49:37 1994",
        "2026-10-21T07:28:00Z",
        "Wed, 21 Oct 2026 07:28:00 GMT\n",
        "XWed, 21 Oct 2026 07:28:00 GMTX",
    ],
)
def test_no_date(text):
    """A date without its zone, or with anything out of place, is junk."""
    assert parse_http_date(text, now=NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 29 Feb 2028 23:59:60 GMT",
        "Sat, 29 Feb 2000 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 01 Jan 0001 00:00:00 GMT",
    ],
)
def test_odd_but_right_dates(text):
    """Leap days and leap seconds are days and seconds."""
    assert parse_http_date(text, now=NOW) is not None


@pytest.mark.parametrize("year", [1, 1900, 1970, 2000, 2026, 2028, 2100, 9999])
@pytest.mark.parametrize("month", range(1, 13))
def test_every_month(year, month):
    """The first of each month is counted right, in years with and without a leap day."""
    moment = datetime(year, month, 1, tzinfo=UTC)
    text = email.utils.format_datetime(moment, usegmt=True)

    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1) == parse_http_date(text, now=NOW)


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_date_that_a_server_can_send(moment):
    """What the standard library writes, this reads, from the year 1 to 9999."""
    moment = moment.replace(microsecond=0)
    text = email.utils.format_datetime(moment, usegmt=True)

    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1) == parse_http_date(text, now=NOW)


@pytest.mark.parametrize("text", ["Wed, 21 Oct 2026 07:30:00 GMT", "Wednesday, 21-Oct-26 07:30:00 GMT"])
def test_a_date_is_measured_against_now(text):
    """Without the response's own Date the local clock is used."""
    assert 120.0 == parse_retry_after(text, now=NOW)
    assert 120.0 == read_retry_after({"retry-after": text}, now=NOW)


@pytest.mark.parametrize("date", ["Tue, 21 Oct 2025 07:28:00 GMT", "Tuesday, 21-Oct-25 07:28:00 GMT"])
def test_a_date_is_measured_against_the_responses_own(date):
    """A server whose clock is wrong by a year still gets the wait it meant."""
    assert 120.0 == parse_retry_after("Tue, 21 Oct 2025 07:30:00 GMT", now=NOW, date=date)


@pytest.mark.parametrize("date", ["yesterday", 7, None, "x" * 65])
def test_a_date_header_of_junk_is_ignored(date):
    """An unreadable Date leaves the local clock."""
    assert 120.0 == parse_retry_after("Wed, 21 Oct 2026 07:30:00 GMT", now=NOW, date=date)


def test_the_past_is_now():
    """A moment that has passed asks for no wait."""
    assert 0.0 == parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=NOW)


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none()), st.text())
def test_nothing_breaks_the_parser(value, date):
    """Any value gives a finite wait >= 0, or none."""
    seconds = parse_retry_after(value, now=NOW, date=date)

    assert seconds is None or 0 <= seconds < math.inf


@given(st.text(alphabet="0123456789 :,-GMTSunNovday.", max_size=64))
def test_nothing_that_looks_like_a_date_breaks_the_parser(text):
    """Nor does anything made of a date's own letters."""
    seconds = parse_retry_after(text, now=NOW)

    assert seconds is None or 0 <= seconds < math.inf


# ---------------------------------------------------------------------------------------------------- headers
@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"])
def test_milliseconds(name):
    """Three headers count in milliseconds and go before the standard one."""
    assert 1.5 == read_retry_after({name: "1500", "retry-after": "7"}, now=NOW)


def test_junk_in_milliseconds_leaves_the_seconds():
    """A header that can't be read is passed over, and told."""
    told = []

    assert 7.0 == read_retry_after({"retry-after-ms": "x", "Retry-After": "7"}, now=NOW, on_junk=lambda: told.append(1))
    assert [1] == told


def test_junk_is_told():
    """A Retry-After that can't be read is ignored and can be counted."""
    told = []

    assert read_retry_after({"retry-after": "soon"}, now=NOW, on_junk=lambda: told.append(1)) is None
    assert [1] == told


def test_junk_need_not_be_told():
    """Counting is the caller's affair."""
    assert read_retry_after({"retry-after": "soon"}, now=NOW) is None


def test_no_header_is_no_junk():
    """A response that asks for nothing is not counted."""
    assert read_retry_after({}, now=NOW, on_junk=lambda: pytest.fail("told")) is None


def test_headers_bring_their_own_date():
    """The Date header beside it is the one that counts."""
    headers = {"Retry-After": "Tue, 21 Oct 2025 07:30:00 GMT", "Date": "Tue, 21 Oct 2025 07:28:00 GMT"}

    assert 120.0 == read_retry_after(headers, now=NOW)


# ---------------------------------------------------------------------------------------------------- exceptions
WAIT = {"retry-after": "7"}


@pytest.mark.parametrize(
    "thing",
    [
        SimpleNamespace(response=SimpleNamespace(headers=WAIT)),
        SimpleNamespace(response=None, headers=WAIT),
        SimpleNamespace(response={"ResponseMetadata": {"HTTPHeaders": WAIT}}),
        SimpleNamespace(meta=SimpleNamespace(headers=WAIT)),
        SimpleNamespace(retry_after=7),
        SimpleNamespace(headers={"retry-after": "soon"}, retry_after=7.0),
    ],
)
def test_places_of_the_wait(thing):
    """The wait is found wherever a library keeps it."""
    assert 7.0 == retry_after_of(thing, lookups_of(thing), now=NOW)


@pytest.mark.parametrize("value", ["7", None, True, -1, math.nan, datetime.now(UTC)])
def test_an_attribute_that_is_no_number(value):
    """Only a plain number of seconds counts as an attribute."""
    assert retry_after_of(SimpleNamespace(retry_after=value), [], now=NOW) is None
