"""``clawq _offer TOPIC [WORD] -- TYPED...``: what a shell can offer here: lines of a word, a tab, about it.

Only completions/ call it, with what stands before the cursor. A Tab must not fail, wait, write or say
anything: whatever is wrong with the queue, it offers nothing.
"""

import os

from clawq import settings
from clawq.cli import as_utf8
from clawq.paths import find_home
from clawq.store import config_row, offers
from clawq.store.connection import memory_db, open_glance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from clawq.paths import Home

BUSY_MS = 100
ABOUT_MAX = 60


def main(argv: "Sequence[str]") -> int:
    """Always 0."""
    try:
        found = offer(as_utf8(argv))
    except Exception:
        return 0
    lines = [f"{word}\t{_short(about)}\n" for word, about in found if word and word.isprintable()]
    try:
        os.write(1, "".join(lines).encode("utf-8", "surrogateescape"))  # in every locale what was stored
    except OSError:
        pass
    return 0


def offer(words: "Sequence[str]") -> "list[tuple[str, str]]":
    """[(what can be typed, about it)] of a topic. Raises what is wrong with the queue."""
    asked, typed = list(words), []
    if "--" in asked:
        at = asked.index("--")
        asked, typed = asked[:at], asked[at + 1 :]
    topic, word = asked[0], asked[1] if len(asked) > 1 else ""
    home = find_home()
    db = open_glance(home, BUSY_MS)
    if topic == "jobs":
        return [each for each in offers.jobs(db, word) if each[0] not in typed] if db else []
    if topic == "attempts":
        return offers.attempts(db, _id_in(typed)) if db else []
    if topic == "paused":
        return offers.paused(db, word) if db else []
    body = _body(db, home)
    db = db or memory_db()
    if topic in ("resources", "budgets"):
        return offers.limited(db, body, topic)
    if topic in ("kinds", "configured"):
        return offers.kinds(db, body, seen=topic == "kinds")
    if topic == "tenants":
        return offers.tenants(db, body)
    return offers.reasons(db, body) if topic == "reasons" else []


def _body(db: "apsw.Connection | None", home: "Home") -> str:
    """The compiled configuration; of a file that nobody has met yet, compiled here and not kept."""
    if db is None:
        from clawq.store import sqlfile

        in_force, body, broken = settings.NO_FILE, sqlfile.read("default_config.json"), None
    else:
        in_force, body, broken, _error = config_row.load(db)
    if settings.verdict(settings.identity(home.config), in_force, broken) != settings.COMPILE:
        return body
    from clawq.config import compile_file
    from clawq.config.compiler import dump
    from clawq.errors import ConfigError

    try:
        return dump(compile_file(home.config))
    except ConfigError:
        return body


def _id_in(typed: "Sequence[str]") -> int:
    """The job that the line names; 0, which is none, when it names none yet."""
    for before, word in zip(["", *typed], typed, strict=False):
        if word.isdecimal() and before not in ("-n", "--attempt"):
            return int(word)
    return 0


def _short(about: str) -> str:
    """On one line that cannot steer a terminal: agents' questions are among them."""
    shown = "".join([c if c.isprintable() else " " for c in about])
    return shown if len(shown) <= ABOUT_MAX else shown[: ABOUT_MAX - 3] + "..."
