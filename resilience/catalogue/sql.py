"""SQL drivers.

The base classes of PEP 249 mislead: a deadlock and a wrong password are both an
OperationalError, a demoted primary is an InternalError. So the SQLSTATE or the server's
error number is asked before the class, and unknown numbers are never retried.
"""

from __future__ import annotations

from typing import Any

from resilience._core.headers import entry
from resilience.catalogue.conditions import FIRST_ARGUMENT, Condition, Field, attribute, says
from resilience.catalogue.evidence import DNS_PERMANENT
from resilience.catalogue.families import (
    AMBIGUOUS,
    CLIENT_FAULT,
    CONFIG,
    CONTENTION,
    CONTRACT,
    CONTROL,
    DOWNSTREAM,
    INTERNAL,
    INTERRUPTED,
    LOCAL,
    QUOTA,
    SATURATION,
    TRANSIENT,
    UNSENT,
    VALIDATION,
    Case,
    library,
)
from resilience.catalogue.sqlstates import ON_REQUEST, SQLSTATE, by_sqlstate, sqlstate_of

_PEP249 = (
    "OperationalError InternalError IntegrityError DataError ProgrammingError NotSupportedError InterfaceError "
    "DatabaseError Error"
)


# ------------------------------------------------------------------------------------------------ PostgreSQL


# At connect time libpq gives no SQLSTATE but a text, which a server or a locale may translate.
_MISCONFIGURED = SQLSTATE.missing & says(
    "Name or service not known", "nodename nor servname", "certificate verify failed", "invalid port number"
)
_REFUSED_AT_THE_DOOR = Condition(
    "there is no SQLSTATE, and the text tells of a wrong password, a missing entry in pg_hba.conf or a missing database",
    lambda exc: (
        SQLSTATE.get(exc) is None
        and says("password authentication failed", "no pg_hba.conf entry", "does not exist")(exc)
    ),
    (SQLSTATE,),
)

_PSYCOPG = (
    Case("QueryCanceled", INTERRUPTED, LOCAL, when=ON_REQUEST),
    Case("QueryCanceled", TRANSIENT, AMBIGUOUS),
    Case("SerializationFailure DeadlockDetected LockNotAvailable", TRANSIENT, CONTENTION),
    Case("StatementCompletionUnknown ConnectionFailure TransactionResolutionUnknown", TRANSIENT, AMBIGUOUS),
    Case("TooManyConnections OutOfMemory AdminShutdown CrashShutdown", TRANSIENT),
    Case("ReadOnlySqlTransaction TransactionTimeout", TRANSIENT),
    Case("CannotConnectNow ConnectionTimeout", TRANSIENT, UNSENT),
    Case("IdleSessionTimeout IdleInTransactionSessionTimeout", TRANSIENT, LOCAL),
    Case("DiskFull ProtocolViolation InternalError_ IoError", DOWNSTREAM),
    Case("InvalidPassword InvalidAuthorizationSpecification", DOWNSTREAM, CLIENT_FAULT, CONFIG),
    Case("InsufficientPrivilege StatementTooComplex", DOWNSTREAM, CLIENT_FAULT),
    Case("DatabaseDropped InvalidCatalogName", CONTRACT, CONFIG),
    Case("UniqueViolation ForeignKeyViolation NotNullViolation CheckViolation ExclusionViolation", CONTRACT),
    Case("RaiseException", CONTRACT),
    Case("UndefinedTable UndefinedColumn SyntaxError InFailedSqlTransaction FeatureNotSupported", INTERNAL),
    Case("InvalidTextRepresentation", VALIDATION),
    # An earlier statement of the pipeline failed; its error is the real one.
    Case("PipelineAborted", TRANSIENT, chain=True),
    *by_sqlstate(_PEP249),
    Case("OperationalError", DOWNSTREAM, CLIENT_FAULT, CONFIG, when=_REFUSED_AT_THE_DOOR),
    Case("OperationalError", DOWNSTREAM, CONFIG, when=_MISCONFIGURED),
    # Without a SQLSTATE it is the connection; one that is not in the table above is not worth another try.
    Case("OperationalError", TRANSIENT, when=SQLSTATE.missing),
    Case("OperationalError", DOWNSTREAM),
    # A cursor of ours that is used after its end.
    Case("InterfaceError", INTERNAL, when=says("cursor is closed", "cursor already closed", "cursor is not")),
    Case("InterfaceError", TRANSIENT, UNSENT),
    Case("IntegrityError", CONTRACT),
    Case("DataError", VALIDATION),
    Case("ProgrammingError NotSupportedError", INTERNAL),
    Case("InternalError DatabaseError Error", DOWNSTREAM),
    # Ends a transaction block on purpose.
    Case("Rollback", CONTROL),
)

