"""What a policy needs of the callable it stands on."""

from __future__ import annotations

import functools

import pytest

from resilience import ConfigurationError, timeout
from resilience._assembly.fitting import place_of, takes


def fetch(url, timeout=None, *, limit=None):
    return url, timeout, limit


class Untold:
    """A callable that does not tell its signature."""

    __signature__ = "nothing of the sort"

    def __call__(self, *args, **kwargs):
        return args, kwargs


@pytest.mark.parametrize(
    ("callable_", "name", "taken"),
    [
        (fetch, "timeout", True),
        (fetch, "limit", True),
        (fetch, "other", False),
        (lambda *args, **kwargs: None, "other", True),
        (lambda timeout, /: None, "timeout", False),
        (functools.partial(fetch, "u"), "timeout", True),
        (Untold(), "timeout", True),
    ],
)
def test_takes(callable_, name, taken):
    """Whether a parameter can be given by name; who does not tell is believed."""
    assert taken is takes(callable_, name)


@pytest.mark.parametrize(
    ("callable_", "name", "place"),
    [(fetch, "url", 0), (fetch, "timeout", 1), (fetch, "limit", None), (fetch, "other", None), (Untold(), "url", None)],
)
def test_place_of(callable_, name, place):
    """Where a parameter stands among the positional ones."""
    assert place == place_of(callable_, name)


def test_a_parameter_that_is_not_there():
    """`pass_as` must name a parameter that can be given by name."""
    with pytest.raises(ConfigurationError, match="pass_as must be a parameter of"):
        timeout(5, pass_as="nowhere")(fetch)


def test_the_shorter_of_two_limits_is_handed_over():
    """A number that the caller gives stays where it is the shorter one, by place and by name."""
    limited = timeout(5, pass_as="timeout")(fetch)

    assert ("u", 2, None) == limited("u", 2)
    assert ("u", 2, None) == limited("u", timeout=2)
    assert 4 < limited("u", 60)[1] <= 5
    assert 4 < limited("u")[1] <= 5
