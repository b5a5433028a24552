"""Writes the table of the catalogue into docs/catalogue.md, from the rules themselves.

`python docs/catalogue.py` writes the page; with `--check` it exits 1 if the page does not
show the rules as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from generated import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resilience.catalogue.listing import Entry, Library

PART = Part(
    Path(__file__).resolve().parent / "catalogue.md",
    "<!-- rules: begin (written by docs/catalogue.py from the rules) -->",
    "<!-- rules: end -->",
)
HEADINGS = {
    "aws": "AWS",
    "azure": "Azure",
    "google": "Google",
    "grpc": "gRPC",
    "http": "HTTP and WebSocket",
    "llm": "Language models",
    "messaging": "Brokers and task queues",
    "nosql": "Stores without SQL",
    "orm": "SQLAlchemy and Django",
    "sql": "SQL drivers",
    "stdlib": "Standard library",
    "toolbox": "Runtimes, validators, retriers",
}


def write(libraries: Iterable[Library]) -> str:
    """A section for each family, in it a table for each library."""
    lines: list[str] = []
    family = ""
    for library in libraries:
        if library.family != family:
            family = library.family
            lines += [f"### {HEADINGS[family]}", ""]
        lines += [f"**{', '.join(f'`{name}`' for name in library.packages)}**", ""]
        lines += ["| exception | when | means |", "| --- | --- | --- |"]
        lines += [row(entry) for entry in library.entries]
        lines.append("")
    return "\n" + "\n".join(lines)


def row(entry: Entry) -> str:
    """One rule, or the neighbours that say the same."""
    names = ", ".join(f"`{name}`" for name in entry.names)
    when = escaped(entry.when)
    return f"| {names} | {when} | {meaning(entry)} |"


def meaning(entry: Entry) -> str:
    """Kind and flags, what is asked before them, and where the wait is."""
    said = "" if entry.kind is None else " ".join([f"`{entry.kind.name}`", *(f"`{flag.name}`" for flag in entry.flags)])
    parts = []
    if entry.first:
        parts.append(f"{escaped(entry.first)} decides" + (f", else {said}" if said else ""))
    else:
        parts.append(said)
    if entry.retry_after:
        parts.append(f"the wait is in {escaped(entry.retry_after)}")
    return "; ".join(parts)


def escaped(text: str) -> str:
    """Text in a cell of a table, where underscores and bars would mean something."""
    return re.sub(r"([|_*<>\[\]])", r"\\\1", text)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare."""
    from resilience.catalogue.listing import listing

    return PART.write(write(listing()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
