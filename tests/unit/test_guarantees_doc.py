"""docs/guarantees.md and docs/faults.md name the tests that show each of their rows: all exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "docs" / name for name in ("guarantees.md", "faults.md")]


def named_in(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)`", text)


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: path.stem)
def test_every_row_names_a_test(doc: Path) -> None:
    lines = doc.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert len(rows) > 10
    assert [row for row in rows if not named_in(row.split("|")[3])] == []


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: path.stem)
def test_every_test_that_it_names_exists(doc: Path) -> None:
    named = set(named_in(doc.read_text(encoding="utf-8")))
    missing = [
        (file, name)
        for file, name in named
        if not re.search(
            rf"^ *(?:def {name}\(|class {name}\b|{name} = )", (ROOT / file).read_text(), re.MULTILINE
        )
    ]
    assert named
    assert missing == []
