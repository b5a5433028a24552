"""A plan: the layers of one call site, linked from the outermost to the attempt itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.order import POSITION, Layer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from resilience._core.outcome import Outcome
    from resilience._site import Call, Inner

    Around = Callable[[Call, Inner], Any]


def in_order(layers: Iterable[tuple[Layer, Around]]) -> list[tuple[Layer, Around]]:
    """Layers sorted by the fixed order; two of one layer keep the order they came in."""
    return sorted(layers, key=lambda pair: POSITION[pair[0]])


def link(layers: Sequence[tuple[Layer, Around]], *, inside: Layer | None = None) -> Inner:
    """One coroutine function for the whole plan, or for what lies inside of a layer."""
    step: Inner = attempt
    for layer, around in reversed(layers):
        if inside is None or POSITION[layer] > POSITION[inside]:
            step = _around(around, step)
    return step


def attempt(call: Call) -> Awaitable[Outcome]:
    """The innermost step: the function itself, once."""
    return call.world.attempt(call)


def _around(around: Around, inner: Inner) -> Inner:
    def step(call: Call) -> Any:
        return around(call, inner)

    return step
