"""What is said of a job, value by value: checked, and in the form that the queue keeps.

A ``read_*`` gets (flag, value, now): what to call it in a complaint, what a command line, a batch line or
Python gave, and epoch ms. All of them raise UsageError.
"""

import os

from clawq import when
from clawq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PAYLOAD_MAX = 65_536
DEPTH_MAX = 1_000
"""Arrays and objects of a payload within each other: SQLite takes nothing deeper for JSON, Python may."""
COMMAND_MAX = 131_072
"""Bytes of a whole command line as JSON; one argument longer than this no Linux would start."""
ENV_MAX = 65_536
NAME_MAX = 200
KEY_MAX = 1_000
PRIORITY_MAX = 100_000
ATTEMPTS_MAX = 10_000
JOB_ID_MAX = (1 << 63) - 1
"""SQLite's largest row number."""
_SLOT_ALIASES = {"day": ("date",), "today": ("date",), "min": ("minute",)}


def near(word: object, words: "Iterable[str]") -> str:
    """``did you mean X? `` or nothing: the start of a fix."""
    from difflib import get_close_matches

    # Two dashes in common make no two options alike.
    bare = {each.lstrip("-"): each for each in words}
    found = get_close_matches(str(word).lstrip("-"), bare, 1)
    return f"did you mean {bare[found[0]]}? " if found else ""


def _wrong(flag: str, value: object, fix: str) -> UsageError:
    return UsageError(f"{flag} {value!r:.80}", fix)


def _text(flag: str, value: object, longest: int = NAME_MAX) -> str:
    if not isinstance(value, str):
        raise _wrong(flag, value, "a text is needed")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _wrong(flag, value, "it is not UTF-8") from None
    if "\0" in value:
        raise _wrong(flag, value, "a NUL byte cannot be passed on")
    if size > longest:
        raise _wrong(flag, value, f"at most {longest} bytes")
    return value


def read_name(flag: str, value: object, now: int) -> str:
    name = _text(flag, value)
    if not name or not name.isprintable():
        raise _wrong(flag, value, "a name without control characters is needed")
    return name


def read_key(flag: str, value: object, now: int) -> str:
    key = when.expand_slots(_text(flag, value, KEY_MAX), now)
    if not key or not key.isprintable():
        raise _wrong(flag, value, "a key without control characters is needed")
    if "{" in key:
        _refuse_misspelt_slot(flag, key)
    return key


def _refuse_misspelt_slot(flag: str, key: str) -> None:
    """Other braces are taken literally; a slot that is misspelt would be one job for ever."""
    import re
    from difflib import get_close_matches

    for word in re.findall(r"\{\s*(\w+)\s*\}", key):
        found = _SLOT_ALIASES.get(word.lower()) or get_close_matches(word.lower(), when.SLOTS, 1, 0.7)
        if found:
            raise _wrong(
                flag, key, f"did you mean {{{found[0]}}}? the slots are {{date}}, {{hour}} and {{minute}}"
            )


def read_word(flag: str, value: object, words: "Sequence[str]") -> str:
    """One of `words`."""
    if value not in words:
        raise _wrong(flag, value, f"{near(value, words)}one of {', '.join(words)} is needed")
    return str(value)


def _integer(flag: str, value: object, least: int, most: int) -> int:
    number = value
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("-", "+") else value
        if digits.isascii() and digits.isdigit() and len(digits) < 19:
            number = int(value)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise _wrong(flag, value, f"a whole number from {least} to {most} is needed")
    return number


def read_priority(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, -PRIORITY_MAX, PRIORITY_MAX)


def read_parent(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, 1, JOB_ID_MAX)


def read_attempts(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, 1, ATTEMPTS_MAX)


