"""What `clawq doctor` thinks of what it measured, a row a case; and its looks at the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawq.doctor import crontab
from clawq.host import strays
from clawq.paths import Home
from clawq.rules import checks
from clawq.rules.checks import BAD, OK, WARN, Check, Folder, Program
from tests.waiting import until

ROOT = Path(__file__).parents[2]

CASES: list[tuple[Check, str]] = [
    (checks.supervisor(None, False, 0, 0, "", "1", 0), WARN),
    (checks.supervisor(None, False, 0, 0, "", "1", 3), BAD),
    (checks.supervisor(7, False, 9, 60, "1", "1", 0), BAD),
    (checks.supervisor(7, True, 0, 60, "1", "1", 3), OK),
    (checks.supervisor(7, True, 0, 60, "1", "2", 3), WARN),
    (checks.service("/f", True, False, None, True), OK),
    (checks.service("/f", True, True, None, True), WARN),
    (checks.service("/f", False, None, None, True), WARN),
    (checks.service(None, False, None, "no systemd", True), WARN),
    (checks.config("/c", True, None), OK),
    (checks.config("/c", False, None), OK),
    (checks.config("/c", True, "/c:3: no"), BAD),
    (checks.sqlite("3.51.2", "x"), BAD),
    (checks.sqlite("3.51.3", "x"), OK),
    (checks.sqlite("3.50.6", "x"), BAD),
    (checks.sqlite("3.50.7", "x"), OK),
    (checks.sqlite("3.44.6", "x"), OK),
    (checks.sqlite("3.45.0", "x"), BAD),
    (checks.sqlite("3.54.1", "x"), OK),
    (checks.folders([Folder("/h", True, 0o700, True), Folder("/h/db", False, 0o600, True)]), OK),
    (checks.folders([Folder("/h", True, 0o710, True)]), WARN),
    (checks.folders([Folder("/h", True, 0o700, False)]), BAD),
    (checks.filesystem("ext4", "/h"), OK),
    (checks.filesystem("nfs4", "/h"), BAD),
    (checks.filesystem("fuse.sshfs", "/h"), BAD),
    (checks.filesystem(None, "/h"), OK),
    (checks.disk(511, 512), BAD),
    (checks.disk(600, 512), WARN),
    (checks.disk(1024, 512), OK),
    (checks.disk(1, None), OK),
    (checks.disk(None, 512), OK),
    (checks.wal(65, 100), WARN),
    (checks.wal(3, 100), OK),
    (checks.ceiling(None, 900, 1200, 30), OK),
    (checks.ceiling(500, 900, 1200, 30), OK),
    (checks.ceiling(1200, 900, 1200, 30), BAD),
    (checks.ceiling(1200, None, None, 30), OK),
    (checks.ceiling("off", 900, 1200, 30), WARN),
    (checks.room(8, {}, 100, 5), OK),
    (checks.room(8, {"qa": 12.0}, 100, 5), OK),
    (checks.room(8, {"qa": 13.0}, 100, 5), WARN),
    (checks.room(8, {"qa": 13.0}, None, 5), OK),
    (checks.descriptors(None, 8), OK),
    (checks.descriptors(256, 8), OK),
    (checks.descriptors(64, 8), WARN),
    (checks.orphans(None), OK),
    (checks.orphans([]), OK),
    (checks.orphans([5, 6]), WARN),
    (checks.clock(0, None), OK),
    (checks.clock(3_600_000, None), WARN),
    (checks.clock(0, 3_600_000), WARN),
    (checks.clock(0, -3_600_000), OK),  # a standby that waited for the lock
    (checks.crontab([], 0, None), OK),
    (checks.crontab(["a"], 2, None), WARN),
    (checks.crontab([], 2, "no such program"), OK),
]


@pytest.mark.parametrize(("check", "verdict"), CASES, ids=[f"{each.name}: {each.text}" for each, _ in CASES])
def test_verdicts(check: Check, verdict: str) -> None:
    assert check.verdict == verdict
    assert bool(check.fix) == (verdict != OK)


def test_a_gate_that_is_off_leaves_the_measured_kinds_measured() -> None:
    assert checks.room(8, {"qa": 13.0}, None, 5).text == "8 of qa at once are 104 processes"


def test_each_program_that_is_missing_is_a_line() -> None:
    found = [
        Program("a", "x", True, False),
        Program("b", "y", False, False),
        Program("c", "z", False, True),
        Program("d", "w", None, False),
    ]
    assert [(each.verdict, each.text) for each in checks.programs(found, "the service's PATH")] == [
        (WARN, "kind b: no executable 'y' on the service's PATH"),
        (BAD, "kind c: no executable 'z' on the service's PATH"),
    ]
    (good,) = checks.programs([found[0], found[3]], "the service's PATH")
    assert good.text == "1 of 2 programs of kinds found; looked for on the service's PATH"


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/a\040b rw - xfs /dev/sdb rw
40 22 0:50 / /tmp rw - tmpfs tmpfs rw
41 22 0:51 / /tmp rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me/q", "nfs4"),
        ("/homes", "ext4"),
        ("/home/a b/q", "xfs"),
        ("/tmp/x", "overlay"),
    ],
)
def test_the_mount_that_holds_a_path(path: str, kind: str) -> None:
    assert strays.type_in_mountinfo(MOUNTS, path) == kind


def test_the_type_in_a_mac_statfs() -> None:
    raw = bytes(72) + b"apfs".ljust(16, b"\0") + bytes(100)
    assert strays.type_in_statfs(raw) == "apfs"
    assert strays.type_in_statfs(bytes(100)) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS shows no environment of others")
def test_strays_are_those_of_this_queue_whose_attempt_is_over(home: Home, tmp_path: Path) -> None:
    def start(token: int, run: str) -> subprocess.Popen[bytes]:
        env = {"CLAWQ_TOKEN": str(token), "CLAWQ_PAYLOAD_FILE": f"{run}/{token}.payload"}
        return subprocess.Popen(["/bin/sleep", "30"], env=env)

    started = [start(1, home.run), start(2, home.run), start(1, "/elsewhere")]
    try:
        old, alive, _ = (process.pid for process in started)
        until(lambda: strays.strays(home.run, frozenset(), frozenset()) == sorted([old, alive]))
        assert strays.strays(home.run, frozenset({2}), frozenset()) == [old]
        assert strays.strays(home.run, frozenset({2}), frozenset({old})) == []
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_kinds_in_a_crontab() -> None:
    text = """
