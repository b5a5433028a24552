"""Real clients against real servers that fail, from the socket to the fault: `make catalogue`.

All servers are on the loopback interface. Every client does one request with its own
retries switched off, and what it raises is classified.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import ssl
import struct
import threading
import urllib.request
import zlib
from concurrent import futures
from dataclasses import dataclass

import aiohttp
import aiormq
import amqp
import anthropic
import asyncpg
import azure.core
import azure.core.pipeline.policies
import boto3
import botocore.config
import cohere
import elasticsearch
import google.api_core.exceptions
import google.api_core.grpc_helpers
import google.api_core.retry
import google.genai
import groq
import grpc
import httpx
import httpx2
import huggingface_hub
import mistralai.client
import mysql.connector
import ollama
import openai
import opensearchpy
import oracledb
import pika
import psycopg
import psycopg2
import psycopg2.pool
import psycopg_pool
import pymongo
import pymysql
import pytest
import qdrant_client
import redis
import redis.asyncio
import requests
import sqlalchemy
import urllib3
import valkey
import valkey.asyncio
import websockets.sync.client
import websockets.sync.server
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from loopback import (
    HOST,
    LATER,
    NOWHERE,
    Loopback,
    answers,
    broken_gzip,
    closed_port,
    closes,
    cut_short,
    deaf_port,
    ended_stream,
    hangs,
    hangs_up,
    holds_the_body,
    mysql_says,
    over_tls,
    plain_http,
    postgres_says,
    redirects_for_ever,
    redis_says,
    resets,
    speaks_otherwise,
    streams,
)

from resilience import FaultFlag, FaultKind, classify

pytestmark = [pytest.mark.catalogue, pytest.mark.filterwarnings("ignore")]

TRANSIENT, DOWNSTREAM, INTERRUPTED = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM, FaultKind.INTERRUPTED
AMBIGUOUS, CLIENT_FAULT, CONFIG = FaultFlag.AMBIGUOUS, FaultFlag.CLIENT_FAULT, FaultFlag.CONFIG
CONTENTION, LOCAL, QUOTA = FaultFlag.CONTENTION, FaultFlag.LOCAL, FaultFlag.QUOTA
SATURATION, UNSENT = FaultFlag.SATURATION, FaultFlag.UNSENT

PATIENT, HASTY = 5.0, 0.15


# ------------------------------------------------------------------------------------------------ clients
@functools.cache
def trusted():
    """The usual authorities; loading them takes longer than a request."""
    return ssl.create_default_context()


def with_httpx(library):
    def call(url, seconds):
        with library.Client(verify=trusted(), timeout=seconds, follow_redirects=True) as client:
            return client.get(url).raise_for_status().json()

    return call


def with_async_httpx(library):
    async def call(url, seconds):
        async with library.AsyncClient(verify=trusted(), timeout=seconds, follow_redirects=True) as client:
            return (await client.get(url)).raise_for_status().json()

    return call


def with_requests(url, seconds):
    answer = requests.get(url, timeout=seconds)
    answer.raise_for_status()
    return answer.json()


def with_urllib3(url, seconds):
    return urllib3.request("GET", url, timeout=seconds, retries=urllib3.Retry(0, redirect=3)).json()


def with_urllib(url, seconds):
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return json.load(answer)


async def with_aiohttp(url, seconds):
    timeout = aiohttp.ClientTimeout(sock_connect=seconds, sock_read=seconds)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
        answer.raise_for_status()
        return await answer.json()


async def with_aiohttp_in_total(url, seconds):
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session, session.get(url) as answer:
        return await answer.json()


WORDS = [{"role": "user", "content": "hello"}]


@functools.cache
def openai_at(url, seconds):
    transport = httpx2.Client(verify=trusted(), follow_redirects=True)
    return openai.OpenAI(api_key="k", base_url=url, timeout=seconds, max_retries=0, http_client=transport)


def with_openai(url, seconds):
    return openai_at(url, seconds).chat.completions.create(model="m", messages=WORDS)


def with_openai_stream(url, seconds):
    return list(openai_at(url, seconds).chat.completions.create(model="m", messages=WORDS, stream=True))


async def with_async_openai(url, seconds):
    transport = httpx2.AsyncClient(verify=trusted(), follow_redirects=True)
    async with openai.AsyncOpenAI(
        api_key="k", base_url=url, timeout=seconds, max_retries=0, http_client=transport
    ) as client:
        return await client.chat.completions.create(model="m", messages=WORDS)


@functools.cache
def anthropic_at(url, seconds):
    transport = httpx2.Client(verify=trusted(), follow_redirects=True)
    return anthropic.Anthropic(api_key="k", base_url=url, timeout=seconds, max_retries=0, http_client=transport)


def with_anthropic(url, seconds):
    return anthropic_at(url, seconds).messages.create(model="m", messages=WORDS, max_tokens=9)


def with_anthropic_stream(url, seconds):
    return list(anthropic_at(url, seconds).messages.create(model="m", messages=WORDS, max_tokens=9, stream=True))


async def with_async_anthropic(url, seconds):
    transport = httpx2.AsyncClient(verify=trusted(), follow_redirects=True)
    async with anthropic.AsyncAnthropic(
        api_key="k", base_url=url, timeout=seconds, max_retries=0, http_client=transport
    ) as client:
        return await client.messages.create(model="m", messages=WORDS, max_tokens=9)


@functools.cache
def groq_at(url, seconds):
    transport = httpx.Client(verify=trusted(), follow_redirects=True)
    return groq.Groq(api_key="k", base_url=url, timeout=seconds, max_retries=0, http_client=transport)


def with_groq(url, seconds):
    return groq_at(url, seconds).chat.completions.create(model="m", messages=WORDS)


@functools.cache
def mistral_at(url, seconds):
    transport = httpx2.Client(verify=trusted(), follow_redirects=True)
    return mistralai.client.Mistral(api_key="k", server_url=url, timeout_ms=int(seconds * 1000), client=transport)


def with_mistral(url, seconds):
    return mistral_at(url, seconds).chat.complete(model="m", messages=WORDS)


@functools.cache
def cohere_at(url, seconds):
    transport = httpx.Client(verify=trusted(), timeout=seconds, follow_redirects=True)
    return cohere.ClientV2(api_key="k", base_url=url, timeout=seconds, httpx_client=transport, max_retries=0)


def with_cohere(url, seconds):
    return cohere_at(url, seconds).chat(model="m", messages=WORDS, request_options={"max_retries": 0})


@functools.cache
def gemini_at(url, seconds):
    options = google.genai.types.HttpOptions(
        base_url=url, timeout=int(seconds * 1000), client_args={"verify": trusted()}
    )
    return google.genai.Client(api_key="k", http_options=options)


def with_gemini(url, seconds):
    return gemini_at(url, seconds).models.generate_content(model="m", contents="hello")


async def with_async_gemini(url, seconds):
    options = google.genai.types.HttpOptions(base_url=url, timeout=int(seconds * 1000))
    async with google.genai.Client(api_key="k", http_options=options).aio as client:
        return await client.models.generate_content(model="m", contents="hello")


def with_ollama(url, seconds):
    return ollama_at(url, seconds).chat("m", WORDS)


@functools.cache
def ollama_at(url, seconds):
    return ollama.Client(url, timeout=seconds, verify=trusted())


def with_hugging_face(url, seconds):
    return huggingface_hub.HfApi(endpoint=url, token=False).model_info("me/mine", timeout=seconds)


def with_hugging_face_inference(url, seconds):
    client = huggingface_hub.InferenceClient(base_url=url, api_key="k", timeout=seconds)
    return client.chat_completion(WORDS, model="m")


@functools.cache
def aws_session():
    return boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name="eu-west-1")


@functools.cache
def aws_at(service, url, seconds):
    config = botocore.config.Config(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
    )
    return aws_session().client(service, endpoint_url=url, config=config)


def with_bedrock(url, seconds):
    words = [{"role": "user", "content": [{"text": "hello"}]}]
    return aws_at("bedrock-runtime", url, seconds).converse(modelId="m", messages=words)


def with_dynamodb(url, seconds):
    return aws_at("dynamodb", url, seconds).get_item(TableName="table", Key={"id": {"S": "1"}})


def with_s3(url, seconds):
    return aws_at("s3", url, seconds).get_object(Bucket="bucket", Key="key")["Body"].read()


@functools.cache
def azure_at(url, seconds):
    policies = [azure.core.pipeline.policies.RetryPolicy(retry_total=0)]
    return azure.core.PipelineClient(url, policies=policies, connection_timeout=seconds, read_timeout=seconds)


def with_azure(url, seconds):
    answer = azure_at(url, seconds).send_request(azure.core.rest.HttpRequest("GET", url))
    answer.raise_for_status()
    return answer.json()


@functools.cache
def elastic_at(url, seconds):
    return elasticsearch.Elasticsearch(url, request_timeout=seconds, max_retries=0)


def with_elasticsearch(url, seconds):
    return elastic_at(url, seconds).get(index="i", id="1")


@functools.cache
def opensearch_at(url, seconds):
    return opensearchpy.OpenSearch(url, timeout=seconds, max_retries=0)


def with_opensearch(url, seconds):
    return opensearch_at(url, seconds).get(index="i", id="1")


@functools.cache
def qdrant_at(url, seconds):
    return qdrant_client.QdrantClient(url=url, timeout=seconds, check_compatibility=False, verify=trusted())


def with_qdrant(url, seconds):
    return qdrant_at(url, seconds).get_collections()


@dataclass(frozen=True)
class Client:
    """How one client makes a request, and what it can't tell.

    Attributes:
        call: makes one request to a URL, with a limit in seconds for each step; sync or async.
        statuses: whether a status of 400 and more is raised.
        headers: whether those of a refusal can be had from the exception.
        vague: whether it says the same of a request that was sent and of one that was not.
        no_http: what an answer is that is not HTTP, or broken below: most clients say "protocol error" to
            a connection that was cut as well.
        no_gzip: the same for a body that can't be unpacked.
        skips: the troubles after which it returns as if nothing were wrong, or that are not for it.
    """

    call: object
    statuses: bool = True
    headers: bool = True
    vague: bool = False
    no_http: FaultKind = TRANSIENT
    no_gzip: FaultKind = DOWNSTREAM
    skips: tuple[str, ...] = ()


# Takes what can't be parsed for an empty stream.
STREAM = ("no JSON",)
# A body that can't be parsed, or only in part, is an answer without fields.
AWS = ("body cut short", "broken gzip", "no JSON")
# Tries a lost connection again, up to three times and with seconds between them, whatever its options say.
INSISTS = (
    "refused",
    "no answer",
    "reset",
    "self-signed",
    "handshake cut",
    "handshake reset",
    "plain HTTP",
    "unknown name",
    "name server busy",
    "nobody accepts",
)

CLIENTS = {
    "httpx": Client(with_httpx(httpx)),
    "httpx-async": Client(with_async_httpx(httpx)),
    "httpx2": Client(with_httpx(httpx2)),
    "httpx2-async": Client(with_async_httpx(httpx2)),
    "requests": Client(with_requests),
    "urllib3": Client(with_urllib3, statuses=False, no_http=DOWNSTREAM),
    # Its timeouts are all the builtin one.
    "urllib": Client(with_urllib, vague=True, no_http=DOWNSTREAM),
    "aiohttp": Client(with_aiohttp, no_http=DOWNSTREAM),
    "aiohttp-total": Client(with_aiohttp_in_total, vague=True, no_http=DOWNSTREAM),
    "openai": Client(with_openai),
    "openai-stream": Client(with_openai_stream, skips=STREAM),
    "openai-async": Client(with_async_openai),
    "anthropic": Client(with_anthropic),
    "anthropic-stream": Client(with_anthropic_stream, skips=STREAM),
    "anthropic-async": Client(with_async_anthropic),
    "groq": Client(with_groq),
    "mistralai": Client(with_mistral),
    "cohere": Client(with_cohere),
    "genai": Client(with_gemini),
    "genai-async": Client(with_async_gemini, vague=True, no_http=DOWNSTREAM, skips=INSISTS),
    # Raised "from None", so that only the context tells, and that is not trusted to tell what was sent.
    "ollama": Client(with_ollama, headers=False, vague=True),
    "hub": Client(with_hugging_face),
    # One class for all timeouts.
    "hub-inference": Client(with_hugging_face_inference, vague=True),
    "bedrock": Client(with_bedrock, skips=AWS),
    "dynamodb": Client(with_dynamodb, skips=AWS),
    # It hands out the bytes as they come; and it asks where the bucket is when it is sent elsewhere, for ever.
    "s3": Client(with_s3, skips=("broken gzip", "no JSON", "redirects")),
    # Takes every error of the body for a lost answer.
    "azure": Client(with_azure, no_gzip=TRANSIENT, skips=("redirects",)),
    # One class for everything below the answer.
    "elasticsearch": Client(with_elasticsearch, vague=True, no_gzip=TRANSIENT),
    "opensearch": Client(with_opensearch, headers=False, vague=True, no_gzip=TRANSIENT),
    # Its seconds are whole, and its 429 has a class without a status.
    "qdrant": Client(with_qdrant, skips=("429", "429 in milliseconds", "429 until a date", "nobody accepts")),
}


def fault_of(call, *arguments):
    """What a call raised, classified; awaited if it is to be."""
    with pytest.raises(Exception) as caught:
        outcome = call(*arguments)
        if asyncio.iscoroutine(outcome):
            asyncio.run(outcome)
    return classify(caught.value)


@pytest.fixture(autouse=True)
def own_network(monkeypatch):
    """No proxy stands between, and one name has no address."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    real = socket.getaddrinfo

    def looked_up(host, *arguments, **options):
        if host in (NOWHERE, NOWHERE.encode()):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host in (LATER, LATER.encode()):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


