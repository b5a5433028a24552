"""Frozen records with named fields, equal by value.

They read and type-check like keyword-only frozen dataclasses. Making a dataclass
compiles code, which for a dozen small records would cost more than the whole import
may: a record's class is an ordinary class.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


def spelled(value: object) -> str:
    """`repr`, but a set in order: the same value reads the same in every process."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(str(part) for part in value)) + "}"
    return repr(value)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of the records: annotations are fields, class attributes are their defaults."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = tuple(name for name in cls.__dict__.get("__annotations__", ()) if name not in cls._fields)
        cls._fields = (*cls._fields, *own)
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= set(self._fields):
            missing = sorted(self._required - values.keys())
            unknown = sorted(values.keys() - set(self._fields))
            raise TypeError(f"{type(self).__name__}: missing {missing}, unknown {unknown}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, in their order."""
        return {name: getattr(self, name) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash((type(self), *self.as_dict().values()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={spelled(value)}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({inside})"
