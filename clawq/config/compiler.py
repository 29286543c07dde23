"""From clawq.toml to the body that the database keeps, or to everything that is wrong with it."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from clawq import placeholders
from clawq.config import across, problems
from clawq.config.lines import QUOTED, Path, key_lines, line_of
from clawq.config.models import BUILT_IN_RESOURCES, ClawqToml, Kind, Resource
from clawq.config.problems import Problem, dotted
from clawq.errors import ConfigError
from clawq.paths import as_utf8
from clawq.states import DEFAULT_KIND

MAX_BYTES = 1 << 20
MAX_DOTS = 32
"""On one line: a key has at most three, and an inline table may hold a few of them."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a file: a `body`, or else `problems`; `raw` and `lines` are empty if it is not TOML."""

    path: str
    body: dict[str, Any] | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[Path, int] = field(default_factory=dict)

    def error(self) -> ConfigError:
        """The first problem, and how many more there are."""
        first, *more = self.problems
        fix = first.fix
        if more:
            fix = f"{fix} (and {len(more)} more: clawq config check)".lstrip()
        return ConfigError(first.where_and_what(self.path), fix)


def check_file(path: str) -> Checked:
    """Read and check `path`; a file that is not there is an empty one."""
    try:
        text = _read(path)
    except _Unreadable as error:
        return Checked(path, None, (error.problem,))
    return check_text(text, path)


def check_text(text: str, path: str) -> Checked:
    """Check the `text` of the file at `path`, whose folder relative paths count from."""
    line = _endless_key(text)
    if line:
        what = f"more than {MAX_DOTS} dots outside of quotes"
        return Checked(path, None, (Problem(line, "", what, "three levels are all there is"),))
    try:
        raw = tomllib.loads(text)
        lines = key_lines(text)
    except RecursionError:
        return Checked(path, None, (Problem(0, "", "nested too deep", "three levels are all there is"),))
    except ValueError as error:
        return Checked(path, None, (problems.of_syntax(error, text),))
    found: list[Problem] = []
    file = None
    try:
        file = ClawqToml.model_validate(raw)
    except ValidationError as error:
        found = [problems.of_value(each, lines) for each in error.errors(include_url=False)]
    known_bad = {problem.key for problem in found}
    found += (each for each in across.problems_across(raw, lines) if each.key not in known_bad)
    if file is None or found:
        return Checked(path, None, tuple(sorted(found, key=lambda each: each.line)), (), raw, lines)
    body = _body(file, as_utf8(os.path.dirname(path)))
    return Checked(path, body, (), tuple(_warnings(body, lines)), raw, lines)


def _endless_key(text: str) -> int:
    """The line, or 0, with so many dots that a parser, which takes each part of a key as a table in all those
    before it, would be kept busy by it."""
    if text.count(".") > MAX_DOTS:
        for number, line in enumerate(QUOTED.sub(_newlines, text).split("\n"), 1):
            if line.count(".") > MAX_DOTS:
                return number
    return 0


def _newlines(quoted: re.Match[str]) -> str:
    return "\n" * quoted.group().count("\n")


def dump(body: Mapping[str, Any]) -> str:
    """The body as the database and default_config.json have it: JSON, one section a line."""
    sections = (
        f"{json.dumps(name)}:{json.dumps(section, ensure_ascii=False, separators=(',', ':'))}"
        for name, section in body.items()
    )
    return "{" + ",\n".join(sections) + "}\n"


def compiled_name(name: str, model: type[BaseModel]) -> str:
    """``lease`` is ``lease_ms`` in the body."""
    return f"{name}_ms" if problems.expects(model.model_fields[name]).ms else name


class _Unreadable(Exception):
    def __init__(self, what: str, fix: str, line: int = 0) -> None:
        super().__init__(what)
        self.problem = Problem(line, "", what, fix)


