"""The one declaration of enqueue's options: what is parsed, what is read, what is refused and how."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq import options, values
from clawq.api import producing
from clawq.cli import enqueue_help
from clawq.errors import UsageError

NOW = 1_900_000_000_000

# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("site.qa", {"kind": "site.qa"}),
        ("-- true", {"command": ["true"]}),
        ("--", {"command": []}),
        ("k --json -- sh -c 'a --json'", {"kind": "k", "json": True, "command": ["sh", "-c", "a --json"]}),
        ("--tenant t k --band bulk", {"tenant": "t", "kind": "k", "band": "bulk"}),
        ("--tenant=t k", {"tenant": "t", "kind": "k"}),
        ("--dedupe-key=a=b", {"dedupe_key": "a=b"}),
        ("--dedupe-key=--x", {"dedupe_key": "--x"}),
        ("--tenant=", {"tenant": ""}),
        ("--priority -5", {"priority": "-5"}),
        ("--payload -", {"payload": "-"}),
        ("--env A=1 --env B --env A=2", {"env": ["A=1", "B", "A=2"]}),
        ("--tenant a --tenant b", {"tenant": "b"}),  # the last one wins, as behind a shell alias
        (
            "--hold --wait --dry-run --print-id",
            {"hold": True, "wait": True, "dry_run": True, "print_id": True},
        ),
        ("k -- -- a", {"kind": "k", "command": ["--", "a"]}),
    ],
)
def test_lines_that_parse(line: str, expected: dict[str, object]) -> None:
    assert options.parse(shlex.split(line)) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--jsn", "unknown option '--jsn': did you mean --json? `clawq enqueue --help` lists them"),
        ("--tennant=x", "unknown option '--tennant': did you mean --tenant?"),
        ("--since", "unknown option '--since': `clawq enqueue --help` lists them"),
        ("-x", "unknown option '-x'"),
        ("-json", "unknown option '-json': did you mean --json?"),
        ("--parents 3", "unknown option '--parents'"),
        ("--json=yes", "--json takes no value: write --json alone"),
        ("--tenant", "--tenant needs a value: --tenant NAME, or --tenant=VALUE"),
        ("--tenant --json", "--tenant needs a value"),
        ("--tenant -- true", "--tenant needs a value"),
        ("ls -la", "unknown option '-la': a command comes after --: clawq enqueue -- ls -la ..."),
        ("kind -x -- true", "unknown option '-x': `clawq enqueue --help` lists them"),
        ("kind true", "unexpected 'true': one KIND, and the command after --"),
    ],
)
def test_lines_that_do_not_parse(line: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        options.parse(line.split())
    assert message in str(refused.value)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(
    st.dictionaries(st.sampled_from([o for o in options.OPTIONS if o.metavar and not o.many]), WORDS),
    st.sets(st.sampled_from([o for o in options.OPTIONS if not o.metavar])),
    st.none() | WORDS.filter(lambda word: word[:1] not in ("", "-")),
    st.none() | st.lists(WORDS),
    st.randoms(),
)
def test_whatever_is_put_on_a_line_comes_back(
    values: dict[options.Option, str],
    switches: set[options.Option],
    kind: str | None,
    command: list[str] | None,
    chance: object,
) -> None:
    parts = [[f"{option.flag}={value}"] for option, value in values.items()]
    parts += [[option.flag] for option in switches]
    expected: dict[str, object] = {option.key: value for option, value in values.items()}
    expected |= {option.key: True for option in switches}
    if kind is not None:
        parts.append([kind])
        expected["kind"] = kind
    chance.shuffle(parts)  # type: ignore[attr-defined]
    argv = [word for part in parts for word in part]
    if command is not None:
        argv += ["--", *command]
        expected["command"] = command
    assert options.parse(argv) == expected


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"priority": "-5"}, {"priority": -5}),
        ({"priority": "+7"}, {"priority": 7}),
        ({"priority": 7}, {"priority": 7}),
        ({"needs": "shell, browser,,shell"}, {"needs": ["browser", "shell"]}),
        ({"needs": ["shell", "browser"]}, {"needs": ["browser", "shell"]}),
        ({"needs": ""}, {"needs": []}),
        ({"delay": "10m"}, {"delay": NOW + 600_000}),
        ({"delay": 1.5}, {"delay": NOW + 1_500}),
        ({"delay": timedelta(minutes=2)}, {"delay": NOW + 120_000}),
        ({"at": "2030-01-31T06:00Z"}, {"at": 1_896_069_600_000}),
        ({"at": datetime(2030, 1, 31, 6, tzinfo=UTC)}, {"at": 1_896_069_600_000}),
        ({"stale_after": "1h"}, {"stale_after": NOW + 3_600_000}),
        ({"stale_after": 60}, {"stale_after": NOW + 60_000}),
        ({"deadline": "2030-01-31T06:00Z"}, {"deadline": 1_896_069_600_000}),
        ({"deadline": timedelta(days=1)}, {"deadline": NOW + 86_400_000}),
        ({"timeout": "none"}, {"timeout": 0}),
        ({"timeout": "30m"}, {"timeout": 1_800_000}),
        ({"max_attempts": "2"}, {"max_attempts": 2}),
        ({"env": {"A": "1", "B": ""}}, {"env": {"A": "1", "B": ""}}),
        ({"env": ["A=1=2", "A=3"]}, {"env": {"A": "3"}}),
        ({"payload": {"a": [1, 2.5, None, "é"]}}, {"payload": '{"a":[1,2.5,null,"é"]}'}),
        ({"payload": "text"}, {"payload": '"text"'}),
        ({"payload": "\ud800"}, {"payload": '"\\ud800"'}),
        ({"payload": b' {"a": 1}\n'}, {"payload": b'{"a": 1}'}),
        ({"cwd": Path("/tmp")}, {"cwd": "/tmp"}),
        ({"command": ("a", "b")}, {"command": ["a", "b"]}),
        ({"hold": True, "tenant": None}, {"hold": True}),
        (
            {"dedupe_key": "{date}", "dedupe_scope": "active"},
            {"dedupe_key": "2030-03-17", "dedupe_scope": "active"},
        ),
        *(({"dedupe_key": key}, {"dedupe_key": key}) for key in ('{"date": 1}', "{name}", "{", "{} {state}")),
    ],
)
def test_values_that_are_taken(given_: dict[str, object], expected: dict[str, object]) -> None:
    assert options.read(given_, NOW) == expected


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"priority": "high"}, "--priority 'high': a whole number from -100000 to 100000 is needed"),
        ({"priority": True}, "--priority True: a whole number"),
        ({"priority": "1_0"}, "--priority '1_0'"),
        ({"priority": "1" * 5000}, "a whole number"),
        ({"priority": 1.0}, "a whole number"),
        ({"max_attempts": 0}, "--max-attempts 0: a whole number from 1"),
        ({"band": "bulkk"}, "--band 'bulkk': did you mean bulk? one of critical, interactive, normal, bulk"),
        ({"band": ["bulk"]}, "--band ['bulk']: did you mean bulk?"),
        ({"needs": [None]}, "--needs None: a text is needed"),
        ({"needs": {"browser": 1}}, "resource names are needed"),
        ({"on_lost": "maybe"}, "--on-lost 'maybe': one of retry, unknown is needed"),
        ({"tenant": ""}, "--tenant '': a name"),
        ({"tenant": "a\x1b[31m"}, r"--tenant 'a\x1b[31m': a name without control characters"),
        ({"tenant": "x" * 201}, "at most 200 bytes"),
        ({"tenant": "\udcff"}, "it is not UTF-8"),
        ({"tenant": 3}, "--tenant 3: a text is needed"),
        ({"exclusive": "a\nb"}, "without control characters"),
        ({"dedupe_key": ""}, "--dedupe-key '': a key"),
        ({"dedupe_key": "d-{dat}"}, "--dedupe-key 'd-{dat}': did you mean {date}? the slots are"),
        ({"dedupe_key": "{DATE}"}, "did you mean {date}?"),
        ({"dedupe_key": "{day}"}, "did you mean {date}?"),
        ({"dedupe_key": "{ hours }"}, "did you mean {hour}?"),
        ({"dedupe_key": "{date} {minutes}"}, "did you mean {minute}?"),
        ({"dedupe_scope": "ever"}, "--dedupe-scope without a key: give --dedupe-key too"),
        ({"delay": "10"}, "--delay '10' is not a duration: write 90s, 10m, 2h or 1d"),
        ({"delay": -1}, "--delay -1: from nothing to a hundred years"),
        ({"delay": float("nan")}, "--delay nan"),
        ({"delay": ["1m"]}, "--delay ['1m']"),
        ({"delay": "1m", "at": "07:00"}, "--delay and --at exclude each other"),
        ({"at": "25:00"}, "--at '25:00' is not a time of day"),
        ({"at": 5}, "--at 5: write HH:MM or ISO 8601"),
        ({"stale_after": "noon"}, "--stale-after 'noon' is neither a duration nor a time"),
        ({"timeout": "0s"}, "--timeout '0s': write a duration longer than nothing, or none"),
        ({"payload": {1, 2}}, "the payload cannot be written as JSON"),
        ({"payload": float("inf")}, "the payload cannot be written as JSON"),
        ({"payload": "x" * 65_536}, "the payload has 65538 bytes, more than 65536: pass a reference"),
        ({"payload": b"1" * 65_537}, "the payload has 65537 bytes"),
        ({"env": ["A B=1", "=x"]}, "--env '': it is not the name of a variable"),
        ({"env": ["NOT_SET_ANYWHERE"]}, "--env 'NOT_SET_ANYWHERE': it is not set here: write NAME=VALUE"),
        ({"env": {"A": 1}}, "--env 1: a text is needed"),
        ({"env": "A=1"}, "names and values are needed"),
        ({"env": {"A": "x" * 65_536}}, "more than 65536 bytes in all: use the kind's env_file"),
        ({"env": {"A": "\0"}}, "a NUL byte"),
        ({"command": []}, "the command is empty"),
        ({"command": ["", "a"]}, "the command is empty"),
        ({"command": "ls -l"}, 'the command is one text: give a list: ["ls", "-l"]'),
        ({"command": ["a", 1]}, "the command's argument 1: a text is needed"),
        ({"command": ["a", "\udc80"]}, "it is not UTF-8"),
        ({"command": ["a", "b\0"]}, "a NUL byte cannot be passed on"),
        ({"command": ["a", "b" * 131_073]}, "at most 131072 bytes"),
        ({"command": ["a", *["b" * 70_000] * 2]}, "the command has more than 131072 bytes"),
        ({"hold": "yes"}, "--hold 'yes': true or false is needed"),
        ({"kind": ""}, "kind '': a name"),
        ({"knd": "x"}, "unknown key 'knd': did you mean kind?"),
        ({"wait": True}, "unknown key 'wait'"),
        ({"parents": 3}, "unknown key 'parents'"),
        ({"parent": 0}, "--parent 0: a whole number from 1 to"),
        ({"on_parent_end": "die"}, "--on-parent-end 'die': one of keep, cancel is needed"),
    ],
)
def test_values_that_are_refused(given_: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        options.read(given_, NOW)
    assert message in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_a_variable_is_copied_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a=b c")
    assert options.read({"env": ["TOKEN"]}, NOW) == {"env": {"TOKEN": "a=b c"}}
    monkeypatch.setitem(os.environ, "RAW", os.fsdecode(b"\xff"))
    with pytest.raises(UsageError, match="its value is not UTF-8"):
        options.read({"env": ["RAW"]}, NOW)


@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())
    )
)
@pytest.mark.parametrize("key", [*(o.key for o in options.OPTIONS if o.read), "kind", "command"])
def test_no_value_whatever_its_type_is_more_than_a_usage_error(key: str, value: object) -> None:
    said = ""
    try:
        options.read({key: value, "dedupe_key": "k"} if key == "dedupe_scope" else {key: value}, NOW)
    except UsageError as error:
        said = str(error)
    assert said.isprintable()


# ---------------------------------------------------------------- JSON without json


@given(
    st.lists(st.text(st.characters(codec="utf-8"))),
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))),
)
def test_json_written_by_hand_is_read_back(words: list[str], pairs: dict[str, str]) -> None:
    assert json.loads(values.json_array(words)) == words
    assert json.loads(values.json_object(pairs)) == pairs


# ---------------------------------------------------------------- one declaration, many readers


def test_the_help_names_every_option_and_fits_a_narrow_ascii_terminal() -> None:
    text = enqueue_help.text()
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    for option in options.OPTIONS:
        assert f"  {option.flag} {option.metavar}".rstrip() in text
        assert option.help.split()[0] in text


def test_the_python_function_has_exactly_the_options_that_make_a_job() -> None:
    parameters = set(inspect.signature(producing.enqueue).parameters) - {"dry_run"}
    assert parameters == {option.key for option in options.OPTIONS if option.read} | {"kind", "command"}


@pytest.mark.parametrize("value", [object(), 3.5, b"\xff", [None], {"a": None}])
@pytest.mark.parametrize("reader", [o.read for o in options.OPTIONS if o.read], ids=lambda r: r.__name__)
def test_readers_do_not_trust_types(reader: Callable[[str, object, int], object], value: object) -> None:
    try:
        reader("--band", value, NOW)
    except UsageError:
        pass
