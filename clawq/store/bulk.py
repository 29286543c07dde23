"""How a thousand lines get in at the price of a few hundred: what they share is worked out once.

A *plain* job is one that nothing stands in the way of and that stands in nobody's way: its caps leave it a
place, it cannot start at once, and it needs no word from other jobs. Those that follow each other are written
by one statement, and the events and counts of all of them by one more each: the first job that is not plain
has these written before it is looked at.
"""

import apsw

from clawq.store import sqlfile
from clawq.store.draft import Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SQL = sqlfile.load("intake")
_COLUMNS = _SQL["insert_job"].partition("(")[2].partition(")")[0].replace("\n", " ")
_NAMES = [name.strip() for name in _COLUMNS.split(",")]
OWN = ("payload", "command", "dedupe_key")
"""What the jobs of a run may have of their own. The key comes last."""
SEPARATOR = "\x1e"
"""Stands neither in JSON nor in a key."""

if hasattr(apsw, "carray"):
    from apsw import carray as _texts

    _TEXTS = "(SELECT value, rowid - 1 AS place FROM carray(?))"
else:  # an apsw that was not built with it
    from json import dumps as _texts  # type: ignore[assignment]  # used alike

    _TEXTS = "(SELECT value, key AS place FROM json_each(?))"
_TAKE_KEYS = (
    "INSERT INTO dedupe (tenant, kind, key, job_id, until_end)"
    f" SELECT ?1, ?2, value, ?3 + place, ?4 FROM {_TEXTS}"
)


class Run:
    """Drafts that follow each other and differ in ``columns`` only, some of OWN: ``draft`` is one of them.

    ``values`` has a text for each: what it has in these columns, in their order, with a SEPARATOR between.
    """

    __slots__ = ("columns", "draft", "values")

    def __init__(self, draft: Draft, columns: "tuple[str, ...]") -> None:
        self.draft = draft
        self.columns = columns
        self.values: list[str] = []

    def one(self, at: int) -> Draft:
        """The draft at a place by itself."""
        return self.draft.like(dict(zip(self.columns, self.values[at].split(SEPARATOR), strict=False)))


class Plain:
    """What the plain jobs of one draft share."""

    __slots__ = ("insert", "lane", "most", "state", "values")

    def __init__(self, run: Run, state: str, now: int) -> None:
        draft = run.draft
        self.state = state
        self.lane = (draft.band, draft.tenant, draft.kind, draft.needs)
        self.most = draft.most_queued()
        names, self.values = [], []
        for name, value in zip(_NAMES, draft.placed(state, now), strict=True):
            if value is not None and name not in run.columns:  # a column left out is NULL, and cheaper
                names.append(name)
                self.values.append(value)
        own, rest = [], "value"
        for _ in run.columns[:-1]:
            own.append(f"substr({rest}, 1, instr({rest}, char(30)) - 1)")
            rest = f"substr({rest}, instr({rest}, char(30)) + 1)"
        own.extend([rest] if run.columns else ())
        self.insert = (
            f"INSERT INTO jobs ({', '.join((*run.columns, *names))})"
            f" SELECT {', '.join((*own, *('?' for _ in names)))} FROM {_TEXTS}"
        )


class Bulk:
    """The plain jobs of one transaction."""

    __slots__ = ("_last", "_open", "_taken_keys", "db")

    def __init__(self, db: "apsw.Connection") -> None:
        self.db = db
        self._last = 0
        self._open = self._taken_keys = False

    def begin(self) -> None:
        """In a new transaction."""
        self._open = self._taken_keys = False
        self._last = int(self.db.execute(_SQL["last_id"]).get)

    def take(self, run: Run, at: int, count: int, plain: Plain) -> int:
        """Write at most `count` jobs of the run from place `at` on, without events and counts; how many.

        Fewer where somebody has the next one's dedupe key.
        """
        values = run.values[at : at + count]
        if run.columns[-1:] == ("dedupe_key",):
            values = values[: self._take_keys(run.draft, values)]
        if not values:
            return 0
        if not self._open:
            self._open = True
            self.db.execute(_SQL["open_bulk"], (self._last + 1,))
        self.db.execute(plain.insert, (*plain.values, _texts(tuple(values))))
        self.took(self._last + len(values))
        # The keys were given to these very numbers.
        assert self.db.last_insert_rowid() == self._last
        return len(values)

    def flush(self) -> None:
        """Have the events and counts written, as if the jobs had come one by one."""
        if self._open:
            self.db.execute(_SQL["close_bulk"])
            self._open = False

    def took(self, job_id: int) -> None:
        """This is the last job's number now."""
        self._last = job_id

    def _take_keys(self, draft: Draft, values: "Sequence[str]") -> int:
        """How many of the keys, from the first, were free and are now those of the next jobs."""
        keys = tuple([value.rpartition(SEPARATOR)[2] for value in values])
        first, until_end = self._last + 1, draft.scope == "active"
        if not self._taken_keys:
            try:
                self.db.execute(_TAKE_KEYS, (draft.tenant, draft.asked_kind, first, until_end, _texts(keys)))
                return len(keys)
            except apsw.ConstraintError:
                self._taken_keys = True  # where one is, more are
        for place, key in enumerate(keys):
            self.db.execute(
                _SQL["take_free_key"], (draft.tenant, draft.asked_kind, key, first + place, until_end)
            )
            if not self.db.changes():
                return place
        return len(keys)


def plain_form(run: Run, now: int) -> Plain | None:
    """None for a draft whose jobs have to be looked at one by one."""
    draft = run.draft
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
    return Plain(run, draft.first_state(now), now)
