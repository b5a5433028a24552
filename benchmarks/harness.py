"""How a call is timed: generated loops, interleaved samples, each corrected by a calibration beside it.

- A case is a loop around one statement; an empty loop is measured the same way and subtracted.
- Samples are short and interleaved: round 1 runs every case once, then round 2, and so on.
- Each sample stands between two runs of a fixed calibration loop and is scaled by best / adjacent calibration, which
  takes out most of what other processes on the machine do to it. What is reported is the median.
- The clock is the CPU time of the thread; where work is handed to another thread, the wall clock, or the CPU time of
  the process.

Nanoseconds do not repeat from run to run; ratios within one run do.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import logging
import statistics
import warnings
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# The fastest calibration so far, over all measurements of the process.
_best = [10**18]


def quiet() -> None:
    """Switch off what would be timed or printed besides: warnings and log lines."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


# ---------------------------------------------------------------------------------------------- functions to protect
def kind_of(scenario: str) -> str:
    """What happens in a scenario: success, reject, failure, retry1 or exhaust."""
    return scenario.rsplit("/", 1)[1]


def make_function(kind: str, is_async: bool) -> Any:
    """The function under protection: it returns its argument, fails, or fails in every odd call (retry1)."""
    n = 0
    if kind in ("success", "reject"):

        def fn(x):
            return x

        async def afn(x):
            return x

    elif kind in ("failure", "exhaust"):

        def fn(x):
            raise ConnectionError("down")

        async def afn(x):
            raise ConnectionError("down")

    else:

        def fn(x):
            nonlocal n
            n += 1
            if n & 1:
                raise ConnectionError("down")
            return x

        async def afn(x):
            nonlocal n
            n += 1
            if n & 1:
                raise ConnectionError("down")
            return x

    return afn if is_async else fn


def counted(fn: Any) -> tuple[Any, list[int]]:
    """The same function with a counter of its calls, for the check of behaviour."""
    calls = [0]
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def wrapper(*args, **kwargs):
            calls[0] += 1
            return await fn(*args, **kwargs)
    else:

        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            calls[0] += 1
            return fn(*args, **kwargs)

    return wrapper, calls


async def resolve(value: Any) -> Any:
    """The value itself, or what it awaits to."""
    return await value if inspect.isawaitable(value) else value


async def check(scenario: str, name: str, build: Any, is_async: bool) -> Any:
    """Call an entry once and see that it does what its scenario says.

    Returns the type of the exception that a call raises, None for none, "skip" where there is nothing to measure.
    """
    kind = kind_of(scenario)
    if "guard" in scenario:
        block = (await resolve(build(scenario, None)))()
        if is_async and hasattr(block, "__aenter__"):
            async with block:
                pass
        else:
            with block:
                pass
        return None
    fn, calls = counted(make_function(kind, is_async))
    wrapped = await resolve(build(scenario, fn))
    if wrapped is None:
        return "skip"
    calls[0] = 0
    result = error = None
    try:
        result = await resolve(wrapped(7))
    except Exception as raised:
        error = raised
    expected = {"success": 1, "reject": 0, "failure": 1, "retry1": 2, "exhaust": 3}[kind]
    if calls[0] != expected:
        raise AssertionError(
            f"{scenario}: {name}: the function ran {calls[0]} times, expected {expected} (error: {error!r})"
        )
    if kind in ("success", "retry1"):
        if error is not None or result != 7:
            raise AssertionError(f"{scenario}: {name}: wrong outcome {error!r}")
    elif error is None:
        raise AssertionError(f"{scenario}: {name}: no exception")
    elif kind == "reject" and isinstance(error, ConnectionError):
        raise AssertionError(f"{scenario}: {name}: not a refusal: {error!r}")
    return None if error is None else type(error)


# ---------------------------------------------------------------------------------------------- timing
def compile_loop(statement: str, names: list[str], is_async: bool) -> Any:
    """A function that runs the statement n times, its names bound to locals, and returns the time it took."""
    lines = [
        ("async " if is_async else "") + "def _loop(_n, _ns, _clock, _repeat):",
        *(f"    {name} = _ns[{name!r}]" for name in names),
        "    _it = _repeat(None, _n)",
        "    _t0 = _clock()",
        "    for _ in _it:",
        *(f"        {line}" for line in statement.splitlines()),
        "    return _clock() - _t0",
    ]
    scope: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<bench>", "exec"), scope)
    return scope["_loop"]


def _inner(x):
    return x


def _wrap(*args, **kwargs):
    return _inner(*args, **kwargs)


def calibrate() -> int:
    """Time a fixed piece of work that looks like a wrapper: calls, packing and unpacking, a small dict."""
    began = thread_time_ns()
    for _ in itertools.repeat(None, 4000):
        _wrap(1)
        {"a": 1}.get("a")
    return thread_time_ns() - began


class Case:
    """One statement to time, with the names it uses."""

    def __init__(self, label: str, statement: str, names: dict[str, Any], is_async: bool = False) -> None:
        self.label = label
        self.names = names
        self.is_async = is_async
        self.loop = compile_loop(statement, list(names), is_async)
        self.n = 0
        self.samples: list[tuple[float, float]] = []


def measure(
    cases: list[Case], loop: Any, repeats: int, ms: float, clock: Callable[[], int] = thread_time_ns
) -> tuple[list[float], float]:
    """Time the cases side by side.

    Args:
        cases: what to time.
        loop: the event loop for async cases.
        repeats: rounds.
        ms: the length of one sample.
        clock: what tells the nanoseconds (default: the CPU time of the thread).

    Returns:
        Nanoseconds per run of each case, and how many times slower than its best the machine was meanwhile.
    """

    def sample(case: Case, n: int) -> int:
        if case.is_async:
            return loop.run_until_complete(case.loop(n, case.names, clock, itertools.repeat))
        return case.loop(n, case.names, clock, itertools.repeat)

    empty = {False: Case("", "pass", {}), True: Case("", "pass", {}, True)}
    every = [*empty.values(), *cases]
    for case in every:
        n = 4
        while True:
            took = sample(case, n)
            if took > ms * 2.5e5 or n > 5_000_000:
                break
            n = max(n * 2, min(n * 50, int(n * ms * 3e5 / max(took, 1))))
        case.n = max(3, int(n * ms * 1e6 / max(took, 1)))
    gc.collect()
    gc.freeze()
    for _ in range(repeats):
        for case in every:
            before = calibrate()
            took = sample(case, case.n) / case.n
            after = calibrate()
            _best[0] = min(_best[0], before, after)
            case.samples.append((took, (before + after) / 2))
    gc.unfreeze()

    def median(case: Case) -> float:
        return statistics.median(took * _best[0] / beside for took, beside in case.samples)

    base = {is_async: median(case) for is_async, case in empty.items()}
    slowdown = statistics.median(beside for case in every for _, beside in case.samples) / _best[0]
    return [median(case) - base[case.is_async] for case in cases], slowdown
