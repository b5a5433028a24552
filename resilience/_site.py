"""A call site and one call: what every layer of a decorated function shares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from resilience._context import DEADLINE
from resilience._core import deadline as deadlines
from resilience._core.events import TimedOut
from resilience._core.faults import Fault, FaultFlag, FaultKind
from resilience._events import warn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Protocol

    from resilience._clock import Clock
    from resilience._core.deadline import Deadline
    from resilience._core.outcome import Outcome
    from resilience._core.slots import Ticket
    from resilience._events import Hub

    Classify = Callable[[BaseException, BaseException | None], Fault]
    Inner = Callable[["Call"], Awaitable[Outcome]]


class Site:
    """The fixed facts of one call site.

    Attributes:
        fn: the protected function.
        label: `module:qualname`, for logs and events.
        services: the registry's clock and hub.
        timed: whether a call must know when it was entered.
        pass_as: the parameter that is handed the seconds left, or None.
        pass_at: its place among the positional ones, None where it is given by name only.
        per_attempt: the limit of one attempt in seconds, or None.
        first_item, idle: the limits of a stream up to its first item, and for each further one.
        budget: the limit of a whole call in seconds, or None.
        counts: whether our own deadlines count against the breaker.
        uninterruptible: whether an attempt once begun is waited for, whatever is cancelled.
        bare: what the site's classifier knows of exceptions that carry nothing but texts, by their type.
        judge_result: tells which returned values are faults, or None.
    """

    def __init__(self, fn: Callable[..., Any], label: str, services: Services, classify: Classify) -> None:
        self.fn = fn
        self.label = label
        self.services = services
        self.timed = False
        self.pass_as: str | None = None
        self.pass_at: int | None = None
        self.per_attempt: float | None = None
        self.counts = True
        self.first_item: float | None = None
        self.idle: float | None = None
        self.budget: float | None = None
        self.uninterruptible = False
        self.judge_result: Callable[[Any], object] | None = None
        self.bare: dict[type, Fault] = getattr(getattr(classify, "__self__", None), "bare", {})
        self._classify = classify
        self._told: set[str] = set()

    # ------------------------------------------------------------------------------------------------ judging
    def classify(self, error: BaseException, handled: BaseException | None) -> Fault:
        """The fault behind an exception; one that no rule knows is told once, since it will never trip."""
        fault = self._classify(error, handled)
        if fault.flags and _UNCLASSIFIED in fault.flags:
            self._tell(error, by_classifier=fault.code == CLASSIFIER_RAISED)
        return fault

    def judge(self, call: Call, outcome: Outcome) -> Fault | None:
        """The fault of an outcome, None for a success; worked out once."""
        if not outcome.judged:
            outcome.judged = True
            if outcome.error is not None:
                outcome.fault = self.classify(outcome.error, call.handled)
            elif self.judge_result is not None:
                outcome.fault = fault_of_result(self.judge_result, outcome.value)
        return outcome.fault

    def tell_expiry(self, deadline: Deadline) -> None:
        """Tell listeners that a limit of this site has run out."""
        hub = self.services.hub
        if hub.wants(TimedOut):
            hub.publish(TimedOut(name=self.label, scope=deadline.scope, seconds=deadline.seconds))

    def is_first(self, what: str) -> bool:
        """Whether a thing that is told once for a site is to be told now."""
        if what in self._told or len(self._told) >= _TOLD_TYPES:
            return False
        self._told.add(what)
        return True

    def _tell(self, error: BaseException, *, by_classifier: bool) -> None:
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}"
        self.services.hub.tally(f"unclassified:{name}")
        if self.is_first(name):
            if by_classifier:
                warn(
                    "%s: classify= raised while it looked at %s, which is therefore never retried and never opens a circuit",
                    self.label,
                    name,
                )
                return
            warn(
                "%s: %s is no fault that any rule knows, so it is never retried and never opens a circuit; "
                "if it means that the remote failed, say so: put fault_kind = FaultKind.TRANSIENT on it, or "
                "resilience.catalogue.default_classifier().add(%s, FaultKind.TRANSIENT)",
                self.label,
                name,
                kind.__qualname__,
            )

    # ------------------------------------------------------------------------------------------------ time
    def left(self, call: Call) -> float | None:
        """Seconds until the nearest deadline around the caller, or this call's own budget, runs out; None without."""
        deadline = DEADLINE.get()
        if deadline is None and self.budget is None:
            return None
        nearest = deadlines.nearest(deadline)
        expires = None if nearest is None else nearest.expires
        if self.budget is not None and call.entered is not None:
            own = call.entered + self.budget
            expires = own if expires is None else min(expires, own)
        return None if expires is None else expires - self.services.now()


