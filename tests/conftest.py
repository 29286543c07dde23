"""What every test stands on: no test can reach the queue, the config or the agents of whoever runs it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import hypothesis
import pytest

from clawq.paths import Home, find_home
from clawq.store.connection import open_db
from tests.guardian import Guardian, end_what_is_left
from tests.rows import check_books

# The machine that runs this may be busy: how long one example takes says nothing about the code.
hypothesis.settings.register_profile("clawq", deadline=None, print_blob=True)
# In CI the same examples each time: a red run there is somebody's change, not luck.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "clawq")

# Short: a Unix socket's path has room for about a hundred bytes, and pytest's tmp_path can take them all.
_SHORT = "/tmp"


# `make test &` in a script, or under some CI: Ctrl-C comes ignored, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def guardian() -> Iterator[Guardian]:
    watches = Guardian()
    yield watches
    watches.dismiss()


@pytest.fixture(autouse=True)
def unreachable_home(monkeypatch: pytest.MonkeyPatch, guardian: Guardian) -> Iterator[Path]:
    """Point every place that clawq could look at to a folder of this test's own, here and in children."""
    folder = Path(tempfile.mkdtemp(prefix="cq-", dir=_SHORT)).resolve()
    guardian.tell(str(folder / "q"))
    for name in list(os.environ):
        if name.startswith(("CLAWQ_", "XDG_")):
            monkeypatch.delenv(name)
    user = folder / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("CLAWQ_HOME", str(folder / "q"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(user / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(user / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(user / "runtime"))
    # What a person's terminal would add to the output that tests read.
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    yield folder
    end_what_is_left(folder / "q")
    guardian.tell(f"-{folder / 'q'}")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(unreachable_home: Path) -> Home:
    """The paths of an empty queue of this test's own; CLAWQ_HOME names it. Nothing exists yet."""
    return find_home()


@pytest.fixture
def db(home: Home) -> Iterator[apsw.Connection]:
    """Its database, whose books have to agree at the end."""
    db = open_db(home)
    yield db
    check_books(db)
    db.close()
