"""The page of the catalogue shows the rules as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from resilience.catalogue.clients import SDKS
from resilience.catalogue.homes import HOMES
from resilience.catalogue.listing import listing

ROOT = Path(__file__).resolve().parents[2]
catalogue = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))
PART = catalogue["PART"]
PAGE = PART.page.read_text(encoding="utf-8")


def test_the_page_shows_the_rules():
    """After a change of the rules, `python docs/catalogue.py` writes the page anew."""
    assert PART.placed(PAGE, catalogue["write"](listing())) == PAGE


def test_every_package_is_there():
    """Each package that the catalogue knows has a table, each family a heading."""
    for package in HOMES:
        assert f"`{package}`" in PAGE
    assert set(HOMES.values()) == set(catalogue["HEADINGS"])


def test_every_table_is_one():
    """A row has three cells, whatever its condition says."""
    table = PAGE[PAGE.index(PART.begin) : PAGE.index(PART.end)]
    for line in table.splitlines():
        if line.startswith("|"):
            assert 4 == len(re.findall(r"(?<!\\)\|", line)), line


def test_every_way_to_switch_retries_off_is_told():
    """The warning and the page give the same advice."""
    for sdk in SDKS:
        assert sdk.off.replace("config=", "").split(",")[0] in PAGE.replace("\n", " "), sdk.off


def test_written_only_where_it_differs(tmp_path):
    """`--check` tells by its exit code, and writes nothing."""
    part = PART._replace(page=tmp_path / "page.md")
    part.page.write_text(f"before\n{part.begin}\nold\n{part.end}\nafter\n", encoding="utf-8")

    assert 1 == part.write("new", ["--check"])
    assert "old" in part.page.read_text(encoding="utf-8")
    assert 0 == part.write("new", [])
    assert f"before\n{part.begin}\nnew\n{part.end}\nafter\n" == part.page.read_text(encoding="utf-8")
    assert 0 == part.write("new", ["--check"])
