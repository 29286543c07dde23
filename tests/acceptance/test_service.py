"""`clawq service` as it is typed, with a service manager that keeps a real supervisor running."""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawq.host import platform
from clawq.paths import Home
from clawq.service import name_of
from tests.fleet import ROOT
from tests.waiting import until

SYSTEMCTL = """\
#!{python}
# Stands in for systemctl: it starts what the unit says, with the environment that it says and no other.
import os, re, signal, subprocess, sys
folder, unit = {folder!r}, {unit!r}
words = sys.argv[2:]
with open(folder + "/asked", "a") as file:
    file.write(" ".join(words[:1] + [word for word in words[1:] if word.startswith("--now")]) + "\\n")
try:
    pid = int(open(folder + "/pid").read())
    os.kill(pid, 0)
except (OSError, ValueError):
    pid = 0
if words[0] == "show":
    there = os.path.exists(unit)
    print("LoadState=" + ("loaded" if there else "not-found"))
    print("ActiveState=" + ("active" if pid else "inactive"))
    print("MainPID=" + str(pid))
    print("NeedDaemonReload=no")
if words[0] in ("restart", "disable") and pid:
    os.kill(pid, signal.SIGTERM)
    pid = 0
if words[0] in ("start", "restart") and not pid:
    text = open(unit).read()
    said = re.findall('^Environment="(.*)"$', text, re.M)
    env = dict(each.replace("%%", "%").split("=", 1) for each in said)
    script = re.search("^ExecStart=(.*)$", text, re.M)[1]
    child = subprocess.Popen(["/bin/sh", "-c", "exec " + script], env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    open(folder + "/pid", "w").write(str(child.pid))
"""


class Machine:
    """A Linux account with `clawq` on PATH, in a folder with a space, and such a systemctl."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder = folder
        self.bin = folder / "my bin"
        self.bin.mkdir()
        self.unit = folder / "user" / "config" / "systemd" / "user" / f"{name_of(home.data)}.service"
        self.put("clawq", f'#!/bin/sh\nexport PYTHONPATH="{ROOT}"\nexec "{sys.executable}" -m clawq "$@"\n')
        self.put(
            "systemctl", SYSTEMCTL.format(python=sys.executable, folder=str(folder), unit=str(self.unit))
        )

    def put(self, name: str, script: str) -> None:
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def clawq(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        # As a console script would be: the program's own path is what the service must name.
        program = str(self.bin / "clawq")
        script = f"import sys; sys.argv[0] = {program!r}\nfrom clawq.__main__ import main\nsys.exit(main())"
        argv = [sys.executable, "-c", script, *words]
        env = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{self.bin}:relative::/usr/bin:/bin"}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.clawq(*words, "--json", code=code).stdout)

    def asked(self) -> list[str]:
        """What systemctl was told since the last time, apart from questions."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in lines if line != "show"]


@pytest.fixture
def machine(unreachable_home: Path, home: Home) -> Machine:
    if platform.MACOS:
        pytest.skip("here it would be launchd")
    return Machine(unreachable_home, home)


def test_from_nothing_to_a_job_that_ran_and_back(machine: Machine, home: Home) -> None:
    dry = machine.clawq("service", "install", "--dry-run").stdout
    assert str(machine.unit) in dry
    assert "systemctl --user enable" in dry
    assert not machine.unit.exists()
    assert machine.asked() == []
    assert machine.json("service", "status", code=1)["installed"] is False

    first = machine.clawq("service", "install").stdout.splitlines()
    assert machine.asked() == ["daemon-reload", "enable", "start"]
    assert first[1] == f"PATH {machine.bin}:/usr/bin:/bin"
    said = machine.json("service", "status")
    assert (said["installed"], said["loaded"], said["running"]) == (True, True, True)
    assert said["differs"] is False
    assert said["pid"] == said["supervisor_pid"]
    assert said["path"] == f"{machine.bin}:/usr/bin:/bin"
    assert f"running, pid {said['pid']}" in first[-1]
    machine.clawq("enqueue", "--wait", "--", "true")

    before = machine.unit.read_text()
    assert machine.clawq("service", "install").stdout.rstrip().endswith("as it was")
    assert machine.asked() == ["daemon-reload", "enable", "start"]
    assert machine.unit.read_text() == before
    assert machine.json("service", "status")["pid"] == said["pid"]

    machine.unit.write_text(before + "# somebody's\n")
    said = machine.json("service", "status", code=1)
    assert said["differs"] is True
    assert "not what `clawq service install` would write" in machine.clawq("service", "status", code=1).stdout
    machine.clawq("service", "install")
    assert machine.asked() == ["daemon-reload", "enable", "restart"]
    assert machine.unit.read_text() == before

    left = machine.clawq("service", "uninstall").stdout
    assert machine.asked() == ["disable --now", "daemon-reload"]
    assert f"the queue stays in {home.data}" in left
    assert not machine.unit.exists()
    assert Path(home.db).exists()
    until(lambda: machine.json("service", "status", code=1)["running"] is False)
    assert machine.clawq("service", "uninstall").stdout.endswith(": not installed\n")
    assert machine.asked() == []


