"""What agent programs say of their own end, read from the last lines of their output.

A reader gets lines and gives a Word: of a failure, or an empty one for a success; None when the program
said nothing that it understands, and then the exit code counts. Programs change, so whatever has an
unexpected form is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from clawq.rules import hints
from clawq.rules.classify import Word
from clawq.rules.hints import Zone

SUCCEEDED = Word()
TEXT_CHARS = 2_000
"""Of a sentence; more is an answer, not an error."""


class Now(NamedTuple):
    """When it was said (epoch ms), and how names of time zones are looked up."""

    at: int
    zone: Zone


_WORDS = {
    "rate_limit": "rate_limit",
    "overloaded": "rate_limit",
    "server_error": "transient",
    "authentication_failed": "permanent",
    "oauth_org_not_allowed": "permanent",
    "billing_error": "permanent",
    "invalid_request": "permanent",
    "model_not_found": "permanent",
}
"""Error word -> class. An overloaded provider needs the same rest as one that limits us."""

_OTHER_NAMES = {
    "rate_limit_error": "rate_limit",
    "usage_limit_reached": "rate_limit",
    "overloaded_error": "overloaded",
    "api_error": "server_error",
    "authentication_error": "authentication_failed",
    "permission_error": "authentication_failed",
    "invalid_request_error": "invalid_request",
    "not_found_error": "model_not_found",
}
"""What the HTTP interfaces call the same."""

_STATUS = {400: "invalid_request", 401: "authentication_failed", 402: "billing_error"}
_STATUS |= {403: "authentication_failed", 404: "model_not_found", 413: "invalid_request"}
_STATUS |= {429: "rate_limit", 503: "overloaded", 529: "overloaded"}
_STATUS |= dict.fromkeys((500, 502, 504), "server_error")

_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\b(hit|reached|exceeded) your\b.{0,40}\blimit|\blimit reached\b|rate.?limit", "rate_limit"),
        (r"\bout of (extra )?(credits|usage)\b|\bquota exceeded\b|insufficient_quota", "rate_limit"),
        (r"\boverloaded\b|at capacity", "overloaded"),
        (
            r"invalid api key|please run /login|not logged in|oauth token|access token|unauthorized",
            "authentication_failed",
        ),
        (r"credit balance is too low", "billing_error"),
        (r"prompt is too long|model is not supported|invalid_request_error", "invalid_request"),
    )
)
_STATUS_IN_TEXT = re.compile(r"\b(?:api error|status)[: ]+(\d{3})\b", re.IGNORECASE)

_PLAIN_CLAUDE = re.compile(
    r"claude (ai )?usage limit reached|you've hit your [a-z0-9 -]*limit|api error: \d{3}|invalid api key"
    r"|credit balance is too low|failed to authenticate",
    re.IGNORECASE,
)
"""How the last line of `claude -p` begins when it failed, without a JSON format."""
_PLAIN_CODEX = re.compile(r"error: ", re.IGNORECASE)


def claude(lines: Sequence[str], now: Now) -> Word | None:
    """Of `claude -p`, best with ``--output-format json`` or ``stream-json``.

    ``is_error`` tells, and never ``subtype``: a rate limit has been seen as ``"subtype": "success"``.
    """
    result: dict[str, Any] | None = None
    error_word: object = None
    rejected_until: int | None = None
    for each in _objects(lines):
        match each.get("type"):
            case "result":
                result = each
            case "assistant":
                error_word = each.get("error")
            case "rate_limit_event" if isinstance(each.get("rate_limit_info"), dict):
                info = each["rate_limit_info"]
                limited = info.get("status") == "rejected"
                rejected_until = hints.until(info.get("resetsAt"), now.at) if limited else None
    if result is None:
        last = _last(lines)
        return _from_text(last, now) if _PLAIN_CLAUDE.match(last) else None
    if result.get("is_error") is not True:
        return SUCCEEDED if result.get("is_error") is False else None
    text = _first_text(result.get("result"), result.get("errors"), result.get("error"))
    word = _known(result.get("error")) or _of_status(result.get("api_error_status")) or _known(error_word)
    found = _from_text(text, now, word)
    if found.error_class == "rate_limit" and rejected_until is not None:
        found = found._replace(retry_after_ms=rejected_until)
    return found


def codex(lines: Sequence[str], now: Now) -> Word | None:
    """Of `codex exec`, best with ``--json``: the last turn tells."""
    ended: Word | None = None
    for each in _objects(lines):
        match each.get("type"):
            case "turn.started":
                ended = None
            case "turn.completed":
                ended = SUCCEEDED
            case "turn.failed":
                error = each.get("error")
                ended = _from_message(error.get("message") if isinstance(error, dict) else error, now)
            case "error" if ended is None:
                # The connection may come back and the turn go on, which then tells its own end.
                ended = _from_message(each.get("message"), now)
    if ended is None and _PLAIN_CODEX.match(_last(lines)):
        return _from_text(_last(lines)[len("error: ") :], now)
    return ended


READERS: dict[str, Callable[[Sequence[str], Now], Word | None]] = {"claude": claude, "codex": codex}
NAMES = ("none", *READERS)


def _from_message(message: object, now: Now) -> Word:
    """A message may be a sentence, or the JSON that the provider answered with."""
    text = message if isinstance(message, str) else ""
    inner = _object(text)
    if inner is None:
        return _from_text(text, now)
    error = inner["error"] if isinstance(inner.get("error"), dict) else inner
    kind = (
        _known(error.get("type")) or _of_status(inner.get("status")) or _of_status(inner.get("status_code"))
    )
    found = _from_text(_first_text(error.get("message"), text), now, kind)
    left = error.get("resets_in_seconds")
    if (
        found.error_class == "rate_limit"
        and isinstance(left, int)
        and not isinstance(left, bool)
        and left > 0
    ):
        found = found._replace(retry_after_ms=min(left * 1000, hints.LONGEST_MS))
    return found


def _from_text(text: str, now: Now, word: str | None = None) -> Word:
    """A failure that is described by `text`, and named by `word` where the program does that itself."""
    text = text[:TEXT_CHARS]
    if word is None:
        status = _STATUS_IN_TEXT.search(text)
        word = _of_status(int(status[1])) if status else None
    if word is None:
        word = next((name for pattern, name in _TEXTS if pattern.search(text)), None)
    error_class = _WORDS.get(word or "", "transient")
    wait = hints.retry_after(text, now.at, now.zone) if error_class == "rate_limit" else None
    return Word(error_class, word, retry_after_ms=wait, error=text or word)


def _known(word: object) -> str | None:
    if not isinstance(word, str):
        return None
    name = _OTHER_NAMES.get(word, word)
    return name if name in _WORDS else None


def _of_status(value: object) -> str | None:
    return _STATUS.get(value) if isinstance(value, int) else None


def _first_text(*values: object) -> str:
    for value in values:
        if isinstance(value, list):
            value = next((each for each in value if isinstance(each, str)), None)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _objects(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand on lines of their own, or in an array on one."""
    for line in lines:
        text = line.strip()
        if text[:1] == "{":
            found = _object(text)
            if found is not None:
                yield found
        elif text[:2] == "[{":
            try:
                yield from (each for each in json.loads(text) if isinstance(each, dict))
            except (ValueError, RecursionError):
                pass


def _object(text: str) -> dict[str, Any] | None:
    if text[:1] != "{":
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
