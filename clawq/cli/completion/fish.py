"""The completion for fish."""

from __future__ import annotations

from clawq.cli.completion.tree import Flag, Verb, every


def fish(root: Verb) -> str:
    """For fish 3 and later."""
    lines = []
    for path, verb in every(root):
        here = f"-n '__clawq_at{f' {path}' if path else ''}'"
        if not path:
            lines += [f"complete -c clawq {here} {_flag(flag)}" for flag in verb.flags]
        for each in verb.verbs:
            lines.append(f"complete -c clawq {here} -a {each.name} -d {_quoted(each.help)}")
        if path and not verb.verbs:
            lines += [f"complete -c clawq -n '__clawq_in {path}' {_flag(flag)}" for flag in verb.flags]
        if verb.offers:
            lines.append(_operand(path, verb))
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

# No operand yet: __clawq_first FLAG..., those that a value follows.
function __clawq_first
    set -l words (commandline -opc)
    set -l value
    for word in $words[3..-1]
        if test -n "$value"
            set value
        else if contains -- $word $argv
            set value yes
        else if not string match -q -- '-*' $word
            return 1
        end
    end
end

# What this queue has: __clawq_offer TOPIC...
function __clawq_offer
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    type -q -- $program; and $program _offer $argv -- $words[2..-1] 2>/dev/null
end

# The same, after those that stand before a comma.
function __clawq_offer_list
    set -l before (string replace -r '^--[a-z-]+=' '' -- (commandline -ct) | string replace -r '[^,]*$' '')
    for each in (__clawq_offer $argv)
        echo $before$each
    end
end

complete -c clawq -f
complete -c clawq -n __clawq_after_dashes -a '(__clawq_command)'
{chr(10).join(lines)}
"""


def _operand(path: str, verb: Verb) -> str:
    taking = " ".join(name for flag in verb.flags if flag.metavar for name in flag.names)
    first = "" if verb.many else f"; and __clawq_first {taking}"
    return f"complete -c clawq -n '__clawq_in {path}{first}' -k -a '(__clawq_offer {verb.offers})'"


def _flag(flag: Flag) -> str:
    parts = [f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in flag.names]
    if flag.metavar:
        parts.append("-r -F" if flag.files == "file" else "-x")
        if flag.offers:
            parts.append(f"-k -a '(__clawq_offer{'_list' if flag.listed else ''} {flag.offers})'")
        elif flag.words:
            parts.append(f"-a '{' '.join(flag.words)}'")
        elif flag.files == "folder":
            parts.append("-a '(__fish_complete_directories)'")
    return " ".join([*parts, f"-d {_quoted(flag.help)}"])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
