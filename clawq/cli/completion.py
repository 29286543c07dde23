"""Writes completions/ for bash, zsh and fish: ``python -m clawq.cli.completion FOLDER`` (`make completions`).

They are static: a Tab must not start Python. Everything in them comes from the declared options of
enqueue and from the owner's commands; a test holds the files to what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from clawq import options
from clawq import states as job
from clawq.cli import write_error
from clawq.service import MANAGERS
from clawq.verbs import VERBS

WORDS = {"STATE": job.STATES, "BAND": job.BANDS, "MANAGER": MANAGERS}
"""Values that are known beforehand, by metavar."""
SHELLS = {"clawq.bash": "bash", "_clawq": "zsh", "clawq.fish": "fish"}
"""File name -> shell."""


class Flag(NamedTuple):
    """``names`` with their dashes; ``metavar`` '' for a switch; ``files``: 'file', 'folder' or ''."""

    names: tuple[str, ...]
    metavar: str
    help: str
    words: tuple[str, ...] = ()
    files: str = ""
    many: bool = False


class Verb(NamedTuple):
    """A command, and the commands below it; ``files``: its operand is a file."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    verbs: tuple[Verb, ...] = ()
    files: bool = False


HELP = Flag(("-h", "--help"), "", "Show what it takes")


def tree() -> Verb:
    """The whole command line."""
    import typer

    from clawq.cli.app import app

    return _verb("clawq", typer.main.get_command(app))


def _verb(name: str, command: Any) -> Verb:
    text = _sentence(command.help or "")
    if name in ("enqueue", "add"):
        return Verb(name, text, (*map(_declared, options.OPTIONS), HELP))
    if name in VERBS:
        flags = (*map(_declared, VERBS[name].options), HELP)
        actions = [Verb(word, _sentence(about), flags) for word, about in VERBS[name].actions]
        return Verb(name, text, flags, tuple(actions))
    shown = [_shown(param) for param in command.params if param.param_type_name == "option"]
    below = command.list_commands(None) if hasattr(command, "list_commands") else []
    return Verb(
        name,
        text,
        (*shown, HELP),
        tuple(_verb(each, command.get_command(None, each)) for each in below),
        any(param.param_type_name == "argument" and param.metavar == "FILE" for param in command.params),
    )


def _declared(option: options.Option) -> Flag:
    return Flag(
        (option.short, option.flag) if option.short else (option.flag,),
        option.metavar,
        _sentence(option.help),
        tuple(option.values),
        option.files,
        option.many,
    )


def _shown(param: Any) -> Flag:
    metavar = "" if param.is_flag else param.metavar or "VALUE"
    return Flag(
        tuple(param.opts),
        metavar,
        _sentence(param.help or ""),
        WORDS.get(metavar, ()),
        "file" if metavar == "FILE" else "",
        many=bool(param.multiple),
    )


def _sentence(text: str) -> str:
    """The first one, without its full stop."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


# ---------------------------------------------------------------- bash


def bash(root: Verb) -> str:
    """For bash 3.2 (macOS) and later, with or without bash-completion."""
    verbs: list[str] = []
    values: list[str] = []
    for path, verb in _all(root):
        words = [each.name for each in verb.verbs] + [name for flag in verb.flags for name in flag.names]
        files = " files=yes" if verb.files else ""
        verbs.append(f'        "{path}") words="{" ".join(words)}"{files} ;;')
        for flag in verb.flags:
            for name in flag.names if flag.metavar else ():
                values.append(f'        "{path} {name}") {_bash_value(flag)} ;;')
    return f"""\
# clawq completion for bash. Written by `make completions`; source it, or put it into
# ~/.local/share/bash-completion/completions/clawq.

_clawq() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb="" words="" files="" i
    local IFS=$' \\t\\n'
    COMPREPLY=()
    # --band=bulk comes in three words.
    if [[ $prev == "=" ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if [[ $cur == "=" ]]; then cur=""; fi
    if (( COMP_CWORD > 1 )); then verb=${{COMP_WORDS[1]}}; fi
    case "$verb" in
        {"|".join(each.name for each in root.verbs if each.verbs)})
            if (( COMP_CWORD > 2 )); then verb="$verb ${{COMP_WORDS[2]}}"; fi ;;
    esac
    if [[ $verb == enqueue || $verb == add ]]; then
        for (( i = 2; i < COMP_CWORD; i++ )); do
            if [[ ${{COMP_WORDS[i]}} == -- ]]; then
                IFS=$'\\n'
                compopt -o filenames 2>/dev/null
                if (( i + 1 == COMP_CWORD )); then
                    COMPREPLY=( $(compgen -c -- "$cur") )
                else
                    COMPREPLY=( $(compgen -f -- "$cur") )
                fi
                return
            fi
        done
    fi
    case "$verb $prev" in
{chr(10).join(values)}
    esac
    case "$verb" in
{chr(10).join(verbs)}
    esac
    if [[ $files && $cur != -* ]]; then
        IFS=$'\\n'
        compopt -o filenames 2>/dev/null
        COMPREPLY=( $(compgen -f -- "$cur") )
        return
    fi
    COMPREPLY=( $(compgen -W "$words" -- "$cur") )
}}

