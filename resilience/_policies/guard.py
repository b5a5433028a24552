"""`guard()`: a block under a breaker.

While the circuit is closed nothing has to be remembered per use, so one object serves
every block of that episode, nested and in any task: entering is one comparison, leaving
counts. A block that needs a memory of its own (a probe, a deadline around it, a value
to be judged) gets an object of its own.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from resilience._context import DEADLINE, mark_probe, unmark_probe
from resilience._core.permit import Permit
from resilience._core.trip import Unstruck
from resilience._policies.verdicts import interrupted_verdict, settle_error
from resilience._site import fault_of_result
from resilience._words import OnOpen, ProbeEnd, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from resilience._core.circuit import Circuit
    from resilience._core.faults import Fault
    from resilience._policies.circuit_breaker import CircuitBreaker
    from resilience._site import Classify


_here = sys.exception
_deadline = DEADLINE.get


class GuardKit:
    """What all blocks of one breaker reference share: how they judge, and what open means to them.

    Attributes:
        block: the shared block of the last closed episode, for who looks whether that still lasts.
    """

    __slots__ = ("block", "breaker", "circuit", "classify", "judge_result", "on_open")

    def __init__(
        self,
        breaker: CircuitBreaker,
        classify: Classify,
        on_open: OnOpen,
        judge_result: Callable[[Any], object] | None = None,
    ) -> None:
        self.breaker = breaker
        self.circuit = breaker.awake()
        self.classify = classify
        self.on_open = on_open
        self.judge_result = judge_result
        self.block = ClosedBlock(self, breaker.circuit.episode)

    def guard(self) -> Block:
        """The shared block of this closed episode, or one of its own."""
        circuit = self.circuit
        episode = circuit.closed or circuit.closed_windowed
        if not episode or self.judge_result is not None:
            return OwnBlock(self)
        if self.block.episode != episode:
            self.block = ClosedBlock(self, episode)
        return self.block


class Block:
    """A context manager, for `with` and `async with`; entering gives a permit."""

    __slots__ = ()

    def __enter__(self) -> Permit:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Permit:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def judge(self, value: Any) -> Any:
        """Judge a value by the reference's `classify_result` as the outcome of this block; returns the value.

        Raises:
            RuntimeError: the reference has no `classify_result`.
        """
        raise RuntimeError("this guard judges no values: give the reference a classify_result=")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a guard belongs to a running block: it can't be pickled")


class _Nowhere:
    """Stands for a circuit that is never closed: everything is looked at with care."""

    closed = 0
    streak = Unstruck()


_NOWHERE = _Nowhere()


class ClosedBlock(Block):
    """The one object for all blocks of a closed episode."""

    __slots__ = ("_careful", "_circuit", "_kit", "_permit", "_probes", "_ticks", "episode")

    def __init__(self, kit: GuardKit, episode: int) -> None:
        self.episode = episode
        self._kit = kit
        # Whether some use had a block of its own: from then on every use has, so that none leaves another's.
        self._careful = False
        self._probes: tuple[OwnBlock, ...] = ()
        # A window wants to know when a success came, which a tick does not tell.
        self._circuit: Circuit | _Nowhere = _NOWHERE if kit.breaker.config.trip.windowed else kit.circuit
        self._ticks = kit.circuit.totals.successes.ticks
        # For the block to look at, never settled: what the blocks find is reported by episode.
        self._permit = Permit(episode, exempt=True)

    def __enter__(self) -> Permit:
        if self._circuit.closed == self.episode and _here() is None and _deadline() is None:
            return self._permit
        return self._enter_with_care()

    def _enter_with_care(self) -> Permit:
        plain = not self._careful and self._kit.circuit.closed_windowed == self.episode
        if plain and _here() is None and _deadline() is None:
            return self._permit
        # Inside an except block, under a deadline, or kept beyond its episode: this use needs a memory.
        block = OwnBlock(self._kit)
        permit = block.__enter__()
        # From now on every use of this object has one; others get a new object.
        self._circuit, self._careful = _NOWHERE, True
        if self._kit.block is self:
            self._kit.block = ClosedBlock(self._kit, self.episode)
        if permit.probe:
            self._probes = _still_entered(self._probes, block)
        _keep(self, block)
        return permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._circuit.streak.strikes.clean == self.episode:
            next(self._ticks)
        else:
            self._leave_with_care(kind, error, trace)

    def _leave_with_care(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A probe that was entered in another context would else be lost, and a circuit whose every probe is lost
        # never closes. In the episode of this object there is none; a use that has lasted since then has to bear it.
        own = _take_kept(self) or _first_entered(self._probes)
        if own is not None:
            own.__exit__(kind, error, trace)
        elif error is None:
            self._kit.breaker.record(self.episode, Verdict.SUCCESS)
        else:
            _report_error(self._kit, Permit(self.episode), error, None, None)


_MOST_KEPT = 16
_KEPT: ContextVar[tuple[tuple[Block, OwnBlock], ...]] = ContextVar("resilience_kept_guards", default=())


def _keep(shared: Block, block: OwnBlock) -> None:
    """Remember the block that a use of `shared` was given of its own."""
    # Those that were left elsewhere stay here, where nobody can take them away: only the latest are kept.
    _KEPT.set((*_KEPT.get()[1 - _MOST_KEPT :], (shared, block)))


def _take_kept(shared: Block) -> OwnBlock | None:
    """The block that this use was given of its own, unless it was entered in another context."""
    kept = _KEPT.get()
    for place in range(len(kept) - 1, -1, -1):
        if kept[place][0] is shared:
            block = kept[place][1]
            _KEPT.set((*kept[:place], *kept[place + 1 :]))
            # A task that was started inside has inherited it, and may have been the one that left it.
            return block if block.entered else None
    return None


def _still_entered(blocks: tuple[OwnBlock, ...], block: OwnBlock) -> tuple[OwnBlock, ...]:
    """Those that nobody has left yet, and another one."""
    # Of two threads that come at once one may be forgotten: its probe then ends with its lease.
    return (*(known for known in blocks if known.entered), block)


def _first_entered(blocks: tuple[OwnBlock, ...]) -> OwnBlock | None:
    """One that nobody has left yet."""
    return next((block for block in blocks if block.entered), None)


class OwnBlock(Block):
    """A block with a memory: its permit, when it began, what it was inside of.

    Entered again while it is in use, within itself or by another task, that use is given a block of its own.
    """

    __slots__ = ("_fault", "_handled", "_kit", "_others", "_uses")

    def __init__(self, kit: GuardKit) -> None:
        self._kit = kit
        self._uses: list[tuple[Permit, float | None]] = []
        self._others: tuple[OwnBlock, ...] = ()
        self._handled = _here()
        self._fault: Fault | None = None

    @property
    def entered(self) -> bool:
        """Whether somebody is inside."""
        return bool(self._uses)

    def __enter__(self) -> Permit:
        kit = self._kit
        if self._uses:
            block = OwnBlock(kit)
            permit = block.__enter__()
            self._others = _still_entered(self._others, block)
            _keep(self, block)
            return permit
        breaker = kit.breaker
        answer = breaker.acquire()
        if not isinstance(answer, Permit):
            if kit.on_open is not OnOpen.BYPASS:
                raise breaker.refuse(answer)
            breaker.note_bypass()
            answer = Permit(breaker.circuit.episode, exempt=True, bypassed=True)
        self._uses.append((answer, breaker.began() if _deadline() is None else breaker.now()))
        if answer.probe:
            mark_probe(breaker, answer)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        own = _take_kept(self)
        if own is None and not self._uses:
            own = _first_entered(self._others)
        if own is not None:
            own.__exit__(kind, error, trace)
            return
        try:
            permit, started = self._uses.pop()
        except IndexError:
            return  # somebody else has left it meanwhile
        if permit.probe:
            unmark_probe(permit)
        if error is not None:
            _report_error(self._kit, permit, error, self._handled, started)
        else:
            breaker, fault = self._kit.breaker, self._fault
            self._fault = None
            breaker.settle(
                permit, breaker.verdict(fault), fault, took=0.0 if started is None else breaker.took(started)
            )

    def judge(self, value: Any) -> Any:
        judge = self._kit.judge_result
        if judge is None:
            return super().judge(value)
        own = next((block for shared, block in reversed(_KEPT.get()) if shared is self), self)
        own._fault = fault_of_result(judge, value)
        return value


def _report_error(
    kit: GuardKit, permit: Permit, error: BaseException, handled: BaseException | None, started: float | None
) -> None:
    breaker = kit.breaker
    if permit.exempt:
        return
    if isinstance(error, Exception):
        settle_error(breaker, permit, error, kit.classify(error, handled))
    else:
        verdict, fault = interrupted_verdict(breaker, error, breaker.now(), started, None)
        breaker.settle(permit, verdict, fault, ProbeEnd.CANCELLED)