_POSTGRES = (
    *library("psycopg psycopg2", *_PSYCOPG, code=sqlstate_of),
    *library("psycopg2", Case("PoolError", TRANSIENT, SATURATION)),
    *library(
        "psycopg_pool",
        Case("PoolTimeout TooManyRequests", TRANSIENT, SATURATION, UNSENT),
        Case("PoolClosed", INTERNAL),
    ),
    *library(
        "asyncpg",
        Case("QueryCanceledError", INTERRUPTED, LOCAL, when=ON_REQUEST),
        Case("QueryCanceledError", TRANSIENT, AMBIGUOUS),
        Case("SerializationError DeadlockDetectedError LockNotAvailableError", TRANSIENT, CONTENTION),
        Case(
            "StatementCompletionUnknownError ConnectionFailureError ConnectionDoesNotExistError "
            "TransactionResolutionUnknownError",
            TRANSIENT,
            AMBIGUOUS,
        ),
        Case("TooManyConnectionsError OutOfMemoryError AdminShutdownError CrashShutdownError", TRANSIENT),
        Case("ReadOnlySQLTransactionError TransactionTimeoutError", TRANSIENT),
        Case("CannotConnectNowError", TRANSIENT, UNSENT),
        Case("IdleSessionTimeoutError IdleInTransactionSessionTimeoutError", TRANSIENT, LOCAL),
        Case("DiskFullError ProtocolViolationError InternalServerError PostgresIOError", DOWNSTREAM),
        Case("InvalidPasswordError InvalidAuthorizationSpecificationError", DOWNSTREAM, CLIENT_FAULT, CONFIG),
        Case("InsufficientPrivilegeError StatementTooComplexError", DOWNSTREAM, CLIENT_FAULT),
        Case("DatabaseDroppedError InvalidCatalogNameError", CONTRACT, CONFIG),
        Case(
            "UniqueViolationError ForeignKeyViolationError NotNullViolationError CheckViolationError "
            "ExclusionViolationError RaiseError",
            CONTRACT,
        ),
        Case(
            "UndefinedTableError UndefinedColumnError PostgresSyntaxError InFailedSQLTransactionError "
            "FeatureNotSupportedError",
            INTERNAL,
        ),
        Case("InvalidTextRepresentationError", VALIDATION),
        # A class of its own for each group of SQLSTATEs.
        *by_sqlstate(
            "PostgresConnectionError InsufficientResourcesError OperatorInterventionError TransactionRollbackError "
            "IntegrityConstraintViolationError PostgresError"
        ),
        Case("TransactionRollbackError", TRANSIENT, CONTENTION),
        Case("PostgresConnectionError InsufficientResourcesError OperatorInterventionError", TRANSIENT),
        Case("IntegrityConstraintViolationError", CONTRACT),
        Case("PostgresError", DOWNSTREAM),
        Case("ClientConfigurationError", CONTRACT, CONFIG),
        Case("DataError", VALIDATION),
        Case("UnsupportedClientFeatureError UnsupportedServerFeatureError", INTERNAL),
        # Our use of a connection, rather than its end.
        Case(
            "InterfaceError",
            INTERNAL,
            when=says(
                "another operation is",
                "released back to the pool",
                "the server expects",
                "the transaction is",
                "query arguments",
                "argument must",
                "portal",
                "prepared statement",
                "not initialized",
                "async with",
                "is expected to be",
            ),
        ),
        Case("InterfaceError", TRANSIENT, UNSENT),
        Case("InternalClientError", DOWNSTREAM),
        # The schema changed; the cache is dropped, and the next try sees the new one.
        Case("OutdatedSchemaCacheError", TRANSIENT, LOCAL),
        code=sqlstate_of,
    ),
)


def _put_pg8000(exc: Any, value: str) -> None:
    exc.args = ({"C": value},)


_PG8000 = library(
    "pg8000",
    # Fields of the server's error response, by their letters.
    *by_sqlstate("DatabaseError", Field("SQLSTATE", lambda exc: entry(exc.args[0], "C"), _put_pg8000)),
    Case("InterfaceError", DOWNSTREAM, CONFIG, below=DNS_PERMANENT),
    Case("InterfaceError", TRANSIENT, chain=True),
    Case("DatabaseError Error", DOWNSTREAM),
)


