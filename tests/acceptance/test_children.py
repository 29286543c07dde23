"""Children with real agents: what they take over, what a later attempt gets back, and what ends with whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawq.paths import Home
from tests.fleet import Fleet
from tests.waiting import until

QUICK = "[kinds.default]\nbackoff = '0s'\n"


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def answers(fleet: Fleet, name: str = "answers") -> list[Any]:
    """What agents' `enqueue --json >> answers` said."""
    return [json.loads(line) for line in fleet.lines(name)]


def test_a_child_takes_over_what_its_parent_is(fleet: Fleet) -> None:
    answers_to = fleet.scratch / "answers"
    parent = fleet.script(
        *("--tenant", "acme", "--band", "interactive", "--priority", "4", "--deadline", "1h"),
        f"for p in 2h 30m; do clawq enqueue --json --deadline $p --hold -- true $p >> {answers_to}; done",
    )
    with fleet.supervised():
        fleet.until_state(parent, "succeeded")
    late, soon = (fleet.job(each["job_id"]) for each in answers(fleet))
    own = fleet.job(parent)
    for child in (late, soon):
        assert (child["parent_id"], child["root_id"]) == (parent, parent)
        assert (child["tenant"], child["band"], child["priority"]) == ("acme", "interactive", 5)
    assert late["deadline_at"] == own["deadline_at"]
    assert soon["deadline_at"] < own["deadline_at"]
    assert [row["id"] for row in fleet.json("show", parent)["children"]] == [late["id"], soon["id"]]


def test_a_later_attempt_gets_its_children_back_one_for_one(fleet: Fleet) -> None:
    """The dead one is asked for anew; what differs in kind, command or payload is another job."""
    fleet.configure(QUICK + "[kinds.other]\ncommand = ['true']\n")
    answers_to = fleet.scratch / "answers"
    parent = fleet.script(
        "--max-attempts",
        "2",
        f"""ask() {{ clawq enqueue --json "$@" >> {answers_to}; }}
        ask -- true; ask -- true; ask --payload 1 -- true; ask other; ask --max-attempts 1 -- false
        until clawq list --state dead --json | grep -q false; do :; done
        [ $CLAWQ_ATTEMPT = 2 ] && ask -- true; test $CLAWQ_ATTEMPT = 2""",
    )
    with fleet.supervised():
        fleet.until_state(parent, "succeeded")
    told = answers(fleet)
    first, second, third = told[:5], told[5:10], told[10:]
    assert [each["outcome"] for each in second[:4]] == ["duplicate"] * 4
    assert [each["job_id"] for each in second[:4]] == [each["job_id"] for each in first[:4]]
    assert len({each["job_id"] for each in first}) == 5
    assert second[4]["outcome"] != "duplicate"
    assert second[4]["job_id"] not in {each["job_id"] for each in first}
    assert third[0]["job_id"] not in {each["job_id"] for each in told[:10]}


def test_neither_too_deep_nor_too_many(fleet: Fleet) -> None:
    fleet.configure("[limits]\nmax_depth = 1\nmax_descendants = 2\n")
    root = fleet.enqueue("--", "true")
    child = fleet.enqueue("--parent", root, "--", "true")
    deep = fleet.clawq("enqueue", "--json", "--parent", child, "--", "true", code=65)
    assert json.loads(deep.stdout)["reason"] == "too_deep"
    assert deep.stderr == (
        f"clawq: job {child} is 1 below its root, and at most 1 below one is allowed: "
        "let a job nearer to the root do it, or raise limits.max_depth in clawq.toml\n"
    )
    fleet.enqueue("--parent", root, "--", "true")
    many = fleet.clawq("enqueue", "--json", "--parent", root, "--", "true", code=65)
    assert json.loads(many.stdout)["reason"] == "too_many_descendants"
    fleet.clawq("enqueue", "--parent", "999", "--", "true", code=1)


def test_the_last_tenth_is_for_children_too(fleet: Fleet) -> None:
    fleet.configure("[limits]\nmax_queued = 10\n")
    ids = [fleet.enqueue("--", "true") for _ in range(9)]
    assert "and for children" in fleet.clawq("enqueue", "--", "true", code=75).stderr
    fleet.enqueue("--parent", ids[0], "--", "true")


