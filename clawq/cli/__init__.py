"""The command line: each verb parses, calls one function and says what it answered.

What the door and the hot verbs write goes through here, straight to the descriptors: no buffer to
flush, and a closed or ASCII terminal is no reason to fail.
"""

import os
import sys

from clawq import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def as_utf8(words: "Sequence[str]") -> "list[str]":
    """What was typed, whatever the locale made of it. Bytes that are not UTF-8 are refused later, by name."""
    if sys.getfilesystemencoding() == "utf-8":
        return list(words)
    return [paths.as_utf8(word) for word in words]


_unwritten: "list[int]" = []
"""Error numbers of stdout that were told: who writes again and again has one line of it."""


def write_out(text: str) -> None:
    """To stdout. A reader that has gone does not undo what was done; a full disk is worth one line."""
    try:
        _write(1, text)
    except BrokenPipeError:
        pass
    except OSError as error:
        if _unwritten:
            return
        _unwritten.append(error.errno or 0)
        write_error(f"the answer could not be written to stdout: {error.strerror}")


def write_json(document: "dict[str, object]") -> None:
    """A JSON object, on a line of stdout."""
    from clawq.quickjson import dumps

    write_out(dumps(document) + "\n")


def write_error(text: str) -> None:
    """One line on stderr; control characters are shown, not sent."""
    shown = "".join([c if c.isprintable() else "?" for c in text])
    try:
        _write(2, f"clawq: {shown}\n")
    except OSError:
        pass


def _write(descriptor: int, text: str) -> None:
    data = text.encode("utf-8" if _speaks_utf8() else "ascii", "backslashreplace")
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            # Whoever shares this pipe with us made it so (Node does), and its reader is slow.
            import select

            select.select([], [descriptor], [])


def _speaks_utf8() -> bool:
    return sys.stderr is not None and sys.stderr.encoding.lower().replace("-", "") == "utf8"


def ascii_json(text: str) -> str:
    """The same JSON in ASCII, whatever the locale can say."""
    if text.isascii():
        return text
    shown = []
    for char in text:
        if char.isascii():
            shown.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex()
            shown += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(shown)
