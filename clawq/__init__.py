"""clawq: a local queue with backpressure for AI agents."""

__version__ = "0.1.0"
__all__ = ["ClawqError", "Receipt", "Refused", "enqueue"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawq.api import enqueue
    from clawq.client import Receipt
    from clawq.errors import ClawqError, Refused
else:

    def __getattr__(name):
        # Every `clawq` command imports this package: only whoever asks for the API loads it.
        if name == "enqueue":
            from clawq import api

            return api.enqueue
        if name == "Receipt":
            from clawq import client

            return client.Receipt
        if name in ("ClawqError", "Refused"):
            from clawq import errors

            return getattr(errors, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
