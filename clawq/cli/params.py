"""Options and arguments that several of the owner's commands share.

All of them are text: this program reads numbers and times itself, so that its errors are its own.
"""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's number.", show_default=False)]
JobIds = Annotated[list[str], typer.Argument(metavar="ID", help="The jobs' numbers.", show_default=False)]
OfKind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's jobs.")]
Limit = Annotated[str, typer.Option("--limit", metavar="N", help="At most so many rows.")]
