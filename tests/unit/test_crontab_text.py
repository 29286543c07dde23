"""Crontabs in, crontabs out: what becomes of a line, and that a wrapped one does the same work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawq.crontab import LONGEST, Rewritten, escape_percent, rewrite, split_at_percent
from clawq.crontab.shell import quote, scan
from clawq.crontab.wrap import CannotWrap
from clawq.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "fixtures" / "crontabs"
CLAWQ = "/opt/clawq"


def wrapped(text: str, places: dict[str, str] | None = None, system: bool = False) -> Rewritten:
    return rewrite(text, [CLAWQ], places or {}, system)


def line(job: str) -> str:
    """What becomes of one line, without the calls that are the same everywhere."""
    *_, last = wrapped(job + "\n").text.splitlines()
    return last


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.in")), ids=lambda file: file.stem)
def test_a_real_looking_crontab(file: Path) -> None:
    done = wrapped(file.read_text(), {}, system=file.stem == "system")
    assert done.text == file.with_suffix(".out").read_text()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.in")), ids=lambda file: file.stem)
def test_twice_is_once(file: Path) -> None:
    places = {"CLAWQ_HOME": "/srv/q"}
    once = wrapped(file.read_text(), places, system=file.stem == "system").text
    assert wrapped(once, places, system=file.stem == "system").text == once


JOBS = st.lists(
    st.one_of(
        st.text(st.sampled_from("ab '\"\\%$&|;<>()`#~*={}\t-/@")).map(lambda text: "0 7 * * * " + text),
        st.text(st.sampled_from("ab '\"\\%$&|;=# \t*@")),
        st.sampled_from(["A=b", "# note", "", "@daily x", "@reboot y", "*/5 * * * * flock -n /l x -y"]),
    ),
    max_size=6,
)


@given(JOBS)
def test_twice_is_once_whatever_it_says(lines: list[str]) -> None:
    text = "".join(f"{each}\n" for each in lines)
    once = wrapped(text, {"CLAWQ_HOME": "/q"})
    assert wrapped(once.text, {"CLAWQ_HOME": "/q"}).text == once.text
    # Every line is there still, as it was or as a job of ours.
    kept = [each for each in once.text.splitlines() if not each.startswith(("# clawq: ", "CLAWQ_HOME="))]
    assert len(kept) == len(lines)


def test_everything_but_jobs_stays_byte_by_byte() -> None:
    text = '# a comment\n\n \t\nMAILTO = "me@example.com"\n  PATH=/a:/b  \n#0 7 * * * old\n'
    assert wrapped(text).text == text
    assert wrapped("").text == ""
    assert wrapped("A=b").text == "A=b\n"  # cron asks for the newline


@pytest.mark.parametrize(
    ("when", "key"),
    [
        ("0 7 * * *", "x-{date}"),
        ("@weekly", "x-{date}"),
        ("@hourly", "x-{hour}"),
        ("0 7,19 * * 1-5", "x-{hour}"),
        ("*/5 * * * *", "x-{minute}"),
        ("0~59 7 * * *", "x-{minute}"),
        ("-0 7 * * *", "x-{date}"),
    ],
)
def test_the_key_is_as_fine_as_the_times(when: str, key: str) -> None:
    assert line(f"{when} x") == f"{when} {CLAWQ} enqueue --dedupe-key '{key}' --exclusive x -- x"


def test_a_day_of_another_time_zone_is_not_ours() -> None:
    assert "'x-{minute}'" in line("CRON_TZ=Asia/Tokyo\n0 7 * * * x")


def test_flock_n_is_a_key_while_it_is_active() -> None:
    job = line("0 7 * * * /usr/bin/flock -n /tmp/digest.lock /bin/digest --now")
    assert job.endswith("--dedupe-key digest --dedupe-scope active --exclusive digest -- /bin/digest --now")
    assert line("0 7 * * * flock --nonblock /x/a.lock -c 'b c'").endswith(" --exclusive a -- b c")


def test_two_lines_with_one_lock_have_one_name_and_two_locks_have_two() -> None:
    text = "0 7 * * * flock /a/x.lock one\n0 8 * * * flock /a/x.lock two\n0 9 * * * flock /b/x.lock three\n"
    names = [each.split("--exclusive ")[1].split()[0] for each in wrapped(text).text.splitlines()]
    assert names == ["x", "x", "x-2"]


def test_a_lock_that_one_line_keeps_is_kept_by_all() -> None:
    """One name in the queue and one file outside of it would let both run at once."""
    first, second = wrapped("0 7 * * * flock /l one | two\n0 8 * * * flock -n /l three\n").text.splitlines()
    assert first.endswith("-- /bin/sh -c 'flock /l one | two'")
    assert second.endswith("--exclusive l-2 -- flock -n /l three")


def test_names_of_other_lines_are_not_taken_again() -> None:
    text = (
        f"0 7 * * * {CLAWQ} enqueue --dedupe-key 'a-{{date}}' --exclusive a -- a\n0 8 * * * a\n0 9 * * * a\n"
    )
    names = [each.split("--exclusive ")[1].split()[0] for each in wrapped(text).text.splitlines()]
    assert names == ["a", "a-2", "a-3"]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ("30m", "30m"),
        ("90", "90s"),
        ("1.5h", "5400s"),
        ("1d", "1d"),
        ("0", "none"),
        ("-k 10 5m", "5m"),
        ("--kill-after=10s 5m", "5m"),
        ("-s TERM 5m", "5m"),
    ],
)
def test_timeout_is_an_option(given: str, option: str) -> None:
    assert line(f"0 7 * * * timeout {given} x -y").endswith(f"--timeout {option} -- x -y")


@pytest.mark.parametrize("given", ["-s INT 5m", "0.5s", "$T", "5x"])
def test_a_timeout_that_is_none_of_ours_stays(given: str) -> None:
    job = line(f"0 7 * * * timeout {given} x")
    assert "--timeout" not in job
    assert job.endswith((f"-- timeout {given} x", f"-- /bin/sh -c 'timeout {given} x'"))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("@reboot x", "runs at boot"),
        ("0 7 * * * mail me%hello", "its standard input"),
        ("0 7 * * * x &", "background"),
        ("0 7 * * * x &>/dev/null", "background"),  # for sh this is `x &`
        ("0 7 * * * it's", "does not close"),
        ("0 7 * * * cat <<E", "from the line itself"),
        ("0 7 * * *", "no command"),
        ("0 7 * * x", "no command"),
        ("every day at seven", "no crontab line"),
        ("61 7 * * * x", "minute '61'"),
        ("0 7 * * * x\r", "carriage return"),
        ("0 7 * * * x " + "y" * LONGEST, "cron takes 998"),
        ("0 7 * * * >/dev/null", "runs nothing"),
    ],
)
def test_what_cannot_be_wrapped_is_left_with_the_reason(job: str, why: str) -> None:
    done = wrapped(job + "\n")
    comment, same = done.text.removesuffix("\n").split("\n")
    assert same == job
    assert comment.startswith("# clawq: left as it was: ")
    assert why in comment
    assert done.wrapped == 0
    assert done.left[0][0] == 1


@pytest.mark.parametrize(
    "job",
    ["clawq enqueue x", "/opt/bin/clawq run --standby", "cd /x && clawq add y", "flock -n /l clawq prune"],
)
def test_what_calls_clawq_is_left_without_a_word(job: str) -> None:
    done = wrapped(f"0 7 * * * {job}\n")
    assert done.text == f"0 7 * * * {job}\n"
    assert (done.already, done.left) == (1, ())


def test_variables_of_the_crontab_go_with_the_job() -> None:
    done = wrapped("API_TOKEN=abc\nMAILTO=me\nPATH=/a\nLANG=C\n0 7 * * * x\nLATER=1\n")
    assert "--exclusive x --env API_TOKEN --env LANG -- x" in done.text
    assert done.secrets == ("API_TOKEN",)


def test_where_the_queue_is_comes_before_the_first_job() -> None:
    places = {"CLAWQ_HOME": "/srv/my q"}
    done = wrapped("A=1\n@reboot y\n0 7 * * * x\n0 8 * * * z\n", places).text
    assert done.count("CLAWQ_HOME=/srv/my q\n") == 1
    assert done.index("CLAWQ_HOME") < done.index(CLAWQ)
    own = "CLAWQ_HOME=/other\n0 7 * * * x\n"
    assert "/srv" not in wrapped(own, places).text


def test_the_shell_of_the_crontab_runs_what_needs_one() -> None:
    assert line("SHELL=/bin/bash\n0 7 * * * a | b").endswith("-- /bin/bash -c 'a | b'")
    assert line("SHELL=/bin/bash\n0 7 * * * a &>/dev/null").endswith("-- a")


@pytest.mark.parametrize(
    ("raw", "command", "given"),
    [
        ("a", "a", None),
        ("date +\\%F", "date +%F", None),
        ("cat%one%two", "cat", "one%two"),
        ("a\\\\%b", "a\\\\", "b"),
        ("a\\nb", "a\\nb", None),
    ],
)
def test_percent_signs_as_cron_reads_them(raw: str, command: str, given: str | None) -> None:
    assert split_at_percent(raw) == (command, given)


@given(st.text(st.sampled_from("a%\\' "), max_size=12))
def test_what_is_written_is_what_cron_reads(command: str) -> None:
    try:
        assert split_at_percent(escape_percent(command)) == (command, None)
    except CannotWrap:
        assert "\\%" in command


# ---------------------------------------------------------------- a wrapped line does the same

FAKE = """\
#!{python}
# Does at once what the job would do, with nothing of cron's environment but what a job keeps.
import os, sys
sys.path.insert(0, {root!r})
from clawq import options
given = options.read(options.parse(sys.argv[2:]), 0)
os.chdir(given.get("cwd", "."))
env = {{"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}} | given.get("env", {{}})
os.execvpe(given["command"][0], given["command"], env)
"""

SAME = [
    "printf '<\\%s>' a 'b c' \"d e\" f\\ g",
    "printf '<\\%s>' \"$HOME\" ~ ~/x",
    "printf '<\\%s>' $HOME/x",
    "printf '<\\%s>' \"it's\" 'say \"hi\"'",
    "printf '<\\%s>' '$HOME' \"\\$HOME\" \\$HOME",
    "printf '<\\%s>' 100\\%",
    "printf '<\\%s>' *",
    "printf '<\\%s>' a # a comment",
    "echo a; echo b",
    "echo a && echo b || echo c",
    "false || echo c",
    'echo "$(echo in)" `echo ticks`',
    "echo a | tr a b",
    "echo to-a-file > out; cat out",
    "echo gone >/dev/null; echo there",
    "cd sub && pwd -P",
    "cd sub && echo $(pwd -P) | tr a-z A-Z",
    "cd missing || echo c",
    "cd sub; pwd -P",
    "GREETING=hi sh -c 'echo $GREETING'",
    "GREETING='a b' OTHER=2 sh -c 'echo \"$GREETING\" $OTHER'",
    "LATE=a echo $LATE b",
    'LATE=a echo "$LATE" b',
    "LATE=a echo $(echo $LATE) b",
    "PATH=$PATH:/nowhere sh -c 'echo $PATH'",
    "flock -n lock echo locked",
    "flock lock -c 'echo one; echo two'",
    "flock lock -c 'echo one; echo two' | tr o 0",
    "timeout 30 echo in time",
    "flock -n lock timeout 30m sh -c 'echo both'",
    "timeout 30 flock -n lock echo both",
    "nice -n 1 echo nice",
    "[ -d sub ] && echo yes",
    "if [ -d sub ]; then echo yes; fi",
    "for f in a b; do echo $f; done",
    "test -x /bin/sh && ( cd / && pwd )",
    "echo $FROM_CRONTAB",
    "sh -c 'echo \"$FROM_CRONTAB\"'",
    "echo Grüße",
    "! false && echo not",
    "{ echo a; echo b; } | sort -r",
    "echo a 2>&1",
    ": nothing; echo ${HOME##*/}",
    "echo '{date}' {hour}",
    "printf '<\\%s>' -- -n",
]


@pytest.mark.parametrize("command", SAME)
def test_a_wrapped_line_does_what_the_line_did(command: str, unreachable_home: Path) -> None:
    fake = unreachable_home / "bin" / "clawq"
    fake.parent.mkdir()
    fake.write_text(FAKE.format(python=sys.executable, root=str(ROOT)))
    fake.chmod(0o755)
    crontab = f"FROM_CRONTAB=some value\n0 7 * * * {command}\n"
    done = rewrite(crontab, [str(fake)], {})
    assert (done.wrapped, done.left) == (1, ()), done.text
    after = done.text.splitlines()[-1].removeprefix("0 7 * * * ")
    outputs = []
    for which, raw in (("before", command), ("after", after)):
        home = unreachable_home / which / "home"
        (home / "sub").mkdir(parents=True)
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "FROM_CRONTAB": "some value"}
        as_cron, given = split_at_percent(raw)
        assert given is None
        ran = subprocess.run(
            ["/bin/sh", "-c", as_cron], env=env, cwd=home, input=b"", capture_output=True, timeout=30
        )
        said = (ran.stdout + ran.stderr).decode()
        outputs.append(
            (ran.returncode, said.replace(f"/{which}/", "/X/").replace(f"/{which.upper()}/", "/X/"))
        )
    assert outputs[0] == outputs[1]
    assert outputs[0][1]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=20))
def test_a_quoted_word_is_one_word_that_means_the_same(text: str) -> None:
    tokens = scan(quote(text) if text else "''")
    assert tokens is not None
    assert [token.literal for token in tokens] == [text]


def test_words_and_what_a_shell_would_make_of_them() -> None:
    tokens = scan('a \'b\'"c"\\d $E "$F" ~/g h* $(i j) `k` 2>l && m#n # o')
    assert tokens is not None
    assert [token.text for token in tokens if not token.operator] == [
        "a", "'b'\"c\"\\d", "$E", '"$F"', "~/g", "h*", "$(i j)", "`k`", "l", "m#n",
    ]  # fmt: skip
    assert tokens[1].literal == "bcd"
    assert [token.by_shell for token in tokens[2:8]] == [False, False, False, True, True, True]
    assert [token.splits for token in tokens[2:5]] == [True, False, False]


@pytest.mark.parametrize("text", ["'", '"', "a\\", "$(", "`a", '"$(a"', "${a", "$('"])
def test_what_does_not_close(text: str) -> None:
    assert scan(text) is None


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_crontab_and_says_the_rest_elsewhere(unreachable_home: Path) -> None:
    file = unreachable_home / "crontab"
    file.write_bytes(b"KEY=1\n0 7 * * * x caf\xe9\n@reboot y\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "clawq", "crontab"]
    by_name = subprocess.run([*argv, "-f", str(file)], capture_output=True, env=env, timeout=60)
    by_stdin = subprocess.run(argv, input=file.read_bytes(), capture_output=True, env=env, timeout=60)
    assert by_name.stdout == by_stdin.stdout
    assert by_name.returncode == 0
    assert b"-- x caf\xe9\n" in by_name.stdout
    assert f"CLAWQ_HOME={os.environ['CLAWQ_HOME']}\n".encode() in by_name.stdout
    assert b"1 job wrapped, 1 left as before, see the comments; " in by_name.stderr
    assert b"KEY would be stored with each job" in by_name.stderr
    missing = subprocess.run([*argv, "-f", "/nowhere"], capture_output=True, env=env, timeout=60)
    assert missing.returncode == 1
    assert missing.stderr.count(b"\n") == 1
    assert not Path(os.environ["CLAWQ_HOME"]).exists()


def test_a_variable_of_the_line_comes_before_that_of_the_crontab() -> None:
    """Of two --env with one name the later one counts."""
    assert line("A=1\nB=2\n0 7 * * * A=3 x").endswith("--env A=3 --env B -- x")


def test_a_variable_whose_name_no_shell_hands_on_goes_with_its_value() -> None:
    assert line("A-B=1\n0 7 * * * x").endswith("--env A-B=1 -- x")


def test_the_folder_that_a_line_asks_for_is_its_own() -> None:
    assert line('0 7 * * * cd d && x "$PWD/y"').endswith("""-- /bin/sh -c 'cd d && x "$PWD/y"'""")


def test_redirections_stay_in_their_order() -> None:
    assert line("0 7 * * * flock -n /l >log x 2>&1").endswith("-- /bin/sh -c '>log x 2>&1'")


@pytest.mark.parametrize("given", ["-w 0", "-w0", "--timeout=0"])
def test_a_lock_that_waits_no_time_is_skipped(given: str) -> None:
    assert "--dedupe-scope active" in line(f"0 7 * * * flock {given} /l x")


def test_a_comment_behind_the_command_stays() -> None:
    """There are programs that find their lines by it."""
    job = line('0 7 * * * cd d && x  # nightly 100\\% "it')
    assert job.endswith('--cwd d -- x # nightly 100\\% "it')


@pytest.mark.parametrize("shell", ["/usr/bin/python3", "/usr/bin/fish", "/bin/bash -e"])
def test_another_language_than_that_of_sh_is_left(shell: str) -> None:
    done = wrapped(f"SHELL={shell}\n0 7 * * * x\n")
    assert done.wrapped == 0
    assert "its SHELL speaks" in done.text


def test_where_the_queue_is_can_be_read_by_cron() -> None:
    assert 'CLAWQ_HOME="/q\' "\n' in wrapped("0 7 * * * x", {"CLAWQ_HOME": "/q' "}).text
    with pytest.raises(UsageError, match="cannot hold the path"):
        wrapped("0 7 * * * x", {"CLAWQ_HOME": "/a\nb"})


def test_many_lines_of_one_program_cost_no_more_than_others() -> None:
    """Once the names were counted from one for each: ten seconds for ten thousand lines."""
    done = wrapped("0 7 * * * x\n" * 10_000)
    assert "--exclusive x-10000 " in done.text


def exclusives(text: str) -> list[str]:
    return [each.split("--exclusive ")[1].split()[0] for each in wrapped(text).text.splitlines()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("flock -n /t/l a", "flock -n '/t/l' b"),
        ('flock -n "$HOME/l" a', "flock -n ~/l b"),
        ("cd /d && flock -n l a", 'cd "/d" && flock -n l b'),
    ],
)
def test_one_lock_file_has_one_name_however_it_is_written(one: str, other: str) -> None:
    assert exclusives(f"0 7 * * * {one}\n0 8 * * * {other}\n") == ["l", "l"]


def test_lock_files_of_two_folders_are_two() -> None:
    text = "0 7 * * * cd /a && flock -n l x\n0 8 * * * cd /b && flock -n l x\n"
    assert exclusives(text) == ["l", "l-2"]
