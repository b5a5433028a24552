"""A fault as a value, and the two decisions that are taken from it."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core.faults import Fault, FaultFlag, FaultKind, may_retry, of_group, verdict_of
from resilience._words import Verdict
from resilience.errors import ConfigurationError

VALIDATION, CONTRACT, CONTROL = FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.CONTROL
INTERRUPTED, INTERNAL = FaultKind.INTERRUPTED, FaultKind.INTERNAL
TRANSIENT, DOWNSTREAM = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
REMOTE = frozenset({TRANSIENT, DOWNSTREAM})
FLAGS = frozenset({FaultFlag.UNSENT, FaultFlag.LOCAL})
FULL = Fault(TRANSIENT, {FaultFlag.UNSENT}, 503, "busy", 7.0, "shop.Busy", (Fault(TRANSIENT),))

faults = st.builds(Fault, st.sampled_from(FaultKind), st.frozensets(st.sampled_from(FaultFlag)))


def verdict(*what, trip_on=REMOTE, statuses=frozenset()):
    fault = what[0] if isinstance(what[0], Fault) else Fault(what[0], what[1:])
    return verdict_of(fault, trip_on=frozenset(trip_on), trip_on_status=frozenset(statuses))


def retried(*what, retry_on=REMOTE, idempotent=True, safe_only=False):
    fault = what[0] if isinstance(what[0], Fault) else Fault(what[0], what[1:])
    return may_retry(fault, retry_on=frozenset(retry_on), idempotent=idempotent, safe_only=safe_only)


def group(*leaves, complete=True):
    return of_group(list(leaves), complete=complete)


# ---------------------------------------------------------------------------------------------------- the value
def test_equal_by_value():
    """Two faults with the same fields are the same, also as keys."""
    assert {Fault(TRANSIENT, [FaultFlag.UNSENT])} == {Fault(TRANSIENT, {FaultFlag.UNSENT})}


@pytest.mark.parametrize("other", [Fault(DOWNSTREAM), Fault(TRANSIENT, status=503), "transient", TRANSIENT])
def test_unequal(other):
    """Every field counts, and nothing but a fault equals a fault."""
    assert Fault(TRANSIENT) != other


def test_hashes_differ():
    """Faults that differ in any field are found apart in a set."""
    different = [FULL, Fault(TRANSIENT), Fault(DOWNSTREAM), Fault(TRANSIENT, FLAGS), Fault(TRANSIENT, code="a")]

    assert 5 == len({hash(fault) for fault in different})


def test_frozen():
    """A fault that is shared by many call sites can't be changed by one."""
    with pytest.raises(AttributeError, match="kind can't be set"):
        FULL.kind = INTERNAL
    with pytest.raises(AttributeError, match="kind can't be deleted"):
        del FULL.kind


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol):
    """A fault crosses processes with all its fields."""
    assert pickle.loads(pickle.dumps(FULL, protocol)) == FULL


def test_copies():
    """A copy equals the original."""
    assert copy.deepcopy(FULL) == FULL


def test_has_no_room_for_more():
    """Nobody hangs an exception on a fault by accident."""
    assert not hasattr(FULL, "__dict__")


def test_repr_is_short():
    """The text names what is set and counts the leaves."""
    assert "Fault(FaultKind.TRANSIENT)" == repr(Fault(TRANSIENT))
    assert "Fault(FaultKind.TRANSIENT, flags={local, unsent})" == repr(Fault(TRANSIENT, FLAGS))
    assert (
        "Fault(FaultKind.TRANSIENT, flags={unsent}, status=503, code='busy', retry_after=7.0, "
        "origin='shop.Busy', leaves=1)"
    ) == repr(FULL)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kind": "transient"}, "kind must be a FaultKind, got 'transient'"),
        ({"flags": "unsent"}, "flags must be a collection of FaultFlag, got 'unsent'"),
        ({"flags": ["unsent"]}, "flags must be a collection of FaultFlag, got ['unsent']"),
        *(
            ({"status": value}, f"status must be a whole number in 100-599 or None, got {value!r}")
            for value in (99, 600, True, "503", 503.0)
        ),
        ({"code": 7}, "code must be a str or None, got 7"),
        *(
            ({"retry_after": value}, f"retry_after must be a finite number of seconds >= 0 or None, got {value!r}")
            for value in (-1, -0.5, 1e300, float("inf"), float("nan"), True, "7")
        ),
    ],
)
def test_what_can_be_no_fault(given, text):
    """What would go on to decide waits and open times must be right; the error says what is not."""
    with pytest.raises(ConfigurationError) as caught:
        Fault(**{"kind": TRANSIENT, **given})

    assert (text,) == caught.value.faults


def test_all_that_is_wrong_with_a_fault_is_told_at_once():
    """One error names every field."""
    with pytest.raises(ConfigurationError) as caught:
        Fault(None, [None], 0, 0, -1)

    assert ["kind", "flags", "status", "code", "retry_after"] == [line.split()[0] for line in caught.value.faults]


