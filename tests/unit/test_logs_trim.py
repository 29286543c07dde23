"""Endless output: the head and the tail of a log stay, the middle is cut, and a writer goes on at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawq.host import logs
from clawq.rules.footprint import fills_the_disk
from tests.waiting import until

MB = 1 << 20


def numbered(path: Path, lines: int) -> bytes:
    path.write_bytes(b"".join(b"line %08d\n" % n for n in range(lines)))
    return path.read_bytes()


@pytest.mark.parametrize(("size", "most"), [(0, 100), (100, 100), (1, 1)])
def test_what_is_small_enough_is_left_alone(size: int, most: int) -> None:
    assert logs.plan(size, most) is None


@pytest.mark.parametrize("size", [1_001, 1_400, 100_000_000_000])
def test_a_quarter_at_the_head_and_half_at_the_end_are_kept(size: int) -> None:
    assert logs.plan(size, 1_000) == logs.Plan(250, 500)


def test_the_head_and_the_tail_are_as_they_were_with_a_note_between(tmp_path: Path) -> None:
    path = tmp_path / "log"
    before = numbered(path, 100_000)
    cut = logs.trim(str(path), 1 << 20)
    assert cut is not None
    after = path.read_bytes()
    head, tail = before[: MB // 4], before[-(MB // 2) :]
    assert after == head + logs.note(cut) + tail
    assert cut == len(before) - len(head) - len(tail)
    assert b" MB cut here by clawq" in logs.note(cut)


def test_a_second_cut_adds_to_the_first_and_leaves_one_note(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbered(path, 100_000)
    first = logs.trim(str(path), MB)
    with open(path, "ab") as file:
        file.write(b"more\n" * 200_000)
    second = logs.trim(str(path), MB)
    assert first
    assert second
    after = path.read_bytes()
    assert after.count(b"cut here by clawq") == 1
    assert logs.note(first + second) in after
    assert len(after) < MB
    assert after.startswith(b"line 00000000\n")
    assert after.endswith(b"more\n")


def test_a_file_of_nothing_but_holes_costs_no_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.truncate(1 << 38)
    assert logs.trim(str(path), MB)
    assert path.stat().st_size < MB


def test_its_time_of_change_stays_for_it_is_a_sign_of_life(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbered(path, 100_000)
    os.utime(path, ns=(10**18, 10**18))
    assert logs.trim(str(path), MB)
    assert path.stat().st_mtime_ns == 10**18


def test_what_is_no_ordinary_file_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    whole = numbered(target, 100_000)
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder", "gone"):
        assert logs.trim(str(tmp_path / name), 1) is None
    assert target.read_bytes() == whole


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for n in range(int(sys.argv[2])):
    os.write(file, b"".join(b"%011d\\n" % (n * 1000 + m) for m in range(1000)))
"""


def test_a_fast_writer_goes_on_and_its_lines_stay_in_order(tmp_path: Path) -> None:
    path, most = tmp_path / "log", 2 * MB
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "3000"])
    trims = []
    try:
        until(path.exists)
        while writer.poll() is None:
            trims.append(logs.trim(str(path), most))
    finally:
        writer.kill()
        writer.wait()
    logs.trim(str(path), most)
    assert sum(1 for cut in trims if cut) >= 3
    after = path.read_bytes()
    assert len(after) <= most
    head, _, tail = after.partition(b"\n... ")
    assert head.startswith(b"00000000000\n00000000001\n")
    # Between the note and the end nothing is out of order, and the last line written is the last there.
    numbers = [int(line) for line in tail.splitlines()[2:] if len(line) == 11]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2_999_999


def test_a_writer_that_cannot_be_outrun_is_cut_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "ab") as file:
        yes = subprocess.Popen(["yes"], stdout=file)
    try:
        until(lambda: path.stat().st_size > 8 * MB)
        assert logs.trim(str(path), 4 * MB)
    finally:
        yes.send_signal(signal.SIGKILL)
        yes.wait()
    logs.trim(str(path), 4 * MB)
    assert path.stat().st_size <= 4 * MB
    assert b"cut here by clawq" in path.read_bytes()


@pytest.mark.parametrize(
    ("writers", "free", "floor", "ended"),
    [
        ({1: 5.0, 2: 80.0}, 255, 512, 2),
        ({1: 5.0, 2: 80.0}, 256, 512, None),
        ({1: 0.2, 2: 0.9}, 0, 512, None),
        ({}, 0, 512, None),
        ({1: 50.0}, None, 512, None),
        ({1: 50.0}, 0, None, None),
    ],
)
def test_the_fastest_writer_goes_when_half_of_the_floor_is_left(
    writers: dict[int, float], free: int | None, floor: int | None, ended: int | None
) -> None:
    assert fills_the_disk(writers, free, floor) == ended
