"""What a policy means by its retry budget: a name, shared settings, or one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resilience._policies.retry_budget import BudgetReference, SharedRetryBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from resilience._core.retry_budget import RetryBudget
    from resilience._registry import Registry


def refer_to_budget(
    given: RetryBudget | str, home: Registry, find_own: Callable[[RetryBudget], SharedRetryBudget]
) -> BudgetReference:
    """A reference to a budget in a registry; one without a name is `find_own`'s."""
    if isinstance(given, str):
        reference = BudgetReference(lambda: home.retry_budget(given))
        if home.get_retry_budget(given) is None:
            return reference
    elif (name := given.name) is not None:
        reference = BudgetReference(lambda: home.retry_budget(name, given))
    else:
        reference = BudgetReference(lambda: find_own(given))
    reference.resolve()
    return reference


def make_own_budget(given: RetryBudget, label: str, home: Registry) -> SharedRetryBudget:
    """A budget that is in no registry, and follows the clock and forks of one."""
    own = SharedRetryBudget(label, given, home)
    home.watch_clock(own)
    home.watch_fork(own)
    return own
