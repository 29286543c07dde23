"""What a value in clawq.toml may be: each type of one, how it is read, and what a person is told to write."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PlainValidator

from clawq import placeholders, values, when
from clawq.errors import UsageError
from clawq.rules import cron
from clawq.rules.readers import NAMES as READERS
from clawq.settings import PRESSURES
from clawq.states import BANDS, TOLD_CLASSES

HEARTBEATS = ("process", "output", "agent")
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000
MOST = 1_000_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]")


class Expects:
    """What a person should have written, for errors and the reference; `ms` marks a compiled duration."""

    def __init__(self, text: str, ms: bool = False) -> None:
        self.text = text
        self.ms = ms


class Said(ValueError):
    """A check that says more than "expected ..."; `index` is the item of a list that it is about."""

    def __init__(self, what: str, fix: str = "", index: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.index = index


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _duration(value: object) -> int:
    try:
        return when.duration(_text(value))
    except UsageError:
        raise ValueError from None


def _some_time(value: object) -> int:
    length = _duration(value)
    if length < 1000:
        raise ValueError
    return length


def _timeout(value: object) -> int:
    return 0 if value == "none" else _some_time(value)


def _moment(value: object) -> str:
    text = _text(value)
    if not _CLOCK.fullmatch(text):
        _some_time(text)
    return text


def _gate(least: int) -> PlainValidator:
    def check(value: object) -> int | str:
        if value == "off":
            return "off"
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise ValueError
        return value

    return PlainValidator(check)


def _number(least: float, most: float) -> PlainValidator:
    def check(value: object) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError
        return value

    return PlainValidator(check)


def _one_of(what: str, names: Sequence[str]) -> PlainValidator:
    def check(value: object) -> str:
        text = _text(value)
        if text not in names:
            raise Said(f"no such {what} {text!a}", f"{values.near(text, names)}one of {', '.join(names)}")
        return text

    return PlainValidator(check)


def _name(value: object) -> str:
    text = _text(value)
    if not _NAME.fullmatch(text):
        raise Said("not a name", "letters, digits and . _ : - are possible, a letter or digit first")
    return text


def _kind_name(value: object) -> str:
    if value == "ask":
        raise Said("this kind is clawq's own", "choose another name")
    return _name(value)


def _variable(value: object) -> str:
    text = _text(value)
    if not _VARIABLE.fullmatch(text):
        raise Said("not a variable's name", "letters, digits and _ are possible, no digit first")
    if text.startswith("CLAWQ_"):
        raise Said("clawq sets this variable itself", "choose another name")
    return text


def _names(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError
    return sorted({_name(each) for each in value})


def _command(value: object) -> list[str]:
    return _template(value, placeholders.NAMES)


def _notify(value: object) -> list[str]:
    return _template(value, placeholders.NOTICE_NAMES)


def _template(value: object, names: Sequence[str]) -> list[str]:
    if not isinstance(value, list) or not value or not value[0]:
        raise ValueError
    for index, argument in enumerate(value):
        for name in placeholders.used(_text(argument)):
            if not placeholders.is_known(name, names):
                there_are = ", ".join(f"{{{each}}}" for each in names)
                fix = f"{values.near(name, names)}there are {there_are}"
                raise Said(f"unknown placeholder {{{name}}}", fix, index)
            if index == 0:
                raise Said(
                    f"{{{name}}} as the program", "name the program, placeholders come after it", index
                )
    return value


_ERROR_KEYS = ("contains", "class", "reason", "resource")


def _errors(value: object) -> list[dict[str, str]]:
    if not isinstance(value, list):
        raise ValueError
    for index, each in enumerate(value):
        if not isinstance(each, dict):
            raise ValueError
        for key in each:
            if key not in _ERROR_KEYS:
                there_are = ", ".join(_ERROR_KEYS)
                raise Said(
                    f"unknown key {key!a}", f"{values.near(key, _ERROR_KEYS)}there are {there_are}", index
                )
        if not isinstance(each.get("contains"), str) or not each["contains"].strip():
            raise Said("contains is missing", "expected the text that the output has at its end", index)
        named = each.get("class")
        if named not in TOLD_CLASSES:
            what = "class is missing" if named is None else f"no such class {named!a}"
            raise Said(what, f"expected one of {', '.join(TOLD_CLASSES)}", index)
        for key in ("reason", "resource"):
            if key in each:
                _name(each[key])
    return value


def _cron(value: object) -> str:
    text = _text(value)
    try:
        cron.parse(text)
    except cron.CronError as error:
        raise Said(error.what, error.fix) from None
    return " ".join(text.split())


def _path(value: object) -> str:
    path = os.path.expanduser(_text(value))
    if not path or path.startswith("~"):
        raise ValueError
    return path


Positive = Annotated[int, Field(ge=1, le=MOST), Expects("a whole number, at least 1")]
NotNegative = Annotated[int, Field(ge=0, le=MOST), Expects("a whole number, at least 0")]
Attempts = Annotated[
    int, Field(ge=1, le=values.ATTEMPTS_MAX), Expects(f"a whole number, 1 to {values.ATTEMPTS_MAX}")
]
Points = Annotated[
    int,
    Field(ge=-values.PRIORITY_MAX, le=values.PRIORITY_MAX),
    Expects(f"a whole number, {-values.PRIORITY_MAX} to {values.PRIORITY_MAX}"),
]
Duration = Annotated[
    int, PlainValidator(_duration), Expects('a duration such as "90s", "10m", "2h" or "1d"', ms=True)
]
SomeTime = Annotated[
    int, PlainValidator(_some_time), Expects('a duration of "1s" or more, such as "10m" or "2h"', ms=True)
]
Timeout = Annotated[
    int, PlainValidator(_timeout), Expects('a duration of "1s" or more, such as "30m", or "none"', ms=True)
]
Moment = Annotated[
    str, PlainValidator(_moment), Expects('a duration such as "10m", or a time of day such as "12:00"')
]
ProcsGate = Annotated[int | str, _gate(1), Expects('a whole number, at least 1, or "off"')]
MemoryGate = Annotated[int | str, _gate(0), Expects('a whole number, at least 0, or "off"')]
Pressure = Annotated[
    str, _one_of("pressure", (*PRESSURES, "off")), Expects('"normal", "warn", "critical" or "off"')
]
Mode = Annotated[str, _one_of("mode", ("enforce", "observe")), Expects('"enforce" or "observe"')]
Percent = Annotated[int | float, _number(1e-6, 100), Expects("a number above 0, at most 100")]
Weight = Annotated[
    int | float,
    _number(LEAST_WEIGHT, MOST_WEIGHT),
    Expects(f"a number, {LEAST_WEIGHT} to {MOST_WEIGHT}"),
]
YesNo = Annotated[bool, Expects("true or false")]
BandChoice = Annotated[str, _one_of("band", BANDS), Expects('a band such as "bulk"')]
Reader = Annotated[str, _one_of("reader", READERS), Expects('"none", "claude" or "codex"')]
Errors = Annotated[
    list[dict[str, str]],
    PlainValidator(_errors),
    Expects('a list such as [{ contains = "quota exceeded", class = "rate_limit" }]'),
]
Heartbeat = Annotated[str, _one_of("heartbeat", HEARTBEATS), Expects('"process", "output" or "agent"')]
OnLost = Annotated[str, _one_of("choice", ("retry", "unknown")), Expects('"retry" or "unknown"')]
OnFull = Annotated[
    str,
    _one_of("choice", ("reject", "drop_oldest", "coalesce")),
    Expects('"reject", "drop_oldest" or "coalesce"'),
]
OnBusy = Annotated[
    str, _one_of("choice", ("queue", "reject", "degrade")), Expects('"queue", "reject" or "degrade"')
]
Names = Annotated[list[str], PlainValidator(_names), Expects('a list of resources such as ["browser"]')]
Command = Annotated[
    list[str],
    PlainValidator(_command),
    Expects('a list such as ["site-qa", "--payload", "{payload_file}"]'),
]
Notify = Annotated[
    list[str],
    PlainValidator(_notify),
    Expects('a list such as ["terminal-notifier", "-message", "{text}"]'),
]
VariableName = Annotated[str, PlainValidator(_variable)]
VariableText = Annotated[str, PlainValidator(_text), Expects("text in quotes")]
Env = Annotated[
    dict[VariableName, VariableText], Expects('a table of texts such as { NODE_ENV = "production" }')
]
FilePath = Annotated[str, PlainValidator(_path), Expects('a path such as "~/.config/agents.env"')]
Name = Annotated[str, PlainValidator(_name)]
BandName = Annotated[str, _one_of("band", BANDS)]
KindName = Annotated[str, PlainValidator(_kind_name)]
CronTime = Annotated[
    str, PlainValidator(_cron), Expects('a time as in a crontab, such as "0 7 * * *" or "@daily"')
]
CatchUp = Annotated[str, _one_of("choice", ("once", "skip")), Expects('"once" or "skip"')]
OtherKind = Annotated[str, PlainValidator(_kind_name), Expects('a kind such as "site.qa.light"')]
Spends = Annotated[dict[Name, Positive], Expects("a table of amounts such as { model_tokens = 8000 }")]
