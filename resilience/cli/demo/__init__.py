"""The demo: a provider that fails by a script, callers that share one breaker, and a balance at the end."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from resilience.cli.demo.stage import play
from resilience.cli.demo.view import Screen, Silence

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["run"]


def run(seconds: float, *, as_json: bool) -> int:
    """Play the script and show it on standard output.

    Returns:
        0 if the balance holds, 1 if a line of it does not.
    """
    _accept_any_encoding()
    with _no_log_lines():
        if as_json:
            report = play(seconds, Silence())
            print(json.dumps(report.as_json(), indent=2))
        else:
            with Screen(Console(highlight=False)).watching() as screen:
                report = play(seconds, screen)
            screen.show(report)
    return 0 if report.ok else 1


@contextmanager
def _no_log_lines() -> Iterator[None]:
    """The library logs each opening; the demo shows it already, and nobody has configured a log."""
    handler = logging.NullHandler()
    logging.getLogger("resilience").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("resilience").removeHandler(handler)


def _accept_any_encoding() -> None:
    """A terminal that knows no µ shows a question mark."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