@pytest.fixture(scope="module")
def server():
    """A server that does what a test tells it to."""
    with Loopback(hangs) as running:
        yield running


@pytest.fixture(scope="module")
def secure_server():
    """The same, for URLs that begin with https."""
    with Loopback(hangs, scheme="https") as running:
        yield running


@pytest.fixture(scope="module")
def urls(server, secure_server):
    """Where a client may be sent."""
    with closed_port() as closed, deaf_port() as deaf:
        yield {
            "http": server.url,
            "https": secure_server.url,
            "closed": f"http://{HOST}:{closed}",
            "deaf": f"http://{HOST}:{deaf}",
            NOWHERE: f"http://{NOWHERE}:{server.port}",
            LATER: f"http://{LATER}:{server.port}",
        }


# ------------------------------------------------------------------------------------------------ HTTP: trouble
@dataclass(frozen=True)
class Trouble:
    """What a server does to a request, and what a client is to make of it."""

    where: str
    behave: object
    kind: FaultKind
    flags: frozenset[FaultFlag] = frozenset()
    seconds: float = PATIENT


HAPPENED = {UNSENT, AMBIGUOUS}
LOST, NOT_SENT, SET_WRONG = frozenset({AMBIGUOUS}), frozenset({UNSENT}), frozenset({CONFIG})
TROUBLES = {
    "refused": Trouble("closed", hangs, TRANSIENT, NOT_SENT),
    "nobody accepts": Trouble("deaf", hangs, TRANSIENT, NOT_SENT, HASTY),
    "unknown name": Trouble(NOWHERE, hangs, DOWNSTREAM, SET_WRONG),
    "name server busy": Trouble(LATER, hangs, TRANSIENT, NOT_SENT),
    "no answer": Trouble("http", closes, TRANSIENT, LOST),
    "reset": Trouble("http", resets, TRANSIENT, LOST),
    "silence": Trouble("http", hangs, TRANSIENT, LOST, HASTY),
    "body cut short": Trouble("http", cut_short, TRANSIENT, LOST),
    "redirects": Trouble("http", redirects_for_ever, DOWNSTREAM),
    "no JSON": Trouble("http", answers(200, body="<html>"), DOWNSTREAM),
    "self-signed": Trouble("https", over_tls(hangs), DOWNSTREAM, SET_WRONG),
    "plain HTTP": Trouble("https", plain_http, DOWNSTREAM, SET_WRONG),
}
# Nothing was sent, but a client can't be blamed for not knowing.
HANDSHAKES = {"handshake cut": closes, "handshake reset": resets}


