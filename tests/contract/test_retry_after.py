"""Contract sections 4 and 6, from end to end: what a real server says in Retry-After decides waits and open times."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import tenacity

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    Consecutive,
    FailureRate,
    FaultKind,
    Registry,
    breaker,
    classify,
    compose,
    retry,
    timeout,
    use_registry,
)

SENT_AT = 1_800_000_000
FORMS = {
    "seconds": {"Retry-After": "40"},
    "date": {"Date": formatdate(SENT_AT, usegmt=True), "Retry-After": formatdate(SENT_AT + 40, usegmt=True)},
    "milliseconds": {"retry-after-ms": "40000"},
}
forms = pytest.mark.parametrize("form", FORMS)


class Server(ThreadingHTTPServer):
    """Answers by script: a status and headers; then 200."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = []
        self.asked = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        status, headers = self.server.script.pop(0) if self.server.script else (200, {})
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def running():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(running):
    running.script, running.asked = [], 0
    return running


def by_urllib(url):
    def ask(arg=None):
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            error.close()
            raise

    return ask


def by_httpx(url):
    httpx = pytest.importorskip("httpx")

    def ask(arg=None):
        with httpx.Client(trust_env=False, verify=False) as client:
            return client.get(url).raise_for_status().status_code

    return ask


@pytest.fixture(params=[by_urllib, by_httpx])
def ask(request, server):
    """A request by a real client, which raises what its server refuses."""
    return request.param(server.url)


def waits(world):
    return [seconds for seconds in world.clock.slept if seconds]


# ---------------------------------------------------------------------------------------------- the wait of a retry
@forms
@pytest.mark.parametrize("status", [429, 503])
def test_it_is_the_wait_of_the_retry(world, server, ask, form, status):
    """Section 6: seconds, HTTP date, `retry-after-ms`."""
    server.script = [(status, FORMS[form])]

    assert 200 == world.call(retry(2, jitter=0, idempotent=True)(world.function(ask)))
    assert [40] == waits(world)


@forms
def test_it_is_spread_upwards(world, server, ask, form):
    """Section 6: those who were told the same do not come back in one instant, and none of them too early."""
    for _ in range(10):
        server.script = [(503, FORMS[form])]
        world.call(retry(2, idempotent=True)(world.function(ask)))

    assert all(40 <= wait <= 60 for wait in waits(world))
    assert 10 == len(set(waits(world)))


@forms
def test_the_error_that_leaves_tells_it(world, server, ask, form):
    """Section 6: `classify(exc).retry_after` finds it on the very error, on which nothing was set."""
    server.script = [(429, FORMS[form])] * 2
    failed = world.fails(retry(2, jitter=0, idempotent=True)(breaker("api")(world.function(ask))))

    assert 40 == classify(failed).retry_after
    assert ["retry gave up after 2 attempts"] == failed.__notes__
    assert not hasattr(failed, "retry_after")


def test_a_wait_that_does_not_fit_fails_now(world, server, ask):
    """Section 6: neither the deadline nor `max_retry_after` is waited for in vain; the note says why."""
    limit = timeout(39) if world.is_async else timeout(39, pass_as="key")
    for options, note in (
        ({}, "retry stopped: a wait of 40 s does not fit the deadline"),
        ({"max_retry_after": 39}, "retry stopped: the server asks for 40 s, more than max_retry_after"),
    ):
        server.script = [(429, FORMS["seconds"])]
        failed = world.fails(limit(retry(2, idempotent=True, **options)(world.function(lambda arg, key=None: ask()))))

        assert ([note], 40) == (failed.__notes__, classify(failed).retry_after)
    assert 2 == server.asked
    assert [] == waits(world)


def test_the_spread_gives_way_to_the_deadline(world, server, ask):
    """Section 6: 40 s fit 41 s, whatever the jitter draws."""
    limit = timeout(41) if world.is_async else timeout(41, pass_as="key")
    for _ in range(10):
        server.script = [(503, FORMS["seconds"])]
        fn = limit(retry(2, idempotent=True)(world.function(lambda arg, key=None: ask())))
        assert 200 == world.call(fn)

    assert all(40 <= wait < 41 for wait in waits(world))


# ---------------------------------------------------------------------------------------------- the shared circuit
TRIPS = {
    "streak": (Consecutive(1), 1),
    "timed streak": (Consecutive(2, within=60), 2),
    "window": (FailureRate(0.5, window=30, bucket=3, min_calls=2), 2),
}


