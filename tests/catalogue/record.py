"""Record what real exceptions look like: `make catalogue-record`, where the libraries are installed."""

from __future__ import annotations

import json
import os
import sys
import warnings

import instances
import rows
from specimen import Recorder


def recorded() -> str:
    """The specimens of all rows as the text of their file."""
    recorder = Recorder()
    found = {}
    for row in rows.ROWS:
        if row.library not in rows.ALWAYS_HERE:
            found[row.name] = recorder.describe(instances.build(row.expression))
    classes = json.dumps(dict(sorted(recorder.classes.items())), indent=0)
    # One line for each, so that a difference can be read.
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found))
    return f'{{"classes": {classes},\n"instances": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    # LiteLLM asks the network for a table of prices when it is imported.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    warnings.simplefilter("ignore")
    rows.SPECIMENS.write_text(recorded(), encoding="utf-8")
    print(f"recorded {len(rows.ROWS)} rows to {rows.SPECIMENS}", file=sys.stderr)
