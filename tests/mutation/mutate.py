"""Change the package in thousands of small ways and see whether the tests notice: `make mutation`.

Works on a copy of the tree in `.mutation/`, which stays, so that a mutant can be looked
at afterwards (`mutmut show NAME` there). Every mutant that lives has to stand in
`tests/mutation-survivors.md` with the reason why it may; one that stands there and dies
has to go from the list. Either is an error.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = ROOT / "tests" / "mutation-survivors.md"
COPY = ROOT / ".mutation"
CLASS_MARK = "ǁ"
# What mutmut notes of a mutant: the exit code of its tests, or a word of its own.
LIVES, UNTESTED, KILLED = {0}, {5, 33}, {1, 3}


@dataclass(frozen=True)
class Mutant:
    """A change: where, the lines that went and the lines that came."""

    place: str
    gone: tuple[str, ...]
    came: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.place, *(f"- {line}" for line in self.gone), *(f"+ {line}" for line in self.came)])


def listed(text: str) -> Counter[Mutant]:
    """The survivors in the ```diff blocks of a page, with how often each is listed."""
    found: Counter[Mutant] = Counter()
    for block in re.findall(r"^```diff\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        place, gone, came = "", [], []
        for line in [*block.splitlines(), ""]:
            if line[:2] in ("- ", "+ "):
                (gone if line[0] == "-" else came).append(line[2:])
                continue
            if place:
                found[Mutant(place, tuple(gone), tuple(came))] += 1
            place, gone, came = line, [], []
    return found


def functions(source: str) -> dict[str, list[str]]:
    """The lines of every function of a module, its decorators left out, by its bare name."""
    lines = source.splitlines()
    return {
        node.name: lines[node.lineno - 1 : node.end_lineno]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def change(path: str, name: str, bodies: dict[str, list[str]]) -> Mutant:
    """What mutmut calls `name`, as a change of the source."""
    mangled = name.rpartition("__mutmut_")[0]
    *owner, function = mangled.removeprefix("x").removeprefix("_").split(CLASS_MARK)
    before, after = (
        [line.replace(variant, function).strip() for line in bodies[variant]]
        for variant in (f"{mangled}__mutmut_orig", name)
    )
    told = [
        line
        for line in difflib.unified_diff(before, after, n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    gone, came = (tuple(line[1:] for line in told if line[0] == sign) for sign in "-+")
    return Mutant(f"{path} {'.'.join([*filter(None, owner), function])}", gone, came)


def results(mutants: Path) -> tuple[Counter[str], list[Mutant]]:
    """How many mutants ended how, and those that live."""
    ends: Counter[str] = Counter()
    alive: list[Mutant] = []
    for meta in sorted(mutants.rglob("*.py.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        bodies = functions(meta.with_suffix("").read_text()) if codes else {}
        for key, code in codes.items():
            if code in LIVES | UNTESTED:
                ends["live"] += 1
                alive.append(change(str(meta.with_suffix("").relative_to(mutants)), key.rpartition(".")[2], bodies))
            else:
                ends["killed" if code in KILLED else "unjudged" if code is None else "ran too long or crashed"] += 1
    return ends, alive


def judge(mutants: Path, page: str) -> list[str]:
    """What is wrong between the mutants that live and those that may; prints the score."""
    ends, alive = results(mutants)
    may, do = listed(page), Counter(alive)
    total = sum(ends.values())
    dead = total - ends["live"] - ends["unjudged"]
    told = ", ".join(f"{count:,} {word}" for word, count in sorted(ends.items()))
    print(f"{total:,} mutants: {told}; {dead / max(total, 1):.1%} found")
    return [
        *(f"lives, and is not listed:\n{mutant}" for mutant in do - may),
        *(f"is listed, and does not live:\n{mutant}" for mutant in may - do),
        *([f"{ends['unjudged']} were not judged"] if ends["unjudged"] else []),
        *([] if total else ["there are no mutants"]),
    ]


def copy_tree() -> None:
    """The tree as git sees it, without what it ignores."""
    shutil.rmtree(COPY, ignore_errors=True)
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, COPY / name)


def main(arguments: list[str]) -> int:
    if "--judge" not in arguments:
        copy_tree()
        command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(os.cpu_count() or 1)]
        subprocess.run(command, cwd=COPY, check=True)
    complaints = judge(COPY / "mutants", SURVIVORS.read_text())
    print("\n\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
