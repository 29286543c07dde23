# clawq completion for bash. Written by `make completions`; source it, or put it into
# ~/.local/share/bash-completion/completions/clawq.

_clawq() {
    local IFS=$' \t\n' words=() cur="" prev="" fixed="" verb="" i rest=${COMP_LINE-} trimmed
    COMPREPLY=()
    # Readline splits at = and : too; pieces that touch are one word. It replaces only the last of them:
    # what stands before it in the word (`fixed`) is taken off again.
    for (( i = 0; i <= COMP_CWORD; i++ )); do
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        if (( i )) && [[ $rest == "$trimmed" && $rest ]]; then
            fixed=$cur
            cur=$cur${COMP_WORDS[i]}
            words[${#words[@]}-1]=$cur
            if [[ ${COMP_WORDS[i]} == [=:]* ]]; then fixed=$cur; fi
        else
            fixed=""
            prev=$cur
            cur=${COMP_WORDS[i]}
            words[${#words[@]}]=$cur
        fi
        rest=${trimmed#"${COMP_WORDS[i]}"}
    done
    if [[ $cur == --*=* ]]; then
        prev=${cur%%=*} fixed=${fixed#*=} cur=${cur#*=}
    fi
    _clawq_complete
    if [[ $fixed ]]; then
        for (( i = 0; i < ${#COMPREPLY[@]}; i++ )); do COMPREPLY[i]=${COMPREPLY[i]#"$fixed"}; done
    fi
}

_clawq_complete() {
    local options="" files="" offers="" many="" operands=0 first=2 last=$(( ${#words[@]} - 1 ))
    if (( last > 1 )); then verb=${words[1]}; fi
    case "$verb" in
        effect|config|service)
            if (( last > 2 )); then verb="$verb ${words[2]}"; first=3; fi ;;
    esac
    for (( i = first; i < last; i++ )); do
        if [[ ${words[i]} == -- ]]; then
            if [[ $verb == enqueue || $verb == add ]]; then
                IFS=$'\n'
                compopt -o filenames 2>/dev/null
                if (( i + 1 == last )); then
                    COMPREPLY=( $(compgen -c -- "$cur") )
                else
                    COMPREPLY=( $(compgen -f -- "$cur") )
                fi
                return
            fi
        elif [[ ${words[i]} != -* ]]; then
            operands=$(( operands + 1 ))
        elif _clawq_takes "$verb ${words[i]}"; then
            i=$(( i + 1 ))
        fi
    done
    if _clawq_takes "$verb $prev"; then
        _clawq_value
        return
    fi
    case "$verb" in
        "") options="enqueue add run stop status list show why logs wait dead unknown events doctor history metrics retry cancel approve deny edit reconcile pause resume prune throttle spend fail beat effect ask mcp config service crontab backup restore --version -h --help" ;;
        "enqueue") options="--payload --dedupe-key --dedupe-scope --exclusive --priority --band --tenant --needs --delay --at --stale-after --deadline --timeout --max-attempts --on-lost --hold --parent --on-parent-end --cwd --env --wait --dry-run --batch --json --print-id -h --help" offers="configured" ;;
        "add") options="--payload --dedupe-key --dedupe-scope --exclusive --priority --band --tenant --needs --delay --at --stale-after --deadline --timeout --max-attempts --on-lost --hold --parent --on-parent-end --cwd --env --wait --dry-run --batch --json --print-id -h --help" offers="configured" ;;
        "run") options="--until-idle --observe --standby -h --help" ;;
        "stop") options="--drain --now --json -h --help" ;;
        "status") options="--watch --json -h --help" ;;
        "list") options="--state --kind --tenant --limit --json -h --help" ;;
        "show") options="--json -h --help" offers="jobs show" many=yes ;;
        "why") options="--json -h --help" offers="jobs why" many=yes ;;
        "logs") options="--follow -f --attempt -n --json -h --help" offers="jobs logs" ;;
        "wait") options="--timeout --json -h --help" offers="jobs wait" many=yes ;;
        "dead") options="--kind --limit --json -h --help" ;;
        "unknown") options="--limit --json -h --help" ;;
        "events") options="-f --follow --since --limit --json -h --help" ;;
        "doctor") options="--probe --json -h --help" ;;
        "history") options="--since --json -h --help" ;;
        "metrics") options="--textfile --json -h --help" ;;
        "retry") options="--json -h --help" offers="jobs retry" many=yes ;;
        "cancel") options="--tree --json -h --help" offers="jobs cancel" many=yes ;;
        "approve") options="--json -h --help" offers="jobs approve" many=yes ;;
        "deny") options="--json -h --help" offers="jobs deny" many=yes ;;
        "edit") options="--priority --band --delay --at --stale-after --deadline --timeout --max-attempts --json -h --help" offers="jobs edit" many=yes ;;
        "reconcile") options="--succeeded --failed --requeue --note --json -h --help" offers="jobs reconcile" many=yes ;;
        "pause") options="--tenant --kind --resource --band --json -h --help" ;;
        "resume") options="--tenant --kind --resource --band --json -h --help" ;;
        "prune") options="--older-than --dry-run --json -h --help" ;;
        "throttle") options="--for --json -h --help" offers="resources" ;;
        "spend") options="--json -h --help" offers="budgets" ;;
        "fail") options="--class --reason --resource --retry-after -m --message --json -h --help" ;;
        "beat") options="--json -h --help" ;;
        "effect") options="begin done fail --scope --json -h --help" ;;
        "effect begin") options="--scope --json -h --help" ;;
        "effect done") options="--scope --json -h --help" ;;
        "effect fail") options="--scope --json -h --help" ;;
        "ask") options="--timeout --json -h --help" ;;
        "mcp") options="-h --help" ;;
        "config") options="init check show path -h --help" ;;
        "config init") options="--force --json -h --help" ;;
        "config check") options="--json -h --help" ;;
        "config show") options="--overload --json -h --help" ;;
        "config path") options="--json -h --help" ;;
        "service") options="install uninstall status show -h --help" ;;
        "service install") options="--daemon --user --force --dry-run --json -h --help" ;;
        "service uninstall") options="--daemon --dry-run --json -h --help" ;;
        "service status") options="--daemon --json -h --help" ;;
        "service show") options="--for --daemon --user --json -h --help" ;;
        "crontab") options="--file -f --system --json -h --help" ;;
        "backup") options="--force --json -h --help" files=yes ;;
        "restore") options="--json -h --help" files=yes ;;
    esac
    if [[ $files && $cur != -* ]]; then
        IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") )
        return
    fi
    if [[ $offers && $cur != -* ]] && { [[ $many ]] || (( operands == 0 )); }; then
        _clawq_offer $offers
        if (( ${#COMPREPLY[@]} )); then return; fi
    fi
    COMPREPLY=( $(compgen -W "$options" -- "$cur") )
}

# Is this option followed by a value?
_clawq_takes() {
    case "$1" in
        "enqueue --payload"|"enqueue --dedupe-key"|"enqueue --dedupe-scope"|"enqueue --exclusive"|\
        "enqueue --priority"|"enqueue --band"|"enqueue --tenant"|"enqueue --needs"|\
        "enqueue --delay"|"enqueue --at"|"enqueue --stale-after"|"enqueue --deadline"|\
        "enqueue --timeout"|"enqueue --max-attempts"|"enqueue --on-lost"|"enqueue --parent"|\
        "enqueue --on-parent-end"|"enqueue --cwd"|"enqueue --env"|"enqueue --batch"|\
        "add --payload"|"add --dedupe-key"|"add --dedupe-scope"|"add --exclusive"|\
        "add --priority"|"add --band"|"add --tenant"|"add --needs"|\
        "add --delay"|"add --at"|"add --stale-after"|"add --deadline"|\
        "add --timeout"|"add --max-attempts"|"add --on-lost"|"add --parent"|\
        "add --on-parent-end"|"add --cwd"|"add --env"|"add --batch"|\
        "list --state"|"list --kind"|"list --tenant"|"list --limit"|\
        "logs --attempt"|"logs -n"|"wait --timeout"|"dead --kind"|\
        "dead --limit"|"unknown --limit"|"events --since"|"events --limit"|\
        "history --since"|"metrics --textfile"|"edit --priority"|"edit --band"|\
        "edit --delay"|"edit --at"|"edit --stale-after"|"edit --deadline"|\
        "edit --timeout"|"edit --max-attempts"|"reconcile --note"|"pause --tenant"|\
        "pause --kind"|"pause --resource"|"pause --band"|"resume --tenant"|\
        "resume --kind"|"resume --resource"|"resume --band"|"prune --older-than"|\
        "throttle --for"|"fail --class"|"fail --reason"|"fail --resource"|\
        "fail --retry-after"|"fail -m"|"fail --message"|"effect --scope"|\
        "effect begin --scope"|"effect done --scope"|"effect fail --scope"|"ask --timeout"|\
        "service install --user"|"service show --for"|"service show --user"|"crontab --file"|\
        "crontab -f") return 0 ;;
    esac
    return 1
}

_clawq_value() {
    case "$verb $prev" in
        "enqueue --payload") IFS=$'\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- "${cur#@}") ) ;;
        "enqueue --dedupe-scope") COMPREPLY=( $(compgen -W "ever active" -- "$cur") ) ;;
        "enqueue --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ) ;;
        "enqueue --tenant") _clawq_offer tenants ;;
        "enqueue --needs") _clawq_offer list resources ;;
        "enqueue --on-lost") COMPREPLY=( $(compgen -W "retry unknown" -- "$cur") ) ;;
        "enqueue --parent") _clawq_offer jobs parent ;;
        "enqueue --on-parent-end") COMPREPLY=( $(compgen -W "keep cancel" -- "$cur") ) ;;
        "enqueue --cwd") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- "$cur") ) ;;
        "enqueue --batch") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ) ;;
        "add --payload") IFS=$'\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- "${cur#@}") ) ;;
        "add --dedupe-scope") COMPREPLY=( $(compgen -W "ever active" -- "$cur") ) ;;
        "add --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ) ;;
        "add --tenant") _clawq_offer tenants ;;
        "add --needs") _clawq_offer list resources ;;
        "add --on-lost") COMPREPLY=( $(compgen -W "retry unknown" -- "$cur") ) ;;
        "add --parent") _clawq_offer jobs parent ;;
        "add --on-parent-end") COMPREPLY=( $(compgen -W "keep cancel" -- "$cur") ) ;;
        "add --cwd") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- "$cur") ) ;;
        "add --batch") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ) ;;
        "list --state") COMPREPLY=( $(compgen -W "scheduled queued held starting running waiting unknown succeeded dead expired cancelled" -- "$cur") ) ;;
        "list --kind") _clawq_offer kinds ;;
        "list --tenant") _clawq_offer tenants ;;
        "logs --attempt") _clawq_offer attempts ;;
        "dead --kind") _clawq_offer kinds ;;
        "metrics --textfile") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ) ;;
        "edit --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ) ;;
        "pause --tenant") _clawq_offer tenants ;;
        "pause --kind") _clawq_offer kinds ;;
        "pause --resource") _clawq_offer resources ;;
        "pause --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ) ;;
        "resume --tenant") _clawq_offer paused tenant ;;
        "resume --kind") _clawq_offer paused kind ;;
        "resume --resource") _clawq_offer paused resource ;;
        "resume --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ) ;;
        "fail --class") COMPREPLY=( $(compgen -W "transient permanent rate_limit" -- "$cur") ) ;;
        "fail --reason") _clawq_offer reasons ;;
        "fail --resource") _clawq_offer resources ;;
        "effect --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ) ;;
        "effect begin --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ) ;;
        "effect done --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ) ;;
        "effect fail --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ) ;;
        "service show --for") COMPREPLY=( $(compgen -W "launchd systemd" -- "$cur") ) ;;
        "crontab --file") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ) ;;
        "crontab -f") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ) ;;
    esac
}

