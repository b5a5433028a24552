"""Adopted awaitables of plain functions, and `@uninterruptible`: cancelled at every point and around results (I4, I8, I14)."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from resilience import CircuitState, TimeoutExceeded, breaker, bulkhead, compose, retry, timeout, uninterruptible

CLOSED, HALF_OPEN = CircuitState.CLOSED, CircuitState.HALF_OPEN
PLAIN = {
    "B": lambda: bulkhead("pool", wait=5),
    "T": lambda: timeout(20, pass_as="seconds"),
    "P": lambda: timeout(20, per_attempt=10, pass_as="seconds"),
    "R": lambda: retry(3, wait=0, idempotent=True),
    "W": lambda: retry(3, wait=7, idempotent=True),
    "C": lambda: breaker("api"),
    "A": lambda: breaker("api", account="call"),
}
ADOPTED = [
    "".join(parts)
    for parts in itertools.product(("", "B"), ("", "T", "P"), ("", "R", "W"), ("", "C", "A"))
    if any(parts)
]
CHOSEN = ["B", "T", "C", "BTRC", "BPWA"]


def thorough(subsets, step, always=()):
    """All of them in the long search, every few of them in the ordinary run."""
    return [
        pytest.param(subset, marks=() if number % step == 0 or subset in always else pytest.mark.proof)
        for number, subset in enumerate(subsets)
    ]


def a_coroutine(world):
    return world.provider()


def a_task(world):
    return asyncio.ensure_future(world.provider())


class Later:
    """An awaitable of somebody's own."""

    def __init__(self, world):
        self._world = world

    def __await__(self):
        return self._world.provider().__await__()


class Session:
    """To be entered by `async with`."""

    def __init__(self, world):
        self._world = world

    async def __aenter__(self):
        return await self._world.provider()

    async def __aexit__(self, *error):
        return None

    def __await__(self):
        raise AssertionError("it is entered, not awaited")


def adopting(kind, letters):
    """A plain function under policies whose result is awaited, or entered."""

    def make(world):
        def fn(seconds=None):
            return kind(world)

        decorated = compose(*(PLAIN[letter]() for letter in letters))(fn)

        async def entering():
            async with decorated() as answer:
                return answer

        return entering if kind is Session else decorated

    return make


def options(kind, subset):
    """A task of somebody's own may have answered in the tick of the cancel: the breaker does not hear of that."""
    return {"lazily": 0, "counts": "C" in subset and kind is not a_task}


def late_to_the_line(letters):
    """The call itself finds a free slot, its awaitable does not."""

    def make(world):
        decorated = adopting(a_coroutine, letters)(world)

        async def call():
            adopted = decorated()
            world.held = world.pool.take()
            return await adopted

        return call

    return make


@pytest.mark.parametrize("subset", thorough(ADOPTED, 13))
@pytest.mark.parametrize("kind", [a_coroutine, a_task, Later, Session], ids=lambda kind: kind.__name__)
def test_adopted(place, kind, subset):
    """I4, I8: what a plain function returned is awaited or entered under each subset, and cancelled at each point."""
    with place(adopting(kind, subset), subset, **options(kind, subset)) as world:
        for script in (["ok"], ["fail"], ["fail", "ok"], ["hang"], ["tidy"], ["gate"]):
            world.sweep(script)


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("subset", thorough(CHOSEN, 5, ["BTRC"]))
@pytest.mark.parametrize("kind", [a_coroutine, a_task, Session], ids=lambda kind: kind.__name__)
def test_adopted_on_every_loop(any_place, kind, subset, state):
    """I4, I8, I15: the same on uvloop and with eager tasks, also as a probe, and disturbed twice."""
    with any_place(adopting(kind, subset), subset, **options(kind, subset), state=state) as world:
        for script in (["ok"], ["fail", "ok"], ["hang"]):
            world.sweep(script)
        world.sweep_twice(["tidy"])


@pytest.mark.parametrize("subset", ["B", "BC", "BTRC", "BPWA"])
def test_adopted_in_line(any_place, subset):
    """I8: cancelled in line before it could begin: closed, never awaited, and the slot goes to the next."""
    with any_place(late_to_the_line(subset), subset, lazily=0) as world:
        for acts in (("cancel",), ("cancel", "grant"), ("grant", "cancel"), ("expire", "cancel"), ("cancel", "cancel")):
            world.sweep(["ok"], acts)
        run = world.once(["ok"], (1, "next", ("cancel",)))
        assert run.cancelled
        assert 0 == world.provider.began


