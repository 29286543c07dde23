"""``python -m clawq.config docs|defaults``: write the files that are made from the models, in a clone."""

from __future__ import annotations

import sys
from pathlib import Path

from clawq.config import compile_file
from clawq.config.compiler import dump
from clawq.config.reference import with_tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "configuration.md"
DEFAULTS = ROOT / "clawq" / "store" / "default_config.json"


def defaults() -> str:
    """The compiled form of no file at all."""
    return dump(compile_file(""))


def docs() -> str:
    return with_tables(DOCS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    files = {"docs": (DOCS, docs), "defaults": (DEFAULTS, defaults)}
    for name in sys.argv[1:] or files:
        path, make = files[name]
        path.write_text(make(), encoding="utf-8")
