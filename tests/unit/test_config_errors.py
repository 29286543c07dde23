"""What a person reads when clawq.toml is wrong: one line with file, line, key, what was expected, what is near."""

# ruff: noqa: E501  the lines stand here as they are printed

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawq import when
from clawq.config import compile_file
from clawq.config.compiler import MAX_BYTES, check_file, check_text
from clawq.errors import ConfigError

FILE = "/home/me/clawq.toml"


def complaints(text: str) -> list[str]:
    """Each problem of `text` as it is printed, without the file's name."""
    found = []
    for problem in check_text(text, FILE).problems:
        error = str(ConfigError(problem.where_and_what(FILE), problem.fix))
        assert error.startswith(FILE)
        assert error.isprintable(), error
        found.append(error.removeprefix(FILE))
    return found


BUDGETS = '[budgets.tokens]\nlimit = 100\nper = "1m"\nper_tenant = 40\n'

A_KIND = '[kinds.a]\ncommand = ["true"]\n'
SCHEDULE = A_KIND + '[[schedules]]\ncron = "@daily"\nkind = "a"\n'

ONE_BY_ONE = {
    A_KIND + '[[schedules]]\ncron = "0 7 * * 8"\nkind = "a"': (
        ":4: schedules.cron: day of week '8': 0 to 7, or sun to sat"
    ),
    A_KIND + '[[schedules]]\ncron = "7"\nkind = "a"': (
        ":4: schedules.cron: 1 field instead of 5: minute hour day-of-month month day-of-week, or one of @hourly, "
        "@daily, @weekly, @monthly, @yearly"
    ),
    A_KIND + '[[schedules]]\ncron = 7\nkind = "a"': (
        ':4: schedules.cron: expected a time as in a crontab, such as "0 7 * * *" or "@daily", not 7'
    ),
    A_KIND + '[[schedules]]\nkind = "a"': (
        ':3: schedules.cron: missing: expected a time as in a crontab, such as "0 7 * * *" or "@daily"'
    ),
    SCHEDULE + '[[schedules]]\ncron = "@daily"': (
        ':6: schedules.kind: missing: expected a kind such as "site.qa.light"'
    ),
    SCHEDULE.replace('"a"', '"aa"'): ':5: schedules.kind: no kind "aa": did you mean a?',
    SCHEDULE + "[kinds.b]\n[[schedules]]\nkind = 'b'\ncron = '@daily'": (
        ':8: schedules.kind: kind "b" has no command: give it one: nobody else will'
    ),
    SCHEDULE + '[[schedules]]\ncron = " @daily "\nkind = "a"': (
        ":8: schedules.kind: the same kind at the same times, twice: leave one of them out"
    ),
    SCHEDULE + 'catchup = "once"': ":6: schedules.catchup: unknown key: did you mean catch_up?",
    SCHEDULE + 'catch_up = "onec"': (
        ":6: schedules.catch_up: no such choice 'onec': did you mean once? one of once, skip"
    ),
    "[schedules]\ncron = 1": ":1: schedules: expected tables, each headed [[schedules]], not a table",
    "schedules = [1]": ":1: schedules: expected a table headed [[schedules]], not 1",
    '[kinds.a]\ncron = "@daily"': ":2: kinds.a.cron: unknown key: it belongs under a header [[schedules]]",
    "[limits]\nmax_runing = 3": ":2: limits.max_runing: unknown key: did you mean max_running?",
    "lmits = 3": ":1: lmits: unknown key: did you mean limits?",
    "zzz = 3": ":1: zzz: unknown key: expected one of mode, limits, host, alerts, resources, budgets, env, bands, "
    "tenants, kinds, schedules",
    '[kinds."site.qa"]\nlease = "1m"\nmax_atempts = 3': (
        ':3: kinds."site.qa".max_atempts: unknown key: did you mean max_attempts?'
    ),
    '[kinds.site.qa]\nlease = "1m"': ':1: kinds.site.qa: unknown key: a name with a dot needs quotes: [kinds."site.qa"]',
    '[limits]\nretry_after = "1m"': ":2: limits.retry_after: unknown key: it belongs in [host]",
    '[bands.bulk]\nband = "bulk"': ":2: bands.bulk.band: unknown key: it belongs in [kinds.NAME]",
    # Keys of a larger clawq are not taken and ignored.
    "[limits]\nstdout = 4": ":2: limits.stdout: unknown key: expected one of max_running, max_running_per_tenant, "
    "max_running_per_workflow, max_depth, max_descendants, max_queued, max_queued_per_tenant, max_held, max_waiting, "
    "reserve_after, age_boost, retention, retention_mb, log_max_mb",
    # A key that stands somewhere else is sent there, whatever is spelled like it here.
    '[limits]\nmax_held = 3\nmode = "observe"': (
        ":3: limits.mode: unknown key: it belongs at the top of the file, before the first table"
    ),
    "[kinds.a]\nshare = 3": ":2: kinds.a.share: unknown key: it belongs in [bands.NAME]",
    "[kinds.a]\nweight = 3": ":2: kinds.a.weight: unknown key: it belongs in [tenants.NAME]",
    '[resources.a]\nlimit = 1\nper = "1m"': ":3: resources.a.per: unknown key: it belongs in [budgets.NAME]",
    'mode = "obseve"': ":1: mode: no such mode 'obseve': did you mean observe? one of enforce, observe",
    "mode = true": ':1: mode: expected "enforce" or "observe", not true',
    # Types are as strict as TOML's.
    '[limits]\nmax_running = "8"': ':2: limits.max_running: expected a whole number, at least 1, not "8"',
    "[limits]\nmax_running = 8.0": ":2: limits.max_running: expected a whole number, at least 1, not 8.0",
    "[limits]\nmax_running = true": ":2: limits.max_running: expected a whole number, at least 1, not true",
    "[limits]\nmax_running = 0": ":2: limits.max_running: expected a whole number, at least 1, not 0",
    "[limits]\nmax_held = -1": ":2: limits.max_held: expected a whole number, at least 0, not -1",
    f"[limits]\nmax_queued = {10**30}": (
        ":2: limits.max_queued: expected a whole number, at least 1, not a number that large"
    ),
    f"[limits]\nmax_queued = 0x{'f' * 9000}": (
        ":2: limits.max_queued: expected a whole number, at least 1, not a number that large"
    ),
    "limits = 3": ":1: limits: expected a table, not 3",
    "[[kinds]]": ":1: kinds: expected a table, not a list",
    "[tenants]\nmax_running = 3": ":2: tenants.max_running: expected a table [tenants.max_running], not 3",
    '[host]\nmax_user_procs = "of"': ':2: host.max_user_procs: expected a whole number, at least 1, or "off", not "of"',
    "[host]\nmin_free_mb = true": ':2: host.min_free_mb: expected a whole number, at least 0, or "off", not true',
    '[limits]\nretention = "3w"': (
        ':2: limits.retention: expected a duration of "1s" or more, such as "10m" or "2h", not "3w"'
    ),
    '[kinds.a]\ngrace = "-1s"': ':2: kinds.a.grace: expected a duration such as "90s", "10m", "2h" or "1d", not "-1s"',
    "[kinds.a]\ntimeout = 60": (
        ':2: kinds.a.timeout: expected a duration of "1s" or more, such as "30m", or "none", not 60'
    ),
    '[kinds.a]\ntimeout = "0s"': (
        ':2: kinds.a.timeout: expected a duration of "1s" or more, such as "30m", or "none", not "0s"'
    ),
    "[kinds.a]\nstale_after = 12:00:00": (
        ':2: kinds.a.stale_after: expected a duration such as "10m", or a time of day such as "12:00", '
        "not 12:00:00 without quotes"
    ),
    '[kinds.a]\nstale_after = "24:00"': (
        ':2: kinds.a.stale_after: expected a duration such as "10m", or a time of day such as "12:00", not "24:00"'
    ),
    '[kinds.a]\nband = "normall"': (
        ":2: kinds.a.band: no such band 'normall': did you mean normal? one of critical, interactive, normal, bulk"
    ),
    '[bands.blk]\nlease = "1m"': (
        ":1: bands.blk: no such band 'blk': did you mean bulk? one of critical, interactive, normal, bulk"
    ),
    '[kinds.a]\non_lost = "maybe"': ":2: kinds.a.on_lost: no such choice 'maybe': one of retry, unknown",
    '[kinds.a]\nheartbeat = "agnet"': (
        ":2: kinds.a.heartbeat: no such heartbeat 'agnet': did you mean agent? one of process, output, agent"
    ),
    '[kinds.a]\npriority = "high"': ':2: kinds.a.priority: expected a whole number, -100000 to 100000, not "high"',
    '[host]\nmax_pressure = "warning"': (
        ":2: host.max_pressure: no such pressure 'warning': did you mean warn? one of normal, warn, critical, off"
    ),
    "[host]\nmax_pressure = 1": ':2: host.max_pressure: expected "normal", "warn", "critical" or "off", not 1',
    '[host]\nmin_free_disk_mb = "none"': (
        ':2: host.min_free_disk_mb: expected a whole number, at least 0, or "off", not "none"'
    ),
    '[limits]\nage_boost = "0s"': (
        ':2: limits.age_boost: expected a duration of "1s" or more, such as "10m" or "2h", not "0s"'
    ),
    "[limits]\nreserve_after = 300": (
        ':2: limits.reserve_after: expected a duration such as "90s", "10m", "2h" or "1d", not 300'
    ),
    "[limits]\nmax_running_per_workflow = 0": (
        ":2: limits.max_running_per_workflow: expected a whole number, at least 1, not 0"
    ),
    '[kinds.a]\non_full = "drop"': ":2: kinds.a.on_full: no such choice 'drop': one of reject, drop_oldest, coalesce",
    '[kinds.a]\non_busy = "wait"': ":2: kinds.a.on_busy: no such choice 'wait': one of queue, reject, degrade",
    "[kinds.a]\nmax_procs = 0": ":2: kinds.a.max_procs: expected a whole number, at least 1, not 0",
    "[kinds.a]\nmax_mb = 1.5": ":2: kinds.a.max_mb: expected a whole number, at least 1, not 1.5",
    '[kinds.a]\nrefuse_hopeless = "yes"': ':2: kinds.a.refuse_hopeless: expected true or false, not "yes"',
    "[kinds.a]\nrefuse_hopeless = 1": ":2: kinds.a.refuse_hopeless: expected true or false, not 1",
    # Weights and shares.
    "[tenants.a]\nweight = 0": ":2: tenants.a.weight: expected a number, 0.001 to 1000, not 0",
    "[tenants.a]\nweight = -1.5": ":2: tenants.a.weight: expected a number, 0.001 to 1000, not -1.5",
    "[tenants.a]\nweight = inf": ":2: tenants.a.weight: expected a number, 0.001 to 1000, not inf",
    "[tenants.a]\nweight = nan": ":2: tenants.a.weight: expected a number, 0.001 to 1000, not nan",
    "[tenants.a]\nweight = true": ":2: tenants.a.weight: expected a number, 0.001 to 1000, not true",
    "[bands.bulk]\nshare = 0": ":2: bands.bulk.share: expected a number above 0, at most 100, not 0",
    "[bands.bulk]\nshare = 101": ":2: bands.bulk.share: expected a number above 0, at most 100, not 101",
    "[bands.bulk]\nshare = nan": ":2: bands.bulk.share: expected a number above 0, at most 100, not nan",
    '[bands.bulk]\nshare = "60%"': ':2: bands.bulk.share: expected a number above 0, at most 100, not "60%"',
    "[bands.interactive]\nshare = 60\n[bands.normal]\n[bands.bulk]\nshare = 40.5\n": (
        ":5: bands.bulk.share: the shares come to 100.5 percent, 60 of interactive + 40.5 of bulk: all together at most 100"
    ),
    # Budgets.
    "[budgets.tokens]\nlimit = 3": (
        ':1: budgets.tokens.per: missing: expected a duration of "1s" or more, such as "10m" or "2h"'
    ),
    '[budgets.tokens]\nper = "1m"': ":1: budgets.tokens.limit: missing: expected a whole number, at least 1",
    '[budgets.tokens]\nlimit = 3\nper = "0s"': (
        ':3: budgets.tokens.per: expected a duration of "1s" or more, such as "10m" or "2h", not "0s"'
    ),
    "[kinds.a]\nspends = { tokens = 3 }": (
        ':2: kinds.a.spends.tokens: no budget "tokens": add a table [budgets.tokens]'
    ),
    f"{BUDGETS}[kinds.a]\nspends = {{ tokns = 3 }}": (
        ':6: kinds.a.spends.tokns: no budget "tokns": did you mean tokens?'
    ),
    f"{BUDGETS}[kinds.a]\nspends = {{ other = 3 }}": (
        ':6: kinds.a.spends.other: no budget "other": expected one of tokens'
    ),
    f"{BUDGETS}[kinds.a.spends]\ntokens = 0": (
        ":6: kinds.a.spends.tokens: expected a whole number, at least 1, not 0"
    ),
    f"{BUDGETS}[kinds.a]\nspends = 3": (
        ":6: kinds.a.spends: expected a table of amounts such as { model_tokens = 8000 }, not 3"
    ),
    f"{BUDGETS}[kinds.a]\nspends = {{ tokens = 101 }}": (
        ":6: kinds.a.spends.tokens: 101 is more than budgets.tokens.limit = 100: "
        "no such job could ever start: lower it, or raise the budget"
    ),
    f"{BUDGETS}[bands.bulk]\nspends = {{ tokens = 41 }}": (
        ":6: bands.bulk.spends.tokens: 41 is more than budgets.tokens.per_tenant = 40: "
        "no such job could ever start: lower it, or raise the budget"
    ),
    f"{BUDGETS}[kinds.a]\nspends = {{ tokens = 0x{'f' * 9000} }}": (
        ":6: kinds.a.spends.tokens: expected a whole number, at least 1, not a number that large"
    ),
    # Degrading.
    '[kinds.a]\ndegrade_to = "lite"\n[kinds.light]': (
        ':2: kinds.a.degrade_to: no kind "lite": did you mean light?'
    ),
    '[kinds.a]\n\non_busy = "degrade"': (
        ':3: kinds.a.degrade_to: missing: on_busy = "degrade" takes a kind to degrade to'
    ),
    # The band of a job may be another than its kind's: there, nothing says what to degrade to.
    '[kinds.a]\nband = "bulk"\non_busy = "degrade"\n[bands.bulk]\ndegrade_to = "default"': (
        ':3: kinds.a.degrade_to: missing: on_busy = "degrade" takes a kind to degrade to'
    ),
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "a"': (
        ':3: kinds.a.degrade_to: "a" would degrade to itself: name another kind, or say on_busy = "queue" in [kinds.a]'
    ),
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "b"\n[kinds.b]\non_busy = "degrade"\ndegrade_to = "default"': (
        ':3: kinds.a.degrade_to: "b" degrades too: name another kind, or say on_busy = "queue" in [kinds.b]'
    ),
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "b"\n[kinds.b]\non_busy = "degrade"\ndegrade_to = "a"': (
        ':3: kinds.a.degrade_to: "b" degrades too: name another kind, or say on_busy = "queue" in [kinds.b]'
    ),
    '[bands.bulk]\non_busy = "degrade"\ndegrade_to = "light"\n[kinds.light]': (
        ':3: bands.bulk.degrade_to: "light" would degrade to itself: name another kind, or say on_busy = "queue" in [kinds.light]'
    ),
    '[bands.bulk]\non_busy = "degrade"\ndegrade_to = "light"\n[kinds.light]\non_busy = "queue"\n'
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "b"\n[kinds.b]': (
        ':8: kinds.a.degrade_to: "b" degrades too in band bulk: '
        'name another kind, or say on_busy = "queue" in [kinds.b]'
    ),
    # Names.
    '[resources."a b"]\nlimit = 1': (
        ':1: resources."a b": not a name: letters, digits and . _ : - are possible, a letter or digit first'
    ),
    '[kinds."-x"]': ":1: kinds.-x: not a name: letters, digits and . _ : - are possible, a letter or digit first",
    "[kinds.ask]": ":1: kinds.ask: this kind is clawq's own: choose another name",
    "[resources.gpu]\nmin_free_mb = 1": ":1: resources.gpu.limit: missing: expected a whole number, at least 1",
    '[kinds.a]\nneeds = ["browsr"]': ':2: kinds.a.needs: no resource "browsr": did you mean browser?',
    '[bands.bulk]\nneeds = [\n "shell",\n "gpu"]': (
        ':4: bands.bulk.needs: no resource "gpu": expected one of browser, local_model, shell'
    ),
    '[kinds.a]\nneeds = "browser"': (
        ':2: kinds.a.needs: expected a list of resources such as ["browser"], not "browser"'
    ),
    # Commands.
    '[kinds.a]\ncommand = "site-qa --x"': (
        ':2: kinds.a.command: expected a list such as ["site-qa", "--payload", "{payload_file}"], not "site-qa --x"'
    ),
    "[kinds.a]\ncommand = []": (
        ':2: kinds.a.command: expected a list such as ["site-qa", "--payload", "{payload_file}"], not a list'
    ),
    '[kinds.a]\ncommand = [\n  "x",\n  "{payloads}",\n]': (
        ":4: kinds.a.command: unknown placeholder {payloads}: did you mean payload? "
        "there are {payload}, {payload_file}, {job_id}, {attempt}, {field:NAME}"
    ),
    '[kinds.a]\ncommand = ["{field:x}"]': (
        ":2: kinds.a.command: {field:x} as the program: name the program, placeholders come after it"
    ),
    # Variables.
    "[env]\nA = 1": ":2: env.A: expected text in quotes, not 1",
    '[kinds.a]\nenv = { A = ["x"] }': ":2: kinds.a.env.A: expected text in quotes, not a list",
    '[kinds.a]\nenv = "A=1"': (
        ':2: kinds.a.env: expected a table of texts such as { NODE_ENV = "production" }, not "A=1"'
    ),
    '[env]\n"A-B" = "1"': (
        ":2: env.A-B: not a variable's name: letters, digits and _ are possible, no digit first"
    ),
    '[env]\nCLAWQ_HOME = "/x"': ":2: env.CLAWQ_HOME: clawq sets this variable itself: choose another name",
    '[env]\nA = "\\u0000"': ':2: env.A: expected text in quotes, not "\\u0000"',
    '[kinds.a]\nenv_file = "~nobody-at-all/x"': (
        ':2: kinds.a.env_file: expected a path such as "~/.config/agents.env", not "~nobody-at-all/x"'
    ),
    # Nothing in the file may steer the terminal.
    '[kinds.a]\n"k\\u001b[31m" = 1\nlease = "\\u001b[31m"': (
        ':3: kinds.a.lease: expected a duration of "1s" or more, such as "10m" or "2h", not "\\u001b[31m"'
    ),
    # TOML's own errors have their own line.
    "[limits]\nmax_running = = 3": ":2: not TOML: Invalid value (column 15)",
    "a = 1\na = 2": ":2: not TOML: this name is in the file already: keep one of the two",
    '[kinds."a.b"]\n[kinds."a.b"]': (
        ':2: not TOML: [kinds."a.b"] is in the file twice: put its keys under one header (column 13)'
    ),
    'a = "x': ":1: not TOML: Unterminated string",
    "x = " + "9" * 5000: ": a number that nobody can mean: look for a very long one",
    "x = " + "[" * 5000: ": nested too deep: three levels are all there is",
    # A parser needs seconds for this one, and hundreds of megabytes.
    "\na" + ".a" * 20_000 + " = 1": ":2: more than 32 dots outside of quotes: three levels are all there is",
}