@forms
@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("account", ["attempt", "call"])
def test_it_opens_the_circuit_for_that_long(world, server, ask, form, trip, account):
    """Section 4: the failure that trips, of a streak or a window, of an attempt or a whole call."""
    mode, failures = TRIPS[trip]
    fn = breaker("api", BreakerConfig(mode, cooldown=30), account=account)(world.function(ask))
    for number in range(failures):
        server.script = [(429, FORMS[form] if number == failures - 1 else {})]
        world.fails(fn)

    assert 40 == world.registry.get("api").status().retry_after


@pytest.mark.parametrize(
    ("settings", "open_for"),
    [
        ({}, 40),
        ({"cooldown": 50}, 50),
        ({"max_cooldown": 35}, 35),
        ({"honour_retry_after": False}, 30),
        ({"trip_on_status": {429}}, 40),
    ],
)
def test_for_how_long_at_most(world, server, ask, trips_at, settings, open_for):
    """Section 4: never shorter than the cooldown, never longer than `max_cooldown`, not at all where it is not honoured."""
    server.script = [(429, FORMS["seconds"])]
    world.fails(breaker("api", trips_at(1, **settings))(world.function(ask)))

    assert open_for == world.registry.get("api").status().retry_after


@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("account", ["attempt", "call"])
def test_a_probe_that_is_told_to_wait(world, server, ask, trip, account):
    """Section 4: the failed probe's word counts as that of the failure that trips."""
    mode, failures = TRIPS[trip]
    fn = breaker("api", BreakerConfig(mode, cooldown=30), account=account)(world.function(ask))
    server.script = [(500, {})] * failures + [(503, FORMS["seconds"])]
    for _ in range(failures):
        world.fails(fn)
    world.advance(30)
    world.fails(fn)

    assert 40 == world.registry.get("api").status().retry_after


def test_the_call_as_a_whole_speaks_with_its_last_error(world, server, ask, trips_at):
    """Section 4, `account="call"`: a retry that gave up opens the circuit for what its last attempt was told."""
    server.script = [(503, {"Retry-After": "50"}), (503, FORMS["seconds"])]
    fn = compose(retry(2, jitter=0, idempotent=True), breaker("api", trips_at(1), account="call"))(world.function(ask))
    world.fails(fn)

    assert [50] == waits(world)
    assert 40 == world.registry.get("api").status().retry_after


def test_the_retry_does_not_wait_for_a_longer_open_time(world, server, ask, trips_at):
    """Section 3: no retry is sent to an open circuit; where both last equally long the retry is the probe."""
    for cooldown, asked in ((30, 2), (90, 1)):
        server.script, server.asked = [(503, FORMS["seconds"])], 0
        name = f"api-{cooldown}"
        fn = compose(retry(2, idempotent=True), breaker(name, trips_at(1, cooldown=cooldown)))(world.function(ask))
        outcome = world.fails(fn)

        assert asked == server.asked
        assert (outcome is None) is (asked == 2)


# ---------------------------------------------------------------------------------------------- the other callers
def test_other_call_sites_are_told_the_rest(world, server, ask, trips_at):
    """Section 4: they share the circuit, send nothing, and know when to come back."""
    server.script = [(429, FORMS["seconds"])]
    world.fails(breaker("api", trips_at(1))(world.function(ask)))
    world.advance(15)
    refusal = world.fails(breaker("api")(world.function(ask)))

    assert (CircuitOpenError, 25, 25) == (type(refusal), refusal.retry_after, classify(refusal).retry_after)
    assert 1 == server.asked


def test_an_outer_retry_waits_the_rest(world, server, ask, trips_at):
    """Sections 6 and 10: an outer call may retry a refusal; it waits as long as that says, and a little more."""
    rests = []
    for number in range(10):
        server.script = [(429, FORMS["seconds"])]
        inner = breaker(f"api-{number}", trips_at(1))(world.function(ask))
        world.fails(inner)
        world.advance(15)
        world.clock.slept.clear()
        if world.is_async:

            async def outer(inner=inner):
                return await inner()

        else:

            def outer(inner=inner):
                return inner()

        assert 200 == world.call(retry(2, idempotent=True)(outer))
        rests += waits(world)

    assert all(25 <= rest <= 37.5 for rest in rests)
    assert 10 == len(set(rests))
    assert 20 == server.asked


