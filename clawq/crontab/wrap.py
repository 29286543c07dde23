"""One crontab command as a `clawq enqueue`: what becomes an option, what a command, what is left alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from clawq.crontab.shell import REDIRECTIONS, Token, quote, scan, words

_VERB = re.compile(r"(?:^|[\s;&|('\"])(?:[^\s;&|()'\"]*/)?clawq\s+[a-z]")
_DURATION = re.compile(r"([0-9]+)(?:\.([0-9]*))?([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

_OF_THE_SHELL = words(
    "! . : [ [[ alias case cd command eval exec exit export for function if read return set shift source test"
    " time trap type ulimit umask unset until wait while { }"
)
"""Words that are no program, or another one for a shell than on PATH."""

_AROUND = words(
    "caffeinate chronic doas env flock ionice nice nocache nohup setsid sudo systemd-cat taskset time timeout"
    " unbuffer"
)
_BOURNE = words("ash bash dash ksh ksh93 mksh oksh sh yash zsh")
"""Shells whose language is the one that is read here; cron gives a line to whatever SHELL names."""
_INTERPRETERS = words(
    "ash bash bun bundle dash deno fish ksh make node npm npx perl php pnpm poetry python python2 python3"
    " ruby sh uv uvx yarn zsh run exec"
)


class CannotWrap(Exception):
    """Why a line is left as it was."""


class Wrapped(NamedTuple):
    """``options`` and ``command`` as they are written; ``skips``: it was not to run beside itself
    (`flock -n`); ``lock``: the file that `flock` named, ``locked_in`` the folder that its line had gone to;
    ``name``: what it may be called; ``sets``: the variables that it sets itself; ``comment``: what stands
    behind it for people and programs to find."""

    options: tuple[str, ...]
    command: str
    skips: bool
    lock: str | None
    locked_in: str
    name: str
    sets: frozenset[str]
    comment: str


def calls_clawq(command: str) -> bool:
    return _VERB.search(command) is not None


def wrap(command: str, shell: str, keep_lock: bool = False) -> Wrapped:
    """What cron would give to `shell`; `keep_lock`: a `flock` stays a part of it. Raises CannotWrap."""
    tokens = scan(command)
    if tokens is None:
        raise CannotWrap("a quote or bracket in it does not close")
    shells_name = shell.rpartition("/")[2]
    if shells_name not in _BOURNE:
        raise CannotWrap("its SHELL speaks a language that clawq does not read")
    comment = command[tokens[-1].end if tokens else 0 :].strip(" \t")
    bash = shells_name in ("bash", "zsh")
    for token in tokens:
        if token.operator and (token.text == "&" or (token.text in ("&>", "&>>") and not bash)):
            raise CannotWrap("it puts itself into the background (&), where no queue can watch it")
        if token.operator and token.text.startswith("<<"):
            raise CannotWrap("its input comes from the line itself (<<)")
    peeled = _Peeled(command, tokens)
    if keep_lock:
        peeled.done.add("flock")
    peeled.peel()
    tokens = _without_null(peeled.tokens)
    if not tokens:
        raise CannotWrap("it runs nothing")
    name = _name(_words(tokens))
    if _is_plain(tokens):
        runs = " ".join(each.text for each in tokens)
    else:
        script = peeled.text[tokens[0].start : tokens[-1].end]
        if tokens != peeled.tokens and not any(each.operator for each in tokens):
            script = " ".join(each.text for each in tokens)
        runs = f"{quote(shell)} -c {quote(script)}"
    sets = frozenset(peeled.sets)
    lock, folder = peeled.lock, peeled.locked_in
    return Wrapped(tuple(peeled.options), runs, peeled.skips, lock, folder, name, sets, comment)


class _Peeled:
    """A command from which layer after layer becomes an option."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.options: list[str] = []
        self.skips = False
        self.lock: str | None = None
        self.locked_in = ""
        self.done: set[str] = set()
        self.sets: list[str] = []

    def peel(self) -> None:
        while self.tokens and (self._folder() or self._variables() or self._lock() or self._time()):
            pass

    def _once(self, what: str) -> bool:
        """Two of a kind would be one option: the inner one stays where it is."""
        if what in self.done:
            return False
        self.done.add(what)
        return True

    def _folder(self) -> bool:
        """``cd DIR && rest``, where nothing in the rest would run if the folder were not there."""
        head = self.tokens[:3]
        if len(self.tokens) < 4 or head[0].literal != "cd" or head[1].operator or head[2].text != "&&":
            return False
        folder = head[1]
        if folder.by_shell or folder.splits or folder.text.startswith("-") or self.options:
            return False
        if any(each.operator and each.text in (";", "||", "|&", ";;") for each in self.tokens[3:]):
            return False
        if any("PWD" in each.text or each.text.startswith(("~+", "~-")) for each in self.tokens[3:]):
            return False  # cron's shell, which fills these in, would be in another folder
        if not self._once("cd"):
            return False
        self.options += ["--cwd", folder.text]
        self.tokens = self.tokens[3:]
        return True

    def _variables(self) -> bool:
        first = self.tokens[0]
        if not first.assigns or not _is_simple(self.tokens) or first.by_shell or first.expands:
            return False
        if len(self.tokens) < 2 or self.tokens[1].operator or first.text.startswith("PATH="):
            return False
        name = first.text.partition("=")[0]
        if any(each.by_shell or f"${name}" in each.text for each in self.tokens[1:]):
            return False  # the shell fills these in before the command has the variable
        self.options += ["--env", first.text]
        self.sets.append(name)
        self.tokens = self.tokens[1:]
        return True

    def _lock(self) -> bool:
        given = self._words_of("flock")
        if given is None:
            return False
        skips, at = False, 1
        while at < len(given) and (given[at].literal or "").startswith("-"):
            option = str(given[at].literal)
            if option in ("-n", "--nb", "--nonblock"):
                skips = True
            elif option in ("-w", "--wait", "--timeout"):
                at += 1
                skips = skips or (at < len(given) and given[at].literal == "0")
            elif option in ("-w0", "--wait=0", "--timeout=0"):
                skips = True
            elif re.fullmatch(r"-w[0-9.]+|--(?:wait|timeout)=[0-9.]+", option):
                pass
            elif option not in ("-x", "-e", "--exclusive", "-o", "--close", "-F", "--no-fork", "--verbose"):
                return False
            at += 1
        if at >= len(given) or given[at].by_shell or (given[at].literal or "x").isdigit():
            return False
        file, rest = given[at], given[at + 1 :]
        if not rest:
            return False
        if rest[0].literal in ("-c", "--command"):
            if len(rest) != 2 or rest[1].literal is None or not self._inside(rest[1].literal):
                return False
        elif (rest[0].literal or "").startswith("-"):
            return False
        else:
            self._keep(rest[0])
        self.done.add("flock")
        self.skips, self.lock = skips, file.text
        self.locked_in = self.options[1] if self.options[:1] == ["--cwd"] else ""
        return True

    def _time(self) -> bool:
        given = self._words_of("timeout")
        if given is None:
            return False
        at = 1
        while at < len(given) and (given[at].literal or "").startswith("-"):
            option = str(given[at].literal)
            if option in ("-k", "--kill-after"):
                at += 1
            elif option in ("-s", "--signal"):
                at += 1
                if at >= len(given) or given[at].literal not in ("TERM", "SIGTERM", "15"):
                    return False
            elif not re.fullmatch(
                r"-k[0-9.]+[smhd]?|--kill-after=[0-9.]+[smhd]?|-v|--verbose|--foreground|--preserve-status",
                option,
            ):
                return False
            at += 1
        if at + 1 >= len(given):
            return False
        length = _duration(given[at].literal or "")
        if length is None or "timeout" in self.done:
            return False
        self.done.add("timeout")
        self.options += ["--timeout", length]
        self._keep(given[at + 1])
        return True

    def _words_of(self, program: str) -> list[Token] | None:
        """The words of the command when it is this one program and nothing else."""
        first = self.tokens[0]
        if program in self.done or first.operator or (first.literal or "").rpartition("/")[2] != program:
            return None
        if not _is_simple(self.tokens):
            return None
        return _words(self.tokens)

    def _keep(self, first: Token) -> None:
        """Everything from this word on, and the redirections that stand before it."""
        at = self.tokens.index(first)
        before = _redirections(self.tokens[:at])
        self.tokens = self.tokens[at:]
        if before:
            around = " ".join(self.text[each[0].start : each[-1].end] for each in before)
            self._read(f"{around} {self.text[first.start : self.tokens[-1].end]}")

    def _inside(self, script: str) -> bool:
        """Go on with the script of a ``-c``; what was redirected outside of it stays so."""
        outer = _redirections(_without_null(self.tokens))
        inner = scan(script)
        if not inner or any(each.operator and each.text == "&" for each in inner):
            return False
        if outer:
            around = " ".join(self.text[each[0].start : each[-1].end] for each in outer)
            script = f"{script} {around}" if _is_simple(inner) else f"({script}) {around}"
        return self._read(script)

    def _read(self, text: str) -> bool:
        tokens = scan(text)
        if tokens is None:
            return False
        self.text, self.tokens = text, tokens
        return True