@pytest.mark.parametrize("given", [{"status": 100}, {"status": 599}, {"retry_after": 0}, {"retry_after": 0.5}])
def test_what_is_just_right(given):
    """The ends of each range belong to it."""
    fault = Fault(TRANSIENT, **given)

    assert given == {name: getattr(fault, name) for name in given}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({}, True),
        ({"code": "busy", "retry_after": 7.0, "origin": "shop.Busy"}, True),
        ({"flags": {FaultFlag.UNSENT}}, False),
        ({"status": 503}, False),
        ({"leaves": (Fault(TRANSIENT),)}, False),
    ],
)
def test_plain(given, plain):
    """Where only the kind decides, a breaker need look at nothing else."""
    assert plain is Fault(TRANSIENT, **given).plain


# ---------------------------------------------------------------------------------------------------- verdicts
@pytest.mark.parametrize("kind", [TRANSIENT, DOWNSTREAM])
def test_remote_failures_count(kind):
    """What the remote got wrong is a failure."""
    assert Verdict.FAILURE is verdict(kind)


@pytest.mark.parametrize("kind", [VALIDATION, CONTRACT, CONTROL, INTERRUPTED])
def test_our_own_affairs_never_count(kind):
    """What says nothing about the remote is neutral, whatever `trip_on` names."""
    assert Verdict.NEUTRAL is verdict(kind, trip_on=FaultKind)


def test_internal_counts_only_on_request():
    """Our own bug counts where the breaker stands around our own code."""
    assert Verdict.NEUTRAL is verdict(INTERNAL)
    assert Verdict.FAILURE is verdict(INTERNAL, trip_on={INTERNAL})


def test_a_kind_left_out_is_neutral():
    """A breaker that counts only outages ignores the rest."""
    assert Verdict.NEUTRAL is verdict(DOWNSTREAM, trip_on={TRANSIENT})


@pytest.mark.parametrize("flag", [FaultFlag.CLIENT_FAULT, FaultFlag.CONTENTION])
@pytest.mark.parametrize("kind", [TRANSIENT, DOWNSTREAM])
def test_a_refusal_is_an_answer(kind, flag):
    """The remote is alive and said no."""
    assert Verdict.ANSWERED is verdict(kind, flag)


def test_a_refusal_of_another_kind_is_no_answer():
    """A flag alone does not turn a domain error into an answer of the remote."""
    assert Verdict.NEUTRAL is verdict(CONTRACT, FaultFlag.CONTENTION)


@pytest.mark.parametrize("flag", [FaultFlag.SATURATION, FaultFlag.LOCAL])
def test_who_was_not_asked_did_not_fail(flag):
    """The mildest flag wins: a full pool of ours says nothing, whatever else is said."""
    fault = Fault(TRANSIENT, {flag, FaultFlag.CLIENT_FAULT}, status=401)

    assert Verdict.NEUTRAL is verdict(fault, statuses={401})


@pytest.mark.parametrize("flag", [FaultFlag.QUOTA, FaultFlag.CONFIG, FaultFlag.AMBIGUOUS, FaultFlag.UNSENT])
def test_other_flags_do_not_matter_to_a_breaker(flag):
    """Whether it may be sent again is no concern of the breaker's."""
    assert Verdict.FAILURE is verdict(DOWNSTREAM, flag)


def test_a_status_can_be_opted_in():
    """A revoked platform key opens the circuit where somebody says so."""
    refused = Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=401)

    assert Verdict.ANSWERED is verdict(refused, statuses={403})
    assert Verdict.FAILURE is verdict(refused, statuses={401, 403})


def test_no_status_makes_an_interruption_count():
    """A caller who gave up is no failure, whatever the exception carried."""
    assert Verdict.NEUTRAL is verdict(Fault(INTERRUPTED, status=401), statuses={401})


def test_a_group_is_worth_its_worst_leaf():
    """One failure among the leaves is a failure; an answer outweighs what says nothing."""
    answered, neutral = Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}), Fault(INTERNAL)

    assert Verdict.FAILURE is verdict(group(neutral, answered, Fault(TRANSIENT)))
    assert Verdict.ANSWERED is verdict(group(neutral, answered))
    assert Verdict.NEUTRAL is verdict(group(neutral, Fault(CONTROL)))


def test_a_groups_leaf_can_be_opted_in():
    """`trip_on_status` reaches into a group."""
    refused = Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, status=401)

    assert Verdict.FAILURE is verdict(group(refused, Fault(INTERNAL)), statuses={401})


@given(faults)
def test_no_fault_is_a_success(fault):
    """Whatever a fault looks like, its verdict is never SUCCESS."""
    assert Verdict.SUCCESS is not verdict(fault)


# ---------------------------------------------------------------------------------------------------- retries
def test_transient_is_retried():
    """A passing trouble may be tried again."""
    assert retried(TRANSIENT)
    assert retried(TRANSIENT, FaultFlag.AMBIGUOUS)


