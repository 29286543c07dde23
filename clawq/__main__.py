"""The door. The hot verbs go straight to their module; everything else meets the Typer app.

Exit codes that are nobody's answer: 70 is a bug in clawq (with a traceback), 130 is Ctrl-C.
"""

import os
import sys

from clawq.cli import write_error, write_out
from clawq.errors import ClawqError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

VERBS = ("throttle", "spend", "fail", "beat", "effect", "wait", "ask")
"""Those that clawq.verbs declares."""
HOT = {"enqueue": "enqueue", "add": "enqueue", "_offer": "offer"} | {name: name for name in VERBS}
"""Verb -> its module in clawq.cli."""
LIGHT: "dict[tuple[str, ...], str]" = {("status", "--json"): "overview"}
"""Command lines that need no Typer -> their module."""
BUG = 70
INTERRUPTED = 130
UNWRITTEN = 74


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command line and return its exit code; a hot verb ends the process instead."""
    words = sys.argv[1:] if argv is None else list(argv)
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_standard_files()
    hot = bool(words) and (words[0] in HOT or tuple(words) in LIGHT)
    code = _guarded(_hot if hot else _app, words)
    code = _flushed(code)
    if hot:
        # Taking the interpreter down costs a tenth of the whole run, and nothing is left to be done.
        os._exit(code)
    return code


def _hot(words: "Sequence[str]") -> int:
    if words[0] in VERBS and ("--help" in words or "-h" in words):
        from clawq import verbs
        from clawq.cli.enqueue_help import verb_text

        write_out(verb_text(verbs.VERBS[words[0]]))
        return 0
    _load_apsw()
    name = LIGHT.get(tuple(words)) or HOT[words[0]]
    code: int = getattr(__import__(f"clawq.cli.{name}").cli, name).main(words[1:])
    return code


def _load_apsw() -> None:
    """Import apsw without the package `collections`, which is a tenth of the whole run.

    apsw wants `collections.abc`, whose content lives in a module that Python loads at start-up; the
    package above it is only there because of how a name with a dot is imported.
    """
    if "collections" in sys.modules:
        return
    import _collections_abc

    sys.modules["collections"] = type(sys)("collections")
    sys.modules["collections.abc"] = _collections_abc
    try:
        import apsw  # noqa: F401
    except Exception:
        pass  # an apsw that wants more of it is imported as usual, where it is needed
    finally:
        del sys.modules["collections"], sys.modules["collections.abc"]


def _app(words: "Sequence[str]") -> int:
    from clawq.cli import app

    return app.main(list(words))


def _guarded(run: "Callable[[Sequence[str]], int]", words: "Sequence[str]") -> int:
    """The one place where errors become a line and an exit code."""
    try:
        return run(words)
    except ClawqError as error:
        write_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except OSError as error:
        import errno

        # Of stdout: the store makes errors of its own from what befalls the database.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN, errno.EBADF)
        return _unwritten(error) if full else _bug(error)
    except Exception as error:
        return _bug(error)


def _bug(error: Exception) -> int:
    sys.__excepthook__(type(error), error, error.__traceback__)
    write_error(f"this is a bug in clawq ({type(error).__name__}): please report it with the lines above")
    return BUG


def _unwritten(error: OSError) -> int:
    write_error(f"the output could not be written: {error.strerror}")
    _silence(sys.stdout)
    return UNWRITTEN


def _flushed(code: int) -> int:
    """A reader that has gone is no failure, although Python would call it one at exit; a full disk is."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:
            pass  # closed by whoever ran
        except BrokenPipeError:
            _silence(stream)
        except OSError as error:
            return code or _unwritten(error)
    return code


def _silence(stream: "TextIO") -> None:
    """What it still holds goes nowhere, so that the interpreter does not try again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass


def _open_standard_files() -> None:
    """cron and launchd may start us without: the next file opened must not become stdout."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (it lives as long as we do)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
