"""A storm that does not happen: while a server is down, the retries of all callers share one budget.

python examples/shared_retry_budget.py
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from resilience import RetryBudget, describe, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = 200


# ---------------------------------------------------------------------------------------------- a server in trouble
class Server:
    """Hangs up on everybody, and counts them."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._requests = count()
        self._thread = threading.Thread(target=self._serve)

    @property
    def port(self) -> int:
        return self._listening.getsockname()[1]  # type: ignore[no-any-return]  # of an internet address

    def requests(self) -> int:
        """So many came since the last time."""
        seen, self._requests = self._requests, count()
        return next(seen)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                next(self._requests)
                connection.close()

    @contextmanager
    def running(self) -> Iterator[Server]:
        with self._listening:
            self._thread.start()
            try:
                yield self
            finally:
                self._listening.shutdown(socket.SHUT_RDWR)
                self._thread.join()


def ask(port: int) -> bytes:
    """A request: an answer, or ConnectionResetError."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        answer = connection.recv(16)
    if not answer:
        raise ConnectionResetError("hung up")
    return answer


# ---------------------------------------------------------------------------------------------- our side
careless = retry(4, initial_backoff=0.001, idempotent=True)

# A fifth of the calls, and one retry a second however few they are.
budget = RetryBudget("search", ratio=0.2, min_per_second=1)
careful = retry(4, initial_backoff=0.001, idempotent=True, retry_budget=budget)


@careless
def search_carelessly(port: int) -> bytes:
    return ask(port)


@careful
def search(port: int) -> bytes:
    return ask(port)


@careful
def suggest(port: int) -> bytes:
    """Another call site of the same server: what it repeats comes out of the same budget."""
    return ask(port)


def call_often(*functions: Callable[[int], bytes], port: int) -> None:
    """200 calls by eight workers."""

    def one(number: int) -> None:
        with suppress(ConnectionError):
            functions[number % len(functions)](port)

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(one, range(CALLS)))


def main() -> None:
    """Meet an outage without a budget, then with one."""
    with Server().running() as server:
        call_often(search_carelessly, port=server.port)
        print(f"without a budget: {server.requests()} requests for {CALLS} calls")
        call_often(search, suggest, port=server.port)
        print(f"with a budget:    {server.requests()} requests for {CALLS} calls")
    shared = describe(suggest).retry_budget
    assert shared is not None
    status = shared.status()
    print(f"the budget:       {status.retries} of {status.calls} calls repeated, {status.refused_total} times refused")


if __name__ == "__main__":
    main()
