"""`for attempt in retry(...)`: decided as around a function, whatever the form of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import pickle
import threading
import weakref
from types import SimpleNamespace

import pytest
import tenacity

from resilience import (
    BreakerConfig,
    FaultKind,
    Retry,
    RetryBudget,
    breaker,
    bulkhead,
    detached,
    retry,
    timeout,
)
from resilience._context import RETRYING, is_repeating
from resilience._core.events import RetryExhausted, RetryScheduled


class TooMany(Exception):
    def __init__(self, seconds):
        self.response = SimpleNamespace(status_code=429, headers={"Retry-After": str(seconds)})


# ---------------------------------------------------------------------------------------------- how it goes
def test_a_success_ends_the_loop(repeat, failing, clock):
    """One attempt, no wait."""
    body = failing("fine")

    assert "fine" == repeat(retry(3), body)
    assert ([1], []) == (body.numbers, clock.slept)


def test_a_failure_is_repeated_after_a_wait(repeat, failing, clock, down):
    """The waits are the policy's own."""
    body = failing(down(), down(), "fine")

    assert "fine" == repeat(retry(3, initial_backoff=1, jitter=0), body)
    assert ([1, 2, 3], [1.0, 2.0]) == (body.numbers, clock.slept)


def test_the_last_exception_leaves(repeat, failing, down):
    """The very object, with a note, and with no cause or context that it did not have."""
    last = down()
    with pytest.raises(ConnectionError) as caught:
        repeat(retry(2, wait=0), failing(down(), last))

    assert last is caught.value
    assert (["retry gave up after 2 attempts"], None, None) == (last.__notes__, last.__cause__, last.__context__)


def test_a_fault_that_does_not_pass(repeat, failing):
    """Leaves at once."""
    body = failing(TypeError("bug"))
    with pytest.raises(TypeError):
        repeat(retry(3), body)

    assert [1] == body.numbers


def test_the_kinds_that_are_named(repeat, failing):
    """`retry_on` holds."""
    wrong = ConnectionError("garbled")
    wrong.fault_kind = FaultKind.DOWNSTREAM

    assert "fine" == repeat(retry(2, wait=0, retry_on=[FaultKind.DOWNSTREAM]), failing(wrong, "fine"))


@pytest.mark.parametrize(("error", "attempts"), [(TimeoutError("sent?"), 1), (ConnectionRefusedError("not sent"), 2)])
def test_only_what_was_not_sent(repeat, failing, error, attempts):
    """`safe_only` holds: whoever writes the loop says that the block may be repeated, and here that it may not."""
    body = failing(error, "fine")
    try:
        repeat(retry(2, wait=0, safe_only=True), body)
    except TimeoutError:
        pass

    assert attempts == len(body.numbers)


def test_a_server_sets_the_least_wait(repeat, failing, clock):
    """Retry-After, up to max_retry_after."""
    repeat(retry(2, wait=1), failing(TooMany(7), "fine"))
    with pytest.raises(TooMany):
        repeat(retry(2, wait=1), failing(TooMany(61)))

    # Not all at the very moment that the server names.
    assert 1 == len(clock.slept)
    assert 7.0 <= clock.slept[0] < 9.0


def test_a_refusal_of_a_breaker_inside_is_repeated(repeat, failing, clock):
    """The loop is outside of what refuses: it waits as long as the circuit is open, and the block goes on."""
    ref = breaker("provider", BreakerConfig(cooldown=5))
    ref.force_open("drill", seconds=5)

    def body(attempt):
        with ref.guard():
            return "through"

    assert "through" == repeat(retry(2, wait=1), body)
    assert 1 == len(clock.slept)
    assert 5.0 <= clock.slept[0] < 7.0


def test_a_refusal_of_a_bulkhead_inside_is_repeated(repeat, clock):
    """It passes as well, with the policy's own wait."""
    pool = bulkhead("pool", max_in_flight=1)
    held = [pool.guard()]
    held[0].__enter__()

    def body(attempt):
        if attempt.number == 2:
            held.pop().__exit__(None, None, None)
        with pool.guard():
            return "inside"

    assert "inside" == repeat(retry(2, wait=1), body)
    assert [1.0] == clock.slept


