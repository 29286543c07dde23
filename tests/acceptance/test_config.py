"""`clawq config`, and what a changed, broken or missing clawq.toml means to those who use the queue."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawq.paths import Home
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.waiting import until

BROKEN = '[kinds.say]\ncommand = ["echo", "broken"]\nmax_atempts = 3\n'


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_init_writes_a_file_that_check_accepts_into_a_folder_that_was_not_there(fleet: Fleet) -> None:
    path = fleet.home.config
    assert not os.path.exists(fleet.home.data)
    assert fleet.clawq("config", "path").stdout == f"{path}\n"
    assert fleet.json("config", "path") == {"path": path, "exists": False}
    assert (
        fleet.clawq("config", "check").stdout
        == f"{path}: OK: there is no such file, the defaults are in force\n"
    )

    assert fleet.clawq("config", "init").stdout == f"{path}: written; edit it, then `clawq config check`\n"
    assert (mode(path), mode(fleet.home.data)) == (0o600, 0o700)
    checked = fleet.clawq("config", "check")
    assert (checked.stdout, checked.stderr) == (f"{path}: OK (0 kinds, 3 resources)\n", "")
    # Asking about the file makes no queue.
    assert os.listdir(fleet.home.data) == ["clawq.toml"]


def test_init_keeps_what_is_there_unless_forced(fleet: Fleet) -> None:
    fleet.configure("# mine\n")
    refused = fleet.clawq("config", "init", code=1)
    assert refused.stderr == f"clawq: {fleet.home.config} is there already: --force replaces it\n"
    assert Path(fleet.home.config).read_text() == "# mine\n"
    assert fleet.json("config", "init", "--force") == {"path": fleet.home.config, "written": True}
    assert "[limits]" in Path(fleet.home.config).read_text()


def test_init_where_no_folder_can_be_made(fleet: Fleet) -> None:
    Path(fleet.home.data).write_text("a file")
    refused = fleet.clawq("config", "init", code=74).stderr
    assert refused == f"clawq: {fleet.home.data} is not a folder: set CLAWQ_HOME to one, or move it away\n"


def test_check_tells_every_problem_a_line_each_and_exits_78(fleet: Fleet) -> None:
    fleet.configure('[limits]\nmax_runing = 1\n[kinds."site.qa"]\nlease = 3\ngrace = "x"\n')
    path = fleet.home.config
    checked = fleet.clawq("config", "check", code=78)
    assert checked.stdout == ""
    assert [line.removeprefix(f"clawq: {path}") for line in checked.stderr.splitlines()] == [
        ":2: limits.max_runing: unknown key: did you mean max_running?",
        ':4: kinds."site.qa".lease: expected a duration of "1s" or more, such as "10m" or "2h", not 3',
        ':5: kinds."site.qa".grace: expected a duration such as "90s", "10m", "2h" or "1d", not "x"',
    ]
    document = fleet.json("config", "check", code=78)
    assert (document["ok"], document["exists"], document["warnings"]) == (False, True, [])
    assert document["errors"][0] == {
        "line": 2,
        "key": "limits.max_runing",
        "what": "unknown key",
        "fix": "did you mean max_running?",
    }


def test_check_warns_on_stderr_and_accepts(fleet: Fleet) -> None:
    schedule = '[[schedules]]\ncron = "@daily"\nkind = "say"\n'
    fleet.configure('[kinds.say]\ncommand = ["sh", "-c", "echo {payload}"]\n' + schedule)
    checked = fleet.clawq("config", "check")
    told, due = checked.stdout.splitlines()
    assert told == f"{fleet.home.config}: OK (1 kind, 3 resources, 1 schedule)"
    midnight = time.strptime(due, "  say  next %Y-%m-%d 00:00")
    assert 0 < time.mktime(midnight) - time.time() < 26 * 3600
    assert checked.stderr.startswith(
        f"clawq: {fleet.home.config}:2: kinds.say.command: the shell reads {{payload}} inside a -c script"
    )
    assert fleet.json("config", "check")["warnings"][0]["line"] == 2


def test_show_says_what_is_in_force_and_why(fleet: Fleet) -> None:
    fleet.configure(
        "[limits]\nmax_running = 3\n[bands.bulk]\nlease = '60s'\n"
        "[kinds.nightly]\nband = 'bulk'\nneeds = ['shell']\nenv = { A = '\\u001b[31m [bold]x' }\n".replace(
            "'\\u001b[31m [bold]x'", '"\\u001b[31m [bold]x"'
        )
    )
    shown = fleet.clawq("config", "show").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for line in (
        "[limits]",
        "max_running 3 clawq.toml:2",
        "max_running_per_tenant 3 default: max_running",
        'retention "30d" default',
        "[kinds.nightly]",
        'needs ["shell"] clawq.toml:7',
        'lease "1m" band bulk, clawq.toml:4',
        'band "bulk" clawq.toml:6',
        "every kind that does not say otherwise",
        'lease "2m" default',
    ):
        assert line in lines, shown
    assert "[bold]x" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    values = {each["key"]: each for each in fleet.json("config", "show")["values"]}
    assert values["kinds.nightly.lease"] == {
        "key": "kinds.nightly.lease",
        "value": "1m",
        "source": "band bulk, clawq.toml:4",
        "line": 4,
    }
    assert values["kinds.nightly.env"]["value"] == {"A": "\x1b[31m [bold]x"}


@pytest.mark.parametrize(
    "words", [("config", "show"), ("config", "check"), ("config", "path"), ("config", "init")]
)
def test_in_an_empty_environment_under_an_ascii_locale(home: Home, words: tuple[str, ...]) -> None:
    place = Path(home.data) / "h\u00e9"
    env = {
        "CLAWQ_HOME": str(place),
        "LC_ALL": "C",
        "PYTHONPATH": str(ROOT),
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
    }
    done = subprocess.run([*CLAWQ, *words], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_config_alone_and_a_mistyped_part_of_it(fleet: Fleet) -> None:
    alone = fleet.clawq("config", code=2)
    assert alone.stderr == "clawq: `clawq config` does one of several things: say init, check, show or path\n"
    assert "check" in fleet.clawq("config", "chek", code=2).stderr


SAY = '[kinds.say]\ncommand = ["sh", "-c", "echo {} $1 >> {}", "--", "{{field:a}}"]\n'


def test_a_job_is_started_under_the_file_that_it_was_accepted_under(fleet: Fleet) -> None:
    """The supervisor looks once a second, and is woken by the job before that."""
    out = fleet.scratch / "out"
    with fleet.supervised():
        for number in range(4):
            assert "say" in fleet.clawq("enqueue", f"say{number}", code=2).stderr
            fleet.configure(SAY.replace("say", f"say{number}").format(number, out))
            fleet.enqueue(f"say{number}", "--payload", '{"a": "b c"}')
            wanted = f"{number} b c"
            until(lambda wanted=wanted: wanted in fleet.lines("out"), 10, fleet.said)  # type: ignore[misc]


def test_a_change_that_no_producer_meets_reaches_the_supervisor(fleet: Fleet) -> None:
    out = fleet.scratch / "out"
    fleet.configure("[host]\nmax_user_procs = 1\n" + SAY.format("one", out))
    job_id = fleet.enqueue("say", "--payload", '{"a": "x"}')
    with fleet.supervised():
        until(lambda: fleet.json("show", job_id)["deferrals"], 10, fleet.said)
        fleet.configure(SAY.format("two", out))
        until(lambda: fleet.lines("out") == ["two x"], 5, fleet.said)


def test_a_broken_file_leaves_the_last_good_form_in_force(fleet: Fleet) -> None:
    out = fleet.scratch / "out"
    fleet.configure(f'[limits]\nmax_queued = 7\n[kinds.say]\ncommand = ["sh", "-c", "echo good >> {out}"]\n')
    fleet.enqueue("say")
    fleet.configure(BROKEN)
    error = f"{fleet.home.config}:3: kinds.say.max_atempts: unknown key: did you mean max_attempts?"
    fleet.enqueue("say")
    assert any(error in alert for alert in map(json.dumps, fleet.json("status")["alerts"]))
    shown = fleet.clawq("config", "show")
    assert shown.stderr == f"clawq: {error}; the last good form is in force\n"
    assert "max_queued 7 the last good form" in " ".join(shown.stdout.split())
    assert fleet.json("config", "show")["error"] == error
    fleet.clawq("config", "check", code=78)
    fleet.run_until_idle()
    assert fleet.lines("out") == ["good", "good"]
    # Back to no file: the defaults, in which there is no such kind.
    os.unlink(fleet.home.config)
    fleet.clawq("enqueue", "say", code=2)


def test_a_home_that_never_had_a_good_file_exits_78(fleet: Fleet) -> None:
    fleet.configure(BROKEN)
    error = f"clawq: {fleet.home.config}:3: kinds.say.max_atempts: unknown key: did you mean max_attempts?\n"
    for words in (("enqueue", "say"), ("enqueue", "say"), ("run", "--until-idle"), ("config", "show")):
        assert fleet.clawq(*words, code=78).stderr.endswith(error), words
    fleet.configure('[kinds.say]\ncommand = ["true"]\n')
    fleet.enqueue("say")


def test_a_value_that_would_be_an_option_ends_its_job_with_the_reason(fleet: Fleet) -> None:
    fleet.configure('[kinds.say]\ncommand = ["echo", "--", "{field:a}"]\n')
    job_id = fleet.enqueue("say", "--payload", '{"a": "-n"}')
    fleet.configure('[kinds.say]\ncommand = ["echo", "{field:a}"]\n')  # enqueue would have refused it
    fleet.run_until_idle()
    job = fleet.job(job_id)
    assert job["state"] == "dead"
    assert "{field:a} starts with '-' and would be an option of echo" in job["last_error"]


def test_enqueue_loads_no_pydantic_once_the_file_is_compiled(fleet: Fleet) -> None:
    fleet.configure('[kinds.say]\ncommand = ["true"]\n')
    script = (
        "import os, sys\nfrom clawq import __main__ as door\n"
        "end = os._exit\n"
        "say = lambda: print('pydantic' in sys.modules, end='', flush=True)\n"
        "os._exit = lambda code: (say(), end(code))\n"
        "door.main(['enqueue', 'say'])\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
        for _ in range(2)
    )
    assert (first.stdout, second.stdout) == ("True", "False"), first.stderr + second.stderr


def test_the_overload_contract_of_every_kind(fleet: Fleet) -> None:
    fleet.configure(
        '[kinds.say]\ncommand = ["true"]\nqueue_cap = 2\non_full = "drop_oldest"\n'
        '[kinds.now]\ncommand = ["true"]\non_busy = "reject"\n'
    )
    document = fleet.json("config", "show", "--overload")
    assert [row["kind"] for row in document["kinds"]] == ["default", "now", "say"]
    assert [row["may_wait"] for row in document["kinds"]] == [True, False, True]
    assert (document["error"], document["queue"]["kept_for_critical"]) == (None, 100)
    shown = fleet.clawq("config", "show", "--overload").stdout
    assert "busy      refused: over_capacity" in shown
    assert max(map(len, shown.splitlines())) <= 80
    # While the file is broken, the contract is the last good form's.
    fleet.enqueue("say")
    fleet.configure(BROKEN)
    broken = fleet.clawq("config", "show", "--overload")
    assert broken.stdout == shown
    assert broken.stderr.endswith("did you mean max_attempts?; the last good form is in force\n")
    assert "did you mean max_attempts?" in fleet.json("config", "show", "--overload")["error"]
