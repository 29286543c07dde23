"""`clawq enqueue` as cron, agents and people run it: a process of its own, in whatever environment."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clawq.paths import Home
from tests.producers import CLAWQ, LAUNCHER, answer, at_once, clawq, configure, rows, start
from tests.rows import check_books
from tests.sizes import sized
from tests.waiting import until

QUIET = ("", "")


def said(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    return done.stdout, done.stderr


# ---------------------------------------------------------------- where cron and launchd run it


def test_an_accepted_job_prints_nothing(home: Home) -> None:
    assert said(clawq("enqueue", "--", "true")) == QUIET
    assert said(clawq("add", "--", "true")) == QUIET
    assert rows(home, "SELECT count(*) FROM jobs") == [(2,)]


def test_an_empty_environment_is_enough(home: Home) -> None:
    done = answer("enqueue", "--", "true", env={"CLAWQ_HOME": home.data}, cwd="/")
    assert done == {
        "outcome": "queued",
        "job_id": 1,
        "state": "queued",
        "degraded": False,
        "reason": None,
        "retry_after_s": None,
        "safe_to_retry": False,
        "deadline_at": None,
    }
    assert rows(home, "SELECT cwd, path, env FROM jobs") == [("/", None, None)]


def test_folders_are_made_for_their_owner_only(unreachable_home: Path) -> None:
    user = unreachable_home / "no" / "such" / "user"
    clawq("enqueue", "--", "true", env={"HOME": str(user)})
    databases = list(user.rglob("clawq.db"))
    assert len(databases) == 1
    assert stat.S_IMODE(databases[0].stat().st_mode) == 0o600
    folder = databases[0].parent
    while folder != unreachable_home:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        folder = folder.parent


def test_what_a_job_keeps_of_its_caller(home: Home, tmp_path: Path) -> None:
    (tmp_path / "ü b").mkdir()
    env = os.environ | {"SECRET": "s", "COPIED": "c=1", "PATH": os.environ["PATH"] + ":/ü"}
    clawq("enqueue", "--env", "COPIED", "--env", "SET=x", "--", "true", env=env, cwd=tmp_path / "ü b")
    (cwd, path, copied), *_ = rows(home, "SELECT cwd, path, env FROM jobs")
    assert (cwd, path) == (str(tmp_path / "ü b"), env["PATH"])
    assert json.loads(copied) == {"COPIED": "c=1", "SET": "x"}


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_an_ascii_locale_changes_no_text(home: Home, tmp_path: Path, locale: dict[str, str]) -> None:
    folder = tmp_path / "é"
    folder.mkdir()
    (folder / "päckchen").write_text('{"ü": "ö"}')
    (folder / "prögram").write_text("#!/bin/sh\n")
    (folder / "prögram").chmod(0o755)
    env = {"CLAWQ_HOME": home.data, "VAR": "vär", "PATH": f"{folder}:/bin:/usr/bin", **locale}
    words = ("enqueue", "--tenant", "zoë", "--env", "VAR", "--payload", "@päckchen", "--", "prögram", "ä")
    assert said(clawq(*words, env=env, cwd=folder)) == QUIET
    row = rows(home, "SELECT tenant, env, payload, command, cwd, path FROM jobs")[0]
    assert row[0] == "zoë"
    assert json.loads(row[1]) == {"VAR": "vär"}
    assert row[2:] == ('{"ü": "ö"}', '["prögram","ä"]', str(folder), env["PATH"])
    refused = clawq("enqueue", "zoë", code=2, env=env, cwd="/")
    assert refused.stderr.isascii() == ("PYTHONUTF8" in locale)
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--json -- true", "nope", "--payload - -- true"])
def test_closed_standard_files_spoil_nothing(home: Home, closed: str, words: str) -> None:
    clawq("enqueue", "--", "true")
    launcher = Path(home.data) / "launcher.py"
    launcher.write_text(LAUNCHER)
    line = f"exec {sys.executable} {launcher} enqueue {words} {closed}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, input="{}" if "<&-" not in closed else None, text=True
    )
    unread = words.startswith("--payload") and "<&-" in closed
    assert done.returncode == (2 if words == "nope" or unread else 0)
    assert rows(home, "PRAGMA integrity_check") == [("ok",)]
    assert rows(home, "SELECT count(*) FROM jobs") == [(1 if done.returncode else 2,)]
    if "2>" not in closed:
        assert done.stderr.count("\n") == (1 if done.returncode else 0)
    if words.startswith("--json") and ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(done.stdout)["job_id"] == 2


def test_an_answer_that_cannot_be_written_does_not_undo_the_job(home: Home) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*CLAWQ, "enqueue", "--json", "--", "true"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 0
    assert b"could not be written to stdout: No space left" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*CLAWQ, "enqueue", "--json", "--", "true"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rows(home, "SELECT count(*) FROM jobs") == [(2,)]


def test_somebody_who_looks_is_told(home: Home) -> None:
    def on_a_terminal(*words: str) -> str:
        ours, theirs = pty.openpty()
        subprocess.run([*CLAWQ, "enqueue", *words], stdout=theirs, check=True)
        os.close(theirs)
        told = os.read(ours, 1000).decode()
        os.close(ours)
        return told

    assert on_a_terminal("--dedupe-key", "k", "--", "true") == "job 1 queued\r\n"
    assert on_a_terminal("--dedupe-key", "k", "--", "true") == "a duplicate of job 1 (queued)\r\n"
    assert on_a_terminal("--hold", "--", "true") == "job 2 held\r\n"


# ---------------------------------------------------------------- many at once


def test_thirty_first_starts_make_one_database(home: Home) -> None:
    done = at_once([["enqueue", "--json", "--", "true"]] * 30)
    assert [(each.returncode, each.stderr) for each in done] == [(0, b"")] * 30
    assert sorted(json.loads(each.stdout)["job_id"] for each in done) == list(range(1, 31))
    assert rows(home, "SELECT count(*) FROM jobs") == [(30,)]
    assert {name for name in os.listdir(home.data) if "clawq.db" in name} <= {
        "clawq.db",
        "clawq.db-wal",
        "clawq.db-shm",
    }


@pytest.mark.sized
def test_all_at_once_never_pass_a_cap_by_one(home: Home) -> None:
    storm, others = sized(30, 60), sized(11, 20)
    configure(home, f"[limits]\nmax_queued = {sized(20, 30)}\n[tenants.acme]\nmax_queued = 7\n")
    lines = [["enqueue", "--json", "--tenant", "acme" if n % 2 else "b", "--", "true"] for n in range(storm)]
    done = at_once(lines)
    answers = [json.loads(each.stdout) for each in done]
    assert {each.returncode for each in done} == {0, 75}
    assert rows(home, "SELECT tenant, count(*) FROM jobs GROUP BY tenant") == [("acme", 7), ("b", others)]
    reasons = [each["reason"] for each in answers if each["outcome"] == "rejected"]
    assert len(reasons) == storm - 7 - others
    assert sum(count for (count,) in rows(home, "SELECT count FROM refusals")) == len(reasons)
    for each in answers:
        assert (each["retry_after_s"] is None) == (each["reason"] is None)
        assert each["safe_to_retry"] == (each["reason"] is not None)


def test_of_many_with_one_key_one_is_accepted(home: Home) -> None:
    done = at_once(
        [["enqueue", "--json", "--dedupe-key", "k-{minute}x", "--dedupe-key", "k", "--", "true"]] * 12
    )
    outcomes = sorted(json.loads(each.stdout)["outcome"] for each in done)
    assert outcomes == ["duplicate"] * 11 + ["queued"]
    assert rows(home, "SELECT dedupe_key FROM jobs") == [("k",)]


# ---------------------------------------------------------------- answers


def test_a_duplicate_is_a_quiet_success(home: Home) -> None:
    first = answer("enqueue", "--dedupe-key", "digest-{date}", "--", "true")
    assert said(clawq("enqueue", "--dedupe-key", "digest-{date}", "--", "true")) == QUIET
    assert clawq("enqueue", "--print-id", "--dedupe-key", "digest-{date}", "--", "true").stdout == "1\n"
    again = answer("enqueue", "--dedupe-key", "digest-{date}", "--", "false")
    assert (again["outcome"], again["job_id"], again["state"]) == ("duplicate", first["job_id"], "queued")


LISTS = "`clawq enqueue --help` lists them"
NOT_ON_PATH = "it is not on PATH /usr/bin:/bin; name it with its full path"
LATER = "enqueue it with a later one"

USAGE: list[tuple[list[str | bytes], str]] = [
    (["--jsn"], f"unknown option '--jsn': did you mean --json? {LISTS}"),
    (
        ["site.qb"],
        "no kind 'site.qb' is configured: did you mean site.qa? add [kinds.\"site.qb\"] to clawq.toml",
    ),
    (
        ["--band", "norml", "--", "true"],
        "--band 'norml': did you mean normal? one of critical, interactive, normal, bulk is needed",
    ),
    (
        ["--payload", "{", "--", "true"],
        "the payload is not JSON: '{': quote it for the shell, as in '{\"n\": 1}'",
    ),
    (["--payload", "@/none", "--", "true"], "--payload from '/none': No such file or directory"),
    (
        ["--payload", "@/dev/zero", "--", "true"],
        "the payload is larger than 65536 bytes: pass a reference to it, such as a path",
    ),
    (["--", "no-such-program"], f"no executable 'no-such-program': {NOT_ON_PATH}"),
    (["--", "a\x1b]0;x\x07"], f"no executable 'a\\x1b]0;x\\x07': {NOT_ON_PATH}"),
    ([b"--tenant", b"\xff", b"--", b"true"], "--tenant '\\udcff': it is not UTF-8"),
    ([b"--", b"true", b"\xff"], "the command's argument '\\udcff': it is not UTF-8"),
    ([b"--payloa\xff"], f"unknown option '--payloa\\udcff': did you mean --payload? {LISTS}"),
    ([], "neither a kind nor a command: clawq enqueue KIND, or clawq enqueue -- COMMAND ARG..."),
    (["--"], "the command is empty: a program and its arguments are needed, as a list of texts"),
    (["--batch", "x", "--tenant", "a"], "--batch with 'tenant': each line says what it wants itself"),
    (["--batch", "/none"], "--batch '/none': No such file or directory"),
]
PAST = "2001-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("words", "code", "reason", "line"),
    [
        *((words, 2, "usage", line) for words, line in USAGE),
        (["--stale-after", PAST, "--", "true"], 65, "expired", f"stale-after {PAST} has passed: {LATER}"),
        (["--deadline", PAST, "--", "true"], 65, "deadline_passed", f"deadline {PAST} has passed: {LATER}"),
    ],
)
def test_a_no_is_one_line_and_one_object(
    home: Home, words: list[str | bytes], code: int, reason: str, line: str
) -> None:
    configure(home, '[kinds."site.qa"]\ncommand = ["true"]\n')
    env = {"CLAWQ_HOME": home.data, "PATH": "/usr/bin:/bin"}
    done = clawq("enqueue", *words, code=code, env=env)
    assert said(done) == ("", f"clawq: {line}\n")
    done = clawq("enqueue", "--json", *words, code=code, env=env)
    assert done.stderr == f"clawq: {line}\n"
    assert json.loads(done.stdout) == {
        "outcome": "rejected",
        "job_id": None,
        "state": None,
        "degraded": False,
        "reason": reason,
        "retry_after_s": None,
        "safe_to_retry": False,
        "deadline_at": None,
    }


def test_a_full_queue_says_when_to_come_back(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 1\n")
    clawq("enqueue", "--", "true")
    done = clawq("enqueue", "--json", "--", "true", code=75)
    told = json.loads(done.stdout)
    assert (told["reason"], told["safe_to_retry"]) == ("queue_full", True)
    assert 48 <= told["retry_after_s"] <= 72
    assert done.stderr == (
        f"clawq: the queue is full: 1 of at most 1 jobs wait: try again in {told['retry_after_s']} s\n"
    )
    assert rows(home, "SELECT reason, count FROM refusals") == [("queue_full", 1)]


def test_a_dry_run_says_what_would_happen(home: Home) -> None:
    assert said(clawq("enqueue", "--dry-run", "--", "true")) == ("would be queued\n", "")
    assert answer("enqueue", "--dry-run", "--delay", "1h", "--", "true")["outcome"] == "scheduled"
    clawq("enqueue", "--dedupe-key", "k", "--", "true")
    done = clawq("enqueue", "--dry-run", "--dedupe-key", "k", "--", "true")
    assert done.stdout == "would be a duplicate of job 1 (queued)\n"
    clawq("enqueue", "--dry-run", "--", "no-such-program", code=2)
    assert rows(home, "SELECT count(*) FROM jobs") == [(1,)]


def test_a_payload_comes_from_the_line_a_file_or_stdin(home: Home, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('\n {"from": "file"}\n')
    clawq("enqueue", "--payload", '{"from": "line"}', "--", "true")
    clawq("enqueue", "--payload", "@p.json", "--", "true", cwd=tmp_path)
    clawq("enqueue", "--payload", "-", "--", "true", stdin=b'{"from": "stdin"}\n')
    largest = b'"' + b"x" * 65_534 + b'"'
    clawq("enqueue", "--payload=-", "--", "true", stdin=largest + b"\n")
    clawq("enqueue", "--payload=-", "--", "true", stdin=largest + b"x", code=2)
    assert rows(home, "SELECT payload FROM jobs") == [
        ('{"from": "line"}',),
        ('{"from": "file"}',),
        ('{"from": "stdin"}',),
        (largest.decode(),),
    ]


def test_the_help_is_plain_text_for_any_terminal(home: Home) -> None:
    done = clawq("enqueue", "--help", env={"LC_ALL": "C"})
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80
    for text in (
        "--dedupe-key KEY",
        "Exit codes:",
        "75  refused for now",
        "Ctrl-C (130) leaves the job alone",
    ):
        assert text in done.stdout
    assert clawq("add", "-h", "--bad").stdout == done.stdout
    assert not os.path.exists(home.db)
    clawq("enqueue", "--", "true", "--help")  # the command's own
    assert rows(home, "SELECT command FROM jobs") == [('["true","--help"]',)]


# ---------------------------------------------------------------- configuration


def test_a_broken_file_stops_only_a_home_that_never_had_a_good_one(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 'many'\n")
    done = clawq("enqueue", "--json", "--", "true", code=78)
    assert json.loads(done.stdout)["reason"] == "config"
    assert done.stderr.startswith(f"clawq: {home.config}:2: limits.max_queued: ")
    assert done.stderr.count("\n") == 1
    assert clawq("enqueue", "--", "true", code=78).stderr == done.stderr
    configure(home, "[limits]\nmax_queued = 1\n")
    assert said(clawq("enqueue", "--", "true")) == QUIET
    configure(home, "[limits]\nmax_queued = \n")
    for _ in range(2):
        assert answer("enqueue", "--", "true", code=75)["reason"] == "queue_full"
    os.unlink(home.config)
    assert said(clawq("enqueue", "--", "true")) == QUIET


# ---------------------------------------------------------------- nobody is there to do it


def test_once_a_day_it_says_that_no_supervisor_runs(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 2\n")
    assert said(clawq("enqueue", "--dedupe-key", "k", "--", "true")) == QUIET
    rows(home, "UPDATE jobs SET ready_at = ready_at - 660000")
    what = "work has waited 11 minutes and no supervisor runs"
    line = f"clawq: {what}: `clawq run` is one, `clawq service install` keeps one\n"
    assert said(clawq("enqueue", "--dedupe-key", "k", "--", "true")) == ("", line)
    assert said(clawq("enqueue", "--dedupe-key", "k", "--", "true")) == QUIET
    rows(home, "UPDATE meta SET value = '2001-01-01' WHERE key = 'nag_day'")
    assert said(clawq("enqueue", "--", "true")) == ("", line)
    # When the queue is full because nobody empties it, it matters most.
    rows(home, "UPDATE meta SET value = '2001-01-01' WHERE key = 'nag_day'")
    refused = clawq("enqueue", "--", "true", code=75).stderr.splitlines(keepends=True)
    assert refused[0] == line
    assert "the queue is full" in refused[1]
    assert len(refused) == 2
    rows(home, "UPDATE meta SET value = '2001-01-01' WHERE key = 'nag_day'")
    Path(home.lock).write_text("")
    assert said(clawq("enqueue", "--dedupe-key", "k", "--", "true")) == QUIET


# ---------------------------------------------------------------- waiting for the end


def _move(
    home: Home, state: str, ended: bool, exit_code: int | None = None, error: str | None = None
) -> None:
    """As a supervisor would, through the states."""
    rows(home, "UPDATE jobs SET state = 'starting', reason = 't', changed_at = 1, token = 1")
    rows(home, "UPDATE jobs SET state = 'running', reason = 't', changed_at = 1")
    rows(
        home,
        "UPDATE jobs SET state = ?, reason = 't', changed_at = 1, token = NULL, ended_at = ?, exit_code = ?,"
        " last_error = ?",
        state, 1 if ended else None, exit_code, error,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "exit_code", "error", "code", "line"),
    [
        ("succeeded", 0, None, 0, ""),
        ("dead", 7, "exit 7: no such page", 7, "job 1: dead, exit 7: no such page"),
        ("dead", None, "timed out", 1, "job 1: dead, timed out"),
        ("dead", 0, None, 1, "job 1: dead"),
        ("cancelled", None, None, 1, "job 1: cancelled"),
        ("unknown", 3, "lost", 1, "job 1: unknown, lost"),
    ],
)
def test_waiting_ends_as_the_job_did(
    home: Home, state: str, exit_code: int | None, error: str | None, code: int, line: str
) -> None:
    Path(home.data).mkdir()
    Path(home.lock).write_text("")  # as if a supervisor ticked
    waiting = start("enqueue", "--wait", "--print-id", "--", "true")
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"1\n"  # said before the wait
    _move(home, state, state != "unknown", exit_code, error)
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (code, b"")
    assert err.decode() == (f"clawq: {line}\n" if line else "")


def test_waiting_for_what_expires_is_as_if_it_had_been_refused(home: Home) -> None:
    waiting = start("enqueue", "--wait", "--", "true")
    until(lambda: os.path.exists(home.db) and rows(home, "SELECT 1 FROM jobs"))
    rows(home, "UPDATE jobs SET state = 'expired', reason = 'stale', changed_at = 1, ended_at = 1")
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 65
    assert err.decode().splitlines() == [
        "clawq: no supervisor runs: job 1 waits until `clawq run` is started",
        "clawq: job 1: expired",
    ]


def test_waiting_for_a_duplicate_waits_for_the_first(home: Home) -> None:
    clawq("enqueue", "--dedupe-key", "k", "--", "true")
    _move(home, "dead", True, 9, "exit 9")
    assert clawq("enqueue", "--wait", "--dedupe-key", "k", "--", "true", code=9).stdout == ""
    rows(home, "PRAGMA foreign_keys=ON")
    rows(home, "DELETE FROM events")
    rows(home, "DELETE FROM jobs")
    done = clawq("enqueue", "--wait", "--dedupe-key", "k", "--", "true", code=1)
    assert "job 1 has been pruned: its end is no longer known" in done.stderr


def test_ctrl_c_leaves_the_job_alone(home: Home) -> None:
    waiting = start("enqueue", "--wait", "--print-id", "--", "true")
    assert waiting.stdout is not None
    assert waiting.stderr is not None
    waiting.stdout.readline()
    waiting.stderr.readline()  # that no supervisor runs: from here on it looks and sleeps
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    assert err == b"clawq: job 1 goes on without you: `clawq wait 1` waits again\n"
    assert rows(home, "SELECT state FROM jobs") == [("queued",)]


def test_waiting_beside_a_real_supervisor(home: Home) -> None:
    supervisor = start("run")
    try:
        until(lambda: os.path.exists(home.sock))
        assert answer("enqueue", "--", "true")["outcome"] == "admitted"
        once = ("--max-attempts", "1", "--wait")
        assert said(clawq("enqueue", *once, "--", "true")) == QUIET
        done = clawq("enqueue", *once, "--", "sh", "-c", "echo no luck >&2; exit 7", code=7)
        assert done.stderr.startswith("clawq: job 3: dead, ")
        assert done.stderr.count("\n") == 1
        assert f"clawq: {clawq('wait', '3', code=1).stdout}" == done.stderr
    finally:
        supervisor.terminate()
        supervisor.communicate(timeout=30)


# ---------------------------------------------------------------- the door


def _through_the_door(home: Home, patch: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = LAUNCHER.replace("from clawq", f"\n{patch}\nfrom clawq", 1)
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("error", "code", "last"),
    [
        ("ZeroDivisionError('x')", 70, "clawq: this is a bug in clawq (ZeroDivisionError): please report it"),
        ("KeyboardInterrupt()", 130, ""),
        ("BrokenPipeError()", 0, ""),
        ("__import__('clawq.errors').errors.UsageError('a\\x1bb\\nc', 'd')", 2, "clawq: a?b?c: d"),
    ],
)
def test_the_door_is_the_one_place_where_errors_end(home: Home, error: str, code: int, last: str) -> None:
    patch = f"import clawq.cli.enqueue as e\ndef main(argv): raise {error}\ne.main = main"
    done = _through_the_door(home, patch, "enqueue")
    assert done.returncode == code
    assert (done.stderr.splitlines() or [""])[-1].startswith(last)
    assert ("Traceback" in done.stderr) == (code == 70)
    assert bool(last) == bool(done.stderr)


def test_output_of_any_command_that_nobody_reads_or_can_keep(home: Home) -> None:
    clawq("enqueue", "--", "true")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*CLAWQ, "list"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    with open("/dev/full", "w") as full:
        done = subprocess.run([*CLAWQ, "list"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 74
    assert done.stderr == b"clawq: the output could not be written: No space left on device\n"


def test_an_answer_in_many_parts_that_cannot_be_written_is_said_once(home: Home) -> None:
    ids = [answer("enqueue", "--hold", "--", "true")["job_id"] for _ in range(3)]
    clawq("deny", *map(str, ids))
    with open("/dev/full", "w") as full:
        done = subprocess.run([*CLAWQ, "wait", *map(str, ids)], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1  # the jobs' word, not the disk's
    assert done.stderr == b"clawq: the answer could not be written to stdout: No space left on device\n"


def test_a_pipe_that_does_not_block_gets_all_of_a_long_answer(home: Home) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lines = b'{"command": ["true"]}\n' * 1_000
    with subprocess.Popen(
        [*CLAWQ, "enqueue", "--batch", "-", "--json", "--dry-run"],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.PIPE,
    ) as batch:
        os.close(writer)
        assert batch.stdin is not None
        batch.stdin.write(lines)
        batch.stdin.close()
        with open(reader, "rb") as file:
            assert file.read().count(b"\n") == 1_000
        assert batch.wait() in (0, 75)


def test_the_books_are_right_after_all_kinds_of_ends(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 3\n")
    clawq("enqueue", "--dedupe-key", "k", "--", "true")
    clawq("enqueue", "--dedupe-key", "k", "--", "true")
    clawq("enqueue", "--hold", "--", "true")
    clawq("enqueue", "--delay", "1h", "--", "true")
    clawq("enqueue", "--", "true", code=75)
    clawq("enqueue", "--", "no-such", code=2)
    import apsw

    db = apsw.Connection(home.db)
    check_books(db)
    db.close()
