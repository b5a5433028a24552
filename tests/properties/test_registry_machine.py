"""Registries against dictionaries: who registers, refers, calls or puts another registry in place, in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resilience import (
    BreakerConfig,
    BulkheadConfig,
    CircuitState,
    ConfigurationError,
    Consecutive,
    Registry,
    breaker,
    bulkhead,
    use_registry,
)
from resilience._registry import current_registry
from resilience.events import ConfigConflict

names = st.sampled_from(["api", "mail", "Mail"])
shelves = st.sampled_from(["lax", "strict"])
# As a configuration writes its fields, next to what makes them.
breaker_fields = st.fixed_dictionaries(
    {
        "trip": st.sampled_from([Consecutive(5), Consecutive(3)]),
        "cooldown": st.sampled_from([30.0, 5.0]),
        "half_open_probes": st.integers(1, 2),
        "answered": st.sampled_from(["reset", "ignore"]),
    }
)
sizes = st.tuples(st.integers(1, 2), st.sampled_from([None, 0, 10, 20]))
DEFAULTS = {"trip": Consecutive(5), "cooldown": 30.0, "half_open_probes": 1, "answered": "reset"}


class Shelf:
    """A registry, and what is known of it."""

    def __init__(self, strict):
        self.strict = strict
        self.real = Registry(strict=strict)
        self.breakers, self.bulkheads = {}, {}  # names and their settings
        self.found, self.calls, self.opened = {}, {}, set()
        self.conflicts, self.told = [], []
        self.real.subscribe(lambda event: self.told.append((event.name, event.differences)), ConfigConflict)

    def note_conflict(self, name, lines):
        """Where settings differ: whether it raises; else one event for each difference there is."""
        if lines and self.strict:
            return True
        if lines and (name, lines) not in self.conflicts:
            self.conflicts.append((name, lines))
        return False


def differences(ours, theirs, fields=tuple(DEFAULTS)):
    return tuple(f"{field}: {ours[field]!r}, not {theirs[field]!r}" for field in fields if ours[field] != theirs[field])


class Registering(RuleBasedStateMachine):
    """Two registries beside the process-wide one, one of them strict."""

    references = Bundle("references")
    functions = Bundle("functions")

    @initialize()
    def begin(self):
        self.shelves = {"lax": Shelf(False), "strict": Shelf(True)}
        self.before = current_registry()
        self.blocks = []
        # Outside of all blocks a test would leave its traces in the process-wide registry.
        self.enter_a_block("lax")

    def here(self):
        """The registry of the innermost block."""
        return self.blocks[-1][0]

    # -------------------------------------------------------------------------- what registering means
    def foresee(self, shelf, name, fields):
        """First registration wins; whether a later one with other settings raises."""
        if name not in shelf.breakers:
            shelf.breakers[name] = fields or DEFAULTS
            shelf.calls[name] = 0
            return False
        return fields is not None and shelf.note_conflict(name, differences(shelf.breakers[name], fields))

    def same_as_ever(self, shelf, name, found):
        assert found is shelf.found.setdefault(name, found)

    @rule(shelf=shelves, name=names, fields=st.none() | breaker_fields)
    def register(self, shelf, name, fields):
        shelf = self.shelves[shelf]
        raises = self.foresee(shelf, name, fields)
        try:
            self.same_as_ever(shelf, name, shelf.real.breaker(name, fields and BreakerConfig(**fields)))
        except ConfigurationError as error:
            lines = differences(shelf.breakers[name], fields)
            found = error.faults
        else:
            lines, found = (), ()
        assert raises is bool(found)
        assert tuple(f"{name!r} is registered already with {line}" for line in lines) == found

    @rule(target=references, name=names, fields=st.none() | breaker_fields, shelf=st.none() | shelves)
    def refer(self, name, fields, shelf):
        """With settings it registers at once, without it registers nothing; a registry may be named."""
        named = None if shelf is None else self.shelves[shelf]
        raises = fields is not None and self.foresee(named or self.here(), name, fields)
        if raises:
            with pytest.raises(ConfigurationError):
                breaker(name, BreakerConfig(**fields), registry=named and named.real)
            fields = None
        return breaker(name, fields and BreakerConfig(**fields), registry=named and named.real), named, name, fields

    @rule(reference=references)
    def look_up(self, reference):
        """Looked up in the registry of the moment, unless one was named."""
        ref, named, name, fields = reference
        shelf = named or self.here()
        if self.foresee(shelf, name, fields):
            with pytest.raises(ConfigurationError):
                ref.breaker
        else:
            self.same_as_ever(shelf, name, ref.breaker)

    @rule(target=functions, reference=references)
    def decorate(self, reference):
        """Belongs from now on to the registry of the moment, or the named one; the name may come later."""
        ref, named, name, fields = reference
        shelf = named or self.here()
        if fields is not None and self.foresee(shelf, name, fields):
            with pytest.raises(ConfigurationError):
                ref(lambda: None)
            ref = breaker(name, registry=shelf.real)
        return ref(lambda: "well"), shelf, name

    @rule(function=functions)
    def call(self, function):
        """It finds the breaker of its name, or makes it with the defaults; the success is that breaker's."""
        run, shelf, name = function
        self.foresee(shelf, name, None)
        if name in shelf.opened:
            with pytest.raises(Exception, match=name):
                run()
        else:
            assert "well" == run()
            shelf.calls[name] += 1
        self.same_as_ever(shelf, name, run.resilience.breaker)

    # -------------------------------------------------------------------------- bulkheads
    @rule(shelf=shelves, name=names, size=st.none() | sizes, through=st.booleans())
    def register_a_bulkhead(self, shelf, name, size, through):
        """As for breakers, but for a name that nobody has given a size; a line left out is ten times as long."""
        shelf = self.shelves[shelf]
        known = shelf.bulkheads.get(name)
        if size is None and known is None:
            with pytest.raises(ConfigurationError, match="max_in_flight"):
                shelf.real.bulkhead(name)
            return
        wanted = known if size is None else (size[0], 10 * size[0] if size[1] is None else size[1])
        known = shelf.bulkheads.setdefault(name, wanted)
        fields = ("max_in_flight", "max_waiting")
        lines = differences(*(dict(zip(fields, each, strict=True)) for each in (known, wanted)), fields)
        raises = shelf.note_conflict(name, lines)
        try:
            if through and size is not None:
                bulkhead(name, max_in_flight=size[0], max_waiting=size[1], registry=shelf.real)
            else:
                shelf.real.bulkhead(name, size and BulkheadConfig(*size))
        except ConfigurationError as error:
            found = error.faults
        else:
            found = ()
        assert (tuple(f"{name!r} is registered already with {line}" for line in lines) if raises else ()) == found

    # -------------------------------------------------------------------------- blocks
    @rule(shelf=shelves)
    def enter_a_block(self, shelf):
        block = use_registry(self.shelves[shelf].real)
        assert block.__enter__() is self.shelves[shelf].real
        self.blocks.append((self.shelves[shelf], block))

    @precondition(lambda self: len(self.blocks) > 1)
    @rule(by_error=st.booleans())
    def leave_a_block(self, by_error):
        _, block = self.blocks.pop()
        if by_error:
            assert block.__exit__(KeyError, KeyError("x"), None) is False
        else:
            block.__exit__(None, None, None)

    # -------------------------------------------------------------------------- an operator
    @rule(shelf=shelves, name=names)
    def force_open(self, shelf, name):
        shelf = self.shelves[shelf]
        if name in shelf.found:
            shelf.found[name].force_open("test")
            shelf.opened.add(name)

    @rule(shelf=shelves, name=names)
    def reset(self, shelf, name):
        """True for a name that exists and is not closed; it makes no name."""
        shelf = self.shelves[shelf]
        assert (name in shelf.opened) is shelf.real.reset(name)
        shelf.opened.discard(name)

    @rule(shelf=shelves)
    def clear_state(self, shelf):
        """Everything back to closed and zero; registrations stay."""
        shelf = self.shelves[shelf]
        shelf.real.clear_state()
        shelf.opened.clear()
        shelf.calls = dict.fromkeys(shelf.calls, 0)

    @rule(shelf=shelves, bad=st.sampled_from(["", "a b", "ü", "x" * 257, None, 3]))
    def register_nonsense(self, shelf, bad):
        """A name that is none changes nothing."""
        for make in (self.shelves[shelf].real.breaker, self.shelves[shelf].real.bulkhead):
            with pytest.raises(ConfigurationError, match="name"):
                make(bad)

    # -------------------------------------------------------------------------- what always holds
    @invariant()
    def what_is_known(self):
        """Exactly the names that were registered, each with its first settings, its calls and its state."""
        for shelf in self.shelves.values():
            registry = shelf.real
            assert set(shelf.breakers) == {found.name for found in registry} == set(registry.status_all())
            for name in ("api", "mail", "Mail", "never"):
                found = registry.get(name)
                assert (name in registry) is (name in shelf.breakers) is (found is not None)
                if found is not None:
                    self.same_as_ever(shelf, name, found)
                    assert BreakerConfig(**shelf.breakers[name]) == found.config
                room = registry.get_bulkhead(name)
                assert shelf.bulkheads.get(name) == (room and (room.max_in_flight, room.max_waiting))
            for name, status in registry.status_all().items():
                state = CircuitState.OPEN if name in shelf.opened else CircuitState.CLOSED
                assert (state, shelf.calls[name]) == (status.state, status.successes_total)

    @invariant()
    def each_conflict_is_told_once(self):
        """Field by field, once for each difference; a strict registry raises instead."""
        for shelf in self.shelves.values():
            assert shelf.conflicts == shelf.told

    @invariant()
    def the_innermost_block_holds(self):
        assert current_registry() is self.here().real

    def teardown(self):
        while getattr(self, "blocks", ()):
            self.leave_a_block(False)
        assert current_registry() is getattr(self, "before", current_registry())


# Without explaining: that takes minutes, and the shortest story says enough.
SETTINGS = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def test_registries_in_any_order():
    """Section 9: first registration wins, conflicts are told field by field, references resolve when they are needed."""
    run_state_machine_as_test(Registering, settings=SETTINGS)
