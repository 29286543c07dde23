"""docs/guarantees.md names the test that shows each promise: every one of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES = [line for line in DOC.splitlines() if line.startswith("| ")][2:]


def named_in(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 10
    assert [line for line in PROMISES if not named_in(line.split("|")[3])] == []


def test_every_test_that_it_names_exists() -> None:
    named = set(named_in(DOC))
    missing = [
        (file, name)
        for file, name in named
        if not re.search(
            rf"^ *(?:def {name}\(|class {name}\b|{name} = )", (ROOT / file).read_text(), re.MULTILINE
        )
    ]
    assert named
    assert missing == []
