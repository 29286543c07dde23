"""Notices under the hands of the loop: real commands, and a clock that the test turns."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from clawq import states as job
from clawq.host import processes
from clawq.paths import Home
from clawq.rules.alerts import Alert
from clawq.settings import Settings
from clawq.store import sqlfile
from clawq.store.connection import Immediate
from clawq.supervisor.errands import GRACE_MS, WITHIN_MS
from clawq.supervisor.notices import AGAIN_MS, ALERTS_MS, OVER_MS, Notices
from clawq.supervisor.start import prepare_run_folder
from tests.rows import put
from tests.waiting import until

NOW = 5_000_000_000


class Loop:
    """What the supervisor does with notices in a turn. `told` is what the commands wrote, a line each."""

    def __init__(self, home: Home, db: apsw.Connection, told: Path, **kinds: Any) -> None:
        prepare_run_folder(home)
        self.file = told
        self.body = json.loads(sqlfile.read("default_config.json"))
        self.body["kinds"] |= kinds
        self.home, self.db = home, db
        self.now = NOW
        self.said: list[str] = []
        self.notices = Notices(home)

    def writes(self, text: str) -> list[str]:
        return ["sh", "-c", f'printf "%s\\n" "$1" >> {self.file}', "sh", text]

    def turn(self, later: int = 0) -> None:
        self.now += later
        mono, settings = self.now - NOW, Settings(self.body)
        processes.reap()
        self.notices.poll(mono)
        self.notices.look_at_alerts(self.db, settings, os.getpid(), "run", self.now, mono)
        with Immediate(self.db):
            found = self.notices.record(self.db, settings, self.now, mono)
        self.notices.committed(found)
        self.notices.begin(dict(os.environ), settings, mono)
        self.said += self.notices.complaints
        self.notices.complaints.clear()

    def told(self) -> list[str]:
        """Once nobody is being told any more."""

        def quiet() -> bool:
            self.turn()
            return not self.notices.busy

        until(quiet)
        return self.file.read_text().splitlines() if self.file.exists() else []


@pytest.fixture
def loop(home: Home, db: apsw.Connection, tmp_path: Path) -> Loop:
    loop = Loop(home, db, tmp_path / "told")
    loop.body["kinds"]["mail"] = {"notify": loop.writes("{kind} {state} {job_id} {tenant}: {text}")}
    loop.turn()
    return loop


def end(loop: Loop, state: str = job.DEAD, kind: str = "mail", **columns: Any) -> int:
    job_id = put(loop.db, loop.now - 1, kind=kind)
    how = {"state": state, "changed_at": loop.now, "ended_at": None if state == "unknown" else loop.now}
    for step in (
        {"state": "starting", "token": job_id},
        {"state": "running"},
        how | {"token": None} | columns,
    ):
        sets = ", ".join(f"{name} = ?" for name in step)
        loop.db.execute(f"UPDATE jobs SET {sets} WHERE id = ?", (*step.values(), job_id))
    return job_id


def expire(loop: Loop, kind: str = "mail") -> int:
    job_id = put(loop.db, loop.now, kind=kind)
    loop.db.execute("UPDATE jobs SET state = 'expired', ended_at = ? WHERE id = ?", (loop.now, job_id))
    return job_id


@pytest.mark.parametrize("state", ["dead", "unknown", "expired"])
def test_a_job_that_came_to_a_bad_end_is_told_once(loop: Loop, state: str) -> None:
    job_id = (
        expire(loop) if state == "expired" else end(loop, state, last_error="exit 3: no such user\x1b[31m")
    )
    error = "" if state == "expired" else ": exit 3: no such user"
    line = f"mail {state} {job_id} default: mail job {job_id} is {state}{error}"
    assert loop.told() == [line]
    loop.turn(AGAIN_MS)
    assert loop.told() == [line]


def test_a_good_end_and_another_kind_are_nobodys_news(loop: Loop) -> None:
    end(loop, "succeeded")
    end(loop, "dead", kind="other")
    assert loop.told() == []


def test_what_ends_within_a_minute_is_told_together(loop: Loop) -> None:
    first = end(loop)
    assert loop.told() == [f"mail dead {first} default: mail job {first} is dead"]
    more = [end(loop) for _ in range(3)]
    expired = expire(loop)
    assert len(loop.told()) == 2  # another state has a minute of its own
    loop.turn(AGAIN_MS - 1)
    assert len(loop.told()) == 2
    loop.turn(1)
    text = f"mail dead {more[-1]} default: mail job {more[-1]} is dead; and 2 more"
    assert loop.told()[1:] == [f"mail expired {expired} default: mail job {expired} is expired", text]


def test_a_restart_repeats_nothing_and_forgets_nothing(loop: Loop, home: Home) -> None:
    first = end(loop)
    loop.told()
    second = end(loop)
    loop.turn()
    loop.notices.stop()
    loop.notices = Notices(home)
    third = end(loop)
    loop.turn(AGAIN_MS)
    lines = [line.split(": ", 1)[1] for line in loop.told()]
    assert lines == [f"mail job {first} is dead", f"mail job {third} is dead; and 1 more"]
    assert second < third


def test_whoever_asks_late_is_not_told_the_past(home: Home, db: apsw.Connection, tmp_path: Path) -> None:
    loop = Loop(home, db, tmp_path / "told")
    loop.turn()
    end(loop)
    loop.turn(1_000)
    loop.body["alerts"]["notify"] = loop.writes("{text}")
    loop.turn(1_000)
    assert loop.told() == []
    job_id = end(loop)
    assert loop.told() == [f"mail job {job_id} is dead"]  # a kind without its own uses that of the file


def test_a_clock_that_was_set_back_silences_nobody(loop: Loop) -> None:
    end(loop)
    assert len(loop.told()) == 1
    loop.now -= 86_400_000
    end(loop)
    assert len(loop.told()) == 2


def test_two_at_a_time_for_thirty_seconds_and_said_once(loop: Loop, tmp_path: Path) -> None:
    loop.body["kinds"] |= {
        name: {"notify": ["sh", "-c", f"touch {tmp_path}/{name}; trap '' TERM; sleep 300"]} for name in "abc"
    }
    for name in "abc":
        end(loop, kind=name)
    loop.turn()
    begun = [tmp_path / name for name in "abc"]
    until(lambda: sum(file.exists() for file in begun) == 2)
    assert len(loop.notices.errands.under_way) == 2
    loop.turn(WITHIN_MS - 1)
    assert len(loop.notices.errands.under_way) == 2
    for step in (1, GRACE_MS, WITHIN_MS, GRACE_MS):  # TERM, which they do not mind, and KILL; then the third
        loop.turn(step)
        until(lambda: (loop.turn(), len(list(filter(os.path.exists, begun))) >= 2)[1])
        if step == GRACE_MS:
            until(lambda: (loop.turn(), len(loop.said) >= 2 and os.path.exists(begun[2]))[1])
    loop.told()
    assert sorted(loop.said) == [f"notify of {name} failed, did not answer within 30 s" for name in "abc"]


def test_a_failing_one_is_said_once_until_it_works(loop: Loop, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    loop.body["kinds"]["mail"]["notify"] = ["sh", "-c", f"echo no network; test -e {mended}"]
    for _ in range(2):
        end(loop)
        loop.turn(AGAIN_MS)
        loop.told()
    assert loop.said == ["notify of mail failed, exit 1: no network"]
    mended.touch()
    end(loop)
    loop.turn(AGAIN_MS)
    loop.told()
    mended.unlink()
    end(loop)
    loop.turn(AGAIN_MS)
    loop.told()
    assert len(loop.said) == 2


def test_a_program_that_is_not_there_is_said_and_harms_nobody(loop: Loop) -> None:
    loop.body["kinds"]["mail"]["notify"] = ["/no/such/program", "{text}"]
    end(loop)
    loop.told()
    assert len(loop.said) == 1
    assert loop.said[0].startswith("notify of mail failed, exit 127")


def test_no_shell_reads_what_a_job_says(loop: Loop, tmp_path: Path) -> None:
    end(loop, last_error=f"$(touch {tmp_path}/hacked); `touch {tmp_path}/hacked`")
    assert "$(touch" in loop.told()[0]
    assert not (tmp_path / "hacked").exists()


def test_it_has_no_token_and_is_no_job(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWQ_TOKEN", "1")
    monkeypatch.setenv("CLAWQ_JOB_ID", "1")
    loop.body["kinds"]["mail"] = {
        "notify": [
            "sh",
            "-c",
            f"env | grep ^CLAWQ_ | cut -d= -f1 | sort >> {loop.file}; echo $V >> {loop.file}",
        ],
        "env": {"V": "of the kind"},
    }
    end(loop)
    assert loop.told() == ["CLAWQ_HOME", "CLAWQ_NOTICE", "of the kind"]


def alert(reason: str, about: str = "") -> Alert:
    return Alert(reason, f"something about {about or reason}", "mend it", about)


class TestAlerts:
    @pytest.fixture
    def loop(self, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Loop:
        loop.body["alerts"]["notify"] = loop.writes("{reason} {state}: {text}")
        self.found: list[Alert] = []
        monkeypatch.setattr("clawq.supervisor.notices.health.alarms", lambda *_, **__: self.found)
        return loop

    def test_one_is_told_when_it_appears_and_not_while_it_lasts(self, loop: Loop) -> None:
        self.found = [alert("late_retry"), alert("paused"), alert("unknown")]
        assert loop.told() == ["late_retry alert: something about late_retry: mend it"]
        for _ in range(3):
            loop.turn(ALERTS_MS)
        assert len(loop.told()) == 1

    def test_those_of_one_reason_are_told_together(self, loop: Loop) -> None:
        self.found = [alert("quiet", "4"), alert("quiet", "5"), alert("quiet", "6")]
        assert loop.told() == ["quiet alert: something about 4: mend it; and 2 more"]
        self.found.append(alert("quiet", "7"))
        loop.turn(ALERTS_MS)
        assert len(loop.told()) == 1
        loop.turn(AGAIN_MS)
        assert loop.told()[1:] == ["quiet alert: something about 7: mend it"]

    def test_one_that_comes_and_goes_is_told_once(self, loop: Loop) -> None:
        self.found = [alert("config")]
        loop.told()
        for _ in range(4):
            self.found = []
            loop.turn(OVER_MS // 2)
            self.found = [alert("config")]
            loop.turn(ALERTS_MS)
        assert len(loop.told()) == 1
        self.found = []
        loop.turn(ALERTS_MS)
        loop.turn(OVER_MS)
        self.found = [alert("config")]
        loop.turn(ALERTS_MS)
        assert len(loop.told()) == 2

    def test_one_that_a_single_look_may_see_has_to_last(self, loop: Loop) -> None:
        self.found = [alert("stuck")]
        assert loop.told() == []
        self.found = []
        loop.turn(ALERTS_MS)
        self.found = [alert("stuck")]
        loop.turn(ALERTS_MS)
        assert loop.told() == []
        loop.turn(ALERTS_MS)
        assert loop.told() == ["stuck alert: something about stuck: mend it"]

    def test_a_restart_does_not_repeat_it(self, loop: Loop, home: Home) -> None:
        self.found = [alert("config")]
        loop.told()
        loop.notices = Notices(home)
        loop.turn(AGAIN_MS)
        assert len(loop.told()) == 1


def test_one_that_outlives_its_supervisor_is_left_alone_while_it_is_young(loop: Loop, home: Home) -> None:
    loop.body["kinds"]["mail"]["notify"] = [
        "sh",
        "-c",
        f"read x < {loop.file}.pipe; echo told >> {loop.file}",
    ]
    os.mkfifo(f"{loop.file}.pipe")
    end(loop)
    loop.turn()
    loop.notices.stop()
    again = Notices(home)
    again.end_leftovers(0)
    with open(f"{loop.file}.pipe", "w") as pipe:
        pipe.write("go\n")
    until(lambda: loop.file.exists() and loop.file.read_text() == "told\n")
    until(lambda: (processes.reap(), again.end_leftovers(0), os.listdir(home.run))[2] == ["null.payload"])


def test_one_that_outlives_its_supervisor_has_no_longer_than_others(loop: Loop, home: Home) -> None:
    loop.body["kinds"]["mail"]["notify"] = ["sh", "-c", "trap '' TERM; exec sleep 1000"]
    end(loop)
    loop.turn()
    (errand,) = loop.notices.errands.under_way.values()
    until(lambda: Path(f"{errand.path}.attempt").read_text().startswith("r "))
    loop.notices.stop()
    again = Notices(home)
    again.end_leftovers(1)
    assert again.look_again == 1 + WITHIN_MS
    os.utime(f"{errand.path}.attempt", (1, 1))
    again.poll(WITHIN_MS)
    assert os.path.exists(f"{errand.path}.attempt")
    again.poll(1 + WITHIN_MS)
    assert again.look_again is None
    assert os.listdir(home.run) == ["null.payload"]
    until(lambda: (processes.reap(), errand.pid not in psutil.pids())[1])
