"""The classifier: the order of its rules, what it reads and what it can't be made to do."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilience._core import rules as rules_module
from resilience._core.faults import Fault, FaultFlag, FaultKind, may_retry
from resilience._core.profile import Profile
from resilience._core.rule import Rule, spellings
from resilience._core.rules import Classifier
from resilience._core.unwrap import MAX_NODES
from resilience.errors import CircuitOpenError, ConfigurationError, TimeoutExceeded

VALIDATION, CONTRACT, CONTROL = FaultKind.VALIDATION, FaultKind.CONTRACT, FaultKind.CONTROL
INTERRUPTED, INTERNAL = FaultKind.INTERRUPTED, FaultKind.INTERNAL
TRANSIENT, DOWNSTREAM = FaultKind.TRANSIENT, FaultKind.DOWNSTREAM
UNSENT, LOCAL, UNCLASSIFIED, CONFIG = FaultFlag.UNSENT, FaultFlag.LOCAL, FaultFlag.UNCLASSIFIED, FaultFlag.CONFIG


def catalogue():
    """A small catalogue of its own, so that these tests do not hang on the real one."""
    return (
        Rule("builtins:TimeoutError", TRANSIENT, generic=True),
        Rule("builtins:ConnectionRefusedError", TRANSIENT, UNSENT, generic=True),
        Rule("builtins:ConnectionError", DOWNSTREAM, below=lambda below: any(map(is_lookup, below)), generic=True),
        Rule("builtins:ConnectionError", TRANSIENT, generic=True),
        Rule("builtins:OSError", TRANSIENT, when=lambda exc: exc.errno is None, chain=True, generic=True),
        Rule("builtins:OSError", DOWNSTREAM, generic=True),
        Rule("builtins:StopIteration", CONTROL, generic=True),
        Rule("builtins:KeyError", INTERNAL, generic=True),
        Rule("builtins:LookupError", INTERNAL, generic=True),
        Rule("builtins:RuntimeError", INTERNAL, generic=True),
        Rule("builtins:ImportError", INTERNAL, CONFIG, generic=True),
        Rule("builtins:ValueError", VALIDATION, generic=True),
        Rule("builtins:KeyboardInterrupt", INTERRUPTED, LOCAL, generic=True),
        Rule("lib:Busy", TRANSIENT),
        Rule("lib:Wrapper", TRANSIENT, UNSENT, unwrap="inner"),
        Rule("lib:Bundle", unwrap=lambda exc: exc.parts),
        Rule("lib:Answer", DOWNSTREAM, CONFIG, by_status=True),
        Rule("lib:Gone", INTERRUPTED, LOCAL),
        Rule("lib:Odd", TRANSIENT, retry_after=lambda exc: exc.args[0], code=lambda exc: exc.args[1]),
        Rule("google.cloud:Error", TRANSIENT),
    )


def is_lookup(exc):
    return isinstance(exc, LookupError)


def load(segment):
    return [rule for rule in catalogue() if rule.match.startswith(f"{segment}:")]


def make(**settings):
    return Classifier(load=load, **{"wall": lambda: 1_000_000.0, **settings})


def error(name, base=Exception, module="shop.errors", **attributes):
    """An exception class of somebody's library, in a module that nobody imports."""
    return type(name, (base,), {"__module__": module, **attributes})


def carrying(exc, **attributes):
    exc.__dict__.update(attributes)
    return exc


def chained(exc, cause):
    exc.__cause__ = cause
    return exc


def during(exc, context):
    exc.__context__ = context
    return exc


def kind_of(exc, classifier=None, handled=None):
    return (classifier or make()).classify(exc, handled).kind


def read(exc, classifier=None):
    fault = (classifier or make()).classify(exc)
    return fault.kind, fault.flags


Odd = error("Odd")
UNKNOWN = (INTERNAL, {UNCLASSIFIED})


# ---------------------------------------------------------------------------------------------------- 1. fault_kind
def test_fault_kind_is_believed_first():
    """What an exception says of itself goes before every rule."""
    own = error("Own", TimeoutError, fault_kind=CONTRACT, fault_flags=frozenset({CONFIG}))

    assert (CONTRACT, {CONFIG}) == read(own(), make().add(own, DOWNSTREAM))


def test_fault_kind_on_the_instance():
    """An instance may say it too, also after its class was seen without."""
    classifier = make()
    classifier.classify(Odd())

    assert Fault(TRANSIENT, origin="shop.errors.Odd") == classifier.classify(carrying(Odd(), fault_kind=TRANSIENT))


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"fault_kind": property(lambda self: FaultKind(self.args[0]))}, (CONTRACT, frozenset())),
        (
            {"fault_kind": CONTROL, "fault_flags": property(lambda self: frozenset({FaultFlag(self.args[1])}))},
            (CONTROL, {CONFIG}),
        ),
    ],
)
def test_fault_kind_may_be_computed(attributes, fault):
    """A property speaks for each instance, so its answer is no other instance's."""
    own = error("Own", **attributes)
    classifier = make()
    classifier.classify(own("transient", "unsent"))

    assert fault == read(own("contract", "config"), classifier)


@pytest.mark.parametrize("kind", ["transient", None, 1, object(), FaultFlag.UNSENT])
def test_a_fault_kind_of_another_sort_is_ignored(kind):
    """Only a real FaultKind is believed."""
    assert UNKNOWN == read(carrying(Odd(), fault_kind=kind))
    assert UNKNOWN == read(error("Own", fault_kind=kind)())


@pytest.mark.parametrize("flags", [{UNSENT}, "unsent", None, frozenset({"unsent"})])
def test_fault_flags_of_another_sort_are_ignored(flags):
    """Only a frozenset of real FaultFlags is believed."""
    assert (TRANSIENT, frozenset()) == read(carrying(Odd(), fault_kind=TRANSIENT, fault_flags=flags))


def test_a_refusal_of_ours_is_read_whole():
    """Our own refusal keeps its kind, its flag, its code and its wait."""
    fault = make().classify(CircuitOpenError("db", 12.5))

    assert Fault(TRANSIENT, {LOCAL}, None, "circuit_open", 12.5, "resilience.errors.CircuitOpenError") == fault


def test_a_timeout_of_ours_is_read_whole():
    """Our own timeout is transient and ambiguous."""
    assert (TRANSIENT, {FaultFlag.AMBIGUOUS}) == read(TimeoutExceeded("budget", 3))


@pytest.mark.parametrize("code", ["x" * 65, "né", "a\nb", "", 7, None])
def test_a_code_that_is_no_short_word_is_left_out(code):
    """What goes into logs is short, printable ASCII."""
    assert make().classify(carrying(Odd(), fault_kind=TRANSIENT, code=code)).code is None


# ---------------------------------------------------------------------------------------------------- interrupted
@pytest.mark.parametrize(
    ("exc", "flags"),
    [(KeyboardInterrupt(), {LOCAL}), (asyncio.CancelledError(), set()), (BaseException(), set())],
)
def test_no_exception_but_interrupted(exc, flags):
    """What is no Exception means that the caller gave up."""
    assert Fault(INTERRUPTED, flags, origin=f"{type(exc).__module__}.{type(exc).__name__}") == make().classify(exc)


def test_no_word_changes_an_interruption():
    """Neither `fault_kind` nor a rule nor what it carries makes a cancel retryable."""
    own = error("Own", BaseException, fault_kind=TRANSIENT)
    laden = carrying(KeyboardInterrupt(), exceptions=[TimeoutError()], status_code=503, fault_kind=TRANSIENT)

    assert INTERRUPTED is kind_of(own(), make().add(lambda exc: True, TRANSIENT))
    assert Fault(INTERRUPTED, {LOCAL}, origin="builtins.KeyboardInterrupt") == make().classify(laden)


def test_an_exception_may_interrupt_by_rule():
    """Some libraries' cancels are Exceptions."""
    assert (INTERRUPTED, {LOCAL}) == read(error("Gone", module="lib")())


# ---------------------------------------------------------------------------------------------------- 2. own rules
def test_a_rule_by_type():
    """A type's rule holds for its subclasses too."""
    assert (TRANSIENT, {UNSENT}) == read(error("Child", Odd)(), make().add(Odd, TRANSIENT, flags=[UNSENT]))


