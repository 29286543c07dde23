"""On which line of a TOML text a key stands: tomllib does not say, and an error without it is a riddle."""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]
"""Keys, and positions in arrays: ``("kinds", "site.qa", "needs", 0)``."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
# The longest match wins, so that a text that ends in quotes keeps them: """say "hi"""""
_STRING = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'''
    r"""|'''(?:[^']|'{1,2}(?!'))*'{3,5}"""
    r'''|"(?:[^"\\\n]|\\.)*"'''
    r"""|'[^'\n]*'""",
    re.DOTALL,
)
QUOTED = re.compile(rf"(?:{_STRING.pattern})|#[^\n]*", re.DOTALL)
"""A string, or a comment."""


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of `path`, else of the nearest table around it, else 1."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


def key_lines(text: str) -> dict[Path, int]:
    """Every key, table and array item of a TOML `text` that tomllib accepts, with its line (from 1).

    A dotted key counts for each of its parts. A table that is opened in several places has the line
    of its own header, or else of the first key that made it.
    """
    return _Scan(text).document()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.lines: dict[Path, int] = {}
        self.arrays: dict[Path, int] = {}  # arrays of tables: path -> index of the last one
        self.counted = (0, 1)  # a position and its line: lines are counted once, not from the top each time

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self.skip(_BETWEEN)
        while self.pos < len(self.text):
            if self.text.startswith("[", self.pos):
                table = self.header()
            else:
                self.pair(table)
            self.skip(_BETWEEN)
        return self.lines

    def header(self) -> Path:
        line = self.line()
        double = self.text.startswith("[[", self.pos)
        self.pos += 2 if double else 1
        parts = self.key()
        self.pos += 2 if double else 1
        path: Path = ()
        for part in parts[:-1]:
            path = self.inside((*path, part))
            self.lines.setdefault(path, line)
        path = (*path, parts[-1])
        if double:
            self.lines.setdefault(path, line)
            self.arrays[path] = self.arrays.get(path, -1) + 1
            path = self.inside(path)
        self.lines[path] = line
        return path

    def inside(self, path: Path) -> Path:
        """A name of an array of tables means its last table."""
        if path in self.arrays:
            self.lines.setdefault(path, self.line())
            return (*path, self.arrays[path])
        return path

    def pair(self, table: Path) -> None:
        line = self.line()
        path = table
        for part in self.key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.pos += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)

    def key(self) -> list[str]:
        """A dotted key; leaves the position on what follows it."""
        parts = []
        while True:
            self.skip(_BLANK)
            if self.text[self.pos] in "\"'":
                quoted = self.skip(_STRING)
                parts.append(tomllib.loads(f"k = {quoted}")["k"] if "\\" in quoted else quoted[1:-1])
            else:
                parts.append(self.skip(_BARE_KEY))
            self.skip(_BLANK)
            if not self.text.startswith(".", self.pos):
                return parts
            self.pos += 1

    def value(self, path: Path) -> None:
        start = self.text[self.pos]
        if start in "\"'":
            self.skip(_STRING)
        elif start == "[":
            self.items(path)
        elif start == "{":
            self.inline(path)
        else:
            self.skip(_SCALAR)

    def items(self, path: Path) -> None:
        self.pos += 1
        index = 0
        while self.next_is_not("]"):
            self.lines[(*path, index)] = self.line()
            self.value((*path, index))
            index += 1
        self.pos += 1

    def inline(self, path: Path) -> None:
        self.pos += 1
        while self.next_is_not("}"):
            self.pair(path)
        self.pos += 1

    def next_is_not(self, end: str) -> bool:
        self.skip(_BETWEEN)
        if self.text[self.pos] == ",":
            self.pos += 1
            self.skip(_BETWEEN)
        return self.text[self.pos] != end

    def skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.pos)
        if found is None:
            raise ValueError(f"not TOML at character {self.pos}")
        self.pos = found.end()
        return found.group()

    def line(self) -> int:
        pos, line = self.counted
        line += self.text.count("\n", pos, self.pos)
        self.counted = (self.pos, line)
        return line
