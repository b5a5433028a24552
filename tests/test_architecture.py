"""The floors of the package, read from its source: who may import whom, and what exists only once."""

from __future__ import annotations

import ast
import dis
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "resilience"
MAX_LINES = 330

# Longest prefix wins; a module nobody placed is an error.
FLOORS = {
    "_words": 0,
    "errors": 0,
    "_core": 1,
    "_changing": 2,
    "_clock": 2,
    "_context": 2,
    "_events": 2,
    "_turns": 2,
    "_site": 2,
    "catalogue": 2,
    "_policies": 3,
    "_engine": 3,
    "_assembly": 4,
    "_compose": 4,
    "_describe": 4,
    "_families": 4,
    "_forks": 4,
    "_keying": 4,
    "_marks": 4,
    "_opened": 4,
    "_proxy": 4,
    "_registry": 4,
    "_settings": 4,
    "_trampoline": 4,
    "": 5,
    "_blocks": 5,
    "_decorate": 5,
    "_decorators": 5,
    "_references": 5,
    "_values": 5,
    "events": 5,
    "pathway": 5,
    "cli": 6,
    "testing": 6,
    "instrumentation": 6,
    "integrations": 6,
    "gateway": 6,
    "stores": 6,
    "ops": 6,
}
ADAPTERS = {name for name, floor in FLOORS.items() if floor == 6}
SEPARATE = ({"_policies", "_engine"},)
# What an adapter may import besides its own package; the clocks for tests are clocks, so `testing` sees the protocol.
PUBLIC = {"", "errors", "testing", "catalogue"}
PUBLIC_FOR = {"testing": PUBLIC | {"_clock"}}

PURE = "_core"
IMPURE = {"time", "threading", "_thread", "asyncio", "logging", "random", "socket"}

