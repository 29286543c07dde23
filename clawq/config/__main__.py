"""``python -m clawq.config [docs|defaults|reasons|results]``: write the files made from code, in a clone."""

from __future__ import annotations

import sys
from pathlib import Path

from clawq.config import compile_file
from clawq.config.compiler import dump
from clawq.config.problems import model_at
from clawq.config.reference import with_tables
from clawq.rules import ends
from clawq.store.reasons import REASONS, clears_when

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "configuration.md"
REASONS_DOC = ROOT / "docs" / "reasons.md"
REASONS_BEGIN = (
    "<!-- reasons: begin (made from clawq/store/reasons.py by `python -m clawq.config reasons`) -->"
)
REASONS_END = "<!-- reasons: end -->"
RESULTS_DOC = ROOT / "docs" / "results.md"
RESULTS_BEGIN = "<!-- ends: begin (made from clawq/rules/ends.py by `python -m clawq.config results`) -->"
RESULTS_END = "<!-- ends: end -->"
DEFAULTS = ROOT / "clawq" / "store" / "default_config.json"


def defaults() -> str:
    """The compiled form of no file at all."""
    return dump(compile_file(""))


def docs() -> str:
    return with_tables(DOCS.read_text(encoding="utf-8"))


def reasons() -> str:
    """docs/reasons.md with the table of what a job waits for made anew."""
    rows = ["| reason | what it means | it waits until | key |", "|---|---|---|---|"]
    for key, reason in REASONS.items():
        keys = ", ".join(map(_key, reason.keys))
        rows.append(f"| `{key}` | {reason.means} | {clears_when(key, limit='LIMIT')} | {keys} |")
    head, begin, rest = REASONS_DOC.read_text(encoding="utf-8").partition("<!-- reasons: begin")
    assert begin
    tail = rest.partition(REASONS_END)[2]
    return f"{head}{REASONS_BEGIN}\n\n{chr(10).join(rows)}\n\n{REASONS_END}{tail}"


def results() -> str:
    """docs/results.md with the table of ends made anew."""
    head, begin, rest = RESULTS_DOC.read_text(encoding="utf-8").partition(RESULTS_BEGIN)
    assert begin
    return f"{head}{RESULTS_BEGIN}\n\n{ends.table()}\n\n{RESULTS_END}{rest.partition(RESULTS_END)[2]}"


def _key(dotted: str) -> str:
    table, _, key = dotted.rpartition(".")
    exists = key in model_at(tuple(table.split("."))).model_fields
    return f"`{dotted}`" if exists else f"`{dotted}` (not in this version)"


if __name__ == "__main__":
    files = {"docs": (DOCS, docs), "reasons": (REASONS_DOC, reasons), "defaults": (DEFAULTS, defaults)}
    files["results"] = (RESULTS_DOC, results)
    for name in sys.argv[1:] or files:
        path, make = files[name]
        path.write_text(make(), encoding="utf-8")
