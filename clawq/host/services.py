"""The machine's own service manager: which file it reads, what it says of our service, how it is told.

Launchd and systemd are asked through their own programs, found on PATH. Nothing here decides when.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from clawq.errors import ClawqError
from clawq.service import LAUNCHD, SYSTEMD, Service, launchd, systemd

PATIENCE_S = 30.0
"""No answer of a service manager takes this long, unless it hangs."""
BOOTOUT_S = 5.0
"""Launchd says that it has thrown a service out before it has."""
RETRY_S = 0.2

Argv = tuple[str, ...]


class Told(NamedTuple):
    """What a program of the manager said."""

    code: int
    out: str
    err: str


class Seen(NamedTuple):
    """What the manager knows. ``problem``: why it could not be asked; the rest is None then.

    ``stale``: the file was changed after the manager read it. ``lingers``: it starts at boot, before a login.
    """

    loaded: bool | None = None
    running: bool | None = None
    pid: int | None = None
    stale: bool | None = None
    lingers: bool | None = None
    problem: str | None = None


class Manager(Protocol):
    """One service of one manager."""

    kind: str
    name: str
    file: str

    def text(self, service: Service) -> str:
        """What its file should say."""

    def environment_in(self, text: str) -> dict[str, str]:
        """The variables in a file that says `text`."""

    def seen(self) -> Seen:
        """Ask. Never raises: what cannot be asked is a problem to show."""

    def starting(self, seen: Seen, changed: bool) -> list[Argv]:
        """What makes the file, new, `changed` or as it was, the running service."""

    def before_removal(self, seen: Seen) -> list[Argv]:
        """What ends the service, its agents apart, and has it not come back."""

    def after_removal(self) -> list[Argv]:
        """What is to be said once the file has gone."""

    def tell(self, argv: Argv) -> None:
        """Say it. Raises ClawqError with what to do about it."""


def run(argv: Sequence[str]) -> Told:
    """One short program, with its output. Raises ClawqError when it cannot be run."""
    import subprocess

    name = argv[0]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise ClawqError(
            f"there is no {name} on PATH",
            "have whatever starts programs at boot here run `clawq run --standby`",
        ) from None
    except subprocess.TimeoutExpired:
        raise ClawqError(f"{name} has not answered for {PATIENCE_S:.0f} s", "try again") from None
    except OSError as error:  # EAGAIN: the account is at its ceiling
        raise ClawqError(f"{name} could not be started ({error.strerror})", "try again") from None
    return Told(
        done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()
    )


class Systemd:
    """A unit of the account's own systemd."""

    kind = SYSTEMD

    def __init__(self, name: str, environ: Mapping[str, str], folder: str) -> None:
        self.name = name
        given = environ.get("XDG_CONFIG_HOME", "")
        config = given if given.startswith("/") else os.path.join(folder, ".config")
        self.file = os.path.join(config, "systemd", "user", f"{name}.service")
        self.lingering = "/var/lib/systemd/linger"

    def text(self, service: Service) -> str:
        return systemd.unit(service)

    def environment_in(self, text: str) -> dict[str, str]:
        return systemd.environment_in(text)

    def seen(self) -> Seen:
        asked = "LoadState,ActiveState,MainPID,NeedDaemonReload"
        try:
            told = run(("systemctl", "--user", "show", f"{self.name}.service", f"--property={asked}"))
        except ClawqError as error:
            return Seen(problem=error.what)
        if told.code:
            return Seen(problem=_first_line(told.err) or f"systemctl ended with {told.code}")
        said = dict(line.partition("=")[::2] for line in told.out.splitlines())
        pid = said.get("MainPID", "0")
        return Seen(
            loaded=said.get("LoadState") == "loaded",
            running=said.get("ActiveState") in ("active", "reloading"),
            pid=int(pid) if pid.isdigit() and pid != "0" else None,
            stale=said.get("NeedDaemonReload") == "yes",
            lingers=self._lingers(),
        )

    def starting(self, seen: Seen, changed: bool) -> list[Argv]:
        unit = f"{self.name}.service"
        again = changed and seen.running
        return [
            ("systemctl", "--user", "daemon-reload"),
            ("systemctl", "--user", "enable", unit),
            ("systemctl", "--user", "restart" if again else "start", unit),
        ]

    def before_removal(self, seen: Seen) -> list[Argv]:
        return [("systemctl", "--user", "disable", "--now", f"{self.name}.service")]

    def after_removal(self) -> list[Argv]:
        return [("systemctl", "--user", "daemon-reload")]

    def tell(self, argv: Argv) -> None:
        told = run(argv)
        if not told.code:
            return
        what = f"`{' '.join(argv)}`: {_first_line(told.err) or f'exit {told.code}'}"
        if "connect to bus" in told.err or "XDG_RUNTIME_DIR" in told.err:
            raise ClawqError(
                what,
                "no systemd of this account is running: `loginctl enable-linger`, then log in again; "
                "where there is none, `clawq run` in a terminal of its own",
            )
        raise ClawqError(what, f"`journalctl --user -u {self.name}` may say more")

    def _lingers(self) -> bool | None:
        import pwd

        try:
            return os.path.exists(os.path.join(self.lingering, pwd.getpwuid(os.getuid()).pw_name))
        except KeyError:
            return None


