"""Contract section 8, I10: a stream's marks hold inside its steps only; context variables are as with the bare one."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from streaming import END

from resilience import (
    BulkheadConfig,
    CircuitOpenError,
    CircuitState,
    breaker,
    bulkhead,
    compose,
    detached,
    remaining,
    retry,
    timeout,
)
from resilience._context import DEADLINE, PROBING, RETRYING, is_repeating

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
VARIABLE = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def pool(registry):
    return registry.bulkhead("pool", BulkheadConfig(1, 0))


@pytest.fixture
def api(registry, trips_at):
    return registry.breaker("api", trips_at(2))


@pytest.fixture
def other(registry, trips_at):
    return registry.breaker("other", trips_at(2))


def marks():
    return DEADLINE.get(), PROBING.get(), RETRYING.get()


NO_MARKS = (None, (), None)


def half_open(env, api):
    api.force_open("drill", seconds=5)
    env.advance(5)


class Within:
    """Steps made inside somebody's own call: `Within(env, policies).next(stream)`."""

    def __init__(self, env, *policies):
        self.env = env

        def step(consumer, seconds=None):
            try:
                return next(consumer.stream)
            except StopIteration:
                return END

        async def step_async(consumer, seconds=None):
            try:
                return await consumer.stream.__anext__()
            except StopAsyncIteration:
                return END

        self.next = self._in_loop(compose(*policies)(step_async)) if env.is_async else compose(*policies)(step)

    def _in_loop(self, fn):
        async def main(consumer):
            return await fn(consumer)

        return lambda consumer: self.env.loop_runner.run(main(consumer))


def within_seconds(env, seconds):
    """A consumer with so many seconds of its own."""
    return Within(env, timeout(seconds, **({} if env.is_async else {"pass_as": "seconds"})))


# ---------------------------------------------------------------------------------------------- between two items
def test_no_mark_is_left_between_two_items(env, pool, api):
    """Section 8: of a probe, a retry and a deadline, none is the consumer's."""
    half_open(env, api)
    seen = []

    def body(seconds=None):
        seen.append(marks()[1] != ())
        yield 1
        seen.append(marks()[1] != ())
        yield 2

    fn = compose(
        bulkhead("pool"),
        breaker("api"),
        retry(2, wait=0, idempotent=True),
        timeout(50, **({} if env.is_async else {"pass_as": "seconds"})),
    )(env.stream(body))

    async def consume():
        return [marks(), *[marks() async for _ in fn()], marks()]

    if env.is_async:
        found = env.run(consume())
    else:
        found = [marks()]
        for _ in fn():
            found.append(marks())
        found.append(marks())

    assert [NO_MARKS] * 4 == found
    assert [True, True] == seen
    assert CLOSED is api.state


def test_no_mark_is_left_by_a_close(env, pool, api):
    """Section 8: in whatever context it is closed."""
    half_open(env, api)
    fn = compose(bulkhead("pool"), breaker("api"))(env.stream(numbers))
    stream = env.open(fn)
    stream.next()
    contextvars.copy_context().run(stream.close)

    assert NO_MARKS == marks()
    assert (1, 0) == (api.status().probes_released, pool.in_flight)


def numbers(stop=3):
    yield from range(stop)


# ---------------------------------------------------------------------------------------------- sharing the probe
def test_calls_inside_a_probes_steps_share_it(env, pool, api):
    """Section 4: in every step, also after the consumer has had the stream."""
    half_open(env, api)
    calls = []

    @breaker("api")
    def nested():
        calls.append(1)

    def body():
        for number in range(3):
            nested()
            yield number

    assert [0, 1, 2] == env.open(breaker("api")(env.stream(body))).rest()
    assert 3 == len(calls)
    assert (CLOSED, 1, 1) == (api.state, api.status().probes_started, api.status().successes_total)


def test_the_consumers_own_calls_do_not_share_it(env, pool, api):
    """Section 8: between two steps they are refused like anybody's."""
    half_open(env, api)

    @breaker("api")
    def own():
        """Never reached."""

    stream = env.open(breaker("api")(env.stream(numbers)))
    for number in range(2):
        assert number == stream.next()
        with pytest.raises(CircuitOpenError):
            own()

    assert [2] == stream.rest()
    assert CLOSED is api.state
    own()


