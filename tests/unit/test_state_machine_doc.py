"""docs/state-machine.md is held to the transition table: its diagram and both of its tables."""

from __future__ import annotations

import re
from pathlib import Path

from clawq import states as job

DOC = (Path(__file__).parents[2] / "docs" / "state-machine.md").read_text(encoding="utf-8")
TABLE = {(start, end) for start, ends in job.TRANSITIONS.items() for end in ends}


def test_the_diagram_is_the_transition_table() -> None:
    block = re.search(r"```mermaid\n(.*?)```", DOC, re.DOTALL)
    assert block
    arrows = re.findall(r"^\s*(\S+) --> (\S+)$", block[1], re.MULTILINE)
    assert len(arrows) == len(set(arrows))
    assert {(job.NEW if start == "[*]" else start, end) for start, end in arrows} == TABLE


def test_every_move_is_explained_once() -> None:
    rows = re.findall(r"^\| (?:`(\w+)`|\(new\)) \| `(\w+)` \| \S", DOC, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert {(start or job.NEW, end) for start, end in rows} == TABLE


def test_every_state_is_explained_in_the_order_of_the_code() -> None:
    table = DOC[DOC.index("| state | meaning |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE) == list(job.STATES)
