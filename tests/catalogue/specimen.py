"""An exception as plain data, and a stand-in made from it where its library is not installed.

What is kept: the qualified names along the MRO, the arguments, the text, what hangs on
it, and those attributes that a classifier could be interested in, a few objects deep.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import importlib
import re
import sys
import types
import warnings
from collections.abc import Mapping
from typing import Any

# What somebody could read from an exception, a response or an error object on it.
_FACTS_AS_TEXT = (
    "_circuit_breaker body category cause code connection_invalidated cooldown_time details errno error "
    "error_code exception exceptions failed frame full_code grpc_status_code headers http_status "
    "inner_exception is_pre_first_chunk isrecoverable kwargs last_attempt last_exception "
    "litellm_response_headers message meta nanos open_remaining orig original_exception os_error pgcode "
    "rate_limit_type rcvd reason reopen_time reply_code request resp response retriable retry_after "
    "retry_after_s retry_delay retryable returncode seconds smtp_code source sqlite_errorcode sqlstate "
    "status status_code trailing_metadata type"
)
_FACTS = _FACTS_AS_TEXT.split()
# Methods without arguments that only tell something.
_TELLING = ("code", "details", "done", "exception", "fatal", "name", "retriable", "trailing_metadata")
# Where None says something: no close frame was received.
_MAY_BE_NONE = ("rcvd",)
_LABELS = ("RetryableWriteError", "TransientTransactionError")
_DEEPEST = 8
_MOST_TEXT = 400


# ------------------------------------------------------------------------------------------------ from an exception
class Recorder:
    """Turns exceptions into plain data; the classes of all of them are kept in one table."""

    def __init__(self) -> None:
        self.classes: dict[str, list[str]] = {}

    def describe(self, error: BaseException, depth: int = 0) -> dict[str, Any]:
        """One exception and what hangs on it."""
        found: dict[str, Any] = {
            "class": self._class(type(error)),
            "args": [self._value(arg, depth + 1) for arg in error.args],
        }
        try:
            text = re.sub("0x[0-9a-f]+", "0x", str(error))[:_MOST_TEXT]
        except Exception:
            text = ""
        if text != (str(error.args[0]) if len(error.args) == 1 else str(error.args) if error.args else ""):
            found["text"] = text
        facts = self._facts(error, depth)
        if facts:
            found["facts"] = facts
        for link in ("__cause__", "__context__"):
            inner = getattr(error, link)
            if inner is not None and depth < _DEEPEST:
                found[link] = self.describe(inner, depth + 1)
        return found

    def _class(self, kind: type) -> str:
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name not in self.classes and not _is_here(kind.__module__):
            bases = [base for base in kind.__bases__ if issubclass(base, BaseException)]
            self.classes[name] = []
            self.classes[name] = [self._class(base) for base in bases]
        return name

    def _facts(self, thing: object, depth: int) -> dict[str, Any]:
        found = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in _FACTS:
                try:
                    value = getattr(thing, name)
                except Exception:
                    continue
                told = self._value(value, depth + 1, name)
                if told is not None or name in _MAY_BE_NONE:
                    found[name] = told
        if callable(getattr(thing, "has_error_label", None)):
            found["labels"] = [label for label in _LABELS if thing.has_error_label(label)]
        return found

    def _value(self, value: Any, depth: int, name: str = "") -> Any:
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, enum.Enum) and not isinstance(value, int | str):
            return {"object": {"name": value.name}}
        if isinstance(value, int):
            return int(value)
        if isinstance(value, str):
            return str(value)[:_MOST_TEXT]
        if isinstance(value, bytes):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, dt.datetime):
            return {"datetime": "in 5 seconds", "aware": value.tzinfo is not None}
        if depth > _DEEPEST:
            return None
        if isinstance(value, BaseException):
            return {"exception": self.describe(value, depth + 1)}
        if isinstance(value, dict):
            return {"dict": {str(key): self._value(item, depth + 1) for key, item in value.items()}}
        if isinstance(value, list | tuple):
            return [self._value(item, depth + 1) for item in value]
        if isinstance(value, Mapping) or (
            callable(getattr(value, "items", None)) and callable(getattr(value, "get", None))
        ):
            return {"headers": {str(key): str(item) for key, item in value.items()}}
        if callable(value):
            if name not in _TELLING:
                return None
            try:
                told = value()
            except Exception:
                return None
            if name == "trailing_metadata":
                told = [list(pair) for pair in told or ()]
            return {"call": self._value(told, depth + 1)}
        facts = self._facts(value, depth + 1)
        for method in _TELLING:
            if callable(getattr(value, method, None)) and method not in facts:
                told = self._value(getattr(value, method), depth + 1, method)
                if told is not None:
                    facts[method] = told
        kind = type(value).__name__
        return {"object": facts, "kind": kind} if facts else None


def _is_here(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


# ------------------------------------------------------------------------------------------------ from data
class Headers(Mapping):
    """Headers whose names are looked up in any case, as clients have them."""

    def __init__(self, items: dict[str, str]) -> None:
        self._items = {key.lower(): value for key, value in items.items()}

    def __getitem__(self, name: str) -> str:
        return self._items[name.lower()]

    def __iter__(self):
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class StandIns:
    """Makes exceptions from data, with classes that have only their names in common with the real ones."""

    def __init__(self, classes: dict[str, list[str]]) -> None:
        self._bases = classes
        self._made: dict[str, type] = {}

    def make(self, data: dict[str, Any]) -> BaseException:
        """The stand-in of one exception."""
        kind = self._class(data["class"])
        args = tuple(self._value(data["args"]))
        if "text" in data:
            text = data["text"]
            own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda _: text}
            kind = type(kind.__name__, (kind,), own)
        try:
            error = kind(*args)
        except Exception:  # a builtin that wants other arguments than it keeps
            error = kind.__new__(kind)
            error.args = args
        for name, value in data.get("facts", {}).items():
            if name == "labels":
                error.has_error_label = set(value).__contains__
                continue
            try:
                setattr(error, name, self._value(value))
            except (AttributeError, TypeError):
                error.__dict__[name] = self._value(value)
        for link in ("__cause__", "__context__"):
            if link in data:
                setattr(error, link, self.make(data[link]))
        return error

    def _class(self, name: str) -> type:
        if name not in self._made:
            module, _, qualname = name.partition(":")
            if name in self._bases:
                bases = tuple(self._class(base) for base in self._bases[name]) or (Exception,)
                own = {"__module__": module, "__qualname__": qualname}
                self._made[name] = type(qualname.rpartition(".")[2], bases, own)
            else:
                found: Any = importlib.import_module(module)
                for part in qualname.split("."):
                    found = getattr(found, part)
                self._made[name] = found
        return self._made[name]

    def _value(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._value(item) for item in data]
        if not isinstance(data, dict):
            return data
        match data:
            case {"bytes": text}:
                return base64.b64decode(text)
            case {"datetime": _, "aware": aware}:
                moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
                return moment if aware else moment.replace(tzinfo=None)
            case {"exception": inner}:
                return self.make(inner)
            case {"dict": items}:
                return {key: self._value(item) for key, item in items.items()}
            case {"headers": items}:
                return Headers(items)
            case {"call": told}:
                answer = self._value(told)
                return lambda: answer
            case {"object": facts}:
                kind = type(data.get("kind", "Object"), (types.SimpleNamespace,), {})
                return kind(**{name: self._value(value) for name, value in facts.items()})
        raise AssertionError(data)