def read_needs(flag: str, value: object, now: int) -> "list[str]":
    """Sorted, without repeats; an empty text means that the job needs nothing."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise _wrong(flag, value, "resource names are needed: browser,shell")
    if isinstance(value, str):
        names = [name.strip() for name in names if name.strip()]
    return sorted({read_name(flag, name, now) for name in names})


def span(flag: str, value: object) -> int:
    """ms of a duration, which Python and batch lines may also give in seconds or as a timedelta."""
    seconds = value
    if hasattr(value, "total_seconds"):
        seconds = value.total_seconds()
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        if not 0 <= seconds * 1000 <= when.LONGEST_MS:
            raise _wrong(flag, value, "from nothing to a hundred years")
        return int(seconds * 1000)
    if not isinstance(value, str):
        raise _wrong(flag, value, "write 90s, 10m, 2h or 1d")
    return _time(flag, when.duration, value)


def _time(flag: str, read: "Callable[..., int]", *value: object) -> int:
    try:
        return read(*value)
    except UsageError as error:
        raise UsageError(f"{flag} {error.what}", error.fix) from None


def read_delay(flag: str, value: object, now: int) -> int:
    return now + span(flag, value)


def read_at(flag: str, value: object, now: int) -> int:
    if hasattr(value, "timestamp"):
        return int(value.timestamp() * 1000)
    if not isinstance(value, str):
        raise _wrong(flag, value, "write HH:MM or ISO 8601")
    return _time(flag, when.moment, value, now)


def read_until(flag: str, value: object, now: int) -> int:
    if isinstance(value, str):
        return _time(flag, when.moment_or_duration, value, now)
    if hasattr(value, "timestamp"):
        return read_at(flag, value, now)
    return now + span(flag, value)


def read_timeout(flag: str, value: object, now: int) -> int:
    """ms; 0 is none."""
    if value == "none":
        return 0
    length = span(flag, value)
    if not length:
        raise _wrong(flag, value, "write a duration longer than nothing, or none")
    return length


def read_payload(flag: str, value: object, now: int) -> "str | bytes":
    """bytes stay bytes, JSON text that is still to be checked; any other value is written as JSON."""
    if not isinstance(value, bytes):
        return _payload_text(value)
    text = value.strip()
    _check_size(len(text))
    return text


def _payload_text(value: object) -> str:
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as \ud800
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        size = len(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the payload cannot be written as JSON ({error})", "pass what JSON can hold"
        ) from None
    _check_size(size)
    _check_depth(text)
    return text


def check_payload(text: str) -> None:
    """Raise UsageError for JSON that is too large or too deep."""
    _check_size(len(text) if text.isascii() else len(text.encode()))
    _check_depth(text)


def _check_depth(payload: str) -> None:
    if payload.count("[") + payload.count("{") <= DEPTH_MAX:
        return
    import re

    depth = 0
    for mark in re.sub(r'"(?:[^"\\]|\\.)*"|[^]["{}]', "", payload):
        depth += 1 if mark in "[{" else -1
        if depth > DEPTH_MAX:
            raise UsageError(
                f"the payload has more than {DEPTH_MAX} arrays and objects within each other",
                "pass a reference to it, such as a path",
            )


def _check_size(payload: int) -> None:
    if payload > PAYLOAD_MAX:
        raise UsageError(
            f"the payload has {payload} bytes, more than {PAYLOAD_MAX}",
            "pass a reference to it, such as a path",
        )


def read_env(flag: str, value: object, now: int) -> "dict[str, str]":
    """From ``K=V`` and ``K`` (copied from this environment) or from a mapping."""
    pairs: dict[str, str] = {}
    if isinstance(value, dict):
        for name, each in value.items():
            pairs[_text(flag, name)] = _text(flag, each, ENV_MAX)
    elif isinstance(value, (list, tuple)):
        for word in value:
            name, equals, each = _text(flag, word, ENV_MAX).partition("=")
            pairs[name] = each if equals else _copied(flag, name)
    else:
        raise _wrong(flag, value, "names and values are needed")
    for name in pairs:
        if not name or "=" in name or not name.isprintable():
            raise _wrong(flag, name, "it is not the name of a variable")
    if sum(len(name) + len(each) for name, each in pairs.items()) > ENV_MAX:
        raise UsageError(f"{flag}: more than {ENV_MAX} bytes in all", "use the kind's env_file")
    return pairs


def _copied(flag: str, name: str) -> str:
    value = os.environb.get(name.encode())
    if value is None:
        raise _wrong(flag, name, "it is not set here: write NAME=VALUE")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _wrong(flag, name, "its value is not UTF-8") from None


def read_cwd(flag: str, value: object, now: int) -> str:
    return _text(flag, os.fspath(value) if hasattr(value, "__fspath__") else value, 4096)


def read_command(flag: str, value: object, now: int) -> "list[str]":
    return command_words(value)


def command_words(value: object) -> "list[str]":
    """A command's words, checked. Raises UsageError."""
    if isinstance(value, str) and value:
        raise UsageError("the command is one text", 'give a list: ["ls", "-l"], or ["sh", "-c", "ls | wc"]')
    if not isinstance(value, (list, tuple)) or not value or not value[0]:
        raise UsageError("the command is empty", "a program and its arguments are needed, as a list of texts")
    try:
        together = "".join(value)
        if together.isascii() and "\0" not in together and len(together) <= COMMAND_MAX:
            return list(value)
    except TypeError:
        pass  # the one that is no text is named below
    words = [_text("the command's argument", word, COMMAND_MAX) for word in value]
    if sum(map(len, words)) > COMMAND_MAX:
        raise UsageError(f"the command has more than {COMMAND_MAX} bytes", "pass a file or --payload")
    return words


def read_switch(flag: str, value: object, now: int) -> bool:
    if not isinstance(value, bool):
        raise _wrong(flag, value, "true or false is needed")
    return value


_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {34: '\\"', 92: "\\\\"}


def json_array(words: "Iterable[str]") -> str:
    """A JSON array of strings, without the json module."""
    text = '","'.join(words := list(words))
    if words and text.isprintable() and "\\" not in text and text.count('"') == 2 * (len(words) - 1):
        return f'["{text}"]'  # nothing to escape, as a rule
    return "[" + ",".join([f'"{word.translate(_ESCAPES)}"' for word in words]) + "]"


def json_object(pairs: "Mapping[str, str]") -> str:
    """A JSON object of strings, without the json module."""
    return (
        "{"
        + ",".join([f'"{k.translate(_ESCAPES)}":"{v.translate(_ESCAPES)}"' for k, v in pairs.items()])
        + "}"
    )
