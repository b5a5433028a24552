"""Looking at one exception and at what lies inside it, without ever getting lost.

`__context__` lies unless one knows where the call began: "connection closed", raised
inside somebody's `except SSLCertVerificationError:` block, carries that unrelated
error. So the walk stops at the exception that was being handled when the call began.
It is bounded in depth and in nodes, remembers by `id()` what it has seen, and never
looks below a timeout: `asyncio.wait_for` and friends keep a CancelledError there, which
would turn a slow remote into "the caller gave up".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._core.faults import Fault, not_surely_unsent, of_group, with_wait
from resilience._core.headers import lookup_in, lookups_of
from resilience._core.links import links_of
from resilience._core.profile import believed_flags, is_bare
from resilience._core.reading import ask, holds, is_exception, members_of, name_of, plain_text, read, segment_of
from resilience._core.reset import wait_beside
from resilience._core.retry_after import parse_retry_after, retry_after_of
from resilience._core.status import judged, read_status, read_wish
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.headers import Lookup
    from resilience._core.profile import Profile
    from resilience._core.rule import Rule

MAX_NODES = 256
MAX_DEPTH = 16
MAX_LINKS = 8
_LONGEST_CODE = 64

_PENDING = Fault(FaultKind.INTERNAL)

# Only these say something about the remote: an inner exception of such a kind is
# evidence, whatever the outer one's base class suggests.
_EVIDENCE = (FaultKind.TRANSIENT, FaultKind.DOWNSTREAM)
# Where errors of the operating system and of the interpreter are defined.
_SYSTEM = frozenset({"asyncio", "builtins", "socket", "ssl"})
# A reason for the outer exception if it was named as one (`raise ... from`). Merely
# being handled at the time is none: `except KeyError:` around a cache is everywhere.
_NAMED_REASON = (FaultKind.VALIDATION, FaultKind.CONTRACT)


class Walk:
    """One exception being classified.

    Args:
        profile_of: what the classifier knows of a type.
        otherwise: the kind of what nobody knows, None for INTERNAL.
        wall: wall-clock seconds since the epoch, None if nobody knows.
        on_junk: called for a Retry-After that can't be read.
        handled: the exception that was being handled when the call began.
    """

    __slots__ = ("_cut", "_handled", "_left", "_on_junk", "_otherwise", "_profile_of", "_seen", "_wall")

    def __init__(
        self,
        profile_of: Callable[[type], Profile],
        otherwise: FaultKind | None,
        wall: Callable[[], float] | None,
        on_junk: Callable[[], object] | None,
        handled: BaseException | None,
    ) -> None:
        self._profile_of = profile_of
        self._otherwise = otherwise
        self._wall = wall
        self._on_junk = on_junk
        self._handled = handled
        self._left = MAX_NODES
        self._cut = False
        # The exception stands beside its fault so that its id is not given to another meanwhile.
        self._seen: dict[int, tuple[BaseException, Fault | None]] = {}

    def classify(self, exc: BaseException) -> Fault:
        """The fault behind `exc`, also where nobody knows it."""
        fault = self._known(exc, 0, 0)
        return self._unknown(exc) if fault is None else fault

    # ------------------------------------------------------------------------------------------------ one exception
    def _known(self, exc: BaseException, depth: int, links: int) -> Fault | None:
        """The fault behind `exc`, None if nobody knows it, we have been here, or the budget is spent."""
        if depth > MAX_DEPTH or self._left <= 0:
            self._cut = True
            return None
        key = id(exc)
        if key in self._seen:
            return None if self._is_pending(exc) else self._seen[key][1]
        self._left -= 1
        profile = self._profile_of(type(exc))
        if profile.when_bare is not None and is_bare(exc):
            return None if profile.nobody_knows else profile.when_bare
        self._seen[key] = (exc, _PENDING)
        fault = self._decide(exc, profile, depth, links)
        self._seen[key] = (exc, fault)
        return fault

    def _is_pending(self, exc: BaseException) -> bool:
        """Whether we are below `exc` right now: it contains itself."""
        return id(exc) in self._seen and self._seen[id(exc)][1] is _PENDING

    def _decide(self, exc: BaseException, profile: Profile, depth: int, links: int) -> Fault | None:
        loaded = not profile.plain or bool(exc.__dict__)
        if profile.interrupts:
            group = self._group(read(exc, "exceptions"), depth, links) if profile.is_group else None
            return group or Fault(FaultKind.INTERRUPTED, profile.interrupt_flags, origin=profile.name)
        believed = read(exc, "fault_kind")
        if type(believed) is FaultKind:
            flags = believed_flags(read(exc, "fault_flags"))
            return self._fault(exc, profile, loaded, believed, flags, read(exc, "code"))
        for rule in profile.rules:
            fault = self._by_rule(rule, exc, profile, loaded, depth, links)
            if fault is not None:
                return fault
        if profile.is_group:
            return self._group(read(exc, "exceptions"), depth, links)
        if loaded:
            fault = self._by_status(exc, profile, None)
            if fault is not None:
                return fault
        evidence, reason = (None, None) if profile.is_timeout else self._inside(exc, loaded, depth, links)
        if evidence is not None:
            wait = self._wait_of(exc, lookups_of(exc)) if loaded else None
            return evidence if wait is None else with_wait(evidence, wait)
        for rule in profile.bases:
            fault = self._by_rule(rule, exc, profile, loaded, depth, links)
            if fault is None:
                continue
            if fault.kind is not FaultKind.INTERNAL:
                return fault
            if reason is None:
                return None if profile.is_guess(fault.kind, fault.flags) else fault
            break
        return reason

    def _by_rule(
        self, rule: Rule, exc: BaseException, profile: Profile, loaded: bool, depth: int, links: int
    ) -> Fault | None:
        if rule.predicate is not None and not rule.predicate(exc):
            return None
        if rule.when is not None and not holds(rule.when, exc):
            return None
        if rule.below is not None and not holds(rule.below, self._below(exc)):
            return None
        fault = None
        if rule.unwrap is not None and links < MAX_LINKS:
            inner = read(exc, rule.unwrap) if isinstance(rule.unwrap, str) else ask(rule.unwrap, exc)
            if is_exception(inner):
                fault = None if inner is self._handled else self._known(inner, depth + 1, links + 1)
            else:
                fault = self._group(inner, depth, links)
        elif rule.chain:
            fault, _ = self._inside(exc, loaded, depth, links)
        elif rule.by_status:
            fault = self._by_status(exc, profile, rule)
        if fault is not None or rule.kind is None:
            return fault
        code = None if rule.code is None else ask(rule.code, exc)
        return self._fault(exc, profile, loaded, rule.kind, rule.flags, code, rule)

    def _by_status(self, exc: BaseException, profile: Profile, rule: Rule | None) -> Fault | None:
        status = read_status(exc)
        if status is None:
            return None
        headers = _lookups(exc, rule)
        meaning = judged(status, read_wish(headers))
        if meaning is None:
            return None
        kind, flags = meaning
        wait = self._wait_by(rule, exc, status, headers) if kind in _EVIDENCE else None
        code = None if rule is None or rule.code is None else ask(rule.code, exc)
        return Fault(kind, flags, status, _short(code), wait, profile.name)

    # ------------------------------------------------------------------------------------------------ what is inside
    def _inside(self, exc: BaseException, loaded: bool, depth: int, links: int) -> tuple[Fault | None, Fault | None]:
        """The evidence found along the chain, and the first reason that was named as one."""
        if links >= MAX_LINKS:
            return None, None
        reason = None
        for child, named in links_of(exc, loaded):
            if child is self._handled:
                continue
            fault = self._known(child, depth + 1, links + 1)
            if fault is None:
                continue
            if fault.kind in _EVIDENCE:
                return (fault if named else not_surely_unsent(fault)), None
            if named and reason is None and fault.kind in _NAMED_REASON:
                reason = fault
        if loaded:
            group = self._group(read(exc, "exceptions"), depth, links + 1)
            if group is not None and group.kind in _EVIDENCE:
                return group, None
        return None, reason

    def _group(self, exceptions: object, depth: int, links: int) -> Fault | None:
        """The fault of an exception group with these members; None if there are none."""
        room = self._left
        members = members_of(exceptions, room + 1)
        leaves: list[Fault] = []
        # The leaves of a group inside keep no waits of their own: it has the longest of them.
        wait: float | None = None
        outer_cut, self._cut = self._cut, len(members) > room
        for member in members:
            # Leaves are bounded by themselves: a group that was met before costs nothing and brings all of its own.
            if self._left <= 0 or len(leaves) >= MAX_NODES:
                self._cut = True
                break
            if is_exception(member) and not self._is_pending(member):
                fault = self._known(member, depth + 1, links) or self._unknown(member)
                leaves.extend(fault.leaves or (fault,))
                if fault.retry_after is not None:
                    wait = max(fault.retry_after, wait or 0.0)
        complete = not self._cut
        self._cut = outer_cut or self._cut
        if not leaves:
            return None
        found = of_group(leaves, complete=complete)
        return found if wait is None else with_wait(found, wait)

    def _below(self, exc: BaseException) -> list[BaseException]:
        """Everything along the chain below `exc`, nearest first, that can be a reason of it."""
        found: list[BaseException] = []
        seen = {id(exc), id(self._handled)}
        level = [exc]
        for _ in range(MAX_LINKS):
            deeper: list[BaseException] = []
            for node in level:
                if issubclass(type(node), TimeoutError):
                    continue
                for child, named in links_of(node, True):
                    if not named and not _tells_why(node, child):
                        continue
                    if id(child) not in seen and self._left > 0:
                        self._left -= 1
                        seen.add(id(child))
                        deeper.append(child)
            found += deeper
            level = deeper
        return found

    # ------------------------------------------------------------------------------------------------ the answer
    def _fault(
        self,
        exc: BaseException,
        profile: Profile,
        loaded: bool,
        kind: FaultKind,
        flags: frozenset[FaultFlag],
        code: object = None,
        rule: Rule | None = None,
    ) -> Fault:
        status = read_status(exc) if loaded and (rule is None or rule.has_status) else None
        wait = None
        if kind in _EVIDENCE:
            wait = self._wait_by(rule, exc, status, _lookups(exc, rule) if loaded else None)
        return Fault(kind, flags, status, _short(code), wait, profile.name)

    def _wait_by(
        self, rule: Rule | None, exc: BaseException, status: int | None, headers: list[Lookup] | None
    ) -> float | None:
        """The wait that was asked for: where the rule says it stands, else in the usual places (None: there are none)."""
        wait = None
        if rule is not None and rule.retry_after is not None:
            wait = parse_retry_after(ask(rule.retry_after, exc), now=self._now())
        if wait is not None or headers is None:
            return wait
        wait = self._wait_of(exc, headers)
        return wait_beside(status, headers, self._now) if wait is None else wait

    def _unknown(self, exc: BaseException) -> Fault:
        profile = self._profile_of(type(exc))
        if profile.plain and not exc.__dict__:
            # The same again for each of thousands in a group.
            known = profile.when_bare if profile.nobody_knows else None
            return profile.unknown(self._otherwise) if known is None else known
        wait = None if self._otherwise is None else self._wait_of(exc, lookups_of(exc))
        return profile.unknown(self._otherwise, read_status(exc), wait)

    def _wait_of(self, exc: BaseException, headers: list[Lookup]) -> float | None:
        return retry_after_of(exc, headers, now=self._now() if headers else 0.0, on_junk=self._on_junk)

    def _now(self) -> float:
        return 0.0 if self._wall is None else self._wall()


def _tells_why(exc: BaseException, context: BaseException) -> bool:
    """Whether what was being handled when `exc` was raised is what `exc` is about.

    Redis, pymysql and others raise their own class while they handle an error of the
    system, and name no cause. Anything else that was being handled may be the failure of
    a call before this one, and whatever the system itself raises is about nothing else.
    """
    if exc.__cause__ is not None:
        return False
    if exc.__suppress_context__:
        return True
    return not _is_of_the_system(exc) and _is_of_the_system(context)


def _is_of_the_system(exc: BaseException) -> bool:
    return segment_of(name_of(type(exc))[0]) in _SYSTEM


def _lookups(exc: BaseException, rule: Rule | None) -> list[Lookup]:
    """The exception's headers, those first that only its rule can find."""
    found = lookups_of(exc)
    if rule is not None and rule.headers is not None:
        odd = ask(rule.headers, exc)
        if odd is not None:
            found.insert(0, lookup_in(odd))
    return found


def _short(code: object) -> str | None:
    text = plain_text(code, _LONGEST_CODE)
    return text if text and text.isascii() and text.isprintable() else None
