"""The fixed order, and the only place that knows it.

Outermost first. Decorators may be stacked in any order; what they contribute is
sorted by `Layer`:

    metrics → gate → fallback → bulkhead → timeout → report → retry → breaker → attempt → function

Why this one: a full bulkhead or an open circuit is answered before anything is
armed; the timeout bounds every attempt and every wait between them; the retry
stands outside the breaker, so each attempt asks for its own permit and no retry is
ever sent to an open circuit; the attempt's own limit stands inside the breaker, so
that a hung remote counts against it.
"""

from __future__ import annotations

from resilience._words import Word


class Layer(Word):
    """One place in the fixed order."""

    METRICS = "metrics"
    GATE = "gate"
    FALLBACK = "fallback"
    BULKHEAD = "bulkhead"
    TIMEOUT = "timeout"
    REPORT = "report"
    RETRY = "retry"
    BREAKER = "breaker"
    ATTEMPT = "attempt"


POSITION = {layer: position for position, layer in enumerate(Layer)}
"""How far inside a layer sits: 0 is the outermost."""
