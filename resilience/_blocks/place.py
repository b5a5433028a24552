"""Where a block stands in the user's program: its name in logs and events, and what is remembered about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from resilience._site import Site
from resilience.catalogue import default_classifier

if TYPE_CHECKING:
    from types import CodeType

    from resilience._registry import Registry


class Place:
    """The code that a block stands in; the frame itself is not kept, which would keep all that it holds.

    Attributes:
        registry: whose clock and events the block uses.
    """

    __slots__ = ("_code", "_module", "registry")

    def __init__(self, registry: Registry, code: CodeType, module: object) -> None:
        self.registry = registry
        self._code = code
        self._module = module

    @property
    def label(self) -> str:
        """`module:qualname` of the function with the block in it, on one line whatever they hold."""
        module = self._module if isinstance(self._module, str) else "builtins"
        label = f"{module}:{self._code.co_qualname}"
        return label if label.isprintable() else ascii(label)[1:-1]

    @property
    def site(self) -> Site:
        """The call site of all blocks in this function, so that what is to be told once is told once."""
        label, sites = self.label, self.registry.block_sites
        found = sites.get(label)
        if found is None:
            found = Site(_block, label, self.registry, default_classifier().classify)
            if len(sites) < _MOST_SITES:
                found = sites.setdefault(label, found)
        return found


def place_of_caller(registry: Registry) -> Place:
    """The place of whoever called the function that asks."""
    frame = sys._getframe(2)
    return Place(registry, frame.f_code, frame.f_globals.get("__name__"))


_MOST_SITES = 1_024
"""Code that is made on the fly has ever new names: what is told once is then told once for each."""


def _block(*args: Any, **kwargs: Any) -> None:
    """Stands for the function of a site that has a block instead."""
