"""The provider: a real HTTP server on a free loopback port, which does what the script says and keeps count.

A request is counted when its connection is accepted, before a byte of it is read. The
kernel completes a connection on its own and hands connections out in their order. So a
caller that gives up at once is still counted, and when the server has answered one last
request, it has counted all that came before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

from resilience.cli.demo.script import Behaviour, Phase

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Iterator

CIRCUIT = "x-circuit"
"""The header in which a caller tells the circuit's state: the provider checks that probes never overlap."""

LAST = "last"
LATENCY = 0.005
HICCUP = 20
"""A healthy provider fails one request in so many, which a retry puts right."""
STATUS = {
    Behaviour.HEALTHY: "200 OK",
    Behaviour.LIMITED: "429 Too Many Requests",
    Behaviour.DOWN: "503 Service Unavailable",
}


class Provider:
    """The server and what it saw.

    Attributes:
        seen: connections accepted.
        answered: answers sent, by status line.
        unanswered: requests that never got an answer: left hanging, or cut off before they could be read.
        probes: requests that were sent while the circuit was half-open.
        probe_overlap: how many of these were under way at one time, at most.
    """

    def __init__(self) -> None:
        self.seen = self.unanswered = self.probes = self.probe_overlap = 0
        self.answered: Counter[str] = Counter()
        self.port = 0
        self._probing = 0
        self._behaviour = Behaviour.HEALTHY
        self._ends = 0.0
        self._open: set[StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="demo provider", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/"

    def enter(self, phase: Phase) -> None:
        """Do from now on what this phase says."""
        self._ends = time.monotonic() + phase.seconds
        self._behaviour = phase.behaviour

    @contextmanager
    def running(self) -> Iterator[Provider]:
        """Listen inside the block; afterwards every connection is closed and the thread has ended."""
        self._thread.start()
        self._ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def count_up(self) -> None:
        """Wait until all that has been sent is counted, by one more request that is not."""
        with build_opener(ProxyHandler({})).open(self.url + LAST, timeout=10):
            pass

    # ------------------------------------------------------------------------------------------------ on its own loop
    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._closing.wait()
        server.close()
        while self._open:
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0.001)
        await server.wait_closed()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.seen += 1
        hiccup = self.seen % HICCUP == 0
        self._open.add(writer)
        try:
            await self._answer(reader, writer, hiccup)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.unanswered += 1
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: StreamReader, writer: StreamWriter, hiccup: bool) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        behaviour, ends = self._behaviour, self._ends
        # The probe's end is noted before it can be known on the other side: the next one may follow at once.
        if head.startswith(f"get /{LAST} "):
            self.seen -= 1
            return _write(writer, "204 No Content")
        probe = f"{CIRCUIT}: half_open" in head
        with self._watch_probe(probe):
            if behaviour is Behaviour.HANGING:
                while await reader.read(1024):
                    pass
                raise ConnectionResetError("the caller gave up")
            await asyncio.sleep(LATENCY)
        # Never for a probe, so that a recovery takes no longer than it must.
        if hiccup and not probe and behaviour is Behaviour.HEALTHY:
            behaviour = Behaviour.DOWN
        status = STATUS[behaviour]
        extra = f"Retry-After: {_wait_until(ends):.2f}\r\n" if behaviour is Behaviour.LIMITED else ""
        self.answered[status] += 1
        return _write(writer, status, extra)

    @contextmanager
    def _watch_probe(self, probe: bool) -> Iterator[None]:
        self.probes += probe
        self._probing += probe
        self.probe_overlap = max(self.probe_overlap, self._probing)
        try:
            yield
        finally:
            self._probing -= probe


def _write(writer: StreamWriter, status: str, extra: str = "") -> None:
    writer.write(f"HTTP/1.1 {status}\r\n{extra}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())


def _wait_until(moment: float) -> float:
    """Seconds until then, and a little more: who comes back on the dot should find the limit lifted."""
    return max(0.0, moment - time.monotonic()) + 0.03