def each(troubles, clients=CLIENTS):
    """All clients with all troubles that are for them."""
    return [
        pytest.param(client, trouble, id=f"{name}-{title}".replace(" ", "-"))
        for name, client in clients.items()
        for title, trouble in troubles.items()
        if title not in client.skips
    ]


@pytest.mark.parametrize(("client", "trouble"), each(TROUBLES))
def test_trouble_on_the_way(client, trouble, urls, server, secure_server):
    """Each client's error for each failure of the transport, down to whether the request may have been sent."""
    server.behave = secure_server.behave = trouble.behave

    fault = fault_of(client.call, urls[trouble.where], trouble.seconds)

    assert (trouble.kind, trouble.flags - HAPPENED) == (fault.kind, fault.flags - HAPPENED)
    sent = fault.flags & HAPPENED
    assert sent == trouble.flags & HAPPENED or (client.vague and not sent & NOT_SENT)


@pytest.mark.parametrize(("client", "behave"), each(HANDSHAKES))
def test_a_handshake_that_is_cut(client, behave, urls, secure_server):
    """A peer that goes away during the TLS handshake may be back soon."""
    secure_server.behave = behave

    fault = fault_of(client.call, urls["https"], PATIENT)

    assert (TRANSIENT, set()) == (fault.kind, fault.flags - HAPPENED)


@pytest.mark.parametrize(("client", "behave"), each({"garbage": speaks_otherwise}))
def test_an_answer_that_is_no_http(client, behave, urls, server):
    """Something else listens there, or a connection broke: never a promise that nothing was sent."""
    server.behave = behave

    fault = fault_of(client.call, urls["http"], PATIENT)

    assert client.no_http is fault.kind
    assert fault.flags <= LOST


@pytest.mark.parametrize(("client", "behave"), each({"broken gzip": broken_gzip}))
def test_a_body_that_cannot_be_unpacked(client, behave, urls, server):
    """The header says gzip, and the body is none."""
    server.behave = behave

    fault = fault_of(client.call, urls["http"], PATIENT)

    assert client.no_gzip is fault.kind
    assert fault.flags <= LOST


# ------------------------------------------------------------------------------------------------ HTTP: refusals
WAIT = {"Retry-After": "7"}
SIXTH, LATER_THAT_DAY = "Sun, 06 Nov 1994 08:49:00 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"
REFUSALS = {
    **{str(status): (status, {}, DOWNSTREAM, {CLIENT_FAULT}, None) for status in (400, 401, 403, 404)},
    **{str(status): (status, {}, DOWNSTREAM, {CLIENT_FAULT}, None) for status in (409, 413, 422, 499)},
    **{str(status): (status, WAIT, TRANSIENT, set(), 7.0) for status in (408, 425, 429, 500, 502, 503, 529)},
    **{str(status): (status, WAIT, TRANSIENT, {AMBIGUOUS}, 7.0) for status in (504, 524)},
    **{str(status): (status, {}, DOWNSTREAM, set(), None) for status in (501, 526)},
    "429 without a wait": (429, {}, TRANSIENT, set(), None),
    "429 in milliseconds": (429, {"retry-after-ms": "1500", "Retry-After": "2"}, TRANSIENT, set(), 1.5),
    "429 until a date": (429, {"Date": SIXTH, "Retry-After": LATER_THAT_DAY}, TRANSIENT, set(), 37.0),
    "503 in fractions": (503, {"retry-after": "0.25"}, TRANSIENT, set(), 0.25),
    "503 not to be tried again": (503, {"x-should-retry": "false"}, DOWNSTREAM, set(), None),
}


def refusing(clients):
    return {name: client for name, client in clients.items() if client.statuses}


@pytest.mark.parametrize(("client", "refusal"), each(REFUSALS, refusing(CLIENTS)))
def test_a_refusal(client, refusal, urls, server):
    """Each client's error for an HTTP status, and the wait that was asked for."""
    status, headers, kind, flags, wait = refusal
    if not client.headers:
        kind, wait = TRANSIENT if "x-should-retry" in headers else kind, None
    server.behave = answers(status, headers, {"error": {"message": "no"}, "message": "no"})

    fault = fault_of(client.call, urls["http"], PATIENT)

    assert (kind, flags, status, wait) == (fault.kind, fault.flags, fault.status, fault.retry_after)


@pytest.mark.parametrize("name", [name for name, client in refusing(CLIENTS).items() if client.headers])
def test_a_conflict_that_is_to_be_tried_again(name, urls, server):
    """A 409 is a lock held by somebody else if the server says so."""
    server.behave = answers(409, {"x-should-retry": "true"}, {"error": {"message": "no"}, "message": "no"})

    fault = fault_of(CLIENTS[name].call, urls["http"], PATIENT)

    assert (TRANSIENT, 409) == (fault.kind, fault.status)
    assert fault.flags <= {CONTENTION}


# Those that take a redirect without an address for an error.
STRICT = (
    "httpx",
    "httpx-async",
    "httpx2",
    "urllib",
    "openai",
    "openai-stream",
    "anthropic",
    "groq",
    "mistralai",
    "cohere",
    "genai",
    "genai-async",
    "ollama",
    "bedrock",
    "dynamodb",
    "elasticsearch",
    "opensearch",
    "qdrant",
)


@pytest.mark.parametrize("name", STRICT)
def test_a_redirect_to_nowhere(name, urls, server):
    """It would lead nowhere the next time as well."""
    server.behave = answers(302)

    fault = fault_of(CLIENTS[name].call, urls["http"], PATIENT)

    assert (DOWNSTREAM, set(), 302) == (fault.kind, fault.flags, fault.status)


@pytest.mark.parametrize("name", [name for name in STRICT if name != "genai-async"])
def test_not_modified_is_no_failure(name, urls, server):
    """A 304 that is raised is news of a kind that nobody counts."""
    server.behave = answers(304)

    fault = fault_of(CLIENTS[name].call, urls["http"], PATIENT)

    assert (FaultKind.CONTROL, set(), 304) == (fault.kind, fault.flags, fault.status)


@pytest.mark.parametrize("name", refusing(CLIENTS))
def test_an_unpaid_bill(name, urls, server):
    """A 402 is a refusal, whether or not a library's rule also knows that no wait ends it."""
    server.behave = answers(402, {}, {"error": {"message": "no"}, "message": "no"})

    fault = fault_of(CLIENTS[name].call, urls["http"], PATIENT)

    assert (DOWNSTREAM, {CLIENT_FAULT}, 402) == (fault.kind, fault.flags - {QUOTA}, fault.status)


@pytest.mark.parametrize(
    ("headers", "wait"), [({"Retry-After": "7"}, 7.0), ({"Retry-After": LATER_THAT_DAY}, None), ({}, None)]
)
def test_a_full_qdrant(headers, wait, urls, server):
    """A 429 is a rate limit, also where the client stumbles over a date."""
    server.behave = answers(429, headers, {"status": {"error": "no"}})

    fault = fault_of(with_qdrant, urls["http"], PATIENT)

    assert (TRANSIENT, set(), wait) == (fault.kind, fault.flags, fault.retry_after)


# ------------------------------------------------------------------------------------------------ HTTP: bodies
def stainless(kind, code=None, message="no"):
    return {"error": {"type": kind, "code": code, "message": message}}


