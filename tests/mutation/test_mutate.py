"""The judge of mutants, and the page of those that may live."""

from __future__ import annotations

import json
from pathlib import Path

import mutate
import pytest

ROOT = Path(__file__).parents[2]


PAGE = mutate.SURVIVORS.read_text(encoding="utf-8")

MUTATED = """
def x_pay__mutmut_orig(amount, at=0.0):
    return amount + at

def x_pay__mutmut_1(amount, at=1.0):
    return amount + at

def x_pay__mutmut_2(amount, at=0.0):
    return amount - at

class Till:
    async def xǁTillǁ_open__mutmut_orig(self):
        self.opened = True

    async def xǁTillǁ_open__mutmut_1(self):
        self.opened = None
"""
PLUS = """
```diff
shop/till.py pay
- return amount + at
+ return amount - at
```
"""


@pytest.fixture
def run(tmp_path):
    """`run(codes)`: what mutmut leaves behind after tests that ended with these exit codes."""

    def leave(codes):
        folder = tmp_path / "shop"
        folder.mkdir()
        (folder / "till.py").write_text(MUTATED, encoding="utf-8")
        (folder / "till.py.meta").write_text(json.dumps({"exit_code_by_key": codes}), encoding="utf-8")
        return tmp_path

    return leave


def test_all_is_as_listed(run, capsys):
    """Nothing to complain of; mutants that ended by force count as found."""
    mutants = run(
        {"shop.till.x_pay__mutmut_1": 1, "shop.till.x_pay__mutmut_2": 0, "shop.till.xǁTillǁ_open__mutmut_1": -24}
    )

    assert [] == mutate.judge(mutants, PLUS)
    assert "3 mutants: 1 killed, 1 live, 1 ran too long or crashed; 66.7% found\n" == capsys.readouterr().out


def test_survivors_that_are_not_listed(run):
    """A default, and a method of a class that no test reached, by their places in the source."""
    mutants = run(
        {"shop.till.x_pay__mutmut_1": 0, "shop.till.x_pay__mutmut_2": 0, "shop.till.xǁTillǁ_open__mutmut_1": 33}
    )

    assert [
        "lives, and is not listed:\nshop/till.py pay\n- def pay(amount, at=0.0):\n+ def pay(amount, at=1.0):",
        "lives, and is not listed:\nshop/till.py Till._open\n- self.opened = True\n+ self.opened = None",
    ] == mutate.judge(mutants, PLUS)


def test_a_listed_one_that_is_found(run):
    """The list is no place for what the tests do find."""
    mutants = run({"shop.till.x_pay__mutmut_2": 1})

    assert [
        "is listed, and does not live:\nshop/till.py pay\n- return amount + at\n+ return amount - at"
    ] == mutate.judge(mutants, PLUS)


def test_mutants_that_were_not_judged(run):
    """A run that was stopped proves nothing, nor does one without mutants."""
    assert ["1 were not judged"] == mutate.judge(run({"shop.till.x_pay__mutmut_1": None}), "")


def test_no_mutants(tmp_path):
    """Nothing was found because nothing was looked for."""
    assert ["there are no mutants"] == mutate.judge(tmp_path, "")


def test_alike_survivors_are_listed_as_often_as_they_live(run):
    """Two changes of one text in one function are two."""
    twice = PLUS + PLUS

    assert [2] == list(mutate.listed(twice).values())
    assert 1 == len(mutate.judge(run({"shop.till.x_pay__mutmut_2": 0}), twice))


@pytest.mark.parametrize("mutant", mutate.listed(PAGE), ids=lambda mutant: mutant.place)
def test_the_page_speaks_of_the_code_as_it_is(mutant):
    """A line that was changed or deleted takes its survivors along."""
    path, _, place = mutant.place.partition(" ")
    assert path.startswith("resilience/")
    assert place
    lines = {line.strip() for line in (ROOT / path).read_text(encoding="utf-8").splitlines()}
    assert [] == [line for line in mutant.gone if line not in lines]
