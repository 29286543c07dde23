"""Why a job does not start, in a word: what each of the words means for those that wait."""

HOST_REASONS = frozenset(
    {"uid_procs", "low_memory", "memory_pressure", "low_disk", "spawn_failed", "ramp_up"}
)
"""Reasons that can clear without any event of ours: the machine or the clock has to be looked at again."""

SHORT_OF_SLOTS = frozenset({"max_running", "tenant_limit", "kind_limit", "band_share", "reserved"})
"""Refusals, beside those by a resource, that only the ends of others clear: they earn a reservation."""

OBSERVED_ANYWAY = frozenset({"paused", "spawn_failed"})
"""What holds a job back even when only observing: a person's word, and a machine that cannot fork."""


def is_short_of_slots(reason: str) -> bool:
    return reason in SHORT_OF_SLOTS or reason.startswith("resource:")


def resets_ageing(reason: str) -> bool:
    """A pause, a gate or a cooldown: nobody could have started meanwhile, so the wait does not count."""
    return reason == "paused" or reason in HOST_REASONS or reason.startswith("cooldown:")
