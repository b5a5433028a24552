"""One failure counts once per breaker, however many of its call sites it passes on its way out."""

from __future__ import annotations

from itertools import count

MARK = "_resilience_counted"
_SERIALS = count(1)


def new_mark() -> tuple[int, ...]:
    """A mark that no other breaker has."""
    return (next(_SERIALS),)


def counts_first(error: BaseException, mark: tuple[int, ...]) -> bool:
    """Put a breaker's mark on an exception that it counts; False if it is there already.

    The mark is an attribute of the exception; one that takes none counts at each site.
    """
    try:
        attributes = error.__dict__
        if not attributes or MARK not in attributes:
            attributes[MARK] = mark
            return True
        counted = attributes[MARK]
        if mark[0] in counted:
            return False
        attributes[MARK] = counted + mark
    except Exception:
        pass
    return True