def _is_simple(tokens: Sequence[Token]) -> bool:
    """One command with its redirections: no pipe, no list, no brackets."""
    return all(not each.operator or each.text in REDIRECTIONS or each.text.isdigit() for each in tokens)


def _is_plain(tokens: Sequence[Token]) -> bool:
    """May its words stand behind ``--`` as they are? Variables and ~ are then filled in by cron's shell."""
    first = tokens[0]
    return (
        not any(each.operator or each.by_shell or each.splits for each in tokens)
        and not first.assigns
        and first.literal not in _OF_THE_SHELL
    )


def _redirections(tokens: Sequence[Token]) -> list[list[Token]]:
    """Each redirection with its number and its target."""
    found = []
    for at, token in enumerate(tokens):
        if token.operator and token.text in REDIRECTIONS:
            start = at - 1 if at and tokens[at - 1].operator and tokens[at - 1].text.isdigit() else at
            found.append(list(tokens[start : at + 2]))
    return found


def _words(tokens: Sequence[Token]) -> list[Token]:
    targets = {each[-1] for each in _redirections(tokens)}
    return [each for each in tokens if not each.operator and each not in targets]


def _without_null(tokens: Sequence[Token]) -> list[Token]:
    """Without what a queue does anyway: output kept in one log, nothing on stdin.

    Of one simple command only: in a longer one the same redirection may be about a part of it.
    """
    if not _is_simple(tokens):
        return list(tokens)
    parts = _redirections(tokens)
    spoken = ["".join(each.text for each in part) for part in parts]
    null = [
        word in ("2>&1", "</dev/null", "0</dev/null")
        or re.fullmatch(r"(?:[12]?>>?|&>>?)/dev/null", word) is not None
        for word in spoken
    ]
    if not all(null):
        return list(tokens)
    gone = {token for part in parts for token in part}
    return [each for each in tokens if each not in gone]