def test_a_wait_that_does_not_fit_the_deadline(plainly, failing, clock, down):
    """Fails now instead of waiting."""
    error = down()
    with pytest.raises(ConnectionError), timeout(3).guard():
        plainly(retry(2, wait=5), failing(error))

    assert (["retry stopped: a wait of 5 s does not fit the deadline"], []) == (error.__notes__, clock.slept)


def test_a_deadline_that_is_past(plainly, failing, clock, down):
    """Nothing is repeated then, without a wait either."""
    body = failing(down())
    with pytest.raises(ConnectionError), timeout(3).guard():
        clock.advance(3)
        plainly(retry(2, wait=0), body)

    assert [1] == body.numbers


def test_events_name_where_the_loop_stands(told, clock, down):
    """As a function's events name the function."""
    with pytest.raises(ConnectionError):
        for attempt in retry(2, wait=1):
            with attempt:
                raise down()

    name = f"{__name__}:test_events_name_where_the_loop_stands"
    assert [(RetryScheduled, name), (RetryExhausted, name)] == [(type(event), event.name) for event in told]
    assert (1, 1.0, FaultKind.TRANSIENT) == (told[0].attempt, told[0].wait, told[0].kind)
    assert (2, "attempts") == (told[1].attempts, told[1].reason)


def test_what_was_being_handled_is_no_explanation(plainly):
    """A loop inside an `except` block: its own exceptions are not explained by the one handled there."""

    class Unknown(Exception):
        pass

    numbers = []

    def body(attempt):
        numbers.append(attempt.number)
        raise Unknown

    try:
        raise ConnectionError("before")
    except ConnectionError:
        with pytest.raises(Unknown):
            plainly(retry(3, wait=0), body)

    assert [1] == numbers


def test_what_is_handled_inside_is_an_explanation(repeat):
    """What the block itself was handling says why."""

    class Unknown(Exception):
        pass

    numbers = []

    def body(attempt):
        numbers.append(attempt.number)
        try:
            raise ConnectionError("inside")
        except ConnectionError as error:
            raise Unknown from error

    with pytest.raises(Unknown):
        repeat(retry(3, wait=0), body)

    assert [1, 2, 3] == numbers


# ---------------------------------------------------------------------------------------------- retry budgets
def exhausted(repeat, policy, down):
    """How many attempts a loop makes that never succeeds."""
    numbers = []

    def body(attempt):
        numbers.append(attempt.number)
        raise down()

    with pytest.raises(ConnectionError):
        repeat(policy, body)
    return len(numbers)


def test_loops_share_a_retry_budget(repeat, registry, down):
    """By its name, with functions too: each loop is a call, each further attempt is a retry."""
    budget = RetryBudget("provider", ratio=0.5, min_per_second=0.2, window=10)
    function = retry(9, wait=0, idempotent=True, retry_budget="provider")(lambda: "fine")
    policy = retry(9, wait=0, retry_budget=budget)

    assert 3 == exhausted(repeat, policy, down)
    for _ in range(9):
        function()
    status = registry.retry_budget("provider").status()
    assert (10, 2) == (status.calls, status.retries)
    assert status.left + 1 == exhausted(repeat, policy, down)


def test_a_retry_budget_without_a_name_is_the_values(repeat, registry, down):
    """All loops of this very value share it; another one has its own."""
    policies = [retry(9, wait=0, retry_budget=RetryBudget(ratio=0.1, min_per_second=0.2, window=10)) for _ in range(2)]

    assert [3, 1, 3] == [exhausted(repeat, policy, down) for policy in (policies[0], policies[0], policies[1])]


def test_a_healthy_loop_is_counted(repeat, registry, failing):
    """Calls are what the budget is a share of."""
    for _ in range(3):
        repeat(retry(2, retry_budget=RetryBudget("provider")), failing("fine"))

    assert 3 == registry.retry_budget("provider").status().calls


