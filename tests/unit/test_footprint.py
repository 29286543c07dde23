"""What a process tree uses, asked of real ones; and whose a session is, whatever forked and ended before."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.host import footprint, platform, processes
from clawq.host.footprint import Usage, measure, trees
from clawq.paths import Home
from clawq.rules.footprint import grown_beyond
from clawq.supervisor.agents import Agent, outside_file
from clawq.supervisor.look import Findings, left_over, measure_trees
from tests.waiting import until

needs_linux = pytest.mark.skipif(not platform.LINUX, reason="macOS does not tell it")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Long enough to be measured, and gone by itself should the test be killed.
SLEEP = "sleep 120"

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program as an agent's shell is started; its pid. Whatever it started is ended afterwards."""
    leaders: list[subprocess.Popen[bytes]] = []

    def spawn(*argv: str, **env: str) -> int:
        process = subprocess.Popen(
            argv,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        leaders.append(process)
        return process.pid

    yield spawn
    for process in leaders:
        for pid in tree(process.pid):
            member = processes.identify(pid)
            if member is not None and pid != process.pid:
                processes.send(member, signal.SIGKILL)
        process.kill()
        process.wait()


def tree(leader: int) -> list[int]:
    return trees({1: leader}, footprint._sessions(), platform.parent_of).get(1, [])


def grown(leader: int, procs: int) -> Usage:
    """Its usage once it has exactly so many processes."""
    found: dict[int, Usage] = {}

    def has_grown() -> bool:
        found.update(measure({1: leader}))
        return 1 in found and found[1].procs == procs

    until(has_grown, 30, lambda: f"{procs} processes awaited, there are {found.get(1)}")
    return found[1]


# ---------------------------------------------------------------- real trees


def test_a_shell_and_what_it_started(start: Start) -> None:
    usage = grown(start("sh", "-c", f"{SLEEP} & {SLEEP} & {SLEEP} & wait"), 4)
    assert usage.mb < 20


def test_each_agent_has_its_own(start: Start) -> None:
    one, three = (
        start("sh", "-c", f"{SLEEP} & wait"),
        start("sh", "-c", f"{SLEEP} & {SLEEP} & {SLEEP} & wait"),
    )
    grown(one, 2)
    grown(three, 4)
    found = measure({7: one, 9: three})
    assert {token: usage.procs for token, usage in found.items()} == {7: 2, 9: 4}


def test_an_agent_that_is_gone_is_left_out(start: Start) -> None:
    pid = start("true")
    os.waitpid(pid, 0)
    assert measure({1: pid}) == {}
    assert measure({}) == {}


NEW_SESSION = f"""
import os, sys
os.setsid()
os.execvp("sh", ["sh", "-c", "{SLEEP} & {SLEEP} & wait"])
"""


def test_children_in_a_session_of_their_own(start: Start) -> None:
    """The shell, its child that became a leader, and that one's two."""
    grown(start("sh", "-c", f'"$0" -c "$1" & {SLEEP} & wait', sys.executable, NEW_SESSION), 5)


def test_a_storm_of_forks_is_counted_whole(start: Start) -> None:
    code = f"""
import os, time
for _ in range(30):
    if os.fork() == 0:
        os.execvp("sleep", {SLEEP.split()!r})
time.sleep(120)
"""
    grown(start(sys.executable, "-c", code), 31)


@needs_linux
def test_a_zombie_counts(start: Start) -> None:
    code = "import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(120)"
    leader = start(sys.executable, "-c", code)
    grown(leader, 2)
    until(lambda: "Z" in [platform.run_state(pid) for pid in tree(leader)])
    assert measure({1: leader})[1].procs == 2


def test_memory_that_it_wrote_to(start: Start) -> None:
    leader = start(sys.executable, "-c", "import time; held = b'x' * (64 << 20); time.sleep(120)")
    until(lambda: measure({1: leader})[1].mb >= 64)
    assert measure({1: leader})[1].mb < 110


def test_a_busy_tree_is_told_from_a_quiet_one(start: Start) -> None:
    busy, quiet = start("sh", "-c", "while :; do :; done"), start("sh", "-c", f"{SLEEP} & wait")
    grown(quiet, 2)
    before = measure({1: busy, 2: quiet})
    until(lambda: measure({1: busy})[1].cpu_ms >= before[1].cpu_ms + 30)
    assert measure({2: quiet})[2].cpu_ms == before[2].cpu_ms


@needs_linux
def test_cpu_time_of_children_that_ended_stays(start: Start) -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass"
    leader = start("sh", "-c", f'"$0" -c "$1"; {SLEEP} & wait', sys.executable, work)
    until(lambda: [pid for pid in tree(leader) if _is_sleep(pid)], 30)
    assert measure({1: leader})[1].cpu_ms >= 150


def _is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:
        return False


@needs_linux
def test_a_name_cannot_confuse_it(start: Start, tmp_path: Path) -> None:
    odd = tmp_path / "x) S 1 1 1 ("
    shutil.copy(shutil.which("sleep") or "/bin/sleep", odd)
    leader = start("sh", "-c", '"$0" 120 & wait', str(odd))
    grown(leader, 2)
    assert all(platform.parent_of(pid) == leader for pid in tree(leader) if pid != leader)


@needs_linux
def test_an_orphan_that_came_to_us_belongs_by_its_token() -> None:
    """A daemon's double fork: its parent has gone, its session is its own, and we are its subreaper."""
    daemon = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", {SLEEP.split()!r})
    os._exit(0)
os.wait()
os.execvp("sh", ["sh", "-c", "{SLEEP} & wait"])
"""
    supervisor = f"""
import os, subprocess, sys
from clawq.host import footprint, platform, processes
from tests.waiting import until
platform.become_subreaper()
argv = [sys.executable, "-c", {daemon!r}]
agents = [subprocess.Popen(argv, start_new_session=True, env=dict(os.environ, CLAWQ_TOKEN=t)) for t in "78"]
leaders = dict(zip((7, 8), [agent.pid for agent in agents]))
try:
    until(lambda: len(platform.own_children()) == 4, 30)
    until(lambda: [usage.procs for usage in footprint.measure(leaders).values()] == [3, 3], 30)
    alone = lambda: {{token: usage.procs for token, usage in footprint.measure({{7: leaders[7]}}).items()}}
    until(lambda: alone() == {{7: 3}}, 30)  # in the middle of its exec a process shows no token
    print("as many alone")
finally:
    for process in processes.descendants_of(platform.own_children()):
        processes.send(process, 9)
"""
    run = subprocess.run(
        [sys.executable, "-c", supervisor],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.stdout == "as many alone\n", run.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@needs_linux
def test_a_browser(start: Start, tmp_path: Path) -> None:
    """All its processes are found, and its memory is of the order of what the kernel itself tells."""
    assert CHROMIUM is not None
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
    ]  # fmt: skip
    leader = start(CHROMIUM, *options, f"--user-data-dir={tmp_path}", "about:blank")
    until(lambda: any("--type=renderer" in _command(pid) for pid in tree(leader)), 60)
    until(lambda: measure({1: leader})[1].mb > 50, 60)
    usage, pids = measure({1: leader})[1], tree(leader)
    assert usage.procs >= 4
    assert all(str(tmp_path) in _command(pid) or "--type=" in _command(pid) for pid in pids if _command(pid))
    pss_mb = sum(map(_pss_kb, pids)) / 1024
    assert 0.3 < usage.mb / pss_mb < 1.2


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _pss_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


# ---------------------------------------------------------------- whose a session is

INIT, US = 1, 2


class Machine:
    """Processes that fork, leave their session and end, as the kernel sees them; and who came of whom."""

    def __init__(self, agents: int) -> None:
        self.parent = {INIT: 0, US: INIT}
        self.session = {INIT: INIT, US: US}
        self.origin: dict[int, int] = {}
        """The agent that it descends from, whatever became of those between."""
        self.next_pid = 10
        self.leaders: dict[int, int] = {}
        for token in range(100, 100 + agents):
            self.leaders[token] = self.fork(US)
            self.origin[self.leaders[token]] = token
            self.setsid(self.leaders[token])

    def fork(self, pid: int) -> int:
        child, self.next_pid = self.next_pid, self.next_pid + 1
        self.parent[child], self.session[child] = pid, self.session[pid]
        if pid in self.origin:
            self.origin[child] = self.origin[pid]
        return child

    def setsid(self, pid: int) -> None:
        self.session[pid] = pid

    def end(self, pid: int) -> None:
        self.parent = {
            each: INIT if above == pid else above for each, above in self.parent.items() if each != pid
        }
        del self.session[pid]

    def play(self, moves: list[tuple[str, int]]) -> None:
        for move, draw in moves:
            pids = [pid for pid in sorted(self.session) if pid not in (INIT, US)]
            if move == "fork":
                self.fork(([US, INIT, *pids])[draw % (len(pids) + 2)])
            elif pids and move == "setsid":
                self.setsid(pids[draw % len(pids)])
            elif pids and pids[draw % len(pids)] not in self.leaders.values():
                self.end(pids[draw % len(pids)])

    def told(self) -> dict[int, set[int]]:
        found = trees(self.leaders, self.session, lambda pid: self.parent.get(pid))
        return {token: set(pids) for token, pids in found.items()}

    def below(self, leader: int) -> set[int]:
        """By the plain definition: the session, and whoever has a parent in the tree."""
        inside = {pid for pid, session in self.session.items() if session == leader}
        while True:
            more = {pid for pid, above in self.parent.items() if above in inside} - inside
            if not more:
                return inside
            inside |= more


def remembered(machine: Machine, told: dict[int, set[int]]) -> dict[int, int]:
    """{session: token} of those that were told outside of their agent's session, and live."""
    return {
        machine.session[pid]: token
        for token, pids in told.items()
        for pid in pids
        if pid in machine.session and machine.session[pid] != machine.leaders[token]
    }


def moves(*kinds: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 10_000)), max_size=60)


