"""What only we measure: scenarios beside references of the standard library, and the figures of `figures.py`.

    python extras.py [--repeats N] [--ms MS] [--json FILE]

The scenarios are timed like those of `peers.py`, by the same harness.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import figures
import ours
from harness import Case, make_function, measure, quiet
from labels import (
    ASYNCIO_TIMEOUT,
    EMPTY_METHOD,
    EXECUTOR,
    KEYED,
    MONOTONIC,
    OURS,
    STREAK,
    TUPLE_LOOK_UP,
    WINDOW,
)

from resilience import BreakerConfig, Consecutive, Registry, breaker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

TEXTS = {
    "is_open/closed": "is_open() of a closed breaker",
    "is_open/open": "is_open() of an open breaker",
    "sync/window/added": "a breaker with a streak, and one with a rolling window",
    "async/window/added": "a breaker with a streak, and one with a rolling window",
    "sync/keyed/added": "one breaker, and one for each of two keys",
    "async/keyed/added": "one breaker, and one for each of two keys",
    "async/timeout/bare": "bulkhead + timeout + retry + breaker, beside one bare asyncio.timeout",
    "sync/timeout/worker": "timeout on a worker thread (CPU time of the process)",
    "uvloop/timeout/bare": "bulkhead + timeout + retry + breaker, beside one bare asyncio.timeout, on uvloop",
}


class Empty:
    """Something with a method that does nothing."""

    __slots__ = ()

    def method(self) -> bool:
        """Nothing."""
        return False


def built(loop: Any, scenario: str) -> Any:
    """A function under our policies, as in that scenario of `peers.py`."""
    world, _, kind = scenario.split("/")
    return loop.run_until_complete(ours.build(scenario, make_function(kind, world == "async")))


def is_open_cases(is_open: bool) -> list[Case]:
    """`is_open()` of a kept breaker beside what it is compared with."""
    kept = figures.new_breaker(BreakerConfig(Consecutive(1), cooldown=3600, max_cooldown=3600)).breaker
    if is_open:
        kept.on_failure(kept.try_acquire(), ConnectionError("down"))
        reference = Case(MONOTONIC, "now()", {"now": time.monotonic})
    else:
        reference = Case(EMPTY_METHOD, "e.method()", {"e": Empty()})
    if kept.is_open() is not is_open:
        raise AssertionError(f"the breaker is {kept.state}")
    return [reference, Case(OURS, "b.is_open()", {"b": kept})]


def window_cases(loop: Any, world: str) -> list[Case]:
    """A breaker with each trip mode, and one look at the clock."""
    is_async = world == "async"
    call = "await f(1)" if is_async else "f(1)"
    return [
        Case(MONOTONIC, "now()", {"now": time.monotonic}),
        Case(STREAK, call, {"f": built(loop, f"{world}/breaker/success")}, is_async),
        Case(WINDOW, call, {"f": built(loop, f"{world}/breaker-window/success")}, is_async),
    ]


def keyed_cases(is_async: bool) -> list[Case]:
    """One breaker, one by two of the parameters, and what looking them up costs at least."""
    call = "await f(p, m)" if is_async else "f(p, m)"
    names = {"p": "openai", "m": "gpt-4"}

    def fn(provider: str, model: str) -> str:
        return model

    async def afn(provider: str, model: str) -> str:
        return model

    single, keyed = (
        breaker(name, BreakerConfig(), key=key, registry=Registry())(afn if is_async else fn)
        for name, key in (("single", None), ("keyed", ("provider", "model")))
    )
    return [
        Case(TUPLE_LOOK_UP, "d[(p, m)]", {**names, "d": {("openai", "gpt-4"): 1}}),
        Case(STREAK, call, {**names, "f": single}, is_async),
        Case(KEYED, call, {**names, "f": keyed}, is_async),
    ]


def bare_timeout_cases(loop: Any) -> list[Case]:
    """Our whole stack beside the one thing of the standard library that it has inside."""
    return [
        Case(ASYNCIO_TIMEOUT, "async with t(30): pass", {"t": asyncio.timeout}, True),
        Case(OURS, "await f(1)", {"f": built(loop, "async/stack4/success")}, True),
    ]


def worker_cases(loop: Any, pool: ThreadPoolExecutor) -> list[Case]:
    """A call on another thread, waited for with a limit."""
    return [
        Case(EXECUTOR, "p.submit(f, 1).result(30)", {"p": pool, "f": make_function("success", False)}),
        Case(OURS, "f(1)", {"f": built(loop, "sync/timeout/success")}),
    ]


def measure_scenarios(repeats: int, ms: float, only: Collection[str] | None) -> dict[str, Any]:
    """Measure the scenarios and print them."""
    found: dict[str, Any] = {}

    def record(
        name: str, make: Callable[[], list[Case]], loop: Any, clock: Callable[[], int] = time.thread_time_ns
    ) -> None:
        if only is not None and name not in only:
            return
        cases = make()
        values, slowdown = measure(cases, loop, repeats, ms, clock)
        found[name] = {"ns": dict(zip((case.label for case in cases), values)), "slowdown": slowdown}
        show(name, found[name])

    loop = asyncio.new_event_loop()
    record("is_open/closed", lambda: is_open_cases(False), loop)
    record("is_open/open", lambda: is_open_cases(True), loop)
    record("sync/window/added", lambda: window_cases(loop, "sync"), loop)
    record("async/window/added", lambda: window_cases(loop, "async"), loop)
    record("sync/keyed/added", lambda: keyed_cases(False), loop)
    record("async/keyed/added", lambda: keyed_cases(True), loop)
    record("async/timeout/bare", lambda: bare_timeout_cases(loop), loop)
    with ThreadPoolExecutor(1) as pool:
        # The wall clock would tell more of who else wanted the core between the two threads than of their work.
        record("sync/timeout/worker", lambda: worker_cases(loop, pool), loop, time.process_time_ns)
    loop.close()
    with suppress(ImportError):
        import uvloop

        loop = uvloop.new_event_loop()
        record("uvloop/timeout/bare", lambda: bare_timeout_cases(loop), loop)
        loop.close()
    return found


def show(name: str, found: dict[str, Any]) -> None:
    """Print one scenario."""
    slow = f"   [machine slowed x{found['slowdown']:.2f}, corrected]" if found["slowdown"] > 1.15 else ""
    print(f"\n### {name} - {TEXTS[name]}{slow}")
    for label, ns in found["ns"].items():
        print(f"  {label:44s} {ns:10.0f} ns")
    sys.stdout.flush()


def run(*, scenarios: Collection[str] | None = None, repeats: int = 15, ms: float = 4.0) -> dict[str, Any]:
    """Measure and print; the result as a dict that JSON can hold.

    Args:
        scenarios: names of scenarios, then without the figures (default: all, with the figures).
        repeats: rounds.
        ms: the length of one sample.
    """
    out: dict[str, Any] = {"scenarios": measure_scenarios(repeats, ms, scenarios)}
    if scenarios is None:
        out["figures"] = figures.run(repeats)
    return out


def main(argv: list[str] | None = None) -> int:
    """The command line; see the top of the file."""
    parser = argparse.ArgumentParser(description="What only we measure.")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15)")
    parser.add_argument("--ms", type=float, default=4.0, help="target length of one sample (default 4)")
    parser.add_argument("--json", help="write the result to this file")
    arguments = parser.parse_args(argv)
    quiet()
    out = run(repeats=arguments.repeats, ms=arguments.ms)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
