"""The options of ``clawq enqueue``, declared once: for its parser, help, completion, batch lines and Python.

``parse`` splits an argv into raw values; ``read`` makes of raw values (from a command line, a batch
line or Python) the one form that clawq.store.intake takes. argparse and Typer would cost more than
all the rest of ``clawq enqueue``.
"""

import os

from clawq import states as job
from clawq import when
from clawq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PAYLOAD_MAX = 65_536
COMMAND_MAX = 131_072
"""Bytes of a whole command line as JSON; one argument longer than this no Linux would start."""
ENV_MAX = 65_536
NAME_MAX = 200
KEY_MAX = 1_000
PRIORITY_MAX = 100_000
ATTEMPTS_MAX = 10_000
JOB_ID_MAX = (1 << 63) - 1
"""SQLite's largest row number."""


class Option:
    """One option. ``metavar`` is '' for a switch; ``read(flag, value, now)`` is None for what only the
    command line itself looks at; ``values`` are all the words it takes; ``files`` is what completion
    should offer: 'file', 'folder' or ''; ``short`` is a second name with one dash, or ''."""

    __slots__ = ("files", "flag", "help", "key", "many", "metavar", "read", "short", "values")

    def __init__(
        self,
        flag: str,
        metavar: str,
        help: str,
        read: "Callable[[str, object, int], object] | None" = None,
        many: bool = False,
        values: "Sequence[str]" = (),
        files: str = "",
        short: str = "",
    ) -> None:
        self.flag = flag
        self.short = short
        self.key = flag[2:].replace("-", "_")
        self.metavar = metavar
        self.help = help
        self.read = read
        self.many = many
        self.values = values
        self.files = files


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


def _name(flag: str, value: object, now: int) -> str:
    name = _text(flag, value)
    if not name or not name.isprintable():
        raise _wrong(flag, value, "a name without control characters is needed")
    return name


def _key(flag: str, value: object, now: int) -> str:
    key = when.expand_slots(_text(flag, value, KEY_MAX), now)
    if not key or not key.isprintable():
        raise _wrong(flag, value, "a key without control characters is needed")
    return key


def _word(flag: str, value: object, now: int) -> str:
    words = BY_FLAG[flag[2:]].values
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


def _priority(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, -PRIORITY_MAX, PRIORITY_MAX)


def _parent(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, 1, JOB_ID_MAX)


def _attempts(flag: str, value: object, now: int) -> int:
    return _integer(flag, value, 1, ATTEMPTS_MAX)


def _needs(flag: str, value: object, now: int) -> "list[str]":
    """Sorted, without repeats; an empty text means that the job needs nothing."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise _wrong(flag, value, "resource names are needed: browser,shell")
    if isinstance(value, str):
        names = [name.strip() for name in names if name.strip()]
    return sorted({_name(flag, name, now) for name in names})


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


def _delay(flag: str, value: object, now: int) -> int:
    return now + span(flag, value)


def _at(flag: str, value: object, now: int) -> int:
    if hasattr(value, "timestamp"):
        return int(value.timestamp() * 1000)
    if not isinstance(value, str):
        raise _wrong(flag, value, "write HH:MM or ISO 8601")
    return _time(flag, when.moment, value, now)


def _until(flag: str, value: object, now: int) -> int:
    if isinstance(value, str):
        return _time(flag, when.moment_or_duration, value, now)
    if hasattr(value, "timestamp"):
        return _at(flag, value, now)
    return now + span(flag, value)


def _timeout(flag: str, value: object, now: int) -> int:
    """ms; 0 is none."""
    if value == "none":
        return 0
    length = span(flag, value)
    if not length:
        raise _wrong(flag, value, "write a duration longer than nothing, or none")
    return length


def _payload(flag: str, value: object, now: int) -> "str | bytes":
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
    return text


def check_payload(text: str) -> None:
    """Raise UsageError for one that is too large."""
    _check_size(len(text) if text.isascii() else len(text.encode()))


def _check_size(payload: int) -> None:
    if payload > PAYLOAD_MAX:
        raise UsageError(
            f"the payload has {payload} bytes, more than {PAYLOAD_MAX}",
            "pass a reference to it, such as a path",
        )


def _env(flag: str, value: object, now: int) -> "dict[str, str]":
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


def _cwd(flag: str, value: object, now: int) -> str:
    return _text(flag, os.fspath(value) if hasattr(value, "__fspath__") else value, 4096)


def _command(flag: str, value: object, now: int) -> "list[str]":
    return command_words(value)


def command_words(value: object) -> "list[str]":
    """A command's words, checked. Raises UsageError."""
    if isinstance(value, str) and value:
        raise UsageError("the command is one text", 'give a list: ["ls", "-l"], or ["sh", "-c", "ls | wc"]')
    if not isinstance(value, (list, tuple)) or not value or not value[0]:
        raise UsageError("the command is empty", "a program and its arguments are needed, as a list of texts")
    words = [_text("the command's argument", word, COMMAND_MAX) for word in value]
    if sum(map(len, words)) > COMMAND_MAX:
        raise UsageError(f"the command has more than {COMMAND_MAX} bytes", "pass a file or --payload")
    return words


