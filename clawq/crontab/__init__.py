"""A crontab whose commands start at once, as one whose commands ask a queue. Text in, text out.

Whatever is not a job stays byte by byte; a job that cannot be wrapped safely stays too, with a comment that
says why. Done twice it is done once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clawq.crontab.shell import quote, words
from clawq.crontab.wrap import CannotWrap, Wrapped, calls_clawq, wrap
from clawq.errors import UsageError
from clawq.rules import cron

COMMENT = "# clawq: "
LONGEST = 998
"""Bytes of a command that Debian's cron takes; with a longer one it ignores the whole crontab."""

_VARIABLE = re.compile(r"[ \t]*(\"[^\"]+\"|'[^']+'|[^\s='\"]+)[ \t]*=[ \t]*(.*?)[ \t]*")
_TIMES = re.compile(r"[ \t]*(?:@\S+|(?:\S+[ \t]+){4}\S+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = re.compile(r"--(?:dedupe-key|exclusive)[ =]'?([A-Za-z0-9._-]+?)(?:-\{|['\s]|$)")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")

CRONS_OWN = words(
    "SHELL PATH MAILTO MAILFROM CRON_TZ CRON_WITHIN RANDOM_DELAY START_HOURS_RANGE CONTENT_TYPE"
    " CONTENT_TRANSFER_ENCODING LOGNAME USER CLAWQ_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME"
)
"""Variables that cron reads, that a job keeps anyway, or that say where the queue is."""


class Rewritten(NamedTuple):
    """``left``: (line, why) of the jobs that were left as they were, lines counted from 1 as they came in;
    ``secrets``: variables that look like secrets and that jobs now carry."""

    text: str
    wrapped: int
    already: int
    left: tuple[tuple[int, str], ...]
    secrets: tuple[str, ...]


def rewrite(
    text: str, program: Sequence[str], places: Mapping[str, str], with_user: bool = False
) -> Rewritten:
    """The crontab `text` with its jobs wrapped.

    `program` is how clawq is called, by absolute path. `places` are the variables that say where the queue
    is, as far as it is not in the usual place: cron does not know what a shell exports. `with_user`: each
    job has a user before its command, as in /etc/crontab. Raises UsageError for a path with a line's end.
    """
    for path in (*program, *places.values()):
        if "\n" in path:
            raise UsageError(f"a crontab cannot hold the path {path!r}", "rename its folder")
    return _Rewriter(text, program, places, with_user).result()


