"""A payload goes into its argument and nowhere else: not into a shell, not into an option, not in twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.errors import UsageError
from clawq.placeholders import fill, in_shell_script, is_known, used

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def values(payload: object = None) -> dict[str, object]:
    return {
        "payload": None if payload is None else json.dumps(payload),
        "payload_file": "/run/7.payload",
        "job_id": 7,
        "attempt": 2,
    }


def test_each_placeholder_becomes_its_value() -> None:
    argv = [
        "qa",
        "--in={payload_file}",
        "{job_id}.{attempt}",
        "{payload}",
        "{field:url}",
        "{field:n}",
        "{field:tags}",
    ]
    payload = {"url": "https://example.org/?a=1&b=$(x)", "n": 3, "tags": ["a", True]}
    assert fill(argv, values(payload)) == [
        "qa",
        "--in=/run/7.payload",
        "7.2",
        json.dumps(payload),
        "https://example.org/?a=1&b=$(x)",
        "3",
        '["a",true]',
    ]


@pytest.mark.parametrize(
    "argument",
    ["{}", "{print $1}", "${HOME}", "${payload}", '{"a": 1}', "{Payload}", "{0}", "{ payload }", "a{", "}b"],
)
def test_other_braces_stay(argument: str) -> None:
    assert used(argument) == []
    assert fill(["x", argument], values()) == ["x", argument]


def test_doubled_braces_write_the_placeholder_itself() -> None:
    assert fill(["x", "{{payload}} {{field:a}} {job_id}"], values()) == ["x", "{payload} {field:a} 7"]


def test_a_placeholder_inside_json_is_replaced() -> None:
    assert fill(["x", '{"job":{job_id},"of":{"n":{attempt}}}'], values()) == ["x", '{"job":7,"of":{"n":2}}']


@pytest.mark.parametrize("name", ["payload", "payload_file", "job_id", "attempt", "field:a", "field:a b"])
def test_known_names(name: str) -> None:
    assert used("{" + name + "}") == [name]
    assert is_known(name)


@pytest.mark.parametrize("name", ["payloads", "field", "field:", "job_id:x", "secret"])
def test_unknown_names(name: str) -> None:
    assert used("{" + name + "}") == [name]
    assert not is_known(name)


@pytest.mark.parametrize(
    ("argv", "payload", "said"),
    [
        (
            ["rm", "{field:a}"],
            {"a": "-rf"},
            "{field:a} starts with '-' and would be an option of rm: put \"--\" before it",
        ),
        (["rm", "{field:a}{job_id}"], {"a": "-rf"}, "{field:a} starts with '-'"),
        (["rm", "{field:b}{field:a}"], {"a": "-rf", "b": ""}, "{field:b} starts with '-'"),
        (["x", "{field:a}"], {"a": -5}, "{field:a} starts with '-'"),
        (["x", "{field:a}"], {"a": "--"}, "{field:a} starts with '-'"),
        (["x", "{field:a}"], {"b": 1}, "the payload has no 'a', and the kind's command has {field:a}"),
        (["x", "{field:a}"], {"a": None}, "the payload has no 'a'"),
        (["x", "{field:a}"], ["a"], "the payload has no 'a'"),
        (["x", "{field:a}"], None, "the payload has no 'a'"),
        (
            ["x", "{payload}"],
            None,
            "the job has no payload, and the kind's command has {payload}: enqueue it with",
        ),
        (["x", "{field:a}"], {"a": "\0"}, "{field:a} holds a character that no argument can hold"),
        (["x", "{field:a}"], {"a": "\ud800"}, "{field:a} holds a character that no argument can hold"),
    ],
)
def test_refused(argv: list[str], payload: object, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        fill(argv, values(payload))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_dashes_of_the_commands_own_let_any_value_pass() -> None:
    assert fill(["rm", "--", "{field:a}"], values({"a": "-rf"})) == ["rm", "--", "-rf"]
    assert fill(["x", "--a={field:a}"], values({"a": "-rf"})) == ["x", "--a=-rf"]
    # They have to be the command's own: a value cannot bring them.
    with pytest.raises(UsageError):
        fill(["rm", "{field:a}", "{field:b}"], values({"a": "--", "b": "-rf"}))


@pytest.mark.parametrize("payload", ["[" * 900 + "]" * 900, '{"a": ' + "9" * 5000 + "}"])
def test_a_payload_that_sqlite_takes_and_python_does_not(payload: str) -> None:
    deep = "import sys; sys.setrecursionlimit(400)\n" if payload.startswith("[") else ""
    script = f"""{deep}
from clawq.errors import UsageError
from clawq.placeholders import fill
try:
    print(fill(["x", "{{field:a}}"], {{"payload": {payload!r}}}))
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    unreadable = "the payload cannot be read for its fields: pass {payload_file} instead\n"
    # From Python 3.12 on its JSON reader goes deeper than SQLite's, so that only the field is missing.
    deep_but_read = (
        "the payload has no 'a', and the kind's command has {field:a}: enqueue it with --payload\n"
    )
    assert done.stdout in ((unreadable, deep_but_read) if deep else (unreadable,))


@given(TEXT, TEXT, TEXT)
def test_a_value_is_put_in_once_and_never_looked_at_again(before: str, value: str, after: str) -> None:
    frame = before.replace("{", "").replace("}", "").replace("$", ""), after.replace("{", "").replace("}", "")
    argv = ["x", "--", frame[0] + "{field:a}" + frame[1], "end"]
    assert fill(argv, values({"a": value})) == ["x", "--", frame[0] + value + frame[1], "end"]


@given(st.lists(TEXT), TEXT)
def test_as_many_arguments_come_out_and_no_option_among_them(arguments: list[str], value: str) -> None:
    argv = ["x", *(argument + "{field:a}" for argument in arguments), *arguments]
    try:
        filled = fill(argv, values({"a": value}))
    except UsageError:
        return
    assert len(filled) == len(argv)
    options_end = False
    for template, argument in zip(argv, filled, strict=True):
        assert options_end or template[:1] == "-" or argument[:1] != "-"
        options_end = options_end or template == "--"


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["sh", "-c", "echo {payload} {field:a}"], [(2, "payload"), (2, "field:a")]),
        (["/bin/bash", "-lc", "echo {payload}"], [(2, "payload")]),
        (["docker", "exec", "box", "zsh", "-o", "pipefail", "-c", "{payload}"], [(7, "payload")]),
        (["sh", "-c", 'echo "$1"', "sh", "{payload}"], []),
        (["sh", "run.sh", "{payload}"], []),
        (["python3", "-c", "print()", "{payload}"], []),
        (["sh", "-c", "awk '{print $1}'"], []),
        (["sh", "-c"], []),
        ([], []),
    ],
)
def test_a_shells_script_is_found(argv: list[str], found: list[tuple[int, str]]) -> None:
    assert list(in_shell_script(argv)) == found
