"""The arithmetic of bars and baseline with made-up numbers, and our entries once each: nothing here is timed."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import bars
import compare
import extras
import figures
import harness
import ours
import page
import peers
import pytest
import run
from bars import BARS, Bar, Verdict
from labels import KEYED, MONOTONIC, OURS, PLAIN, STREAK, TUPLE_LOOK_UP, WINDOW, WRAPS, WRAPT

from resilience import Registry, use_registry

UP = Bar("stack", "peer", bars.fastest_per_ours("s/success"), 2, 4, more=True)
DOWN = Bar("stack", "wrapt", bars.ours_per("s/success", WRAPT), 0.5, 0.25)


def made_up(python="3.11.7", slowdown=1.0, wall=False, **times):
    """A result with one scenario, whose entries are named by short words."""
    names = {"ours": OURS, "wrapt": WRAPT, "wraps": WRAPS, "plain": PLAIN}
    ns = {names.get(name, name): value for name, value in times.items()}
    return {"python": python, "scenarios": {"s/success": {"ns": ns, "slowdown": slowdown, "wall": wall}}}


def measured():
    """The stored result of a real run."""
    return json.loads(page.RESULTS.read_text(encoding="utf-8"))


@pytest.fixture
def loop():
    """An event loop, and a registry that is thrown away."""
    made = asyncio.new_event_loop()
    with use_registry(Registry()):
        yield made
    made.close()


# ---------------------------------------------------------------------------------------------- bars
@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(20, Verdict.GOAL), (25, Verdict.GOAL), (40, Verdict.HOLDS), (50, Verdict.HOLDS), (51, Verdict.MISSED)],
)
def test_at_most(ours, verdict):
    """A bar on cost holds up to its bound, and at it."""
    assert verdict is DOWN.judge(made_up(ours=ours, wrapt=100)).verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(10, Verdict.GOAL), (25, Verdict.GOAL), (50, Verdict.HOLDS), (51, Verdict.MISSED)]
)
def test_at_least(ours, verdict):
    """A bar on being faster holds from its bound on; the fastest peer counts, not a reference."""
    assert verdict is UP.judge(made_up(ours=ours, quick=100, slow=500, plain=1)).verdict


def test_other_versions_may_miss_by_a_quarter():
    """What is missed on 3.11 may hold on 3.12, and the bound that is shown says so."""
    times = {"ours": 60, "wrapt": 100, "quick": 100}

    assert Verdict.MISSED is DOWN.judge(made_up(**times)).verdict
    assert Verdict.HOLDS is DOWN.judge(made_up("3.12.1", **times)).verdict
    assert Verdict.HOLDS is UP.judge(made_up("3.12.1", **times)).verdict
    assert "≤ 0.625 ×" == DOWN.judge(made_up("3.12.1", **times)).cells[3]
    assert "≥ 1.6 × as fast" == UP.judge(made_up("3.12.1", **times)).cells[3]


def test_exactness_is_the_same_everywhere():
    """No version of Python may lose a result."""
    bar = Bar("miscounted", "", bars.figure_named("miscounted"), 0, unit="", exact=True)

    assert Verdict.MISSED is bar.judge({"python": "3.13.0", "figures": {"miscounted": 1}}).verdict


def test_a_peer_may_be_left_out():
    """The fastest thread-safe peer is not the fastest peer."""
    figure = bars.fastest_per_ours("s/success", without=("unsafe",))

    assert 3 == figure(made_up(ours=100, unsafe=50, safe=300))


def test_what_a_window_adds():
    """The difference of two breakers, in looks at the clock."""
    times = {MONOTONIC: 40, STREAK: 100, WINDOW: 160}

    assert 1.5 == bars.added("w")({"scenarios": {"w": {"ns": times}}})


def test_what_keys_add():
    """The same in look-ups."""
    times = {TUPLE_LOOK_UP: 40, STREAK: 100, KEYED: 180}

    assert 2 == bars.added("k", KEYED, TUPLE_LOOK_UP)({"scenarios": {"k": {"ns": times}}})


@pytest.mark.parametrize("times", [{}, {"ours": 1}, {"quick": 1}])
def test_what_was_not_measured_is_no_success(times):
    """A run without peers judges nothing by them, and says so."""
    judged = bars.judge(made_up(**times), (UP,))

    assert [Verdict.UNKNOWN] == [row.verdict for row in judged]
    assert bars.fails(judged)


def test_one_missed_bar_fails_all():
    """Bars that hold don't make up for one that does not."""
    result = made_up(ours=45, wrapt=100, quick=100)

    assert not bars.fails(bars.judge(result, (UP, DOWN)))
    assert bars.fails(bars.judge(result, (UP, DOWN, Bar("x", "", lambda _: 2, 1))))


def test_a_goal_is_never_easier_than_its_bar():
    """No bar is written the wrong way round."""
    assert all(bar.meets(bar.goal, bar.must) for bar in BARS if bar.goal is not None)


def test_main_says_how_it_went(tmp_path, capsys):
    """The exit code of the script is the verdict."""
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"python": "3.11.7", "scenarios": {}, "figures": {}}))

    assert 1 == bars.main([str(file)])
    assert "NOT MEASURED" in capsys.readouterr().out
    assert 2 == bars.main([])


def test_every_bar_reads_its_figure_from_a_run():
    """No bar asks for a scenario or an entry that does not exist."""
    assert [] == [row.bar.what for row in bars.judge(measured()) if row.verdict is Verdict.UNKNOWN]


