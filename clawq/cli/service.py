"""`clawq service install | uninstall | status | show`: launchd or systemd keeps the supervisor running."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import Annotated, Any, NamedTuple

import typer

from clawq import desk, paths
from clawq.cli import words
from clawq.cli.params import AsJson
from clawq.errors import ClawqError, UsageError
from clawq.host import instance, platform, services
from clawq.paths import Home, find_home
from clawq.service import LAUNCHD, MANAGERS, MARK, SYSTEMD, Service, check, name_of

SETTLE_S = 10.0
"""How long `install` watches for the supervisor that it had started."""

service_app = typer.Typer(name="service", add_completion=False, rich_markup_mode=None)

Daemon = Annotated[
    bool,
    typer.Option(
        "--daemon", help="On macOS: a daemon of the machine, for one that nobody logs in to; needs sudo."
    ),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Whose queue the daemon runs; default: yours.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the file and the commands, and change nothing.")
]


class Plan(NamedTuple):
    """Which service of which manager, for whose queue."""

    manager: services.Manager
    service: Service
    home: Home
    owner: int | None
    """The account that a daemon runs as, whose folders root makes; None: oneself."""


@service_app.callback(invoke_without_command=True)
def service(ctx: typer.Context) -> None:
    """Have launchd or systemd keep the supervisor running."""
    if ctx.invoked_subcommand is None:
        raise UsageError(
            "`clawq service` does one of several things", "say install, uninstall, status or show"
        )


@service_app.command()
def install(
    daemon: Daemon = False,
    user: User = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that clawq did not write.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Write the service's file and start it; again: bring it up to date.

    The PATH of this shell is written into it, since a service has hardly any. Agents that run stay alive.
    """
    plan = _plan(_manager_here(), daemon, user)
    manager = plan.manager
    text = manager.text(plan.service)
    old = _read(manager.file)
    if not force and not dry_run:
        _refuse_foreign(manager, old, "move it away, or --force replaces it")
    seen = manager.seen()
    commands = manager.starting(seen, changed=old != text)
    if dry_run:
        if not force and old is not None and MARK not in old:
            words.note(f"{manager.file} was not written by clawq: without --force this would be refused")
        return _show_dry_run(manager, text, commands, as_json)
    if old != text:
        _write(plan, text)
    other = instance.look(plan.home.lock, desk.now_ms())
    stranger = other.running and other.pid != seen.pid
    try:
        for argv in commands:
            manager.tell(argv)
    except ClawqError as error:
        if old is None and not manager.seen().loaded and _taken_back(manager):
            raise ClawqError(error.what, f"{error.fix}; nothing was installed") from None
        raise
    if old != text and not as_json:
        words.write(f"{words.line(manager.file)}: {'written' if old is None else 'replaced'}")
        words.write(f"PATH {words.line(plan.service.environment['PATH'])}")
    pid = None if stranger else _settled(plan)
    if as_json:
        words.write_json(
            {"name": manager.name, "file": manager.file, "changed": old != text, "supervisor_pid": pid}
        )
    elif stranger:
        words.write(f"{manager.name}: waits for the supervisor that runs already (pid {other.pid})")
        words.note("`clawq stop` ends that one, and its agents live on; then the service takes over")
    elif pid is not None:
        words.write(f"{manager.name}: running, pid {pid}{'' if old != text else ', as it was'}")
    else:
        words.note(f"{manager.name} was started, and no supervisor ticks yet: {_look(plan)}")
    if manager.kind == SYSTEMD and manager.seen().lingers is False:
        words.note("it ends with your last login, and does not start at boot: run `loginctl enable-linger`")
    return 0 if pid is not None or stranger else 1


@service_app.command()
def uninstall(daemon: Daemon = False, dry_run: DryRun = False, as_json: AsJson = False) -> int:
    """Stop the service and remove its file. The queue stays, and so do agents that run."""
    plan = _plan(_manager_here(), daemon, None)
    manager = plan.manager
    there = os.path.lexists(manager.file)
    _refuse_foreign(manager, _read(manager.file), "it is for whoever wrote it to remove")
    seen = manager.seen()
    commands = manager.before_removal(seen) if there or seen.loaded else []
    after = manager.after_removal() if commands else []
    if dry_run:
        shown = [*commands, *([("rm", manager.file)] if there else []), *after]
        return _show_dry_run(manager, None, shown, as_json)
    if seen.problem is None:
        for argv in commands:
            manager.tell(argv)
    if there:
        try:
            os.unlink(manager.file)
        except OSError as error:
            raise _cannot("removed", manager, error) from None
    if seen.problem is None:
        for argv in after:
            manager.tell(argv)
    elif there:
        words.note(f"only the file was removed: {seen.problem}")
    if as_json:
        words.write_json({"name": manager.name, "file": manager.file, "changed": there or bool(seen.loaded)})
    elif there or seen.loaded:
        words.write(f"{manager.name}: uninstalled; the queue stays in {words.line(plan.home.data)}")
    else:
        words.write(f"{manager.name}: not installed")
    return 0


