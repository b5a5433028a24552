"""Names of parametrised cases."""

from __future__ import annotations

import re


def named(value):
    """What a value looks like, without its address: the same in every process."""
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    except Exception:
        return type(value).__name__
