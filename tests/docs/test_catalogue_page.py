"""The page of the catalogue shows the rules as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from resilience.catalogue.clients import SDKS
from resilience.catalogue.homes import HOMES
from resilience.catalogue.listing import listing

ROOT = Path(__file__).resolve().parents[2]
catalogue = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))
PAGE = catalogue["PAGE"].read_text(encoding="utf-8")


def test_the_page_shows_the_rules():
    """After a change of the rules, `python docs/catalogue.py` writes the page anew."""
    assert catalogue["placed"](PAGE, catalogue["write"](listing())) == PAGE


def test_every_package_is_there():
    """Each package that the catalogue knows has a table, each family a heading."""
    for package in HOMES:
        assert f"`{package}`" in PAGE
    assert set(HOMES.values()) == set(catalogue["HEADINGS"])


def test_every_table_is_one():
    """A row has three cells, whatever its condition says."""
    table = PAGE[PAGE.index(catalogue["BEGIN"]) : PAGE.index(catalogue["END"])]
    for line in table.splitlines():
        if line.startswith("|"):
            assert 4 == len(re.findall(r"(?<!\\)\|", line)), line


def test_every_way_to_switch_retries_off_is_told():
    """The warning and the page give the same advice."""
    for sdk in SDKS:
        assert sdk.off.replace("config=", "").split(",")[0] in PAGE.replace("\n", " "), sdk.off


def test_markers_must_be_there():
    """A page without the table's place is refused rather than left as it is."""
    with pytest.raises(ValueError, match="found 0"):
        catalogue["placed"]("no markers", "table")
