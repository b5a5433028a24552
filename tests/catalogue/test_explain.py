"""Why an exception is what it is, in words, and exceptions made from a name and a few facts."""

from __future__ import annotations

import inspect
import sys

import pytest
import rows

from resilience import Classifier, ConfigurationError, Fault, FaultFlag, FaultKind, classify, retry
from resilience._core.rule import spellings
from resilience._words import Verdict
from resilience.catalogue import explain
from resilience.catalogue.explaining import LONGEST_WAIT
from resilience.catalogue.listing import listing
from resilience.catalogue.stand_ins import is_named, stand_in, unread


class Odd(Exception):
    """Nobody has a rule for it."""


class OwnWord(Exception):
    fault_kind = FaultKind.CONTROL


def chained(error, cause):
    error.__cause__ = cause
    return error


def with_status(status):
    error = Odd()
    error.status_code = status
    return error


WHYS = {
    "a rule": (ConnectionRefusedError(), "the rule for builtins.ConnectionRefusedError", "stdlib"),
    "a condition": (
        OSError(28, "No space left"),
        "the rule for builtins.OSError, when errno is one of ENOSPC, EIO, EDQUOT",
        "stdlib",
    ),
    "the status": (with_status(503), "the HTTP status 503", ""),
    "the status of a named class": (
        stand_in("httpx.HTTPStatusError", status=503),
        "the HTTP status 503",
        "http",
    ),
    "what is inside": (
        chained(Odd(), TimeoutError()),
        "what lies inside it: builtins.TimeoutError, by the rule for builtins.TimeoutError",
        "stdlib",
    ),
    "a status inside": (
        chained(Odd(), with_status(429)),
        f"what lies inside it: {__name__}.Odd, by the HTTP status 429",
        "",
    ),
    "a wrapper": (
        stand_in("openai.APIConnectionError", cause="httpx2.ConnectError"),
        "what lies inside it: httpx2.ConnectError, by the rule for httpx2.ConnectError",
        "llm",
    ),
    "a wrapper of nothing": (stand_in("openai.APIConnectionError"), "the rule for openai.APIConnectionError", "llm"),
    "a group": (ExceptionGroup("g", [TimeoutError(), ValueError()]), "the highest kind of its 2 leaves", ""),
    "its own word": (OwnWord(), "the exception says so itself: fault_kind", ""),
    "no Exception": (KeyboardInterrupt(), "it is no Exception, so the caller gave up", ""),
    "nothing": (Odd(), "no rule knows it, nor what lies inside it: INTERNAL, never retried and never counted", ""),
}


@pytest.mark.parametrize(("error", "why", "family"), WHYS.values(), ids=WHYS)
def test_why(error, why, family):
    """The rule or the evidence that decided."""
    explained = explain(error)

    assert (why, family) == (explained.why, explained.family)
    assert classify(error) == explained.fault


def test_rules_of_ones_own():
    """A type, a name and a function, each said to be what decided."""
    rules = (
        Classifier()
        .add(KeyError, FaultKind.CONTRACT)
        .add("shop.Odd", FaultKind.TRANSIENT, when=lambda error: True)
        .add(lambda error: type(error) is Odd, FaultKind.CONTROL)
    )

    assert "the rule for builtins.KeyError" == explain(KeyError(), rules).why
    assert "the rule for shop.Odd, when a function says so" == explain(stand_in("shop.Odd"), rules).why
    assert "a rule that is a function" == explain(Odd(), rules).why
    assert {""} == {explain(error, rules).family for error in (KeyError(), stand_in("shop.Odd"), Odd())}


@pytest.mark.parametrize(
    ("name", "facts", "retried", "words", "verdict"),
    [
        (
            "httpx.ConnectError",
            {},
            True,
            "yes, even if the function is not idempotent: nothing was sent",
            Verdict.FAILURE,
        ),
        ("httpx.ReadTimeout", {}, True, "yes, if the function is idempotent", Verdict.FAILURE),
        (
            "psycopg.OperationalError",
            {"code": "40P01"},
            True,
            "yes, as a whole unit of work, if it is idempotent",
            Verdict.ANSWERED,
        ),
        ("openai.RateLimitError", {"code": "insufficient_quota"}, False, "no: no wait cures it", Verdict.FAILURE),
        (
            "httpx.DecodingError",
            {},
            False,
            "no, unless retry_on names DOWNSTREAM: it would end the same",
            Verdict.FAILURE,
        ),
        ("openai.NotFoundError", {}, False, "no", Verdict.ANSWERED),
        ("ValueError", {}, False, "no", Verdict.NEUTRAL),
    ],
)
def test_retried_and_trips(name, facts, retried, words, verdict):
    """What a retry and a breaker with their defaults make of it."""
    explained = explain(stand_in(name, **facts))

    assert (retried, words, verdict) == (explained.retried, explained.retried_in_words, explained.verdict)
    assert explained.verdict_in_words.startswith("yes" if verdict is Verdict.FAILURE else "no")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ValueError", "none: a wait would change nothing"),
        ("httpx.HTTPStatusError", "the response headers"),
        ("aiobreaker.CircuitBreakerError", "reopen_time, else the response headers"),
        ("litellm.RateLimitError", "litellm_response_headers, else the response headers"),
    ],
)
def test_where_the_wait_is_looked_for(name, source):
    """In the headers, or where the rule says."""
    assert explain(stand_in(name, status=429)).retry_after_source.startswith(source)


