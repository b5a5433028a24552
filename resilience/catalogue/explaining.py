"""Why an exception is the fault it is: the classifier, watched at work.

For an exception that is at hand, and for one of which only the name and a few facts are
known: then a stand-in is made that carries the facts where its library would keep them.
"""

from __future__ import annotations

import copy
import errno
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from resilience._core.config import BreakerConfig
from resilience._core.faults import may_retry, verdict_of
from resilience._core.reading import mro_of, name_of, segment_of
from resilience._core.rule import spellings
from resilience._core.unwrap import Walk
from resilience._words import FaultFlag, FaultKind, Verdict
from resilience.catalogue.conditions import MESSAGE, STATUS
from resilience.catalogue.listing import entry_of, text_of
from resilience.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resilience._core.faults import Fault
    from resilience._core.profile import Profile
    from resilience._core.rule import Rule
    from resilience._core.rules import Classifier
    from resilience.catalogue.conditions import Field

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
    watched.classify(exc)
    why, rule = watched.reason(exc, fault)
    config = BreakerConfig()
    return Explanation(
        ".".join(name_of(type(exc))),
        fault,
        why,
        "" if rule is None else _shown(rule.match),
        _family_of(rule),
        may_retry(fault, retry_on=_RETRY_ON, idempotent=True, safe_only=False),
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
        super().__init__(lambda kind: _without_shortcuts(classifier.profile_of(kind)), *classifier.surroundings, None)
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
        told = [step for step in self.steps if step.fault == fault]
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
    from resilience.catalogue import HOMES, rules_of

    if rule is None or not isinstance(rule.match, str):
        return ""
    segment = rule.match.partition(":")[0]
    return HOMES[segment] if any(rule is other for other in rules_of(segment)) else ""


def _source_of(fault: Fault, rule: Rule | None) -> str:
    if fault.kind not in (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM):
        return "none: a wait would change nothing"
    usual = "the response headers (retry-after-ms, x-ms-retry-after-ms, x-amz-retry-after, retry-after), where there are any"
    if rule is None or not (rule.retry_after or rule.headers):
        return usual
    return f"{text_of(rule.retry_after or rule.headers)}, else {usual}"


# ------------------------------------------------------------------------------------------------ stand-ins
def stand_in(
    name: str,
    *,
    status: int | None = None,
    code: str | None = None,
    message: str = "",
    headers: Mapping[str, str] | None = None,
    cause: str | None = None,
    load: bool = False,
) -> BaseException:
    """Make an exception of which only the name and a few facts are known.

    Args:
        name: the dotted name of its class, such as `openai.RateLimitError`.
        status: the HTTP status it carries (default: none).
        code: the library's own error code: a word, SQLSTATE, number or gRPC status (default: none).
        message: its text (default: empty).
        headers: the response's headers (default: none).
        cause: the dotted name of the class of its cause (default: none).
        load: import the class, so that its bases are known too (default: only what the standard
            library defines is).

    Raises:
        ConfigurationError: `name` or `cause` names no exception class, or its module can't be imported.
    """
    kind = _class_of("exception", name, load)
    exc: Any = kind.__new__(kind)
    if kind is OSError and hasattr(errno, code or ""):
        # Python chooses the class by the number.
        exc = OSError(getattr(errno, code or ""), message)
    if message:
        exc.args = (message,)
    if headers:
        exc.headers = dict(headers)
    fields = _fields_of(kind)
    if code is not None:
        _put_code(exc, fields, code)
    if message:
        for field in fields:
            if field.role == "text" and field is not MESSAGE:
                field.put(exc, message)
    if status is not None:
        STATUS.put(exc, status)
    if cause is not None:
        reason = _class_of("cause", cause, load)
        exc.__cause__ = reason.__new__(reason)
    return exc  # type: ignore[no-any-return]  # an instance of `kind`


def _put_code(exc: Any, fields: list[Field], code: str) -> None:
    codes = [field for field in fields if field.role == "code"]
    for field in codes:
        if not field.number:
            field.put(exc, code)
        elif code.removeprefix("-").isdecimal():
            field.put(exc, int(code))
    if not codes:
        exc.code = code


def _fields_of(kind: type) -> list[Field]:
    """The facts that the catalogue's rules for this class and its bases ask for, each once."""
    from resilience.catalogue import rules_of

    found: dict[int, Field] = {}
    for base in mro_of(kind):
        module, qualname = name_of(base)
        for rule in rules_of(segment_of(module)):
            if str(rule.match).partition(":")[2] == qualname:
                for field in getattr(rule.when, "fields", ()):
                    found[id(field)] = field
    return list(found.values())


def _class_of(parameter: str, name: str, load: bool) -> type[BaseException]:
    module, _, qualname = name.rpartition(".")
    module = module or "builtins"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{parameter} must be the dotted name of an exception class, got {name!r}")
    if not load and module.partition(".")[0] not in sys.stdlib_module_names:
        return type(qualname, (Exception,), {"__module__": module})
    try:
        found = _imported(name)
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigurationError(
            f"{parameter} must be in a module that can be imported, {name!r} raised {error!r}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ConfigurationError(f"{parameter} must be the name of an exception class, and {name!r} is none")
    return found


def _imported(name: str) -> object:
    parts = name.split(".") if "." in name else ["builtins", name]
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found
    return None


def is_named(name: str) -> bool:
    """Whether a rule of the catalogue is about exactly this class."""
    from resilience.catalogue import rules_of

    return any(
        rule.match == f"{segment}:{qualname}" for segment, qualname in spellings(name) for rule in rules_of(segment)
    )
