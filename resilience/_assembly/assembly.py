"""One decorated function, assembled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from resilience._assembly.closure import budget_closure, choose_shape, make_closure, shared_closure
from resilience._assembly.fitting import check_fit
from resilience._assembly.parts import Parts
from resilience._assembly.runner import Runner
from resilience._assembly.telling import described_layers
from resilience._describe import Description
from resilience._settings import Policy, one_of_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.retry_budget import CallSlice
    from resilience._engine.kinds import Kind
    from resilience._policies.bulkhead import SharedBulkhead
    from resilience._policies.retry_budget import BudgetReference


class Assembly:
    """What a wrapper is made from.

    Attributes:
        kind: what calling the function gives.
        description: what `describe` tells.
        shape: of the straight path, None where every call takes the plan.
        closure: what the straight path's source names.
        run: the plan as a function of the same kind (sync or async) as the protected one.
        filled_in: the parameter that `pass_as` names.
        on_found: called with names for the closure, once it is known what they mean.

    Raises:
        ConfigurationError: two policies of a kind, or one that this function can't carry.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        policies: tuple[Policy, ...],
        kind: Kind,
        label: str,
        own_bulkhead: SharedBulkhead | None = None,
    ) -> None:
        self.kind = kind
        given = one_of_each(policies)
        check_fit(given, fn, kind, label)
        parts = self._parts = Parts(given, fn, kind, label, own_bulkhead)
        self._runner = _make_runner(parts, kind)
        self.run: Callable[..., Any] = self._first_run if parts.pending else self._runner.run
        self.shape = choose_shape(parts, kind)
        self.closure = {} if self.shape is None else make_closure(parts, self._runner, kind)
        if parts.pending:
            self.closure["slow"] = self.run
        if self.closure and parts.retry is not None:
            self.closure["fn"] = self._first_attempt
            if parts.retry.budget is not None and parts.retry.budget.found is None:
                self.closure["next_slice"] = partial(self._first_slice, parts.retry.budget)
        self.filled_in = None if given.timeout is None else given.timeout.pass_as
        self.on_found: Callable[[dict[str, Any]], None] = _nobody_waits
        breaker, bulkhead = parts.breaker, parts.bulkhead
        if breaker is not None and breaker.keys is not None:
            breaker.keys.on_family = lambda family: self.on_found({"members": family.members})
        if bulkhead is not None and bulkhead.keys is not None:
            bulkhead.keys.on_family = lambda family: self.on_found({"rooms": family.members})
        self.description = Description(
            label,
            fn,
            policies,
            described_layers(given, label),
            None if breaker is None else lambda: breaker.shared,
            None if bulkhead is None else lambda: bulkhead.shared,
            None if parts.retry is None or parts.retry.budget is None else parts.retry.budget.resolve,
            parts.own_bulkhead,
        )

    def _first_run(self, /, *args: Any, **kwargs: Any) -> Any:
        """The first call: find what the references mean, then go on as ever."""
        self._parts.find()
        self.on_found(shared_closure(self._parts, self._runner))
        return self._runner.run(*args, **kwargs)

    def _first_slice(self, reference: BudgetReference) -> CallSlice:
        """Where the first call on the straight path counts: find which retry budget the reference means."""
        budget = reference.resolve()
        self.on_found(budget_closure(reference))
        return budget.next_slice()

    def _first_attempt(self, /, *args: Any, **kwargs: Any) -> Any:
        """In the function's place on the straight path, once: the retry looks at the arguments it will see."""
        fn, retry = self._parts.site.fn, self._parts.retry
        self.on_found({"fn": fn})
        if retry is not None:
            retry.look_at(args, kwargs)
        return fn(*args, **kwargs)


def _make_runner(parts: Parts, kind: Kind) -> Runner:
    if not kind.is_stream:
        return Runner(parts, kind)
    # Only now: most functions give no stream.
    from resilience._assembly.stream_runner import StreamRunner

    return StreamRunner(parts, kind)


def _nobody_waits(closure: dict[str, Any]) -> None:
    """For a wrapper that takes the plan for every call."""
