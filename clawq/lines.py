"""Lines of a batch that differ in payload, dedupe key and arguments only: read and checked once.

A producer that writes a million lines writes few shapes of them. The three that differ are cut out of the
text, and what the rest comes to is kept for the thousand lines that are looked at together (it depends on the
moment and on the configuration). A line that cannot be cut is read as a whole.
"""

import json

from clawq import values
from clawq.store.bulk import OWN, SEPARATOR, Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clawq.errors import ClawqError
    from clawq.store.draft import Draft

    Cut = tuple[str, str | None, str | None, list[str] | None]
    """A line's text with ``null`` in place of payload, dedupe key and command, and these three: the payload
    as JSON text, the others as they were read; None for what was not cut out."""

SMALL = values.PAYLOAD_MAX // 4
"""Characters of a payload that need no counting of bytes."""
PAYLOAD, KEY, COMMAND = '"payload"', '"dedupe_key"', '"command"'


def _no_constant(name: str) -> object:
    raise ValueError(name)  # NaN and the like, which Python reads and JSON does not have


# Typeshed does not know it: the value that stands at an index, and where it ends.
_scan = json.JSONDecoder(parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
_TROUBLE = (ValueError, RecursionError, StopIteration, IndexError)


def _value(text: str, mark: str) -> "tuple[int, int, Any] | None":
    """(start, end, value) of what stands after `mark` and a colon; None: not there, or not as usual."""
    at = text.find(mark)
    if at < 0:
        return None
    start = at + len(mark)
    if text[start] != ":":
        return None
    start += 1
    if text[start] == " ":
        start += 1
    value, end = _scan(text, start)
    return start, end, value


def cut(text: str, before: str) -> "tuple[Cut, str] | None":
    """A line cut, and what to pass on as `before` with the next one. None: it is to be read as a whole.

    What is cut out has been found to be JSON. The command stays in a line that has the one before's.
    """
    payload = key = command = None
    try:
        found = _value(text, PAYLOAD)
        if found is not None and found[2] is not None:
            start, end, _ = found
            payload = text[start:end]
            text = f"{text[:start]}null{text[end:]}"
        found = _value(text, KEY)
        if found is not None and found[2] is not None:
            start, end, key = found
            text = f"{text[:start]}null{text[end:]}"
        if text == before:
            return (text, payload, key, None), before
        before = text
        found = _value(text, COMMAND)
        if found is not None and found[2] is not None:
            start, end, command = found
            text = f"{text[:start]}null{text[end:]}"
    except _TROUBLE:
        return None
    if command is not None and (type(command) is not list or not command or type(command[0]) is not str):
        return None
    if key is not None and type(key) is not str:
        return None
    return (text, payload, key, command), before


def whole(line: "Cut") -> "dict[str, object] | None":
    """The line as options; None when it is no object. Raises ValueError and RecursionError."""
    rest, payload, key, command = line
    given = json.loads(rest)
    if not isinstance(given, dict):
        return None
    for name, value in (("payload", payload), ("dedupe_key", key), ("command", command)):
        if value is not None:
            given[name] = value.encode() if name == "payload" and isinstance(value, str) else value
    return given


def is_well_cut(line: "Cut") -> bool:
    """Whether what was cut out were the object's own values, and not some inside of another.

    Raises ValueError and RecursionError for what is not JSON.
    """
    rest = line[0]
    given = json.loads(rest)
    return isinstance(given, dict) and all(
        value is None or (rest.count(mark) == 1 and given.get(mark[1:-1], "") is None)
        for value, mark in zip(line[1:], (PAYLOAD, KEY, COMMAND), strict=True)
    )


class Shapes:
    """``make(given)`` is the whole way from options to a draft; it raises UsageError."""

    __slots__ = ("_known", "_make", "_now")

    def __init__(self, make: "Callable[[Mapping[str, object]], Draft]", now: int) -> None:
        self._make = make
        self._now = now
        self._known: dict[tuple[str, bool, bool, str | None], Run | None] = {}
        """The last run of each shape; None where each line has to be made by itself."""

    def read(self, line: "Cut", drafts: "list[Draft | Run | ClawqError]") -> None:
        """Put it behind the drafts, into the last run where it belongs there. Raises UsageError."""
        rest, payload, key, command = line
        shape = (rest, payload is None, key is None, None if command is None else command[0])
        run = self._known.get(shape)
        if run is None:
            given = whole(line)
            assert given is not None
            draft = self._make(given)  # an error is this line's; the next of its shape has it again
            if shape not in self._known:
                alone = (
                    draft.lighter is not None
                    or draft.same is not None
                    or draft.parent is not None
                    or (draft.command is None and draft.frame.template is not None)
                )
                columns = tuple(
                    name for name, own in zip(OWN, (payload, command, key), strict=True) if own is not None
                )
                self._known[shape] = None if alone else Run(draft, columns)
            drafts.append(draft)
            return
        value = ""
        if payload is not None:
            if len(payload) > SMALL:
                values.check_payload(payload)
            value = payload
        if command is not None:
            words = values.json_array(values.command_words(command))
            value = f"{value}{SEPARATOR}{words}" if value else words
        if key is not None:
            expanded = values.read_key("--dedupe-key", key, self._now)
            value = f"{value}{SEPARATOR}{expanded}" if value else expanded
        if drafts[-1] is not run:
            run = self._known[shape] = Run(run.draft, run.columns)
            drafts.append(run)
        run.values.append(value)
