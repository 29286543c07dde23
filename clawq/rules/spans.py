"""How long, how many and how much, in a word."""

from __future__ import annotations


def short(seconds: float | None) -> str:
    """A duration for people: ``45s``, ``3m``, ``2h10m``, ``3d4h``; ``-`` for None."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        return f"{minutes}m"
    if hours < 24:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if hours % 24 and days < 10 else f"{days}d"


def jobs(count: int) -> str:
    """``1 job``, ``12 jobs``."""
    return "1 job" if count == 1 else f"{count} jobs"


def size(mb: int | None) -> str:
    """Mebibytes for people: ``512 MB``, ``5.1 GB``; ``-`` for None."""
    if mb is None:
        return "-"
    return f"{mb} MB" if mb < 1024 else f"{mb / 1024:.1f} GB"
