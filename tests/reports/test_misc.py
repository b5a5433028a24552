"""Reports to urllib3, pyfailsafe and celery, each retold: the same fault does not exist here."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from email.utils import formatdate

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FaultKind,
    Registry,
    TimeoutExceeded,
    breaker,
    classify,
    compose,
    retry,
    use_registry,
)
from resilience.events import RetryExhausted, StateChanged
from resilience.testing import ManualClock, use_clock


class PassingClock(ManualClock):
    """A manual clock whose async sleep passes by itself too; it remembers what was slept."""

    def __init__(self):
        super().__init__()
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds):
        self.sleep(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def registry():
    """A registry of the test's own."""
    with use_registry(Registry()) as registry:
        yield registry


@pytest.fixture
def clock(registry):
    """A clock that passes when somebody waits."""
    with use_clock(PassingClock(), registry) as clock:
        yield clock


class World:
    """Plain functions, or coroutine functions each run in a loop of its own."""

    def __init__(self, is_async):
        self.is_async = is_async

    def function(self, body):
        async def coroutine_function():
            return body()

        def plain_function():
            return body()

        return coroutine_function if self.is_async else plain_function

    def call(self, fn):
        async def main():
            return await fn()

        return asyncio.run(main()) if self.is_async else fn()


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request):
    return World(request.param)


class Throttled(Exception):
    """A 429 with a Retry-After, as client libraries raise it."""

    def __init__(self, retry_after):
        super().__init__()
        self.status_code = 429
        self.headers = {"Retry-After": retry_after}


def raising(error, attempts):
    def body():
        attempts.append(1)
        raise error

    return body


# ------------------------------------------------------------------------------------------ a server asks for hours
@pytest.mark.parametrize("asks_for", ["61", "3600", "9" * 30, "a date of tomorrow"])
def test_a_server_cannot_put_a_caller_to_sleep_for_hours(world, clock, asks_for):
    """urllib3#3743: a Retry-After was obeyed whatever its length, so any server could stop a client for good."""
    attempts = []
    error = Throttled(formatdate(time.time() + 86_400, usegmt=True) if "date" in asks_for else asks_for)
    with pytest.raises(Throttled) as caught:
        world.call(retry(5, wait=1, idempotent=True)(world.function(raising(error, attempts))))
    assert error is caught.value
    assert [1] == attempts
    assert [] == clock.slept


def test_the_longest_wait_is_the_callers_choice(world, clock, monkeypatch):
    """urllib3#3743: up to the cap, the cap included, the server's word is kept; the cap is a setting."""
    monkeypatch.setattr("resilience._policies.retry._chance", lambda: 0.0)
    for cap, retry_after, waits in ((60, "60", [60]), (5, "5", [5]), (5, "6", []), (7200, "3600", [3600])):
        clock.slept.clear()
        again = retry(2, wait=1, idempotent=True, max_retry_after=cap)
        with pytest.raises(Throttled):
            world.call(again(world.function(raising(Throttled(retry_after), []))))
        assert waits == clock.slept


def test_what_the_server_asked_for_can_still_be_read(world, clock):
    """urllib3#3743: who wants to come back later finds the uncut value."""
    error = Throttled("3600")
    with pytest.raises(Throttled):
        world.call(retry(5, idempotent=True)(world.function(raising(error, []))))
    assert 3600 == classify(error).retry_after


def test_a_server_cannot_keep_a_circuit_open_for_hours(world, registry, clock):
    """urllib3#3743: nor does it decide how long a circuit stays open beyond `max_cooldown`."""
    ask = breaker("api", BreakerConfig(Consecutive(1), cooldown=30, max_cooldown=120))(
        world.function(raising(Throttled("86400"), []))
    )
    with pytest.raises(Throttled):
        world.call(ask)
    with pytest.raises(CircuitOpenError) as refused:
        world.call(ask)
    assert 120 == refused.value.retry_after


