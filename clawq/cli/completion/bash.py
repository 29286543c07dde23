"""The completion for bash."""

from __future__ import annotations

from clawq.cli.completion.tree import Flag, Verb, every

_FILES = "IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- \"$cur\") )"


def bash(root: Verb) -> str:
    """For bash 3.2 (macOS) and later, with or without bash-completion."""
    verbs: list[str] = []
    values: list[str] = []
    taking: list[str] = []
    for path, verb in every(root):
        words = [each.name for each in verb.verbs] + [name for flag in verb.flags for name in flag.names]
        more = " files=yes" if verb.files else ""
        more += f' offers="{verb.offers}"' if verb.offers else ""
        more += " many=yes" if verb.many else ""
        verbs.append(f'        "{path}") options="{" ".join(words)}"{more} ;;')
        for flag in verb.flags:
            for name in flag.names if flag.metavar else ():
                taking.append(f'"{path} {name}"')
                action = _value(flag)
                if action:
                    values.append(f'        "{path} {name}") {action} ;;')
    return f"""\
# clawq completion for bash. Written by `make completions`; source it, or put it into
# ~/.local/share/bash-completion/completions/clawq.

_clawq() {{
    local IFS=$' \\t\\n' words=() cur="" prev="" fixed="" verb="" i rest=${{COMP_LINE-}} trimmed
    COMPREPLY=()
    # Readline splits at = and : too; pieces that touch are one word. It replaces only the last of them:
    # what stands before it in the word (`fixed`) is taken off again.
    for (( i = 0; i <= COMP_CWORD; i++ )); do
        trimmed=${{rest#"${{rest%%[![:space:]]*}}"}}
        if (( i )) && [[ $rest == "$trimmed" && $rest ]]; then
            fixed=$cur
            cur=$cur${{COMP_WORDS[i]}}
            words[${{#words[@]}}-1]=$cur
            if [[ ${{COMP_WORDS[i]}} == [=:]* ]]; then fixed=$cur; fi
        else
            fixed=""
            prev=$cur
            cur=${{COMP_WORDS[i]}}
            words[${{#words[@]}}]=$cur
        fi
        rest=${{trimmed#"${{COMP_WORDS[i]}}"}}
    done
    if [[ $cur == --*=* ]]; then
        prev=${{cur%%=*}} fixed=${{fixed#*=}} cur=${{cur#*=}}
    fi
    _clawq_complete
    if [[ $fixed ]]; then
        for (( i = 0; i < ${{#COMPREPLY[@]}}; i++ )); do COMPREPLY[i]=${{COMPREPLY[i]#"$fixed"}}; done
    fi
}}

_clawq_complete() {{
    local options="" files="" offers="" many="" operands=0 first=2 last=$(( ${{#words[@]}} - 1 ))
    if (( last > 1 )); then verb=${{words[1]}}; fi
    case "$verb" in
        {"|".join(each.name for each in root.verbs if each.verbs)})
            if (( last > 2 )); then verb="$verb ${{words[2]}}"; first=3; fi ;;
    esac
    for (( i = first; i < last; i++ )); do
        if [[ ${{words[i]}} == -- ]]; then
            if [[ $verb == enqueue || $verb == add ]]; then
                IFS=$'\\n'
                compopt -o filenames 2>/dev/null
                if (( i + 1 == last )); then
                    COMPREPLY=( $(compgen -c -- "$cur") )
                else
                    COMPREPLY=( $(compgen -f -- "$cur") )
                fi
                return
            fi
        elif [[ ${{words[i]}} != -* ]]; then
            operands=$(( operands + 1 ))
        elif _clawq_takes "$verb ${{words[i]}}"; then
            i=$(( i + 1 ))
        fi
    done
    if _clawq_takes "$verb $prev"; then
        _clawq_value
        return
    fi
    case "$verb" in
{chr(10).join(verbs)}
    esac
    if [[ $files && $cur != -* ]]; then
        {_FILES}
        return
    fi
    if [[ $offers && $cur != -* ]] && {{ [[ $many ]] || (( operands == 0 )); }}; then
        _clawq_offer $offers
        if (( ${{#COMPREPLY[@]}} )); then return; fi
    fi
    COMPREPLY=( $(compgen -W "$options" -- "$cur") )
}}

# Is this option followed by a value?
_clawq_takes() {{
    case "$1" in
        {_patterns(taking)}) return 0 ;;
    esac
    return 1
}}

_clawq_value() {{
    case "$verb $prev" in
{chr(10).join(values)}
    esac
}}

# What this queue has, as it has to be typed: _clawq_offer TOPIC...
_clawq_offer() {{
    local word about typed quoted before="" program=${{words[0]}} bare=()
    if [[ $program == "~/"* ]]; then program=$HOME/${{program:2}}; fi
    if [[ $1 == list ]]; then
        shift
        if [[ $cur == *,* ]]; then before=${{cur%,*}},; fi
    fi
    typed=${{cur#"$before"}}
    case "$typed" in
        [\\"\\']*) typed=${{typed:1}} ;;
        *) typed=${{typed//\\\\/}} ;;
    esac
    while IFS=$'\\t' read -r word about; do
        if [[ $word != "$typed"* ]]; then continue; fi
        case "$cur" in
            \\"*) quoted=${{word//\\\\/\\\\\\\\}} quoted=${{quoted//\\"/\\\\\\"}}
                quoted=${{quoted//\\$/\\\\\\$}} quoted=${{quoted//\\`/\\\\\\`}} ;;
            \\'*) quoted=${{word//\\'/\\'\\\\\\'\\'}} ;;
            *) printf -v quoted %q "$word" ;;
        esac
        bare[${{#bare[@]}}]=$before$quoted
        # Of several jobs a list tells what each is. They differ in their numbers: nothing of it is typed.
        if [[ $1 == jobs && $about ]]; then quoted="$quoted  ($about)"; fi
        COMPREPLY[${{#COMPREPLY[@]}}]=$before$quoted
    done < <("$program" _offer "$@" -- "${{words[@]:1:${{#words[@]}}-2}}" 2>/dev/null)
    if (( ${{#bare[@]}} == 1 )) || [[ ${{COMP_TYPE-}} == 37 ]]; then COMPREPLY=( "${{bare[@]}}" ); fi
    compopt -o nosort 2>/dev/null
}}

complete -F _clawq clawq
"""


def _patterns(taking: list[str]) -> str:
    """Alternatives of a case, a few on a line."""
    lines = ["|".join(taking[at : at + 4]) for at in range(0, len(taking), 4)]
    return "|\\\n        ".join(lines)


def _value(flag: Flag) -> str:
    if flag.words:
        return f'COMPREPLY=( $(compgen -W "{" ".join(flag.words)}" -- "$cur") )'
    if flag.offers:
        return f"_clawq_offer {'list ' if flag.listed else ''}{flag.offers}"
    if flag.files == "folder":
        return "IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- \"$cur\") )"
    if flag.files == "file" and "@" in flag.metavar:
        return "IFS=$'\\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- \"${cur#@}\") )"
    return _FILES if flag.files == "file" else ""
