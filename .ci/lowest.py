"""Run the tests with the oldest run-time dependencies that pyproject.toml allows, in a venv of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-lowest"
# Only what the tests use: the other tools ask for newer releases of the same libraries.
TEST_TOOLS = {"hypothesis", "mypy", "platformdirs", "pytest", "pytest-xdist"}


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = project["dependencies"] + project["optional-dependencies"]["mcp"]
    oldest = [bound.replace(">=", "==") for bound in bounds]
    tools = [
        bound
        for bound in project["optional-dependencies"]["dev"]
        if re.split("[<>=~! ]", bound)[0] in TEST_TOOLS
    ]
    venv.create(FOLDER, clear=True, with_pip=True)
    python = str(FOLDER / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--editable", str(ROOT), *oldest, *tools], check=True
    )
    return subprocess.run([python, "-m", "pytest", "-n", "2", *sys.argv[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
