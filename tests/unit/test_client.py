"""The Python function: what it answers, what it raises, and what it looks at before it asks the database."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

import clawq
from clawq import client
from clawq.api import producing
from clawq.errors import ClawqError, ConfigError, StorageError, UsageError
from clawq.paths import Home
from clawq.poke import poke
from clawq.store.connection import open_db

KEYS = [
    "outcome",
    "job_id",
    "state",
    "degraded",
    "reason",
    "retry_after_s",
    "safe_to_retry",
    "deadline_at",
]


def configure(home: Home, text: str) -> None:
    Path(home.config).parent.mkdir(parents=True, exist_ok=True)
    Path(home.config).write_text(text)


def rows(home: Home, query: str) -> list[tuple[object, ...]]:
    db = open_db(home)
    try:
        return list(db.execute(query).fetchall())
    finally:
        db.close()


def ticking(home: Home) -> None:
    Path(home.lock).write_text("1 0 boot 0 0.1 enforce\n")


# ---------------------------------------------------------------- receipts


def test_the_package_exports_what_the_readme_uses() -> None:
    assert clawq.enqueue is producing.enqueue
    assert clawq.Receipt is client.Receipt
    assert issubclass(clawq.Refused, clawq.ClawqError)
    with pytest.raises(AttributeError, match="no attribute 'enqueu'"):
        clawq.enqueu  # type: ignore[attr-defined]  # noqa: B018


def test_a_receipt_has_the_fields_of_the_command_lines_json(home: Home) -> None:
    receipt = clawq.enqueue(command=["true"], deadline=datetime(2040, 1, 1, tzinfo=UTC), payload={"a": 1})
    assert json.loads(receipt.as_json()) == {
        "outcome": "queued",
        "job_id": 1,
        "state": "queued",
        "degraded": False,
        "reason": None,
        "retry_after_s": None,
        "safe_to_retry": False,
        "deadline_at": "2040-01-01T00:00:00.000Z",
    }
    assert list(json.loads(receipt.as_json())) == KEYS == [*KEYS]
    assert {key: getattr(receipt, key) for key in KEYS} == json.loads(receipt.as_json())
    assert "Receipt({" in repr(receipt)


def test_asking_again_is_safe_with_a_key_and_says_so(home: Home) -> None:
    first = clawq.enqueue(command=["true"], dedupe_key="k")
    again = clawq.enqueue(command=["true"], dedupe_key="k")
    assert (first.outcome, first.safe_to_retry) == ("queued", True)
    assert (again.outcome, again.job_id, again.safe_to_retry) == ("duplicate", first.job_id, True)
    assert not clawq.enqueue(command=["true"]).safe_to_retry


def test_a_refusal_is_raised_with_what_a_program_needs(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 1\n")
    clawq.enqueue(command=["true"])
    with pytest.raises(clawq.Refused) as refused:
        clawq.enqueue(command=["true"])
    error = refused.value
    assert (error.reason, error.exit_code, error.safe_to_retry) == ("queue_full", 75, True)
    assert isinstance(error.retry_after_s, int)
    answer = json.loads(client.refusal(error).as_json())
    assert answer == {
        "outcome": "rejected",
        "job_id": None,
        "state": None,
        "degraded": False,
        "reason": "queue_full",
        "retry_after_s": error.retry_after_s,
        "safe_to_retry": True,
        "deadline_at": None,
    }
    assert rows(home, "SELECT reason, kind, tenant, count FROM refusals") == [
        ("queue_full", "default", "default", 1)
    ]


def test_a_dry_run_keeps_nothing(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 1\n")
    receipt = clawq.enqueue(command=["true"], dedupe_key="k", dry_run=True)
    assert (receipt.outcome, receipt.job_id, receipt.state) == ("queued", None, "queued")
    kept = clawq.enqueue(command=["true"], dedupe_key="k")
    assert (kept.outcome, kept.job_id) == ("queued", 1)
    again = clawq.enqueue(command=["true"], dedupe_key="k", dry_run=True)
    assert (again.outcome, again.job_id) == ("duplicate", 1)
    with pytest.raises(clawq.Refused, match="the queue is full"):
        clawq.enqueue(command=["true"], dry_run=True)
    assert rows(home, "SELECT * FROM refusals") == []
    assert rows(home, "SELECT count(*) FROM jobs") == [(1,)]


def test_admitted_is_for_a_supervisor_that_ticks(home: Home) -> None:
    assert clawq.enqueue(command=["true"]).outcome == "queued"
    ticking(home)
    assert clawq.enqueue(command=["true"]).outcome == "admitted"
    long_ago = time.time() - 60
    os.utime(home.lock, (long_ago, long_ago))
    assert clawq.enqueue(command=["true"]).outcome == "queued"


# ---------------------------------------------------------------- what is looked at first


def test_kinds_and_resources_must_be_configured(home: Home) -> None:
    configure(home, '[kinds."site.qa"]\ncommand = ["true"]\n[kinds.bare]\n')
    assert clawq.enqueue("site.qa").outcome == "queued"
    for call, message in (
        (lambda: clawq.enqueue("site.qq"), "no kind 'site.qq' is configured: did you mean site.qa?"),
        (lambda: clawq.enqueue("zzz"), "no kind 'zzz' is configured: add [kinds.\"zzz\"] to clawq.toml"),
        (
            lambda: clawq.enqueue("true"),
            "no kind 'true' is configured: add [kinds.\"true\"] to clawq.toml; or, if it is a command:",
        ),
        (lambda: clawq.enqueue("ls -l"), "if it is a command: clawq enqueue -- ls -l"),
        (lambda: clawq.enqueue(command=["ls -l"]), "no executable 'ls -l': a command is separate words"),
        (
            lambda: clawq.enqueue("bare"),
            "kind 'bare' has no command: give one: clawq enqueue bare -- COMMAND",
        ),
        (lambda: clawq.enqueue("default"), "kind 'default' has no command"),
        (lambda: clawq.enqueue(), "neither a kind nor a command"),
        (
            lambda: clawq.enqueue("site.qa", needs="brwser"),
            "no resource 'brwser' is configured: did you mean browser?",
        ),
        (lambda: clawq.enqueue("site.qa", band="high"), "--band 'high': one of critical"),
        (lambda: clawq.enqueue("site.qa", payload=b"{a: 1}"), "the payload is not JSON"),
        (lambda: clawq.enqueue("site.qa", payload=b"\xff"), "the payload is not UTF-8"),
        (lambda: clawq.enqueue("site.qa", payload=b"{}\0"), "the payload is not JSON"),
        (lambda: clawq.enqueue("site.qa", payload=b""), "the payload is not JSON"),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert message in str(refused.value)
    assert clawq.enqueue("bare", ["true"]).job_id == 2
    assert rows(home, "SELECT count(*) FROM refusals") == [(0,)]


@pytest.mark.parametrize("text", [b"{}", b"[1.5e300]", b'"a"', b"null", b"true", b"-0", '"é"'.encode()])
def test_json_text_is_kept_as_it_is(home: Home, text: bytes) -> None:
    clawq.enqueue(command=["true"], payload=text)
    assert rows(home, "SELECT payload FROM jobs") == [(text.decode(),)]


def _program(folder: Path, name: str = "mine", mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(mode)
    return program


def test_the_program_is_looked_for_where_it_will_be_looked_for(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("job", "kind", "env", "caller", "supervisor")}
    for name, folder in places.items():
        _program(folder, f"of-{name}")
    monkeypatch.setenv("PATH", str(places["caller"]))

    def found_with(**more: object) -> set[str]:
        found = set(places)
        for name in places:
            try:
                clawq.enqueue("k", [f"of-{name}"], **more)  # type: ignore[arg-type]
            except UsageError:
                found.remove(name)
        return found

    configure(home, "[kinds.k]\n")
    assert found_with() == {"caller"}
    assert found_with(env={"PATH": str(places["job"])}) == {"job"}
    configure(home, f'[kinds.k]\n[env]\nPATH = "{places["env"]}"\n')
    assert found_with() == {"env"}
    configure(home, f'[kinds.k]\nenv = {{ PATH = "{places["kind"]}" }}\n[env]\nPATH = "{places["env"]}"\n')
    assert found_with() == {"kind"}
    configure(home, "[kinds.k]\n")
    db = open_db(home)
    db.execute("INSERT INTO meta VALUES ('supervisor_path', ?)", (str(places["supervisor"]),))
    db.close()
    monkeypatch.delenv("PATH")
    assert found_with() == {"supervisor"}
    assert clawq.enqueue("k", ["/bin/sh"]).outcome == "queued"


def test_a_program_with_a_slash_is_counted_from_the_jobs_folder(home: Home, tmp_path: Path) -> None:
    _program(tmp_path / "bin")
    _program(tmp_path / "bin", "plain", 0o644)
    assert clawq.enqueue(command=["bin/mine"], cwd=tmp_path).outcome == "queued"
    assert clawq.enqueue(command=["./mine"], cwd=str(tmp_path / "bin")).outcome == "queued"
    for program in ("./mine", "bin/plain", "./bin", str(tmp_path), "bin/none"):
        with pytest.raises(UsageError, match=r"no executable .*: it is not in /.*; name it"):
            clawq.enqueue(command=[program], cwd=tmp_path)


def test_a_relative_folder_of_path_is_counted_from_the_jobs_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bin")
    monkeypatch.setenv("PATH", "/nowhere:bin")
    assert clawq.enqueue(command=["mine"], cwd=tmp_path).outcome == "queued"
    monkeypatch.setenv("PATH", "/nowhere:")
    assert clawq.enqueue(command=["mine"], cwd=tmp_path / "bin").outcome == "queued"


def test_a_program_that_comes_while_a_producer_is_open_is_found(home: Home, tmp_path: Path) -> None:
    job = {"command": [str(tmp_path / "mine")]}
    with client.Producer() as producer:
        with pytest.raises(UsageError, match="no executable"):
            producer.enqueue(job)
        _program(tmp_path)
        assert producer.enqueue(job).outcome == "queued"


def test_what_lies_beside_clawq_is_found_last(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bin", "clawq")
    _program(tmp_path / "bin", "helper")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "clawq"), "enqueue"])
    assert clawq.enqueue(command=["helper"]).outcome == "queued"
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "other")])
    with pytest.raises(UsageError, match="no executable 'helper'"):
        clawq.enqueue(command=["helper"])
    assert clawq.enqueue(command=[os.path.basename(sys.executable)]).outcome == "queued"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {},
            r"the payload has no 'url', and the kind's command has \{field:url\}: enqueue it with --payload",
        ),
        ({"payload": {"uri": 1}}, "the payload has no 'url'"),
        ({"payload": {"url": None}}, "the payload has no 'url'"),
        ({"payload": {"url": "-x"}}, r"\{field:url\} starts with '-' and would be an option of echo"),
        ({"kind": "whole"}, "the job has no payload"),
        ({"kind": "banded", "band": "bulk"}, "the payload has no 'id'"),
        ({"kind": "heavy", "command": None}, "the payload has no 'url'"),
    ],
)
def test_a_payload_that_the_kinds_command_cannot_be_filled_from(
    home: Home, given: dict[str, object], said: str
) -> None:
    configure(
        home,
        '[kinds.fetch]\ncommand = ["echo", "{field:url}"]\n[kinds.whole]\ncommand = ["echo", "{payload}"]\n'
        '[kinds.banded]\n[bands.bulk]\ncommand = ["echo", "{field:id}"]\n'
        '[kinds.heavy]\ncommand = ["true"]\non_busy = "degrade"\ndegrade_to = "fetch"\n',
    )
    with pytest.raises(UsageError, match=said):
        clawq.enqueue(**({"kind": "fetch"} | given))  # type: ignore[arg-type]
    assert rows(home, "SELECT * FROM jobs") == []


def test_a_payload_that_it_can_be_filled_from(home: Home) -> None:
    configure(home, '[kinds.fetch]\ncommand = ["echo", "{field:url}", "{{field:n}}"]\n')
    assert clawq.enqueue("fetch", payload={"url": "https://x"}).outcome == "queued"
    assert clawq.enqueue("fetch", command=["echo", "{field:url}"]).outcome == "queued"


def test_the_program_of_a_kind_is_looked_for_too(home: Home) -> None:
    configure(home, '[kinds.gone]\ncommand = ["no-such-program", "x"]\n')
    with pytest.raises(UsageError, match="no executable 'no-such-program'"):
        clawq.enqueue("gone")
    assert clawq.enqueue("gone", ["true"]).outcome == "queued"


def test_the_folder_is_the_callers_and_may_be_another(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    clawq.enqueue(command=["true"])
    clawq.enqueue(command=["true"], cwd="sub/../sub")
    assert rows(home, "SELECT cwd FROM jobs") == [(str(tmp_path),), (str(tmp_path / "sub"),)]
    for folder in ("none", "/dev/null"):
        with pytest.raises(UsageError, match="is not a folder: give one that exists"):
            clawq.enqueue(command=["true"], cwd=folder)
    (tmp_path / "sub").rename(tmp_path / os.fsdecode(b"\xff"))
    monkeypatch.chdir(tmp_path / os.fsdecode(b"\xff"))
    with pytest.raises(UsageError, match="is not UTF-8: give another with --cwd"):
        clawq.enqueue(command=["true"])


def test_a_folder_that_was_deleted_is_one_clear_line(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for cwd in (None, "sub"):
        with pytest.raises(
            UsageError, match="the current folder no longer exists: cd to another, or give --cwd"
        ):
            clawq.enqueue(command=["true"], cwd=cwd)
    assert clawq.enqueue(command=["true"], cwd=tmp_path).outcome == "queued"


def test_what_cannot_be_passed_on_of_path_is_dropped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fsdecode(b"/\xff:/usr/bin:/bin"))
    clawq.enqueue(command=["true"])
    assert rows(home, "SELECT path FROM jobs") == [("/usr/bin:/bin",)]


# ---------------------------------------------------------------- configuration


def test_a_changed_file_is_compiled_by_whoever_meets_it(home: Home) -> None:
    clawq.enqueue(command=["true"])
    configure(home, '[kinds.new]\ncommand = ["true"]\n')
    assert clawq.enqueue("new").outcome == "queued"
    os.unlink(home.config)
    with pytest.raises(UsageError, match="no kind 'new' is configured"):
        clawq.enqueue("new")


def test_a_kind_that_came_with_a_broken_form_is_not_said_to_be_missing_from_the_file(home: Home) -> None:
    configure(home, "[limits]\nmax_running = 2\n")
    clawq.enqueue(command=["true"])
    configure(home, '[limits]\n[limits]\n[kinds.new]\ncommand = ["true"]\n')
    with pytest.raises(UsageError, match=r"last good form of clawq\.toml.*: `clawq config check` says"):
        clawq.enqueue("new")


def test_the_last_good_form_outlives_a_broken_one(home: Home) -> None:
    configure(home, '[kinds.new]\ncommand = ["true"]\n')
    clawq.enqueue("new")
    configure(home, "[kinds.new\n")
    assert clawq.enqueue("new").outcome == "queued"
    assert clawq.enqueue("new").outcome == "queued"
    configure(home, '[kinds.newer]\ncommand = ["true"]\n')
    assert clawq.enqueue("newer").outcome == "queued"


def test_a_home_whose_file_never_compiled_takes_nothing(home: Home) -> None:
    configure(home, "[limits]\nmax_quued = 3\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"clawq\.toml:2: .*max_quued.*max_queued"):
            clawq.enqueue(command=["true"])
    assert rows(home, "SELECT count(*) FROM jobs") == [(0,)]
    configure(home, "[limits]\nmax_queued = 3\n")
    assert clawq.enqueue(command=["true"]).outcome == "queued"


# ---------------------------------------------------------------- many at once


def test_a_batch_answers_in_order_and_keeps_the_good_ones(home: Home) -> None:
    with client.Producer() as producer:
        answers = producer.enqueue_many(
            [
                {"command": ["true"], "dedupe_key": "a"},
                UsageError("line 2 is not JSON"),
                {"command": ["true"], "dedupe_key": "a"},
                {"kind": "nope"},
                {"command": ["true"], "stale_after": "0s"},
                {"command": ["true"]},
            ]
        )
    told = [a.outcome if isinstance(a, client.Receipt) else a.reason for a in answers]
    assert told == ["queued", "usage", "duplicate", "usage", "expired", "queued"]
    assert rows(home, "SELECT id FROM jobs") == [(1,), (2,)]


def test_threads_of_one_process_may_meet_an_empty_home(home: Home) -> None:
    failures: list[BaseException] = []

    def one() -> None:
        try:
            clawq.enqueue(command=["true"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert rows(home, "SELECT count(*) FROM jobs") == [(8,)]


def test_a_locked_database_is_a_refusal_that_may_be_retried(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    clawq.enqueue(command=["true"])
    monkeypatch.setattr("clawq.store.connection.BUSY_MS", 50)
    monkeypatch.setattr("clawq.store.connection.open_db.__defaults__", (50, False))
    holder = apsw.Connection(home.db)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(clawq.Refused) as refused:
            clawq.enqueue(command=["true"], dedupe_key="k")
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    error = refused.value
    assert (error.reason, error.exit_code, error.safe_to_retry) == ("database_busy", 75, True)
    assert error.retry_after_s is not None
    assert "locked by another process" in str(error)
    assert clawq.enqueue(command=["true"], dedupe_key="k").outcome == "queued"


def test_a_file_that_is_no_database_is_left_alone(home: Home) -> None:
    os.makedirs(home.data)
    Path(home.db).write_bytes(b"my diary\n" * 500)
    with pytest.raises(StorageError):
        clawq.enqueue(command=["true"])
    assert Path(home.db).read_bytes() == b"my diary\n" * 500


# ---------------------------------------------------------------- waking the supervisor


def test_the_supervisor_is_woken_after_the_commit_and_only_for_news(home: Home) -> None:
    clawq.enqueue(command=["true"], dedupe_key="k")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(home.sock)
        ears.settimeout(5)
        clawq.enqueue(command=["true"])
        assert ears.recv(16) == b"e"
        clawq.enqueue(command=["true"], delay="1h")
        assert ears.recv(16) == b"e"
        clawq.enqueue(command=["true"], dedupe_key="k")
        clawq.enqueue(command=["true"], hold=True)
        clawq.enqueue(command=["true"], dry_run=True)
        poke(home)
        assert ears.recv(16) == b"p"


def test_nobody_listening_is_no_error(home: Home, tmp_path: Path) -> None:
    poke(home)
    Path(home.data).mkdir()
    Path(home.sock).write_text("not a socket")
    clawq.enqueue(command=["true"])
    deep = str(tmp_path / ("x" * 120))
    poke(Home(deep, deep, deep))


def test_a_full_socket_does_not_hold_the_producer_up(home: Home) -> None:
    os.makedirs(home.data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(home.sock)
        for _ in range(2_000):  # more than a socket's queue takes
            poke(home)
        assert clawq.enqueue(command=["true"]).outcome == "queued"


# ---------------------------------------------------------------- for those who type-check


def test_the_package_tells_mypy_what_it_exports(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(
        "import clawq\n"
        "receipt: clawq.Receipt = clawq.enqueue('k', ['a'], payload={'a': 1}, delay=1.5)\n"
        "try:\n    clawq.enqueue(prioritty=3)\n"
        "except clawq.Refused as error:\n    seconds: float | None = error.retry_after_s\n"
        "reveal_type(receipt.job_id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(user)],
        capture_output=True,
        text=True,
        cwd=Path(clawq.__file__).parents[1],
        timeout=300,
    )
    told = [line for line in done.stdout.splitlines() if "user.py" in line]
    assert 'Unexpected keyword argument "prioritty"' in told[0]
    assert 'Revealed type is "int | None"' in told[-1]
    assert [line for line in told if "error:" in line] == told[:1]


def test_every_error_a_producer_meets_is_a_clawq_error() -> None:
    for error in (clawq.Refused, UsageError, StorageError, ConfigError):
        assert issubclass(error, ClawqError)
