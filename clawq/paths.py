"""Where clawq keeps things: one folder (``CLAWQ_HOME``), or the platform's usual places.

The usual places are those of platformdirs, worked out here because importing it costs ``clawq
enqueue`` more than everything else it does; the tests hold the two equal on Linux and macOS.
"""

from __future__ import annotations

import os
import sys

from clawq.errors import StorageError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_PATH_MAX = 103
"""Bytes a Unix socket's path may have: macOS has 104 with the closing NUL, Linux 108."""


TICKS_WITHIN_MS = 5_000
"""A supervisor touches its lock file each second; older than this, it does not tick."""


class Home:
    """The paths of one queue, all absolute strings. Nothing is created by asking."""

    __slots__ = ("config", "data", "db", "lock", "logs", "run", "sock")

    def __init__(self, config_dir: str, data_dir: str, log_dir: str) -> None:
        self.config = os.path.join(config_dir, "clawq.toml")
        self.data = data_dir
        self.db = os.path.join(data_dir, "clawq.db")
        self.sock = os.path.join(data_dir, "clawq.sock")
        self.lock = os.path.join(data_dir, "clawq.lock")
        self.run = os.path.join(data_dir, "run")
        self.logs = log_dir

    @property
    def socket_fits(self) -> bool:
        """False when the path is too long for a Unix socket: the supervisor then polls."""
        return len(os.fsencode(self.sock)) <= SOCKET_PATH_MAX


def find_home(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Home:
    """The Home that this environment names. Works without HOME, PATH or anything else set."""
    environ = os.environ if environ is None else environ
    single = environ.get("CLAWQ_HOME")
    if single:
        root = _absolute(os.path.expanduser(single))
        return Home(root, root, os.path.join(root, "logs"))
    user = environ.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        config_dir = data_dir = "Library/Application Support"
        logs = os.path.join(user, "Library", "Logs", "clawq")
    else:
        config_dir, data_dir = ".config", ".local/share"
        logs = os.path.join(_xdg(environ, "XDG_STATE_HOME", user, ".local/state"), "clawq", "log")
    config = _xdg(environ, "XDG_CONFIG_HOME", user, config_dir)
    data = _xdg(environ, "XDG_DATA_HOME", user, data_dir)
    return Home(os.path.join(config, "clawq"), os.path.join(data, "clawq"), logs)


def as_utf8(text: str) -> str:
    """What was meant by a path, word or variable, whatever the locale made of its bytes.

    Bytes that are not UTF-8 stay lone surrogates, which neither SQLite nor JSON takes.
    """
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The bytes behind an ``as_utf8`` text: what a program is handed, in every locale."""
    return text.encode("utf-8", "surrogateescape")


def utf8_path() -> str | None:
    """Our PATH without the folders that are not UTF-8, which the database cannot hold; None when unset."""
    path = os.environb.get(b"PATH")
    if not path:
        return None
    try:
        return path.decode()
    except UnicodeDecodeError:
        folders = [folder.decode(errors="surrogateescape") for folder in path.split(b":")]
        return ":".join([folder for folder in folders if folder.isascii() or _encodes(folder)])


def _encodes(text: str) -> bool:
    return text.encode(errors="ignore").decode() == text


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise UsageError(
            f"CLAWQ_HOME is {path!r:.200} and the current folder no longer exists", "give its full path"
        ) from None


def _xdg(environ: Mapping[str, str], name: str, user: str, usual: str) -> str:
    given = environ.get(name, "").strip()
    return given if given.startswith("/") else os.path.join(user, usual)


def own_folder() -> str:
    """Where the `clawq` that runs now lies, with its neighbours: agents find it at the end of their PATH."""
    program = sys.argv[0] if os.path.basename(sys.argv[0]) == "clawq" else sys.executable
    return os.path.dirname(os.path.abspath(program))


def own_program() -> tuple[str, ...]:
    """How the clawq that runs now is called. No link is followed: an upgrade leaves the path as it is."""
    program = os.path.join(own_folder(), "clawq")
    if os.access(program, os.X_OK):
        return (program,)
    return (os.path.abspath(sys.executable), "-m", "clawq")


def places(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that put the queue elsewhere than in the usual place, as whole paths."""
    own = environ.get("CLAWQ_HOME")
    if own:
        return {"CLAWQ_HOME": _absolute(os.path.expanduser(own))}
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    return {name: environ[name] for name in names if environ.get(name, "").startswith("/")}


def nearest(folder: str) -> str:
    """`folder`, or what is there of the way to it."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def check_folder(path: str) -> None:
    """Raises StorageError when something that is no folder stands at `path`, or on the way to it."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if os.path.isdir(path):
        return
    if os.path.islink(path) and not os.path.exists(path):
        raise StorageError(f"{path} is a link to nothing", "bring back what it names, or remove it")
    raise StorageError(f"{path} is not a folder", "set CLAWQ_HOME to one, or move it away")


def size_of(path: str) -> int:
    """Bytes; 0 where no file can be seen."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def make_private_dir(path: str) -> None:
    """Create `path` (and parents) with mode 0700; an existing folder is left as it is. Raises StorageError
    where none can be."""
    if os.path.isdir(path):
        return
    check_folder(path)
    make_parent = os.path.dirname(path)
    if make_parent and not os.path.isdir(make_parent):
        make_private_dir(make_parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def supervisor_ticks(home: Home, now: int) -> bool:
    """Whether a supervisor is alive, by the cheapest sign: it touches its lock. ``now`` is epoch ms."""
    try:
        return now - os.stat(home.lock).st_mtime_ns // 1_000_000 < TICKS_WITHIN_MS
    except OSError:
        return False
