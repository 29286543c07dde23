"""Who holds the database so that others wait? Asked only once they have waited too long; Linux can tell."""

from __future__ import annotations

import os


def who_holds(path: str) -> str:
    """In words; no file of the database is opened, since closing it would drop our own locks on it."""
    inodes = set()
    for name in (path, path + "-shm"):
        try:
            inodes.add(str(os.stat(name).st_ino))
        except OSError:
            pass
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            locks = [line.split() for line in file]
    except OSError:
        return "another process"
    for words in locks:
        # "1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120"; "->" after the number is one who waits.
        if len(words) == 8 and words[3] == "WRITE" and words[5].rpartition(":")[2] in inodes:
            pid = words[4]
            if pid.isdecimal() and int(pid) not in (0, os.getpid()):
                return f"process {pid}{_name(pid)}"
    return "another process"


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.readline().strip()
    except OSError:
        return ""
    return f" ({name})" if name.isprintable() and name else ""
