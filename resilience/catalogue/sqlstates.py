"""What a SQLSTATE means (PostgreSQL manual, appendix A), wherever a driver keeps it.

Its first two characters are the class. Section 13.5 of the manual tells what is to be
repeated: the whole transaction, not the statement.
"""

from __future__ import annotations

from typing import Any

from resilience._core.reading import read
from resilience.catalogue.conditions import Field, says
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
)


def sqlstate_of(exc: Any) -> object:
    state = read(exc, "sqlstate")
    return read(exc, "pgcode") if state is None else state


def _put_sqlstate(exc: Any, value: str) -> None:
    exc.sqlstate = value.upper()


SQLSTATE = Field("SQLSTATE", sqlstate_of, _put_sqlstate)
ON_REQUEST = says("user request")


def by_sqlstate(names: str, state: Field = SQLSTATE) -> tuple[Case, ...]:
    """Cases for classes whose instances carry a state."""
    return (
        Case(names, TRANSIENT, CONTENTION, when=state.among("40000", "40001", "40P01", "55P03")),
        # Nobody knows whether the commit took place.
        Case(names, TRANSIENT, AMBIGUOUS, when=state.among("40003", "08007", "08006")),
        Case(names, DOWNSTREAM, when=state.among("08P01", "53100") | state.starting("58", "XX", "F0")),
        # A session of ours that idled too long.
        Case(names, TRANSIENT, LOCAL, when=state.among("57P05", "25P03")),
        Case(names, TRANSIENT, UNSENT, when=state.among("57P03", "08001", "08004")),
        # 25006: the primary that we are connected to has become a replica.
        Case(
            names,
            TRANSIENT,
            when=state.starting("08", "53") | state.among("57000", "57P01", "57P02", "25006", "25P04"),
        ),
        Case(names, INTERRUPTED, LOCAL, when=state.among("57014") & ON_REQUEST),
        Case(names, TRANSIENT, AMBIGUOUS, when=state.among("57014")),
        Case(names, CONTRACT, CONFIG, when=state.among("3D000", "57P04")),
        Case(names, CONTRACT, when=state.starting("23") | state.among("40002", "P0001")),
        Case(names, DOWNSTREAM, CLIENT_FAULT, CONFIG, when=state.starting("28")),
        Case(names, DOWNSTREAM, CLIENT_FAULT, when=state.among("42501") | state.starting("54")),
        Case(names, VALIDATION, when=state.starting("22")),
        Case(names, CONTRACT, when=state.starting("P0", "44")),
        Case(names, INTERNAL, when=state.starting("21", "24", "25", "26", "34", "3F", "42") | state.among("0A000")),
    )
