"""Servers on the loopback interface that answer as they are told, or fail in a way that clients have to tell apart.

A behaviour is a function that is given an accepted connection and does what the server
is to do with it; afterwards the connection is closed. Nothing here leaves 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import pathlib
import socket
import ssl
import struct
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Behaviour = Callable[[socket.socket], object]

HOST = "127.0.0.1"
NOWHERE, LATER = "nowhere.invalid", "later.invalid"
_PATIENCE = 5.0


# ------------------------------------------------------------------------------------------------ servers
class Loopback:
    """A server on an ephemeral port, with a thread for each connection.

    Attributes:
        behave: what is done with each connection from now on; it may be set at any time.
        connections: how many were accepted so far.
    """

    def __init__(self, behave: Behaviour, *, scheme: str = "http") -> None:
        self.behave = behave
        self.connections = 0
        self.port = 0
        self._scheme = scheme
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{HOST}:{self.port}"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._attend, args=(conn, self.behave), daemon=True).start()

    def _attend(self, conn: socket.socket, behave: Behaviour) -> None:
        conn.settimeout(_PATIENCE)
        # A client that has seen enough hangs up.
        with conn, contextlib.suppress(OSError):
            behave(conn)

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses: bound, so that nobody else gets it, but not listened to."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port on which no connection is ever made: its queue is full, and the kernel drops what comes after."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# ------------------------------------------------------------------------------------------------ HTTP
def read_request(conn: socket.socket) -> bytes:
    """Read one request, its body included."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(conn)
    head, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        while not body.endswith(b"0\r\n\r\n"):
            body += _more(conn)
    while len(body) < int(fields.get(b"content-length", 0)):
        body += _more(conn)
    return head


def _more(conn: socket.socket) -> bytes:
    data = conn.recv(65_536)
    if not data:
        raise ConnectionError("the client hung up")
    return data


def answers(status: int, headers: dict[str, str] | None = None, body: object = "") -> Behaviour:
    """Answer each request alike; a body that is no text is sent as JSON."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    return _raw(status, {"Content-Length": str(len(content)), **(headers or {})}, content)


def streams(*events: str) -> Behaviour:
    """Begin a stream of server-sent events, and cut it after these."""
    content = "".join(events).encode()
    chunk = f"{len(content):x}\r\n".encode() + content + b"\r\n"
    return _raw(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}, chunk)


def ended_stream(*events: str) -> Behaviour:
    """A whole stream of server-sent events."""
    return answers(200, {"Content-Type": "text/event-stream"}, "".join(events))


def cut_short(conn: socket.socket) -> None:
    """Promise a long body and send its beginning."""
    _raw(200, {"Content-Length": "1000"}, b'{"id": "')(conn)


def broken_gzip(conn: socket.socket) -> None:
    """Send a body that is no gzip although the header says so."""
    _raw(200, {"Content-Length": "8", "Content-Encoding": "gzip"}, b"not gzip")(conn)


def redirects_for_ever(conn: socket.socket) -> None:
    """Send the client back to where it is."""
    path = read_request(conn).split(b" ")[1].decode()
    _send(conn, 307, {"Location": path, "Content-Length": "0"}, b"")


def _raw(status: int, headers: dict[str, str], content: bytes) -> Behaviour:
    def behave(conn: socket.socket) -> None:
        read_request(conn)
        _send(conn, status, headers, content)

    return behave


def _send(conn: socket.socket, status: int, headers: dict[str, str], content: bytes) -> None:
    fields = {"Content-Type": "application/json", "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    conn.sendall(f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + content)
    conn.shutdown(socket.SHUT_WR)


# ------------------------------------------------------------------------------------------------ trouble
def closes(conn: socket.socket) -> None:
    """Read what comes, and close without an answer."""
    conn.recv(65_536)


def resets(conn: socket.socket) -> None:
    """Read what comes, and reset the connection."""
    conn.recv(65_536)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hangs(conn: socket.socket) -> None:
    """Read, and say nothing until the client gives up."""
    while conn.recv(65_536):
        pass


def speaks_otherwise(conn: socket.socket) -> None:
    """Answer in no protocol that the client knows."""
    conn.recv(65_536)
    conn.sendall(b"!! \x01\x02 nothing of the kind\r\n\r\n")
    conn.shutdown(socket.SHUT_WR)


def plain_http(conn: socket.socket) -> None:
    """What a web server without TLS says to a client that begins with it."""
    conn.recv(65_536)
    conn.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    conn.shutdown(socket.SHUT_WR)


def hangs_up(conn: socket.socket) -> None:
    """Close at once, without waiting for what the client may say."""


def holds_the_body(conn: socket.socket) -> None:
    """Begin an answer and never end it, so that its connection stays in use."""
    read_request(conn)
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
    hangs(conn)


# ------------------------------------------------------------------------------------------------ stores
def redis_says(reply: str, to: bytes = b"GET") -> Behaviour:
    """A Redis that gives this reply to one command, and OK to all others."""

    def behave(conn: socket.socket) -> None:
        while data := conn.recv(65_536):
            for command in data.split(b"*")[1:]:
                conn.sendall(f"{reply}\r\n".encode() if to in command.upper() else b"+OK\r\n")

    return behave


def postgres_says(sqlstate: str, text: str) -> Behaviour:
    """A PostgreSQL that lets nobody in, with this reason."""
    body = f"SFATAL\0VFATAL\0C{sqlstate}\0M{text}\0\0".encode()

    def behave(conn: socket.socket) -> None:
        # A client that asks for TLS first does so in eight bytes.
        if len(conn.recv(65_536)) == 8:
            conn.sendall(b"N")
            conn.recv(65_536)
        conn.sendall(b"E" + struct.pack(">I", len(body) + 4) + body)
        conn.shutdown(socket.SHUT_WR)

    return behave


def mysql_says(number: int, sqlstate: str, text: str) -> Behaviour:
    """A MySQL that greets with an error."""
    body = b"\xff" + struct.pack("<H", number) + f"#{sqlstate}{text}".encode()

    def behave(conn: socket.socket) -> None:
        conn.sendall(struct.pack("<I", len(body))[:3] + b"\0" + body)
        conn.shutdown(socket.SHUT_WR)
        conn.recv(65_536)

    return behave


# ------------------------------------------------------------------------------------------------ TLS
def over_tls(behave: Behaviour) -> Behaviour:
    """Do this behind a certificate that nobody has signed but itself."""
    context = _context()

    def shake_hands(conn: socket.socket) -> None:
        with context.wrap_socket(conn, server_side=True) as secured:
            behave(secured)

    return shake_hands


def _context() -> ssl.SSLContext:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    today = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "both.pem")
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(path)
    return context
