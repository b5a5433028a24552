"""Every row of the table on a real instance, made by the library itself: `make catalogue`.

Runs in an environment with the libraries of the extra `catalogue-test`, where none may
be missing.
"""

from __future__ import annotations

import importlib
import os
import warnings

import instances
import pytest
import record
import rows
from specimen import StandIns

from resilience import classify
from resilience._core.reading import segment_of
from resilience.catalogue import HOMES, rules_of

pytestmark = [pytest.mark.catalogue, pytest.mark.filterwarnings("ignore")]

THEIRS = [row for row in rows.ROWS if row.library not in rows.ALWAYS_HERE]


@pytest.fixture(autouse=True, scope="module")
def no_network():
    """LiteLLM asks the network for a table of prices when it is imported."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.mark.parametrize("row", THEIRS, ids=lambda row: row.name[:120])
def test_the_real_exception(row):
    """Its class has the name, the condition of the row holds, and the fault is right."""
    error = instances.build(row.expression)
    lineage = {f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__}

    assert row.exception in lineage
    assert not row.condition or instances.holds(row.condition, error)
    assert [] == rows.differences(row, classify(error))


def test_the_recording_is_what_the_libraries_are_now():
    """The stand-ins of the ordinary run still look like the real ones; `make catalogue-record` renews them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now = record.recorded()

    assert now == rows.SPECIMENS.read_text(encoding="utf-8")


# Named for releases, platforms or packages that are not in this environment.
ELSEWHERE = {
    "niquests": "installs another urllib3 over the real one",
    "urllib3_future": "comes with niquests",
    "MySQLdb": "needs the headers of MySQL",
    "asyncmy": "the classes of pymysql",
    "kafka": "kafka-python renames its classes from release to release",
}
ODD_ONES = {
    *("httpx:SSEError", "redis:ValkeyError", "redis:ValkeyClusterException", "valkey:RedisError"),
    *("valkey:RedisClusterException", "valkey:CrossSlotTransactionError", "valkey:InvalidPipelineStack"),
    *("psycopg2:ConnectionTimeout", "psycopg2:PipelineAborted", "psycopg2:Rollback", "mysql:MySQLError"),
    # Python 3.10 and 3.13.
    *("asyncio:TimeoutError", "concurrent:TimeoutError", "asyncio:QueueShutDown", "queue:ShutDown"),
}
# Where no row leads to a class.
MORE = (
    *("boto3.exceptions", "bson.errors", "celery.exceptions", "dns.query", "fastapi.exceptions", "httpcore"),
    *("google.genai._gaos.errors.no_response_error", "google.genai._gaos.errors.responsevalidationerror"),
    *("huggingface_hub.errors", "poplib", "pydantic_core", "starlette.requests", "tomllib", "werkzeug.routing"),
    *("websockets.legacy.exceptions", "xml.sax"),
)


def test_every_class_that_a_rule_names_exists():
    """No rule waits for a class whose name nobody has."""
    for row in rows.ROWS:
        instances.build(row.expression)
    for module in MORE:
        importlib.import_module(module)
    known, waiting = set(), [BaseException]
    while waiting:
        kind = waiting.pop()
        if kind not in known:
            known.add(kind)
            waiting += type.__subclasses__(kind)
    names = {f"{segment_of(kind.__module__)}:{kind.__qualname__}" for kind in known}
    named = {rule.match for segment in HOMES if segment not in ELSEWHERE for rule in rules_of(segment)}

    assert set() == named - names - ODD_ONES


def test_a_stand_in_is_classified_like_its_model():
    """One recorded just now says the same as the real one, in every field."""
    recorder = record.Recorder()
    different = []
    for row in THEIRS:
        error = instances.build(row.expression)
        described = recorder.describe(error)
        copy = StandIns(recorder.classes).make(described)
        real, other = classify(error), classify(copy)
        if (real.kind, real.flags, real.status, real.code) != (other.kind, other.flags, other.status, other.code):
            different.append((row.name, real, other))

    assert [] == different
