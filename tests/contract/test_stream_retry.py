"""Contract sections 6 and 8: a stream is begun anew only before its first item."""

from __future__ import annotations

import asyncio

import pytest
import tenacity
from streaming import END

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    breaker,
    bulkhead,
    compose,
    retry,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(9))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


class Script:
    """A stream whose attempts do what the script says: (items, error) each; it counts them."""

    def __init__(self, *attempts):
        self.script = list(attempts)
        self.began = 0

    def __call__(self, *args):
        self.began += 1
        items, error = self.script.pop(0)
        yield from items
        if error is not None:
            raise error


def guarded(env, script, attempts=3, **options):
    options = {"wait": 0, "idempotent": True, **options}

    def body(*args):
        yield from script(*args)

    return compose(bulkhead("pool"), retry(attempts, **options), breaker("api"))(env.stream(body))


def notes(error):
    return getattr(error, "__notes__", [])


def down(text="down"):
    return ConnectionError(text)


def test_a_stream_that_fails_before_its_first_item_begins_anew(env, pool, api):
    """Section 8: the consumer gets the items of the new one; each attempt is judged."""
    script = Script(([], down()), ([], down()), ([1, 2], None))

    assert [1, 2] == env.open(guarded(env, script)).rest()
    assert 3 == script.began
    assert (1, 2) == counted(api)
    assert 0 == pool.in_flight


def test_it_begins_anew_with_its_arguments(env, pool, api):
    """Section 8: those of the call."""
    seen = []

    def body(*args):
        seen.append(args)
        if len(seen) < 2:
            raise down()
        yield args

    fn = retry(2, wait=0, idempotent=True)(env.stream(body))

    assert [("a", "b")] == env.open(fn, "a", "b").rest()
    assert [("a", "b")] * 2 == seen


def test_after_the_first_item_the_error_leaves(env, pool, api):
    """Section 8: the very same object, at once, without a note of a retry."""
    error = down()
    script = Script(([1], error))
    stream = env.open(guarded(env, script))
    stream.next()
    with pytest.raises(ConnectionError) as caught:
        stream.next()

    assert error is caught.value
    assert [] == notes(error)
    assert 1 == script.began
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_after_the_first_item_of_a_repeat_too(env, pool, api):
    """Section 8: whichever attempt has given it."""
    error = down("later")
    script = Script(([], down()), ([1], error))
    stream = env.open(guarded(env, script))
    stream.next()
    with pytest.raises(ConnectionError) as caught:
        stream.next()

    assert error is caught.value
    assert [] == notes(error)
    assert 2 == script.began
    assert (0, 2) == counted(api)


def test_exhausted(env, pool, api):
    """Section 6: the last real exception leaves, with a note."""
    last = down("last")
    script = Script(([], down()), ([], down()), ([], last))
    with pytest.raises(ConnectionError) as caught:
        env.open(guarded(env, script)).next()

    assert last is caught.value
    assert ["retry gave up after 3 attempts"] == notes(last)
    assert 3 == script.began
    assert (0, 3) == counted(api)
    assert 0 == pool.in_flight


def test_an_empty_stream_is_no_failure(env, pool, api):
    """Nothing to repeat: it has ended well."""
    script = Script(([], None))

    assert [] == env.open(guarded(env, script)).rest()
    assert 1 == script.began


def test_what_is_not_transient_is_not_repeated(env, pool, api):
    """Section 6: the default is retry_on={TRANSIENT}."""
    script = Script(([], TypeError("bug")))
    with pytest.raises(TypeError):
        env.open(guarded(env, script)).next()

    assert 1 == script.began
    assert 0 == pool.in_flight


def test_what_is_thrown_in_before_the_end_is_not_repeated(env, pool, api):
    """Section 8: it comes after an item."""
    script = Script(([1, 2], None))
    stream = env.open(guarded(env, script))
    stream.next()
    with pytest.raises(ConnectionError):
        stream.throw(down())

    assert 1 == script.began
    assert (0, 1) == counted(api)


def test_sends_reach_a_repeat(env, pool, api):
    """I10: after the first item everything goes through, also in a later attempt."""
    began = []

    def body():
        began.append(1)
        if len(began) == 1:
            raise down()
        item = "first"
        while item != "stop":
            item = yield item

    stream = env.open(compose(bulkhead("pool"), retry(2, wait=0, idempotent=True))(env.stream(body)))

    assert ["first", "a", END] == [stream.next(), stream.send("a"), stream.send("stop")]
    assert 0 == pool.in_flight