def test_dots_inside_quotes_and_comments_are_as_many_as_one_likes() -> None:
    dots = "." * 100
    assert complaints(f'[kinds.a]  # {dots}\ncommand = [\'{dots}\', "{dots}", """\n{dots}"""]') == []


@pytest.mark.parametrize(("text", "expected"), ONE_BY_ONE.items())
def test_one_line_says_where_what_and_what_to_do(text: str, expected: str) -> None:
    found = complaints(text)
    assert any(each.startswith(expected) for each in found), found


@pytest.mark.parametrize("text", ["12:00", "7:05", "00:00", "23:59", "90s", "1d"])
def test_a_time_that_is_accepted_here_is_understood_at_enqueue(text: str) -> None:
    found = check_text(f'[kinds.a]\nstale_after = "{text}"\ndeadline = "{text}"', FILE).body
    assert found is not None
    assert found["kinds"]["a"] == {"stale_after": text, "deadline": text}
    now = 1_700_000_000_000
    assert now < when.moment_or_duration(text, now) <= now + 86_400_000


RIGHT = [
    # Exactly all of it, and in fractions whose sum is a little more than 100.
    "[bands.interactive]\nshare = 60\n[bands.bulk]\nshare = 40\n",
    "[bands.critical]\nshare = 33.3\n[bands.normal]\nshare = 33.4\n[bands.bulk]\nshare = 33.3\n",
    f"{BUDGETS}[kinds.a]\nspends = {{ tokens = 40 }}\n[kinds.b]\nspends = {{}}\n",
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "b"\n[kinds.b]\non_busy = "reject"\n',
    '[kinds.a]\non_busy = "degrade"\ndegrade_to = "default"\n',
    '[bands.bulk]\non_busy = "degrade"\ndegrade_to = "b"\n[kinds.b]\non_busy = "queue"\n',
    'mode = "observe"\n[tenants.a]\nweight = 0.5\n[tenants.b]\nweight = 3\n',
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_not_complained_of(text: str) -> None:
    checked = check_text(text, FILE)
    assert checked.problems == checked.warnings == ()
    assert checked.body is not None


def test_a_cycle_is_told_at_each_kind_once() -> None:
    names = ["a", "b", "c"]
    text = "".join(
        f'[kinds.{name}]\non_busy = "degrade"\ndegrade_to = "{after}"\n'
        for name, after in zip(names, [*names[1:], names[0]], strict=True)
    )
    assert [each.split(": ")[1] for each in complaints(text)] == [
        f"kinds.{name}.degrade_to" for name in names
    ]


@pytest.mark.parametrize("section", ["bands", "budgets", "kinds", "resources", "tenants"])
@pytest.mark.parametrize(
    "value", ["3", '"x"', "[[1]]", "{ bulk = 3 }", "{ bulk = { share = [], spends = 3 } }"]
)
def test_a_value_of_another_type_hides_no_other_problem_and_raises_nothing(section: str, value: str) -> None:
    text = f'{section} = {value}\n[host]\nmax_pressure = "x"\n'
    assert any("host.max_pressure" in each for each in complaints(text))


def test_every_problem_is_told_in_the_order_of_the_file() -> None:
    text = 'a = 1\n[kinds.x]\nneeds = ["gpu", "tpu"]\nlease = 1\n[limits]\nmax_held = "x"\n'
    assert [each.split(" ")[0] + " " + each.split(" ")[1] for each in complaints(text)] == [
        ":1: a:",
        ":3: kinds.x.needs:",
        ":3: kinds.x.needs:",
        ":4: kinds.x.lease:",
        ":6: limits.max_held:",
    ]


def test_elsewhere_the_first_problem_stands_for_all(tmp_path: Path) -> None:
    file = tmp_path / "clawq.toml"
    file.write_text('[limits]\nmax_runing = 1\nmax_held = "x"\nretention = 3\n')
    with pytest.raises(ConfigError) as error:
        compile_file(str(file))
    assert str(error.value) == (
        f"{file}:2: limits.max_runing: unknown key: did you mean max_running? (and 2 more: clawq config check)"
    )
    assert error.value.exit_code == 78


def whole_file(path: Path) -> str:
    problem, *more = check_file(str(path)).problems
    assert more == []
    return str(ConfigError(problem.where_and_what(path.name), problem.fix))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa = 1", "f:1: begins with a byte order mark: save it as UTF-8 without one"),
        ("a = 1".encode("utf-16"), "f: UTF-16 text: save it as UTF-8"),
        (b"a = 1\nb = '\xe9'\n", "f:2: not UTF-8 text: save it as UTF-8"),
        (b"#" * (MAX_BYTES + 1), "f: larger than 1 MiB: this is hardly a clawq.toml"),
    ],
)
def test_bytes_that_are_no_text(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "f").write_bytes(content)
    assert whole_file(tmp_path / "f") == expected


