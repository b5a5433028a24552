"""Whatever became of a call: its arguments die with its exception, without any help of the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest

from resilience import BreakerConfig, Consecutive, OnOpen, breaker, bulkhead, retry, timeout


class Payload:
    pass


class WeakError(ConnectionError):
    """A class of Python's own takes weak references."""


def down():
    return ConnectionError("down")


def stack(*, timed=False, failures=9, attempts=2, **options):
    policies = [
        bulkhead("room", max_in_flight=8),
        retry(attempts, wait=0),
        breaker("provider", BreakerConfig(Consecutive(failures)), **options),
    ]
    return [*policies, timeout(30)] if timed else policies


def single():
    return [breaker("provider", BreakerConfig(Consecutive(9)))]


def keyed():
    return [
        bulkhead("rooms", max_in_flight=8, key="key"),
        retry(2, wait=0),
        breaker("providers", BreakerConfig(Consecutive(9)), key=("second", "key")),
    ]


def keyed_in_full():
    """Not on the straight path, and without a key that could be read."""
    return [breaker("providers", BreakerConfig(Consecutive(9)), key=lambda *args, **kwargs: args, account="call")]


SCRIPTS = {
    "succeeded": lambda parity: ["fine"],
    "failed": lambda parity: [TypeError("bug")],
    "exhausted": lambda parity: [down(), down()],
    "repeated": lambda parity: [down(), "fine"],
    "interrupted": lambda parity: [KeyboardInterrupt()],
    "interrupted later": lambda parity: [down(), KeyboardInterrupt()],
}


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def call_with_payload(stage, remote):
    payload = Payload()
    reference = weakref.ref(payload)
    try:
        await stage.invoke(remote, payload)
    except BaseException:
        pass
    del payload
    return reference() is None


def all_die(parity, policies, script, prepare=lambda stage: None):
    died = {}

    async def scenario(stage):
        remote = stage.remote(script(parity), *policies(), remember=False)
        prepare(stage)
        died[str(stage.way)] = await call_with_payload(stage, remote)

    parity(scenario)
    return died


@pytest.mark.parametrize(
    "policies",
    [stack, lambda: stack(timed=True), single, keyed, keyed_in_full],
    ids=["stack", "timed", "single", "keyed", "keyed in full"],
)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_arguments_die_with_the_call(parity, no_collector, policies, script):
    """Success, failure, retry, interruption: no frame keeps what it was given."""
    assert {True} == set(all_die(parity, policies, script).values())


def test_arguments_of_a_refused_call_die(parity, no_collector):
    """A refusal keeps nothing either."""
    died = all_die(parity, stack, lambda parity: [], lambda stage: stage.breaker().force_open("maintenance"))

    assert {True} == set(died.values())


def test_arguments_of_a_bypassed_call_die(parity, no_collector):
    """Nor does a fallback's call."""
    died = all_die(
        parity,
        lambda: stack(on_open=OnOpen.BYPASS),
        lambda parity: [],
        lambda stage: stage.breaker().force_open("maintenance"),
    )

    assert {True} == set(died.values())


def test_the_exception_dies_with_its_handler(parity, no_collector):
    """An exhausted retry keeps none of its exceptions."""
    died = {}

    async def scenario(stage):
        references = []

        async def fail(stage):
            error = WeakError("down")
            references.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error

        remote = stage.remote([fail, fail], *stack())
        try:
            await stage.invoke(remote)
        except WeakError:
            pass
        died[str(stage.way)] = [reference() is None for reference in references]

    parity(scenario)

    assert {(True, True)} == {tuple(found) for found in died.values()}
