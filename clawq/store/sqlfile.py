"""Named queries: each ``sql/*.sql`` holds ``-- name: NAME`` blocks, one comment of why, then the SQL."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HERE = os.path.dirname(os.path.abspath(__file__))


def load(name: str) -> dict[str, str]:
    """The queries of ``sql/NAME.sql`` as {query name: SQL}."""
    return parse(read(os.path.join("sql", name + ".sql")))


def parse(text: str) -> dict[str, str]:
    """The ``-- name: NAME`` blocks of a text."""
    queries: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        title, _, sql = block.partition("\n")
        queries[title.strip()] = sql.strip()
    return queries


def id_list(ids: Iterable[int]) -> str:
    """What ``json_each`` takes, without the json module."""
    return f"[{','.join(map(str, ids))}]"


def read(relative: str) -> str:
    """The text of a file beside this module."""
    with open(os.path.join(_HERE, relative), encoding="utf-8") as file:
        return file.read()
