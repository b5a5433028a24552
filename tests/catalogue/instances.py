"""Building real instances of the exceptions in `rows.tsv`, where their libraries are installed.

An expression of the table may use every top-level package by its name, and the helpers
below, most of which let a library's own parser make the error.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json

HELPERS: dict[str, object] = {}


def helper(function):
    HELPERS[function.__name__] = function
    return function


def build(expression: str) -> BaseException:
    """The exception that an expression of the table describes."""
    found = _evaluate(expression)
    assert isinstance(found, BaseException), expression
    return found


def holds(condition: str, error: BaseException) -> bool:
    """Whether a row's condition is true of an instance; one that raises is not."""
    try:
        return bool(_evaluate(condition, e=error))
    except Exception:
        return False


def _evaluate(text: str, **more: object) -> object:
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        path = _dotted(node)
        if path and path[0] not in {*HELPERS, *more} and not hasattr(builtins, path[0]):
            _import(path)
    return eval(compile(tree, "rows.tsv", "eval"), {**_modules, **HELPERS, **more})


def _dotted(node: ast.AST) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


_modules: dict[str, object] = {}


def _import(path: list[str]) -> None:
    """Import a package and as much of the path below it as is a module."""
    try:
        _modules[path[0]] = importlib.import_module(path[0])
    except ModuleNotFoundError:
        return  # a variable of a lambda
    for length in range(2, len(path) + 1):
        try:
            importlib.import_module(".".join(path[:length]))
        except ImportError:
            return


# ------------------------------------------------------------------------------------------------ conditions
@helper
def chain(error: BaseException) -> list[BaseException]:
    """Everything that hangs on an exception, itself first."""
    links = ("__cause__", "__context__", "reason", "orig", "inner_exception", "os_error", "last_exception")
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, BaseException) or any(node is other for other in found):
            continue
        found.append(node)
        waiting += [getattr(node, name, None) for name in links]
        waiting += [*node.args, getattr(node, "kwargs", {}).get("error")]
    return found


@helper
def cause(error: BaseException, name: str) -> BaseException | None:
    """The first exception of the chain that has this class among its bases."""
    for node in chain(error):
        if name in {f"{base.__module__}.{base.__qualname__}" for base in type(node).__mro__}:
            return node
    return None


@helper
def tls_permanent(error: BaseException) -> bool:
    import ssl

    return any(
        isinstance(node, ssl.SSLCertVerificationError)
        or (isinstance(node, ssl.SSLError) and not isinstance(node, ssl.SSLEOFError) and "EOF" not in str(node))
        for node in chain(error)
    )


@helper
def dns_permanent(error: BaseException) -> bool:
    import socket

    known = {getattr(socket, name, None) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")}
    return any(isinstance(node, socket.gaierror) and node.args[0] in known for node in chain(error))


@helper
def sqlstate(error: BaseException) -> str | None:
    for node in (error, getattr(error, "orig", None), error.__cause__):
        for name in ("sqlstate", "pgcode"):
            if getattr(node, name, None):
                return getattr(node, name)
    return None


# ------------------------------------------------------------------------------------------------ instances
@helper
def catch(function) -> BaseException:
    """The exception that a function raises."""
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@helper
def chained(error: BaseException, reason: BaseException) -> BaseException:
    error.__cause__ = reason
    return error


@helper
def with_(error: BaseException, **attributes: object) -> BaseException:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@helper
def response(package: str, status: int, headers=None, body=None):
    """A response of httpx or of httpx2."""
    module = importlib.import_module(package)
    request = module.Request("POST", "https://api.test/v1")
    return module.Response(status, headers=headers or {}, json={} if body is None else body, request=request)


@helper
def xresp(status: int, headers=None, body=None, mod: str = "httpx2"):
    return response(mod, status, headers, body)


@helper
def rresp(status: int, headers=None, body=None):
    """A response of requests."""
    import requests

    made = requests.Response()
    made.status_code = status
    made.headers.update(headers or {})
    made._content = json.dumps(body or {}).encode()
    made.request = requests.Request("GET", "https://api.test/").prepare()
    return made


@helper
class xresp2:
    """The little that azure-core reads from a response."""

    reason = "r"
    content_type = "application/json"

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.headers = headers

    def text(self, *_: object) -> str:
        return "{}"

    def body(self) -> bytes:
        return b"{}"

    @property
    def request(self) -> object:
        from azure.core.rest import HttpRequest

        return HttpRequest("GET", "http://x")


@helper
def cert_error() -> BaseException:
    import ssl

    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    error.reason, error.verify_code = "CERTIFICATE_VERIFY_FAILED", 18
    return error


@helper
def os_error(name: str) -> OSError:
    import errno
    import os

    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


@helper
def grpc_error(code: str, details: str = "d", trailing=(), kind: str = "sync") -> BaseException:
    """What a call raises, without a server."""
    import grpc

    status = getattr(grpc.StatusCode, code)
    if kind == "aio":
        from grpc.aio import AioRpcError, Metadata

        return AioRpcError(status, Metadata(), Metadata(*trailing), details=details)
    from grpc import _channel

    return _channel._InactiveRpcError(_channel._RPCState([], [], tuple(trailing), status, details))


@helper
def grpc_stream_cancelled() -> BaseException:
    """The iterator of a stream is the exception itself."""
    import grpc
    from grpc import _channel

    state = _channel._RPCState([], [], (), grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
    return _channel._MultiThreadedRendezvous(state, None, None, None)


@helper
def retry_info(seconds: int, nanos: int = 0):
    """Trailing metadata with a google.rpc.RetryInfo."""
    from google.protobuf import any_pb2, duration_pb2
    from google.rpc import error_details_pb2, status_pb2

    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos)))
    status = status_pb2.Status(code=8, message="quota")
    status.details.append(packed)
    return (("grpc-status-details-bin", status.SerializeToString()),)


