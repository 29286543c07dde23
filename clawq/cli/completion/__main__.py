"""``python -m clawq.cli.completion FOLDER``: write the completions there."""

from __future__ import annotations

import sys
from pathlib import Path

from clawq.cli import write_error
from clawq.cli.completion import files


def main(argv: list[str]) -> int:
    """Write them all into the folder that `argv` names."""
    if len(argv) != 1 or argv[0].startswith("-"):
        write_error("usage: python -m clawq.cli.completion FOLDER")
        return 0 if argv in (["--help"], ["-h"]) else 2
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
