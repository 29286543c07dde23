"""``python -m clawq.cli.reference``: writes docs/commands.md, in a clone, from what the commands declare."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from clawq import options
from clawq.cli import enqueue_help
from clawq.cli.app import SECTIONS, app
from clawq.verbs import VERBS

DOC = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
WIDTH = 110

HEAD = """\
# Commands

Every command of `clawq`, made from what the program itself declares
(`python -m clawq.cli.reference` in a clone). `clawq COMMAND --help` says the same in the terminal.
`clawq` alone is `clawq status`.

- All of them work without a supervisor, from cron, and in a pipe. `--json` is for programs.
- An ID is a job's number, as `clawq list` shows it; `#12` is taken too. Where several are allowed each is
  handled by itself, and the exit code is that of the worst.
- A DURATION is `90s`, `10m`, `2h` or `1d`. A TIME is the next `HH:MM` here, or ISO 8601 such as
  `2030-01-31T07:00`.
- What goes wrong is one line on stderr: what is wrong, and what to do.

| exit | meaning |
|---|---|
| 0 | done, accepted, or a duplicate of a job with the same key |
| 1 | no such job, or its state does not allow it; `clawq doctor`: a person is needed |
| 2 | the command line is wrong |
| 65 | refused for good: trying again changes nothing |
| 70 | a bug in clawq |
| 74 | the disk is full, or the database cannot be read |
| 75 | refused for now: try again later |
| 77 | inside a job: it is no longer this agent's; stop |
| 78 | `clawq.toml` is not valid, and never was |
| 130 | Ctrl-C |

[producers.md](producers.md) has the reasons behind 65 and 75. [completions/](../completions) offers commands,
options, and this queue's own kinds, jobs, tenants and resources at a Tab, in zsh, bash and fish.
"""


def page() -> str:
    """docs/commands.md."""
    import typer

    root: Any = typer.main.get_command(app)
    parts = [HEAD]
    for title, commands in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in commands:
            command = root.get_command(None, name)
            parts += _declared(name) if name in VERBS or name in ("enqueue", "add") else _typed(name, command)
    return "\n".join(parts)


def _declared(name: str) -> list[str]:
    if name == "add":
        return ["### clawq add\n", "The same as `clawq enqueue`.\n"]
    if name == "enqueue":
        head = _head("enqueue", enqueue_help.USAGE.removeprefix("Usage: "), enqueue_help.ABOUT)
        shown, exits = _options(options.OPTIONS), enqueue_help.EXITS
        return [*head, shown, _table("exit", exits), textwrap.fill(_flat(enqueue_help.WAIT), WIDTH) + "\n"]
    verb = VERBS[name]
    return [
        *_head(name, f"{verb.usage} [OPTIONS]", verb.about),
        _options(verb.options),
        _table("exit", verb.exits),
    ]


def _options(declared: tuple[options.Option, ...]) -> str:
    rows = []
    for each in declared:
        names = f"{each.short}, {each.flag}" if each.short else each.flag
        rows.append((f"`{names} {each.metavar}`".replace(" `", "`"), each.help))
    return _table("option", tuple(rows))


def _typed(name: str, command: Any) -> list[str]:
    """A command that Typer knows, with those below it."""
    pieces = []
    rows = []
    for param in command.params:
        if param.param_type_name == "argument":
            word = param.metavar + ("..." if param.nargs == -1 else "")
            pieces.append(word if param.required else f"[{word}]")
        else:
            metavar = "" if param.is_flag else f" {param.metavar}"
            about = _flat(param.help or "")
            if isinstance(param.default, str) and param.default:
                about += f" Default: {param.default}."
            rows.append((f"`{', '.join(param.opts)}{metavar}`", about))
    below = command.list_commands(None) if hasattr(command, "list_commands") else []
    usage = " ".join(
        ["clawq", name, *(["[OPTIONS]"] if rows else []), *pieces, *(["COMMAND"] if below else [])]
    )
    parts = _head(name, usage, command.help or "")
    if rows:
        parts.append(_table("option", tuple(rows)))
    for each in below:
        parts += _typed(f"{name} {each}", command.get_command(None, each))
    return parts


def _head(name: str, usage: str, about: str) -> list[str]:
    paragraphs = [textwrap.fill(_flat(each), WIDTH) for each in about.strip().split("\n\n")]
    return [f"### clawq {name}\n", f"```\n{usage}\n```\n", *(each + "\n" for each in paragraphs)]


def _flat(text: str) -> str:
    return " ".join(text.split())


def _table(title: str, rows: tuple[tuple[str, str], ...]) -> str:
    lines = [f"| {title} | meaning |", "|---|---|"]
    for name, about in rows:
        cells = [each.replace("|", "\\|") for each in (name, about)]
        lines.append(f"| {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOC.write_text(page(), encoding="utf-8")
    sys.exit(0)
