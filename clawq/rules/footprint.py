"""Has a job's process tree outgrown what its kind allows, or its output what the disk does?"""

from __future__ import annotations

from collections.abc import Mapping

WRITES_MUCH_MB = 1.0
"""A second. Ending one that writes less saves no disk."""


def grown_beyond(procs: int, mb: int, max_procs: int | None, max_mb: int | None) -> str | None:
    """What to say of a tree of `procs` processes and `mb` MiB that is over a limit; None for one that is not.

    A limit may be reached, not passed; None is no limit.
    """
    over = []
    if max_procs is not None and procs > max_procs:
        over.append(f"{procs} processes, limit {max_procs}")
    if max_mb is not None and mb > max_mb:
        over.append(f"{mb} MB, limit {max_mb}")
    return "; ".join(over) or None


def fills_the_disk(
    writers: Mapping[int, float], free_mb: int | None, min_free_disk_mb: int | None
) -> int | None:
    """The token of the agent to be ended because hardly any disk is left: the one that writes fastest.

    ``writers``: MB/s by token. None: there is more than half of ``min_free_disk_mb``, or nobody writes much.
    """
    if free_mb is None or min_free_disk_mb is None or 2 * free_mb >= min_free_disk_mb or not writers:
        return None
    fastest = max(writers, key=lambda token: (writers[token], token))
    return fastest if writers[fastest] >= WRITES_MUCH_MB else None
