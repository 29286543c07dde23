"""What whoever looks at the queue opens before there is an answer: the database, the configuration, the
supervisor."""

from __future__ import annotations

import os
import time

from clawq import settings as compiled
from clawq import when
from clawq.errors import ConfigError, NoSuchJob
from clawq.host import instance
from clawq.host.instance import Supervisor
from clawq.named import NamedTuple
from clawq.paths import Home, find_home
from clawq.settings import Settings
from clawq.store import config_row, sqlfile, views
from clawq.store.connection import LOOKING_BUSY_MS, open_db, open_readonly, storage_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    import apsw

_MOMENTS = frozenset({"at", "since", "run_after"})


class Desk(NamedTuple):
    """``db`` is None while nothing was ever enqueued here and the desk only reads.

    ``with`` closes it. Errors of the disk leave as StorageError, so print outside it.
    """

    home: Home
    db: apsw.Connection | None
    now: int

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            storage_errors(self.home.db).__exit__(kind, error, trace)
        finally:
            if self.db is not None:
                self.db.close()

    def settings(self) -> tuple[Settings, str | None]:
        """The configuration in force, and what is wrong with clawq.toml if something is."""
        return read_settings(self.home, self.db)

    def supervisor(self) -> Supervisor:
        """Who runs this queue."""
        return instance.look(self.home.lock, self.now)

    def kinds(self) -> set[str]:
        """Those configured, and those that have jobs: a kind may leave the configuration before its jobs."""
        return {*self.settings()[0].kind_names, *(views.kinds_seen(self.db) if self.db else ())}

    def queue(self, job_id: int) -> apsw.Connection:
        """The database, for one job. Raises NoSuchJob where there is none yet."""
        if self.db is None:
            raise NoSuchJob(job_id)
        return self.db


def now_ms() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000


def reading() -> Desk:
    """A desk that cannot change anything."""
    home = find_home()
    return Desk(home, open_readonly(home, LOOKING_BUSY_MS), now_ms())


def changing(create: bool = False) -> Desk:
    """A desk that can. ``create``: make the database when there is none, instead of having none."""
    if not create and not os.path.exists(find_home().db):
        return reading()
    home = find_home()
    return Desk(home, open_db(home), now_ms())


def read_settings(home: Home, db: apsw.Connection | None) -> tuple[Settings, str | None]:
    """As a supervisor that looked now would have it, without writing anything down.

    A file that nobody has compiled yet is compiled here; one that does not compile leaves the last
    good form, or the defaults where there never was one.
    """
    if db is None:
        defaults = sqlfile.read("default_config.json")
        row: tuple[str, str, str | None, str | None] = (compiled.NO_FILE, defaults, None, None)
    else:
        row = config_row.load(db)
    identity, body, broken, error = row
    verdict = compiled.verdict(compiled.identity(home.config), identity, broken)
    if verdict == compiled.COMPILE:
        from clawq.config import compile_file

        try:
            return Settings(compile_file(home.config)), None
        except ConfigError as problem:
            error = str(problem)
    if error:
        has_a_good_form = compiled.from_a_file(identity)
        error += (
            "; the last good form stays in force"
            if has_a_good_form
            else "; until it is right, nothing is accepted"
        )
    return Settings.from_text(body), error


def with_iso(value: Any) -> Any:
    """A document as ``--json`` prints it: every time (epoch ms inside) as ISO 8601 in UTC."""
    if isinstance(value, dict):
        return {
            key: inner
            if key == "result"  # an agent's own words
            else when.iso(inner)
            if isinstance(inner, int) and (key in _MOMENTS or key.endswith("_at"))
            else with_iso(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [with_iso(inner) for inner in value]
    return value