def spend_limit(code):
    return {"type": "error", "error": {"type": "rate_limit_error", "message": "no", "details": {"error_code": code}}}


def google_says(status, word, *details):
    return {"error": {"code": status, "message": "no", "status": word, "details": list(details)}}


def aws_says(code):
    return {"__type": code, "message": "no"}


def s3_says(code):
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"


PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
SOON = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
THROTTLED = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
BODIES = [
    ("openai", 429, stainless("insufficient_quota", "insufficient_quota"), DOWNSTREAM, {QUOTA}, None),
    ("openai", 429, stainless("requests", "credit_balance_exhausted"), DOWNSTREAM, {QUOTA}, None),
    ("openai", 429, stainless("tokens", "rate_limit_exceeded"), TRANSIENT, set(), None),
    ("openai-async", 429, stainless("insufficient_quota"), DOWNSTREAM, {QUOTA}, None),
    ("openai", 400, stainless("invalid_request_error", "content_filter"), DOWNSTREAM, {CLIENT_FAULT}, None),
    ("groq", 429, stainless("tokens", message="Rate limit reached on tokens per day"), DOWNSTREAM, {QUOTA}, None),
    ("groq", 429, stainless("tokens", message="Rate limit reached on tokens per minute"), TRANSIENT, set(), None),
    ("anthropic", 429, spend_limit("enforced_spend_limit_reached"), DOWNSTREAM, {QUOTA}, None),
    ("anthropic", 429, spend_limit(None), TRANSIENT, set(), None),
    (
        "anthropic",
        400,
        stainless("invalid_request_error", message="Your credit balance is too low"),
        DOWNSTREAM,
        {QUOTA, CLIENT_FAULT},
        None,
    ),
    ("anthropic", 529, stainless("overloaded_error"), TRANSIENT, set(), None),
    ("genai", 429, google_says(429, "RESOURCE_EXHAUSTED", SOON), TRANSIENT, set(), 17.0),
    ("genai", 429, google_says(429, "RESOURCE_EXHAUSTED", PER_DAY, SOON), DOWNSTREAM, {QUOTA}, None),
    ("genai-async", 429, google_says(429, "RESOURCE_EXHAUSTED", SOON), TRANSIENT, set(), 17.0),
    ("genai", 503, google_says(503, "UNAVAILABLE"), TRANSIENT, set(), None),
    ("genai", 403, google_says(403, "PERMISSION_DENIED"), DOWNSTREAM, {CLIENT_FAULT}, None),
    *(("dynamodb", 400, aws_says(code), TRANSIENT, set(), None) for code in THROTTLED),
    ("dynamodb", 400, aws_says("ConditionalCheckFailedException"), FaultKind.CONTRACT, set(), None),
    ("dynamodb", 400, aws_says("TransactionConflictException"), TRANSIENT, {CONTENTION}, None),
    ("dynamodb", 400, aws_says("ExpiredTokenException"), TRANSIENT, {LOCAL}, None),
    ("dynamodb", 400, aws_says("ValidationException"), DOWNSTREAM, {CLIENT_FAULT}, None),
    ("dynamodb", 400, aws_says("UnrecognizedClientException"), DOWNSTREAM, {CLIENT_FAULT}, None),
    ("bedrock", 429, aws_says("ThrottlingException"), TRANSIENT, set(), None),
    ("bedrock", 429, aws_says("ModelNotReadyException"), TRANSIENT, set(), None),
    ("bedrock", 408, aws_says("ModelTimeoutException"), TRANSIENT, {AMBIGUOUS}, None),
    ("bedrock", 424, aws_says("ModelErrorException"), DOWNSTREAM, set(), None),
    ("bedrock", 400, aws_says("ServiceQuotaExceededException"), DOWNSTREAM, {QUOTA}, None),
    ("bedrock", 403, aws_says("AccessDeniedException"), DOWNSTREAM, {CLIENT_FAULT}, None),
    ("s3", 503, s3_says("SlowDown"), TRANSIENT, set(), None),
    ("s3", 404, s3_says("NoSuchKey"), DOWNSTREAM, {CLIENT_FAULT}, None),
    ("s3", 403, s3_says("SignatureDoesNotMatch"), DOWNSTREAM, {CLIENT_FAULT}, None),
]


@pytest.mark.parametrize(("name", "status", "body", "kind", "flags", "wait"), BODIES)
def test_what_a_body_says(name, status, body, kind, flags, wait, urls, server):
    """The service's own code decides where a status means several things."""
    server.behave = answers(status, {}, body)

    fault = fault_of(CLIENTS[name].call, urls["http"], PATIENT)

    assert (kind, flags, status, wait) == (fault.kind, fault.flags, fault.status, fault.retry_after)


def test_a_wait_of_azure_in_milliseconds(urls, server):
    """Azure's own header is read as well."""
    server.behave = answers(429, {"x-ms-retry-after-ms": "1500"}, {"error": {"code": "TooManyRequests"}})

    assert 1.5 == fault_of(with_azure, urls["http"], PATIENT).retry_after


@pytest.mark.parametrize(("word", "status"), [("RepoNotFound", 404), ("RevisionNotFound", 404), ("GatedRepo", 403)])
def test_what_the_hub_calls_it(word, status, urls, server):
    """A repository that is not there, or not for us."""
    server.behave = answers(status, {"X-Error-Code": word}, {"error": "no"})

    fault = fault_of(with_hugging_face, urls["http"], PATIENT)

    assert (DOWNSTREAM, {CLIENT_FAULT}, status) == (fault.kind, fault.flags, fault.status)


def test_something_else_in_the_place_of_elasticsearch(urls, server):
    """A server that does not say that it is Elasticsearch is set wrong."""
    server.behave = answers(200, {"Content-Type": "text/html"}, "<html>")

    fault = fault_of(with_elasticsearch, urls["http"], PATIENT)

    assert (DOWNSTREAM, {CONFIG}) == (fault.kind, fault.flags)


