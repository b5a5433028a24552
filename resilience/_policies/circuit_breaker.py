"""The shared breaker: everything a caller or an operator may ask of a named circuit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from resilience._core.checks import Faults, checked
from resilience._core.config import BreakerConfig
from resilience._core.faults import Fault, FaultKind
from resilience._core.permit import Permit
from resilience._core.report import NO_LABELS
from resilience._core.tripping import NEVER
from resilience._policies.attempts import AttemptedCircuit
from resilience._policies.guard import GuardKit
from resilience._policies.status import read_status
from resilience._policies.verdicts import settle_error
from resilience._words import CircuitState, OnOpen, ProbeEnd, Verdict
from resilience.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from resilience._core.report import BreakerStatus
    from resilience._policies.guard import Block
    from resilience._site import Classify, Services

    P = ParamSpec("P")
    R = TypeVar("R")

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
FAIL = OnOpen.FAIL
SUCCESS = Verdict.SUCCESS


class CircuitBreaker(AttemptedCircuit):
    """A named circuit breaker, shared by every call site that uses its name.

    Get one from a registry (`Registry.breaker`, `breaker(name).breaker`), never by
    hand. Safe from any number of threads and event loops.

    Attributes:
        name: its name in the registry.
        config: the settings that hold: those it was first registered with, or of the last `reconfigure`.
        key: its key in a family, None for a breaker that is alone under its name.
        labels: the same by the family's labels.
    """

    __slots__ = ("_classify", "_failing_guards", "_guards", "_home")

    def __init__(
        self, name: str, config: BreakerConfig, services: Services, classify: Classify, home: object = None
    ) -> None:
        super().__init__(name, config, services)
        self._classify = classify
        self._home = home
        self._guards = {on_open: GuardKit(self, classify, on_open) for on_open in OnOpen}
        self._failing_guards = self._guards[FAIL]

    # ------------------------------------------------------------------------------------------------ reading
    @property
    def labels(self) -> Mapping[str, str]:
        """The key by the family's labels; empty for a breaker that is alone under its name."""
        return NO_LABELS

    @property
    def state(self) -> CircuitState:
        """Closed, open or half_open. A cooled open circuit that nobody has asked still reads open."""
        return self.circuit.view.state

    def is_open(self) -> bool:
        """Whether a call at this moment would be refused. Pure: takes no probe, changes nothing.

        False during a ramp, of which nobody can foresee whom it lets through.
        """
        circuit = self.circuit
        if circuit.passing:
            return False
        if 0.0 < circuit.open_until - time.monotonic() <= circuit.open_span:
            return True
        return self.refusal() is not None

    def status(self) -> BreakerStatus:
        """One consistent moment of the breaker, read without its lock."""
        return read_status(self)

    # ------------------------------------------------------------------------------------------------ permits
    def try_acquire(self, on_open: OnOpen = OnOpen.FAIL) -> Permit:
        """Ask for leave to make one attempt, and report on it with `on_success`, `on_failure` or `release`.

        The only way, besides a call through a decorator or guard, to take the probe of
        a cooled circuit. A probe that is never reported comes back when its lease ends.

        Args:
            on_open: FAIL (default) raises; BYPASS returns a permit that is false and judges nothing.

        Raises:
            CircuitOpenError: refused, with the exact time left.
        """
        on_open = checked(OnOpen, "on_open", on_open)
        answer = self.acquire()
        if isinstance(answer, Permit):
            if self.circuit.slow_from != NEVER:
                answer.given_at = self.now()
            return answer
        if on_open is OnOpen.BYPASS:
            self.note_bypass()
            return Permit(self.circuit.episode, exempt=True, bypassed=True)
        raise self.refuse(answer)

    def on_success(self, permit: Permit) -> None:
        """Report that the attempt succeeded. A second report on one permit does nothing.

        With `slow_call` it took as long as the permit was out.
        """
        given_at = permit.given_at
        self.settle(permit, SUCCESS, took=0.0 if given_at is None else self.took(given_at))

    def on_failure(self, permit: Permit, fault: Fault | FaultKind | BaseException) -> None:
        """Report what went wrong: a `Fault`, a `FaultKind`, or the exception to be classified.

        What the fault means to this breaker is its configuration's business: a kind that
        does not trip is neutral.
        """
        known = self._as_fault(fault)
        if isinstance(fault, BaseException) and not permit.exempt and not permit.settled:
            # It may pass a call site of this breaker on its way out, which must not count it again.
            settle_error(self, permit, fault, known)
        else:
            self.settle(permit, self.verdict(known), known)

    def _as_fault(self, reported: object) -> Fault:
        if isinstance(reported, Fault):
            return reported
        if isinstance(reported, FaultKind):
            return Fault(reported)
        if isinstance(reported, BaseException):
            return self._classify(reported, None)
        raise TypeError(f"fault must be a Fault, a FaultKind or an exception, got {shown(reported)}")

    def release(self, permit: Permit, reason: ProbeEnd | str = ProbeEnd.NEUTRAL) -> None:
        """Give the permit back without a word on the remote: the attempt was cancelled, or never made."""
        self.settle(permit, Verdict.NEUTRAL, end=checked(ProbeEnd, "reason", reason))

    def guard(self, on_open: OnOpen = OnOpen.FAIL) -> Block:
        """Protect a block: `with breaker.guard():`, and `async with` alike.

        Args:
            on_open: FAIL (default) raises `CircuitOpenError` on entry. A block can't be
                skipped: with BYPASS it gets a permit that is false, and judges nothing.

        Example:
            >>> with default_registry().breaker("mail", BreakerConfig()).guard() as permit:
            ...     bool(permit)
            True
        """
        if on_open is FAIL:
            block = self._failing_guards.block
            return block if block.episode == self.circuit.closed else self._failing_guards.guard()
        return self._guards[checked(OnOpen, "on_open", on_open)].guard()

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function under the breaker; what a coroutine function returns is guarded when it is awaited."""
        flags = getattr(getattr(fn, "__code__", None), "co_flags", 0)
        if flags & (_GENERATOR | _ASYNC_GENERATOR):
            raise ConfigurationError(
                f"fn must return its result, {shown(fn)} is a generator function: decorate it with breaker(...), "
                "or put guard() around the loop"
            )
        if flags & _COROUTINE:
            return self.acall(fn, *args, **kwargs)  # type: ignore[return-value, arg-type]  # R is the awaitable here
        with self.guard():
            return fn(*args, **kwargs)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and await a coroutine function under the breaker."""
        async with self.guard():
            return await fn(*args, **kwargs)

    # ------------------------------------------------------------------------------------------------ an operator's acts
    def reset(self, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Close the circuit, forget its figures, lift a forced opening; without a ramp.

        Args:
            reason, actor: why, and by whom, for events and logs.

        Returns:
            True; or False, with nothing changed, where it was closed already.

        Raises:
            ConfigurationError: a reason or actor that is no text, or an empty one.
        """
        _check_texts(reason=reason, actor=actor)
        done = self._section(self.circuit.reset, reason, actor)
        return done is not False

    def force_open(self, reason: str, *, seconds: float | None = None, actor: str | None = None) -> None:
        """Refuse everything: until `enable` or `reset`, or for `seconds` and then as after any cooldown.

        Args:
            reason: why; for events and logs.
            seconds: how long (> 0); None (default) until an operator ends it.
            actor: by whom.

        Raises:
            ConfigurationError: no reason, or a value out of its range.
        """
        faults = Faults()
        faults.text("reason", reason)
        if seconds is not None:
            seconds = faults.seconds("seconds", seconds)
        faults.text_or_none("actor", actor)
        faults.raise_any()
        self._section(self.circuit.force_open, reason, seconds, actor)

    def disable(self, *, reason: str | None = None, actor: str | None = None) -> None:
        """Let everything pass and count nothing, until `enable`.

        Raises:
            ConfigurationError: a reason or actor that is no text, or an empty one.
        """
        _check_texts(reason=reason, actor=actor)
        self._section(self.circuit.disable, reason, actor)

    def enable(self, *, actor: str | None = None) -> None:
        """End a forced opening or a disabling: closed, with fresh figures and without a ramp.

        Raises:
            ConfigurationError: an actor that is no text, or an empty one.
        """
        _check_texts(actor=actor)
        self._section(self.circuit.enable, actor)

    # ------------------------------------------------------------------------------------------------ identity
    def reconfigure(self, config: BreakerConfig, *, actor: str | None = None) -> None:
        """Give a live breaker other settings, as one change.

        State, permits in flight and an operator's mode stay, and so do the figures where
        the new settings count the same way: a streak, the failures of a streak within a
        time, the slices of a window whose `bucket` is the same. Other figures start
        afresh. It opens and closes nothing: the next result is judged by the new
        settings, and an open circuit keeps its present end.

        Args:
            config: all settings, not only those that differ.
            actor: by whom, for events and logs.

        Raises:
            ConfigurationError: no `BreakerConfig`, or an actor that is no text; nothing has changed then.

        Example:
            >>> mail = default_registry().breaker("mail", BreakerConfig())
            >>> mail.reconfigure(BreakerConfig(cooldown=5), actor="ann")
            >>> mail.config.cooldown
            5.0
        """
        faults = Faults()
        faults.instance("config", config, BreakerConfig)
        faults.text_or_none("actor", actor)
        faults.raise_any()
        self._section(self.circuit.reconfigure, config, actor)

    def clear_state(self) -> None:
        """Back to closed and zero, as just registered."""
        self._section(self.circuit.clear)
        self.rejected.zero()
        self.bypassed.zero()

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self.state.value}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._home is None:
            raise TypeError(f"circuit breaker {self.name!r} belongs to no registry that could be found again")
        return self._home, (self.name, self.config)


def _check_texts(**given: object) -> None:
    faults = Faults()
    for name, value in given.items():
        faults.text_or_none(name, value)
    faults.raise_any()
