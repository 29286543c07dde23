"""`clawq mcp`: the queue as tools for agents that speak the Model Context Protocol."""

from __future__ import annotations

import os
import sys

from clawq.cli import words
from clawq.errors import UsageError


def mcp() -> int:
    """Offer the queue to agents as MCP tools, on stdin and stdout.

    Only kinds with mcp = true may be enqueued. An agent's configuration starts this, not a person.
    """
    try:
        from clawq.mcp.server import serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "clawq":
            raise
        raise UsageError(
            f"clawq mcp needs the MCP SDK, version 2 or newer ({missing} is missing)",
            "pip install 'clawq[mcp]' where clawq is installed (pipx: pipx inject clawq 'mcp>=2')",
        ) from None
    if sys.stdin.isatty():
        words.note("this speaks MCP on stdin: docs/mcp.md shows how an agent is told to start it")
    serve()
    sys.stdout.flush()
    # Threads of calls that nobody waits for any more must not keep it here.
    os._exit(0)