@service_app.command()
def status(daemon: Daemon = False, as_json: AsJson = False) -> int:
    """Say whether the service is installed, loaded and running. Exit 0 when it is all that."""
    plan = _plan(_manager_here(), daemon, None)
    document = describe(plan)
    if as_json:
        words.write_json(document)
    else:
        for name, said in _lines(document):
            words.write(f"{name:<11} {words.line(said)}")
    good = document["installed"] and document["running"] is not False and document["supervisor_pid"]
    return 0 if good and document["differs"] is False else 1


@service_app.command()
def show(
    for_manager: Annotated[
        str | None,
        typer.Option("--for", metavar="MANAGER", help="launchd or systemd; default: this machine's."),
    ] = None,
    daemon: Daemon = False,
    user: User = None,
    as_json: AsJson = False,
) -> int:
    """Print the file that `install` would write, on any machine."""
    kind = _manager_here() if for_manager is None else words.known(for_manager, MANAGERS, "service manager")
    plan = _plan(kind, daemon, user)
    text = plan.manager.text(plan.service)
    if as_json:
        words.write_json(
            {"manager": kind, "name": plan.service.name, "file": plan.manager.file, "text": text}
        )
    else:
        sys.stdout.write(text)
    return 0


def describe(plan: Plan) -> dict[str, Any]:
    """What `status` says, for programs. None is what nobody can tell."""
    manager = plan.manager
    seen = manager.seen()
    supervisor = instance.look(plan.home.lock, desk.now_ms())
    file, installed, differs, path = written(plan)
    return {
        "manager": manager.kind,
        "name": manager.name,
        "file": file,
        "installed": installed,
        "differs": differs,
        "path": path,
        "loaded": seen.loaded,
        "stale": seen.stale,
        "running": seen.running,
        "pid": seen.pid,
        "starts_at_boot": seen.lingers,
        "problem": seen.problem,
        "supervisor_pid": supervisor.pid if supervisor.running else None,
    }


def written(plan: Plan) -> tuple[str, bool, bool | None, str | None]:
    """(file, whether it is there, whether `install` would change it, its PATH). Starts no process."""
    manager = plan.manager
    text = _read(manager.file)
    if text is None:
        return manager.file, False, None, None
    path = manager.environment_in(text).get("PATH")
    # Every shell has another PATH: only `install` takes that of this one.
    variables = {**plan.service.environment, "PATH": path or plan.service.environment["PATH"]}
    same_path = plan.service._replace(environment=variables)
    return manager.file, True, text != manager.text(same_path), path


def plan_here() -> Plan:
    """The service of this queue on this machine. Raises ClawqError where there is none to have."""
    return _plan(_manager_here(), False, None)


def _lines(said: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("service", f"{said['name']}, {said['manager']}")]
    if not said["installed"]:
        lines.append(("file", f"not installed: `clawq service install` writes {said['file']}"))
    else:
        differs = ", and not what `clawq service install` would write" if said["differs"] else ""
        lines.append(("file", f"{said['file']}{differs}"))
        lines.append(("PATH", said["path"] or "not set in the file"))
    if said["problem"]:
        lines.append(("state", f"cannot be asked: {said['problem']}"))
    elif said["loaded"]:
        stale = "; the file was changed since it was loaded" if said["stale"] else ""
        pid = "" if said["pid"] is None else f", pid {said['pid']}"
        running = f"running{pid}" if said["running"] else "loaded and not running"
        lines.append(("state", running + stale))
    else:
        lines.append(("state", "not loaded"))
    if said["starts_at_boot"] is not None and said["installed"]:
        at_login = "with a login only" + (
            "; `loginctl enable-linger` has it start at boot" if said["manager"] == SYSTEMD else ""
        )
        lines.append(("starts", "at boot" if said["starts_at_boot"] else at_login))
    pid = said["supervisor_pid"]
    if pid is None:
        lines.append(("supervisor", "none ticks"))
    elif said["pid"] in (None, pid):
        lines.append(("supervisor", f"running, pid {pid}"))
    else:
        lines.append(("supervisor", f"another one runs, pid {pid}; the service waits for its end"))
    return lines


