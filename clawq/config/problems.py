"""What is wrong with a clawq.toml, in one line each: where, which key, what was expected, what was near."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from clawq import values
from clawq.config.lines import Path, line_of
from clawq.config.models import ClawqToml, Top
from clawq.config.types import Expects, Said

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TWICE = re.compile(r"Cannot declare (\(.*\)) twice", re.DOTALL)
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `line` 0 means the file as a whole, `key` '' no key of it."""

    line: int
    key: str
    what: str
    fix: str = ""

    def where_and_what(self, path: str) -> str:
        place = f"{path}:{self.line}" if self.line else path
        return ": ".join(part for part in (place, self.key, self.what) if part)


def of_syntax(error: ValueError, text: str) -> Problem:
    """From tomllib's error about `text`."""
    found = _SYNTAX.fullmatch(str(error))
    if found is None:
        # A number of thousands of digits is an error of int(), without a place.
        return Problem(0, "", "a number that nobody can mean", "look for a very long one")
    what, line, column = found.groups()
    what = _in_plain_words(what)
    place = f"column {column}" if column else "the end of the file"
    printable = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in what)
    return Problem(int(line) if line else text.count("\n") + 1, "", f"not TOML: {printable} ({place})")


def _in_plain_words(what: str) -> str:
    """What tomllib says of two tables with one name, and of two keys, is about its own insides."""
    twice = _TWICE.fullmatch(what)
    if twice:
        names = tuple(map(str, ast.literal_eval(twice[1])))
        return f"[{dotted(names)}] is in the file twice: put its keys under one header"
    if what == "Cannot overwrite a value":
        return "this name is in the file already: keep one of the two"
    return what


def of_value(error: ErrorDetails, lines: dict[Path, int]) -> Problem:
    """From one of pydantic's errors."""
    unknown = error["type"] == "extra_forbidden"
    path: Path = error["loc"]
    if path[-1] == "[key]" and not unknown:
        path = path[:-1]
    line, key = line_of(lines, path), dotted(path)
    if unknown:
        return Problem(line, key, "unknown key", _where_it_belongs(path, error["input"]))
    said = error.get("ctx", {}).get("error")
    if isinstance(said, Said):
        if said.index is not None:
            line = line_of(lines, (*path, said.index))
        return Problem(line, key, said.what, said.fix)
    return Problem(line, key, f"expected {_wanted(path)}, not {_found(error['input'])}")


def near(name: str, names: Sequence[str]) -> str:
    """What to do about a name that is none of `names`."""
    return values.near(name, names).strip() or f"expected one of {', '.join(names)}"


def dotted(path: Path) -> str:
    """A key as TOML writes it: ``kinds."site.qa".needs``. Control characters are escaped.

    Which one of ``[[schedules]]`` is meant, its line says.
    """
    names = (part for part in path if isinstance(part, str))
    return ".".join(part if _BARE.fullmatch(part) else quoted(part) for part in names)


def quoted(text: str) -> str:
    """A text as TOML writes it, on one line and safe to show."""
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped)


def expects(info: FieldInfo) -> Expects:
    """What a field is meant to hold. An optional field carries it one level down."""
    return _first((*info.metadata, *_nested(info)))


def _expects_inside(info: FieldInfo) -> Expects:
    """What each value of a table is meant to hold."""
    return _first(_nested(info))


def _nested(info: FieldInfo) -> tuple[object, ...]:
    return tuple(item for part in get_args(info.annotation) for item in getattr(part, "__metadata__", ()))


def _first(items: Iterable[object]) -> Expects:
    return next((item for item in items if isinstance(item, Expects)), Expects("a table"))


def tables_of(info: FieldInfo) -> type[BaseModel] | None:
    """The model of each table in a table of tables, such as [kinds]."""
    for part in get_args(info.annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def model_at(path: Path) -> type[BaseModel]:
    """The model of the table at `path`: ``("kinds", "site.qa")``."""
    if not path:
        return ClawqToml
    info = ClawqToml.model_fields[str(path[0])]
    model = tables_of(info) or info.annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    return model


_TABLES = ("limits", "host", "kinds.NAME", "resources.NAME", "budgets.NAME", "bands.NAME", "tenants.NAME")


def _where_it_belongs(path: Path, value: object) -> str:
    if isinstance(value, dict) and len(path) > 2 and path[0] != "schedules":
        return f"a name with a dot needs quotes: [{path[0]}.{quoted('.'.join(map(str, path[1:])))}]"
    name, names = str(path[-1]), list(model_at(path[:-1]).model_fields)
    if name in Top.model_fields:
        return "it belongs at the top of the file, before the first table"
    if name in ("cron", "catch_up") and path[0] != "schedules":
        return "it belongs under a header [[schedules]]"
    for table in _TABLES:
        if name in model_at(tuple(table.split("."))).model_fields:
            return f"it belongs in [{table}]"
    return near(name, names)


def _wanted(path: Path) -> str:
    section = ClawqToml.model_fields[str(path[0])]
    if len(path) == 1:
        return expects(section).text
    if path[0] == "env":
        return _expects_inside(section).text
    if len(path) == 4:  # a member of a table that is a value, such as `env`
        return _expects_inside(model_at(path[:2]).model_fields[str(path[2])]).text
    if len(path) == 2 and path[0] == "schedules":
        return "a table headed [[schedules]]"
    if len(path) == 2 and tables_of(section):
        return f"a table [{dotted(path)}]"
    return expects(model_at(path[:-1]).model_fields[str(path[-1])]).text


def _found(value: object) -> str:
    """A value as the file has it, short and safe to show."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return quoted(value if len(value) <= 40 else value[:39] + "…")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value) if isinstance(value, float) or abs(value) < 10**18 else "a number that large"
    return f"{value} without quotes"
