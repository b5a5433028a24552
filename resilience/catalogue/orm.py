"""What stands on SQL drivers: SQLAlchemy and Django.

Both wrap the driver's error in a class of the same PEP 249 name. The driver knows more,
so its error is asked first, and the wrapper's own class only where that says nothing.
"""

from __future__ import annotations

from typing import Any

from resilience._core.reading import is_exception, read
from resilience.catalogue.conditions import Field, flag
from resilience.catalogue.evidence import caused_by
from resilience.catalogue.families import (
    AMBIGUOUS,
    CONFIG,
    CONTENTION,
    CONTRACT,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    SATURATION,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)
from resilience.catalogue.sqlstates import by_sqlstate, sqlstate_of


def _driver_error(exc: object) -> object:
    """The driver's own error inside, unless that is a plain builtin, which says less than the wrapper."""
    inner = read(exc, "orig")
    return inner if is_exception(inner) and _tells(inner) else None


def _named_cause(exc: BaseException) -> object:
    inner = exc.__cause__
    return inner if inner is not None and _tells(inner) else None


def _tells(inner: BaseException) -> bool:
    return isinstance(inner, OSError) or type(inner).__module__ != "builtins"


def _put_state_inside(exc: Any, value: str) -> None:
    exc.orig = _Driver()
    exc.orig.sqlstate = value


def _put_number_inside(exc: Any, value: int) -> None:
    exc.orig = _Driver(value)


class _Driver(Exception):
    """A driver's error of which only the code is known, for stand-ins."""

    sqlstate: str


_NETWORK = caused_by("builtins:ConnectionError", "builtins:TimeoutError")

# Where no rule is about the driver, the numbers that it carries still tell.
_STATE_INSIDE = Field(
    "the driver's SQLSTATE", lambda exc: sqlstate_of(read(exc, "orig") or exc.__cause__), _put_state_inside
)
_NUMBER_INSIDE = Field(
    "the driver's number",
    lambda exc: (read(exc, "orig") or exc.__cause__).args[0],
    _put_number_inside,
    number=True,
)
_STATEMENTS = "OperationalError InterfaceError IntegrityError DataError ProgrammingError InternalError"

_SQLALCHEMY = library(
    "sqlalchemy",
    # Our own pool, not the database.
    Case("TimeoutError", TRANSIENT, SATURATION, UNSENT),
    # A disconnect in the middle of a statement, whatever the driver calls it.
    Case("OperationalError", TRANSIENT, AMBIGUOUS, when=flag("connection_invalidated")),
    Case(f"{_STATEMENTS} DatabaseError DBAPIError", unwrap=_driver_error),
    *by_sqlstate(f"{_STATEMENTS} DatabaseError DBAPIError", _STATE_INSIDE),
    Case("OperationalError", TRANSIENT),
    Case("InterfaceError", TRANSIENT, UNSENT),
    Case("IntegrityError", CONTRACT),
    Case("DataError", VALIDATION),
    Case("ProgrammingError NotSupportedError", INTERNAL),
    Case("DBAPIError", TRANSIENT, below=_NETWORK),
    Case("InternalError DatabaseError DBAPIError", DOWNSTREAM),
    Case("StatementError", VALIDATION, unwrap=_driver_error),
    Case("DisconnectionError", TRANSIENT),
    # The version counter differs: repeat the unit of work, not the flush.
    Case("StaleDataError", TRANSIENT, CONTENTION),
    Case("NoResultFound MultipleResultsFound ObjectDeletedError", CONTRACT),
    Case(
        "PendingRollbackError InvalidRequestError ArgumentError CompileError MissingGreenlet ResourceClosedError "
        "NoSuchColumnError DetachedInstanceError FlushError SQLAlchemyError",
        INTERNAL,
    ),
)

_DJANGO = library(
    "django",
    Case(f"{_STATEMENTS} DatabaseError Error", unwrap=_named_cause),
    *by_sqlstate(f"{_STATEMENTS} DatabaseError Error", _STATE_INSIDE),
    Case("OperationalError", TRANSIENT, CONTENTION, when=_NUMBER_INSIDE.among(1205, 1213)),
    Case("OperationalError", TRANSIENT),
    Case("InterfaceError", TRANSIENT, UNSENT),
    Case("IntegrityError ObjectDoesNotExist MultipleObjectsReturned Http404", CONTRACT),
    Case("ImproperlyConfigured", CONTRACT, CONFIG),
    Case("DataError ValidationError SuspiciousOperation BadRequest BadHeaderError", VALIDATION),
    Case("ProgrammingError NotSupportedError SynchronousOnlyOperation FieldError FieldDoesNotExist", INTERNAL),
    Case("AppRegistryNotReady ConnectionDoesNotExist", INTERNAL),
    Case("InternalError DatabaseError Error", DOWNSTREAM),
    Case("PermissionDenied", CONTRACT),
    Case("MiddlewareNotUsed EmptyResultSet FullResultSet", CONTROL),
    Case("ViewDoesNotExist", INTERNAL),
    # Our own caller hung up.
    Case("RequestAborted", INTERRUPTED, LOCAL),
)

RULES = (*_SQLALCHEMY, *_DJANGO)
