"""What a bytecode does to what threads share: the places it reads and writes, and whether it touches any.

`OWN` lists those that touch nothing but the frame's own stack and fast locals. A `Plan`
is a code object read once: for each of its bytecodes the `Step` it is.
"""

from __future__ import annotations

import builtins
import dis
import enum
import itertools
import types
from collections import deque
from typing import NamedTuple

HEAP, LOCK = "the inside of containers and counters", "a lock"

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
HARMLESS = frozenset(
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
READING = frozenset(
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
CONTAINERS = (list, deque, dict, set, itertools.count)
HARMLESS_TYPES = (str, int, float, bool, bytes, type(None), tuple, range, frozenset, enum.Enum, type, types.ModuleType)


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


def follow(path, frame):
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
