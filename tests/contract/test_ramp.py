"""Contract section 4: after its probes have closed a circuit, a ramp lets a growing share of calls through."""

from __future__ import annotations

import asyncio

import pytest

from resilience import (
    BreakerConfig,
    BreakerMode,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    OnOpen,
    Registry,
    breaker,
    retry,
)
from resilience.events import StateChanged
from resilience.testing import ManualClock

CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
CONFIG = BreakerConfig(Consecutive(1), cooldown=30, ramp=10)


def config(**changes):
    return BreakerConfig(Consecutive(1), **{"cooldown": 30, "ramp": 10, **changes})


@pytest.fixture
def recovered(registry, clock):
    """A breaker that has just closed by its probe, with settings of the test's own."""

    def make(**changes):
        shared = registry.breaker("api", config(**changes))
        shared.on_failure(shared.try_acquire(), ConnectionError())
        clock.advance(30)
        shared.on_success(shared.try_acquire())
        return shared

    return make


def admitted(shared, asks):
    """How many of so many asks pass, each reported as a success."""
    passed = 0
    for _ in range(asks):
        try:
            permit = shared.try_acquire()
        except CircuitOpenError:
            continue
        shared.on_success(permit)
        passed += 1
    return passed


# ------------------------------------------------------------------------------------------ the share
def test_the_first_ask_passes(recovered):
    """The probe has just found the remote well: nobody waits where few ask."""
    assert 1 == admitted(recovered(), 1)


def test_the_share_follows_the_time(recovered, clock):
    """Of a hundred asks at 10 %, 50 % and 90 % of the ramp about so many pass."""
    shared, passed = recovered(), []
    for seconds in (1, 4, 4):
        clock.advance(seconds)
        passed.append(admitted(shared, 100))

    assert [11, 50, 90] == pytest.approx(passed, abs=1)


def test_no_long_run_of_refusals(recovered, clock):
    """Those that pass are spread over those that ask: at a half it is every second."""
    shared = recovered()
    clock.advance(5)

    assert [1, 0, 1, 0, 1, 0] == [admitted(shared, 1) for _ in range(7)][1:]


def test_everything_passes_at_its_end(recovered, clock):
    """From the very moment at which the ramp is over."""
    shared = recovered()
    clock.advance(10)

    assert 100 == admitted(shared, 100)


def test_a_refusal_tells_the_rest_of_the_ramp(recovered, clock):
    """After so many seconds nobody is refused any more."""
    shared = recovered()
    shared.try_acquire()
    clock.advance(2)
    with pytest.raises(CircuitOpenError) as refused:
        shared.try_acquire()

    assert 8.0 == refused.value.retry_after
    clock.advance(8)
    shared.try_acquire()


def test_state_and_status(recovered, clock):
    """It reads closed all the while; the status tells when the ramp ends, and nothing after it."""
    shared = recovered()
    closed_at = clock.time_ns()
    status = shared.status()
    assert (CLOSED, closed_at + 10**10, None) == (status.state, status.ramp_until, status.retry_after)
    admitted(shared, 3)
    assert (CLOSED, False, 2) == (shared.state, shared.is_open(), shared.status().rejected_total)
    clock.advance(10)

    assert shared.status().ramp_until is None


def test_reading_adds_nothing(recovered, clock):
    """I16: looking does not use up anybody's share."""
    shared = recovered()
    shared.try_acquire()
    clock.advance(9)
    for _ in range(50):
        shared.is_open()
        shared.status()

    assert 0 == admitted(shared, 1)


def test_refused_calls_record_nothing(recovered):
    """They are rejected, and that is all."""
    shared = recovered()
    before = shared.status().successes_total
    admitted(shared, 5)

    assert (before + 1, 4, 0) == (
        shared.status().successes_total,
        shared.status().rejected_total,
        shared.status().late_results,
    )


def test_without_a_ramp(recovered):
    """All pass at once."""
    assert 100 == admitted(recovered(ramp=None), 100)


# ------------------------------------------------------------------------------------------ how it ends
def test_failures_count_on_the_ramp(recovered):
    """They may open it as ever, and then there is no ramp."""
    shared = recovered()
    shared.on_failure(shared.try_acquire(), ConnectionError())

    assert (OPEN, None) == (shared.state, shared.status().ramp_until)


@pytest.mark.parametrize("act", ["reset", "enable"])
def test_an_operator_closes_without_a_ramp(registry, clock, act):
    """Who closes by hand means it."""
    shared = registry.breaker("api", CONFIG)
    shared.force_open("drill")
    getattr(shared, act)()

    assert (50, None) == (admitted(shared, 50), shared.status().ramp_until)


def test_disabled_on_the_ramp(recovered):
    """Everything passes, and enabling it again begins no ramp."""
    shared = recovered()
    shared.disable()
    for _ in range(20):
        shared.try_acquire()
    shared.enable()

    assert (20, BreakerMode.NORMAL) == (admitted(shared, 20), shared.status().mode)