@given(st.integers(1, 4), moves("fork", "setsid"))
def test_without_ends_a_tree_is_all_that_ever_came_of_its_agent(
    agents: int, played: list[tuple[str, int]]
) -> None:
    machine = Machine(agents)
    machine.play(played)
    origins: dict[int, set[int]] = {}
    for pid, token in machine.origin.items():
        origins.setdefault(token, set()).add(pid)
    assert machine.told() == origins


@given(st.integers(1, 4), moves("fork", "fork", "setsid", "end"))
def test_with_ends_nobody_gets_anothers_and_no_child_of_the_living_is_missed(
    agents: int, played: list[tuple[str, int]]
) -> None:
    machine = Machine(agents)
    machine.play(played)
    told = machine.told()
    for token, leader in machine.leaders.items():
        assert machine.below(leader) <= told[token]
        assert {machine.origin[pid] for pid in told[token]} == {token}
    assert sum(map(len, told.values())) == len(set().union(*told.values()))


@given(st.integers(1, 3), st.lists(moves("fork", "fork", "setsid", "end"), max_size=5))
def test_whoever_a_look_has_seen_outside_is_found_again_with_all_that_came_of_it(
    agents: int, played: list[list[tuple[str, int]]]
) -> None:
    machine = Machine(agents)
    told: dict[int, set[int]] = {}
    for some in played:
        machine.play(some)
        known = remembered(machine, told)
        seen = {pid for pids in told.values() for pid in pids if pid in machine.session}
        found = trees(machine.leaders, machine.session, machine.parent.get, known=known)
        told = {token: set(pids) for token, pids in found.items()}
        assert seen <= set().union(*told.values())
        for token, pids in told.items():
            assert {machine.origin[pid] for pid in pids} <= {token}


