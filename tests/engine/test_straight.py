"""The generated wrapper: its exact signature, its harmless source, its closure."""

from __future__ import annotations

import asyncio
import dis
import inspect
import itertools
import linecache
import sys
import traceback
from types import SimpleNamespace

import pytest

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitState,
    Consecutive,
    Registry,
    RetryBudget,
    breaker,
    bulkhead,
    compose,
    retry,
    timeout,
    use_registry,
)
from resilience._engine import straight
from resilience._engine.signature import GENERIC, signature_of
from resilience._engine.source import Shape, source_of
from resilience._engine.straight import compile_wrapper, rebind
from resilience._site import Call


def shape(**options):
    return Shape(**{"is_async": False, **options})


def every_shape():
    names = [name for name in Shape._fields if name not in ("keys", "rooms")]
    combinations = itertools.product((False, True), repeat=len(names))
    shapes = (Shape(**dict(zip(names, flags, strict=True))) for flags in combinations)
    for shape in shapes:
        # A key belongs to something that has keys, and no generator is found by one.
        alone = (shape.keyed and not shape.breaker) or (shape.roomed and not shape.bulkhead)
        if (
            (shape.timed and not shape.windowed)
            or alone
            or (shape.on_worker and shape.bulkhead)
            or (shape.items and (shape.keyed or shape.roomed))
        ):
            continue
        yield shape
        if shape.keyed or shape.roomed:
            yield shape._replace(keys=("a",) * shape.keyed, rooms=("a",) * shape.roomed)


def renamed(fn, *names):
    """A function whose parameters have any names at all."""
    code = fn.__code__
    fn.__code__ = code.replace(co_varnames=names + code.co_varnames[len(names) :])
    return fn


# ---------------------------------------------------------------------------------------------- the signature
def test_every_sort_of_parameter():
    """Positional-only, plain, starred and keyword-only parameters, in source text."""

    def fn(a, /, b, *c, d, **e): ...

    assert ("a, /, b, *c, d, **e", "a, b, *c, d=d, **e", "(a, b, *c, )", "{'d': d, **e}", ("a", "b", "d")) == tuple(
        signature_of(fn)
    )


def test_keyword_only_without_a_star_parameter():
    """A bare star is written."""

    def fn(*, key): ...

    assert ("*, key", "key=key", "()", "{'key': key}", ("key",)) == tuple(signature_of(fn))


def test_no_parameters():
    """Nothing to pass."""

    def fn(): ...

    assert ("", "", "()", "{}", ()) == tuple(signature_of(fn))


@pytest.mark.parametrize(
    "name",
    [
        "a=__import__('os').system('x')",
        "a, b",
        "x): pass\ndef evil(",
        "",
        "class",
        "None",
        "__debug__",
        "_r_fn",
        "ﬁ",
        "1a",
    ],
)
def test_a_name_that_is_no_harmless_identifier(name):
    """Text made to be code, keywords, our own prefix and names that the compiler would change: generic."""
    assert GENERIC == signature_of(renamed(lambda a: a, name))


def test_two_parameters_of_one_name():
    """A code object can be made to have them; source can't."""
    assert GENERIC == signature_of(renamed(lambda a, b: a, "same", "same"))


def test_a_name_that_is_not_ascii():
    """A normal identifier of any alphabet keeps its place."""

    def fn(größe): ...

    assert "größe" == signature_of(fn).parameters


def test_what_is_no_plain_function():
    """Builtins and callables have no code to read."""
    assert GENERIC == signature_of(len)
    assert GENERIC == signature_of(SimpleNamespace(__code__="nothing of the sort"))


def test_the_signature_is_that_of_the_function_itself():
    """`__wrapped__` leads to another function with another list."""

    def fn(a): ...

    fn.__wrapped__ = lambda x, y, z: None

    assert "a" == signature_of(fn).parameters


def test_free_text_is_never_compiled():
    """A function's name, and its defaults, are put on the object afterwards."""
    evil = "f(): pass\nraise SystemExit('injected')\ndef g"

    def fn(a="); raise SystemExit('injected') #"):
        return a

    fn.__name__ = fn.__qualname__ = evil
    wrapper = one_failure_opens()(fn)

    assert evil == wrapper.__code__.co_name
    assert "); raise SystemExit('injected') #" == wrapper()


