"""When a spent rate limit is filled up again."""

from __future__ import annotations

import pytest

from resilience import Classifier, classify
from resilience._core.reset import PAIRS, wait_until_reset

NOW = 1_796_061_600.0  # 2026-11-30T18:00:00Z


def wait(**headers):
    return wait_until_reset({name.replace("_", "-"): value for name, value in headers.items()}.get, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("55", 55.0),
        ("0.5", 0.5),
        ("6m0s", 360.0),
        ("1234ms", 1.234),
        ("1h2m3.5s", 3723.5),
        (" 7s ", 7.0),
        ("2h", 7200.0),
        ("1796061660", 60.0),
        ("1796061599", 0.0),
        ("1796061660000", 60.0),
        # Where seconds from now end, and where milliseconds begin.
        ("999999999", 999_999_999.0),
        ("1000000000", 0.0),
        ("100000000000", 0.0),
        ("2026-11-30T18:00:10Z", 10.0),
        ("2026-11-30t18:00:10z", 10.0),
        ("2026-11-30T20:00:10.5+02:00", 10.5),
        ("2026-11-30T16:30:10-01:30", 10.0),
        ("2026-11-30T17:00:00Z", 0.0),
    ],
)
def test_every_dialect(text, seconds):
    """Durations, instants, seconds from now and seconds since the epoch."""
    assert seconds == pytest.approx(wait(ratelimit_remaining="0", ratelimit_reset=text))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "abc", "m", "s", "1x", "-1", "-1s", "1e9s", "inf", "nan", "1h1h", "5s3m", "ms", "1.s", "1_0s"),
        *("T", "2026-11-30", "2026-11-30T18:00:10", "2026-13-01T00:00:00Z", "2026-11-31T00:00:00Z", "9" * 70),
        *("2026-11-30T25:00:00Z", "2026-11-30T18:00:10+2:00", "2026-11-30T18:00:10+0x:00", "2026-11-30T18:00Z"),
        *(
            "2026-11-30T18:00:10.Z",
            "26-11-30T18:00:10Z",
            "2026T18:00:10Z",
            "2026-00-30T18:00:10Z",
            None,
            b"\xff",
            object(),
        ),
    ],
)
def test_junk_is_no_wait(text):
    """What is none of the dialects asks for nothing."""
    assert wait(ratelimit_remaining="0", ratelimit_reset=text) is None


@pytest.mark.parametrize("remaining", [None, "", "1", "0.1", "none", "-0", object()])
def test_only_a_spent_limit_waits(remaining):
    """As long as something remains, or nobody says how much, its reset is of no interest."""
    assert wait(ratelimit_remaining=remaining, ratelimit_reset="55") is None


@pytest.mark.parametrize(("remaining", "reset"), PAIRS)
def test_every_pair(remaining, reset):
    """Each provider's pair of headers."""
    assert 55.0 == wait_until_reset({remaining: "0", reset: "55"}.get, NOW)
    assert wait_until_reset({remaining: "3", reset: "55"}.get, NOW) is None


def test_the_longest_of_all_that_are_spent():
    """A call needs a request and its tokens."""
    spent = {
        "x_ratelimit_remaining_requests": "0",
        "x_ratelimit_reset_requests": "12ms",
        "x_ratelimit_remaining_tokens": "0",
        "x_ratelimit_reset_tokens": "30s",
    }

    assert 30.0 == wait(**spent)


def test_both_dialects_together():
    """A server may send the old headers and the new one."""
    spent = {"ratelimit_remaining": "0", "ratelimit_reset": "60"}

    assert 60.0 == wait(ratelimit='"api";r=0;t=55', **spent)
    assert 65.0 == wait(ratelimit='"api";r=0;t=65', **spent)


def test_a_date_of_two_digits():
    """The form of RFC 850 leaves the century to the reader."""
    headers = {"ratelimit-remaining": "0", "ratelimit-reset": "1796061660", "date": "Monday, 30-Nov-26 18:00:20 GMT"}

    assert 40.0 == wait_until_reset(headers.get, NOW)


def test_an_instant_is_measured_by_the_servers_clock():
    """The response's own Date stands for now, so a wrong clock on either side does no harm."""
    headers = {"ratelimit-remaining": "0", "ratelimit-reset": "1796061660", "date": "Mon, 30 Nov 2026 18:00:20 GMT"}

    assert 40.0 == wait_until_reset(headers.get, 5.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('"api";r=0;t=55', 55.0),
        ('"api";r=1;t=55', None),
        ('"api";r=0;t=55, "day";r=0;t=99', 99.0),
        ('"day";r=0;t=99, "api";r=0;t=55', 99.0),
        ('"api";r=0;t=55' + " " * 250, None),
        ('"api"; r=0; t=55', 55.0),
        ("limit=10, remaining=0, reset=50", 50.0),
        ("limit=10, remaining=1, reset=50", None),
        ("limit=10;remaining=0;reset=50", 50.0),
        ('"api";r=0', None),
        ("r=0;t=55", None),
        (";;=;r=0;t=x", None),
        ("x" * 300, None),
    ],
)
def test_structured(text, seconds):
    """The IETF's draft, as Hugging Face sends it."""
    assert seconds == wait(ratelimit=text)


class Limited(Exception):
    def __init__(self, status, headers):
        super().__init__()
        self.status_code = status
        self.headers = headers


RESET = {"ratelimit-remaining": "0", "ratelimit-reset": "55"}


@pytest.mark.parametrize(("status", "seconds"), [(429, 55.0), (503, 55.0), (500, None), (400, None)])
def test_only_beside_a_status_that_it_explains(status, seconds):
    """A 500 has nothing to do with a limit that happens to be spent."""
    assert seconds == classify(Limited(status, RESET)).retry_after


def test_now_is_the_classifiers_wall_clock():
    """An instant without a Date is measured by the clock that the classifier was given."""
    spent = {"ratelimit-remaining": "0", "ratelimit-reset": "1796061660"}

    assert 60.0 == Classifier(wall=lambda: NOW).classify(Limited(429, spent)).retry_after


@pytest.mark.parametrize(("day", "seconds"), [("2027-01-01", 2_700_000.0), ("2026-12-31", 2_613_600.0)])
def test_the_first_and_the_last_month(day, seconds):
    """January and December are months too."""
    assert seconds == wait(ratelimit_remaining="0", ratelimit_reset=f"{day}T00:00:00Z")


def test_retry_after_goes_first():
    """The server's own word is better than what follows from its figures."""
    assert 7.0 == classify(Limited(429, {**RESET, "Retry-After": "7"})).retry_after


def test_the_next_headers_are_asked_too():
    """An exception may have headers in several places."""
    error = Limited(429, {})
    error.response = type("Response", (), {"headers": dict(RESET)})()

    assert 55.0 == classify(error).retry_after