class Launchd:
    """An agent of the account's graphical session, or a daemon of the machine."""

    kind = LAUNCHD

    def __init__(self, name: str, folder: str, daemon: bool = False) -> None:
        self.name = name
        self.daemon = daemon
        self.domain = "system" if daemon else f"gui/{os.getuid()}"
        place = "/Library/LaunchDaemons" if daemon else os.path.join(folder, "Library", "LaunchAgents")
        self.file = os.path.join(place, f"{name}.plist")

    def text(self, service: Service) -> str:
        return launchd.plist(service)

    def environment_in(self, text: str) -> dict[str, str]:
        return launchd.environment_in(text)

    @property
    def target(self) -> str:
        return f"{self.domain}/{self.name}"

    def seen(self) -> Seen:
        try:
            told = run(("launchctl", "print", self.target))
        except ClawqError as error:
            return Seen(problem=error.what)
        if told.code:
            if _no_session(told):
                return Seen(problem="this account has no graphical session")
            return Seen(loaded=False, running=False, lingers=self.daemon)
        # One tab: what is deeper belongs to something else.
        state = re.search(r"^\tstate = (.*)$", told.out, re.MULTILINE)
        pid = re.search(r"^\tpid = ([0-9]+)$", told.out, re.MULTILINE)
        return Seen(
            loaded=True,
            running=state is not None and state[1] == "running",
            pid=int(pid[1]) if pid else None,
            lingers=self.daemon,
        )

    def starting(self, seen: Seen, changed: bool) -> list[Argv]:
        if seen.loaded and not changed:
            return [] if seen.running else [("launchctl", "kickstart", self.target)]
        out = [("launchctl", "bootout", self.target)] if seen.loaded else []
        return [
            *out,
            ("launchctl", "enable", self.target),
            ("launchctl", "bootstrap", self.domain, self.file),
        ]

    def before_removal(self, seen: Seen) -> list[Argv]:
        return [("launchctl", "bootout", self.target)] if seen.loaded else []

    def after_removal(self) -> list[Argv]:
        return []

    def tell(self, argv: Argv) -> None:
        told = run(argv)
        if argv[1] == "bootout":
            self._wait_until_out()
            return
        if not told.code:
            return
        what = f"`{' '.join(argv)}`: {_first_line(told.err) or f'exit {told.code}'}"
        if _no_session(told):
            raise ClawqError(
                what,
                "log this account in at the screen, or use `clawq service install --daemon`",
            )
        if self.daemon and os.getuid() != 0:
            raise ClawqError(what, "a daemon is root's to load: put sudo before it")
        raise ClawqError(what, f"`launchctl print {self.target}` may say more")

    def _wait_until_out(self) -> None:
        give_up = time.monotonic() + BOOTOUT_S
        while run(("launchctl", "print", self.target)).code == 0:
            if time.monotonic() > give_up:
                raise ClawqError(f"launchd still has {self.target}", "try again")
            time.sleep(RETRY_S)


def _no_session(told: Told) -> bool:
    """The domain of an account that nobody has logged in at the screen: error 125, or none at all."""
    said = told.out + told.err
    return "125: " in said or "Could not find domain" in said or "does not support specified action" in said


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
