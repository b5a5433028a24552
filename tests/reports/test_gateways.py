"""Reports to gateways and agents (litellm, OmniRoute, k8s-breakglass, crewAI), retold: not here."""

from __future__ import annotations

import asyncio
import threading

import pytest

from resilience import (
    BreakerConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    FailureRate,
    FaultKind,
    Registry,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
    use_registry,
)
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
COOLDOWN, LEASE = 30, 45


@pytest.fixture
def clock():
    """A clock that moves when told, in a registry of the test's own."""
    with use_registry(Registry()) as registry, use_clock(ManualClock(), registry) as clock:
        yield clock


@pytest.fixture
def api(clock):
    """A circuit that the first failure opens."""
    return breaker("api", BreakerConfig(Consecutive(1), cooldown=COOLDOWN, probe_lease=LEASE)).breaker


def fail(shared):
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)


@pytest.fixture
def cooled(api, clock):
    """The same circuit, opened and cooled: the next call is its probe."""
    fail(api)
    clock.advance(COOLDOWN)
    return api


async def turns(count=8):
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------ a rate of very few calls
def a_call(shared, is_async, error=None):
    """One call through the decorator, in a world of its own."""

    def body():
        if error:
            raise error

    async def async_body():
        body()

    ask = breaker(shared.name)
    try:
        asyncio.run(ask(async_body)()) if is_async else ask(body)()
    except (ConnectionError, ValueError):
        pass


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "config",
    [BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=10)), BreakerConfig.cloud()],
    ids=["own", "cloud"],
)
def test_the_rate_of_a_few_calls_is_no_rate(clock, config, is_async):
    """litellm#17418: the first failure of a quiet minute is 100 % of one call, and took the deployment away."""
    shared = breaker("api", config).breaker
    for failures in range(1, 10):
        a_call(shared, is_async, ConnectionError)
        assert (CLOSED, failures) == (shared.state, shared.status().window_calls)
    a_call(shared, is_async, ConnectionError)
    assert OPEN is shared.state


def test_calls_that_say_nothing_do_not_make_a_rate(clock):
    """litellm#17418: calls that say nothing about the provider are none of the calls that a rate needs."""
    shared = breaker("api", BreakerConfig(FailureRate(0.5, min_calls=4))).breaker
    for _ in range(20):
        shared.release(shared.try_acquire())
        a_call(shared, False, ValueError)
    for _ in range(3):
        a_call(shared, False, ConnectionError)
    assert (CLOSED, 3) == (shared.state, shared.status().window_calls)


def test_calls_of_long_ago_do_not_make_a_rate(clock):
    """litellm#17418: nor do those that the window has left behind: the first failure afterwards is one of one again."""
    shared = breaker("api", BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4))).breaker
    for _ in range(3):
        a_call(shared, False, ConnectionError)
    clock.advance(60)
    a_call(shared, False, ConnectionError)
    assert (CLOSED, 1) == (shared.state, shared.status().window_calls)


# ------------------------------------------------------------------------------------------ a probe that is cancelled
AROUND = {
    "breaker": lambda: breaker("api"),
    "all": lambda: compose(
        bulkhead(max_in_flight=1), timeout(300, per_attempt=200), retry(3, wait=0, idempotent=True), breaker("api")
    ),
}


@pytest.mark.parametrize("around", AROUND)
def test_a_cancelled_probe_gives_its_place_back_at_once(cooled, around):
    """litellm#39701: a cancelled probe reported neither success nor failure, and the circuit stayed half-open."""
    hangs = True

    @AROUND[around]()
    async def ask():
        if hangs:
            await asyncio.Event().wait()
        return "ok"

    async def main():
        nonlocal hangs
        probe = asyncio.create_task(ask())
        await turns()
        assert HALF_OPEN is cooled.state
        probe.cancel()
        await asyncio.wait([probe])
        assert probe.cancelled()
        hangs = False
        return await ask()  # no time has passed: neither a cooldown nor a lease

    assert "ok" == asyncio.run(main())
    status = cooled.status()
    assert (CLOSED, 2, 1, 1, 0) == (
        status.state,
        status.probes_started,
        status.probes_succeeded,
        status.probes_released,
        status.probes_failed,
    )


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_probe_gives_its_place_back_at_once(cooled, stop):
    """litellm#39701: the same for a plain function, and for a block, that something other than an error ends."""
    with pytest.raises(stop):
        breaker("api")(lambda: (_ for _ in ()).throw(stop))()
    with pytest.raises(stop), cooled.guard():
        raise stop
    assert (HALF_OPEN, False) == (cooled.state, cooled.is_open())
    assert "ok" == breaker("api")(lambda: "ok")()
    assert CLOSED is cooled.state


