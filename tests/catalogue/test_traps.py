"""What is easily taken for something else. Each trap has a line in docs/catalogue.md."""

from __future__ import annotations

import socket
import ssl

import pytest
from instances import chained

from resilience import Classifier, FaultFlag, FaultKind, classify
from resilience._core.faults import may_retry, verdict_of
from resilience._words import Verdict

VALIDATION, CONTRACT, INTERRUPTED = FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.INTERRUPTED
TRANSIENT, DOWNSTREAM, INTERNAL = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERNAL
COUNTS, ANSWERED, SAYS_NOTHING = Verdict.FAILURE, Verdict.ANSWERED, Verdict.NEUTRAL


def error(name, *bases, args=(), **facts):
    """A stand-in of this class, with these facts on it."""
    module, _, qualname = name.rpartition(".")
    made = type(qualname, bases or (Exception,), {"__module__": module})(*args)
    made.__dict__.update(facts)
    return made


def response(status, **headers):
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    return type("Response", (), {"status_code": status, "headers": found})()


def openai(name, status, code=None, kind=None, **headers):
    return error(
        f"openai.{name}", status_code=status, code=code, type=kind, body=None, response=response(status, **headers)
    )


def anthropic(name, status, error_type=None, error_code=None):
    body = {"type": "error", "error": {"type": error_type, "details": {"error_code": error_code}}}
    return error(f"anthropic.{name}", status_code=status, body=body, response=response(status))


def grpc(code, details=""):
    told = type("Code", (), {"name": code})()
    return error("grpc.aio._call.AioRpcError", code=lambda: told, details=lambda: details, trailing_metadata=lambda: ())


def aws(code, status):
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}}
    return error("botocore.exceptions.ClientError", response={"Error": {"Code": code}, "ResponseMetadata": metadata})


def certificate():
    return ssl.SSLCertVerificationError(1, "certificate verify failed")


def unknown_name():
    return socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def deep(name, reason):
    """Hidden two levels down, as HTTP clients do."""
    return chained(error(name), chained(error("httpcore.ConnectError", args=(reason,)), reason))


