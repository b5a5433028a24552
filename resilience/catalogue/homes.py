"""Which module of the catalogue has the rules of a package; it is loaded when somebody asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resilience._core.rule import Rule

# First segment of an exception's module (two for google and azure) -> module of this
# package whose `RULES` know it.
HOMES: dict[str, str] = {
    segment: family
    for family, segments in {
        "aws": "boto3 botocore s3transfer",
        "azure": "azure.core",
        "google": "google.api_core google.auth google.genai googleapiclient httplib2",
        "grpc": "grpc",
        "http": (
            "aiohttp fastapi h11 httpcore httpcore2 httpx httpx2 niquests requests starlette stripe urllib3 urllib3_future "
            "websockets werkzeug"
        ),
        "llm": "anthropic cerebras cohere groq huggingface_hub litellm mistralai ollama openai together",
        "messaging": "aio_pika aiokafka aiormq amqp billiard celery cimpl confluent_kafka kafka kombu pika",
        "nosql": "bson elastic_transport elasticsearch neo4j opensearchpy pymongo qdrant_client redis valkey",
        "orm": "django sqlalchemy",
        "sql": "MySQLdb asyncmy asyncpg mysql oracledb pg8000 psycopg psycopg2 psycopg_pool pymysql",
        "stdlib": (
            "_csv _lzma _pickle _queue asyncio binascii builtins concurrent ftplib gzip http imaplib json "
            "multiprocessing poplib queue smtplib socket sqlite3 ssl subprocess tarfile tomllib urllib xml zipfile zlib"
        ),
        "toolbox": (
            "aiobreaker anyio circuitbreaker dns jsonschema marshmallow paramiko pybreaker pydantic pydantic_core "
            "tenacity trio"
        ),
    }.items()
    for segment in segments.split()
}


def rules_of(segment: str) -> Iterable[Rule]:
    """The catalogue's rules for one package, by the first segment of its modules; their module is loaded for it."""
    home = HOMES.get(segment)
    if home is None:
        return ()
    found: tuple[Rule, ...] = import_module(f"resilience.catalogue.{home}").RULES
    prefix = f"{segment}:"
    return [rule for rule in found if isinstance(rule.match, str) and rule.match.startswith(prefix)]