def test_as_plain_data():
    """What `--json` prints."""
    told = explain(stand_in("openai.RateLimitError", status=429, headers={"retry-after": "7"})).as_dict()

    assert {
        "exception": "openai.RateLimitError",
        "kind": "transient",
        "flags": [],
        "status": 429,
        "code": None,
        "retry_after": 7.0,
        "why": "the HTTP status 429",
        "rule": "openai.RateLimitError",
        "family": "llm",
        "retried": True,
        "trips": True,
        "verdict": "failure",
    } == {name: value for name, value in told.items() if name != "retry_after_source"}


def test_a_wait_that_is_a_date():
    """Measured against now, it is another number at each look; the reason stays."""
    error = stand_in("httpx.HTTPStatusError", status=503, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})

    explained = explain(error)

    assert "the HTTP status 503" == explained.why
    assert not explained.retried
    assert "no: the wait is longer than 60 s, the default of max_retry_after" == explained.retried_in_words


def test_the_longest_wait_is_that_of_the_policy():
    """What `explain` says of a retry with its defaults."""
    assert LONGEST_WAIT == inspect.signature(retry).parameters["max_retry_after"].default


@pytest.mark.parametrize("name", ["resilience.CircuitOpenError", "resilience.BulkheadFullError"])
def test_a_refusal_is_not_repeated(name):
    """Whatever its kind: an open circuit is not asked again and again."""
    explained = explain(stand_in(name))

    assert (False, "no: a call that was refused is not repeated") == (explained.retried, explained.retried_in_words)


def test_a_promise_that_is_taken_back_on_the_way():
    """What came before vouches for nothing, and is found all the same."""
    error = Odd()
    error.__context__ = stand_in("httpx.ConnectError")

    explained = explain(error)

    assert "what lies inside it: httpx.ConnectError, by the rule for httpx.ConnectError" == explained.why
    assert FaultFlag.UNSENT not in explained.fault.flags


def test_a_rule_that_raises():
    """It makes its exception INTERNAL, and the explanation says no more."""

    def broken(error):
        raise RuntimeError

    explained = explain(Odd(), Classifier().add(broken, FaultKind.TRANSIENT))

    assert FaultKind.INTERNAL is explained.fault.kind
    assert explained.why


