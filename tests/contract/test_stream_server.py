"""Server-sent events over the loopback interface: streams that break half way, and consumers that leave early."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
import threading
from contextlib import aclosing, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from resilience import BreakerConfig, CircuitOpenError, CircuitState, Consecutive, breaker, bulkhead, compose

EVENTS = 5
TEN = BreakerConfig(Consecutive(10), cooldown=0.05)


class Events(BaseHTTPRequestHandler):
    """Sends events without end on /endless, a few on any other path, and resets the connection half way on /break."""

    protocol_version = "HTTP/1.0"

    def log_message(self, *args):
        """Say nothing."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = 0
        try:
            while self.path == "/endless" or number < EVENTS:
                if self.path == "/break" and number == 2:
                    self.reset()
                    return
                self.wfile.write(b"data: %d\n\n" % number)
                number += 1
        except OSError:
            self.server.left.release()

    def reset(self):
        """Hang up so that the other side gets an error, once it has read what was sent."""
        assert b"go" == self.rfile.read(2)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Events) as serving:
        serving.daemon_threads = True
        serving.left = threading.Semaphore(0)
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


# ---------------------------------------------------------------------------------------------- four ways to stream
def open_events(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    connection.sock.sendall(b"go")
    return connection.getresponse()


def generated(port, path):
    with open_events(port, path) as response:
        for line in response:
            if line.startswith(b"data: "):
                yield int(line[6:])


async def generated_async(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET %s HTTP/1.0\r\n\r\ngo" % path.encode())
        while not (await reader.readline()).isspace():
            pass
        while line := await reader.readline():
            if line.startswith(b"data: "):
                yield int(line[6:])
    finally:
        writer.close()


class AsyncEvents:
    """A stream as clients have them: an async iterator with a way to close it."""

    def __init__(self, port, path):
        self._events = generated_async(port, path)

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._events.__anext__()

    async def aclose(self):
        await self._events.aclose()


async def opened_async(port, path):
    return AsyncEvents(port, path)


FUNCTIONS = [generated, generated_async, open_events, opened_async]


@pytest.fixture(params=FUNCTIONS, ids=lambda fn: fn.__name__)
def stream(request, registry, server):
    """A function that consumes so many events of a path (None: all) and closes the stream; it is guarded."""
    fn = request.param
    opens = fn in (open_events, opened_async)
    guarded = compose(breaker("events", TEN, stream=opens), bulkhead("events", max_in_flight=1))(fn)

    async def consume_async(path, most):
        source = guarded(server.server_port, path)
        async with aclosing(await source if opens else source) as events:
            count = 0
            async for _ in events:
                count += 1
                if count == most:
                    return

    def consume(path, most=None):
        if fn in (generated_async, opened_async):
            asyncio.run(consume_async(path, most))
            return
        with closing(guarded(server.server_port, path)) as events:
            for count, _ in enumerate(events, start=1):
                if count == most:
                    return

    return consume


def test_ten_streams_that_break_open_the_circuit(stream, registry):
    """Each of them had begun well: the verdict comes at the end."""
    for _ in range(10):
        assert CircuitState.CLOSED is registry.get("events").state
        with pytest.raises(ConnectionResetError):
            stream("/break")
    with pytest.raises(CircuitOpenError):
        stream("/break")
    assert (CircuitState.OPEN, 10) == (registry.get("events").state, registry.get("events").status().failures_total)
    assert 0 == registry.get_bulkhead("events").in_flight


def test_ten_consumers_that_leave_early_say_nothing(stream, registry, server):
    """A consumer that has had enough is no fault, and the connection is really given up."""
    for _ in range(10):
        stream("/endless", 3)
        assert server.left.acquire(timeout=10)
    status = registry.get("events").status()
    assert (CircuitState.CLOSED, 0, 0, 0) == (
        status.state,
        status.failure_count,
        status.failures_total,
        status.successes_total,
    )
    assert 0 == registry.get_bulkhead("events").in_flight


def test_a_stream_that_comes_to_its_end_closes_a_circuit_again(stream, registry):
    """The probe of an open circuit is out until the stream has ended."""
    shared = registry.get("events")
    shared.force_open("for the test", seconds=0.001)
    while shared.is_open():
        pass
    stream("/endless", 3)
    assert CircuitState.HALF_OPEN is shared.state
    assert (1, 0, 0, 1) == (
        shared.status().probes_started,
        shared.status().probes_succeeded,
        shared.status().probes_failed,
        shared.status().probes_released,
    )
    stream("/all")
    assert (CircuitState.CLOSED, 1) == (shared.state, shared.status().probes_succeeded)
