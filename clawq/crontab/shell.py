"""A line of shell in its words and operators: enough to see what a crontab line does, and no more.

Nothing is expanded. A word keeps the text that it was written with, so that it can be written again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERATOR = re.compile(r"&>>|<<<|<<-|&&|\|\||;;|\|&|&>|>>|>\||>&|<<|<>|<&|[;&|()<>]")
_SAFE = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_GLOB = frozenset("*?[")

REDIRECTIONS = frozenset({">", ">>", "<", "<>", ">&", "<&", ">|", "&>", "&>>"})


class Token(NamedTuple):
    """One word or operator at ``start`` to ``end`` of the text.

    ``literal`` is what a word means where nothing is expanded in it, else None. ``by_shell``: only a shell
    at the time of the job can say what it is: patterns of files, commands inside of it. ``expands``: it has
    a variable or a tilde outside of single quotes. ``splits``: a variable outside of any quotes.
    """

    text: str
    start: int
    end: int
    operator: bool = False
    literal: str | None = None
    by_shell: bool = False
    expands: bool = False
    splits: bool = False

    @property
    def assigns(self) -> bool:
        """Does it look like ``NAME=value`` before a command?"""
        return not self.operator and _VARIABLE.match(self.text) is not None


def scan(text: str) -> list[Token] | None:
    """The tokens without a comment at the end; None when a quote or bracket does not close."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        if text[at] == "#":
            break
        operator = _OPERATOR.match(text, at)
        if operator:
            found.append(Token(operator[0], at, operator.end(), operator=True))
            at = operator.end()
            continue
        word = _word(text, at)
        if word is None:
            return None
        number_of_a_redirection = word.text.isdigit() and text[word.end : word.end + 1] in ("<", ">")
        found.append(word._replace(operator=True) if number_of_a_redirection else word)
        at = word.end
    return found


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def quote(text: str) -> str:
    """One word of shell that means `text`."""
    if _SAFE.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _word(text: str, start: int) -> Token | None:
    """The word at `start`; None when a quote or bracket in it does not close."""
    literal: list[str] = []
    by_shell = expands = splits = False
    at = start
    while at < len(text) and text[at] not in " \t;&|()<>":
        char = text[at]
        if char == "'":
            end = text.find("'", at + 1)
            if end < 0:
                return None
            literal.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            behind = _double_quoted(text, at + 1)
            if behind is None:
                return None
            inner = text[at + 1 : behind - 1]
            by_shell |= "$(" in inner or "`" in inner or "${" in inner
            expands |= re.search(r"(?<!\\)\$", inner) is not None
            literal.append(re.sub(r'\\([\\"$`])', r"\1", inner))
            at = behind
        elif char == "\\":
            if at + 1 == len(text):
                return None
            literal.append(text[at + 1])
            at += 2
        elif char == "`":
            end = text.find("`", at + 1)
            if end < 0:
                return None
            by_shell = True
            at = end + 1
        elif char == "$":
            expands = splits = True
            opened = text[at + 1 : at + 2]
            if opened in ("(", "{"):
                behind = _closing(text, at + 1)
                if behind is None:
                    return None
                by_shell = True
                at = behind
            elif opened in ("'", '"'):
                by_shell = True  # $'...' is bash's own
                at += 1
            else:
                at += 1
        else:
            by_shell |= char in _GLOB
            before = text[at - 1 : at] if at > start else ""
            expands |= char == "~" and (at == start or before in ("=", ":"))
            literal.append(char)
            at += 1
    plain = not (by_shell or expands)
    meant = "".join(literal) if plain else None
    return Token(text[start:at], start, at, False, meant, by_shell, expands, splits)


def _double_quoted(text: str, at: int) -> int | None:
    """Behind the closing quote of what starts at `at`."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith("$(", at):
            end = _closing(text, at + 1)
            if end is None:
                return None
            at = end
        elif text[at] == '"':
            return at + 1
        else:
            at += 1
    return None


def _closing(text: str, at: int) -> int | None:
    """Behind the bracket that closes the one at `at`."""
    opened, closed = text[at], {"(": ")", "{": "}"}[text[at]]
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'":
            at = text.find("'", at + 1)
            if at < 0:
                return None
        elif char == '"':
            end = _double_quoted(text, at + 1)
            if end is None:
                return None
            at = end - 1
        elif char == opened:
            depth += 1
        elif char == closed:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return None