@pytest.mark.parametrize("name", ["shop.errors.Odd", "shop.Odd", "shop:Odd", "shop.moved.elsewhere.Odd"])
def test_a_rule_by_name(name):
    """A name holds wherever in its package the class has moved."""
    assert TRANSIENT is kind_of(Odd(), make().add(name, TRANSIENT))


@pytest.mark.parametrize("name", ["store.errors.Odd", "Odd", "shop.errors.Other", "shop.errors.odd"])
def test_a_name_of_another_class(name):
    """Another package's class of the same name is another class."""
    assert UNKNOWN == read(Odd(), make().add(name, TRANSIENT))


def test_a_builtin_by_its_bare_name():
    """A name without a module is a builtin's."""
    assert DOWNSTREAM is kind_of(TimeoutError(), make().add("TimeoutError", DOWNSTREAM))


def test_a_nested_class_by_name():
    """A class within a class is found by its whole name."""
    inner = type("inner", (Exception,), {"__module__": "shop.mail", "__qualname__": "Box.Full"})

    assert TRANSIENT is kind_of(inner(), make().add("shop.mail.Box.Full", TRANSIENT))


def test_namespace_packages_take_two_segments():
    """`google` and `azure` belong to many distributions."""
    rules = make().add("google.genai.errors.ClientError", CONTRACT)

    assert CONTRACT is kind_of(error("ClientError", module="google.genai.errors")(), rules)
    assert UNKNOWN == read(error("ClientError", module="google.api_core.exceptions")(), rules)
    assert TRANSIENT is kind_of(error("Error", module="google.cloud.x")(), rules)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("Odd", [("builtins", "Odd")]),
        ("a.Odd", [("a", "Odd")]),
        ("a.b.Odd", [("a", "Odd"), ("a", "b.Odd")]),
        ("a.Xbox.Odd", [("a", "Odd"), ("a", "Xbox.Odd")]),
        ("azure.core.x.Odd", [("azure.core", "Odd"), ("azure.core", "x.Odd")]),
        ("azure.core:Odd", [("azure.core", "Odd")]),
        ("a.b:Box.Odd", [("a", "Box.Odd")]),
    ],
)
def test_what_a_written_name_may_mean(text, pairs):
    """A dotted name does not say where its module ends, so every reading is kept."""
    assert pairs == spellings(text)


def test_the_most_derived_class_wins():
    """A rule for a subclass beats one for its base, in whatever order they came."""
    child = error("Child", Odd)

    assert CONTRACT is kind_of(child(), make().add(Odd, TRANSIENT).add(child, CONTRACT))


def test_the_first_rule_that_holds_wins():
    """Within one class the rules are asked in the order in which they were added."""
    rules = make().add(Odd, CONTRACT, when=lambda exc: exc.args == (1,)).add(Odd, TRANSIENT).add(Odd, DOWNSTREAM)

    assert (CONTRACT, TRANSIENT) == (kind_of(Odd(1), rules), kind_of(Odd(2), rules))


def test_a_condition_that_raises_does_not_hold():
    """A condition may read attributes that not every instance has."""
    assert UNKNOWN == read(Odd(), make().add(Odd, TRANSIENT, when=lambda exc: exc.missing))


def test_a_predicate():
    """A function decides for any exception, before the classes."""
    rules = make().add(Odd, DOWNSTREAM).add(lambda exc: "busy" in exc.args, TRANSIENT)

    assert (TRANSIENT, DOWNSTREAM) == (kind_of(Odd("busy"), rules), kind_of(Odd("x"), rules))


def test_predicates_are_asked_in_their_order():
    """The first predicate that holds decides."""
    rules = make().add(is_lookup, CONTROL).add(lambda exc: exc.args, CONTRACT).add(lambda exc: True, TRANSIENT)

    assert [CONTROL, CONTRACT, TRANSIENT] == [kind_of(exc, rules) for exc in (KeyError(1), Odd(1), Odd())]


@pytest.mark.parametrize("raised", [ValueError, GeneratorExit, asyncio.CancelledError])
def test_a_predicate_that_raises(raised):
    """A classifier that breaks makes the exception unclassified; it never escapes into the call."""

    def broken(exc):
        raise raised

    fault = make().add(broken, TRANSIENT).classify(TimeoutError())

    assert Fault(INTERNAL, {UNCLASSIFIED}, origin="builtins.TimeoutError") == fault


def test_a_broken_predicate_does_not_reach_interruptions():
    """Rules are for Exceptions: a cancel stays a cancel."""
    assert INTERRUPTED is kind_of(KeyboardInterrupt(), make().add(lambda exc: 1 / 0, TRANSIENT))


def test_a_wide_rule_hides_the_catalogue():
    """One's own rule for a base is asked before all that the catalogue knows below it."""
    assert CONTRACT is kind_of(ConnectionRefusedError(), make().add(OSError, CONTRACT))


def test_a_rule_added_later_holds():
    """What was seen before is forgotten when a rule comes."""
    classifier = make()
    before = kind_of(Odd(), classifier)

    assert (INTERNAL, TRANSIENT) == (before, kind_of(Odd(), classifier.add(Odd, TRANSIENT)))


def test_a_rules_wait_comes_from_where_it_says():
    """A wait in an odd place is read by the rule's own function, with its code."""
    odd = error("Odd", module="lib")

    assert (7.0, "slow") == (make().classify(odd("7", "slow")).retry_after, make().classify(odd("7", "slow")).code)
    assert (None, None) == (make().classify(odd()).retry_after, make().classify(odd()).code)


def test_add_reads_a_wait():
    """A rule of one's own may say where the wait is."""
    rules = make().add(Odd, TRANSIENT, retry_after=lambda exc: exc.args[0])

    assert 3.0 == rules.classify(Odd(3)).retry_after
    assert 60.0 == rules.classify(Odd("Mon, 12 Jan 1970 13:47:40 GMT")).retry_after


def test_the_wait_that_a_rule_reads_goes_before_the_usual_places():
    """Who says where the wait is means that one; where nothing is there, the usual places are read."""
    rules = make().add(Odd, TRANSIENT, retry_after=lambda exc: exc.args[0])

    assert [3.0, 9.0] == [rules.classify(carrying(Odd(wait), retry_after=9)).retry_after for wait in (3, None)]


def test_a_rule_keeps_the_status():
    """A status goes along with a rule's kind, so that a breaker can opt it in."""
    fault = make().add(Odd, DOWNSTREAM).classify(carrying(Odd(), status_code=401, retry_after=3))

    assert (401, 3.0) == (fault.status, fault.retry_after)


def test_what_is_no_remote_fault_has_no_wait():
    """Nobody waits for a domain error to pass."""
    assert make().add(Odd, CONTRACT).classify(carrying(Odd(), retry_after=3)).retry_after is None


# ---------------------------------------------------------------------------------------------------- wrong arguments
@pytest.mark.parametrize(
    "match", [None, 7, int, BaseException, KeyboardInterrupt, "", ".", "a.", "a..b", "a:", ":a", "a:b:c"]
)
def test_add_refuses_a_match_that_can_never_hold(match):
    """A rule that would never hold is an error at once."""
    with pytest.raises(ConfigurationError, match="match must be"):
        make().add(match, TRANSIENT)


def test_add_lists_all_that_is_wrong():
    """One error names every fault."""
    with pytest.raises(ConfigurationError) as caught:
        make().add(7, "transient", flags=["unsent"], when=7, retry_after="x")

    assert (
        "match must be an exception type below Exception, a dotted name or a function, got 7",
        "kind must be a FaultKind, got 'transient'",
        "flags must be a collection of FaultFlag, got ['unsent']",
        "when must be a callable or None, got 7",
        "retry_after must be a callable or None, got 'x'",
    ) == caught.value.faults


def test_add_refuses_flags_that_are_no_collection():
    """A single flag is no collection of flags."""
    with pytest.raises(ConfigurationError, match="flags must be"):
        make().add(Odd, TRANSIENT, flags=UNSENT)


@pytest.mark.parametrize(("match", "inner"), [(None, "cause"), (lambda exc: True, "cause"), (Odd, 7), (7, 7)])
def test_unwrap_refuses_what_cannot_be_right(match, inner):
    """A wrapper is a type or a name, its inside an attribute or a function."""
    with pytest.raises(ConfigurationError):
        make().unwrap(match, inner)


