"""Contract section 8: admission at the first item, slot and permit held to the end, verdict at the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools

import pytest
from streaming import END

from resilience import (
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
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
    return registry.breaker("api", trips_at(2, cooldown=30))


def counted(api):
    status = api.status()
    return status.successes_total, status.failures_total


def numbers(stop=3):
    yield from range(stop)


def breaking(error, after=1):
    """A stream that breaks off with an error after some items."""

    def stream():
        yield from range(after)
        raise error

    return stream


def protected(env, body, **options):
    return bulkhead("pool")(breaker("api", **options)(env.stream(body)))


def open_circuit(env, api):
    """Opened by failures, not by hand, so that it cools."""
    while api.state is not OPEN:
        with pytest.raises(ConnectionError):
            env.open(breaker("api")(env.stream(breaking(ConnectionError("down"), 0)))).rest()


def half_open(env, api, seconds=30):
    open_circuit(env, api)
    env.advance(seconds)


# ---------------------------------------------------------------------------------------------- a whole stream
def test_items_arrive(env, pool, api):
    """A stream under policies gives what the bare one gives."""
    assert [0, 1, 2] == env.open(protected(env, numbers)).rest()


def test_an_exhausted_stream_is_one_success(env, pool, api):
    """Section 8: exhausted = success, once, whatever the number of items."""
    env.open(protected(env, numbers), 5).rest()

    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_empty_stream_is_one_success(env, pool, api):
    """Section 8: a stream without an item has ended well as soon as it began."""
    assert [] == env.open(protected(env, numbers), 0).rest()
    assert (1, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_ended_stream_stays_ended(env, pool, api):
    """Asking again after the end gives nothing and counts nothing."""
    stream = env.open(protected(env, numbers), 1)

    assert [0, END, END] == [stream.next() for _ in range(3)]
    assert (1, 0) == counted(api)


# ---------------------------------------------------------------------------------------------- before the first item
def test_nothing_happens_before_the_first_item(env, pool, api):
    """Section 8: admission at the first item; the function's body has not begun either."""
    began = []

    def body():
        began.append(1)
        yield 1

    stream = env.open(protected(env, body))

    assert [] == began
    assert 0 == pool.in_flight
    stream.next()
    assert [1] == began
    assert 1 == pool.in_flight


def test_a_stream_that_is_never_started_takes_nothing(env, pool, api):
    """Section 8: no slot, no permit; closed or forgotten alike."""
    fn = protected(env, numbers)
    env.open(fn).close()
    env.open(fn).drop()

    assert (0, 0) == (pool.in_flight, pool.rejected.value)
    assert (0, 0) == counted(api)


def test_a_stream_that_is_never_started_takes_no_probe(env, pool, api):
    """I15: of a cooled breaker neither."""
    half_open(env, api)
    env.open(protected(env, numbers)).close()

    assert OPEN is api.state
    assert 0 == api.status().probes_started


def test_wrong_arguments_fail_at_the_call(env, pool, api):
    """As with the bare function: before any policy sees it, and before the first item."""

    async def astream(stop=3):
        yield stop

    fn = bulkhead("pool")(breaker("api")(astream if env.is_async else numbers))

    with pytest.raises(TypeError):
        fn(1, 2, 3)


def test_the_circuit_is_asked_at_the_first_item(env, pool, api):
    """Section 8: a stream made before the opening is refused, one made before the closing is not."""
    fn = protected(env, numbers)
    early = env.open(fn)
    api.force_open("drill")
    late = env.open(fn)
    with pytest.raises(CircuitOpenError):
        early.next()
    api.reset()

    assert 0 == late.next()
    late.close()


def test_a_refused_stream_has_ended(env, pool, api):
    """As a generator that has raised: asking again gives its end, and takes nothing."""
    api.force_open("drill")
    stream = env.open(protected(env, numbers))
    with pytest.raises(CircuitOpenError):
        stream.next()
    api.reset()

    assert END == stream.next()
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- held to the end
def test_the_slot_is_held_from_the_first_item_to_the_end(env, pool, api):
    """Section 8: at each moment between the items too."""
    stream = env.open(protected(env, numbers), 2)
    held = []
    while stream.next() != END:
        held.append(pool.in_flight)

    assert [1, 1] == held
    assert 0 == pool.in_flight


