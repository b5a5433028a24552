"""The retry schedule: how long to wait after the n-th failed attempt, and after a server's own word."""

from __future__ import annotations

from math import inf


def backoff(attempt: int, *, initial: float, longest: float, jitter: float, chance: float) -> float:
    """Seconds to wait after failed attempt number `attempt` (1 is the first).

    Doubles from `initial` up to `longest`, then spread by ± `jitter` of itself:
    `chance` in [0, 1) picks the place. The spread comes after the cap, so that it
    never vanishes and callers that failed together do not return together.
    """
    # 2 ** 1100 is no float any more; long before that the cap holds.
    base = min(longest, initial * 2.0 ** min(attempt - 1, 1000))
    return base + jitter * base * (2.0 * chance - 1.0)


def release(hint: float, *, jitter: float, left: float | None, chance: float) -> float:
    """Seconds to wait where a server has asked for `hint`: never less, and up to the share `jitter` of it more.

    A server tells all its callers the same, and they are not to come back in one
    instant. The spread ends where the time does that is `left`: it is never the reason why a wait
    does not fit.
    """
    spread = jitter * hint if left is None else max(0.0, min(jitter * hint, left - hint))
    wait = hint + chance * spread
    return wait if fits(wait, left) else hint


def fits(wait: float, left: float | None) -> bool:
    """Whether a wait leaves any time for another attempt; without a deadline it does, if it ends at all."""
    return wait < (inf if left is None else left)
