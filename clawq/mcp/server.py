"""The tools over stdio: the one place that uses the SDK. Its stdout carries the protocol and nothing else."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from clawq import __version__, desk
from clawq.errors import ClawqError
from clawq.mcp import schema
from clawq.mcp.tools import Session

AT_ONCE = 16
"""Calls at one time: a client that waits for more of them than this waits in turn."""


def serve() -> None:
    """Until the client closes its end."""
    anyio.run(_serve)


async def _serve() -> None:
    session = Session()
    calls = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            return types.ListToolsResult(tools=await anyio.to_thread.run_sync(_tools))
        except ClawqError as error:
            # In the SDK's own words: what else is raised here it logs as a fault of the server.
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        over = threading.Event()
        try:
            # Abandoned when the client cancels it or has gone: a thread cannot be ended, but told.
            answer = await anyio.to_thread.run_sync(
                session.call,
                params.name,
                params.arguments or {},
                over.is_set,
                abandon_on_cancel=True,
                limiter=calls,
            )
        finally:
            over.set()
        # What agents wrote may hold halves of characters, which the protocol cannot carry.
        text = json.dumps(answer.document, ensure_ascii=False).encode(errors="replace").decode()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=json.loads(text),
            is_error=answer.failed,
        )

    server = Server(
        "clawq",
        version=__version__,
        instructions=schema.ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _tools() -> list[types.Tool]:
    with desk.reading() as here:
        settings, _ = here.settings()
    return [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=tool.reads,
                destructive_hint=tool.name == "cancel",
                idempotent_hint=tool.once,
                open_world_hint=False,
            ),
        )
        for tool in schema.tools(settings)
    ]
