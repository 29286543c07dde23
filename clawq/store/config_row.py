"""The compiled configuration in the database: one row, written by whoever first meets a changed file."""

from __future__ import annotations

from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

_SQL = sqlfile.load("config")


def load(db: apsw.Connection) -> tuple[str, str, str | None, str | None]:
    """(identity, body text, broken_identity, error); the last two are None unless the file is broken.

    A plain read: it may stand inside a caller's transaction.
    """
    identity, body, broken_identity, error = db.execute(_SQL["load"]).fetchall()[0]
    return str(identity), str(body), _text(broken_identity), _text(error)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def identity(db: apsw.Connection) -> str:
    """Which form is in force; cheap, for callers that hold its settings."""
    return str(db.execute(_SQL["identity"]).fetchall()[0][0])


def save(db: apsw.Connection, identity: str, body: str, now: int) -> None:
    """Make `body` the form in force; `now` in ms. One statement, a transaction of its own.

    Raises apsw errors; the caller holds them with ``connection.storage_errors``.
    """
    db.execute(_SQL["save"], (identity, body, now))


def save_broken(db: apsw.Connection, broken_identity: str, error: str, now: int) -> None:
    """Remember that this version of the file does not compile; the form in force stays."""
    db.execute(_SQL["save_broken"], (broken_identity, error, now))
