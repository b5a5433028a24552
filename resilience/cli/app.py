"""The commands and their options. Nothing here knows how a command does its work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import rich_click as click

from resilience import __version__

if TYPE_CHECKING:
    from click import Context, Parameter

SHORTEST, LONGEST = 3.0, 600.0
INTERRUPTED = 130


def in_range(ctx: Context, param: Parameter, seconds: float) -> float:
    """The number itself, or a usage error that says what would be right; NaN is in no range."""
    if not SHORTEST <= seconds <= LONGEST:
        raise click.BadParameter(f"must be a number from {SHORTEST:g} to {LONGEST:g}, got {seconds:g}", ctx, param)
    return seconds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="resilience")
def app() -> None:
    """Bulkheads, timeouts, retries and circuit breakers for Python."""


@app.command()
@click.option(
    "--seconds",
    type=float,
    callback=in_range,
    default=12.0,
    show_default=True,
    metavar="N",
    help=f"How long the script takes, {SHORTEST:g} to {LONGEST:g}; everything in it is scaled.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end, and nothing else.")
def demo(seconds: float, as_json: bool) -> None:
    """Watch one breaker protect threads and an asyncio loop from a provider that fails.

    Starts a real HTTP server on this machine that plays a script: healthy, rate limited, down, hanging, up for a
    moment in the middle of an outage, healthy. Ends with a timeline and a balance, and exits with 0 only if the
    balance holds. Nothing leaves the loopback interface.
    """
    from resilience.cli.demo import run

    try:
        code = run(seconds, as_json=as_json)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)
