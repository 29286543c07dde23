"""The owner's command line: which command is where, and how its mistakes become one line.

Only the module of the command that was asked for is imported. Typer's own coercion of values would
load pydantic for every option, so commands take text and read it themselves.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from clawq import __version__
from clawq import states as job
from clawq.cli import words
from clawq.errors import ClawqError, Refused, UsageError
from clawq.paths import as_utf8
from clawq.values import near
from clawq.verbs import VERBS

SECTIONS = {
    "Put work in": {
        "enqueue": "clawq.cli.enqueue",
        "add": "clawq.cli.enqueue",
    },
    "Run it": {
        "run": "clawq.cli.run",
        "stop": "clawq.cli.run",
    },
    "Look": {
        "status": "clawq.cli.status",
        "list": "clawq.cli.look",
        "show": "clawq.cli.show",
        "why": "clawq.cli.why",
        "logs": "clawq.cli.logs",
        "wait": "clawq.cli.wait",
        "dead": "clawq.cli.look",
        "unknown": "clawq.cli.look",
        "events": "clawq.cli.events",
        "doctor": "clawq.cli.doctor",
        "history": "clawq.cli.history",
        "metrics": "clawq.cli.metrics",
    },
    "Change": {
        "retry": "clawq.cli.change",
        "cancel": "clawq.cli.change",
        "approve": "clawq.cli.change",
        "deny": "clawq.cli.change",
        "edit": "clawq.cli.change",
        "reconcile": "clawq.cli.change",
        "pause": "clawq.cli.control",
        "resume": "clawq.cli.control",
        "prune": "clawq.cli.control",
    },
    "Inside a job": {
        "throttle": "clawq.cli.throttle",
        "spend": "clawq.cli.spend",
        "fail": "clawq.cli.fail",
        "beat": "clawq.cli.beat",
        "effect": "clawq.cli.effect",
        "ask": "clawq.cli.ask",
    },
    "Offer it to agents": {
        "mcp": "clawq.cli.mcp",
    },
    "Set up and keep": {
        "config": "clawq.cli.config",
        "service": "clawq.cli.service",
        "crontab": "clawq.cli.crontab",
        "backup": "clawq.cli.backup",
        "restore": "clawq.cli.backup",
    },
}
"""Section of the help -> command -> the module that has it."""

MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}

HOT = {
    "enqueue": "Accept a job and walk away.",
    "add": "The same as enqueue.",
    **{name: verb.summary for name, verb in VERBS.items()},
}

# The class has a public name in some versions of Typer only, its descendant in all.
_PARSE_ERROR: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

GROUPS = ("config", "service")
"""Commands of commands."""


PEOPLES = ("approve", "deny", "edit", "reconcile", "resume", "stop", "restore", "prune")
"""What only a person does: inside a job it is refused. A rail, not a wall: one user owns both sides."""


def _stay_inside(name: str) -> None:
    """Raises Refused (``not_allowed``)."""
    me = job.whoami(os.environ) if name in PEOPLES else None
    if me is not None and not {"--help", "-h"}.intersection(sys.argv):
        raise Refused(
            "not_allowed", f"job {me[0]} cannot `clawq {name}`", "that is for a person, outside of a job"
        )


class _AsTyped:
    """Stands where Typer would build a pydantic adapter: text stays text."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        return () if value is None and (param.multiple or param.nargs == -1) else value


def _as_typed(param: Any) -> Any:
    if hasattr(param, "_runtime_param"):
        param._runtime_param = _AsTyped()
        # Every value is text, which is nothing to tell anybody.
        param.display_type = lambda ctx: ""
    if hasattr(param, "_usage_display_name"):
        # A required argument in braces, as some versions of Typer have it, reads like a placeholder.
        param.get_usage_pieces = lambda ctx: [param.metavar + ("..." if param.nargs == -1 else "")]
    return param


class Command(TyperCommand):
    """A command whose values are all text or switches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [_as_typed(param) for param in self.params]

    def get_help_option(self, ctx: Any) -> Any:
        return _as_typed(super().get_help_option(ctx))


class Group(TyperGroup):
    """A command of commands."""

    def get_help_option(self, ctx: Any) -> Any:
        return _as_typed(super().get_help_option(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            hint = near(args[0], names) + f"`{ctx.command_path} --help` lists them"
            raise UsageError(f"there is no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)


class Commands(Group):
    """Imports a command's module when the command is named, and all of them for the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in MODULES:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            rows = []
            for name in commands:
                found = self.get_command(ctx, name)
                rows.append((name.ljust(10), found.get_short_help_str(limit=64)))
            with formatter.section(title):
                formatter.write_dl(rows)


def _load(name: str) -> Any:
    if name in HOT:
        # Only for the help: the door sends these straight to their module.
        return TyperCommand(name, help=HOT[name])
    module = importlib.import_module(MODULES[name])
    own = typer.Typer(add_completion=False, rich_markup_mode=None)
    if name in GROUPS:
        own = getattr(module, f"{name}_app")
        own.info.cls = Group
    elif hasattr(module, "register"):
        module.register(own)
    else:
        own.command(name)(getattr(module, "list_jobs" if name == "list" else name))
    for each in own.registered_commands:
        each.cls = Command
    built: Any = typer.main.get_command(own)
    if name not in GROUPS:
        built = getattr(built, "commands", {}).get(name, built)
    built.name = name
    return built


def _show_version(asked: bool) -> None:
    if asked:
        words.write(f"clawq {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="clawq",
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="A local job queue with backpressure for AI agents. Without a command: clawq status.",
)


@app.callback()
def _clawq(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> int:
    if ctx.invoked_subcommand is not None:
        _stay_inside(ctx.invoked_subcommand)
        return 0
    from clawq.cli.status import status

    return status()


def main(argv: list[str]) -> int:
    """Run one of the owner's commands. Its exit code; raises ClawqError for what it refuses."""
    for stream in (sys.stdout, sys.stderr):
        # What an encoding cannot say must not end the program that says it.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    argv = [_utf8(word) for word in argv]
    try:
        code = typer.main.get_command(app).main(args=argv, prog_name="clawq", standalone_mode=False)
    except _PARSE_ERROR as error:
        raise _usage(error, argv) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        # Typer's way to end when whoever read our output has gone; the door has its own.
        raise BrokenPipeError from None
    return code if isinstance(code, int) else 0


def _utf8(word: str) -> str:
    """What was typed, whatever the locale is. Raises UsageError: nothing in the queue has such a name."""
    text = as_utf8(word)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r:.80} is not UTF-8", "every name in the queue is") from None
    return text


def _usage(error: Any, argv: list[str]) -> ClawqError:
    """Typer's complaint in the form of ours: what is wrong, what to do."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else " ".join(["clawq", *argv[:1]])
    what = words.line(error.format_message()).rstrip(".")
    fix = f"`{path} --help` shows what it takes"
    option = getattr(error, "option_name", None)
    if option and what.startswith("No such option"):
        what = f"there is no option {words.line(option)!r}"
        known = [name for param in ctx.command.params for name in param.opts] if ctx else []
        fix = near(option, known) + fix
    elif what:
        what = what[0].lower() + what[1:]
    return UsageError(what, fix)
