"""What owners type and read: numbers, durations, near matches, and text that cannot steer a terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawq.cli import why, words
from clawq.cli.app import MODULES, SECTIONS
from clawq.cli.render import Column, Page, page_width
from clawq.errors import NoSuchJob, Refused, StorageError, UsageError, WrongState
from clawq.rules import spans

NASTY = (
    "\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m[bold]b[/bold]\r\n\tnext\x00\x9b1m\u202eevil\u2066\u200f\x7f"
)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0s"),
        (0.9, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (7_800, "2h10m"),
        (86_400, "1d"),
        (100_000, "1d3h"),
        (86_400 * 9 + 14_400, "9d4h"),
        (86_400 * 10 + 14_400, "10d"),
        (86_400 * 400, "400d"),
    ],
)
def test_durations_are_short(seconds: float | None, shown: str) -> None:
    assert words.short(seconds) == shown


def test_how_many_and_how_much() -> None:
    assert [spans.jobs(count) for count in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    found = [spans.size(mb) for mb in (None, 0, 1_023, 1_024, 5_222)]
    assert found == ["-", "0 MB", "1023 MB", "1.0 GB", "5.1 GB"]


@pytest.mark.parametrize(("mb", "shown"), [(None, "-"), (0, "0 MB"), (1023, "1023 MB"), (5222, "5.1 GB")])
def test_sizes(mb: int | None, shown: str) -> None:
    assert words.size(mb) == shown


def test_ids_are_numbers_each_once_and_in_order() -> None:
    assert words.job_ids(["3", "1", "#3", "2"]) == [3, 1, 2]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1 2", "\u0661", "0x1"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(UsageError, match="is not a job number: `clawq list` shows them"):
        words.job_ids([text])


@pytest.mark.parametrize("text", [str(2**63), "9" * 5_000])
def test_an_id_that_no_job_can_have(text: str) -> None:
    with pytest.raises(NoSuchJob):
        words.job_id(text)


def test_a_near_match_is_named() -> None:
    with pytest.raises(UsageError, match=r"^there is no kind 'mial': did you mean mail\?$"):
        words.known("mial", ["mail", "qa"], "kind")
    with pytest.raises(UsageError, match=r"^there is no kind 'zzz': there are mail, qa$"):
        words.known("zzz", ["qa", "mail"], "kind")


@pytest.mark.parametrize("text", ["", "x", "1.5", "0", "8", "1" * 99, "-", "--1"])
def test_numbers_have_limits(text: str) -> None:
    with pytest.raises(UsageError, match="write a whole number from 1 to 7"):
        words.number(text, "-n", 1, 7)


def test_every_problem_has_a_line_and_the_worst_code_stands(capfd: pytest.CaptureFixture[str]) -> None:
    problems = {
        1: NoSuchJob(1),
        2: None,
        3: Refused("queue_full", "full"),
        4: WrongState(4, "dead", "eaten", "ripe"),
    }
    handled = []

    def handle(job_id: int) -> None:
        handled.append(job_id)
        if (problem := problems[job_id]) is not None:
            raise problem

    assert words.each(problems, handle) == 75
    assert handled == [1, 2, 3, 4]
    assert len(capfd.readouterr().err.splitlines()) == 3
    assert words.each([2], handle) == 0


def test_a_full_disk_is_not_told_once_for_each_job() -> None:
    def handle(job_id: int) -> None:
        raise StorageError("full")

    with pytest.raises(StorageError):
        words.each([1, 2], handle)


def test_times_in_json_are_iso_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    words.write_json(
        {"at": 0, "rows": [{"ended_at": 1_500, "run_after": None, "count": 1_500}], "since": 60_000}
    )
    assert json.loads(capsys.readouterr().out) == {
        "at": "1970-01-01T00:00:00.000Z",
        "rows": [{"ended_at": "1970-01-01T00:00:01.500Z", "run_after": None, "count": 1_500}],
        "since": "1970-01-01T00:01:00.000Z",
    }


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    words.write_json({"text": NASTY})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {"text": NASTY}


class TestLocale:
    """Bars are drawn only where the user's own locale says UTF-8; Python writes UTF-8 in the C locale too."""

    @pytest.fixture(autouse=True)
    def stdout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LC_ALL", "LC_CTYPE", "LANG"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))

    @pytest.mark.parametrize(
        ("environ", "drawn"),
        [
            ({}, False),
            ({"LANG": "C"}, False),
            ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
            ({"LC_CTYPE": "C.UTF-8"}, False),  # as Python leaves it in an empty environment
            ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
            ({"LANG": "en_US.UTF-8"}, True),
            ({"LANG": "de_DE.utf8"}, True),
            ({"LC_ALL": "C.UTF-8"}, True),
            ({"LC_CTYPE": "UTF-8", "LANG": "en_US.UTF-8"}, True),
            ({"LANG": "en_US.ISO-8859-1"}, False),
        ],
    )
    def test_it_follows_the_environment(
        self, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], drawn: bool
    ) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert words.unicode_terminal() is drawn

    def test_an_ascii_stream_decides_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LANG", "en_US.UTF-8")
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        assert not words.unicode_terminal()


def drawn(page: Page, capsys: pytest.CaptureFixture[str]) -> list[str]:
    page.print()
    return capsys.readouterr().out.splitlines()