TRAPS = {
    "429 by quota: openai": (openai("RateLimitError", 429, "insufficient_quota"), DOWNSTREAM, False, COUNTS),
    "429 by quota: anthropic": (
        anthropic("RateLimitError", 429, "rate_limit_error", "enforced_spend_limit_reached"),
        DOWNSTREAM,
        False,
        COUNTS,
    ),
    "429 by quota: gemini": (
        error("google.genai.errors.ClientError", code=429, details={"quotaId": "GenerateRequestsPerDay"}),
        DOWNSTREAM,
        False,
        COUNTS,
    ),
    "429 by quota: in a stream": (
        error("openai.APIError", code="insufficient_quota", type=None),
        DOWNSTREAM,
        False,
        COUNTS,
    ),
    "429 by rate": (openai("RateLimitError", 429, "rate_limit_exceeded", retry_after="7"), TRANSIENT, True, COUNTS),
    "402": (anthropic("PaymentRequiredError", 402), DOWNSTREAM, False, ANSWERED),
    "529": (anthropic("OverloadedError", 529, "overloaded_error"), TRANSIENT, True, COUNTS),
    "529 in a stream": (anthropic("APIStatusError", 200, "overloaded_error"), TRANSIENT, True, COUNTS),
    "408": (openai("APIStatusError", 408), TRANSIENT, True, COUNTS),
    "425": (openai("APIStatusError", 425), TRANSIENT, True, COUNTS),
    "409": (openai("ConflictError", 409), DOWNSTREAM, False, ANSWERED),
    "409 to be repeated": (openai("ConflictError", 409, x_should_retry="true"), TRANSIENT, True, COUNTS),
    "501": (openai("InternalServerError", 501), DOWNSTREAM, False, COUNTS),
    "content filter": (openai("BadRequestError", 400, "content_filter"), DOWNSTREAM, False, ANSWERED),
    "certificate: httpx": (deep("httpx.ConnectError", certificate()), DOWNSTREAM, False, COUNTS),
    "certificate: openai": (deep("openai.APIConnectionError", certificate()), DOWNSTREAM, False, COUNTS),
    "TLS cut: requests": (
        deep("requests.exceptions.SSLError", ssl.SSLEOFError(8, "EOF occurred")),
        TRANSIENT,
        True,
        COUNTS,
    ),
    "TLS cut: httpx": (deep("httpx.ConnectError", ssl.SSLEOFError(8, "EOF occurred")), TRANSIENT, True, COUNTS),
    "no such name: httpx": (deep("httpx2.ConnectError", unknown_name()), DOWNSTREAM, False, COUNTS),
    "no such name behind a timeout": (
        chained(error("urllib3.exceptions.NameResolutionError"), unknown_name()),
        DOWNSTREAM,
        False,
        COUNTS,
    ),
    "resolver in trouble": (socket.gaierror(socket.EAI_AGAIN, "x"), TRANSIENT, True, COUNTS),
    "our pool: httpx": (error("httpx.PoolTimeout"), TRANSIENT, True, SAYS_NOTHING),
    "our pool: sqlalchemy": (error("sqlalchemy.exc.TimeoutError"), TRANSIENT, True, SAYS_NOTHING),
    "our pool: psycopg": (error("psycopg_pool.PoolTimeout"), TRANSIENT, True, SAYS_NOTHING),
    "our pool: redis": (error("redis.exceptions.MaxConnectionsError"), TRANSIENT, True, SAYS_NOTHING),
    "our pool: openai": (
        chained(error("openai.APITimeoutError"), error("httpx2.PoolTimeout")),
        TRANSIENT,
        True,
        SAYS_NOTHING,
    ),
    "the remote is slow": (error("httpx.ReadTimeout"), TRANSIENT, True, COUNTS),
    "deadlock": (error("psycopg.errors.DeadlockDetected"), TRANSIENT, True, ANSWERED),
    "deadlock: mysql": (error("pymysql.err.OperationalError", args=(1213, "Deadlock")), TRANSIENT, True, ANSWERED),
    "serialization": (error("asyncpg.exceptions.SerializationError"), TRANSIENT, True, ANSWERED),
    "deadlock: by the ORM": (
        error("sqlalchemy.exc.OperationalError", orig=error("psycopg2.OperationalError", pgcode="40P01")),
        TRANSIENT,
        True,
        ANSWERED,
    ),
    "duplicate key": (error("psycopg2.errors.UniqueViolation"), CONTRACT, False, SAYS_NOTHING),
    "duplicate key: mongo": (error("pymongo.errors.DuplicateKeyError"), CONTRACT, False, SAYS_NOTHING),
    "wrong password: redis": (
        error("redis.exceptions.AuthenticationError", type("ConnectionError", (Exception,), {})),
        DOWNSTREAM,
        False,
        ANSWERED,
    ),
    "wrong password: aiormq": (
        error("aiormq.exceptions.AuthenticationError", ConnectionError),
        DOWNSTREAM,
        False,
        ANSWERED,
    ),
    "wrong password: mysql": (
        error("pymysql.err.OperationalError", args=(1045, "Access denied")),
        DOWNSTREAM,
        False,
        ANSWERED,
    ),
    "LOADING": (error("redis.exceptions.BusyLoadingError"), TRANSIENT, True, COUNTS),
    "READONLY": (error("redis.exceptions.ReadOnlyError"), TRANSIENT, True, COUNTS),
    "BUSY": (error("redis.exceptions.ResponseError", args=("BUSY running a script",)), TRANSIENT, True, COUNTS),
    "CLUSTERDOWN": (error("valkey.exceptions.ClusterDownError"), TRANSIENT, True, COUNTS),
    "MOVED": (error("redis.exceptions.ResponseError", args=("MOVED 3999 h:1",)), DOWNSTREAM, False, COUNTS),
    "cancelled by us": (
        grpc("CANCELLED", "Locally cancelled by application!"),
        INTERRUPTED,
        False,
        SAYS_NOTHING,
    ),
    "cancelled by the server": (grpc("CANCELLED", "server says so"), DOWNSTREAM, False, COUNTS),
    "499": (anthropic("ClientClosedRequestError", 499), DOWNSTREAM, False, ANSWERED),
    "too large for gRPC": (
        grpc("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5 vs. 4)"),
        VALIDATION,
        False,
        SAYS_NOTHING,
    ),
    "a timeout with a cancel below": (chained(TimeoutError(), KeyboardInterrupt()), TRANSIENT, True, COUNTS),
    "an invented 400": (
        chained(
            error("aiohttp.client_exceptions.ClientResponseError", status=400),
            error(
                "aiohttp.http_exceptions.BadStatusLine",
                type("HttpProcessingError", (Exception,), {"__module__": "aiohttp.http_exceptions"}),
            ),
        ),
        DOWNSTREAM,
        False,
        COUNTS,
    ),
    "throttled with a 400": (aws("ThrottlingException", 400), TRANSIENT, True, COUNTS),
    "an answer of another shape": (
        error("pydantic_core._pydantic_core.ValidationError"),
        VALIDATION,
        False,
        SAYS_NOTHING,
    ),
    "litellm's own bug": (
        error("litellm.exceptions.APIConnectionError", args=("KeyError: 1",)),
        INTERNAL,
        False,
        SAYS_NOTHING,
    ),
    "AMQP's 5xx": (error("pika.exceptions.ConnectionClosedByBroker", reply_code=504), INTERNAL, False, SAYS_NOTHING),
    "a cancel that is none": (error("s3transfer.exceptions.FatalError"), DOWNSTREAM, False, COUNTS),
}


