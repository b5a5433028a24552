"""Families: one member per key, made when it is first asked for, and never more than so many.

Members are looked up in one dict, by compiled wrappers as well, without a lock. So is
all the rest done without a lock that anybody waits for:

- A new member takes one of `max_keys` places first and enters by `setdefault`: of those
  who make one for a key at once, one is first, and the others find his and give their
  places back.
- A member that is to make room retires first, by itself and for good: from then on no
  call can do anything to it, and whoever finds it looks again. Then it is taken out, by
  one thread at a time (a `Turn`), which looks whether this very member is still there.
  Nobody replaces an entry, so it takes out no other. If that is interrupted, whoever
  comes upon the retired member finishes it.
- Who finds no place, or no turn, shares `__other__`, which is always there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from resilience._changing import is_changing
from resilience._core.events import KeyOverflow
from resilience._core.hand import Hand
from resilience._core.keys import OTHER, NoKey, read_key
from resilience._core.slots import Stock
from resilience._turns import Turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from resilience._site import Services


class Member(Protocol):
    """What a family has one of for each key."""

    key: tuple[str, ...] | None
    seen: int | None

    @property
    def retired(self) -> bool:
        """Whether it has left, or is about to be taken out."""

    def activity(self, now: float) -> int | None:
        """A figure that every use changes; None while it can't go."""

    def retire(self) -> bool:
        """Leave for good; False where something would be lost by it, or another thread is at it."""


M = TypeVar("M", bound=Member)
_MOST_LOOKS = 4
"""How many members may be looked at to make room for one: it bounds what an unknown key costs."""


