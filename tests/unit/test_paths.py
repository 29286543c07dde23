"""Where things are: platformdirs is the oracle, CLAWQ_HOME and a bare environment the edges."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from clawq.paths import SOCKET_PATH_MAX, Home, find_home, make_private_dir

XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


@pytest.mark.parametrize(("platform", "oracle"), [("linux", Unix), ("darwin", MacOS)])
@pytest.mark.parametrize("value", [None, "", "/somewhere else", "relative/folder"])
def test_the_usual_places_are_those_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, platform: str, oracle: type[Unix] | type[MacOS], value: str | None
) -> None:
    monkeypatch.delenv("CLAWQ_HOME")
    for name in XDG:
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    home = find_home(os.environ, platform)
    places = oracle("clawq", appauthor=False)
    assert os.path.dirname(home.config) == places.user_config_dir
    assert home.data == places.user_data_dir
    assert home.logs == places.user_log_dir


def test_one_folder_holds_everything() -> None:
    home = find_home({"CLAWQ_HOME": "/srv/queue of mine/"})
    everything = [home.config, home.db, home.sock, home.lock, home.run, home.logs]
    assert all(os.path.dirname(path) == "/srv/queue of mine" for path in everything)


def test_a_relative_home_and_a_tilde_are_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home({"CLAWQ_HOME": "q"}).data == str(tmp_path / "q")
    assert find_home({"CLAWQ_HOME": "~/q"}).data == os.path.expanduser("~/q")


def test_a_bare_environment_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert find_home({}, "linux").data == f"{pwd.getpwuid(os.getuid()).pw_dir}/.local/share/clawq"


@pytest.mark.parametrize("extra", [0, 1])
def test_a_socket_path_is_measured_in_bytes(extra: int) -> None:
    root = "/" + "å" * ((SOCKET_PATH_MAX - len("/clawq.sock") - 1) // 2)
    root += "x" * (SOCKET_PATH_MAX + extra - len(os.fsencode(root)) - len("/clawq.sock"))
    assert Home(root, root, root).socket_fits is (extra == 0)


def test_private_folders_are_made_with_their_parents_and_left_alone_when_there(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    make_private_dir(str(deep))
    assert [oct(path.stat().st_mode & 0o777) for path in (deep, deep.parent)] == ["0o700", "0o700"]
    deep.chmod(0o755)
    make_private_dir(str(deep))
    assert deep.stat().st_mode & 0o777 == 0o755