class _Rewriter:
    def __init__(self, text: str, program: Sequence[str], places: Mapping[str, str], with_user: bool) -> None:
        self.lines = text.split("\n")
        if self.lines and not self.lines[-1]:
            self.lines.pop()  # every line ends with a newline again: cron asks for that
        self.program = " ".join(quote(word) for word in program)
        self.places = places
        self.with_user = with_user
        self.variables: dict[str, str] = {}
        self.names = set(_TAKEN.findall(text))
        self.numbers: dict[str, int] = {}
        self.locks: dict[str, str] = {}
        self.own_locks = self._own_locks()
        self.out: list[str] = []
        self.wrapped = self.already = 0
        self.left: list[tuple[int, str]] = []
        self.secrets: dict[str, None] = {}

    def result(self) -> Rewritten:
        for number, line in enumerate(self.lines, 1):
            stripped = line.strip(" \t")
            if not stripped or stripped.startswith("#"):
                self.out.append(line)
                continue
            variable = _VARIABLE.fullmatch(line)
            if variable:
                name, value = variable[1].strip("\"'"), variable[2]
                if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                    value = value[1:-1]
                self.variables[name] = value
                self.out.append(line)
                continue
            try:
                self.out.append(self._job(line))
            except CannotWrap as why:
                self._leave(number, line, str(why))
        text = "".join(f"{line}\n" for line in self.out)
        return Rewritten(text, self.wrapped, self.already, tuple(self.left), tuple(self.secrets))

    def _own_locks(self) -> list[str]:
        """The jobs that will still call `flock` themselves: nobody else may take their files for names."""
        found = []
        for line in self.lines:
            if "flock" not in line or line.lstrip(" \t").startswith("#"):
                continue
            try:
                _, _, _, command, _ = self._split(line)
                kept = calls_clawq(command) or wrap(command, "/bin/sh").lock is None
            except CannotWrap:
                kept = True
            if kept:
                found.append(_file(line))
        return found

    def _leave(self, number: int, line: str, why: str) -> None:
        comment = f"{COMMENT}left as it was: {why}"
        if not self.out or self.out[-1] != comment:
            self.out.append(comment)
        self.out.append(line)
        self.left.append((number, why))

    def _split(self, line: str) -> tuple[str, str, str, str, str | None]:
        """(times, everything before the command, the gap, the command, its input). Raises CannotWrap."""
        times = _TIMES.match(line)
        if times is None:
            raise CannotWrap("this is no crontab line that clawq knows")
        head = times[0]
        rest = line[times.end() :]
        if self.with_user:
            user = re.match(r"[ \t]+\S+", rest)
            head, rest = (head + user[0], rest[user.end() :]) if user else (head, "")
        gap = rest[: len(rest) - len(rest.lstrip(" \t"))]
        raw = rest.strip(" \t")
        if not gap or not raw:
            raise CannotWrap("it has no command")
        if raw.endswith("\r"):
            raise CannotWrap("it ends with a carriage return, which cron takes for a part of the command")
        return times[0].strip(), head, gap, *split_at_percent(raw)

    def _job(self, line: str) -> str:
        """The line that does instead. Raises CannotWrap."""
        times, head, gap, command, given = self._split(line)
        if calls_clawq(command):
            self.already += 1
            return line
        slot = self._slot(times)
        if given is not None:
            raise CannotWrap("what follows its % is its standard input, and a job in a queue has none")
        shell = self.variables.get("SHELL") or "/bin/sh"
        wrapped = wrap(command, shell)
        if wrapped.lock is not None and any(_file(wrapped.lock) in each for each in self.own_locks):
            wrapped = wrap(command, shell, keep_lock=True)
        written = escape_percent(self._enqueue(wrapped, slot))
        size = len(written.encode(errors="surrogateescape"))
        if size > LONGEST:
            raise CannotWrap(f"wrapped it would have {size} bytes, and cron takes {LONGEST}: use a script")
        if "CLAWQ_HOME" not in self.variables:
            for name, value in self.places.items():
                if name not in self.variables:
                    self.variables[name] = value
                    self.out.append(f"{name}={_as_value(value)}")
        self.wrapped += 1
        return f"{head}{gap}{written}"

    def _slot(self, times: str) -> str:
        """Which placeholder tells the line's runs apart. Raises CannotWrap."""
        if times.lower() == "@reboot":
            raise CannotWrap("it runs at boot and may be meant to stay, which a job is not")
        fields = times.lstrip("-")  # SUSE: not to be logged
        if "~" in fields:
            return "minute"  # cronie and OpenBSD: a random value of a range
        try:
            finest = cron.parse(fields).finest
        except cron.CronError as error:
            raise CannotWrap(f"clawq does not know this time, {error.what}") from None
        # A day elsewhere is not a day here.
        return "minute" if "CRON_TZ" in self.variables else finest

    def _enqueue(self, job: Wrapped, slot: str) -> str:
        exclusive = self._exclusive(job)
        if job.skips:
            once = f"--dedupe-key {exclusive} --dedupe-scope active"
        else:
            key = exclusive if job.lock is None else self._free(job.name)
            once = f"--dedupe-key '{key}-{{{slot}}}'"
        parts = [self.program, "enqueue", once, "--exclusive", exclusive, *job.options]
        for name, value in self.variables.items():
            if name not in CRONS_OWN and name not in job.sets:
                # Of a name that is no shell's own, /bin/sh may hand nothing on.
                parts.append(f"--env {quote(name if _NAME.fullmatch(name) else f'{name}={value}')}")
                if _SECRET.search(name.upper()):
                    self.secrets[name] = None
        return " ".join([*parts, "--", job.command, *([job.comment] if job.comment else [])])

    def _exclusive(self, job: Wrapped) -> str:
        """Two lines with one lock file have one name, and otherwise each has its own."""
        if job.lock is None:
            return self._free(job.name)
        file = _file(job.lock)
        if file[:1] not in ("/", "~", "$") and job.locked_in:
            file = f"{_file(job.locked_in)}/{file}"
        if file not in self.locks:
            base = file.rpartition("/")[2]
            base = re.sub(r"\.(?:lock|lck|pid)$", "", base)
            base = re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip("-.")[:40]
            self.locks[file] = self._free(base or job.name)
        return self.locks[file]

    def _free(self, name: str) -> str:
        number, free = self.numbers.get(name, 1), name
        while free in self.names:
            number += 1
            free = f"{name}-{number}"
        self.numbers[name] = number
        self.names.add(free)
        return free


def _file(text: str) -> str:
    """One spelling for one file, however a line of shell quotes it and says where its home is."""
    plain = text.replace('"', "").replace("'", "")
    return plain.replace("${HOME}", "~").replace("$HOME", "~")


def _as_value(value: str) -> str:
    """As cron reads it: in quotes where it would take spaces or quotes at the ends away."""
    if value == value.strip(" \t\"'"):
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def split_at_percent(raw: str) -> tuple[str, str | None]:
    """(command, its standard input or None) as cron reads them: the first bare % ends the command."""
    command: list[str] = []
    escaped = False
    for at, char in enumerate(raw):
        if escaped:
            escaped = False
            if char == "%":
                command[-1] = char
                continue
        elif char == "\\":
            escaped = True
        elif char == "%":
            return "".join(command), raw[at + 1 :]
        command.append(char)
    return "".join(command), None


def escape_percent(command: str) -> str:
    """What cron reads as `command`. Raises CannotWrap where there is no such line."""
    raw = command.replace("%", "\\%")
    if split_at_percent(raw) != (command, None):
        raise CannotWrap("a backslash before a % cannot be written in a crontab")
    return raw
