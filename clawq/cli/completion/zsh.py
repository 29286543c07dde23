"""The completion for zsh."""

from __future__ import annotations

from clawq.cli.completion.tree import Flag, Verb, every


def zsh(root: Verb) -> str:
    """One function for the root and for each command that has commands or options of its own."""
    functions = "\n".join(_function(path, verb) for path, verb in every(root))
    return f"""\
#compdef clawq
# clawq completion for zsh. Written by `make completions`; put it into a folder of $fpath.

# What this queue has: _clawq_offer TOPIC...
_clawq_offer() {{
    local word about
    local -a found told
    while IFS=$'\\t' read -r word about; do
        found+=("$word")
        told+=("$word${{about:+  $about}}")
    done < <($_clawq_program _offer "$@" -- "${{(@Q)words[1,CURRENT-1]}}" 2>/dev/null)
    compadd -V "clawq-$1" -l -d told -a found
}}

{functions}
_clawq "$@"
"""


def _function(path: str, verb: Verb) -> str:
    name = "_clawq" + "".join(f"_{word}" for word in path.split())
    lines = []
    if not path:
        lines += ["    local _clawq_program=${~${(Q)words[1]}}"]
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
    specs = [spec for flag in verb.flags for spec in _specs(flag)]
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
            f"        {_operand(verb)}",
        ]
    return f"{name}() {{\n" + "\n".join(lines) + "\n}\n"


def _operand(verb: Verb) -> str:
    if verb.files:
        return "'1:FILE:_files'"
    # The space keeps _arguments from adding words of its own.
    offered = f"{verb.operand}: _clawq_offer {verb.offers}"
    if verb.offers:
        return f"'*:{offered}'" if verb.many else f"'1:{offered}' '*: :'"
    return "'*: :'"


def _specs(flag: Flag) -> list[str]:
    help_text = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = ""
    if flag.metavar:
        action = " "
        if flag.words:
            action = f"({' '.join(flag.words)})"
        elif flag.listed:
            action = f'{{compset -P "*,"; _clawq_offer {flag.offers}}}'
        elif flag.offers:
            action = f" _clawq_offer {flag.offers}"
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
