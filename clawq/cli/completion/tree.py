"""The whole command line as the completions see it: commands, options, and what can follow each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from clawq import options
from clawq import states as job
from clawq.service import MANAGERS
from clawq.verbs import VERBS

WORDS = {"STATE": job.STATES, "BAND": job.BANDS, "MANAGER": MANAGERS}
"""Values that are known beforehand, by metavar."""

OFFERS = {
    "--kind": "kinds",
    "--tenant": "tenants",
    "--resource": "resources",
    "--needs": "resources",
    "--parent": "jobs parent",
    "--attempt": "attempts",
    "--reason": "reasons",
    "resume --kind": "paused kind",
    "resume --tenant": "paused tenant",
    "resume --resource": "paused resource",
}
"""Option -> the topic of ``clawq _offer`` that has its values."""
OPERANDS = {
    "enqueue": "configured",
    "add": "configured",
    "throttle": "resources",
    "spend": "budgets",
    "wait": "jobs wait",
}
"""Command -> the topic of its operand, for those that Typer does not know."""


class Flag(NamedTuple):
    """``names`` with their dashes; ``metavar`` '' for a switch; ``files``: 'file', 'folder' or ''.

    ``offers``: a topic of ``clawq _offer``; ``listed``: several of them with commas between.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    words: tuple[str, ...] = ()
    files: str = ""
    many: bool = False
    offers: str = ""
    listed: bool = False


class Verb(NamedTuple):
    """A command, and the commands below it; ``files``: its operand is a file.

    ``offers``: the topic of its operand, or with ``many`` of all of them; ``operand``: what it is called.
    """

    name: str
    help: str
    flags: tuple[Flag, ...]
    verbs: tuple[Verb, ...] = ()
    files: bool = False
    offers: str = ""
    many: bool = False
    operand: str = ""


HELP = Flag(("-h", "--help"), "", "Show what it takes")


def tree() -> Verb:
    """The whole command line."""
    import typer

    from clawq.cli.app import app

    return _verb("clawq", typer.main.get_command(app))


def every(root: Verb, path: str = "") -> Iterator[tuple[str, Verb]]:
    """Every command with the words that lead to it; '' for the root."""
    yield path, root
    for verb in root.verbs:
        yield from every(verb, f"{path} {verb.name}".strip())


def _verb(name: str, command: Any) -> Verb:
    text = _sentence(command.help or "")
    offers = OPERANDS.get(name, "")
    if name in ("enqueue", "add"):
        flags = (*(_declared(name, each) for each in options.OPTIONS), HELP)
        return Verb(name, text, flags, offers=offers, operand="KIND")
    if name in VERBS:
        flags = (*(_declared(name, each) for each in VERBS[name].options), HELP)
        actions = [Verb(word, _sentence(about), flags) for word, about in VERBS[name].actions]
        operand = VERBS[name].operands[0] if offers else ""
        many = "..." in operand
        return Verb(name, text, flags, tuple(actions), offers=offers, many=many, operand=operand.strip("[]."))
    shown = [_shown(name, param) for param in command.params if param.param_type_name == "option"]
    below = command.list_commands(None) if hasattr(command, "list_commands") else []
    operands = {param.metavar: param for param in command.params if param.param_type_name == "argument"}
    ids = operands.get("ID")
    return Verb(
        name,
        text,
        (*shown, HELP),
        tuple(_verb(each, command.get_command(None, each)) for each in below),
        "FILE" in operands,
        offers=f"jobs {name}" if ids else "",
        many=bool(ids and ids.nargs == -1),
        operand="ID" if ids else "",
    )


def _declared(verb: str, option: options.Option) -> Flag:
    return Flag(
        (option.short, option.flag) if option.short else (option.flag,),
        option.metavar,
        _sentence(option.help),
        tuple(option.values),
        option.files,
        option.many,
        _offered(verb, option.flag, option.metavar),
        option.metavar.endswith(",..."),
    )


def _shown(verb: str, param: Any) -> Flag:
    metavar = "" if param.is_flag else param.metavar or "VALUE"
    long = next((name for name in param.opts if name[:2] == "--"), "")
    return Flag(
        tuple(param.opts),
        metavar,
        _sentence(param.help or ""),
        WORDS.get(metavar, ()),
        "file" if metavar == "FILE" else "",
        bool(param.multiple),
        _offered(verb, long, metavar),
    )


def _offered(verb: str, flag: str, metavar: str) -> str:
    return OFFERS.get(f"{verb} {flag}", OFFERS.get(flag, "")) if metavar else ""


def _sentence(text: str) -> str:
    """The first one, without its full stop."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
