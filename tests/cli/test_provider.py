"""The demo's provider: it does what the script says, counts what it sees, and notices probes that overlap."""

from __future__ import annotations

import socket
import threading
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

pytest.importorskip("rich_click")

from resilience import classify
from resilience.cli.demo.script import Behaviour, Pace, Phase, script
from resilience.cli.demo.server import CIRCUIT, HICCUP, Provider

opener = build_opener(ProxyHandler({}))


@pytest.fixture
def provider():
    """A provider that listens."""
    with Provider().running() as provider:
        yield provider
    assert not provider.alive


def ask(provider, state="closed", timeout=5.0):
    with opener.open(Request(provider.url, headers={CIRCUIT: state}), timeout=timeout) as reply:
        return reply.status


def test_it_is_healthy_at_first(provider):
    """Nothing has gone wrong yet."""
    assert 200 == ask(provider)
    assert (1, {"200 OK": 1}) == (provider.seen, provider.answered)


def test_a_limit_tells_when_it_ends(provider):
    """The 429 carries a Retry-After which the library reads, and which ends with the phase."""
    provider.enter(Phase("limited", Behaviour.LIMITED, 7.0))

    with pytest.raises(HTTPError) as caught:
        ask(provider)
    caught.value.close()
    assert 429 == caught.value.code
    assert 5.0 < classify(caught.value).retry_after < 7.1


def test_an_outage_is_a_503(provider):
    """A provider that is down says so."""
    provider.enter(Phase("down", Behaviour.DOWN, 1.0))

    with pytest.raises(HTTPError) as caught:
        ask(provider)
    caught.value.close()
    assert 503 == caught.value.code


def test_a_healthy_provider_has_hiccups(provider):
    """One request in so many fails, so that there is something to retry."""
    for _ in range(HICCUP - 1):
        ask(provider)

    with pytest.raises(HTTPError) as caught:
        ask(provider)
    caught.value.close()
    assert 503 == caught.value.code


def test_a_probe_has_no_hiccup(provider):
    """A recovery does not depend on luck."""
    assert [200] * HICCUP == [ask(provider, "half_open") for _ in range(HICCUP)]


def test_who_hangs_is_counted_but_not_answered():
    """A caller that gives up has reached the provider all the same."""
    with Provider().running() as provider:
        provider.enter(Phase("hanging", Behaviour.HANGING, 1.0))
        with pytest.raises(TimeoutError):
            ask(provider, timeout=0.05)
        provider.count_up()

    assert (1, 0, 1) == (provider.seen, provider.answered.total(), provider.unanswered)


def test_who_leaves_at_once_is_counted():
    """A connection counts, even if nothing was ever read from it; the last request, which counts up, does not."""
    with Provider().running() as provider:
        for _ in range(50):
            socket.create_connection(("127.0.0.1", provider.port)).close()
        provider.count_up()

        assert 50 == provider.seen
    assert 50 == provider.unanswered


def test_overlapping_probes_are_noticed(provider):
    """The check that the balance relies on can fail: two requests under way while half-open are two."""
    provider.enter(Phase("hanging", Behaviour.HANGING, 1.0))

    def probe():
        with pytest.raises(OSError):
            ask(provider, "half_open", timeout=0.2)

    threads = [threading.Thread(target=probe) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (2, 2) == (provider.probes, provider.probe_overlap)


def test_probes_one_after_another_do_not_overlap(provider):
    """The next probe may come as soon as the last one is answered."""
    for _ in range(10):
        ask(provider, "half_open")

    assert (10, 1) == (provider.probes, provider.probe_overlap)


@pytest.mark.parametrize("seconds", [3.0, 12.0, 600.0])
def test_the_script_takes_as_long_as_it_should(seconds):
    """The phases add up, from health to health, and each leaves time for what has to happen in it."""
    phases, pace = script(seconds), Pace.of(seconds)

    assert pytest.approx(seconds) == sum(phase.seconds for phase in phases)
    assert (False, False) == (phases[0].is_fault, phases[-1].is_fault)
    assert pace.attempt < min(phase.seconds for phase in phases)
    assert pace.queue < pace.attempt < pace.budget
