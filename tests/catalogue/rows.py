"""The table of what the exceptions of client libraries mean, row by row.

`rows.tsv` says for a class, and a condition on an instance, which fault is right, and how
a real instance is made. `specimens.json` holds what those instances look like, as
`record.py` found them in the libraries themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from resilience import Fault, FaultFlag, FaultKind

HERE = Path(__file__).parent
SPECIMENS = HERE / "specimens.json"
# Libraries that an environment for tests has anyway.
ALWAYS_HERE = ("python",)


class Row(NamedTuple):
    """One line of the table."""

    library: str
    exception: str
    condition: str
    kind: FaultKind
    flags: frozenset[FaultFlag]
    status: int | None
    retry_after: float | None
    expression: str

    @property
    def name(self) -> str:
        return f"{self.exception} {self.expression}"


def read() -> list[Row]:
    """All rows, in the order of the file."""
    rows = []
    for line in (HERE / "rows.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        library, exception, condition, kind, flags, status, wait, expression = line.split("\t")
        rows.append(
            Row(
                library,
                exception,
                condition,
                FaultKind[kind],
                frozenset(FaultFlag(flag.replace("-", "_")) for flag in flags.split()),
                int(status) if status else None,
                float(wait) if wait else None,
                expression,
            )
        )
    return rows


ROWS = read()


def differences(row: Row, fault: Fault) -> list[str]:
    """Where a fault is not what the row says."""
    flags = fault.flags - {FaultFlag.UNCLASSIFIED} if row.kind is FaultKind.INTERNAL else fault.flags
    found = []
    if fault.kind is not row.kind:
        found.append(f"kind {fault.kind}, not {row.kind}")
    if flags != row.flags:
        found.append(f"flags {sorted(map(str, flags))}, not {sorted(map(str, row.flags))}")
    if fault.status != row.status:
        found.append(f"status {fault.status}, not {row.status}")
    # Some waits are measured against the clock.
    if (fault.retry_after is None) != (row.retry_after is None) or (
        row.retry_after is not None and abs(fault.retry_after - row.retry_after) > 0.5
    ):
        found.append(f"retry_after {fault.retry_after}, not {row.retry_after}")
    return found


def specimens() -> dict[str, object]:
    """What has been recorded: "classes" and, by the name of a row, "instances"."""
    return json.loads(SPECIMENS.read_text(encoding="utf-8"))