# ------------------------------------------------------------------------------------------------ stand-ins
@pytest.mark.parametrize(
    ("name", "facts", "kind", "flags"),
    [
        ("openai.RateLimitError", {"status": 429, "code": "insufficient_quota"}, "DOWNSTREAM", {"quota"}),
        ("anthropic.RateLimitError", {"code": "enforced_spend_limit_reached"}, "DOWNSTREAM", {"quota"}),
        ("anthropic.APIStatusError", {"status": 200, "code": "overloaded_error"}, "TRANSIENT", set()),
        ("litellm.RateLimitError", {"code": "insufficient_quota"}, "DOWNSTREAM", {"quota"}),
        ("botocore.exceptions.ClientError", {"status": 400, "code": "SlowDown"}, "TRANSIENT", set()),
        ("grpc.aio.AioRpcError", {"code": "ABORTED"}, "TRANSIENT", {"contention"}),
        ("grpc.RpcError", {"code": "CANCELLED", "message": "Locally cancelled"}, "INTERRUPTED", {"local"}),
        ("psycopg.OperationalError", {"code": "53300"}, "TRANSIENT", set()),
        ("pymysql.err.OperationalError", {"code": "1213"}, "TRANSIENT", {"contention"}),
        ("mysql.connector.errors.InternalError", {"code": "1213"}, "TRANSIENT", {"contention"}),
        ("oracledb.DatabaseError", {"code": "ORA-00060"}, "TRANSIENT", {"contention"}),
        ("pymongo.errors.OperationFailure", {"code": "112"}, "TRANSIENT", {"contention"}),
        ("cimpl.KafkaException", {"code": "_QUEUE_FULL"}, "TRANSIENT", {"saturation"}),
        ("pika.exceptions.ConnectionClosedByBroker", {"code": "504"}, "INTERNAL", set()),
        ("websockets.exceptions.ConnectionClosedError", {"code": "1013"}, "TRANSIENT", set()),
        ("redis.exceptions.ResponseError", {"message": "BUSY running"}, "TRANSIENT", set()),
        ("sqlite3.OperationalError", {"code": "5"}, "TRANSIENT", {"contention"}),
        ("subprocess.CalledProcessError", {"code": "-2"}, "INTERRUPTED", {"local"}),
        ("OSError", {"code": "ENOENT"}, "CONTRACT", {"config"}),
        ("OSError", {"code": "ECONNRESET"}, "TRANSIENT", {"ambiguous"}),
        ("builtins.OSError", {"code": "EIO"}, "DOWNSTREAM", set()),
        ("httpx.ConnectError", {"cause": "ssl.SSLCertVerificationError"}, "DOWNSTREAM", {"config"}),
        ("urllib.error.HTTPError", {"status": 429}, "TRANSIENT", set()),
        ("OSError", {"code": "24"}, "TRANSIENT", {"saturation"}),
        ("OSError", {"code": "EWHAT"}, "TRANSIENT", set()),
        ("socket.gaierror", {"code": "EAI_NONAME"}, "DOWNSTREAM", {"config"}),
        ("socket.gaierror", {"code": "EAI_AGAIN"}, "TRANSIENT", {"unsent"}),
        ("grpc.RpcError", {"code": "14"}, "TRANSIENT", {"ambiguous"}),
        ("grpc.RpcError", {"code": "unavailable"}, "TRANSIENT", {"ambiguous"}),
        ("psycopg.OperationalError", {"code": "40p01"}, "TRANSIENT", {"contention"}),
        ("pydantic.ValidationError", {}, "VALIDATION", set()),
        ("confluent_kafka.KafkaException", {"code": "_TRANSPORT"}, "TRANSIENT", set()),
        (
            "botocore.errorfactory.ConditionalCheckFailedException",
            {"code": "ConditionalCheckFailedException", "status": 400},
            "CONTRACT",
            set(),
        ),
        ("resilience.CircuitOpenError", {}, "TRANSIENT", {"local"}),
        ("urllib.error.URLError", {"cause": "ConnectionRefusedError"}, "TRANSIENT", {"unsent"}),
        (
            "urllib3.exceptions.MaxRetryError",
            {"cause": "urllib3.exceptions.NewConnectionError"},
            "TRANSIENT",
            {"unsent"},
        ),
        ("sqlalchemy.exc.OperationalError", {"cause": "psycopg2.errors.DeadlockDetected"}, "TRANSIENT", {"contention"}),
        ("tenacity.RetryError", {"cause": "ValueError"}, "VALIDATION", set()),
        ("httpcore.ConnectError", {"cause": "ConnectionRefusedError"}, "TRANSIENT", {"unsent"}),
        ("acme.Odd", {"status": 404}, "DOWNSTREAM", {"client_fault"}),
        ("acme.Odd", {"code": "x"}, "INTERNAL", {"unclassified"}),
    ],
)
def test_facts_are_put_where_the_library_keeps_them(name, facts, kind, flags):
    """One `--code` means a different attribute for each library."""
    fault = classify(stand_in(name, **facts))

    assert (kind, flags) == (fault.kind.name, {flag.value for flag in fault.flags})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a b"}, "exception must be the dotted name of an exception class, got 'a b'"),
        ({"name": ""}, "exception must be the dotted name of an exception class, got ''"),
        ({"name": "os.path"}, "exception must be the name of an exception class, and 'os.path' is none"),
        ({"name": "NoSuchError"}, "exception must be the name of an exception class: builtins has no NoSuchError"),
        ({"name": "acme_x.y.Odd", "load": True}, "no module is called acme_x"),
        ({"name": "resilience.Nothing"}, "exception must be the name of an exception class: resilience has no Nothing"),
        ({"name": "ExceptionGroup"}, "exception must be a single exception, 'ExceptionGroup' is read by its leaves"),
        ({"name": "OSError", "cause": "int"}, "cause must be the name of an exception class, and 'int' is none"),
    ],
)
def test_a_name_that_is_none(arguments, message):
    """The error names the parameter, the value and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        stand_in(**arguments)

    assert message in str(caught.value)


def test_a_module_that_can_not_be_imported(tmp_path, monkeypatch):
    """Whatever a module raises while it is imported, the user hears of it in one line."""
    (tmp_path / "broken_shop.py").write_text("raise RuntimeError('no stock')\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigurationError, match=r"'broken_shop.Odd' raised RuntimeError\('no stock'\)"):
        stand_in("broken_shop.Odd", load=True)


def test_importing_shows_the_bases(tmp_path, monkeypatch):
    """By name alone nothing is known of a class of one's own; its bases tell."""
    (tmp_path / "our_shop.py").write_text("class Gone(ConnectionRefusedError):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert FaultFlag.UNCLASSIFIED in classify(stand_in("our_shop.Gone")).flags
    assert "our_shop" not in sys.modules
    assert Fault(FaultKind.TRANSIENT, {FaultFlag.UNSENT}, origin="our_shop.Gone") == classify(
        stand_in("our_shop.Gone", load=True)
    )


def test_a_class_that_can_not_be_made_by_itself(tmp_path, monkeypatch):
    """Importing takes the names along the bases, not what the class does when an instance is made."""
    (tmp_path / "hard_shop.py").write_text(
        "from resilience import FaultKind\n"
        "class Hard(Exception):\n"
        "    fault_kind = FaultKind.CONTROL\n"
        "    def __new__(cls, item): return super().__new__(cls)\n"
        "    status_code = property(lambda self: 404)\n"
        "class Harder(Hard, ConnectionError):\n"
        "    fault_kind = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert FaultKind.CONTROL is classify(stand_in("hard_shop.Hard", load=True, status=404)).kind
    assert FaultKind.TRANSIENT is classify(stand_in("hard_shop.Harder", load=True)).kind


def test_an_import_that_needs_more(tmp_path, monkeypatch):
    """A module that is there and wants another that is not: the error names the other."""
    (tmp_path / "needy_shop.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigurationError, match="No module named 'nothing_of_this_name'"):
        stand_in("needy_shop.Odd", load=True)


@pytest.mark.parametrize(
    ("name", "facts", "notes"),
    [
        ("httpx.HTTPStatusError", {}, ["the status decides about this class: give --status"]),
        ("httpx.HTTPStatusError", {"status": 429}, []),
        ("httpx.ReadTimeout", {"code": "x"}, ["no rule about this class asks for a code"]),
        ("httpx.ReadTimeout", {"message": "x"}, ["no rule about this class asks for its text"]),
        ("redis.exceptions.ResponseError", {"message": "x"}, []),
        ("OSError", {"code": "EIO"}, []),
    ],
)
def test_facts_that_nobody_reads(name, facts, notes):
    """A fact that changes nothing is better said than kept quiet."""
    assert notes == unread(name, **{"status": None, "code": None, "message": "", **facts})


def test_named_or_not():
    """Whether the catalogue has a rule for exactly this class."""
    assert is_named("openai.RateLimitError")
    assert is_named("openai._exceptions.RateLimitError")
    assert not is_named("openai.Odd")
    assert not is_named("acme.Odd")


# ------------------------------------------------------------------------------------------------ the list
def test_the_list_has_every_rule():
    """Each class that a row of the table is about stands in the list."""
    groups = {"builtins.Exception", "builtins.BaseException", "builtins.ExceptionGroup", "builtins.BaseExceptionGroup"}
    named = {(package, name) for library in listing() for package in library.packages for name in names_in(library)}

    for exception in {row.exception for row in rows.ROWS} - groups:
        assert is_named(exception), exception
        assert named & set(spellings(exception)), exception


def names_in(library):
    return {name for entry in library.entries for name in entry.names}


def test_libraries_alike_stand_together():
    """httpx and httpx2 are one entry; the order within a library is the order of asking."""
    (httpx,) = [library for library in listing() if "httpx" in library.packages]

    assert ("httpx", "httpx2") == httpx.packages
    assert "a certificate was refused, or the name does not exist" == httpx.entries[0].when
    assert ("ConnectError", "ConnectTimeout", "ProxyError") == httpx.entries[1].names


def test_every_condition_can_be_shown():
    """No rule of the catalogue hides behind a bare function."""
    hidden = [
        entry
        for library in listing()
        for entry in library.entries
        if "a function says so" in entry.when or "a function says so" in entry.retry_after
    ]

    assert [] == hidden