# ---------------------------------------------------------------------------------------------- tenacity's strategies
def test_strategies_see_the_attempts(repeat, clock, down):
    """They read what they would read of tenacity itself."""
    seen = []

    def wait(state):
        seen.append((state.attempt_number, state.seconds_since_start, state.idle_for, type(state.outcome.exception())))
        return 2.0

    def body(attempt):
        clock.advance(1)
        raise down()

    with pytest.raises(ConnectionError):
        repeat(retry(9, wait=wait, stop=tenacity.stop_after_delay(7)), body)

    assert [(1, 1.0, 0.0, ConnectionError), (2, 4.0, 2.0, ConnectionError), (3, 7.0, 4.0, ConnectionError)] == seen
    assert [2.0, 2.0] == clock.slept


def test_a_strategy_that_raises(repeat, down):
    """Its exception leaves, as from a decorated function; no mark stays behind."""

    def wait(state):
        if state.attempt_number == 2:
            raise LookupError("no idea")
        return 0.0

    numbers = []

    def body(attempt):
        numbers.append(attempt.number)
        raise down()

    with pytest.raises(LookupError):
        repeat(retry(9, wait=wait), body)

    assert ([1, 2], None) == (numbers, RETRYING.get())


# ---------------------------------------------------------------------------------------------- leaving early
def test_break_and_return_inside_the_block(clock):
    """Leave it without another attempt."""
    numbers = []
    for attempt in retry(3):
        with attempt:
            numbers.append(attempt.number)
            break

    def answer():
        for attempt in retry(3):
            with attempt:
                return attempt.number
        raise AssertionError("a block that returns has succeeded")

    assert ([1], 1, []) == (numbers, answer(), clock.slept)


def test_a_loop_that_is_broken_off_after_a_failure_does_not_wait(registry, clock, down):
    """The wait belongs to the next turn; and nothing is left behind."""
    for attempt in retry(3, wait=1):
        with attempt:
            raise down()
        if attempt.number == 2:
            break

    assert ([1.0], None) == (clock.slept, RETRYING.get())


def test_continue_inside_the_block_is_a_success(registry):
    """It is the end of the block, so of the loop."""
    numbers = []
    for attempt in retry(3):
        with attempt:
            numbers.append(attempt.number)
            continue

    assert [1] == numbers


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_passes(repeat, failing, stop, down):
    """It is never repeated, and leaves no mark."""
    body = failing(down(), stop())
    with pytest.raises(stop):
        repeat.driven(retry(5, wait=0), body)

    assert ([1, 2], None) == (body.numbers, RETRYING.get())


def test_an_interruption_during_the_wait(registry, clock, monkeypatch, down):
    """It ends the loop."""

    def sleep(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", sleep)
    attempts = iter(retry(3, wait=1))
    with next(attempts):
        raise down()
    with pytest.raises(KeyboardInterrupt):
        next(attempts)

    assert [] == list(attempts)


def test_a_cancel_during_the_wait(registry, clock, monkeypatch, down):
    """A loop that is cancelled while it waits makes no further attempt."""
    monkeypatch.setattr(clock, "asleep", lambda seconds: asyncio.Event().wait())
    numbers = []

    async def scenario():
        async for attempt in retry(3, wait=1):
            with attempt:
                numbers.append(attempt.number)
                raise down()

    async def main():
        task = asyncio.create_task(scenario())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())
    assert [1] == numbers


def test_an_exception_that_is_caught_between_block_and_loop(registry, down):
    """The loop has ended with it."""
    numbers = []
    for attempt in retry(2, wait=0):
        try:
            with attempt:
                numbers.append(attempt.number)
                raise down()
        except ConnectionError:
            pass

    assert [1, 2] == numbers