def _switch(flag: str, value: object, now: int) -> bool:
    if not isinstance(value, bool):
        raise _wrong(flag, value, "true or false is needed")
    return value


OPTIONS = (
    Option(
        "--payload",
        "JSON|@FILE|-",
        "Handed to the job: JSON of at most 64 KiB, a file or stdin.",
        _payload,
        files="file",
    ),
    Option(
        "--dedupe-key",
        "KEY",
        "Accept once per tenant and kind; {date}, {hour}, {minute} are the local slot.",
        _key,
    ),
    Option(
        "--dedupe-scope",
        "SCOPE",
        "How long the key holds: ever (default), or active (until the job ends).",
        _word,
        values=("ever", "active"),
    ),
    Option("--exclusive", "NAME", "One running job per name, as flock would.", _name),
    Option("--priority", "N", "A point is worth a minute of waiting; default 0.", _priority),
    Option(
        "--band", "BAND", "Served in the order critical, interactive, normal, bulk.", _word, values=job.BANDS
    ),
    Option("--tenant", "NAME", "Whose job it is.", _name),
    Option("--needs", "R,...", "Resources it holds one slot of each while it runs.", _needs),
    Option("--delay", "DURATION", "Not before this long from now: 90s, 10m, 2h, 1d.", _delay),
    Option("--at", "TIME", "Not before: the next HH:MM, or ISO 8601.", _at),
    Option("--stale-after", "DURATION|TIME", "Not started by then, counted from now: expired.", _until),
    Option("--deadline", "DURATION|TIME", "Ended by then, counted from now, or expired or dead.", _until),
    Option("--timeout", "DURATION|none", "How long one attempt may run.", _timeout),
    Option("--max-attempts", "N", "Attempts before it is dead.", _attempts),
    Option(
        "--on-lost",
        "WHAT",
        "When an attempt's end cannot be told: retry, or unknown (ask a person).",
        _word,
        values=("retry", "unknown"),
    ),
    Option("--hold", "", "Wait for `clawq approve`.", _switch),
    Option("--parent", "ID", "The job that this one is a child of; inside a job: that job.", _parent),
    Option(
        "--on-parent-end",
        "WHAT",
        "What becomes of a child when its parent ends: keep (default) or cancel.",
        _word,
        values=("keep", "cancel"),
    ),
    Option("--cwd", "DIR", "Where it runs; default: here.", _cwd, files="folder"),
    Option(
        "--env",
        "NAME[=VALUE]",
        "A variable for it, or one copied from here; may be repeated.",
        _env,
        many=True,
    ),
    Option("--wait", "", "Wait for its end and exit with its code."),
    Option("--dry-run", "", "Say what would happen, and change nothing."),
    Option(
        "--batch",
        "FILE|-",
        "One JSON object a line: these names with _ for -, kind, and command as a list.",
        files="file",
    ),
    Option("--json", "", "Answer with one JSON object (a batch: one a line)."),
    Option("--print-id", "", "Print the job's id."),
)
BY_FLAG = {option.flag[2:]: option for option in OPTIONS}
"""By what follows the two dashes."""

_READERS: "dict[str, tuple[str, Callable[[str, object, int], object]]]" = {
    option.key: (option.flag, option.read) for option in OPTIONS if option.read
}
_READERS["kind"] = ("kind", _name)
_READERS["command"] = ("command", _command)


