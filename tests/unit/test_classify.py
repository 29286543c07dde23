"""What an attempt's end amounts to: the table, and who is believed first."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from clawq import states as job
from clawq.config.__main__ import RESULTS_DOC, results
from clawq.rules import classify, ends
from clawq.rules.classify import Evidence, Standing, Word, judge
from clawq.rules.readers import SUCCEEDED

DOC = RESULTS_DOC.read_text(encoding="utf-8")
CHARGED = {"failed", "timed_out", "stalled", "lost", "over_footprint"}
HOLDS = Standing(holds_provider=True)


def test_the_table_of_ends(capsys: pytest.CaptureFixture[str]) -> None:
    print(ends.table())
    assert capsys.readouterr().out.count("\n") == len(ends.SEEN) + 2
    assert results() == DOC, "run python -m clawq.config results"


def test_the_table_has_every_outcome_class_and_kill() -> None:
    rows = ends.rows()
    assert {row[1] for row in rows} == set(job.OUTCOMES)
    assert {row[2] for row in rows} - {""} == set(job.ERROR_CLASSES)
    assert {seen.evidence.kill for seen in ends.SEEN} - {None} | {"deadline"} == set(classify.KILL_REASONS)


def test_which_ends_are_charged() -> None:
    """Free: what never ran, a failed fork, a provider's limit, and `stop --now`."""
    free = {row[0] for row in ends.rows() if row[3] == "no"}
    assert free == {
        "a rate limit, holding a provider",
        "output that ends in a failed fork",
        "ended by `clawq stop --now`",
        "it never ran: the machine had no room for a process",
        "its shell ran and it did not, after 10 of them: at ever longer intervals, to `max_age`",
    }
    assert {row[1] for row in ends.rows() if row[3] == "yes"} >= CHARGED


@pytest.mark.parametrize(
    ("code", "error_class"), [(75, "transient"), (69, "transient"), (1, "transient"), (128, "transient")]
    + [(code, "permanent") for code in (2, 64, 65, 66, 77, 78, 126, 127)]
)  # fmt: skip
def test_exit_codes(code: int, error_class: str) -> None:
    end = judge(Evidence(exit_code=code), Standing())
    assert (end.outcome, end.error_class, end.charged, end.own_word) == ("failed", error_class, True, True)


SOURCES = ("told", "result", "reader", "pattern")


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("exit_code", [0, 1, 2, 75, 137, None])
def test_the_first_word_counts_before_every_exit_code(first: int, exit_code: int | None) -> None:
    later = dict.fromkeys(SOURCES[first + 1 :], Word("permanent", "other", error="other"))
    seen = Evidence(
        exit_code=exit_code, **{SOURCES[first]: Word("rate_limit", "mine", error="text")}, **later
    )
    end = judge(seen, Standing())
    assert (end.outcome, end.error_class, end.reason, end.error) == (
        "rate_limited",
        "rate_limit",
        "mine",
        "text",
    )
    assert end.exit_code == exit_code


@pytest.mark.parametrize(("source", "exit_code"), list(product(SOURCES, (0, 1, 137, None))))
def test_whose_word_it_is(source: str, exit_code: int | None) -> None:
    """A text in its output is no word of an agent that was ended by a signal or is gone."""
    end = judge(Evidence(exit_code=exit_code, **{source: Word("transient")}), Standing())
    assert end.own_word == (source != "pattern" or exit_code in (0, 1))


def test_a_word_without_a_class_adds_its_text_and_its_time() -> None:
    added = Word(retry_after_ms=5_000, error="the cat sat on it")
    end = judge(Evidence(exit_code=1, result=added), Standing())
    assert (end.outcome, end.error, end.said, end.retry_after_ms) == (
        "failed",
        "the cat sat on it",
        True,
        5_000,
    )
    assert judge(Evidence(exit_code=0, result=added), Standing()).outcome == "succeeded"
    told = judge(Evidence(exit_code=1, told=Word("permanent"), result=added), Standing())
    assert (told.error_class, told.error) == ("permanent", "the cat sat on it")


def test_the_reader_knows_when_where_the_agent_only_knew_what() -> None:
    reader = Word("rate_limit", retry_after_ms=7_000, error="until seven")
    assert judge(Evidence(exit_code=1, told=Word("rate_limit"), reader=reader), HOLDS).retry_after_ms == 7_000
    assert judge(Evidence(exit_code=1, told=Word("transient"), reader=reader), HOLDS).retry_after_ms is None


