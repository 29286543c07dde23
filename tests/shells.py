"""Real shells on a terminal of their own: what their completion offers, and what a Tab makes of a line."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "completions"


def shell(name: str) -> str:
    """Where it is; skips the test when it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def ask_bash(line: str, folder: Path) -> set[str]:
    """As readline would: words split at = and :, the last one being completed."""
    words = [word for word in re.split(r"\s+|([=:]+)", line) if word]
    if line.endswith(" "):
        words.append("")
    script = (
        f"source {shlex.quote(str(FOLDER / 'clawq.bash'))}; COMP_WORDS=({' '.join(map(shlex.quote, words))});"
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)};"
        f'COMP_CWORD={len(words) - 1}; _clawq; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        [shell("bash"), "--norc", "-uc", script], capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.stderr == ""
    return {each for each in done.stdout.splitlines() if each}


def ask_fish(line: str, folder: Path) -> set[str]:
    """What it would list."""
    script = f"source {shlex.quote(str(FOLDER / 'clawq.fish'))}; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        [shell("fish"), "--no-config", "-c", script], capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.stderr == ""
    answers = {each.partition("\t")[0] for each in done.stdout.splitlines()}
    return {each.rpartition("=")[2] if each.startswith("--") else each for each in answers}


# compadd -O tells what would be offered; what completion itself asks with -O, -A and -D is passed on.
_ZSH = f"""
    fpath=({shlex.quote(str(FOLDER))} $fpath); autoload -Uz compinit; compinit -u -D; PS1='> '
    zstyle ':completion:*' insert-tab false; unsetopt auto_menu list_beep
    compadd() {{
        local -a _offered
        if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
        builtin compadd -O _offered "$@"
        (( $#_offered )) && print -rl -- $_offered >>hits
        builtin compadd "$@"
    }}
    _tab() {{ zle complete-word; print -r -- "$BUFFER" >line; : >done }}
    zle -N _tab; bindkey '^I' _tab
    : >ready
"""

_BASH = f"""
    source {shlex.quote(str(FOLDER / "clawq.bash"))}; PS1='> '
    _told() {{ printf '%s\\n' "$READLINE_LINE" >line; : >done; }}
    bind -x '"\\C-o": _told' 2>/dev/null
    : >ready
"""


class Terminal:
    """``with Terminal(command, setup, folder) as terminal:`` a shell that has sourced `setup` there."""

    def __init__(self, command: list[str], setup: str, folder: Path) -> None:
        self.folder = folder
        for name in ("done", "ready"):
            (folder / name).unlink(missing_ok=True)
        (folder / "setup").write_text(setup)
        self._terminal, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        _type(self._terminal, "source ./setup\n", lambda: (self.folder / "ready").exists())
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.wait(30)
        os.close(self._terminal)

    def tab(self, line: str, keys: str = "\t") -> tuple[str, set[str]]:
        """The line after a Tab at its end, and what zsh added; the line is empty again then."""
        (self.folder / "hits").write_text("")
        (self.folder / "done").unlink(missing_ok=True)
        _type(self._terminal, line + keys, lambda: (self.folder / "done").exists())
        os.write(self._terminal, b"\x15")  # Ctrl-U
        return (self.folder / "line").read_text().rstrip("\n"), set(
            (self.folder / "hits").read_text().splitlines()
        )


def zsh(folder: Path) -> Terminal:
    """It completes only on a terminal; what completion adds is kept by a hook."""
    return Terminal([shell("zsh"), "-f", "-i"], _ZSH, folder)


def ask_zsh(line: str, folder: Path) -> set[str]:
    """What a Tab at the end of the line offers."""
    with zsh(folder) as terminal:
        return terminal.tab(line)[1]


def tab_in_zsh(line: str, folder: Path) -> str:
    """The line after a Tab at its end."""
    with zsh(folder) as terminal:
        return terminal.tab(line)[0]


def tab_in_bash(line: str, folder: Path) -> str:
    """The line after a Tab at its end."""
    with Terminal([shell("bash"), "--norc", "-i"], _BASH, folder) as terminal:
        return terminal.tab(line, "\t\x0f")[0]


def _type(terminal: int, text: str, seen: Callable[[], bool]) -> None:
    os.write(terminal, text.encode())
    deadline = time.monotonic() + 30
    said = b""
    while not seen():
        assert time.monotonic() < deadline, said.decode(errors="replace")
        if select.select([terminal], [], [], 0.02)[0]:
            said += os.read(terminal, 65_536)  # or the shell waits for us to read


ASK = {"bash": ask_bash, "fish": ask_fish, "zsh": ask_zsh}


def bare(answers: set[str]) -> set[str]:
    """Without what shells add: that a value follows, that it is a folder, what it is about."""
    return {each.partition("  ")[0].replace("\\", "").rstrip("=/ ") for each in answers}
