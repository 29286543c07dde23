"""clawq: a local queue with backpressure for AI agents."""

__version__ = "0.1.0"
__all__ = ["ClawqError", "Receipt", "Refused", "enqueue"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawq.client import Receipt, enqueue
    from clawq.errors import ClawqError, Refused
else:

    def __getattr__(name):
        # Every `clawq` command imports this package: only whoever asks for the API loads it.
        if name in ("Receipt", "enqueue"):
            from clawq import client

            return getattr(client, name)
        if name in ("ClawqError", "Refused"):
            from clawq import errors

            return getattr(errors, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
