"""The straight path: one generated wrapper for a plain function in good health.

A plan is a few microseconds of machinery around nothing as long as the circuit is
closed, a slot is free and the function succeeds. So each decorated function gets one
wrapper with its own exact signature that does just this: one look at the door, slot,
timer, call, count. Whatever else happens is handed to the plan.

What is generated from: the signature (see `signature`) and the set of policies (see `source`).
"""

from __future__ import annotations

import linecache
import time
from threading import get_ident
from types import FunctionType
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core.deadline import is_past
from resilience._engine.awaitables import AWAITABLE
from resilience._engine.signature import GENERIC, PREFIX, Signature, signature_of
from resilience._engine.source import COLD, HOT, Shape, source_of
from resilience._engine.workers import EXPIRED, run_on

if TYPE_CHECKING:
    from collections.abc import Callable

_CACHE_SIZE = 4096

ENTRANCES = frozenset({"circuit", "door", "queue"})
"""What lets a call onto the straight path, where everything else must be in place."""


class Cold:
    """The ways off the straight path of one wrapper."""

    __slots__ = COLD


def _shared(shape: Shape) -> dict[str, Any]:
    """What is the same for all wrappers: globals of the generated source."""
    shared: dict[str, Any] = {
        "Exception": Exception,
        "IndexError": IndexError,
        "awaitable": AWAITABLE,
        "expired": EXPIRED,
        "get_ident": get_ident,
        "next": next,
        "outer_deadline": DEADLINE.get,
        "past": is_past,
        "plain": AWAITABLE.plain,
        "run_on": run_on,
        "set_deadline": DEADLINE.set,
        "time": time,
        "type": type,
    }
    if shape.is_async:
        import asyncio

        from resilience._engine.timers import is_ours, note

        shared |= {"CancelledError": asyncio.CancelledError, "task_of": asyncio.current_task}
        shared |= {"is_ours": is_ours, "note": note}
    if shape.items:
        from resilience._engine.stream_source import shared_by_streams

        shared |= shared_by_streams(shape)
    return {PREFIX + name: value for name, value in shared.items()}


_factories: dict[tuple[Shape, Signature], Callable[..., FunctionType]] = {}


def compile_wrapper(
    fn: Callable[..., Any], shape: Shape, closure: dict[str, Any], filled_in: str | None = None
) -> FunctionType:
    """A wrapper of `shape` around `fn` that looks like it; `closure` holds what is `HOT` and `COLD`.

    The parameter `filled_in` is given by us: callers may leave it out.

    Source and code are shared by all functions of one parameter list and shape; the
    source is registered so that tracebacks and debuggers show it.
    """
    sig = GENERIC if filled_in is not None else signature_of(fn)
    make = _factories.get((shape, sig))
    if make is None:
        if len(_factories) >= _CACHE_SIZE:
            for known in _factories.values():
                linecache.cache.pop(known.__code__.co_filename, None)
            _factories.clear()
        make = _factories[shape, sig] = _compile(shape, sig)
    cold = Cold()
    for name in COLD:
        setattr(cold, name, closure.get(name))
    wrapper = make(**{PREFIX + name: closure.get(name) for name in HOT}, **{PREFIX + "cold": cold})
    if type(fn) is FunctionType:
        # The names are set on the code object afterwards: free text is never compiled.
        wrapper.__code__ = wrapper.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__)
        if sig is not GENERIC:
            wrapper.__defaults__ = fn.__defaults__
            wrapper.__kwdefaults__ = fn.__kwdefaults__
    return wrapper


def rebind(wrapper: FunctionType, closure: dict[str, Any]) -> None:
    """Put other objects into a wrapper: a reference has found its breaker or bulkhead."""
    assert wrapper.__closure__ is not None, "a wrapper has at least its function in the closure"
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__, strict=True))
    cold = cells[PREFIX + "cold"].cell_contents
    # The entrances last: another thread may call in the middle of this.
    for name in sorted(closure, key=lambda name: name in ENTRANCES):
        if name in COLD:
            setattr(cold, name, closure[name])
        elif PREFIX + name in cells:
            cells[PREFIX + name].cell_contents = closure[name]


def _source_of(shape: Shape, sig: Signature) -> str:
    if not shape.items:
        return source_of(shape, sig)
    # Only now: most functions are no generator functions.
    from resilience._engine.stream_source import stream_source_of

    return stream_source_of(shape, sig)


def _compile(shape: Shape, sig: Signature) -> Callable[..., FunctionType]:
    source = _source_of(shape, sig)
    options = "+".join(_option(name, on) for name, on in zip(Shape._fields, shape, strict=True) if on) or "bare"
    filename = f"<resilience {options} ({sig.parameters})>"
    namespace: dict[str, Any] = {"__name__": __name__, **_shared(shape)}
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return namespace["make"]  # type: ignore[no-any-return]  # what the source defines


def _option(name: str, on: object) -> str:
    return f"{name}={','.join(on)}" if isinstance(on, tuple) else name
