"""What the documents say exists, exists: the commands they name, the files they link to, the API shown."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import clawq
from clawq.cli import reference
from clawq.config.compiler import check_text

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{name}" for name in PAGES)]


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


def anchors(text: str) -> set[str]:
    """Of a page's headings, as GitHub and most site builders make them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_of_a_document_leads_somewhere(name: str) -> None:
    text = re.sub(
        r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    lost = []
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            lost.append(link)
    assert lost == []


def test_the_index_has_every_page_once_and_every_page_a_title() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(([a-z-]+\.md)\) \| .+ \|$", index, re.MULTILINE)
    assert sorted([*rows, "README.md"]) == PAGES
    for page in PAGES:
        assert re.match(r"# \S", (DOCS / page).read_text(encoding="utf-8")), page


def test_the_command_reference_is_current() -> None:
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == reference.page(), (
        "run `python -m clawq.cli.reference`"
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_configuration_shown_is_valid(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for block in re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if "[mcp_servers" in block:  # another program's file
            continue
        whole = block if re.match(r"\s*(#.*\n)*(\[|mode)", block) else f"[kinds.of_the_example]\n{block}"
        assert check_text(whole, name).problems == (), block


def test_the_queue_in_the_pictures_can_be_configured() -> None:
    text = (ROOT / "demo" / "pictures.toml").read_text(encoding="utf-8").replace("@HOME@", "/tmp")
    assert check_text(text, "pictures.toml").problems == ()


def test_every_picture_is_shown_somewhere_and_needs_nothing_from_elsewhere() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    shown = {name for text in texts for name in re.findall(r"!\[[^\]]+\]\([^)]*pictures/(\w+\.svg)\)", text)}
    pictures = {path.name: path for path in (DOCS / "pictures").iterdir()}
    assert shown == set(pictures)
    for path in pictures.values():
        svg = path.read_text(encoding="utf-8")
        ElementTree.fromstring(svg)
        assert "url(" not in svg.replace("url(#", "")
        assert "$ clawq" in svg.replace("&#160;", " ")


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