# ---------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    "how", [list, lambda loop: [attempt.number for attempt in loop]], ids=["list", "comprehension"]
)
def test_an_attempt_that_was_never_entered(registry, how):
    """The loop says so, rather than turn for ever."""
    with pytest.raises(RuntimeError, match=r"attempt 1 was never entered: .*`with attempt:`"):
        how(retry(3))


def test_an_attempt_that_was_never_entered_in_an_async_loop(registry):
    """The same there."""

    async def scenario():
        async for _ in retry(3):
            pass

    with pytest.raises(RuntimeError, match="attempt 1 was never entered"):
        asyncio.run(scenario())


def test_a_loop_that_went_wrong_has_ended(registry):
    """It does not begin anew."""
    attempts = iter(retry(3))
    next(attempts)
    with pytest.raises(RuntimeError):
        next(attempts)

    assert [] == list(attempts)


def test_the_next_attempt_inside_the_block(registry):
    """An attempt ends before another begins; the mistake leaves the block and ends the loop."""
    attempts = iter(retry(3))
    with pytest.raises(RuntimeError, match="attempt 1 has not been left"), next(attempts):
        next(attempts)

    assert [] == list(attempts)


def test_an_attempt_is_entered_once(registry, down):
    """Neither within itself nor again."""
    attempts = iter(retry(3, wait=0))
    first = next(attempts)
    with pytest.raises(RuntimeError, match="attempt 1 is entered once"), first, first:
        pass
    attempts = iter(retry(3, wait=0))
    first = next(attempts)
    with first:
        raise down()
    with next(attempts), pytest.raises(RuntimeError, match="attempt 1 is entered once"):
        first.__enter__()


def test_an_attempt_is_left_once(registry):
    """Whoever leaves it again is told."""
    attempt = next(iter(retry(3)))
    with attempt:
        pass
    with pytest.raises(RuntimeError, match="attempt 1 has been left already"):
        attempt.__exit__(None, None, None)


def test_a_wait_needs_asyncio(registry, down):
    """Under another loop the first wait says so."""

    async def scenario():
        async for attempt in retry(2, wait=1):
            with attempt:
                raise down()

    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        scenario().send(None)


# ---------------------------------------------------------------------------------------------- several loops
def test_a_policy_is_a_value_that_many_loops_share(registry, down):
    """Each loop has a count of its own."""
    policy = retry(3, wait=0)
    first, second = iter(policy), iter(policy)
    numbers = []
    for _ in range(2):
        for attempts in (first, second):
            attempt = next(attempts)
            numbers.append(attempt.number)
            with attempt:
                raise down()

    assert [1, 1, 2, 2] == numbers


def test_loops_in_threads_and_tasks(registry, together, down):
    """Any number at once."""
    policy = retry(3, wait=0)

    def plain(index):
        numbers = []
        for attempt in policy:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    raise down()
        return numbers

    async def suspending():
        numbers = []
        async for attempt in policy:
            with attempt:
                await asyncio.sleep(0)
                numbers.append(attempt.number)
                if attempt.number < 3:
                    raise down()
        return numbers

    async def many():
        return await asyncio.gather(*(suspending() for _ in range(5)))

    def one(index):
        return asyncio.run(many()) if index % 2 else plain(index)

    assert [[[1, 2, 3]] * 5 if index % 2 else [1, 2, 3] for index in range(6)] == together(6, one)


def test_loops_inside_loops_add(plainly, down):
    """Three inside three are five attempts, not nine."""
    calls = []

    def inner(attempt):
        calls.append(attempt.number)
        raise down()

    with pytest.raises(ConnectionError):
        plainly(retry(3, wait=0), lambda _: plainly(retry(3, wait=0), inner))

    assert [1, 2, 3, 1, 1] == calls


def test_a_loop_inside_a_function_that_is_repeated(registry, down):
    """And the other way round."""
    calls = []

    @retry(3, wait=0, idempotent=True)
    def outer():
        for attempt in retry(3, wait=0):
            with attempt:
                calls.append(attempt.number)
                raise down()

    with pytest.raises(ConnectionError):
        outer()
    assert [1, 2, 3, 1, 1] == calls

    calls.clear()

    @retry(3, wait=0, idempotent=True)
    def inner():
        calls.append(None)
        raise down()

    with pytest.raises(ConnectionError):
        for attempt in retry(3, wait=0):
            with attempt:
                inner()
    assert 5 == len(calls)