def test_unwrap_lists_all_that_is_wrong():
    """One error names every fault."""
    with pytest.raises(ConfigurationError) as caught:
        make().unwrap(8, 7)

    assert (
        "match must be an exception type below Exception or a dotted name, got 8",
        "inner must be the name of an attribute or a function, got 7",
    ) == caught.value.faults


# ---------------------------------------------------------------------------------------------------- families
def test_a_child_asks_its_own_rules_first():
    """A child overrules its parent, and only for itself."""
    parent = make().add(Odd, TRANSIENT)
    child = parent.child().add(Odd, CONTRACT)

    assert (CONTRACT, TRANSIENT) == (kind_of(Odd(), child), kind_of(Odd(), parent))


def test_a_childs_wide_rule_goes_before_its_parents_narrow_one():
    """Each level is asked to the end before the next."""
    assert CONTRACT is kind_of(error("Child", Odd)(), make().add("shop.Child", TRANSIENT).child().add(Odd, CONTRACT))


def test_a_parents_later_rule_reaches_its_children():
    """A rule added above holds below at once, also for types that were seen, in every branch of the family."""
    parent = make()
    family = [parent.child(), parent.child().child(), parent.child()]
    before = [kind_of(Odd(), member) for member in family]
    parent.add(Odd, TRANSIENT)

    assert ([INTERNAL] * 3, [TRANSIENT] * 3) == (before, [kind_of(Odd(), member) for member in family])


def test_who_has_no_parent_has_the_default(monkeypatch):
    """A classifier of one's own knows what the process's default classifier knows."""
    monkeypatch.setattr(Classifier, "default", make().add(Odd, TRANSIENT))

    assert TRANSIENT is kind_of(Odd(), Classifier())


def test_a_childs_clock():
    """A child reads dates by its parent's clock, or by its own."""
    dated = carrying(Odd(), status=503, headers={"retry-after": "Mon, 12 Jan 1970 13:47:40 GMT"})
    parent = make()

    assert 60.0 == parent.child().classify(dated).retry_after
    assert 50.0 == Classifier(parent=parent, wall=lambda: 1_000_010.0).classify(dated).retry_after


def test_a_parent_does_not_hold_its_children():
    """A classifier per request leaves nothing behind in its parent."""
    parent = make()
    child = parent.child()
    gone = weakref.ref(child)
    del child
    gc.collect()

    assert (None, {}) == (gone(), parent._children)


def test_a_dead_child_is_passed_over():
    """A rule that comes while a child is dying finds nobody there."""
    parent = make()
    parent._children[0] = lambda: None

    assert TRANSIENT is kind_of(Odd(), parent.add(Odd, TRANSIENT))


def test_a_child_counts_the_unknown_like_its_parent():
    """What the unknown means is handed down, and may be changed."""
    parent = make(otherwise=DOWNSTREAM)

    child, other = parent.child(), Classifier(parent=parent, otherwise=TRANSIENT)

    # The first time the type is worked out, the second time it is known.
    assert [(DOWNSTREAM, frozenset())] * 2 == [read(Odd(), child) for _ in range(2)]
    assert [(TRANSIENT, frozenset())] * 2 == [read(Odd(), other) for _ in range(2)]


def test_a_classifier_pickles_by_its_rules():
    """A classifier of one's own crosses to another process if its rules do."""
    original = Classifier().child().add(LookupError, CONTRACT).add("shop.Odd", TRANSIENT, when=is_lookup).child()

    for restored in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
        assert (CONTRACT, INTERNAL) == (kind_of(KeyError(), restored), kind_of(Odd(), restored))


def test_a_pickled_classifier_counts_the_unknown_as_before():
    """What the unknown means crosses with the rules."""
    restored = pickle.loads(pickle.dumps(Classifier(otherwise=DOWNSTREAM)))

    assert DOWNSTREAM is kind_of(Odd(), restored)


def test_a_classifier_with_a_name_pickles_by_it(monkeypatch):
    """In the other process the name gives the classifier that is kept there, whatever its rules."""
    named = make(name=f"{__name__}:ours").add(Odd, CONTRACT, when=lambda exc: True)
    monkeypatch.setattr(sys.modules[__name__], "ours", named, raising=False)

    assert named is pickle.loads(pickle.dumps(named))


# ---------------------------------------------------------------------------------------------------- 3. to 7. the order
def test_an_exact_builtin_is_named():
    """A bare builtin is decided by its own rule, not by what was going on around it."""
    assert INTERNAL is kind_of(chained(RuntimeError(), TimeoutError()))
    assert VALIDATION is kind_of(carrying(ValueError(), status_code=503))


def test_a_library_class_is_named():
    """A rule for a library's class goes before status and cause, also for classes that others derive from it."""
    busy = error("Busy", module="lib.private.path")

    for kind in busy, error("VeryBusy", busy):
        assert TRANSIENT is kind_of(chained(carrying(kind(), status_code=400), ValueError()))


def test_status_goes_before_the_builtin_base():
    """A library's ConnectionError that carries a 401 is a refusal, not an outage."""
    refused = carrying(error("AuthError", ConnectionError)(), response=SimpleNamespace(status_code=401))

    assert Fault(DOWNSTREAM, {FaultFlag.CLIENT_FAULT}, 401, origin="shop.errors.AuthError") == make().classify(refused)


def test_status_brings_its_wait():
    """An unknown library's 429 is transient and its Retry-After is read."""
    fault = make().classify(carrying(Odd(), status=429, headers={"Retry-After": "7"}))

    assert (TRANSIENT, 429, 7.0) == (fault.kind, fault.status, fault.retry_after)


def test_dates_are_measured_by_the_wall_clock():
    """A Retry-After date needs to know what time it is."""
    fault = make().classify(carrying(Odd(), status=503, headers={"retry-after": "Mon, 12 Jan 1970 13:47:40 GMT"}))

    assert 60.0 == fault.retry_after


def test_without_a_clock_time_stands_still():
    """A classifier that was given no clock still reads seconds, and dates as if it were 1970."""
    texts = "7", "Thu, 01 Jan 1970 00:01:00 GMT"
    faults = [
        Classifier(load=load).classify(carrying(Odd(), status=503, headers={"retry-after": text})) for text in texts
    ]

    assert [7.0, 60.0] == [fault.retry_after for fault in faults]


def test_the_clock_is_asked_only_where_there_are_headers():
    """A wait that is no header's is no date, so a clock that fails does no harm."""
    fault = make(wall=lambda: 1 / 0).classify(carrying(Odd(), fault_kind=TRANSIENT, retry_after=3))

    assert 3.0 == fault.retry_after


def test_an_attribute_is_the_wait_of_a_status():
    """A status without the header takes the wait that the exception itself names."""
    fault = make().classify(carrying(Odd(), status=503, headers={}, retry_after=4))

    assert (503, 4.0) == (fault.status, fault.retry_after)


def test_junk_is_counted():
    """A Retry-After that can't be read is ignored and told."""
    told = []
    classifier = make(on_junk=lambda: told.append(1))

    assert classifier.child().classify(carrying(Odd(), status=503, headers={"retry-after": "soon"})).retry_after is None
    assert [1] == told


def test_the_servers_wish_is_obeyed():
    """`x-should-retry: false` makes a 503 one that is not retried; it still counts."""
    fault = make().classify(carrying(Odd(), status_code=503, headers={"x-should-retry": "false"}))

    assert (DOWNSTREAM, 503, frozenset()) == (fault.kind, fault.status, fault.flags)


def test_a_refusal_by_status_asks_for_no_wait():
    """A 304 has no wait, whatever its headers say."""
    fault = make().classify(carrying(Odd(), status_code=304, headers=WAIT))

    assert (CONTROL, None) == (fault.kind, fault.retry_after)


WAIT = {"retry-after": "7"}


def test_a_status_that_says_nothing_is_passed_over():
    """An error inside a stream that opened with 200 is decided by what lies below."""
    assert TRANSIENT is kind_of(chained(carrying(Odd(), status_code=200), TimeoutError()))
    assert Fault(INTERNAL, {UNCLASSIFIED}, 200, origin="shop.errors.Odd") == make().classify(
        carrying(Odd(), status_code=200)
    )


def test_a_class_that_only_carries_a_status():
    """Where a library's class says nothing, its rule lets the status decide, and falls back."""
    answer = error("Answer", module="lib")

    assert TRANSIENT is kind_of(carrying(answer(), code=503))
    assert (DOWNSTREAM, {CONFIG}) == read(carrying(answer(), code="x"))
    assert (DOWNSTREAM, {CONFIG}) == read(carrying(answer(), code=200))


