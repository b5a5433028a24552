"""Clients that retry by themselves: how often, and the warning under our own retry."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from resilience import Registry, breaker, compose, retry, timeout, use_registry
from resilience.catalogue import sdk_retries


def stand_in(name, *bases, **facts):
    """An object of a class of this name, with these facts on it."""
    module, _, qualname = name.rpartition(".")
    made = type(qualname, bases or (object,), {"__module__": module})()
    made.__dict__.update(facts)
    return made


def stainless(number=2, package="openai"):
    base = type("SyncAPIClient", (), {"__module__": f"{package}._base_client"})
    return stand_in(f"{package}.Client", base, max_retries=number)


def urllib3_retry(total=3, connect=None, read=None, status=None, other=None, forcelist=()):
    return SimpleNamespace(
        total=total, connect=connect, read=read, status=status, other=other, status_forcelist=forcelist
    )


def boto(service="s3", **retries):
    base = type("BaseClient", (), {"__module__": "botocore.client"})
    return stand_in(
        "botocore.client.S3",
        base,
        meta=SimpleNamespace(
            config=SimpleNamespace(retries=retries or None),
            client=None,
            service_model=SimpleNamespace(service_name=service),
        ),
    )


def azure(*totals):
    policies = [SimpleNamespace() if total is None else SimpleNamespace(total_retries=total) for total in totals]
    return SimpleNamespace(_impl_policies=policies)


CLIENTS = {
    "openai": (stainless(2), 2),
    "openai off": (stainless(0), 0),
    "a resource": (
        stand_in(
            "openai.resources.Completions",
            type("SyncAPIResource", (), {"__module__": "openai._resource"}),
            _client=stainless(4),
        ),
        4,
    ),
    "any Stainless SDK": (stainless(3, "together"), 3),
    "a number that is none": (stainless("two"), None),
    "a bool": (stainless(True), None),
    "below zero": (stainless(-1), 0),
    "cohere": (stand_in("cohere.base_client.BaseCohere", _client_wrapper=SimpleNamespace(_max_retries=2)), 2),
    "gemini": (
        stand_in(
            "google.genai.client.Client",
            _api_client=SimpleNamespace(_retry=SimpleNamespace(stop=SimpleNamespace(max_attempt_number=5))),
        ),
        4,
    ),
    "litellm": (stand_in("litellm.router.Router", num_retries=3), 3),
    "boto standard": (boto(mode="standard"), 2),
    "boto legacy": (boto(mode="legacy"), 4),
    "boto before modes": (boto(), 4),
    "boto legacy dynamodb": (boto("dynamodb", mode="legacy"), 9),
    "boto attempts": (boto(mode="standard", total_max_attempts=1), 0),
    "boto max_attempts": (boto(max_attempts=7), 7),
    "boto resource": (
        stand_in("boto3.resources.base.ServiceResource", meta=SimpleNamespace(client=boto(mode="standard"))),
        2,
    ),
    "azure": (stand_in("azure.core.PipelineClient", _pipeline=azure(None, 10)), 10),
    "azure without": (stand_in("azure.core.PipelineClient", _pipeline=azure(None)), 0),
    "azure service": (
        stand_in(
            "azure.keyvault.secrets.SecretClient",
            _client=SimpleNamespace(_client=SimpleNamespace(_pipeline=azure(None, 10))),
        ),
        10,
    ),
    "azure, no client": (stand_in("azure.core.credentials.AzureKeyCredential"), None),
    "elasticsearch": (
        stand_in(
            "elasticsearch._sync.client._base.BaseClient",
            _max_retries="default",
            transport=SimpleNamespace(max_retries=3),
        ),
        3,
    ),
    "elasticsearch options": (
        stand_in(
            "elasticsearch._sync.client._base.BaseClient", _max_retries=0, transport=SimpleNamespace(max_retries=3)
        ),
        0,
    ),
    "elasticsearch namespace, off": (
        stand_in(
            "elasticsearch._sync.client.utils.NamespacedClient",
            _client=SimpleNamespace(_max_retries=0, transport=SimpleNamespace(max_retries=3)),
        ),
        0,
    ),
    "opensearch namespace": (
        stand_in(
            "opensearchpy.client.utils.NamespacedClient",
            client=SimpleNamespace(transport=SimpleNamespace(max_retries=3)),
        ),
        3,
    ),
    "elasticsearch namespace": (
        stand_in(
            "elasticsearch._sync.client._base.BaseClient",
            _client=SimpleNamespace(transport=SimpleNamespace(max_retries=3)),
        ),
        3,
    ),
    "redis": (
        stand_in(
            "redis.client.Redis",
            connection_pool=SimpleNamespace(connection_kwargs={"retry": SimpleNamespace(_retries=10)}),
        ),
        10,
    ),
    "redis for ever": (
        stand_in(
            "redis.client.Redis",
            connection_pool=SimpleNamespace(connection_kwargs={"retry": SimpleNamespace(_retries=-1)}),
        ),
        sys.maxsize,
    ),
    "redis 5, on a timeout": (
        stand_in("redis.client.Redis", connection_pool=SimpleNamespace(connection_kwargs={"retry_on_timeout": True})),
        1,
    ),
    "aiohttp": (stand_in("aiohttp.client.ClientSession", _retry_connection=True), 1),
    "redis without": (
        stand_in("valkey.client.Valkey", connection_pool=SimpleNamespace(connection_kwargs={})),
        0,
    ),
    "redis cluster": (stand_in("redis.cluster.RedisCluster", retry=SimpleNamespace(_retries=3)), 3),
    "mongo": (
        stand_in("pymongo.MongoClient", options=SimpleNamespace(retry_reads=True, retry_writes=False)),
        1,
    ),
    "mongo off": (
        stand_in("pymongo.MongoClient", options=SimpleNamespace(retry_reads=False, retry_writes=False)),
        0,
    ),
    "mongo collection": (
        stand_in(
            "pymongo.Collection",
            database=stand_in(
                "pymongo.Database",
                client=SimpleNamespace(options=SimpleNamespace(retry_reads=True, retry_writes=True)),
            ),
        ),
        1,
    ),
    "urllib3": (stand_in("urllib3.poolmanager.PoolManager", connection_pool_kw={}), 3),
    "urllib3 off": (stand_in("urllib3.PoolManager", connection_pool_kw={"retries": False}), 0),
    "urllib3 number": (stand_in("urllib3.PoolManager", connection_pool_kw={"retries": 5}), 5),
    "urllib3 pool": (stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(7, connect=2)), 7),
    "urllib3 parts": (stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(None, connect=2, read=4)), 6),
    "urllib3 shares": (
        stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(10, connect=0, read=1, other=0)),
        1,
    ),
    "urllib3 shares and statuses": (
        stand_in(
            "urllib3.HTTPConnectionPool",
            retries=urllib3_retry(10, connect=0, read=1, other=0, status=2, forcelist={503}),
        ),
        3,
    ),
    "urllib3 a share that is open": (
        stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(10, connect=0, read=1)),
        10,
    ),
    "urllib3 no end": (stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(None)), sys.maxsize),
    "urllib3 total off": (stand_in("urllib3.HTTPConnectionPool", retries=urllib3_retry(False)), 0),
    "requests": (
        stand_in(
            "requests.sessions.Session",
            adapters={
                "http://": SimpleNamespace(max_retries=urllib3_retry(0)),
                "https://": SimpleNamespace(max_retries=urllib3_retry(2)),
            },
        ),
        2,
    ),
    "httpx": (
        stand_in(
            "httpx.Client",
            _transport=SimpleNamespace(_pool=SimpleNamespace(_retries=1)),
            _mounts={"a": None, "b": SimpleNamespace(_pool=SimpleNamespace(_retries=4))},
        ),
        4,
    ),
    "a client that changed inside": (stand_in("httpx.Client"), None),
    "no client": (object(), None),
    "none": (None, None),
}


@pytest.mark.parametrize(("client", "number"), CLIENTS.values(), ids=CLIENTS)
def test_how_often(client, number):
    """What each client says of itself."""
    found = sdk_retries(client)

    assert number == found
    assert found is None or type(found) is int


def test_a_hostile_client_tells_nothing():
    """Properties that raise, and a class that lies."""

    class Hostile:
        __module__ = "httpx"
        __qualname__ = "Client"

        def __getattribute__(self, name):
            raise RuntimeError(name)

    assert sdk_retries(Hostile()) is None


# ------------------------------------------------------------------------------------------------ the warning
@pytest.fixture
def warnings(caplog):
    return lambda: [record.getMessage() for record in caplog.records if "attempts multiply" in record.getMessage()]


CLIENT = stainless()


def uses_a_global():
    return CLIENT.max_retries


def shapes():
    """Ways in which a call may hold a client."""
    client = stainless()

    class Service:
        def __init__(self):
            self.name, self.llm = "x", client

        def ask(self, question="q"):
            return question

    def plain(*args, **kwargs):
        return "answer"

    async def asynchronous(*args, **kwargs):
        return "answer"

    again = retry(3, idempotent=True)
    service = Service()
    return {
        "argument": lambda wrapped=again(plain): wrapped(1, client),
        "keyword": lambda wrapped=again(plain): wrapped(client=client),
        "bound instance": lambda wrapped=again(Service.ask): wrapped(service),
        "method of an instance": lambda wrapped=again(service.ask): wrapped(),
        "partial": lambda wrapped=again(partial(plain, client)): wrapped(),
        "async": lambda wrapped=again(asynchronous): asyncio.run(wrapped(client)),
        "with a breaker": lambda wrapped=again(breaker("llm")(plain)): wrapped(client),
        "with a timeout": lambda wrapped=again(timeout(5)(asynchronous)): asyncio.run(wrapped(client)),
        "closure": lambda wrapped=again(lambda: client.max_retries): wrapped(),
        "global": lambda wrapped=again(uses_a_global): wrapped(),
        "any callable": lambda wrapped=compose(again): wrapped.call(service.ask),
        "by the plan": lambda wrapped=again(breaker("llm", account="call")(plain)): wrapped(client),
    }


@pytest.mark.parametrize("shape", shapes())
def test_one_warning_for_a_call_site(shape, warnings):
    """At the first call, however the client is held; never again."""
    with use_registry(Registry()):
        call = shapes()[shape]
        for _ in range(3):
            call()

    (message,) = warnings()
    assert message.endswith(
        ": openai.Client repeats a failed call by itself, up to 2 times for each attempt of this retry: attempts "
        "multiply; leave it to one of the two (max_retries=0 switches off the client's)"
    )


def test_each_call_site_is_told(warnings):
    """The warning belongs to the place in the code."""
    first, second = (retry(2, idempotent=True)(lambda client: None) for _ in range(2))
    first(stainless())
    second(stainless())

    assert 2 == len(warnings())


@pytest.mark.parametrize("client", [stainless(0), object(), None, "text"])
def test_nothing_to_warn_of(client, warnings):
    """A client that is switched off, or none."""
    retry(2, idempotent=True)(lambda client: None)(client)

    assert [] == warnings()


def test_no_retry_no_warning(warnings):
    """Without our retry nothing multiplies."""
    with use_registry(Registry()):
        breaker("llm")(lambda client: None)(stainless())

    assert [] == warnings()


def test_the_first_attempt_fails_like_any_other(warnings):
    """The look at the arguments is made once, and the function is called with what it was given."""
    seen = []

    @retry(3, idempotent=True, initial_backoff=0)
    def ask(client, *args, **kwargs):
        seen.append((client, args, kwargs))
        if len(seen) < 3:
            raise TimeoutError
        return "answer"

    client = stainless()

    assert "answer" == ask(client, 1, key=2)
    assert [(client, (1,), {"key": 2})] * 3 == seen
    assert 1 == len(warnings())


def test_a_client_that_can_not_be_stopped_is_not_told(warnings):
    """Nobody could follow the advice."""
    retry(2, idempotent=True)(lambda session: None)(stand_in("aiohttp.client.ClientSession", _retry_connection=True))

    assert [] == warnings()


@pytest.mark.parametrize(
    ("client", "attempts"),
    [
        (stainless(2), 1),
        (stainless(0), 3),
        (object(), 3),
        # Repeats connects only, or what is idempotent.
        (stand_in("urllib3.PoolManager", connection_pool_kw={}), 3),
    ],
)
def test_nothing_is_sure_under_a_client_that_retries(client, attempts, warnings):
    """Its last request was refused; what became of those before it nobody says."""
    made = []

    @retry(3, safe_only=True, wait=0)
    def ask(client):
        made.append(client)
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        ask(client)

    assert attempts == len(made)
    if attempts == 1:
        assert warnings()[0].endswith(
            "switches off the client's); until then safe_only repeats nothing, for an earlier request of the client "
            "may have been processed"
        )


def test_a_circle_of_partials(warnings):
    """Partials of partials, and one that holds itself."""
    inner = partial(print)
    for _ in range(2_000):
        inner = partial(lambda *args: "answer", inner)
    inner.keywords["me"] = inner

    assert "answer" == retry(2, idempotent=True)(lambda *args: "answer")(inner)


def test_a_class_without_a_module(warnings):
    """Made by `exec` where there is no name to take it from."""
    space = {"__builtins__": {"__build_class__": __build_class__, "object": object, "type": type}}
    exec("Odd = type('Odd', (), {})", space)

    assert sdk_retries(space["Odd"]()) is None
    assert "answer" == retry(2, idempotent=True)(lambda odd: "answer")(space["Odd"]())


def test_hostile_arguments_do_no_harm(warnings):
    """Whatever an argument does when it is looked at, the call goes on."""

    class Hostile:
        def __getattribute__(self, name):
            raise KeyboardInterrupt if name == "never" else RuntimeError(name)

        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None

    assert "answer" == retry(2, idempotent=True)(lambda *args: "answer")(Hostile(), Hostile())
    assert [] == warnings()