# ------------------------------------------------------------------------------------------------ MySQL
def _by_number(names: str, number: Field) -> tuple[Case, ...]:
    """The server's and the client's error numbers (MySQL error reference; 1927 and 1969 are MariaDB's)."""
    return (
        # Deadlock, lock wait timeout, MariaDB's snapshot conflict, NOWAIT.
        Case(names, TRANSIENT, CONTENTION, when=number.among(1205, 1213, 1020, 3572)),
        Case(names, DOWNSTREAM, CONFIG, when=number.among(2005)),
        Case(names, DOWNSTREAM, CONFIG, when=number.among(2003), below=DNS_PERMANENT),
        Case(names, TRANSIENT, UNSENT, when=number.among(2002, 2003)),
        # Gone away, lost in the middle of a query.
        Case(
            names,
            TRANSIENT,
            AMBIGUOUS,
            when=number.among(2006, 2012, 2013, 2014, 2055, 1158, 1159, 1160, 1161, 1184, 1927, 4031),
        ),
        # Full, shutting down, or a Galera node that is not ready.
        Case(names, TRANSIENT, when=number.among(1040, 1203, 1041, 1053, 1047, 1077, 1078, 1079)),
        Case(names, DOWNSTREAM, QUOTA, when=number.among(1226)),
        # A server that only reads: the primary moves.
        Case(names, TRANSIENT, when=number.among(1290, 1792, 1836)),
        Case(names, TRANSIENT, AMBIGUOUS, when=number.among(3024, 1969, 1317)),
        Case(
            names, DOWNSTREAM, CLIENT_FAULT, CONFIG, when=number.among(1044, 1045, 1142, 1143, 1227, 1370, 1698, 1862)
        ),
        # Disk or table full, host blocked, TLS, storage engine.
        Case(names, DOWNSTREAM, when=number.among(1021, 1114, 1129, 2026, 1030)),
        Case(names, VALIDATION, when=number.among(1153, 1301, 3140, 3819, 4025, 1406)),
        Case(names, CONTRACT, when=number.among(1048, 1062, 1451, 1452)),
        # Unknown database, table, column or index, a table that is there, bad SQL: ours.
        Case(
            names,
            INTERNAL,
            when=number.among(
                *(1007, 1008, 1049, 1050, 1051, 1052, 1054, 1055, 1060, 1061, 1064, 1066, 1091, 1136, 1140, 1146),
                *(1170, 1175, 1176, 1222, 1241, 1242, 1247, 1248, 1305),
            ),
        ),
        Case(names, VALIDATION, when=number.among(1292, 1365, 1366)),
    )


_MYSQL_CLASSES = (
    # A closed connection says (0, "").
    Case("InterfaceError", TRANSIENT, UNSENT),
    Case("IntegrityError", CONTRACT),
    Case("DataError", VALIDATION),
    Case("ProgrammingError NotSupportedError", INTERNAL),
    # pymysql makes every number that it does not know an OperationalError.
    Case("OperationalError InternalError DatabaseError Error MySQLError", DOWNSTREAM),
)
_NUMBER = attribute("errno", number=True, shown="number")

_MYSQL = (
    *library(
        "pymysql MySQLdb asyncmy",
        *_by_number("OperationalError InternalError DatabaseError", FIRST_ARGUMENT),
        *_MYSQL_CLASSES,
        code=lambda exc: str(FIRST_ARGUMENT.get(exc) or ""),
        has_status=False,
    ),
    *library(
        # mysql-connector-python.
        "mysql",
        Case("PoolError", TRANSIENT, SATURATION, UNSENT),
        Case("ConnectionTimeoutError", TRANSIENT, UNSENT),
        Case("ReadTimeoutError WriteTimeoutError", TRANSIENT, AMBIGUOUS),
        Case("OperationalError InterfaceError", TRANSIENT, UNSENT, when=says("Connection not available")),
        *_by_number("OperationalError InternalError InterfaceError ProgrammingError DatabaseError Error", _NUMBER),
        # Also answers that were not understood, and results that nobody asked for.
        Case("InterfaceError", DOWNSTREAM, AMBIGUOUS),
        *_MYSQL_CLASSES[1:],
        code=lambda exc: str(_NUMBER.get(exc) or ""),
        has_status=False,
    ),
)


# ------------------------------------------------------------------------------------------------ Oracle
def _put_oracle(exc: Any, value: str) -> None:
    from types import SimpleNamespace

    exc.args = (SimpleNamespace(full_code=value, isrecoverable=False),)


_ORACLE = Field("code", lambda exc: exc.args[0].full_code, _put_oracle)
_RECOVERABLE = Condition("the driver calls it recoverable", lambda exc: exc.args[0].isrecoverable is True)

_ORACLEDB = library(
    "oracledb",
    # Resource busy, deadlock, serialization.
    Case("DatabaseError", TRANSIENT, CONTENTION, when=_ORACLE.among("ORA-00054", "ORA-00060", "ORA-08177")),
    Case("DatabaseError Error", TRANSIENT, SATURATION, UNSENT, when=_ORACLE.among("DPY-4005", "DPY-4024")),
    Case("DatabaseError Error", TRANSIENT, UNSENT, when=_ORACLE.among("DPY-6005", "ORA-12541", "ORA-12514")),
    Case("DatabaseError", DOWNSTREAM, CLIENT_FAULT, CONFIG, when=_ORACLE.among("ORA-01017", "ORA-28000", "ORA-01031")),
    Case("DatabaseError Error", TRANSIENT, AMBIGUOUS, when=_RECOVERABLE),
    Case("IntegrityError", CONTRACT),
    Case("DataError", VALIDATION),
    Case("ProgrammingError NotSupportedError InterfaceError", INTERNAL),
    Case("DatabaseError Error", DOWNSTREAM),
    code=_ORACLE.get,
)

RULES = (*_POSTGRES, *_PG8000, *_MYSQL, *_ORACLEDB)