def test_what_a_job_may_not_do(fleet: Fleet) -> None:
    other = fleet.script("--hold", "true")
    said = fleet.scratch / "said-no"
    tries = (
        "enqueue --tenant acme -- true",
        f"enqueue --parent {other} -- true",
        "enqueue --band critical -- true",
        *(f"{verb} {other}" for verb in ("approve", "deny", "edit --priority 3", "reconcile --failed")),
        "resume",
        "stop",
        "prune",
        "restore x",
    )
    script = "; ".join(f"clawq {each}; echo $? {each} >> {said}" for each in tries)
    agent = fleet.script(f"{script}; clawq enqueue --band bulk --print-id -- true >> {said}")
    with fleet.supervised():
        fleet.until_state(agent, "succeeded")
        *refused, allowed = fleet.lines("said-no")
    assert refused == [f"65 {each}" for each in tries]
    assert fleet.job(int(allowed))["band"] == "normal"
    assert fleet.state(other) == "held"
    lines = fleet.clawq("logs", agent).stdout.splitlines()
    assert f"clawq: job {agent} cannot `clawq stop`: that is for a person, outside of a job" in lines


def test_an_agent_whose_job_is_no_longer_its_own_makes_no_children(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = fleet.enqueue("--", "true")
    monkeypatch.setenv("CLAWQ_JOB_ID", str(job_id))
    monkeypatch.setenv("CLAWQ_TOKEN", "1")
    told = fleet.clawq("enqueue", "--json", "--", "true", code=77)
    assert json.loads(told.stdout)["reason"] == "lease_lost"
    assert len(fleet.json("list")) == 1


@pytest.mark.parametrize(
    ("end", "state"), [("exit 0", "succeeded"), ("exit 64", "dead"), ("kill -9 $$", "dead")]
)
def test_children_follow_what_was_said_about_their_parents_end(fleet: Fleet, end: str, state: str) -> None:
    fleet.configure("[kinds.default]\nmax_attempts = 1\n")
    make = "clawq enqueue --hold --on-parent-end {0} -- true; clawq enqueue --on-parent-end {0} -- sleep 60;"
    go = fleet.scratch / "go"
    parent = fleet.script(
        make.format("keep") + make.format("cancel") + f"until [ -e {go} ]; do :; done; {end}"
    )
    with fleet.supervised():
        until(lambda: [row["state"] for row in fleet.json("list", "--state", "running")] == ["running"] * 3)
        go.touch()
        fleet.until_state(parent, state)
        kept_held, kept, held, runs = (row["id"] for row in fleet.json("show", parent)["children"])
        fleet.until_state(held, "cancelled")
        fleet.until_state(runs, "cancelled")
        assert (fleet.state(kept_held), fleet.state(kept)) == ("held", "running")
        assert fleet.job(held)["last_error"] == f"its parent, job {parent}, has ended"
        fleet.clawq("cancel", "--tree", parent)
        fleet.until_state(kept, "cancelled")
        assert fleet.state(kept_held) == "cancelled"


def test_cancelling_takes_along_what_has_not_started_and_with_tree_what_runs(fleet: Fleet) -> None:
    below = "clawq enqueue -- sleep 60; clawq enqueue --hold -- true; sleep 60"
    parent = fleet.script(below)
    with fleet.supervised():
        until(lambda: len(fleet.json("show", parent)["children"]) == 2)
        runs, held = (row["id"] for row in fleet.json("show", parent)["children"])
        fleet.until_state(runs, "running")
        fleet.clawq("cancel", parent)
        assert fleet.state(held) == "cancelled"
        fleet.until_state(parent, "cancelled")
        assert fleet.state(runs) == "running"
        told = fleet.clawq("cancel", "--tree", parent)
        assert told.stdout == f"job {parent}: cancelled\n"
        fleet.until_state(runs, "cancelled")
        fleet.clawq("cancel", "--tree", parent, code=1)


def test_show_and_list_draw_the_tree(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    root = fleet.enqueue("--", "true")
    first = fleet.enqueue("--parent", root, "--", "true")
    other = fleet.enqueue("--", "true")
    second = fleet.enqueue("--parent", root, "--hold", "--", "true")
    below = fleet.enqueue("--parent", first, "--", "true")
    rows = [line.split()[:3] for line in fleet.clawq("list").stdout.splitlines()]
    assert rows[1:] == [
        [str(other), "default", "queued"],
        [str(root), "default", "queued"],
        [str(first), "|-default", "queued"],
        [str(below), "|", "`-default"],
        [str(second), "`-default", "held"],
    ]
    shown = fleet.clawq("show", root).stdout
    tree = [line.split()[-3:] for line in shown.split("Children\n")[1].split("\n\n")[0].splitlines()[1:]]
    assert tree == [
        [f"|-{first}", "default", "queued"],
        [f"`-{below}", "default", "queued"],
        [f"`-{second}", "default", "held"],
    ]
    assert f"child of    job {first}  (root {root})" in fleet.clawq("show", below).stdout
