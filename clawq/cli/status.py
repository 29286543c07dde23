"""`clawq status`: is it running, what runs, what waits and for what, and does anything need a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawq.cli import overview, params, words
from clawq.errors import UsageError

if TYPE_CHECKING:
    from clawq.cli.render import Page

Document = dict[str, Any]

WATCH_S = 1.0


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh in place until Ctrl-C.")] = False,
    as_json: params.AsJson = False,
) -> int:
    """Show the supervisor, the host, what runs, what waits and why."""
    if watch:
        return _watch(as_json)
    document = overview.look()
    if as_json:
        words.write_json(overview.public(document))
    else:
        page(document).print()
    return 0


def page(document: Document) -> Page:
    """The page for people."""
    from clawq.cli.status_page import draw

    return draw(document)


def _watch(as_json: bool) -> int:
    import sys
    import time

    if as_json:
        while True:
            words.write_json(overview.public(overview.look()))
            sys.stdout.flush()
            time.sleep(WATCH_S)
    if not sys.stdout.isatty():
        raise UsageError("--watch needs a terminal", "leave it out, or add --json for a document each second")
    from clawq.cli.render import watch

    watch(lambda: page(overview.look()), WATCH_S)
    return 0
