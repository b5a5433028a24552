"""`guard()`: one shared object while closed, a block with a memory for everything else."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import time

import pytest

from resilience import BreakerConfig, CircuitOpenError, Consecutive, FailureRate, FaultKind, OnOpen, breaker, timeout
from resilience._clock import SYSTEM_CLOCK
from resilience._context import DEADLINE, PROBING
from resilience._core.deadline import Deadline
from resilience._policies.guard import Block, OwnBlock
from resilience.testing import use_clock

CONFIG = BreakerConfig(Consecutive(2), cooldown=30)
WINDOWED = BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=2))


@pytest.fixture
def ref(registry):
    return breaker("provider", CONFIG)


def fail(block, error=None):
    with pytest.raises(type(error or ConnectionError())), block:
        raise error or ConnectionError("down")


@pytest.fixture
def straight(registry):
    """By the system's clock a closed breaker has one block for all."""
    with use_clock(SYSTEM_CLOCK, registry):
        yield


# ---------------------------------------------------------------------------------------------- while closed
def test_one_block_for_a_closed_episode(straight, ref):
    """No memory per use, so the object is the same, and stays it when it has been used."""
    assert ref.guard() is ref.guard()
    with ref.guard() as permit:
        assert "<Permit exempt, episode 1>" == repr(permit)
    assert ref.guard() is ref.guard()
    assert ref.breaker.guard() is ref.breaker.guard()


def test_the_permit_of_a_block_is_to_look_at(straight, ref):
    """The block reports for itself: what is reported on its permit is of no interest."""
    with ref.guard() as permit:
        ref.breaker.on_failure(permit, FaultKind.TRANSIENT)

    assert (1, 0) == (ref.status().successes_total, ref.status().failures_total)


def test_a_new_episode_has_a_new_block(straight, ref):
    """What was kept from before is another one; the new one is shared again."""
    before = ref.guard(), ref.breaker.guard()
    ref.force_open("x")
    ref.reset()

    assert ref.guard() is not before[0]
    assert ref.breaker.guard() is not before[1]
    assert ref.guard() is ref.guard()


def test_a_block_that_succeeds(straight, ref):
    """Is one success."""
    with ref.guard() as permit:
        assert permit
    assert 1 == ref.status().successes_total


@pytest.mark.parametrize("path", ["straight", "plan"])
def test_blocks_that_fail(request, ref, path):
    """Are failures, and open."""
    if path == "straight":
        request.getfixturevalue("straight")
    fail(ref.guard())
    fail(ref.guard())

    assert ("open", "builtins.ConnectionError") == (ref.state.value, ref.status().last_failure.type_name)
    with pytest.raises(CircuitOpenError), ref.guard():
        pass


def test_a_success_after_a_failure_ends_the_streak(straight, ref):
    """The shared block looks whether there is something to reset."""
    fail(ref.guard())
    with ref.guard():
        pass
    fail(ref.guard())

    assert "closed" == ref.state.value


def test_nested_blocks(straight, ref):
    """The shared block may be entered within itself."""
    block = ref.guard()
    with block, block, block:
        pass

    assert 3 == ref.status().successes_total


def test_a_block_left_in_another_task(straight, ref):
    """Nothing of it hangs on where it was entered."""
    block = ref.guard()

    async def scenario():
        await asyncio.create_task(block.__aenter__())
        await asyncio.create_task(block.__aexit__(None, None, None))

    asyncio.run(scenario())

    assert 1 == ref.status().successes_total


def test_async_blocks(straight, ref):
    """`async with` is the same."""

    async def scenario():
        async with ref.guard():
            pass
        with pytest.raises(ConnectionError):
            async with ref.guard():
                raise ConnectionError("down")

    asyncio.run(scenario())

    assert (1, 1) == (ref.status().successes_total, ref.status().failures_total)


def test_a_windowed_breaker(straight, registry):
    """Each success has its time."""
    ref = breaker("rate", WINDOWED)
    assert ref.guard() is ref.guard()
    fail(ref.guard())
    with ref.guard():
        pass

    assert "open" == ref.state.value


