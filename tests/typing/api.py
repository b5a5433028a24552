"""What type checkers see: decorated callables keep their types. Checked by `test_types.py`, never run.

A line with `type: ignore[code]` is a mistake that must be found: without the error the
ignore is unused, which is reported.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar, assert_type, overload

from resilience import (
    Attempt,
    BreakerConfig,
    BreakerFamily,
    BreakerRef,
    Bulkhead,
    BulkheadBlock,
    CircuitBreaker,
    CircuitState,
    Description,
    FailureRate,
    OnOpen,
    Permit,
    PolicySet,
    Registry,
    Retry,
    RetryBudget,
    RetryBudgetStatus,
    Timeout,
    TimeoutBlock,
    breaker,
    bulkhead,
    compose,
    default_registry,
    describe,
    idempotent,
    interruptible,
    remaining,
    retry,
    timeout,
    uninterruptible,
)

guard = breaker("typed", BreakerConfig())
careful = compose(guard, retry(2, idempotent=True))

assert_type(guard, BreakerRef)
assert_type(retry(2), Retry)
assert_type(timeout(30), Timeout)
assert_type(bulkhead(max_in_flight=2), Bulkhead)
assert_type(careful, PolicySet)


# ---------------------------------------------------------------------------------------------- functions
@guard
def fetch(url: str, *, size: int = 1) -> bytes:
    return url.encode() * size


@bulkhead("typed", max_in_flight=2)
@timeout(30)
@retry(max_attempts=3, idempotent=True)
@breaker("typed")
async def ask(prompt: str, /, temperature: float = 0.5) -> list[str]:
    return [prompt] * int(temperature)


@careful
@idempotent
def both(*args: int, **kwargs: str) -> None: ...


@interruptible
def simple() -> int:
    return 1


@interruptible(max_workers=2)
def pooled(text: str) -> str:
    return text


@uninterruptible
async def whole(text: str) -> str:
    return text


keyed = breaker("typed-keys", BreakerConfig(), key=("provider", "model"))
family = default_registry().family("typed-keys", labels=("provider", "model"))
shared: CircuitBreaker = family["openai", "gpt-4"]

assert_type(keyed.family, BreakerFamily)
assert_type(family.labels, tuple[str, ...])
assert_type(family.reset("openai", "gpt-4"), bool)


@bulkhead("typed-keys", max_in_flight=2, key="provider")
@keyed
def by_key(provider: str, model: str) -> int:
    return len(provider + model)


def host(url: str) -> str:
    return url


@breaker("typed-key-function", key=host)
def by_url(url: str) -> bytes:
    return url.encode()


assert_type(by_key("openai", "gpt-4"), int)
assert_type(by_url("u"), bytes)
breaker("typed", key=1)  # type: ignore[arg-type]

assert_type(fetch("u", size=2), bytes)
assert_type(both(1, 2, a="b"), None)
assert_type(simple(), int)
assert_type(pooled("a"), str)

fetch(1)  # type: ignore[arg-type]
fetch("u", 2)  # type: ignore[call-arg]
fetch("u", length=2)  # type: ignore[call-arg]
both("a")  # type: ignore[arg-type]


async def awaited() -> None:
    assert_type(await ask("p"), list[str])
    assert_type(await ask("p", 0.1), list[str])
    assert_type(await whole("a"), str)
    await ask(prompt="p")  # type: ignore[call-arg]
    await ask("p", "hot")  # type: ignore[arg-type]
    await fetch("u")  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------- methods
class Client:
    @guard
    def get(self, url: str) -> bytes:
        return url.encode()

    @guard
    async def get_later(self, url: str) -> bytes:
        return url.encode()

    @classmethod
    @guard
    def made(cls, url: str) -> Client:
        return cls()

    @staticmethod
    @guard
    def joined(*parts: str) -> str:
        return "/".join(parts)

    @property
    @guard
    def base(self) -> str:
        return "http://provider"

    @guard
    def __call__(self, text: str) -> int:
        return len(text)


client = Client()
assert_type(client.get("u"), bytes)
assert_type(Client.made("u"), Client)
assert_type(Client.joined("a", "b"), str)
assert_type(client.base, str)
assert_type(client("a"), int)
assert_type(guard(client.get)("u"), bytes)


async def method_awaited() -> None:
    assert_type(await client.get_later("u"), bytes)
    assert_type(await guard(client.get_later)("u"), bytes)


client.get()  # type: ignore[call-arg]
client.get(1)  # type: ignore[arg-type]
Client.joined(1)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- overloads and objects
@overload
def double(value: int) -> int: ...
@overload
def double(value: str) -> str: ...
@guard
def double(value: int | str) -> int | str:
    return value * 2


assert_type(double(1), int)
assert_type(double("a"), str)
double(1.5)  # type: ignore[call-overload]

assert_type(guard(double)("a"), str)
assert_type(guard(client), Client)
assert_type(guard(functools.partial(fetch, "u")), functools.partial[bytes])
assert_type(guard(len)("abc"), int)


T = TypeVar("T")


@guard
def same(value: T) -> T:
    return value


assert_type(same(1), int)
assert_type(same("a"), str)


# ---------------------------------------------------------------------------------------------- single calls
assert_type(careful.call(fetch, "u", size=2), bytes)
assert_type(guard.breaker.call(fetch, "u"), bytes)
careful.call(fetch, 1)  # type: ignore[arg-type]
careful.call(fetch, "u", length=1)  # type: ignore[call-arg]


async def single_calls() -> None:
    assert_type(await careful.acall(ask, "p"), list[str])
    assert_type(await guard.breaker.acall(ask, "p", 0.1), list[str])
    await careful.acall(ask, 1)  # type: ignore[arg-type]
    await careful.acall(fetch, "u")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- an operator's acts
assert_type(guard.reset(reason="drill", actor="ann"), bool)
guard.reconfigure(BreakerConfig(FailureRate(slow_call=2.5, slow_rate=0.25), ramp=10.0), actor="ann")
guard.breaker.reconfigure(BreakerConfig())
guard.reconfigure(FailureRate())  # type: ignore[arg-type]
guard.breaker.reconfigure(BreakerConfig(), "ann")  # type: ignore[call-arg]
assert_type(guard.status().slow_rate, float | None)
assert_type(guard.status().ramp_until, int | None)


# ---------------------------------------------------------------------------------------------- blocks
def block() -> str:
    with guard.guard() as permit:
        assert_type(permit, Permit)
        return "inside"
    return "a block lets exceptions through, and is never skipped"  # type: ignore[unreachable]


async def async_block() -> None:
    async with guard.guard() as permit:
        assert_type(permit, Permit)
        assert_type(permit.bypassed, bool)
    async with default_registry().breaker("typed").guard(OnOpen.BYPASS) as permit:
        assert_type(permit, Permit)


def repeated() -> str:
    for attempt in retry(3):
        assert_type(attempt, Attempt)
        with attempt as inside:
            assert_type(inside, Attempt)
            assert_type(inside.number, int)
            return "inside"
    return "a block may swallow its exception, and a checker does not know that the last one leaves"


async def repeated_later() -> None:
    async for attempt in retry(3):
        assert_type(attempt, Attempt)
        async with attempt as inside:
            assert_type(inside, Attempt)
    for _ in timeout(5):  # type: ignore[attr-defined]
        pass


def limited() -> str:
    with timeout(5).guard() as block:
        assert_type(block, TimeoutBlock)
        assert_type(block.expired, bool)
        return "inside"
    return "a block lets exceptions through"  # type: ignore[unreachable]


async def limited_later() -> str:
    async with timeout(5).guard() as block, bulkhead("typed").guard() as slot:
        assert_type(block, TimeoutBlock)
        assert_type(slot, BulkheadBlock)
        return "inside" if slot else "bypassed"


def with_a_slot() -> str:
    with bulkhead(max_in_flight=2).guard() as slot:
        assert_type(slot, BulkheadBlock)
        return "inside"
    return "a block lets exceptions through"  # type: ignore[unreachable]


# ---------------------------------------------------------------------------------------------- the rest
assert_type(guard.breaker, CircuitBreaker)
assert_type(guard.state, CircuitState)
assert_type(guard.is_open(), bool)
assert_type(describe(fetch), Description)
assert_type(describe(fetch).breaker, CircuitBreaker | None)
assert_type(remaining(), float | None)
assert_type(Registry().get("typed"), CircuitBreaker | None)
assert_type(Registry().retry_budget("typed", RetryBudget("typed", ratio=0.1)).status(), RetryBudgetStatus)
assert_type(retry(2, retry_budget=RetryBudget(window=timedelta(minutes=1))), Retry)
assert_type(retry(2, retry_budget="typed"), Retry)

BreakerConfig(cooldown="long")  # type: ignore[arg-type]
BreakerConfig().cooldown = 5  # type: ignore[misc]
breaker(5)  # type: ignore[arg-type]
breaker("typed", on_open="fail")  # type: ignore[arg-type]
breaker("typed", account="neither")  # type: ignore[arg-type]
retry(max_attempts="three")  # type: ignore[arg-type]
retry(retry_budget=0.2)  # type: ignore[arg-type]
RetryBudget("typed", 0.2)  # type: ignore[call-arg]
timeout("long")  # type: ignore[arg-type]
bulkhead("typed", 3)  # type: ignore[call-arg]
compose(fetch)  # type: ignore[arg-type]


def takes_callable(function: Callable[[str], bytes], later: Callable[[str], Awaitable[list[str]]]) -> None: ...


takes_callable(fetch, ask)
takes_callable(ask, fetch)  # type: ignore[arg-type]