def parse(argv: "Sequence[str]") -> "dict[str, object]":
    """The raw values of a command line: {key: text, True or a list}, with ``kind`` and ``command``.

    Raises UsageError.
    """
    given, words, command = split(argv, BY_FLAG, "enqueue")
    if len(words) > 1:
        raise UsageError(
            f"unexpected {words[1]!r:.80}",
            "one KIND, and the command after --: clawq enqueue KIND -- COMMAND",
        )
    if words:
        given["kind"] = words[0]
    if command is not None:
        given["command"] = command
    return given


def split(
    argv: "Sequence[str]", by_flag: "Mapping[str, Option]", verb: str
) -> "tuple[dict[str, object], list[str], list[str] | None]":
    """({key: text, True or a list}, the words that are no options, those after ``--`` or None).

    Raises UsageError.
    """
    given: dict[str, object] = {}
    words: list[str] = []
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word == "--":
            return given, words, list(argv[position:])
        if word[:1] != "-" or word == "-":
            words.append(word)
            continue
        flag, equals, value = word[2:].partition("=")
        option = by_flag.get(flag) if word[:2] == "--" else by_flag.get(word)
        if option is not None and word[:2] != "--":
            equals = value = ""
        if option is None:
            shown = word.partition("=")[0]
            if words and word[:2] != "--" and "--" not in argv:
                raise UsageError(
                    f"unknown option {shown!r:.80}",
                    f"a command comes after --: clawq {verb} -- {words[0]:.80} {word:.80} ...",
                )
            fix = near(shown, [each.flag for each in by_flag.values()])
            raise UsageError(f"unknown option {shown!r:.80}", fix + f"`clawq {verb} --help` lists them")
        if not option.metavar:
            if equals:
                raise UsageError(f"{option.flag} takes no value", f"write {option.flag} alone")
            given[option.key] = True
            continue
        if not equals:
            if position == len(argv) or (argv[position][:2] == "--" and word[:2] == "--"):
                raise UsageError(
                    f"{option.flag} needs a value", f"{option.flag} {option.metavar}, or {option.flag}=VALUE"
                )
            value = argv[position]
            position += 1
        if option.many:
            earlier = given.setdefault(option.key, [])
            assert isinstance(earlier, list)
            earlier.append(value)
        else:
            given[option.key] = value
    return given, words, None


def read(given: "Mapping[str, object]", now: int) -> "dict[str, object]":
    """What clawq.store.intake takes: values checked, times in ms since the epoch, slots expanded at `now`.

    None means not given. Raises UsageError, for an unknown key too.
    """
    asked: dict[str, object] = {}
    for key, value in given.items():
        if value is None:
            continue
        reader = _READERS.get(key)
        if reader is None:
            raise UsageError(
                f"unknown key {key!r:.80}", near(key, _READERS) + "a batch line has the options' names"
            )
        asked[key] = reader[1](reader[0], value, now)
    if "delay" in asked and "at" in asked:
        raise UsageError("--delay and --at exclude each other", "give one of them")
    if "dedupe_scope" in asked and "dedupe_key" not in asked:
        raise UsageError("--dedupe-scope without a key", "give --dedupe-key too")
    return asked


def expanded_key(value: object, now: int) -> str:
    """A dedupe key as ``read`` makes it. Raises UsageError."""
    return _key("--dedupe-key", value, now)


def near(word: object, words: "Iterable[str]") -> str:
    """``did you mean X? `` or nothing: the start of a fix."""
    from difflib import get_close_matches

    found = get_close_matches(str(word), list(words), 1)
    return f"did you mean {found[0]}? " if found else ""


_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {34: '\\"', 92: "\\\\"}


def json_array(words: "Iterable[str]") -> str:
    """A JSON array of strings, without the json module."""
    return "[" + ",".join([f'"{word.translate(_ESCAPES)}"' for word in words]) + "]"


def json_object(pairs: "Mapping[str, str]") -> str:
    """A JSON object of strings, without the json module."""
    return (
        "{"
        + ",".join([f'"{k.translate(_ESCAPES)}":"{v.translate(_ESCAPES)}"' for k, v in pairs.items()])
        + "}"
    )