def test_the_cause_goes_before_the_builtin_base():
    """An unknown class is read by its cause before its base class is asked."""
    assert TRANSIENT is kind_of(chained(error("Bad", ValueError)(), TimeoutError()))


@pytest.mark.parametrize(
    ("base", "kind"), [(ConnectionError, TRANSIENT), (ValueError, VALIDATION), (TimeoutError, TRANSIENT)]
)
def test_the_builtin_base_comes_last(base, kind):
    """With nothing else known the base class decides."""
    assert (kind, frozenset()) == read(error("Own", base)())
    assert (kind, frozenset()) == read(carrying(error("Own", base)(), x=1))
    assert Fault(kind, status=200, origin="shop.errors.Own") == make().classify(
        carrying(error("Own", base)(), status_code=200)
    )


@pytest.mark.parametrize("base", [RuntimeError, KeyError, Exception])
def test_a_base_that_says_no_more_than_unknown(base):
    """A library's own RuntimeError is nobody's bug yet: it is unclassified, so its user hears of it."""
    own = error("Own", base)

    assert UNKNOWN == read(own("x"))
    assert UNKNOWN == read(carrying(own(), x=1))
    assert (DOWNSTREAM, frozenset()) == read(own(), make(otherwise=DOWNSTREAM))


def test_a_base_that_says_more_than_unknown():
    """A class below ImportError is a matter of deployment."""
    assert (INTERNAL, {CONFIG}) == read(error("Own", ImportError)())
    assert (INTERNAL, {CONFIG}) == read(carrying(error("Own", ImportError)(), x=1))


def test_a_builtin_without_a_rule_has_its_bases():
    """A builtin that no rule names is what its base is, and no guess."""
    assert (VALIDATION, frozenset()) == read(UnicodeTranslateError("x", 0, 1, "y"))
    assert (INTERNAL, frozenset()) == read(NotImplementedError())


def test_nothing_known():
    """What nobody has a rule for is INTERNAL, and says so; it is not repeated, so it has no wait."""
    unclassified = Fault(INTERNAL, {UNCLASSIFIED}, origin="shop.errors.Odd")

    assert unclassified == make().classify(Odd())
    assert unclassified == make().classify(carrying(Odd(), retry_after=4))


def test_counting_the_unknown():
    """A classifier may count what it does not know; then it is not unclassified, and its status and wait are read."""
    classifier = make(otherwise=DOWNSTREAM)

    for waiting in ({"retry_after": 7}, {"headers": WAIT}):
        fault = classifier.classify(carrying(Odd(), status=200, **waiting))
        assert Fault(DOWNSTREAM, status=200, retry_after=7.0, origin="shop.errors.Odd") == fault


def test_counting_a_broken_predicate():
    """Counting everything counts what a broken predicate left open, too."""
    classifier = make(otherwise=DOWNSTREAM).add(lambda exc: 1 / 0, CONTRACT)

    assert Fault(DOWNSTREAM, origin="shop.errors.Odd") == classifier.classify(Odd())


# ---------------------------------------------------------------------------------------------------- what lies inside
@pytest.mark.parametrize(
    "exc",
    [
        chained(Odd(), TimeoutError()),
        *(
            carrying(Odd(), **{name: TimeoutError()})
            for name in (
                "cause",
                "reason",
                "orig",
                "original_exception",
                "inner_exception",
                "last_exception",
                "os_error",
            )
        ),
        carrying(Odd(), kwargs={"error": TimeoutError()}),
        Odd("text", TimeoutError()),
        during(Odd(), TimeoutError()),
        carrying(Odd(), exceptions=[TimeoutError()]),
        chained(Odd(), during(Odd(), TimeoutError())),
    ],
)
def test_where_the_inner_exception_is_found(exc):
    """An unknown exception is read by the one inside it, wherever it is kept."""
    fault = make().classify(exc)

    assert (TRANSIENT, "builtins.TimeoutError") == (fault.kind, fault.origin)


def test_a_suppressed_context_is_read():
    """`from None` hides the context from people, not from us: some clients keep the cause only there."""
    with pytest.raises(Odd) as caught:
        try:
            raise TimeoutError
        except TimeoutError:
            raise Odd from None

    assert TRANSIENT is kind_of(caught.value)


@pytest.mark.parametrize(("links", "kind"), [(8, TRANSIENT), (9, INTERNAL)])
def test_eight_deep(links, kind):
    """The chain is followed for eight links."""
    exc = TimeoutError()
    for _ in range(links):
        exc = chained(Odd(), exc)

    assert kind is kind_of(exc)


@pytest.mark.parametrize(("levels", "kind"), [(8, TRANSIENT), (9, INTERNAL)])
def test_eight_deep_by_lists_of_exceptions(levels, kind):
    """What an exception lists as its `exceptions` is as deep as what it names as its cause."""
    exc = TimeoutError()
    for _ in range(levels):
        exc = carrying(Odd(), exceptions=[exc])

    assert kind is kind_of(exc)


@pytest.mark.parametrize("link", ["cause", "inner"])
@pytest.mark.parametrize(("groups", "known"), [(8, True), (9, False)])
def test_groups_and_links_are_counted_together(link, groups, known):
    """Below eight causes or wrappers, groups are read until it is sixteen deep."""
    exc = TimeoutError()
    for _ in range(groups):
        exc = ExceptionGroup("g", [exc])
    for _ in range(8):
        exc = carrying(error("Outer")(), **{link: exc})

    assert known is (TRANSIENT is kind_of(exc, make().unwrap("shop.Outer", "inner")))


def test_what_says_nothing_is_passed_over():
    """What was being handled, and what nobody knows, do not hide what stands beside them."""
    handled = KeyError()

    assert TRANSIENT is kind_of(chained(Odd(TimeoutError()), handled), handled=handled)
    assert TRANSIENT is kind_of(chained(Odd(TimeoutError()), Odd()))


def test_sixteen_arguments():
    """An exception with a thousand arguments is not searched to the end."""
    texts = ["text"] * 16

    assert TRANSIENT is kind_of(Odd(*texts[1:], TimeoutError()))
    assert UNKNOWN == read(Odd(*texts, TimeoutError()))


@pytest.mark.parametrize(
    ("exc", "fault"),
    [
        (chained(OSError("tunnel"), ConnectionRefusedError()), (TRANSIENT, {UNSENT})),
        (carrying(OSError("tunnel"), reason=ConnectionRefusedError()), (TRANSIENT, {UNSENT})),
        (chained(OSError("tunnel"), OSError(5, "x")), (DOWNSTREAM, frozenset())),
        (chained(OSError("tunnel"), KeyError()), (TRANSIENT, frozenset())),
        (chained(error("Own", OSError)("tunnel"), KeyError()), (TRANSIENT, frozenset())),
        (OSError("tunnel"), (TRANSIENT, frozenset())),
    ],
)
def test_a_rule_that_asks_the_chain(exc, fault):
    """A rule may leave the word to what lies inside, and keep its own for where that says nothing."""
    assert fault == read(exc)


def test_the_walk_stops_at_what_was_being_handled():
    """What the caller was handling when the call began is none of this call's."""
    handled = chained(Odd(), TimeoutError())

    assert INTERNAL is kind_of(during(Odd(), handled), handled=handled)
    assert INTERNAL is kind_of(carrying(Odd(), cause=handled), handled=handled)


def test_conditions_below_stop_there_too():
    """Nor does it count as hidden below a connection error."""
    handled = KeyError()

    assert DOWNSTREAM is kind_of(carrying(ConnectionError(), cause=handled))
    assert TRANSIENT is kind_of(carrying(ConnectionError(), cause=handled), handled=handled)


def below_of(exc, handled=None):
    """The exceptions that a rule's condition on what lies below `exc` is shown."""
    shown = []
    rule = Rule("shop:Odd", TRANSIENT, below=shown.append)
    Classifier(load=lambda segment: [rule]).classify(exc, handled)
    return shown[0]


def test_what_a_condition_sees_below():
    """All that lies below, nearest first and each once; neither the exception itself nor what is below a timeout."""
    exc, slow = Odd(), chained(TimeoutError(), KeyError())
    deep = during(KeyError(), exc)
    near = carrying(ValueError(deep), cause=slow)
    exc.__cause__, exc.reason = slow, near

    assert [slow, near, deep] == below_of(exc)
    assert [slow] == below_of(exc, handled=near)


