"""The callers: threads with urllib and tasks with asyncio streams, three call sites, one breaker by name."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, Request, build_opener

from resilience import BreakerConfig, Consecutive, OnOpen, Registry, breaker, bulkhead, retry, timeout
from resilience.cli.demo.server import CIRCUIT
from resilience.cli.demo.tally import SKIPPED, Order, Tally, total

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from urllib.error import HTTPError

    from resilience import CircuitBreaker
    from resilience.cli.demo.script import Pace
    from resilience.cli.demo.server import Provider

NAME = "provider"
FAILING, BYPASSING, STREAMING = "threads", "threads, bypass", "asyncio"
CALLERS = {FAILING: 4, BYPASSING: 2, STREAMING: 4}
SLOTS = 8


class ProviderError(Exception):
    """An answer that is none; its status and headers are all that the library looks at."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers


@dataclass(frozen=True)
class Setup:
    """What the call sites share."""

    registry: Registry
    provider: Provider
    pace: Pace

    @property
    def config(self) -> BreakerConfig:
        """Five failures in a row open the circuit, two probes in a row close it."""
        return BreakerConfig(Consecutive(5), cooldown=self.pace.cooldown, half_open_successes=2)

    @property
    def shared(self) -> CircuitBreaker:
        """The breaker that all call sites mean by the name."""
        return self.registry.breaker(NAME, self.config)


# ---------------------------------------------------------------------------------------------- the call sites
def thread_site(setup: Setup, on_open: OnOpen, fallback: Callable[..., str] | None = None) -> Callable[[Order], str]:
    """A plain function with the full stack; the socket is handed the seconds left, since a thread can't be stopped."""
    pace, shared = setup.pace, setup.shared
    opener = build_opener(ProxyHandler({}))

    @bulkhead(NAME, max_in_flight=SLOTS, wait=pace.queue, registry=setup.registry)
    @timeout(pace.budget, per_attempt=pace.attempt, pass_as="timeout")
    @retry(3, initial_backoff=pace.backoff, idempotent=True)
    @breaker(NAME, setup.config, on_open=on_open, fallback=fallback, registry=setup.registry)
    def ask(order: Order, *, timeout: float | None = None) -> str:
        order.attempts += 1
        request = Request(setup.provider.url, headers={CIRCUIT: shared.state.value})
        try:
            with opener.open(request, timeout=timeout) as reply:
                return str(reply.read(), "ascii")
        except OSError as error:
            _close(error)
            raise

    return ask


def task_site(setup: Setup) -> Callable[[Order], Awaitable[str]]:
    """A coroutine function with the full stack; a task is cancelled at its deadline, and closes its socket."""
    pace, provider, shared = setup.pace, setup.provider, setup.shared

    @bulkhead(NAME, max_in_flight=SLOTS, wait=pace.queue, registry=setup.registry)
    @timeout(pace.budget, per_attempt=pace.attempt)
    @retry(3, initial_backoff=pace.backoff, idempotent=True)
    @breaker(NAME, setup.config, registry=setup.registry)
    async def ask(order: Order) -> str:
        # An address needs no lookup: the connection is made before the first chance to be cancelled.
        order.attempts += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: demo\r\n{CIRCUIT}: {shared.state.value}\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode("latin-1").partition("\r\n\r\n")
        finally:
            writer.transport.abort()
        first, *lines = head.split("\r\n")
        status = int(first.split()[1])
        if status != 200:
            raise ProviderError(status, dict(line.split(": ", 1) for line in lines))
        return body

    return ask


def _close(error: OSError | HTTPError) -> None:
    """An HTTPError is a reply as well, and holds its socket."""
    close = getattr(error, "close", None)
    if close is not None:
        close()


# ---------------------------------------------------------------------------------------------- the crowd
class Crowd:
    """All callers: what each of them made, and the threads they run on."""

    def __init__(self, setup: Setup) -> None:
        self._pause = setup.pace.pause
        self._stop = threading.Event()
        self._tallies = {site: [Tally() for _ in range(number)] for site, number in CALLERS.items()}
        failing = thread_site(setup, OnOpen.FAIL)
        bypassing = thread_site(setup, OnOpen.BYPASS, _skip)
        streaming = task_site(setup)
        self.threads = [
            *(threading.Thread(target=self._thread, args=(failing, tally)) for tally in self._tallies[FAILING]),
            *(threading.Thread(target=self._thread, args=(bypassing, tally)) for tally in self._tallies[BYPASSING]),
            threading.Thread(target=lambda: asyncio.run(self._loop(streaming))),
        ]
        for thread in self.threads:
            thread.daemon = True

    @contextmanager
    def calling(self) -> Iterator[Crowd]:
        """Call as long as the block lasts; afterwards every call has ended, and every thread."""
        for thread in self.threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self.threads:
                thread.join()

    def sites(self) -> dict[str, Tally]:
        """What became of the calls, by call site."""
        return {site: total(tallies) for site, tallies in self._tallies.items()}

    def _thread(self, ask: Callable[[Order], str], tally: Tally) -> None:
        while not self._stop.is_set():
            order = tally.begin()
            started = time.perf_counter_ns()
            try:
                answer = ask(order)
            except Exception as error:
                tally.raised(error, order, time.perf_counter_ns() - started)
            else:
                tally.returned(answer, order)
            self._stop.wait(self._pause)

    async def _loop(self, ask: Callable[[Order], Awaitable[str]]) -> None:
        await asyncio.gather(*(self._task(ask, tally) for tally in self._tallies[STREAMING]))

    async def _task(self, ask: Callable[[Order], Awaitable[str]], tally: Tally) -> None:
        while not self._stop.is_set():
            order = tally.begin()
            started = time.perf_counter_ns()
            try:
                answer = await ask(order)
            except Exception as error:
                tally.raised(error, order, time.perf_counter_ns() - started)
            else:
                tally.returned(answer, order)
            await asyncio.sleep(self._pause)


def _skip(order: Order, *, timeout: float | None = None) -> str:
    """The fallback: of the same arguments as the function it stands in for."""
    order.fallbacks += 1
    return SKIPPED
