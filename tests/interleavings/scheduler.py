"""Every way in which a few threads can interleave, bytecode by bytecode.

How a schedule is run
    Each thread is a real one and runs under a trace function that is called before every
    bytecode of the library (files below `resilience/`, generated `<resilience …>` wrappers)
    and of the scenario's own file. Exactly one thread runs at any time; before a bytecode at
    which it matters who goes on, the running thread asks the explorer. Locks and threads that the
    library makes are ours while a scenario lasts: whoever would block lets another one
    go on, a state in which nobody can go on is a deadlock, and a wait with a timeout may run out
    whenever the explorer says so. No time passes, nothing is random: a schedule
    is a list of choices and can be run again.

Where it matters who goes on
    `OWN` lists the bytecodes that touch nothing but the frame's own stack and fast locals
    (or compare and add numbers, which nobody can change). What another thread does before or
    after them makes no difference. Everything else, also a bytecode nobody has
    heard of, is an *access* to a place: an attribute by its name, a cell or a global by its
    name, or `HEAP`, which stands for the inside of all containers and counters together. Two names of one place
    are one place, so the places are coarse, and that is safe: more places conflict than do in truth.

    A place conflicts if two threads come there in any schedule seen so far and at least
    one of them writes. An access elsewhere commutes with all that the others do, so it is
    done in one go with the step before it. If a schedule shows a new conflict the
    exploration starts over with it, until there is none: then each interleaving
    of all bytecodes is a reordering of commuting steps of one that was explored.

When a state has been seen
    All schedules are walked depth first, by running them again from the beginning. A
    state that was seen before is not gone on from: the same future would follow. The
    state is everything reachable from what the scenario watches, from the locals of every frame of every
    thread, where each of them stands, and who waits for which lock, with objects numbered in
    the order in which they are reached. What is only on a frame's stack can't be seen
    from Python: for it stands what the frame has read in conflicting places since
    its stack was last empty. `test_explorer.py` compares with explorations that skip nothing.

What is not seen: finalisers and signals (`tests/races/test_reentrancy.py` has them), the inside
of one C call, and Python code of others (logging, say), which runs in one go.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import gc
import itertools
import logging
import os
import sys
import threading
import time
import types
from collections import deque
from contextvars import Context, ContextVar, Token
from typing import NamedTuple

from resilience._policies import circuit_breaker

HEAP, LOCK = "the inside of containers and counters", "a lock"
LINES_FIRST = sys.version_info >= (3, 13)
"""Python 3.13 forgets that bytecodes of a function were asked for when it runs without being traced, and takes notice
of being asked again from the first line of a frame on, not when it is called."""

OWN = frozenset(
    [
        "ASYNC_GEN_WRAP",
        "BINARY_OP",
        "BUILD_CONST_KEY_MAP",
        "BUILD_LIST",
        "BUILD_MAP",
        "BUILD_SET",
        "BUILD_SLICE",
        "BUILD_STRING",
        "BUILD_TUPLE",
        "CACHE",
        "CALL_INTRINSIC_1",
        "CALL_INTRINSIC_2",
        "CHECK_EG_MATCH",
        "CHECK_EXC_MATCH",
        "CLEANUP_THROW",
        "COMPARE_OP",
        "CONVERT_VALUE",
        "COPY",
        "COPY_FREE_VARS",
        "DELETE_FAST",
        "END_FOR",
        "END_SEND",
        "EXIT_INIT_CHECK",
        "EXTENDED_ARG",
        "FORMAT_SIMPLE",
        "FORMAT_VALUE",
        "FORMAT_WITH_SPEC",
        "GET_AWAITABLE",
        "GET_ITER",
        "GET_YIELD_FROM_ITER",
        "IMPORT_FROM",
        "IMPORT_NAME",
        "INTERPRETER_EXIT",
        "IS_OP",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "JUMP_FORWARD",
        "KW_NAMES",
        "LIST_APPEND",
        "LIST_TO_TUPLE",
        "LOAD_ASSERTION_ERROR",
        "LOAD_BUILD_CLASS",
        "LOAD_CLOSURE",
        "LOAD_CONST",
        "LOAD_FAST",
        "LOAD_FAST_AND_CLEAR",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_LOAD_FAST",
        "MAKE_CELL",
        "MAKE_FUNCTION",
        "MAP_ADD",
        "NOP",
        "POP_EXCEPT",
        "POP_JUMP_BACKWARD_IF_NONE",
        "POP_JUMP_BACKWARD_IF_NOT_NONE",
        "POP_JUMP_FORWARD_IF_NONE",
        "POP_JUMP_FORWARD_IF_NOT_NONE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "POP_TOP",
        "PRECALL",
        "PUSH_EXC_INFO",
        "PUSH_NULL",
        "RAISE_VARARGS",
        "RERAISE",
        "RESUME",
        "RETURN_CONST",
        "RETURN_GENERATOR",
        "RETURN_VALUE",
        "SEND",
        "SET_ADD",
        "SET_FUNCTION_ATTRIBUTE",
        "STORE_FAST",
        "STORE_FAST_LOAD_FAST",
        "STORE_FAST_STORE_FAST",
        "SWAP",
        "UNARY_INVERT",
        "UNARY_NEGATIVE",
        "UNARY_POSITIVE",
        "UNPACK_SEQUENCE",
        "YIELD_VALUE",
    ]
)
"""Nobody else can tell whether these come before or after anything. The operands of comparisons and operators are
numbers, texts and enum members throughout the library, and what is unpacked is a tuple."""

# Looked at beneath the last one: does it leave a real bool, so that a jump on it reads nothing?
_BOOLS = frozenset({"COMPARE_OP", "IS_OP", "CONTAINS_OP", "UNARY_NOT", "TO_BOOL", "CHECK_EXC_MATCH"})
_LOADS = frozenset(["LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"])
_CALLS = frozenset(["CALL", "CALL_KW", "CALL_FUNCTION_EX"])
# No function of the library returns a container that others change.
_FRESH = _CALLS | frozenset(
    ["BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP", "BUILD_SET", "BINARY_OP", "COMPARE_OP", "GET_ITER", "MAKE_FUNCTION"]
)

# Calls into C, by name: those of no effect on the place, and those that only read. All others write.
_HARMLESS = frozenset(
    [
        "isinstance",
        "issubclass",
        "get_ident",
        "round",
        "abs",
        "monotonic",
        "time_ns",
        "monotonic_ns",
        "hash",
        "id",
        "callable",
        "exc_info",
        "_getframe",
        "copy_context",
        "append_own",
    ]
)
_READING = frozenset(
    [
        "len",
        "repr",
        "getattr",
        "hasattr",
        "sorted",
        "min",
        "max",
        "sum",
        "any",
        "all",
        "get",
        "copy",
        "items",
        "keys",
        "values",
        "count",
        "index",
        "__len__",
        "__repr__",
        "__contains__",
        "__getitem__",
        "__iter__",
    ]
)
_HARMLESS_TYPES = (str, int, float, bool, bytes, type(None), tuple, range, frozenset, enum.Enum, type, types.ModuleType)


class Step(NamedTuple):
    """What is known of one bytecode before it runs."""

    place: str | None
    """Where it reads or writes; None where it depends on the object, which `path` leads to."""
    writes: bool
    path: tuple | None = None
    """The names that lead to the container, function or method in question, beginning with a local; None if unknown."""
    argument: tuple | None = None
    """The same for the first argument of a call."""
    is_call: bool = False
    pushes: bool = True
    """It may leave on the stack what it has read."""


class Plan:
    """The bytecodes of a code object: its steps by offset, and where its stack is empty."""

    def __init__(self, code):
        # Names rather than the object: wrappers are made anew for each schedule.
        self.key = (code.co_filename, code.co_qualname, code.co_firstlineno)
        self.instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
        self.depths = _depths(code, self.instructions)
        self.fresh = code.co_name == "__init__"
        self.empty = frozenset(offset for offset, depth in self.depths.items() if depth == 0)
        self.steps = {}
        for index, one in enumerate(self.instructions):
            step = None if one.opname in OWN else self._step(index, one)
            if step is not None:
                self.steps[one.offset] = step

    def _step(self, index, one):
        name = one.opname
        if name in _LOADS:
            return Step(f".{_text(one.argval)}", False, self._path(index))
        if name in ("STORE_ATTR", "DELETE_ATTR"):
            # Nobody else knows an object that is being made.
            if self.fresh:
                return None
            if self.instructions[index - 1].opname == "SWAP":
                index = self._read_of(index)
            return Step(f".{one.argval}", True, self._path(index), pushes=False)
        if name.endswith(("_DEREF", "_CLASSDEREF", "_GLOBAL", "_NAME")) or name == "LOAD_FROM_DICT_OR_GLOBALS":
            kind = "cell" if "DEREF" in name else "global"
            return Step(f"{kind} {one.argval}", not name.startswith("LOAD"))
        if "JUMP_IF" in name or name.startswith("POP_JUMP") or name in ("TO_BOOL", "UNARY_NOT"):
            before = self.instructions[index - 1]
            if before.opname in _BOOLS and not one.is_jump_target:
                return None
            return Step(None, False, self._path(index), pushes=False)
        if name == "FOR_ITER":
            if self.instructions[index - 1].opname == "GET_ITER":
                index -= 1
            return Step(None, False, self._path(index))
        if name in ("CONTAINS_OP", "LIST_EXTEND", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE"):
            return Step(None, False, self._path(index))
        if name in ("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR"):
            return Step(None, name != "BINARY_SUBSCR", self._path(self._start_of(index, 1)))
        if name in ("CALL", "CALL_KW"):
            start = self._start_of(index, one.arg + (name == "CALL_KW"))
            path = None if start is None else self._path(start)
            if path == ():
                return None  # a comprehension, or a function that was just made
            argument = self._path(self._start_of(index, one.arg - 1 + (name == "CALL_KW"))) if one.arg else None
            return Step(None, True, path, argument, is_call=True)
        if name in ("CALL_FUNCTION_EX", "BEFORE_WITH", "WITH_EXCEPT_START"):
            return Step(None, True, None, is_call=True)
        return Step(HEAP, True)

    def _start_of(self, index, count):
        """Where the code that pushes the last `count` values before an instruction begins; None if that can't be told."""
        # In 3.11 what a call takes is off the books from its PRECALL on.
        while self.instructions[index - 1].opname in ("PRECALL", "KW_NAMES"):
            index -= 1
        depth = self.depths.get(self.instructions[index].offset)
        if depth is None:
            return None
        for place in range(index, -1, -1):
            here = self.depths.get(self.instructions[place].offset)
            if here == depth - count:
                return place
            if here is None or here < depth - count:
                return None
        return None

    def _read_of(self, index):
        """Where `x.a += 1` has x on the stack, and reads what it writes in the end; None if it is something else."""
        for place in range(index - 1, 0, -1):
            one = self.instructions[place]
            if one.opname == "LOAD_ATTR" and one.argval == self.instructions[index].argval:
                return place - 1 if self.instructions[place - 1].opname == "COPY" else None
        return None

    def _path(self, index):
        """The names by which what is on the stack before an instruction was reached; none for what nobody else has."""
        names = []
        index = index or 0
        while index:
            index -= 1
            one = self.instructions[index]
            if one.opname in _LOADS:
                names.append(_text(one.argval))
            elif one.opname in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF"):
                return (one.argval, *reversed(names))
            elif one.opname in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"):
                return (one.argval[1], *reversed(names))
            elif one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                return (None, one.argval, *reversed(names))
            elif one.opname == "LOAD_CONST" or (not names and one.opname in _FRESH):
                return ()
            elif one.opname not in ("PUSH_NULL", "PRECALL", "KW_NAMES", "COPY"):
                return None
        return None