def test_contexts_that_a_condition_sees_below():
    """An error of the system, while which a library raised its own; nothing that merely came before."""
    system, library = ConnectionRefusedError(), Odd()

    assert [system] == below_of(during(Odd(), system))
    # The first of two calls to the same or to another remote.
    assert [] == below_of(during(Odd(), library))
    assert [] == below_of(during(Odd(), during(Odd(), system)))
    # What the system itself raises is about nothing else.
    assert [system] == below_of(chained(Odd(), during(system, TimeoutError())))
    # A cause was named: the context is another matter.
    named = chained(Odd(), library)
    named.__context__ = system
    assert [library] == below_of(named)
    # `from None` stands where one error is turned into another.
    turned = during(Odd(), library)
    turned.__suppress_context__ = True
    assert [library] == below_of(turned)


def test_a_condition_sees_no_more_than_the_budget_below():
    """However much lies below, 256 exceptions are looked at, the outermost among them."""
    exc = Odd(*(ValueError(*(KeyError() for _ in range(16))) for _ in range(16)))

    assert MAX_NODES - 1 == len(below_of(exc))


def test_never_below_a_timeout():
    """Timeouts keep the CancelledError that ended the wait: that is not the caller giving up."""
    cancelled = asyncio.CancelledError()

    assert TRANSIENT is kind_of(chained(TimeoutError(), cancelled))
    assert TRANSIENT is kind_of(chained(error("Slow", TimeoutError)(), KeyError()))
    assert TRANSIENT is kind_of(chained(error("Slow", TimeoutError)(), OSError(5, "x")))
    assert TRANSIENT is kind_of(chained(Odd(), chained(TimeoutError(), cancelled)))
    assert TRANSIENT is kind_of(chained(ConnectionError(), chained(TimeoutError(), KeyError())))


@pytest.mark.parametrize("inner", [asyncio.CancelledError(), KeyboardInterrupt(), error("Gone", module="lib")()])
def test_never_to_interrupted(inner):
    """What was cancelled inside does not mean that this caller gave up."""
    assert UNKNOWN == read(chained(Odd(), inner))


@pytest.mark.parametrize("inner", [StopIteration(), KeyError()])
def test_flow_control_and_bugs_inside_are_no_evidence(inner):
    """An inner StopIteration or KeyError says nothing of the exception around it."""
    assert UNKNOWN == read(chained(Odd(), inner))


def test_a_cache_miss_around_it_is_no_evidence():
    """`except KeyError:` around a cache does not make an outage our bug."""
    assert TRANSIENT is kind_of(during(error("Down", ConnectionRefusedError)("x"), KeyError()))


def test_a_named_reason_counts_if_the_base_says_nothing():
    """`raise Odd from ValueError` is a validation error; a base class that knows more goes before it."""
    assert VALIDATION is kind_of(chained(Odd(), ValueError()))
    assert VALIDATION is kind_of(chained(error("Own", RuntimeError)(), ValueError()))
    assert TRANSIENT is kind_of(chained(error("Own", TimeoutError)(), ValueError()))
    assert DOWNSTREAM is kind_of(chained(error("Own", OSError)(5, "x"), ValueError()))


def test_a_context_is_no_named_reason():
    """A ValueError that was merely being handled says nothing."""
    assert UNKNOWN == read(during(Odd(), ValueError()))


def test_the_first_evidence_wins():
    """Causes that were named go before what was being handled."""
    exc = during(chained(Odd(), TimeoutError()), OSError(5, "x"))

    assert TRANSIENT is kind_of(exc)


def test_a_context_never_vouches_for_unsent():
    """What was refused before says nothing about the call that followed it."""
    refused = ConnectionRefusedError()

    assert (TRANSIENT, {UNSENT}) == read(chained(Odd(), refused))
    assert (TRANSIENT, frozenset()) == read(during(Odd(), refused))
    group = make().classify(during(Odd(), ExceptionGroup("g", [refused, refused])))
    assert (Fault(TRANSIENT), Fault(TRANSIENT)) == group.leaves
    assert not may_retry(group, retry_on=frozenset({TRANSIENT}), idempotent=False, safe_only=False)


def test_all_else_that_a_context_says_is_kept():
    """A context's kind, status, code and wait are those of the exception around it."""
    told = {"fault_kind": TRANSIENT, "fault_flags": frozenset({UNSENT, LOCAL}), "code": "busy", "status": 503}
    inner = carrying(error("Inner")(), **told, retry_after=7)

    assert Fault(TRANSIENT, {LOCAL}, 503, "busy", 7.0, "shop.errors.Inner") == make().classify(during(Odd(), inner))


def test_the_outer_wait_overrules_the_inner():
    """A wrapper that says how long to wait is obeyed; else the inner one's wait is kept."""
    inner = carrying(Odd(), status_code=503, headers=WAIT)

    assert 7.0 == make().classify(carrying(chained(Odd(), inner), x=1)).retry_after
    assert 9.0 == make().classify(carrying(chained(Odd(), inner), retry_after=9)).retry_after
    assert 9.0 == make().classify(carrying(chained(Odd(), inner), headers={"retry-after": "9"})).retry_after


def test_the_outer_wait_changes_nothing_else():
    """A wrapper that only says how long to wait leaves the rest as the inner one said it."""
    inner = carrying(error("Inner")(), fault_kind=TRANSIENT, fault_flags=frozenset({LOCAL}), code="busy", status=503)
    group = ExceptionGroup("g", [TimeoutError(), OSError(5, "x")])
    outer = [make().classify(carrying(chained(Odd(), cause), retry_after=9)) for cause in (inner, group)]

    assert [
        Fault(TRANSIENT, {LOCAL}, 503, "busy", 9.0, "shop.errors.Inner"),
        Fault(DOWNSTREAM, (), None, None, 9.0, "builtins.OSError", (Fault(TRANSIENT), Fault(DOWNSTREAM))),
    ] == outer


def test_an_unknown_inner_exception_is_no_evidence_when_the_unknown_counts():
    """Counting everything counts the exception itself, not what it was raised around."""
    classifier = make(otherwise=DOWNSTREAM)

    assert VALIDATION is kind_of(chained(error("Own", ValueError)(), Odd()), classifier)


# ---------------------------------------------------------------------------------------------------- wrappers
def test_a_wrapper_is_what_is_inside():
    """A registered wrapper is read by its inside, also an INTERNAL or INTERRUPTED one."""
    rules = make().unwrap(Odd, "inner")

    assert [VALIDATION, INTERNAL, INTERRUPTED] == [
        kind_of(carrying(Odd(), inner=inner), rules) for inner in (ValueError(), KeyError(), KeyboardInterrupt())
    ]


def test_a_wrapper_by_name_and_function():
    """A wrapper may be named, and its inside computed."""
    assert VALIDATION is kind_of(Odd(ValueError()), make().unwrap("shop.Odd", lambda exc: exc.args[0]))


@pytest.mark.parametrize("inner", [None, "text", [], 7])
def test_a_wrapper_around_nothing(inner):
    """A wrapper that holds no exception is read like any other."""
    assert UNKNOWN == read(carrying(Odd(), inner=inner), make().unwrap(Odd, "inner"))


def test_a_wrapper_whose_inside_cannot_be_read():
    """A function that raises gives nothing."""
    assert UNKNOWN == read(Odd(), make().unwrap(Odd, lambda exc: exc.missing))


def test_a_wrapper_around_several():
    """A wrapper may hold several exceptions: then it is a group."""
    bundle = carrying(error("Bundle", module="lib")(), parts=[TimeoutError(), ValueError()])

    assert (VALIDATION, 2) == (kind_of(bundle), len(make().classify(bundle).leaves))


def test_wrappers_among_several():
    """What a wrapper holds is opened in its turn."""
    wrapper = carrying(error("Wrapper", module="lib")(), inner=ValueError())
    bundle = carrying(error("Bundle", module="lib")(), parts=[TimeoutError(), wrapper])

    assert (Fault(TRANSIENT), Fault(VALIDATION)) == make().classify(bundle).leaves


def test_a_wrapper_is_no_other_exception():
    """What holds for a wrapper's type is not done to others."""
    assert UNKNOWN == read(carrying(error("Other")(), inner=ValueError()), make().unwrap(Odd, "inner"))


