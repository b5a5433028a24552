"""HTTP statuses: what each means, and where foreign exceptions keep theirs."""

from __future__ import annotations

import enum
import http
from types import SimpleNamespace

import pytest

from resilience._core.faults import FaultFlag, FaultKind
from resilience._core.headers import lookup_in, lookups_of
from resilience._core.status import as_status, judged, meaning_of, read_status, read_wish

CONTROL, TRANSIENT, DOWNSTREAM = FaultKind.CONTROL, FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
AMBIGUOUS, CLIENT_FAULT, CONTENTION = FaultFlag.AMBIGUOUS, FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION

TRANSIENT_STATUSES = [408, 425, 429, 500, 502, 503, 504, 507, 509, *range(520, 525), 527, 529, 530, 598, 599]
SETTLED = [501, 505, 506, 508, 510, 511, 525, 526]
REFUSED = [*range(400, 408), *range(409, 419), 421, 422, 423, 424, 426, 428, 431, 451, 499]


class Remote(Exception):
    """An exception with whatever attributes a test wants."""

    def __init__(self, **attributes):
        super().__init__()
        self.__dict__.update(attributes)


# ---------------------------------------------------------------------------------------------------- the table
@pytest.mark.parametrize("status", TRANSIENT_STATUSES)
def test_transient_statuses(status):
    """These pass by themselves; a gateway's timeout leaves open whether the work was done."""
    assert (TRANSIENT, {AMBIGUOUS} if status in (504, 524) else frozenset()) == meaning_of(status)


@pytest.mark.parametrize("status", SETTLED)
def test_settled_statuses(status):
    """The server will say the same again, and it is the server's fault."""
    assert (DOWNSTREAM, frozenset()) == meaning_of(status)


@pytest.mark.parametrize("status", REFUSED)
def test_refused_statuses(status):
    """The remote is well and refused what was sent."""
    assert (DOWNSTREAM, {CLIENT_FAULT}) == meaning_of(status)


@pytest.mark.parametrize("status", [*range(100, 304), *range(305, 400), 0, 99, 600, -1, 1000])
def test_statuses_that_say_nothing(status):
    """Success, redirects and numbers out of range are no fault by themselves."""
    assert meaning_of(status) is None


def test_not_modified_is_expected():
    """A 304 raised as an error is flow control."""
    assert (CONTROL, frozenset()) == meaning_of(304)


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_means_something(status):
    """There is no error status without a meaning."""
    assert meaning_of(status) is not None


# ---------------------------------------------------------------------------------------------------- x-should-retry
@pytest.mark.parametrize(
    ("status", "wish", "expected"),
    [
        (503, None, (TRANSIENT, frozenset())),
        (503, False, (DOWNSTREAM, frozenset())),
        (503, True, (TRANSIENT, frozenset())),
        (429, False, (DOWNSTREAM, frozenset())),
        (409, True, (TRANSIENT, {CONTENTION})),
        (409, False, (DOWNSTREAM, {CLIENT_FAULT})),
        (501, True, (TRANSIENT, frozenset())),
        (400, True, (TRANSIENT, frozenset())),
        (304, True, (CONTROL, frozenset())),
        (200, True, None),
    ],
)
def test_the_server_may_overrule(status, wish, expected):
    """`x-should-retry` turns transient into downstream and back; a 409 to repeat is a lock."""
    assert expected == judged(status, wish)


@pytest.mark.parametrize(
    ("value", "wish"),
    [
        ("true", True),
        ("false", False),
        (" False ", False),
        (b"true", True),
        ("1", None),
        (True, None),
        ("x" * 99, None),
        ("true".ljust(16), True),
        ("true".ljust(17), None),
    ],
)
def test_reading_the_wish(value, wish):
    """Only the words true and false are understood."""
    assert wish is read_wish([lookup_in({"X-Should-Retry": value})])


def test_no_wish():
    """A server that says nothing wants nothing."""
    assert read_wish([]) is None
    assert read_wish([lookup_in({})]) is None