def test_what_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    assert whole_file(tmp_path / "folder") == "folder: a folder: clawq.toml has to be a file: move it away"
    assert (
        whole_file(tmp_path / "pipe") == "pipe: not a plain file: clawq.toml has to be a file: move it away"
    )
    assert whole_file(tmp_path / "link") == "link: a link to nothing: mend or remove it"
    assert whole_file(tmp_path / "link" / "f") == "f: its folder is a link to nothing: mend or remove it"
    (tmp_path / "file").touch()
    assert whole_file(tmp_path / "file" / "f") == "f: cannot be there: its folder is a file: move that away"
    assert not check_file(str(tmp_path / "file" / "folder" / "f")).problems  # HOME=/dev/null


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.touch(0o000)

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # undone before anything else opens a file
        if os.geteuid() == 0:
            # Root may read everything: let the kernel's answer be as it would be for anyone else.
            patch.setattr(os, "open", refuse)
        said = whole_file(file)
    assert said == "f: cannot be read (Permission denied): check its owner and mode"


def warnings(text: str) -> list[str]:
    checked = check_text(text, FILE)
    assert checked.problems == ()
    return [f"{each.where_and_what('f')}: {each.fix}" for each in checked.warnings]


def test_a_placeholder_inside_a_shell_script_is_warned_of() -> None:
    text = '[kinds.a]\ncommand = [\n "sh", "-c",\n "echo {payload}"]\n'
    [warning] = warnings(text)
    assert warning == (
        "f:4: kinds.a.command: the shell reads {payload} inside a -c script as code: "
        'write "$1" there and append "--", "{payload}" to the list'
    )
    assert warnings('[kinds.a]\ncommand = ["sh", "-c", "echo $1", "--", "{payload}"]') == []


