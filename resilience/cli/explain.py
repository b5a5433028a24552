"""What `resilience explain` prints: one exception explained, or the catalogue."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from resilience.catalogue import explain
from resilience.catalogue.listing import listing
from resilience.catalogue.stand_ins import is_named, stand_in, unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resilience.catalogue.explaining import Explanation
    from resilience.catalogue.listing import Library


def explanation(
    name: str,
    *,
    status: int | None,
    code: str | None,
    message: str,
    headers: Mapping[str, str],
    cause: str | None,
    load: bool,
    as_json: bool,
) -> str:
    """One exception, of which a name and a few facts are given, as text or as JSON."""
    if load and "" not in sys.path:
        sys.path.insert(0, "")  # what stands in the working directory, as for `python -m`
    exc = stand_in(name, status=status, code=code, message=message, headers=headers, cause=cause, load=load)
    explained = explain(exc)
    if as_json:
        return json.dumps(explained.as_dict(), indent=2)
    notes = unread(name, status=status, code=code, message=message, load=load)
    if not load and "." in name and not is_named(name) and not explained.rule and status is None:
        notes.insert(0, "no rule is about this class, and its bases are not known: --import looks at them")
    return "\n".join([*_lines(explained), *(f"note          {note}" for note in notes)])


def _lines(explained: Explanation) -> list[str]:
    fault = explained.fault
    flags = ", ".join(sorted(flag.value for flag in fault.flags))
    lines = [
        explained.exception,
        f"kind          {fault.kind.value}" + (f" ({flags})" if flags else ""),
        f"why           {explained.why}" + (f" [{explained.family}]" if explained.family else ""),
        f"retried       {explained.retried_in_words}",
        f"trips         {explained.verdict_in_words}",
        f"retry after   {explained.retry_after_source}",
    ]
    if fault.retry_after is not None:
        lines.append(f"              here: {fault.retry_after:,.10g} s")
    return lines


def catalogue(package: str | None, *, as_json: bool) -> str:
    """The rules of the catalogue, or those of one package, as text or as JSON; "" if it has none of that name."""
    found = [library for library in listing() if package is None or package in library.packages]
    if not found:
        return ""
    if as_json:
        return json.dumps([_as_dict(library) for library in found], indent=2)
    return "\n\n".join(_as_text(library) for library in found)


def _as_dict(library: Library) -> dict[str, object]:
    return {
        "family": library.family,
        "packages": library.packages,
        "rules": [
            {
                "exceptions": entry.names,
                "when": entry.when,
                "kind": None if entry.kind is None else entry.kind.value,
                "flags": [flag.value for flag in entry.flags],
                "first": entry.first,
                "retry_after": entry.retry_after,
            }
            for entry in library.entries
        ],
    }


def _as_text(library: Library) -> str:
    lines = [f"{', '.join(library.packages)} [{library.family}]"]
    for entry in library.entries:
        said = [] if entry.kind is None else [entry.kind.value, *(flag.value for flag in entry.flags)]
        what = f"by {entry.first}" + (f", else {' '.join(said)}" if said else "") if entry.first else " ".join(said)
        lines.append(f"  {', '.join(entry.names)}")
        lines.append(f"      {what}" + (f", when {entry.when}" if entry.when else ""))
        if entry.retry_after:
            lines.append(f"      the wait is in {entry.retry_after}")
    return "\n".join(lines)
