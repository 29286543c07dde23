# clawq completion for bash. Written by `make completions`; source it, or put it into
# ~/.local/share/bash-completion/completions/clawq.

_clawq() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb="" words="" files="" i
    local IFS=$' \t\n'
    COMPREPLY=()
    # --band=bulk comes in three words.
    if [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    if [[ $cur == "=" ]]; then cur=""; fi
    if (( COMP_CWORD > 1 )); then verb=${COMP_WORDS[1]}; fi
    case "$verb" in
        effect|config|service)
            if (( COMP_CWORD > 2 )); then verb="$verb ${COMP_WORDS[2]}"; fi ;;
    esac
    if [[ $verb == enqueue || $verb == add ]]; then
        for (( i = 2; i < COMP_CWORD; i++ )); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                IFS=$'\n'
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
        "enqueue --payload") IFS=$'\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- "${cur#@}") ); return ;;
        "enqueue --dedupe-key") return ;;
        "enqueue --dedupe-scope") COMPREPLY=( $(compgen -W "ever active" -- "$cur") ); return ;;
        "enqueue --exclusive") return ;;
        "enqueue --priority") return ;;
        "enqueue --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ); return ;;
        "enqueue --tenant") return ;;
        "enqueue --needs") return ;;
        "enqueue --delay") return ;;
        "enqueue --at") return ;;
        "enqueue --stale-after") return ;;
        "enqueue --deadline") return ;;
        "enqueue --timeout") return ;;
        "enqueue --max-attempts") return ;;
        "enqueue --on-lost") COMPREPLY=( $(compgen -W "retry unknown" -- "$cur") ); return ;;
        "enqueue --parent") return ;;
        "enqueue --on-parent-end") COMPREPLY=( $(compgen -W "keep cancel" -- "$cur") ); return ;;
        "enqueue --cwd") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- "$cur") ); return ;;
        "enqueue --env") return ;;
        "enqueue --batch") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ); return ;;
        "add --payload") IFS=$'\n'; [[ $cur == @* ]] && COMPREPLY=( $(compgen -P @ -f -- "${cur#@}") ); return ;;
        "add --dedupe-key") return ;;
        "add --dedupe-scope") COMPREPLY=( $(compgen -W "ever active" -- "$cur") ); return ;;
        "add --exclusive") return ;;
        "add --priority") return ;;
        "add --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ); return ;;
        "add --tenant") return ;;
        "add --needs") return ;;
        "add --delay") return ;;
        "add --at") return ;;
        "add --stale-after") return ;;
        "add --deadline") return ;;
        "add --timeout") return ;;
        "add --max-attempts") return ;;
        "add --on-lost") COMPREPLY=( $(compgen -W "retry unknown" -- "$cur") ); return ;;
        "add --parent") return ;;
        "add --on-parent-end") COMPREPLY=( $(compgen -W "keep cancel" -- "$cur") ); return ;;
        "add --cwd") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -d -- "$cur") ); return ;;
        "add --env") return ;;
        "add --batch") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ); return ;;
        "list --state") COMPREPLY=( $(compgen -W "scheduled queued held starting running waiting unknown succeeded dead expired cancelled" -- "$cur") ); return ;;
        "list --kind") return ;;
        "list --tenant") return ;;
        "list --limit") return ;;
        "logs --attempt") return ;;
        "logs -n") return ;;
        "wait --timeout") return ;;
        "dead --kind") return ;;
        "dead --limit") return ;;
        "unknown --limit") return ;;
        "events --since") return ;;
        "events --limit") return ;;
        "history --since") return ;;
        "metrics --textfile") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ); return ;;
        "edit --priority") return ;;
        "edit --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ); return ;;
        "edit --delay") return ;;
        "edit --at") return ;;
        "edit --stale-after") return ;;
        "edit --deadline") return ;;
        "edit --timeout") return ;;
        "edit --max-attempts") return ;;
        "reconcile --note") return ;;
        "pause --tenant") return ;;
        "pause --kind") return ;;
        "pause --resource") return ;;
        "pause --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ); return ;;
        "resume --tenant") return ;;
        "resume --kind") return ;;
        "resume --resource") return ;;
        "resume --band") COMPREPLY=( $(compgen -W "critical interactive normal bulk" -- "$cur") ); return ;;
        "prune --older-than") return ;;
        "throttle --for") return ;;
        "fail --class") COMPREPLY=( $(compgen -W "transient permanent rate_limit" -- "$cur") ); return ;;
        "fail --reason") return ;;
        "fail --resource") return ;;
        "fail --retry-after") return ;;
        "fail -m") return ;;
        "fail --message") return ;;
        "effect --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ); return ;;
        "effect begin --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ); return ;;
        "effect done --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ); return ;;
        "effect fail --scope") COMPREPLY=( $(compgen -W "job tenant" -- "$cur") ); return ;;
        "ask --timeout") return ;;
        "service install --user") return ;;
        "service show --for") COMPREPLY=( $(compgen -W "launchd systemd" -- "$cur") ); return ;;
        "service show --user") return ;;
        "crontab --file") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ); return ;;
        "crontab -f") IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$cur") ); return ;;
    esac
    case "$verb" in
        "") words="enqueue add run stop status list show why logs wait dead unknown events doctor history metrics retry cancel approve deny edit reconcile pause resume prune throttle spend fail beat effect ask mcp config service crontab backup restore --version -h --help" ;;
        "enqueue") words="--payload --dedupe-key --dedupe-scope --exclusive --priority --band --tenant --needs --delay --at --stale-after --deadline --timeout --max-attempts --on-lost --hold --parent --on-parent-end --cwd --env --wait --dry-run --batch --json --print-id -h --help" ;;
        "add") words="--payload --dedupe-key --dedupe-scope --exclusive --priority --band --tenant --needs --delay --at --stale-after --deadline --timeout --max-attempts --on-lost --hold --parent --on-parent-end --cwd --env --wait --dry-run --batch --json --print-id -h --help" ;;
        "run") words="--until-idle --observe --standby -h --help" ;;
        "stop") words="--drain --now -h --help" ;;
        "status") words="--watch --json -h --help" ;;
        "list") words="--state --kind --tenant --limit --json -h --help" ;;
        "show") words="--json -h --help" ;;
        "why") words="--json -h --help" ;;
        "logs") words="--follow -f --attempt -n --json -h --help" ;;
        "wait") words="--timeout --json -h --help" ;;
        "dead") words="--kind --limit --json -h --help" ;;
        "unknown") words="--limit --json -h --help" ;;
        "events") words="-f --follow --since --limit --json -h --help" ;;
        "doctor") words="--probe --json -h --help" ;;
        "history") words="--since --json -h --help" ;;
        "metrics") words="--textfile --json -h --help" ;;
        "retry") words="--json -h --help" ;;
        "cancel") words="--tree --json -h --help" ;;
        "approve") words="--json -h --help" ;;
        "deny") words="--json -h --help" ;;
        "edit") words="--priority --band --delay --at --stale-after --deadline --timeout --max-attempts --json -h --help" ;;
        "reconcile") words="--succeeded --failed --requeue --note --json -h --help" ;;
        "pause") words="--tenant --kind --resource --band --json -h --help" ;;
        "resume") words="--tenant --kind --resource --band --json -h --help" ;;
        "prune") words="--older-than --dry-run --json -h --help" ;;
        "throttle") words="--for --json -h --help" ;;
        "spend") words="--json -h --help" ;;
        "fail") words="--class --reason --resource --retry-after -m --message --json -h --help" ;;
        "beat") words="--json -h --help" ;;
        "effect") words="begin done fail --scope --json -h --help" ;;
        "effect begin") words="--scope --json -h --help" ;;
        "effect done") words="--scope --json -h --help" ;;
        "effect fail") words="--scope --json -h --help" ;;
        "ask") words="--timeout --json -h --help" ;;
        "mcp") words="-h --help" ;;
        "config") words="init check show path -h --help" ;;
        "config init") words="--force --json -h --help" ;;
        "config check") words="--json -h --help" ;;
        "config show") words="--overload --json -h --help" ;;
        "config path") words="--json -h --help" ;;
        "service") words="install uninstall status show -h --help" ;;
        "service install") words="--daemon --user --force --dry-run --json -h --help" ;;
        "service uninstall") words="--daemon --dry-run --json -h --help" ;;
        "service status") words="--daemon --json -h --help" ;;
        "service show") words="--for --daemon --user -h --help" ;;
        "crontab") words="--file -f --system -h --help" ;;
        "backup") words="--force --json -h --help" files=yes ;;
        "restore") words="--json -h --help" files=yes ;;
    esac
    if [[ $files && $cur != -* ]]; then
        IFS=$'\n'
        compopt -o filenames 2>/dev/null
        COMPREPLY=( $(compgen -f -- "$cur") )
        return
    fi
    COMPREPLY=( $(compgen -W "$words" -- "$cur") )
}

complete -F _clawq clawq
