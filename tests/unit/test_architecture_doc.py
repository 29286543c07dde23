"""docs/architecture.md names modules and quotes the shell: both are held to the code."""

from __future__ import annotations

import re
from pathlib import Path

from clawq.host import attempt_file

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_module_it_names_exists_and_every_top_level_one_is_named() -> None:
    named = set(re.findall(r"clawq/[\w/]+(?:\.py|\.sql|/)", DOC))
    assert {path for path in named if not (ROOT / path).exists()} == set()
    rooms = {
        f"clawq/{path.name}{'/' if path.is_dir() else ''}"
        for path in (ROOT / "clawq").iterdir()
        if path.name not in ("__init__.py", "__pycache__", "py.typed")
    }
    assert rooms - named == set()


def test_it_quotes_the_shell_that_keeps_an_attempt_file() -> None:
    block = re.search(r"```sh\n(trap.*?)```", DOC, re.DOTALL)
    assert block
    assert "; ".join(block[1].strip().splitlines()) == attempt_file.SCRIPT
