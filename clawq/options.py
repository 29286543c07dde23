"""The options of ``clawq enqueue``, declared once: for its parser, help, completion, batch lines and Python.

``parse`` splits an argv into raw values; ``read`` makes of raw values (from a command line, a batch
line or Python) the one form that clawq.store.intake takes. argparse and Typer would cost more than
all the rest of ``clawq enqueue``.
"""

from clawq import states as job
from clawq import values
from clawq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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


def _word(flag: str, value: object, now: int) -> str:
    return values.read_word(flag, value, BY_FLAG[flag[2:]].values)


OPTIONS = (
    Option(
        "--payload",
        "JSON|@FILE|-",
        "Handed to the job: JSON of at most 64 KiB, a file or stdin.",
        values.read_payload,
        files="file",
    ),
    Option(
        "--dedupe-key",
        "KEY",
        "Accept once per tenant and kind; {date}, {hour}, {minute} are the local slot.",
        values.read_key,
    ),
    Option(
        "--dedupe-scope",
        "SCOPE",
        "How long the key holds: ever (default), or active (until the job ends).",
        _word,
        values=("ever", "active"),
    ),
    Option("--exclusive", "NAME", "One running job per name, as flock would.", values.read_name),
    Option("--priority", "N", "A point is worth a minute of waiting; default 0.", values.read_priority),
    Option(
        "--band", "BAND", "Served in the order critical, interactive, normal, bulk.", _word, values=job.BANDS
    ),
    Option("--tenant", "NAME", "Whose job it is.", values.read_name),
    Option("--needs", "R,...", "Resources it holds one slot of each while it runs.", values.read_needs),
    Option("--delay", "DURATION", "Not before this long from now: 90s, 10m, 2h, 1d.", values.read_delay),
    Option("--at", "TIME", "Not before: the next HH:MM, or ISO 8601.", values.read_at),
    Option(
        "--stale-after", "DURATION|TIME", "Not started by then, counted from now: expired.", values.read_until
    ),
    Option(
        "--deadline",
        "DURATION|TIME",
        "Ended by then, counted from now, or expired or dead.",
        values.read_until,
    ),
    Option("--timeout", "DURATION|none", "How long one attempt may run.", values.read_timeout),
    Option("--max-attempts", "N", "Attempts before it is dead.", values.read_attempts),
    Option(
        "--on-lost",
        "WHAT",
        "When an attempt's end cannot be told: retry, or unknown (ask a person).",
        _word,
        values=("retry", "unknown"),
    ),
    Option("--hold", "", "Wait for `clawq approve`.", values.read_switch),
    Option(
        "--parent", "ID", "The job that this one is a child of; inside a job: that job.", values.read_parent
    ),
    Option(
        "--on-parent-end",
        "WHAT",
        "What becomes of a child when its parent ends: keep (default) or cancel.",
        _word,
        values=("keep", "cancel"),
    ),
    Option("--cwd", "DIR", "Where it runs; default: here.", values.read_cwd, files="folder"),
    Option(
        "--env",
        "NAME[=VALUE]",
        "A variable for it, or one copied from here; may be repeated.",
        values.read_env,
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
_READERS["kind"] = ("kind", values.read_name)
_READERS["command"] = ("command", values.read_command)


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
            fix = values.near(shown, [each.flag for each in by_flag.values()])
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
                f"unknown key {key!r:.80}", values.near(key, _READERS) + "a batch line has the options' names"
            )
        asked[key] = reader[1](reader[0], value, now)
    if "delay" in asked and "at" in asked:
        raise UsageError("--delay and --at exclude each other", "give one of them")
    if "dedupe_scope" in asked and "dedupe_key" not in asked:
        raise UsageError("--dedupe-scope without a key", "give --dedupe-key too")
    return asked
