"""Names and signatures that an attacker chose stay data: nothing of them is ever run as code."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import traceback
from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience import BreakerConfig, breaker, bulkhead, describe
from resilience._engine.signature import GENERIC, signature_of

guard = breaker("injection", BreakerConfig())

EVIL = "x=__import__('sys').modules.__setitem__('owned', 1)"

HOSTILE = [
    EVIL,
    f"a, {EVIL}",
    "a): pass\nimport owned #",
    "a\n",
    "*a",
    "a=1",
    "a:int",
    "",
    " ",
    "1a",
    "a.b",
    "None",
    "True",
    "def",
    "await",
    "__debug__",
    "_r_fn",
    "_r_",
    "ﬁ",  # a ligature: the compiler would read "fi"
    "𝐝𝐞𝐟",  # mathematical letters: the compiler would read "def"
    "\udc80",
    "a\0b",
    "#",
    "'",
    '"""',
    "\\",
    "{a}",
    "@fn",
    "%s",
]


def renamed(*names):
    """A function whose code claims to have these parameters."""
    code = (lambda a, b, /, c=3, *, d=4: (a, b, c, d)).__code__
    claimed = (*names, *code.co_varnames[len(names) :])
    function = FunctionType(code.replace(co_varnames=claimed), {}, "renamed", (3,))
    function.__kwdefaults__ = {claimed[3]: 4}
    return function


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", range(4))
def test_a_hostile_parameter_name_never_reaches_source(name, place):
    """A name that could be anything but a name makes the signature generic."""
    names = ["a", "b", "c", "d"]
    names[place] = name
    assert GENERIC == signature_of(renamed(*names))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_function_with_a_hostile_parameter_name_works(name):
    """It is called by position as before, and nothing else happens."""
    assert (1, 2, 3, 4) == guard(renamed(name))(1, 2)
    assert "owned" not in sys.modules


def test_two_parameters_of_one_name():
    """Code with a name twice can't be written, but made; it is passed on as it is."""
    assert (1, 2, 3, 4) == guard(renamed("a", "a"))(1, 2)


@given(st.text(max_size=8), st.text(max_size=8))
def test_any_names_at_all(first, second):
    """Whatever the code object claims, the decorated function answers."""
    assert (1, 2, 3, 4) == guard(renamed(first, second))(1, 2)


@pytest.mark.parametrize("name", ["größe", "名前", "ñ", "Ω"])
def test_a_name_beyond_ascii_is_a_name(name):
    """Users write in their own language, and get the exact signature."""
    scope = {}
    exec(f"def function({name}, *, b=1): return {name}", scope)
    assert 5 == guard(scope["function"])(**{name: 5})
    assert GENERIC != signature_of(scope["function"])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_function_name_is_only_a_name(name):
    """`__name__` and `__qualname__` are carried, not compiled."""

    def function():
        return "answer"

    function.__name__ = function.__qualname__ = name
    ours = guard(function)
    assert ("answer", name, name) == (ours(), ours.__name__, ours.__qualname__)


def test_a_hostile_docstring_is_only_a_text():
    """So are docstrings and annotations."""

    def function(): ...

    function.__doc__ = f'"""\n{EVIL}'
    function.__annotations__ = {"return": EVIL}
    guard(function)()
    assert "owned" not in sys.modules


def test_a_subclass_of_str_as_name():
    """A name whose methods lie is taken as text."""

    class Liar(str):
        def isidentifier(self):
            return True

        def __str__(self):
            return EVIL

    def function(): ...

    function.__name__ = function.__qualname__ = Liar("nobody")
    assert "nobody" == guard(function).__name__


@pytest.mark.parametrize("name", ["one\nERROR two", "a\x1b[31mb", "a\r\nb", "\u202eabc", "\udc80"])
def test_a_label_is_one_line(name):
    """What logs, events and descriptions print can't break out of its line."""

    def function(): ...

    function.__qualname__ = name
    label = describe(bulkhead(max_in_flight=1)(function)).name
    assert label.isprintable()


def test_a_label_of_a_strange_module():
    """`__module__` may be anything."""

    def function(): ...

    function.__module__ = 5
    assert describe(guard(function)).name.startswith("builtins:")


class TestTracebacks:
    """A wrapper is a frame with source, in tracebacks and debuggers."""

    @staticmethod
    def frames_of(function, *args):
        try:
            function(*args)
        except ValueError as error:
            return traceback.extract_tb(error.__traceback__)
        raise AssertionError("it must raise")

    def test_the_generated_line_is_shown(self):
        """The frame of the wrapper shows the line that called the function."""

        @guard
        def fail(text):
            raise ValueError(text)

        shown = [frame.line for frame in self.frames_of(fail, "no")]
        assert "_r_result = _r_fn(text)" in shown

    def test_the_frame_has_the_functions_name(self):
        """So profiles and traces need no explanation."""

        @guard
        def fail(text):
            raise ValueError(text)

        assert "fail" in [frame.name for frame in self.frames_of(fail, "no")]

    def test_an_async_wrapper_is_shown_too(self):
        """The line awaits."""

        @guard
        async def fail(text):
            raise ValueError(text)

        shown = [frame.line for frame in self.frames_of(lambda: asyncio.run(fail("no")))]
        assert "_r_result = await _r_fn(text)" in shown

    def test_the_source_survives_a_cache_check(self):
        """`linecache.checkcache`, which every printed traceback calls, keeps it."""

        @guard
        def function(a, b, c): ...

        linecache.checkcache()
        assert linecache.getlines(function.__code__.co_filename)

    def test_the_source_is_the_code(self):
        """The registered source has the wrapper's line where the code says it is."""

        @guard
        def function(a, b, c): ...

        line = linecache.getline(function.__code__.co_filename, function.__code__.co_firstlineno)
        assert "def wrapper(a, b, c):" == line.strip()

    def test_one_source_for_one_signature(self):
        """A thousand functions of one parameter list share one source, and one code."""

        def made(a, b):
            return a

        first, second = guard(made), guard(lambda a, b: b)
        assert first.__code__.co_filename == second.__code__.co_filename
        assert first.__code__.co_code is second.__code__.co_code or first.__code__.co_code == second.__code__.co_code

    def test_unwrapping_leads_to_the_users_source(self):
        """`inspect.getsourcefile` shows the user's file."""

        @guard
        def function(): ...

        assert __file__ == inspect.getsourcefile(inspect.unwrap(function))
