"""What agent programs say of their own end, on output in the form in which they print it."""

from __future__ import annotations

import json
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.rules.classify import Evidence, Standing, judge
from clawq.rules.hints import LONGEST_MS, retry_after, until
from clawq.rules.readers import READERS, SUCCEEDED, Now

FIXTURES = Path(__file__).parents[1] / "fixtures"
AT = 1_790_000_000_000
"""2026-09-21 14:13:20 UTC, when all of it was said."""
HOUR, DAY = 3_600, 86_400


def zone(name: str) -> tzinfo:
    return ZoneInfo(name) if name else UTC


NOW = Now(AT, zone)

SAID: dict[str, tuple[str, str | None, int | None] | str] = {
    "claude/success.json": "succeeded",
    "claude/success-that-talks-of-limits.json": "succeeded",
    "claude/success-stream.jsonl": "succeeded",
    "claude/max-turns.json": "succeeded",
    "claude/plain-answer.txt": "nothing",
    "claude/cut-off-stream.jsonl": "nothing",
    "claude/session-limit.json": ("rate_limit", "rate_limit", 8 * HOUR + 36 * 60 + 40),
    "claude/weekly-limit-stream.jsonl": ("rate_limit", "rate_limit", 5 * DAY),
    "claude/old-usage-limit.json": ("rate_limit", "rate_limit", 2 * HOUR),
    "claude/verbose-array.json": ("rate_limit", "rate_limit", 7 * HOUR + 46 * 60 + 40),
    "claude/plain-limit.txt": ("rate_limit", "rate_limit", 3 * HOUR + 46 * 60 + 40),
    "claude/plain-old-limit.txt": ("rate_limit", "rate_limit", 600),
    "claude/overloaded.json": ("rate_limit", "overloaded", None),
    "claude/server-error.json": ("transient", "server_error", None),
    "claude/died-in-the-middle.json": ("transient", None, None),
    "claude/bad-token.json": ("permanent", "authentication_failed", None),
    "claude/no-credit-stream.jsonl": ("permanent", "billing_error", None),
    "claude/no-such-model-stream.jsonl": ("permanent", "model_not_found", None),
    "codex/success.jsonl": "succeeded",
    "codex/success-after-reconnects.jsonl": "succeeded",
    "codex/cut-off.jsonl": "nothing",
    "codex/usage-limit.jsonl": ("rate_limit", "rate_limit", 22 * HOUR + 2 * 60 + 40),
    "codex/weekly-limit.jsonl": ("rate_limit", "rate_limit", 5 * DAY + 7 * HOUR + 49 * 60 + 40),
    "codex/limit-in-days.jsonl": ("rate_limit", "rate_limit", 3 * DAY + 6 * HOUR + 57 * 60),
    "codex/usage-limit-as-json.jsonl": ("rate_limit", "rate_limit", 13_872),
    "codex/out-of-credits.jsonl": ("rate_limit", "rate_limit", None),
    "codex/too-many-requests.jsonl": ("rate_limit", "rate_limit", None),
    "codex/error-and-no-turn.jsonl": ("rate_limit", "rate_limit", None),
    "codex/plain-quota.txt": ("rate_limit", "rate_limit", None),
    "codex/no-such-model.jsonl": ("permanent", "invalid_request", None),
    "codex/logged-out.jsonl": ("permanent", "authentication_failed", None),
    "codex/disconnected.jsonl": ("transient", None, None),
}
"""Fixture -> (class, error word, seconds to wait)."""


def test_there_is_an_expectation_for_every_recording() -> None:
    there = {str(file.relative_to(FIXTURES)) for reader in READERS for file in (FIXTURES / reader).iterdir()}
    assert there == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_recorded_output(name: str) -> None:
    lines = (FIXTURES / name).read_text(encoding="utf-8").split("\n")
    word = READERS[name.split("/")[0]](lines, NOW)
    match SAID[name]:
        case "nothing":
            assert word is None
        case "succeeded":
            assert word == SUCCEEDED
            assert judge(Evidence(exit_code=0, reader=word), Standing()).outcome == "succeeded"
            assert judge(Evidence(exit_code=1, reader=word), Standing()).outcome == "failed"
        case (error_class, reason, seconds):
            assert word is not None
            wait = None if word.retry_after_ms is None else round(word.retry_after_ms / 1000)
            assert (word.error_class, word.reason, wait) == (error_class, reason, seconds)
            assert word.error
            end = judge(Evidence(exit_code=0, reader=word), Standing())
            assert end.error_class == error_class, "is_error with exit 0 is a failure"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 16h2m29.76s.", 16 * HOUR + 149),
        ("try again in 45 minutes", 45 * 60),
        ("Retry-After: 30", 30),
        ("retry after 90 seconds", 90),
        ("wait 2 hours, 5 mins", 2 * HOUR + 300),
        ("resets 3:45pm", HOUR + 31 * 60 + 40),
        ("Your limit will reset at 9am (America/Chicago).", 23 * HOUR + 46 * 60 + 40),
        ("reset at 2:10pm", 60),
        ("resets 25:99pm", None),
        ("resets Feb 30 at 4pm", None),
        ("limit reached|1790000060", 60),
        ("limit reached|1690000060", None),
        ("try again later", None),
        ("try again in 99999 days", None),
        ("resets 12", None),
        ("", None),
    ],
)
def test_sentences_that_say_when(text: str, seconds: int | None) -> None:
    found = retry_after(text, AT, zone)
    assert (None if found is None else found // 1000) == seconds


@pytest.mark.parametrize("value", [None, True, "x", -1, 0, float("nan"), float("inf"), 1e300, AT // 1000 - 1])
def test_no_time_to_come_back_at(value: object) -> None:
    assert until(value, AT) is None


@given(st.text(max_size=200))
def test_no_sentence_breaks_the_reading_of_times(text: str) -> None:
    found = retry_after(text, AT, zone_or_none)
    assert found is None or 0 < found <= LONGEST_MS


def zone_or_none(name: str) -> tzinfo | None:
    return None


KEYS = ("type", "is_error", "error", "message", "result", "errors", "status", "resetsAt", "rate_limit_info")
VALUES = ("result", "turn.failed", "error", "assistant", "rate_limit_event", "rejected")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=5)
    ),
    max_leaves=10,
)


def test_a_time_that_is_no_number_any_more_is_none() -> None:
    assert retry_after(f"try again in {'9' * 400} hours", AT, zone) is None


@given(st.lists(JSON | st.text(max_size=40), max_size=6), st.sampled_from(sorted(READERS)))
def test_no_output_breaks_a_reader(objects: list[object], name: str) -> None:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in objects]
    word = READERS[name](lines, NOW)
    if word is not None:
        judge(Evidence(exit_code=1, reader=word), Standing())