@pytest.mark.parametrize("moment", range(5))
def test_a_probe_cancelled_at_any_moment_wedges_nothing(cooled, moment):
    """litellm#39701: whatever the turn of the loop in which the cancel comes."""

    @breaker("api")
    async def ask():
        await turns(3)
        return "ok"

    async def main():
        probe = asyncio.create_task(ask())
        await turns(moment)
        probe.cancel()
        await asyncio.wait([probe])
        return await ask()

    assert "ok" == asyncio.run(main())
    assert CLOSED is cooled.state


# ------------------------------------------------------------------------------------------ a probe that never ends
def test_a_probe_that_is_never_reported_comes_back(cooled, clock):
    """OmniRoute#13836: a probe that never settled held the only place, and every call was refused for days."""
    cooled.try_acquire()
    clock.advance(LEASE - 1)
    with pytest.raises(CircuitOpenError) as refused:
        cooled.try_acquire()
    assert 1 == refused.value.retry_after
    clock.advance(1)
    cooled.on_success(cooled.try_acquire())
    assert CLOSED is cooled.state


def test_a_call_that_hangs_as_a_probe_stops_nobody_for_longer_than_its_lease(cooled, clock):
    """OmniRoute#13836: the same where the probe is a call through the decorator, which still hangs."""
    hangs = True

    @breaker("api")
    async def ask():
        if hangs:
            await asyncio.Event().wait()
        return "ok"

    async def main():
        nonlocal hangs
        probe = asyncio.create_task(ask())
        await turns()
        hangs = False
        with pytest.raises(CircuitOpenError):
            await ask()
        clock.advance(LEASE)
        answer = await ask()
        assert not probe.done()
        assert CLOSED is cooled.state
        probe.cancel()
        await asyncio.wait([probe])
        return answer

    assert "ok" == asyncio.run(main())
    assert (CLOSED, 0) == (cooled.state, cooled.status().failure_count)


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_a_lost_probe_that_answers_after_the_recovery_changes_nothing(cooled, clock, outcome):
    """OmniRoute#13836: what a reclaimed probe reports in the end belongs to a time that is over."""
    lost = cooled.try_acquire()
    clock.advance(LEASE)
    cooled.on_success(cooled.try_acquire())
    if outcome == "success":
        cooled.on_success(lost)
    else:
        cooled.on_failure(lost, FaultKind.TRANSIENT)
    status = cooled.status()
    assert (CLOSED, 0, 1) == (status.state, status.failure_count, status.late_results)
    assert 2 == status.probes_started == status.probes_succeeded + status.probes_released


# ------------------------------------------------------------------------------------------ results of an earlier time
def report(shared, permit, outcome):
    if outcome == "success":
        shared.on_success(permit)
    elif outcome == "failure":
        shared.on_failure(permit, FaultKind.TRANSIENT)
    else:
        shared.release(permit)


