"""Writes completions/ for bash, zsh and fish: ``python -m clawq.cli.completion FOLDER`` (`make completions`).

Commands, options and their words stand in the files: a Tab after them starts no Python. What only the queue
knows (kinds, jobs, tenants ...) they ask of ``clawq _offer``. Everything in them comes from the declared
options of enqueue and from the owner's commands; a test holds the files to what this writes.
"""

from __future__ import annotations

from clawq.cli.completion.bash import bash
from clawq.cli.completion.fish import fish
from clawq.cli.completion.tree import every as every
from clawq.cli.completion.tree import tree
from clawq.cli.completion.zsh import zsh

SHELLS = {"clawq.bash": "bash", "_clawq": "zsh", "clawq.fish": "fish"}
"""File name -> shell."""


def files() -> dict[str, str]:
    """File name -> content."""
    root = tree()
    writers = {"bash": bash, "zsh": zsh, "fish": fish}
    return {name: writers[shell](root) for name, shell in SHELLS.items()}