def test_a_reset_on_the_ramp_changes_nothing(recovered):
    """The circuit is closed: reset says so."""
    shared = recovered()

    assert shared.reset() is False
    assert shared.status().ramp_until is not None


@pytest.mark.parametrize("back", [0.5, 1_000_000])
def test_a_clock_that_jumps_back(recovered, clock, monkeypatch, back):
    """I11: it keeps nobody out for longer than one ramp."""
    shared = recovered()
    admitted(shared, 1)
    clock.advance(5)
    before = clock.monotonic()
    monkeypatch.setattr(clock, "_now", before - 5 - back)

    assert 10 == admitted(shared, 10)


def test_cleared(recovered, registry):
    """As just registered."""
    shared = recovered()
    registry.clear_state()

    assert (20, None) == (admitted(shared, 20), shared.status().ramp_until)


def test_shadow_counts_what_a_ramp_would_refuse(recovered):
    """And refuses nothing."""
    shared = recovered(shadow=True)
    assert 10 == admitted(shared, 10)

    assert (9, 0) == (shared.status().would_refuse_total, shared.status().rejected_total)


# ------------------------------------------------------------------------------------------ every way of use
@pytest.fixture
def on_ramp(env, remote):
    """A decorated function whose breaker has just closed by a probe, which was its first ask."""

    def make(*outcomes, **options):
        provider = remote(ConnectionError, "probe", "first", *outcomes)
        fn = breaker("api", CONFIG, **options)(env.function(provider))
        env.fails(fn)
        env.advance(30)
        assert ["probe", "first"] == [env.call(fn), env.call(fn)]
        return fn

    return make


def test_decorated_functions(env, on_ramp):
    """Refused and let through by share, and from its end on as if there had been none."""
    fn = on_ramp()
    env.advance(5)
    kinds = [type(env.fails(fn)) for _ in range(4)]
    assert [CircuitOpenError, type(None)] * 2 == kinds
    env.advance(5)

    assert [None] * 4 == [env.fails(fn) for _ in range(4)]


def test_bypass(env, on_ramp):
    """Where the site wants that, a refused call is skipped."""
    fn = on_ramp(on_open=OnOpen.BYPASS, fallback="spare")

    assert "spare" == env.call(fn)
    assert 1 == env.registry.get("api").status().bypassed_total


@pytest.mark.parametrize("account", ["attempt", "call"])
def test_a_retry_asks_for_each_attempt(env, remote, account):
    """The ramp may end a retry: what is left is the last real exception, with a note."""
    provider = remote(ConnectionError, "probe", ConnectionError("down"), "never")
    shared = breaker("api", BreakerConfig(Consecutive(2), cooldown=30, ramp=10), account=account)
    once = shared(env.function(provider))
    env.registry.get("api").force_open("drill", seconds=30)
    env.advance(30)
    env.fails(once)
    env.advance(30)
    env.call(once)
    fn = retry(3, wait=0, idempotent=True)(shared(env.function(provider)))
    error = env.fails(fn)

    assert "down" == str(error)
    assert ["retry stopped: circuit api is open, 10 s left"] == error.__notes__
    assert 3 == provider.calls


def test_guards(env, on_ramp):
    """A block is refused on entry, or let in."""
    on_ramp()
    ref = breaker("api")
    with pytest.raises(CircuitOpenError), ref.guard():
        pass
    env.advance(10)
    with ref.guard() as permit:
        assert permit


def test_acall(recovered):
    """The breaker's own way to call."""
    shared = recovered()

    async def fine():
        return "fine"

    async def main():
        assert "fine" == await shared.acall(fine)
        with pytest.raises(CircuitOpenError):
            await shared.acall(fine)

    asyncio.run(main())


def test_the_straight_path_comes_back(env, on_ramp):
    """On the ramp everybody asks; the first ask after it opens the door again."""
    fn = on_ramp()
    circuit = env.registry.get("api").circuit
    assert 0 == circuit.passing
    env.advance(10)
    assert 0 == circuit.passing
    env.call(fn)

    assert (circuit.episode if env.path == "straight" else 0) == circuit.passing == circuit.closed


def test_the_same_asks_have_the_same_answers():
    """I18: nothing is left to chance."""

    def story():
        clock = ManualClock()
        registry = Registry(clock=clock)
        shared, told = registry.breaker("api", CONFIG), []
        registry.subscribe(lambda event: told.append(repr(event)))
        shared.on_failure(shared.try_acquire(), ConnectionError())
        clock.advance(30)
        shared.on_success(shared.try_acquire())
        for _ in range(60):
            clock.advance(0.125)
            told.append(admitted(shared, 3))
        return told

    assert story() == story()


def test_no_event_of_its_own(recovered, registry):
    """The closing is told, and nothing at the end of the ramp, which nobody waits for."""
    told = []
    registry.subscribe(told.append, StateChanged)
    shared = recovered()
    admitted(shared, 5)

    assert ["tripped", "cooled", "probes_succeeded"] == [event.cause for event in told]
