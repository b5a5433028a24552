"""I19: pickle, spawn and fork."""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading

import pytest
import tenacity
from forking import in_child, needs_fork

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    BulkheadFullError,
    CircuitOpenError,
    CircuitState,
    ConfigurationError,
    Consecutive,
    FailureRate,
    Fault,
    FaultFlag,
    FaultKind,
    OnOpen,
    OnReject,
    Registry,
    RejectedError,
    ResilienceError,
    TimeoutExceeded,
    breaker,
    bulkhead,
    compose,
    default_registry,
    idempotent,
    retry,
    timeout,
    use_registry,
)

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def through(thing, protocol):
    return pickle.loads(pickle.dumps(thing, protocol))


ERRORS = [
    ConfigurationError("a must be > 0", "b must be < 1"),
    RejectedError("api", 3.5),
    CircuitOpenError("api", 3.5),
    CircuitOpenError("api"),
    CircuitOpenError("api", None),
    BulkheadFullError("pool"),
    BulkheadFullError("pool", 1.0),
    TimeoutExceeded("budget", 30.0),
    TimeoutExceeded("attempt", 0.5),
    ResilienceError("x"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_errors(error, protocol):
    """Section 10: picklable on every protocol with all fields."""
    back = through(error, protocol)

    assert type(error) is type(back)
    assert str(error) == str(back)
    assert vars(error) == vars(back)
    assert error.args == back.args
    assert error.fault_kind is back.fault_kind


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_keep_notes_and_survive_copy(protocol):
    """Section 10: notes go along; copy works too."""
    error = CircuitOpenError("api", 2.0)
    error.add_note("note")
    assert ["note"] == through(error, protocol).__notes__
    assert ("api", 2.0) == (copy.copy(error).name, copy.deepcopy(error).retry_after)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_raised_errors(registry, protocol):
    """Section 10: real ones, as they are raised."""
    fn = breaker("api", BreakerConfig())(lambda: None)
    registry.get("api").force_open("drill", seconds=5)
    with pytest.raises(CircuitOpenError) as caught:
        fn()
    back = through(caught.value, protocol)
    assert (caught.value.name, caught.value.retry_after) == (back.name, back.retry_after)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "config",
    [
        BreakerConfig(),
        BreakerConfig.cloud(),
        BreakerConfig(Consecutive(3, within=5), trip_on_status={401}, answered="ignore", shadow=True),
        Consecutive(3),
        FailureRate(),
        BulkheadConfig(3),
        Fault(FaultKind.TRANSIENT, {FaultFlag.UNSENT}, status=503, retry_after=3.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values(config, protocol):
    """I19: configurations are values."""
    assert config == through(config, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_policies(registry, protocol):
    """I19: policies and references pickle as name and config."""
    for policy in (
        retry(2, idempotent=True),
        retry(3, wait=tenacity.wait_fixed(2), stop=tenacity.stop_after_delay(5)),
        timeout(5, per_attempt=2),
        bulkhead("pool", max_in_flight=3, wait=1, on_reject=OnReject.BYPASS, fallback=7),
        bulkhead(max_in_flight=3),
        breaker("api", BreakerConfig(cooldown=7), on_open=OnOpen.BYPASS, fallback=7),
        breaker("api"),
    ):
        back = through(policy, protocol)
        assert type(policy) is type(back)
        # Addresses and the registry are the process's own.
        shown, again = (re.sub(r" at 0x\w+|, registry=.*", "", repr(one)) for one in (policy, back))
        assert shown == again


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reference_with_a_guard_behind_it(registry, protocol):
    """I19: a reference that has been used pickles as well."""
    ref = breaker("api", BreakerConfig(cooldown=7))
    with ref.guard():
        pass
    back = through(ref, protocol)
    assert ("api", 7.0) == (back.name, back.config.cooldown)
    with back.guard():
        pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unpickled_reference_means_the_same_breaker(registry, protocol):
    """I19: by name, in the registry of the process that reads it."""
    ref = breaker("api", BreakerConfig(cooldown=7))
    ref.force_open("drill")
    assert through(ref, protocol).is_open()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_policy_set(registry, protocol):
    """I19: a composed set is a policy value too."""
    careful = compose(retry(2, wait=0, idempotent=True), breaker("api", BreakerConfig()))
    careful.call(len, "abc")
    assert 3 == through(careful, protocol).call(len, "abc")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_breaker_by_name(protocol):
    """I19: breakers by name."""
    name = f"pickled{protocol}"
    shared = default_registry().breaker(name, BreakerConfig(cooldown=7))
    assert shared is through(shared, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keyed_breakers_pickle_by_name_and_key(protocol):
    """I19: the same one where the family is; elsewhere the family comes with its settings."""
    name = f"pickled-family{protocol}"
    family = default_registry().family(name, ("provider", "model"), BreakerConfig(cooldown=7), max_keys=5)
    shared = family["openai", "gpt"]
    assert shared is through(shared, protocol) is copy.deepcopy(shared)
    assert family[None] is through(family[None], protocol)
    status = shared.status()
    assert status == through(status, protocol)
    assert {"provider": "openai", "model": "gpt"} == dict(through(status, protocol).labels)
    with pytest.raises(TypeError):
        through(status, protocol).labels["provider"] = "another"

    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(default_registry()._breakers, name)
        other = through(pickle.loads(pickle.dumps(shared, protocol)), protocol)
        made = default_registry().get_family(name)
        assert (("provider", "model"), BreakerConfig(cooldown=7), 5) == (made.labels, made.config, made.max_keys)
        assert other is made["openai", "gpt"] is not shared


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keyed_policies_pickle(registry, protocol):
    """I19: policies as name and config, with their key."""
    for policy in (
        breaker("llm", BreakerConfig(), key=("provider", "model")),
        bulkhead("llm", max_in_flight=2, key="model"),
    ):
        assert policy == through(policy, protocol)
    assert registry.get_family("llm") is through(breaker("llm", key=("provider", "model")), protocol).family


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_families_refuse(registry, protocol):
    """I19: families, and the keyed breakers of a registry that nobody could find."""
    family = registry.family("llm", labels="provider")
    rooms = registry.bulkhead_family("llm", BulkheadConfig(1), labels="provider")
    for thing in (family, rooms, family["a"], family["a"].guard()):
        with pytest.raises(TypeError, match="belongs to"):
            pickle.dumps(thing, protocol)
        with pytest.raises(TypeError, match="belongs to"):
            copy.deepcopy(thing)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_permits_guards_registries_refuse(registry, protocol):
    """I19: permits, guards, registries refuse."""
    shared = registry.breaker("api", BreakerConfig())
    own = breaker("api", classify_result=lambda value: None)
    for thing in (shared.try_acquire(), shared.guard(), breaker("api").guard(), own.guard(), registry):
        with pytest.raises((TypeError, pickle.PicklingError, ConfigurationError)):
            pickle.dumps(thing, protocol)
        with pytest.raises((TypeError, pickle.PicklingError, ConfigurationError)):
            copy.deepcopy(thing)


@breaker("module-level", BreakerConfig())
def module_level(arg):
    return arg


@retry(2, wait=0)
@idempotent
async def module_level_async(arg):
    return arg


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_module_level_functions_by_name(protocol, monkeypatch):
    """Issue 2, Build 6: pickling of module-level decorated functions by name."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[module_level.__module__])
    assert module_level is through(module_level, protocol)
    assert module_level_async is through(module_level_async, protocol)
    assert 3 == through(functools.partial(module_level, 3), protocol)()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_status_pickles(registry, protocol):
    """I19: a status is a record."""
    status = registry.breaker("api", BreakerConfig()).status()
    assert status.as_dict() == through(status, protocol).as_dict()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_pickle(registry, events, protocol):
    """I19, section 12: events are frozen records of plain fields."""
    registry.breaker("api", BreakerConfig()).force_open("drill", actor="ann")
    assert events == through(events, protocol)


@pytest.mark.parametrize("word", [FaultKind.TRANSIENT, CircuitState.OPEN, OnOpen.BYPASS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_enum_members_stay_themselves(word, protocol):
    """I19: members are compared by identity."""
    assert word is through(word, protocol)
    assert word is copy.deepcopy(word)


# ------------------------------------------------------------------------------------------ fork
@needs_fork
def test_bulkhead_starts_full_in_the_child(registry):
    """I19: in a forked child a bulkhead starts full (of free slots)."""
    pool = registry.bulkhead("pool", BulkheadConfig(2))
    other = bulkhead("pool")(lambda: "in")

    def check():
        assert 0 == pool.in_flight, pool.in_flight
        assert "in" == other()
        assert 0 == pool.in_flight, pool.in_flight

    @bulkhead("pool")
    def one():
        @bulkhead("pool")
        def two():
            return in_child(check)

        return two()

    assert "ok" == one()


@needs_fork
def test_slots_held_across_a_fork_do_not_overfill_the_child(registry):
    """I8: a call that was in flight at the fork ends in the child too, without a slot too many."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    report = []

    @bulkhead("pool")
    def fn():
        def check():
            pass

        # The child unwinds this very call: it must not give back a slot that the reset gave already.
        pid = os.fork()
        if pid:
            report.append(pid)
        return pid

    reading, writing = os.pipe()
    pid = fn()
    if pid == 0:
        try:
            fits = 0

            def deeper():
                nonlocal fits
                fits += 1
                inner()

            inner = bulkhead("pool")(deeper)
            try:
                inner()
            except BulkheadFullError:
                pass
            os.write(writing, f"{fits} {pool.in_flight}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    text = os.read(reading, 100).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    assert "1 0" == text


@needs_fork
def test_parents_probe_is_not_the_childs(registry, clock, trips_at):
    """I19: the parent's probe is not the child's: the child may probe at once."""
    shared = registry.breaker("api", trips_at(1, cooldown=30))
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
    clock.advance(30)
    probe = shared.try_acquire()

    def check():
        assert not shared.is_open(), "is_open"
        mine = shared.try_acquire()
        assert mine.probe
        shared.on_success(mine)
        assert CircuitState.CLOSED is shared.state, shared.state
        status = shared.status()
        assert status.probes_started == status.probes_succeeded + status.probes_failed + status.probes_released, status

    assert "ok" == in_child(check)
    shared.on_success(probe)
    assert CircuitState.CLOSED is shared.state


@needs_fork
def test_state_goes_along_into_the_child(registry, clock, trips_at):
    """Section 4: in memory, per process: the child starts from what the parent knew."""
    shared = registry.breaker("api", trips_at(1, cooldown=30))
    shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)

    def check():
        assert shared.is_open()
        shared.reset()

    assert "ok" == in_child(check)
    assert shared.is_open()


@needs_fork
def test_fork_while_another_thread_is_in_the_critical_section(registry, trips_at, monkeypatch):
    """I19: a lock held by a thread that is not in the child never hangs it (the log's stream has locks of its own)."""
    monkeypatch.setattr(logging.getLogger("resilience"), "disabled", True)
    shared = registry.breaker("api", trips_at(3))
    fn = breaker("api")(lambda: 1)
    stop = threading.Event()

    def hammer():
        while not stop.is_set():
            try:
                shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
            except CircuitOpenError:
                shared.reset()

    threads = [threading.Thread(target=hammer, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()

    def check():
        for _ in range(20):
            if shared.is_open():
                shared.reset()
            shared.on_failure(shared.try_acquire(), FaultKind.TRANSIENT)
        shared.reset()
        fn()

    try:
        for _ in range(15):
            assert "ok" == in_child(check)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)


@needs_fork
def test_waiters_of_the_parent_are_not_in_the_childs_line(registry):
    """I19: the line is empty in the child."""
    pool = registry.bulkhead("pool", BulkheadConfig(1))
    leave = threading.Event()
    holder = threading.Thread(target=bulkhead("pool")(lambda: leave.wait(5)), daemon=True)
    holder.start()
    waiter = threading.Thread(target=bulkhead("pool", wait=4)(lambda: None), daemon=True)
    gate = threading.Event()
    while pool.in_flight != 1:
        gate.wait(0.001)
    waiter.start()
    while pool.waiting != 1:
        gate.wait(0.001)

    def check():
        assert 0 == pool.waiting, pool.waiting
        assert "in" == bulkhead("pool")(lambda: "in")()

    try:
        assert "ok" == in_child(check)
    finally:
        leave.set()
        holder.join(5)
        waiter.join(5)


@needs_fork
def test_worker_threads_start_anew_in_the_child(registry):
    """I19: workers are threads of the parent; the child makes its own."""
    from resilience import interruptible

    @timeout(5)
    @interruptible(max_workers=2)
    def fn():
        return "fine"

    assert "fine" == fn()
    assert "fine" == fn()

    def check():
        for _ in range(5):
            assert "fine" == fn()

    assert "ok" == in_child(check)


@needs_fork
def test_fork_inside_a_worker(registry):
    """I19: a fork from inside a worker thread harms neither side."""
    from resilience import interruptible

    def check():
        assert "fine" == quick()

    @timeout(5)
    @interruptible(max_workers=2)
    def quick():
        return "fine"

    @timeout(5)
    @interruptible
    def fn():
        return in_child(check)

    assert "ok" == fn()


@needs_fork
def test_async_timer_in_the_child(registry):
    """I19: a timed async function works in a child that makes a loop of its own."""

    @timeout(0.01)
    async def fn(hangs):
        if hangs:
            await asyncio.Event().wait()
        return "fine"

    assert "fine" == asyncio.run(fn(False))

    def check():
        assert "fine" == asyncio.run(fn(False))
        try:
            asyncio.run(fn(True))
        except TimeoutExceeded:
            return
        raise AssertionError("no timeout")

    assert "ok" == in_child(check)


@needs_fork
def test_default_registry_reacts_to_a_fork_too():
    """I19: every registry that lives is told."""
    with use_registry(Registry()) as mine:
        pools = [
            default_registry().bulkhead("fork-default", BulkheadConfig(1)),
            mine.bulkhead("fork-mine", BulkheadConfig(1)),
        ]

        def check():
            assert [0, 0] == [pool.in_flight for pool in pools]

        @bulkhead("fork-default", registry=default_registry())
        def outer():
            return bulkhead("fork-mine")(lambda: in_child(check))()

        assert "ok" == outer()


def test_spawned_child_gets_references_by_name(tmp_path):
    """I19: spawn: a reference and errors cross a process pool."""
    program = tmp_path / "spawned.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor
            from resilience import BreakerConfig, CircuitOpenError, breaker

            @breaker("spawned", BreakerConfig(cooldown=7))
            def call(arg):
                return arg * 2

            def refuse(ref):
                ref.force_open("drill", seconds=5)
                with ref.guard():
                    pass

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    assert pool.submit(call, 21).result(20) == 42
                    try:
                        pool.submit(refuse, breaker("spawned")).result(20)
                    except CircuitOpenError as exc:
                        assert exc.name == "spawned", exc.name
                        assert 4 < exc.retry_after <= 5
                    else:
                        raise AssertionError("no refusal")
                    assert not breaker("spawned").is_open()
                print("ok")
            """
        )
    )
    ran = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (0, "ok\n") == (ran.returncode, ran.stdout), ran.stderr


@needs_fork
def test_events_are_delivered_in_the_child_although_the_parents_thread_was_delivering(registry):
    """I19, section 12: a thread that was delivering at the fork is not in the child; events must flow there all the same."""
    shared = registry.breaker("api", BreakerConfig())
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def sink(event):
        seen.append(event.reason)
        if event.reason == "block":
            inside.set()
            leave.wait(5)

    registry.subscribe(sink)
    thread = threading.Thread(target=shared.force_open, args=("block",), daemon=True)
    thread.start()
    assert inside.wait(5)

    def check():
        shared.force_open("child")
        assert "child" in seen, seen

    try:
        assert "ok" == in_child(check)
    finally:
        leave.set()
        thread.join(5)
