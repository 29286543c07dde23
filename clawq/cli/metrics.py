"""`clawq metrics`: every signal of the queue as OpenMetrics text, or in a file for node_exporter."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from clawq import desk
from clawq.cli import params, words
from clawq.cli.series import COUNTER, Buckets, Point, Series
from clawq.errors import UsageError

MODE = 0o644
"""Of the file: node_exporter has an account of its own. In it are names of kinds and tenants, and numbers."""


def metrics(
    textfile: Annotated[
        str | None,
        typer.Option("--textfile", metavar="FILE", help="Write a file for node_exporter instead."),
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Print every signal as OpenMetrics text."""
    told = _look()
    if textfile is not None:
        from clawq.cli import openmetrics

        _write_whole(textfile, openmetrics.text(told))
    elif as_json:
        words.write_json([_as_json(series, points) for series, points in told if points])
    else:
        from clawq.cli import openmetrics

        sys.stdout.write(openmetrics.openmetrics(told))
    return 0


def _look() -> list[tuple[Series, list[Point]]]:
    from clawq.cli import series
    from clawq.cli.overview import look_from
    from clawq.store import counts

    with desk.reading() as here:
        settings, broken = here.settings()
        status = look_from(here, settings, broken)
        told = counts.Told({}, False) if here.db is None else counts.ever(here.db)
    return list(series.tell(status, settings, told))


def _write_whole(path: str, text: str) -> None:
    """Beside it first, then renamed: whoever reads it meanwhile sees the former one.

    Only a plain file is replaced so: of /dev/null and the like there would be none any more.
    """
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise UsageError(f"{path} is not a plain file", "name the file itself; without --textfile it prints")
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(descriptor, MODE)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise UsageError(
            f"{path} could not be written: {error.strerror}",
            "give --textfile a path that you may write",
        ) from None


def _as_json(series: Series, points: list[Point]) -> dict[str, object]:
    return {
        "name": series.name + ("_total" if series.type == COUNTER else ""),
        "type": series.type,
        "help": series.help,
        "samples": [
            {"labels": dict(zip(series.labels, values, strict=True)), "value": _json_value(value)}
            for values, value in points
        ],
    }


def _json_value(value: float | Buckets) -> object:
    if not isinstance(value, Buckets):
        return value
    from clawq.store.counts import BOUNDS_MS

    bounds = [str(most / 1000) for most in BOUNDS_MS]
    return {
        "count": sum(value.counts),
        "sum": value.sum,
        "up_to": dict(zip([*bounds, "+Inf"], value.counts, strict=True)),
    }
