"""What launchd and systemd are told, as text: which program, with which environment, and when again.

Pure: nothing here reads a file or starts a program. ``clawq.host.services`` puts the text where it belongs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from clawq.errors import UsageError

LAUNCHD = "launchd"
SYSTEMD = "systemd"
MANAGERS = (LAUNCHD, SYSTEMD)

MARK = "Written by `clawq service install`"
"""Stands in every file of ours: one without it is somebody's own and is not replaced unasked."""

RESTART_AFTER_S = 10
"""Launchd's own least interval, and nothing that fails at once should spin under systemd either."""
END_WITHIN_S = 20
"""A hand-over takes a second; on a disk that hangs it takes longer."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class Service(NamedTuple):
    """One supervisor as a service. All paths are absolute.

    ``environment`` has PATH, which agents get unless clawq.toml says another, and where the queue is, as
    far as that is not the usual place. ``user`` is set for a launchd daemon, which runs without a login.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    log: str
    user: str | None = None


def check(service: Service) -> None:
    """Raise UsageError for what no service file can say: control characters, bytes that are not UTF-8."""
    parts = {
        "the path of clawq": " ".join(service.argv),
        "the log's path": service.log,
        **service.environment,
    }
    for what, text in parts.items():
        if _UNSAFE.search(text):
            raise UsageError(
                f"{what} has a control character or is not UTF-8: {text!r:.200}",
                "a service file cannot hold it; rename the folder, or set the variable without it",
            )


def name_of(home: str | None) -> str:
    """``clawq``; for a queue of its own (CLAWQ_HOME) a name that tells it from the others."""
    if not home:
        return "clawq"
    import zlib

    word = re.sub(r"[^A-Za-z0-9]+", "-", home.rstrip("/").rpartition("/")[2]).strip("-")[:40]
    return f"clawq-{word or 'queue'}-{zlib.crc32(home.encode(errors='surrogateescape')):08x}"
