"""`clawq enqueue --batch`: answers in order, bad lines in their places, a thousand to a transaction."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawq.paths import Home
from tests.producers import CLAWQ, LAUNCHER, clawq, configure, rows, start
from tests.waiting import until


def lines_of(*objects: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


JOB = {"command": ["true"]}
FULL = JOB | {"tenant": "full"}


def fill_the_tenant_full(home: Home) -> None:
    """Its one place is taken, by job 1."""
    configure(home, "[tenants.full]\nmax_queued = 1\n")
    clawq("enqueue", "--tenant", "full", "--", "true")


def test_a_line_has_the_options_names(home: Home, tmp_path: Path) -> None:
    configure(home, '[kinds."site.qa"]\ncommand = ["true"]\n')
    line = {
        "kind": "site.qa",
        "command": ["sh", "-c", "true"],
        "payload": {"n": [1, 2.5, "é", None]},
        "dedupe_key": "k-{date}",
        "dedupe_scope": "active",
        "exclusive": "x",
        "priority": -3,
        "band": "bulk",
        "tenant": "acme",
        "needs": ["shell", "browser"],
        "delay": "10m",
        "stale_after": "1h",
        "deadline": "2h",
        "timeout": "none",
        "max_attempts": 2,
        "on_lost": "unknown",
        "hold": True,
        "cwd": str(tmp_path),
        "env": {"A": "1"},
    }
    batch = tmp_path / "batch.ndjson"
    batch.write_bytes(lines_of(line, JOB | {"needs": "shell", "env": ["A=2"], "hold": False, "tenant": None}))
    done = clawq("enqueue", "--batch", str(batch), "--json")
    assert [(each["outcome"], each["job_id"]) for each in answers(done)] == [("held", 1), ("queued", 2)]
    columns = "kind, command, payload, dedupe_scope, exclusive, priority, band, tenant, needs, timeout_ms,"
    columns += " max_attempts, on_lost, state, cwd, env, run_after - created_at, stale_at - created_at"
    assert rows(home, f"SELECT {columns} FROM jobs")[0] == (
        *("site.qa", '["sh","-c","true"]', json.dumps(line["payload"]), "active", "x", -3, 3, "acme"),
        *("browser,shell", 0, 2, "unknown", "held", str(tmp_path), '{"A":"1"}', 600_000, 3_600_000),
    )
    assert rows(home, "SELECT tenant, needs, env FROM jobs WHERE id = 2") == [
        ("default", "shell", '{"A":"2"}')
    ]


def test_bad_lines_are_answered_in_their_places_and_stop_nothing(home: Home) -> None:
    fill_the_tenant_full(home)
    text = b"".join(
        [
            lines_of(JOB),
            b"{not json\n",
            b"\n",
            b"[1, 2]\n",
            b"\xff\xfe\n",
            lines_of(JOB | {"prioritty": 3}),
            lines_of(JOB | {"dedupe_key": "k"}, JOB | {"dedupe_key": "k"}),
            lines_of(JOB | {"stale_after": "0s"}),
            lines_of(FULL),
            lines_of(JOB | {"command": ["no-such-program"]}),
            lines_of(JOB | {"payload": "x" * 65_536}),
            b'{"command": ["true"], "payload": NaN}\n',
            b'{"command": ["true"], "payload": "\\ud800"}\n',
            b"[" * 100_000 + b"\n",
            b'{"command": ["true"]}',  # no end of line
        ]
    )
    done = clawq("enqueue", "--batch", "-", "--json", stdin=text, code=2)
    told = [(each["outcome"], each["reason"], each["job_id"]) for each in answers(done)]
    no = ("rejected", "usage", None)
    assert told == [
        ("queued", None, 2),
        *[no] * 4,
        ("queued", None, 3),
        ("duplicate", None, 3),
        ("rejected", "expired", None),
        ("rejected", "tenant_queue_full", None),
        *[no] * 3,
        ("queued", None, 4),
        no,
        ("queued", None, 5),
    ]
    errors = done.stderr.splitlines()
    assert errors[0].startswith("clawq: line 2: it is not JSON (")
    assert errors[1] == 'clawq: line 4: it is not a JSON object: such as {"kind": "site.qa", "payload": {}}'
    assert "line 5: it is not JSON" in errors[2]
    assert "line 6: unknown key 'prioritty': did you mean priority?" in errors[3]
    assert "line 9: stale-after" in errors[4]
    assert "line 10: tenant 'full' is full" in errors[5]
    assert all(line.isprintable() for line in errors)
    assert rows(home, "SELECT payload FROM jobs WHERE id = 4") == [('"\\ud800"',)]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([JOB], 0),
        ([], 0),
        ([FULL, JOB], 75),
        ([FULL, JOB | {"stale_after": "0s"}, JOB], 65),
        ([JOB | {"stale_after": "0s"}, {"kind": "nope"}, FULL, JOB], 2),
    ],
)
def test_the_exit_code_is_the_most_severe(home: Home, lines: list[Any], code: int) -> None:
    fill_the_tenant_full(home)
    done = clawq("enqueue", "--batch", "-", stdin=lines_of(*lines), code=code)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == len(lines) - lines.count(JOB)


def test_an_empty_object_is_told_what_a_line_needs() -> None:
    done = clawq("enqueue", "--batch", "-", stdin=lines_of({}), code=2)
    assert done.stderr == 'clawq: line 1: neither a kind nor a command: "kind" or "command" is needed\n'


def test_ids_are_printed_line_by_line(home: Home) -> None:
    text = lines_of(JOB, {"kind": "nope"}, JOB)
    assert clawq("enqueue", "--batch", "-", "--print-id", stdin=text, code=2).stdout == "1\n-\n2\n"


def test_a_dry_run_of_a_batch_keeps_nothing(home: Home) -> None:
    text = lines_of(JOB, JOB | {"dedupe_key": "k"}, JOB | {"dedupe_key": "k"})
    done = clawq("enqueue", "--batch", "-", "--dry-run", stdin=text)
    assert done.stdout == "would be accepted 2, duplicates 1, rejected 0\n"
    assert rows(home, "SELECT count(*) FROM jobs") == [(0,)]


def test_a_batch_with_options_of_one_job_is_refused(home: Home) -> None:
    for words in (["--tenant", "a"], ["site.qa"], ["--wait"], ["--", "true"]):
        done = clawq("enqueue", "--batch", "-", *words, code=2, stdin=b"")
        assert "each line says what it wants itself" in done.stderr


def test_thousands_of_errors_are_summed_up(home: Home) -> None:
    done = clawq("enqueue", "--batch", "-", "--json", stdin=b"x\n" * 1_500, code=2)
    assert len(answers(done)) == 1_500
    errors = done.stderr.splitlines()
    assert len(errors) == 101
    assert errors[-1] == "clawq: and 1400 lines more were not accepted"


def test_a_line_without_end_is_refused_in_bounded_memory(home: Home) -> None:
    code = LAUNCHER.replace(
        "from clawq",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (300 << 20,) * 2); from clawq",
        1,
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "enqueue", "--batch", "-", "--print-id"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    for _ in range(400):
        process.stdin.write(b"x" * (1 << 20))
    out, err = process.communicate(b"\n" + lines_of(JOB), timeout=60)
    assert (process.returncode, out) == (2, b"-\n1\n")
    assert b"line 1: it has more than 1048576 bytes" in err


def _peak_kb(home: Home, count: int, tmp_path: Path) -> int:
    batch = tmp_path / f"{count}.ndjson"
    with open(batch, "wb") as file:
        for number in range(count):
            file.write(lines_of(JOB | {"payload": {"n": number, "text": "x" * 200}}))
    pid = os.posix_spawn(sys.executable, [*CLAWQ, "enqueue", "--batch", str(batch)], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    assert isinstance(usage, resource.struct_rusage)
    return usage.ru_maxrss


def test_memory_is_flat_and_the_log_of_writes_is_folded_back(home: Home, tmp_path: Path) -> None:
    configure(home, "[limits]\nmax_queued = 1000000\nmax_queued_per_tenant = 1000000\n")
    small = _peak_kb(home, 2_000, tmp_path)
    assert os.path.getsize(home.db + "-wal") == 0
    large = _peak_kb(home, 12_000, tmp_path)
    assert large < small + 4_096, (small, large)
    assert os.path.getsize(home.db + "-wal") == 0
    assert rows(home, "SELECT count(*), max(id) FROM jobs") == [(14_000, 14_000)]
    assert rows(home, "SELECT sum(n) FROM tally") == [(14_000,)]


def test_a_silent_pipe_does_not_have_to_fill_a_thousand(home: Home) -> None:
    process = start("enqueue", "--batch", "-", "--print-id", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in (1, 2):
        process.stdin.write(lines_of(JOB)[:10])
        process.stdin.flush()
        assert not select.select([process.stdout], [], [], 0.3)[0]  # half a line is none
        process.stdin.write(lines_of(JOB)[10:])
        process.stdin.flush()
        assert process.stdout.readline() == f"{number}\n".encode()
        assert rows(home, "SELECT count(*) FROM jobs") == [(number,)]
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_ctrl_c_keeps_what_was_answered(home: Home) -> None:
    process = start("enqueue", "--batch", "-", "--print-id", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines_of(JOB))
    process.stdin.flush()
    assert process.stdout.readline() == b"1\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert rows(home, "SELECT count(*) FROM jobs") == [(1,)]


def test_a_reader_that_goes_away_does_not_stop_the_work(home: Home) -> None:
    process = start("enqueue", "--batch", "-", "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(lines_of(*[JOB] * 400))
    process.stdin.close()
    assert process.stderr is not None
    assert (process.wait(30), process.stderr.read()) == (0, b"")
    process.stderr.close()
    until(lambda: rows(home, "SELECT count(*) FROM jobs") == [(400,)])


def test_a_home_that_cannot_answer_stops_the_batch(home: Home) -> None:
    configure(home, "[limits]\nnonsense = 1\n")
    done = clawq("enqueue", "--batch", "-", "--json", stdin=lines_of(*[JOB] * 1_200), code=78)
    assert len(answers(done)) == 1_000  # those that were asked about
    assert {each["reason"] for each in answers(done)} == {"config"}
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"clawq: lines 1 to 1000, and none after them: {home.config}:2: limits.nonsense")