def test_every_shape_compiles():
    """Any combination of policies gives source that Python takes, in both worlds."""

    def fn(a, /, b=1, *c, d=2, **e): ...

    for made in every_shape():
        compile(source_of(made, signature_of(fn)), "<source>", "exec")


def test_no_name_of_ours_stands_without_the_prefix():
    """Everything the source names is a parameter, or a name with our prefix."""

    def fn(a): ...

    for shape in every_shape():
        made = compile(source_of(shape, signature_of(fn)), "<source>", "exec").co_consts[0]
        wrapper = next(const for const in made.co_consts if inspect.iscode(const))
        loaded = {step.argval for step in dis.get_instructions(wrapper) if step.opname.startswith(("LOAD_G", "LOAD_N"))}

        assert () == wrapper.co_cellvars, "an argument in a cell costs more than the rest"
        assert {"a"} == {name for name in wrapper.co_varnames if not name.startswith(straight.PREFIX)}
        assert [] == [name for name in loaded if not name.startswith(straight.PREFIX)]


# ---------------------------------------------------------------------------------------------- wrappers
@pytest.fixture(autouse=True)
def registry():
    with use_registry(Registry()) as registry:
        yield registry


def one_failure_opens():
    return breaker("provider", BreakerConfig(Consecutive(1)))


def test_wrong_arguments_fail_as_without_policies():
    """The message names the function, and the breaker sees nothing."""

    @one_failure_opens()
    def fetch(url): ...

    with pytest.raises(TypeError, match=r"fetch\(\) missing 1 required positional argument: 'url'"):
        fetch()
    assert CircuitState.CLOSED is one_failure_opens().state


def test_defaults_are_the_functions_own_objects():
    """A mutable default stays the one object."""
    default = []

    @one_failure_opens()
    def fetch(items=default, *, more=default):
        return items is default and more is default

    assert fetch() is True


def test_a_function_with_odd_parameter_names_is_protected_all_the_same():
    """The generic list calls it, counts, and opens."""

    def body(a):
        raise ConnectionError("down")

    fetch = one_failure_opens()(renamed(body, "_r_fn"))

    with pytest.raises(ConnectionError):
        fetch(1)
    assert CircuitState.OPEN is one_failure_opens().state


def test_a_default_of_a_generic_signature():
    """Defaults are then the function's own business."""

    def body(a=7):
        return a

    assert 7 == one_failure_opens()(renamed(body, "_r_fn"))()


def test_tracebacks_show_the_source():
    """The line of the wrapper stands in the traceback."""

    @one_failure_opens()
    def fetch(url):
        raise ConnectionError(url)

    with pytest.raises(ConnectionError) as caught:
        fetch("u")
    text = "".join(traceback.format_exception(caught.value))

    assert "_r_fn(url)" in text
    assert 'File "<resilience breaker+fail_fast (url)>", line ' in text


def test_one_entry_of_source_for_each_template():
    """Functions of one parameter list and shape share source and code."""

    def build():
        @one_failure_opens()
        def fetch(shared_parameter): ...

        return fetch

    first, second = build(), build()
    entries = [name for name in linecache.cache if "shared_parameter" in name]

    assert first.__code__.co_code == second.__code__.co_code
    assert 1 == len(entries)


def test_the_cache_of_templates_is_bounded(monkeypatch):
    """It is emptied when it is full; wrappers live on."""
    monkeypatch.setattr(straight, "_CACHE_SIZE", 2)
    monkeypatch.setattr(straight, "_factories", {})
    made = [one_failure_opens()(eval(f"lambda cached_{number}: cached_{number}")) for number in range(5)]

    assert 2 >= len(straight._factories)
    assert [0, 1, 2, 3, 4] == [fn(number) for number, fn in enumerate(made)]


@pytest.fixture
def plans(monkeypatch):
    """How many plans have begun."""
    begun, begin = [], Call.__init__

    def counted(call, *args, **kwargs):
        begun.append(True)
        begin(call, *args, **kwargs)

    monkeypatch.setattr(Call, "__init__", counted)
    return begun


def test_a_reference_takes_the_straight_path_from_its_second_call(registry, plans):
    """The first call finds the breaker and puts it into the wrapper's closure."""

    @breaker("late")
    def fetch():
        return "fine"

    registry.breaker("late", BreakerConfig(Consecutive(1)))

    assert ["fine", "fine", "fine"] == [fetch() for _ in range(3)]
    assert (1, 3) == (len(plans), registry.get("late").status().successes_total)