# ------------------------------------------------------------------------------------------------ streams
def event(data, name=""):
    return (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


PART = event({"id": "1", "object": "chat.completion.chunk", "choices": [], "created": 1, "model": "m"})
BEGIN = event(
    {
        "type": "message_start",
        "message": {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "m",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    "message_start",
)


def broken_by(kind):
    return event({"type": "error", "error": {"type": kind, "message": "no"}}, "error")


def with_groq_stream(url, seconds):
    return list(groq_at(url, seconds).chat.completions.create(model="m", messages=WORDS, stream=True))


def with_mistral_stream(url, seconds):
    return list(mistral_at(url, seconds).chat.stream(model="m", messages=WORDS))


def with_cohere_stream(url, seconds):
    return list(cohere_at(url, seconds).chat_stream(model="m", messages=WORDS))


def with_gemini_stream(url, seconds):
    return list(gemini_at(url, seconds).models.generate_content_stream(model="m", contents="hello"))


def with_ollama_stream(url, seconds):
    return list(ollama_at(url, seconds).chat("m", WORDS, stream=True))


def with_hugging_face_stream(url, seconds):
    client = huggingface_hub.InferenceClient(base_url=url, api_key="k", timeout=seconds)
    return list(client.chat_completion(WORDS, model="m", stream=True))


async def with_async_openai_stream(url, seconds):
    async with openai.AsyncOpenAI(api_key="k", base_url=url, timeout=seconds, max_retries=0) as client:
        return [part async for part in await client.chat.completions.create(model="m", messages=WORDS, stream=True)]


async def with_async_anthropic_stream(url, seconds):
    async with anthropic.AsyncAnthropic(api_key="k", base_url=url, timeout=seconds, max_retries=0) as client:
        create = client.messages.create
        return [part async for part in await create(model="m", messages=WORDS, max_tokens=9, stream=True)]


OPENAI_STREAMS = (with_openai_stream, with_async_openai_stream)
ANTHROPIC_STREAMS = (with_anthropic_stream, with_async_anthropic_stream)
CUT = [
    *((call, PART) for call in OPENAI_STREAMS),
    *((call, BEGIN) for call in ANTHROPIC_STREAMS),
    (with_groq_stream, PART),
    (with_mistral_stream, PART),
    (with_cohere_stream, event({"type": "content-start"})),
    (with_gemini_stream, event({"candidates": []})),
    (with_ollama_stream, '{"model": "m", "message": {"role": "assistant", "content": "a"}}\n'),
    (with_hugging_face_stream, PART),
]


@pytest.mark.parametrize(("call", "part"), CUT)
def test_a_stream_that_is_cut(call, part, urls, server):
    """Something came, and then the connection was gone."""
    server.behave = streams(part)

    fault = fault_of(call, urls["http"], PATIENT)

    assert (TRANSIENT, LOST) == (fault.kind, fault.flags)


BROKEN_OFF = [
    *((call, PART + event(stainless("server_error")), TRANSIENT, set()) for call in OPENAI_STREAMS),
    *((call, PART + event(stainless("insufficient_quota")), DOWNSTREAM, {QUOTA}) for call in OPENAI_STREAMS),
    (with_openai_stream, PART + event(stainless("x", "rate_limit_exceeded")), TRANSIENT, set()),
    (with_openai_stream, PART + event(stainless("invalid_request_error")), DOWNSTREAM, set()),
    (with_openai_stream, PART + event("{no JSON"), DOWNSTREAM, set()),
    *((call, BEGIN + broken_by("overloaded_error"), TRANSIENT, set()) for call in ANTHROPIC_STREAMS),
    *((call, BEGIN + broken_by("api_error"), TRANSIENT, set()) for call in ANTHROPIC_STREAMS),
    *((call, BEGIN + broken_by("invalid_request_error"), DOWNSTREAM, {CLIENT_FAULT}) for call in ANTHROPIC_STREAMS),
    (with_groq_stream, PART + event(stainless("server_error")), TRANSIENT, set()),
    (with_groq_stream, PART + event(stainless("invalid_request_error")), DOWNSTREAM, set()),
    (with_mistral_stream, event("{no JSON"), DOWNSTREAM, set()),
    (with_gemini_stream, event(google_says(503, "UNAVAILABLE")), TRANSIENT, set()),
    (with_ollama_stream, '{"error": "model runner has unexpectedly stopped"}\n', DOWNSTREAM, set()),
    (with_hugging_face_stream, event({"error": "no"}), DOWNSTREAM, set()),
]


@pytest.mark.parametrize(("call", "events", "kind", "flags"), BROKEN_OFF)
def test_a_stream_with_an_error_in_it(call, events, kind, flags, urls, server):
    """The status was 200, and the trouble came later."""
    server.behave = ended_stream(events)

    fault = fault_of(call, urls["http"], PATIENT)

    assert (kind, flags) == (fault.kind, fault.flags)


def frame(exception):
    """One message of an AWS event stream: lengths, headers and body, each with its checksum."""
    fields = {":message-type": "exception", ":exception-type": exception, ":content-type": "application/json"}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in fields.items()
    )
    body = b'{"message": "no"}'
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


def with_bedrock_stream(url, seconds):
    words = [{"role": "user", "content": [{"text": "hello"}]}]
    return list(aws_at("bedrock-runtime", url, seconds).converse_stream(modelId="m", messages=words)["stream"])


@pytest.mark.parametrize(
    ("exception", "kind", "flags"),
    [
        ("throttlingException", TRANSIENT, set()),
        ("modelStreamErrorException", TRANSIENT, set()),
        ("validationException", DOWNSTREAM, {CLIENT_FAULT}),
    ],
)
def test_an_exception_in_an_event_stream(exception, kind, flags, urls, server):
    """Bedrock's streams have codes of their own, and no status."""
    server.behave = answers(200, {"Content-Type": "application/vnd.amazon.eventstream"}, frame(exception))

    fault = fault_of(with_bedrock_stream, urls["http"], PATIENT)

    assert (kind, flags) == (fault.kind, fault.flags)


# ------------------------------------------------------------------------------------------------ Redis and Valkey
def place_of(url):
    host, _, port = url.rpartition("/")[2].partition(":")
    return host, int(port)


def store(library, sync, url, seconds, **options):
    """A client of Redis or Valkey, sync or async, that tries once and speaks the protocol without a greeting."""
    host, port = place_of(url)
    once = library.retry.Retry(sync.backoff.NoBackoff(), 0)
    made = library.Redis if sync is redis else library.Valkey
    return made(
        host=host,
        port=port,
        protocol=2,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=once,
        **options,
    )


def from_store(library):
    return lambda url, seconds, **options: store(library, library, url, seconds, **options).get("key")


def from_async_store(library):
    async def call(url, seconds, **options):
        async with store(library.asyncio, library, url, seconds, **options) as client:
            return await client.get("key")

    return call


STORES = {
    "redis": from_store(redis),
    "redis-async": from_async_store(redis),
    "valkey": from_store(valkey),
    "valkey-async": from_async_store(valkey),
}
REPLIES = [
    ("-LOADING Redis is loading the dataset in memory", TRANSIENT, set()),
    ("-READONLY You can't write against a read only replica.", TRANSIENT, set()),
    ("-BUSY Redis is busy running a script.", TRANSIENT, set()),
    ("-CLUSTERDOWN The cluster is down", TRANSIENT, set()),
    ("-MASTERDOWN Link with MASTER is down", TRANSIENT, set()),
    ("-NOREPLICAS Not enough good replicas to write.", TRANSIENT, set()),
    ("-ERR max number of clients reached", TRANSIENT, {UNSENT}),
    ("-TRYAGAIN Multiple keys request during rehashing of slot", TRANSIENT, {CONTENTION}),
    ("-MOVED 866 127.0.0.1:7001", DOWNSTREAM, {CONFIG}),
    ("-ASK 866 127.0.0.1:7001", DOWNSTREAM, {CONFIG}),
    ("-NOAUTH Authentication required.", DOWNSTREAM, {CLIENT_FAULT}),
    ("-WRONGPASS invalid username-password pair or user is disabled.", DOWNSTREAM, {CLIENT_FAULT}),
    ("-NOPERM this user has no permissions to run the command", DOWNSTREAM, {CLIENT_FAULT}),
    ("-WRONGTYPE Operation against a key holding the wrong kind of value", DOWNSTREAM, {CLIENT_FAULT}),
    ("-OOM command not allowed when used memory > 'maxmemory'.", DOWNSTREAM, set()),
    ("-MISCONF Redis is configured to save RDB snapshots", DOWNSTREAM, set()),
    ("!!", DOWNSTREAM, set()),
]


@pytest.mark.parametrize("call", STORES.values(), ids=STORES)
@pytest.mark.parametrize(("reply", "kind", "flags"), REPLIES, ids=[reply.split(" ")[0] for reply, *_ in REPLIES])
def test_a_reply_of_redis(call, reply, kind, flags, urls, server):
    """The first word of an error reply says what it is, whether or not the client has a class for it."""
    server.behave = redis_says(reply)

    fault = fault_of(call, urls["http"], PATIENT)

    assert (kind, flags, None) == (fault.kind, fault.flags - {AMBIGUOUS}, fault.status)


@pytest.mark.parametrize("call", STORES.values(), ids=STORES)
def test_a_wrong_password(call, urls, server):
    """It stays wrong, although the library calls it a connection error."""
    server.behave = redis_says("-WRONGPASS invalid username-password pair", to=b"AUTH")

    fault = fault_of(lambda: call(urls["http"], PATIENT, password="guessed"))

    assert (DOWNSTREAM, {CLIENT_FAULT}) == (fault.kind, fault.flags)


# Whether a command was sent is not told apart here: a client says several things before it.
AT_THE_DOOR = {
    "refused": Trouble("closed", hangs, TRANSIENT, NOT_SENT),
    "unknown name": Trouble(NOWHERE, hangs, DOWNSTREAM, SET_WRONG),
    "name server busy": Trouble(LATER, hangs, TRANSIENT),
    "no answer": Trouble("http", closes, TRANSIENT),
    "reset": Trouble("http", resets, TRANSIENT),
    "silence": Trouble("http", hangs, TRANSIENT, seconds=HASTY),
    "nobody accepts": Trouble("deaf", hangs, TRANSIENT, seconds=HASTY),
    "self-signed": Trouble("https", over_tls(hangs), DOWNSTREAM, SET_WRONG),
    "no TLS": Trouble("https", speaks_otherwise, DOWNSTREAM, SET_WRONG),
    "handshake cut": Trouble("https", closes, TRANSIENT),
}


@pytest.mark.parametrize("call", STORES.values(), ids=STORES)
@pytest.mark.parametrize("trouble", AT_THE_DOOR.values(), ids=AT_THE_DOOR)
def test_no_way_to_redis(call, trouble, urls, server, secure_server):
    """Its connection errors are no builtin ones, and the cause is often in the context only."""
    server.behave = secure_server.behave = trouble.behave
    options = {"ssl": True} if trouble.where == "https" else {}

    fault = fault_of(lambda: call(urls[trouble.where], trouble.seconds, **options))

    assert (trouble.kind, trouble.flags - HAPPENED) == (fault.kind, fault.flags - HAPPENED)
    assert trouble.where != "http" or UNSENT not in fault.flags


# ------------------------------------------------------------------------------------------------ databases and brokers
def connecting(connect, **options):
    """A connector that is given host and port by these names."""

    def call(url, seconds):
        host, port = place_of(url)
        return connect(host=host, port=port, **{name: given(seconds) for name, given in options.items()})

    return call


def always(value):
    return lambda _seconds: value


def same(seconds):
    return seconds


WHO = {"user": always("u"), "password": always("p")}
# libpq counts in whole seconds.
POSTGRES = {**WHO, "dbname": always("d"), "connect_timeout": always(1), "sslmode": always("disable")}


async def with_asyncpg(url, seconds):
    host, port = place_of(url)
    return await asyncpg.connect(host=host, port=port, user="u", password="p", database="d", timeout=seconds, ssl=False)


def through_sqlalchemy(driver, **options):
    def call(url, seconds):
        host, port = place_of(url)
        arguments = {name: given(seconds) for name, given in options.items()}
        return sqlalchemy.create_engine(f"{driver}://u:p@{host}:{port}/d", connect_args=arguments).connect()

    return call


def with_pymongo(url, seconds):
    host, port = place_of(url)
    limits = dict.fromkeys(("connectTimeoutMS", "socketTimeoutMS", "serverSelectionTimeoutMS"), 100)
    with pymongo.MongoClient(host, port, **limits) as client:
        return client.db.command("ping")


def with_pika(url, seconds):
    host, port = place_of(url)
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, socket_timeout=seconds, stack_timeout=seconds))