class Call:
    """One call on its way through the plan.

    Attributes:
        site, world: where it is made, and how attempts are performed.
        args, kwargs: the function's arguments.
        entered: monotonic seconds at entry; None where no budget of this call has to be watched by the plan.
        handled: the exception that was being handled when the call began.
        attempt: the number of the attempt under way; 1 is the first.
        probed: the last attempt was a probe of a half-open circuit.
        breaker: the breaker that is asked and told, once it has been found.
        permit: the latest permit of a call that is reported on as a whole.
        exempt: the call neither asks nor feeds the breaker.
        bulkhead, slot: the bulkhead it holds a slot of, and the slot (None: an orphan took it over).
        cancelled: a cancel that came while an uninterruptible attempt was running.
    """

    __slots__ = (
        "args",
        "attempt",
        "breaker",
        "bulkhead",
        "cancelled",
        "entered",
        "exempt",
        "handled",
        "kwargs",
        "permit",
        "probed",
        "site",
        "slot",
        "world",
    )

    def __init__(self, site: Site, world: World, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.site = site
        self.world = world
        self.args = args
        self.kwargs = kwargs
        self.handled = sys.exception()
        self.entered: float | None = None
        self.attempt = 1
        self.breaker: Any = None
        self.permit: Any = None
        self.probed = self.exempt = False
        self.bulkhead: SlotHolder | None = None
        self.slot: int | None = None
        self.cancelled: BaseException | None = None

    delivered = False
    """The consumer of a stream has been given something."""
    watched = True
    """How long the attempt under way takes can be told; a stream's only where somebody said before it that he wants to know."""
    answered_at: float | None = None
    """When the attempt under way gave its first item, where it is a stream's and somebody wants to know."""

    def watch(self) -> None:
        """Before an attempt: somebody wants to know how long it takes."""

    def skip(self) -> None:
        """Note that the call was skipped: its value is the call site's fallback."""

    def since(self, started: float | None) -> float | None:
        """Since when an attempt that began at `started` has been in flight."""
        return started


CLASSIFIER_RAISED = "classifier_raised"
"""The code of a fault that stands for a `classify=` which raised."""
_TOLD_TYPES = 256
# Spelled out, an enum's member costs more than the rest of the line on Python 3.11.
_UNCLASSIFIED = FaultFlag.UNCLASSIFIED
_SEEN_KINDS = {kind: Fault(kind) for kind in FaultKind}


def fault_of_result(judge: Callable[[Any], object], value: Any) -> Fault | None:
    """What `classify_result` says of a returned value; one that raises or says nonsense gives INTERNAL."""
    try:
        said = judge(value)
    except Exception:
        return Fault(FaultKind.INTERNAL, frozenset({FaultFlag.UNCLASSIFIED}))
    if said is None or said is False:
        return None
    if isinstance(said, Fault):
        return said
    if isinstance(said, FaultKind):
        return _SEEN_KINDS[said]
    return Fault(FaultKind.INTERNAL, frozenset({FaultFlag.UNCLASSIFIED}))


# For type checkers only: a protocol takes its time to make, which everybody would pay for at import.
if TYPE_CHECKING:

    class Services(Protocol):
        """What a registry offers to the breakers, bulkheads and call sites that belong to it."""

        hub: Hub
        now: Callable[[], float]
        """Monotonic seconds on the clock of the moment."""

        @property
        def clock(self) -> Clock:
            """What is asked for time, at the moment it is needed."""

        @property
        def is_real(self) -> bool:
            """Whether that is the system's."""

    class World(Protocol):
        """What a plan may await besides the layers inside it: one for threads, one for asyncio."""

        adopted: bool
        """The first attempt has been begun before the plan: by the plain function that returned what is awaited."""

        async def attempt(self, call: Call) -> Outcome:
            """Run the function once."""

        async def sleep(self, seconds: float) -> None:
            """Wait between attempts."""

        async def wait(self, ticket: Ticket, seconds: float, ready: Callable[[], object]) -> None:
            """Stand in line for at most `seconds`; `ready()` is called once the ticket can be woken."""

        async def bounded(self, deadline: Deadline, call: Call, inner: Inner) -> Outcome:
            """Run the layers inside under a deadline; its expiry is an outcome with `TimeoutExceeded`."""

        async def invoke(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
            """Call a fallback."""

    class SlotHolder(Protocol):
        """What an orphaned attempt needs of the bulkhead whose slot it keeps."""

        name: str

        def take(self) -> int | None:
            """A free slot without waiting, or None."""

        def give(self, slot: int) -> None:
            """Give a slot back."""
