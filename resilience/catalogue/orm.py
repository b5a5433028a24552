"""What stands on SQL drivers: SQLAlchemy and Django.

Both wrap the driver's error in a class of the same PEP 249 name. The driver knows more,
so its error is asked first, and the wrapper's own class only where that says nothing.
"""

from __future__ import annotations

from resilience._core.reading import is_exception, read
from resilience.catalogue.conditions import flag
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


def _driver_error(exc: object) -> object:
    """The driver's own error inside, unless that is a plain builtin, which says less than the wrapper."""
    inner = read(exc, "orig")
    return inner if is_exception(inner) and _tells(inner) else None


def _named_cause(exc: BaseException) -> object:
    inner = exc.__cause__
    return inner if inner is not None and _tells(inner) else None


def _tells(inner: BaseException) -> bool:
    return isinstance(inner, OSError) or type(inner).__module__ != "builtins"


_NETWORK = caused_by("builtins:ConnectionError", "builtins:TimeoutError")

_SQLALCHEMY = library(
    "sqlalchemy",
    # Our own pool, not the database.
    Case("TimeoutError", TRANSIENT, SATURATION, UNSENT),
    # A disconnect in the middle of a statement, whatever the driver calls it.
    Case("OperationalError", TRANSIENT, AMBIGUOUS, when=flag("connection_invalidated")),
    Case("OperationalError", TRANSIENT, unwrap=_driver_error),
    Case("InterfaceError", TRANSIENT, UNSENT, unwrap=_driver_error),
    Case("IntegrityError", CONTRACT, unwrap=_driver_error),
    Case("DataError", VALIDATION, unwrap=_driver_error),
    Case("ProgrammingError", INTERNAL, unwrap=_driver_error),
    Case("NotSupportedError", INTERNAL),
    Case("DBAPIError", TRANSIENT, below=_NETWORK, unwrap=_driver_error),
    Case("InternalError DatabaseError DBAPIError", DOWNSTREAM, unwrap=_driver_error),
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
    Case("OperationalError", TRANSIENT, unwrap=_named_cause),
    Case("InterfaceError", TRANSIENT, UNSENT, unwrap=_named_cause),
    Case("IntegrityError ObjectDoesNotExist MultipleObjectsReturned Http404", CONTRACT),
    Case("ImproperlyConfigured", CONTRACT, CONFIG),
    Case("DataError ValidationError SuspiciousOperation BadRequest BadHeaderError", VALIDATION),
    Case("ProgrammingError NotSupportedError SynchronousOnlyOperation FieldError FieldDoesNotExist", INTERNAL),
    Case("AppRegistryNotReady ConnectionDoesNotExist", INTERNAL),
    Case("InternalError DatabaseError Error", DOWNSTREAM, unwrap=_named_cause),
    Case("PermissionDenied", CONTRACT),
    Case("MiddlewareNotUsed EmptyResultSet FullResultSet", CONTROL),
    Case("ViewDoesNotExist", INTERNAL),
    # Our own caller hung up.
    Case("RequestAborted", INTERRUPTED, LOCAL),
)

RULES = (*_SQLALCHEMY, *_DJANGO)