@pytest.mark.parametrize("kind", [a_coroutine, a_task, Session], ids=lambda kind: kind.__name__)
def test_adopted_cancel_expiry_and_result(any_place, kind):
    """I14: a cancel, an expiry and the answer in one tick, in every order: the cancel wins."""
    with any_place(adopting(kind, "BTC"), "BTC", **options(kind, "BTC")) as world:
        quiet = world.once(["gate"])
        # The one that waits for the answer, or for the task that does.
        for acts in itertools.permutations(("cancel", "expire", "result")):
            run = world.once(["gate"], (max(quiet.futures), "next", acts))
            assert run.cancelled


# ---------------------------------------------------------------------------------------------- uninterruptible
UNCUT = ["".join(parts) for parts in itertools.product(("", "B"), ("", "R", "W"), ("", "C", "A", "J")) if any(parts)]


def uncut(letters):
    def make(world):
        @uninterruptible
        async def fn():
            return await world.provider()

        return world.decorated(fn, letters)

    return make


def uncut_under_a_limit(world):
    inner = uncut("BRC")(world)

    @timeout(20)
    async def outer():
        return await inner()

    return outer


@pytest.mark.parametrize("state", [CLOSED, HALF_OPEN], ids=["closed", "half-open"])
@pytest.mark.parametrize("subset", thorough(UNCUT, 7))
def test_uninterruptible(place, subset, state):
    """Section 5: cancelled at each point and some turns after it: the work ends and is judged, then the cancel is raised."""
    with place(uncut(subset), subset, uncut=True, state=state) as world:
        for script in (["ok"], ["fail"], ["fail", "ok"]):
            for turns in range(4):
                world.sweep(script, ("turn",) * turns + ("cancel",))
        world.sweep(["ok"], ("cancel", "turn", "cancel"))


@pytest.mark.parametrize("subset", ["C", "B", "BRC", "BWA"])
def test_uninterruptible_on_every_loop(any_place, subset):
    """Section 5: the same on uvloop and with eager tasks, with a second cancel while the first waits."""
    with any_place(uncut(subset), subset, uncut=True) as world:
        for script in (["ok"], ["fail", "ok"]):
            world.sweep(script)
            world.sweep(script, ("cancel", "turn", "cancel"))
        world.sweep_twice(["ok"])


def test_uninterruptible_that_ends_in_a_base_exception(any_place):
    """Section 5, I14: "then a cancel that arrived is raised", however the function has ended."""

    class Vanished(BaseException):
        pass

    def make(world):
        @breaker("api")
        @uninterruptible
        async def fn():
            await world.provider()
            raise Vanished

        return fn

    with any_place(make, uncut=True) as world:
        quiet = world.once(["ok"])
        assert quiet.raised is Vanished
        world.once(["ok"], (1, "next", ("cancel",)))


@pytest.mark.parametrize("gaps", [(0, 0), (1, 1), (0, 2), (2, 0)], ids=str)
def test_uninterruptible_under_a_limit(any_place, gaps):
    """Section 5, I14: an outer limit only decides whether it starts; a cancel and an expiry wait for its end."""
    with any_place(uncut_under_a_limit, counts=True, lazily=1, uncut=True) as world:
        quiet = world.once(["gate"])
        waits = max(quiet.futures)
        for order in itertools.permutations(("cancel", "expire", "result")):
            # After three turns the function has come to its own wait.
            acts = (order[0], *["turn"] * gaps[0], order[1], *["turn"] * gaps[1], order[2])
            run = world.once(["gate"], (waits, "next", ("turn",) * 3 + acts))
            assert run.cancelled or order[-1] == "cancel"
            assert 1 == world.provider.succeeded == world.shared.status().successes_total
        run = world.once(["gate"], (waits, "next", ("turn",) * 3 + ("expire", "turn", "result")))
        assert TimeoutExceeded is run.error
        assert 1 == world.provider.succeeded == world.shared.status().successes_total
