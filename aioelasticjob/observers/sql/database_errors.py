"""What the errors of a database and its driver mean: whether the values of rows cause them, and how people read them.

An error is the fault of rows only if the database or the driver says so of their values.  All others pass, or somebody
mends them, so rows wait for that: a list of errors that pass would never be complete.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, StatementError

from aioelasticjob.errors import error_text

SQLSTATES: Final = ("22", "23")
"""The classes of SQLSTATE that are about values: data exceptions, and violations of constraints."""
SQLITE_CODES: Final = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG})
"""The errors of SQLite that are about values."""
MYSQL_NUMBERS: Final = frozenset(
    {
        *(1022, 1062, 1169, 1557, 1586, 1761, 1762),  # the value of a unique column is there already
        *(1048, 1263),  # a column must not be NULL
        *(1216, 1217, 1451, 1452),  # a foreign key
        *(1264, 1690, 1416),  # a number, or another value, is out of range
        *(1265, 1406),  # a text is too long
        *(1292, 1300, 1366, 1367, 1411),  # a value, such as a time or a character, does not fit its type
        *(3819, 4025),  # a CHECK, in MySQL and in MariaDB
        *(3140, 3141),  # JSON
    }
)
"""The numbers of the errors of MySQL and MariaDB that are about values: their drivers do not tell SQLSTATE."""
LONGEST_LINE: Final = 300
"""Characters of an error in a line."""


def is_about_values(error: Exception) -> bool:
    """Whether an error of the writing of rows says that a value of these rows is wrong."""
    if isinstance(error, DBAPIError):
        return not error.connection_invalidated and _database_says_so(error.orig)
    if isinstance(error, StatementError):  # SQLAlchemy could not convert a value for the driver
        return isinstance(error.orig, TypeError | ValueError | OverflowError)
    return isinstance(error, UnicodeError | OverflowError)  # the driver could not encode a value


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that its file is damaged, or no database."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and ("not a database" in text or "malformed" in text)


def explained(error: BaseException) -> str:
    """Return an error of a database or its driver in one line, with what to do if that is known."""
    text = line(error)
    if is_damage(error):
        return f"{text}: put a copy of the file back, or move it away, and an empty one is made"
    if isinstance(error, sqlite3.OperationalError) and "unable to open" in text:
        return f"{text}: make its directory writable, or copy the file with the -wal beside it to one that is"
    return text


def line(error: BaseException) -> str:
    """Return an error in one line, cut to a bearable length."""
    return " ".join(error_text(error).split())[:LONGEST_LINE]


def without_password(text: str, url: URL) -> str:
    """Return text in which the passwords of a URL are hidden."""
    hidden = [url.password, *(value for name, value in url.query.items() if "pass" in name)]
    for one in hidden:
        for password in [one] if isinstance(one, str) else one or ():
            text = text.replace(password, "…") if password else text
    return text


def _database_says_so(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in SQLITE_CODES
    if isinstance(state := getattr(error, "sqlstate", None), str):
        return state[:2] in SQLSTATES
    cause = error and error.__cause__
    if type(cause).__module__.startswith("asyncpg"):  # without a state it comes from the driver itself
        return isinstance(cause, ValueError)
    number = error.args[0] if error is not None and error.args else None
    return number in MYSQL_NUMBERS
