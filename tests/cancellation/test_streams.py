"""Streams, cancelled, cut off and closed at every point of their consumption (I4, I8, I10, I14, I15, P17)."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing

import pytest

from resilience import CircuitState, TimeoutExceeded, compose, timeout

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
SUBSETS = [
    "".join(parts)
    for parts in itertools.product(("", "B"), ("", "T", "P", "Q", "I"), ("", "R", "W"), ("", "C", "A"))
    if any(parts)
]
CHOSEN = ["B", "T", "C", "I", "TC", "BTRC", "BPRC", "BIRC", "BTWA", "PA"]
SCRIPTS = {
    "ok": ["ok"],
    "fail": ["fail"],
    "flaky": ["fail", "ok"],
    "hang": ["hang"],
    "fail then hang": ["fail", "hang"],
    "gate": ["gate"],
    "tidy": ["tidy"],
    "swallow": ["swallow"],
    "convert": ["convert"],
}


def thorough(subsets, step, always=()):
    """All of them in the long search, every few of them in the ordinary run."""
    return [
        pytest.param(subset, marks=() if number % step == 0 or subset in always else pytest.mark.proof)
        for number, subset in enumerate(subsets)
    ]


def guarded(world, fn, letters):
    """A stream under policies; I: limits for the waits for items."""
    if "I" not in letters:
        return world.decorated(fn, letters)
    return compose(timeout(20, first_item=10, idle=10))(world.decorated(fn, letters.replace("I", "")))


# ---------------------------------------------------------------------------------------------- ways to stream
# Each ends in the very step in which the provider has answered, so that the breaker and the provider count alike.


def before_the_first_item(letters):
    """The provider is asked, and what it says is the only item."""

    def make(world):
        async def stream():
            yield await world.provider()

        fn = guarded(world, stream, letters)

        async def consume():
            last = None
            async for item in fn():
                last = item
            return last

        return consume

    return make


def after_the_first_item(letters):
    """Something has been delivered when the provider is asked: nothing is begun anew."""

    def make(world):
        async def stream():
            yield "ok"
            await world.provider()

        fn = guarded(world, stream, letters)

        async def consume():
            last = None
            async with aclosing(fn()) as items:
                async for item in items:
                    last = item
                    # The consumer is busy for a while.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
            return last

        return consume

    return make


def opened(letters):
    """The function opens the stream, and the provider is asked by its first item."""

    def make(world):
        async def items():
            yield await world.provider()

        async def opens():
            await asyncio.sleep(0)
            return items()

        fn = world.decorated(opens, letters, stream=True)

        async def consume():
            last = None
            async with aclosing(await fn()) as stream:
                async for item in stream:
                    last = item
            return last

        return consume

    return make


WAYS = [before_the_first_item, after_the_first_item]


def named(make):
    return make.__name__


def options(letters):
    return {
        "counts": "C" in letters,
        "lazily": 0,
        "per_attempt": bool(set(letters) & set("PQI")),
    }


# ---------------------------------------------------------------------------------------------- cancelled
@pytest.mark.parametrize("subset", thorough(SUBSETS, 7, ["BTRC", "BIRC"]))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_cancelled_at_each_point(place, way, subset):
    """I4, I8, I14: a consumer's task, cancelled at each suspension, before and after the wake-up."""
    with place(way(subset), subset, **options(subset)) as world:
        for name, script in SCRIPTS.items():
            # A stream that has swallowed its own limit goes on, but its consumer is told at the next step.
            world.counts = "C" in subset and (name != "swallow" or not set(subset) & set("TPQI"))
            world.sweep(script)


@pytest.mark.parametrize("subset", CHOSEN)
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_cancelled_on_every_loop(any_place, way, subset):
    """I4, I8, I14: the same on uvloop and with eager tasks."""
    with any_place(way(subset), subset, **options(subset)) as world:
        for script in ("flaky", "hang", "tidy"):
            world.sweep(SCRIPTS[script])


@pytest.mark.parametrize("subset", thorough([subset for subset in SUBSETS if set(subset) & set("CA")], 7))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_a_probe_cancelled_at_each_point(place, way, subset):
    """I1, I4, I15: a stream that probes: released at whatever point, and the next may go at once."""
    with place(way(subset), subset, **options(subset), state=HALF_OPEN) as world:
        for script in ("ok", "fail", "hang", "tidy"):
            world.sweep(SCRIPTS[script])


@pytest.mark.parametrize("subset", ["T", "I", "TC", "BPRC", "BTRC", "BTWA"])
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_in_the_cleanup_of_a_cancelled_task(place, way, subset):
    """I10, I14: a task with a pending cancel consumes a stream: that cancel is neither taken back nor taken for ours."""
    with place(way(subset), subset, **options(subset)) as world:
        for script, pending in itertools.product(("ok", "fail", "hang", "tidy"), (1, 2)):
            world.sweep(SCRIPTS[script], pending=pending)


@pytest.mark.parametrize("subset", thorough(CHOSEN, 2))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_cancelled_twice(place, way, subset):
    """I14: a second cancel at each await of what the first has set off, and at the same point."""
    with place(way(subset), subset, **options(subset)) as world:
        assert world.sweep_twice(SCRIPTS["tidy"])
        world.sweep(SCRIPTS["tidy"], ("cancel", "cancel"))
        world.sweep(SCRIPTS["tidy"], ("cancel", "turn", "cancel"))


