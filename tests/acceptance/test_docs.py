"""What the documents say exists, exists: the commands they name, the files they link to, the API shown."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clawq

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
DOCUMENTS += [
    f"docs/{name}.md"
    for name in (
        "architecture",
        "crontab",
        "effects",
        "guarantees",
        "operations",
        "overload",
        "performance",
        "results",
        "service",
        "state-machine",
        "troubleshooting",
    )
]


def code_in(text: str) -> list[str]:
    """Inline code, and the lines of blocks in which commands stand."""
    blocks = re.findall(r"^```(?:sh|console|crontab)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`]+)`", prose) + [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def verbs() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "clawq", "--help"], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"^  ([a-z]+) ", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_a_document_names_exists(name: str, verbs: set[str]) -> None:
    named = {
        verb
        for code in code_in((ROOT / name).read_text(encoding="utf-8"))
        for group in re.findall(r"(?:^|\s)clawq ([a-z]+(?:\|[a-z]+)*)", code)
        for verb in group.split("|")
    }
    assert named - verbs == set()
    assert {"enqueue", "status"} <= verbs


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_links_to_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


def test_the_readmes_python_example_fits_the_api() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block
    asked: list[inspect.BoundArguments] = []
    signature = inspect.signature(clawq.enqueue)
    example = block[1].replace("import clawq", "")

    class Fake:
        @staticmethod
        def enqueue(*args: object, **kwargs: object) -> None:
            asked.append(signature.bind(*args, **kwargs))

    exec(example, {"clawq": Fake})
    assert len(asked) == 1


def test_the_makefile_has_every_target_that_is_documented() -> None:
    helped = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^  make ([a-z]+)", helped, re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        code = "\n".join(code_in((ROOT / name).read_text(encoding="utf-8")))
        assert set(re.findall(r"\bmake ([a-z]+)", code)) - targets == set()
    assert {"setup", "demo", "test", "lint", "bench", "completions", "soak"} <= targets