def test_a_second_stream_waits_for_its_turn(env, pool, api):
    """Section 7: one slot, one stream; the refusal names the pool."""
    fn = protected(env, numbers)
    first, second = env.open(fn), env.open(fn)
    first.next()
    with pytest.raises(BulkheadFullError):
        second.next()
    first.rest()

    assert [0, 1, 2] == env.open(fn).rest()


def test_an_open_circuit_wins_over_a_full_bulkhead(env, pool, api):
    """Section 3: the door comes first."""
    fn = protected(env, numbers)
    holder = env.open(fn)
    holder.next()
    api.force_open("drill")
    with pytest.raises(CircuitOpenError):
        env.open(fn).next()
    holder.close()

    assert 0 == pool.rejected.value


def test_a_stream_outlives_the_opening(env, pool, api):
    """I6: one that was admitted before goes on; its result is late."""
    stream = env.open(protected(env, numbers))
    stream.next()
    open_circuit(env, api)

    assert [1, 2] == stream.rest()
    assert OPEN is api.state
    assert 1 == api.status().late_results


# ---------------------------------------------------------------------------------------------- errors
def test_an_error_mid_stream_counts_once(env, pool, api):
    """Section 8: its classified verdict; and it leaves as the very same object."""
    error = ConnectionError("down")
    stream = env.open(protected(env, breaking(error)))
    stream.next()
    with pytest.raises(ConnectionError) as caught:
        stream.next()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight
    assert END == stream.next()
    assert (0, 1) == counted(api)


def test_an_error_before_the_first_item(env, pool, api):
    """As that of a call."""
    error = ConnectionError("down")
    with pytest.raises(ConnectionError) as caught:
        env.open(protected(env, breaking(error, 0))).next()

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_our_own_bug_mid_stream_is_neutral(env, pool, api):
    """Section 2: INTERNAL counts neither way."""
    with pytest.raises(TypeError):
        env.open(protected(env, breaking(TypeError("bug")))).rest()

    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_an_answered_error_mid_stream_ends_a_streak(env, pool, api, http_error):
    """Section 2: the remote is alive and said no."""
    with pytest.raises(ConnectionError):
        env.open(protected(env, breaking(ConnectionError("down")))).rest()
    with pytest.raises(http_error):
        env.open(protected(env, breaking(http_error(404)))).rest()

    assert 0 == api.status().failure_count


def test_a_streak_of_broken_streams_opens(env, pool, api):
    """I5: the N-th broken stream trips, exactly once."""
    for _ in range(2):
        with pytest.raises(ConnectionError):
            env.open(protected(env, breaking(ConnectionError("down")))).rest()

    assert OPEN is api.state


def test_a_whole_stream_ends_a_streak(env, pool, api):
    """Section 4: a success resets it, at its end and not before."""
    with pytest.raises(ConnectionError):
        env.open(protected(env, breaking(ConnectionError("down")))).rest()
    stream = env.open(protected(env, numbers))
    stream.next()
    before = api.status().failure_count
    stream.rest()

    assert (1, 0) == (before, api.status().failure_count)


def test_one_error_object_of_two_streams_counts_once(env, pool, api):
    """Section 4: one exception object counts at most once per breaker."""
    error = ConnectionError("cached")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            env.open(protected(env, breaking(error))).rest()

    assert (0, 1) == counted(api)


def test_an_error_that_a_stream_survives_is_none(env, pool, api):
    """What the generator catches by itself the policies never see."""

    def body():
        try:
            raise ConnectionError
        except ConnectionError:
            yield "all the same"

    assert ["all the same"] == env.open(protected(env, body)).rest()
    assert (1, 0) == counted(api)