def test_a_step_in_another_context_shares_it_all_the_same(env, pool, api):
    """Section 8: whatever task, thread or context makes the step."""
    half_open(env, api)

    @breaker("api")
    def nested():
        return "shared"

    def body():
        while True:
            yield nested()

    stream = env.open(breaker("api")(env.stream(body)))
    found = [stream.next(), contextvars.Context().run(stream.next)]
    if not env.is_async:
        thread = threading.Thread(target=lambda: found.append(stream.next()))
        thread.start()
        thread.join(10)
        assert 3 == len(found)
    stream.close()

    assert {"shared"} == set(found)
    assert (1, 1) == (api.status().probes_started, api.status().probes_released)


def test_a_stream_begun_outside_goes_on_inside_of_a_probe(env, pool, api, other):
    """Section 4: a step made inside somebody's probe is inside of that probe, whenever the stream was begun."""
    half_open(env, other)
    half_open(env, api)

    @breaker("other")
    def nested():
        return "shared"

    def body():
        yield "begun"
        yield nested()

    # The stream's own probe makes it a stream of the plan.
    stream = env.open(breaker("api")(env.stream(body)))
    assert "begun" == stream.next()
    assert "shared" == Within(env, breaker("other")).next(stream)
    stream.close()

    assert (CLOSED, 1) == (other.state, other.status().probes_started)


def test_a_stream_begun_inside_of_a_probe_goes_on_outside(env, pool, api, other):
    """Section 4: and a step made outside of it is not."""
    half_open(env, other)
    half_open(env, api)
    seen = []

    def body():
        while True:
            seen.append([owner.name for owner, _ in PROBING.get()])
            yield

    stream = env.open(breaker("api")(env.stream(body)))
    Within(env, breaker("other")).next(stream)
    stream.next()
    stream.close()

    assert [["other", "api"], ["api"]] == [sorted(names, reverse=True) for names in seen]


# ---------------------------------------------------------------------------------------------- deadlines
def test_remaining_is_the_consumers(env, pool, api):
    """Section 5: a stream without a limit of its own is under that of whoever makes the step."""
    seen = []

    def body():
        while True:
            seen.append(remaining())
            yield

    stream = env.open(compose(bulkhead("pool"), breaker("api"))(env.stream(body)))
    within_seconds(env, 5).next(stream)
    stream.next()
    within_seconds(env, 7).next(stream)
    stream.close()

    assert [5.0, None, 7.0] == seen


def test_remaining_of_a_probing_stream_is_the_consumers(env, pool, api):
    """Section 5: the same where the stream carries a mark of its own."""
    half_open(env, api)
    test_remaining_is_the_consumers(env, pool, api)


def test_remaining_is_clipped_step_by_step(env, pool, api):
    """Section 5: the stream's own limit lies within that of whoever makes the step."""
    seen = []

    def body(seconds=None):
        while True:
            seen.append(remaining())
            yield

    limit = timeout(10, **({} if env.is_async else {"pass_as": "seconds"}))
    stream = env.open(compose(limit, bulkhead("pool"))(env.stream(body)))
    within_seconds(env, 5).next(stream)
    stream.next()
    within_seconds(env, 50).next(stream)
    within_seconds(env, 7).next(stream)
    stream.close()

    assert [5.0, 10.0, 10.0, 7.0] == seen
    assert NO_MARKS == marks()


def test_a_detached_step(env, pool, api):
    """`with detached():` around a step sheds the consumer's deadline, not the stream's own."""
    seen = []

    def body(seconds=None):
        while True:
            seen.append(remaining())
            yield

    limit = timeout(10, **({} if env.is_async else {"pass_as": "seconds"}))
    stream = env.open(compose(limit, bulkhead("pool"))(env.stream(body)))
    stream.next()
    with detached():
        stream.next()
    stream.close()

    assert [10.0, 10.0] == seen


# ---------------------------------------------------------------------------------------------- nested retries
def test_a_retried_streams_mark_is_in_force_in_all_its_steps(env, pool, api):
    """Section 6: during the second and later attempts a retry inside makes one attempt, in every step."""
    calls = []
    script = [ConnectionError("first"), None]

    @retry(3, wait=0, idempotent=True)
    def nested():
        calls.append(1)
        raise ConnectionError("down")

    def body():
        if (error := script.pop(0)) is not None:
            raise error
        yield "begun"
        try:
            nested()
        except ConnectionError:
            yield len(calls)

    stream = env.open(retry(2, wait=0, idempotent=True)(env.stream(body)))

    assert ["begun", 1, END] == [stream.next(), stream.next(), stream.next()]
    assert NO_MARKS == marks()


