"""A small gateway: two providers, each behind its own breaker, and every question goes to the first that is well.

python examples/async_failover.py
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from resilience import BreakerConfig, CircuitOpenError, Consecutive, TimeoutExceeded, breaker, retry, timeout

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable


# ---------------------------------------------------------------------------------------------- the providers, elsewhere
class Provider:
    """Answers each line with a line, or hangs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hanging = False

    async def start(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        return server

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        question = await reader.readline()
        if self.hanging:
            await reader.read()
        else:
            writer.write(self.name.encode() + b" says yes to " + question)
        writer.close()


# ---------------------------------------------------------------------------------------------- the gateway
def route(provider: Provider) -> Callable[[str], Awaitable[str]]:
    """How one provider is asked: two tries of 0.1 s, and none at all once it has failed three times in a row."""

    @timeout(0.5, per_attempt=0.1)
    @retry(max_attempts=2, initial_backoff=0.01, idempotent=True)
    @breaker(provider.name, BreakerConfig(Consecutive(3), cooldown=0.3))
    async def ask(question: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        try:
            writer.write(question.encode() + b"\n")
            return (await reader.readline()).decode().strip()
        finally:
            writer.transport.abort()

    return ask


class Gateway:
    """Asks the providers in order of preference."""

    def __init__(self, *providers: Provider) -> None:
        self.routes = {provider.name: route(provider) for provider in providers}

    async def ask(self, question: str) -> str:
        """The first answer that can be had."""
        last: Exception = LookupError("no provider is well")
        for name, ask in self.routes.items():
            # Reading takes no probe: a breaker that has cooled down is asked by the call itself.
            if breaker(name).is_open():
                continue
            try:
                return await ask(question)
            except (CircuitOpenError, TimeoutExceeded, OSError) as error:
                last = error
        raise last


async def survey(gateway: Gateway, when: str, questions: int = 20) -> None:
    """Ask many questions at once and tell who answered, and how long it took."""
    started = time.perf_counter()
    answers = await asyncio.gather(*(gateway.ask(f"question {number}") for number in range(questions)))
    took = 1000 * (time.perf_counter() - started)
    told = ", ".join(f"{count} by {name}" for name, count in Counter(answer.split()[0] for answer in answers).items())
    print(f"{when:<24} {told}, in {took:.0f} ms; east is {breaker('east').state}")


async def main() -> None:
    """Both are well, then east hangs, then it answers again."""
    east, west = Provider("east"), Provider("west")
    servers = [await east.start(), await west.start()]
    gateway = Gateway(east, west)

    await survey(gateway, "all is well:")
    east.hanging = True
    await survey(gateway, "east hangs:")
    await survey(gateway, "the circuit is open:")
    east.hanging = False
    await asyncio.sleep(breaker("east").status().retry_after or 0.0)
    await survey(gateway, "east may be tried:", questions=1)
    await survey(gateway, "east is back:")

    for server in servers:
        server.close()
        await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
