"""The classifier: from any exception to a `Fault`, whatever the exception does.

The order, first word wins:

1. `fault_kind` on the exception, if it is a real `FaultKind`, with its `fault_flags`.
   (What is no `Exception` is INTERRUPTED before that; a group of such is read by its leaves.)
2. This classifier's own rules, then its parent's, and so on. Each level is asked to the
   end before the next: predicates in the order in which they were added, then the
   classes of the MRO, most derived first, and within one class the first rule whose
   condition holds. So a rule for `OSError` in a child is asked before everything that
   the catalogue knows about the classes below `OSError`, as `except OSError` would be.
3. The catalogue, which is the last parent, for library classes and for exact classes
   of the standard library.
4. The HTTP status of an exception that nobody has named.
5. What lies inside it: cause, reason, orig, args, context.
6. The catalogue's rules for the standard library classes it derives from.
7. Nothing: INTERNAL with the flag `unclassified`.

Rules may be added while other threads classify, without a lock. Who adds a rule appends it,
begins a new generation, then forgets; who works a type out remembers it only within the
generation in which that began. So no answer without a rule outlives the adding of it.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from resilience._core.faults import Fault
from resilience._core.profile import Profile
from resilience._core.reading import mro_of, name_of, segment_of
from resilience._core.rule import Book, Rule, checked_rule, checked_wrapper
from resilience._core.unwrap import Walk
from resilience._words import FaultFlag, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import ClassVar, Self

    from resilience._core.rule import Condition, Match, Reader

__all__ = ["Classifier", "Rule"]

MAX_TYPES = 256

_UNREADABLE = Fault(FaultKind.INTERNAL, {FaultFlag.UNCLASSIFIED})
_INTERRUPTED = Fault(FaultKind.INTERRUPTED)
_NO_RULES = Book(())


class Classifier:
    """Turns exceptions into faults: your rules first, then what the catalogue knows.

    Args:
        parent: asked after this one's own rules, also for rules added to it later
            (default: the process's default classifier, with the catalogue behind it).
        otherwise: the kind of an exception that no rule knows (default: the parent's, in
            the end INTERNAL with the flag `unclassified`, which never trips and is never
            retried).
        load: gives the catalogue's rules for a module segment when one is first seen;
            such a classifier has no parent by default.
        wall: wall-clock seconds since the epoch, for Retry-After dates (default: the parent's).
        on_junk: called for each Retry-After that can't be read (default: the parent's).
        name: `module:name` of the variable it is kept in; it pickles by that name
            (default: it pickles by its rules).

    Attributes:
        by_type: the faults of types that decide alone; read it, don't write it.
        surroundings: what a walk needs besides the rules: the kind of what nobody knows, the
            wall clock, whom to tell of junk.
        known: `by_type.get`: the fault of a type, or None if an instance must be looked
            at or none has been seen. It holds for an instance with an empty `__dict__`.

    Example:
        >>> rules = Classifier().add(LookupError, FaultKind.CONTRACT)
        >>> str(rules.classify(KeyError("stock")).kind)
        'contract'
    """

    # The catalogue lies a floor above and puts itself here when it is imported, which
    # importing the package does.
    default: ClassVar[Classifier | None] = None

    by_type: dict[type, Fault]
    known: Callable[[type], Fault | None]

    def __init__(
        self,
        *,
        parent: Classifier | None = None,
        otherwise: FaultKind | None = None,
        load: Callable[[str], Iterable[Rule]] | None = None,
        wall: Callable[[], float] | None = None,
        on_junk: Callable[[], object] | None = None,
        name: str | None = None,
    ) -> None:
        if parent is None and load is None:
            parent = Classifier.default
        self._name = name
        self._parent = parent
        self._load = load
        self._wall = wall
        self._on_junk = on_junk
        self._otherwise = otherwise
        self._levels: tuple[Classifier, ...] = (self,)
        if parent is not None:
            self._wall = wall or parent._wall
            self._on_junk = on_junk or parent._on_junk
            self._otherwise = otherwise or parent._otherwise
            self._levels = (self, *parent._levels)
        self.surroundings = (self._otherwise, self._wall, self._on_junk)
        self._rules: list[Rule] = []
        self._generation = object()
        self._book = _NO_RULES
        self._loaded: dict[str, Book] = {}
        self._children: dict[int, weakref.ref[Classifier]] = {}
        self._profiles: dict[type, Profile] = {}
        self.bare: dict[type, Fault] = {}
        self.by_type = {}
        self.known = self.by_type.get
        if parent is not None:
            parent._adopt(self)

    # ------------------------------------------------------------------------------------------------ classifying
    def classify(self, exc: BaseException, handled: BaseException | None = None) -> Fault:
        """Return the fault behind an exception; it never raises, whatever the exception does.

        Args:
            exc: the exception; it is only read.
            handled: the exception that was being handled when the call began (default:
                None). What hangs on that one is not this call's and is not looked at.

        Example:
            >>> str(Classifier().classify(KeyboardInterrupt()).kind)
            'interrupted'
        """
        try:
            kind = type(exc)
            try:
                fault = self.bare.get(kind)
            except Exception:  # a class whose class can't hash it
                fault = None
            if fault is not None and not exc.__dict__:
                if exc.__context__ is None and exc.__cause__ is None:
                    for arg in exc.args:
                        if type(arg) is not str and type(arg) is not int:
                            break
                    else:
                        return fault
                fault = self.by_type.get(kind)
                if fault is not None:
                    return fault
            return Walk(self.profile_of, *self.surroundings, handled).classify(exc)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            try:
                return self._failed(exc)
            except Exception:  # not even the stack is left
                return _UNREADABLE

    def _failed(self, exc: object) -> Fault:
        kind = type(exc)
        if issubclass(kind, BaseException) and not issubclass(kind, Exception):
            return _INTERRUPTED
        origin = ".".join(name_of(kind))
        if self._otherwise is not None:
            return Fault(self._otherwise, origin=origin)
        return Fault(_UNREADABLE.kind, _UNREADABLE.flags, origin=origin)

    # ------------------------------------------------------------------------------------------------ adding rules
    def add(
        self,
        match: Match,
        kind: FaultKind,
        *,
        flags: Iterable[FaultFlag] = (),
        when: Condition | None = None,
        retry_after: Reader | None = None,
    ) -> Self:
        """Add a rule and return the classifier itself, so that rules can be chained.

        Args:
            match: an exception type (its subclasses too), a name such as
                `"httpx.ReadTimeout"` (nothing is imported), or a function that is given the
                exception and says whether the rule holds.
            kind: what such an exception means.
            flags: what the kind alone does not say (default: none).
            when: a further condition on the exception; if it raises, the rule does not
                hold (default: none).
            retry_after: a function that gives the seconds, or the header's text, where the
                exception keeps them in an unusual place (default: the usual places).

        Raises:
            ConfigurationError: an argument can't be right.

        A `match` function that raises makes its exception INTERNAL and `unclassified`.

        Example:
            >>> rules = Classifier().add("shop.OutOfStock", FaultKind.CONTRACT)
        """
        self._append(checked_rule(match, kind, flags=flags, when=when, retry_after=retry_after))
        return self

    def unwrap(self, match: type[BaseException] | str, inner: str | Reader) -> Self:
        """Say that an exception type is only a wrapper: what is inside it decides.

        Args:
            match: an exception type or a name, as for `add`.
            inner: the attribute that holds the exception inside, or a function that gives
                it (or a list of several). Where it holds none, the other rules are asked.

        Raises:
            ConfigurationError: an argument can't be right.

        Example:
            >>> rules = Classifier().unwrap("jobs.JobFailed", "original")
        """
        self._append(checked_wrapper(match, inner))
        return self

    def child(self) -> Classifier:
        """Return a classifier that asks its own rules first and then this one's, also those added later.

        Example:
            >>> narrower = Classifier().child().add(LookupError, FaultKind.CONTROL)
        """
        return Classifier(parent=self)

    def __reduce__(self) -> tuple[object, ...]:
        if self._name is not None:
            return _found, (self._name,)
        return _restored, (self._parent, self._otherwise, tuple(self._rules))

    # ------------------------------------------------------------------------------------------------ types
    def _append(self, rule: Rule) -> None:
        self._rules.append(rule)
        self._forget()

    def _adopt(self, child: Classifier) -> None:
        key, children = id(child), self._children
        # Only its number is kept: a child that nobody else holds goes away.
        children[key] = weakref.ref(child, lambda _gone: children.pop(key, None))

    def _forget(self) -> None:
        self._generation = object()
        self._profiles.clear()
        self.bare.clear()
        self.by_type.clear()
        for reference in tuple(self._children.values()):
            child = reference()
            if child is not None:
                child._forget()

    def profile_of(self, kind: type) -> Profile:
        """What is known of a type; worked out once."""
        try:
            return self._profiles[kind]
        except Exception:  # not seen yet, or a class whose class can't hash it
            return self._first_seen(kind)

    def _first_seen(self, kind: type) -> Profile:
        generation = self._generation
        rules: list[Rule] = []
        bases: list[Rule] = []
        for level in self._levels:
            level._collect(kind, rules, bases)
        profile = Profile(kind, rules, bases, self._otherwise)
        with suppress(Exception):  # a class whose class can't hash it is worked out each time
            self._keep(kind, profile, generation)
        return profile

    def _keep(self, kind: type, profile: Profile, generation: object) -> None:
        """Remember what was worked out, unless a rule was added meanwhile."""
        if len(self._profiles) >= MAX_TYPES:
            self._profiles.clear()
            self.bare.clear()
            self.by_type.clear()
        bare, always = profile.when_bare, profile.always
        # Nothing is called between a look and the store after it, so no other thread runs there.
        if self._generation is generation:
            self._profiles[kind] = profile
        if bare is not None and self._generation is generation:
            self.bare[kind] = bare
        if always is not None and self._generation is generation:
            self.by_type[kind] = always

    def _collect(self, kind: type, rules: list[Rule], bases: list[Rule]) -> None:
        """This level's rules for `kind`: what to ask first, and what only as a last resort."""
        book = self._current_book()
        rules += book.predicates
        lineage = mro_of(kind)
        for base in lineage:
            rules += book.of(base)
        # A class that the standard library itself defines is named by its bases as well.
        at_home = self._segment(kind).generic
        for base in lineage:
            for rule in self._segment(base).of(base):
                (bases if rule.generic and not at_home else rules).append(rule)

    def _current_book(self) -> Book:
        book = self._book
        if book.size != len(self._rules):
            book = self._book = Book(tuple(self._rules))
        return book

    def _segment(self, kind: type) -> Book:
        if self._load is None:
            return _NO_RULES
        segment = segment_of(name_of(kind)[0])
        book = self._loaded.get(segment)
        if book is None:
            book = Book(self._load(segment))
            if book.size:  # there is no end of packages that nobody has rules for
                self._loaded[segment] = book
        return book


def _found(name: str) -> object:
    from importlib import import_module

    module, _, variable = name.partition(":")
    return getattr(import_module(module), variable)


def _restored(parent: Classifier | None, otherwise: FaultKind | None, rules: tuple[Rule, ...]) -> Classifier:
    classifier = Classifier(parent=parent, otherwise=otherwise)
    classifier._rules += rules
    return classifier
