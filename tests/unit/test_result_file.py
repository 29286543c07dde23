"""A result file is read without trust."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawq.host import result_file
from clawq.host.result_file import MOST_BYTES, NOTHING
from clawq.rules.classify import Word
from clawq.supervisor.evidence import word_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result"


def test_what_is_json_is_kept(path: Path) -> None:
    path.write_text('{"pages": 3, "titel": "Größe\\ud800"}\n', encoding="utf-8")
    result = result_file.read(str(path))
    assert result.note is None
    assert result.text is not None
    assert result.text.isascii()
    assert json.loads(result.text)["pages"] == result.value["pages"] == 3


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_nothing_is_no_result(path: Path, content: bytes) -> None:
    assert result_file.read(str(path)) == NOTHING
    path.write_bytes(content)
    assert result_file.read(str(path)) == NOTHING


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"{",
        b"\xff\xfe",
        b"NaN",
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b"[" * 30_000,
        b"[" * 200 + b"]" * 200,
        b"1" * 5_000,
        os.urandom(1_000),
    ],
    ids=range(10),
)
def test_garbage_is_said_and_not_kept(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    result = result_file.read(str(path))
    assert result.text is None
    assert (result.note or "").startswith("the result file is not kept: ")


def test_a_file_of_a_gigabyte_is_not_read(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 30)
    result = result_file.read(str(path))
    assert result.text is None
    assert result.note == f"the result file was not read: {1 << 30} bytes, at most {MOST_BYTES} are"
    path.write_bytes(b'"' + b"x" * (MOST_BYTES - 2) + b'"')
    assert result_file.read(str(path)).note is None


def test_what_is_no_plain_file_is_not_touched(path: Path) -> None:
    os.mkfifo(path)
    assert result_file.read(str(path)).note == "the result file was not read: it is not a plain file"
    path.unlink()
    path.mkdir()
    assert result_file.read(str(path)).note == "the result file was not read: it is not a plain file"
    path.rmdir()
    for target in ("/dev/zero", "/etc/passwd", str(path), "/nowhere"):
        path.symlink_to(target)
        assert result_file.read(str(path)).note == "the result file was not read: it is a link"
        path.unlink()


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"error_class": "permanent"}, Word("permanent")),
        ({"error_class": None, "error": None, "retry_after_s": None, "pages": 3}, None),
        (
            {"error_class": "rate_limit", "error": "slow", "retry_after_s": 1.5},
            Word("rate_limit", retry_after_ms=1_500, error="slow"),
        ),
        ({"error": "why"}, Word(error="why")),
        ([{"error_class": "permanent"}], None),
        ("permanent", None),
        (None, None),
    ],
)
def test_what_it_says_of_the_end(value: Any, word: Word | None) -> None:
    assert word_of(value) == (word, None)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"error_class": "lost"}, "error_class is none of transient, permanent, rate_limit"),
        ({"error_class": ["x"]}, "error_class is none of transient, permanent, rate_limit"),
        ({"retry_after_s": "soon"}, "retry_after_s is not a number of seconds"),
        ({"retry_after_s": True}, "retry_after_s is not a number of seconds"),
        ({"retry_after_s": -1}, "retry_after_s is not a number of seconds"),
        ({"error": {"code": 3}}, "error is not a text"),
    ],
)
def test_what_it_says_wrongly_is_said(value: Any, complaint: str) -> None:
    assert word_of(value) == (None, f"in the result file {complaint}")


@pytest.mark.parametrize("wait", [1e300, 1e308, 10**4000])
def test_an_endless_wait_is_a_long_one(wait: float) -> None:
    word, _ = word_of({"error_class": "rate_limit", "retry_after_s": wait})
    assert word is not None
    assert word.retry_after_ms is not None
    assert word.retry_after_ms < 32 * 86_400_000
