"""`describe` tells what applies, in one stable text, whatever the stacking and the shape."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools

import pytest

from resilience import (
    BreakerConfig,
    ConfigurationError,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    OnReject,
    Registry,
    breaker,
    bulkhead,
    compose,
    describe,
    idempotent,
    interruptible,
    retry,
    timeout,
    use_registry,
)


@pytest.fixture(autouse=True)
def registry():
    with use_registry(Registry()) as registry:
        yield registry


def four():
    """The four policies, by their words."""
    return {
        "breaker": breaker("mail", BreakerConfig(Consecutive(3), cooldown=10)),
        "retry": retry(4, initial_backoff=0.2, max_backoff=5, idempotent=True),
        "timeout": timeout(30, per_attempt=10),
        "bulkhead": bulkhead("mail", max_in_flight=8, wait=0.5),
    }


STACKINGS = list(itertools.permutations(["breaker", "retry", "timeout", "bulkhead"]))

stackings = pytest.mark.parametrize("stacking", STACKINGS, ids="-".join)


async def send(text):
    """Send it."""
    return text


def send_plain(text):
    """Send it."""
    return text


def stacked(stacking, fn=send):
    policies = four()
    for word in stacking:
        fn = policies[word](fn)
    return fn


FOUR = f"""\
{__name__}:send
  bulkhead  mail, max_in_flight=8, max_waiting=80, wait=0.5 s, on_reject=fail
  timeout   budget=30 s
  retry     max_attempts=4, backoff=0.2..5 s, jitter=0.5, retry_on=transient, max_retry_after=60 s
  breaker   mail, Consecutive(failures=3, within=None), cooldown=10 s, trip_on=downstream+transient, on_open=fail, account=attempt
  attempt   per_attempt=10 s"""


class TestText:
    @stackings
    def test_every_stacking_reads_the_same(self, stacking):
        """The order is the applied one, never the written one."""
        assert FOUR == str(describe(stacked(stacking)))

    @pytest.mark.parametrize(
        ("expected", "policy"),
        [
            (
                "bulkhead  {label}, max_in_flight=2, max_waiting=20, wait=0 s, on_reject=fail",
                lambda: bulkhead(max_in_flight=2),
            ),
            (
                "bulkhead  b, max_in_flight=2, max_waiting=0, wait=1 s, on_reject=bypass",
                lambda: bulkhead("b", max_in_flight=2, max_waiting=0, wait=1, on_reject=OnReject.BYPASS, fallback=1),
            ),
            ("bulkhead  b, wait=0 s, on_reject=fail", lambda: bulkhead("b")),
            ("timeout   budget=2.5 s, counts=False", lambda: timeout(2.5, counts=False)),
            ("timeout   budget=2.5 s, pass_as=text", lambda: timeout(2.5, pass_as="text")),
            ("attempt   per_attempt=2.5 s", lambda: timeout(per_attempt=2.5)),
            (
                "retry     max_attempts=3, wait=0.5 s, retry_on=transient, max_retry_after=60 s",
                lambda: retry(wait=0.5, idempotent=True),
            ),
            (
                "retry     max_attempts=3, backoff=0.1..30 s, jitter=0.5, retry_on=transient, max_retry_after=60 s, safe_only=True",
                lambda: retry(safe_only=True),
            ),
            (
                "retry     max_attempts=3, backoff=0.1..30 s, jitter=0, retry_on=downstream+transient, max_retry_after=5 s",
                lambda: retry(
                    jitter=0,
                    retry_on={FaultKind.TRANSIENT, FaultKind.DOWNSTREAM},
                    max_retry_after=5,
                    idempotent=True,
                ),
            ),
            ("breaker   b, on_open=fail, account=attempt", lambda: breaker("b")),
            (
                (
                    "breaker   b, Consecutive(failures=5, within=60.0), cooldown=30 s, trip_on=downstream+transient, "
                    "on_open=bypass, account=call"
                ),
                lambda: breaker("b", BreakerConfig(Consecutive(5, within=60)), on_open=OnOpen.BYPASS, account="call"),
            ),
            (
                (
                    f"breaker   b, {FailureRate(rate=0.25)!r}, cooldown=1 s, "
                    "trip_on=transient+401+403, half_open=2/3, shadow=True, on_open=fail, account=attempt"
                ),
                lambda: breaker(
                    "b",
                    BreakerConfig(
                        FailureRate(rate=0.25),
                        cooldown=1,
                        trip_on={FaultKind.TRANSIENT},
                        trip_on_status={403, 401},
                        half_open_probes=2,
                        half_open_successes=3,
                        shadow=True,
                    ),
                ),
            ),
        ],
    )
    def test_settings_of_one_policy(self, expected, policy):
        """What matters is named, what is not set is left out."""
        label = f"{__name__}:send"
        assert f"{label}\n  {expected.format(label=label)}" == str(describe(policy()(send)))

    @pytest.mark.parametrize(
        "changed",
        [
            {"trip": Consecutive(4)},
            {"trip": Consecutive(5, within=60)},
            {"trip": FailureRate(min_calls=11)},
            {"cooldown": 31},
            {"half_open_probes": 2},
            {"half_open_successes": 2},
            {"trip_on": {FaultKind.TRANSIENT}},
            {"trip_on_status": {401}},
            {"answered": "ignore"},
            {"probe_lease": 31},
            {"max_cooldown": 301},
            {"honour_retry_after": False},
            {"shadow": True},
            {"ramp": 5},
            {"trip": FailureRate(slow_call=2)},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_no_setting_is_left_out(self, changed):
        """Two configurations that differ anywhere read differently."""
        plain = describe(breaker("b", BreakerConfig(), registry=Registry())(send))
        other = describe(breaker("b", BreakerConfig(**changed), registry=Registry())(send))
        assert str(plain) != str(other)

    def test_strategies_are_named_by_their_type(self):
        """A foreign object is shown by its type: its repr may hold an address."""

        class Slowly:
            def __call__(self, state):
                return 1.0

        text = str(describe(retry(wait=Slowly(), stop=Slowly(), idempotent=True)(send)))
        assert "max_attempts=3, wait=Slowly, stop=Slowly, retry_on=transient" in text

    def test_repr_is_one_line(self):
        """For a debugger."""
        assert "<Description " + f"{__name__}:send_plain: breaker(b, on_open=fail, account=attempt)>" == repr(
            describe(breaker("b")(send_plain))
        )


class Client:
    def __call__(self, text): ...

    def ask(self, text): ...

    @functools.lru_cache
    def cached(self, text): ...


@functools.singledispatch
def dispatched(text): ...


SHAPES = {
    "function": (f"{__name__}:send_plain", lambda: send_plain),
    "async function": (f"{__name__}:send", lambda: send),
    "bound method": (f"{__name__}:Client.ask", lambda: Client().ask),
    "static method": (f"{__name__}:send_plain", lambda: staticmethod(send_plain)),
    "class method": (f"{__name__}:send_plain", lambda: classmethod(send_plain)),
    "partial": (f"{__name__}:send_plain", lambda: functools.partial(send_plain)),
    "partial of a method": (f"{__name__}:Client.ask", lambda: functools.partial(Client().ask)),
    "instance": (f"{__name__}:Client", Client),
    "cache": (f"{__name__}:Client.cached", lambda: Client.cached),
    "generic function": (f"{__name__}:dispatched", lambda: dispatched),
    "builtin": ("builtins:len", lambda: len),
    "builtin method": ("builtins:list.append", lambda: [].append),
    "lambda": (f"{__name__}:<lambda>.<locals>.<lambda>", lambda: lambda text: text),
}

shapes = pytest.mark.parametrize("shape", SHAPES)


class TestShapes:
    @shapes
    def test_the_text(self, shape):
        """Every shape is told by `module:qualname` of what runs in the end, and its policies."""
        label, target = SHAPES[shape]
        expected = f"{label}\n  breaker   b, on_open=fail, account=attempt"
        assert expected == str(describe(breaker("b")(target())))

    @shapes
    def test_breaker_and_bulkhead(self, shape, registry):
        """The description leads to the shared objects."""
        found = describe(compose(breaker("b", BreakerConfig()), bulkhead("h", max_in_flight=1))(SHAPES[shape][1]()))
        assert registry.get("b") is found.breaker
        assert registry.get_bulkhead("h") is found.bulkhead

    @shapes
    def test_what_is_plain_has_none(self, shape):
        """An undecorated callable is refused by name of its type."""
        with pytest.raises(ConfigurationError, match="fn must be a function decorated with a policy, got"):
            describe(SHAPES[shape][1]())

    def test_a_name_that_nobody_has_registered(self, registry):
        """Reading the breaker of a reference registers the defaults, as the first call would."""
        found = describe(breaker("unknown")(send))
        before = "unknown" in registry
        assert (False, "unknown", True) == (before, found.breaker.name, "unknown" in registry)

    def test_without_a_breaker(self):
        """There is None where no such policy is."""
        found = describe(retry(2, idempotent=True)(send))
        assert (None, None) == (found.breaker, found.bulkhead)


class TestFrozen:
    @pytest.mark.parametrize("name", ["name", "layers", "policies", "fn", "breaker", "bulkhead", "anything"])
    def test_nothing_can_be_set(self, name):
        """It tells; it is no place to change anything."""
        found = describe(stacked(STACKINGS[0]))
        with pytest.raises(AttributeError):
            setattr(found, name, None)

    @pytest.mark.parametrize("name", ["name", "layers", "policies", "fn"])
    def test_nothing_can_be_deleted(self, name):
        """Nor taken away."""
        found = describe(stacked(STACKINGS[0]))
        with pytest.raises(AttributeError):
            delattr(found, name)

    def test_layers_are_frozen_too(self):
        """Down to each line."""
        layer = describe(stacked(STACKINGS[0])).layers[0]
        with pytest.raises(AttributeError, match="read-only"):
            layer.settings = "other"

    def test_it_can_be_told_as_lines(self):
        """Each layer by its word and settings."""
        found = describe(stacked(STACKINGS[0]))
        assert ["bulkhead", "timeout", "retry", "breaker", "attempt"] == [layer.layer.value for layer in found.layers]

    def test_it_is_hashable(self):
        """Equal ones are one in a set."""
        assert 1 == len({describe(stacked(stacking)) for stacking in STACKINGS})

    def test_another_text_is_another_description(self):
        """A different setting makes it unequal."""
        assert describe(breaker("a")(send)) != describe(breaker("b")(send))

    def test_it_equals_nothing_else(self):
        """Not even its own text."""
        found = describe(breaker("a")(send))
        assert found != str(found)


class TestStacking:
    @stackings
    @pytest.mark.parametrize("fn", [send, idempotent(interruptible(send_plain))])
    def test_one_wrapper(self, stacking, fn):
        """Four decorators make one layer around the function."""
        ours = stacked(stacking, fn)
        assert fn is ours.__wrapped__
        assert not hasattr(ours.__wrapped__, "__wrapped__")

    @stackings
    def test_one_description(self, stacking):
        """All stackings are told alike, and like the composition."""
        assert describe(compose(*four().values())(send)) == describe(stacked(stacking))

    @stackings
    def test_one_proxy(self, stacking):
        """A partial gets one proxy, not four."""
        part = functools.partial(send, "hello")
        ours = stacked(stacking, part)
        assert part is ours.__wrapped__
        assert str(describe(ours)) == FOUR

    @stackings
    def test_one_bound_method(self, stacking):
        """A bound method gets one wrapper of its function."""

        class Sender:
            async def send(self, text): ...

        assert Sender.send is stacked(stacking, Sender().send).__func__.__wrapped__

    @stackings
    def test_one_source(self, stacking):
        """They share one compiled wrapper: the same code, line by line."""
        first, other = stacked(STACKINGS[0]).__code__, stacked(stacking).__code__
        assert (first.co_code, first.co_filename) == (other.co_code, other.co_filename)

    @stackings
    def test_one_bulkhead_of_its_own(self, stacking):
        """A bulkhead without a name stays the one it was, however many policies are added after it."""
        policies = {**four(), "bulkhead": bulkhead(max_in_flight=1)}
        fn, seen = send, []
        for word in stacking:
            fn = policies[word](fn)
            seen.append(describe(fn).bulkhead)
        assert 1 == len({id(found) for found in seen if found is not None})

    def test_the_policies_are_listed_in_order(self):
        """Outermost first."""
        for stacking in STACKINGS:
            kinds = [policy.kind for policy in describe(stacked(stacking)).policies]
            assert ["bulkhead", "timeout", "retry", "breaker"] == kinds

    def test_a_description_is_the_wrappers_own(self):
        """What copied it is not described by it."""
        ours = breaker("b")(send)

        @functools.wraps(ours)
        async def foreign(text):
            return await ours(text)

        assert foreign.resilience is describe(ours)
        with pytest.raises(ConfigurationError):
            describe(foreign)

    def test_signature_of_the_stack(self):
        """Inspection sees the function through all four."""
        assert "(text)" == str(inspect.signature(stacked(STACKINGS[0])))


def test_a_copied_wrapper_describes_itself():
    """A function is its own copy."""
    ours = breaker("b")(send)
    assert describe(ours) is describe(copy.deepcopy(ours))
