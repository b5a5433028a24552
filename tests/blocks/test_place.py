"""Where a block stands: its name, and what is remembered about it."""

from __future__ import annotations

import pytest

from resilience import retry
from resilience._blocks import place
from resilience._blocks.place import place_of_caller


def here(registry):
    return place_of_caller(registry)


def test_the_name_is_the_function_with_the_block(registry):
    """Module and qualified name."""
    assert f"{__name__}:test_the_name_is_the_function_with_the_block" == here(registry).label


@pytest.mark.parametrize(
    ("module", "name", "label"),
    [("mine", "f", "mine:f"), (None, "f", "builtins:f"), ("two\nlines", "f", "two\\nlines:f")],
)
def test_code_of_no_file(registry, module, name, label):
    """Made on the fly, with whatever for a module's name: one line all the same."""
    scope = {"__name__": module, "here": here, "registry": registry}
    exec(f"def {name}(): return here(registry)", scope)

    assert label == scope[name]().label


def test_one_site_for_one_place(registry):
    """So that what is told once is told once."""
    first, second = [here(registry) for _ in range(2)]

    assert first.site is second.site


def test_no_more_sites_than_are_worth_it(registry, monkeypatch):
    """Ever new code does not collect them."""
    monkeypatch.setattr(place, "_MOST_SITES", 0)
    first, second = [here(registry) for _ in range(2)]

    assert first.site is not second.site
    assert {} == registry.block_sites


def test_a_healthy_loop_leaves_nothing(registry):
    """The site is made when there is something to be decided."""
    for attempt in retry(2):
        with attempt:
            pass

    assert {} == registry.block_sites
    assert here(registry).site.fn("anything") is None