def _follow(path, frame):
    """The object that a path leads to, and whether there is one."""
    if path is None:
        return None, False
    if not path:
        return None, True
    first, *names = path
    try:
        if first is not None:
            thing = frame.f_locals[first]
        else:
            name = names.pop(0)
            thing = frame.f_globals[name] if name in frame.f_globals else getattr(builtins, name)
        for name in names:
            thing = getattr(thing, name)
    except (LookupError, AttributeError):
        return None, False
    return thing, True


def _text(argval):
    return argval if isinstance(argval, str) else argval[-1]


def _depths(code, instructions):
    """How high the stack is before each instruction."""
    follows = {one.offset: after for one, after in itertools.pairwise(instructions)}
    by_offset = {one.offset: one for one in instructions}
    depths, todo = {}, [(instructions[0].offset, 0)]
    todo += [(entry.target, entry.depth + 1 + entry.lasti) for entry in dis.Bytecode(code).exception_entries]
    while todo:
        offset, depth = todo.pop()
        if offset in depths or offset not in by_offset:
            continue
        depths[offset] = depth
        one = by_offset[offset]
        arg = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            todo.append((one.argval, depth + dis.stack_effect(one.opcode, arg, jump=True)))
        ends = one.opname in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
        always = one.opname.startswith("JUMP_") and "IF" not in one.opname
        if not ends and not always and offset in follows:
            todo.append((follows[offset].offset, depth + dis.stack_effect(one.opcode, arg, jump=False)))
    return depths


