"""Section 9: keyed families: one breaker per key, bounded, with `__other__` for the rest."""

from __future__ import annotations

import asyncio
import functools
import logging
import pickle
import threading
from enum import Enum

import pytest

from resilience import (
    BreakerConfig,
    BreakerMode,
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
    breaker,
    bulkhead,
    compose,
    default_registry,
    describe,
    interruptible,
    retry,
    timeout,
    use_registry,
)
from resilience.events import Bypassed, ConfigConflict, KeyOverflow, Rejected, StateChanged
from resilience.testing import ManualClock, use_clock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
ONE = BreakerConfig(Consecutive(1), cooldown=30)
DOWN = FaultKind.TRANSIENT


@pytest.fixture
def family(registry):
    """`llm` by provider and model, one failure opens, three keys at most."""
    return registry.family("llm", labels=("provider", "model"), config=ONE, max_keys=3)


@pytest.fixture
def told(registry):
    """What is told of keys that are none."""
    seen = []
    registry.subscribe(seen.append, KeyOverflow)
    return seen


def states(family):
    """Key, state and successes of every breaker."""
    return {key: (status.state.value, status.successes_total) for key, status in family.status_all().items()}


def fail(shared, times=1):
    for _ in range(times):
        shared.on_failure(shared.try_acquire(), DOWN)


def fill(family, *, rounds=6):
    """Ask for more keys than there is room for, until every idle one must have made room."""
    for number in range(rounds * family.max_keys):
        _ = family["filler", f"m{number}"]


# ------------------------------------------------------------------------------------------ calls
def test_one_breaker_per_key(env, remote):
    """A provider that is down stops the calls to it, and no others."""
    provider = remote(ConnectionError)
    fn = breaker("llm", ONE, key="key")(env.function(provider))
    env.fails(fn, key="down")

    assert isinstance(env.fails(fn, key="down"), CircuitOpenError)
    assert ["ok", "ok"] == [env.call(fn, key="up"), env.call(fn, key="up")]
    assert 3 == provider.calls
    assert {("down",): ("open", 0), ("up",): ("closed", 2)} == states(env.registry.get_family("llm"))


def test_a_key_of_two_parts(env, remote):
    """A positional parameter and one that is given by name only."""
    fn = breaker("llm", ONE, key=("arg", "key"))(env.function(remote(ConnectionError)))
    env.fails(fn, "openai", key="gpt-4")

    assert "ok" == env.call(fn, "openai", key="gpt-5") == env.call(fn, arg="azure", key="gpt-4")
    assert ("arg", "key") == env.registry.get_family("llm").labels
    assert ["openai,gpt-4"] == [
        ",".join(key) for key, (state, _) in states(fn.resilience.family).items() if state == "open"
    ]


def test_a_key_by_a_function(env, remote):
    """It is called with the call's arguments, and gives a part or a tuple of them."""
    fn = breaker("llm", ONE, key=lambda arg, key: (arg.upper(), key))(env.function(remote()))
    env.call(fn, "openai", key="gpt-4")

    assert {("OPENAI", "gpt-4"): ("closed", 1)} == states(env.registry.get_family("llm"))
    assert ("key_1", "key_2") == env.registry.get_family("llm").labels


def test_a_whole_life(env, remote):
    """Trip, refusal, probe, close: as of any breaker."""
    fn = breaker("llm", ONE, key="key")(env.function(remote(ConnectionError)))
    env.fails(fn, key="a")
    refusal = env.fails(fn, key="a")
    env.advance(30)

    assert ("llm", 30.0) == (refusal.name, refusal.retry_after)
    assert "ok" == env.call(fn, key="a")
    assert ("closed", 1) == states(env.registry.get_family("llm"))[("a",)]


def test_a_success_ends_a_streak(env, remote, trips_at):
    """Failures of one key are counted together, and not with those of another."""
    provider = remote(*[ConnectionError, "ok", ConnectionError, ConnectionError])
    fn = breaker("llm", trips_at(2), key="key")(env.function(provider))
    for _ in range(3):
        env.fails(fn, key="a")
    env.fails(fn, key="b")

    assert [("closed", 1), ("closed", 0)] == list(states(env.registry.get_family("llm")).values())


def test_a_window(env, remote):
    """Each key has its own."""
    config = BreakerConfig(FailureRate(0.5, window=30, bucket=3, min_calls=4))
    fn = breaker("llm", config, key="key")(env.function(remote("ok", "ok", ConnectionError, ConnectionError)))
    for _ in range(4):
        env.fails(fn, key="a")
    env.call(fn, key="b")

    assert {("a",): ("open", 2), ("b",): ("closed", 1)} == states(env.registry.get_family("llm"))


def test_the_retry_of_a_call_asks_the_breaker_of_its_key(env, remote):
    """Also when another key's is open."""
    env.registry.family("llm", labels="key", config=BreakerConfig(Consecutive(3)))["down"].force_open("drill")
    fn = compose(retry(3, wait=0, idempotent=True), breaker("llm", key="key"))(
        env.function(remote(ConnectionError, ConnectionError))
    )

    assert "ok" == env.call(fn, key="up")
    assert ("closed", 1) == states(env.registry.get_family("llm"))[("up",)]
    assert 2 == env.registry.get("llm[up]").status().failures_total


def test_a_retry_ends_where_the_key_opens(env, remote):
    """The last real exception leaves, with a note that names the family and no key."""
    fn = compose(retry(5, wait=1, idempotent=True), breaker("llm", ONE, key="key"))(
        env.function(remote(then=ConnectionError))
    )
    error = env.fails(fn, key="secret")

    assert isinstance(error, ConnectionError)
    assert "circuit llm is open" in error.__notes__[0]
    assert "secret" not in error.__notes__[0]


@pytest.mark.parametrize("account", ["attempt", "call"])
def test_account(env, remote, account):
    """One verdict for a whole call, on the breaker of its key."""
    fn = compose(
        retry(2, wait=0, idempotent=True), breaker("llm", BreakerConfig(Consecutive(9)), key="key", account=account)
    )(env.function(remote(ConnectionError, ConnectionError)))
    env.fails(fn, key="a")

    assert {"attempt": 2, "call": 1}[account] == env.registry.get("llm[a]").status().failures_total


def test_a_shadow_that_judges_whole_calls(env, remote):
    """The probe is the call's, whatever the shadow would have said to its other attempts."""
    config = BreakerConfig(Consecutive(1), cooldown=30, shadow=True)
    fn = breaker("llm", config, key="key", account="call")(env.function(remote(then=ConnectionError)))
    fn = retry(2, wait=0, idempotent=True)(fn)
    env.fails(fn, key="a")
    env.advance(30)
    env.fails(fn, key="a")
    status = env.registry.get("llm[a]").status()

    assert (OPEN, 1, 1, 0) == (status.state, status.probes_started, status.probes_failed, status.probes_released)