# ---------------------------------------------------------------------------------------------------- duck typing
@pytest.mark.parametrize(
    "error",
    [
        Remote(status_code=503),
        Remote(response=SimpleNamespace(status_code=503)),
        Remote(response=SimpleNamespace(status=503)),
        Remote(meta=SimpleNamespace(status=503)),
        Remote(status=503),
        Remote(code=503),
        Remote(response={"ResponseMetadata": {"HTTPStatusCode": 503}}),
        Remote(status_code="LOADING", code=503),
        Remote(status_code=-1, status=503),
        Remote(status_code=None, response=None, code=503),
        Remote(status_code=http.HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
def test_places_of_a_status(error):
    """A status is found wherever a library keeps it; what is no status is passed over."""
    assert 503 == read_status(error)


@pytest.mark.parametrize(
    "error",
    [
        Remote(),
        Remote(status_code=True),
        Remote(status_code="503"),
        Remote(status_code=503.0),
        Remote(status_code=99),
        Remote(status_code=600),
        Remote(status_code=10**400),
        Remote(code=lambda: 503),
        Remote(response="busy"),
        Remote(response={}),
        Remote(response={"ResponseMetadata": None}),
        Remote(response={"ResponseMetadata": {"HTTPStatusCode": 0}}),
        Remote(meta={"status": 503}),
    ],
)
def test_no_status(error):
    """Words, bools, floats, methods and numbers out of range are no status."""
    assert read_status(error) is None


def test_the_first_place_wins():
    """The places are asked in a fixed order."""
    assert 429 == read_status(Remote(status_code=429, response=SimpleNamespace(status_code=503), status=500, code=501))


@pytest.mark.parametrize("status", [100, 599])
def test_the_ends_of_the_range(status):
    """The first and the last number that can be a status are one."""
    assert status == as_status(status)


def test_an_int_in_disguise_becomes_an_int():
    """What a library's int class overrides is not asked."""

    class Odd(int):
        def __int__(self):
            raise AssertionError

        __index__ = __eq__ = __le__ = __ge__ = __lt__ = __gt__ = __int__
        __hash__ = int.__hash__

    found = as_status(Odd(503))

    assert (503, int) == (found, type(found))


def test_an_enum_member_becomes_an_int():
    """A status as an enum member reads as its number."""

    class Status(enum.IntEnum):
        BUSY = 503

    assert "503" == str(as_status(Status.BUSY))


def test_hostile_properties_say_nothing():
    """A property that raises, even a BaseException, is as if it were not there."""

    class Hostile(Exception):
        status_code = property(lambda self: 1 / 0)
        response = property(lambda self: (_ for _ in ()).throw(GeneratorExit))
        code = 503

    assert 503 == read_status(Hostile())


@pytest.mark.parametrize("urgent", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_is_not_swallowed(urgent):
    """Reading an attribute must not eat somebody's Ctrl-C."""

    class Slow(Exception):
        @property
        def status_code(self):
            raise urgent

    with pytest.raises(urgent):
        read_status(Slow())


# ---------------------------------------------------------------------------------------------------- headers
class CaseSensitive:
    """A mapping that is no dict and knows only the server's spelling."""

    def get(self, name):
        return {"Retry-After": "7"}.get(name)


class Getheader:
    """http.client's way."""

    def getheader(self, name):
        return "7" if name == "retry-after" else None


class Broken:
    """A mapping that can't be asked."""

    def get(self, name):
        raise OSError


class Shouting(dict):
    """A dict of another class, with keys as the server wrote them."""


class Reader(dict):
    """A dict whose class has its own idea of `get`."""

    def get(self, name, default=None):
        return "7" if name == "retry-after" else default


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "7"},
        {"Retry-After": "7"},
        {1: 2, "RETRY-AFTER": "7"},
        CaseSensitive(),
        Getheader(),
        Reader(),
        Shouting({"RETRY-AFTER": "7"}),
    ],
)
def test_headers_of_every_sort(headers):
    """Keys in any case, mappings of any kind."""
    assert "7" == lookup_in(headers)("retry-after")


@pytest.mark.parametrize("headers", [{}, None, "retry-after: 7", 7, Broken(), [("retry-after", "7")]])
def test_no_header(headers):
    """What can't be looked up has no headers."""
    assert lookup_in(headers)("retry-after") is None


def test_a_flood_of_headers_is_not_read_to_the_end():
    """Only the first 256 headers of a dict are looked at."""
    headers = {f"x-{number}": "1" for number in range(256)} | {"retry-after": "7"}

    assert lookup_in(headers)("retry-after") is None


def test_where_headers_are_found():
    """The response's own come first, then the exception's, then those of boto3 and elastic."""

    class Boto(dict):
        headers = {"x": "response"}

    response = Boto(ResponseMetadata={"HTTPHeaders": {"x": "boto"}})
    error = Remote(response=response, headers={"x": "own"}, meta=SimpleNamespace(headers={"x": "meta"}))

    assert ["response", "own", "boto", "meta"] == [lookup("x") for lookup in lookups_of(error)]


def test_no_headers_at_all():
    """An exception without headers has none."""
    assert [] == lookups_of(Remote(response="busy", meta=7))
