"""The texts made from the models: the file that `clawq config init` writes, and the tables of the docs."""

from __future__ import annotations

import inspect
import os
from typing import Any

from pydantic import BaseModel

from clawq.config.explain import in_order, shown_default, toml
from clawq.config.models import BUILT_IN_RESOURCES, BandDefaults, Host, Kind, Limits, Resource, Tenant
from clawq.config.problems import expects

WIDTH = 110
BEGIN = "<!-- keys: begin (made from clawq/config/models.py by `python -m clawq.config docs`) -->"
END = "<!-- keys: end -->"

_HEAD = """\
# clawq.toml: what may run here, and how much of it at once.
#
# All of it may be left out. A line that starts with # and a key shows that key's default, or an example
# where it says (unset); take the # away to use it. Durations are "90s", "10m", "2h" or "1d".
# A change takes effect within two seconds; `clawq config check` says whether it is right, and while
# it is not, the last good form stays in force. `clawq config show` shows what is in force.
"""
_RESOURCES = """\
# A resource is a number of slots. A job holds one of each resource that it needs while it runs.
# These three are always there; add your own.
"""
_ENV = """\
# Variables for every job. Whole paths: ~ and $ are not expanded. Secrets belong in a kind's env_file.
[env]
#PATH = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin"
"""
_BANDS = """\
# Jobs are served by band: critical, interactive, normal, bulk. A band may hold defaults for the kinds
# of its jobs: any key of a kind but `band` and, first, what the kind itself says.
#[bands.interactive]
#deadline = "90s"
"""
_TENANTS = """\
# A tenant is whose job it is (`enqueue --tenant acme`); each may have limits of its own.
#[tenants.acme]
"""
_KINDS = """\
# A kind is a type of job: `clawq enqueue site.qa --payload '{"url": "https://example.org"}'` runs this
# command when a slot is free. Quote a name that has a dot.
"""
_SECOND_KIND = """\
# A morning's work that nobody wants in the afternoon, and that must not happen twice by itself.
#[kinds."digest.daily"]
#command = ["claude", "-p", "Write today's digest"]
#band = "bulk"
#stale_after = "12:00"
#timeout = "20m"
#on_lost = "unknown"
"""


def template() -> str:
    """A clawq.toml that changes nothing and shows everything."""
    parts = [
        _HEAD,
        f"# {_about(Limits)}\n[limits]\n{_keys(Limits)}",
        f'# {_about(Host)} "off" switches a check off.\n[host]\n{_keys(Host)}',
        _RESOURCES
        + "".join(f"\n[resources.{name}]\n#limit = {limit}\n" for name, limit in BUILT_IN_RESOURCES.items()),
        "#[resources.anthropic]\n" + _keys(Resource),
        _ENV,
        _BANDS,
        _TENANTS + _keys(Tenant),
        f'{_KINDS}#[kinds."site.qa"]\n{_keys(Kind)}',
        _SECOND_KIND,
    ]
    return "\n".join(parts)


def tables() -> str:
    """The reference: a Markdown table for each table of the file."""
    parts = []
    for title, model in (
        ("[limits]", Limits),
        ("[host]", Host),
        ("[resources.NAME]", Resource),
        ("[tenants.NAME]", Tenant),
        ("[kinds.NAME]", Kind),
    ):
        rows = [
            f"### `{title}`",
            "",
            _about(model),
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
        ]
        rows += [_row(model, name) for name in in_order(model)]
        parts.append("\n".join(rows))
    parts.append(f"### `[bands.NAME]`\n\n{_about(BandDefaults)}")
    return "\n\n".join(parts)


def with_tables(document: str) -> str:
    """docs/configuration.md with its tables made anew."""
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{tail}"


def write_template(path: str, replace: bool) -> None:
    """Write template() to `path`, mode 0600. Raises FileExistsError unless `replace`, and other OSErrors.

    A link is followed: whoever keeps the file elsewhere keeps it there.
    """
    if not replace:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(template())
        return
    target = os.path.realpath(path)
    draft = f"{target}.{os.getpid()}.new"
    write_template(draft, replace=False)
    os.replace(draft, target)


def _about(model: type[BaseModel]) -> str:
    return inspect.getdoc(model) or ""


def _example(model: type[BaseModel], name: str) -> Any:
    extra = model.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return extra["example"]


def _keys(model: type[BaseModel]) -> str:
    """`#key = value   # meaning`, the meanings in a column; one that does not fit stands above."""
    lines = []
    for name in in_order(model):
        shown, example = shown_default(model, name), _example(model, name)
        default = model.model_fields[name].default
        meaning = str(model.model_fields[name].description)
        if default in (None, [], {}):
            meaning += f" (default: {shown})" if shown else " (unset)"
        assignment = f"#{name} = {toml(example if example is not None else default)}"
        beside = f"{assignment:<34}  # {meaning}"
        lines += [beside] if len(assignment) <= 34 and len(beside) <= WIDTH else [f"# {meaning}", assignment]
    return "\n".join(lines) + "\n"


def _row(model: type[BaseModel], name: str) -> str:
    info = model.model_fields[name]
    default = (
        (shown_default(model, name) or "unset")
        if info.default in (None, [], {})
        else f"`{toml(info.default)}`"
    )
    cells = (f"`{name}`", expects(info).text, default, str(info.description))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
