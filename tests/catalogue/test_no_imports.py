"""Classifying imports nothing that it speaks of, wherever that is installed."""

from __future__ import annotations

import json
import subprocess
import sys

CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import rows
from specimen import StandIns

from resilience import classify
from resilience.catalogue.homes import HOMES

recorded = rows.specimens()
stand_ins = StandIns(recorded["classes"])
errors = [stand_ins.make(data) for data in recorded["instances"].values()]
wanted = []
sys.addaudithook(lambda event, args: wanted.append(args[0]) if event == "import" else None)
kinds = [classify(error).kind for error in errors]
print(json.dumps([len(kinds), sorted(set(wanted))]))
"""


def test_nothing_is_imported():
    """All specimens of all libraries are judged by what stands in the package."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(sys.path)], capture_output=True, text=True, check=True
    )
    number, wanted = json.loads(done.stdout)

    assert number > 1_000
    assert set() == {name for name in wanted if not _may_be(name)}


def _may_be(name: str) -> bool:
    """Parts of the catalogue, and modules of the standard library."""
    return name.startswith("resilience.catalogue") or name.partition(".")[0] in sys.stdlib_module_names
