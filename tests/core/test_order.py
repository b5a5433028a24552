"""The fixed order of the layers."""

from __future__ import annotations

import re

from resilience._core import order
from resilience._core.order import POSITION, Layer


def test_the_order():
    """From the outermost to the function."""
    assert ("metrics → gate → fallback → bulkhead → timeout → report → retry → breaker → attempt") == " → ".join(
        str(layer) for layer in sorted(Layer, key=POSITION.__getitem__)
    )


def test_positions():
    """Each layer has one place, counted from outside."""
    assert list(range(len(Layer))) == [POSITION[layer] for layer in Layer]


def test_the_prose_says_the_same():
    """The line that readers see is the order that is."""
    (line,) = re.findall(r"^    (metrics → .*) → function$", order.__doc__, re.MULTILINE)

    assert [layer.value for layer in Layer] == line.split(" → ")
