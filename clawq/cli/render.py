"""Pages of aligned text for people: the only user of Rich.

Every text goes through ``words.line`` and into a ``Text``, so neither control characters nor markup in
what agents and users write can reach the terminal. Colours: red needs a person, yellow waits, green is
fine. Tables are measured here, since only the free-text columns may be cut, never wrapped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.text import Text

from clawq.cli import words

Part = str | tuple[str, str]
"""A text, or a text and its style."""

GOOD, WAITS, BAD, QUIET, TITLE = "green", "yellow", "red", "dim", "bold"

STATE_STYLE = {
    "scheduled": WAITS,
    "queued": WAITS,
    "held": WAITS,
    "starting": GOOD,
    "running": GOOD,
    "waiting": GOOD,
    "unknown": BAD,
    "succeeded": GOOD,
    "dead": BAD,
    "expired": QUIET,
    "cancelled": QUIET,
}

NARROWEST = 40
ROOMY = 100
"""From so many columns on a table shows what is good to know besides."""
LABEL = 12
"""Columns of the labels at the left of a page."""
GAUGE = 20
BESIDE = 2
"""Columns between two plots."""


class Column(NamedTuple):
    """``elastic`` columns give way in a table that is too wide; narrow pages leave out ``roomy`` ones."""

    title: str
    right: bool = False
    elastic: bool = False
    roomy: bool = False


class Page:
    """Lines in the order in which they are added.

    In a pipe nothing is cut: whoever greps there asks for whole words, and has no right edge.
    """

    def __init__(self, width: int | None = None, unicode: bool | None = None) -> None:
        self.width = max(NARROWEST, page_width() if width is None else width)
        self.cuts = width is not None or has_an_edge()
        self.unicode = words.unicode_terminal() if unicode is None else unicode
        self._lines: list[Text] = []

    def line(self, *parts: Part) -> None:
        """One line, cut at the right edge."""
        self._lines.append(self._fit(_text(parts)))

    def pair(self, label: str, *parts: Part) -> None:
        """A label, and what it names; further lines stand under the first."""
        for text in self._wrap(_text(parts), self.width - LABEL):
            self._lines.append(_labelled(label, text))
            label = ""

    def paragraph(self, by: int, *parts: Part) -> None:
        """Running text, wrapped, `by` columns from the left."""
        for text in self._wrap(_text(parts), self.width - by):
            self._lines.append(Text(" " * by) + text)

    def items(self, label: str, items: Iterable[Part]) -> None:
        """A label and short texts side by side, as many on a line as fit."""
        room = self.width - LABEL
        row = Text()
        rows = [row]
        for text in map(_piece, items):
            if row and row.cell_len + 3 + text.cell_len > room:
                row = Text()
                rows.append(row)
            row.append_text(Text("   ") + text if row else text)
        for number, row in enumerate(rows):
            self._lines.append(self._fit(_labelled("" if number else label, row)))

    def gap(self) -> None:
        """An empty line, unless the page is empty or has one."""
        if self._lines and self._lines[-1]:
            self._lines.append(Text())

    def title(self, text: str) -> None:
        """The heading of a table."""
        self.gap()
        self.line((text, TITLE))

    def foreign(self, text: str, by: int) -> None:
        """Lines that somebody else wrote, quiet and cut at the right edge."""
        for each in text.splitlines():
            self._lines.append(self._fit(Text(" " * by + words.line(each), style=QUIET)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]], indent: int = 2) -> None:
        """Aligned columns under dim headings."""
        if self.width < ROOMY:
            kept = [number for number, column in enumerate(columns) if not column.roomy]
            columns = [columns[number] for number in kept]
            rows = [[row[number] for number in kept] for row in rows]
        cells = [[_piece(cell) for cell in row] for row in rows]
        heads = [Text(column.title, style=QUIET) for column in columns]
        widths = [max(text.cell_len for text in column) for column in zip(heads, *cells, strict=True)]
        if self.cuts:
            self._squeeze(widths, columns, self.width - indent - 2 * (len(columns) - 1))
        for row in [heads, *cells]:
            line = Text(" " * indent)
            for number, (text, column, width) in enumerate(zip(row, columns, widths, strict=True)):
                text = self._cut(text, width)
                pad = Text(" " * (width - text.cell_len))
                line.append_text(Text("  ") if number else Text())
                line.append_text(pad + text if column.right else text + pad)
            line.rstrip()
            self._lines.append(self._fit(line))

    def gauge(self, share: float) -> tuple[Part, Part]:
        """A bar, full at 1.0 where a gate closes: two parts of a line."""
        filled = min(GAUGE, max(0, round(share * GAUGE)))
        style = GOOD if share < 0.75 else WAITS if share < 1 else BAD
        full, empty = ("\u2588", "\u2591") if self.unicode else ("#", "-")
        return (full * filled, style), (empty * (GAUGE - filled), QUIET)

    def bar(self, share: float, style: str) -> Part:
        """A bar as long as `share` of GAUGE; what is there at all shows."""
        return (("\u2588" if self.unicode else "#") * max(1, round(share * GAUGE)), style)

    def picture_width(self, columns: int) -> int:
        """Of each, so many side by side."""
        return (self.width - BESIDE * (columns - 1)) // columns

    def pictures(self, pictures: Sequence[tuple[Sequence[Part], str]], columns: int) -> None:
        """Titled plots, so many side by side. They are our own, colour codes and all."""
        width = self.picture_width(columns)
        for at in range(0, len(pictures), columns):
            self.gap()
            blocks = [
                [self._cut(_text(title), width), *map(Text.from_ansi, picture.splitlines())]
                for title, picture in pictures[at : at + columns]
            ]
            for row in zip_longest(*blocks, fillvalue=Text()):
                line = Text()
                for number, text in enumerate(row):
                    line.append_text(Text(" " * (number * (width + BESIDE) - line.cell_len)) + text)
                line.rstrip()
                self._lines.append(self._fit(line))

    def renderable(self) -> Group:
        """For Rich."""
        while self._lines and not self._lines[-1]:
            self._lines.pop()
        return Group(*self._lines)

    def print(self) -> None:
        """To stdout, in colour only on a terminal."""
        console = _console(self.width)
        with console.capture() as captured:
            console.print(self.renderable(), soft_wrap=True)
        sys.stdout.write(captured.get())

    @staticmethod
    def _squeeze(widths: list[int], columns: Sequence[Column], room: int) -> None:
        """Take what is too much from the widest elastic columns, then from the widest of all."""
        for candidates, floor in (
            ([n for n, column in enumerate(columns) if column.elastic], 8),
            (list(range(len(columns))), 3),
        ):
            while sum(widths) > room and candidates:
                widest = max(candidates, key=lambda n: widths[n])
                if widths[widest] <= floor:
                    break
                widths[widest] -= 1

    def _fit(self, text: Text) -> Text:
        return self._cut(text, self.width) if self.cuts else text

    def _cut(self, text: Text, width: int) -> Text:
        if text.cell_len <= width:
            return text
        mark = "\u2026" if self.unicode else "~"
        cut = text.copy()
        cut.truncate(max(0, width - 1), overflow="crop")
        return cut.append(mark)

    def _wrap(self, text: Text, width: int) -> list[Text]:
        if not self.cuts:
            width = max([width, *(cell_len(word) for word in text.plain.split())])
        lines = list(text.wrap(_console(width), width)) or [Text()]
        for line in lines:
            line.rstrip()
        return lines


def watch(draw: Callable[[], Page], seconds: float = 1.0) -> None:
    """Draw the page again and again in place, until Ctrl-C."""
    import time

    from rich.live import Live

    # Not redirected: a page asks stdout for its width and its encoding.
    live = Live(
        console=_console(None), screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    with live:
        try:
            while True:
                live.update(draw().renderable(), refresh=True)
                time.sleep(seconds)
        except KeyboardInterrupt:
            return


def page_width() -> int:
    """Columns of the terminal on stdout; of COLUMNS, else 80, when stdout is none."""
    return _terminal_columns() or _given_columns() or 80


def has_an_edge() -> bool:
    """Is stdout a terminal, or does somebody say how wide it is?"""
    return bool(_terminal_columns() or _given_columns())


def _terminal_columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 0


def _given_columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 5 else 0


def picture_colour() -> bool:
    """May a plot have colours? Where the rest of the page has them."""
    return _console(None).color_system is not None


def state(name: str) -> Part:
    """A state in its colour."""
    return (name, STATE_STYLE.get(name, ""))


def _console(width: int | None) -> Console:
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _piece(part: Part) -> Text:
    text, style = (part, "") if isinstance(part, str) else part
    return Text(words.line(text), style=style)


def _labelled(label: str, text: Text) -> Text:
    return Text().append(set_cell_size(label, LABEL), style=QUIET).append_text(text)


def _text(parts: Iterable[Part]) -> Text:
    whole = Text()
    for part in parts:
        whole.append_text(_piece(part))
    return whole