def test_a_windowed_breaker_knows_when_a_success_came(straight, monkeypatch):
    """One that has left the window makes up no calls in it, a recent one does."""
    ref = breaker("rate", WINDOWED)
    for now in (1000.0, 1040.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        with ref.guard():
            pass
    fail(ref.guard())

    assert ("open", 2) == (ref.state.value, ref.status().window_calls)


@pytest.mark.parametrize("on_open", [OnOpen.FAIL, OnOpen.BYPASS, "fail"])
def test_a_block_of_the_breaker_itself(straight, ref, on_open):
    """It judges by the rules, whatever it does while the circuit is open."""
    fail(ref.breaker.guard(on_open))

    assert (1, FaultKind.TRANSIENT) == (ref.status().failures_total, ref.status().last_failure.kind)


def test_an_interruption_is_neutral(straight, ref):
    """Counted nowhere."""
    for kind in (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        with pytest.raises(kind), ref.guard():
            raise kind
    status = ref.status()

    assert (0, 0) == (status.successes_total, status.failures_total)


def test_a_client_fault_is_an_answer(straight, ref):
    """As at a decorated function."""

    class NotFound(Exception):
        status_code = 404

    fail(ref.guard())
    fail(ref.guard(), NotFound())
    fail(ref.guard())

    assert ("closed", 1) == (ref.state.value, ref.status().answered_total)


def test_an_exception_counts_once(straight, ref):
    """Nested blocks of one breaker count it at the innermost."""
    fail_once = ConnectionError("down")
    with pytest.raises(ConnectionError), ref.guard(), ref.guard():
        raise fail_once

    assert (1, 0) == (ref.status().failures_total, ref.status().answered_total)


# ---------------------------------------------------------------------------------------------- kept beyond its episode
def test_a_kept_block_of_a_circuit_that_opened(straight, ref):
    """It refuses like a new one."""
    block = ref.guard()
    ref.force_open("x")

    with pytest.raises(CircuitOpenError), block:
        pass


def test_a_kept_block_of_a_circuit_that_closed_again(straight, ref):
    """Each use counts in the episode that is."""
    block = ref.guard()
    ref.force_open("x")
    ref.reset()
    with block, block, block:
        pass
    fail(block)

    assert (3, 1) == (ref.status().successes_total, ref.status().failures_total)


def test_a_block_entered_before_the_trip_is_late(straight, ref):
    """Its result belongs to the episode that is over."""
    with ref.guard():
        ref.force_open("x")

    assert (0, 1) == (ref.status().successes_total, ref.status().late_results)


# ---------------------------------------------------------------------------------------------- blocks with a memory
@pytest.mark.parametrize("config", [CONFIG, WINDOWED])
def test_a_block_inside_an_except_block(straight, config):
    """What was being handled around it is not the cause of what it raises."""
    ref = breaker("provider", config)

    class Unknown(Exception):
        pass

    for _ in range(3):
        try:
            raise ConnectionError("around")
        except ConnectionError:
            with pytest.raises(Unknown), ref.guard():
                raise Unknown  # noqa: B904  # the implicit context is what is tested
    with ref.guard():
        pass

    assert (0, 1) == (ref.status().failures_total, ref.status().successes_total)


def test_a_block_that_had_to_remember_is_handed_out_no_more(straight, ref):
    """It is looked at with care from then on; others get one that need not be."""
    try:
        raise ConnectionError("around")
    except ConnectionError:
        block = ref.guard()
        with block:
            pass

    assert ref.guard() is not block
    assert ref.guard() is ref.guard()


def test_a_hung_block(registry, clock, ref):
    """P17: it was in flight for half of the deadline that cut it, which is known as the last failure."""
    deadline = Deadline(10, 0)
    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(asyncio.CancelledError), ref.guard():
            clock.advance(10)
            deadline.fired = True
            raise asyncio.CancelledError
    finally:
        DEADLINE.reset(token)

    assert 1 == ref.status().failures_total
    assert "resilience.errors.TimeoutExceeded" == ref.status().last_failure.type_name


@pytest.mark.parametrize("config", [CONFIG, WINDOWED])
@pytest.mark.parametrize(("entered", "failures"), [(0, 1), (5, 1), (5.1, 0)])
def test_a_hung_block_by_the_systems_clock(straight, monkeypatch, config, entered, failures):
    """P17: under a deadline the shared block remembers when this use of it began."""
    ref, deadline = breaker("provider", config), Deadline(10, 1000)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + entered)
    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(asyncio.CancelledError), ref.guard():
            monkeypatch.setattr(time, "monotonic", lambda: 1010.0)
            deadline.fired = True
            raise asyncio.CancelledError
    finally:
        DEADLINE.reset(token)

    assert failures == ref.status().failures_total


@pytest.mark.parametrize("path", ["straight", "plan"])
def test_a_block_that_was_entered_before_the_deadline(request, registry, ref, path):
    """P17: it was in flight for as long as the deadline ran."""
    if path == "straight":
        request.getfixturevalue("straight")
    block, error = ref.guard(), asyncio.CancelledError()
    block.__enter__()
    deadline = Deadline(10, ref.breaker.now() - 10)
    deadline.fired = True
    token = DEADLINE.set(deadline)
    try:
        block.__exit__(type(error), error, None)
    finally:
        DEADLINE.reset(token)

    assert 1 == ref.status().failures_total


def test_a_block_entered_too_late_to_prove_anything(registry, clock, ref):
    """In flight for less than half of the deadline: neutral."""
    deadline = Deadline(10, 0)
    clock.advance(6)
    token = DEADLINE.set(deadline)
    try:
        with pytest.raises(asyncio.CancelledError), ref.guard():
            clock.advance(4)
            deadline.fired = True
            raise asyncio.CancelledError
    finally:
        DEADLINE.reset(token)

    assert 0 == ref.status().failures_total


def test_a_block_in_a_timed_call(straight, ref):
    """The whole way: a hung body under a budget counts once."""

    @timeout(0.01)
    async def fetch():
        async with ref.guard():
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        asyncio.run(fetch())

    assert 1 == ref.status().failures_total


def test_a_probe(registry, clock, ref):
    """A block takes the probe, calls inside share it, its success closes."""
    fail(ref.guard())
    fail(ref.guard())
    clock.advance(30)
    with ref.guard(), ref.guard() as inner:
        assert inner
        assert (True, None) == (ref.is_open(), ref.breaker.refusal_here())
    status = ref.status()

    assert ("closed", 1, ()) == (status.state.value, status.probes_started, PROBING.get())


def test_a_probe_that_is_left_in_another_context(registry, clock, ref):
    """The mark died with the context that it was set in."""
    fail(ref.guard())
    fail(ref.guard())
    clock.advance(30)
    block = ref.guard()
    contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)

    assert "closed" == ref.state.value