@pytest.mark.parametrize("flag", [FaultFlag.CLIENT_FAULT, FaultFlag.QUOTA])
def test_what_repeating_cannot_cure_is_not_retried(flag):
    """A refusal and a bill stay what they are, whatever `retry_on` names."""
    assert not retried(DOWNSTREAM, flag)
    assert not retried(TRANSIENT, flag, FaultFlag.UNSENT)


def test_a_kind_left_out_is_not_retried():
    """Only the kinds that were named are retried."""
    assert not retried(DOWNSTREAM, retry_on={TRANSIENT})


@pytest.mark.parametrize("how", [{"idempotent": False}, {"safe_only": True}, {"idempotent": False, "safe_only": True}])
def test_only_the_unsent_is_safe(how):
    """Without leave to repeat, only what surely was not processed is sent again."""
    assert retried(TRANSIENT, FaultFlag.UNSENT, **how)
    assert not retried(TRANSIENT, **how)
    assert not retried(TRANSIENT, FaultFlag.AMBIGUOUS, **how)


def test_a_group_is_retried_if_every_leaf_is():
    """One leaf that may not be repeated is enough."""
    assert retried(group(Fault(TRANSIENT), Fault(DOWNSTREAM)))
    assert not retried(group(Fault(TRANSIENT), Fault(INTERNAL)))


@pytest.mark.parametrize("how", [{"idempotent": False}, {"safe_only": True}])
def test_a_group_is_safe_if_every_leaf_is(how):
    """Without leave to repeat, every leaf must be surely unsent."""
    unsent = Fault(TRANSIENT, {FaultFlag.UNSENT})

    assert retried(group(unsent, unsent), **how)
    assert not retried(group(unsent, Fault(TRANSIENT)), **how)


# ---------------------------------------------------------------------------------------------------- groups
@given(st.lists(faults, min_size=1, max_size=9))
def test_a_groups_kind_is_the_highest_of_its_leaves(leaves):
    """INTERRUPTED > INTERNAL > CONTRACT > VALIDATION > DOWNSTREAM > TRANSIENT > CONTROL."""
    order = [INTERRUPTED, INTERNAL, CONTRACT, VALIDATION, DOWNSTREAM, TRANSIENT, CONTROL]
    found = group(*leaves)

    assert min((leaf.kind for leaf in leaves), key=order.index) is found.kind
    assert [(leaf.kind, leaf.flags) for leaf in leaves] == [(leaf.kind, leaf.flags) for leaf in found.leaves]


def test_a_groups_flags_are_what_all_agree_on():
    """One leaf's refusal is not the whole group's."""
    refused, unsent = Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}), Fault(TRANSIENT, {FaultFlag.UNSENT})

    assert frozenset() == group(refused, unsent).flags
    assert {FaultFlag.UNSENT} == group(unsent, unsent).flags


def test_a_group_tells_of_the_unclassified():
    """A leaf that nobody knows and that decides the kind is told through the group."""
    unknown = Fault(INTERNAL, {FaultFlag.UNCLASSIFIED}, origin="shop.Odd")

    assert ({FaultFlag.UNCLASSIFIED}, "shop.Odd") == (
        group(unknown, Fault(TRANSIENT)).flags,
        group(unknown, Fault(TRANSIENT)).origin,
    )


def test_being_unclassified_hides_no_other_flag():
    """What all leaves agree on stays said beside it."""
    unknown = Fault(INTERNAL, {FaultFlag.UNCLASSIFIED, FaultFlag.CONFIG})

    assert unknown.flags == group(unknown, Fault(DOWNSTREAM, {FaultFlag.CONFIG})).flags


def test_a_group_of_one_keeps_what_its_leaf_says():
    """A task group with one failing child reads like the child."""
    leaf = Fault(TRANSIENT, {FaultFlag.UNSENT}, 503, "busy", 7.0, "shop.Busy")
    found = group(leaf)

    assert (503, "busy", 7.0, "shop.Busy") == (found.status, found.code, found.retry_after, found.origin)
    assert (Fault(TRANSIENT, {FaultFlag.UNSENT}, 503),) == found.leaves


def test_a_group_waits_for_the_longest():
    """The leaf that asks for the longest wait is obeyed; a status or code of many is nobody's."""
    hasty = Fault(TRANSIENT, status=503, code="busy", retry_after=2.0)
    found = group(hasty, Fault(TRANSIENT, retry_after=9.0), Fault(TRANSIENT))

    assert (None, None, 9.0) == (found.status, found.code, found.retry_after)


def test_a_group_not_read_to_the_end_is_not_retried():
    """Nobody can vouch for leaves that were left unread; the breaker goes by what was read."""
    found = group(Fault(TRANSIENT), complete=False)

    assert TRANSIENT is found.kind
    assert (Fault(TRANSIENT), Fault(INTERNAL, {FaultFlag.UNCLASSIFIED})) == found.leaves
    assert not retried(found)
    assert Verdict.FAILURE is verdict(found)