def test_a_success_that_its_program_confirms_is_not_doubted_for_a_text() -> None:
    pattern = Word("rate_limit")
    assert judge(Evidence(exit_code=0, reader=SUCCEEDED, pattern=pattern), HOLDS).outcome == "succeeded"
    assert judge(Evidence(exit_code=1, reader=SUCCEEDED, pattern=pattern), HOLDS).outcome == "rate_limited"
    assert judge(Evidence(exit_code=0, pattern=pattern), HOLDS).outcome == "rate_limited"


@pytest.mark.parametrize("kill", classify.KILL_REASONS)
def test_a_kill_that_clawq_recorded_comes_before_every_word(kill: str) -> None:
    word = Word("permanent", error="text")
    seen = Evidence(exit_code=143, kill=kill, told=word, result=word, reader=word, pattern=word)
    assert judge(seen, HOLDS) == classify.by_kill(kill, 143)


@pytest.mark.parametrize(
    ("last_lines", "failed"),
    [
        ("sh: 1: Cannot fork", True),
        ("x\nbash: fork: retry: Resource temporarily unavailable\nbash: fork: gave up", True),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", True),
        ("Cannot fork\n1\n2\n3", False),
        ("fork me on GitHub", False),
        ("", False),
    ],
)  # fmt: skip
def test_output_that_ends_in_a_failed_fork(last_lines: str, failed: bool) -> None:
    end = judge(Evidence(exit_code=2, last_lines=last_lines), Standing())
    assert (end.reason == classify.FORK_FAILED) is failed
    assert end.charged is not failed
    assert end.error_class == ("transient" if failed else "permanent")
    assert judge(Evidence(exit_code=0, last_lines=last_lines), Standing()).outcome == "succeeded"
    assert judge(Evidence(exit_code=137, last_lines=last_lines), Standing()).charged


def test_ten_are_free_and_no_more() -> None:
    limit = Evidence(exit_code=1, told=Word("rate_limit"))
    fork = Evidence(exit_code=1, last_lines="Cannot fork")
    assert [judge(limit, HOLDS._replace(limits_met=n)).charged for n in (0, 9, 10)] == [False, False, True]
    assert [judge(fork, Standing(forks_failed=n)).charged for n in (0, 9, 10)] == [False, False, True]
    assert judge(limit, Standing()).charged, "it holds no provider"


def test_every_key_and_class_that_the_document_names_exists() -> None:
    assert set(re.findall(r"--class ([a-z_]+)", DOC)) <= set(job.TOLD_CLASSES)
    for link in re.findall(r"\]\(([^)]+)\)", DOC):
        assert (Path(RESULTS_DOC).parent / link).exists(), link


@pytest.mark.parametrize(
    ("seen", "standing", "wanted"),
    [
        pytest.param(
            Evidence(exit_code=1, told=Word("transient")),
            Standing(holds_provider=True),
            {"outcome": "failed", "charged": True},
            id="a provider makes no failure free but a limit",
        ),
        pytest.param(
            Evidence(exit_code=1, told=Word("rate_limit", resource="api")),
            Standing(holds_provider=True),
            {"outcome": "rate_limited", "charged": False, "resource": "api"},
            id="the resource that was named",
        ),
        pytest.param(
            Evidence(exit_code=0, last_lines="sh: 1: Cannot fork"),
            Standing(),
            {"outcome": "succeeded", "error": None},
            id="a success is not doubted for its last lines",
        ),
        pytest.param(
            Evidence(last_lines="sh: 1: Cannot fork"), Standing(), {"outcome": "lost"}, id="nor is a loss"
        ),
        pytest.param(
            Evidence(exit_code=143, kill="timed_out"),
            Standing(),
            {"exit_code": 143, "resource": None, "reason": None, "own_word": False},
            id="a timeout",
        ),
        pytest.param(
            Evidence(exit_code=143, kill="over_footprint"),
            Standing(),
            {"exit_code": 143, "reason": "over_footprint"},
            id="what it outgrew is the reason of its retries",
        ),
    ],
)
def test_the_rest_of_an_end(seen: Evidence, standing: Standing, wanted: dict[str, object]) -> None:
    end = judge(seen, standing)._asdict()
    assert {name: end[name] for name in wanted} == wanted