@pytest.mark.parametrize(("exc", "kind", "retried", "verdict"), TRAPS.values(), ids=TRAPS)
def test_trap(exc, kind, retried, verdict):
    """Kind, whether it is retried, and what a breaker makes of it."""
    fault = classify(exc)

    assert kind is fault.kind
    assert retried is may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)
    assert verdict is verdict_of(fault, trip_on=frozenset({TRANSIENT, DOWNSTREAM}), trip_on_status=frozenset())


def test_the_wait_of_a_rate_limit_is_found():
    """By rate is not by quota: there is something to wait for."""
    assert 7.0 == classify(TRAPS["429 by rate"][0]).retry_after


def test_the_invented_status_is_not_believed():
    """A breaker with `trip_on_status={400}` must not open by it."""
    assert classify(TRAPS["an invented 400"][0]).status is None


@pytest.mark.parametrize("name", ["pymongo.errors.OperationFailure", "amqp.exceptions.NotFound"])
def test_a_number_that_is_no_status(name):
    """Mongo's 189 and AMQP's 404 look like HTTP."""
    assert classify(error(name, code=404, reply_code=404)).status is None


def test_an_answer_of_another_shape_may_be_said_to_be_one():
    """The call site knows which side the validated data comes from."""
    rules = Classifier().add("pydantic_core.ValidationError", DOWNSTREAM)

    assert DOWNSTREAM is rules.classify(TRAPS["an answer of another shape"][0]).kind


@pytest.mark.parametrize(
    "name",
    [
        "pip._vendor.requests.exceptions.ReadTimeout",
        "botocore.vendored.requests.exceptions.ReadTimeout",
        "acme.sdk._vendor.httpx.ReadTimeout",
    ],
)
def test_a_vendored_copy_is_the_library(name):
    """Copies keep the names of what they copy."""
    fault = classify(error(name))

    assert (TRANSIENT, {FaultFlag.AMBIGUOUS}) == (fault.kind, fault.flags)


def test_a_package_that_is_called_vendor():
    """Somebody's own package of that name is no copy of anything."""
    assert FaultFlag.UNCLASSIFIED in classify(error("vendor.Odd")).flags
    assert FaultFlag.UNCLASSIFIED in classify(error("vendors.httpx.ReadTimeout")).flags


def test_a_rule_for_a_subclass_beats_its_base():
    """The most derived class is asked first, and a call site's rules before the catalogue's."""
    base = error("httpx.ReadTimeout")
    derived = error("acme.SlowModel", type(base))
    rules = Classifier().add("acme.SlowModel", CONTRACT)

    assert [TRANSIENT, CONTRACT] == [rules.classify(exc).kind for exc in (base, derived)]
    assert TRANSIENT is classify(derived).kind


@pytest.mark.parametrize(
    ("exc", "kind", "flags"),
    [
        (
            error("sqlalchemy.exc.OperationalError", orig=error("acme.DriverError", sqlstate="40001")),
            TRANSIENT,
            {"contention"},
        ),
        (error("sqlalchemy.exc.InternalError", orig=error("acme.DriverError", pgcode="25006")), TRANSIENT, set()),
        (error("sqlalchemy.exc.DBAPIError", orig=error("acme.DriverError", sqlstate="23505")), CONTRACT, set()),
        (error("sqlalchemy.exc.OperationalError", orig=ValueError("x")), TRANSIENT, set()),
        (error("sqlalchemy.exc.DBAPIError", orig=ConnectionResetError(104, "x")), TRANSIENT, {"ambiguous"}),
        (
            chained(error("django.db.utils.OperationalError"), error("acme.DriverError", args=(1205, "x"))),
            TRANSIENT,
            {"contention"},
        ),
        (chained(error("django.db.utils.DatabaseError"), error("acme.DriverError", sqlstate="42601")), INTERNAL, set()),
        (error("django.db.utils.OperationalError"), TRANSIENT, set()),
        (error("django.db.utils.DatabaseError"), DOWNSTREAM, set()),
    ],
)
def test_a_driver_that_nobody_knows(exc, kind, flags):
    """The wrapper's own class decides, unless the driver carries a number that is understood."""
    fault = classify(exc)

    assert (kind, flags) == (fault.kind, {flag.value for flag in fault.flags})
