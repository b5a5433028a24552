"""A function's parameter list as source text.

Taken from the names in its code object, if each is an identifier that the compiler
takes as it is. A signature that can't be read, or could clash with our own names,
becomes `*args, **kwargs`: right, only slower.
"""

from __future__ import annotations

from keyword import iskeyword
from types import CodeType, FunctionType
from typing import NamedTuple

PREFIX = "_r_"
"""What all names of ours begin with in generated source."""

_VARARGS, _VARKEYWORDS = 0x04, 0x08


class Signature(NamedTuple):
    """Source texts of a parameter list, of the same arguments passed on, and of both as a tuple and a dict.

    `names` are the parameters that hold one argument each.
    """

    parameters: str
    passed: str
    positional: str
    keywords: str
    names: tuple[str, ...] = ()


GENERIC = Signature("*args, **kwargs", "*args, **kwargs", "args", "kwargs")


def signature_of(fn: object) -> Signature:
    """The exact parameter list of a plain function, or the generic one.

    Read from the code object: `inspect.signature` would follow `__wrapped__` to a
    function with another list.
    """
    code = getattr(fn, "__code__", None)
    if type(fn) is not FunctionType or not isinstance(code, CodeType):
        return GENERIC
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keyword_only = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    at = code.co_argcount + code.co_kwonlyargcount
    varargs = varkeywords = ""
    if code.co_flags & _VARARGS:
        varargs, at = names[at], at + 1
    if code.co_flags & _VARKEYWORDS:
        varkeywords = names[at]
    every = [*positional, *keyword_only, *filter(None, (varargs, varkeywords))]
    if len(set(every)) != len(every) or not all(map(_is_harmless, every)):
        return GENERIC
    parameters = list(positional)
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    if varargs:
        parameters.append("*" + varargs)
    elif keyword_only:
        parameters.append("*")
    parameters += keyword_only
    star = ["*" + varargs] if varargs else []
    stars = ["**" + varkeywords] if varkeywords else []
    return Signature(
        ", ".join([*parameters, *stars]),
        ", ".join([*positional, *star, *(f"{name}={name}" for name in keyword_only), *stars]),
        "(" + "".join(f"{part}, " for part in [*positional, *star]) + ")",
        "{" + ", ".join([*(f"'{name}': {name}" for name in keyword_only), *stars]) + "}",
        (*positional, *keyword_only),
    )


def _is_harmless(name: str) -> bool:
    """Whether a parameter's name may stand in source: anything else could be text made to be code."""
    return (
        name.isidentifier()
        and not iskeyword(name)
        and not name.startswith(PREFIX)
        and name != "__debug__"
        and (name.isascii() or _is_normal(name))
    )


def _is_normal(name: str) -> bool:
    """Whether the compiler, which normalizes every name, would leave this one as it is."""
    import unicodedata

    return unicodedata.is_normalized("NFKC", name)