def _duration(text: str) -> str | None:
    """Of `timeout` for clawq; None for what has no such thing."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    whole, part, unit = found.groups()
    if part and int(part):
        seconds = float(f"{whole}.{part}") * _SECONDS[unit]
        return f"{int(seconds)}s" if seconds >= 1 and seconds == int(seconds) else None
    return f"{int(whole)}{unit or 's'}" if int(whole) else "none"


def _name(said: Sequence[Token]) -> str:
    """After the program that does the work, whatever starts it."""
    candidates = []
    for at, word in enumerate(said):
        text = (word.literal if word.literal is not None else word.text).rstrip("/")
        base = text.rpartition("/")[2]
        if word.assigns or text.startswith("-") or "$" in base or (at and said[at - 1].text == "cd"):
            continue
        if not re.search(r"[A-Za-z]", base) or _DURATION.fullmatch(base):
            continue
        plain = re.sub(r"[0-9.]+$", "", base)
        if base in _AROUND or base in _INTERPRETERS or plain in _INTERPRETERS or base in _OF_THE_SHELL:
            candidates.append(base)
            continue
        found = re.sub(r"\.(?:sh|bash|py|pl|rb|js|ts|mjs|php)$", "", base)
        found = re.sub(r"[^A-Za-z0-9._-]+", "-", found).strip("-.")[:40]
        if found:
            return found
    return candidates[-1] if candidates else "job"
