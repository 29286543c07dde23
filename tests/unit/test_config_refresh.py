"""A changed file takes effect; a broken one leaves the last good form; a home without one refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from clawq import config, settings
from clawq.config.__main__ import DEFAULTS, defaults
from clawq.errors import ClawqError, ConfigError, StorageError
from clawq.paths import Home
from clawq.store import config_row
from clawq.store.connection import open_db, open_readonly

BROKEN = "[limits]\nmax_runing = 9\n"


def write(home: Home, text: str) -> None:
    Path(home.config).write_text(text)


def max_running(db: apsw.Connection, home: Home, now: int = 1) -> int:
    return config.refresh(db, home, now).limits.max_running


def test_no_file_is_a_working_setup(db: apsw.Connection, home: Home) -> None:
    assert max_running(db, home) == 8
    assert config_row.load(db)[0] == settings.NO_FILE


def test_the_defaults_that_a_new_database_gets_are_those_of_the_models() -> None:
    assert DEFAULTS.read_text() == defaults()


def test_a_changed_file_takes_effect_at_once_and_is_compiled_once(
    db: apsw.Connection, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "[limits]\nmax_running = 3\n")
    assert max_running(db, home, now=5) == 3
    write(home, "[limits]\nmax_running = 4\n")
    assert max_running(db, home, now=6) == 4
    assert db.execute("SELECT changed_at FROM config").get == 6

    def never(path: str) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(config, "compile_file", never)
    assert max_running(db, home, now=7) == 4


def test_a_removed_file_means_the_defaults(db: apsw.Connection, home: Home) -> None:
    write(home, "[limits]\nmax_running = 3\n")
    assert max_running(db, home) == 3
    os.unlink(home.config)
    assert max_running(db, home) == 8


def test_while_the_file_is_broken_the_last_good_form_stays(db: apsw.Connection, home: Home) -> None:
    write(home, "[limits]\nmax_running = 3\n")
    assert max_running(db, home) == 3
    good = config_row.load(db)[0]
    write(home, BROKEN)
    assert max_running(db, home) == 3
    identity, _, broken, error = config_row.load(db)
    assert identity == good
    assert broken == settings.identity(home.config)
    assert error == f"{home.config}:2: limits.max_runing: unknown key: did you mean max_running?"
    write(home, "[limits]\nmax_running = 5\n")
    assert max_running(db, home) == 5
    assert config_row.load(db)[2:] == (None, None)


def test_the_good_file_put_back_is_good_again(db: apsw.Connection, home: Home) -> None:
    write(home, "[limits]\nmax_running = 3\n")
    assert max_running(db, home) == 3
    os.rename(home.config, home.config + ".good")
    write(home, BROKEN)
    assert max_running(db, home) == 3
    assert config_row.load(db)[3] is not None
    os.rename(home.config + ".good", home.config)
    assert max_running(db, home) == 3
    assert config_row.load(db)[2:] == (None, None)


def test_a_home_whose_only_file_is_broken_refuses(
    db: apsw.Connection, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, BROKEN)
    expected = f"{home.config}:2: limits.max_runing: unknown key: did you mean max_running?"
    for _ in range(2):  # the second time from the row
        with pytest.raises(ConfigError) as refused:
            config.refresh(db, home, 1)
        assert str(refused.value) == expected
        assert refused.value.exit_code == 78
        monkeypatch.setattr(config, "compile_file", None)
    monkeypatch.undo()
    os.unlink(home.config)
    assert max_running(db, home) == 8
    assert config_row.load(db)[2:] == (None, None)


def test_a_link_whose_target_is_away_does_not_bring_the_defaults(db: apsw.Connection, home: Home) -> None:
    target = Path(home.data) / "elsewhere.toml"
    target.write_text("[limits]\nmax_running = 3\n")
    Path(home.config).symlink_to(target)
    assert max_running(db, home) == 3
    target.rename(target.with_suffix(".away"))
    assert max_running(db, home) == 3
    assert config_row.load(db)[3] == f"{home.config}: a link to nothing: mend or remove it"
    target.with_suffix(".away").rename(target)
    assert max_running(db, home) == 3
    assert config_row.load(db)[3] is None


def test_several_that_meet_the_change_at_once_agree(home: Home) -> None:
    open_db(home).close()
    write(home, "[limits]\nmax_running = 3\n")
    found: list[int] = []
    start = threading.Barrier(6)

    def look() -> None:
        db = open_db(home)
        start.wait(10)
        found.append(max_running(db, home))
        db.close()

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [3] * 6


def test_a_database_that_cannot_be_written_is_the_disks_fault_not_the_files(home: Home) -> None:
    open_db(home).close()
    write(home, "[limits]\nmax_running = 3\n")
    db = open_readonly(home)
    assert db is not None
    with pytest.raises(StorageError) as refused:
        config.refresh(db, home, 1)
    db.close()
    assert isinstance(refused.value, ClawqError)
    assert home.db in str(refused.value)


def test_an_unchanged_file_loads_neither_pydantic_nor_tomllib(db: apsw.Connection, home: Home) -> None:
    write(home, "[limits]\nmax_running = 3\n")
    assert max_running(db, home) == 3
    script = """
import sys
from clawq import config, settings
from clawq.paths import find_home
from clawq.store.connection import open_db, open_readonly
home = find_home()
print(config.refresh(open_db(home), home, 1).limits.max_running)
print(*[name for name in ("pydantic", "tomllib", "clawq.config.models") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n\n"
