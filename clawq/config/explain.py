"""The effective value of every key, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from clawq.config.compiler import check_text, compiled_name
from clawq.config.lines import Path
from clawq.config.models import Alerts, Band, Budget, Host, Kind, Limits, Resource, Schedule, Tenant, Top
from clawq.config.problems import dotted, expects, quoted
from clawq.when import UNITS

DEFAULT = "default"

_TABLES: dict[str, type[BaseModel]] = {"limits": Limits, "host": Host, "alerts": Alerts}
_OPEN_TABLES: dict[str, type[BaseModel]] = {"bands": Band, "tenants": Tenant}


class Value(NamedTuple):
    """`value` as clawq.toml would have it (None: unset); `line` None when the file does not say it."""

    path: Path
    value: Any
    source: str = DEFAULT
    line: int | None = None

    @property
    def is_default(self) -> bool:
        return self.source.startswith(DEFAULT)

    @property
    def key(self) -> str:
        return dotted(self.path)


def explain(body: Mapping[str, Any], path: str, lines: Mapping[Path, int] | None) -> list[Value]:
    """Every key of the compiled `body`. `lines` are those of the file it came from.

    None for `lines`: the file is another by now, and whatever is not a default is the last good form's.
    """
    return list(_Sources(body, os.path.basename(path), lines).values())


def kind_defaults(body: Mapping[str, Any]) -> list[Value]:
    """What a kind has that says nothing, unless its band does."""
    defaults = body["kind_defaults"]
    keys = (key for key in in_order(Kind) if compiled_name(key, Kind) in defaults)
    return [Value(("kinds", "NAME", key), plain(Kind, key, defaults)) for key in keys]


class _Sources:
    def __init__(self, body: Mapping[str, Any], file: str, lines: Mapping[Path, int] | None) -> None:
        self.body = body
        self.file = file
        self.lines = lines
        self.defaults = check_text("", file).body or {}

    def values(self) -> Iterator[Value]:
        yield from self.table((), Top, self.body, self.defaults)
        for section, model in _TABLES.items():
            yield from self.table((section,), model, self.body[section], self.defaults[section])
        for name, table in self.body["resources"].items():
            built_in = self.defaults["resources"].get(name, {})
            yield from self.table(("resources", name), Resource, table, built_in)
        for name, table in self.body["budgets"].items():
            yield from self.table(("budgets", name), Budget, table, {"per_tenant": None})
        for name, text in self.body["env"].items():
            yield self.written(("env", name), text)
        for section, model in _OPEN_TABLES.items():
            for name, table in self.body[section].items():
                for key in model.model_fields:
                    if compiled_name(key, model) in table:
                        yield self.written((section, name, key), plain(model, key, table))
        for name in self.body["kinds"]:
            yield from self.kind(name)
        for index, table in enumerate(self.body["schedules"]):
            yield from self.table(("schedules", index), Schedule, table, {"catch_up": "once"})

    def table(
        self, path: Path, model: type[BaseModel], table: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> Iterator[Value]:
        for key in model.model_fields:
            compiled = compiled_name(key, model)
            at, value = (*path, key), plain(model, key, table)
            if self.lines is None:
                same = compiled in defaults and defaults[compiled] == table[compiled]
            else:
                same = at not in self.lines
            yield Value(at, value, _default(model, key)) if same else self.written(at, value)

    def kind(self, name: str) -> Iterator[Value]:
        own = self.body["kinds"][name]
        defaults = self.body["kind_defaults"]
        band = own.get("band", defaults["band"])
        shared = self.body["bands"].get(band, {})
        for key in in_order(Kind):
            at, compiled = ("kinds", name, key), compiled_name(key, Kind)
            if compiled in own:
                found = self.written(at, plain(Kind, key, own))
                if key == "env" and "env" in shared:
                    found = found._replace(value={**shared["env"], **own["env"]})
                yield found
            elif compiled in shared:
                found = self.written(("bands", band, key), plain(Kind, key, shared))
                yield found._replace(path=at, source=f"band {band}, {found.source}")
            else:
                value = plain(Kind, key, defaults) if compiled in defaults else None
                yield Value(at, value)

    def written(self, path: Path, value: Any) -> Value:
        line = (self.lines or {}).get(path)
        return Value(path, value, f"{self.file}:{line}" if line else "the last good form", line)


def shown_default(model: type[BaseModel], key: str) -> str:
    """What a default that is worked out comes from, else ''."""
    extra = model.model_fields[key].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["shown"])


def is_required(model: type[BaseModel], key: str) -> bool:
    """May the key not be left out of its table?"""
    extra = model.model_fields[key].json_schema_extra
    assert isinstance(extra, dict)
    return bool(extra["required"])


def _default(model: type[BaseModel], key: str) -> str:
    shown = shown_default(model, key)
    return f"{DEFAULT}: {shown}" if shown else DEFAULT


def in_order(model: type[BaseModel]) -> list[str]:
    """The keys of a table as a reader wants them: a kind's band stands beside its needs."""
    names = list(model.model_fields)
    if model is Kind:
        names.remove("band")
        names.insert(names.index("needs") + 1, "band")
    return names


def plain(model: type[BaseModel], key: str, table: Mapping[str, Any]) -> Any:
    """The value of `key` in a compiled `table`, as a person would write it."""
    value = table[compiled_name(key, model)]
    if not expects(model.model_fields[key]).ms:
        return value
    return "none" if value == 0 and key == "timeout" else duration(value)


def duration(ms: int) -> str:
    """As a person would write it, in one unit: ``90s``, ``2h``."""
    unit = next((unit for unit, length in reversed(UNITS.items()) if ms and ms % length == 0), "s")
    return f"{ms // UNITS[unit]}{unit}"


def toml(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{dotted((name,))} = {toml(each)}" for name, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    return str(value)