def with_amqp(url, seconds):
    host, port = place_of(url)
    return amqp.Connection(f"{host}:{port}", connect_timeout=seconds, read_timeout=seconds).connect()


async def with_aiormq(url, seconds):
    host, port = place_of(url)
    return await aiormq.connect(f"amqp://{host}:{port}")


def with_websockets(url, seconds):
    return websockets.sync.client.connect(url.replace("http", "ws", 1), open_timeout=seconds, proxy=None)


CONNECTORS = {
    "psycopg": connecting(psycopg.connect, **POSTGRES),
    "psycopg2": connecting(psycopg2.connect, **POSTGRES),
    "asyncpg": with_asyncpg,
    "pymysql": connecting(pymysql.connect, **WHO, connect_timeout=same, read_timeout=same),
    "mysql": connecting(mysql.connector.connect, **WHO, connection_timeout=always(1), use_pure=always(True)),
    "oracledb": connecting(oracledb.connect, **WHO, service_name=always("d"), tcp_connect_timeout=same),
    "sqlalchemy-psycopg": through_sqlalchemy("postgresql+psycopg", connect_timeout=always(1)),
    "sqlalchemy-pymysql": through_sqlalchemy("mysql+pymysql", connect_timeout=same, read_timeout=same),
    "pymongo": with_pymongo,
    "pika": with_pika,
    "amqp": with_amqp,
    "aiormq": with_aiormq,
    "websockets": with_websockets,
}
# It sleeps between its looks for a server, half a second at least.
MARKS = {"pymongo": pytest.mark.slow_sleep}
# libpq looks names up by itself; two drivers have no limit of time for a server that accepts and is silent.
OWN_RESOLVER, PATIENT_ONES = ("psycopg", "psycopg2", "sqlalchemy-psycopg"), ("oracledb", "aiormq", "sqlalchemy-psycopg")
DOORS = {
    "refused": Trouble("closed", hangs, TRANSIENT),
    "closed": Trouble("http", hangs_up, TRANSIENT),
    "reset": Trouble("http", resets, TRANSIENT),
    "silence": Trouble("http", hangs, TRANSIENT, seconds=HASTY),
    "unknown name": Trouble(NOWHERE, hangs, DOWNSTREAM, SET_WRONG),
    "name server busy": Trouble(LATER, hangs, TRANSIENT),
}
# A MySQL server speaks first, so that its clients only wait.
NOT_FOR = {("reset", name) for name in ("pymysql", "mysql", "sqlalchemy-pymysql")}
NOT_FOR |= {("silence", name) for name in PATIENT_ONES}
NOT_FOR |= {(door, name) for door in ("unknown name", "name server busy") for name in OWN_RESOLVER}


@pytest.mark.parametrize(
    ("call", "trouble"),
    [
        pytest.param(call, trouble, id=f"{name}-{title}".replace(" ", "-"), marks=MARKS.get(name, ()))
        for name, call in CONNECTORS.items()
        for title, trouble in DOORS.items()
        if (title, name) not in NOT_FOR
    ],
)
def test_no_connection(call, trouble, urls, server):
    """A server that can't be reached, or that goes away before it has let us in, may be back soon."""
    server.behave = trouble.behave

    fault = fault_of(call, urls[trouble.where], trouble.seconds)

    assert (trouble.kind, trouble.flags) == (fault.kind, fault.flags - HAPPENED)


@pytest.mark.parametrize("name", ["psycopg", "psycopg2", "asyncpg", "sqlalchemy-psycopg"])
@pytest.mark.parametrize(
    ("sqlstate", "text", "kind", "flags"),
    [
        ("57P03", "the database system is starting up", TRANSIENT, set()),
        ("53300", "sorry, too many clients already", TRANSIENT, set()),
        ("57P01", "terminating connection due to administrator command", TRANSIENT, set()),
        ("28P01", 'password authentication failed for user "u"', DOWNSTREAM, {CLIENT_FAULT, CONFIG}),
        ("28000", 'no pg_hba.conf entry for host "127.0.0.1"', DOWNSTREAM, {CLIENT_FAULT, CONFIG}),
    ],
)
def test_a_postgres_that_lets_nobody_in(name, sqlstate, text, kind, flags, urls, server):
    """With a SQLSTATE or, where libpq keeps that for itself, by the text."""
    server.behave = postgres_says(sqlstate, text)

    fault = fault_of(CONNECTORS[name], urls["http"], PATIENT)

    assert (kind, flags) == (fault.kind, fault.flags - HAPPENED)