def test_the_consumers_own_retry_is_its_own(env, pool, api):
    """Section 6: between two steps of a retried stream the consumer's retry has all its attempts."""
    calls = []
    script = [ConnectionError("first"), None]

    @retry(3, wait=0, idempotent=True)
    def own():
        calls.append(1)
        raise ConnectionError("down")

    def body():
        if (error := script.pop(0)) is not None:
            raise error
        yield 1

    stream = env.open(retry(2, wait=0, idempotent=True)(env.stream(body)))
    stream.next()
    with pytest.raises(ConnectionError):
        own()
    stream.close()

    assert 3 == len(calls)


def test_a_step_inside_of_the_consumers_repeat(env, pool, api):
    """Section 6: a step made in a repeat of the consumer's is within that repeat; one made later is not."""
    half_open(env, api)
    seen = []

    def body():
        while True:
            seen.append(is_repeating())
            yield

    stream = env.open(breaker("api")(env.stream(body)))
    stream.next()
    attempts = []

    def step():
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("once")
        stream.next()

    async def step_async():
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("once")
        await stream.stream.__anext__()

    env.call(retry(2, wait=0, idempotent=True)(step_async if env.is_async else step))
    stream.next()
    stream.close()

    assert [False, True, False] == seen


# ---------------------------------------------------------------------------------------------- context variables
def tuned(body):
    """A stream under every kind of mark: a probe, a retry and, where it can be, a deadline."""
    return compose(bulkhead("pool"), breaker("api"), retry(2, wait=0, idempotent=True))(body)


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
def test_a_value_set_by_the_consumer_is_seen_by_the_stream(env, pool, api, probing):
    """I10: as Python does it: a generator runs in the context of whoever asks."""
    if probing:
        half_open(env, api)
    seen = []

    def body():
        while True:
            seen.append(VARIABLE.get())
            yield

    stream = env.open(tuned(env.stream(body)))
    for value in ("first", "second"):
        token = VARIABLE.set(value)
        contextvars.copy_context().run(stepped, env, stream)
        VARIABLE.reset(token)
    stream.close()

    assert ["first", "second"] == seen


def stepped(env, stream):
    """A step that runs in the context of here, also by asyncio."""
    if not env.is_async:
        return stream.next()

    async def main():
        return await stream.stream.__anext__()

    loop = env.loop_runner.get_loop()
    return loop.run_until_complete(loop.create_task(main(), context=contextvars.copy_context()))


@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
def test_a_value_set_by_the_stream_is_seen_by_the_consumer(env, pool, api, probing):
    """I10: and the other way round."""
    if probing:
        half_open(env, api)

    def body():
        VARIABLE.set("by the stream")
        yield 1
        VARIABLE.set("again")
        yield 2

    fn = tuned(env.stream(body))

    async def consume():
        return [*[VARIABLE.get() async for _ in fn()], VARIABLE.get()]

    def consume_plainly():
        return [*[VARIABLE.get() for _ in fn()], VARIABLE.get()]

    found = env.run(consume()) if env.is_async else contextvars.copy_context().run(consume_plainly)

    assert ["by the stream", "again", "again"] == found


# ---------------------------------------------------------------------------------------------- cancels
@pytest.mark.parametrize("probing", [False, True], ids=["healthy", "probe"])
@pytest.mark.parametrize("pending", [0, 1])
def test_pending_cancels_are_as_they_were(registry, ticking, pool, api, pending, probing):
    """I10: `task.cancelling()` before and after each step, also in the clean-up of a cancelled task."""
    if probing:
        api.force_open("drill", seconds=5)
        ticking.advance(5)

    @compose(bulkhead("pool"), breaker("api"), timeout(50, idle=10, first_item=10))
    async def stream():
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async def main():
        task = asyncio.current_task()
        for _ in range(pending):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        return [*[task.cancelling() async for _ in stream()], task.cancelling()]

    loop = asyncio.new_event_loop()
    try:
        assert [pending] * 4 == loop.run_until_complete(main())
    finally:
        loop.close()
    assert (1, 0) == (api.status().successes_total, pool.in_flight)