def test_a_supervisor_that_runs_already_is_waited_for(machine: Machine, home: Home) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    mine = subprocess.Popen([sys.executable, "-m", "clawq", "run"], env=env, stderr=subprocess.DEVNULL)
    try:
        until(lambda: machine.json("status")["supervisor"]["running"])
        done = machine.clawq("service", "install")
        assert f"waits for the supervisor that runs already (pid {mine.pid})" in done.stdout
        assert "`clawq stop` ends that one" in done.stderr
        said = machine.json("service", "status")
        assert said["supervisor_pid"] == mine.pid != said["pid"]
        assert f"another one runs, pid {mine.pid}" in machine.clawq("service", "status").stdout
        machine.clawq("stop")
        until(lambda: machine.json("service", "status", code=0)["supervisor_pid"] == said["pid"])
    finally:
        mine.kill()
        mine.wait(10)
        machine.clawq("service", "uninstall")


def test_a_file_that_clawq_did_not_write_is_left_alone(machine: Machine) -> None:
    machine.unit.parent.mkdir(parents=True)
    machine.unit.write_text("[Service]\nExecStart=/usr/bin/clawq run\n")
    refused = machine.clawq("service", "install", code=1)
    assert refused.stderr.count("\n") == 1
    assert "was not written by clawq: move it away, or --force replaces it" in refused.stderr
    dry = machine.clawq("service", "install", "--dry-run")
    assert "without --force this would be refused" in dry.stderr
    kept = machine.clawq("service", "uninstall", code=1)
    assert "was not written by clawq: it is for whoever wrote it to remove" in kept.stderr
    assert machine.unit.exists()
    assert "ExecStart=/usr/bin/clawq run" in machine.unit.read_text()


def test_without_a_session_the_error_says_what_to_do(machine: Machine) -> None:
    machine.put("systemctl", "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
    failed = machine.clawq("service", "install", code=1)
    assert failed.stderr.count("\n") == 1
    assert "`loginctl enable-linger`" in failed.stderr
    assert "`clawq run` in a terminal of its own; nothing was installed" in failed.stderr
    assert not failed.stdout
    assert not machine.unit.exists()
    service = next(each for each in machine.json("doctor")["checks"] if each["name"] == "service")
    assert service["text"] == "not installed"
    machine.unit.write_text(machine.clawq("service", "show").stdout)
    status = machine.clawq("service", "status", code=1).stdout
    assert "cannot be asked: Failed to connect to bus: No medium found" in status
    assert "only the file was removed" in machine.clawq("service", "uninstall").stderr
    assert not machine.unit.exists()


@pytest.mark.parametrize("manager", ["launchd", "systemd"])
def test_the_file_of_either_platform_is_shown_on_any(manager: str, machine: Machine) -> None:
    text = machine.clawq("service", "show", "--for", manager).stdout
    assert str(machine.bin / "clawq") in text
    if manager == "launchd":
        said = plistlib.loads(text.encode())
        assert said["ProgramArguments"] == [str(machine.bin / "clawq"), "run", "--standby"]
        assert said["EnvironmentVariables"]["CLAWQ_HOME"] == os.environ["CLAWQ_HOME"]
        assert "UserName" not in said


def test_a_daemon_names_its_user_and_his_folders(machine: Machine) -> None:
    text = machine.clawq("service", "show", "--for", "launchd", "--daemon", "--user", "daemon").stdout
    said = plistlib.loads(text.encode())
    assert said["UserName"] == "daemon"
    assert said["EnvironmentVariables"]["USER"] == "daemon"
    refused = machine.clawq(
        "service", "show", "--for", "launchd", "--daemon", "--user", "nobody-here", code=2
    )
    assert "there is no account 'nobody-here'" in refused.stderr
    assert "--daemon is for launchd" in machine.clawq("service", "install", "--daemon", code=2).stderr
    near = machine.clawq("service", "show", "--for", "lanchd", code=2)
    assert "did you mean" in near.stderr


def test_the_usual_place_needs_no_variable(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAWQ_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name)
    text = machine.clawq("service", "show", "--for", "launchd").stdout
    said = plistlib.loads(text.encode())
    assert said["Label"] == "clawq"
    assert set(said["EnvironmentVariables"]) == {"PATH", "HOME"}  # HOME: a test's is not the account's
    assert said["StandardErrorPath"] == f"{os.environ['HOME']}/Library/Logs/clawq/supervisor.log"