# ---------------------------------------------------------------------------------------------- cut off
@pytest.mark.parametrize("subset", thorough([subset for subset in CHOSEN if set(subset) & set("TPQ")], 2))
@pytest.mark.parametrize(
    "acts", [("expire",), ("cancel", "expire"), ("expire", "cancel"), ("expire", "turn", "cancel")], ids=str
)
def test_cut_off_at_each_point(place, subset, acts):
    """I14, P17: an expiry at each suspension, and a cancel before, with and after it: an accepted cancel wins."""
    with place(before_the_first_item(subset), subset, **options(subset)) as world:
        for script in ("ok", "hang", "tidy", "flaky"):
            world.sweep(SCRIPTS[script], acts, ("next", "late"))


@pytest.mark.parametrize("subset", ["T", "TC", "BTRC", "BPRC"])
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_an_expiry_ends_in_a_timeout_an_answer_or_the_failure(any_place, way, subset):
    """P17: nobody cancels: so nobody is cancelled, whatever the consumer was doing when the time was up."""
    with any_place(way(subset), subset, **{**options(subset), "counts": False}) as world:
        for script in ("ok", "fail", "hang", "tidy", "flaky"):
            quiet = world.once(SCRIPTS[script])
            for point in world.points(quiet, ("expire",), ("next", "late")):
                run = world.once(SCRIPTS[script], point)
                assert run.error in (None, ConnectionError, TimeoutExceeded)
                assert run.cancelling == 0


@pytest.mark.parametrize("first", ["cancel", "expire"])
@pytest.mark.parametrize("subset", ["TC", "BTRC"])
def test_disturbed_while_unwinding(place, subset, first):
    """I14: what an expiry or a cancel has set off is disturbed by the other at each of its awaits."""
    second = "expire" if first == "cancel" else "cancel"
    with place(before_the_first_item(subset), subset, **options(subset)) as world:
        assert world.sweep_twice(SCRIPTS["tidy"], (first,), (second,))


# ---------------------------------------------------------------------------------------------- in line
@pytest.mark.parametrize("subset", ["B", "BT", "BC", "BPRC", "BTWA"])
def test_in_line(place, subset):
    """Section 7, I8: a stream that stands in line for its slot is cancelled: who stands behind it is served."""
    with place(before_the_first_item(subset), subset, **options(subset), in_line=True) as world:
        for script in (["ok"], ["hang"], ["fail", "ok"]):
            world.sweep(script)
        world.sweep(["ok"], ("cancel", "cancel"))
        for acts in (("grant", "cancel"), ("cancel", "grant")):
            world.once(["ok"], (1, "next", acts))


# ---------------------------------------------------------------------------------------------- closed
def leaving(letters):
    """The consumer leaves after the first item; the stream's clean-up asks the provider."""

    def make(world):
        async def stream():
            try:
                yield "ok"
                raise AssertionError("nobody asks for more")
            finally:
                await world.provider()

        fn = guarded(world, stream, letters)

        async def consume():
            async with aclosing(fn()) as items:
                async for _ in items:
                    break
            return "ok"

        return consume

    return make


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("subset", CHOSEN)
def test_cancelled_while_a_stream_is_closed(place, subset, state):
    """I4, I8, I15: at each await of its clean-up: whatever comes of that, everything is given back."""
    with place(leaving(subset), subset, **{**options(subset), "counts": False}, state=state) as world:
        for script in ("ok", "hang", "tidy", "fail"):
            world.sweep(SCRIPTS[script])


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "B", "T", "I", "BIRC"])
def test_closed_between_two_steps(any_place, subset, state):
    """I4, I15: after each number of items, begun in one task and closed in another: nothing is counted or kept."""
    with any_place(lambda world: None, subset, **options(subset), state=state) as world:

        async def main(items):
            world.renew(["ok"])
            began = 0

            async def stream():
                nonlocal began
                began += 1
                for number in range(3):
                    await asyncio.sleep(0)
                    yield number

            running = guarded(world, stream, subset)()

            async def step():
                return await running.__anext__()

            async def close():
                await running.aclose()

            for number in range(items):
                assert number == await asyncio.create_task(step())
                if "B" in subset:
                    assert 1 == world.pool.in_flight
            await asyncio.create_task(close())
            world.check_whole()
            status = world.shared.status()
            assert (0, 0) == (status.failures_total, status.successes_total)
            assert began == min(items, 1)

        for items in range(4):
            world.loop.run_until_complete(main(items))


@pytest.mark.parametrize("exception", [asyncio.CancelledError, ConnectionError, GeneratorExit, KeyError])
@pytest.mark.parametrize("subset", ["C", "BTRC", "BPRA", "B"])
def test_thrown_in_between_two_steps(any_place, subset, exception):
    """I4, I10: whatever is thrown in leaves as the very same object, and everything is given back."""
    with any_place(lambda world: None, subset, **options(subset)) as world:

        async def main(items):
            world.renew(["ok"])

            async def stream():
                for number in range(4):
                    yield number

            running = guarded(world, stream, subset)()
            for _ in range(items):
                await running.__anext__()
            thrown = exception()
            with pytest.raises(exception) as caught:
                await running.athrow(thrown)
            assert thrown is caught.value
            world.check_whole()
            counted = int(exception is ConnectionError and items > 0 and bool(set(subset) & set("CA")))
            assert counted == world.shared.status().failures_total

        for items in range(4):
            world.loop.run_until_complete(main(items))


# ---------------------------------------------------------------------------------------------- opened
@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("subset", ["B", "C", "BRC", "BTRC", "BPRC", "A"])
def test_an_opened_stream_cancelled_at_each_point(place, subset, state):
    """I4, I8, I15: while it is opened, and while its item is waited for."""
    with place(opened(subset), subset, **options(subset), state=state) as world:
        for script in ("ok", "fail", "hang", "tidy"):
            world.sweep(SCRIPTS[script])
