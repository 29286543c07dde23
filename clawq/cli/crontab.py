"""`clawq crontab`: what a crontab would look like whose jobs ask the queue. It installs nothing."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from clawq import crontab as crontabs
from clawq import paths
from clawq.cli import params, words
from clawq.errors import ClawqError, UsageError

MAX_BYTES = 1 << 20


def crontab(
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read this one; default: stdin.")
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Its lines name a user before the command, as /etc/crontab's.")
    ] = False,
    as_json: params.AsJson = False,
) -> int:
    """Print a crontab with its commands wrapped in `clawq enqueue`.

    `crontab -l | clawq crontab` shows it; nothing is installed. A line that cannot be wrapped safely stays
    as it is, with a comment that says why, and so does one that calls clawq already.
    """
    done = crontabs.rewrite(_read(file), paths.own_program(), paths.places(os.environ), system)
    if as_json:
        document = done._asdict()
        # Bytes that are not UTF-8 cannot be said in JSON.
        document["text"] = done.text.encode(errors="surrogateescape").decode(errors="replace")
        document["left"] = [{"line": line, "reason": why} for line, why in done.left]
        words.write_json(document)
        return 0
    sys.stdout.buffer.write(done.text.encode(errors="surrogateescape"))
    sys.stdout.flush()
    if done.secrets:
        words.note(
            f"{', '.join(done.secrets)} would be stored with each job: better a kind's env_file in clawq.toml"
        )
    parts = [f"{words.jobs(done.wrapped)} wrapped"]
    if done.already:
        parts.append(f"{done.already} called clawq already")
    if done.left:
        parts.append(f"{len(done.left)} left as before, see the comments")
    words.note(f"{', '.join(parts)}; nothing is installed: `crontab FILE` does that")
    return 0


def _read(file: str | None) -> str:
    """The text, bytes that are not UTF-8 kept as they are. Raises UsageError and ClawqError."""
    try:
        if file is None or file == "-":
            if sys.stdin.isatty():
                raise UsageError("no crontab to read", "crontab -l | clawq crontab, or -f FILE")
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(os.fsencode(file), "rb") as source:
                content = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise ClawqError(
            f"{file or 'stdin'} cannot be read ({error.strerror})", "-f FILE, or stdin"
        ) from None
    if len(content) > MAX_BYTES or b"\0" in content:
        raise UsageError(f"{file or 'stdin'} is no crontab", "text of at most 1 MiB")
    return content.decode(errors="surrogateescape")
