"""The completions are current, and the shells themselves complete with them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clawq import options
from clawq import states as job
from clawq.cli import completion
from clawq.paths import Home
from clawq.store import jobs, offers
from tests import shells
from tests.producers import LAUNCHER, clawq, configure, rows
from tests.shells import ASK, FOLDER, bare


@pytest.mark.parametrize("name", completion.SHELLS)
def test_the_files_are_current(name: str) -> None:
    assert (FOLDER / name).read_text() == completion.files()[name], "run `make completions`"
    assert {path.name for path in FOLDER.iterdir()} == set(completion.SHELLS)


@pytest.mark.parametrize(("name", "shell"), completion.SHELLS.items())
def test_the_shell_accepts_the_file(name: str, shell: str) -> None:
    done = subprocess.run([shells.shell(shell), "-n", str(FOLDER / name)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some file.json").write_text("{}")
    (tmp_path / "some folder").mkdir()
    return tmp_path


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


# ---------------------------------------------------------------- what only the queue knows

STRANGE = """it's "so" $x: 1"""
"""A tenant that every shell has to quote."""


@pytest.fixture
def queue(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A job in most states, and a `clawq` on the PATH."""
    program = folder / "bin" / "clawq"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{LAUNCHER}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    configure(
        home,
        """
        [budgets.tokens]
        limit = 10
        per = "1h"
        [tenants.acme]
        weight = 2
        [kinds."site.qa"]
        command = ["true"]
        errors = [{ contains = "429", class = "rate_limit", reason = "quota" }]
        """,
    )
    lines = [
        *('{"kind": "site.qa"}', '{"command": ["true"], "hold": true}', '{"kind": "site.qa", "delay": "1d"}'),
        *['{"command": ["true"]}'] * 3,
        '{"kind": "site.qa", "tenant": "it\'s \\"so\\" $x: 1"}',
    ]
    clawq("enqueue", "--batch", "-", stdin="\n".join(lines).encode())
    rows(home, "UPDATE jobs SET state = 'starting', token = 7 WHERE id = 4")
    numbers = "token, job_id, number, claimed_at, lease_ms, lease_until, grace_ms, timeout_ms"
    attempt = f"INSERT INTO attempts ({numbers}, boot_id, heartbeat, log)"
    rows(home, f"{attempt} VALUES (7, 4, 3, 0, 0, 0, 0, 0, '', '', '')")
    rows(home, "UPDATE jobs SET state = 'cancelled', ended_at = 1 WHERE id = 5")
    rows(home, "UPDATE jobs SET kind = 'gone' WHERE id = 6")
    clawq("pause", "--tenant", "acme")
    return home


LINES = [
    ("clawq enqueue ", {"site.qa", "default"}, {"gone", "bulk"}),
    ("clawq enqueue --band bulk ", {"site.qa"}, {"bulk"}),
    ("clawq enqueue site.qa ", set(), {"default"}),
    ("clawq list --kind ", {"site.qa", "default", "gone"}, {"--json"}),
    ("clawq resume --tenant ", {"acme"}, {"default"}),
    ("clawq enqueue --needs browser,s", {"shell"}, {"local_model"}),
    ("clawq throttle ", {"browser", "shell"}, {"tokens"}),
    ("clawq spend ", {"tokens"}, {"browser"}),
    ("clawq fail --reason ", {"quota"}, {"--json"}),
    ("clawq show ", {"1", "2", "3", "4", "5", "6", "7"}, {"default"}),
    ("clawq approve ", {"2"}, {"1", "3", "4", "5"}),
    ("clawq edit 3 ", {"1", "2"}, {"3", "4", "5"}),
    ("clawq retry ", {"5"}, {"1", "2", "3", "4"}),
    ("clawq logs ", {"4"}, {"1", "2", "3", "5"}),
    ("clawq logs 4 --attempt ", {"3"}, {"4", "7"}),
]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_queues_own_names_are_offered(shell: str, queue: Home, folder: Path) -> None:
    for line, offered, others in LINES:
        check_offers(line, ASK[shell](line, folder), offered, others)


def test_zsh_offers_the_queues_own_names(queue: Home, folder: Path) -> None:
    with shells.zsh(folder) as terminal:
        for line, offered, others in LINES:
            check_offers(line, terminal.tab(line)[1], offered, others)


def check_offers(line: str, answers: set[str], offered: set[str], others: set[str]) -> None:
    words = {each.rpartition(",")[2] for each in bare(answers)}
    assert offered <= words, line
    assert not others & words, line


TAB = {"bash": shells.tab_in_bash, "zsh": shells.tab_in_zsh}


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        *(("bash", f"clawq list --tenant{begin}") for begin in (" it", ' "it', "=it", """ it\\'s\\ \\"so""")),
        *(("zsh", f"clawq list --tenant{begin}") for begin in (" it", ' "it', "=it")),
    ],
)
def test_a_tab_makes_a_word_that_the_shell_reads_back(
    shell: str, line: str, queue: Home, folder: Path
) -> None:
    completed = TAB[shell](line, folder)
    echo = f"set -- {completed.removeprefix('clawq')}; printf '%s\\n' \"$@\""
    read = subprocess.run([shells.shell(shell), "-c", echo], capture_output=True, text=True, check=True)
    assert read.stdout.replace("--tenant=", "--tenant\n").splitlines() == ["list", "--tenant", STRANGE]