@helper
def aws_error(code: str, status: int, op: str = "Converse", headers=None) -> BaseException:
    from botocore.exceptions import ClientError

    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}, "RetryAttempts": 0}
    return ClientError({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": metadata}, op)


@helper
def kafka(name: str) -> BaseException:
    from confluent_kafka import KafkaError, KafkaException

    return KafkaException(KafkaError(getattr(KafkaError, name), "x"))


@helper
def mysql_error(number: int, state: str = "") -> BaseException:
    """What pymysql makes of a server's error packet."""
    import struct

    from pymysql.err import raise_mysql_exception

    packet = b"\xff" + struct.pack("<H", number) + (b"#" + state.encode() if state else b"") + b"msg"
    return catch(lambda: raise_mysql_exception(packet))


@helper
def asyncpg_error(state: str, message: str = "m") -> BaseException:
    from asyncpg.exceptions import PostgresError

    return PostgresError.new({"S": "ERROR", "C": state, "M": message})


@helper
def psycopg2_error(name: str) -> BaseException:
    """psycopg2 knows the code only from libpq; its own way to unpickle sets it by hand."""
    import psycopg2.errorcodes
    import psycopg2.errors

    for code in {value for key, value in vars(psycopg2.errorcodes).items() if key.isupper() and len(str(value)) == 5}:
        try:
            found = psycopg2.errors.lookup(code)
        except KeyError:
            continue
        if found.__name__ == name:
            error = found("m")
            error.__setstate__({"pgcode": code})
            return error
    raise LookupError(name)


@helper
def redis_error(line: str, package: str = "redis") -> BaseException:
    """What the client makes of an error reply."""
    return importlib.import_module(f"{package}._parsers.base").BaseParser.parse_error(line)


@helper
def sqlite_error(sql: str, setup=()) -> BaseException:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        for statement in setup:
            connection.execute(statement)
        return catch(lambda: connection.execute(sql))
    finally:
        connection.close()


@helper
def sqlite_locked() -> BaseException:
    import os
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "x.db")
        first, second = sqlite3.connect(file, timeout=0), sqlite3.connect(file, timeout=0)
        try:
            first.execute("create table t(a)")
            first.commit()
            first.execute("begin exclusive")
            return catch(lambda: second.execute("insert into t values(1)"))
        finally:
            first.close()
            second.close()


@helper
def sqlite_interrupted() -> BaseException:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.set_progress_handler(lambda: 1, 1)
        return catch(lambda: connection.execute("select 1").fetchall())
    finally:
        connection.close()


@helper
def sqlite_full() -> BaseException:
    import os
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(os.path.join(folder, "x.db"))
        try:
            connection.execute("pragma max_page_count=2")
            connection.execute("create table t(a)")
            return catch(lambda: connection.execute("insert into t values(zeroblob(100000))"))
        finally:
            connection.close()


@helper
def elastic(name: str, status: int, headers=None, body=None) -> BaseException:
    import elastic_transport
    import elasticsearch

    node = elastic_transport.NodeConfig("http", "localhost", 9200)
    meta = elastic_transport.ApiResponseMeta(
        status=status,
        http_version="1.1",
        headers=elastic_transport.HttpHeaders(headers or {}),
        duration=0.1,
        node=node,
    )
    return getattr(elasticsearch, name)("m", meta=meta, body=body or {})


@helper
def aio_key():
    """A ConnectionKey, for aiohttp's connector errors."""
    from aiohttp.client_reqrep import ConnectionKey

    given = {"host": "h", "port": 443, "is_ssl": True, "ssl": True}
    return ConnectionKey(**{name: given.get(name) for name in ConnectionKey._fields})


@helper
def aio_info():
    """A RequestInfo, for aiohttp's response errors."""
    import aiohttp
    import multidict
    import yarl

    url = yarl.URL("http://x")
    return aiohttp.RequestInfo(url, "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()), url)


@helper
def aio_http(status: int, headers=None) -> BaseException:
    """The error of aiohttp's web framework for a status."""
    import aiohttp.web

    for found in vars(aiohttp.web).values():
        if isinstance(found, type) and issubclass(found, aiohttp.web.HTTPException) and found.status_code == status:
            return found(headers=headers or {})
    raise LookupError(status)


@helper
def utc_in(seconds: float):
    """A naive datetime in UTC, that many seconds from now."""
    import datetime as dt

    return dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=seconds)
