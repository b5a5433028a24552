"""Whether a function can carry its policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.checks import COROUTINE, Faults, code_flags
from resilience._keying import lacks, missing_names
from resilience._marks import is_idempotent, is_uninterruptible, worker_limit

if TYPE_CHECKING:
    from resilience._engine.kinds import Kind
    from resilience._settings import Given, TimeoutPolicy


def check_fit(given: Given, fn: Any, kind: Kind, label: str) -> None:
    """Refuse policies that this function can't carry; one error for all of it.

    Raises:
        ConfigurationError: with the cures.
    """
    faults = Faults()
    retry, limit = given.retry, worker_limit(fn)
    if retry is not None and not (retry.idempotent or retry.safe_only or is_idempotent(fn)):
        faults.say(
            f"retry must know that {label} may be repeated: put @idempotent next to the function, or give "
            "idempotent=True (or safe_only=True, to repeat only what was surely not sent)"
        )
    if limit is not None and kind.is_async:
        faults.say(f"@interruptible must stand on a plain function; {label} is async, which a timeout cancels")
    if kind.is_generator and given.breaker is not None and given.breaker.classify_result is not None:
        faults.say(
            f"classify_result must be left out: {label} is a generator function, which returns no result to judge"
        )
    if not kind.is_async and given.breaker is not None and code_flags(given.breaker.unless) & COROUTINE:
        faults.say(f"unless must be a plain function: {label} is one, and nobody there could await it")
    if kind.is_stream and is_uninterruptible(fn):
        faults.say(f"@uninterruptible must stand on a function that returns its result; {label} gives a stream")
    for policy in (given.breaker, given.bulkhead):
        missing = [] if policy is None else missing_names(fn, policy.key)
        if missing:
            faults.say(lacks(label, missing))
    if given.timeout is not None:
        _check_timeout(faults, given.timeout, fn, kind, label, limit)
    faults.raise_any()


def _check_timeout(faults: Faults, timeout: TimeoutPolicy, fn: Any, kind: Kind, label: str, limit: int | None) -> None:
    if kind.is_async:
        if is_uninterruptible(fn):
            faults.say(f"timeout must be left out: {label} is marked @uninterruptible")
    elif timeout.pass_as is None and limit is None:
        faults.say(
            f"timeout can't interrupt {label}, a plain function: put @interruptible next to the function to "
            "run it on a worker that may be abandoned, or give pass_as='NAME' to hand it the seconds left; "
            "work that writes state should have no timeout at all"
        )
    elif timeout.pass_as is not None and limit is not None:
        faults.add("pass_as", timeout.pass_as, "left out for an @interruptible function: choose one of the two")
    for name in ("first_item", "idle"):
        seconds = getattr(timeout, name)
        if seconds is not None and not kind.is_stream:
            faults.add(
                name, seconds, f"left out, since {label} gives no stream; declare stream=True if what it returns is one"
            )
        elif seconds is not None and timeout.pass_as is not None:
            faults.add(
                name,
                seconds,
                "left out with pass_as, which interrupts nothing: put @interruptible next to the function",
            )
    if timeout.pass_as is not None and not takes(fn, timeout.pass_as):
        faults.add("pass_as", timeout.pass_as, f"a parameter of {label} that can be given by name")


def takes(fn: Any, name: str) -> bool:
    """Whether a callable has a parameter that can be given by this name."""
    import inspect

    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):
        # A builtin that does not tell: the call itself will.
        return True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD or (parameter.name == name and parameter.kind in named)
        for parameter in parameters
    )


def place_of(fn: Any, name: str) -> int | None:
    """Which positional argument a parameter is, None where it is given by name only."""
    import inspect

    try:
        parameters = tuple(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError):
        return None
    for place, parameter in enumerate(parameters):
        if parameter.name == name and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            return place
    return None