def _plan(kind: str, daemon: bool, user: str | None) -> Plan:
    import pwd

    if daemon and kind != LAUNCHD:
        raise UsageError(
            "--daemon is for launchd", "a systemd user unit starts at boot after `loginctl enable-linger`"
        )
    if user is not None and not daemon:
        raise UsageError("--user goes with --daemon", "without it the service is your own")
    environ = dict(os.environ)
    owner = None
    name = user or (os.environ.get("SUDO_USER") if daemon and os.getuid() == 0 else None)
    try:
        account = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        if name:
            raise UsageError(f"there is no account {name!r}", "--user names whose queue it is") from None
        account = None
    folder = environ.get("HOME") or (account.pw_dir if account else os.path.expanduser("~"))
    if name and account:
        folder, owner = account.pw_dir, account.pw_uid
    environ["HOME"] = folder
    target = "darwin" if kind == LAUNCHD else "linux"
    home = find_home(environ, target)
    own = environ.get("CLAWQ_HOME")
    label = name_of(home.data if own else None)
    variables = {"PATH": _path(), **paths.places(environ)}
    if daemon and account:
        variables |= {"HOME": folder, "USER": account.pw_name, "LOGNAME": account.pw_name}
    elif account and folder != account.pw_dir:
        variables["HOME"] = folder
    spec = Service(
        label,
        (*paths.own_program(), "run", "--standby"),
        variables,
        folder,
        os.path.join(home.logs, "supervisor.log"),
        account.pw_name if daemon and account else None,
    )
    check(spec)
    manager: services.Manager
    if kind == LAUNCHD:
        manager = services.Launchd(label, folder, daemon)
    else:
        manager = services.Systemd(label, environ, folder)
    return Plan(manager, spec, home, owner)


def _manager_here() -> str:
    return LAUNCHD if platform.MACOS else SYSTEMD


def _path() -> str:
    """This shell's PATH, without what depends on the folder that one is in."""
    folders = (paths.utf8_path() or os.defpath).split(":")
    return ":".join(dict.fromkeys(each for each in folders if each.startswith("/"))) or os.defpath


def _read(file: str) -> str | None:
    """None when it is not there. Raises ClawqError."""
    try:
        with open(file, encoding="utf-8", errors="replace") as there:
            return there.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClawqError(f"{file} cannot be read ({error.strerror})", "look at its owner and mode") from None


def _refuse_foreign(manager: services.Manager, text: str | None, fix: str) -> None:
    """Raise ClawqError for a file of that name that somebody else wrote."""
    if text is not None and MARK not in text:
        raise ClawqError(f"{manager.file} was not written by clawq", fix)


def _write(plan: Plan, text: str) -> None:
    """The file, whole or not at all; and the folder of the log, which launchd does not make."""
    file = plan.manager.file
    beside = f"{file}.{os.getpid()}"
    try:
        missing = not os.path.isdir(plan.home.logs)
        paths.make_private_dir(plan.home.logs)
        if missing and plan.owner is not None:
            os.chown(plan.home.logs, plan.owner, -1)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(beside, "w", encoding="utf-8") as new:
            new.write(text)
        os.chmod(beside, 0o644)  # launchd refuses one that others may write
        os.replace(beside, file)
    except OSError as error:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise _cannot("written", plan.manager, error) from None


def _taken_back(manager: services.Manager) -> bool:
    """Remove a file that nothing has loaded: it would look like a service that starts again."""
    try:
        os.unlink(manager.file)
    except OSError:
        return False
    return True


def _cannot(done: str, manager: services.Manager, error: OSError) -> ClawqError:
    root = manager.file.startswith("/Library/") and os.getuid() != 0
    fix = "a daemon is root's: put sudo before the command" if root else "look at its folder's owner and mode"
    return ClawqError(f"{manager.file} cannot be {done} ({error.strerror})", fix)


def _settled(plan: Plan) -> int | None:
    """The pid of the supervisor, once it ticks and is the service's; None when that takes too long."""
    give_up = time.monotonic() + SETTLE_S
    while True:
        supervisor = instance.look(plan.home.lock, desk.now_ms())
        if supervisor.running and plan.manager.seen().pid in (None, supervisor.pid):
            return supervisor.pid
        if time.monotonic() > give_up:
            return None
        time.sleep(0.1)


def _look(plan: Plan) -> str:
    if plan.manager.kind == LAUNCHD:
        return f"see {plan.service.log}"
    return f"see `journalctl --user -u {plan.manager.name}`"


def _show_dry_run(
    manager: services.Manager, text: str | None, commands: list[services.Argv], as_json: bool
) -> int:
    if as_json:
        words.write_json({"name": manager.name, "file": manager.file, "text": text, "commands": commands})
        return 0
    if text is not None:
        words.write(f"# {words.line(manager.file)}")
        sys.stdout.write(text)
    for argv in commands:
        words.write(f"$ {words.line(shlex.join(argv))}")
    if text is None and not commands:
        words.write(f"{manager.name}: not installed")
    return 0
