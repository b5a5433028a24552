"""The words users write: the four policies, `compose` and `remaining`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from resilience._context import remaining_at
from resilience._core.faults import FaultKind
from resilience._core.retry_budget import RetryBudget
from resilience._references import BreakerRef
from resilience._registry import current_registry
from resilience._settings import BreakerPolicy, BulkheadPolicy, Policy, RetryPolicy, TimeoutPolicy, one_of_each
from resilience._values import Bulkhead, PolicySet, Retry, Timeout
from resilience._words import OnOpen, OnReject
from resilience.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from resilience._core.config import BreakerConfig
    from resilience._core.rules import Classifier
    from resilience._registry import Registry

    Seconds = float | timedelta
    Key = str | tuple[str, ...] | Callable[..., object]


# ---------------------------------------------------------------------------------------------- the four words
def breaker(
    name: str,
    config: BreakerConfig | None = None,
    *,
    on_open: OnOpen = OnOpen.FAIL,
    fallback: Any = None,
    unless: Callable[..., object] | None = None,
    key: Key | None = None,
    classify: Classifier | Callable[[BaseException], object] | None = None,
    classify_result: Callable[[Any], object] | None = None,
    account: Literal["attempt", "call"] = "attempt",
    stream: bool = False,
    registry: Registry | None = None,
) -> BreakerRef:
    """Stop calling a service that does not answer; the circuit is shared by name.

    Args:
        name: 1 to 256 bytes of `A-Z a-z 0-9 . _ : / @ + -`.
        config: the shared settings; whoever registers the name first sets them. None (default)
            refers to a name registered elsewhere, with the defaults if nobody has by the first call.
        on_open: FAIL (default) raises `CircuitOpenError`; BYPASS skips the call and returns `fallback`.
        fallback: with BYPASS, a value, or a function of the call's arguments, of which it may leave out those that have defaults (default None).
        unless: a predicate of the call's arguments; where it is true the call neither asks nor feeds the breaker.
        key: for one breaker per key instead of one (see `Registry.family`): the name of a parameter or a tuple of
            them, or a plain function of the call's arguments that returns the key's part or a tuple of parts.
            A call without a safe key shares the breaker `__other__`.
        classify: a `Classifier`, or a function of the exception that returns a `Fault`, a
            `FaultKind` or None (leave it to the rules).
        classify_result: a function of the returned value that returns a `Fault` or `FaultKind` where
            it is a fault, None where it is none.
        account: "attempt" (default): every attempt counts; "call": one verdict for a whole call with its retries.
        stream: the function returns an iterator, an async iterator or a response with `iter_...`, whose end is the
            end of the call (default False; a generator function is known to).
        registry: where the name lives (default: the current registry).

    Raises:
        ConfigurationError: listing every argument that can't be right.

    Example:
        >>> @breaker("mail", BreakerConfig(cooldown=10))
        ... def send(text: str) -> None: ...
    """
    values = BreakerPolicy.check(
        {
            "name": name,
            "config": config,
            "on_open": on_open,
            "fallback": fallback,
            "unless": unless,
            "key": key,
            "classify": classify,
            "classify_result": classify_result,
            "account": account,
            "stream": stream,
            "registry": registry,
        }
    )
    made = BreakerRef(**values)
    if config is not None:
        made.register(registry or current_registry())
    return made


_BACKOFF = {"initial_backoff": 0.1, "max_backoff": 30.0, "jitter": 0.5}


def retry(
    max_attempts: int = 3,
    *,
    initial_backoff: Seconds = 0.1,
    max_backoff: Seconds = 30.0,
    jitter: float = 0.5,
    wait: Callable[[Any], float] | Seconds | None = None,
    stop: Callable[[Any], object] | None = None,
    retry_on: Iterable[FaultKind] = (FaultKind.TRANSIENT,),
    idempotent: bool = False,
    safe_only: bool = False,
    max_retry_after: Seconds = 60.0,
    retry_budget: RetryBudget | str | None = None,
    stream: bool = False,
) -> Retry:
    """Try again what failed for a passing reason.

    The last real exception leaves unchanged when nothing more can be done. A server's
    Retry-After is the least wait, and where it sets the wait the spread is added to it. A refusal
    by an open circuit is never retried.

    Args:
        max_attempts: including the first (≥ 1, default 3).
        initial_backoff: seconds after the first failure (≥ 0, default 0.1), doubled after each further one.
        max_backoff: the longest wait in seconds (≥ 0, default 30).
        jitter: spread of each wait as a share of it (0 to 1, default 0.5: ± 50 %, of a Retry-After up to + 50 %).
        wait: instead of the three above: seconds, or any tenacity wait strategy. The spread of a Retry-After is then 10 %.
        stop: beside `max_attempts`, any tenacity stop strategy: whichever ends first.
        retry_on: fault kinds, out of transient (default) and downstream.
        idempotent: the function may be repeated; or mark it `@idempotent`.
        safe_only: repeat only what was surely not sent; then the function need not be idempotent.
        max_retry_after: a Retry-After longer than this many seconds ends the retry (> 0, default 60).
        retry_budget: a `RetryBudget`, shared by name or the call site's own, that bounds how many retries all its calls
            may make; a name refers to one registered elsewhere, with the defaults if nobody has by the
            first call (default None: no bound).
        stream: the function returns a stream (see `breaker`); it is begun anew only before its first item.

    Raises:
        ConfigurationError: listing every argument that can't be right; when the function is
            decorated, if it is not known to be repeatable.

    Example:
        >>> @retry(3, idempotent=True)
        ... def fetch(url: str) -> bytes: ...
    """
    values: dict[str, Any] = {
        "max_attempts": max_attempts,
        "initial_backoff": initial_backoff,
        "max_backoff": max_backoff,
        "jitter": jitter,
        "wait": wait,
        "stop": stop,
        "retry_on": retry_on,
        "idempotent": idempotent,
        "safe_only": safe_only,
        "max_retry_after": max_retry_after,
        "retry_budget": retry_budget,
        "stream": stream,
    }
    given = frozenset(name for name, default in _BACKOFF.items() if values[name] is not default)
    made = Retry(**RetryPolicy.check(values, given))
    if isinstance(retry_budget, RetryBudget) and retry_budget.name is not None:
        current_registry().retry_budget(retry_budget.name, retry_budget)
    return made


def timeout(
    budget: Seconds | None = None,
    *,
    per_attempt: Seconds | None = None,
    first_item: Seconds | None = None,
    idle: Seconds | None = None,
    pass_as: str | None = None,
    counts: bool = True,
    stream: bool = False,
) -> Timeout:
    """Bound a call in time.

    An async function is interrupted by cancelling. A plain function can't be: either
    it is handed the seconds left (`pass_as`), or it is marked `@interruptible` and
    runs on a worker that is abandoned at the deadline, not stopped.

    Args:
        budget: seconds for the whole call, with all attempts and waits (> 0).
        per_attempt: seconds for each attempt, fresh each time (> 0, ≤ budget).
        first_item: seconds of an attempt up to the first item of a stream (> 0, ≤ per_attempt and budget).
        idle: seconds to wait for each further item of a stream (> 0, ≤ per_attempt or budget).
        pass_as: the parameter that is given the seconds left, such as "timeout".
        counts: whether an expiry counts against the breaker (default True); False for limits a client sets.
        stream: the function returns a stream (see `breaker`); budget and per_attempt last to its end.

    Raises:
        ConfigurationError: listing every argument that can't be right; when the function is
            decorated, if it can't be interrupted.

    Example:
        >>> @timeout(30, per_attempt=10)
        ... async def ask(prompt: str) -> str: ...
    """
    return Timeout(
        **TimeoutPolicy.check(
            {
                "budget": budget,
                "per_attempt": per_attempt,
                "first_item": first_item,
                "idle": idle,
                "pass_as": pass_as,
                "counts": counts,
                "stream": stream,
            }
        )
    )


def bulkhead(
    name: str | None = None,
    *,
    max_in_flight: int | None = None,
    max_waiting: int | None = None,
    wait: Seconds = 0.0,
    on_reject: OnReject = OnReject.FAIL,
    fallback: Any = None,
    key: Key | None = None,
    stream: bool = False,
    registry: Registry | None = None,
) -> Bulkhead:
    """Cap the calls in flight, over all threads and event loops of the process.

    Args:
        name: the shared name; None (default) for a bulkhead of the decorated function's own.
        max_in_flight: calls at one time (≥ 1); left out to refer to a registered name.
        max_waiting: callers in line (≥ 0; default 10 × max_in_flight); beyond it a caller is refused at once.
        wait: seconds this call site stands in line (≥ 0, default 0: refused at once). Strict first in, first out.
        on_reject: FAIL (default) raises `BulkheadFullError`; BYPASS skips the call and returns `fallback`.
        fallback: with BYPASS, a value, or a function of the call's arguments, of which it may leave out those that have defaults (default None).
        key: for one cap per key instead of one, as for `breaker`; the name is then the family's.
        stream: the function returns a stream (see `breaker`), whose slot is held to its end.
        registry: where the name lives (default: the current registry).

    Raises:
        ConfigurationError: listing every argument that can't be right.

    Example:
        >>> @bulkhead("mail", max_in_flight=4, wait=0.5)
        ... def send(text: str) -> None: ...
    """
    values = BulkheadPolicy.check(
        {
            "name": name,
            "max_in_flight": max_in_flight,
            "max_waiting": max_waiting,
            "wait": wait,
            "on_reject": on_reject,
            "fallback": fallback,
            "key": key,
            "stream": stream,
            "registry": registry,
        }
    )
    made = Bulkhead(**values)
    if made.config is not None:
        made.register(registry or current_registry())
    return made


# ---------------------------------------------------------------------------------------------- together
def compose(*policies: Policy) -> PolicySet:
    """One reusable set of policies, in any order: a decorator, with `.call` and `.acall` for single calls.

    Raises:
        ConfigurationError: no policy, two of a kind, or something that is none.

    Example:
        >>> careful = compose(retry(2, idempotent=True), breaker("mail", BreakerConfig()))
        >>> careful.call(len, "abc")
        3
    """
    wrong = [policy for policy in policies if not _is_policy(policy)]
    if wrong or not policies:
        raise ConfigurationError(
            f"policies must be breaker(...), retry(...), timeout(...) or bulkhead(...), got {shown(wrong or policies)}"
        )
    one_of_each(policies)
    return PolicySet(policies)


def _is_policy(candidate: object) -> bool:
    return isinstance(candidate, Policy)


def remaining() -> float | None:
    """Seconds left of the nearest deadline around the caller, clipped to the outer ones; None without one.

    Below 0 where it has run out already.
    """
    return remaining_at(current_registry().clock.monotonic())
