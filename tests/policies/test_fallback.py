"""What a skipped call is answered with."""

from __future__ import annotations

import functools

import pytest

from resilience._core.outcome import Outcome
from resilience._engine.world_sync import run
from resilience._policies.fallback import Fallback


def embed(texts, model="small", *more, size=100, **options):
    """The protected function."""


class World:
    async def invoke(self, function, args, kwargs):
        return Outcome(function(*args, **kwargs))


class Call:
    world = World()

    def __init__(self, fn, args, kwargs):
        self.site = type("Site", (), {"fn": staticmethod(fn)})
        self.args, self.kwargs = args, kwargs
        self.skipped = False

    def skip(self):
        self.skipped = True


def answer(fallback, *args, fn=embed, **kwargs):
    return run(Fallback(fallback).answer(Call(fn, args, kwargs))).value


@pytest.mark.parametrize("value", [None, 0, [], "text"])
def test_a_value_stands_for_itself(value):
    """Whatever the arguments."""
    assert value == answer(value, "t", "small", size=100)


def test_a_function_of_the_same_arguments():
    """It is given all of them, defaults filled in."""

    def fallback(texts, model, *more, size, **options):
        return texts, model, more, size, options

    assert ("t", "big", ("x",), 7, {"other": 8}) == answer(fallback, "t", "big", "x", size=7, other=8)


def test_a_function_that_takes_anything():
    """Stars take what comes."""
    assert (("t", "small"), {"size": 100}) == answer(lambda *args, **kwargs: (args, kwargs), "t", "small", size=100)


def test_a_function_of_fewer_arguments():
    """What it can't take is left out where it is the function's own default."""
    assert "t" == answer(lambda texts: texts, "t", "small", size=100)


def test_a_function_that_can_take_a_default_is_given_it():
    """What was filled in is left out only where there is no place for it."""

    def fallback(texts, model, *, size):
        return texts, model, size

    assert ("t", "small", 100) == answer(fallback, "t", "small", size=100)


def test_a_function_of_no_arguments():
    """As long as there are only defaults."""

    def fn(a=1, b=2): ...

    assert "instead" == answer(lambda: "instead", 1, 2, fn=fn)


def test_an_argument_that_was_given_is_not_dropped():
    """A fallback that can't take what the caller said is a mistake that shows."""
    with pytest.raises(TypeError):
        answer(lambda texts: texts, "t", "big", size=100)
    with pytest.raises(TypeError):
        answer(lambda texts: texts, "t", "small", size=7)
    with pytest.raises(TypeError):
        answer(lambda texts: texts, "t", "small", size=100, other=None)


def test_an_argument_beyond_the_defaults_is_not_dropped():
    """Nor one of a star parameter."""
    with pytest.raises(TypeError):
        answer(lambda texts: texts, "t", "small", "small", size=100)


def test_a_keyword_that_the_fallback_knows():
    """It is given, default or not."""
    assert 100 == answer(lambda texts, *, size: size, "t", "small", size=100)


def test_a_function_that_tells_nothing_of_itself():
    """A builtin without a signature is called with everything."""

    class Silent:
        __signature__ = "nonsense"

        def __call__(self, *args, **kwargs):
            return args, kwargs

    assert (("t",), {"size": 100}) == answer(Silent(), "t", size=100)


def test_a_protected_callable_without_defaults_of_its_own():
    """A partial or a builtin has none to look up."""
    assert "t" == answer(lambda texts: texts, "t", fn=functools.partial(embed, "t"))