@pytest.mark.parametrize("outcome", ["success", "failure", "release"])
@pytest.mark.parametrize("since", ["closed", "an earlier half-open"])
def test_a_result_of_an_earlier_time_decides_nothing(api, clock, since, outcome):
    """k8s-breakglass#981: a request sent in an earlier state moved the counters of a later half-open one."""
    if since == "closed":
        stale = api.try_acquire()
        fail(api)
        clock.advance(COOLDOWN)
    else:
        fail(api)
        clock.advance(COOLDOWN)
        stale = api.try_acquire()
        clock.advance(LEASE)
        fail(api)  # the next probe opens it again
        clock.advance(COOLDOWN)
    probe = api.try_acquire()
    report(api, stale, outcome)

    assert HALF_OPEN is api.state
    with pytest.raises(CircuitOpenError):  # the only place is still the probe's
        api.try_acquire()
    api.on_success(probe)
    assert (CLOSED, 0) == (api.state, api.status().failure_count)


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_a_result_of_before_the_trip_does_not_touch_an_open_circuit(api, clock, outcome):
    """k8s-breakglass#981: nor does it close an open circuit, or put its probe off."""
    stale = api.try_acquire()
    fail(api)
    clock.advance(COOLDOWN - 1)
    report(api, stale, outcome)
    assert (OPEN, 1.0) == (api.state, api.status().retry_after)


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_a_slow_call_of_an_earlier_time_decides_nothing(api, clock, outcome):
    """k8s-breakglass#981: the same through the decorator: slow calls of before the trip end beside the probe."""

    async def main():
        slow_may_end, probe_may_end = asyncio.Event(), asyncio.Event()

        @breaker("api")
        async def ask(may_end, fails):
            await may_end.wait()
            if fails:
                raise ConnectionError

        slow = [asyncio.create_task(ask(slow_may_end, outcome == "failure")) for _ in range(3)]
        await turns()
        fail(api)
        clock.advance(COOLDOWN)
        probe = asyncio.create_task(ask(probe_may_end, False))
        await turns()
        slow_may_end.set()
        await asyncio.wait(slow)
        for task in slow:
            task.exception()
        assert (HALF_OPEN, True) == (api.state, api.is_open())
        probe_may_end.set()
        await probe

    asyncio.run(main())
    assert (CLOSED, 0, 3) == (api.state, api.status().failure_count, api.status().late_results)


# ------------------------------------------------------------------------------------------ threads left behind
class Stuck:
    """A body that stands still until it is let go."""

    def __init__(self):
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)
        self.threads = set()

    def __call__(self):
        self.threads.add(threading.current_thread())
        self.begun.release()
        self.go_on.wait(10)
        return "done"


@pytest.fixture
def stuck():
    stuck = Stuck()
    yield stuck
    stuck.go_on.set()


def let_time_out(ask, stuck, clock):
    """Make a call that hangs, let its time pass, and return what came of it."""
    endings = []

    def call():
        try:
            endings.append(ask())
        except Exception as error:
            endings.append(type(error))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert stuck.begun.acquire(timeout=5)
    for _ in range(1000):
        clock.advance(1)
        caller.join(0.005)
        if not caller.is_alive():
            break
    return endings


def test_abandoned_work_is_bounded(clock, stuck):
    """crewAI#4135: each call that timed out left one more thread behind, until the process fell over."""

    @timeout(5)
    @interruptible(max_workers=2)
    def ask():
        return stuck()

    for _ in range(2):
        assert [TimeoutExceeded] == let_time_out(ask, stuck, clock)
    for _ in range(4):
        with pytest.raises(BulkheadFullError):
            ask()
    assert 2 == len(stuck.threads)
    assert all(thread.daemon for thread in stuck.threads)  # they don't keep the process from ending either

    stuck.go_on.set()
    answers = []
    for _ in range(2000):
        try:
            answers.append(ask())
        except BulkheadFullError:  # the workers are on their way back
            threading.Event().wait(0.001)
        if len(answers) == 5:
            break
    assert ["done"] * 5 == answers
    assert sum(thread.is_alive() for thread in stuck.threads) <= 2


def test_abandoned_work_keeps_its_slot(clock, stuck):
    """crewAI#4135: work that goes on after its timeout still uses what the slot stands for, so the slot stays taken."""

    @bulkhead("connections", max_in_flight=1)
    @timeout(5)
    @interruptible(max_workers=9)
    def ask():
        return stuck()

    assert [TimeoutExceeded] == let_time_out(ask, stuck, clock)
    for _ in range(3):
        with pytest.raises(BulkheadFullError):
            ask()
    assert 1 == len(stuck.threads)


def test_an_async_call_that_times_out_leaves_no_task_behind():
    """crewAI#4135: an async call is really ended by its timeout, with what it holds."""
    ended = []

    @timeout(0.005)
    async def ask():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def main():
        for _ in range(3):
            with pytest.raises(TimeoutExceeded):
                await ask()
        return len(asyncio.all_tasks())

    assert 1 == asyncio.run(main())
    assert [1] * 3 == ended
