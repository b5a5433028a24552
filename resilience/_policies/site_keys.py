"""A call site with keys: from the arguments of a call to the member of a family that it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from resilience._core.keys import NoKey
from resilience._policies.families import M

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._policies.families import Family

    Read = Callable[[tuple[Any, ...], dict[str, Any]], object]


class SiteKeys(Generic[M]):
    """Which member of a family a call of one site means.

    `find` gives the family: it is asked once, at the first call, unless the name was known before.

    Attributes:
        on_family: called with the family when that first call has found it.
    """

    __slots__ = ("_family", "_find", "_read", "on_family")

    def __init__(self, find: Callable[[], Family[M]], read: Read) -> None:
        self._find = find
        self._read = read
        self._family: Family[M] | None = None
        self.on_family: Callable[[Family[M]], object] = _nobody

    @property
    def known(self) -> Family[M] | None:
        """The family, if it has been found."""
        return self._family

    @property
    def family(self) -> Family[M]:
        """The family."""
        family = self._family
        if family is None:
            family = self._family = self._find()
            self.on_family(family)
        return family

    def of_parts(self, parts: tuple[Any, ...]) -> M:
        """The member for the parts of a key."""
        return self.family[parts]

    def of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> M:
        """The member for a call with these arguments; what can't tell its key shares `__other__`."""
        family = self.family
        try:
            given = self._read(args, kwargs)
        except Exception:
            family.tell(NoKey.RAISED)
            return family.find(None)
        return family[given]


def _nobody(family: object) -> None:
    """For a wrapper that does not look keys up by itself."""
