"""`clawq config init | check | show | path`: the owner's way to clawq.toml."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq.cli import words
from clawq.cli.params import AsJson
from clawq.errors import ClawqError, ConfigError, UsageError
from clawq.paths import find_home, make_private_dir
from clawq.states import DEFAULT_KIND

if TYPE_CHECKING:
    from clawq.config.compiler import Checked
    from clawq.config.explain import Value
    from clawq.config.problems import Problem

config_app = typer.Typer(name="config", add_completion=False, rich_markup_mode=None)


@config_app.callback(invoke_without_command=True)
def config(ctx: typer.Context) -> None:
    """Make, check and show clawq.toml."""
    if ctx.invoked_subcommand is None:
        raise UsageError("`clawq config` does one of several things", "say init, check, show or path")


@config_app.command()
def init(
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a clawq.toml that explains every key and changes nothing."""
    from clawq.config.reference import write_template
    from clawq.store.connection import storage_errors

    path = find_home().config
    with storage_errors(path):
        make_private_dir(os.path.dirname(path))
        try:
            write_template(path, replace=force)
        except FileExistsError:
            raise ClawqError(f"{path} is there already", "--force replaces it") from None
    if as_json:
        words.write_json({"path": path, "written": True})
    else:
        words.write(f"{words.line(path)}: written; edit it, then `clawq config check`")
    return 0


@config_app.command()
def check(as_json: AsJson = False) -> int:
    """Say everything that is wrong with clawq.toml, one line each."""
    from clawq.config.compiler import check_file

    path = find_home().config
    checked = check_file(path)
    for problem in (*checked.problems, *checked.warnings):
        words.note(": ".join(part for part in (problem.where_and_what(path), problem.fix) if part))
    if as_json:
        words.write_json(_as_document(checked))
    elif checked.body is not None:
        words.write(f"{words.line(path)}: {_all_is_well(checked.body, os.path.exists(path))}")
        _write_schedules(checked.body["schedules"])
    return 0 if checked.body is not None else ConfigError.exit_code


@config_app.command()
def show(
    overload: Annotated[
        bool,
        typer.Option(
            "--overload", help="Show what each kind may expect when there is too much of everything."
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show the value of every key that is in force, and where each comes from."""
    path = find_home().config
    checked, body, error = _in_force(path)
    if overload:
        found = _overload(body)
    else:
        from clawq.config.explain import explain, kind_defaults

        values = explain(body, path, checked.lines if error is None else None)
        found = {
            "values": [
                {"key": each.key, "value": each.value, "source": each.source, "line": each.line}
                for each in values
            ]
        }
    if as_json:
        words.write_json({"path": path, "exists": os.path.exists(path), "error": error, **found})
        return 0
    if error is not None:
        words.note(f"{error}; the last good form is in force")
    if overload:
        from clawq.cli.overload import draw

        draw(found).print()
    else:
        _print(values, kind_defaults(body))
    return 0


def _in_force(path: str) -> tuple[Checked, Mapping[str, Any], str | None]:
    """The file, the body in force, and what is wrong with the file: then the body is the last good form.

    Raises ConfigError where there never was a good one.
    """
    from clawq.config.compiler import check_file
    from clawq.desk import reading
    from clawq.store import config_row

    checked = check_file(path)
    if checked.body is not None:
        return checked, checked.body, None
    with reading() as desk:
        row = config_row.load(desk.db) if desk.db is not None else None
    import json

    from clawq.settings import from_a_file

    if row is None or not from_a_file(row[0]):
        raise checked.error()

    return checked, json.loads(row[1]), str(checked.error())


def _overload(body: Mapping[str, Any]) -> dict[str, Any]:
    from clawq.cli.overload import contract
    from clawq.host import load
    from clawq.settings import Settings

    return contract(Settings(body), load.default_max_user_procs())


@config_app.command()
def path(as_json: AsJson = False) -> int:
    """Print where clawq.toml is, or would be."""
    path = find_home().config
    if as_json:
        words.write_json({"path": path, "exists": os.path.exists(path)})
    else:
        words.write(path)
    return 0


def _as_document(checked: Checked) -> dict[str, object]:
    def rows(problems: Sequence[Problem]) -> list[dict[str, object]]:
        return [
            {"line": each.line or None, "key": each.key or None, "what": each.what, "fix": each.fix or None}
            for each in problems
        ]

    return {
        "path": checked.path,
        "exists": os.path.exists(checked.path),
        "ok": checked.body is not None,
        "errors": rows(checked.problems),
        "warnings": rows(checked.warnings),
    }


def _all_is_well(body: Mapping[str, Mapping[str, object]], exists: bool) -> str:
    if not exists:
        return "OK: there is no such file, the defaults are in force"
    kinds, resources = len(body["kinds"].keys() - {DEFAULT_KIND}), len(body["resources"])
    schedules = len(body["schedules"])
    scheduled = f", {schedules} schedule{'s' * (schedules != 1)}" if schedules else ""
    return f"OK ({kinds} kind{'s' * (kinds != 1)}, {resources} resources{scheduled})"


def _write_schedules(schedules: Sequence[Mapping[str, str]]) -> None:
    """When each is due next, by the clock here."""
    if not schedules:
        return
    from clawq.calendar import Calendar
    from clawq.desk import now_ms

    width = max(len(each["kind"]) for each in schedules)
    for each in schedules:
        slot = Calendar(each["cron"]).next(now_ms())
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(slot.at / 1000)) if slot else "never"
        words.write(f"  {words.line(each['kind']):<{width}}  next {at}")


def _print(values: Sequence[Value], defaults: Sequence[Value]) -> None:
    """A table for each table of the file. Of a kind only what is not as in every kind: there are 19 keys."""
    from clawq.cli.render import QUIET, Column, Page
    from clawq.config.explain import toml
    from clawq.config.problems import dotted

    page = Page()
    told = [each for each in values if each.path[0] != "kinds" or not each.is_default]
    for table, rows in groupby((*told, *defaults), key=lambda each: each.path[:-1]):
        is_default = table == ("kinds", "NAME")
        if table:
            header = "[[schedules]]" if table[0] == "schedules" else f"[{dotted(table)}]"
            page.title("every kind that does not say otherwise" if is_default else header)
        page.table(
            (Column("key"), Column("value", elastic=True), Column("from")),
            [
                (
                    str(each.path[-1]),
                    "unset" if each.value is None else toml(each.value),
                    (each.source, QUIET if each.is_default else ""),
                )
                for each in rows
            ],
        )
    page.print()