# 0 7 * * * clawq enqueue commented
0 7 * * *  clawq enqueue digest --dedupe-key 'd-{date}'
5 * * * *  cd /x && /opt/bin/clawq add --band bulk "site.qa" -- other
* * * * *  clawq status
"""
    known = {"commented", "digest", "site.qa", "other", "status"}
    assert crontab.kinds_in(text, known) == {"digest", "site.qa"}


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("#!/bin/sh\necho '0 7 * * * clawq enqueue digest'", "in [[schedules]] and in the crontab: digest"),
        ("#!/bin/sh\necho 'no crontab for me' >&2; exit 1", "no kind is both in it and in [[schedules]]"),
        ("#!/bin/sh\nsleep 5", "not checked: `crontab -l`: no answer"),
        (None, "not checked: `crontab -l`: No such file or directory"),
    ],
)
def test_the_crontab_is_asked(
    script: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if script is not None:
        (folder / "crontab").write_text(script.replace("sleep", "exec /bin/sleep"))
        (folder / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert crontab.check(["digest"]).text == text


def test_without_schedules_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(subprocess, "run", fail)
    assert crontab.check([]).verdict == OK


def test_the_wall_clock_against_the_kernels_own() -> None:
    import time

    now = time.time_ns() // 1_000_000
    ahead = strays.wall_ahead_ms(os.getpid(), now - 3_600_000, now)
    if sys.platform.startswith("linux"):
        assert ahead is not None
        assert 0 < ahead <= 3_600_000
    else:
        assert ahead is None


def documented(title: str) -> set[str]:
    """The words in the first column of a section's table."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def test_every_alert_and_every_check_is_documented() -> None:
    rules = ROOT / "clawq" / "rules"
    alerts = re.findall(r'Alert\(\s*"(\w+)"', (rules / "alerts.py").read_text(encoding="utf-8"))
    assert len(set(alerts)) > 12
    assert documented("Alerts") == set(alerts)
    source = (rules / "checks.py").read_text(encoding="utf-8")
    names = re.findall(r'Check\(\s*"(\w+)"', source) + re.findall(r'name = "(\w+)"', source)
    assert documented("Doctor") == set(names)
