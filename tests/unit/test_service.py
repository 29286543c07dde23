"""The files that launchd and systemd read: key by key, by the real parsers, and as the manager would ask."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.errors import ClawqError, UsageError
from clawq.host import services
from clawq.service import MARK, Service, check, launchd, name_of, systemd

RECORDED = Path(__file__).parents[1] / "fixtures" / "launchctl"
PLAIN = Service(
    "clawq",
    ("/Users/you/.local/bin/clawq", "run", "--standby"),
    {"PATH": "/opt/homebrew/bin:/usr/bin:/bin"},
    "/Users/you",
    "/Users/you/Library/Logs/clawq/supervisor.log",
)
STRANGE = '/tmp/a b/100%/c"d\\e/Größe $HOME/&<x>/%h'
"""A space, a percent sign, quotes, a backslash, no ASCII, what looks like a variable, XML and a specifier."""
PATHS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(lambda text: "/" + text)


def strange(service: Service = PLAIN) -> Service:
    return service._replace(
        argv=(f"{STRANGE}/clawq", "run", "--standby"),
        environment={"PATH": STRANGE, "CLAWQ_HOME": STRANGE},
        folder=STRANGE,
        log=f"{STRANGE}/supervisor.log",
    )


# ---------------------------------------------------------------- launchd


def test_the_plist_says_exactly_this() -> None:
    assert plistlib.loads(launchd.plist(PLAIN).encode()) == {
        "Label": "clawq",
        "ProgramArguments": ["/Users/you/.local/bin/clawq", "run", "--standby"],
        "EnvironmentVariables": {"PATH": "/opt/homebrew/bin:/usr/bin:/bin"},
        "WorkingDirectory": "/Users/you",
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ProcessType": "Interactive",
        "ExitTimeOut": 20,
        "StandardOutPath": "/Users/you/Library/Logs/clawq/supervisor.log",
        "StandardErrorPath": "/Users/you/Library/Logs/clawq/supervisor.log",
    }


def test_a_daemon_has_a_user_besides_and_nothing_else() -> None:
    agent, daemon = launchd.keys(PLAIN), launchd.keys(PLAIN._replace(user="you"))
    assert daemon == agent | {"UserName": "you"}


def test_no_plist_limits_processes() -> None:
    """Launchd counts those that run already: with a limit below that every fork would fail."""
    text = launchd.plist(PLAIN._replace(user="you"))
    assert "NumberOfProcesses" not in text
    assert "ResourceLimits" not in text


def test_a_plist_is_xml_that_says_who_wrote_it() -> None:
    text = launchd.plist(strange())
    ElementTree.fromstring(text)
    assert MARK in text
    said = plistlib.loads(text.encode())
    assert said["ProgramArguments"][0] == f"{STRANGE}/clawq"
    assert said["StandardErrorPath"] == f"{STRANGE}/supervisor.log"
    assert launchd.environment_in(text) == {"PATH": STRANGE, "CLAWQ_HOME": STRANGE}


@pytest.mark.parametrize("text", ["", "not xml", "<plist", "<plist><array/></plist>", "\udcff"])
def test_what_somebody_made_of_a_plist_is_no_crash(text: str) -> None:
    assert launchd.environment_in(text) == {}


# ---------------------------------------------------------------- systemd


def test_the_unit_says_what_it_must() -> None:
    lines = systemd.unit(PLAIN).splitlines()
    for line in (
        'ExecStart="/Users/you/.local/bin/clawq" run --standby',
        'Environment="PATH=/opt/homebrew/bin:/usr/bin:/bin"',
        "KillMode=process",
        "Restart=on-failure",
        "RestartSec=10",
        "OOMPolicy=continue",
        "WantedBy=default.target",
        "StartLimitIntervalSec=0",
    ):
        assert line in lines
    assert not any(line.startswith(("TasksMax", "LimitNPROC")) for line in lines)


@given(PATHS)
def test_what_a_unit_sets_can_be_read_back(value: str) -> None:
    service = PLAIN._replace(environment={"PATH": value, "CLAWQ_HOME": "/q"})
    assert systemd.environment_in(systemd.unit(service)) == {"PATH": value, "CLAWQ_HOME": "/q"}


FOLDERS = {
    "plain": "bin",
    "spaced": "a b 100% \u00f6 $HOME",
    "quoted": "a b' 100% \"\u00f6\\ $HOME",  # systemd takes such a path as an argument only
}


@pytest.mark.parametrize("which", FOLDERS)
def test_systemd_itself_accepts_the_unit(which: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    folder = tmp_path / FOLDERS[which]
    folder.mkdir()
    program = folder / "clawq"
    program.symlink_to("/bin/true")  # it has to be there and executable
    service = (PLAIN if which == "plain" else strange())._replace(argv=(str(program), "run", "--standby"))
    unit = tmp_path / "clawq.service"
    unit.write_text(systemd.unit(service), encoding="utf-8")
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    argv = [analyze, "--user", "verify", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    # It warns of what it does not know and of what it cannot find, and still ends with 0.
    assert str(unit) not in done.stderr
    assert "clawq" not in done.stderr


# ---------------------------------------------------------------- names and checks


def test_every_queue_has_a_service_of_its_own() -> None:
    assert name_of(None) == "clawq"
    assert name_of("/srv/work queue/") == name_of("/srv/work queue/")
    assert name_of("/srv/a/q") != name_of("/srv/b/q")
    assert name_of("/srv/work queue").startswith("clawq-work-queue-")
    assert name_of("/").startswith("clawq-queue-")


@pytest.mark.parametrize("value", ["/a\nExecStart=/bin/evil", "/a\x1b[2J", "/a\udcff"])
def test_what_no_file_can_hold_is_refused(value: str) -> None:
    check(PLAIN)
    check(strange())
    with pytest.raises(UsageError, match="CLAWQ_HOME has a control character or is not UTF-8"):
        check(PLAIN._replace(environment={"CLAWQ_HOME": value}))
    with pytest.raises(UsageError, match="the path of clawq"):
        check(PLAIN._replace(argv=(value, "run")))


# ---------------------------------------------------------------- what the managers say


class Recorder:
    """A program on PATH that answers as a real one did, and writes down how it was asked."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = folder / f"{name}.asked"
        self.answers = folder / f"{name}.json"
        bin_folder = folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        program = bin_folder / name
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, sys\n"
            f"with open({str(self.asked)!r}, 'a') as file: file.write(' '.join(sys.argv[1:]) + '\\n')\n"
            f"code, out, err = json.load(open({str(self.answers)!r})).get(sys.argv[1], (0, '', ''))\n"
            "sys.stdout.write(out); sys.stderr.write(err); sys.exit(code)\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
        self.answer()

    def answer(self, **answers: tuple[int, str, str]) -> None:
        self.answers.write_text(json.dumps(answers))

    def calls(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def launchctl(unreachable_home: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(unreachable_home, "launchctl", monkeypatch)


GUI = f"gui/{os.getuid()}"
NOT_FOUND = (113, "", 'Bad request.\nCould not find service "clawq" in domain for user gui: 501\n')


def agent() -> services.Launchd:
    return services.Launchd("clawq", "/Users/you")


def test_launchd_is_asked_for_the_agent(launchctl: Recorder) -> None:
    launchctl.answer(print=(0, (RECORDED / "print-running.txt").read_text(), ""))
    seen = agent().seen()
    assert (seen.loaded, seen.running, seen.pid, seen.problem) == (True, True, 4711, None)
    launchctl.answer(print=(0, (RECORDED / "print-stopped.txt").read_text(), ""))
    seen = agent().seen()
    assert (seen.loaded, seen.running, seen.pid) == (True, False, None)
    launchctl.answer(print=NOT_FOUND)
    seen = agent().seen()
    assert (seen.loaded, seen.running, seen.problem) == (False, False, None)
    assert set(launchctl.calls()) == {f"print {GUI}/clawq"}


def test_an_account_that_is_not_logged_in_at_the_screen(launchctl: Recorder) -> None:
    no = (125, "", "Bootstrap failed: 125: Domain does not support specified action\n")
    launchctl.answer(print=no, bootstrap=no)
    assert agent().seen().problem == "this account has no graphical session"
    with pytest.raises(ClawqError, match=r"125: .*: log this account in at the screen, or use .*--daemon"):
        agent().tell(("launchctl", "bootstrap", GUI, agent().file))


def test_what_launchd_is_told(launchctl: Recorder) -> None:
    manager, target = agent(), f"{GUI}/clawq"
    load = [("launchctl", "enable", target), ("launchctl", "bootstrap", GUI, manager.file)]
    out = ("launchctl", "bootout", target)
    running, stopped = services.Seen(True, True, 1), services.Seen(True, False)
    absent = services.Seen(False, False)
    assert manager.starting(absent, changed=True) == load
    assert manager.starting(running, changed=True) == [out, *load]
    assert manager.starting(running, changed=False) == []
    assert manager.starting(stopped, changed=False) == [("launchctl", "kickstart", target)]
    assert manager.before_removal(running) == [out]
    assert manager.before_removal(absent) == []
    launchctl.answer(bootout=(36, "", "Boot-out failed: 36: Operation now in progress\n"), print=NOT_FOUND)
    manager.tell(out)
    assert launchctl.calls() == [f"bootout {target}", f"print {target}"]


def test_a_daemon_is_the_machines() -> None:
    daemon = services.Launchd("clawq", "/Users/you", daemon=True)
    assert daemon.file == "/Library/LaunchDaemons/clawq.plist"
    assert daemon.target == "system/clawq"


def test_systemd_is_asked_and_told(unreachable_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl = Recorder(unreachable_home, "systemctl", monkeypatch)
    manager = services.Systemd("clawq", {}, "/home/you")
    assert manager.file == "/home/you/.config/systemd/user/clawq.service"
    said = "LoadState=loaded\nActiveState=active\nMainPID=812\nNeedDaemonReload=yes\n"
    # The fake looks at its first word, which is --user.
    systemctl.answer(**{"--user": (0, said, "")})
    seen = manager.seen()
    assert (seen.loaded, seen.running, seen.pid, seen.stale) == (True, True, 812, True)
    assert manager.starting(seen, changed=True)[-1][2] == "restart"
    assert manager.starting(seen, changed=False)[-1][2] == "start"
    systemctl.answer(**{"--user": (0, "LoadState=not-found\nActiveState=inactive\nMainPID=0\n", "")})
    seen = manager.seen()
    assert (seen.loaded, seen.running, seen.pid) == (False, False, None)
    systemctl.answer(**{"--user": (1, "", "Failed to connect to bus: No medium found\n")})
    assert manager.seen().problem == "Failed to connect to bus: No medium found"
    with pytest.raises(ClawqError, match=r"No medium found: no systemd .* `loginctl enable-linger`"):
        manager.tell(("systemctl", "--user", "daemon-reload"))


def test_a_machine_without_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert agent().seen().problem == "there is no launchctl on PATH"
    with pytest.raises(ClawqError, match=r"no systemctl on PATH: .*`clawq run --standby`"):
        services.run(("systemctl", "--user", "daemon-reload"))


def test_a_machine_that_cannot_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", no_room)
    assert agent().seen().problem == "launchctl could not be started (Resource temporarily unavailable)"