def test_a_probe_that_is_interrupted(registry, clock, ref):
    """Its slot comes back, with the reason."""
    fail(ref.guard())
    fail(ref.guard())
    clock.advance(30)
    reasons = []
    registry.subscribe(lambda event: reasons.append(getattr(event, "reason", None)))
    with pytest.raises(KeyboardInterrupt), ref.guard():
        raise KeyboardInterrupt

    assert ("half_open", "cancelled") == (ref.state.value, reasons[-1].value)


# ---------------------------------------------------------------------------------------------- bypassed
@pytest.mark.parametrize("of_reference", [True, False])
def test_a_bypassed_block(registry, of_reference):
    """It can't be skipped: its permit is false, and nothing is judged."""
    ref = breaker("provider", CONFIG, on_open=OnOpen.BYPASS)
    ref.force_open("x")
    with ref.guard() if of_reference else ref.breaker.guard(OnOpen.BYPASS) as permit:
        assert (False, "<Permit bypassed, episode 2>") == (bool(permit), repr(permit))
    fail(ref.guard())
    status = ref.status()

    assert (0, 0, 0) == (status.failures_total, status.rejected_total, status.late_results)
    assert 2 == status.bypassed_total


def test_a_reaction_that_is_none(ref):
    """Checked where it is given."""
    with pytest.raises(ValueError, match="on_open"):
        ref.breaker.guard("sometimes")


# ---------------------------------------------------------------------------------------------- judged values
def judging(value):
    return FaultKind.DOWNSTREAM if value == "bad" else None


def test_a_judged_value(registry):
    """Each block has its own, and its value decides."""
    ref = breaker("provider", CONFIG, classify_result=judging)
    assert ref.guard() is not ref.guard()
    with ref.guard() as permit:
        assert permit
    block = ref.guard()
    with block:
        assert "bad" == block.judge("bad")
    with block:
        assert "good" == block.judge("good")

    assert (2, 1) == (ref.status().successes_total, ref.status().failures_total)
    assert FaultKind.DOWNSTREAM is ref.status().last_failure.kind


def test_a_judgement_is_of_one_use(registry):
    """A block that is used again, and judges nothing this time, is a success."""
    block = breaker("provider", CONFIG, classify_result=judging).guard()
    with block:
        block.judge("bad")
    with block:
        pass
    status = registry.get("provider").status()

    assert (1, 1) == (status.successes_total, status.failures_total)


def test_nothing_to_judge_by(ref):
    """A reference without `classify_result` says so, in either sort of block."""
    for block in (ref.breaker.guard(), OwnBlock(ref._kit(ref.breaker))):
        with pytest.raises(RuntimeError, match="^this guard judges no values: give the reference a classify_result=$"):
            block.judge("x")


def test_a_guard_is_not_pickled(ref):
    """It belongs to a running block."""
    with pytest.raises(TypeError, match="^a guard belongs to a running block: it can't be pickled$"):
        pickle.dumps(ref.guard())


def test_a_block_is_a_context_manager_of_some_sort():
    """The base knows neither how to enter nor how to leave."""
    with pytest.raises(NotImplementedError):
        Block().__enter__()
    with pytest.raises(NotImplementedError):
        Block().__exit__(None, None, None)


def test_a_call_under_the_breaker(ref):
    """`call` and `acall` are a block around a function."""

    async def fetch(value, *, key):
        return value, key

    assert [1, 2] == ref.breaker.call(sorted, [1, 2])
    assert [2, 1] == ref.breaker.call(sorted, [1, 2], reverse=True)
    assert (1, 2) == asyncio.run(ref.breaker.acall(fetch, 1, key=2))
    assert (1, 2) == asyncio.run(ref.breaker.call(fetch, 1, key=2))
    assert 4 == ref.status().successes_total
