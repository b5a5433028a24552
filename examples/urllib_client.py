"""A plain urllib client: a hiccup is retried, an outage opens the circuit, and the circuit closes by itself.

python examples/urllib_client.py
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from resilience import BreakerConfig, CircuitOpenError, Consecutive, breaker, bulkhead, describe, retry, timeout

if TYPE_CHECKING:
    from collections.abc import Iterator


# ---------------------------------------------------------------------------------------------- the shop, elsewhere
class Shop(BaseHTTPRequestHandler):
    """Tells a price, unless it is told to fail the next few requests."""

    requests = 0
    failures_to_come = 0

    def do_GET(self) -> None:
        """Answer 200 with a price, or 503."""
        Shop.requests += 1
        failing = Shop.failures_to_come > 0
        Shop.failures_to_come -= failing
        body = b"" if failing else b"3.20"
        self.send_response(503 if failing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def shop() -> Iterator[str]:
    """The shop's address, as long as it is open."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# ---------------------------------------------------------------------------------------------- our client
opener = build_opener(ProxyHandler({}))


@bulkhead("shop", max_in_flight=4)
@timeout(2, per_attempt=0.5, pass_as="timeout")
@retry(max_attempts=3, initial_backoff=0.01, idempotent=True)
@breaker("shop", BreakerConfig(Consecutive(5), cooldown=0.3))
def price(url: str, *, timeout: float = 0.5) -> float:
    """The price of tea; an answer such as 503 is an HTTPError, as urllib has it."""
    try:
        with opener.open(f"{url}/tea", timeout=timeout) as reply:
            return float(reply.read())
    except HTTPError as error:
        error.close()
        raise


def main() -> None:
    """One good call, one hiccup, one outage and its end."""
    print(describe(price))
    with shop() as url:
        print(f"\nall is well: {price(url)}")

        before, Shop.failures_to_come = Shop.requests, 1
        print(f"a hiccup:    {price(url)}, after {Shop.requests - before} requests")

        Shop.failures_to_come = 1000
        for number in range(1, 5):
            before = Shop.requests
            try:
                price(url)
            except HTTPError as error:
                print(f"outage:      call {number} failed with {error.code} after {Shop.requests - before} requests")
            except CircuitOpenError as refusal:
                print(f"outage:      call {number} was refused, nothing was sent: {refusal}")
                wait = refusal.retry_after or 0.0

        Shop.failures_to_come = 0
        time.sleep(wait)
        print(f"recovered:   {price(url)}, the circuit is {breaker('shop').state}")


if __name__ == "__main__":
    main()
