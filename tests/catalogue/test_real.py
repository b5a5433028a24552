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

from resilience import FaultKind, classify, classify_response
from resilience._core.reading import segment_of
from resilience.catalogue import sdk_retries
from resilience.catalogue.homes import HOMES, rules_of

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
    "cerebras": "the classes of together",
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
    # As people write them; their modules are cimpl and pydantic_core.
    *("confluent_kafka:KafkaException", "pydantic:PydanticSerializationError"),
    *("pydantic:SchemaError", "pydantic:ValidationError"),
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


def responses():
    """A 503 that asks for seven seconds, as each library returns it."""
    import aiohttp.web
    import fastapi
    import httpx
    import httpx2
    import requests
    import starlette.responses
    import urllib3

    headers = {"Retry-After": "7"}
    answer = requests.Response()
    answer.status_code = 503
    answer.headers.update(headers)
    return {
        "httpx": httpx.Response(503, headers=headers),
        "httpx2": httpx2.Response(503, headers=headers),
        "requests": answer,
        "urllib3": urllib3.HTTPResponse(status=503, headers=headers),
        "aiohttp.web": aiohttp.web.Response(status=503, headers=headers),
        "starlette": starlette.responses.PlainTextResponse("", 503, headers),
        "fastapi": fastapi.Response("", 503, headers),
        "botocore": {"ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "7"}}},
    }


def test_real_responses():
    """Returned responses are read like errors."""
    for library, returned in responses().items():
        fault = classify_response(returned)

        assert (FaultKind.TRANSIENT, 503, 7.0) == (fault.kind, fault.status, fault.retry_after), library


def test_a_real_response_in_good_health():
    """A success is no fault, and neither is a redirect."""
    import httpx

    assert [None, None] == [classify_response(httpx.Response(status)) for status in (200, 302)]


# ------------------------------------------------------------------------------------------------ clients that retry
def clients():
    """Real clients with their defaults, and how often each repeats a call."""
    import anthropic
    import boto3
    import cohere
    import elasticsearch
    import google.genai
    import groq
    import httpx
    import httpx2
    import litellm
    import openai
    import opensearchpy
    import pymongo
    import redis
    import redis.asyncio
    import requests
    import urllib3
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import RetryPolicy
    from botocore.config import Config
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    aws = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "y"}
    once = Config(retries={"total_max_attempts": 1})
    asked = openai.OpenAI(api_key="x")
    mongo = pymongo.MongoClient(connect=False)
    return [
        (asked, 2),
        (asked.chat.completions, 2),
        (openai.OpenAI(api_key="x", max_retries=0), 0),
        (openai.AsyncOpenAI(api_key="x", max_retries=4), 4),
        (anthropic.Anthropic(api_key="x").messages, 2),
        (groq.Groq(api_key="x"), 2),
        (cohere.ClientV2(api_key="x"), 2),
        (cohere.Client(api_key="x"), 2),
        (google.genai.Client(api_key="x"), 0),
        (litellm.Router(model_list=[], num_retries=3), 3),
        (boto3.client("s3", **aws), 2),
        (boto3.client("s3", config=once, **aws), 0),
        (boto3.resource("dynamodb", **aws).Table("t"), 3),
        (boto3.client("dynamodb", config=Config(retries={"mode": "legacy"}), **aws), 9),
        (PipelineClient("http://x", policies=[RetryPolicy()]), 10),
        (PipelineClient("http://x", policies=[RetryPolicy(retry_total=0)]), 0),
        (elasticsearch.Elasticsearch("http://127.0.0.1:1"), 3),
        (elasticsearch.Elasticsearch("http://127.0.0.1:1").indices, 3),
        (elasticsearch.Elasticsearch("http://127.0.0.1:1", max_retries=0), 0),
        (opensearchpy.OpenSearch("http://127.0.0.1:1"), 3),
        (redis.Redis(), 10),
        (redis.asyncio.Redis(), 10),
        (redis.Redis(retry=Retry(NoBackoff(), 0)), 0),
        (mongo, 1),
        (mongo.database.collection, 1),
        (pymongo.MongoClient(connect=False, retryReads=False, retryWrites=False), 0),
        (urllib3.PoolManager(), 3),
        (urllib3.PoolManager(retries=False), 0),
        (urllib3.HTTPConnectionPool("h"), 3),
        (requests.Session(), 0),
        (httpx.Client(), 0),
        (httpx2.Client(transport=httpx2.HTTPTransport(retries=2)), 2),
    ]


def test_how_often_real_clients_retry():
    """Read from where each release keeps it."""
    found = [(type(client).__qualname__, number, sdk_retries(client)) for client, number in clients()]

    assert [] == [entry for entry in found if entry[1] != entry[2]]