@pytest.mark.parametrize("name", ["pymysql", "mysql", "sqlalchemy-pymysql"])
@pytest.mark.parametrize(
    ("number", "sqlstate", "text", "kind", "flags"),
    [
        (1040, "08004", "Too many connections", TRANSIENT, set()),
        (1203, "42000", "User u already has more than 'max_user_connections'", TRANSIENT, set()),
        (1045, "28000", "Access denied for user 'u'", DOWNSTREAM, {CLIENT_FAULT, CONFIG}),
        (1226, "42000", "User 'u' has exceeded the 'max_connections_per_hour' resource", DOWNSTREAM, {QUOTA}),
        (1129, "HY000", "Host is blocked because of many connection errors", DOWNSTREAM, set()),
    ],
)
def test_a_mysql_that_greets_with_an_error(name, number, sqlstate, text, kind, flags, urls, server):
    """The number decides, whatever class the driver puts it in."""
    server.behave = mysql_says(number, sqlstate, text)

    fault = fault_of(CONNECTORS[name], urls["http"], PATIENT)

    assert (kind, flags, str(number)) == (fault.kind, fault.flags, fault.code)


# ------------------------------------------------------------------------------------------------ WebSockets
@pytest.mark.parametrize(
    ("status", "kind", "flags", "wait"),
    [(503, TRANSIENT, set(), 7.0), (429, TRANSIENT, set(), 7.0), (403, DOWNSTREAM, {CLIENT_FAULT}, 7.0)],
)
def test_a_websocket_that_is_refused(status, kind, flags, wait, urls, server):
    """The answer to the handshake is one of HTTP."""
    server.behave = answers(status, WAIT)

    fault = fault_of(with_websockets, urls["http"], PATIENT)

    assert (kind, flags, status, wait) == (fault.kind, fault.flags, fault.status, fault.retry_after)


@pytest.mark.parametrize(
    ("behave", "kind", "flags"),
    [
        (over_tls(hangs), DOWNSTREAM, {CONFIG}),
        (plain_http, DOWNSTREAM, {CONFIG}),
        (closes, TRANSIENT, set()),
        (resets, TRANSIENT, set()),
    ],
)
def test_a_websocket_over_tls(behave, kind, flags, urls, secure_server):
    """The client raises what the TLS library raised."""
    secure_server.behave = behave

    fault = fault_of(with_websockets, urls["https"], PATIENT)

    assert (kind, flags) == (fault.kind, fault.flags - HAPPENED)


@pytest.fixture(scope="module")
def closing_server():
    """A WebSocket server that closes with the code that it is sent, or without any."""

    def close(connection):
        code = int(connection.recv())
        if code:
            connection.close(code)
        else:
            connection.socket.close()

    with websockets.sync.server.serve(close, HOST, 0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"ws://{HOST}:{running.socket.getsockname()[1]}"
        running.shutdown()


@pytest.mark.parametrize(
    ("code", "kind", "flags"),
    [
        (0, TRANSIENT, LOST),
        *((code, FaultKind.CONTROL, set()) for code in (1000, 1001)),
        *((code, TRANSIENT, set()) for code in (1011, 1012, 1013, 1014)),
        *((code, DOWNSTREAM, {CLIENT_FAULT}) for code in (1003, 1008, 1009, 4000)),
    ],
)
def test_a_websocket_that_is_closed(code, kind, flags, closing_server):
    """The close code says why; none at all means that the connection was lost."""

    def call():
        with websockets.sync.client.connect(closing_server, proxy=None, close_timeout=HASTY) as connection:
            connection.send(str(code))
            connection.recv()

    fault = fault_of(call)

    assert (kind, flags, None) == (fault.kind, fault.flags, fault.status)


# ------------------------------------------------------------------------------------------------ gRPC
def wish(context, words):
    """What the server is to do with a call: end it with a status, ask for a wait, or leave it open."""
    match words.split():
        case ["hang"]:
            over = threading.Event()
            context.add_callback(over.set)
            over.wait(PATIENT)
        case ["bug"]:
            raise ValueError("a bug of the server's")
        case ["big"]:
            return b"x" * 5_000_000
        case ["info"]:
            detail = any_pb2.Any()
            detail.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=7, nanos=500_000_000)))
            context.abort_with_status(rpc_status.to_status(status_pb2.Status(code=8, details=[detail])))
        case ["push", milliseconds]:
            context.set_trailing_metadata([("grpc-retry-pushback-ms", milliseconds)])
            context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        case [status]:
            context.abort(grpc.StatusCode[status], "no")
    return b""


def one(request, context):
    return wish(context, request.decode())


def several(request, context):
    yield b"first"
    yield wish(context, request.decode())


ALONE = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(scope="module")
def grpc_server():
    """The address of a gRPC server that fails as it is asked to."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    methods = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Several": grpc.unary_stream_rpc_method_handler(several),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Wishes", methods)])
    port = server.add_insecure_port(f"{HOST}:0")
    server.start()
    yield f"{HOST}:{port}"
    server.stop(0)


def unary(channel):
    return channel.unary_unary("/test.Wishes/One")


def streaming(channel):
    return channel.unary_stream("/test.Wishes/Several")


def with_grpc(address, words, timeout=PATIENT):
    with grpc.insecure_channel(address, ALONE) as channel:
        return unary(channel)(words.encode(), timeout=timeout)


def with_grpc_stream(address, words, timeout=PATIENT):
    with grpc.insecure_channel(address, ALONE) as channel:
        return list(streaming(channel)(words.encode(), timeout=timeout))


async def with_async_grpc(address, words, timeout=PATIENT):
    async with grpc.aio.insecure_channel(address, ALONE) as channel:
        return await unary(channel)(words.encode(), timeout=timeout)


def with_api_core(address, words, timeout=PATIENT):
    with grpc.insecure_channel(address, ALONE) as channel:
        return google.api_core.grpc_helpers.wrap_errors(unary(channel))(words.encode(), timeout=timeout)


def with_api_core_stream(address, words, timeout=PATIENT):
    with grpc.insecure_channel(address, ALONE) as channel:
        return list(google.api_core.grpc_helpers.wrap_errors(streaming(channel))(words.encode(), timeout=timeout))


RPCS = {
    "call": with_grpc,
    "stream": with_grpc_stream,
    "async": with_async_grpc,
    "api-core": with_api_core,
    "api-core-stream": with_api_core_stream,
}
REFUSED_BY_GRPC = (
    *("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"),
    *("UNAUTHENTICATED", "FAILED_PRECONDITION", "OUT_OF_RANGE"),
)
WISHES = [
    *((status, TRANSIENT, set(), None) for status in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL")),
    ("RESOURCE_EXHAUSTED", TRANSIENT, set(), None),
    ("ABORTED", TRANSIENT, {CONTENTION}, None),
    # The server's word for it; nobody on this side has given up.
    *((status, DOWNSTREAM, set(), None) for status in ("CANCELLED", "UNKNOWN", "DATA_LOSS", "UNIMPLEMENTED", "bug")),
    *((status, DOWNSTREAM, {CLIENT_FAULT}, None) for status in REFUSED_BY_GRPC),
    ("info", TRANSIENT, set(), 7.5),
    ("push 250", TRANSIENT, set(), 0.25),
    ("push -1", DOWNSTREAM, set(), None),
]


@pytest.mark.parametrize("call", RPCS.values(), ids=RPCS)
@pytest.mark.parametrize(("words", "kind", "flags", "wait"), WISHES, ids=[words for words, *_ in WISHES])
def test_a_status_of_grpc(call, words, kind, flags, wait, grpc_server):
    """Each kind of call raises an exception of its own class, and Google's library one per status."""
    fault = fault_of(call, grpc_server, words)

    assert (kind, flags, wait) == (fault.kind, fault.flags - {AMBIGUOUS}, fault.retry_after)


@pytest.mark.parametrize("name", ["call", "async", "api-core"])
def test_a_message_that_is_too_big_for_us(name, grpc_server):
    """The status is that of a rate limit, and the limit is our own."""
    assert FaultKind.VALIDATION is fault_of(RPCS[name], grpc_server, "big").kind


@pytest.mark.parametrize("name", ["call", "async", "api-core"])
def test_a_deadline_of_grpc(name, grpc_server):
    """The server may still be at work."""
    fault = fault_of(RPCS[name], grpc_server, "hang", HASTY)

    assert (TRANSIENT, LOST) == (fault.kind, fault.flags)


