"""Degrading on purpose: while the bank is down, workers get the last rate that is known, and say so.

python examples/last_known_rates.py
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from resilience import BreakerConfig, Consecutive, OnOpen, breaker, timeout

if TYPE_CHECKING:
    from collections.abc import Iterator


# ---------------------------------------------------------------------------------------------- the bank, elsewhere
@contextmanager
def bank() -> Iterator[int]:
    """The port of a bank that sends its rate to whoever connects; it is closed at the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server,))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"1.0837")


# ---------------------------------------------------------------------------------------------- our side
class Rate(NamedTuple):
    """A rate, and whether it came from the bank just now."""

    value: float
    fresh: bool


known = [1.0]


def last_known(port: int, *, timeout: float = 1.0) -> Rate:
    """The fallback: it takes what the function takes, and touches nothing that could fail."""
    return Rate(known[0], fresh=False)


@timeout(1, pass_as="timeout")
@breaker("bank", BreakerConfig(Consecutive(3), cooldown=30), on_open=OnOpen.BYPASS, fallback=last_known)
def rate(port: int, *, timeout: float = 1.0) -> Rate:
    """The bank's rate."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        known[0] = float(connection.recv(16))
    return Rate(known[0], fresh=True)


def ask_often(port: int, when: str) -> None:
    """Let a few workers ask, and tell what they got."""

    def one(_: int) -> str:
        try:
            got = rate(port)
        except OSError as error:
            return type(error).__name__
        return f"{got.value} {'fresh' if got.fresh else 'last known'}"

    with ThreadPoolExecutor(4) as workers:
        told = Counter(workers.map(one, range(40)))
    print(f"{when:<12}", ", ".join(f"{count} x {what}" for what, count in sorted(told.items())))


def main() -> None:
    """Ask an open bank, then a closed one."""
    with bank() as port:
        ask_often(port, "open:")
    ask_often(port, "closed:")
    status = breaker("bank").status()
    cause = "" if status.last_failure is None else f", because of {status.last_failure.type_name}"
    print(f"{'the breaker:':<12} {status.state}{cause}; {status.bypassed_total} calls were bypassed")


if __name__ == "__main__":
    main()
