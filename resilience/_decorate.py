"""Decorating, for the policies as values: what it takes is loaded by the first who decorates, not by all who import."""

from __future__ import annotations

from typing import Any


def decorate(target: Any, *policies: Any) -> Any:
    """`target` under the policies; see `resilience._compose`."""
    from resilience import _compose

    return _compose.decorate(target, *policies)
