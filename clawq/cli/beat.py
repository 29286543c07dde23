"""``clawq beat``: a sign of life, from inside a job whose kind has ``heartbeat = "agent"``."""

from clawq.cli import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str]") -> int:
    """The exit code. Raises ClawqError."""
    as_json = False
    if argv:
        # Nearly all calls have no argument, and need not know what there is.
        from clawq import verbs

        as_json = "json" in verbs.parse(verbs.BEAT, argv)[1]
    from clawq.lease import beat

    job_id = beat()
    if as_json:
        write_json({"job_id": job_id})
    return 0
