"""Why an exception is the fault it is: the classifier, watched at work.

The walk over an exception is made once more, by one that writes down what answered.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from resilience._core.config import BreakerConfig
from resilience._core.faults import may_retry, verdict_of
from resilience._core.reading import ask, has_base, name_of
from resilience._core.unwrap import Walk
from resilience._words import FaultFlag, FaultKind, Verdict
from resilience.catalogue.homes import HOMES, rules_of
from resilience.catalogue.listing import entry_of

if TYPE_CHECKING:
    from resilience._core.faults import Fault
    from resilience._core.profile import Profile
    from resilience._core.rule import Rule
    from resilience._core.rules import Classifier

LONGEST_WAIT = 60.0
"""The default of `max_retry_after`, in seconds."""
_REJECTED = ("resilience", "RejectedError")
_RETRY_ON = frozenset({FaultKind.TRANSIENT})


class Explanation(NamedTuple):
    """An exception's fault, and how it came about.

    Attributes:
        exception: `module.Qualname` of the exception's type.
        fault: what the classifier says.
        why: the rule or the evidence that decided, in words.
        rule: the class that the deciding rule is about, "" without one.
        family: the catalogue's module that has the rule, "" where it is none of the catalogue's.
        retried: whether `@retry` with its defaults repeats an idempotent function after it.
        verdict: what a breaker with its defaults makes of it.
        retry_after_source: where a wait is looked for.
    """

    exception: str
    fault: Fault
    why: str
    rule: str
    family: str
    retried: bool
    verdict: Verdict
    retry_after_source: str

    @property
    def retried_in_words(self) -> str:
        """Whether it is retried, and why."""
        flags = self.fault.flags
        if self.retried and FaultFlag.UNSENT in flags:
            return "yes, even if the function is not idempotent: nothing was sent"
        if self.retried and FaultFlag.CONTENTION in flags:
            return "yes, as a whole unit of work, if it is idempotent"
        if self.retried:
            return "yes, if the function is idempotent"
        if FaultFlag.QUOTA in flags:
            return "no: no wait cures it"
        if self.fault.retry_after is not None and self.fault.retry_after > LONGEST_WAIT:
            return f"no: the wait is longer than {LONGEST_WAIT:g} s, the default of max_retry_after"
        if self.fault.kind is FaultKind.TRANSIENT:
            return "no: a call that was refused is not repeated"
        if self.fault.kind is FaultKind.DOWNSTREAM and FaultFlag.CLIENT_FAULT not in flags:
            return "no, unless retry_on names DOWNSTREAM: it would end the same"
        return "no"

    @property
    def verdict_in_words(self) -> str:
        """What it means to a breaker."""
        return {
            Verdict.FAILURE: "yes: it counts as a failure",
            Verdict.ANSWERED: "no: the remote is well and said no",
            Verdict.NEUTRAL: "no: it says nothing about the remote",
            Verdict.SUCCESS: "no",
        }[self.verdict]

    def as_dict(self) -> dict[str, object]:
        """The same as plain data, for JSON."""
        return {
            "exception": self.exception,
            "kind": self.fault.kind.value,
            "flags": sorted(flag.value for flag in self.fault.flags),
            "status": self.fault.status,
            "code": self.fault.code,
            "retry_after": self.fault.retry_after,
            "why": self.why,
            "rule": self.rule,
            "family": self.family,
            "retried": self.retried,
            "trips": self.verdict is Verdict.FAILURE,
            "verdict": self.verdict.value,
            "retry_after_source": self.retry_after_source,
        }


# ------------------------------------------------------------------------------------------------ explaining
def explanation_of(exc: BaseException, rules: Classifier) -> Explanation:
    """How `rules` come to the fault of an exception; see `resilience.catalogue.explain`."""
    watched = _Watched(rules)
    fault = rules.classify(exc)
    # A rule of somebody's may raise.
    ask(watched.classify, exc)
    why, rule = watched.reason(exc, fault)
    config = BreakerConfig()
    repeated = may_retry(fault, retry_on=_RETRY_ON, idempotent=True, safe_only=False)
    patient = fault.retry_after is None or fault.retry_after <= LONGEST_WAIT
    return Explanation(
        ".".join(name_of(type(exc))),
        fault,
        why,
        "" if rule is None else _shown(rule.match),
        _family_of(rule),
        repeated and patient and not has_base(type(exc), *_REJECTED),
        verdict_of(fault, trip_on=frozenset(config.trip_on), trip_on_status=frozenset(config.trip_on_status)),
        _source_of(fault, rule),
    )


class _Step(NamedTuple):
    """One thing that gave an answer on the way."""

    exc: BaseException
    how: str
    rule: Rule | None
    fault: Fault


class _Watched(Walk):
    """A walk that keeps what answered."""

    __slots__ = ("steps",)

    def __init__(self, classifier: Classifier) -> None:
        otherwise, wall, _ = classifier.surroundings
        # Junk in a header is counted by those who meet it, not by those who ask why.
        super().__init__(lambda kind: _without_shortcuts(classifier.profile_of(kind)), otherwise, wall, None, None)
        self.steps: list[_Step] = []

    def _by_rule(
        self, rule: Rule, exc: BaseException, profile: Profile, loaded: bool, depth: int, links: int
    ) -> Fault | None:
        return self._noted(exc, "rule", rule, super()._by_rule(rule, exc, profile, loaded, depth, links))

    def _by_status(self, exc: BaseException, profile: Profile, rule: Rule | None) -> Fault | None:
        return self._noted(exc, "status", rule, super()._by_status(exc, profile, rule))

    def _inside(self, exc: BaseException, loaded: bool, depth: int, links: int) -> tuple[Fault | None, Fault | None]:
        evidence, reason = super()._inside(exc, loaded, depth, links)
        self._noted(exc, "inside", None, evidence or reason)
        return evidence, reason

    def _group(self, exceptions: object, depth: int, links: int) -> Fault | None:
        fault = super()._group(exceptions, depth, links)
        if fault is not None:
            self.steps.append(_Step(_NOBODY, "group", None, fault))
        return fault

    def _noted(self, exc: BaseException, how: str, rule: Rule | None, fault: Fault | None) -> Fault | None:
        if fault is not None:
            self.steps.append(_Step(exc, how, rule, fault))
        return fault

    def reason(self, exc: BaseException, fault: Fault) -> tuple[str, Rule | None]:
        """What decided about `exc`, in words, and the rule if it was one."""
        if FaultFlag.UNCLASSIFIED in fault.flags and not fault.leaves:
            return "no rule knows it, nor what lies inside it: INTERNAL, never retried and never counted", None
        told = [step for step in self.steps if _alike(step.fault, fault)]
        own = [step for step in told if step.exc is exc]
        if not own:
            if told and told[-1].how == "group":
                return f"the highest kind of its {len(fault.leaves)} leaves", None
            if not isinstance(exc, Exception):
                return "it is no Exception, so the caller gave up", None
            return "the exception says so itself: fault_kind", None
        last = own[-1]
        if last.how == "inside":
            inner, rule = self._inner(exc, told)
            return f"what lies inside it: {inner}", rule
        by_status = next((step for step in own if step.how == "status"), None)
        if by_status is not None:
            return f"the HTTP status {fault.status}", by_status.rule
        inner_steps = [step for step in told if step.exc is not exc and step.exc is not _NOBODY]
        if last.rule is not None and inner_steps and (last.rule.unwrap is not None or last.rule.chain):
            inner, _ = self._inner(exc, told)
            return f"what lies inside it: {inner}", last.rule
        return _in_words(last.rule), last.rule

    def _inner(self, exc: BaseException, told: list[_Step]) -> tuple[str, Rule | None]:
        step = next((step for step in told if step.exc is not exc and step.exc is not _NOBODY), None)
        if step is None:
            return "an exception further down", None
        name = ".".join(name_of(type(step.exc)))
        what = f"the HTTP status {step.fault.status}" if step.how == "status" else _in_words(step.rule)
        return f"{name}, by {what}", step.rule


_NOBODY = Exception()


def _alike(one: Fault, other: Fault) -> bool:
    """Whether both say the same, but for a promise that is taken back on the way up."""
    return (one.kind, one.flags - {FaultFlag.UNSENT}, one.status, one.code, one.origin) == (
        other.kind,
        other.flags - {FaultFlag.UNSENT},
        other.status,
        other.code,
        other.origin,
    )


def _without_shortcuts(profile: Profile) -> Profile:
    """The same, so that every instance is looked at rule by rule."""
    plain = copy.copy(profile)
    plain.always = plain.when_bare = None
    return plain


def _in_words(rule: Rule | None) -> str:
    if rule is None:
        return "what it is"
    if rule.match is None:
        return "a rule that is a function"
    entry = entry_of(rule)
    return f"the rule for {_shown(rule.match)}" + (f", when {entry.when}" if entry.when else "")


def _shown(match: object) -> str:
    if isinstance(match, type):
        return ".".join(name_of(match))
    return match.replace(":", ".") if isinstance(match, str) else ""


def _family_of(rule: Rule | None) -> str:
    if rule is None or not isinstance(rule.match, str):
        return ""
    segment = rule.match.partition(":")[0]
    return HOMES[segment] if any(rule is other for other in rules_of(segment)) else ""


def _source_of(fault: Fault, rule: Rule | None) -> str:
    if fault.kind not in (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM):
        return "none: a wait would change nothing"
    usual = "the response headers (retry-after-ms, x-ms-retry-after-ms, x-amz-retry-after, retry-after, else the reset of a spent rate limit)"
    own = "" if rule is None else entry_of(rule).retry_after
    return f"{own}, else {usual}" if own else usual
