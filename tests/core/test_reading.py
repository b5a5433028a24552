"""Reading foreign classes without importing them."""

from __future__ import annotations

import pytest

from resilience._core.reading import has_base, name_of, segment_of

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


@pytest.mark.parametrize(
    ("module", "segment"),
    [
        ("shop.errors", "shop"),
        ("google.cloud.errors", "google.cloud"),
        ("google", "google"),
        ("pip._vendor.urllib3.exceptions", "urllib3"),
        ("botocore.vendored.requests.exceptions", "requests"),
        ("acme._vendored.google.auth.exceptions", "google.auth"),
        # A copy in a copy is what stands innermost.
        ("a._vendor.b.vendor.c.errors", "c"),
        ("vendor.shop.errors", "shop"),
        ("_vendor.shop", "shop"),
        # Nothing stands behind it, or it is another word.
        ("shop.vendor", "shop"),
        ("vendor", "vendor"),
        ("shop.vendors.errors", "shop"),
    ],
)
def test_segments(module, segment):
    """The package that defines a class, also where another one carries a copy of it."""
    assert segment == segment_of(module)


def test_a_class_without_a_module():
    """Made where there is no name to take it from; asking such a class for its module raises."""
    space = {"__builtins__": {"type": type}}
    exec("Odd = type('Odd', (), {})", space)

    assert ("?", "Odd") == name_of(space["Odd"])
