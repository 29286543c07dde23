"""The Python API: what ``import clawq`` offers to programs.

Each function loads what it needs when it is called; this module itself loads next to nothing.
"""

from clawq.client import Producer, Receipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from os import PathLike


def enqueue(
    kind: str | None = None,
    command: "Sequence[str] | None" = None,
    *,
    payload: object = None,
    dedupe_key: str | None = None,
    dedupe_scope: str | None = None,
    exclusive: str | None = None,
    priority: int | None = None,
    band: str | None = None,
    tenant: str | None = None,
    needs: "Sequence[str] | str | None" = None,
    delay: "str | float | timedelta | None" = None,
    at: "str | datetime | None" = None,
    stale_after: "str | float | timedelta | datetime | None" = None,
    deadline: "str | float | timedelta | datetime | None" = None,
    timeout: "str | float | timedelta | None" = None,
    max_attempts: int | None = None,
    on_lost: str | None = None,
    hold: bool = False,
    cwd: "str | PathLike[str] | None" = None,
    env: "Mapping[str, str] | Sequence[str] | None" = None,
    dry_run: bool = False,
) -> Receipt:
    """Put a job into the queue and return once it is durable.

    The arguments are the options of ``clawq enqueue``. ``payload`` is any value that JSON can hold
    (bytes: JSON text as it is); durations are texts such as "10m", seconds or a timedelta; times are
    texts or a datetime (local unless it is aware). ``dry_run`` does everything but keep the job.

    Raises Refused (the queue's no, with ``reason``, ``retry_after_s`` and ``safe_to_retry``),
    UsageError, ConfigError and StorageError, which are all ClawqError.
    """
    # The parameters have the options' names: a second list of them could only differ.
    given: dict[str, object] = dict(locals())
    del given["dry_run"]
    with Producer() as producer:
        return producer.enqueue(given, dry_run)