def test_a_share_of_no_slot_is_warned_of() -> None:
    text = "[limits]\nmax_running = 2\n[bands.interactive]\nshare = 90\n[bands.bulk]\nshare = 10\n"
    [warning] = warnings(text)
    assert warning == (
        "f:6: bands.bulk.share: 10 percent of max_running = 2 is no whole slot: "
        "this band will only borrow: raise one of them"
    )


def test_what_to_do_when_full_without_a_cap_is_warned_of() -> None:
    text = '[kinds.a]\non_full = "coalesce"\n'
    assert warnings(text) == ["f:2: kinds.a.on_full: is not used: it takes a queue_cap"]
    assert warnings(f"{text}queue_cap = 3\n") == warnings(f"{text}[bands.bulk]\nqueue_cap = 3\n") == []
    assert warnings('[kinds.a]\non_full = "reject"\n') == []


def test_a_kind_to_degrade_to_that_is_never_taken_is_warned_of() -> None:
    text = '[kinds.a]\ndegrade_to = "default"\n'
    assert warnings(text) == ['f:2: kinds.a.degrade_to: is not used: it takes on_busy = "degrade"']
    assert warnings(f'{text}[bands.bulk]\non_busy = "degrade"\n[kinds.default]\non_busy = "queue"\n') == []


def test_a_path_with_what_only_a_shell_expands_is_warned_of() -> None:
    assert warnings('[env]\nPATH = "~/bin:/bin"') == [
        "f:2: env.PATH: ~ and $ are not expanded: write whole paths"
    ]
    assert warnings('[kinds.a.env]\nPATH = "$HOME/bin"') == [
        "f:2: kinds.a.env.PATH: ~ and $ are not expanded: write whole paths"
    ]
    assert warnings('[kinds.a]\ncommand = [\n "~/bin/a", "~"]') == [
        "f:3: kinds.a.command: ~ is not expanded: write the whole path"
    ]
    assert warnings('[env]\nPATH = "/bin"\nGREETING = "$1 ~"') == []


def test_an_env_file_that_no_job_could_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "agents.env"
    text = f'[kinds.a]\nenv_file = "{file}"'
    missing = f"f:2: kinds.a.env_file: {file} cannot be read (No such file or directory): "
    assert warnings(text) == [missing + "its jobs cannot start until it is there"]
    file.touch(0o644)
    assert warnings(text) == [f"f:2: kinds.a.env_file: {file} may be read by others: chmod 600 it"]
    file.chmod(0o600)
    assert warnings(text) == []
