"""The command line: `resilience`, or what to install where its extra is missing."""

from __future__ import annotations

import sys

MISSING = "The command line needs one more package: pip install 'resilience-py[cli]'"


def main() -> None:
    """Run the command line on `sys.argv`; the console script `resilience`."""
    try:
        from resilience.cli.app import app
    except ModuleNotFoundError as error:
        # One of ours that is missing is a broken installation, which no extra cures.
        if (error.name or "").partition(".")[0] == "resilience":
            raise
        print(MISSING, file=sys.stderr)
        sys.exit(2)
    app(prog_name="resilience")