def test_bash_lists_what_each_job_is_and_types_its_number_alone(queue: Home, folder: Path) -> None:
    assert "2  (default, held)" in shells.ask_bash("clawq show ", folder)
    assert shells.ask_bash("clawq approve ", folder) == {"2"}


def test_fish_says_what_each_job_is_latest_first(queue: Home, folder: Path) -> None:
    script = f"source {shlex.quote(str(FOLDER / 'clawq.fish'))}; complete -C 'clawq cancel '"
    done = subprocess.run(
        [shells.shell("fish"), "--no-config", "-c", script], capture_output=True, text=True, cwd=folder
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("-")]
    assert lines[0] == "7\tsite.qa, queued"
    assert [line.partition("\t")[0] for line in lines] == ["7", "6", "4", "3", "2", "1"]


@pytest.mark.parametrize("trouble", ["nothing there", "broken file", "no database", "newer", "no folder"])
def test_a_tab_says_nothing_whatever_is_wrong(
    trouble: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "broken file":
        configure(home, "[limits\n")
    elif trouble == "no database":
        Path(home.data).mkdir()
        Path(home.db).write_text("hello")
    elif trouble == "newer":
        clawq("enqueue", "--", "true")
        rows(home, "PRAGMA user_version=999")
    elif trouble == "no folder":
        monkeypatch.setenv("CLAWQ_HOME", "/dev/null/x")
    before = Path(home.db).exists()
    for topic in (["kinds"], ["jobs", "show"], ["attempts"], ["attempts", "--", "9" * 30], ["what"], []):
        done = clawq("_offer", *topic)
        assert done.stderr == ""
    assert Path(home.db).exists() == before
    if trouble == "nothing there":
        assert "browser\tlimit 2\n" in clawq("_offer", "resources").stdout


def test_a_kind_is_offered_as_soon_as_it_is_written(home: Home) -> None:
    clawq("enqueue", "--", "true")
    configure(home, '[kinds.new]\ncommand = ["echo", "hello"]\n')
    assert "new\techo hello\n" in clawq("_offer", "configured").stdout


def test_names_come_out_in_every_locale(home: Home) -> None:
    clawq("enqueue", "--tenant", "zoë", "--", "true")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, "_offer", "tenants"],
        capture_output=True,
        env={"CLAWQ_HOME": home.data, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert done.stdout.decode() == "zoë\t\n"


def test_the_states_are_those_that_the_commands_take() -> None:
    assert offers.TAKES["retry"] == jobs.RETRIED
    assert set(offers.TAKES) | {"logs", "parent"} >= {
        verb.name for _, verb in completion.every(completion.tree()) if verb.operand == "ID"
    }
