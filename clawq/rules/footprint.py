"""Has a job's process tree outgrown what its kind allows?"""

from __future__ import annotations


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