# ------------------------------------------------------------------------------------------ one probe only
@pytest.fixture
def cooled(registry, clock):
    """A circuit that was opened and has cooled."""
    api = registry.breaker("api", BreakerConfig(Consecutive(1), cooldown=30))
    api.on_failure(api.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    return api


@pytest.mark.parametrize("recovered", [True, False])
def test_one_thread_alone_tries_a_half_open_circuit(cooled, recovered):
    """pyfailsafe#31: half-open let everybody through while the first call was still on its way."""
    callers = 8
    all_at_once = threading.Barrier(callers)
    others_are_refused = threading.Semaphore(0)
    sent, refused = [], []

    @breaker("api")
    def ask():
        sent.append(1)
        for _ in range(callers - 1):
            assert others_are_refused.acquire(timeout=5)
        if not recovered:
            raise ConnectionError

    def call():
        all_at_once.wait(5)
        try:
            ask()
        except CircuitOpenError:
            refused.append(1)
            others_are_refused.release()
        except ConnectionError:
            pass

    threads = [threading.Thread(target=call, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (1, callers - 1) == (len(sent), len(refused))
    assert (CircuitState.CLOSED if recovered else CircuitState.OPEN) is cooled.state


@pytest.mark.parametrize("recovered", [True, False])
def test_one_task_alone_tries_a_half_open_circuit(cooled, recovered):
    """pyfailsafe#31: the same for the tasks of an event loop."""
    sent = []

    async def main():
        answer = asyncio.Event()

        @breaker("api")
        async def ask():
            sent.append(1)
            await answer.wait()
            if not recovered:
                raise ConnectionError

        calls = [asyncio.create_task(ask()) for _ in range(8)]
        probe, *others = calls
        await asyncio.wait(others, timeout=5)
        answer.set()
        await asyncio.wait([probe], timeout=5)
        return [type(call.exception()) for call in calls]

    assert [type(None) if recovered else ConnectionError] + [CircuitOpenError] * 7 == asyncio.run(main())
    assert [1] == sent
    assert (CircuitState.CLOSED if recovered else CircuitState.OPEN) is cooled.state


# ------------------------------------------------------------------------------------------ errors and pickle
class CantComeBack(ConnectionError):
    """Can be pickled, and then never unpickled: its class wants more than the message it hands on."""

    def __init__(self, code, *, region):
        super().__init__(f"{code} in {region}")
        self.code = code
        self.region = region


class CantEvenLeave(ConnectionError):
    """Can't be pickled at all."""

    def __reduce__(self):
        raise TypeError("no")


@pytest.mark.parametrize("make", [lambda: CantComeBack(7, region="eu"), CantEvenLeave], ids=["come back", "leave"])
def test_an_error_that_cannot_be_pickled_is_retried_like_any_other(world, registry, make):
    """celery#6990: an exception that can't be unpickled, given to a retry, brought the whole worker down."""
    errors = [make() for _ in range(3)]
    attempts = iter(errors)
    events = []
    registry.subscribe(events.append, RetryExhausted, StateChanged)

    def body():
        raise next(attempts)

    policies = compose(retry(3, wait=0, idempotent=True), breaker("api", BreakerConfig(Consecutive(3))))
    with pytest.raises(ConnectionError) as caught:
        world.call(policies(world.function(body)))
    assert errors[2] is caught.value
    status = registry.get("api").status()
    assert CircuitState.OPEN is status.state
    assert status.last_failure.type_name.endswith(type(errors[2]).__name__)
    # What is kept and sent on holds no exception, so it goes where the exception can't.
    assert {"RetryExhausted", "StateChanged"} == {type(event).__name__ for event in events}
    assert [status, *events] == pickle.loads(pickle.dumps([status, *events]))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "error", [CircuitOpenError("api", 1.5), BulkheadFullError("pool"), TimeoutExceeded("attempt", 3.0)], ids=repr
)
def test_our_own_errors_come_back_from_another_process(error, protocol):
    """celery#6990: what we raise ourselves can be pickled and unpickled, with all it says."""
    back = pickle.loads(pickle.dumps(error, protocol))
    assert (type(error), str(error), error.args, vars(error)) == (type(back), str(back), back.args, vars(back))