def test_a_nested_loop_is_told_of_once(registry, caplog, down):
    """Although each turn makes a policy of its own: by where the loop stands."""

    def nested():
        for attempt in retry(2, wait=0):
            with attempt:
                raise down()

    with caplog.at_level(logging.WARNING, "resilience"):
        for _ in range(2):
            with pytest.raises(ConnectionError):
                for attempt in retry(3, wait=0):
                    with attempt:
                        nested()

    told = [record.getMessage() for record in caplog.records]
    assert 1 == len(told)
    assert told[0].startswith(
        f"{__name__}:test_a_nested_loop_is_told_of_once.<locals>.nested: an outer call is retrying"
    )


def test_a_fault_that_no_rule_knows_is_told_of_once(registry, caplog):
    """As at a decorated function."""

    class Strange(Exception):
        pass

    with caplog.at_level(logging.WARNING, "resilience"):
        for _ in range(2):
            with pytest.raises(Strange):
                for attempt in retry(2):
                    with attempt:
                        raise Strange

    assert 1 == len(caplog.records)


def test_a_detached_loop_is_on_its_own(registry, down):
    """What outlives the call retries for itself."""
    numbers = []
    with pytest.raises(ConnectionError):
        for attempt in retry(2, wait=0):
            with attempt, detached():
                for inner in retry(2, wait=0):
                    with inner:
                        numbers.append((attempt.number, inner.number))
                        raise down()

    assert [(1, 1), (1, 2), (2, 1), (2, 2)] == numbers


# ---------------------------------------------------------------------------------------------- the mark of a repeat
def test_the_mark_is_set_inside_later_attempts_only(repeat, down):
    """Neither around the first nor between two."""
    seen = []

    def body(attempt):
        seen.append(is_repeating())
        if attempt.number < 3:
            raise down()

    repeat(retry(3, wait=0), body)

    assert [False, True, True] == seen
    assert RETRYING.get() is None


def test_a_block_that_is_left_in_another_task(registry, down):
    """The mark is switched off for the one that entered it, and nothing is changed in the one that leaves it."""
    seen = []

    async def entered(attempt, entered, left):
        attempt.__enter__()
        seen.append(is_repeating())
        entered.set()
        await left.wait()
        seen.append(is_repeating())

    async def main():
        attempts = iter(retry(3, wait=0))
        with next(attempts):
            raise down()
        attempt, inside, left = next(attempts), asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(entered(attempt, inside, left))
        await inside.wait()
        assert attempt.__exit__(ConnectionError, down(), None)
        left.set()
        await task
        with next(attempts) as last:
            return last.number, RETRYING.get().active

    assert (3, True) == asyncio.run(main())
    assert [True, False] == seen


def test_a_block_that_is_left_inside_somebodys_repeat(registry, down):
    """That one goes on being a repeat."""
    attempts = iter(retry(3, wait=0))
    with next(attempts):
        raise down()
    attempt = next(attempts)
    contextvars.copy_context().run(attempt.__enter__)

    @retry(2, wait=0, idempotent=True)
    def outer():
        if not is_repeating():
            raise down()
        attempt.__exit__(None, None, None)
        return is_repeating()

    assert outer() is True


def test_an_attempt_that_is_never_left(registry, no_gc, down):
    """Is over when nobody can leave it any more."""
    attempts = iter(retry(3, wait=0))
    with next(attempts):
        raise down()
    context = contextvars.copy_context()
    attempt = next(attempts)
    context.run(attempt.__enter__)
    before = context.run(is_repeating)
    del attempts, attempt

    assert (True, False) == (before, context.run(is_repeating))


