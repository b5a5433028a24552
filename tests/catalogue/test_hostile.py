"""Exceptions that were made to break whoever looks at them: judged all the same, and in less than a millisecond."""

from __future__ import annotations

import sys
import time

import pytest

from resilience import Fault, FaultFlag, FaultKind, classify
from resilience.catalogue import explain

# A tracer makes every line many times as slow.
LIMIT = 1e-3 if sys.gettrace() is None else 2e-2
ROUNDS = 7


class Raising(Exception):
    """Every attribute is a trap."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError

    __repr__ = __str__

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


class Lying(Exception):
    """Properties of the wrong kind, and properties that raise what nobody catches."""

    status_code = "abc"
    status = True
    code = 10**400
    headers = 7
    meta = [[]]
    kwargs = "text"

    @property
    def response(self):
        raise GeneratorExit

    @property
    def retry_after(self):
        return float("nan")

    @property
    def __class__(self):
        return int


def cycle():
    first, second = Exception("a"), Exception("b")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = first, second
    return first


def mesh():
    """A few hundred exceptions, each the cause and the context of others."""
    nodes = [type("Odd", (Exception,), {"__module__": "shop"})() for _ in range(300)]
    for number, node in enumerate(nodes):
        node.__cause__ = nodes[(number * 7 + 1) % 300]
        node.__context__ = nodes[(number * 13 + 5) % 300]
        node.args = tuple(nodes[(number + step) % 300] for step in range(16))
    return nodes[0]


def deep():
    error = Exception("bottom")
    for _ in range(5_000):
        outer = Exception("outer")
        outer.__cause__ = error
        error = outer
    return error


def nested_groups():
    group = ExceptionGroup("g", [TimeoutError()])
    for _ in range(500):
        group = ExceptionGroup("g", [group, ValueError()])
    return group


def of_library(name, **facts):
    """A class that many rules are about, with junk where they look."""
    module, _, qualname = name.rpartition(".")
    error = type(qualname, (Exception,), {"__module__": module})()
    error.__dict__.update(facts)
    return error


class Everything:
    """An object on which every attribute is there, and is itself."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args):
        return self

    def __iter__(self):
        while True:
            yield self

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


HOSTILE = {
    "attributes that raise": Raising(),
    "attributes that lie": Lying(),
    "a cycle": cycle(),
    "a mesh": mesh(),
    "5,000 deep": deep(),
    "10,000 leaves": ExceptionGroup("g", [TimeoutError() for _ in range(10_000)]),
    "10,000 unknown leaves": ExceptionGroup("g", [type("Odd", (Exception,), {"__module__": "shop"})()] * 10_000),
    "500 groups in each other": nested_groups(),
    "a status of text": of_library("shop.Odd", status_code="abc", status=True, code=object()),
    "a status that is True": of_library("httpx.HTTPStatusError", response=of_library("shop.R", status_code=True)),
    "openai of junk": of_library(
        "openai.RateLimitError", code=[], type={}, body="x" * 10_000_000, response=Everything()
    ),
    "anthropic of junk": of_library("anthropic.APIStatusError", body={"error": {"details": []}}, status_code=200.0),
    "boto of junk": of_library("botocore.exceptions.ClientError", response={"Error": "text", "ResponseMetadata": 1}),
    "grpc of junk": of_library(
        "grpc.RpcError", code=Everything(), details=Everything(), trailing_metadata=Everything()
    ),
    "gemini of junk": of_library("google.genai.errors.ClientError", code=429, details=Everything()),
    "postgres of junk": of_library("psycopg.OperationalError", sqlstate=b"\xff" * 100_000),
    "mysql of junk": of_library("pymysql.err.OperationalError", args=(Everything(), "x")),
    "mongo of junk": of_library("pymongo.errors.OperationFailure", code="112", details=Everything()),
    "kafka of junk": of_library("cimpl.KafkaException", args=(Everything(),)),
    "sqlalchemy of junk": of_library(
        "sqlalchemy.exc.OperationalError", orig=Everything(), connection_invalidated=Everything()
    ),
    "its own driver error": of_library("sqlalchemy.exc.DBAPIError"),
}
HOSTILE["its own driver error"].orig = HOSTILE["its own driver error"]


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_survived(name):
    """A fault comes back, always the same, and nothing is raised."""
    error = HOSTILE[name]
    first = classify(error)

    assert isinstance(first, Fault)
    assert first == classify(error)


@pytest.mark.parametrize("name", HOSTILE)
def test_it_takes_less_than_a_millisecond(name):
    """The best of a few rounds, so that a busy machine does not decide; the first look at a type is not among them."""
    error = HOSTILE[name]
    classify(error)
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        classify(error)
        taken.append(time.perf_counter() - began)

    assert min(taken) < LIMIT


@pytest.mark.parametrize("name", HOSTILE)
def test_it_can_be_explained(name):
    """Whoever asks why gets an answer too."""
    error = HOSTILE[name]
    explained = explain(error)

    assert classify(error) == explained.fault
    assert explained.why


def waits(*args):
    raise AssertionError("whoever asks this waits for the end of the call")


def test_a_running_call_is_not_asked():
    """A gRPC call is its own exception, and tells nothing before its end; it may hang on another exception."""
    call = of_library("grpc.RpcError", is_active=lambda: True, code=waits, details=waits, trailing_metadata=waits)
    error = ValueError("bad item", call)

    assert FaultKind.DOWNSTREAM is classify(call).kind
    assert FaultKind.VALIDATION is classify(error).kind
    assert FaultKind.DOWNSTREAM is classify(type("Odd", (Exception,), {"__module__": "shop"})("bad item", call)).kind


def test_a_pending_attempt_is_not_asked():
    """Tenacity's future would be waited for."""
    attempt = type("Future", (), {"done": lambda self: False, "exception": waits, "failed": property(waits)})()

    assert FaultKind.TRANSIENT is classify(of_library("tenacity.RetryError", last_attempt=attempt)).kind


def test_packages_without_rules_are_not_remembered():
    """There is no end of them, in notebooks for one."""
    from resilience.catalogue import _CATALOGUE

    classify(of_library("no_such_package.Odd"))
    before = len(_CATALOGUE._loaded)
    for number in range(100):
        classify(of_library(f"package_{number}.Odd"))

    assert before == len(_CATALOGUE._loaded)


def test_what_it_means():
    """Junk is nothing; what can be read is read."""
    unknown = {
        name: classify(HOSTILE[name]) for name in ("attributes that lie", "a cycle", "a status of text", "5,000 deep")
    }

    assert all(FaultFlag.UNCLASSIFIED in fault.flags for fault in unknown.values())
    assert all(fault.status is None for fault in unknown.values())
    # Nobody vouches for leaves that were not read.
    assert FaultKind.TRANSIENT is classify(HOSTILE["10,000 leaves"]).kind
    assert FaultFlag.UNCLASSIFIED in classify(HOSTILE["10,000 leaves"]).leaves[-1].flags
    assert FaultKind.TRANSIENT is classify(HOSTILE["openai of junk"]).kind
    assert FaultKind.DOWNSTREAM is classify(HOSTILE["boto of junk"]).kind