complete -F _clawq clawq
"""


def _bash_value(flag: Flag) -> str:
    if flag.words:
        return f'COMPREPLY=( $(compgen -W "{" ".join(flag.words)}" -- "$cur") ); return'
    if flag.files == "folder":
        return "IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- \"$cur\") ); return"
    if flag.files == "file" and "@" in flag.metavar:
        return "IFS=$'\\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- \"${cur#@}\") ); return"
    if flag.files == "file":
        return "IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- \"$cur\") ); return"
    return "return"


def _all(root: Verb, path: str = "") -> list[tuple[str, Verb]]:
    """Every command with the words that lead to it; '' for the root."""
    found = [(path, root)]
    for verb in root.verbs:
        found += _all(verb, f"{path} {verb.name}".strip())
    return found


# ---------------------------------------------------------------- zsh


def zsh(root: Verb) -> str:
    """One function for the root and for each command that has commands or options of its own."""
    functions = "\n".join(_zsh_function(path, verb) for path, verb in _all(root))
    return f"""\
#compdef clawq
# clawq completion for zsh. Written by `make completions`; put it into a folder of $fpath.

{functions}
_clawq "$@"
"""


def _zsh_function(path: str, verb: Verb) -> str:
    name = "_clawq" + "".join(f"_{word}" for word in path.split())
    lines = []
    if path in ("enqueue", "add"):
        lines += [
            "    # What follows -- is a command line of its own.",
            "    local dashes=${words[(i)--]}",
            "    if (( dashes < CURRENT )); then",
            "        shift $dashes words",
            "        (( CURRENT -= dashes ))",
            "        _normal",
            "        return",
            "    fi",
        ]
    specs = [spec for flag in verb.flags for spec in _zsh_specs(flag)]
    if verb.verbs:
        lines += [
            "    local curcontext=$curcontext state line",
            "    _arguments -C \\",
            *(f"        {spec} \\" for spec in specs),
            "        '1:command:->verb' '*::argument:->rest' && return",
            "    case $state in",
            "    verb)",
            "        local -a verbs=(",
            *(f"            {_quoted(each.name + ':' + each.help)}" for each in verb.verbs),
            "        )",
            "        _describe command verbs",
            "        ;;",
            "    rest)",
            f"        (( $+functions[{name}_$words[1]] )) && {name}_$words[1]",
            "        ;;",
            "    esac",
        ]
    else:
        lines += [
            "    _arguments -s \\",
            *(f"        {spec} \\" for spec in specs),
            "        '1:FILE:_files'" if verb.files else "        '*: :'",
        ]
    return f"{name}() {{\n" + "\n".join(lines) + "\n}\n"


def _zsh_specs(flag: Flag) -> list[str]:
    help_text = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = ""
    if flag.metavar:
        action = " "
        if flag.words:
            action = f"({' '.join(flag.words)})"
        elif flag.files:
            action = "_directories" if flag.files == "folder" else "_files"
        if flag.files == "file" and "@" in flag.metavar:
            action = "{compset -P @ && _files}"
        message = flag.metavar.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
        value = f":{message}:{action}"
    others = f"({' '.join(flag.names)})" if len(flag.names) > 1 else ""
    star = "*" if flag.many else ""
    return [
        _quoted(f"{others}{star}{name}{'=' if flag.metavar and name[:2] == '--' else ''}[{help_text}]{value}")
        for name in flag.names
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---------------------------------------------------------------- fish


def fish(root: Verb) -> str:
    """For fish 3 and later."""
    lines = []
    for path, verb in _all(root):
        here = f"-n '__clawq_at{f' {path}' if path else ''}'"
        if not path:
            lines += [f"complete -c clawq {here} {_fish_flag(flag)}" for flag in verb.flags]
        for each in verb.verbs:
            lines.append(f"complete -c clawq {here} -a {each.name} -d {_quoted_fish(each.help)}")
        if path and not verb.verbs:
            lines += [f"complete -c clawq -n '__clawq_in {path}' {_fish_flag(flag)}" for flag in verb.flags]
        if verb.files:
            lines.append(f"complete -c clawq -n '__clawq_in {path}' -F")
    return f"""\
# clawq completion for fish. Written by `make completions`; put it into ~/.config/fish/completions.

# Nothing but these words so far.
function __clawq_at
    set -l words (commandline -opc)
    test "$words[2..-1]" = "$argv"
end

# These words, and perhaps options and arguments after them.
function __clawq_in
    set -l words (commandline -opc)
    set -l last (math 1 + (count $argv))
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"; and not contains -- -- $words
end

function __clawq_after_dashes
    set -l words (commandline -opc)
    contains -- "$words[2]" enqueue add; and contains -- -- $words
end

function __clawq_command
    set -l words (commandline -opc)
    set -l first (math 1 + (contains -i -- -- $words))
    set -l typed (commandline -ct)
    complete -C (string join ' ' -- (string escape -- $words[$first..-1]) $typed)
end

complete -c clawq -f
complete -c clawq -n __clawq_after_dashes -a '(__clawq_command)'
{chr(10).join(lines)}
"""


def _fish_flag(flag: Flag) -> str:
    parts = [f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in flag.names]
    if flag.metavar:
        parts.append("-r -F" if flag.files == "file" else "-x")
        if flag.words:
            parts.append(f"-a '{' '.join(flag.words)}'")
        elif flag.files == "folder":
            parts.append("-a '(__fish_complete_directories)'")
    return " ".join([*parts, f"-d {_quoted_fish(flag.help)}"])


def _quoted_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---------------------------------------------------------------- files


def files() -> dict[str, str]:
    """File name -> content."""
    root = tree()
    writers = {"bash": bash, "zsh": zsh, "fish": fish}
    return {name: writers[shell](root) for name, shell in SHELLS.items()}


def main(argv: list[str]) -> int:
    """Write them all into the folder that `argv` names."""
    if len(argv) != 1 or argv[0].startswith("-"):
        write_error("usage: python -m clawq.cli.completion FOLDER")
        return 0 if argv in (["--help"], ["-h"]) else 2
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
