"""Cancels, expiries, results and grants around each other: in one tick and in the ticks after, in every order (I14, P17)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from resilience import BulkheadFullError, TimeoutExceeded

LIMITED = [
    "".join(parts) for parts in itertools.product(("", "B"), ("T", "P", "Q"), ("", "R", "W"), ("", "C", "A", "J"))
]
CHOSEN = ["T", "Q", "TC", "PC", "BTRC", "BPRC", "BTWA", "PJ"]
LINED = ["".join(parts) for parts in itertools.product("B", ("", "T", "P"), ("", "R", "W"), ("", "C", "A", "J"))]


def thorough(subsets, step, always=()):
    """All of them in the long search, every few of them in the ordinary run."""
    return [
        pytest.param(subset, marks=() if number % step == 0 or subset in always else pytest.mark.proof)
        for number, subset in enumerate(subsets)
    ]


def sequences(*words, gaps=(0, 1, 2)):
    """Some of the acts or all of them, in every order, with each number of turns between."""
    for count in range(1, len(words) + 1):
        for order in itertools.permutations(words, count):
            for between in itertools.product(gaps, repeat=count - 1):
                acts = [order[0]]
                for gap, act in zip(between, order[1:], strict=True):
                    acts += ["turn"] * gap + [act]
                yield tuple(acts)


# ---------------------------------------------------------------------------------------------- expiry
@pytest.mark.parametrize("subset", thorough(LIMITED, 50, ["TC", "BPWC"]))
def test_cancel_around_an_expiry(place, subset):
    """I14, P17: at each suspension, a cancel before, in the same tick as and after an expiry: an accepted cancel wins."""
    with place(lambda world: world.function(subset), subset) as world:
        for acts in sequences("cancel", "expire"):
            for script in (["hang"], ["fail", "hang"], ["tidy"]):
                world.sweep(script, acts, ("next", "late"))


@pytest.mark.parametrize("subset", thorough([subset for subset in CHOSEN if set(subset) & set("PQ")], 3))
def test_cancel_around_the_end_of_one_attempt(any_place, subset):
    """I14, P17: the same around the limit of one attempt, after which a retry goes on."""
    with any_place(lambda world: world.function(subset), subset) as world:
        for acts in sequences("cancel", "lapse"):
            for script in (["hang"], ["hang", "ok"], ["tidy", "ok"]):
                world.sweep(script, acts, ("next", "late"))


@pytest.mark.parametrize(("first", "second"), [("expire", "cancel"), ("cancel", "expire"), ("lapse", "expire")])
@pytest.mark.parametrize("subset", thorough(CHOSEN, 4))
def test_disturbed_while_unwinding(any_place, subset, first, second):
    """I14: what an expiry or a cancel has set off is disturbed by the other at each of its awaits."""
    with any_place(lambda world: world.function(subset), subset) as world:
        assert world.sweep_twice(["tidy"], (first,), (second,))


@pytest.mark.parametrize("subset", thorough([subset for subset in LIMITED if "Q" not in subset], 6, CHOSEN))
def test_back_by_the_deadline(place, subset):
    """I14: a call whose budget runs out is back as soon as one under `asyncio.timeout`."""
    with place(like_asyncio("T"), lazily=1) as world:
        theirs = world.once(["hang"], (2, "next", ("expire",)))
    with place(lambda world: world.function(subset), subset) as world:
        for script in (["hang"], ["fail", "hang"]):
            quiet = world.once(script)
            for number in range(1, quiet.reached + 1):
                run = world.once(script, (number, "next", ("expire",)))
                if run.error is TimeoutExceeded:
                    assert run.turns - run.expired <= theirs.turns - theirs.expired, number


@pytest.mark.parametrize("pending", [0, 1])
@pytest.mark.parametrize("subset", thorough(CHOSEN, 3))
def test_expiry_at_each_point(any_place, subset, pending):
    """P17: nobody cancels: an expiry at whatever moment ends in a timeout, an answer or the real failure."""
    with any_place(lambda world: world.function(subset), subset) as world:
        for script in (["ok"], ["fail"], ["hang"], ["tidy"], ["fail", "ok"]):
            quiet = world.once(script, pending=pending)
            for point in world.points(quiet, ("expire",), ("next", "late")):
                run = world.once(script, point, pending=pending)
                assert run.error in (None, ConnectionError, TimeoutExceeded)


# ---------------------------------------------------------------------------------------------- result
def like_asyncio(letters):
    """The same limits by `asyncio.timeout`."""

    def make(world):
        async def call():
            async with asyncio.timeout(10 if "Q" in letters else 20):
                if "P" not in letters:
                    return await world.provider()
                async with asyncio.timeout(10):
                    return await world.provider()

        return call

    return make


@pytest.mark.parametrize("subset", thorough(CHOSEN, 2))
def test_cancel_expiry_and_result(any_place, subset):
    """I14: three things in every order and distance, at the await of the answer: as with `asyncio.timeout` itself."""
    seen = []
    for letters, make in ((subset, lambda world: world.function(subset)), ("", like_asyncio(subset))):
        found = []
        with any_place(make, letters, lazily=1) as world:
            for acts in sequences("cancel", "expire", "result"):
                for mode in ("next", "late"):
                    if mode == "late" and acts[0] != "expire":
                        # The harness ends the wait; the acts come in the tick of the wake-up.
                        acts = ("turn", *acts)
                    run = world.once(["gate"], (2, "next", acts))
                    error = None if run.error is None else issubclass(run.error, TimeoutError)
                    found.append((acts, run.cancelled, error, run.result, run.cancelling))
        seen.append(found)
    # Where a retry goes on after the limit of one attempt, there is more to come.
    if not ("R" in subset and "P" in subset):
        assert seen[1] == seen[0]


@pytest.mark.parametrize("subset", ["B", "C", "A", "J", "R", "BRC"])
def test_cancel_and_result_without_a_limit(any_place, subset):
    """I14: as a plain await: a cancel in the tick of the result wins, after it there is nothing to cancel."""
    ended = []
    for letters in (subset, ""):
        with any_place(lambda world: world.function(letters), letters) as world:
            runs = [world.once(["gate"], (2, "next", acts)) for acts in sequences("cancel", "result")]
            ended.append([(run.cancelled, run.result, run.cancelling) for run in runs])
    assert ended[1] == ended[0]


# ---------------------------------------------------------------------------------------------- the line
@pytest.mark.parametrize("subset", thorough(LINED, 7))
def test_in_line(place, subset):
    """Section 7, I8: a waiter cancelled once and twice at each point; who stands behind it is served."""
    with place(lambda world: world.function(subset), subset, in_line=True) as world:
        for script in (["ok"], ["hang"], ["fail", "ok"]):
            world.sweep(script)
        world.sweep(["ok"], ("cancel", "cancel"))
        world.sweep_twice(["tidy"])


@pytest.mark.parametrize("subset", ["B", "BT", "BC", "BPRC", "BTWA"])
def test_cancel_expiry_and_grant_in_line(any_place, subset):
    """Section 7, I8, I14: grant, expiry and cancel of a waiter in every order and distance: no slot is lost or kept."""
    with any_place(lambda world: world.function(subset), subset, in_line=True) as world:
        for acts in sequences("cancel", "expire", "grant"):
            run = world.once(["ok"], (1, "next", acts))
            if run.cancelled:
                continue
            if run.error is None:
                assert "ok" == run.result
            else:
                assert run.error in (BulkheadFullError, TimeoutExceeded)
                assert "expire" in acts
            if subset == "B" and acts[0] == "grant":
                assert run.result == "ok", "who was granted a slot before the time was up has it"


def test_cancel_around_the_result_of_who_was_in_line(any_place):
    """I8, I14: granted a slot, then the answer and a cancel in every order: the slot goes to the next in line."""
    with any_place(lambda world: world.function("BTC"), "BTC", in_line=True) as world:
        quiet = world.once(["gate"])
        for acts in sequences("cancel", "result"):
            world.once(["gate"], (1, "next", ("grant",)), (max(quiet.futures), "next", acts))


# ---------------------------------------------------------------------------------------------- the wait of a retry
@pytest.mark.parametrize("subset", ["W", "WC", "BWC", "BTWC", "PWJ", "WA"])
def test_wait_of_a_retry(any_place, subset):
    """I4, I14: the wait between two attempts: cancelled, woken and cut off in every order; no further attempt follows."""
    with any_place(lambda world: world.function(subset), subset) as world:
        for acts in sequences("cancel", "wake", "expire", gaps=(0, 1)):
            # The third suspension, after the body's two: the wait.
            run = world.once(["fail", "fail", "ok"], (3, "next", acts))
            assert run.cancelled == ("cancel" in acts and run.cancels == 1)
