"""The README's crontab, driven by the real cron daemon and by cron's exact environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawq.crontab import rewrite
from clawq.paths import Home
from tests.waiting import until

ROOT = Path(__file__).parents[2]
CRON = shutil.which("cron", path="/usr/sbin:/sbin")


def readme_block(language: str, after: str) -> list[str]:
    """The lines of the first code block of this language behind the heading or sentence `after`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(rf"```{language}\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert block
    return block[1].splitlines()


CRONTAB = readme_block("crontab", "with clawq")
CONFIG = readme_block("toml", "with clawq")
LINE = re.compile(r"(?P<when>@\w+|\S+ +\S+ +\S+ +\S+ +\S+) +(?P<command>\S.*)")


def commands() -> list[str]:
    """What the crontab's lines run, without when they run and without its settings."""
    found = [LINE.fullmatch(line) for line in CRONTAB]
    return [match["command"] for match in found if match]


def enqueues() -> list[str]:
    return [command for command in commands() if "clawq enqueue" in command]


@pytest.fixture
def bin_folder(unreachable_home: Path) -> Path:
    """A folder with `clawq` and stand-ins for the agents that the crontab names."""
    folder = unreachable_home / "bin"
    folder.mkdir()
    scripts = {"clawq": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m clawq "$@"'}
    for name in ("claude", "site-qa"):
        # What the agent was given, and that nothing of cron's terminal-less world hangs it.
        scripts[name] = f'echo "$(basename "$0") $*" >>"{unreachable_home}/ran"'
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return folder


@pytest.fixture
def configured(home: Home) -> Home:
    Path(home.data).mkdir(mode=0o700)
    Path(home.config).write_text("\n".join(CONFIG))
    return home


def clawq(bin_folder: Path, *words: str) -> Any:
    argv = [bin_folder / "clawq", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_readme_shows_at_least_two_jobs_and_who_runs_them() -> None:
    assert len(enqueues()) >= 2
    assert "clawq service install" in (ROOT / "README.md").read_text(encoding="utf-8")
    # cron turns a bare % into a newline.
    assert not any("%" in line for line in CRONTAB)


@pytest.mark.parametrize("command", enqueues())
def test_each_line_is_silent_and_accepted_in_crons_environment(
    command: str, configured: Home, bin_folder: Path, unreachable_home: Path
) -> None:
    cron = {
        "HOME": str(unreachable_home / "user"),
        "LOGNAME": "somebody",
        "SHELL": "/bin/sh",
        # The two that a crontab sets itself; the README sets PATH, the test its own queue.
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "CLAWQ_HOME": configured.data,
    }
    for _ in range(2):  # the second time it is a duplicate
        argv = ["/bin/sh", "-c", command]
        done = subprocess.run(argv, env=cron, cwd="/", input=b"", capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(clawq(bin_folder, "list")) == 1


SETUP = """
set -e
mount -t tmpfs none /run
mount -t tmpfs none /var/spool/cron
mount -t tmpfs none /etc/cron.d
mount --bind "$1/etc-crontab" /etc/crontab
mount --bind "$1/sbin" /usr/sbin
mkdir -m 1730 /var/spool/cron/crontabs
cp "$1/crontab" /var/spool/cron/crontabs/root
chmod 600 /var/spool/cron/crontabs/root
exec /usr/sbin/cron -f
"""


class Cron:
    """The daemon in a mount namespace of its own: it sees only the test's crontab, and "mails" to a file."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.mail = folder / "mail"
        (folder / "sbin").mkdir(parents=True)
        assert CRON
        shutil.copy2(CRON, folder / "sbin" / "cron")
        sendmail = folder / "sbin" / "sendmail"
        sendmail.write_text(f'#!/bin/sh\ncat >>"{self.mail}"\n')
        sendmail.chmod(0o755)
        (folder / "etc-crontab").write_text("")
        (folder / "crontab").write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", str(folder)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def mail_subjects(self, text: str) -> list[str]:
        """The subjects of all mail, once `text` stands in the body of one."""
        until(
            lambda: self.mail.exists() and text in self.mail.read_text().partition("\n\n")[2],
            message=f"cron mailed {text}",
        )
        return re.findall("^Subject: .*", self.mail.read_text(), re.MULTILINE)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def cron_folder(unreachable_home: Path) -> Path:
    if CRON is None:
        pytest.skip("no cron daemon is installed")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("a cron daemon of one's own needs root and mount namespaces")
    return unreachable_home / "cron"


def test_a_real_cron_daemon_runs_the_readmes_crontab(
    configured: Home, bin_folder: Path, cron_folder: Path, unreachable_home: Path
) -> None:
    settings = {
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "HOME": str(unreachable_home / "user"),
        "CLAWQ_HOME": configured.data,
    }
    # As at boot: cron runs these at once instead of at seven in the morning.
    lines = [f"{name}={value}" for name, value in settings.items()]
    # The last one shows that what is printed would be mailed.
    lines += [f"@reboot {command}" for command in [*commands(), "clawq run --standby", "echo control"]]
    ran = unreachable_home / "ran"
    cron = Cron(cron_folder / "boot", lines)
    try:
        until(
            lambda: ran.exists() and len(ran.read_text().splitlines()) == len(enqueues()),
            30,
            lambda: f"jobs ran: {ran.read_text() if ran.exists() else 'none'}",
        )
        until(lambda: {job["state"] for job in clawq(bin_folder, "list")} == {"succeeded"}, 10)
        assert clawq(bin_folder, "status")["supervisor"]["running"]
    finally:
        cron.end()

    # The day's job again, by a new daemon, next to the supervisor that the first one started.
    before = clawq(bin_folder, "list")
    done = unreachable_home / "done"
    daily = [f"@reboot {command}; echo $? >>{done}" for command in enqueues() if "{date}" in command]
    assert daily
    daily.append("@reboot echo control")
    again = Cron(cron_folder / "again", [*lines[: len(settings)], *daily])
    try:
        until(
            lambda: done.exists() and done.read_text() == "0\n" * (len(daily) - 1),
            30,
            "the lines ended with 0",
        )
    finally:
        again.end()
    assert clawq(bin_folder, "list") == before
    for daemon in (cron, again):
        assert daemon.mail_subjects("control")[0].endswith("echo control")
        assert len(daemon.mail_subjects("control")) == 1
    subprocess.run([bin_folder / "clawq", "stop", "--now"], check=True, timeout=30)


BEFORE = """\
FROM_CRONTAB=some value
@hourly flock -n {folder}/a.lock sh -c 'echo one >>{out}'
@hourly cd {folder} && pwd >/dev/null && echo "two $(date +\\%Y | tr 0-9 y)" >>{out}
@hourly timeout 30m sh -c 'echo three "$FROM_CRONTAB" "$(pwd)"' >>{out} 2>&1
@hourly printf '\\%s\\n' four "it's" >>{out} # a comment
@hourly clawq enqueue --dedupe-key five -- sh -c 'echo five >>{out}'
"""


def test_a_real_cron_daemon_runs_what_clawq_crontab_printed(
    configured: Home, bin_folder: Path, cron_folder: Path, unreachable_home: Path
) -> None:
    out = unreachable_home / "out"
    before = BEFORE.format(folder=unreachable_home, out=out)
    done = rewrite(before, [str(bin_folder / "clawq")], {"CLAWQ_HOME": configured.data})
    assert (done.wrapped, done.already, done.left) == (4, 1, ())
    settings = [f"PATH={bin_folder}:/usr/bin:/bin", f"HOME={unreachable_home / 'user'}"]
    lines = [line.replace("@hourly", "@reboot") for line in done.text.splitlines()]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{bin_folder}:/usr/bin:/bin"}
    supervisor = subprocess.Popen([bin_folder / "clawq", "run"], env=env, stderr=subprocess.DEVNULL)
    cron = Cron(cron_folder, [*settings, *lines, "@reboot echo control"])
    try:
        wanted = {
            "one",
            "two yyyy",
            f"three some value {unreachable_home / 'user'}",
            "four",
            "it's",
            "five",
        }
        until(
            lambda: out.exists() and set(out.read_text().splitlines()) == wanted,
            30,
            lambda: f"the jobs wrote {out.read_text() if out.exists() else 'nothing'}",
        )
        assert len(cron.mail_subjects("control")) == 1  # and nothing that clawq printed
    finally:
        cron.end()
        supervisor.terminate()
        supervisor.wait(10)
