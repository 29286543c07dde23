"""The placeholders in a kind's command: {payload}, {payload_file}, {job_id}, {attempt} and {field:NAME}.

A value is put inside its argument once and is never read by a shell or looked at again, so that a
payload can neither add an argument nor turn one into an option. ``{{payload}}`` writes ``{payload}``.
Other braces stay as they are: JSON, ``awk '{print $1}'``, ``${HOME}``.
"""

from __future__ import annotations

import re

from clawq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAMES = ("payload", "payload_file", "job_id", "attempt", "field:NAME")
NOTICE_NAMES = ("text", "reason", "kind", "state", "job_id", "tenant")
"""Those of a ``notify``."""

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+(?::[^{}]*)?)\}\}|(?<!\$)\{([a-z_]+(?::[^{}]*)?)\}")
_SHELLS = frozenset({"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"})


def used(argument: str) -> list[str]:
    """The names of the placeholders in one argument, known or not: ``["payload", "field:id"]``."""
    return [name for _, name in _PLACEHOLDER.findall(argument) if name]


def is_known(name: str, names: Sequence[str] = NAMES) -> bool:
    """Whether `name`, as used() gives it, is one that fill() can replace."""
    word, colon, field = name.partition(":")
    if word == "field":
        return bool(field) and "field:NAME" in names
    return not colon and word in names


def in_shell_script(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each (index, placeholder) in the script of a ``sh -c SCRIPT``: the shell reads the value as code."""
    shell = False
    script = False
    for index, argument in enumerate(argv):
        if script:
            yield from ((index, name) for name in used(argument))
            shell = script = False
        elif argument.rpartition("/")[2] in _SHELLS:
            shell = True
        elif shell and argument[:1] == "-" and argument[:2] != "--":
            script = "c" in argument


def fill(argv: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """`argv` with its placeholders replaced, each argument still one argument.

    `values` has "payload" (the JSON text, or None), "payload_file", "job_id" and "attempt". A
    ``{field:NAME}`` is that member of a payload that is an object: text as it is, anything else as
    JSON; null counts as missing.

    Raises UsageError for a value that is missing, that no process could be given, or that would make
    an option of its argument: one that starts with ``-`` where the argument starts with the value,
    unless a ``--`` of the command's own stands before it.
    """
    filled: list[str] = []
    options_end = False
    fields: Mapping[str, object] | None = None

    for argument in argv:
        pieces: list[str] = []
        first = None
        end = 0
        for found in _PLACEHOLDER.finditer(argument):
            pieces.append(argument[end : found.start()])
            end = found.end()
            literal, name = found.groups()
            if literal is not None:
                pieces.append("{" + literal + "}")
                continue
            if name.startswith("field:") and fields is None:
                fields = _fields(values.get("payload"))
            value = _value(name, values, fields)
            if not "".join(pieces):
                first = first or name
            pieces.append(value)
        text = "".join(pieces) + argument[end:]
        if first is not None and text.startswith("-") and not options_end:
            raise UsageError(
                f"{{{first}}} starts with '-' and would be an option of {argv[0]}",
                'put "--" before it in the kind\'s command',
            )
        filled.append(text)
        options_end = options_end or argument == "--"
    return filled


def _fields(payload: object) -> Mapping[str, object]:
    if not isinstance(payload, str):
        return {}
    import json

    try:
        decoded = json.loads(payload)
    except (ValueError, RecursionError):
        # Valid for SQLite, but not for Python: a number of 5,000 digits, or nested a thousand deep.
        raise UsageError("the payload cannot be read for its fields", "pass {payload_file} instead") from None
    return decoded if isinstance(decoded, dict) else {}


def _value(name: str, values: Mapping[str, object], fields: Mapping[str, object] | None) -> str:
    if name.startswith("field:"):
        value = (fields or {}).get(name[6:])
        missing = f"the payload has no {name[6:]!r}, and the kind's command has {{{name}}}"
    else:
        value = values.get(name)
        missing = f"the job has no {name}, and the kind's command has {{{name}}}"
    if value is None:
        raise UsageError(missing, "enqueue it with --payload")
    if not isinstance(value, str):
        import json

        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(
            f"{{{name}}} holds a character that no argument can hold", "leave it out of the payload"
        )
    return value