class Vanished(BaseException):
    """No Exception, and none that an event loop minds."""


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Vanished])
def test_an_interruption_mid_stream_is_neutral(env, pool, api, kind):
    """Section 8: the caller gave up; the slot is back, nothing is counted, and the very object leaves."""
    error = kind()
    stream = env.open(protected(env, breaking(error)))
    stream.next()
    with pytest.raises(kind) as caught:
        stream.next()

    # A task that is cancelled raises an object of its own.
    assert kind is not Vanished or error is caught.value
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_keyboard_interrupt_mid_stream_is_neutral(registry, ticking, pool, api, kind):
    """Section 2: whatever the user presses."""
    stream = bulkhead("pool")(breaker("api")(breaking(kind())))()
    next(stream)
    with pytest.raises(kind):
        next(stream)

    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


# ---------------------------------------------------------------------------------------------- send and throw
def echo():
    """Gives back what is sent; what is thrown in, it gives back as an item, but a LookupError it lets through."""
    item = "first"
    while item != "stop":
        try:
            item = yield item
        except LookupError:
            raise
        except Exception as error:
            item = error


def test_send_reaches_the_stream(env, pool, api):
    """I10: values go in as they come out."""
    stream = env.open(protected(env, echo))

    assert ["first", "a", "b", None, END] == [stream.next(), *map(stream.send, ("a", "b", None, "stop"))]
    assert (1, 0) == counted(api)


def test_sending_to_a_stream_that_has_not_begun(env, pool, api):
    """As with the bare one: only None can be sent, and nothing is taken."""
    stream = env.open(protected(env, echo))
    with pytest.raises(TypeError, match="just-started"):
        stream.send("early")

    assert 0 == pool.in_flight
    assert "first" == stream.send(None)
    stream.close()


def test_throw_reaches_the_stream(env, pool, api):
    """I10: the very same object arrives, and the stream goes on if it likes."""
    error = ValueError("thrown in")
    stream = env.open(protected(env, echo))
    stream.next()

    assert error is stream.throw(error)
    assert 1 == pool.in_flight
    assert END == stream.send("stop")
    assert (1, 0) == counted(api)


def test_what_is_thrown_in_and_leaves_is_judged(env, pool, api):
    """Section 8: like any error that leaves the stream."""
    error = ConnectionError("of the consumer's")
    stream = env.open(protected(env, numbers))
    stream.next()
    with pytest.raises(ConnectionError) as caught:
        stream.throw(error)

    assert error is caught.value
    assert (0, 1) == counted(api)
    assert 0 == pool.in_flight


def test_throwing_into_a_stream_that_has_not_begun(env, pool, api):
    """As with the bare one: it leaves at once, the body never runs, and nothing has happened to the remote."""
    stream = env.open(protected(env, numbers))
    error = ConnectionError("early")
    with pytest.raises(ConnectionError) as caught:
        stream.throw(error)

    assert error is caught.value
    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight
    assert END == stream.next()


def test_generator_exit_thrown_in_is_neutral(env, pool, api):
    """I4: as a close."""
    stream = env.open(protected(env, numbers))
    stream.next()
    with pytest.raises(GeneratorExit):
        stream.throw(GeneratorExit())

    assert (0, 0) == counted(api)
    assert 0 == pool.in_flight


def test_the_return_value_is_handed_on(registry, ticking, pool, api):
    """I10: `yield from` gets what the generator returns."""

    @bulkhead("pool")
    @breaker("api")
    def inner():
        yield 1
        return "the value"

    def outer():
        returned.append((yield from inner()))

    returned = []
    assert [1] == list(outer())
    assert ["the value"] == returned
    assert (1, 0) == counted(api)


def test_yield_from_passes_everything_on(registry, ticking, pool, api):
    """I10: sends and throws too."""
    inner = bulkhead("pool")(breaker("api")(echo))

    def outer():
        yield from inner()

    stream = outer()
    error = ValueError("thrown in")

    assert ["first", "a"] == [next(stream), stream.send("a")]
    assert error is stream.throw(error)
    stream.close()
    assert 0 == pool.in_flight


def test_a_stop_iteration_raised_inside(env, pool, api):
    """As Python has it: a generator can't raise one, it becomes a RuntimeError."""

    def body():
        yield 1
        raise StopIteration

    async def astream():
        yield 1
        raise StopAsyncIteration

    stream = env.open(bulkhead("pool")(breaker("api")(astream if env.is_async else body)))
    stream.next()
    with pytest.raises(RuntimeError, match="raised Stop"):
        stream.next()

    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


