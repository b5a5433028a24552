"""Random consumers of random generators: under policies everything is as with the bare one, and the books are whole.

The generator and its consumer write one log: items, exceptions with what they hang on, what was sent, thrown and
caught, and a context variable, which each of them sets and reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streaming import asynchronous

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    Consecutive,
    Registry,
    breaker,
    bulkhead,
    compose,
    retry,
    timeout,
    use_registry,
)
from resilience.testing import ManualClock, use_clock

VARIABLE = contextvars.ContextVar("variable", default=0)
KINDS = {"transient": ConnectionError, "internal": KeyError, "interrupt": asyncio.CancelledError}

kinds = st.sampled_from(sorted(KINDS))
values = st.integers(1, 9)
catches = st.sampled_from(["nothing", "nothing", "errors", "everything"])

# What a generator does, step by step; an error before its first item would be a matter of the retry.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("yield"), values, catches),
        st.tuples(st.just("set"), values),
        st.tuples(st.just("read")),
    ),
    max_size=8,
)
ends = st.one_of(st.tuples(st.just("return"), values), st.tuples(st.just("raise"), kinds))

# What its consumer does.
where = st.sampled_from(["here", "here", "copied", "fresh", "thread"])
acts = st.lists(
    st.one_of(
        st.tuples(st.just("next"), where),
        st.tuples(st.just("next"), where),
        st.tuples(st.just("send"), where, values),
        st.tuples(st.just("throw"), where, kinds),
        st.tuples(st.just("close"), where),
        st.tuples(st.just("set"), values),
        st.tuples(st.just("read")),
    ),
    min_size=1,
    max_size=10,
)


def body_of(script, end, log):
    def body():
        given_out = False
        for what, *details in script:
            if what == "set":
                VARIABLE.set(details[0])
            elif what == "read":
                log.append(("stream reads", VARIABLE.get()))
            else:
                given_out = True
                try:
                    log.append(("received", (yield details[0])))
                except Exception as error:
                    log.append(("caught", told(error)))
                    if details[1] == "nothing":
                        raise
                except BaseException as error:
                    log.append(("caught", told(error)))
                    # One that swallows its own end would be Python's own affair.
                    if details[1] != "everything" or isinstance(error, GeneratorExit):
                        raise
        if end[0] == "return" or not given_out:
            return end[1]
        raise KINDS[end[1]]("of the stream")

    return body


def told(error):
    """An exception, and what it hangs on."""
    chain = []
    while error is not None and len(chain) < 5:
        chain.append((type(error).__name__, error.args, error.__suppress_context__))
        error = error.__cause__ or error.__context__
    return chain


class Thread:
    """Runs one step in a thread of its own, in a context of its own."""

    def run(self, step):
        caught = []

        def work():
            try:
                caught.append((step(), None))
            except BaseException as error:
                caught.append((None, error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
        value, error = caught.pop()
        if error is not None:
            try:
                raise error
            finally:
                del error
        return value


PLACES = {"copied": contextvars.copy_context, "fresh": contextvars.Context, "thread": Thread}


def consume(stream, acts, log, held):
    for what, *details in acts:
        if what == "set":
            VARIABLE.set(details[0])
            continue
        if what == "read":
            log.append(("consumer reads", VARIABLE.get()))
            continue
        place, *given = details
        run = PLACES[place]().run if place != "here" else lambda step: step()
        thrown = KINDS[given[0]]("thrown in") if what == "throw" else None
        step = {
            "next": lambda: next(stream),
            "send": lambda: stream.send(*given),
            "throw": lambda: stream.throw(thrown),
            "close": stream.close,
        }[what]
        log.append(("does", what))
        note(log, step, run, thrown)
        log.append(("held", held()))


def note(log, step, run, thrown):
    try:
        log.append(("item", run(step)))
    except StopIteration as stop:
        log.append(("end", stop.value))
    except BaseException as error:
        log.append(("raised", told(error), error is thrown))


async def aconsume(stream, acts, log, held):
    loop = asyncio.get_running_loop()
    for what, *details in acts:
        if what == "set":
            VARIABLE.set(details[0])
            continue
        if what == "read":
            log.append(("consumer reads", VARIABLE.get()))
            continue
        place, *given = details
        thrown = KINDS[given[0]]("thrown in") if what == "throw" else None
        step = {
            "next": lambda: stream.__anext__(),
            "send": lambda: stream.asend(*given),
            "throw": lambda: stream.athrow(thrown),
            "close": stream.aclose,
        }[what]

        async def make(step=step, thrown=thrown, what=what):
            log.append(("does", what))
            try:
                log.append(("item", await step()))
            except StopAsyncIteration:
                log.append(("end", None))
            except BaseException as error:
                log.append(("raised", told(error), error is thrown))

        if place == "here":
            await make()
        else:
            context = contextvars.Context() if place == "fresh" else contextvars.copy_context()
            await loop.create_task(make(), context=context)
        log.append(("held", held()))


def policies_of(letters, is_async):
    made = {
        "B": lambda: bulkhead("pool"),
        "C": lambda: breaker("api"),
        "A": lambda: breaker("api", account="call"),
        "R": lambda: retry(3, wait=0, idempotent=True),
        "T": lambda: timeout(1000, idle=100) if is_async else timeout(1000, pass_as="seconds"),
    }
    return compose(*(made[letter]() for letter in letters))


subsets = st.sampled_from(["B", "C", "R", "T", "BC", "BRC", "BA", "BRA", "BTRC", "TC", "BRT"])
states = st.sampled_from(["healthy", "probe", "plan"])


class Books:
    """A registry with a pool and a breaker of its own, in one of the states in which a stream may begin."""

    def __init__(self, state):
        self.registry = Registry()
        self.pool = self.registry.bulkhead("pool", BulkheadConfig(2))
        self.api = self.registry.breaker("api", BreakerConfig(Consecutive(2), half_open_successes=2))
        self.state = state

    @contextlib.contextmanager
    def open(self):
        clock = ManualClock(100.0)
        with use_registry(self.registry), use_clock(clock, self.registry) if self.state != "healthy" else _nothing():
            if self.state == "probe":
                self.api.force_open("drill", seconds=1)
                clock.advance(1)
            yield

    def check(self):
        """Nothing is left, and every probe has an end."""
        assert (0, 0) == (self.pool.in_flight, self.pool.waiting)
        status = self.api.status()
        assert 0 == status.probes_started - status.probes_succeeded - status.probes_failed - status.probes_released


def _nothing():
    return contextlib.nullcontext()


def verdict_of(log):
    """(successes, failures) by what the bare generator showed: how it came to its end, once it had begun."""
    begun, doing = False, None
    for what, *details in log:
        if what == "does":
            doing = details[0]
        elif what == "item":
            if doing == "close":
                return 0, 0
            begun = True
        elif what == "end":
            return 1, 0
        elif what == "raised":
            if not begun and doing == "send":
                # Refused: nothing can be sent to what has not begun.
                continue
            if not begun and doing == "throw":
                return 0, 0
            return 0, int(details[0][0][0] == "ConnectionError")
    return 0, 0


plenty = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=120)


def without_held(log):
    return [entry for entry in log if entry[0] != "held"]


@pytest.mark.slow
@plenty
@given(script=steps, end=ends, acts=acts, letters=subsets, state=states)
def test_any_consumer_of_any_generator(script, end, acts, letters, state):
    """I10: threads: items, exceptions, sends, throws, return values and context variables are those of the bare one."""
    logs = []
    for guarded in (False, True):
        books, log = Books(state), []
        body = body_of(script, end, log)
        with books.open():
            if "T" in letters:

                def fn(seconds=None, body=body):
                    return (yield from body())

            else:
                fn = body
            stream = (policies_of(letters, False)(fn) if guarded else fn)()
            held = (lambda books=books: books.pool.in_flight) if "B" in letters else (lambda: 0)
            contextvars.copy_context().run(consume, stream, acts, log, held)
            stream = None
        books.check()
        logs.append((log, books))
    (bare, _), (log, books) = logs

    assert without_held(bare) == without_held(log)
    check_verdict(bare, books, letters)


@pytest.mark.slow
@plenty
@given(script=steps, end=ends, acts=acts, letters=subsets, state=states)
def test_any_consumer_of_any_async_generator(script, end, acts, letters, state):
    """I10: asyncio: the same, each step in a task of its own or not."""
    logs = []
    for guarded in (False, True):
        books, log = Books(state), []
        body = asynchronous(body_of(script, end, log))
        with books.open():

            async def main(books=books, log=log, body=body, guarded=guarded):
                stream = (policies_of(letters, True)(body) if guarded else body)()
                held = (lambda: books.pool.in_flight) if "B" in letters else (lambda: 0)
                await aconsume(stream, acts, log, held)
                stream = None
                for _ in range(3):
                    await asyncio.sleep(0)
                log.append(("cancelling", asyncio.current_task().cancelling()))

            asyncio.run(main())
        books.check()
        logs.append((log, books))
    (bare, _), (log, books) = logs

    assert without_held(bare) == without_held(log)
    check_verdict(bare, books, letters)


def check_verdict(bare, books, letters):
    """The breaker has counted what became of the stream, once."""
    if set(letters) & set("CA"):
        status = books.api.status()
        assert verdict_of(bare) == (
            status.successes_total,
            status.failures_total,
        )