def _read(path: str) -> str:
    try:
        # A pipe under this name must not hold up every producer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                what = "a folder" if stat.S_ISDIR(mode) else "not a plain file"
                raise _Unreadable(what, "clawq.toml has to be a file: move it away")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        folder = os.path.dirname(path)
        if error.errno == errno.ENOTDIR and os.path.lexists(folder):
            raise _Unreadable("cannot be there: its folder is a file", "move that away") from None
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise _Unreadable(f"cannot be read ({error.strerror})", "check its owner and mode") from None
        for place, what in ((path, "a link to nothing"), (folder, "its folder is a link to nothing")):
            if os.path.islink(place) and not os.path.exists(place):
                raise _Unreadable(what, "mend or remove it") from None
        return ""
    if len(content) > MAX_BYTES:
        raise _Unreadable("larger than 1 MiB", "this is hardly a clawq.toml")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Unreadable("UTF-16 text", "save it as UTF-8")
    if content.startswith(b"\xef\xbb\xbf"):
        raise _Unreadable("begins with a byte order mark", "save it as UTF-8 without one", 1)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable("not UTF-8 text", "save it as UTF-8", line) from None


def _body(file: ClawqToml, folder: str) -> dict[str, Any]:
    limits = _keys(file.limits)
    if limits["max_running_per_tenant"] is None:
        limits["max_running_per_tenant"] = limits["max_running"]
    if limits["max_waiting"] is None:
        limits["max_waiting"] = 2 * limits["max_running"]
    plain = _keys(Resource())
    resources: dict[str, dict[str, Any]] = {
        name: plain | {"limit": limit} for name, limit in BUILT_IN_RESOURCES.items()
    }
    for name, resource in file.resources.items():
        resources[name] = resources.get(name, plain) | _keys(resource, written=True)
    kinds: dict[str, dict[str, Any]] = {DEFAULT_KIND: {}}
    kinds |= {name: _keys(kind, written=True) for name, kind in file.kinds.items()}
    bands = {name: _keys(band, written=True) for name, band in file.bands.items()}
    for table in (*kinds.values(), *bands.values()):
        if "env_file" in table:
            table["env_file"] = os.path.join(folder, table["env_file"])
    return {
        "mode": file.mode,
        "limits": limits,
        "host": _keys(file.host),
        "alerts": _keys(file.alerts),
        "resources": dict(sorted(resources.items())),
        "budgets": {name: _keys(budget) for name, budget in sorted(file.budgets.items())},
        "env": dict(file.env),
        "bands": bands,
        "tenants": {name: _keys(tenant, written=True) for name, tenant in file.tenants.items()},
        "kinds": kinds,
        "schedules": [_keys(schedule) for schedule in file.schedules],
        "kind_defaults": {key: value for key, value in _keys(Kind()).items() if value not in (None, {})},
    }


def _keys(table: BaseModel, written: bool = False) -> dict[str, Any]:
    """The compiled keys of `table`: all of them, or those that the file has."""
    names = table.model_fields_set if written else ()
    return {
        compiled_name(name, type(table)): getattr(table, name)
        for name in type(table).model_fields
        if not written or name in names
    }


def _warnings(body: Mapping[str, Any], lines: dict[Path, int]) -> Iterator[Problem]:
    """What is allowed and yet hardly meant."""
    yield from across.warnings_across(body, lines)
    tables: list[tuple[Path, Mapping[str, Any]]] = [((), body), (("alerts",), body["alerts"])]
    tables += (
        ((section, name), each) for section in ("bands", "kinds") for name, each in body[section].items()
    )
    for path, table in tables:
        for key in ("command", "reconcile", "notify"):
            for index, name in placeholders.in_shell_script(table.get(key) or ()):
                yield Problem(
                    line_of(lines, (*path, key, index)),
                    dotted((*path, key)),
                    f"the shell reads {{{name}}} inside a -c script as code",
                    f'write "$1" there and append "--", "{{{name}}}" to the list',
                )
            if (table.get(key) or ("",))[0].startswith("~"):
                at = (*path, key, 0)
                where = line_of(lines, at), dotted(at[:-1])
                yield Problem(*where, "~ is not expanded", "write the whole path")
        search = table.get("env", {}).get("PATH", "")
        if "~" in search or "$" in search:
            at = (*path, "env", "PATH")
            yield Problem(line_of(lines, at), dotted(at), "~ and $ are not expanded", "write whole paths")
        if "env_file" in table:
            at = (*path, "env_file")
            fault = _env_file_fault(table["env_file"])
            if fault:
                yield Problem(line_of(lines, at), dotted(at), *fault)


def _env_file_fault(file: str) -> tuple[str, str] | None:
    try:
        mode = os.stat(file).st_mode
    except OSError as error:
        return f"{file} cannot be read ({error.strerror})", "its jobs cannot start until it is there"
    return (f"{file} may be read by others", "chmod 600 it") if mode & 0o077 else None
