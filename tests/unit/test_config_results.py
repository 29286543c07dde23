"""`classify`, `errors` and `provider` in clawq.toml: what is read, and what is said about mistakes."""

from __future__ import annotations

import pytest

from clawq.config.compiler import check_text, dump
from clawq.rules import readers
from clawq.settings import Settings

FILE = "/home/me/clawq.toml"
KIND = "[kinds.k]\n"


def test_what_is_written_is_what_the_supervisor_reads() -> None:
    text = (
        "[resources.api]\nlimit = 2\nprovider = true\n"
        '[bands.bulk]\nclassify = "codex"\n'
        f'{KIND}errors = [{{ contains = "quota", class = "rate_limit", reason = "q", resource = "api" }}]\n'
    )
    checked = check_text(text, FILE)
    assert checked.problems == checked.warnings == ()
    assert checked.body is not None
    settings = Settings.from_text(dump(checked.body))
    assert (settings.resources["api"].provider, settings.resources["shell"].provider) == (True, False)
    (pattern,) = settings.kind("k").errors
    assert (pattern.contains, pattern.error_class, pattern.reason, pattern.resource) == (
        "quota",
        "rate_limit",
        "q",
        "api",
    )
    assert settings.kind("k", "bulk").classify == "codex"
    assert (settings.kind("k").classify, settings.kind("default").errors) == ("none", ())
    assert set(readers.NAMES) == {"none", *readers.READERS}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('classify = "claud"', "kinds.k.classify: no such reader 'claud': did you mean claude?"),
        ("errors = 3", "kinds.k.errors: expected a list such as"),
        ('errors = ["quota"]', "kinds.k.errors: expected a list such as"),
        ('errors = [{ class = "permanent" }]', "kinds.k.errors: contains is missing"),
        ('errors = [{ contains = " ", class = "permanent" }]', "kinds.k.errors: contains is missing"),
        ('errors = [{ contains = "x" }]', "kinds.k.errors: class is missing: expected one of transient,"),
        ('errors = [{ contains = "x", class = "lost" }]', "kinds.k.errors: no such class 'lost'"),
        (
            'errors = [{ contians = "x", class = "permanent" }]',
            "kinds.k.errors: unknown key 'contians': did you mean contains?",
        ),
        (
            'errors = [{ contains = "x", class = "rate_limit", resource = "browsr" }]',
            'kinds.k.errors: no resource "browsr": did you mean browser?',
        ),
        ('errors = [{ contains = "x", class = "permanent", reason = "a b" }]', "kinds.k.errors: not a name"),
    ],
)
def test_mistakes_are_named(line: str, said: str) -> None:
    checked = check_text(KIND + line, FILE)
    assert f"{FILE}:2: {said}" in str(checked.error())
