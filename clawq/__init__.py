"""clawq: a local queue with backpressure for AI agents."""

__version__ = "0.1.0"
__all__ = [
    "Busy",
    "ClawqError",
    "ConfigError",
    "EffectHeld",
    "LeaseLost",
    "NoSuchJob",
    "Outcome",
    "Receipt",
    "Refused",
    "SideEffect",
    "StorageError",
    "TimedOut",
    "Unconfirmed",
    "UsageError",
    "ask",
    "beat",
    "effect",
    "enqueue",
    "enqueue_many",
    "fail",
    "job",
    "spend",
    "throttle",
    "wait",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawq.api.producing import enqueue, enqueue_many
    from clawq.api.watching import Outcome, job, wait
    from clawq.api.working import SideEffect, ask, beat, effect, fail, spend, throttle
    from clawq.client import Receipt
    from clawq.errors import (
        Busy,
        ClawqError,
        ConfigError,
        EffectHeld,
        LeaseLost,
        NoSuchJob,
        Refused,
        StorageError,
        TimedOut,
        Unconfirmed,
        UsageError,
    )
else:
    _WHERE = {
        "clawq.api.producing": ("enqueue", "enqueue_many"),
        "clawq.api.watching": ("Outcome", "job", "wait"),
        "clawq.api.working": ("SideEffect", "ask", "beat", "effect", "fail", "spend", "throttle"),
        "clawq.client": ("Receipt",),
    }

    def __getattr__(name):
        # Every `clawq` command imports this package: only whoever asks for the API loads it.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((module for module, names in _WHERE.items() if name in names), "clawq.errors")
        return getattr(__import__(home, fromlist=[name]), name)
