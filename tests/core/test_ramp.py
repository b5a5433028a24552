"""The ramp: how much passes after a closing."""

from __future__ import annotations

import pytest

from resilience._core.ramp import Ramp

RAMP = Ramp(100.0, 10.0, 110 * 10**9)


@pytest.mark.parametrize(
    ("now", "left"),
    [(100, 10.0), (107.5, 2.5), (110, 0.0), (500, 0.0), (99.9, 0.0)],
)
def test_what_is_left(now, left):
    """The rest of it; nothing at its very end, nor before its beginning, where only a clock that jumped back can be."""
    assert left == RAMP.left(now)


@pytest.mark.parametrize(("now", "share"), [(100, 0.0), (101, 0.1), (105, 0.5), (109, 0.9)])
def test_the_share(now, share):
    """It grows evenly, from nothing to all."""
    assert share == RAMP.share(now)
