"""What hangs directly on an exception: its cause, its reason, its arguments, its context."""

from __future__ import annotations

from resilience._core.headers import entry
from resilience._core.profile import LINKS
from resilience._core.reading import is_exception, members_of, read

_MAX_ARGS = 16


def links_of(exc: BaseException, loaded: bool) -> list[tuple[BaseException, bool]]:
    """The exceptions directly inside, each with whether it was named as the reason.

    The context comes last and even when suppressed: botocore, redis and pymysql keep
    the real cause only there.
    """
    candidates: list[object] = [read(exc, "__cause__")]
    if loaded:
        candidates += [read(exc, name) for name in LINKS]
        candidates.append(entry(read(exc, "kwargs"), "error"))
    candidates += members_of(read(exc, "args"), _MAX_ARGS)
    found = [(candidate, True) for candidate in candidates if is_exception(candidate)]
    context = read(exc, "__context__")
    if is_exception(context):
        found.append((context, False))
    return found
