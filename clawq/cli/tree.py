"""Jobs as a tree: children below their parents, with a branch before each."""

from __future__ import annotations

from typing import Any

from clawq.cli import words

Row = dict[str, Any]


def branches(rows: list[Row]) -> list[tuple[str, Row]]:
    """The rows with what to draw before each, children right below the parent that is among them.

    Roots keep their order; children stand in that of their numbers.
    """
    here = {row["id"] for row in rows}
    below: dict[int | None, list[Row]] = {}
    for row in rows:
        below.setdefault(row["parent_id"] if row["parent_id"] in here else None, []).append(row)
    fork, last, line = ("\u251c ", "\u2514 ", "\u2502 ") if words.unicode_terminal() else ("|-", "`-", "| ")
    found: list[tuple[str, Row]] = []

    def add(row: Row, lead: str, branch: str, behind: str) -> None:
        found.append((lead + branch, row))
        children = sorted(below.get(row["id"], ()), key=lambda each: each["id"])
        for number, child in enumerate(children, 1):
            is_last = number == len(children)
            add(child, lead + behind, last if is_last else fork, "  " if is_last else line)

    for row in below.get(None, ()):
        add(row, "", "", "")
    return found
