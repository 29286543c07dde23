"""The completions are current, and the shells themselves complete with them."""

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

from clawq import options
from clawq import states as job
from clawq.cli import completion

FOLDER = Path(__file__).parents[2] / "completions"


@pytest.mark.parametrize("name", completion.SHELLS)
def test_the_files_are_current(name: str) -> None:
    assert (FOLDER / name).read_text() == completion.files()[name], "run `make completions`"
    assert {path.name for path in FOLDER.iterdir()} == set(completion.SHELLS)


def _shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize(("name", "shell"), completion.SHELLS.items())
def test_the_shell_accepts_the_file(name: str, shell: str) -> None:
    done = subprocess.run([_shell(shell), "-n", str(FOLDER / name)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- asking the shells


def ask_bash(line: str, folder: Path) -> set[str]:
    """As readline would: words split at = and :, the last one being completed."""
    words = [word for word in re.split(r"\s+|(=)", line) if word]
    if line.endswith(" "):
        words.append("")
    script = (
        f"source {shlex.quote(str(FOLDER / 'clawq.bash'))}; COMP_WORDS=({' '.join(map(shlex.quote, words))});"
        f'COMP_CWORD={len(words) - 1}; _clawq; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        [_shell("bash"), "--norc", "-uc", script], capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.stderr == ""
    return {each for each in done.stdout.splitlines() if each}


def ask_fish(line: str, folder: Path) -> set[str]:
    script = f"source {shlex.quote(str(FOLDER / 'clawq.fish'))}; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        [_shell("fish"), "--no-config", "-c", script], capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.stderr == ""
    return {each.partition("\t")[0].rpartition("=")[2] for each in done.stdout.splitlines()}


def ask_zsh(line: str, folder: Path) -> set[str]:
    """Zsh completes only on a terminal: type the line there and press Tab; what it adds is kept by a hook."""
    hits, done = (shlex.quote(str(folder / name)) for name in ("hits", "done"))
    # compadd -O tells what would be offered; what completion itself asks with -O, -A and -D is passed on.
    setup = f"""
        fpath=({shlex.quote(str(FOLDER))} $fpath); autoload -Uz compinit; compinit -u -D; PS1='> '
        zstyle ':completion:*' insert-tab false; unsetopt auto_menu list_beep
        compadd() {{
            local -a found
            if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
            builtin compadd -O found "$@"
            (( $#found )) && print -rl -- $found >>{hits}
            builtin compadd "$@"
        }}
        _tab() {{ zle complete-word; : >{done} }}
        zle -N _tab; bindkey '^I' _tab
        cd {shlex.quote(str(folder))}; : >ready
    """
    (folder / "hits").write_text("")
    for name in ("done", "ready"):
        (folder / name).unlink(missing_ok=True)
    (folder / "setup.zsh").write_text(setup)
    terminal, theirs = pty.openpty()
    shell = subprocess.Popen(
        [_shell("zsh"), "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | {"TERM": "dumb"},
    )
    os.close(theirs)
    try:
        source = f"source {shlex.quote(str(folder / 'setup.zsh'))}\n"
        _type(terminal, source, lambda: (folder / "ready").exists())
        _type(terminal, line + "\t", lambda: (folder / "done").exists())
        return set((folder / "hits").read_text().splitlines())
    finally:
        shell.kill()
        shell.wait(30)
        os.close(terminal)


def _type(terminal: int, text: str, seen: Callable[[], bool]) -> None:
    os.write(terminal, text.encode())
    deadline = time.monotonic() + 30
    said = b""
    while not seen():
        assert time.monotonic() < deadline, said.decode(errors="replace")
        if select.select([terminal], [], [], 0.02)[0]:
            said += os.read(terminal, 65_536)  # or the shell waits for us to read


ASK = {"bash": ask_bash, "fish": ask_fish, "zsh": ask_zsh}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some file.json").write_text("{}")
    (tmp_path / "some folder").mkdir()
    return tmp_path


def bare(answers: set[str]) -> set[str]:
    """Without what shells add to show that a value follows or that it is a folder."""
    return {each.replace("\\", "").rstrip("=/ ") for each in answers}


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize(
    ("line", "offered", "others"),
    [
        ("clawq ", {"enqueue", "add", "status", "run", "config"}, {"init", "bulk"}),
        ("clawq en", {"enqueue"}, {"add"}),
        ("clawq enqueue --de", {"--dedupe-key", "--dedupe-scope", "--delay", "--deadline"}, {"--band"}),
        ("clawq add k --ban", {"--band"}, {"--batch"}),
        ("clawq enqueue --band ", set(job.BANDS), {"--json"}),
        ("clawq enqueue --band=b", {"bulk"}, {"normal"}),
        ("clawq enqueue --on-lost ", {"retry", "unknown"}, set()),
        ("clawq enqueue --cwd so", {"some folder"}, {"some file.json"}),
        ("clawq enqueue --batch so", {"some file.json", "some folder"}, set()),
        ("clawq enqueue --tenant ", set(), {"--json", "some file.json"}),
        ("clawq enqueue -- mkfif", {"mkfifo"}, {"--json"}),
        ("clawq enqueue k -- cat so", {"some file.json", "some folder"}, {"--json"}),
        ("clawq restore so", {"some file.json", "some folder"}, {"--json"}),
        ("clawq backup --fo", {"--force"}, {"some file.json"}),
        ("clawq list --st", {"--state"}, {"--json"}),
        ("clawq list --state q", {"queued"}, {"running"}),
        ("clawq edit --band ", set(job.BANDS), {"--json"}),
        ("clawq config ", {"init", "check", "show", "path"}, {"enqueue"}),
        ("clawq config init --fo", {"--force"}, {"--json"}),
    ],
)
def test_the_shell_completes(
    shell: str, line: str, offered: set[str], others: set[str], folder: Path
) -> None:
    answers = bare(ASK[shell](line, folder))
    assert offered <= answers
    assert not others & answers


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_payload_may_be_a_file(shell: str, folder: Path) -> None:
    answers = bare(ASK[shell]("clawq enqueue --payload @so", folder))
    assert "some file.json" in {each.lstrip("@") for each in answers}


@pytest.mark.parametrize("shell", ASK)
def test_every_option_of_enqueue_is_offered(shell: str, folder: Path) -> None:
    assert {option.flag for option in options.OPTIONS} <= bare(ASK[shell]("clawq enqueue --", folder))
