"""`clawq run` and `clawq stop`: the only way from the command line into the supervisor."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from clawq.cli import params, words
from clawq.errors import Busy, UsageError
from clawq.paths import Home, check_folder, find_home, make_private_dir

STOP_PATIENCE_S = 10.0
"""How long `clawq stop` waits for a hand-over before it says that the supervisor does not answer."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    app.command("run")(run)
    app.command("stop")(stop)


def run(
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing runs, is queued or is scheduled.")
    ] = False,
    observe: Annotated[
        bool, typer.Option("--observe", help="Start whatever is due and record what would have been refused.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Wait for a supervisor that is already running to end (for services)."
        ),
    ] = False,
) -> int:
    """Run the supervisor: it decides when each job starts. One per home.

    SIGTERM hands over: agents live on and the next supervisor adopts them. Ctrl-C finishes what runs,
    a second Ctrl-C ends it.
    """
    from clawq.host import instance
    from clawq.store.connection import storage_errors
    from clawq.supervisor.loop import Supervisor
    from clawq.supervisor.voice import say_on_stderr

    home = find_home()
    with storage_errors(home.lock):
        make_private_dir(home.data)
        held = instance.acquire(home.lock)
    if held is None:
        holder = instance.living(home.lock)
        who = f" (pid {holder.pid})" if holder else ""
        if not standby and holder:
            raise Busy(f"a supervisor is already running here{who}", "`clawq stop` ends it, --standby waits")
        if not standby:
            raise Busy(f"{home.lock} is held", "an upgrade or a restore is under way; --standby waits for it")
        say_on_stderr(
            f"waiting for the supervisor that is running{who}" if holder else "waiting for the lock"
        )
        held = instance.wait_for(home.lock)
    if sys.stderr.isatty() and not until_idle:
        words.note("Ctrl-C here lets jobs finish; `clawq status` elsewhere shows the queue")
    supervisor = Supervisor(home, held, say_on_stderr, until_idle, observe)
    code = supervisor.run()
    if supervisor.stands_aside:
        start_again()
    return code


def start_again() -> NoReturn:
    """Become the program that now stands where this one was read from: same pid, same options.

    Launchd and systemd see no end. It waits for the lock, which whoever migrates the database may hold.
    """
    argv = [sys.executable, *sys.orig_argv[1:]]
    if "--standby" not in argv:
        argv.append("--standby")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, argv)


def _refuse_to_guess(home: Home) -> None:
    """Raises StorageError where nobody may look whether a supervisor runs."""
    from clawq.store.connection import storage_errors

    check_folder(home.data)
    with storage_errors(home.lock), suppress(FileNotFoundError):
        os.close(os.open(home.lock, os.O_RDONLY | os.O_NONBLOCK))


def stop(
    drain: Annotated[bool, typer.Option("--drain", help="Finish what runs, start nothing new.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="End the agents; their jobs go back to the queue.")
    ] = False,
    as_json: params.AsJson = False,
) -> int:
    """Ask the supervisor to end. Without an option it hands over: agents live on, the next adopts them."""
    from clawq.host import instance
    from clawq.poke import poke
    from clawq.store import attempts
    from clawq.store.connection import Immediate, open_db, storage_errors

    if drain and now:
        raise UsageError("--drain and --now exclude each other", "give one of them")
    home = find_home()
    holder = instance.living(home.lock)
    if holder is None:
        _refuse_to_guess(home)
        _tell_end(None, as_json)
        return 0
    db = open_db(home)
    with storage_errors(home.db), Immediate(db):
        attempts.ask_stop(db, "drain" if drain else "now" if now else "handover")
    db.close()
    poke(home, b"s")
    if drain:
        words.note("waiting for what runs to end; Ctrl-C ends only this waiting")
    give_up = None if drain or now else time.monotonic() + STOP_PATIENCE_S
    while holder.is_alive():
        if give_up is not None and time.monotonic() > give_up:
            raise Busy(
                f"the supervisor (pid {holder.pid}) does not answer",
                f"end it with `kill -9 {holder.pid}`, its agents live on",
            )
        time.sleep(0.05)
    _tell_end(holder.pid, as_json)
    return 0


def _tell_end(pid: int | None, as_json: bool) -> None:
    """`pid` is None when there was none to end."""
    if as_json:
        words.write_json({"was_running": pid is not None, "pid": pid})
    else:
        words.write("no supervisor is running" if pid is None else f"supervisor {pid} has ended")