class Mac:
    """What macOS's kernel tells of these: {pid: (parent, session, start in s)}."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: dict[int, tuple[int, int, int]]) -> None:
        self.table = table
        monkeypatch.setattr(platform, "LINUX", False)
        monkeypatch.setattr(platform, "all_pids", lambda: list(self.table))
        monkeypatch.setattr(platform, "usage_of", lambda pid: (0, 0))
        monkeypatch.setattr(platform, "_sysctl", lambda name: self.kinfo(name[3]))
        monkeypatch.setattr(os, "getsid", self.getsid)
        monkeypatch.setattr(os, "getpgid", self.getsid)

    def kinfo(self, pid: int) -> bytes:
        """A struct kinfo_proc by its layout: p_starttime first, p_stat (2 = SRUN) at 36, e_ppid at 560."""
        if pid not in self.table:
            return b""
        parent, _, started = self.table[pid]
        raw = bytearray(648)
        struct.pack_into("<qi", raw, 0, started, 250_000)
        raw[36] = 2
        struct.pack_into("<i", raw, 560, parent)
        return bytes(raw)

    def getsid(self, pid: int) -> int:
        if pid not in self.table:
            raise ProcessLookupError
        return self.table[pid][1]


def test_macos_finds_again_what_a_look_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No subreaper and no environment of others: once 60 has ended, nothing but memory tells whose 70 is."""
    mac = Mac(
        monkeypatch, {1: (0, 1, 5), 50: (9, 50, 20), 60: (50, 50, 21), 70: (60, 70, 22), 90: (1, 90, 6)}
    )
    seen = measure({7: 50})[7].outside
    assert seen == (processes.Process(70, "22.250000"),)
    del mac.table[60]
    mac.table |= {70: (1, 70, 22), 71: (70, 71, 30)}
    assert measure({7: 50})[7].outside == ()
    assert [each.pid for each in measure({7: 50}, {7: seen})[7].outside] == [70, 71]
    del mac.table[50]
    agent = an_agent(50, seen)
    assert sorted(process.pid for process in left_over(agent, set())) == [70, 71]
    del mac.table[70]
    assert [process.pid for process in left_over(agent, set())] == [71]