def test_a_wrapper_with_a_word_of_its_own():
    """A catalogue's wrapper falls back to its own kind where its inside says nothing."""
    wrapper = error("Wrapper", module="lib")

    assert (VALIDATION, frozenset()) == read(carrying(wrapper(), inner=ValueError()))
    assert (TRANSIENT, {UNSENT}) == read(carrying(wrapper(), inner=Odd()))


def test_a_wrapper_does_not_unwrap_what_was_being_handled():
    """The exception being handled when the call began stays outside."""
    handled = ValueError()
    wrapped = carrying(error("Wrapper", module="lib")(), inner=handled)

    assert TRANSIENT is kind_of(wrapped, handled=handled)


@pytest.mark.parametrize(("wrappers", "kind"), [(8, VALIDATION), (9, TRANSIENT)])
def test_wrappers_within_wrappers_end(wrappers, kind):
    """Wrappers are opened eight deep."""
    exc = ValueError()
    for _ in range(wrappers):
        exc = carrying(error("Wrapper", module="lib")(), inner=exc)

    assert kind is kind_of(exc)


# ---------------------------------------------------------------------------------------------------- groups
def test_a_group_is_read_by_its_leaves():
    """A group's fault holds its leaves' kinds and flags, nested groups flattened."""
    group = ExceptionGroup("g", [TimeoutError(), ExceptionGroup("h", [ConnectionRefusedError(), KeyError()])])
    fault = make().classify(group)

    assert INTERNAL is fault.kind
    assert (Fault(TRANSIENT), Fault(TRANSIENT, {UNSENT}), Fault(INTERNAL)) == fault.leaves


def test_an_unknown_leaf():
    """A leaf that nobody knows makes the group unclassified, and is named."""
    fault = make().classify(ExceptionGroup("g", [TimeoutError(), Odd()]))

    assert (*UNKNOWN, "shop.errors.Odd") == (fault.kind, fault.flags, fault.origin)
    assert DOWNSTREAM is kind_of(ExceptionGroup("g", [TimeoutError(), Odd()]), make(otherwise=DOWNSTREAM))


def test_a_leaf_is_read_like_any_exception():
    """A leaf that nobody knows by its type is read by its cause, also in what only lists its exceptions."""
    leaf = chained(Odd(), TimeoutError())

    assert TRANSIENT is kind_of(ExceptionGroup("g", [leaf]))
    assert TRANSIENT is kind_of(carrying(Odd(), exceptions=[leaf]))


def test_a_base_group_is_read_by_its_leaves():
    """A group that holds a KeyboardInterrupt interrupts; one that holds none does not."""
    own = type("Own", (BaseExceptionGroup,), {})

    assert INTERRUPTED is kind_of(BaseExceptionGroup("g", [KeyboardInterrupt(), TimeoutError()]))
    assert TRANSIENT is kind_of(own("g", [TimeoutError()]))
    assert TRANSIENT is kind_of(own("g", [chained(Odd(), TimeoutError())]))


def test_a_group_waits_as_long_as_the_longest_of_its_leaves():
    """However deep the groups that hold them."""

    def busy(seconds):
        return carrying(TimeoutError(), retry_after=seconds)

    for leaves, longest in (
        ([busy(3), busy(7), TimeoutError()], 7.0),
        ([busy(3), ExceptionGroup("h", [busy(7)])], 7.0),
        ([ExceptionGroup("h", [ExceptionGroup("i", [busy(3), TimeoutError()])])], 3.0),
        ([busy(9), ExceptionGroup("h", [busy(7)])], 9.0),
        ([ExceptionGroup("h", [busy(0)])], 0.0),
        ([ExceptionGroup("h", [TimeoutError()])], None),
    ):
        assert longest == make().classify(ExceptionGroup("g", leaves)).retry_after


def test_a_rule_for_a_group():
    """One's own rule for a group type goes before its leaves."""
    own = type("Own", (ExceptionGroup,), {})

    assert CONTRACT is kind_of(own("g", [TimeoutError()]), make().add(own, CONTRACT))


def test_the_same_exception_twice():
    """One exception that is a leaf of two groups counts in both."""
    for leaf in (TimeoutError(), carrying(TimeoutError(), x=1)):
        group = ExceptionGroup("g", [ExceptionGroup("a", [leaf]), ExceptionGroup("b", [leaf])])

        assert (Fault(TRANSIENT), Fault(TRANSIENT)) == make().classify(group).leaves


@pytest.mark.parametrize(("depth", "known"), [(15, True), (40, False)])
def test_sixteen_deep(depth, known):
    """Groups within groups are read sixteen deep."""
    exc = TimeoutError()
    for _ in range(depth):
        exc = ExceptionGroup("g", [exc])

    assert known is (TRANSIENT is kind_of(exc))


def test_a_flood_of_leaves():
    """Ten thousand leaves cost no more than 256 of them, and nobody vouches for the rest."""
    fault = make().classify(ExceptionGroup("g", [TimeoutError()] * 10_000))

    assert TRANSIENT is fault.kind
    assert MAX_NODES == len(fault.leaves)
    assert not may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


def test_a_group_read_to_the_end_is_retried():
    """A group within the limit is what its leaves are."""
    fault = make().classify(ExceptionGroup("g", [TimeoutError()] * (MAX_NODES - 1)))

    assert may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


