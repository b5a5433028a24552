"""What a call site answers with when its call is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.outcome import Outcome
    from resilience._site import Call


class Fallback:
    """A value that stands for itself, or a function of the call's arguments.

    The function is given the arguments of the call with the defaults filled in. It need
    not have all of the parameters: what it can't take is left out, as long as it is the
    protected function's own default.
    """

    __slots__ = ("_answer", "_names", "_places")

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._places: int | None = None
        self._names: frozenset[str] | None = None
        if callable(answer):
            self._read(answer)

    def _read(self, answer: Callable[..., Any]) -> None:
        import inspect

        try:
            parameters = inspect.signature(answer).parameters.values()
        except (ValueError, TypeError):
            return
        kinds = [parameter.kind for parameter in parameters]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            self._places = sum(
                kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
            )
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            self._names = frozenset(parameter.name for parameter in parameters if parameter.kind in named)

    async def answer(self, call: Call) -> Outcome:
        """The outcome of a skipped call."""
        call.skip()
        if not callable(self._answer):
            return await call.world.invoke(lambda: self._answer, (), {})
        fn, args, kwargs = call.site.fn, call.args, call.kwargs
        if self._places is not None:
            defaults = getattr(fn, "__defaults__", None) or ()
            first = getattr(getattr(fn, "__code__", None), "co_argcount", 0) - len(defaults)
            while len(args) > self._places and first <= len(args) - 1 < first + len(defaults):
                if args[-1] is not defaults[len(args) - 1 - first]:
                    break
                args = args[:-1]
        if self._names is not None:
            defaults_by_name = getattr(fn, "__kwdefaults__", None) or {}
            kwargs = {
                name: value
                for name, value in kwargs.items()
                if name in self._names or defaults_by_name.get(name, _MISSING) is not value
            }
        return await call.world.invoke(self._answer, args, kwargs)


_MISSING = object()
