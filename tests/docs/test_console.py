"""What the manual shows of the command line is what it prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("rich_click")

from click.testing import CliRunner

from resilience.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```console\n\$ resilience (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
SHOWN = [
    (page.name, *block.groups())
    for page in sorted(DOCS.rglob("*.md"))
    for block in BLOCK.finditer(page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[command for _, command, _ in SHOWN])
def test_what_is_shown_is_what_is_printed(page, command, output):
    """Each console block with a command of ours."""
    result = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "200"})

    assert output == result.output


def test_there_is_something_to_check():
    """The page of the catalogue has an example."""
    assert any(command.startswith("explain ") for _, command, _ in SHOWN)