def test_the_return_value_of_a_repeat(registry, ticking, pool, api):
    """I10: `yield from` gets it."""
    began = []

    @retry(2, wait=0, idempotent=True)
    def inner():
        began.append(1)
        if len(began) == 1:
            raise down()
        yield 1
        return "value"

    def outer():
        returned.append((yield from inner()))

    returned = []
    assert [1] == list(outer())
    assert ["value"] == returned


@pytest.mark.parametrize("items", [1, 2])
def test_a_repeat_that_is_closed_early(env, pool, api, items):
    """I4: neutral, whichever attempt it is; the earlier failure stays counted."""
    script = Script(([], down()), ([1, 2, 3], None))
    stream = env.open(guarded(env, script))
    for _ in range(items):
        stream.next()
    stream.close()

    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_waits_are_those_of_a_call(world, pool, api):
    """Section 6: the backoff between two attempts, before the first item."""
    script = Script(([], down()), ([], down()), ([1], None))

    assert [1] == world.open(guarded(world, script, wait=None, initial_backoff=1, jitter=0)).rest()
    assert [1.0, 2.0] == world.clock.slept


def test_a_servers_wait_is_honoured(world, pool, api, http_error):
    """Section 6: Retry-After is the least wait, up to a little that spreads who were told the same."""
    script = Script(([], http_error(503, retry_after="7")), ([1], None))

    assert [1] == world.open(guarded(world, script)).rest()
    assert [7] == [int(seconds) for seconds in world.clock.slept]


def test_a_servers_wait_that_is_too_long(world, pool, api, http_error):
    """Section 6: fail now."""
    error = http_error(503, retry_after="300")
    with pytest.raises(http_error) as caught:
        world.open(guarded(world, Script(([], error)))).next()

    assert error is caught.value
    assert [] == world.clock.slept


def test_tenacitys_strategies(env, pool, api):
    """Section 6: any wait and stop object, asked before the first item only."""
    script = Script(([], down()), ([], down()))
    fn = guarded(env, script, attempts=9, wait=tenacity.wait_none(), stop=tenacity.stop_after_attempt(2))
    with pytest.raises(ConnectionError):
        env.open(fn).next()

    assert 2 == script.began


def test_a_retry_stops_at_an_open_circuit(env, pool, registry):
    """Section 3: the last real exception leaves with the note, no refusal."""
    registry.breaker("api", BreakerConfig(Consecutive(2), cooldown=30))
    last = down("last")
    script = Script(([], down()), ([], last))
    with pytest.raises(ConnectionError) as caught:
        env.open(guarded(env, script)).next()

    assert last is caught.value
    assert ["retry stopped: circuit api is open, 30 s left"] == [note.replace("'", "") for note in notes(last)]
    assert 2 == script.began


def test_a_refusal_is_not_repeated(env, pool, api):
    """Section 6: by an open circuit."""
    api.force_open("drill")
    script = Script(([1], None))
    with pytest.raises(CircuitOpenError):
        env.open(guarded(env, script)).next()

    assert 0 == script.began


def test_a_probe_is_one_attempt(env, pool, api):
    """Section 3: its failure before the first item is not repeated."""
    api.force_open("drill", seconds=5)
    env.advance(5)
    script = Script(([], down()))
    with pytest.raises(ConnectionError):
        env.open(guarded(env, script)).next()

    assert 1 == script.began
    assert OPEN is api.state


def test_nested_streams_add(env, pool, api):
    """Section 6: three inside three are five attempts."""
    began = []

    def inner_body():
        began.append(1)
        raise down()
        yield

    inner = retry(3, wait=0, idempotent=True)(env.stream(inner_body))

    def body():
        yield from inner()

    async def astream():
        async for item in inner():
            yield item

    outer = retry(3, wait=0, idempotent=True)(astream if env.is_async else body)
    with pytest.raises(ConnectionError):
        env.open(outer).next()

    assert 5 == len(began)


def test_a_stream_cancelled_in_the_wait_between_two_attempts(registry, pool, api, manual):
    """I14: no further attempt, and everything is given back."""
    began = []

    @compose(bulkhead("pool"), retry(3, wait=5, idempotent=True), breaker("api"))
    async def stream():
        began.append(1)
        raise down()
        yield

    async def main():
        asking = asyncio.ensure_future(asked(stream()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert 1 == pool.in_flight
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    async def asked(running):
        return await anext(running)

    asyncio.run(main())
    assert 1 == len(began)
    assert 0 == pool.in_flight
    assert (0, 1) == counted(api)