# ---------------------------------------------------------------------------------------------- baseline
def test_ratios_are_against_wrapt_and_the_fastest_peer():
    """A plain function and an empty functools.wraps are shown, not compared with."""
    result = made_up(ours=50, wrapt=200, wraps=40, plain=10, quick=100, slow=500)

    assert {"s/success": {"wrapt": 0.25, "fastest peer": 0.5}} == compare.ratios_of(result)


def test_wall_clock_is_not_compared():
    """Its ratios tell of the neighbours."""
    assert {} == compare.compared_of(made_up(ours=50, quick=100, wall=True))


@pytest.mark.parametrize(("now", "worse"), [(0.5, False), (0.6, False), (0.61, True), (0.1, False)])
def test_a_fifth_worse_is_a_regression(now, worse):
    """Exactly 20 % may be noise, more is not; better is never one."""
    found = compare.regressions({"s": {"wrapt": now, "new": 9.0}}, {"s": {"wrapt": 0.5, "gone": 1.0}})

    assert ([("s", "wrapt", 0.5, now)] if worse else []) == found


def test_what_was_not_measured_is_told():
    """A peer that could not be imported does not vanish silently."""
    assert ["s: gone"] == compare.missing({"s": {"wrapt": 1.0}}, {"s": {"wrapt": 0.5, "gone": 1.0}})


def test_versions_have_their_own_baseline(tmp_path, capsys):
    """Storing the ratios of one version leaves those of another, and a version without any passes."""
    file = tmp_path / "baseline.json"
    old, new = made_up(ours=50, quick=100), made_up("3.12.1", ours=90, quick=100)
    compare.update(old, file)

    assert compare.compare(new, compare.read(file))
    compare.update(new, file)
    assert {"3.11", "3.12"} == set(compare.read(file))
    assert compare.compare(old, compare.read(file))
    assert not compare.compare(made_up(ours=90, quick=100), compare.read(file))
    assert "0.5 before, 0.9 now (+80%)" in capsys.readouterr().out


def test_there_is_a_baseline_for_the_version_that_is_judged():
    """The job that compares has something to compare with."""
    assert compare.ratios_of(measured()).keys() >= compare.read()[bars.JUDGED_ON].keys() > set()


# ---------------------------------------------------------------------------------------------- the run
def test_the_calmer_measurement_counts():
    """Slowed scenarios are measured once more; the second is taken if it was disturbed less."""
    result = {"scenarios": {"a": {"slowdown": 1.6}, "b": {"slowdown": 1.7}, "c": {"slowdown": 1.5}}}
    slowed = run.slowed_in(result)
    run.take_calmer(result, {"a": {"slowdown": 1.1}, "b": {"slowdown": 1.9}})

    assert {"a", "b"} == slowed
    assert {"a": 1.1, "b": 1.7, "c": 1.5} == {name: found["slowdown"] for name, found in result["scenarios"].items()}


def test_the_page_shows_the_stored_result():
    """After a new result, `python benchmarks/run.py --page` writes the page anew."""
    text = page.PAGE.read_text(encoding="utf-8")

    assert page.placed(text, measured()) == text


def test_a_page_without_markers_is_refused():
    """A table that has no place is an error, not a silent omission."""
    with pytest.raises(ValueError, match="markers"):
        page.placed("# Benchmarks\n", measured())


# ---------------------------------------------------------------------------------------------- our entries
@pytest.mark.parametrize("scenario", peers.SCENARIOS)
def test_our_entry_does_what_the_scenario_says(scenario, loop):
    """The right result, the right number of calls, the right refusal."""
    checked = harness.check(scenario, OURS, ours.build, scenario.startswith("async"))

    assert "skip" != loop.run_until_complete(checked)


def test_a_wrong_entry_is_found_out(loop):
    """An entry that only passes the call on is no retry, and is not timed as one."""
    with pytest.raises(AssertionError, match="ran 1 times, expected 2"):
        loop.run_until_complete(harness.check("sync/retry/retry1", "nothing", lambda _, fn: fn, False))


def test_extra_cases_run(loop):
    """Every statement that only we time can be run."""
    cases = [
        *extras.is_open_cases(False),
        *extras.is_open_cases(True),
        *extras.window_cases(loop, "sync"),
        *extras.window_cases(loop, "async"),
        *extras.keyed_cases(False),
        *extras.keyed_cases(True),
        *extras.bare_timeout_cases(loop),
    ]
    for case in cases:
        took = case.loop(2, case.names, time.perf_counter_ns, itertools.repeat)

        assert 0 < (loop.run_until_complete(took) if case.is_async else took)


def test_nothing_is_miscounted():
    """Eight threads through one breaker and a bulkhead, in small."""
    assert {"miscounted": 0, "above_slots": 0} == figures.exactness(calls=20)


def test_a_cycle_is_a_trip_a_refusal_and_a_probe():
    """Each whole cycle has one probe in it."""
    found = figures.cycles(3, 0.0)

    assert [3, 3] == [len(found["cycle"]), len(found["half_open"])]
    assert all(0 < probe < cycle for probe, cycle in zip(found["half_open"], found["cycle"], strict=True))


def test_percentiles():
    """The median and the tail of single calls."""
    assert {"p50": 50.0, "p95": 95.0, "p99": 99.0} == figures.percentiles([float(n) for n in range(101)])
