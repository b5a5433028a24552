"""Calls through a wrapper bind their arguments exactly as the plain function does, right ones and wrong ones."""

from __future__ import annotations

import asyncio
import keyword

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resilience import BreakerConfig, Registry, breaker, bulkhead, compose, retry, timeout, use_registry

POSITIONAL_ONLY, ANY, KEYWORD_ONLY = range(3)

NAMES = [
    "a",
    "b",
    "c",
    "self",
    "cls",
    "fn",
    "args",
    "kwargs",
    "time",
    "type",
    "match",
    "_",
    "__",
    "wrapper",
    "make",
    "episode",
    "Exception",
    "callee",
    "größe",
    "名前",
    "_r_fn",
    "_r_result",
    "_r_",
]


@st.composite
def signatures(draw):
    """A parameter list as text, and the names in it."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    kinds = sorted(draw(st.integers(POSITIONAL_ONLY, KEYWORD_ONLY)) for _ in names)
    defaults = [draw(st.booleans()) for _ in names]
    rest = [name for name in NAMES if name not in names]
    varargs = draw(st.sampled_from([None, *rest[:3]]))
    varkeywords = draw(st.sampled_from([None, *rest[3:6]]))
    parts, defaulted = [], False
    for index, (name, kind, default) in enumerate(zip(names, kinds, defaults, strict=True)):
        if kind is KEYWORD_ONLY and "*" not in "".join(parts):
            parts.append("*" + (varargs or ""))
        # A parameter without a default may not follow one that has one, except behind the star.
        defaulted = default if kind is KEYWORD_ONLY else defaulted or default
        parts.append(f"{name}={index!r}" if defaulted else name)
        if kind is POSITIONAL_ONLY and kind not in kinds[index + 1 :]:
            parts.append("/")
    if varargs and "*" not in "".join(parts):
        parts.append("*" + varargs)
    if varkeywords:
        parts.append("**" + varkeywords)
    return ", ".join(parts)


calls = st.tuples(
    st.lists(st.integers(0, 9), max_size=5), st.dictionaries(st.sampled_from(NAMES), st.integers(10, 19), max_size=4)
)


def made(parameters, define="def"):
    scope = {}
    exec(f"{define} function({parameters}): return locals()", scope)
    return scope["function"]


def outcome(function, args, kwargs, run):
    try:
        return run(function(*args, **kwargs))
    except TypeError as error:
        return type(error)


POLICIES = {
    "straight path": lambda: (breaker("b", BreakerConfig()), bulkhead(max_in_flight=1), retry(2, idempotent=True)),
    "plan": lambda: (breaker("b", BreakerConfig(), account="call"), bulkhead(max_in_flight=1)),
    "name not known yet": lambda: (breaker("nobody-registered-it"), bulkhead(max_in_flight=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("policies", POLICIES)
@given(signatures(), calls)
@example("self, /, *args, **kwargs", ([1], {"self": 2}))
@example("**kwargs", ([], {"self": 2, "args": 3, "fn": 4}))
def test_a_plain_function_binds_as_before(policies, parameters, call):
    """Same parameters, same locals; a wrong list raises TypeError all the same."""
    plain = made(parameters)
    with use_registry(Registry()):
        ours = compose(*POLICIES[policies]())(plain)
        assert outcome(plain, *call, lambda value: value) == outcome(ours, *call, lambda value: value)


@pytest.mark.slow
@pytest.mark.parametrize("policies", POLICIES)
@given(signatures(), calls)
@example("**kwargs", ([], {"self": 2, "args": 3, "fn": 4}))
def test_an_async_function_binds_as_before(policies, parameters, call):
    """The same for coroutine functions, with a timeout on top."""
    plain = made(parameters, "async def")
    with use_registry(Registry()):
        ours = compose(timeout(30), *POLICIES[policies]())(plain)
        assert outcome(plain, *call, asyncio.run) == outcome(ours, *call, asyncio.run)


wrong_calls = pytest.mark.parametrize(
    ("parameters", "args", "kwargs"),
    [
        ("a", (), {}),
        ("a", (1, 2), {}),
        ("a", (1,), {"b": 2}),
        ("a", (1,), {"a": 2}),
        ("a, /", (), {"a": 1}),
        ("*, a", (1,), {}),
        ("*, a", (), {}),
        ("größe", (), {"größe": 1, "breite": 2}),
    ],
)


@wrong_calls
def test_a_wrong_call_fails_before_anything_is_asked(parameters, args, kwargs):
    """The open circuit does not answer what was no call at all."""
    with use_registry(Registry()) as registry:
        ours = compose(breaker("b", BreakerConfig()), bulkhead("h", max_in_flight=1))(made(parameters))
        registry.get("b").force_open("nobody may call")
        with pytest.raises(TypeError):
            ours(*args, **kwargs)
        assert 0 == registry.get("b").status().rejected_total


@wrong_calls
def test_a_wrong_call_reads_as_before(parameters, args, kwargs):
    """The message of the TypeError names the user's function and parameters."""
    plain = made(parameters)
    with pytest.raises(TypeError) as theirs:
        plain(*args, **kwargs)
    with pytest.raises(TypeError) as ours:
        breaker("b", BreakerConfig())(plain)(*args, **kwargs)
    assert str(theirs.value) == str(ours.value)


def test_a_type_error_from_inside_is_the_functions_own():
    """One that the function raises itself is an outcome like any other."""

    def function(number):
        return number + "text"

    with pytest.raises(TypeError, match="unsupported operand"):
        breaker("b", BreakerConfig())(function)(1)


def test_defaults_are_the_very_objects():
    """A mutable default is shared between the plain and the decorated function, as it always was."""

    def collect(item, into=[]):  # noqa: B006  # that is what is tested
        into.append(item)
        return into

    assert collect("a") is breaker("b", BreakerConfig())(collect)("b")


def test_no_name_of_this_test_is_a_keyword():
    """The generated signatures are valid Python."""
    assert not any(map(keyword.iskeyword, NAMES))
