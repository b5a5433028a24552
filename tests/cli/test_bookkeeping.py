"""What the demo writes down: tallies of the callers, the journal of events, the report made of both."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import groupby
from urllib.error import HTTPError, URLError

import pytest

pytest.importorskip("rich_click")

from rich.console import Console

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FaultKind,
    Registry,
    TimeoutExceeded,
)
from resilience.cli.demo.journal import Journal, Note, Transition
from resilience.cli.demo.tally import SKIPPED, Order, Tally, total
from resilience.cli.demo.view import Screen, strip


def raised(error, attempts=1):
    tally = Tally()
    order = tally.begin()
    order.attempts = attempts
    tally.raised(error, order, 1500)
    return tally


def test_an_answer_is_a_success():
    """A call that was sent twice and answered is one success and one retry."""
    tally = Tally()
    order = tally.begin()
    order.attempts = 2
    tally.returned("hi", order)

    assert Tally(made=1, succeeded=1, attempts=2, retried=1) == tally


def test_the_fallbacks_answer_is_a_bypass():
    """What the fallback said is no success."""
    tally = Tally()
    tally.returned(SKIPPED, Order(fallbacks=1))

    assert Tally(bypassed=1, fallbacks=1) == tally


def test_a_bypass_that_was_sent_is_stray():
    """The line `nothing sent` can fail."""
    tally = Tally()
    tally.returned(SKIPPED, Order(attempts=1, fallbacks=1))

    assert 1 == tally.stray


def test_a_refusal_is_timed():
    """Refusals by the circuit are those whose time is told."""
    assert Tally(made=1, refused=1, refusals=[1500]) == raised(CircuitOpenError("x"), attempts=0)


def test_a_full_bulkhead_is_a_refusal_too():
    """It is counted apart, and not timed: its caller may have stood in line."""
    assert Tally(made=1, full=1) == raised(BulkheadFullError("x"), attempts=0)


def test_a_refusal_that_was_sent_is_stray():
    """A refused call must not have reached the provider."""
    assert 1 == raised(CircuitOpenError("x"), attempts=1).stray


@pytest.mark.parametrize("error", [TimeoutError(), TimeoutExceeded("attempt", 1.0), URLError(TimeoutError())])
def test_all_timeouts_are_timeouts(error):
    """Ours, the socket's, and the socket's in urllib's wrapping."""
    assert Tally(made=1, failed=1, timed_out=1, attempts=1) == raised(error)


def test_an_error_with_a_status_is_an_answer():
    """The provider did answer, with an error."""
    with HTTPError("http://x", 503, "down", {}, None) as error:
        assert Tally(made=1, failed=1, bad_answers=1, attempts=1) == raised(error)


def test_any_other_error_breaks_the_balance():
    """A bug is neither an answer nor a timeout, so the line `failures` sees it."""
    tally = raised(TypeError("a bug"))

    assert (1, 0, 0) == (tally.failed, tally.bad_answers, tally.timed_out)


def test_tallies_add_up():
    """Figures are summed, times are put together."""
    whole = total([Tally(made=1, refusals=[1]), Tally(made=2, refusals=[2, 3])])

    assert Tally(made=3, refusals=[1, 2, 3]) == whole


@pytest.fixture
def journal_and_breaker():
    """A journal that listens to a breaker which lets two probes out at a time, and opens for next to nothing."""
    registry = Registry()
    breaker = registry.breaker("x", BreakerConfig(Consecutive(1), cooldown=1e-9, half_open_probes=2))
    journal = Journal(breaker)
    registry.subscribe(journal)
    return journal, breaker


def notes(journal):
    found = []
    while not journal.news.empty():
        found.append(journal.news.get())
    return [(note.about, note.text) for note in found]


def test_the_journal_tells_openings_with_their_cause(journal_and_breaker):
    """An opening names the fault that caused it and how long it lasts."""
    journal, breaker = journal_and_breaker
    breaker.on_failure(breaker.try_acquire(), TimeoutError())

    assert [("circuit", "closed -> open (tripped) for 0.00 s: TimeoutError, transient")] == notes(journal)
    assert "TimeoutError, transient" == journal.transitions[0].fault


def test_the_journal_counts_probes_that_are_out_together(journal_and_breaker):
    """The line `one permit` can fail."""
    journal, breaker = journal_and_breaker
    breaker.on_failure(breaker.try_acquire(), FaultKind.TRANSIENT)
    first, second = breaker.try_acquire(), breaker.try_acquire()
    assert (2, 2) == (journal.probe_peak, journal.probes_out)

    breaker.release(first)
    breaker.on_success(second)

    assert (2, 0) == (journal.probe_peak, journal.probes_out)
    assert ("probe", "given back: neutral") in notes(journal)


@pytest.mark.parametrize(("ended", "early"), [(1.0, 1), (1.5, 0), (9.0, 0)])
def test_an_opening_that_ends_before_its_time_is_noticed(journal_and_breaker, ended, early):
    """The line `no early probe` can fail."""
    journal, _ = journal_and_breaker
    journal.transitions += [
        Transition(0.0, CircuitState.CLOSED, CircuitState.OPEN, "tripped", 1.5),
        Transition(ended, CircuitState.OPEN, CircuitState.HALF_OPEN, "cooled"),
    ]

    assert early == journal.cut_short()


def test_a_report_is_plain_data(sound, report_of):
    """The document can be written, and holds phases, transitions, figures and the balance."""
    document = json.loads(json.dumps(report_of(sound).as_json()))

    assert ("well", 3.0, 0.25) == tuple(document["phases"][2][key] for key in ("name", "from", "closed_after"))
    assert {"well": 0.25} == document["closed_after_recovery"]
    assert {"median": 2.0, "p95": 2.9} == document["refusal_us"]
    assert 100 == document["figures"]["made"]
    assert all(line["holds"] for line in document["balance"])


def test_a_run_without_refusals_has_no_times(sound, report_of):
    """Nothing is made up."""
    assert report_of(sound, refusals=()).refusal_us() is None


def test_one_refusal_is_its_own_percentile(sound, report_of):
    """A single figure is all there is to tell."""
    assert (1.5, 1.5) == report_of(sound, refusals=(1500,)).refusal_us()


def test_the_strip_shows_the_states_in_time(sound, report_of):
    """Closed, then open, then a moment half-open, then closed."""
    shown = strip(report_of(sound)).plain.split()[0]

    assert "-#?-" == "".join(mark for mark, _ in groupby(shown))


def printed(report):
    screen = Screen(Console(file=io.StringIO(), width=80))
    screen.note(Note(1.5, "circuit", "closed -> open", "bad"))
    screen.show(report)
    return screen.console.file.getvalue()


def test_what_is_shown_is_plain_where_no_terminal_is(sound, report_of):
    """No control codes, no folded lines, and the figures that people look for."""
    text = printed(report_of(sound))

    assert "\x1b" not in text
    assert "   1.50 s  circuit   closed -> open\n" in text
    assert "A refusal took 2 µs (median), 3 µs (95th percentile)." in text
    assert "From the provider's recovery (well) to a closed circuit: after 0.250 s." in text
    assert text.endswith("The balance holds.\n")


def test_a_circuit_that_did_not_move_is_shown(sound, report_of):
    """A recovery that never closed the circuit is named as such."""
    text = printed(report_of(replace(sound, closings=1), moved=None))

    assert "not closed" in text
    assert "to a closed circuit: never." in text
    assert text.endswith("The balance does not hold: closings: recoveries of the provider (2) = that closed it (1)\n")