# ------------------------------------------------------------------------------------------------ what a state is
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
_CONTAINERS = (list, deque, dict, set, itertools.count)
CONSTANT = frozenset(
    [
        "_classify",
        "_config",
        "_failing_guards",
        "_guards",
        "_home",
        "_hub",
        "_limit",
        "_name",
        "_services",
        "_within",
        "bare",
        "by_kind",
        "config",
        "longest",
        "limit",
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
    if kind is itertools.count:
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


# ------------------------------------------------------------------------------------------------ locks and threads
class CoopLock:
    """`threading.Lock` in the hands of the explorer; also `threading.RLock`."""

    reentrant = False

    def __init__(self, explorer):
        self.explorer = explorer
        self.owner = None
        self.held = 0
        self.serial = explorer.next_lock()

    def acquire(self, blocking=True, timeout=-1):
        explorer = self.explorer
        me = explorer.current
        if not blocking or timeout >= 0:
            explorer.is_tried(self.serial)
        explorer.stop_at_lock(sys._getframe(0))
        while not self.is_free_for(me):
            if not blocking or timeout == 0:
                return False
            if not explorer.wait_for(self, timed=timeout > 0):
                return False
        self.owner = me
        self.held += 1
        if self.reentrant and me is not None and self.serial is not None:
            me.locks = me.locks | {self.serial}
        return True

    def is_free_for(self, thread):
        return not self.held or (self.reentrant and self.owner is thread)

    def release(self):
        # Whoever waits for a lock may as well go on later; who only tries it can tell when it is released.
        if not self.reentrant or self.serial is None or self.serial in self.explorer.tried:
            self.explorer.stop_at_lock(sys._getframe(0))
        if not self.held or (self.reentrant and self.owner is not self.explorer.current):
            raise RuntimeError("release unlocked lock")
        self.held -= 1
        if not self.held:
            if self.reentrant and self.owner is not None:
                self.owner.locks = self.owner.locks - {self.serial}
            self.owner = None

    def locked(self):
        self.explorer.stop_at_lock(sys._getframe(0))
        return bool(self.held)

    def _is_owned(self):
        return bool(self.held) and self.owner is self.explorer.current

    def __enter__(self):
        self.acquire()
        return True

    def __exit__(self, *exc):
        self.release()


class CoopRLock(CoopLock):
    """`threading.RLock` in the hands of the explorer."""

    reentrant = True


Picture.kinds[CoopLock] = Picture.kinds[CoopRLock] = lambda picture, lock: picture.out.extend(
    (lock.held, None if lock.owner is None else lock.owner.index)
)


class CoopThread:
    """`threading.Thread` in the hands of the explorer."""

    def __init__(self, explorer, target, name=None, daemon=None, args=()):
        self._explorer, self._target, self._args, self._daemon = explorer, target, args, daemon

    def start(self):
        self._explorer.add(functools.partial(self._target, *self._args), daemon=True)


class Threading:
    """Stands for the module `threading` in the library's modules."""

    def __init__(self, explorer):
        self.Lock = functools.partial(CoopLock, explorer)
        self.RLock = functools.partial(CoopRLock, explorer)
        self.Thread = functools.partial(CoopThread, explorer)

    def __getattr__(self, name):
        return getattr(threading, name)


class Abort(BaseException):
    """Ends a thread whose schedule is of no more interest."""


class Found(AssertionError):
    """A schedule that breaks a promise."""


class Thread:
    """One of the threads of a schedule; it runs on a real thread that is used for all schedules."""

    def __init__(self, explorer, index):
        self.explorer = explorer
        self.index = index
        self.baton = threading.Lock()
        self.baton.acquire()
        self.chains = {}
        self.renew(None)
        self.real = threading.Thread(target=self._live, name=f"interleaving {index}", daemon=True)
        self.real.start()

    def renew(self, body, daemon=False, patience=0):
        self.body = body
        self.daemon = daemon
        self.patience = patience
        self.done = body is None
        self.waiting = None
        self.timed = False
        self.frame = self.latest = None
        self.chains.clear()
        self.called = None
        self.locks = frozenset()
        self.result = self.error = None

    def can_go_on(self):
        if self.done:
            return False
        lock = self.waiting
        return lock is None or lock.is_free_for(self) or (self.timed and self.patience > 0)

    def _live(self):
        before = sys.gettrace()
        # Once for good: where tracing goes on and off while another thread stands in a traced bytecode, 3.12 crashes.
        sys.settrace(self.explorer.tracer(self))
        try:
            while True:
                self.baton.acquire()
                if self.body is None:
                    return
                self._run()
                self.explorer.finished(self)
        finally:
            sys.settrace(before)

    def _run(self):
        try:
            # A context of its own, or a mark would be left behind for the next schedule.
            self.result = Context().run(self.body)
        except Abort:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.frame = self.latest = None
            self.done = True


class Race(NamedTuple):
    """One fresh world: what the threads do, what they share, and what must hold when all have ended."""

    bodies: tuple
    watched: tuple
    """Objects whose reachable state decides the future, and everything that `check` reads."""
    check: object
    """Called with the results of the bodies in order; an AssertionError is a find."""
    patience: tuple = ()
    """How many waits with a timeout may run out, by thread; more threads than given have none."""
    reading: object = None
    """Called with the results: all that a user could tell afterwards; it must be the same as in some order one after
    the other."""


class Report(NamedTuple):
    """What an exploration was."""

    schedules: int
    complete: int
    states: int
    places: tuple
    seconds: float
    """Of processor time."""
    outcomes: frozenset

    def __str__(self):
        return (
            f"{self.schedules} schedules, {self.complete} to the end, {self.states} states, "
            f"{len(self.places)} conflicting places, {len(self.outcomes)} outcomes, {self.seconds:.1f} s"
        )

    __repr__ = __str__


class Explorer:
    """Runs a scenario in every schedule, or in every one with at most so many preemptions."""

    def __init__(self, traced_file=""):
        self.traced_file = traced_file
        self._known = {}
        self._plans, self._passing = {}, []
        self._threads = []
        self.current = None
        self.draining = False
        self._main = threading.Lock()
        self._main.acquire()
        self._python, self._mixed = set(), set()
        self.tried = set()
        self._locks = itertools.count()
        self._names, self._owners = {}, {}
        self._written, self._coarse, self._shared = set(), set(), set()
        self._touched = {}
        self._conflicts = set()
        self._learned = False

    # -------------------------------------------------------------------------------------------- from the outside
    def __call__(self, make, *, preemptions=None, pruned=True, everywhere=False, most=100_000):
        """Explore; a schedule that breaks a promise raises `Found`, which tells it.

        Args:
            make: makes a `Race`, once for each schedule.
            preemptions: how often a thread that could go on may be put aside in one schedule; None for no limit.
            pruned: whether states that were seen before are left out.
            everywhere: whether each access is a place to stop at, whether anybody else comes there or not.
            most: schedules after which something must be wrong with the scenario.
        """
        began = time.process_time()
        for known in (
            *(self._python, self._mixed, self.tried, self._touched, self._conflicts),
            *(self._written, self._coarse, self._shared),
        ):
            known.clear()
        self._preemptions, self._pruned = preemptions, pruned
        put_back = self._take_over()
        try:
            self._serial = self._one_after_the_other(make)
            self._most, self._everywhere = most, everywhere
            schedules, complete, outcomes = self._walk(make)
            states = len(self._visited)
            self._tell_states_apart(make)
        finally:
            put_back()
        places, seconds = tuple(sorted(self._conflicts)), time.process_time() - began
        return Report(schedules, complete, states, places, seconds, frozenset(outcomes))

    def _walk(self, make):
        """All schedules, with what is known of conflicts; again from the beginning where one shows another conflict."""
        while True:
            self._learned = False
            self._visited, self._todo = {}, [((), ())]
            schedules, complete, outcomes = 0, 0, set()
            while self._todo and not self._learned:
                schedules += 1
                assert schedules <= self._most, f"more than {self._most} schedules"
                outcome = self._schedule(make, *self._todo.pop())
                if outcome is not None:
                    complete += 1
                    outcomes.add(outcome)
                if schedules % 500 == 0:
                    gc.collect()
            if not self._learned:
                return schedules, complete, outcomes
            if schedules > 200 and self._preemptions is None:
                # A long walk was in vain: a quick look around shows most of what there is to learn.
                self._preemptions = 1
                self._walk(make)
                self._preemptions = None

    def _tell_states_apart(self, make):
        """A schedule that is run again must come to the same states, or nothing would ever be seen to have been seen."""
        if not self._pruned:
            return
        keys = []
        for _ in range(2):
            self._visited, self._todo = {}, []
            self._schedule(make, (), ())
            keys.append(list(self._visited))
        assert keys[0] == keys[1], "what is watched holds something that is another in each schedule"

    @staticmethod
    def _one_after_the_other(make):
        """The readings of all orders in which the bodies can run without any interleaving."""
        first = make()
        if first.reading is None:
            return None
        readings = []
        for order in itertools.permutations(range(len(first.bodies))):
            race, results = make(), [None] * len(first.bodies)
            for index in order:
                results[index] = race.bodies[index]()
            race.check(results)
            readings.append(race.reading(results))
        return readings

    def close(self):
        for thread in self._threads:
            thread.renew(None)
            thread.baton.release()
            thread.real.join(10)
        self._threads.clear()

    def _take_over(self):
        """Put our own locks and threads into the library; what undoes it."""
        replaced = [
            module
            for name, module in list(sys.modules.items())
            if name.split(".")[0] == "resilience" and vars(module).get("threading") is threading
        ]
        stand_in = Threading(self)
        for module in replaced:
            module.threading = stand_in
        serials = circuit_breaker._SERIALS
        collecting, loud = gc.isenabled(), logging.root.manager.disable
        gc.freeze()
        gc.disable()
        logging.disable(logging.CRITICAL)

        def put_back():
            for module in replaced:
                module.threading = threading
            circuit_breaker._SERIALS = serials
            gc.unfreeze()
            if collecting:
                gc.enable()
            logging.disable(loud)

        return put_back

    # -------------------------------------------------------------------------------------------- one schedule
    def _schedule(self, make, choices, observed):
        """Run the choices, then go on with whoever runs; what came of it, or None if that had been seen before."""
        self.current, self.draining = None, False
        self._count = 0
        self._choices, self._observed = list(choices), list(observed)
        self._decided = self._looked = 0
        self._left = self._preemptions
        self._story, self._verdict = [], None
        self._locks = itertools.count()
        # The numbers of a process begin anew in each schedule.
        circuit_breaker._SERIALS = itertools.count(1)
        self.race = race = make()
        self._names.clear()
        self._owners.clear()
        # A wrapper's code is made anew for each schedule, all other code is there for good.
        for known in self._passing:
            del self._plans[known]
        self._passing.clear()
        roles = Picture(names=self._names)
        for index, watched in enumerate(race.watched):
            roles.name = self._names[id(watched)] = f"watched {index}"
            roles.add(watched)
        for body in race.bodies:
            self.add(body)
        mine = self._threads[: self._count]
        first = self._decide(None)
        self._hand_to(first)
        self._main.acquire()
        mine = self._threads[: self._count]
        self.current = None
        self._learn()
        if self._verdict == "seen":
            return None
        bodies = mine[: len(race.bodies)]
        try:
            assert self._verdict is None, self._verdict
            for thread in mine:
                if thread.error is not None:
                    raise AssertionError(f"thread {thread.index} raised {thread.error!r}") from thread.error
            results = [thread.result for thread in bodies]
            race.check(results)
            if race.reading is not None:
                reading = race.reading(results)
                assert reading in self._serial, f"no order one after the other gives {reading}, but {self._serial}"
        except Exception as error:
            raise Found(f"{type(error).__name__}: {error}\n{self.story()}") from error
        picture = Picture()
        picture.add(tuple(thread.result for thread in bodies))
        for watched in race.watched:
            picture.add(watched)
        return picture.value()

    def add(self, body, daemon=False):
        index = self._count
        self._count += 1
        if index == len(self._threads):
            self._threads.append(Thread(self, index))
        patience = self.race.patience[index] if index < len(self.race.patience) else 0
        self._threads[index].renew(body, daemon, patience)

    def story(self):
        """The schedule in words: where each thread was put aside."""
        lines = []
        for index, frame_of, line, after in self._story:
            where = (
                "its end"
                if frame_of is None
                else f"{os.path.basename(frame_of.co_filename)}:{line} {frame_of.co_qualname}"
            )
            lines.append(
                f"  thread {index} stops at {where}; thread {after} goes on"
                if index is not None
                else f"  thread {after} begins"
            )
        return "\n".join(lines)

    def _learn(self):
        """Which places conflict, as far as the schedules so far tell."""
        for place, (by_thread, locks) in self._touched.items():
            if place not in self._conflicts and not locks and len(by_thread) > 1 and any(by_thread.values()):
                self._conflicts.add(place)
                self._learned = True

    # -------------------------------------------------------------------------------------------- who goes on
    def _decide(self, me, frame=None):
        """Whose turn it is; None if nobody's."""
        able = [thread for thread in self._threads[: self._count] if thread.can_go_on()]
        if not able:
            return None
        if len(able) == 1:
            return able[0]
        if self.draining:
            return me if me in able else able[0]
        if me is not None:
            me.frame = frame
        mine = me in able
        if mine and self._left == 0:
            return me
        if self._decided < len(self._choices):
            chosen = self._threads[self._choices[self._decided]]
        else:
            if self._is_known(me if mine else None):
                self._verdict = "seen"
                self.draining = True
                return me if mine else able[0]
            chosen = me if mine else able[0]
            so_far, seen = tuple(self._choices[: self._decided]), tuple(self._observed[: self._looked])
            self._todo += [((*so_far, other.index), seen) for other in able if other is not chosen]
            self._choices.append(chosen.index)
        self._decided += 1
        if mine and chosen is not me and self._left is not None:
            self._left -= 1
        return chosen

    def _is_known(self, me):
        if not self._pruned:
            return False
        key, left = self._picture(), 0
        if self._preemptions is not None:
            # Who runs on matters, as anybody else is a preemption; and so does how many are left.
            key, left = hash((key, None if me is None else me.index)), self._left
        if self._visited.get(key, -1) >= left:
            return True
        self._visited[key] = left
        return False

    def _picture(self, only=None):
        picture = Picture(only)
        for watched in self.race.watched:
            picture.add(watched)
        for thread in self._threads[: self._count]:
            picture.out.append((thread.index, thread.done, thread.patience, thread.timed))
            if thread.waiting is not None:
                picture.add(thread.waiting)
            frame = thread.frame
            if thread.done:
                picture.add(thread.result)
            while frame is not None and frame.f_code is not _BASE:
                code = frame.f_code
                picture.out.append((code.co_filename, code.co_qualname, frame.f_lasti, thread.chains.get(frame)))
                for name, value in dict(frame.f_locals).items():
                    picture.out.append(name)
                    picture.add(value)
                frame = frame.f_back
        return picture.value()

    def _hand_to(self, thread):
        self.current = thread
        thread.baton.release()

    def _turn(self, me, frame):
        """Let whoever is chosen go on; comes back when it is our turn again."""
        chosen = self._decide(me, frame)
        if chosen is me:
            return
        if chosen is None:
            self._stuck()
            chosen = next(thread for thread in self._threads[: self._count] if not thread.done)
        if not self.draining:
            me.frame = frame
            self._story.append((me.index, frame.f_code, frame.f_lineno, chosen.index))
        if chosen is me:
            return
        self._hand_to(chosen)
        me.baton.acquire()

    def _stuck(self):
        """Nobody can go on: the end, if only daemons are left, or a deadlock. Whoever waits is ended."""
        waiting = [thread for thread in self._threads[: self._count] if not thread.done]
        if self._verdict is None and not all(thread.daemon for thread in waiting):
            self._verdict = "deadlock: " + ", ".join(f"thread {thread.index}" for thread in waiting) + " wait for ever"
        self.draining = True
        for thread in waiting:
            thread.waiting = None
            thread.timed = "abort"

    def finished(self, me):
        """Called by a thread at its end."""
        left = [thread for thread in self._threads[: self._count] if not thread.done]
        if not left:
            self._main.release()
            return
        chosen = self._decide(me)
        if chosen is None:
            self._stuck()
            chosen = left[0]
        if not self.draining:
            self._story.append((me.index, None, 0, chosen.index))
        self._hand_to(chosen)

    # -------------------------------------------------------------------------------------------- from locks
    def next_lock(self):
        """The number of a new lock, the same in each schedule; None for one that is made while threads run."""
        return next(self._locks) if self.current is None else None

    def is_tried(self, serial):
        """Somebody only tries this lock: it makes a difference when it is released."""
        if serial is not None and serial not in self.tried:
            self.tried.add(serial)
            self._learned = self._learned or self.current is not None

    def stop_at_lock(self, frame):
        me = self.current
        if me is None or (self.draining and me.timed != "abort"):
            return
        if me.timed == "abort":
            return
        me.called = None
        self._turn(me, frame)

    def wait_for(self, lock, timed):
        """Until the lock is free (True) or time is up (False)."""
        me = self.current
        assert me is not None, "a scenario's own thread would wait for ever"
        if me.timed == "abort":
            raise Abort
        me.waiting, me.timed = lock, timed
        self._turn(me, sys._getframe(1))
        if me.timed == "abort":
            raise Abort
        me.waiting, me.timed = None, False
        if lock.is_free_for(me):
            return True
        assert timed, "woken for nothing"
        me.patience -= 1
        return False

    # -------------------------------------------------------------------------------------------- from bytecodes
    def _touch(self, me, place, writes):
        """Note an access; True if it is one before which others may want to go on."""
        known = self._touched.get(place)
        if known is None:
            known = self._touched[place] = [{}, me.locks]
        by_thread, locks = known
        if writes or me.index not in by_thread:
            by_thread[me.index] = by_thread.get(me.index, False) or writes
        if locks and not locks <= me.locks:
            known[1] = locks & me.locks
        return self._everywhere or place in self._conflicts

    def _access(self, me, step, frame):
        """What a bytecode whose place depends on an object will touch: (place, writes); None for nothing that matters."""
        path, writes = step.path, step.writes
        thing, found = _follow(path, frame)
        if step.is_call:
            if not found:
                return HEAP, True
            if isinstance(thing, (types.FunctionType, types.MethodType)):
                return None  # a coroutine or generator is made, which is not yet begun
            name = getattr(thing, "__name__", "")
            if isinstance(thing, type) or name in _HARMLESS:
                if step.argument is None or thing not in (tuple, list, set, dict, frozenset, bool):
                    return None
                owner, writes = None, False
            else:
                owner, writes = getattr(thing, "__self__", None), name not in _READING
                if name == "__set__":
                    owner = builtins  # a slot of the first argument
            if owner is None or isinstance(owner, types.ModuleType):
                if step.argument is None:
                    return (HEAP, True) if owner is None else None
                path = step.argument
                owner, found = _follow(path, frame)
                if not found:
                    return HEAP, writes
            thing = owner
        elif not found:
            return HEAP, writes
        if isinstance(thing, _HARMLESS_TYPES) or not isinstance(thing, _CONTAINERS):
            kind = type(thing).__name__
            if kind == "list_iterator":
                thing = thing.__reduce__()[1][0]
            elif isinstance(thing, (ContextVar, Context)) or not step.is_call or isinstance(thing, _HARMLESS_TYPES):
                return None
        place = self._place_of(me, thing, "", path)
        return None if place is None else (place, writes)

    def _attribute(self, me, step, frame):
        """The place of an attribute: of this object, where it can be told which it is; None for nobody else's."""
        name = step.place
        if self._everywhere:
            return name
        if name not in self._written:
            if not step.writes:
                return None
            self._written.add(name)
            self._learned = True
        if name in self._coarse:
            return name
        thing, found = _follow(step.path, frame)
        if not found or thing is None:
            self._coarse.add(name)
            self._learned = True
            return name
        return self._place_of(me, thing, name, step.path)

    def _place_of(self, me, thing, suffix, path):
        """The place of an object, or of an attribute of it; None as long as only this thread has come there."""
        name = self._names.get(id(thing))
        if name is not None:
            return name + suffix
        if path and path[0] is None:
            return f"global {path[1]}{suffix}"
        place = f"a new {type(thing).__name__}{suffix}"
        if place not in self._shared and not self._everywhere:
            owner, _ = self._owners.setdefault(id(thing), (me, thing))
            if owner is me:
                return None
            self._shared.add(place)
            self._learned = True
        return place

    def _plan_of(self, code):
        """What is known of a code object; None where it is not to be traced."""
        if code not in self._known:
            name = code.co_filename
            traced = name.startswith(("<resilience", LIBRARY_ROOT)) or name == self.traced_file
            self._known[code] = Plan(code) if traced else None
        return self._known[code]

    def tracer(self, me):
        """The trace function of one thread."""
        plans, chains = self._plans, me.chains
        python, mixed = self._python, self._mixed

        def bytecode(frame, event, arg):
            site = me.called
            if site is not None:
                # No Python function has begun since: it was a call into C.
                me.called = None
                if site not in mixed:
                    mixed.add(site)
                    self._learned = True
            if event != "opcode":
                if event == "return":
                    chains.pop(frame, None)
                    if arg is not None and me.latest is not frame and not self.draining:
                        raise AssertionError(
                            f"the interpreter does not give all bytecodes of {frame.f_code.co_qualname}"
                        )
                elif event == "line":
                    frame.f_trace_opcodes, frame.f_trace_lines = True, False
                return bytecode
            if self.draining:
                return None
            me.latest = frame
            plan, _ = plans[id(frame.f_code)]
            offset = frame.f_lasti
            if chains and offset in plan.empty:
                chains.pop(frame, None)
            step = plan.steps.get(offset)
            if step is None:
                return bytecode
            place, writes = step.place, step.writes
            if place is None:
                if step.is_call:
                    site = (plan.key, offset)
                    if site not in mixed:
                        if site in python:
                            me.called = site
                            return bytecode
                        thing, found = _follow(step.path, frame)
                        if not found or isinstance(thing, (types.FunctionType, types.MethodType)):
                            me.called = site
                            return bytecode
                access = self._access(me, step, frame)
                if access is None:
                    return bytecode
                place, writes = access
            elif place[0] == ".":
                place = self._attribute(me, step, frame)
                if place is None:
                    return bytecode
            if self._touch(me, place, writes):
                self._turn(me, frame)
                if self.draining:
                    return None
                if step.pushes and self._pruned and self._left != 0:
                    if self._looked < len(self._observed):
                        read = self._observed[self._looked]
                    else:
                        me.frame = frame
                        read = self._picture(step.place or HEAP)
                        self._observed.append(read)
                    self._looked += 1
                    chains[frame] = hash((chains.get(frame), offset, read))
            return bytecode

        def begin(frame, event, arg):
            if me.called is not None:
                python.add(me.called)
                me.called = None
            code = frame.f_code
            known = plans.get(id(code))
            if known is None:
                # By identity, as comparing code objects takes its time; they are kept as long as that is to hold.
                known = plans[id(code)] = (self._plan_of(code), code)
                if code.co_filename.startswith("<"):
                    self._passing.append(id(code))
            if known[0] is None or self.draining:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = LINES_FIRST
            return bytecode

        return begin


_BASE = Thread._run.__code__
Picture.kinds[Explorer] = lambda picture, explorer: None
Picture.kinds[Thread] = lambda picture, thread: picture.out.append(thread.index)


def _library_root():
    import resilience

    return os.path.dirname(resilience.__file__) + os.sep


LIBRARY_ROOT = _library_root()


def _want_bytecodes():
    """Python 3.12 looks, when tracing starts, whether any frame has ever wanted bytecodes.

    Once, and in a frame that is gone then: in an instrumented one of a thread without a trace function, 3.12 crashes.
    """
    sys._getframe().f_trace_opcodes = True


_want_bytecodes()