def test_a_crowd_comes_back_spread_out(world, server, ask, trips_at):
    """Section 6: of many callers refused at one moment, one is the probe and the others find a closed circuit."""
    server.script = [(503, FORMS["seconds"])]
    inner = breaker("api", trips_at(1))(world.function(ask))
    world.fails(inner)
    again = retry(2, idempotent=True)
    starts = []
    for _ in range(40):
        # Each of them by itself: the clock of the next one starts where this one's did.
        world.clock.slept.clear()
        refusal = CircuitOpenError("api", 40.0)
        world.fails(again(world.function(_raising(refusal))))
        starts += waits(world)

    assert 40 <= min(starts) <= max(starts) <= 60
    assert len(set(starts)) == 40


def _raising(error):
    def body(arg):
        raise error

    return body


# ---------------------------------------------------------------------------------------------- below others
class Wrapped(Exception):
    """An exception that nobody has a rule for."""


def wrapped_from(error):
    try:
        raise Wrapped("the provider failed") from error
    except Wrapped as wrapped:
        return wrapped


def given_up(error):
    try:
        tenacity.Retrying(stop=tenacity.stop_after_attempt(1))(_raising(error), None)
    except tenacity.RetryError as raised:
        return raised


PLACES = {
    "itself": lambda error: error,
    "a cause": wrapped_from,
    "an argument": Wrapped,
    "a group": lambda error: ExceptionGroup("several", [error]),
    "a group of groups": lambda error: ExceptionGroup("outer", [ExceptionGroup("inner", [error]), TimeoutError()]),
    "a cause in a group": lambda error: ExceptionGroup("several", [ConnectionError(), wrapped_from(error)]),
    "a group as a cause": lambda error: wrapped_from(ExceptionGroup("several", [error])),
    "tenacity's own error": given_up,
}


@forms
@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_below_groups_and_wrappers(world, server, ask, trips_at, form, place):
    """Sections 2 and 6: by the retry, by the circuit, and by `classify` on what leaves."""

    def body(arg):
        try:
            return ask()
        except Exception as error:
            raised = PLACES[place](error)
        raise raised

    server.script = [(503, FORMS[form])] * 2
    fn = compose(retry(2, jitter=0, idempotent=True), breaker("api", trips_at(2)))(world.function(body))
    failed = world.fails(fn)

    assert [40] == waits(world)
    assert 40 == classify(failed).retry_after
    assert 40 == world.registry.get("api").status().retry_after


def test_the_longest_of_a_group_counts(world, http_error):
    """Section 2: each of them asked for its own."""
    group = ExceptionGroup("several", [http_error(503, Retry_After="10"), http_error(429, Retry_After="40")])
    world.fails(retry(2, jitter=0, idempotent=True)(world.function(_raising(group))))

    assert ([40], 40) == (waits(world), classify(group).retry_after)


def test_a_plain_attribute_counts_as_well(world, trips_at):
    """Section 2: an exception without headers that says `retry_after`."""

    class Busy(ConnectionError):
        retry_after = 40

    def body(arg):
        raise Busy

    world.fails(compose(retry(2, jitter=0, idempotent=True), breaker("api", trips_at(2)))(world.function(body)))

    assert [40] == waits(world)
    assert 40 == world.registry.get("api").status().retry_after


def test_a_value_counts_as_well(world, trips_at):
    """Section 2: a response that is returned, and judged."""
    from types import SimpleNamespace

    from resilience import classify_response

    busy = SimpleNamespace(status_code=503, headers={"Retry-After": "40"})
    fn = compose(retry(2, jitter=0, idempotent=True), breaker("api", trips_at(2), classify_result=classify_response))(
        world.function(lambda arg: busy)
    )

    assert busy is world.call(fn)
    assert [40] == waits(world)
    assert 40 == world.registry.get("api").status().retry_after


# ---------------------------------------------------------------------------------------------- all of it at once
def test_on_the_systems_clock(server, ask, trips_at):
    """Section 6 without any test clock: a real server, a real wait, a real circuit."""
    server.script = [(503, {"retry-after-ms": "30"})]
    with use_registry(Registry()) as registry:
        fn = compose(
            retry(2, initial_backoff=0, idempotent=True),
            breaker("api", BreakerConfig(Consecutive(1), cooldown=0.02)),
        )(ask)
        assert 200 == fn()
        status = registry.get("api").status()

    assert (1, 2) == (status.probes_succeeded, server.asked)
    assert FaultKind.TRANSIENT is status.last_failure.kind
