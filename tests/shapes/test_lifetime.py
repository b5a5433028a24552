"""Wrappers come and go like functions: no leaks, weak references, safe first use, policies that travel."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref
from itertools import pairwise

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitOpenError,
    Consecutive,
    FailureRate,
    FaultKind,
    OnOpen,
    Registry,
    breaker,
    bulkhead,
    compose,
    interruptible,
    retry,
    timeout,
    use_registry,
)


def plain():
    def function(text):
        return text

    return function


async def plain_async(text):
    return text


SHAPES = {
    "function": plain,
    "partial": lambda: functools.partial(print, "a"),
    "cached": lambda: functools.lru_cache(lambda text: text),
    "async": lambda: functools.partial(plain_async, "a"),
    "interruptible": lambda: interruptible(plain()),
}

shapes = pytest.mark.parametrize("shape", SHAPES)


def every_policy(shape):
    policies = [breaker("lifetime", BreakerConfig()), retry(2, idempotent=True), bulkhead(max_in_flight=1)]
    return compose(*policies, *([timeout(30)] if shape in ("async", "interruptible") else []))


class TestLifetime:
    @shapes
    def test_a_wrapper_can_be_referred_to_weakly(self, shape):
        """As a function can."""
        wrapper = every_policy(shape)(SHAPES[shape]())
        assert wrapper is weakref.ref(wrapper)()

    @shapes
    def test_a_wrapper_dies_with_its_last_reference(self, shape):
        """Decorating in a loop leaves nothing behind: neither wrappers nor functions."""
        alive = weakref.WeakSet()
        for _ in range(20):
            function = SHAPES[shape]()
            wrapper = every_policy(shape)(function)
            alive.add(wrapper)
            del function, wrapper
        gc.collect()
        assert 0 == len(alive)

    @shapes
    def test_decorating_again_and_again_makes_no_more_objects(self, shape):
        """A leak would grow in every round of twenty; another test's threads come and go in one."""

        def count():
            for _ in range(20):
                every_policy(shape)(SHAPES[shape]())
            gc.collect()
            return len(gc.get_objects())

        counts = [count() for _ in range(5)]
        assert min(after - before for before, after in pairwise(counts)) <= 5

    def test_a_called_wrapper_dies_too(self):
        """Also one that has found its breaker at the first call."""
        with use_registry(Registry()):
            wrapper = compose(breaker("found-late"), bulkhead(max_in_flight=1))(lambda text: text)
            wrapper("hello")
            gone = weakref.ref(wrapper)
            del wrapper
            gc.collect()
        assert gone() is None

    def test_the_plain_function_is_not_changed(self):
        """What is decorated stays as it was: undecorated code may go on using it."""
        function = plain()
        before = dict(vars(function))
        every_policy("function")(function)
        assert before == vars(function)

    def test_a_wrapper_per_decoration(self):
        """The same function decorated twice gives two wrappers that share only the name."""
        function = plain()
        assert every_policy("function")(function) is not every_policy("function")(function)

    def test_a_set_keeps_one_caller_for_all_functions(self):
        """`compose(...).call` of ever new functions does not collect them."""
        policy = every_policy("function")
        alive = weakref.WeakSet()
        for _ in range(20):
            function = plain()
            policy.call(function, "hello")
            alive.add(function)
            del function
        gc.collect()
        assert len(alive) <= 1


class TestThreads:
    @pytest.mark.parametrize("attempt", range(5))
    def test_first_use_from_many_threads(self, attempt, registry):
        """Many threads make the first call at one time: each answers, all count, one breaker is found."""
        wrapper = compose(breaker("first-use"), bulkhead(max_in_flight=64))(lambda text: text)
        ready, answers = threading.Barrier(16), []

        def call():
            ready.wait()
            answers.append(wrapper("hello"))

        threads = [threading.Thread(target=call) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (["hello"] * 16, 16) == (answers, registry.get("first-use").status().successes_total)

    @pytest.mark.parametrize("is_open", [False, True])
    def test_a_call_in_the_middle_of_the_first(self, is_open, registry, monkeypatch):
        """While the first call fills in what it has found, one of another thread is answered or refused as ever."""
        from resilience import _compose

        wrapper = compose(breaker("middle"), bulkhead("slots"), retry(2, idempotent=True))(lambda text: text)
        registry.bulkhead("slots", BulkheadConfig(4))
        answers, put, busy = [], _compose.rebind, []

        def call():
            try:
                answers.append(wrapper("hello"))
            except CircuitOpenError:
                answers.append("refused")

        class Watched(dict):
            """Each time a name is about to be put in its place, somebody calls."""

            def __getitem__(self, name):
                call()
                return super().__getitem__(name)

        def rebind(found, closure):
            if not busy:
                busy.append(True)
                put(found, Watched(closure))
                busy.clear()

        monkeypatch.setattr(_compose, "rebind", rebind)
        if is_open:
            registry.breaker("middle").force_open("test")
        call()

        assert {"refused" if is_open else "hello"} == set(answers)

    def test_decorating_from_many_threads(self):
        """The cache of compiled sources is shared, and each thread gets a wrapper of its own function."""
        ready, results = threading.Barrier(8), []

        def decorate(number):
            ready.wait()
            ours = every_policy("function")(lambda text, *, number=number: (text, number))
            results.append(ours("hello"))

        threads = [threading.Thread(target=decorate, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [("hello", number) for number in range(8)] == sorted(results)


def fallback(*args):
    return "instead"


POLICIES = [
    breaker("travels", BreakerConfig(Consecutive(3, within=60), cooldown=5), on_open=OnOpen.BYPASS, fallback=fallback),
    breaker("travels-too", BreakerConfig(FailureRate(rate=0.25))),
    breaker("reference"),
    retry(4, initial_backoff=0.2, retry_on={FaultKind.TRANSIENT, FaultKind.DOWNSTREAM}, idempotent=True),
    retry(2, wait=0.5, safe_only=True),
    timeout(30, per_attempt=10, counts=False),
    bulkhead("slots", max_in_flight=3, wait=1),
    bulkhead(max_in_flight=2),
]


class TestPolicies:
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_policy_travels(self, policy, protocol):
        """It arrives as an equal value of the same type."""
        arrived = pickle.loads(pickle.dumps(policy, protocol))
        assert (type(policy), policy) == (type(arrived), arrived)

    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
    def test_a_copy_is_an_equal_value(self, policy, how):
        """And decorates just as well."""
        assert policy == how(policy)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_policy_that_was_used_travels(self, policy):
        """What it has guarded or decorated does not come along."""
        policy(plain_async)
        if hasattr(policy, "guard") and getattr(policy, "per_attempt", None) is None:
            with policy.guard():
                pass
        assert policy == pickle.loads(pickle.dumps(policy))

    def test_a_registry_stays_in_its_process(self):
        """A policy with a registry of its own refers to the name in the current one where it arrives."""
        arrived = pickle.loads(pickle.dumps(breaker("mine", BreakerConfig(), registry=Registry())))
        assert (None, "mine") == (arrived.registry, arrived.name)

    def test_a_set_travels(self):
        """So does a composition."""
        policy = compose(*POLICIES[1:2], *POLICIES[3:4])
        policy.call(len, "abc")
        arrived = pickle.loads(pickle.dumps(policy))
        assert (policy.policies, 3) == (arrived.policies, arrived.call(len, "abc"))

    def test_a_policy_is_frozen(self):
        """Its settings can't be changed behind the backs of those it decorates."""
        with pytest.raises(AttributeError, match="read-only"):
            POLICIES[0].name = "other"