def test_unless(env, remote):
    """Such a call has no key, and makes no breaker."""
    fn = breaker("llm", ONE, key="key", unless=lambda arg=None, *, key=None: key == "own")(
        env.function(remote(then=ConnectionError))
    )
    env.fails(fn, key="own")

    assert {} == states(env.registry.get_family("llm"))


def test_classify(env, remote):
    """A call site's own rules, for every key."""
    fn = breaker("llm", ONE, key="key", classify=lambda error: DOWN)(env.function(remote(KeyError)))
    env.fails(fn, key="a")

    assert OPEN is env.registry.get("llm[a]").state


def test_classify_result(env, remote):
    """A returned fault counts on the breaker of the key."""
    fn = breaker("llm", ONE, key="key", classify_result=lambda value: DOWN if value == "bad" else None)(
        env.function(remote("bad", "good"))
    )
    env.call(fn, key="a")
    env.call(fn, key="b")

    assert {("a",): ("open", 0), ("b",): ("closed", 1)} == states(env.registry.get_family("llm"))


def test_slow_calls_of_a_key(env):
    """A key that answers too late opens, and no other."""
    trip = FailureRate(0.5, window=30, bucket=3, min_calls=2, slow_call=5, slow_rate=0.5)
    took = {"slow": 6, "quick": 1}

    def body(arg, key=None):
        env.advance(took[key])
        return "ok"

    fn = breaker("llm", BreakerConfig(trip), key="key")(env.function(body))
    for key in ("slow", "quick") * 2:
        env.fails(fn, key=key)

    assert {("slow",): ("open", 2), ("quick",): ("closed", 2)} == states(env.registry.get_family("llm"))


def test_a_ramp_of_a_key(env, remote):
    """After its probe a key comes back slowly, and is not forgotten meanwhile."""
    family = env.registry.family(
        "llm", labels="key", config=BreakerConfig(Consecutive(1), cooldown=30, ramp=10), max_keys=2
    )
    fn = breaker("llm", key="key")(env.function(remote(ConnectionError)))
    env.fails(fn, key="a")
    env.advance(30)
    env.call(fn, key="a")
    ramping = family["a"]
    for number in range(12):
        _ = family[f"filler{number}"]

    assert (CLOSED, ramping) == (ramping.state, family["a"])


def test_bypass(env, remote):
    """The fallback answers where the breaker of the key is open."""
    seen = []
    env.registry.subscribe(seen.append, Bypassed)
    fn = breaker("llm", ONE, key="key", on_open=OnOpen.BYPASS, fallback="instead")(
        env.function(remote(ConnectionError))
    )
    env.fails(fn, key="a")

    assert ["instead", "ok"] == [env.call(fn, key="a"), env.call(fn, key="b")]
    assert (1, 1) == (env.registry.get("llm[a]").status().bypassed_total, len(seen))


def test_the_whole_stack(env, remote):
    """All four policies over keys, in one wrapper."""
    policies = [
        bulkhead("llm", max_in_flight=2, key="key"),
        retry(2, wait=0, idempotent=True),
        breaker("llm", BreakerConfig(Consecutive(3)), key="key"),
    ]
    if env.is_async:
        policies.append(timeout(30))
    fn = compose(*policies)(env.function(remote(ConnectionError)))

    assert ["ok", "ok"] == [env.call(fn, key="a"), env.call(fn, key="b")]
    assert {("a",): ("closed", 1), ("b",): ("closed", 1)} == states(env.registry.get_family("llm"))
    assert [(0, 2), (0, 2)] == [(room.in_flight, room.max_in_flight) for room in fn.resilience.bulkhead_family]


def test_a_nested_call_shares_the_probe_of_its_key(env, remote):
    """Inside a probe of one key, a call of the same key is admitted, and one of another key asks its own breaker."""
    shared = env.registry.family("llm", labels="key", config=ONE)
    inner = breaker("llm", key="key")(remote())
    seen = []

    def body(arg, key=None):
        seen.append((inner(key="a"), inner(key="b")))
        return "outer"

    fn = breaker("llm", key="key")(env.function(body))
    fail(shared["a"])
    env.advance(30)

    assert "outer" == env.call(fn, key="a")
    assert ([("ok", "ok")], CLOSED, 1) == (seen, shared["a"].state, shared["a"].status().probes_succeeded)


def test_one_exception_counts_once_per_key(env):
    """The breakers of two keys are two breakers."""
    inner = breaker("llm", BreakerConfig(), key="key")(env.function(_raise_down))
    if env.is_async:

        async def body(arg=None, *, key=None):
            return await inner(key="a")

    else:

        def body(arg=None, *, key=None):
            return inner(key="a")

    outer = breaker("llm", key="key")(body)
    env.fails(outer, key="a")
    env.fails(outer, key="b")

    assert [2, 1] == [env.registry.get(f"llm[{key}]").status().failures_total for key in "ab"]


def _raise_down(arg=None, key=None):
    raise ConnectionError("down")


def test_a_reference_finds_a_family_that_is_registered_later(env, remote):
    """Like any reference, at its first call."""
    fn = breaker("llm", key="key")(env.function(remote(ConnectionError)))
    assert env.registry.get_family("llm") is None
    env.registry.family("llm", labels=("provider",), config=ONE)
    env.fails(fn, key="a")

    assert (("provider",), OPEN) == (env.registry.get_family("llm").labels, env.registry.get("llm[a]").state)
    assert "ok" == env.call(fn, key="b") == env.call(fn, key="b")


def test_a_reference_to_nothing_registers_the_defaults(env, remote):
    """With the parameters' names as labels."""
    fn = breaker("llm", key=("arg", "key"))(env.function(remote()))
    env.call(fn, "openai", key="gpt")

    assert (BreakerConfig(), ("arg", "key")) == (
        env.registry.get_family("llm").config,
        env.registry.get_family("llm").labels,
    )


