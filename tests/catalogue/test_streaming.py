"""Real streaming clients under the policies, against a server on the loopback interface that breaks off half way.

`make catalogue`. The streams are opened with `stream=True` and returned as the clients make them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest
import requests

from resilience import (
    BreakerConfig,
    CircuitOpenError,
    CircuitState,
    Consecutive,
    Registry,
    breaker,
    bulkhead,
    classify_response,
    compose,
    use_registry,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.catalogue

EVENTS = 4


class Tokens(BaseHTTPRequestHandler):
    """Sends chunks of a completion; the last part of the path tells how it goes on: all, break, endless, busy."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self):
        how = self.server.how
        if how == "busy":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        number = 0
        with suppress(OSError):
            while how == "endless" or number < EVENTS:
                if how == "break" and number == 2:
                    self.close_connection = True
                    return
                token = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                token["choices"] = [{"index": 0, "delta": {"content": str(number)}, "finish_reason": None}]
                self.chunk(f"data: {json.dumps(token)}\n\n".encode())
                number += 1
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")

    def chunk(self, content):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


# ---------------------------------------------------------------------------------------------- the clients
@dataclass
class Client:
    """How one client opens a stream, and how its consumers go through it."""

    open: Callable[[str], Any]
    items: Callable[[Any], Any]
    close: Callable[[], Any]
    is_async: bool = False


def httpx_client(url):
    client = httpx.Client(trust_env=False)
    return Client(
        lambda: client.send(client.build_request("GET", url), stream=True), lambda r: r.iter_lines(), client.close
    )


def httpx_async_client(url):
    client = httpx.AsyncClient(trust_env=False)

    async def fetch():
        return await client.send(client.build_request("GET", url), stream=True)

    return Client(fetch, lambda r: r.aiter_bytes(), client.aclose, is_async=True)


def requests_client(url):
    session = requests.Session()
    session.trust_env = False
    return Client(lambda: session.get(url, stream=True), lambda r: r.iter_content(None), session.close)


QUESTION: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def openai_client(url):
    client = openai.OpenAI(
        api_key="k", base_url=url, max_retries=0, http_client=openai.DefaultHttpxClient(trust_env=False)
    )
    return Client(lambda: client.chat.completions.create(**QUESTION), iter, client.close)


def openai_async_client(url):
    client = openai.AsyncOpenAI(
        api_key="k", base_url=url, max_retries=0, http_client=openai.DefaultAsyncHttpxClient(trust_env=False)
    )

    async def ask():
        return await client.chat.completions.create(**QUESTION)

    return Client(ask, aiter, client.close, is_async=True)


CLIENTS = [httpx_client, httpx_async_client, requests_client, openai_client, openai_async_client]


@pytest.fixture(params=CLIENTS, ids=lambda make: make.__name__)
def consume(request, server):
    """Go through one stream under the policies, up to so many items (None: all)."""
    client = request.param(f"http://127.0.0.1:{server.server_port}")
    judge = classify_response if "openai" not in request.param.__name__ else None
    with asyncio.Runner() as runner, use_registry(Registry()) as registry:
        policies = compose(
            breaker("llm", BreakerConfig(Consecutive(10)), stream=True, classify_result=judge),
            bulkhead("llm", max_in_flight=1),
        )
        opened = policies(client.open)

        async def go_async(most):
            count = 0
            async with leaving_async(await opened()) as stream:
                async for _ in client.items(stream):
                    count += 1
                    if count == most:
                        break
            return count

        def go(how, most=None):
            server.how = how
            if client.is_async:
                return runner.run(go_async(most))
            count = 0
            with leaving(opened()) as stream:
                for _ in client.items(stream):
                    count += 1
                    if count == most:
                        break
            return count

        yield go, registry
        if client.is_async:
            runner.run(client.close())
        else:
            client.close()


@contextmanager
def leaving(stream):
    try:
        yield stream
    finally:
        stream.close()


@asynccontextmanager
async def leaving_async(stream):
    try:
        yield stream
    finally:
        await (stream.aclose() if isinstance(stream, httpx.Response) else stream.close())


# ---------------------------------------------------------------------------------------------- what becomes of it
def test_a_stream_to_its_end(consume):
    """One success; the slot is back."""
    go, registry = consume
    assert EVENTS <= go("all")
    status = registry.get("llm").status()
    assert (1, 0, 0) == (status.successes_total, status.failures_total, registry.get_bulkhead("llm").in_flight)


def test_ten_streams_that_break_off(consume):
    """The clients' own exceptions count, half way through their streams."""
    go, registry = consume
    for _ in range(10):
        assert CircuitState.CLOSED is registry.get("llm").state
        with pytest.raises((httpx.HTTPError, requests.RequestException, openai.APIError)):
            go("break")
    with pytest.raises(CircuitOpenError):
        go("break")
    assert 0 == registry.get_bulkhead("llm").in_flight


def test_ten_consumers_that_leave_early(consume):
    """Whoever has had enough is no fault."""
    go, registry = consume
    for _ in range(10):
        assert 2 == go("endless", 2)
    status = registry.get("llm").status()
    assert (0, 0, 0) == (status.failures_total, status.successes_total, registry.get_bulkhead("llm").in_flight)


def test_a_server_that_is_busy(consume):
    """A status, or the client's exception for it, is the fault of the call that opens the stream."""
    go, registry = consume
    with suppress(openai.InternalServerError):
        go("busy")
    status = registry.get("llm").status()
    assert (1, 0) == (status.failures_total, registry.get_bulkhead("llm").in_flight)