def test_a_group_met_before_brings_its_leaves_along_in_bounds():
    """I12: groups that repeat one group, a few levels deep, would have more leaves than there is memory."""
    group = ExceptionGroup("g", [TimeoutError() for _ in range(100)])
    for _ in range(6):
        group = ExceptionGroup("g", [group] * 200)
    fault = make().classify(group)

    assert len(fault.leaves) <= 2 * MAX_NODES + 1
    half = ExceptionGroup("g", [TimeoutError() for _ in range(MAX_NODES // 2)])
    assert MAX_NODES + 1 == len(make().classify(ExceptionGroup("g", [half] * 3)).leaves)
    assert not may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


def test_members_that_cost_nothing_hide_none():
    """Only so many members are read: where the others are repeats of one, the rest is still unread."""
    again = error("Known", Exception, fault_kind=TRANSIENT)()
    fault = make().classify(ExceptionGroup("g", [again] * 400 + [KeyError()]))

    assert UNCLASSIFIED in fault.leaves[-1].flags
    assert not may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


def test_a_group_cut_short_within_a_group():
    """A part that was left unread is missed in the whole, too."""
    fault = make().classify(
        ExceptionGroup("g", [ExceptionGroup("h", [TimeoutError()] * 300), ExceptionGroup("i", [TimeoutError()])])
    )

    assert not may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


@pytest.mark.parametrize(("causes", "whole"), [(3, True), (8, False)])
def test_a_chain_cut_short_within_a_group(causes, whole):
    """A chain that was left unread is missed in the whole, also where a group that was read follows it."""
    cause = TimeoutError()
    for _ in range(causes):
        cause = chained(Odd(), cause)
    exc = ExceptionGroup("g", [chained(error("Down", ConnectionError)(), cause), ExceptionGroup("h", [TimeoutError()])])
    for _ in range(10):
        exc = ExceptionGroup("g", [exc])
    fault = make().classify(exc)

    assert whole is may_retry(fault, retry_on=frozenset({TRANSIENT}), idempotent=True, safe_only=False)


def test_a_group_of_nothing():
    """A group that shows no leaves is unknown, or interrupts."""
    own = type("Own", (ExceptionGroup,), {"exceptions": property(lambda self: 1 / 0)})
    base = type("Base", (BaseExceptionGroup,), {"exceptions": ()})

    assert UNKNOWN == read(own("g", [TimeoutError()]))
    assert INTERRUPTED is kind_of(base("g", [KeyboardInterrupt()]))


def test_members_that_are_no_exceptions():
    """What is no exception is no leaf."""
    assert TRANSIENT is kind_of(carrying(Odd(), exceptions=[None, "x", TimeoutError()]))


@pytest.mark.parametrize(("others", "kind"), [(MAX_NODES - 1, TRANSIENT), (MAX_NODES, INTERNAL)])
def test_a_flood_of_members_that_are_no_exceptions(others, kind):
    """Nor is a list of a million other things searched to its end."""
    assert kind is kind_of(carrying(Odd(), exceptions=[None] * others + [TimeoutError()]))


def test_the_budget_is_shared_by_everything():
    """A wide and deep tangle is left after 256 exceptions."""
    looked_at = []
    leaves = [[Odd() for _ in range(16)] for _ in range(20)]
    classifier = make().add(lambda exc: looked_at.append(exc), TRANSIENT)

    assert INTERNAL is kind_of(Odd(*(Odd(*row) for row in leaves[:16])), classifier)
    assert len(looked_at) <= MAX_NODES


def test_the_budget_ends_the_look_below():
    """Conditions on what lies below share the same budget."""
    links = []
    for _ in range(40):
        exc = ConnectionError()
        for _ in range(10):
            exc = during(ConnectionError(), exc)
        links.append(exc)

    assert TRANSIENT is kind_of(ExceptionGroup("g", links))


# ---------------------------------------------------------------------------------------------------- hostile things
def test_cycles_are_survived():
    """Exceptions that contain each other are read once."""
    one, two = Odd(), Odd()
    one.__cause__, two.__cause__, one.__context__ = two, one, one
    mixed = carrying(Odd(), orig=two)
    mixed.exceptions = [mixed, one, TimeoutError()]

    assert UNKNOWN == read(one)
    assert INTERNAL is kind_of(mixed)


def test_a_group_that_contains_itself():
    """A group among its own leaves is passed over."""
    own = type("Own", (ExceptionGroup,), {"exceptions": property(lambda self: (self, TimeoutError()))})

    assert TRANSIENT is kind_of(own("g", [KeyError()]))


def test_a_wrapper_around_itself():
    """A wrapper whose inside is itself holds nothing."""
    exc = error("Wrapper", module="lib")()

    assert (TRANSIENT, {UNSENT}) == read(carrying(exc, inner=exc))


def test_a_cycle_below_a_connection_error():
    """A chain that bites its tail ends."""
    exc = ConnectionError()
    exc.cause = carrying(Odd(), cause=exc)

    assert TRANSIENT is kind_of(exc)


def test_an_endless_chain_made_on_the_fly():
    """A property that makes a new exception each time is read eight deep."""

    class Endless(Exception):
        cause = property(lambda self: Endless())

    assert INTERNAL is kind_of(Endless())


@pytest.mark.parametrize("raised", [ValueError, RecursionError, MemoryError, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize(
    "name",
    ["fault_kind", "fault_flags", "status_code", "response", "cause", "args", "exceptions", "__cause__", "__dict__"],
)
def test_properties_that_raise(name, raised):
    """Whatever a property raises, what can be read is read."""

    def explode(self):
        raise raised

    hostile = type("Hostile", (ConnectionError,), {name: property(explode)})

    assert TRANSIENT is kind_of(hostile("x"))


@pytest.mark.parametrize("urgent", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_while_classifying(urgent):
    """A Ctrl-C that arrives in the middle is not swallowed."""

    def interrupted(exc):
        raise urgent

    for classifier in (
        make().add(interrupted, TRANSIENT),
        make().add(Odd, TRANSIENT, when=interrupted),
        make().unwrap(Odd, interrupted),
    ):
        with pytest.raises(urgent):
            classifier.classify(Odd())


def test_reading_is_inert():
    """Nothing is set, hashed, compared, converted to text or asked for its truth."""

    class Touchy(Exception):
        def forbidden(self, *args):
            raise AssertionError("touched")

        __hash__ = __eq__ = __str__ = __repr__ = __bool__ = __len__ = __iter__ = __setattr__ = forbidden
        __reduce__ = __reduce_ex__ = __getstate__ = forbidden

    exc = Touchy("x")
    BaseException.__setattr__(exc, "x", 1)
    BaseException.__setattr__(exc, "__cause__", Touchy("y"))

    assert UNKNOWN == read(exc)
    assert {"x": 1} == exc.__dict__


def test_a_lying_class_is_not_believed():
    """`__class__` may say what it likes."""
    liar = type("Liar", (Exception,), {"__class__": property(lambda self: TimeoutError)})

    assert UNKNOWN == read(liar())


@pytest.mark.parametrize(
    "namespace",
    [
        {"__hash__": None},
        {"__hash__": lambda cls: 1 / 0},
        {"__eq__": lambda cls, other: 1 / 0, "__hash__": type.__hash__},
        {"__getattribute__": lambda cls, name: 1 / 0},
        {"__mro__": property(lambda cls: 1 / 0), "__module__": property(lambda cls: 1 / 0)},
    ],
)
def test_hostile_classes_of_classes(namespace):
    """A class whose class breaks everything is read all the same, each time anew if it can't be remembered."""
    meta = type("Meta", (type,), namespace)
    hostile = meta("Hostile", (ConnectionError,), {})
    classifier = make().add(Odd, CONTRACT)

    assert TRANSIENT is kind_of(hostile(), classifier)
    assert TRANSIENT is kind_of(chained(error("Own")(), hostile()), classifier)


def test_what_is_learnt_at_the_end_of_the_stack_is_not_remembered():
    """A class that could not be looked up for want of stack is looked up again."""
    rooms = [0]

    class Meta(type):
        def __hash__(cls):
            rooms[0] += 1
            if rooms[0] < 4:
                raise RecursionError
            return 7

    shy = Meta("Shy", (Exception,), {})
    classifier = make()
    classifier._book = classifier._current_book()
    classifier.add(LookupError, CONTRACT)

    assert [INTERNAL, INTERNAL] == [kind_of(shy(), classifier) for _ in range(2)]


def test_names_that_are_no_text():
    """A class may have anything for a module."""
    strange = type("Strange", (Exception,), {"__module__": 7})

    assert "?.Strange" == make().classify(strange()).origin


def test_attributes_by_getattr():
    """A proxy that answers to every name is read with care."""

    class Proxy(Exception):
        def __getattr__(self, name):
            return Proxy if name == "status_code" else self

    assert UNKNOWN == read(Proxy())


def test_attributes_in_slots():
    """An exception without a dict entry may carry something all the same."""
    slotted = type("Slotted", (Exception,), {"__slots__": ("status_code",)})
    classifier = make()
    full = slotted()
    full.status_code = 503

    assert (INTERNAL, TRANSIENT) == (kind_of(slotted(), classifier), kind_of(full, classifier))


def test_a_class_with_a_dict_of_its_own():
    """A class that replaces `__dict__` is never taken for empty."""
    hidden = type("Hidden", (Exception,), {"__dict__": {}})

    assert UNKNOWN == read(hidden())


def test_a_mixin_does_not_hide_attributes():
    """A class that gets its dict from a mixin is as plain as any."""
    mixin = type("Mixin", (), {})
    mixed = type("Mixed", (mixin, ConnectionError), {})
    classifier = make()

    assert TRANSIENT is kind_of(mixed(), classifier)
    assert DOWNSTREAM is kind_of(carrying(mixed(), status_code=400), classifier)


def test_a_mixin_that_comes_last_is_read():
    """What a mixin says of the status is read wherever it stands among the bases."""
    mixin = type("Mixin", (), {"status_code": 503})
    mixed = type("Mixed", (Exception, mixin), {})

    assert TRANSIENT is kind_of(mixed())


def test_mocks_say_nothing():
    """A mocked response answers to everything and means nothing."""
    from unittest.mock import MagicMock

    assert UNKNOWN == read(carrying(Odd(), response=MagicMock(), headers=MagicMock(), meta=MagicMock()))


@pytest.mark.parametrize("thing", [None, 7, "text", object(), TimeoutError])
def test_what_is_no_exception(thing):
    """Even what is no exception gets an answer."""
    assert UNKNOWN == read(thing)


def test_a_catalogue_that_cannot_be_loaded():
    """A broken catalogue knows nothing, and breaks nothing."""

    def broken(segment):
        raise ImportError(segment)

    assert UNKNOWN == read(TimeoutError(), Classifier(load=broken))


def test_a_clock_that_breaks():
    """Whatever breaks in the middle leaves an answer."""
    classifier = make(wall=lambda: 1 / 0)

    assert UNKNOWN == read(carrying(Odd(), status_code=503, headers=WAIT), classifier)


def test_an_interruption_while_something_breaks(monkeypatch):
    """Nor does a broken classifier turn a cancel into something else."""
    monkeypatch.setattr(rules_module, "Walk", None)

    assert INTERRUPTED is kind_of(KeyboardInterrupt("x", object()))


def test_not_even_the_stack_is_left(monkeypatch):
    """At the end of the stack there is an answer that needs none."""
    monkeypatch.setattr(rules_module, "Walk", None)
    monkeypatch.setattr(rules_module, "name_of", None)

    assert Fault(INTERNAL, {UNCLASSIFIED}) == Classifier().classify(Odd(object()))


def test_near_the_end_of_the_stack():
    """A RecursionError is classified where it is caught."""
    classifier, faults = make(), []

    def dive(exc):
        try:
            dive(exc)
        finally:
            faults.append(classifier.classify(exc))

    with pytest.raises(RecursionError):
        dive(chained(Odd(), chained(Odd(), TimeoutError())))
    assert {TRANSIENT, INTERNAL} >= {fault.kind for fault in faults}
    assert TRANSIENT is faults[-1].kind


def test_nothing_is_kept():
    """No exception outlives its classification."""
    classifier = make()
    exc = carrying(chained(Odd(TimeoutError()), Odd()), exceptions=[Odd()], status_code=1)
    gone = weakref.ref(exc)
    gc.collect()
    gc.disable()
    try:
        classifier.classify(exc)
        del exc
        assert gone() is None
    finally:
        gc.enable()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*FaultKind, *FaultFlag]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    [
        *("fault_kind", "fault_flags", "status_code", "response", "headers", "meta", "code", "retry_after"),
        *("cause", "exceptions", "kwargs", "reason", "orig"),
    ]
)
exceptions = st.recursive(
    st.builds(lambda kind: kind(), st.sampled_from([Odd, TimeoutError, KeyError, KeyboardInterrupt, OSError])),
    lambda inner: st.builds(
        lambda kind, args, attributes, cause: carrying(chained(kind(*args), cause), **attributes),
        st.sampled_from([Odd, ConnectionError, error("Wrapper", module="lib")]),
        st.lists(inner | values, max_size=3),
        st.dictionaries(names, inner | values | st.lists(inner, max_size=3), max_size=4),
        st.none() | inner,
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(exceptions)
def test_every_exception_has_a_fault(exc):
    """Whatever hangs on an exception, it is classified, and twice the same."""
    classifier = make()

    assert classifier.classify(exc) == classifier.classify(exc)


@pytest.mark.slow
@given(exceptions)
def test_what_is_remembered_is_what_is_read(exc):
    """The answer of a fresh classifier is that of one which knows the type."""
    seasoned = make()
    for kind in (Odd, TimeoutError, KeyError, KeyboardInterrupt, OSError, ConnectionError):
        seasoned.classify(kind())

    assert make().classify(exc) == seasoned.classify(exc)


# ---------------------------------------------------------------------------------------------------- memory of types
Believed = error("Believed", fault_kind=CONTRACT, fault_flags=frozenset({CONFIG}))
Mixed = type("Mixed", (type("Mixin", (), {}), Odd), {})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (TimeoutError, Fault(TRANSIENT, origin="builtins.TimeoutError")),
        (KeyboardInterrupt, Fault(INTERRUPTED, {LOCAL}, origin="builtins.KeyboardInterrupt")),
        (Believed, Fault(CONTRACT, {CONFIG}, origin="shop.errors.Believed")),
        (Mixed, Fault(DOWNSTREAM, origin=f"{__name__}.Mixed")),
    ],
)
def test_known_types(kind, expected):
    """A type that decides alone is known once it was seen."""
    classifier = make().add(Odd, DOWNSTREAM)
    before = classifier.known(kind)
    fault = classifier.classify(kind())

    assert (None, expected, expected) == (before, fault, classifier.known(kind))
    assert fault is classifier.classify(kind())


@pytest.mark.parametrize(
    "exc",
    [
        ConnectionError(),
        OSError(),
        Odd(),
        error("Own", ConnectionError)(),
        ExceptionGroup("g", [Odd()]),
        CircuitOpenError("x"),
    ],
)
def test_types_that_do_not_decide_alone(exc):
    """A type whose instances or chains may differ is not known by itself."""
    classifier = make()
    classifier.classify(exc)

    assert classifier.known(type(exc)) is None


def test_a_bare_instance_is_answered_at_once(monkeypatch):
    """With nothing to read, one look at the type is enough; where nobody looks below, so it is with a cause."""
    classifier = make()
    down, late = classifier.classify(ConnectionError("down", 7)), classifier.classify(TimeoutError())
    monkeypatch.setattr(rules_module, "Walk", None)

    assert down is classifier.classify(ConnectionError("down", 7))
    assert late is classifier.classify(chained(TimeoutError(), KeyError()))


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (chained(ConnectionError(), KeyError()), DOWNSTREAM),
        (during(ConnectionError(), KeyError()), TRANSIENT),
        (ConnectionError(KeyError()), DOWNSTREAM),
        (carrying(ConnectionError(), cause=KeyError()), DOWNSTREAM),
        (carrying(ConnectionError(), fault_kind=CONTRACT), CONTRACT),
        (chained(TimeoutError(), KeyError()), TRANSIENT),
        (TimeoutError(b"x"), TRANSIENT),
        (carrying(TimeoutError(), fault_kind=CONTRACT), CONTRACT),
    ],
)
def test_a_known_type_with_something_to_read(exc, kind):
    """What an instance carries is read although its type was seen bare."""
    classifier = make()
    classifier.classify(ConnectionError()), classifier.classify(TimeoutError())

    assert kind is kind_of(exc, classifier)


def test_the_types_remembered_are_bounded(monkeypatch):
    """A library that makes its classes on the fly does not fill the memory."""
    monkeypatch.setattr(rules_module, "MAX_TYPES", 8)
    classifier = make()
    sizes = []
    for number in range(50):
        classifier.classify(error(f"Odd{number}")())
        sizes.append(len(classifier._profiles))

    assert 8 == max(sizes)


def test_a_segment_of_the_catalogue_is_loaded_once():
    """The second class of a library needs no second look into the catalogue."""
    loaded = []
    classifier = Classifier(load=lambda segment: loaded.append(segment) or load(segment))
    kinds = [kind_of(error(name, module="lib")(), classifier) for name in ("Busy", "Answer", "Gone")]

    assert [TRANSIENT, DOWNSTREAM, INTERRUPTED] == kinds
    assert ["builtins", "lib"] == sorted(loaded)


def test_rules_are_arranged_once():
    """As long as none is added, the rules need not be arranged again for every type."""
    classifier = make().add(Odd, TRANSIENT).add(KeyError, CONTRACT)
    arranged = classifier._current_book()

    assert arranged is classifier._current_book()
    assert arranged is not classifier.add(ValueError, CONTROL)._current_book()


def test_a_rule_that_comes_while_a_type_is_worked_out(monkeypatch):
    """An answer that was overtaken by a new rule is not kept."""
    classifier = make()

    class Overtaken(Profile):
        __slots__ = ()

        def __init__(self, *args):
            super().__init__(*args)
            monkeypatch.undo()
            classifier.add(Odd, TRANSIENT)

    monkeypatch.setattr(rules_module, "Profile", Overtaken)
    overtaken = classifier.profile_of(Odd)

    assert INTERNAL is overtaken.when_bare.kind
    assert overtaken is not classifier.profile_of(Odd)
    assert TRANSIENT == kind_of(Odd(), classifier)


def test_a_rule_that_comes_while_a_child_is_made():
    """A parent tells only finished children that there is a new rule."""

    class Busy(Classifier):
        def _adopt(self, child):
            super()._adopt(child)
            self.add(Odd, TRANSIENT)

    assert TRANSIENT == kind_of(Odd(), Busy(load=load).child())


def test_adding_while_others_classify():
    """Threads that classify never fail, and see a rule once its adding has returned."""
    classifier = make()
    kinds = [error(f"Odd{number}") for number in range(50)]
    failures, stop = [], threading.Event()

    def classify():
        while not stop.is_set():
            failures.extend(kind for kind in kinds if kind_of(kind(), classifier) not in (INTERNAL, TRANSIENT))

    threads = [threading.Thread(target=classify) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for kind in kinds:
            classifier.add(kind, TRANSIENT)
            if kind_of(kind(), classifier) is not TRANSIENT:
                failures.append(kind)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)

    assert [] == failures
    assert {TRANSIENT} == {kind_of(kind(), classifier) for kind in kinds}