def watched(functions, step, act):
    """A trace function that acts once, before the given step of what runs in functions of these names."""
    steps = iter(range(10**6))

    def trace(frame, event, argument):
        if frame.f_code.co_name not in functions:
            return None
        if event == "line" and next(steps) == step:
            act()
        return trace

    return trace


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("policies", [lambda: breaker("late"), lambda: compose(bulkhead("room"), breaker("late"))])
def test_a_call_in_the_middle_of_the_finding(policies, fails):
    """At whatever step of the first call another one comes: it is protected, answered and counted."""
    expected = "ConnectionError" if fails else "fine"
    watched_steps = 0

    def trial(registry, step):
        seen = []

        @policies()
        def fetch():
            if fails:
                raise ConnectionError("down")
            return "fine"

        # Only now, so that the first call has to find them.
        registry.breaker("late", BreakerConfig(Consecutive(999)))
        registry.bulkhead("room", BulkheadConfig(9))

        def call():
            try:
                seen.append(fetch())
            except Exception as error:
                seen.append(type(error).__name__)

        before = sys.gettrace()
        sys.settrace(watched(("rebind", "found"), step, call))
        try:
            call()
        finally:
            sys.settrace(before)
        return seen

    for step in range(100):
        with use_registry(Registry()) as registry:
            seen = trial(registry, step)
        status, room = registry.get("late").status(), registry.get_bulkhead("room")

        assert [expected] * len(seen) == seen
        assert (len(seen), 0) == (status.failures_total if fails else status.successes_total, room.in_flight)
        watched_steps += len(seen) - 1

    assert 5 < watched_steps, "the finding was not watched"


@pytest.mark.parametrize("guarded", [False, True])
def test_a_call_in_the_middle_of_finding_a_retry_budget(guarded):
    """At whatever step of the first call another one comes: both are counted in the one that was registered meanwhile."""
    watched_steps = 0

    def trial(registry, step):
        seen = []
        policies = [retry(1, idempotent=True, retry_budget="late")]
        if guarded:
            policies.append(breaker("late"))

        @compose(*policies)
        def fetch():
            seen.append(None)

        registry.retry_budget("late", RetryBudget(ratio=0.5))
        before = sys.gettrace()
        sys.settrace(watched(("rebind", "resolve", "_first_slice", "next_slice"), step, fetch))
        try:
            fetch()
        finally:
            sys.settrace(before)
        fetch()
        return len(seen)

    for step in range(60):
        with use_registry(Registry()) as registry:
            calls = trial(registry, step)
        assert calls == registry.retry_budget("late").status().calls
        watched_steps += calls - 2

    assert 5 < watched_steps, "the finding was not watched"


def test_who_has_no_retry_budget_does_not_pay_for_it():
    """Not a line of it stands in the wrapper."""
    sig = signature_of(lambda x: x)
    with_one, without = (source_of(shape(retry=True, breaker=True, counted=counted), sig) for counted in (True, False))

    extra = set(with_one.splitlines()) - set(without.splitlines())

    assert 3 == len(extra)
    assert all("slice" in line for line in extra)
    assert set(without.splitlines()) <= set(with_one.splitlines())


def test_what_a_wrapper_does_not_name_is_left_out():
    """Without a bulkhead there is nowhere to put one's slots."""

    @one_failure_opens()
    def fetch():
        return "fine"

    rebind(fetch, {"take": None, "unknown": None})

    assert "fine" == fetch()


def test_a_callable_that_is_no_function():
    """It has neither names nor defaults to put on the wrapper."""
    wrapper = compile_wrapper(len, shape(is_async=True), {"fn": len})

    assert "wrapper" == wrapper.__code__.co_name


# ---------------------------------------------------------------------------------------------- in a task, or not
def test_a_timeout_outside_of_asyncio():
    """Driven by hand, a timed coroutine says what it needs."""

    @timeout(5)
    async def fetch():
        return "never"

    coroutine = fetch()
    with pytest.raises(RuntimeError, match="needs a running asyncio task"):
        coroutine.send(None)


def test_a_timed_call_inside_itself():
    """Recursion in one task: the inner call takes the plan, both have their own deadline."""

    @timeout(5)
    async def count_down(n):
        return n if n == 0 else await count_down(n - 1)

    assert 0 == asyncio.run(count_down(5))