def test_async_cancel_says_nothing(registry):
    """The caller gave up: neutral for the key's breaker."""

    @breaker("llm", ONE, key="provider")
    async def ask(provider):
        await asyncio.Event().wait()

    async def main():
        task = asyncio.ensure_future(ask("a"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert (CLOSED, 0) == (registry.get("llm[a]").state, registry.get("llm[a]").status().failures_total)


def test_a_deadline_that_runs_out_counts_on_the_key(registry, clock):
    """P17: a provider that hangs opens its own breaker."""

    @timeout(5)
    @breaker("llm", ONE, key="provider")
    async def ask(provider):
        await clock.asleep(6)
        await asyncio.Event().wait()

    async def main():
        with pytest.raises(TimeoutError):
            await ask("a")

    asyncio.run(main())

    assert OPEN is registry.get("llm[a]").state


@pytest.mark.slow_sleep  # the worker is to be left behind
def test_a_worker_that_is_left_behind_counts_on_the_key(registry):
    """The straight path of a timeout on a thread."""
    leave = threading.Event()

    @timeout(0.02)
    @breaker("llm", ONE, key="provider")
    @interruptible
    def ask(provider):
        leave.wait(10)

    with pytest.raises(TimeoutError):
        ask("a")
    leave.set()

    assert OPEN is registry.get("llm[a]").state


def test_what_a_plain_function_returns_to_be_awaited(registry):
    """It is guarded by the breaker of the call's key."""

    async def later(provider):
        if provider == "down":
            raise ConnectionError("down")
        return provider

    @breaker("llm", ONE, key="provider")
    def ask(provider):
        return later(provider)

    async def main():
        with pytest.raises(ConnectionError):
            await ask("down")
        with pytest.raises(CircuitOpenError):
            await ask("down")
        return await ask("up")

    assert "up" == asyncio.run(main())


def test_streams(registry):
    """A generator function's items belong to the breaker of the key."""

    @bulkhead("llm", max_in_flight=1, key="provider")
    @breaker("llm", ONE, key="provider")
    def items(provider):
        yield 1
        if provider == "down":
            raise ConnectionError("down")
        yield 2

    with pytest.raises(ConnectionError):
        list(items("down"))
    with pytest.raises(CircuitOpenError):
        list(items("down"))

    assert [1, 2] == list(items("up"))
    first = items("up")
    assert 1 == next(first)
    with pytest.raises(BulkheadFullError):
        list(items("up"))
    assert [2] == list(first)


# ------------------------------------------------------------------------------------------ what can be decorated
def key_of_one_call(registry, name="llm"):
    """The key of the only call that has been made."""
    (key,) = [key for key, status in registry.get_family(name).status_all().items() if status.successes_total]
    return ",".join(key)


class Client:
    def __init__(self, provider):
        self.provider = provider

    @breaker("llm", ONE, key="model")
    def ask(self, prompt, model):
        return model

    @breaker("llm", ONE, key=lambda self, prompt, model: f"{self.provider}:{model}")
    def own(self, prompt, model):
        return model

    @breaker("llm", ONE, key="model")
    @classmethod
    def made(cls, model="default"):
        return model

    @breaker("llm", ONE, key="model")
    @staticmethod
    def free(model, /):
        return model

    def __call__(self, prompt, *, model="callable"):
        return model


def in_keywords(prompt, **options):
    return options


def two(provider, model):
    return provider, model


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


CALLABLES = {
    "a method": (lambda guard: Client.ask.__get__(Client("p")), ("hi", "gpt"), {}, "gpt"),
    "a method by name": (lambda guard: Client.ask.__get__(Client("p")), ("hi",), {"model": "gpt"}, "gpt"),
    "a class method": (lambda guard: Client.made, (), {}, "default"),
    "a static method": (lambda guard: Client.free, ("gpt",), {}, "gpt"),
    "a bound method": (lambda guard: guard(Client("p").__call__), ("hi",), {"model": "gpt"}, "gpt"),
    "a callable object": (lambda guard: guard(Client("p")), ("hi",), {}, "callable"),
    "an argument among the keywords": (lambda guard: guard(in_keywords), ("hi",), {"model": "gpt"}, "gpt"),
    "an argument that is missing": (lambda guard: guard(in_keywords), ("hi",), {}, "__other__"),
    "a partial": (lambda guard: guard(functools.partial(two, "openai")), ("gpt",), {}, "gpt"),
    "fixed by a partial": (lambda guard: guard(functools.partial(two, "openai", "gpt")), (), {}, "gpt"),
    "fixed by name": (lambda guard: guard(functools.partial(two, model="gpt")), ("openai",), {}, "gpt"),
    "a partial of a partial": (
        lambda guard: guard(functools.partial(functools.partial(two, "openai", "gpt"))),
        (),
        {},
        "gpt",
    ),
    "under a foreign wrapper": (lambda guard: guard(wrapped(two)), ("openai", "gpt"), {}, "gpt"),
    "a builtin that does not tell": (lambda guard: guard(functools.partial(dict)), (), {"model": "gpt"}, "gpt"),
}


@pytest.mark.parametrize("case", CALLABLES)
def test_whatever_can_be_called(case):
    """The parameter is found wherever it stands."""
    make, args, kwargs, key = CALLABLES[case]
    with use_registry(Registry()):
        fn = make(breaker("llm", ONE, key="model"))
    own = describe(fn).family
    before = dict(states(own))
    fn(*args, **kwargs)
    after = states(own)

    assert [key] == [",".join(name) for name in after if after[name] != before.get(name, ("closed", 0))]


def test_compose_call(registry):
    """Names are looked for among the parameters of whatever is called; one without them is refused."""
    careful = compose(breaker("llm", ONE, key="model"))

    assert ("openai", "gpt") == careful.call(two, "openai", "gpt")
    assert ("openai", "gpt") == careful.call(two, model="gpt", provider="openai")
    assert "gpt" == key_of_one_call(registry)
    assert "a" == careful.call(lambda model: model, "a")
    with pytest.raises(ConfigurationError, match="key must name parameters"):
        careful.call(len, "abc")


def test_a_key_function_through_a_proxy(registry):
    """It never sees the callable itself."""
    guarded = breaker("llm", ONE, key=lambda prompt, *, model="none": model)(Client("p"))
    guarded("hi", model="gpt")

    assert "gpt" == key_of_one_call(registry)
    assert "key=test_a_key_function_through_a_proxy.<locals>.<lambda>," in str(describe(guarded))


@pytest.mark.parametrize("key", ["modell", ("provider", "modell"), ("x", "y")])
def test_a_name_that_is_no_parameter(registry, key):
    """Told when the function is decorated, for each policy."""
    for policy in (breaker("llm", key=key), bulkhead("room", max_in_flight=1, key=key)):
        for target in (two, functools.partial(two, "openai")):
            with pytest.raises(
                ConfigurationError, match=r"key must name parameters of .*two.*it has no (modell|x and no y)"
            ):
                policy(target)


# ------------------------------------------------------------------------------------------ what is no key
class Provider(Enum):
    OPENAI = "openai"


class Touchy:
    """Raises whatever is asked of it."""

    def _refuse(self, *ignored):
        raise RuntimeError("do not touch")

    __hash__ = __eq__ = __str__ = __repr__ = __bool__ = _refuse


NO_KEYS = [None, "", "a b", "x" * 257, b"a", 1.0, True, [], {}, Touchy, object()]


@pytest.mark.parametrize("part", NO_KEYS, ids=lambda part: type(part).__name__)
def test_what_is_no_key(env, remote, told, part):
    """Section 9: it goes to `__other__` with one event, and never raises into a call."""
    part = Touchy() if part is Touchy else part
    fn = breaker("llm", ONE, key="arg")(env.function(remote()))
    env.call(fn, "good")

    assert ["ok", "ok"] == [env.call(fn, part), env.call(fn, part)]
    assert {("good",): ("closed", 1), ("__other__",): ("closed", 2)} == states(env.registry.get_family("llm"))
    assert [("llm", "unsafe")] == [(event.name, event.reason) for event in told]


def test_equal_things_of_different_kinds(env, remote):
    """1 is a key, True and 1.0 are none, whoever came first."""
    fn = breaker("llm", ONE, key="arg")(env.function(remote()))
    for part in (True, 1, 1.0, 1, "1", Provider.OPENAI, "openai", True):
        env.call(fn, part)

    assert {("__other__",): ("closed", 3), ("1",): ("closed", 3), ("openai",): ("closed", 2)} == states(
        env.registry.get_family("llm")
    )


def test_a_function_that_raises(env, remote, told):
    """Its call shares `__other__`, and succeeds."""

    def no_key(arg=None, *, key=None):
        raise LookupError("no such model")

    fn = breaker("llm", ONE, key=no_key)(env.function(remote()))

    assert ["ok", "ok"] == [env.call(fn), env.call(fn)]
    assert (["raised"], {("__other__",): ("closed", 2)}) == (
        [event.reason for event in told],
        states(env.registry.get_family("llm")),
    )


def test_too_many_parts(env, remote, told):
    """Also of a family whose first key has said how many there are."""
    fn = breaker("llm", ONE, key=lambda arg, *, key=None: arg)(env.function(remote()))
    env.call(fn, ("a", "b"))
    for arg in ("a", ("a", "b", "c"), ()):
        env.call(fn, arg)

    assert {("a", "b"): ("closed", 1), ("__other__", "__other__"): ("closed", 3)} == states(
        env.registry.get_family("llm")
    )
    assert ["parts"] == [event.reason for event in told]


def test_the_shared_breaker_opens_for_all_of_them(env, remote):
    """Calls without a key of their own have one circuit together."""
    fn = breaker("llm", ONE, key="arg")(env.function(remote(ConnectionError)))
    env.fails(fn, "a b")

    assert isinstance(env.fails(fn, "c d"), CircuitOpenError)
    assert "ok" == env.call(fn, "fine")


def test_the_first_key_is_none(registry, remote):
    """`__other__` is there before anybody knows how many parts there are."""
    family = registry.family("llm", config=ONE)
    shared = family["a b"]
    assert ("__other__",) == shared.key
    assert ("openai", "gpt") == family["openai", "gpt"].key

    assert ("__other__", "__other__") == shared.key
    assert shared is family["__other__", "__other__"] is family.other is family.get("__other__", "__other__")


def test_what_the_log_says(registry, caplog):
    """One warning for each reason, without any text of the key."""
    family = registry.family("llm", labels=("provider",), max_keys=1)

    def refuse(provider):
        raise LookupError("secret")

    with caplog.at_level(logging.DEBUG, "resilience"):
        for _ in range(2):
            for key in ("fine", "secret", "se cret", ("se", "cret")):
                _ = family[key]
            breaker("llm", key=refuse)(lambda provider: None)("secret")
    lines = [record.getMessage() for record in caplog.records]

    assert (4, {"WARNING"}) == (len(lines), {record.levelname for record in caplog.records})
    assert not [line for line in lines if "cret" in line]
    assert all(line.startswith("'llm': ") and "__other__" in line for line in lines)
    assert "all 1 keys" in lines[0]


def test_a_count_of_all_of_them(registry):
    """The event comes once, the figure goes on."""
    family = registry.family("llm", labels=("provider",))
    for _ in range(3):
        _ = family[None]

    assert 3 == registry.hub.counts["key_overflow:llm"]


# ------------------------------------------------------------------------------------------ eviction
def test_a_family_is_bounded(family, told):
    """Section 9: at most `max_keys` keys."""
    fill(family)

    assert 3 == len(family) == len(list(family))
    assert {"full"} >= {event.reason for event in told}


def test_an_idle_key_makes_room(family):
    """One that has done nothing for a whole round; the new one takes its place."""
    idle = family["openai", "old"]
    fill(family)

    assert (None, True) == (family.get("openai", "old"), idle.status().mode is BreakerMode.RETIRED)
    assert idle is not family["openai", "old"]


def test_a_key_that_is_used_stays(family):
    """A success since the last look."""
    busy = family["openai", "busy"]
    for number in range(60):
        busy.on_success(busy.try_acquire())
        _ = family["filler", str(number)]

    assert busy is family["openai", "busy"]


def test_a_key_that_is_answered_stays(family):
    """A provider that says no is in use as well."""
    busy = family["openai", "busy"]
    for number in range(60):
        busy.on_failure(busy.try_acquire(), _client_fault())
        _ = family["filler", str(number)]

    assert busy is family["openai", "busy"]


def _client_fault():
    return Fault(FaultKind.DOWNSTREAM, frozenset({FaultFlag.CLIENT_FAULT}))


STAYS = {
    "open": fail,
    "half open": lambda shared: (fail(shared), shared._services.clock.advance(30), shared.try_acquire()),
    "forced": lambda shared: shared.force_open("drill"),
    "disabled": lambda shared: shared.disable(),
    "with settings of its own": lambda shared: shared.reconfigure(BreakerConfig(Consecutive(7))),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_is_not_closed_stays(family, clock, case):
    """Section 9: only idle CLOSED keys are evicted."""
    shared = family["openai", "gpt"]
    STAYS[case](shared)
    fill(family)

    assert shared is family["openai", "gpt"]


@pytest.mark.parametrize(
    ("trip", "lasts"),
    [(Consecutive(9), False), (Consecutive(9, within=60), True), (FailureRate(window=60, bucket=3), True)],
)
def test_a_failure_held_keeps_a_key(registry, clock, trip, lasts):
    """Until it counts no more."""
    family = registry.family("llm", labels=("provider", "model"), config=BreakerConfig(trip), max_keys=3)
    shared = family["openai", "gpt"]
    fail(shared)
    fill(family)
    assert shared is family["openai", "gpt"]
    if lasts:
        clock.advance(100)
    else:
        shared.on_success(shared.try_acquire())
    fill(family)

    assert family.get("openai", "gpt") is not shared


def test_a_shadow_makes_room(registry):
    """Its machine is closed and holds nothing."""
    family = registry.family("llm", labels=("provider", "model"), config=BreakerConfig(shadow=True), max_keys=3)
    shared = family["openai", "gpt"]
    shared.on_success(shared.try_acquire())
    fill(family)

    assert BreakerMode.RETIRED is shared.status().mode


def test_other_is_never_evicted(family):
    """It is no key."""
    other = family[None]
    fill(family)

    assert other is family[None] is family.other


def test_where_nobody_can_go_calls_share_other(family, told):
    """One event, whatever the number of keys."""
    for number in range(3):
        fail(family["openai", str(number)])
    shared = [family["openai", f"x{number}"] for number in range(20)]

    assert [family.other] * 20 == shared
    assert [("llm", "full", 3)] == [(event.name, event.reason, event.max_keys) for event in told]


def test_a_call_that_holds_an_evicted_breaker_finishes_late(family):
    """Section 9: its result is a figure of the breaker that has gone, and changes nothing."""
    old = family["openai", "gpt"]
    permits = [old.try_acquire(), old.try_acquire()]
    fill(family)
    old.on_failure(permits[0], ConnectionError("down"))
    old.on_success(permits[1])

    assert (2, 0, 0) == (old.status().late_results, old.status().failures_total, old.status().successes_total)
    assert CLOSED is old.state is family["openai", "gpt"].state


def test_an_evicted_breaker_lets_pass_and_counts_nothing(family):
    """Never two live breakers for one key that both open."""
    old = family["openai", "gpt"]
    fill(family)
    fail(old, 3)
    with old.guard() as permit:
        assert permit

    assert (CLOSED, False, 0, 0) == (old.state, old.is_open(), old.status().late_results, old.status().failures_total)
    assert not old.reset()
    old.enable()
    old.clear_state()
    assert BreakerMode.RETIRED is old.status().mode


def test_an_evicted_breaker_that_was_awake(family):
    """It has a history of its own, and goes all the same."""
    old = family["openai", "gpt"]
    fail(old)
    old.reset()
    permit = old.try_acquire()
    fill(family)
    old.on_failure(permit, ConnectionError("down"))

    assert (BreakerMode.RETIRED, 1, 1) == (old.status().mode, old.status().failures_total, old.status().late_results)


def test_an_operators_act_on_an_evicted_breaker(family):
    """It means the key: the one that has taken its place is forced, or disabled."""
    old = family["openai", "gpt"]
    fill(family)
    old.force_open("drill", seconds=60, actor="me")
    assert (CLOSED, OPEN) == (old.state, family["openai", "gpt"].state)
    old.disable(actor="me")

    assert BreakerMode.DISABLED is family["openai", "gpt"].status().mode
    old.reconfigure(BreakerConfig(Consecutive(7)))
    assert (ONE, BreakerConfig(Consecutive(7))) == (old.config, family["openai", "gpt"].config)


def test_the_end_of_an_operators_act_on_an_evicted_breaker(family):
    """Whoever forced a key by a breaker that he has kept can end it by the same; nothing is made for it."""
    old = family["openai", "gpt"]
    fill(family)
    old.enable()
    assert (False, None) == (old.reset(), family.get("openai", "gpt"))
    old.force_open("drill")
    old.enable(actor="me")
    assert CLOSED is family["openai", "gpt"].state
    old.force_open("drill")

    assert (True, CLOSED) == (old.reset(reason="done", actor="me"), family["openai", "gpt"].state)


def test_an_operators_act_on_one_that_is_about_to_be_taken_out(family):
    """As long as nobody has taken its place there is nothing to end."""
    old = family["openai", "gpt"]
    assert old.retire()
    old.enable()

    assert (False, old) == (old.reset(), family.get("openai", "gpt"))


def test_an_operators_act_where_there_is_no_room(registry):
    """It never means `__other__`, which many share."""
    family = registry.family("llm", labels=("provider",), config=ONE, max_keys=1)
    old = family["a"]
    for _ in range(4):
        _ = family["b"]
    assert old.retired
    fail(family["b"])
    old.force_open("drill")
    old.disable()

    assert CLOSED is family["a"].state
    assert family["a"] is family.other


def test_a_wrapper_looks_an_evicted_key_up_again(env, remote):
    """Its calls are counted on the new breaker."""
    fn = breaker("llm", ONE, key="key")(env.function(remote("ok", "ok", ConnectionError)))
    family = env.registry.get_family("llm")
    env.call(fn, key="a")
    old = family["a"]
    for number in range(6 * family.max_keys):
        _ = family[f"filler{number}"]
    assert old.retired
    env.call(fn, key="a")
    env.fails(fn, key="a")

    assert (OPEN, 1) == (family["a"].state, family["a"].status().successes_total)


def test_a_call_under_way_during_its_eviction(env):
    """It ends as it likes: late."""
    family = env.registry.family("llm", labels="key", config=ONE, max_keys=2)
    evicted = family["a"]

    def body(arg, key=None):
        for number in range(20):
            _ = family[f"filler{number}"]
        if arg == "fail":
            raise ConnectionError("down")
        return "ok"

    fn = breaker("llm", key="key")(env.function(body))
    env.call(fn, "succeed", key="a")
    assert (True, 1) == (evicted.retired, evicted.status().late_results)
    second = family["a"]
    assert isinstance(env.fails(fn, "fail", key="a"), ConnectionError)

    assert (True, 1, 0) == (second.retired, second.status().late_results, second.status().failures_total)


# ------------------------------------------------------------------------------------------ families
def test_reading_makes_nothing(family):
    """`get`, `in`, `len` and iteration find what is there."""
    assert (None, 0, [], False) == (family.get("a", "b"), len(family), list(family), ("a", "b") in family)
    assert (None, None, {}) == (family.get("a b", "c"), family.other, family.status_all())
    made = family["a", "b"]

    assert (made, made, 1, [made], True) == (
        family.get("a", "b"),
        family.get(("a", "b")),
        len(family),
        list(family),
        ("a", "b") in family,
    )


def test_a_single_label(registry):
    """Its key is given as it is."""
    family = registry.family("llm", labels="provider")

    assert family["openai"] is family[("openai",)] is family.get("openai")
    assert (("provider",), ("openai",), {"provider": "openai"}) == (
        family.labels,
        family["openai"].key,
        dict(family["openai"].labels),
    )


def test_status(family, clock):
    """Key and labels are told, and the moment it came into being."""
    clock.advance(5)
    status = family["openai", "gpt"].status()
    clock.advance(5)

    assert ("llm", ("openai", "gpt"), {"provider": "openai", "model": "gpt"}) == (
        status.name,
        status.key,
        dict(status.labels),
    )
    assert status.last_state_change == clock.time_ns() - 5_000_000_000
    assert status == family["openai", "gpt"].status()
    with pytest.raises(TypeError):
        status.labels["provider"] = "another"


def test_status_of_one_that_sleeps(family, monkeypatch):
    """By the system's clock it has no circuit of its own: its figures are as of any healthy breaker."""
    sleeping = family["openai", "gpt"]
    status = sleeping.status()

    assert sleeping.is_asleep
    assert (CLOSED, 0, 0, 0, None, None) == (
        status.state,
        status.successes_total,
        status.rejected_total,
        status.probes_started,
        status.opened_at,
        status.last_failure,
    )
    before = status.last_state_change
    sleeping.on_success(sleeping.try_acquire())
    assert (False, before, 1) == (
        sleeping.is_asleep,
        sleeping.status().last_state_change,
        sleeping.status().successes_total,
    )


def test_reset(family):
    """One by its key, or all of them."""
    for key in ("a", "b", "c"):
        fail(family["p", key])

    assert [True, False, False] == [family.reset("p", "a"), family.reset(("p", "a")), family.reset("p", "x")]
    assert (True, {"closed"}, False) == (
        family.reset(reason="over", actor="me"),
        {state for state, _ in states(family).values()},
        family.reset(),
    )


def test_events_carry_the_key(registry, family):
    """For those who listen; no error and no log does."""
    seen = []
    registry.subscribe(seen.append, StateChanged, Rejected)
    fail(family["openai", "gpt"])
    with pytest.raises(CircuitOpenError) as refusal:
        family["openai", "gpt"].try_acquire()

    assert [("StateChanged", ("openai", "gpt")), ("Rejected", ("openai", "gpt"))] == [
        (type(event).__name__, event.key) for event in seen
    ]
    assert "openai" not in str(refusal.value)


def test_first_registration_wins(registry, family):
    """A difference in settings, labels or bound is one event with all fields, and changes nothing."""
    seen = []
    registry.subscribe(seen.append, ConfigConflict)
    other = registry.family(
        "llm", labels=("vendor", "model"), config=BreakerConfig(Consecutive(1), cooldown=5), max_keys=9
    )
    assert other is family is registry.family("llm") is registry.get_family("llm")

    assert [("labels: provider, model, not vendor, model", "cooldown: 30.0, not 5.0", "max_keys: 3, not 9")] == [
        event.differences for event in seen
    ]
    assert (("provider", "model"), 30.0, 3) == (family.labels, family.config.cooldown, family.max_keys)


def test_a_call_site_may_name_its_parameters_as_it_likes(registry, family):
    """The labels are declared once; only their number counts."""
    seen = []
    registry.subscribe(seen.append, ConfigConflict)
    breaker("llm", ONE, key=("vendor", "engine"))(lambda vendor, engine: None)("openai", "gpt")

    assert ([], ("provider", "model")) == (seen, family.labels)


def test_the_labels_in_another_order(registry, family):
    """A site that turns them round would ask other calls' breakers, and is refused."""
    with pytest.raises(
        ConfigurationError,
        match=r"key must name provider, model in this order, as registered for 'llm', got model, provider",
    ):
        breaker("llm", key=("model", "provider"))(lambda provider, model: None)
    registry.bulkhead_family("room", BulkheadConfig(1), labels=("provider", "model"))
    with pytest.raises(ConfigurationError, match="key must name provider, model in this order"):
        bulkhead("room", key=("model", "provider"))(lambda provider, model: None)


def test_a_pickled_key_with_settings_of_its_own(caplog):
    """It is found again by the family's settings, which nobody has changed."""
    family = default_registry().family("reconfigured-keys", "key", BreakerConfig(cooldown=7))
    family["a"].reconfigure(BreakerConfig(cooldown=9))

    assert family["a"] is pickle.loads(pickle.dumps(family["a"]))
    assert "is registered already" not in caplog.text


def test_another_number_of_labels(registry, family):
    """It can't work, and is refused."""
    with pytest.raises(
        ConfigurationError, match=r"labels must be 2 as registered for 'llm' \(provider, model\), got 1"
    ):
        registry.family("llm", labels="provider")
    with pytest.raises(ConfigurationError, match="labels must be 2"):
        breaker("llm", ONE, key="provider")
    with pytest.raises(ConfigurationError, match="labels must be 2"):
        breaker("llm", key="provider")(lambda provider: None)


def test_strict(clock):
    """A strict registry raises."""
    registry = Registry(clock, strict=True)
    registry.family("llm", labels="provider", config=ONE)
    with pytest.raises(ConfigurationError, match="cooldown"):
        registry.family("llm", config=BreakerConfig(Consecutive(1), cooldown=5))


def test_max_keys_of_a_registry(clock):
    """What a family has that does not say it itself; 1,024 by default."""
    registry = Registry(clock, max_keys=2)

    assert (2, 5, 1024) == (
        registry.family("a").max_keys,
        registry.family("b", max_keys=5).max_keys,
        Registry(clock).family("a").max_keys,
    )


def test_a_name_is_a_family_or_a_single_breaker(registry):
    """Both ways round the error says what to write instead; so with bulkheads."""
    registry.breaker("single")
    registry.bulkhead("single", BulkheadConfig(1))
    registry.family("many", labels="provider")
    registry.bulkhead_family("many", BulkheadConfig(1), labels="provider")
    for refused in (
        lambda: registry.family("single"),
        lambda: breaker("single", ONE, key="provider"),
        lambda: breaker("single", key="provider")(lambda provider: None),
        lambda: registry.bulkhead_family("single"),
        lambda: bulkhead("single", max_in_flight=1, key="provider"),
    ):
        with pytest.raises(ConfigurationError, match="is a single (breaker|bulkhead): leave key= out"):
            refused()
    for refused in (
        lambda: registry.breaker("many"),
        lambda: breaker("many", ONE),
        lambda: breaker("many")(lambda provider: None),
        lambda: registry.bulkhead("many"),
        lambda: bulkhead("many", max_in_flight=1),
    ):
        with pytest.raises(
            ConfigurationError, match=r"is a family of (breaker|bulkhead)s: give key=.*family\('many'\)"
        ):
            refused()

    assert (None, None) == (registry.get("many"), registry.get_bulkhead("many"))
    assert (None, None) == (registry.get_family("single"), registry.get_bulkhead_family("single"))


def test_the_registry_knows_keyed_breakers(registry, family):
    """By name and key, which no other name can spell."""
    single, keyed = registry.breaker("single"), family["openai", "gpt-4"]
    shared = family[None]
    fail(keyed)

    assert [single, keyed, shared] == sorted(registry, key=[single, keyed, shared].index)
    assert {"single", "llm[openai,gpt-4]", "llm[__other__,__other__]"} == set(registry.status_all())
    assert (keyed, None, None, None) == (
        registry.get("llm[openai,gpt-4]"),
        registry.get("llm[openai]"),
        registry.get("nobody[a]"),
        registry.get("llm"),
    )
    assert [None] * 3 == [registry.get(odd) for odd in ("nobody", "no]", 5)]
    assert ("llm[openai,gpt-4]" in registry, "llm" in registry, 5 in registry) == (True, False, False)
    assert (True, False) == (registry.reset("llm[openai,gpt-4]"), registry.reset("llm[x,y]"))
    assert "<Registry of 3 breakers, 0 bulkheads>" == repr(registry)


def test_clear_state(registry, family):
    """Keyed breakers start over with all others."""
    asleep, awake = family["p", "asleep"], family["p", "awake"]
    breaker("llm", key=("a", "b"))(lambda a, b: None)("p", "asleep")
    fail(awake)
    registry.clear_state()

    assert [(CLOSED, 0), (CLOSED, 0)] == [(one.state, one.status().successes_total) for one in (asleep, awake)]


def test_another_clock(registry, family):
    """A test's clock reaches breakers that exist and those that come."""
    old = family["p", "old"]
    clock = ManualClock(100.0)
    with use_clock(clock, registry):
        new = family["p", "new"]
        fail(old)
        fail(new)
        clock.advance(29)
        assert [1.0, 1.0] == [one.status().retry_after for one in (old, new)]
        clock.advance(1)
        assert not old.is_open()
    assert not family["p", "third"].is_open()


def test_texts(registry, family):
    """How they look."""
    assert "<BreakerFamily 'llm' by provider, model, 1 of 3 keys>" == repr((family["openai", "gpt"], family)[1])
    assert "<CircuitBreaker 'llm[openai,gpt]' closed>" == repr(family["openai", "gpt"])
    assert "<BreakerFamily 'open' by key, 0 of 1024 keys>" == repr(registry.family("open"))
    rooms = registry.bulkhead_family("rooms", BulkheadConfig(2), labels="provider")
    assert "<Bulkhead 'rooms[a]' 0/2, 0 waiting>" == repr(rooms["a"])
    assert "<BulkheadFamily 'rooms' by provider, 1 of 1024 keys>" == repr(rooms)


# ------------------------------------------------------------------------------------------ references
def test_a_keyed_reference(registry, family):
    """It has a family, and says so wherever a single breaker is asked of it."""
    ref = breaker("llm", key=("provider", "model"))
    assert ref.family is family
    for ask in (
        lambda: ref.breaker,
        lambda: ref.state,
        ref.is_open,
        ref.status,
        ref.reset,
        lambda: ref.force_open("drill"),
        ref.disable,
        ref.enable,
        lambda: ref.reconfigure(ONE),
        ref.guard,
    ):
        with pytest.raises(ConfigurationError, match=r"\.family\[provider, model\]"):
            ask()


def test_a_reference_without_a_key(registry):
    """The other way round."""
    with pytest.raises(ConfigurationError, match=r"is a single breaker: it is \.breaker"):
        _ = breaker("api").family
    with pytest.raises(ConfigurationError, match="is a single breaker"):
        breaker("api").guard("openai")
    with pytest.raises(ConfigurationError, match="is a single bulkhead"):
        _ = bulkhead("room", max_in_flight=1).family


def test_guard(registry, family):
    """A block under the breaker of a key, with the reference's own rules and its reaction."""
    ref = breaker("llm", key=("provider", "model"), classify=lambda error: DOWN, on_open=OnOpen.BYPASS)
    with pytest.raises(KeyError), ref.guard("openai", "gpt"):
        raise KeyError
    with ref.guard("openai", "gpt") as permit:
        assert not permit
    with ref.guard("openai", "other") as permit:
        assert permit

    assert [OPEN, CLOSED] == [family["openai", name].state for name in ("gpt", "other")]


def test_guards_are_bounded(registry, family):
    """However many keys a reference has met."""
    ref = breaker("llm", key=("provider", "model"))
    for number in range(50):
        with ref.guard("openai", str(number)):
            pass

    assert len(vars(ref)["_keyed_guards"]) <= family.max_keys + 1


def test_the_guard_of_a_breaker(family):
    """`family[...].guard()`, in both reactions."""
    shared = family["openai", "gpt"]
    with shared.guard() as permit:
        assert permit
    with pytest.raises(ConnectionError), shared.guard():
        raise ConnectionError("down")
    with shared.guard(OnOpen.BYPASS) as permit:
        assert not permit
    with pytest.raises(CircuitOpenError):
        shared.guard().__enter__()

    assert 1 == shared.status().successes_total


def test_call_and_acall(family):
    """As of any breaker object."""

    async def later():
        return 2

    assert (1, 2) == (family["a", "b"].call(lambda: 1), asyncio.run(family["a", "b"].acall(later)))


def test_describe(registry, family):
    """`key=` is told; the breaker is the family's business."""
    fn = compose(bulkhead("room", max_in_flight=2, key="model"), breaker("llm", key=("provider", "model")))(two)

    assert str(describe(fn)).endswith(
        "  bulkhead  room, key=model, max_in_flight=2, max_waiting=20, wait=0 s, on_reject=fail\n"
        "  breaker   llm, key=provider,model, on_open=fail, account=attempt"
    )
    assert (None, family, None, registry.get_bulkhead_family("room")) == (
        fn.resilience.breaker,
        fn.resilience.family,
        fn.resilience.bulkhead,
        fn.resilience.bulkhead_family,
    )
    plain = breaker("single", ONE)(lambda: None).resilience
    assert (registry.get("single"), None, None, None) == (
        plain.breaker,
        plain.family,
        plain.bulkhead,
        plain.bulkhead_family,
    )
    assert "key=two," in str(describe(breaker("by-function", key=two)(two)))
    assert "key=provider,model" in str(describe(breaker("llm", key=("provider", "model"))(functools.partial(two))))


# ------------------------------------------------------------------------------------------ bulkheads
def test_one_cap_per_key(env):
    """One provider that hangs does not take the slots of another."""
    rooms = env.registry.bulkhead_family("llm", BulkheadConfig(1), labels="key")
    seen = []

    def body(arg, key=None):
        seen.append((env.registry.get_bulkhead_family("llm")[key].in_flight, inner_of(key), inner_of("b")))
        return "ok"

    inner = bulkhead("llm", key="key", on_reject=OnReject.BYPASS, fallback="full")(lambda key: "inside")

    def inner_of(key):
        return inner(key)

    fn = bulkhead("llm", key="key")(env.function(body))

    assert "ok" == env.call(fn, key="a")
    assert [(1, "full", "inside")] == seen
    assert [0, 0] == [room.in_flight for room in rooms]


def test_a_keyed_bulkhead_refuses(registry):
    """With the family's name, and no key."""
    fn = bulkhead("llm", max_in_flight=1, key="provider")(lambda provider, inner=None: inner and inner())
    with pytest.raises(BulkheadFullError) as refusal:
        fn("openai", lambda: fn("openai"))

    assert ("llm", False) == (refusal.value.name, "openai" in str(refusal.value))
    assert 1 == registry.get_bulkhead_family("llm")["openai"].rejected.value


def test_a_line_per_key(registry):
    """Callers of one key wait for each other, and for nobody else."""
    order = []

    @bulkhead("llm", max_in_flight=1, wait=5, key="provider")
    async def ask(provider, name):
        order.append(name)
        await asyncio.sleep(0)
        return name

    async def main():
        return await asyncio.gather(ask("a", 1), ask("a", 2), ask("b", 3), ask("a", 4))

    assert [1, 2, 3, 4] == asyncio.run(main())
    assert [1, 3, 2, 4] == order


def test_an_unkeyed_bulkhead_beside_a_keyed_breaker(env, remote):
    """One cap for all keys."""
    fn = compose(bulkhead("room", max_in_flight=1), breaker("llm", ONE, key="key"))(
        env.function(remote(ConnectionError))
    )
    env.fails(fn, key="a")

    assert ("ok", None, 0) == (env.call(fn, key="b"), fn.resilience.bulkhead_family, fn.resilience.bulkhead.in_flight)


def test_a_keyed_bulkhead_beside_a_single_breaker(env, remote):
    """The other way round."""
    fn = compose(bulkhead("room", max_in_flight=1, key="key"), breaker("api", ONE))(
        env.function(remote("ok", ConnectionError))
    )
    env.call(fn, key="a")
    env.fails(fn, key="b")

    assert isinstance(env.fails(fn, key="a"), CircuitOpenError)
    assert [0, 0] == [room.in_flight for room in fn.resilience.bulkhead_family]


def test_references_that_wait_for_each_other(env, remote):
    """One with keys and one without, both to names that are registered later."""
    fn = compose(bulkhead("room"), breaker("llm", key="key"))(env.function(remote()))
    other = compose(bulkhead("rooms", key="key"), breaker("api"))(env.function(remote()))
    env.registry.bulkhead("room", BulkheadConfig(1))
    env.registry.bulkhead_family("rooms", BulkheadConfig(1), labels="key")

    assert ["ok"] * 4 == [env.call(one, key="a") for one in (fn, fn, other, other)]
    assert 2 == env.registry.get("llm[a]").status().successes_total


def test_a_bulkhead_family_needs_a_size(registry):
    """Like a single bulkhead, where the name is first used."""
    with pytest.raises(ConfigurationError, match="give it max_in_flight"):
        registry.bulkhead_family("room", labels="provider")
    fn = bulkhead("room", key="provider")(lambda provider: None)
    with pytest.raises(ConfigurationError, match="give it max_in_flight"):
        fn("a")


def test_bulkheads_conflict_like_breakers(registry):
    """One event with all fields."""
    seen = []
    registry.subscribe(seen.append, ConfigConflict)
    family = registry.bulkhead_family("room", BulkheadConfig(1), labels="provider")
    assert family is registry.bulkhead_family("room", BulkheadConfig(2), max_keys=7)

    assert [("max_in_flight: 1, not 2", "max_waiting: 10, not 20", "max_keys: 1024, not 7")] == [
        event.differences for event in seen
    ]


def test_an_idle_bulkhead_makes_room(registry):
    """One that nobody is in and nobody waits for; one that is held stays."""
    family = registry.bulkhead_family("room", BulkheadConfig(2), labels="provider", max_keys=2)
    held, idle = family["held"], family["idle"]
    slot = held.take()
    for number in range(12):
        _ = family[str(number)]

    assert (held, None, True) == (family.get("held"), family.get("idle"), idle.retired)
    held.give(slot)
    for number in range(12):
        _ = family[str(number)]
    assert family.get("held") is None


def test_a_call_that_looks_up_a_bulkhead_that_is_leaving(env, remote):
    """It gives back what it took and looks again; where that does not help, it shares `__other__`."""
    family = env.registry.bulkhead_family("room", BulkheadConfig(1), labels="key")
    fn = bulkhead("room", key="key")(env.function(remote()))
    env.call(fn, key="a")
    family["a"].leaving = True

    assert "ok" == env.call(fn, key="a")
    assert (0, 0) == (family["a"].in_flight, family.other.in_flight)
    assert family.other is not None


# ------------------------------------------------------------------------------------------ blocks under a bulkhead
def enter(block, is_async):
    """Enter and leave a block in either world; what it said inside."""
    if not is_async:
        with block as entered:
            return bool(entered)

    async def main():
        async with block as entered:
            return bool(entered)

    return asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_block_says_its_key(registry, is_async):
    """It holds a slot of that key, and of no other."""
    pool = bulkhead("room", max_in_flight=1, key="provider")
    with pool.guard("a"):
        assert 1 == pool.family["a"].in_flight
        assert enter(pool.guard("b"), is_async)
        with pytest.raises(BulkheadFullError):
            enter(pool.guard("a"), is_async)

    assert [0, 0] == [room.in_flight for room in pool.family]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_a_block_whose_bulkhead_is_leaving(registry, is_async, wait):
    """It gives back what it took and looks again; where that does not help, it shares `__other__`."""
    pool = bulkhead("room", max_in_flight=1, key="provider", wait=wait)
    kept = pool.guard("a")
    pool.family["a"].retire()
    assert enter(kept, is_async)
    pool.family["b"].leaving = True
    assert enter(pool.guard("b"), is_async)

    assert [0, 0, 0] == [room.in_flight for room in pool.family.everybody]
    assert pool.family.other is not None


def test_a_block_without_its_key(registry):
    """Parts for a bulkhead without a key, or none for one with it."""
    with pytest.raises(ConfigurationError, match=r"say which with guard\(provider, model\)"):
        bulkhead("room", max_in_flight=1, key=("provider", "model")).guard()
    with pytest.raises(ConfigurationError, match="is a single bulkhead"):
        bulkhead("single", max_in_flight=1).guard("a")