def test_a_mark_that_is_there_already_stays(registry, down):
    """A later attempt that is entered inside somebody's second attempt sets none, and takes none away."""
    attempts = iter(retry(3, wait=0))
    with next(attempts):
        raise down()

    @retry(2, wait=0, idempotent=True)
    def outer():
        if not is_repeating():
            raise down()
        with next(attempts):
            pass
        return is_repeating()

    assert outer() is True
    assert RETRYING.get() is None


def test_a_context_that_was_copied_inside(registry, down):
    """A task that was started in a second attempt and outlives it is on its own."""
    contexts = []
    for attempt in retry(2, wait=0):
        with attempt:
            contexts.append(contextvars.copy_context())
            if attempt.number == 1:
                raise down()

    assert [False, False] == [context.run(is_repeating) for context in contexts]


# ---------------------------------------------------------------------------------------------- what is kept
class WeakError(ConnectionError):
    """A class of Python's own takes weak references."""


@pytest.mark.parametrize("ending", ["exhausted", "succeeded", "interrupted"])
@pytest.mark.parametrize("policy", [retry(2, wait=0), retry(2, wait=lambda state: 0.0)], ids=["fixed", "asked"])
def test_nothing_outlives_the_loop(repeat, no_gc, ending, policy):
    """No exception, frame or argument, without any help of the garbage collector."""
    alive = []

    def body(attempt):
        payload = WeakError("payload")
        alive.append(weakref.ref(payload))
        try:
            if attempt.number == 1 or ending == "exhausted":
                raise payload
            if ending == "interrupted":
                raise KeyboardInterrupt
        finally:
            del payload

    def call():
        try:
            repeat.driven(policy, body)
        except (ConnectionError, KeyboardInterrupt):
            pass

    call()

    assert [None, None] == [reference() for reference in alive]


def test_a_strategy_that_remembers_keeps_no_exception(repeat, failing, down):
    """What it was shown is emptied."""
    states = []

    def wait(state):
        states.append((state, type(state.outcome.exception())))
        return 0.0

    repeat(retry(2, wait=wait), failing(down(), "fine"))

    assert [(None, ConnectionError)] == [(state.outcome.exception(), seen) for state, seen in states]


def test_what_was_being_handled_is_not_kept(registry, no_gc):
    """A loop that has ended has no exception from before."""

    def scenario():
        error = WeakError("before")
        reference = weakref.ref(error)
        try:
            raise error
        except WeakError:
            del error
            attempts = iter(retry(2))
            with next(attempts):
                pass
        return attempts, reference

    _attempts, reference = scenario()

    assert reference() is None


def test_a_loop_that_is_dropped_is_gone(registry, no_gc):
    """In the middle too: an attempt and its loop make no ring."""
    policy = retry(2)
    reference = weakref.ref(policy)
    attempt = next(iter(policy))
    del policy, attempt

    assert reference() is None


def test_loops_and_attempts_are_not_pickled(registry):
    """They belong to what is under way here; the policy travels, and loops where it arrives."""
    attempts = iter(retry(2))
    for thing in (attempts, next(attempts), aiter(retry(2))):
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(thing)
    arrived = pickle.loads(pickle.dumps(retry(2)))
    for attempt in arrived:
        with attempt:
            assert isinstance(arrived, Retry)
    assert "<Attempt 1>" == repr(attempt)


def test_the_loop_is_an_iterator(registry):
    """Both kinds give themselves."""
    plain, suspending = iter(retry(2)), aiter(retry(2))

    assert plain is iter(plain)
    assert suspending is aiter(suspending)


def test_a_loop_that_goes_on_in_another_thread(registry, down):
    """Nothing of it hangs on the thread that it began in."""
    attempts = iter(retry(3, wait=0))
    with next(attempts):
        raise down()
    numbers = []

    def go_on():
        with next(attempts) as attempt:
            numbers.append(attempt.number)

    thread = threading.Thread(target=go_on)
    thread.start()
    thread.join(5)

    assert ([2], []) == (numbers, list(attempts))