def cancel_a_call(channel):
    call = unary(channel).future(b"hang")
    call.cancel()
    call.result()


def cancel_a_stream(channel):
    stream = streaming(channel)(b"hang")
    next(stream)
    stream.cancel()
    next(stream)


def cancel_a_google_stream(channel):
    stream = google.api_core.grpc_helpers.wrap_errors(streaming(channel))(b"hang")
    next(stream)
    stream.cancel()
    next(stream)


@pytest.mark.parametrize("cancel", [cancel_a_call, cancel_a_stream, cancel_a_google_stream])
def test_a_call_that_we_cancel(cancel, grpc_server):
    """Only our own cancel is an interruption."""
    with grpc.insecure_channel(grpc_server, ALONE) as channel:
        fault = fault_of(cancel, channel)

    assert (INTERRUPTED, {LOCAL}) == (fault.kind, fault.flags)


def test_a_result_that_is_not_waited_for(grpc_server):
    """The future's own limit of time has passed, and the call goes on."""
    with grpc.insecure_channel(grpc_server, ALONE) as channel:
        call = unary(channel).future(b"hang")
        fault = fault_of(lambda: call.result(timeout=0.05))

    assert (TRANSIENT, LOST) == (fault.kind, fault.flags)


def test_retries_of_api_core_that_are_used_up(grpc_server):
    """What the last try said is what counts."""
    again = google.api_core.retry.Retry(
        predicate=google.api_core.retry.if_exception_type(google.api_core.exceptions.ServiceUnavailable),
        initial=0.005,
        maximum=0.005,
        timeout=0.02,
    )

    fault = fault_of(again(with_api_core), grpc_server, "UNAVAILABLE")

    assert (TRANSIENT, 503) == (fault.kind, fault.status)


@pytest.mark.parametrize("name", ["call", "async"])
@pytest.mark.parametrize(
    ("where", "behave", "sent"),
    [
        ("closed", hangs, NOT_SENT),
        # A connection without the server's first frame is none, and nothing is sent on it.
        ("http", closes, NOT_SENT),
        ("http", resets, NOT_SENT),
        ("http", speaks_otherwise, NOT_SENT),
    ],
)
def test_no_way_to_grpc(name, where, behave, sent, urls, server):
    """A server that is not there, or that is none of gRPC."""
    server.behave = behave

    fault = fault_of(RPCS[name], "{}:{}".format(*place_of(urls[where])), "INTERNAL")

    assert (TRANSIENT, sent) == (fault.kind, fault.flags)


@pytest.mark.parametrize(
    ("behave", "kind", "flags"),
    [
        (over_tls(hangs), DOWNSTREAM, SET_WRONG),
        (plain_http, DOWNSTREAM, SET_WRONG),
        (closes, TRANSIENT, NOT_SENT),
    ],
)
def test_grpc_over_tls(behave, kind, flags, urls, secure_server):
    """All of it is UNAVAILABLE, and only the text tells what stays so."""
    secure_server.behave = behave

    def call():
        address = "{}:{}".format(*place_of(urls["https"]))
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(), ALONE) as channel:
            unary(channel)(b"INTERNAL", timeout=PATIENT)

    fault = fault_of(call)

    assert (kind, flags) == (fault.kind, fault.flags)


# ------------------------------------------------------------------------------------------------ our own pools
def crowd_httpx(library):
    def call(url):
        limits, timeout = library.Limits(max_connections=1), library.Timeout(PATIENT, pool=0.03)
        with library.Client(verify=trusted(), limits=limits, timeout=timeout) as client, client.stream("GET", url):
            client.get(url)

    return call


def crowd_openai(url):
    timeout = httpx2.Timeout(PATIENT, pool=0.03)
    with httpx2.Client(verify=trusted(), limits=httpx2.Limits(max_connections=1)) as transport:
        client = openai.OpenAI(api_key="k", base_url=url, timeout=timeout, max_retries=0, http_client=transport)
        with transport.stream("GET", url):
            client.models.list()


def crowd_groq(url):
    timeout = httpx.Timeout(PATIENT, pool=0.03)
    with httpx.Client(verify=trusted(), limits=httpx.Limits(max_connections=1)) as transport:
        client = groq.Groq(api_key="k", base_url=url, timeout=timeout, max_retries=0, http_client=transport)
        with transport.stream("GET", url):
            client.models.list()


def crowd_urllib3(url):
    with urllib3.HTTPConnectionPool(*place_of(url), maxsize=1, block=True, retries=False) as pool:
        held = pool.urlopen("GET", "/", preload_content=False)
        try:
            pool.urlopen("GET", "/", pool_timeout=0.03)
        finally:
            held.close()


def crowd_sqlalchemy(_url):
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.03
    )
    with engine.connect():
        engine.connect()


def crowd_psycopg(_url):
    # None of its connections is there: it says no more about it than if all of them were in use.
    with closed_port() as port:
        conninfo = f"host={HOST} port={port}"
        with psycopg_pool.ConnectionPool(conninfo, open=False, min_size=1, timeout=0.03, reconnect_timeout=0) as pool:
            pool.getconn()


def crowd_psycopg2(_url):
    psycopg2.pool.SimpleConnectionPool(0, 0).getconn()


def crowd_store(library, kind, **options):
    def call(url):
        host, port = place_of(url)
        pool = kind(host=host, port=port, protocol=2, max_connections=1, **options)
        held = pool.get_connection("GET")
        try:
            pool.get_connection("GET")
        finally:
            held.disconnect()

    return call


def crowd_async_store(library, kind, **options):
    async def call(url):
        host, port = place_of(url)
        pool = kind(host=host, port=port, protocol=2, max_connections=1, **options)
        held = await pool.get_connection("GET")
        try:
            await pool.get_connection("GET")
        finally:
            await held.disconnect()

    return call


CROWDS = {
    "httpx": (crowd_httpx(httpx), holds_the_body),
    "httpx2": (crowd_httpx(httpx2), holds_the_body),
    "openai": (crowd_openai, holds_the_body),
    "groq": (crowd_groq, holds_the_body),
    "urllib3": (crowd_urllib3, holds_the_body),
    "sqlalchemy": (crowd_sqlalchemy, hangs),
    "psycopg": (crowd_psycopg, hangs),
    "psycopg2": (crowd_psycopg2, hangs),
}
for library in (redis, valkey):
    name, fine = library.__name__, redis_says("+OK")
    CROWDS |= {
        name: (crowd_store(library, library.ConnectionPool), fine),
        f"{name}-blocking": (crowd_store(library, library.BlockingConnectionPool, timeout=0.03), fine),
        f"{name}-async": (crowd_async_store(library, library.asyncio.ConnectionPool), fine),
        f"{name}-async-blocking": (
            crowd_async_store(library, library.asyncio.BlockingConnectionPool, timeout=0.03),
            fine,
        ),
    }


@pytest.mark.parametrize(("call", "behave"), CROWDS.values(), ids=CROWDS)
def test_our_own_pool_is_full(call, behave, urls, server):
    """It says nothing about the remote, and the call may be made later."""
    server.behave = behave

    fault = fault_of(call, urls["http"])

    assert (TRANSIENT, {SATURATION}) == (fault.kind, fault.flags - {UNSENT})


def test_the_pool_of_aiohttp_is_full(urls, server):
    """It raises the very same for a slow connect, so that nothing more can be told than that nothing was sent."""
    server.behave = holds_the_body

    async def call():
        limit, timeout = aiohttp.TCPConnector(limit=1), aiohttp.ClientTimeout(connect=0.03)
        async with aiohttp.ClientSession(connector=limit, timeout=timeout) as session, session.get(urls["http"]):
            await session.get(urls["http"])

    fault = fault_of(call)

    assert (TRANSIENT, NOT_SENT) == (fault.kind, fault.flags - {SATURATION})
