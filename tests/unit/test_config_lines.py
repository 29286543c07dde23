"""The line of a key, for every way in which TOML can write one."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.config.lines import Path, key_lines, line_of

DOCUMENT = '''\
# a = "commented out"
title = "one"
dotted.a.b = 2
dotted . "c d" = 3
text = """
[not.a.table]
fake = 1  \\"""
last "quoted""""
raw = \'\'\'
fake = 2
\'\'\'
empty = """"""
after = 1  # comment with = and [brackets]
when = 1979-05-27 07:32:00

[limits]
max_running = 1

[kinds."site.qa"]   # comment
command = [
    "a, ] b",  # one
    'c',

    ["nested",
     "deep"],
]
env = { A = "1", "B.C" = "}" , D = { E = 2 } }

  [kinds.'x y'.env]
  K = "v"

[ tenants . acme ]
max_running = 3

[[schedules]]
cron = "1"

[[schedules]]
cron = "2"
[schedules.sub]
deep = true
'''

EXPECTED: dict[Path, int] = {
    ("title",): 2,
    ("dotted", "a", "b"): 3,
    ("dotted", "c d"): 4,
    ("text",): 5,
    ("raw",): 9,
    ("empty",): 12,
    ("after",): 13,
    ("when",): 14,
    ("limits",): 16,
    ("limits", "max_running"): 17,
    ("kinds", "site.qa"): 19,
    ("kinds", "site.qa", "command"): 20,
    ("kinds", "site.qa", "command", 0): 21,
    ("kinds", "site.qa", "command", 1): 22,
    ("kinds", "site.qa", "command", 2): 24,
    ("kinds", "site.qa", "command", 2, 1): 25,
    ("kinds", "site.qa", "env"): 27,
    ("kinds", "site.qa", "env", "B.C"): 27,
    ("kinds", "site.qa", "env", "D", "E"): 27,
    ("kinds", "x y", "env"): 29,
    ("kinds", "x y", "env", "K"): 30,
    ("tenants", "acme", "max_running"): 33,
    ("schedules",): 35,
    ("schedules", 0): 35,
    ("schedules", 0, "cron"): 36,
    ("schedules", 1): 38,
    ("schedules", 1, "cron"): 39,
    ("schedules", 1, "sub", "deep"): 41,
}


def paths(value: Any, at: Path = ()) -> set[Path]:
    """Every path of a parsed document."""
    found = {at} if at else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found |= paths(inner, (*at, key))
    return found


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_form_of_key(ending: str) -> None:
    text = DOCUMENT.replace("\n", ending)
    lines = key_lines(text)
    assert {path: lines[path] for path in EXPECTED} == EXPECTED
    assert set(lines) == paths(tomllib.loads(text))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("kinds", "site.qa", "no_such_key"), 19),
        (("kinds", "site.qa", "command", 7), 20),
        (("limits", "x", "y"), 16),
        (("nowhere",), 1),
        ((), 1),
    ],
)
def test_a_key_that_is_not_there_has_the_line_of_its_table(path: Path, line: int) -> None:
    assert line_of(key_lines(DOCUMENT), path) == line


def test_a_table_keeps_its_own_header_after_those_of_its_parts() -> None:
    assert key_lines("[a.b]\nx = 1\n[a]\ny = 2\n")[("a",)] == 3


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (r'"k\u0065y" = 1', ("key",), 1),
        ('"" = 1', ("",), 1),
        ("a = '''x''''\nb = 1", ("b",), 2),
        ('a = """x"""""\nb = 1', ("b",), 2),
        ('a = """\\\\"""\nb = 1', ("b",), 2),
        ("a = 1", ("a",), 1),
        ("a = []\nb = {}\nc = 1", ("c",), 3),
        ("a = [ # ]\n1 , # ,\n2 ]\nc = 1", ("a", 1), 3),
        ("\n\n\n1.2 = 3", ("1", "2"), 4),
    ],
)
def test_corners(text: str, path: Path, line: int) -> None:
    tomllib.loads(text)
    assert key_lines(text)[path] == line


def test_an_empty_text_has_no_keys() -> None:
    assert key_lines("") == {}
    assert key_lines("# only a comment") == {}


# Documents of every shape, written by a small writer that notes the line of each key as it goes.

KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\x7f"), max_size=12)
SCALARS = st.one_of(st.integers(-99, 99), st.booleans(), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)
STYLES = st.randoms(use_true_random=False)


def basic(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Writer:
    def __init__(self, style: Any) -> None:
        self.text = ""
        self.style = style
        self.lines: dict[Path, int] = {}

    def note(self, path: Path) -> None:
        self.lines[path] = self.text.count("\n") + 1

    def key(self, key: str) -> str:
        if key.isascii() and key.isalnum() and self.style.random() < 0.7:
            return key
        return f"'{key}'" if "'" not in key and self.style.random() < 0.5 else basic(key)

    def scalar(self, value: Any) -> str:
        if not isinstance(value, str):
            return str(value).lower()
        printable = all(letter.isprintable() for letter in value)
        choice = self.style.random()
        if (
            "'''" not in value
            and not value.endswith("'")
            and (printable or set(value) <= {"\n", "a"})
            and choice < 0.3
        ):
            return f"'''\n{value}'''"
        if choice < 0.6:
            return '"""\n' + "\n".join(basic(line)[1:-1] for line in value.split("\n")) + '"""'
        return basic(value)

    def gap(self, newlines: bool) -> str:
        return str(
            self.style.choice(["", " ", "\n", ' # ] } = "\n', "\n\n"] if newlines else ["", " ", "  "])
        )

    def value(self, value: Any, path: Path, newlines: bool = True) -> None:
        if isinstance(value, list):
            self.text += "["
            for index, item in enumerate(value):
                self.text += ("," if index else "") + self.gap(newlines)
                self.note((*path, index))
                self.value(item, (*path, index), newlines)
                self.text += self.gap(newlines)
            self.text += self.gap(newlines) + "]"
        elif isinstance(value, dict):
            self.text += "{"
            for number, (key, item) in enumerate(value.items()):
                self.text += ", " if number else " "
                self.pair(key, item, path, newlines=False)
            self.text += "}"
        else:
            self.text += self.scalar(value)

    def pair(self, key: str, value: Any, table: Path, newlines: bool = True) -> None:
        self.note((*table, key))
        self.text += f"{self.key(key)}{self.gap(False)}={self.gap(False)}"
        self.value(value, (*table, key), newlines)

    def table(self, table: dict[str, Any], path: Path) -> None:
        for key, value in table.items():
            self.text += self.style.choice(["", "\n", "# c = 1\n", "\t"])
            self.pair(key, value, path)
            self.text += self.style.choice(["\n", " # d = 2\n"])


@given(TABLES, st.dictionaries(KEYS, st.dictionaries(KEYS, TABLES, max_size=3), max_size=3), STYLES)
def test_any_document(top: dict[str, Any], named: dict[str, dict[str, Any]], style: Any) -> None:
    writer = Writer(style)
    writer.table(top, ())
    document = dict(top)
    for section, tables in named.items():
        if section in top or not tables:
            continue
        document[section] = tables
        for name, table in tables.items():
            if (section,) not in writer.lines:
                writer.note((section,))
            writer.note((section, name))
            writer.text += f"[{writer.key(section)}.{writer.key(name)}]\n"
            writer.table(table, (section, name))
    assert tomllib.loads(writer.text) == document
    assert key_lines(writer.text) == writer.lines
