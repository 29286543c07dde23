"""Folders, the disk, the database's files, and the build of SQLite."""

from __future__ import annotations

import os
import stat

import apsw

from clawq.doctor import Patient
from clawq.host import load, strays
from clawq.paths import Home, nearest, size_of
from clawq.rules import checks
from clawq.rules.checks import BAD, Check, Folder
from clawq.settings import gate
from clawq.store.whole import MEND, missing

_MB = 1 << 20


def check(patient: Patient) -> list[Check]:
    home, host = patient.home, patient.settings.host
    data = nearest(home.data)
    return [
        checks.sqlite(apsw.sqlite_lib_version(), apsw.apsw_version()),
        checks.folders(_rights(home)),
        checks.filesystem(strays.filesystem_of(data), data),
        checks.disk(load.free_disk_mb(data), gate(host.min_free_disk_mb)),
        *_losses(home),
        checks.wal(size_of(home.db + "-wal") / _MB, size_of(home.db) / _MB),
    ]


def _losses(home: Home) -> list[Check]:
    """A trigger that somebody dropped lets everything go on, and makes the figures wrong."""
    lost = missing(home.db) if os.path.isfile(home.db) else None
    if lost is None:
        return []
    return [Check("database", BAD, f"it has lost {lost}", MEND)]


def _rights(home: Home) -> list[Folder]:
    found = []
    for path in (home.data, home.run, home.logs, home.db, f"{home.db}-wal", home.lock, home.config):
        try:
            seen = os.stat(path)
        except OSError:
            continue
        is_folder = stat.S_ISDIR(seen.st_mode)
        mode = stat.S_IMODE(seen.st_mode)
        if path == home.config:
            mode &= ~0o044  # it holds no secrets: to be read is no harm
        found.append(Folder(path, is_folder, mode, seen.st_uid == os.getuid()))
    return found
