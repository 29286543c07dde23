"""clawq.toml: read by people, checked once by pydantic, kept compiled in the database.

Whoever first meets a changed file compiles it; everybody else reads the row and loads neither
tomllib nor pydantic, which is why this module imports them only where a file must be compiled.
"""

from __future__ import annotations

from clawq import settings
from clawq.errors import ConfigError
from clawq.settings import Settings
from clawq.store import config_row
from clawq.store.connection import storage_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.paths import Home


def compile_file(path: str) -> dict[str, Any]:
    """The compiled body of the file at `path`; of no file, the defaults.

    Raises ConfigError: one line with file, line, key and what was expected.
    """
    from clawq.config.compiler import check_file

    checked = check_file(path)
    if checked.body is None:
        raise checked.error()
    return checked.body


def refresh(db: apsw.Connection, home: Home, now: int) -> Settings:
    """The settings in force, after compiling the file if nobody has yet; `now` in ms.

    Cheap when the file is as the row has it: a stat, a read. Writes in a transaction of its own, so
    it must not be called inside another. While the file is broken, the last form that compiled stays
    in force, and the row says what is wrong.

    Raises ConfigError when this home never had a file that compiled, StorageError and Busy.
    """
    return Settings.from_text(refresh_row(db, home, now))


def refresh_row(db: apsw.Connection, home: Home, now: int) -> str:
    """As refresh(), for callers that read the body's text with SQL."""
    with storage_errors(home.db):
        row_identity, body, broken_identity, error = config_row.load(db)
        seen = settings.identity(home.config)
        verdict = settings.verdict(seen, row_identity, broken_identity)
        if verdict == settings.USE:
            return body
        if verdict == settings.REFUSE:
            raise ConfigError(error or f"{home.config} does not compile")
        from clawq.config.compiler import dump

        try:
            body = dump(compile_file(home.config))
        except ConfigError as broken:
            config_row.save_broken(db, seen, str(broken), now)
            if not settings.from_a_file(row_identity):
                raise
            return body
        config_row.save(db, seen, body, now)
        return body