class TestPage:
    COLUMNS = (
        Column("ID", right=True),
        Column("KIND", elastic=True),
        Column("N", right=True),
        Column("NOTE", elastic=True),
    )

    def test_columns_are_aligned_and_nothing_trails(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = Page(80, unicode=False)
        page.table(self.COLUMNS, [["1", "k", "10", ""], ["22", "kind", "9", "free text"]])
        assert drawn(page, capsys) == [
            "  ID  KIND   N  NOTE",
            "   1  k     10",
            "  22  kind   9  free text",
        ]

    def test_only_elastic_columns_are_cut(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = Page(40, unicode=False)
        page.table(self.COLUMNS, [["123456", "k" * 200, "123456", "n" * 200]])
        assert drawn(page, capsys) == [
            "      ID  KIND             N  NOTE",
            "  123456  kkkkkkkkk~  123456  nnnnnnnnn~",
        ]

    @given(
        rows=st.lists(st.lists(st.text(max_size=60), min_size=4, max_size=4), max_size=5),
        width=st.integers(40, 140),
    )
    def test_no_line_is_wider_than_the_page(self, rows: list[list[str]], width: int) -> None:
        page = Page(width, unicode=True)
        page.table(self.COLUMNS, rows)
        page.pair("label", *(cell for row in rows for cell in row))
        page.items("label", (cell for row in rows for cell in row if len(cell) < 30))
        for row in rows:
            page.line(*row)
            page.foreign("\n".join(row), by=6)
        lines = page.renderable().renderables
        assert all(line.cell_len <= width for line in lines)  # type: ignore[union-attr]

    @given(st.text())
    def test_nothing_that_steers_a_terminal_gets_through(self, text: str) -> None:
        page = Page(80, unicode=True)
        page.table((Column("A", elastic=True),), [[text], [NASTY + text]])
        page.pair("label", text, NASTY)
        page.line(text)
        page.foreign(text, by=2)
        shown = "".join(line.plain for line in page.renderable().renderables)  # type: ignore[union-attr]
        assert not set(shown) & {
            chr(n) for n in (*range(32), *range(127, 160), *range(0x202A, 0x202F), 0x200F)
        }

    def test_markup_is_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = Page(80, unicode=False)
        page.line("[bold red]x[/] :smile: [link=http://e]l[/link]")
        assert drawn(page, capsys) == ["[bold red]x[/] :smile: [link=http://e]l[/link]"]

    def test_items_go_on_below(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = Page(40, unicode=False)
        page.items("jobs", ["12 queued", "3 running", "4 dead"])
        assert drawn(page, capsys) == ["jobs        12 queued   3 running", "            4 dead"]

    @pytest.mark.parametrize(
        ("share", "bar"),
        [(-1, "-" * 20), (0, "-" * 20), (0.5, "#" * 10 + "-" * 10), (1, "#" * 20), (99, "#" * 20)],
    )
    def test_gauges(self, share: float, bar: str) -> None:
        full, empty = Page(80, unicode=False).gauge(share)
        assert full[0] + empty[0] == bar
        assert full[1] == {True: "red", False: "green"}[share >= 1]


@pytest.mark.parametrize(
    ("reason", "measured", "limit", "shown"),
    [
        ("uid_procs", 612, 550, "  uid_procs  612 processes, limit 550  for 1m"),
        ("low_memory", 300, 5222, "  low_memory  300 MB free, floor 5222 MB  for 1m"),
        ("max_running", 8, 8, "  max_running  8 of 8  for 1m"),
        ("spawn_failed", None, None, "  spawn_failed  for 1m"),
    ],
)
def test_why_says_its_figures_in_words(
    capsys: pytest.CaptureFixture[str], reason: str, measured: int | None, limit: int | None, shown: str
) -> None:
    blocked = {
        "reason": reason,
        "measured": measured,
        "limit": limit,
        "since": 1_000,
        "clears_when": "it clears",
    }
    deferral = {"reason": reason, "count": 38, "first_at": 0, "last_at": 31_000}
    document = {"job_id": 7, "state": "queued", "blocked_by": [blocked], "deferrals": [deferral]}
    document |= {"until": None, "behind": False}
    assert drawn(why.draw(document, 61_000), capsys) == [
        "job 7 is queued",
        shown,
        "    until it clears",
        f"  deferred 38 times, {reason}, last 30s ago",
    ]


@pytest.mark.parametrize(
    ("state", "blocked", "said"),
    [
        ("queued", True, "job 7 is queued: waiting for capacity, retrying until {}"),
        ("queued", False, "job 7 is queued: next in turn, given up at {}"),
        ("scheduled", True, "job 7 is scheduled, given up at {}"),
    ],
)
def test_why_says_until_when_a_job_is_tried(
    capsys: pytest.CaptureFixture[str], state: str, blocked: bool, said: str
) -> None:
    reason = {"reason": "x", "measured": None, "limit": None, "since": None, "clears_when": "y"}
    document = {"job_id": 7, "state": state, "blocked_by": [reason] if blocked else [], "deferrals": []}
    document |= {"until": 60_000, "behind": False}
    assert drawn(why.draw(document, 0), capsys)[0] == said.format(words.moment(60_000, 0))


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("132", 132), ("x", 80), ("-5", 80), ("99999", 80)])
def test_a_pipe_has_80_columns_unless_columns_says_more(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    assert page_width() == width


def test_every_command_stands_in_one_section() -> None:
    assert len(MODULES) == sum(len(commands) for commands in SECTIONS.values())
