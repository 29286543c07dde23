"""How a thousand lines get in at the price of a few hundred: what they share is worked out once.

A *plain* job is one that nothing stands in the way of and that stands in nobody's way: its caps leave it a
place, it cannot start at once, and it needs no word from other jobs. Plain jobs are gathered and written
together; the first that is not plain has them written before it is looked at.
"""

from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.store.draft import Draft

_SQL = sqlfile.load("intake")
_COLUMNS = _SQL["insert_job"].partition("(")[2].partition(")")[0].replace("\n", " ").split(",")
_NAMES = [name.strip() for name in _COLUMNS]
_EACH = ("payload", "dedupe_key", "command")


class Plain:
    """What the plain jobs of one draft share."""

    __slots__ = ("insert", "lane", "most", "state", "values")

    def __init__(self, draft: "Draft", state: str, now: int) -> None:
        self.state = state
        self.lane = (draft.band, draft.tenant, draft.kind, draft.needs)
        self.most = draft.most_queued()
        names, self.values = [], []
        for name, value in zip(_NAMES, draft.placed(state, now), strict=True):
            if value is not None and name not in _EACH:  # a column left out is NULL, and cheaper
                names.append(name)
                self.values.append(value)
        marks = ", ?" * (len(names) + len(_EACH))
        self.insert = f"INSERT INTO jobs (id, {', '.join((*_EACH, *names))}) VALUES (?{marks})"


class Bulk:
    """The plain jobs of one transaction that are not written yet."""

    __slots__ = ("_first", "_insert", "_last", "_rows", "db")

    def __init__(self, db: "apsw.Connection") -> None:
        self.db = db
        self._rows: list[Any] = []
        self._insert = ""
        self._first = self._last = 0

    def begin(self) -> None:
        """In a new transaction."""
        self._rows.clear()
        self._first = 0
        self._last = int(self.db.execute(_SQL["last_id"]).get)

    def next_id(self) -> int:
        return self._last + 1

    def add(self, plain: Plain, payload: str | None, key: str | None, command: str | None) -> None:
        """The job with ``next_id``."""
        if plain.insert is not self._insert:
            self._write()
            self._insert = plain.insert
        self._last += 1
        self._rows.append((self._last, payload, key, command, *plain.values))

    def flush(self) -> None:
        """Have everything written, with its events and counts, as if it had come one by one."""
        self._write()
        if self._first:
            self.db.execute(_SQL["close_bulk"])
            self._first = 0

    def took(self, job_id: int) -> None:
        """A job that was not plain has this number."""
        self._last = job_id

    def _write(self) -> None:
        if not self._rows:
            return
        if not self._first:
            self._first = self._rows[0][0]
            self.db.execute(_SQL["open_bulk"], (self._first,))
        self.db.executemany(self._insert, self._rows)
        self._rows.clear()


def plain_form(draft: "Draft", now: int) -> Plain | None:
    """None for a draft whose jobs have to be looked at one by one."""
    frame = draft.frame
    if (
        draft.parent is not None
        or draft.exclusive is not None
        or draft.lighter is not None
        or draft.same is not None
        or frame.on_busy != "queue"
        or frame.on_full != "reject"
        or frame.refuse_hopeless
        or not all(at is None or at > draft.run_after for at in (draft.stale_at, draft.deadline_at))
    ):
        return None
    return Plain(draft, draft.first_state(now), now)
