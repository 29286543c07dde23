"""Lines of a batch that differ in payload, dedupe key and arguments only: read and checked once.

A producer that writes a million lines writes few shapes of them. The three that differ are cut out of the
text, and what the rest comes to is kept for the thousand lines that are looked at together (it depends on the
moment and on the configuration). Lines that follow each other and leave the same rest stay together from here
to their rows. A line that cannot be cut is read as a whole.
"""

import json

from clawq import values
from clawq.errors import ClawqError, LeaseLost, UsageError
from clawq.store.bulk import OWN, SEPARATOR, Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clawq.store.draft import Draft

    Cut = tuple[str, str | None, str | None, list[str] | None]
    """A line's text with ``null`` in place of payload, dedupe key and command, and these three: the payload
    as JSON text, the others as they were read; None for what was not cut out."""
    Alike = tuple[str, list[str], list[str], list[list[str]]]
    """The same of lines that follow each other: one text, and the three of each, in lists that are empty for
    what was not cut out. The commands begin with the same program."""
    Shape = tuple[str, bool, bool, str | None]
    """The text, whether no payload and no key were cut out, and the program where the command was."""
    Read = dict[str, object] | Alike | ClawqError

LINE_MAX = 1 << 20
"""Payload, command and environment at their largest, escaped."""
SHAPES = 1_000
"""How many shapes of lines are remembered."""
SMALL = 2 * values.DEPTH_MAX
"""Characters of a payload that need no counting, of bytes or of depth."""
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


def _holes(line: "Cut") -> "list[tuple[int, int]]":
    """Where the ``null`` stands of each thing that was cut out, and its place in ``Alike``, in that order."""
    rest, *own = line
    return sorted(
        (rest.index("null", rest.index(mark)), place)
        for place, (mark, value) in enumerate(zip((PAYLOAD, KEY, COMMAND), own, strict=True), 1)
        if value is not None
    )


def is_well_cut(line: "Cut") -> bool:
    """Whether what was cut out were the object's own values, and not some inside of another, or replaced by
    a later one of the same name, however that is spelled: another value in their places changes the object's.

    Raises ValueError and RecursionError for what is not JSON.
    """
    other = line[0]
    given = json.loads(other)
    if not isinstance(given, dict):
        return False
    names = []
    for at, place in reversed(_holes(line)):
        other = f"{other[:at]}true{other[at + len('null') :]}"
        names.append((PAYLOAD, KEY, COMMAND)[place - 1][1:-1])
    changed = json.loads(other)
    return all(given.get(name, "") is None and changed[name] is True for name in names)


class Reader:
    """Reads one line after the other."""

    __slots__ = ("_before", "_good", "_last", "_own", "_pieces", "_tail")

    def __init__(self) -> None:
        self._before = ""
        self._good: dict[Shape, bool] = {}
        """Whether lines of a shape may be cut."""
        self._last: Alike | None = None
        self._own: list[list[Any]] = []
        """Its lists, in the order of what was cut out of the text."""
        self._pieces: list[tuple[str, int]] = []
        """What stands before each thing that was cut out of these, and its place in ``Alike``."""
        self._tail = ""

    def read(self, line: bytes, jobs: "list[Read]") -> None:
        """Put it behind the jobs, with the last of them where they are alike."""
        if len(line) > LINE_MAX:
            jobs.append(UsageError(f"it has more than {LINE_MAX} bytes", "pass a reference to large things"))
            return
        try:
            text = line.decode()
            if self._is_another(text, jobs):
                return
            found = cut(text, self._before)
            if found is not None:
                parts, self._before = found
                shape = _shape_of(parts)
                good = self._good.get(shape)
                if good is None:
                    if len(self._good) >= SHAPES:
                        self._good.clear()
                    good = self._good[shape] = is_well_cut(parts)
                if good:
                    self._put(parts, shape, jobs)
                    return
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            jobs.append(UsageError(f"it is not JSON ({error})", "one object a line"))
            return
        if not isinstance(value, dict):
            value = UsageError("it is not a JSON object", 'such as {"kind": "site.qa", "payload": {}}')
        jobs.append(value)

    def _is_another(self, text: str, jobs: "list[Read]") -> bool:
        """Whether it was one more like the last, which most lines are."""
        last, pieces = self._last, self._pieces
        if last is None or not pieces or not jobs or jobs[-1] is not last:
            return False
        own: list[Any] = []
        at = 0
        try:
            if last[1] and len(pieces) == 1:  # what follows, for most of these in half the time
                start, end = len(pieces[0][0]), len(text) - len(self._tail)
                if not text.startswith(pieces[0][0]) or not text.endswith(self._tail):
                    return False
                value, at = _scan(text, start)
                if at != end or value is None:
                    return False
                last[1].append(text[start:end])
                return True
            for piece, place in pieces:
                if not text.startswith(piece, at):
                    return False
                start = at + len(piece)
                value, at = _scan(text, start)
                if place == 1 and value is not None:
                    value = text[start:at]
                elif place == 2 and type(value) is str:
                    pass
                elif place != 3 or type(value) is not list or not value or value[0] != last[3][0][0]:
                    return False
                own.append(value)
        except _TROUBLE:
            return False
        if text[at:] != self._tail:
            return False
        for lists, value in zip(self._own, own, strict=True):
            lists.append(value)
        return True

    def _put(self, line: "Cut", shape: "Shape", jobs: "list[Read]") -> None:
        last = self._last
        if last is None or not self._pieces or not jobs or jobs[-1] is not last or _shape(last) != shape:
            last = self._last = (line[0], [], [], [])
            jobs.append(last)
            self._take_apart(line)
            self._own = [last[1:][place - 1] for _, place in self._pieces]
        for lists, (_, place) in zip(self._own, self._pieces, strict=True):
            lists.append(line[place])

    def _take_apart(self, line: "Cut") -> None:
        rest = line[0]
        self._pieces, end = [], 0
        for at, place in _holes(line):
            self._pieces.append((rest[end:at], place))
            end = at + len("null")
        self._tail = rest[end:]


