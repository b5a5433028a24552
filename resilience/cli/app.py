"""The commands and their options. Nothing here knows how a command does its work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import rich_click as click

from resilience import __version__
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from click import Context, Parameter

SHORTEST, LONGEST = 3.0, 600.0
INTERRUPTED = 130


def in_range(ctx: Context, param: Parameter, seconds: float) -> float:
    """The number itself, or a usage error that says what would be right; NaN is in no range."""
    if not SHORTEST <= seconds <= LONGEST:
        raise click.BadParameter(f"must be a number from {SHORTEST:g} to {LONGEST:g}, got {seconds:g}", ctx, param)
    return seconds


def as_headers(ctx: Context, param: Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """The headers by name, or a usage error for one that is not NAME=VALUE."""
    found: dict[str, str] = {}
    for header in given:
        name, equals, value = header.partition("=")
        if not name.strip() or not equals:
            raise click.BadParameter(f"must be NAME=VALUE, got {header!r}", ctx, param)
        found[name.strip().lower()] = value.strip()
    return found


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="resilience")
def app() -> None:
    """Bulkheads, timeouts, retries and circuit breakers for Python."""


@app.command()
@click.argument("exception", required=False)
@click.option("--status", type=click.IntRange(100, 599), metavar="N", help="The HTTP status that it carries.")
@click.option(
    "--code", metavar="CODE", help="The library's own error code: a word, a number, a SQLSTATE, a gRPC status."
)
@click.option("--message", default="", metavar="TEXT", help="Its text.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=as_headers,
    metavar="NAME=VALUE",
    help="A response header; may be repeated.",
)
@click.option("--cause", metavar="EXCEPTION", help="The class of its cause.")
@click.option("--import", "load", is_flag=True, help="Import the class, so that its bases are looked at too.")
@click.option("--list", "listed", is_flag=True, help="Print the catalogue; EXCEPTION is then the package to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    exception: str | None,
    status: int | None,
    code: str | None,
    message: str,
    headers: dict[str, str],
    cause: str | None,
    load: bool,
    listed: bool,
    as_json: bool,
) -> None:
    """Tell what EXCEPTION means to a breaker and to a retry, and which rule says so.

    EXCEPTION is the dotted name of a class, such as openai.RateLimitError. Its library need not be installed; what the
    rules ask of an instance is given by the options.
    """
    from resilience.cli.explain import catalogue, explanation

    if listed:
        text = catalogue(exception, as_json=as_json)
        if not text:
            raise click.BadParameter(f"must be a package of the catalogue, got {exception!r}", param_hint="EXCEPTION")
    elif exception is None:
        raise click.UsageError("EXCEPTION must be the dotted name of a class, or give --list")
    else:
        try:
            text = explanation(
                exception,
                status=status,
                code=code,
                message=message,
                headers=headers,
                cause=cause,
                load=load,
                as_json=as_json,
            )
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None
    print(text)


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
