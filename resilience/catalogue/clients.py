"""How often clients repeat a call by themselves, told without importing any of them.

Two layers that retry multiply: three attempts of ours around an SDK that makes three
requests for each are nine, and against a spent quota nine times for nothing.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from resilience._core.headers import entry
from resilience._core.reading import ask, members_of, mro_of, name_of, plain_int, read, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_MOST = 64
_MOST_THINGS = 512
_MOST_LAYERS = 16
_ENDLESS = sys.maxsize


class Sdk:
    """One family of clients.

    Args:
        names: its classes, as "segment:Qualname"; "*" stands for any segment.
        number_on: reads the number of repetitions from a client, None where it does not tell.
        off: how a user switches them off; "" where nobody can.
        resends: whether it may repeat what the remote has done already: then the error of its
            last request says nothing of those before.
    """

    __slots__ = ("names", "number_on", "off", "resends")

    def __init__(
        self, names: tuple[str, ...], number_on: Callable[[Any], object], off: str, *, resends: bool = True
    ) -> None:
        self.names = names
        self.number_on = number_on
        self.off = off
        self.resends = resends


class Found(NamedTuple):
    """A client that retries.

    Attributes:
        name: of its type.
        number: how often it repeats a call, at most.
        off, resends: as in `Sdk`.
    """

    name: str
    number: int
    off: str
    resends: bool


def retries_of(client: object) -> int | None:
    """How many times a client repeats a failed call; see `resilience.catalogue.sdk_retries`."""
    sdk = ask(_sdk_of, client)
    return None if sdk is None else _count(sdk, client)


def retrying_client(fn: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Found | None:
    """The first client within a call's reach that retries, and that somebody could stop from doing so.

    Within reach are the arguments, the attributes of the first one (which may be the
    instance that a method is bound to), and what the function itself names: the globals and
    the variables around it.
    """
    for client in islice(_within_reach(fn, args, kwargs), _MOST_THINGS):
        sdk = _sdk_of(client)
        number = None if sdk is None else _count(sdk, client)
        if sdk is not None and number and sdk.off:
            return Found(".".join(name_of(type(client))), number, sdk.off, sdk.resends)
    return None


def _within_reach(fn: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Iterator[object]:
    yield from args
    yield from kwargs.values()
    if args:
        yield from _attributes(args[0])
    # Where anything that can be called is decorated, it stands before its arguments.
    for function in (fn, *args[:1]):
        yield from _named_by(function)


def _named_by(function: Any) -> Iterator[object]:
    for _ in range(_MOST_LAYERS):
        if type(function) is partial:
            yield from function.args
            yield from function.keywords.values()
            function = function.func
        elif type(function) is MethodType:
            yield function.__self__
            yield from _attributes(function.__self__)
            function = function.__func__
        else:
            break
    if type(function) is FunctionType:
        for cell in function.__closure__ or ():
            yield ask(getattr, cell, "cell_contents")
        for name in function.__code__.co_names:
            yield function.__globals__.get(name)


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
    number = plain_int(ask(sdk.number_on, client))
    return None if number is None else max(0, number)


# ------------------------------------------------------------------------------------------------ reading
def _of_stainless(client: Any) -> object:
    number = read(client, "max_retries")
    # A resource such as `client.chat.completions` hangs on its client.
    return read(client._client, "max_retries") if number is None else number


def _of_boto(client: Any) -> object:
    meta = client.meta if read(client.meta, "client") is None else client.meta.client.meta
    retries = meta.config.retries
    attempts = entry(retries, "total_max_attempts")
    if attempts is not None:
        return attempts - 1
    given = entry(retries, "max_attempts")
    if given is not None:
        return given
    service = read(read(meta, "service_model"), "service_name")
    if entry(retries, "mode") in (None, "legacy"):
        return 9 if service == "dynamodb" else 4
    # A client is here, so the module with its defaults is too.
    standard = sys.modules.get("botocore.retries.standard")
    own = entry(read(standard, "_SERVICE_MAX_ATTEMPTS"), service)
    return (own or read(standard, "DEFAULT_MAX_ATTEMPTS") or 3) - 1


def _of_urllib3(retries: Any) -> object:
    """Retries of urllib3: a number, False, or a Retry, of which each kind of error has a share of the total."""
    if retries is None:
        return 3
    if retries is False or type(retries) is int:
        return int(retries)
    total = retries.total
    if total is False:
        return 0
    shares = [retries.connect, retries.read, read(retries, "other")]
    if read(retries, "status_forcelist"):
        shares.append(retries.status)
    known = [int(share) for share in shares if share is not None]
    if total is None:
        return sum(known) if known else _ENDLESS
    return total if len(known) < len(shares) else min(total, sum(known))


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
        # Before 6.0 it was one repetition, if any.
        wanted = pool is not None and (
            pool.connection_kwargs.get("retry_on_timeout") or pool.connection_kwargs.get("retry_on_error")
        )
        return 1 if wanted else 0
    return _ENDLESS if retry._retries < 0 else retry._retries


def _of_elasticsearch(client: Any) -> object:
    # A namespace such as `client.indices` hangs on its client, and has its settings.
    whole = next((found for found in (read(client, "_client"), read(client, "client")) if found is not None), client)
    own = read(whole, "_max_retries")
    return own if type(own) is int else whole.transport.max_retries


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

_OPENSEARCH = tuple(f"opensearchpy:{name}" for name in ("OpenSearch", "AsyncOpenSearch", "NamespacedClient"))
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
        ("elasticsearch:BaseClient", "elasticsearch:NamespacedClient", *_OPENSEARCH),
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
        resends=False,
    ),
    Sdk(("urllib3:HTTPConnectionPool",), lambda pool: _of_urllib3(pool.retries), "retries=False", resends=False),
    Sdk(("requests:Session", "niquests:Session"), _of_session, "HTTPAdapter(max_retries=0)", resends=False),
    Sdk(
        tuple(f"{package}:{name}" for package in ("httpx", "httpx2") for name in ("Client", "AsyncClient")),
        _of_httpx,
        "HTTPTransport(retries=0)",
        resends=False,
    ),
    # GET and its like on a connection that breaks; there is no way to stop it.
    Sdk(("aiohttp:ClientSession",), lambda session: int(session._retry_connection), "", resends=False),
)
_BY_NAME = {name: sdk for sdk in SDKS for name in sdk.names}
