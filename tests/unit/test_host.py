"""The room that knows processes: real ones where they are the point, fixed bytes for the other platform."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.host import agent, attempt_file, output, platform, processes, wait_file
from tests.waiting import until

# The first 40 bytes of a struct kinfo_proc by the layout in macOS's sys/proc.h, of 1700000000.123456 s:
# p_starttime (8 bytes of seconds, 4 of microseconds, padding), two pointers, p_flag, p_stat (2 = SRUN).
KINFO = (
    bytes.fromhex("00f1536500000000")
    + bytes.fromhex("40e2010000000000")
    + bytes(16)
    + bytes.fromhex("04400000")
    + b"\x02"
    + bytes(3)
)


def test_macos_start_time_and_state_from_a_kinfo_proc() -> None:
    assert platform.start_time_of_kinfo(KINFO) == "1700000000.123456"
    assert platform.run_state_of_kinfo(KINFO) == "R"
    stopped, zombie = (KINFO[:36] + bytes([state]) + KINFO[37:] for state in (4, 5))
    assert (platform.run_state_of_kinfo(stopped), platform.run_state_of_kinfo(zombie)) == ("T", "Z")


def test_macos_answers_nothing_for_a_process_that_is_gone() -> None:
    assert platform.start_time_of_kinfo(b"") is None
    assert platform.run_state_of_kinfo(b"") is None


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_identified_by_its_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    itself = processes.identify(sleeper.pid)
    assert itself is not None
    assert processes.is_alive(itself)
    other = itself._replace(started="1")
    assert not processes.is_alive(other)
    assert not processes.send(other, signal.SIGKILL)
    assert sleeper.poll() is None
    assert processes.send(itself, signal.SIGTERM)
    assert sleeper.wait(10) == -signal.SIGTERM
    assert processes.identify(sleeper.pid) is None
    assert not processes.send(itself, signal.SIGTERM)


def test_stopped_and_zombie_processes_are_told_apart(sleeper: subprocess.Popen[bytes]) -> None:
    itself = processes.identify(sleeper.pid)
    assert itself is not None
    assert not processes.all_stopped([itself])
    sleeper.send_signal(signal.SIGSTOP)
    until(lambda: processes.all_stopped([itself]))
    sleeper.kill()
    until(lambda: platform.run_state(sleeper.pid) == "Z")
    assert processes.identify(sleeper.pid) is None
    assert not processes.all_stopped([])


def test_an_exit_watch_becomes_readable(sleeper: subprocess.Popen[bytes]) -> None:
    import select

    watch = platform.exit_watch(sleeper.pid)
    assert watch is not None
    assert select.select([watch], [], [], 0)[0] == []
    sleeper.kill()
    assert select.select([watch], [], [], 10)[0] == [watch]
    os.close(watch)


def test_no_exit_watch_for_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert platform.exit_watch(process.pid) is None


class Spawn:
    """One agent under its shell, in a folder of its own."""

    def __init__(self, folder: Path, *argv: str, cwd: str = "/") -> None:
        self.log = folder / "log"
        self.path = str(folder / "7.attempt")
        env = dict(os.environb) | {b"CLAWQ_TOKEN": b"7"}
        self.pid, self.probe = agent.spawn(list(argv), cwd, env, self.path, str(self.log))

    def end(self) -> attempt_file.Reading:
        until(lambda: not attempt_file.is_locked(self.probe))
        os.waitpid(self.pid, 0)
        return attempt_file.read(self.probe)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-program"], 127),
        (["/etc"], 126),
        (["sh", "-c", "exec 3>&-; exit 5"], 5),
        # What an agent writes to the descriptor of that number is not the attempt's file.
        (["sh", "-c", "echo e 9 >&3; exit 4"], 4),
    ],
)
def test_the_attempt_file_tells_the_end(tmp_path: Path, argv: list[str], code: int) -> None:
    spawned = Spawn(tmp_path, *argv)
    reading = spawned.end()
    assert (reading.exit_code, reading.pid) == (code, spawned.pid)


def test_output_goes_to_the_log_and_the_folder_is_the_jobs(tmp_path: Path) -> None:
    spawned = Spawn(tmp_path, "sh", "-c", "pwd; echo error >&2", cwd="/usr")
    spawned.end()
    assert spawned.log.read_text() == "/usr\nerror\n"


def test_a_folder_that_is_gone_is_a_permanent_exit(tmp_path: Path) -> None:
    spawned = Spawn(tmp_path, "true", cwd=str(tmp_path / "gone"))
    assert spawned.end().exit_code == 126


def test_a_grandchild_that_outlives_the_agent_does_not_hold_the_lock(tmp_path: Path) -> None:
    spawned = Spawn(tmp_path, "sh", "-c", "sleep 60 & exit 0")
    assert spawned.end().exit_code == 0

    def left() -> list[processes.Process]:
        return agent.left_behind(spawned.pid, 7, leader_alive=False)

    until(lambda: [psutil.Process(process.pid).name() for process in left()] == ["sleep"])
    for process in left():
        processes.send(process, signal.SIGKILL)
    until(lambda: not agent.left_behind(spawned.pid, 7, leader_alive=False))


@pytest.mark.skipif(not platform.LINUX, reason="only Linux shows another process's environment")
def test_a_session_that_carries_another_token_is_somebody_elses(tmp_path: Path) -> None:
    spawned = Spawn(tmp_path, "sh", "-c", "sleep 60 & exit 0")
    spawned.end()
    assert agent.left_behind(spawned.pid, 8, leader_alive=False) == []
    for process in agent.left_behind(spawned.pid, 7, leader_alive=False):
        processes.send(process, signal.SIGKILL)


def test_term_to_the_group_leaves_the_shell_to_tell_the_end(tmp_path: Path) -> None:
    spawned = Spawn(tmp_path, "sleep", "60")
    until(lambda: attempt_file.read(spawned.probe).pid)
    until(lambda: processes.session_of(spawned.pid))
    agent.signal_tree(agent.leader_of(spawned.pid), 7, signal.SIGTERM)
    assert spawned.end().exit_code == 143


def test_a_token_is_used_once(tmp_path: Path) -> None:
    Spawn(tmp_path, "true").end()
    with pytest.raises(agent.SpawnFailed, match="File exists"):
        Spawn(tmp_path, "true")


def test_no_descriptor_leaks_whatever_goes_wrong(tmp_path: Path) -> None:
    before = len(psutil.Process().open_files()), psutil.Process().num_fds()
    (tmp_path / "log").mkdir()
    with pytest.raises(agent.CannotStart, match="Is a directory"):
        Spawn(tmp_path, "true")
    with pytest.raises(agent.CannotStart, match=r"null|embedded"):
        agent.spawn(["a\0b"], "/", {}, str(tmp_path / "8.attempt"), str(tmp_path / "log8"))
    assert (len(psutil.Process().open_files()), psutil.Process().num_fds()) == before


@pytest.mark.skipif(os.getuid() != 0 or not platform.LINUX, reason="needs root to become a limited user")
def test_no_room_for_another_process_is_told_apart_from_a_job_that_cannot_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code = (
        "import os, resource, sys\nfrom clawq.host import agent\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); os.setuid(61234)\n"
        "try: agent.spawn(['true'], '/', {}, sys.argv[1] + '/7.attempt', sys.argv[1] + '/log')\n"
        "except agent.SpawnFailed as failure: print('no room:', failure)\n"
    )
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(dir="/tmp")
    os.chmod(folder, 0o777)
    argv = [sys.executable, "-c", code, folder]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    shutil.rmtree(folder)
    assert done.stdout.startswith("no room:"), done.stderr


@given(
    st.lists(
        st.sampled_from(
            [
                "r 12",
                "e 0",
                "e 255",
                "r",
                "e",
                "garbage",
                "",
                "r x",
                "e -1",
                "e 256",
                "r 0",
                "r 9999999999",
                "\0\xff",
            ]
        )
    )
)
def test_reading_believes_only_whole_marks(lines: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write("\n".join(lines).encode("latin-1"))
        file.flush()
        reading = attempt_file.read(file.fileno())
    codes = [int(line.split()[1]) for line in lines if line in ("e 0", "e 255")]
    assert reading.exit_code == (codes[-1] if codes else None)
    assert reading.pid == (12 if "r 12" in lines else None)


def test_a_lock_is_seen_by_others_and_taken_when_free(tmp_path: Path) -> None:
    path = str(tmp_path / "1.attempt")
    holder = attempt_file.create(path)
    probe = attempt_file.open_probe(path)
    assert probe is not None
    assert attempt_file.is_locked(probe)
    fcntl.flock(holder, fcntl.LOCK_UN)
    assert not attempt_file.is_locked(probe)
    assert attempt_file.open_probe(str(tmp_path / "2.attempt")) is None
    os.close(holder)
    os.close(probe)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x08\x00b\x7f", "ab"),
        ("one\r\ntwo\rthree", "one\ntwothree"),
        ("\u202eright to left", "right to left"),
        ("tab\tstays", "tab\tstays"),
        ("\x9b31mold", "31mold"),
    ],
)
def test_plain_takes_out_what_a_terminal_would_obey(raw: str, shown: str) -> None:
    assert output.plain(raw) == shown


@given(st.text())
def test_plain_leaves_no_control_character(text: str) -> None:
    kept = output.plain(text)
    assert not [char for char in kept if ord(char) < 32 and char not in "\n\t"]
    assert "\x1b" not in kept


def test_the_last_lines_are_few_and_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n\n" for n in range(1_000)) + "x" * 100_000)
    lines = output.last_lines(str(log)).splitlines()
    assert len(lines) <= output.TAIL_LINES
    assert all(len(line) <= output.LINE_CHARS for line in lines)
    log.write_text("only\nthese two\n")
    assert output.last_lines(str(log)) == "only\nthese two"
    assert output.last_lines(str(tmp_path / "none")) == ""


def test_what_a_waiting_process_forks_does_not_wait(tmp_path: Path) -> None:
    """An agent's helper that goes into the background would else keep its job waiting for good."""
    path = wait_file.path_of(str(tmp_path), 7)
    lock = wait_file.hold(path)
    fork = multiprocessing.get_context("fork")
    started, over = fork.Event(), fork.Event()
    child = fork.Process(target=lambda: (started.set(), over.wait(20)))
    child.start()
    try:
        assert started.wait(20)
        assert wait_file.is_held(path)
        wait_file.let_go(lock)
        assert not wait_file.is_held(path)
    finally:
        over.set()
        child.join(20)