# ---------------------------------------------------------------------------------------------- a guard does by nature
def test_a_guard_around_the_loop(env, api):
    """A block around a whole loop is one call."""

    async def aloop():
        async with breaker("api").guard():
            return [item async for item in env.stream(numbers)()]

    if env.is_async:
        env.run(aloop())
    else:
        with breaker("api").guard():
            list(numbers())

    assert (1, 0) == counted(api)


def test_a_guard_inside_a_generator(env, api):
    """A block inside a generator is judged when the generator leaves it."""

    def body(error=None):
        with breaker("api").guard():
            yield 1
            if error is not None:
                raise error

    fn = env.stream(body)
    env.open(fn).rest()
    with pytest.raises(ConnectionError):
        env.open(fn, ConnectionError("down")).rest()
    early = env.open(fn)
    early.next()
    early.close()

    assert (1, 1) == counted(api)


# ---------------------------------------------------------------------------------------------- together
def test_many_streams_side_by_side(env, registry, api):
    """I8: each has its own slot and verdict, in whatever order they end."""
    room = registry.bulkhead("room", BulkheadConfig(3))
    fn = bulkhead("room")(breaker("api")(env.stream(numbers)))
    streams = [env.open(fn, count) for count in (1, 2, 3)]
    held = []
    for _ in range(4):
        for stream in streams:
            stream.next()
        held.append(room.in_flight)

    assert [3, 2, 1, 0] == held
    assert (3, 0) == counted(api)


def test_a_stream_that_consumes_a_stream(env, api):
    """Section 4: two sites of one breaker: each counts its own end, one exception once."""
    inner = breaker("api")(env.stream(breaking(ConnectionError("down"))))

    def body():
        yield from inner()

    async def astream():
        async for item in inner():
            yield item

    with pytest.raises(ConnectionError):
        env.open(breaker("api")(astream if env.is_async else body)).rest()

    assert (0, 1) == counted(api)


@pytest.mark.parametrize(
    "policy", [lambda: bulkhead("pool"), lambda: breaker("api"), lambda: retry(2, idempotent=True)]
)
def test_each_policy_alone(env, pool, api, policy):
    """Any policy can stand alone around a stream."""
    fn = policy()(env.stream(numbers))

    assert [0, 1, 2] == env.open(fn).rest()
    stream = env.open(fn)
    stream.next()
    stream.close()
    assert 0 == pool.in_flight


def test_an_async_stream_in_many_tasks(registry, pool, api):
    """A stream begun in one task, continued in another and closed in a third."""

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        for number in range(5):
            yield number

    async def main():
        stream = astream()
        items = [await asyncio.create_task(anext_of(stream)) for _ in range(2)]
        await asyncio.create_task(aclose_of(stream))
        return items

    async def anext_of(stream):
        return await stream.__anext__()

    async def aclose_of(stream):
        await stream.aclose()

    assert [0, 1] == asyncio.run(main())
    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_two_tasks_ask_one_stream_at_once(registry, pool, api):
    """As with the bare one: a RuntimeError for the second, and the first goes on."""

    @bulkhead("pool")
    @breaker("api")
    async def astream():
        await asyncio.sleep(0)
        yield 1

    async def main():
        stream = astream()
        first = asyncio.ensure_future(step(stream))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            await stream.__anext__()
        assert 1 == await first
        await stream.aclose()

    async def step(stream):
        return await stream.__anext__()

    asyncio.run(main())
    assert 0 == pool.in_flight
    assert (0, 0) == counted(api)


def test_a_generator_that_asks_itself(registry, ticking, pool, api):
    """As with the bare one: a ValueError in there, and it goes on."""
    own = []

    @bulkhead("pool")
    @breaker("api")
    def stream():
        with contextlib.suppress(ValueError):
            next(own[0])
        yield 1

    own.append(stream())

    assert [1] == list(own[0])
    assert 0 == pool.in_flight


def test_a_partial_of_a_policy(registry, pool):
    """A policy value may be kept and used again for many streams."""
    decorate = functools.partial(compose, bulkhead("pool"))()

    assert [0, 1, 2] == list(decorate(numbers)())
    assert 0 == pool.in_flight