def test_macos_leaves_alone_whoever_has_that_pid_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pid that was used again: an unrelated process was signalled."""
    mac = Mac(monkeypatch, {1: (0, 1, 5), 70: (1, 70, 40), 71: (70, 70, 41)})
    agent = an_agent(50, (processes.Process(70, "22.250000"),))
    assert left_over(agent, set()) == []
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
    processes.send_all(agent.outside, signal.SIGKILL)
    assert signalled == []
    mac.table[70] = (1, 70, 22)
    processes.send_all(agent.outside, signal.SIGKILL)
    assert signalled == [70]


def an_agent(leader: int, outside: tuple[processes.Process, ...]) -> Agent:
    """One whose shell was `leader`, of this supervisor."""
    return Agent(
        token=7,
        job_id=1,
        number=1,
        kind="default",
        log="",
        lease_ms=1,
        grace_ms=1,
        timeout_ms=1,
        heartbeat="process",
        deadline_at=None,
        started=0,
        last_sign=0,
        owned=True,
        pid=leader,
        probe=None,
        outside=outside,
    )


def test_what_was_seen_is_kept_for_the_next_supervisor(home: Home) -> None:
    os.makedirs(home.run)
    seen = (processes.Process(70, "22.250000"), processes.Process(71, "8812"))
    an_agent(50, ()).remember(seen, home)
    next_one = an_agent(50, ())
    next_one.recall(home)
    assert next_one.outside == seen
    Path(outside_file(home, 7)).write_bytes(b"70 22.250000\n4444444444444 1\n\xff 1\n71\n\n-1 5\n72 9 9\n")
    next_one.recall(home)
    assert next_one.outside == seen[:1]


def test_what_cannot_be_kept_is_remembered_all_the_same(home: Home) -> None:
    """A run folder that cannot be written."""
    agent = an_agent(50, ())
    agent.remember((processes.Process(70, "1"),), home)
    assert agent.outside == (processes.Process(70, "1"),)


def test_a_member_of_a_leaderless_session_whose_parent_adopts_orphans() -> None:
    sessions = {INIT: INIT, 50: 50, 51: 50, 70: 69}
    assert trees({1: 50}, sessions, {INIT: 0, 50: US, 51: 50, 70: 51}.get) == {1: [50, 51, 70]}


def test_a_leader_that_ends_during_the_walk_leaves_the_word_to_its_session() -> None:
    """Process 70 was there when the sessions were read, and is gone when its parent is asked for."""
    sessions = {50: 50, 51: 50, 70: 70, 71: 70}
    assert trees({1: 50}, sessions, {50: US, 51: 50, 71: 51}.get) == {1: [50, 51, 70, 71]}


def test_sessions_inside_sessions_as_deep_as_pids_go() -> None:
    deep = range(10, 30_000)
    assert trees({1: 10}, {pid: pid for pid in deep}, lambda pid: pid - 1)[1] == list(deep)


def test_parents_in_a_circle_are_nobodys() -> None:
    """Two looks at a machine that moves on may not agree."""
    assert trees({1: 50}, {50: 50, 60: 60, 61: 61}, {50: 1, 60: 61, 61: 60}.get) == {1: [50]}


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_private_is_resident_less_shared_and_never_negative(resident: int, shared: int) -> None:
    text = f"{1 << 41} {resident} {shared} 25 0 1200 0\n".encode()
    page = os.sysconf("SC_PAGE_SIZE")
    assert platform.private_in_statm(text) == max(0, resident - shared) * page
    assert platform.private_in_statm(b"") == 0


# ---------------------------------------------------------------- over the limit


@pytest.mark.parametrize(
    ("procs", "mb", "max_procs", "max_mb", "said"),
    [
        (72, 10, 60, None, "72 processes, limit 60"),
        (2, 4_100, 60, 4_000, "4100 MB, limit 4000"),
        (72, 4_100, 60, 4_000, "72 processes, limit 60; 4100 MB, limit 4000"),
        (60, 4_000, 60, 4_000, None),
        (10_000, 10_000, None, None, None),
    ],
)
def test_what_outgrew_its_limit(
    procs: int, mb: int, max_procs: int | None, max_mb: int | None, said: str | None
) -> None:
    assert grown_beyond(procs, mb, max_procs, max_mb) == said


@given(st.integers(0, 99), st.integers(0, 99), st.none() | st.integers(0, 99), st.none() | st.integers(0, 99))
def test_outgrown_is_more_than_allowed(
    procs: int, mb: int, max_procs: int | None, max_mb: int | None
) -> None:
    over = (max_procs is not None and procs > max_procs) or (max_mb is not None and mb > max_mb)
    assert (grown_beyond(procs, mb, max_procs, max_mb) is not None) == over


@pytest.mark.parametrize("computes", [True, False])
def test_a_tree_that_computes_gives_a_sign_of_it(home: Home, computes: bool) -> None:
    os.makedirs(home.run)
    script = "while :; do :; done" if computes else "sleep 60; :"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    agent = an_agent(process.pid, ())
    try:
        measure_trees([agent], home, Findings(), 5_000, 0)
        assert agent.worked_at is None  # by one look nobody can tell
        first = footprint.measure({7: process.pid})[7].cpu_ms
        if computes:
            until(lambda: footprint.measure({7: process.pid})[7].cpu_ms >= first + 50)
        measure_trees([agent], home, Findings(), 6_000, 1_000)
        assert agent.worked_at == (6_000 if computes else None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