class Family(Generic[M]):
    """The members of one name by their keys; a key is a tuple of texts, one for each label.

    Looking a key up never raises: one that is no key shares the member `__other__`.

    Attributes:
        name: its name in the registry.
        max_keys: the most keys it has members for at a time.
        members: the member by key, for who looks without asking.
    """

    __slots__ = (
        "__weakref__",
        "_hand",
        "_labels",
        "_looks",
        "_others",
        "_places",
        "_services",
        "_told",
        "_turn",
        "max_keys",
        "members",
        "name",
    )

    def __init__(self, name: str, labels: tuple[str, ...], max_keys: int, services: Services) -> None:
        self.name = name
        self.max_keys = max_keys
        self.members: dict[tuple[str, ...], M] = {}
        self._services = services
        self._labels: dict[str, tuple[str, ...]] = {}
        self._others: dict[str, M] = {}
        self._told: dict[NoKey, object] = {}
        self._hand: Hand[M] = Hand()
        self._places = Stock(max_keys)
        # A round of the hand lasts for some new keys in a small family as well, or nobody would be idle for long.
        self._looks = max(1, min(_MOST_LOOKS, max_keys // _MOST_LOOKS))
        self._turn = Turn()
        if labels:
            self.declare(labels)

    def _make(self, key: tuple[str, ...]) -> M:
        """A new member."""
        raise NotImplementedError

    def _made(self, member: M) -> None:
        """Called when a new member has entered."""

    # ------------------------------------------------------------------------------------------------ labels
    @property
    def labels(self) -> tuple[str, ...]:
        """What the parts of a key are called; empty until the first key where nobody has said."""
        return self._labels.get(_DECLARED, ())

    def declare(self, labels: tuple[str, ...]) -> None:
        """Name the parts of keys, if nobody has."""
        self._labels.setdefault(_DECLARED, labels)
        other = self._others.get(OTHER)
        if other is not None:
            other.key = self.other_key

    @property
    def other_key(self) -> tuple[str, ...]:
        """The key of the member that is shared by calls without a key of their own."""
        return (OTHER,) * max(1, len(self.labels))

    # ------------------------------------------------------------------------------------------------ looking up
    def __getitem__(self, key: Any) -> M:
        """The member of a key, made if need be: `family[provider, model]`, or `family[provider]` for a single label."""
        return self.find(self.key_of(key))

    def get(self, *key: Any) -> M | None:
        """The member of a key (its parts, or one tuple of them) if there is one; makes none."""
        read = read_key(key[0] if len(key) == 1 else key, len(self.labels))
        if isinstance(read, NoKey):
            return None
        return self._others.get(OTHER) if read == self.other_key else self.members.get(read)

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        """The number of keys, `__other__` not counted."""
        return len(self.members)

    def __iter__(self) -> Iterator[M]:
        """The members, without `__other__`."""
        return iter(tuple(self.members.values()))

    @property
    def other(self) -> M | None:
        """The member `__other__`, None as long as nobody has needed it."""
        return self._others.get(OTHER)

    @property
    def everybody(self) -> tuple[M, ...]:
        """All members, `__other__` last."""
        return (*self.members.values(), *self._others.values())

    def key_of(self, given: Any) -> tuple[str, ...] | None:
        """The key that a part or a tuple of parts stands for; None, which is told once, for what is no key."""
        count = len(self.labels)
        key = read_key(given, count)
        if not count and not isinstance(key, NoKey):
            # Nobody has said how many parts there are: the first key does.
            self.declare(("key",) if len(key) == 1 else tuple(f"key_{place}" for place, _ in enumerate(key, 1)))
            key = read_key(given, len(self.labels))
        if isinstance(key, NoKey):
            self.tell(key)
            return None
        return key

    def find(self, key: tuple[str, ...] | None) -> M:
        """The member of a key in its normal form, None for `__other__`."""
        found = None if key is None else self.members.get(key)
        if found is not None and not found.retired:
            return found
        if key is None or (key[0] == OTHER and key == self.other_key):
            return self._find_other()
        return self._admit(key, found)

    def _find_other(self) -> M:
        other = self._others.get(OTHER)
        if other is None:
            made = self._make(self.other_key)
            other = self._others.setdefault(OTHER, made)
            if other is made:
                self._made(made)
        return other

    # ------------------------------------------------------------------------------------------------ coming and going
    def _admit(self, key: tuple[str, ...], retired: M | None) -> M:
        if retired is not None:
            self._turn.take(partial(self._take_out, retired))
            found = self.members.get(key)
            if found is not None:
                # Another thread's new one; or it is still there, and for this call it will do.
                return found
        if not self._take_place():
            self.tell(NoKey.FULL)
            return self._find_other()
        entered_first = False
        try:
            made = self._make(key)
            entered = self.members.setdefault(key, made)
            entered_first = entered is made
        finally:
            if not entered_first:
                self._places.free.append(0)
        if entered_first:
            self._made(made)
        return entered

    def _take_place(self) -> bool:
        """Take a place, after making one free if there is none."""
        places = self._places
        if places.take() is not None:
            return True
        now = self._services.now()
        for _ in range(self._looks):
            idle = self._hand.look(self.members, now)
            if idle is not None and (idle.retired or idle.retire()):
                self._turn.take(partial(self._take_out, idle))
                if places.take() is not None:
                    return True
        return False

    def _take_out(self, member: M) -> None:
        """In turn: take out a member that has retired, if nobody has done so yet."""
        key = member.key
        if key is not None and self.members.get(key) is member:
            del self.members[key]
            self._places.free.append(0)

    def tell(self, reason: NoKey) -> None:
        """Count a call without a key of its own; the first for each reason is an event."""
        hub = self._services.hub
        hub.tally(f"key_overflow:{self.name}")
        mine = object()
        if reason not in self._told and self._told.setdefault(reason, mine) is mine:
            hub.put(KeyOverflow(name=self.name, reason=reason.value, max_keys=self.max_keys))
            # In the middle of a change nobody's listener may run: whoever ends it delivers.
            if not is_changing():
                hub.deliver()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"family {self.name!r} belongs to its registry, in this process: it can't be pickled")

    def after_fork(self) -> None:
        """In the child: nobody else is in the middle of anything."""
        self._turn = Turn()
        self._places.refill()
        for _ in self.members:
            self._places.take()


_DECLARED = "declared"
