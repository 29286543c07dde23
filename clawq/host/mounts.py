"""What is mounted where (Linux), by the text of /proc/self/mountinfo."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def mounts(mountinfo: str) -> Iterator[tuple[str, str, str, str]]:
    """(what of the filesystem, where, its type, its options) of each; see proc(5)."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if len(place) >= 5 and kind:
            yield _unescaped(place[3]), _unescaped(place[4]), kind[0], "".join(kind[2:3])


def _unescaped(path: str) -> str:
    for code in ("040", "011", "012", "134"):
        path = path.replace(f"\\{code}", chr(int(code, 8)))
    return path