TIMEOUT_PRIMITIVES = {
    ("asyncio", "timeout"),
    ("asyncio", "timeout_at"),
    ("asyncio", "wait_for"),
    ("signal", "alarm"),
    ("signal", "setitimer"),
    ("signal", "pthread_kill"),
    ("threading", "Timer"),
    ("ctypes", "pythonapi"),
}
# The places that may arm a timer: the clock that all ask, and what waits or interrupts in each world.
LOOP_TIMERS = {"call_at", "call_later"}
LOOP_TIMER_OWNERS = (
    "resilience._clock",
    "resilience._engine.timers",
    "resilience._engine.workers",
    "resilience._engine.world_async",
    "resilience.testing",
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, with where it stands and whether only a type checker sees it."""

    module: str
    line: int
    typing_only: bool


def module_name(path: Path, package: Path = PACKAGE) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The first part below the package: `_core` of `resilience._core.circuit`, '' of `resilience`."""
    return module.split(".")[1] if "." in module else ""


def floor_of(module: str) -> int:
    return FLOORS[part_of(module)]


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class ImportReader(ast.NodeVisitor):
    """Collects imports at every depth: top level, functions, `if TYPE_CHECKING`, and import_module("...")."""

    def __init__(self, name: str, is_package: bool, modules: frozenset[str]) -> None:
        self.package = name if is_package else name.rpartition(".")[0]
        self.modules = modules
        self.found: list[Import] = []
        self.typing_only = False

    def add(self, module: str, line: int) -> None:
        self.found.append(Import(module, line, self.typing_only))

    def absolute(self, module: str | None, level: int) -> str:
        if not level:
            return module or ""
        base = self.package.split(".")
        base = base[: len(base) - level + 1]
        return ".".join([*base, module] if module else base)

    def visit_If(self, node: ast.If) -> None:
        before = self.typing_only
        self.typing_only = before or is_type_checking(node.test)
        for child in node.body:
            self.visit(child)
        self.typing_only = before
        self.visit(node.test)
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.absolute(node.module, node.level)
        names = [f"{base}.{alias.name}" for alias in node.names]
        submodules = [name for name in names if name in self.modules]
        for name in submodules:
            self.add(name, node.lineno)
        if len(submodules) < len(names):
            self.add(base, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
            target = str(node.args[0].value)
            level = len(target) - len(target.lstrip("."))
            self.add(self.absolute(target.lstrip("."), level), node.lineno)
        self.generic_visit(node)


@dataclass(frozen=True, repr=False)
class Source:
    """One module of the package: its name, text, tree and imports."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: tuple[Import, ...]

    def __repr__(self) -> str:
        return self.name

    def inside(self) -> list[Import]:
        return [found for found in self.imports if found.module.split(".")[0] == PACKAGE.name]


def read_package(package: Path = PACKAGE) -> dict[str, Source]:
    paths = sorted(package.rglob("*.py"))
    names = {module_name(path, package): path for path in paths}
    sources = {}
    for name, path in names.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        reader = ImportReader(name, path.name == "__init__.py", frozenset(names))
        reader.visit(tree)
        sources[name] = Source(name, path, text, tree, tuple(reader.found))
    return sources


def floor_faults(source: Source) -> list[str]:
    """Imports of this module that go up, sideways between separate parts, or past the public names."""
    here, faults = part_of(source.name), []
    if here not in FLOORS:
        return [f"{source.name}: no floor is known for {here!r}"]
    for found in source.inside():
        there = part_of(found.module)
        where = f"{source.name}:{found.line} imports {found.module}"
        if there not in FLOORS:
            faults.append(f"{where}, which has no floor")
        elif here in ADAPTERS:
            if there != here and there not in PUBLIC_FOR.get(here, PUBLIC):
                faults.append(f"{where}: an adapter imports what a user could import")
        elif any({here, there} == pair for pair in SEPARATE):
            faults.append(f"{where}: policies and engine never import each other")
        elif FLOORS[there] > FLOORS[here] and not found.typing_only:
            faults.append(f"{where}: that is a floor up")
    return faults


def impure_imports(source: Source) -> list[str]:
    return [
        f"{source.name}:{found.line} imports {found.module}"
        for found in source.imports
        if found.module.split(".")[0] in IMPURE
    ]


def timeout_primitives(source: Source) -> list[str]:
    """Uses of a foreign timeout, by whatever alias its module was imported."""
    modules = {owner for owner, _ in TIMEOUT_PRIMITIVES}
    aliases = {module: module for module in modules}
    faults = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module:
            owner = node.module.split(".")[0]
            faults += [
                f"{source.name}:{node.lineno} imports {alias.name} of {node.module}"
                for alias in node.names
                if (owner, alias.name) in TIMEOUT_PRIMITIVES
            ]
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute):
            continue
        base = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
        owner = aliases.get(base, base.strip("_"))
        if (owner, node.attr) in TIMEOUT_PRIMITIVES:
            faults.append(f"{source.name}:{node.lineno} uses {owner}.{node.attr}")
        elif node.attr in LOOP_TIMERS and not source.name.startswith(LOOP_TIMER_OWNERS):
            faults.append(f"{source.name}:{node.lineno} arms a timer of its own: {node.attr}")
    return faults


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle as a path that ends where it began, or an empty list."""
    done: set[str] = set()
    path: list[str] = []

    def walk(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if cycle := walk(other):
                return cycle
        path.pop()
        done.add(name)
        return []

    for name in sorted(graph):
        if cycle := walk(name):
            return cycle
    return []


def runtime_graph(sources: dict[str, Source]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for source in sources.values():
        targets = {found.module for found in source.inside() if not found.typing_only}
        # `from package import submodule` inside that same package is no cycle of ours.
        graph[source.name] = {target for target in targets if target in sources and target != source.name}
    return graph


SOURCES = read_package()
every_module = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def module_of(text: str, name: str) -> Source:
    """A made-up module, to show that each rule can fail."""
    tree = ast.parse(text)
    reader = ImportReader(name, False, frozenset(SOURCES))
    reader.visit(tree)
    return Source(name, Path(), text, tree, tuple(reader.found))


@every_module
def test_imports_go_down_only(source):
    """No module imports from a floor above, across policies and engine, or past the public names."""
    assert [] == floor_faults(source)


@every_module
def test_no_timeout_primitive_but_ours(source):
    """Deadlines are interrupted in one place per world; nothing else in the package times out."""
    assert [] == timeout_primitives(source)


@every_module
def test_files_stay_readable(source):
    """A file that outgrows the limit has a seam somewhere."""
    lines = len(source.text.splitlines())

    assert lines <= MAX_LINES


@pytest.mark.parametrize(
    "source", [source for source in SOURCES.values() if part_of(source.name) == PURE], ids=lambda source: source.name
)
def test_the_core_is_pure(source):
    """No clock, thread, loop, log, randomness or socket below the services, not even for types."""
    assert [] == impure_imports(source)


def test_no_import_cycles():
    """Following imports never leads back to where one began."""
    assert [] == find_cycle(runtime_graph(SOURCES))


def test_one_fixed_order():
    """`class Layer` exists once, in the core."""
    owners = [
        source.name
        for source in SOURCES.values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and node.name == "Layer"
    ]

    assert ["resilience._core.order"] == owners


def test_public_names_are_listed():
    """The public surface changes on purpose: the list in the tests changes with it."""
    import resilience

    listed = (ROOT / "tests" / "public_api.txt").read_text(encoding="utf-8").split()

    assert sorted(resilience.__all__) == list(resilience.__all__)
    assert listed == sorted(resilience.__all__)
    assert [] == [name for name in listed if not hasattr(resilience, name)]


def code_in(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_in(constant)


def holes(module: CodeType) -> list[str]:
    """Jumps back that the `try` or `with` around them does not guard: an exception of a signal handler passes it by there."""
    found = []
    for code in code_in(module):
        instructions = list(dis.get_instructions(code))
        # Generators and coroutines are guarded as a whole, which cleans nothing up.
        whole = {
            instruction.offset
            for instruction in instructions
            if (instruction.opname, instruction.arg) == ("CALL_INTRINSIC_1", 3)
        }
        entries = dis.Bytecode(code).exception_entries

        def guard(offset, entries=entries, whole=whole):
            return next((e.target for e in entries if e.start <= offset < e.end and e.target not in whole), None)

        for before, jump in pairwise(instructions):
            if jump.opname == "JUMP_BACKWARD":
                around = guard(jump.argval)
                if around is not None and guard(before.offset) == around != guard(jump.offset):
                    found.append(f"{code.co_qualname}:{jump.positions.lineno}")
    return found


# Elsewhere such a jump is covered by the instruction before it.
makes_holes = pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="the compiler of 3.13 makes such holes")


@makes_holes
def test_no_clean_up_is_passed_by():
    """I8: no loop stands where CPython 3.13 leaves a hole in the `try` or `with` around it (cpython#130279)."""
    # The command line holds no slots and no locks of ours.
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if "cli" not in path.parts]
    found = {module_name(path): holes(compile(path.read_text(), str(path), "exec")) for path in paths}

    assert len(found) > 50
    assert {} == {module: places for module, places in found.items() if places}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resilience._core.circuit", "from resilience import _clock"),
        ("resilience._core.circuit", "def late():\n    from resilience._events import Hub"),
        ("resilience._core.circuit", "from .. import breaker"),
        ("resilience._policies.retry", "from resilience._engine import timers"),
        ("resilience._engine.straight", "if TYPE_CHECKING:\n    from resilience._policies.retry import Retry"),
        ("resilience._registry", "import_module('resilience._decorators')"),
        ("resilience._decorators", "from resilience.testing import ManualClock"),
        ("resilience.cli.demo", "from resilience._core.circuit import Circuit"),
        ("resilience.cli.demo", "from resilience.ops import console"),
        ("resilience.nowhere", "import json"),
        ("resilience._registry", "import resilience.nowhere"),
    ],
)
def test_a_wrong_import_is_found(name, text):
    """The floor rule can fail: upward, hidden in a function, relative, sideways, private, unplaced."""
    assert 1 == len(floor_faults(module_of(text, name)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resilience._core.circuit", "from resilience._words import CircuitState\nfrom resilience.errors import shown"),
        ("resilience._core.circuit", "if TYPE_CHECKING:\n    from resilience._clock import Clock"),
        ("resilience._policies.retry", "from resilience._core import schedule"),
        ("resilience.cli.demo", "from resilience import breaker\nfrom resilience.cli.provider import Provider"),
        ("resilience.testing", "from resilience._clock import Clock"),
    ],
)
def test_a_right_import_passes(name, text):
    """The floor rule lets through what the design allows."""
    assert [] == floor_faults(module_of(text, name))


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.timeout(3)",
        "import asyncio as aio\naio.wait_for(x, 3)",
        "from asyncio import timeout_at",
        "from asyncio.timeouts import timeout as limit",
        "import signal\nsignal.setitimer(0, 1)",
        "loop.call_later(3, stop)",
        "_asyncio.timeout(3)",
        "self.asyncio.timeout(3)",
    ],
)
def test_a_foreign_timeout_is_found(text):
    """The timeout rule can fail, whatever the alias."""
    assert 1 == len(timeout_primitives(module_of(text, "resilience._policies.timeout")))


def test_an_impure_core_is_found():
    """The purity rule can fail, also inside a function."""
    assert 2 == len(
        impure_imports(module_of("import time\ndef f():\n    from asyncio import sleep", "resilience._core.x"))
    )


@makes_holes
def test_a_hole_is_found():
    """The rule of clean-ups can fail."""
    assert ["f:3"] == holes(compile("def f(x):\n try:\n  while x: x()\n finally: x.end()", "", "exec"))


def test_a_cycle_is_found():
    """The cycle rule can fail."""
    assert ["b", "c", "b"] == find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}})
