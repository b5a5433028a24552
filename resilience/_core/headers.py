"""Headers on foreign objects: where exceptions carry them, and how one is looked up."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from resilience._core.reading import ask, read

if TYPE_CHECKING:
    from collections.abc import Callable

    Lookup = Callable[[str], Any]

_MOST_KEYS = 256


def lookups_of(thing: object) -> list[Lookup]:
    """The headers of an exception or response, in the order in which they are believed."""
    response, meta = read(thing, "response"), read(thing, "meta")
    found: list[object] = [read(thing, "headers")]
    if response is not None:
        found.insert(0, read(response, "headers"))
        found.append(entry(entry(response, "ResponseMetadata"), "HTTPHeaders"))
    if meta is not None:
        found.append(read(meta, "headers"))
    return [lookup_in(headers) for headers in found if headers is not None]


def lookup_in(headers: object) -> Lookup:
    """The function that gives a header by its name in lower case, None where there is none.

    Clients hand out case-insensitive mappings, plain dicts with lower-case keys, plain
    dicts with the server's spelling, and objects with only a `getheader`.
    """
    if type(headers) is dict:
        return _lowered(headers).get
    lookup = read(headers, "get") or read(headers, "getheader")

    def find(name: str) -> Any:
        if lookup is None:
            return None
        value = ask(lookup, name)
        if value is None:
            value = ask(lookup, name.title())
        if value is None and issubclass(type(headers), dict):
            return _lowered(headers).get(name)
        return value

    return find


def entry(mapping: object, key: str) -> Any:
    """One entry of a dict, read past whatever its class overrides; None if this is no dict."""
    return ask(dict.get, mapping, key) if issubclass(type(mapping), dict) else None


def _lowered(headers: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    # Past whatever a subclass overrides.
    for key, value in islice(dict.items(headers), _MOST_KEYS):
        if type(key) is str:
            found.setdefault(key.lower(), value)
    return found
