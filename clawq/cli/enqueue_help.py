"""``--help`` of the hot verbs, from what they declare."""

import textwrap

from clawq import options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawq.verbs import Verb

WIDTH = 78

USAGE = "Usage: clawq enqueue [OPTIONS] [KIND] [-- COMMAND ARG...]"

ABOUT = """\
Accept a job and walk away: it is on disk when this returns, and the supervisor (`clawq run`) starts it
when there is room. KIND is one of clawq.toml, or left out when a command is given; COMMAND is left out
when the kind has one. Nothing is printed on success unless stdout is a terminal."""

FORMS = """\
A DURATION is 90s, 10m, 2h or 1d. A TIME is the next HH:MM here, or ISO 8601 such as 2030-01-31T07:00."""

EXITS = (
    ("0", "accepted, or a duplicate of a job with the same key"),
    ("2", "the command line is wrong: unknown kind, resource or option, no such executable"),
    ("65", "refused for good: it could never run in time, or at all"),
    ("74", "the disk is full, or the database cannot be read"),
    ("75", "refused for now: the queue is full or busy; try again later"),
    ("78", "clawq.toml is not valid, and never was"),
)
WAIT = """\
With --wait, once the job is accepted: the job's own exit code; 65 when it expired; 1 when it was
cancelled, is unknown, or is dead without a code of its own. Ctrl-C (130) leaves the job alone.
A batch exits with the most severe code of its lines: 74, 78, 2, 65, 75, 0."""


def text() -> str:
    """The whole help, at most WIDTH columns of ASCII."""
    parts = [
        USAGE,
        _paragraph(ABOUT, "  "),
        "Options:\n" + _options(options.OPTIONS),
        _paragraph(FORMS, "  "),
        "Exit codes:\n" + _table(EXITS),
        _paragraph(WAIT, "  "),
    ]
    return "\n\n".join(parts) + "\n"


def verb_text(verb: "Verb") -> str:
    """The same for another hot verb."""
    parts = [
        f"Usage: {verb.usage} [OPTIONS]",
        _paragraph(verb.about, "  "),
        "Options:\n" + _options(verb.options),
        "Exit codes:\n" + _table(verb.exits),
    ]
    return "\n\n".join(parts) + "\n"


def _options(declared: "tuple[options.Option, ...]") -> str:
    rows = [
        (f"{each.short}{', ' if each.short else ''}{each.flag} {each.metavar}".rstrip(), each.help)
        for each in declared
    ]
    return _table([*rows, ("-h, --help", "Show this.")])


def _paragraph(words: str, indent: str) -> str:
    return textwrap.fill(" ".join(words.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)


def _table(rows: "Sequence[tuple[str, str]]") -> str:
    left = max(len(name) for name, _ in rows) + 4
    lines = []
    for name, help_text in rows:
        first = f"  {name}".ljust(left)
        lines.append(textwrap.fill(help_text, WIDTH, initial_indent=first, subsequent_indent=" " * left))
    return "\n".join(lines)