# What this queue has, as it has to be typed: _clawq_offer TOPIC...
_clawq_offer() {
    local word about typed quoted before="" program=${words[0]} bare=()
    if [[ $program == "~/"* ]]; then program=$HOME/${program:2}; fi
    if [[ $1 == list ]]; then
        shift
        if [[ $cur == *,* ]]; then before=${cur%,*},; fi
    fi
    typed=${cur#"$before"}
    case "$typed" in
        [\"\']*) typed=${typed:1} ;;
        *) typed=${typed//\\/} ;;
    esac
    while IFS=$'\t' read -r word about; do
        if [[ $word != "$typed"* ]]; then continue; fi
        case "$cur" in
            \"*) quoted=${word//\\/\\\\} quoted=${quoted//\"/\\\"}
                quoted=${quoted//\$/\\\$} quoted=${quoted//\`/\\\`} ;;
            \'*) quoted=${word//\'/\'\\\'\'} ;;
            *) printf -v quoted %q "$word" ;;
        esac
        bare[${#bare[@]}]=$before$quoted
        # Of several jobs a list tells what each is. They differ in their numbers: nothing of it is typed.
        if [[ $1 == jobs && $about ]]; then quoted="$quoted  ($about)"; fi
        COMPREPLY[${#COMPREPLY[@]}]=$before$quoted
    done < <("$program" _offer "$@" -- "${words[@]:1:${#words[@]}-2}" 2>/dev/null)
    if (( ${#bare[@]} == 1 )) || [[ ${COMP_TYPE-} == 37 ]]; then COMPREPLY=( "${bare[@]}" ); fi
    compopt -o nosort 2>/dev/null
}

complete -F _clawq clawq