def _shape_of(line: "Cut") -> "Shape":
    rest, payload, key, command = line
    return rest, payload is None, key is None, None if command is None else command[0]


def _shape(lines: "Alike") -> "Shape":
    text, payloads, keys, commands = lines
    return text, not payloads, not keys, commands[0][0] if commands else None


class Drafts:
    """``make(given)`` is the whole way from options to a draft; it raises ClawqError."""

    __slots__ = ("_make", "_now", "_runs")

    def __init__(self, make: "Callable[[Mapping[str, object]], Draft]", now: int) -> None:
        self._make = make
        self._now = now
        self._runs: dict[Shape, Run | None] = {}
        """The last run of each shape; None where each line has to be made by itself."""

    def read(self, lines: "Alike", drafts: "list[Draft | Run | ClawqError]") -> None:
        """Put them behind the drafts, into the last run where they belong there; errors in their places.

        Raises LeaseLost.
        """
        shape, (_, payloads, keys, commands) = _shape(lines), lines
        count = max(len(payloads), len(keys), len(commands), 1)
        small = not keys and not commands and max(map(len, payloads), default=0) <= SMALL
        for at in range(count):
            run = self._runs.get(shape)
            try:
                if run is None:
                    drafts.append(self._first(shape, lines, at))
                    continue
                if drafts[-1] is not run:
                    run = self._runs[shape] = Run(run.draft, run.columns)
                    drafts.append(run)
                if small:
                    run.values.extend(payloads[at:] or [""])
                    return
                run.values.append(self._own(lines, at))
            except LeaseLost:
                raise
            except ClawqError as error:
                drafts.append(error)

    def _first(self, shape: "Shape", lines: "Alike", at: int) -> "Draft":
        text, payloads, keys, commands = lines
        payload = payloads[at] if payloads else None
        key = keys[at] if keys else None
        command = commands[at] if commands else None
        given = whole((text, payload, key, command))
        assert given is not None
        draft = self._make(given)  # an error is this line's; the next of its shape has it again
        if shape not in self._runs:
            alone = (
                draft.lighter is not None
                or draft.same is not None
                or draft.parent is not None
                or (key is None and draft.key is not None)  # each of them has the same one
                or (draft.command is None and draft.frame.template is not None)
            )
            own = (payload, command, key)
            columns = tuple(name for name, value in zip(OWN, own, strict=True) if value is not None)
            self._runs[shape] = None if alone else Run(draft, columns)
        return draft

    def _own(self, lines: "Alike", at: int) -> str:
        _, payloads, keys, commands = lines
        own = []
        if payloads:
            values.check_payload(payloads[at])
            own.append(payloads[at])
        if commands:
            own.append(values.json_array(values.command_words(commands[at])))
        if keys:
            own.append(values.read_key("--dedupe-key", keys[at], self._now))
        return SEPARATOR.join(own)
