"""A call site's `classify=`: a classifier, or a function that may leave a case to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience._core.rules import Classifier
from resilience._site import CLASSIFIER_RAISED

if TYPE_CHECKING:
    from resilience._site import Classify

_BROKEN = Fault(FaultKind.INTERNAL, frozenset({FaultFlag.UNCLASSIFIED}), code=CLASSIFIER_RAISED)


def classify_with(own: Any, rules: Classifier) -> Classify:
    """How a site classifies: by its own classifier, by its own function and then the rules, or by the rules."""
    if own is None:
        return rules.classify
    if isinstance(own, Classifier):
        return own.classify

    def classify(error: BaseException, handled: BaseException | None) -> Fault:
        if not isinstance(error, Exception):
            return rules.classify(error, handled)
        try:
            said = own(error)
        except Exception:
            return _BROKEN
        if isinstance(said, Fault):
            return said
        if isinstance(said, FaultKind):
            return Fault(said)
        return rules.classify(error, handled)

    return classify
