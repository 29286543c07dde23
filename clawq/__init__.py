"""clawq: a local queue with backpressure for AI agents."""
__version__ = "0.1.0"
