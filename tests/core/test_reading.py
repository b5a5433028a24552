"""Reading foreign classes without importing them."""

from __future__ import annotations

import pytest

from resilience._core.reading import has_base

Base = type("Base", (Exception,), {"__module__": "shop.private.errors"})
Child = type("Child", (Base, KeyError), {"__module__": "mail"})
Cloudy = type("Cloudy", (Exception,), {"__module__": "google.cloud.errors"})


@pytest.mark.parametrize(
    ("kind", "segment", "qualname"),
    [
        (Child, "mail", "Child"),
        (Child, "shop", "Base"),
        (Child, "builtins", "LookupError"),
        (Cloudy, "google.cloud", "Cloudy"),
    ],
)
def test_a_base_is_found_by_its_name(kind, segment, qualname):
    """The class itself and each of its bases are known by package and name."""
    assert has_base(kind, segment, qualname)


@pytest.mark.parametrize(
    ("segment", "qualname"),
    [("mail", "Base"), ("shop", "Child"), ("shop", "KeyError"), ("shop.private", "Base"), ("builtins", "ValueError")],
)
def test_both_halves_of_the_name_count(segment, qualname):
    """The right name in another package is another class, and so is another name in the right one."""
    assert not has_base(Child, segment, qualname)
