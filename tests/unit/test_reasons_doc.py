"""docs/reasons.md is held to the code: every reason stands in it, with keys that exist, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawq import errors
from clawq.config.__main__ import REASONS_DOC, reasons
from clawq.config.problems import model_at
from clawq.errors import REFUSED_FOR_GOOD, REFUSED_FOR_NOW, ClawqError, Refused
from clawq.rules import reasons as rules
from clawq.store.reasons import REASONS, clears_when, split
from tests.unit.test_fairness_doc import reasons_in_the_order_of_the_code

DOC = REASONS_DOC.read_text(encoding="utf-8")

BESIDES = {"no_supervisor", "not_due", "children", "held", "unknown"}
"""What `clawq why` says of a job that no pass asks."""


def rows(section: str) -> dict[str, list[str]]:
    """The tables of a section: {reason: its other cells}."""
    text = DOC.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([a-z_]+(?::NAME)?)` \| (.*) \|$", text, re.MULTILINE)
    assert len(found) == len({reason for reason, _ in found}), "a reason stands there twice"
    return {reason: [cell.strip() for cell in cells.split(" | ")] for reason, cells in found}


WAITS, REFUSED, OTHERS = (
    rows(name) for name in ("Why an accepted job waits", "Why a job is refused", "Other errors")
)


def test_the_table_of_what_a_job_waits_for_is_current() -> None:
    assert reasons() == DOC, "run python -m clawq.config reasons"


def test_every_reason_of_a_pass_has_its_row_and_its_words_and_there_are_no_others() -> None:
    given = set(reasons_in_the_order_of_the_code())
    assert set(REASONS) == given | BESIDES
    assert set(WAITS) == set(REASONS)
    assert not given & BESIDES


def test_what_the_rules_say_about_reasons_is_about_reasons_that_they_give() -> None:
    given = set(reasons_in_the_order_of_the_code())
    assert given >= rules.HOST_REASONS | rules.SHORT_OF_SLOTS | rules.OBSERVED_ANYWAY


@pytest.mark.parametrize("key", REASONS)
def test_why_has_words_for_what_clears_each(key: str) -> None:
    reason = key.replace("NAME", "browser")
    assert split(reason) == (key, "browser" if key.endswith(":NAME") else "")
    clears = clears_when(reason)
    assert clears != clears_when("a_reason_nobody_knows")
    assert clears
    assert not set("{}") & set(clears)
    assert REASONS[key].means


@pytest.mark.parametrize(
    ("exit_code", "known"), [(75, REFUSED_FOR_NOW), (65, REFUSED_FOR_GOOD)], ids=["for now", "for good"]
)
def test_every_refusal_has_its_row_and_there_are_no_others(exit_code: int, known: frozenset[str]) -> None:
    table = DOC.split(f"| refused for {'now' if exit_code == 75 else 'good'} ({exit_code}) |")[1]
    listed = re.findall(r"^\| `([a-z_]+)` \|", table.split("\n\n")[0], re.MULTILINE)
    assert set(listed) == known
    assert {Refused(reason, "").exit_code for reason in listed} == {exit_code}
    assert set(REFUSED) == REFUSED_FOR_NOW | REFUSED_FOR_GOOD


def test_every_other_error_has_its_row_with_its_exit_code() -> None:
    def below(kind: type[ClawqError]) -> Iterator[type[ClawqError]]:
        for each in kind.__subclasses__():
            if each.__module__ == errors.__name__ and each is not Refused:
                yield each
            yield from below(each)

    assert {reason: int(cells[0]) for reason, cells in OTHERS.items()} == {
        each.reason: each.exit_code for each in below(ClawqError)
    }


def test_every_key_that_is_said_to_set_one_exists() -> None:
    named = re.findall(r"`((?:limits|host|(?:resources|budgets|bands|tenants|kinds)\.[A-Z]+)\.[a-z_]+)`", DOC)
    absent = {
        dotted
        for dotted in named
        if dotted.rpartition(".")[2] not in model_at(tuple(dotted.split(".")[:-1])).model_fields
    }
    assert absent == set()
    assert len(set(named)) > 20


def test_the_files_it_links_to_exist() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", DOC):
        assert (Path(REASONS_DOC).parent / link).exists(), link
