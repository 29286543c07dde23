"""People are told of bad ends and of alerts, by real commands of a real supervisor."""

from __future__ import annotations

import pytest

from clawq.paths import Home
from tests.fleet import Fleet
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def configure(fleet: Fleet, more: str = "") -> None:
    write = f'notify = ["sh", "-c", "echo $1 >> {fleet.scratch}/notes", "sh", '
    fleet.configure(
        f'[alerts]\n{write}"{{reason}} {{text}}"]\n'
        f'[kinds.mail]\nmax_attempts = 1\n{write}"{{kind}} {{state}}"]\n{more}'
    )


def test_the_last_notice_is_given_before_an_idle_supervisor_ends(fleet: Fleet) -> None:
    configure(fleet)
    fleet.enqueue("mail", "--", "sh", "-c", "echo 'no such user'; exit 3")
    other = fleet.enqueue("--", "sh", "-c", "exit 65")
    fine = fleet.enqueue("mail", "--", "true")
    fleet.run_until_idle()
    assert fleet.state(fine) == "succeeded"
    assert sorted(fleet.lines("notes")) == [
        f"dead default job {other} is dead: exit 65",
        "mail dead",
    ]
    fleet.run_until_idle()
    assert len(fleet.lines("notes")) == 2


def test_an_alert_is_told_once_while_it_lasts(fleet: Fleet) -> None:
    configure(fleet, '[kinds.later]\ncommand = ["true"]\n')
    job_id = fleet.enqueue("later")
    configure(fleet)
    with fleet.supervised():
        until(lambda: fleet.lines("notes"), 20)
    with fleet.supervised():
        fleet.enqueue("--", "true")
    (line,) = fleet.lines("notes")
    assert line.startswith("never_fits 1 job can never start with this clawq.toml")
    assert f"clawq why {job_id}" in line


def test_a_kinds_notice_has_its_env_file_and_goes_without_one_that_is_gone(fleet: Fleet) -> None:
    secrets = fleet.scratch / "secrets"
    secrets.write_text("WHO=me\n")
    secrets.chmod(0o600)
    tell = f'notify = ["sh", "-c", "echo $1 told ${{WHO-no}} >> {fleet.scratch}/notes", "-", "{{kind}}"]\n'
    fleet.configure(
        f'[kinds.mail]\nmax_attempts = 1\nenv_file = "{secrets}"\n{tell}'
        f'[kinds.gone]\nenv_file = "{secrets}.gone"\n{tell}'
    )
    fleet.enqueue("mail", "--", "false")
    fleet.enqueue("gone", "--", "true")
    fleet.run_until_idle()
    assert sorted(fleet.lines("notes")) == ["gone told no", "mail told me"]
