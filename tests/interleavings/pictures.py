"""What a state is: everything reachable from some roots, with objects numbered in the order in which they are reached."""

from __future__ import annotations

import enum
import functools
import itertools
import types
from collections import deque
from contextvars import Context, ContextVar, Token

_ATOMS = frozenset({int, float, str, bool, bytes, type(None), complex})
_OPAQUE_MODULES = (
    "resilience._registry",
    "resilience._site",
    "resilience._settings",
    "resilience._assembly",
    "resilience.catalogue",
    "resilience._core.config",
    "resilience._core.rule",
    "resilience._policies.guard",
    "resilience._compose",
)
_OPAQUE = (type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType, ContextVar, Context, Token)
CONSTANT = frozenset(
    [
        "_classify",
        "_failing_guards",
        "_guards",
        "_home",
        "_hub",
        "_name",
        "_services",
        "bare",
        "longest",
        "mark",
        "max_in_flight",
        "max_waiting",
        "name",
        "tick",
    ]
)
"""Attributes that are set once and lead to nothing that changes, or to nothing else that is not reached otherwise."""


class Picture:
    """A value for the state reachable from some objects: equal for equal states of different schedules.

    With `only` it is the value of one place: of an attribute in all objects, or of all containers.
    """

    kinds: dict = {}

    def __init__(self, only=None, names=None):
        self.out = []
        self.numbers = {}
        self.kept = []
        self.only = only
        self.names = names
        self.name = ""
        self.seen_of_it = []

    def value(self):
        return hash(tuple(self.out if self.only is None else self.seen_of_it))

    def add(self, thing):
        kind = type(thing)
        out = self.out
        if kind in _ATOMS:
            out.append(thing)
            return
        number = self.numbers.get(id(thing))
        if number is not None:
            out.append(number)
            return
        self.numbers[id(thing)] = len(self.numbers)
        self.kept.append(thing)
        how = self.kinds.get(kind)
        if how is None:
            how = self.kinds[kind] = _way_to_see(kind)
        out.append(kind.__name__)
        how(self, thing)

    def in_turn(self, thing):
        start = len(self.out)
        for one in tuple(thing):
            self.add(one)
        self.out.append(len(thing))
        if self.only is not None and self.only[0] != ".":
            self.seen_of_it.append((self.numbers[id(thing)], *self.out[start:]))

    def by_key(self, thing):
        start = len(self.out)
        for key, one in tuple(thing.items()):
            self.add(key)
            self.add(one)
        self.out.append(len(thing))
        if self.only is not None and self.only[0] != ".":
            self.seen_of_it.append((self.numbers[id(thing)], *self.out[start:]))

    def attributes(self, thing, names):
        for name in names:
            if name in CONSTANT and self.names is None:
                continue
            try:
                one = getattr(thing, name)
            except AttributeError:
                self.out.append(f"no {name}")
                continue
            self.attribute(thing, name, one)

    def attribute(self, thing, name, one):
        if self.names is not None:
            before, self.name = self.name, f"{self.name}.{name}"
            if type(one) not in _ATOMS:
                self.names.setdefault(id(one), self.name)
            if name not in CONSTANT:
                self.add(one)
            self.name = before
            return
        start = len(self.out)
        self.add(one)
        if self.only is not None and self.only[1:] == name:
            self.seen_of_it.append((self.numbers[id(thing)], self.out[start], self.numbers.get(id(one))))


def _way_to_see(kind):
    if issubclass(kind, enum.Enum):
        return lambda picture, thing: picture.out.append(thing.name)
    if issubclass(kind, _OPAQUE) or kind.__module__.startswith(_OPAQUE_MODULES):
        return lambda picture, thing: picture.out.append(getattr(thing, "__name__", ""))
    if issubclass(kind, dict):
        return Picture.by_key
    if issubclass(kind, (tuple, list, deque)):
        return Picture.in_turn
    if issubclass(kind, (set, frozenset)):
        return lambda picture, thing: picture.out.append(tuple(sorted(map(repr, thing))))
    if issubclass(kind, itertools.count):
        return _see_count
    if kind is types.FunctionType:
        return _see_function
    if kind is types.MethodType:
        return lambda picture, thing: (picture.out.append(thing.__name__), picture.add(thing.__self__))
    if kind is types.BuiltinMethodType:
        return lambda picture, thing: (picture.out.append(thing.__name__), _see_owner(picture, thing.__self__))
    if kind is functools.partial:
        return lambda picture, thing: (picture.add(thing.func), picture.add(thing.args), picture.add(thing.keywords))
    if issubclass(kind, BaseException):
        return lambda picture, thing: (picture.add(thing.args), picture.add(thing.__dict__))
    if kind in (types.CoroutineType, types.GeneratorType):
        return lambda picture, thing: picture.out.append(thing.__qualname__)
    if kind.__repr__ is not object.__repr__ and not hasattr(kind, "__slots__") and kind.__module__ == "builtins":
        return lambda picture, thing: picture.out.append(getattr(thing, "__length_hint__", lambda: 0)())
    slots = sorted(
        {
            name
            for base in kind.__mro__
            for name in (
                [base.__dict__["__slots__"]]
                if isinstance(base.__dict__.get("__slots__"), str)
                else base.__dict__.get("__slots__", ())
            )
            if name not in ("__weakref__", "__dict__")
        }
    )

    def see(picture, thing):
        if slots:
            picture.attributes(thing, slots)
        for name, one in getattr(thing, "__dict__", {}).items():
            if name not in CONSTANT or picture.names is not None:
                picture.attribute(thing, name, one)

    return see


def _see_count(picture, thing):
    picture.out.append(repr(thing))
    if picture.only is not None and picture.only[0] != ".":
        picture.seen_of_it.append((picture.numbers[id(thing)], repr(thing)))


def _see_function(picture, thing):
    picture.out.append(thing.__qualname__)
    # Of compiled wrappers and our own bodies the cells hold the whole world, which is watched anyhow.
    if "<lambda>" in thing.__qualname__ or "<locals>" in thing.__qualname__:
        for cell in thing.__closure__ or ():
            try:
                picture.add(cell.cell_contents)
            except ValueError:
                picture.out.append("empty")


def _see_owner(picture, owner):
    if not isinstance(owner, types.ModuleType):
        picture.add(owner)
