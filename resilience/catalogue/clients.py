"""How often clients repeat a call by themselves, told without importing any of them.

Two layers that retry multiply: three attempts of ours around an SDK that makes three
requests for each are nine, and against a spent quota nine times for nothing.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from resilience._core.headers import entry
from resilience._core.reading import ask, members_of, mro_of, name_of, read, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_MOST = 64
_ENDLESS = sys.maxsize


class Sdk:
    """One family of clients.

    Args:
        names: its classes, as "segment:Qualname"; "*" stands for any segment.
        number_on: reads the number of repetitions from a client, None where the client does not tell.
        off: how a user switches them off.
    """

    __slots__ = ("names", "number_on", "off")

    def __init__(self, names: tuple[str, ...], number_on: Callable[[Any], object], off: str) -> None:
        self.names = names
        self.number_on = number_on
        self.off = off


def retries_of(client: object) -> int | None:
    """How many times a client repeats a failed call; see `resilience.catalogue.sdk_retries`."""
    sdk = _sdk_of(client)
    return None if sdk is None else _count(sdk, client)


def retrying_client(args: Iterable[object], kwargs: Mapping[str, object]) -> tuple[str, int, str] | None:
    """The first client among a call's arguments that retries: its type's name, how often, and how to switch it off.

    The first positional argument may be the instance that a method is bound to, so its
    attributes are looked at as well.
    """
    for client in _reached_from(tuple(args), kwargs):
        sdk = _sdk_of(client)
        number = None if sdk is None else _count(sdk, client)
        if sdk is not None and number:
            return ".".join(name_of(type(client))), number, sdk.off
    return None


def _reached_from(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Iterator[object]:
    yield from args[:_MOST]
    yield from [*kwargs.values()][:_MOST]
    if args:
        yield from [*_attributes(args[0])][:_MOST]
        if type(args[0]) is partial:
            yield from _reached_from(args[0].args, args[0].keywords)


def _attributes(thing: object) -> Iterable[object]:
    found = ask(object.__getattribute__, thing, "__dict__")
    return [*dict.values(found)] if issubclass(type(found), dict) else ()


def _sdk_of(client: object) -> Sdk | None:
    for base in mro_of(type(client)):
        module, qualname = name_of(base)
        found = _BY_NAME.get(f"{segment_of(module)}:{qualname}") or _BY_NAME.get(f"*:{qualname}")
        if found is not None:
            return found
        if module.startswith("azure."):
            return _AZURE
    return None


def _count(sdk: Sdk, client: object) -> int | None:
    number = ask(sdk.number_on, client)
    if issubclass(type(number), int) and type(number) is not bool:
        return max(0, int.__index__(number))
    return None


# ------------------------------------------------------------------------------------------------ reading
def _of_stainless(client: Any) -> object:
    # A resource such as `client.chat.completions` hangs on its client.
    return read(client, "max_retries") if read(client, "_client") is None else _either(client)


def _either(client: Any) -> object:
    number = read(client, "max_retries")
    return read(client._client, "max_retries") if number is None else number


def _of_boto(client: Any) -> object:
    retries = (
        client.meta.config.retries if read(client.meta, "client") is None else client.meta.client.meta.config.retries
    )
    attempts = entry(retries, "total_max_attempts")
    if attempts is not None:
        return attempts - 1
    given = entry(retries, "max_attempts")
    if given is not None:
        return given
    # Its own defaults: five attempts in the legacy mode, three in the others.
    return 4 if entry(retries, "mode") in (None, "legacy") else 2


def _of_urllib3(retries: Any) -> object:
    """Retries of urllib3: a number, False, or a Retry whose total stands over its parts."""
    if retries is None:
        return 3
    if retries is False or type(retries) is int:
        return int(retries)
    total = retries.total
    if total is False:
        return 0
    parts = [part for part in (retries.connect, retries.read, retries.status) if type(part) is int]
    if total is None:
        return max(parts, default=_ENDLESS)
    return total


def _of_session(session: Any) -> object:
    return max(_of_urllib3(adapter.max_retries) for adapter in session.adapters.values())  # type: ignore[type-var]  # numbers


def _of_httpx(client: Any) -> object:
    transports = [client._transport, *client._mounts.values()]
    return max(transport._pool._retries for transport in transports if transport is not None)


def _of_redis(client: Any) -> object:
    retry = read(client, "retry")
    pool = read(client, "connection_pool")
    if pool is not None:
        retry = pool.connection_kwargs.get("retry")
    if retry is None:
        return 0
    return _ENDLESS if retry._retries < 0 else retry._retries


def _of_elasticsearch(client: Any) -> object:
    own = read(client, "_max_retries")
    # A namespace such as `client.indices` hangs on its client.
    transport = client.transport if read(client, "transport") is not None else client._client.transport
    return own if type(own) is int else transport.max_retries


def _of_mongo(thing: Any) -> object:
    database = thing if read(thing, "database") is None or not _is_exact(thing, "Collection") else thing.database
    client = database.client if _is_exact(database, "Database") else database
    return int(client.options.retry_reads or client.options.retry_writes)


def _is_exact(thing: object, ending: str) -> bool:
    # A MongoDB client makes a database of any attribute that it is asked for.
    return type(thing).__name__.endswith(ending)


def _of_azure(client: Any) -> object:
    # The client of a service stands on a generated one, and that on a PipelineClient.
    for _ in range(4):
        pipeline = read(client, "_pipeline")
        if pipeline is not None:
            told = [read(policy, "total_retries") for policy in members_of(pipeline._impl_policies, _MOST)]
            return next((number for number in told if number is not None), 0)
        client = read(client, "_client")
    return None


_STAINLESS = ("SyncAPIClient", "AsyncAPIClient", "SyncAPIResource", "AsyncAPIResource")
_COHERE = ("BaseCohere", "AsyncBaseCohere", "V2Client", "AsyncV2Client")

# Every service has classes of its own, in a package of its own.
_AZURE = Sdk((), _of_azure, "retry_total=0")

SDKS = (
    Sdk(tuple(f"*:{name}" for name in _STAINLESS), _of_stainless, "max_retries=0"),
    Sdk(
        tuple(f"cohere:{name}" for name in _COHERE),
        lambda client: client._client_wrapper._max_retries,
        'max_retries=0, or request_options={"max_retries": 0}',
    ),
    Sdk(
        ("google.genai:Client",),
        lambda client: client._api_client._retry.stop.max_attempt_number - 1,
        "http_options=HttpOptions(retry_options=HttpRetryOptions(attempts=1))",
    ),
    Sdk(("litellm:Router",), lambda router: router.num_retries, "num_retries=0"),
    Sdk(
        ("botocore:BaseClient", "boto3:ServiceResource"),
        _of_boto,
        'config=Config(retries={"total_max_attempts": 1})',
    ),
    _AZURE,
    Sdk(
        ("elasticsearch:BaseClient", "opensearchpy:OpenSearch", "opensearchpy:AsyncOpenSearch"),
        _of_elasticsearch,
        "max_retries=0",
    ),
    Sdk(
        tuple(f"{package}:{name}" for package in ("redis", "valkey") for name in ("Redis", "Valkey", "RedisCluster")),
        _of_redis,
        "retry=Retry(NoBackoff(), 0)",
    ),
    Sdk(
        tuple(
            f"pymongo:{name}"
            for name in (
                "MongoClient",
                "AsyncMongoClient",
                "Database",
                "AsyncDatabase",
                "Collection",
                "AsyncCollection",
            )
        ),
        _of_mongo,
        "retryReads=False, retryWrites=False",
    ),
    Sdk(
        ("urllib3:PoolManager",),
        lambda manager: _of_urllib3(manager.connection_pool_kw.get("retries")),
        "retries=False",
    ),
    Sdk(("urllib3:HTTPConnectionPool",), lambda pool: _of_urllib3(pool.retries), "retries=False"),
    Sdk(("requests:Session", "niquests:Session"), _of_session, "HTTPAdapter(max_retries=0)"),
    Sdk(
        tuple(f"{package}:{name}" for package in ("httpx", "httpx2") for name in ("Client", "AsyncClient")),
        _of_httpx,
        "HTTPTransport(retries=0)",
    ),
)
_BY_NAME = {name: sdk for sdk in SDKS for name in sdk.names}
