"""Named queries: each ``sql/*.sql`` holds ``-- name: NAME`` blocks, one comment of why, then the SQL."""

from __future__ import annotations

import os

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


def read(relative: str) -> str:
    """The text of a file beside this module."""
    with open(os.path.join(_HERE, relative), encoding="utf-8") as file:
        return file.read()
