"""The texts made from the models: the file that `clawq config init` writes, and the tables of the docs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from clawq.config.explain import in_order, is_required, shown_default, toml
from clawq.config.models import (
    BUILT_IN_RESOURCES,
    Alerts,
    Band,
    Budget,
    Host,
    Kind,
    KindKeys,
    Limits,
    Resource,
    Schedule,
    Tenant,
    Top,
)
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
_BUDGETS = """\
# A budget is an amount per period, such as the tokens of a model a minute. A kind says what it `spends`.
#[budgets.model_tokens]
"""
_BANDS = """\
# Jobs are served by band: critical, interactive, normal, bulk. A band may have a share of max_running, and
# may hold defaults for the kinds of its jobs: any key of a kind but `band`. First counts what the kind says.
#[bands.interactive]
"""
_BAND_EXAMPLES = """\
#on_busy = "reject"
#deadline = "90s"
"""
_TENANTS = """\
# A tenant is whose job it is (`enqueue --tenant acme`); each may have a weight and limits of its own.
#[tenants.acme]
"""
_KINDS = """\
# A kind is a type of job: `clawq enqueue site.qa --payload '{"url": "https://example.org"}'` runs this
# command when a slot is free. Quote a name that has a dot.
"""
_MORE_KINDS = """\
# What a busy site.qa becomes with on_busy = "degrade": less work, and it needs no browser.
#[kinds."site.qa.light"]
#command = ["site-qa", "--no-screenshots", "--payload", "{payload_file}"]

# A morning's work that nobody wants in the afternoon, and that must not happen twice by itself.
#[kinds."digest.daily"]
#command = ["claude", "-p", "Write today's digest"]
#band = "bulk"
#stale_after = "12:00"
#timeout = "20m"
#on_lost = "unknown"
"""


_SCHEDULES = """\
# clawq as the clock, which a machine that sleeps needs: each of these has a header of its own. A kind in one
# of them and in a crontab runs twice.
"""


def template() -> str:
    """A clawq.toml that changes nothing and shows everything."""
    parts = [
        f"{_HEAD}\n{_keys(Top)}",
        f"# {_about(Limits)}\n[limits]\n{_keys(Limits)}",
        f'# {_about(Host)} "off" switches a check off.\n[host]\n{_keys(Host)}',
        f"# {_about(Alerts)}\n[alerts]\n{_keys(Alerts)}",
        _RESOURCES
        + "".join(f"\n#[resources.{name}]\n#limit = {limit}\n" for name, limit in BUILT_IN_RESOURCES.items()),
        "#[resources.anthropic]\n" + _keys(Resource),
        _BUDGETS + _keys(Budget),
        _ENV,
        _BANDS + _keys(Band, own(Band)) + _BAND_EXAMPLES,
        _TENANTS + _keys(Tenant),
        f'{_KINDS}#[kinds."site.qa"]\n{_keys(Kind)}',
        _MORE_KINDS,
        f"{_SCHEDULES}#[[schedules]]\n{_keys(Schedule)}",
    ]
    return "\n".join(parts)


def tables() -> str:
    """The reference: a Markdown table for each table of the file."""
    parts = []
    for title, model, names in (
        ("At the top", Top, None),
        ("`[limits]`", Limits, None),
        ("`[host]`", Host, None),
        ("`[alerts]`", Alerts, None),
        ("`[resources.NAME]`", Resource, None),
        ("`[budgets.NAME]`", Budget, None),
        ("`[bands.NAME]`", Band, own(Band)),
        ("`[tenants.NAME]`", Tenant, None),
        ("`[kinds.NAME]`", Kind, None),
        ("`[[schedules]]`", Schedule, None),
    ):
        rows = [
            f"### {title}",
            "",
            _about(model),
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
        ]
        rows += [_row(model, name) for name in names or in_order(model)]
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def own(model: type[KindKeys]) -> list[str]:
    """The keys of a table that a kind has not."""
    return [name for name in in_order(model) if name not in KindKeys.model_fields]


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


def _keys(model: type[BaseModel], names: Sequence[str] = ()) -> str:
    """`#key = value   # meaning`, the meanings in a column; one that does not fit stands above."""
    lines = []
    for name in names or in_order(model):
        shown, example = shown_default(model, name), _example(model, name)
        default = model.model_fields[name].default
        meaning = str(model.model_fields[name].description)
        if default in (None, [], {}):
            unset = "required" if is_required(model, name) else "unset"
            meaning += f" (default: {shown})" if shown else f" ({unset})"
        assignment = f"#{name} = {toml(example if example is not None else default)}"
        beside = f"{assignment:<34}  # {meaning}"
        lines += [beside] if len(assignment) <= 34 and len(beside) <= WIDTH else [f"# {meaning}", assignment]
    return "\n".join(lines) + "\n"


def _row(model: type[BaseModel], name: str) -> str:
    info = model.model_fields[name]
    if info.default not in (None, [], {}):
        default = f"`{toml(info.default)}`"
    else:
        default = shown_default(model, name) or ("required" if is_required(model, name) else "unset")
    cells = (f"`{name}`", expects(info).text, default, str(info.description))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
